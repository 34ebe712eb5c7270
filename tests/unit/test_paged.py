"""Paged caches and their pool by hand: sizes, what is refused, what is a view and what is copied, and who gives blocks back."""

import sys
from pathlib import Path

import pytest
import torch
from helpers import assert_close, make_model, random_ids, uncached
from helpers import small_models as small_models
from pools import check_pool

import kvcourse
from kvcourse.caches.base import KVCache, undone_on_error
from kvcourse.caches.make import make_cache
from kvcourse.caches.paged import PagedCache, PagedPool
from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse, InputError, KVCourseError
from kvcourse.generate import decode_step, generate, prefill
from kvcourse.meter import Meter

pytestmark = pytest.mark.usefixtures("small_models")


def token_bytes(model):
    return kv_bytes_per_token(model.config, model.dtype.itemsize)


def inside(rows, pool):
    """True if these rows are views of the pool's own memory."""
    stores = {t.untyped_storage().data_ptr() for t in (*pool.keys, *pool.values)}
    return all(t.untyped_storage().data_ptr() in stores for t in rows)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_pool_is_blocks_of_tokens_in_every_layer_of_its_model(dtype):
    model = make_model("llama", dtype)
    pool = PagedPool(model, n_blocks=5, block_tokens=8)
    assert (len(pool.keys), len(pool.values)) == (3, 3)
    assert {tuple(t.shape) for t in (*pool.keys, *pool.values)} == {(5, 8, 2, 6)}  # N P H_kv D
    assert {t.dtype for t in (*pool.keys, *pool.values)} == {dtype}
    assert pool.block_bytes == 8 * token_bytes(model)
    assert pool.nbytes == sum(t.nbytes for t in (*pool.keys, *pool.values)) == 5 * pool.block_bytes
    assert pool.used_bytes == 0
    model(random_ids(1, 9), cache=PagedCache(pool))
    assert PagedPool(model, 2).block_tokens == 16


def test_a_paged_cache_keeps_the_contract_and_takes_blocks_when_it_needs_them():
    model = make_model("gpt")
    pool = PagedPool(model, 6, 4)
    cache = PagedCache(pool)
    assert isinstance(cache, KVCache) and kvcourse.PagedCache is PagedCache and kvcourse.PagedPool is PagedPool
    assert (cache.keys, cache.exact, cache.can_fork, cache.rewinds, cache.window) == ("rotated", True, True, True, None)
    assert (cache.length, cache.held, cache.nbytes, cache.capacity, cache.tables) == (0, 0, 0, 24, [])
    for length, blocks in ((1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        model(random_ids(2, length - cache.length), cache=cache)
        assert [len(table) for table in cache.tables] == [blocks, blocks]
        assert cache.nbytes == pool.used_bytes == 2 * blocks * 4 * token_bytes(model)
        check_pool(cache)
    assert (cache.length, cache.held, cache.capacity) == (9, 9, 12)
    cache.reset()
    assert (cache.length, cache.nbytes, cache.tables, pool.used_bytes) == (0, 0, [], 0)


def test_one_row_in_neighbouring_blocks_is_read_where_it_is():
    model = make_model("llama")
    pool = PagedPool(model, 8, 4)
    cache = PagedCache(pool)
    with Meter() as meter:
        prefill(model, random_ids(6).tolist(), cache)
        for token in random_ids(12).tolist():
            decode_step(model, token, cache)
    assert cache.tables == [[0, 1, 2, 3, 4]]
    assert meter.cost.bytes_copied == 0
    with Meter() as meter:
        assert inside(cache.read(1, 3, 17), pool) and meter.cost.bytes_copied == 0


def test_rows_that_lie_scattered_are_gathered_and_counted():
    model = make_model("llama")
    pool = PagedPool(model, 12, 4)
    one, other, pair = PagedCache(pool), PagedCache(pool), PagedCache(pool)
    model(random_ids(1, 4), cache=one)
    model(random_ids(1, 4), cache=other)
    with Meter() as meter:
        model(random_ids(1, 1), cache=one)
    assert (one.tables, other.tables) == ([[0, 2]], [[1]])
    assert meter.cost.bytes_copied == 2 * 4 * token_bytes(model), "both blocks, whole"
    with Meter() as meter:
        model(random_ids(2, 5), cache=pair)
    assert meter.cost.bytes_copied == 2 * 2 * 4 * token_bytes(model), "a batch is gathered always"
    with Meter() as meter:
        assert inside(one.read(0, 0, 4), pool) and meter.cost.bytes_copied == 0, "the first block is one in a row"
        assert not inside(one.read(0, 1, 5), pool)
        assert not inside(pair.read(0, 4, 5), pool)
    assert meter.cost.bytes_copied == (8 + 2 * 4) * token_bytes(model) // 3, "the blocks asked for, in one layer of three"
    other.reset()
    one.truncate(4)
    assert [t.shape for t in pair.read(0, 3, 3)] == [(2, 2, 0, 6)] * 2
    with Meter() as meter:
        model(random_ids(1, 1), cache=one)
    assert (one.tables, meter.cost.bytes_copied) == ([[0, 1]], 0), "in a row again"


def test_a_sequence_stays_in_a_row_when_blocks_before_it_come_free():
    model = make_model("gpt")
    pool = PagedPool(model, 12, 2)
    first, cache = PagedCache(pool), PagedCache(pool)
    model(random_ids(1, 8), cache=first)
    model(random_ids(1, 4), cache=cache)
    first.reset()
    with Meter() as meter:
        for token in random_ids(8).tolist():
            decode_step(model, token, cache)
    assert (cache.tables, meter.cost.bytes_copied) == ([[4, 5, 6, 7, 8, 9]], 0)


@pytest.mark.parametrize("B", [1, 2])
def test_a_step_takes_as_many_lines_of_python_at_any_length(B):
    model = make_model("llama", context_length=512)
    pool = PagedPool(model, 400, 4)
    cache, lines = PagedCache(pool), []
    here = str(Path(kvcourse.__file__).parent / "caches")

    def traced(frame, event, arg):
        if not frame.f_code.co_filename.startswith(here):
            return None
        lines[-1] += event == "line"
        return traced

    for length in (41, 42, 43, 44, 401, 402, 403, 404):  # one of each four needs new blocks
        model(random_ids(B, length - cache.length), cache=cache)
        lines.append(0)
        before = sys.gettrace()
        sys.settrace(traced)
        model(random_ids(B, 1), cache=cache)
        sys.settrace(before)
        cache.truncate(length)
    assert lines[:4] == lines[4:] and min(lines) > 0


@pytest.mark.parametrize("inside_first", [True, False])
def test_a_pool_made_inside_inference_mode_is_written_to_outside_and_the_other_way_round(inside_first):
    model = make_model("gpt")
    with torch.inference_mode(inside_first):
        pool = PagedPool(model, 8, 4)
        caches = [PagedCache(pool), PagedCache(pool)]
        for cache in caches:
            model(random_ids(1, 6), cache=cache)
    both = torch.cat((random_ids(1, 6), random_ids(1, 3, seed=2)), dim=1)
    expected = uncached(model, both)[:, 6:]
    with torch.inference_mode(not inside_first):
        for cache in (caches[0].fork(), *caches):
            assert_close(model(both[:, 6:], cache=cache).clone(), expected, "either way")


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "8", None], ids=repr)
def test_blocks_and_their_tokens_are_whole_numbers(number):
    model = make_model("gpt")
    for act in (
        lambda: PagedPool(model, 4, number),
        lambda: PagedPool(model, number),
        lambda: make_cache("paged", model, block_tokens=number),
        lambda: make_cache("paged", model, n_blocks=number) if number is not None else PagedPool(model, number),
    ):
        with pytest.raises(InputError, match="1 or more") as caught:
            act()
        assert caught.value.todo


@pytest.mark.parametrize(
    ("changes", "dtype", "named"),
    [
        ({"n_layer": 2}, torch.float64, "layers.*3.*2"),
        ({"n_kv_head": 3}, torch.float64, "K/V heads.*2.*3"),
        ({"head_size": 4}, torch.float64, "head size.*6.*4"),
        ({}, torch.float32, "dtype.*float64.*float32"),
    ],
)
def test_a_model_whose_rows_do_not_fit_the_pool_is_refused_before_anything_changed(changes, dtype, named):
    model, other = make_model("llama"), make_model("llama", dtype, **changes)
    pool = PagedPool(model, 8, 4)
    cache = PagedCache(pool)
    with pytest.raises(CacheMismatch, match=named) as caught:
        other(random_ids(1, 3), cache=cache)
    assert caught.value.todo and pool.used_bytes == 0
    with pytest.raises(CacheMismatch, match="device"):
        cache.bind(model, 1, torch.float64, torch.device("meta"))
    model(random_ids(1, 3), cache=cache)  # it was not bound by what was refused
    twin = PagedCache(pool)
    make_model("llama", seed=5)(random_ids(1, 3), cache=twin)  # a pool serves any model of its shape, a cache only one
    check_pool(cache, twin)
    with pytest.raises(CacheMismatch):
        make_model("llama", seed=5)(random_ids(1, 1), cache=cache)


def test_rows_for_a_layer_that_the_pool_does_not_have_are_refused():
    model = make_model("llama")
    cache = PagedCache(PagedPool(model, 4, 4))
    row = torch.ones(1, 2, 1, 6, dtype=torch.float64)
    for layer in (-1, 3):
        with pytest.raises(CacheMismatch, match="layers 0 to 2"):
            cache.append(layer, row, row)
        with pytest.raises(CacheMisuse):
            cache.read(layer, 0, 0)
    assert cache.tables == []


def test_make_cache_makes_a_pool_that_is_large_enough_or_takes_yours():
    model = make_model("llama")
    cache = make_cache("paged", model)
    assert isinstance(cache, PagedCache)
    assert (cache.pool.block_tokens, cache.pool.blocks.n_blocks, cache.capacity) == (16, 2, model.config.context_length)
    cache = make_cache("paged", model, 3, room_tokens=9, block_tokens=4)
    assert (cache.pool.blocks.n_blocks, cache.capacity) == (9, 12)
    assert make_cache("paged", model, 2, n_blocks=5, block_tokens=4).capacity == 8
    pool = PagedPool(model, 7, 2)
    for given in (make_cache("paged", model, pool=pool), make_cache("paged", model, 2, pool=pool, starts=[0, 1])):
        assert given.pool is pool
    assert make_cache("paged", model, pool=None, block_tokens=2).pool.block_tokens == 2
    for options in ({"pool": pool, "n_blocks": 3}, {"pool": pool, "block_tokens": 2}, {"window": 3}):
        with pytest.raises(InputError, match="does not take"):
            make_cache("paged", model, **options)
    with pytest.raises(CacheMismatch):
        make_cache("paged", make_model("gpt"), pool=pool)
    assert pool.used_bytes == 0


def test_generation_fits_a_pool_to_the_slot_and_is_refused_beforehand_where_it_does_not():
    model = make_model("gpt")
    prompt = random_ids(9).tolist()
    expected = generate(model, prompt, max_new_tokens=4, cache=None).tokens
    assert generate(model, prompt, max_new_tokens=4, cache="paged").tokens == expected
    pool = PagedPool(model, 3, 4)
    assert generate(model, prompt, max_new_tokens=4, cache=PagedCache(pool)).tokens == expected  # 9 + 4 - 1 = 12 slots
    assert pool.used_bytes == 0, "the cache was dropped"
    with Meter() as meter, pytest.raises(CacheFull, match="capacity of 13"):
        generate(model, prompt, max_new_tokens=5, cache=PagedCache(pool))
    assert meter.cost.tokens == 0
    pool = PagedPool(model, 5, 4)
    cache = make_cache("paged", model, 2, pool=pool)
    with Meter() as meter, pytest.raises(CacheFull, match="capacity of 9"):  # 3 blocks a row, and there are 2
        generate(model, [prompt, prompt[:3]], max_new_tokens=1, cache=cache)
    assert meter.cost.tokens == 0
    check_pool(cache)


def test_a_restored_cache_is_its_fork_and_the_books_are_right():
    model = make_model("llama")
    pool = PagedPool(model, 12, 4)
    cache = PagedCache(pool)
    model(random_ids(2, 6), cache=cache)
    saved = cache.fork()
    rows = [t.clone() for t in cache.read(1, 0, 6)]
    model(random_ids(2, 7), cache=cache)
    cache.restore(saved)
    check_pool(cache, saved)
    assert (cache.length, pool.blocks.n_used, saved.tables) == (6, 4, [])
    assert all(map(torch.equal, cache.read(1, 0, 6), rows))
    del saved
    check_pool(cache)
    both = torch.cat((random_ids(2, 6), random_ids(2, 5, seed=3)), dim=1)
    assert_close(model(both[:, 6:], cache=cache), uncached(model, both)[:, 6:], "and goes on")
    del cache
    assert pool.blocks.n_used == 0


def test_what_is_undone_after_several_passes_leaves_rows_and_books_right():
    model = make_model("llama")
    pool = PagedPool(model, 12, 4)
    cache = PagedCache(pool)
    model(random_ids(1, 6), cache=cache)
    fork = cache.fork()
    with pytest.raises(KVCourseError), undone_on_error(cache):
        for _ in range(9):
            model(random_ids(1, 4), cache=cache)
    check_pool(cache, fork)
    assert (cache.length, fork.length) == (6, 6)
    both = torch.cat((random_ids(1, 6), random_ids(1, 5, seed=3)), dim=1)
    for member in (cache, fork):
        assert_close(model(both[:, 6:], cache=member), uncached(model, both)[:, 6:], "as if nothing had been")


def test_a_pool_outlives_its_caches_and_a_cache_keeps_its_pool():
    model = make_model("gpt")
    cache = PagedCache(PagedPool(model, 4, 4))  # nobody else has the pool
    model(random_ids(1, 3), cache=cache)
    pool, fork = cache.pool, cache.fork()
    del cache
    assert pool.blocks.n_used == 1
    check_pool(fork)
    del fork
    assert pool.blocks.n_used == 0
