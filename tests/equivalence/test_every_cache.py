"""Each cache × each model × each precision passes the whole proof of tests/helpers.py, claim by claim."""

from functools import partial

import pytest
import torch
from helpers import (
    CACHES,
    CHUNKINGS,
    CLAIMS,
    MODELS,
    assert_cache_is_exact,
    in_chunks,
    make_empty,
    make_model,
    random_ids,
    shape_checks,
    uncached,
)

CLAIM_NAMES = [claim.__name__ for claim in CLAIMS]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
@pytest.mark.parametrize("claim", CLAIMS, ids=CLAIM_NAMES)
def test_logits_with_a_cache_equal_those_without(claim, cache_kind, model_kind, dtype):
    claim(partial(make_empty, cache_kind), make_model(model_kind, dtype))


@pytest.mark.parametrize(("cache_kind", "model_kind"), [("growing", "llama"), ("preallocated", "gpt")])
def test_the_proof_holds_with_every_shape_checked_on_the_way(cache_kind, model_kind):
    with shape_checks(True):
        assert_cache_is_exact(partial(make_empty, cache_kind), make_model(model_kind))


@pytest.mark.parametrize("cache_kind", CACHES)
@pytest.mark.parametrize(
    "heads", [dict(n_head=6, n_kv_head=6), dict(n_head=6, n_kv_head=1), dict(n_head=1, n_kv_head=1, head_size=2)], ids=str
)
def test_any_number_of_shared_heads_is_exact(cache_kind, heads):
    assert_cache_is_exact(partial(make_empty, cache_kind), make_model("llama", **heads))


# nanochat 795, kvpress 16: the cache kept another dtype than the model computes in, and depended on what was built first.
@pytest.mark.parametrize("order", ["cache first", "model first"])
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
def test_a_bfloat16_model_has_a_bfloat16_cache_whatever_is_built_first(cache_kind, model_kind, order):
    early = make_empty(cache_kind) if order == "cache first" else None
    model = make_model(model_kind, torch.bfloat16)
    float32 = make_model(model_kind, torch.float32)
    tokens = random_ids(2, 11)
    for name, sizes in CHUNKINGS.items():
        cache = early if early is not None and name == "one pass" else make_empty(cache_kind)
        logits = in_chunks(model, tokens, cache, sizes(11))
        assert cache.read(2, 0, 11).keys.dtype == cache.read(2, 0, 11).values.dtype == logits.dtype == torch.bfloat16
        # Two roundings of the same numbers: as far from each other as either is from the float32 model, not more.
        rounding = (uncached(model, tokens).float() - uncached(float32, tokens)).abs().max()
        assert (logits.float() - uncached(model, tokens).float()).abs().max() <= 2 * rounding, name
        other = make_empty(cache_kind)
        in_chunks(float32, tokens, other, sizes(11))
        assert other.read(0, 0, 11).keys.dtype == torch.float32


# transformers 25420, nanoGPT PR 613: near ties flip in the last bits. Float64 agrees on every token; float32 wherever the best
# two logits are further apart than the tolerance.
@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
def test_the_likeliest_token_is_the_same_exactly_in_float64_and_beyond_the_tolerance_in_float32(cache_kind, model_kind):
    tokens = random_ids(4, 30, seed=30)
    for dtype, margin in ((torch.float64, 0.0), (torch.float32, 4e-5)):
        model = make_model(model_kind, dtype)
        expected = uncached(model, tokens)
        best = expected.topk(2, dim=-1).values
        clear = best[..., 0] - best[..., 1] > margin
        assert clear.float().mean() > 0.99
        for sizes in CHUNKINGS.values():
            logits = in_chunks(model, tokens, make_empty(cache_kind), sizes(30))
            assert torch.equal(logits.argmax(-1)[clear], expected.argmax(-1)[clear])
