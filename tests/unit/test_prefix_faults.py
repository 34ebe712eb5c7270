"""Faults that a tester found in both prefix caches: wrong rows that come back, budgets, waiting, and what is said of them."""

import threading

import numpy as np
import pytest
import torch
from helpers import make_empty, make_model
from helpers import small_models as small_models
from prefix_helpers import BLOCK, KINDS, TOKEN_BYTES, FakeModel, Watched, down, filled, known, loaded, maker, put, text
from thread_helpers import LONGEST_WAIT_S

from kvcourse.errors import BrokenInvariant, CacheMisuse, InputError
from kvcourse.generate import generate, stream
from kvcourse.prompts.explain import explain

pytestmark = pytest.mark.usefixtures("small_models")
every_kind = pytest.mark.parametrize("kind", KINDS)
RATE = {"prefill_tokens_per_s": 100}


def computed(model, ids, kind="growing"):
    cache = make_empty(kind)
    model(torch.tensor([ids]), cache=cache)
    return cache


# Budget and dtype.


@every_kind
def test_a_wider_dtype_halves_the_tokens_that_fit_and_forgets_what_there_was(kind):
    model = FakeModel(dtype=torch.float32)
    pc = maker(KINDS[kind])(model, max_tokens=4 * BLOCK)
    model.dtype = torch.float64  # before its first use
    assert put(pc, text(4 * BLOCK)) == 2 * BLOCK and pc.stats.bytes == pc.max_bytes
    model.dtype = torch.float32
    assert known(pc, text(4 * BLOCK)) == 0
    assert put(pc, text(4 * BLOCK)) == 4 * BLOCK and pc.stats.bytes == pc.max_bytes
    model.dtype = torch.float64
    pc.clear("nobody")
    pc.check()
    pc.clear(None)
    assert pc.stats.bytes == 0


@every_kind
def test_a_dtype_of_which_not_one_step_fits_is_refused_and_the_old_one_goes_on(kind):
    model = FakeModel(dtype=torch.float32)
    pc = maker(KINDS[kind])(model, max_bytes=BLOCK * TOKEN_BYTES // 2 if kind == "blocks" else TOKEN_BYTES // 2)
    put(pc, text(9))
    model.dtype = torch.float64
    for act in (lambda: pc.match(text(9)), lambda: pc.lease(text(9)).__enter__(), lambda: put(pc, text(9))):
        with pytest.raises(InputError, match=r"needs room.*float64"):
            act()
    pc.check()
    model.dtype = torch.float32
    assert known(pc, text(9)) == pc.index.step_tokens


@every_kind
def test_a_real_model_that_is_made_double_stays_within_the_budget(kind):
    model, ids = make_model("llama", torch.float32), text(4 * BLOCK)
    pc = maker(KINDS[kind])(model, max_tokens=4 * BLOCK)
    model.double()
    pc.insert(ids, computed(model, ids))
    pc.check()
    assert pc.stats.bytes <= pc.max_bytes and pc.stats.tokens == 2 * BLOCK


# Waiting.


@pytest.mark.parametrize("again", [False, True])
def test_nobody_waits_while_the_rows_of_a_split_are_copied(monkeypatch, again):
    """Whenever rows are cloned another thread gets the lock; with `again`, it splits the very same stretch meanwhile."""
    pc, ids = maker(KINDS["radix"])(), text(6 * BLOCK)
    put(pc, ids)
    clone, looks = torch.Tensor.clone, []

    def other():
        if again and len(looks) < 4:
            other_ids = [*ids[: 3 * BLOCK - 3 * len(looks)], 41, 40, len(looks)]
            cache = filled(pc.model, other_ids)
            looks.append(1)
            pc.insert(other_ids, cache)
        looks.append(pc.match(ids).length)

    def watched(tensor, **options):
        if threading.current_thread() is threading.main_thread() and tensor.dim() == 5:
            thread = threading.Thread(target=other, daemon=True)
            thread.start()
            thread.join(LONGEST_WAIT_S / 10)
            assert not thread.is_alive(), "waits for the lock"
        return clone(tensor, **options)

    mine = [*ids[: 4 * BLOCK], 42, 43]
    cache = filled(pc.model, mine)
    monkeypatch.setattr(torch.Tensor, "clone", watched)
    assert pc.insert(mine, cache) == 2
    monkeypatch.undo()
    assert looks, "nothing was copied"
    pc.check()
    loaded(pc, [*mine, 0])
    assert loaded(pc, [*ids, 0]).length == len(ids) and known(pc, mine) == len(mine)


def test_the_halves_of_a_split_are_memory_of_their_own_and_in_no_inference_mode():
    pc, ids = maker(KINDS["radix"])(), text(3 * BLOCK)
    put(pc, ids)
    with torch.inference_mode():
        put(pc, [*ids[:BLOCK], 41])
    stored = list(pc.store._rows.values())
    assert sum(rows.untyped_storage().nbytes() for rows in stored) == pc.stats.bytes
    assert not any(rows.is_inference() for rows in stored) and all(rows.is_contiguous() for rows in stored)


@every_kind
def test_clear_says_that_an_insert_is_under_way(kind):
    pc, ids, said = maker(KINDS[kind])(), text(9), []

    def clear():
        with pytest.raises(CacheMisuse, match="got 0 leases and 1 inserts") as refused:
            pc.clear()
        said.append(str(refused.value))

    pc.insert(ids, Watched(filled(pc.model, ids), clear))
    assert said and known(pc, ids) == down(pc, 9)
    with pc.lease(ids), pytest.raises(CacheMisuse, match="got 1 leases and 0 inserts"):
        pc.clear()
    pc.clear()
    assert pc.stats.tokens == 0


# Rows that were found wrong.


def spoiled(pc, ids, start=0):
    """Store a text; make rows from token `start` on wrong."""
    put_computed = pc.insert(ids, computed(pc.model, ids))
    for entry in pc.index.entries():
        if entry.stop > start:
            pc.store.rows(entry.rows)[:, :, :, max(0, start - entry.start) :] += 1.0
    return put_computed


def found_wrong(pc, ids):
    """Verify one lease of a text, which drops what is wrong of it."""
    pc.verify, before = 1.0, pc.stats.mismatches
    with pc.lease([*ids, 6]) as hit:
        hit.load_into(make_empty("growing"))
        assert hit.length == 0
    assert pc.stats.mismatches == before + 1
    pc.verify = 0.0


@every_kind
@pytest.mark.parametrize("cache_kind", ["growing", "preallocated", "paged"])
def test_what_was_found_wrong_does_not_come_back_with_a_request_that_had_loaded_it(kind, cache_kind):
    model, ids = make_model("llama"), text(4 * BLOCK)
    pc, one = maker(KINDS[kind])(model), make_empty(cache_kind)
    spoiled(pc, ids)
    with pc.lease([*ids, 5]) as hit:
        hit.load_into(one)
    found_wrong(pc, ids)
    model(torch.tensor([[5]]), cache=one)
    for cache in (one, one.fork()):  # a fork is no better
        assert pc.insert([*ids, 5], cache) == 0 == pc.match([*ids, 6]).length
    assert maker(KINDS[kind])(model).insert([*ids, 5], one) == 0, "nor does another prefix cache take it"
    assert pc.stats.refused == 2 and pc.stats.tokens == 0
    pc.check()
    one.reset()  # and the same cache, filled anew, is as good as any
    model(torch.tensor([[*ids, 5]]), cache=one)
    assert pc.insert([*ids, 5], one) == down(pc, 4 * BLOCK + 1)
    found = loaded_rows(pc, [*ids, 6])
    assert torch.allclose(found, rows_of(computed(model, ids)))


def rows_of(cache):
    return torch.stack([torch.cat(list(cache.read(layer, 0, cache.length))) for layer in range(cache._binding.n_layer)])


def loaded_rows(pc, ids):
    cache = make_empty("growing")
    with pc.lease(ids) as hit:
        hit.load_into(cache)
    return rows_of(cache)


@every_kind
def test_a_lease_that_was_out_when_its_text_was_found_wrong_loads_nothing(kind):
    model, ids = make_model("llama"), text(4 * BLOCK)
    pc = maker(KINDS[kind])(model)
    spoiled(pc, ids)
    with pc.lease([*ids, 5]) as hit:
        assert hit.length == 4 * BLOCK
        found_wrong(pc, ids)
        cache = make_empty("growing")
        hit.load_into(cache)
        assert (hit.length, cache.length, pc.stats.hit_tokens, pc.stats.hits) == (0, 0, 0, 0)
        pc.check()
    pc.check()
    assert pc.stats.tokens == 0


@every_kind
def test_a_request_that_recomputes_what_it_found_wrong_may_store_it(kind):
    model, ids = make_model("llama"), text(4 * BLOCK)
    pc, own = maker(KINDS[kind])(model), make_empty("growing")
    spoiled(pc, ids)
    pc.verify = 1.0
    out = generate(model, [*ids, 5], max_new_tokens=1, prefix_cache=pc, cache=own)
    assert out.usage.cached_tokens == 0 and (pc.stats.mismatches, pc.stats.refused) == (1, 0)
    assert known(pc, ids) == 4 * BLOCK
    own.reset()
    assert generate(model, [*ids, 5], max_new_tokens=1, prefix_cache=pc, cache=own).usage.cached_tokens == 4 * BLOCK


@every_kind
def test_only_what_is_wrong_and_what_stands_behind_it_is_dropped(kind):
    model, trunk = make_model("llama"), text(4 * BLOCK)
    pc = maker(KINDS[kind])(model, max_tokens=500)
    tails = [[40 - n] * (2 * BLOCK) for n in range(5)]
    for tail in tails:
        pc.insert([*trunk, *tail], computed(model, [*trunk, *tail]))
    bad = next(entry for entry in pc.index.entries() if entry.start == 4 * BLOCK and entry.tokens[0] == 38)
    pc.store.rows(bad.rows)[:] += 1
    before = pc.stats.tokens
    found_wrong(pc, [*trunk, *tails[2]])
    assert before - pc.stats.tokens == 2 * BLOCK
    assert [known(pc, [*trunk, *tail]) for tail in tails] == [6 * BLOCK] * 2 + [4 * BLOCK] + [6 * BLOCK] * 2
    pc.check()


@every_kind
@pytest.mark.parametrize("token", [0, BLOCK + 1, 4 * BLOCK - 2])
def test_one_wrong_row_of_one_layer_is_found_whatever_the_logits_say(kind, token):
    """So little that no logit shows it; K and V, every layer, a row at the front, in the middle, near the end."""
    model, ids = make_model("llama"), text(4 * BLOCK)
    for layer in range(model.config.n_layer):
        for part in (0, 1):
            pc = maker(KINDS[kind])(model)
            pc.insert(ids, computed(model, ids))
            entry = next(entry for entry in pc.index.entries() if entry.start <= token < entry.stop)
            pc.store.rows(entry.rows)[layer, part, 0, token - entry.start, 0] += 1e-4
            found_wrong(pc, ids)
            assert known(pc, ids) == (token - token % BLOCK if kind == "blocks" else 0)
    pc = maker(KINDS[kind])(model)
    pc.insert(ids, computed(model, ids))
    pc.strict = pc.verify = 1.0
    entry = next(entry for entry in pc.index.entries() if entry.start <= token < entry.stop)
    pc.store.rows(entry.rows)[0, 0, 0, token - entry.start, 0] = float("nan")
    with pc.lease([*ids, 6]) as hit, pytest.raises(BrokenInvariant, match=f"stored tokens is wrong.*from token {token} on"):
        hit.load_into(make_empty("growing"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@every_kind
def test_rounding_is_no_mismatch_however_a_text_was_cut(kind, dtype):
    model, ids = make_model("llama", dtype), text(5 * BLOCK)
    for sizes in ([1] * 20, [7, 13], [20]):
        pc, cache = maker(KINDS[kind])(model), make_empty("growing")
        for part in torch.tensor([ids]).split(sizes, dim=1):
            model(part, cache=cache)
        pc.insert(ids, cache)
        pc.verify = pc.strict = 1.0
        with pc.lease([*ids, 6]) as hit:
            hit.load_into(make_empty("growing"))
        assert (pc.stats.verified, pc.stats.mismatches) == (1, 0)


# Forgetting.


@every_kind
@pytest.mark.parametrize("how", ["cleared", "expired", "mismatch"])
def test_lfu_ages_by_what_is_evicted_and_by_nothing_else(kind, how):
    clock = [0.0]
    pc = maker(KINDS[kind])(policy="lfu", max_tokens=10 * BLOCK, ttl=100.0, clock=lambda: clock[0])
    hot, steady, new = ([n] * (2 * BLOCK) for n in (1, 2, 3))
    put(pc, hot, "a")
    for _ in range(1000):
        with pc.lease([*hot, 9], "a"):
            pass
    clock[0] = 90.0
    put(pc, steady, "b")
    for _ in range(50):
        with pc.lease([*steady, 9], "b"):
            pass
    if how == "cleared":
        pc.clear("a")
    elif how == "expired":
        clock[0] = 110.0
        with pc.lease(hot, "b"):
            pass
    else:
        pc.index.drop(pc.index.match(pc.index.roots[pc._key("a")], hot, None).entries[0])
    assert known(pc, hot, "a") == 0
    put(pc, new, "b")
    pc.evict(2 * BLOCK * pc.token_bytes)
    assert (known(pc, steady, "b"), known(pc, new, "b")) == (2 * BLOCK, 0)


@every_kind
@pytest.mark.parametrize("namespace", ["ana", None])
def test_no_text_of_what_was_cleared_can_be_read_and_explain_knows_it_all_the_same(kind, namespace):
    pc = maker(KINDS[kind])()
    pc.model.tokenizer = None
    hers, older, his = text(3 * BLOCK, seed=1), text(2 * BLOCK, seed=2), text(2 * BLOCK, seed=3)
    put(pc, older, "ana")
    pc.evict(2**20)
    put(pc, his, "ben")
    pc.evict(2**20)
    put(pc, hers, "ana")
    put(pc, [*hers[:BLOCK], 41, *text(BLOCK, seed=4)], "ana")
    pc.clear(namespace)
    for gone in pc.gone.values():
        assert gone.tokens == () or (tuple(his[gone.start : gone.start + gone.length]) == gone.tokens and namespace)
    assert sum(len(gone.tokens) for gone in pc.gone.values()) == pc._memory._tokens == (2 * BLOCK if namespace else 0)
    for ids in (hers, [*hers, *his]):
        report = explain(pc, ids, "ana", **RATE)
        assert (report.cause, report.lost_tokens) == ("cleared", min(len(hers), down(pc, len(ids) - 1)))
    assert explain(pc, [*older, 1], "ana", **RATE).cause == "evicted"
    assert explain(pc, [*his, 1], "ben", **RATE).cause == "evicted"
    assert explain(pc, [*text(9, seed=9)], "ana", **RATE).cause == "cold"


# What is said.


@every_kind
def test_a_whole_number_is_one_whatever_its_type_and_what_is_none_is_said(kind):
    make = maker(KINDS[kind])
    assert type(make(max_bytes=np.int64(100 * TOKEN_BYTES)).max_bytes) is int
    pc = make()
    put(pc, text(2 * BLOCK))
    assert pc.evict(np.int64(1)) > 0
    for bad in (1e9, "5", True, None, float("nan")):
        with pytest.raises(InputError, match="max_bytes is a whole number"):
            KINDS[kind](FakeModel(), bad)
        with pytest.raises(InputError, match="n_bytes is a whole number"):
            pc.evict(bad)
    assert maker(KINDS["blocks"])(block_tokens=np.int32(3)).index.step_tokens == 3


@every_kind
@pytest.mark.parametrize("bad", ["5", True, 0, -1.0, [], float("nan")], ids=str)
def test_a_ttl_that_is_no_time_is_refused_clearly(kind, bad):
    with pytest.raises(InputError):
        maker(KINDS[kind])(ttl=bad)
    assert maker(KINDS[kind])(ttl=np.float64(2.0)).index.ttl == 2.0


@every_kind
def test_what_is_no_cache_clock_policy_or_prefix_cache_is_refused_clearly(kind):
    model, ids = make_model("gpt"), text(2 * BLOCK + 1)
    pc = maker(KINDS[kind])(model)
    generate(model, ids, max_new_tokens=1, prefix_cache=pc)
    for bad in (None, "growing", 5, object()):
        with pc.lease(ids) as hit, pytest.raises(InputError, match="no KV cache"):
            hit.load_into(bad)
        with pytest.raises(InputError, match="no KV cache"):
            pc.insert(ids, bad)
    for bad in ("radix", KINDS[kind], 5, object()):
        for ask in (generate, stream, lambda model, ids, **options: generate(model, [ids, ids], **options)):
            with pytest.raises(InputError, match="no prefix cache"):
                ask(model, ids, max_new_tokens=1, prefix_cache=bad)
    for ask in (generate, stream):
        with pytest.raises(InputError, match="namespace says whose"):
            ask(model, ids, max_new_tokens=1, namespace="ann")
    for options in ({"clock": 5}, {"policy": ["lru"]}):
        with pytest.raises(InputError):
            maker(KINDS[kind])(**options)
    pc.check()
