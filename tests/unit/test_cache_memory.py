"""The memory under a preallocated cache: taken at once, handed on by a run that is over, and never while anyone can read it."""

import threading

import pytest
import torch
from helpers import make_model
from thread_helpers import in_threads

from kvcourse import PreallocatedCache, generate, huge_pages
from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import CacheFull, CacheMismatch, InputError
from kvcourse.generate import stream
from kvcourse.steps import prefill

N = 1100  # tokens whose K/V in the model below takes more than one huge page
HALF = N // 2


@pytest.fixture
def model():
    return make_model("gpt", n_layer=4, n_embd=96, context_length=2 * N)


@pytest.fixture(autouse=True)
def nothing_given_back(monkeypatch):
    monkeypatch.setattr(huge_pages, "_given_back", [])
    return huge_pages._given_back


def ids_of(model, seed, n=N):
    return torch.randint(model.config.vocab_size, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def layers_of(cache):
    return {rows.untyped_storage().data_ptr() for pair in cache._buffers.values() for rows in pair}


def test_all_layers_share_one_memory_where_it_is_filled_at_once(model):
    cache = PreallocatedCache(N)
    prefill(model, ids_of(model, 0), cache)
    assert len(layers_of(cache)) == 1 and cache.nbytes == N * kv_bytes_per_token(model.config, 8)


def test_a_cache_that_is_filled_slowly_takes_its_memory_layer_by_layer(model):
    cache = PreallocatedCache(N)
    prefill(model, ids_of(model, 0, 8), cache)
    assert len(layers_of(cache)) == 2 * model.config.n_layer


def test_a_run_hands_its_memory_to_the_next_and_nothing_else_changes(model):
    fresh = [generate(model, ids_of(model, seed), max_new_tokens=4, cache="growing").tokens for seed in range(3)]
    first = generate(model, ids_of(model, 0), max_new_tokens=4)
    (memory,) = huge_pages._given_back
    where = memory.data_ptr()
    assert first.cost.bytes_held == (N + 3) * kv_bytes_per_token(model.config, 8)
    later = [generate(model, ids_of(model, seed), max_new_tokens=4) for seed in (1, 2)]
    assert [first.tokens, *(out.tokens for out in later)] == fresh
    assert [out.cost for out in later] == [first.cost] * 2
    assert [memory.data_ptr() for memory in huge_pages._given_back] == [where]


def test_a_shorter_prompt_takes_a_part_of_what_was_given_back(model):
    generate(model, ids_of(model, 0), max_new_tokens=4)
    where = huge_pages._given_back[0].data_ptr()
    out = generate(model, ids_of(model, 1, HALF), max_new_tokens=4)
    assert out.tokens == generate(model, ids_of(model, 1, HALF), max_new_tokens=4, cache="growing").tokens
    assert out.cost.bytes_held == (HALF + 3) * kv_bytes_per_token(model.config, 8)
    assert where == huge_pages._given_back[0].data_ptr()


def test_a_stream_that_is_left_hands_its_memory_on(model):
    run = stream(model, ids_of(model, 0), max_new_tokens=4)
    next(run)
    held = run.output.cost.bytes_held
    run._steps.close()
    assert len(huge_pages._given_back) == 1 and run.output.cost.bytes_held == held > 0


def test_a_cache_of_the_caller_keeps_its_memory(model):
    cache = PreallocatedCache(N + 4)
    generate(model, ids_of(model, 0), max_new_tokens=4, cache=cache)
    before = cache.read(0, 0, cache.length).keys.clone()
    assert not huge_pages._given_back
    generate(model, ids_of(model, 1), max_new_tokens=4)
    assert torch.equal(cache.read(0, 0, cache.length).keys, before)


def test_a_run_that_raises_hands_nothing_on(model):
    def fail(logits):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        generate(model, ids_of(model, 0), max_new_tokens=4, sampler=fail)
    assert not huge_pages._given_back


def test_an_aborted_first_pass_leaves_no_memory_behind(model, monkeypatch):
    cache, last = PreallocatedCache(N), model.config.n_layer - 1
    append = PreallocatedCache.append

    def broken(self, layer, k, v):
        if layer == last:
            raise RuntimeError("no")
        return append(self, layer, k, v)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(PreallocatedCache, "append", broken)
        prefill(model, ids_of(model, 0), cache)
    assert (cache.nbytes, cache._all) == (0, None)
    prefill(model, ids_of(model, 0), cache)
    assert cache.length == N


def test_a_fork_has_memory_of_its_own(model):
    cache = PreallocatedCache(N)
    prefill(model, ids_of(model, 0, N - 1), cache)
    fork = cache.fork()
    cache.release()
    generate(model, ids_of(model, 1), max_new_tokens=2)  # writes where the released cache was
    fresh = PreallocatedCache(N)
    prefill(model, ids_of(model, 0, N - 1), fresh)
    for layer in range(model.config.n_layer):
        for mine, theirs in zip(fork.read(layer, 0, N - 1), fresh.read(layer, 0, N - 1), strict=True):
            assert torch.equal(mine, theirs)


def test_threads_never_get_the_same_memory(model):
    seeds = range(4)
    alone = [generate(model, ids_of(model, seed, HALF), max_new_tokens=3, cache="growing").tokens for seed in seeds]
    found, lock = {}, threading.Lock()

    def work(thread):
        for seed in seeds:
            out = generate(model, ids_of(model, (seed + thread) % 4, HALF), max_new_tokens=3)
            with lock:
                found[thread, (seed + thread) % 4] = out.tokens

    in_threads(4, work)
    assert all(tokens == alone[seed] for (_, seed), tokens in found.items()) and len(found) == 16


def test_memory_of_the_wrong_size_goes_to_the_system(model):
    like = torch.empty(0)
    large = huge_pages.empty_matrix(8, 2**20, like)
    huge_pages.give_back(large)
    assert huge_pages.used_matrix(1, 2**20, like).data_ptr() != large.data_ptr() and not huge_pages._given_back
    huge_pages.give_back(torch.empty(10))
    assert not huge_pages._given_back


def test_a_block_that_serves_ever_smaller_requests_does_not_stay_for_ever():
    like = torch.empty(0)
    huge_pages.give_back(huge_pages.empty_matrix(8, 2**20, like))
    for columns in (2**22, 2**20):  # half of it, then an eighth: less than a quarter of what is behind it
        part = huge_pages.used_matrix(1, columns, like)
        huge_pages.give_back(part)
    assert part.untyped_storage().nbytes() < 2**22 + 2 * huge_pages.HUGE_PAGE_BYTES


def test_a_kernel_without_huge_pages_gives_ordinary_memory(monkeypatch):
    class Refusing(huge_pages.mmap.mmap):
        def madvise(self, *_):
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(huge_pages.mmap, "mmap", Refusing)
    matrix = huge_pages.empty_matrix(1024, 1024, torch.empty(0))
    assert matrix.fill_(1).sum() == 2**20


@pytest.mark.parametrize("capacity", [12, 40])  # the first pass fills most of it, and does not
@pytest.mark.parametrize("before", [0, 3])
def test_rows_of_all_layers_at_once_are_those_appended_one_by_one(model, capacity, before):
    L, H, D = model.config.n_layer, model.config.n_head, model.config.head_size
    parts = [torch.randn(L, 2, H, n, D, dtype=model.dtype) for n in (4, 1, 3)]
    caches = [PreallocatedCache(capacity) for _ in range(3)]
    for cache in caches:
        cache.bind(model, 1, model.dtype, model.device)
        if before:
            prefill(model, ids_of(model, 0, before), cache)
    at_once, one_by_one, aborted = caches
    at_once.append_all(parts)
    at_once.advance(8)
    for layer in range(L):
        rows = torch.cat([part[layer] for part in parts], dim=2)
        one_by_one.append(layer, rows[:1], rows[1:])
    one_by_one.advance(8)
    aborted.append_all(parts)
    aborted.abort()
    assert [cache.length for cache in caches] == [before + 8, before + 8, before]
    for layer in range(L):
        for mine, theirs in zip(at_once.read(layer, 0, before + 8), one_by_one.read(layer, 0, before + 8), strict=True):
            assert torch.equal(mine, theirs)


def test_rows_of_all_layers_that_do_not_fit_are_refused_and_nothing_changes(model):
    L, H, D = model.config.n_layer, model.config.n_head, model.config.head_size
    cache = PreallocatedCache(12)
    prefill(model, ids_of(model, 0, 6), cache)
    for shape, fault in (((L, 2, H, 7, D), CacheFull), ((L, 2, H + 1, 2, D), CacheMismatch)):
        with pytest.raises(fault):
            cache.append_all([torch.zeros(shape, dtype=model.dtype)])
        cache.abort()
        assert cache.length == 6


def test_parts_that_differ_are_refused_as_append_refuses_them_and_nothing_changes(model):
    L, H, D = model.config.n_layer, model.config.n_head, model.config.head_size
    good = torch.ones(L, 2, H, 2, D, dtype=model.dtype)
    bad = (good.half(), good[:1], good[:, :, :1], good[..., :1], good.to("meta"))
    for bound in (False, True):
        for parts, fault in (
            *(([good, one], CacheMismatch) for one in bad),
            ([], InputError),
            ([good[:, :, :, :0]], InputError),
        ):
            cache = PreallocatedCache(12)
            if bound:
                cache.bind(model, 1, model.dtype, model.device)
            with pytest.raises(fault) as caught:
                cache.append_all(parts)
            assert caught.value.todo and (cache.length, cache.nbytes) == (0, 0)
    with pytest.raises(CacheMismatch, match=f"of {L} layers"):
        cache.append_all([good[:1]])
