"""What must hold of paged caches beyond tests/helpers.py's proof: sequences that share a pool, and blocks that are shared.

A claim takes the class of the cache, the class of the pool, and a model. It fails on each broken one in
tests/mutants/caches/faulty_paged.py that names it.
"""

import gc

import pytest
import torch
from helpers import (
    assert_close,
    attention,
    blocks,
    in_chunks,
    keys_and_values,
    last_norm,
    padded,
    raising_in,
    random_ids,
    refuses,
    uncached,
)
from pools import check_pool

from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import CacheFull
from kvcourse.generate import generate
from kvcourse.meter import Meter


def row_bytes(model):
    return kv_bytes_per_token(model.config, model.dtype.itemsize)


def state(*caches):
    """Everything that can be seen of caches in one pool, and of the pool."""
    pool = caches[0].pool
    counts = [pool.blocks.count(block) for block in range(pool.blocks.n_blocks)]
    rows = [
        [t.tolist() for layer in range(pool.n_layer) for t in cache.read(layer, 0, cache.length)] if cache.length else []
        for cache in caches
    ]
    return [(c.length, c.nbytes, [list(table) for table in c.tables]) for c in caches], counts, pool.used_bytes, rows


def forks_share_every_block_and_are_charged_for_what_they_copy(cache_kind, pool_kind, model):
    P, pool = 4, pool_kind(model, 20, 4)
    for B in (1, 2):
        cache = cache_kind(pool)
        model(random_ids(B, 10), cache=cache)
        with Meter() as meter:
            family = [cache, cache.fork(), cache.fork()]
            family.append(family[1].fork())
        check_pool(*family)
        assert (meter.cost.bytes_copied, pool.used_bytes) == (0, 3 * B * P * row_bytes(model)), "a fork moves no row"
        # The two full blocks stay shared; of the third, with 2 rows in use, everyone but its last holder makes a copy.
        for member, copies in zip(family, (1, 1, 1, 0), strict=True):
            before = pool.blocks.n_used
            with Meter() as meter, torch.no_grad():
                plan = member.plan(1)
                for layer, (k, v) in enumerate(keys_and_values(model, random_ids(B, 1))):
                    member.append(layer, k, v)
                member.advance(1)
            assert len(plan.key_positions) == 11
            in_a_row = B == 1 and member.tables[0] == list(range(member.tables[0][0], member.tables[0][0] + 3))
            gathered = 0 if in_a_row else 3 * P * B
            assert meter.cost.bytes_copied == (copies * 2 * B + gathered) * row_bytes(model), "rows in use, and no other"
            assert pool.blocks.n_used - before == copies * B
            assert member.nbytes == 3 * B * P * row_bytes(model)
            check_pool(*family)
        assert pool.used_bytes == (2 + 4) * B * P * row_bytes(model)
        for member in family:
            member.reset()


def forks_write_into_copies(cache_kind, pool_kind, model):
    for P in (1, 3, 4, 16):
        pool = pool_kind(model, 64, P)
        trunk, ends = random_ids(2, 6), [random_ids(2, 7, seed=30 + number) for number in range(3)]
        cache = cache_kind(pool)
        in_chunks(model, trunk, cache, [5, 1])
        family = [cache, cache.fork()]
        family.append(family[1].fork())
        for step, size in ((0, 1), (1, 4), (5, 2)):
            for number, member in enumerate(family):
                others = [other for other in family if other is not member]
                before = [[t.clone() for t in other.read(1, 0, other.length)] for other in others]
                logits = model(ends[number][:, step : step + size], cache=member)
                whole = uncached(model, torch.cat((trunk, ends[number]), dim=1))
                assert_close(logits, whole[:, 6 + step : 6 + step + size], f"block of {P}, member {number}, step {step}")
                for other, rows in zip(others, before, strict=True):
                    now = other.read(1, 0, other.length)
                    assert all(map(torch.equal, now, rows)), f"block of {P}: member {number} wrote into another's rows"
                check_pool(*family)


def caches_that_take_turns_equal_one_pass(cache_kind, pool_kind, model):
    for P in (1, 2, 5):
        pool = pool_kind(model, 80, P)
        for sizes in ([1] * 12, [3, 1, 5, 2, 1], [2, 10]):
            texts = [random_ids(1, 12, seed=1), random_ids(1, 12, seed=2), random_ids(3, 12, seed=3)]
            caches, logits, done = [cache_kind(pool) for _ in texts], [[] for _ in texts], 0
            for size in sizes:
                for text, cache, out in zip(texts, caches, logits, strict=True):
                    out.append(model(text[:, done : done + size], cache=cache))
                    check_pool(*caches)
                done += size
            scattered = any(b != a + 1 for a, b in zip(caches[0].tables[0], caches[0].tables[0][1:], strict=False))
            assert scattered, "the point is that neighbours in the text are none in the pool"
            for text, cache, out in zip(texts, caches, logits, strict=True):
                assert_close(torch.cat(out, dim=1), uncached(model, text), f"blocks of {P}, passes {sizes}")
                for layer, rows in enumerate(keys_and_values(model, text)):
                    assert_close(cache.read(layer, 2, 11).values, rows.values[:, :, 2:11], f"slots 2 to 10, {P}, {sizes}")


def ragged_rows_in_blocks_equal_each_row_alone(cache_kind, pool_kind, model):
    prompts = [random_ids(length, seed=length).tolist() for length in (9, 2, 5)]
    tokens, starts = padded(prompts)
    more = random_ids(3, 6, seed=4)
    for P in (1, 3, 4, 16):
        pool = pool_kind(model, 99, P)
        cache = cache_kind(pool, starts)
        model(tokens, cache=cache)
        for member in (cache.fork(), cache):
            logits = in_chunks(model, more, member, [1, 3, 2])
            for row, prompt in enumerate(prompts):
                alone = uncached(model, torch.tensor([[*prompt, *more[row].tolist()]]))[:, len(prompt) :]
                assert_close(logits[row : row + 1], alone, f"blocks of {P}, row {row}")


def an_exhausted_pool_says_what_is_missing_and_changes_nothing(cache_kind, pool_kind, model):
    def refused(act, missing, *caches):
        before = state(*caches)
        with pytest.raises(CacheFull, match=missing):
            act()
        assert state(*caches) == before
        check_pool(*caches)

    pool = pool_kind(model, 5, 4)
    cache, other = cache_kind(pool), cache_kind(pool)
    refused(lambda: model(random_ids(1, 21), cache=cache), "1 block is missing", cache, other)  # prefill
    refused(lambda: model(random_ids(3, 5), cache=cache), "1 block is missing", cache, other)  # two blocks a row
    refused(lambda: generate(model, [1] * 13, max_new_tokens=9, cache=cache), "capacity of 21", cache, other)
    model(random_ids(2, 8), cache=cache)
    model(random_ids(1, 4), cache=other)
    refused(lambda: model(random_ids(2, 1), cache=cache), "2 blocks are missing", cache, other)  # decode
    refused(lambda: model(random_ids(1, 1), cache=other), "1 block is missing", cache, other)
    other.truncate(3)
    fork = other.fork()
    refused(lambda: model(random_ids(1, 1), cache=fork), "1 block is missing", cache, other, fork)  # copy on write
    refused(lambda: model(random_ids(1, 2), cache=fork), "2 blocks are missing", cache, other, fork)
    other.reset()
    model(random_ids(1, 1), cache=fork)  # which now is the only holder, and writes where the rows are
    check_pool(cache, other, fork)


def its_capacity_is_what_the_pool_can_give(cache_kind, pool_kind, model):
    for P, B, n_blocks in ((4, 1, 5), (4, 2, 5), (4, 3, 8), (1, 2, 9), (8, 1, 3)):
        for held in (1, 3, 4):
            for forked in (False, True):
                pool = pool_kind(model, n_blocks, P)
                cache = cache_kind(pool)
                model(random_ids(B, held), cache=cache)
                family = [cache, cache.fork()] if forked else [cache]
                most = family[-1].capacity - held
                before = state(*family)
                refuses(CacheFull, lambda cache=family[-1], T=most + 1, B=B: model(random_ids(B, T), cache=cache))
                assert state(*family) == before
                if most:
                    model(random_ids(B, most), cache=family[-1])
                    assert family[-1].length == family[-1].capacity
                check_pool(*family)


def blocks_that_another_takes_in_between_are_missed_at_once(cache_kind, pool_kind, model):
    for shared in (False, True):
        pool = pool_kind(model, 4, 4)
        cache, thief = cache_kind(pool), cache_kind(pool)
        model(random_ids(2, 3 if shared else 4), cache=cache)
        family = [cache, cache.fork()] if shared else [cache]
        one_more = keys_and_values(model, random_ids(2, 1))
        cache.bind(model, 2, model.dtype, model.device)
        cache.plan(1)  # there is room
        model(random_ids(1, 1), cache=thief)
        before = state(thief, *family)
        with torch.no_grad(), pytest.raises(CacheFull, match="1 block is missing"):
            cache.append(0, *one_more[0])
        assert state(thief, *family) == before, "not even for the row there was a block for"
        cache.abort()
        assert state(thief, *family) == before
        check_pool(thief, *family)


def a_pass_that_fails_gives_back_what_it_took(cache_kind, pool_kind, model):
    tokens = random_ids(2, 20, seed=5)
    places = [attention(blocks(model)[0]), *(block.mlp for block in blocks(model)), last_norm(model)]
    for held in (0, 3, 4, 6):
        for forked in (False, True):
            for place in places:
                pool = pool_kind(model, 32, 4)
                cache = cache_kind(pool)
                if held:
                    model(tokens[:, :held], cache=cache)
                family = [cache, cache.fork()] if forked else [cache]
                before = state(*family)
                with raising_in(place, KeyboardInterrupt()):
                    refuses(KeyboardInterrupt, lambda cache=cache, held=held: model(tokens[:, held : held + 7], cache=cache))
                assert state(*family) == before, f"{held} held"
                check_pool(*family)
                for member in family:
                    assert_close(model(tokens[:, held:], cache=member), uncached(model, tokens)[:, held:], f"{held} held")
                check_pool(*family)


def a_pass_may_fail_after_another_cache_has_let_go(cache_kind, pool_kind, model):
    """The shared block is ours alone by then, and must be there to go back to."""
    trunk, tail = random_ids(1, 6), random_ids(1, 3, seed=6)
    pool = pool_kind(model, 8, 4)
    cache = cache_kind(pool)
    model(trunk, cache=cache)
    fork, thief = cache.fork(), cache_kind(pool)
    with torch.no_grad():
        fork.append(0, *keys_and_values(model, tail)[0])
        cache.reset()
        model(random_ids(1, 16, seed=7), cache=thief)
    fork.abort()
    check_pool(cache, fork, thief)
    assert_close(model(tail, cache=fork), uncached(model, torch.cat((trunk, tail), dim=1))[:, 6:], "after the abort")


def truncation_gives_back_whole_blocks_and_leaves_shared_rows_to_others(cache_kind, pool_kind, model):
    text, other_end = random_ids(2, 11, seed=8), random_ids(2, 4, seed=9)
    for length in range(12):
        pool = pool_kind(model, 20, 4)
        cache = cache_kind(pool)
        model(text, cache=cache)
        fork = cache.fork()
        fork.truncate(length)
        check_pool(cache, fork)
        assert [len(table) for table in fork.tables] == [-(-length // 4)] * (2 if length else 0)
        assert pool.blocks.n_used == 6, "what was cut is the other's still"
        both = torch.cat((text[:, :length], other_end), dim=1)
        assert_close(in_chunks(model, other_end, fork, [1, 3]), uncached(model, both)[:, length:], f"cut to {length}")
        check_pool(cache, fork)
        for layer, rows in enumerate(keys_and_values(model, text)):
            assert_close(cache.read(layer, 0, 11).keys, rows.keys, f"the other, after a cut to {length}")
        fork.reset()
        cache.truncate(length)
        check_pool(cache, fork)
        assert pool.blocks.n_used == 2 * -(-length // 4)


def what_nobody_holds_is_free_again(cache_kind, pool_kind, model):
    pool = pool_kind(model, 12, 4)
    for way in ("reset", "dropped", "dropped in the middle of a pass"):
        cache = cache_kind(pool)
        model(random_ids(2, 7), cache=cache)
        fork = cache.fork()
        model(random_ids(2, 3), cache=fork)
        check_pool(cache, fork)
        if way == "dropped in the middle of a pass":
            another = cache.fork()
            another.append(0, *keys_and_values(model, random_ids(2, 2))[0])
            del another
            gc.collect()
            check_pool(cache, fork)
        if way == "reset":
            fork.reset()
            check_pool(cache, fork)
        del fork
        gc.collect()
        check_pool(cache)
        cache.reset()
        assert (pool.blocks.n_free, pool.used_bytes) == (12, 0), way
        pool.blocks.check([])


CLAIMS = (
    ragged_rows_in_blocks_equal_each_row_alone,
    caches_that_take_turns_equal_one_pass,
    forks_write_into_copies,
    forks_share_every_block_and_are_charged_for_what_they_copy,
    truncation_gives_back_whole_blocks_and_leaves_shared_rows_to_others,
    a_pass_that_fails_gives_back_what_it_took,
    a_pass_may_fail_after_another_cache_has_let_go,
    an_exhausted_pool_says_what_is_missing_and_changes_nothing,
    its_capacity_is_what_the_pool_can_give,
    blocks_that_another_takes_in_between_are_missed_at_once,
    what_nobody_holds_is_free_again,
)
