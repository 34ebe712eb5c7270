"""The edges of the cache contract that one meets by hand; the proof and the state machine cover the rest."""

import pytest
import torch
from helpers import CACHES, MODELS, last_norm, make_empty, make_model, raising_in, random_ids, snapshot, uncached
from helpers import small_models as small_models

from kvcourse.caches.base import KVCache, Plan, plan_without_cache
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.make import KINDS, make_cache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.errors import CacheMismatch, CacheMisuse, InputError, KVCourseError, UnknownName

pytestmark = pytest.mark.usefixtures("small_models")
every_cache = pytest.mark.parametrize("kind", CACHES)


def rows(T=1, B=1, H_kv=2, D=2, dtype=torch.float64):
    return torch.ones(B, H_kv, T, D, dtype=dtype), torch.ones(B, H_kv, T, D, dtype=dtype)


@every_cache
def test_a_cache_keeps_the_contract_and_says_what_it_is(kind):
    cache = make_empty(kind)
    assert isinstance(cache, KVCache)
    assert (cache.length, cache.held, cache.nbytes, cache.starts) == (0, 0, 0, None)
    assert (cache.keys, cache.exact, cache.can_fork) == ("rotated", True, True)
    assert cache.capacity == (None if kind == "growing" else 48)


def test_a_pass_of_one_token_needs_no_mask_and_one_of_several_gets_a_wide_triangle():
    cache = GrowingCache()
    assert cache.plan(1).mask is None
    assert cache.plan(2).mask.int().tolist() == [[1, 0], [1, 1]]
    for layer in range(2):
        cache.append(layer, *rows(3))
    cache.advance(3)
    plan = cache.plan(2)
    assert plan.query_positions.tolist() == [3, 4]
    assert plan.key_positions.tolist() == [0, 1, 2, 3, 4]
    assert plan.mask.int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert plan.padding == 0


def test_padding_is_masked_for_every_token_and_sees_itself_alone():
    plan = GrowingCache(starts=[0, 2]).plan(3)
    assert plan.query_positions.tolist() == [[0, 1, 2], [-2, -1, 0]]
    assert plan.mask[:, 0].int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]]]
    assert plan.padding == 2


def test_planning_changes_nothing_and_can_be_repeated():
    cache = make_empty("preallocated")
    first, second = cache.plan(4), cache.plan(4)
    assert torch.equal(first.mask, second.mask)
    assert cache.length == 0


def test_without_a_cache_positions_start_at_zero_and_causality_can_be_given_up():
    plan = plan_without_cache(3)
    assert isinstance(plan, Plan)
    assert plan.query_positions.tolist() == plan.key_positions.tolist() == [0, 1, 2]
    assert plan.mask.int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert plan_without_cache(1).mask is None
    assert plan_without_cache(3, causal=False).mask is None


@every_cache
def test_advance_wants_the_same_rows_from_every_layer(kind):
    cache = make_cache(kind, make_model("gpt"))
    D = 6
    with pytest.raises(CacheMisuse, match="every layer appended"):
        cache.advance(1)
    for layer in range(2):
        cache.append(layer, *rows(2, H_kv=4, D=D))
    with pytest.raises(CacheMisuse, match="2 rows from each of 3 layers"):
        cache.advance(2)
    cache.append(2, *rows(1, H_kv=4, D=D))
    with pytest.raises(CacheMisuse):
        cache.advance(2)
    cache.append(2, *rows(2, H_kv=4, D=D))
    with pytest.raises(CacheMisuse):
        cache.advance(1)
    assert cache.length == 0
    cache.advance(2)
    assert cache.length == 2


@every_cache
def test_nothing_else_is_possible_in_the_middle_of_a_pass(kind):
    cache = make_empty(kind)
    cache.append(0, *rows(2))
    for act in (cache.fork, lambda: cache.truncate(0), lambda: cache.read(0, 0, 1)):
        with pytest.raises(CacheMisuse):
            act()
    assert not cache.can_truncate(0)
    cache.abort()
    assert cache.can_truncate(0)


@every_cache
def test_rows_that_do_not_fit_are_refused(kind):
    cache = make_cache(kind, make_model("gpt"), batch_size=2)
    for layer in range(3):
        cache.append(layer, *rows(2, 2, 4, 6))
    cache.advance(2)
    before = snapshot(cache, 3)
    wrong = {
        "batch size": rows(1, 1, 4, 6),
        "heads": rows(1, 2, 3, 6),
        "head size": rows(1, 2, 4, 4),
        "dtype": rows(1, 2, 4, 6, torch.float32),
        "values": (rows(1, 2, 4, 6)[0], rows(2, 2, 4, 6)[1]),
        "value dtype": (rows(1, 2, 4, 6)[0], rows(1, 2, 4, 6, torch.float32)[1]),
    }
    for name, (k, v) in wrong.items():
        with pytest.raises(CacheMismatch) as caught:
            cache.append(0, k, v)
        assert caught.value.todo, name
    assert snapshot(cache, 3) == before


@every_cache
@pytest.mark.parametrize("model_kind", MODELS)
def test_a_cache_that_only_a_failed_pass_has_used_is_free_for_any_model(kind, model_kind):
    model, other = make_model(model_kind), make_model(model_kind, torch.float32, n_layer=2)
    cache = make_empty(kind)
    with raising_in(last_norm(model), ValueError()), pytest.raises(ValueError):
        model(random_ids(2, 3), cache=cache)
    assert (cache.length, cache.nbytes) == (0, 0)
    other(random_ids(1, 3), cache=cache)
    with pytest.raises(CacheMismatch):
        model(random_ids(1, 3), cache=cache)


@every_cache
def test_a_cache_that_was_bound_before_stays_bound_when_its_first_pass_fails(kind):
    model, other = make_model("gpt"), make_model("gpt", seed=3)
    cache = make_cache(kind, model)
    for _ in range(2):
        with raising_in(model.transformer.ln_f, ValueError()), pytest.raises(ValueError):
            model(random_ids(1, 3), cache=cache)
        assert cache.nbytes == 0
        with pytest.raises(CacheMismatch, match="model"):
            other(random_ids(1, 3), cache=cache)
    model(random_ids(1, 3), cache=cache)
    nbytes = cache.nbytes
    cache.reset()
    with raising_in(model.transformer.ln_f, ValueError()), pytest.raises(ValueError):
        model(random_ids(1, 3), cache=cache)
    # Buffers that were there before the pass are there after it.
    assert cache.nbytes == (nbytes if kind == "preallocated" else 0)
    with pytest.raises(CacheMismatch):
        other(random_ids(1, 3), cache=cache)


@every_cache
def test_a_cache_does_not_keep_its_model_alive_and_serves_no_other_in_its_place(kind):
    import gc
    import weakref

    model = make_model("gpt")
    cache = make_empty(kind)
    model(random_ids(1, 3), cache=cache)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    with pytest.raises(CacheMismatch):
        make_model("gpt")(random_ids(1, 1), cache=cache)


@every_cache
def test_a_fork_serves_the_same_model_and_no_other(kind):
    model = make_model("gpt")
    cache = make_empty(kind)
    model(random_ids(1, 3), cache=cache)
    fork = cache.fork()
    with pytest.raises(CacheMismatch):
        make_model("gpt", seed=1)(random_ids(1, 1), cache=fork)
    with raising_in(model.transformer.ln_f, ValueError()), pytest.raises(ValueError):
        model(random_ids(1, 1), cache=fork)
    model(random_ids(1, 1), cache=fork)
    assert (cache.length, fork.length) == (3, 4)


@every_cache
def test_a_fork_that_is_cut_back_and_goes_on_otherwise_leaves_its_parent_as_it_was(kind):
    """It writes to the very slots of the parent's last pass, into memory of its own."""
    cache = make_empty(kind)
    for _ in range(3):
        cache.append(0, *rows(1))
        cache.advance(1)
    fork = cache.fork()
    fork.truncate(2)
    fork.append(0, *(7 * new for new in rows(1)))
    fork.advance(1)
    assert all(torch.equal(kept, torch.ones(1, 2, 3, 2, dtype=torch.float64)) for kept in cache.read(0, 0, 3))
    assert all((other[:, :, 2] == 7).all() for other in fork.read(0, 0, 3))


@every_cache
def test_a_pass_through_one_fork_leaves_the_other_free(kind):
    cache = make_empty(kind)
    cache.append(0, *rows(3))
    cache.advance(3)
    fork = cache.fork()
    fork.append(0, *rows(1))
    assert cache.can_truncate(2) and not fork.can_truncate(2)
    with pytest.raises(CacheMisuse):
        cache.advance(1)
    fork.advance(1)
    assert (cache.length, fork.length) == (3, 4)


def test_a_growing_cache_keeps_no_tensor_of_its_model_alive():
    model = make_model("llama")
    cache = GrowingCache()
    model(random_ids(1, 6), cache=cache)
    for t in cache.read(0, 0, 6):
        assert t.untyped_storage().nbytes() == t.nbytes  # and not the whole of q, k and v


@every_cache
@pytest.mark.parametrize("starts", [[], [-1, 0], [[0, 1]]], ids=str)
def test_starts_that_are_none_are_refused(kind, starts):
    with pytest.raises(InputError, match="first slot of each row") as caught:
        make_empty(kind, starts)
    assert caught.value.todo


@every_cache
def test_starts_for_another_batch_size_are_refused_when_the_model_comes(kind):
    cache = make_empty(kind, [0, 1])
    with pytest.raises(CacheMismatch, match="batch size"):
        make_model("gpt")(random_ids(3, 2), cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True, "8", None], ids=repr)
def test_a_capacity_that_is_none_is_refused(capacity):
    with pytest.raises(InputError, match="needs room") as caught:
        PreallocatedCache(capacity)
    assert caught.value.todo


def test_make_cache_knows_its_kinds_and_binds_them():
    model = make_model("llama")
    assert isinstance(make_cache("growing", model), GrowingCache)
    assert make_cache("preallocated", model).capacity == model.config.context_length
    assert make_cache("preallocated", model, room_tokens=5).capacity == 5
    assert make_cache("preallocated", model, capacity=7, room_tokens=5).capacity == 7
    cache = make_cache("growing", model, 2, starts=[0, 1])
    with pytest.raises(CacheMismatch):
        model(random_ids(3, 1), cache=cache)
    with pytest.raises(CacheMismatch):
        make_model("llama")(random_ids(2, 1), cache=cache)


@pytest.mark.parametrize(
    ("kind", "options", "fault", "names"),
    [
        ("paged?", {}, UnknownName, "growing, preallocated"),
        ("", {}, UnknownName, "growing, preallocated"),
        ("growing", {"capacity": 3}, InputError, "capacity"),
        ("sliding", {"sinks": 2}, InputError, "needs a window"),
        ("preallocated", {"window": 3}, InputError, "window"),
        ("preallocated", {"capacity": 0}, InputError, "1 token or more"),
        ("growing", {"starts": [0]}, CacheMismatch, "one row per start"),
        ("paged", {"pool": 5}, InputError, "from a pool"),
        *((kind, {"room_tokens": room}, InputError, "room_tokens") for kind in KINDS for room in (0, -1, 2.0, True, "a")),
    ],
)
def test_make_cache_refuses_what_there_is_not(kind, options, fault, names):
    with pytest.raises(fault, match=names) as caught:
        make_cache(kind, make_model("gpt"), 2, **options)
    assert isinstance(caught.value, KVCourseError) and caught.value.todo


@pytest.mark.parametrize("batch_size", [0, -1, 1.0, "a", None], ids=repr)
def test_make_cache_refuses_a_batch_that_is_none(batch_size):
    for kind in KINDS:
        with pytest.raises(InputError, match="batch_size"):
            make_cache(kind, make_model("gpt"), batch_size, **({"window": 4} if kind == "sliding" else {}))


@every_cache
def test_a_batch_of_equal_rows_stays_a_batch_of_equal_rows(kind):
    model = make_model("llama")
    tokens = random_ids(1, 9).repeat(3, 1)
    cache = make_empty(kind)
    logits = torch.cat((model(tokens[:, :4], cache=cache), model(tokens[:, 4:], cache=cache)), dim=1)
    assert (logits - logits[:1]).abs().max() < 1e-12
    assert (logits - uncached(model, tokens)).abs().max() < 1e-12
