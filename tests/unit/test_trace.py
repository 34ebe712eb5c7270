"""`trace`: what a model computed, by name, and the same with a cache as without."""

import pytest
import torch
from helpers import make_empty, make_model, random_ids

from kvcourse.attention import attend
from kvcourse.errors import InputError, UnknownName
from kvcourse.probe import listening, probe
from kvcourse.trace import trace

KINDS = ("gpt", "llama")
CACHES = ("growing", "preallocated")


def last_rows(name: str, tensor: torch.Tensor, count: int) -> torch.Tensor:
    """The rows of the last `count` tokens: tokens are axis 1 of (B, T, C), axis 2 of (B, H, T, D) and (B, H, T, S)."""
    axis = {3: 1, 4: 2}[tensor.dim()]
    return tensor.narrow(axis, tensor.shape[axis] - count, count)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cache_kind", CACHES)
@pytest.mark.parametrize("new", [1, 3])
def test_a_cached_step_has_the_last_rows_of_the_whole_trace_for_every_name(kind, cache_kind, new):
    model, tokens = make_model(kind), random_ids(2, 9)
    whole, cache = trace(model, tokens), make_empty(cache_kind)
    trace(model, tokens[:, : 9 - new], cache)
    step = trace(model, tokens[:, 9 - new :], cache)
    assert cache.length == 9
    assert list(step) == list(whole)
    for name in whole:
        assert torch.allclose(step[name], last_rows(name, whole[name], new), atol=1e-12), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_of_every_block_is_there(kind):
    model = make_model(kind)
    named = trace(model, random_ids(1, 5))
    per_block = ["resid_pre", "ln1", "attn.q", "attn.k", "attn.v", "attn.scores", "attn.pattern", "attn.z", "attn_out",
                 "resid_mid", "ln2", "mlp.pre", "mlp.post", "mlp_out", "resid_post"]  # fmt: skip
    per_block += ["mlp.pre_linear"] if kind == "llama" else []
    outside = {"embed", "ln_final", "logits"} | ({"pos_embed"} if kind == "gpt" else set())
    assert set(named) == outside | {f"blocks.{b}.{name}" for b in range(model.config.n_layer) for name in per_block}
    assert repr(named).count("\n") == len(named) - 1 and "(1, 5, " in repr(named)


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_fit_together(kind):
    model, tokens = make_model(kind), random_ids(1, 6)
    named = trace(model, tokens)
    assert torch.allclose(named["logits"], model(tokens), rtol=0, atol=1e-12)  # with gradients: another product
    q, k, v, z = (named[f"blocks.0.attn.{name}"] for name in ("q", "k", "v", "z"))
    pattern = named["blocks.0.attn.pattern"]
    assert torch.allclose(pattern.sum(-1), torch.ones_like(pattern[..., 0]))
    assert (pattern.triu(1) == 0).all()  # nobody looks ahead
    assert torch.allclose(attend(q[:, :, 5:], k, v), z[:, :, 5:], atol=1e-12)
    assert torch.allclose(named["blocks.0.resid_mid"], named["blocks.0.resid_pre"] + named["blocks.0.attn_out"])
    assert torch.equal(named["blocks.0.resid_post"], named["blocks.1.resid_pre"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_token_changes_earlier_keys_only_without_the_causal_mask(kind):
    model = make_model(kind)
    ids = [5, 6, 7, 8]
    with_mask = trace(model, ids), trace(model, [*ids[:3], 9])
    without = trace(model, ids, causal=False), trace(model, [*ids[:3], 9], causal=False)
    for name in ("attn.k", "attn.v"):
        for block in range(model.config.n_layer):
            key = f"blocks.{block}.{name}"
            assert torch.equal(with_mask[0][key][:, :, :3], with_mask[1][key][:, :, :3])
            assert torch.equal(without[0][key][:, :, :3], without[1][key][:, :, :3]) is (block == 0)


def test_what_is_traced_stays_as_it_was():
    model = make_model("gpt")
    named = trace(model, [1, 2, 3])
    before = named["blocks.0.attn.k"].clone()
    with torch.no_grad():
        model.transformer.h[0].attn.c_attn.weight.add_(1)
    trace(model, [1, 2, 3])
    assert torch.equal(named["blocks.0.attn.k"], before)


def test_a_pass_that_fails_stops_the_listening_and_leaves_the_cache():
    model, cache = make_model("gpt"), make_empty("growing")
    trace(model, [1, 2], cache)
    with pytest.raises(InputError, match="vocabulary"):
        trace(model, [10_000], cache)
    assert cache.length == 2
    heard: list[str] = []
    with listening(lambda layer, name, tensor: heard.append(name)):
        probe(None, "x", torch.zeros(1))
    probe(None, "y", torch.zeros(1))
    assert heard == ["x"]


def test_no_causal_mask_with_a_cache_is_refused():
    cache = make_empty("growing")
    with pytest.raises(InputError, match="causal"):
        trace(make_model("gpt"), [1, 2], cache, causal=False)
    assert cache.length == 0


def test_an_unknown_name_is_answered_with_near_ones():
    with pytest.raises(UnknownName, match=r"blocks\.0\.attn\.q"):
        trace(make_model("gpt"), [1, 2])["blocks.0.attn.qs"]
