"""Logits after a prefix was loaded equal those of one pass without a cache: every model, cache, precision and cut."""

import pytest
import torch
from helpers import CACHES, MODELS, assert_close, in_chunks, make_empty, make_model, random_ids, shape_checks, uncached
from prefix_helpers import BLOCK, KINDS, down, maker

from kvcourse.generate import generate
from kvcourse.meter import Meter

N = 17
every_kind = pytest.mark.parametrize("kind", KINDS)
every_model = pytest.mark.parametrize("model_kind", MODELS)
every_cache = pytest.mark.parametrize("cache_kind", CACHES)
both_precisions = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


def stored(kind, model, ids, cache_kind="growing", sizes=(N,)):
    pc, cache = maker(KINDS[kind])(model), make_empty(cache_kind)
    in_chunks(model, torch.tensor([ids]), cache, sizes)
    assert pc.insert(ids, cache) == down(pc, len(ids))
    return pc


@both_precisions
@every_cache
@every_model
@every_kind
def test_logits_after_a_load_equal_one_pass_at_every_position_and_cut(kind, model_kind, cache_kind, dtype):
    model, ids = make_model(model_kind, dtype), random_ids(N, vocab_size=60).tolist()
    pc = stored(kind, model, ids, cache_kind)
    for cut in range(1, N):
        other = [*ids[:cut], 60, 59, *random_ids(3, seed=cut).tolist()]
        expected = uncached(model, torch.tensor([other]))
        for sizes in ([1], [2, 3], [99]):
            cache = make_empty(cache_kind)
            with pc.lease(other) as hit:
                hit.load_into(cache)
            known = down(pc, cut)
            assert cache.length == cache.held == known
            rest = torch.tensor([other[known:]])
            parts = [min(sizes[0], rest.shape[1]), *([] if sizes[0] >= rest.shape[1] else [rest.shape[1] - sizes[0]])]
            with Meter() as meter:
                logits = in_chunks(model, rest, cache, parts)
            assert_close(logits, expected[:, known:], f"cut at {cut}, {sizes}")
            assert meter.cost.tokens == len(other) - known
    pc.check()


@every_cache
@every_model
@every_kind
def test_one_token_is_left_at_least_and_its_logits_are_right(kind, model_kind, cache_kind):
    model, ids = make_model(model_kind), random_ids(N).tolist()
    pc = stored(kind, model, ids, sizes=(5, 1, N - 6))
    for n in range(1, N + 1):
        cache = make_empty(cache_kind)
        with pc.lease(ids[:n]) as hit:
            hit.load_into(cache)
        known = cache.length
        assert known == down(pc, n - 1)
        logits = model(torch.tensor([ids[known:n]]), cache=cache)
        assert_close(logits, uncached(model, torch.tensor([ids[:n]]))[:, known:], f"{n} tokens")


@every_cache
@every_model
@every_kind
def test_rows_that_came_from_a_prefix_are_as_good_as_computed_ones(kind, model_kind, cache_kind):
    """Inserted, loaded, continued, inserted again, cut, forked: a third text is still exact."""
    model, ids = make_model(model_kind), random_ids(24).tolist()
    pc = maker(KINDS[kind])(model)
    for stop in (8, 13, 19, 24):
        cache = make_empty(cache_kind)
        with torch.inference_mode(stop % 2 == 0), pc.lease(ids[:stop]) as hit:
            hit.load_into(cache)
            known = cache.length
            logits = model(torch.tensor([ids[known:stop]]), cache=cache)
        assert_close(logits.clone(), uncached(model, torch.tensor([ids[:stop]]))[:, known:], f"to {stop}")
        pc.insert(ids[:stop], cache)
        cache.truncate(5)
        twin = cache.fork()
        for member, end in ((cache, [1, 2]), (twin, [3])):
            logits = model(torch.tensor([end]), cache=member)
            assert_close(logits, uncached(model, torch.tensor([[*ids[:5], *end]]))[:, 5:], "after a cut and a fork")
    pc.check()


@every_model
@every_kind
def test_bfloat16_rows_come_back_bit_by_bit(kind, model_kind):
    model, ids = make_model(model_kind, torch.bfloat16), random_ids(N).tolist()
    cache = make_empty("growing")
    model(torch.tensor([ids]), cache=cache)
    pc, other = maker(KINDS[kind])(model), make_empty("preallocated")
    pc.insert(ids, cache)
    with pc.lease([*ids, 0]) as hit:
        hit.load_into(other)
    for layer in range(model.config.n_layer):
        for now, before in zip(other.read(layer, 0, hit.length), cache.read(layer, 0, hit.length), strict=True):
            assert now.dtype == torch.bfloat16 and torch.equal(now, before)
    assert pc.stats.bytes == down(pc, N) * 2 * 2 * model.config.n_layer * model.config.n_kv_head * model.config.head_size


@every_model
@every_kind
def test_generate_with_a_prefix_cache_says_what_it_says_without(kind, model_kind):
    model = make_model(model_kind)
    pc = maker(KINDS[kind])(model, max_tokens=40)
    for seed in range(12):
        trunk = random_ids(9, seed=seed % 3).tolist()
        ids = [*trunk[: 3 + seed % 7], *random_ids(BLOCK, seed=seed % 4).tolist()]
        plain = generate(model, ids, max_new_tokens=5)
        for options in ({}, {"prefill_chunk": 2}, {"cache": "growing"}, {"cache": "paged"}, {"stop_ids": plain.tokens[2:3]}):
            out = generate(model, ids, max_new_tokens=5, prefix_cache=pc, **options)
            assert out.tokens == plain.tokens[: len(out.tokens)] and (len(out.tokens) == 5 or "stop_ids" in options)
            assert out.usage.cached_tokens + out.usage.computed_tokens == len(ids)
            assert out.cost.tokens == out.usage.computed_tokens + len(out.tokens) - 1
            pc.check()


def test_the_shapes_are_those_that_the_signatures_promise():
    with shape_checks(True):
        for kind in KINDS:
            model, ids = make_model("llama"), random_ids(N).tolist()
            pc = stored(kind, model, ids)
            pc.verify = 1.0
            for _ in range(2):
                generate(model, [*ids, 1, 2], max_new_tokens=2, prefix_cache=pc)
            pc.insert([*ids[:6], 60], _cache_of(model, [*ids[:6], 60]))
            pc.evict(10**9)
            pc.check()


def _cache_of(model, ids):
    cache = make_empty("growing")
    model(torch.tensor([ids]), cache=cache)
    return cache
