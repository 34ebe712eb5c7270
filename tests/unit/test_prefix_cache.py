"""Both prefix caches keep every claim of tests/prefix_helpers.py: the faults that real systems shipped, one by one."""

import random

import pytest
import torch
from helpers import CACHES, MODELS, make_empty, make_model
from helpers import small_models as small_models
from prefix_helpers import BLOCK, CLAIMS, KINDS, Clock, Watched, down, filled, known, loaded, maker, put, text

from kvcourse.caches.make import make_cache
from kvcourse.errors import BrokenInvariant, CacheMismatch, CacheMisuse, InputError
from kvcourse.generate import generate
from kvcourse.meter import Meter
from kvcourse.prefix import gone as gone_module
from kvcourse.prefix.cache import BlockPrefixCache

pytestmark = pytest.mark.usefixtures("small_models")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_a_prefix_cache_keeps_the_claim_that(claim, kind):
    claim(maker(KINDS[kind]))


every_kind = pytest.mark.parametrize("kind", KINDS)


# nano-vllm 208, vLLM PR 7822
@every_kind
@pytest.mark.parametrize("cache_kind", CACHES)
def test_the_second_of_two_equal_prompts_in_one_call_uses_what_the_first_has_computed(kind, cache_kind):
    model, ids = make_model("llama"), text(3 * BLOCK)
    pc = maker(KINDS[kind])(model)
    first, second = generate(model, [ids, ids], max_new_tokens=4, prefix_cache=pc, cache=cache_kind)
    cached = down(pc, len(ids) - 1)
    assert first.tokens == second.tokens == generate(model, ids, max_new_tokens=4).tokens
    assert [(out.usage.cached_tokens, out.usage.computed_tokens) for out in (first, second)] == [
        (0, len(ids)),
        (cached, len(ids) - cached),
    ]
    assert (first.cost.tokens, second.cost.tokens) == (len(ids) + 3, len(ids) - cached + 3)
    assert pc.stats.tokens == down(pc, len(ids) + 3), "prompt and answer, but for the last token, once"
    pc.check()


# vLLM PR 17045: the salt has to arrive
@every_kind
def test_generate_delivers_the_namespace_so_one_tenant_hits_and_another_does_not(kind):
    model, ids = make_model("gpt"), text(3 * BLOCK)
    pc = maker(KINDS[kind])(model)
    plain = generate(model, ids, max_new_tokens=3)
    assert plain.usage.cached_tokens == 0
    for tenant in ("ann", "bob", None, ("ann", 1)):
        for cached in (0, down(pc, len(ids) - 1)):
            out = generate(model, ids, max_new_tokens=3, prefix_cache=pc, namespace=tenant)
            assert (out.tokens, out.usage.cached_tokens) == (plain.tokens, cached), f"{tenant!r}"
    several = generate(model, [ids, ids], max_new_tokens=3, prefix_cache=pc, namespace="carl")
    assert [out.usage.cached_tokens for out in several] == [0, down(pc, len(ids) - 1)]


@every_kind
def test_the_next_turn_finds_the_prompt_and_the_answer(kind):
    model, ids = make_model("llama", vocab_size=50), text(6)
    pc = maker(KINDS[kind])(model)
    for turn in range(3):
        out = generate(model, ids, max_new_tokens=4, prefix_cache=pc)
        assert out.tokens == generate(model, ids, max_new_tokens=4).tokens
        before = 0 if not turn else len(ids) - 3  # all but the last token of the answer, which was never computed, and two new
        assert out.usage.cached_tokens == down(pc, before)
        ids = [*ids, *out.tokens, *text(2, seed=turn)]


# lmdeploy 4917, with a real model
@every_kind
@pytest.mark.parametrize("model_kind", MODELS)
def test_one_changed_weight_is_a_miss_and_a_text_half_computed_before_is_not_stored(kind, model_kind):
    model, ids = make_model(model_kind), text(3 * BLOCK)
    pc, old = maker(KINDS[kind])(model), make_empty("growing")
    generate(model, ids, max_new_tokens=3, prefix_cache=pc)
    model(torch.tensor([ids[:5]]), cache=old)
    with pc.lease(ids):
        with torch.no_grad():
            next(model.parameters())[1, 1] += 0.5
        with pytest.raises(CacheMisuse, match="weights changed"):
            generate(model, ids, max_new_tokens=3, prefix_cache=pc)
    assert pc.match(ids).length == 0
    out = generate(model, ids, max_new_tokens=3, prefix_cache=pc)
    assert (out.usage.cached_tokens, out.tokens) == (0, generate(model, ids, max_new_tokens=3).tokens)
    model(torch.tensor([ids[5:]]), cache=old)  # the rest by the new weights
    with pytest.raises(CacheMisuse, match="weights changed"):
        pc.insert(ids, old)
    old.reset()
    model(torch.tensor([text(3 * BLOCK, first=[41])]), cache=old)
    assert pc.insert(text(3 * BLOCK, first=[41]), old) == 3 * BLOCK, "a cache that starts anew holds the present weights' rows"
    pc.check()


# Packing moves weights in the first pass: that is no change of weights.
@every_kind
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
def test_the_very_first_pass_of_a_model_can_be_stored(kind, model_kind, cache_kind):
    model, ids = make_model(model_kind), text(9)
    pc = maker(KINDS[kind])(model)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc, cache=cache_kind)
    assert pc.stats.inserted_tokens == down(pc, 9)
    cache = make_cache(cache_kind, model)  # made, and bound, before the weights change
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc, cache=cache)
    assert pc.stats.tokens == down(pc, 9)


@every_kind
def test_a_prefix_cache_of_another_model_is_refused_before_anything_is_computed(kind):
    model, twin = make_model("gpt"), make_model("gpt")
    pc = maker(KINDS[kind])(twin)
    generate(twin, text(9), max_new_tokens=1, prefix_cache=pc)
    before, cache = pc.stats, make_empty("growing")
    with Meter() as meter, pytest.raises(CacheMismatch, match="another model"):
        generate(model, text(9, first=[41]), max_new_tokens=1, prefix_cache=pc, cache=cache)
    assert (meter.cost.tokens, cache.length, pc.stats) == (0, 0, before)


@every_kind
def test_the_proof_needs_no_room_in_the_cache_that_is_loaded(kind):
    model, ids = make_model("llama"), text(2 * BLOCK + 1)
    pc = maker(KINDS[kind])(model)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc)
    pc.verify = 1.0
    for n, cache in ((2 * BLOCK, make_empty("preallocated", capacity=2 * BLOCK)), (9, make_empty("paged", capacity=9))):
        with pc.lease([*ids[:n], 0]) as hit:
            hit.load_into(cache)
        assert cache.length == down(pc, n)
    assert (pc.stats.verified, pc.stats.mismatches) == (2, 0)
    for cache_kind in CACHES:
        assert generate(model, ids, max_new_tokens=1, prefix_cache=pc, cache=cache_kind).usage.cached_tokens == 2 * BLOCK


@every_kind
def test_verify_is_the_share_of_hits_that_are_computed_again(kind):
    model, ids = make_model("gpt"), text(9)
    pc = maker(KINDS[kind])(model)
    pc.verify = 0.25
    pc.rng.seed(0)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc)
    assert pc.stats.verified == 0, "a miss has nothing to verify"
    for _ in range(200):
        with pc.lease(ids) as hit:
            hit.load_into(make_empty("growing"))
    assert 30 < pc.stats.verified < 70 and pc.stats.mismatches == 0


@every_kind
def test_rows_that_are_no_numbers_are_a_mismatch(kind):
    model, ids = make_model("gpt"), text(9)
    pc = maker(KINDS[kind])(model)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc)
    pc.verify = 1.0
    for rows in pc.store._rows.values():
        rows[0, 0, 0, 0, 0] = float("nan")
    assert generate(model, ids, max_new_tokens=1, prefix_cache=pc).usage.cached_tokens == 0
    assert pc.stats.mismatches == 1


@every_kind
def test_a_text_found_wrong_while_more_of_it_is_copied_is_not_stored(kind):
    """One request adds to a stored text; in the middle of its copying another finds that text wrong, and it is dropped."""
    model, ids = make_model("llama"), text(4 * BLOCK)
    pc = maker(KINDS[kind])(model)
    generate(model, ids[: 2 * BLOCK], max_new_tokens=1, prefix_cache=pc)
    whole = make_empty("growing")
    model(torch.tensor([ids]), cache=whole)

    def spoil():
        pc.verify = 1.0
        for rows in pc.store._rows.values():
            rows[1, 0, 0, 0] += 1.0
        with pc.lease([*ids[: 2 * BLOCK], 0]) as hit:
            hit.load_into(make_empty("growing"))
        pc.check()

    assert pc.insert(ids, Watched(whole, spoil)) == 0
    assert pc.stats.mismatches == 1 and pc.stats.tokens == 0
    pc.check()
    assert pc.insert(ids, whole) == 4 * BLOCK


@every_kind
def test_a_slow_insert_does_not_make_what_others_used_meanwhile_look_unused(kind):
    clock = Clock()
    pc, ids = maker(KINDS[kind])(ttl=10.0, clock=clock), text(4 * BLOCK)
    put(pc, ids[: 2 * BLOCK])

    def meanwhile():
        clock.now = 5.0
        loaded(pc, [*ids[: 2 * BLOCK], 0])
        put(pc, [*ids[:BLOCK], *text(BLOCK, first=[41])])

    pc.insert(ids, Watched(filled(pc.model, ids), meanwhile))
    pc.check()
    clock.now = 14.0
    assert known(pc, ids) == 4 * BLOCK and known(pc, [*ids[:BLOCK], *text(BLOCK, first=[41])]) == 2 * BLOCK
    clock.now = 15.0
    assert known(pc, ids) == 0


@every_kind
def test_stats_add_up(kind):
    clock = Clock()
    pc = maker(KINDS[kind])(ttl=50.0, clock=clock, max_tokens=40)
    lookups = hits = found = asked = 0
    rng = random.Random(0)
    for step in range(200):
        clock.now += 60 * (step % 20 == 19)
        ids = [rng.randrange(3) for _ in range(rng.randint(1, 12))]
        length = loaded(pc, ids).length
        lookups, hits, found, asked = lookups + 1, hits + (length > 0), found + length, asked + len(ids)
        put(pc, ids)
    s = pc.stats
    assert (s.lookups, s.hits, s.hit_tokens, s.lookup_tokens) == (lookups, hits, found, asked)
    assert s.hit_rate == found / asked and s.evicted_tokens > 0 and s.expired_tokens > 0
    assert s.inserted_tokens - s.evicted_tokens - s.expired_tokens == s.tokens == s.bytes / pc.token_bytes
    assert maker(KINDS[kind])().stats.hit_rate == 0.0


@every_kind
def test_what_is_gone_is_remembered_within_bounds(kind, monkeypatch):
    monkeypatch.setattr(gone_module, "REMEMBERED", 5)
    monkeypatch.setattr(gone_module, "REMEMBERED_TOKENS", 6 * BLOCK)
    pc = maker(KINDS[kind])()
    for first in range(9):
        put(pc, text(2 * BLOCK, first=[first]))
        pc.evict(2**30)
        assert len(pc.gone) <= 5 and sum(len(gone.tokens) for gone in pc.gone.values()) <= 6 * BLOCK
    assert all(gone.reason == "evicted" for gone in pc.gone.values()) and len(pc.gone) >= 3
    assert len(pc.names) <= 5


SABOTAGE = {
    "a pin too many": lambda pc, entry: setattr(entry, "pins", entry.pins + 1),
    "a pin too few": lambda pc, entry: setattr(entry, "pins", entry.pins - 1),
    "a leaf that never goes": lambda pc, entry: pc.index._order.discard(entry),
    "a start that is not the parent's end": lambda pc, entry: setattr(entry, "start", entry.start + 1),
    "tokens that are counted twice": lambda pc, entry: setattr(pc.index, "tokens", pc.index.tokens + 1),
    "an entry that nobody finds": lambda pc, entry: entry.parent.children.clear(),
    "used after its parent": lambda pc, entry: setattr(entry, "seconds", 1e9),
    "rows that nobody has": lambda pc, entry: pc.store.free(entry.rows),
    "bytes that nobody counts": lambda pc, entry: setattr(pc.store, "nbytes", pc.store.nbytes - 1),
    "a budget that is exceeded": lambda pc, entry: setattr(pc, "max_bytes", 1),
    "another name": lambda pc, entry: setattr(entry, "digest", b"other"),
}


@every_kind
@pytest.mark.parametrize("fault", SABOTAGE)
def test_check_finds_books_that_are_wrong(fault, kind):
    pc = maker(KINDS[kind])(clock=Clock())
    put(pc, text(3 * BLOCK))
    put(pc, [*text(BLOCK), *text(BLOCK, seed=1)])
    leaf = next(entry for entry in pc.index.entries() if entry.may_go)
    SABOTAGE[fault](pc, leaf)
    with pytest.raises(BrokenInvariant):
        pc.check()


@every_kind
@pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": -1.0}, {"ttl": float("nan")}, {"policy": "best"}, {"max_bytes": True}])
def test_settings_that_make_no_sense_are_refused(kind, options):
    with pytest.raises(InputError):
        maker(KINDS[kind])(**options)
    for block_tokens in (0, -1, True, 1.5):
        with pytest.raises(InputError):
            maker(BlockPrefixCache)(block_tokens=block_tokens)
