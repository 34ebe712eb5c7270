"""A sliding cache equals a model whose mask is a band; one with sinks equals the slow model of tests/reference.py.

Past the window neither equals the model without a cache, and the last tests say so with numbers.
"""

import pytest
import torch
import window_proof
from helpers import (
    CHUNKINGS,
    CLAIMS,
    MODELS,
    assert_close,
    in_chunks,
    last_norm,
    make_model,
    raising_in,
    random_ids,
    rows_that_part,
    uncached,
)
from window_proof import ANGLES, LENGTH, banded, kept_when, with_sinks

from kvcourse.caches.make import make_cache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.config import LlamaConfig
from kvcourse.errors import CacheMismatch, CacheMisuse, ContextOverflow, InputError
from kvcourse.generate import generate, prefill
from kvcourse.meter import Meter
from kvcourse.models.llama import Llama

every_model = pytest.mark.parametrize("model_kind", MODELS)


@pytest.mark.parametrize("claim", window_proof.CLAIMS, ids=lambda claim: claim.__name__)
def test_a_sliding_cache_keeps_every_claim(claim):
    claim(SlidingCache)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_both_models_and_precisions_have_the_same_window(dtype):
    window_proof.every_chunking_equals_full_attention_under_a_banded_mask(SlidingCache, "gpt", dtype)
    window_proof.every_chunking_equals_full_attention_under_a_banded_mask(SlidingCache, "llama", torch.float32)
    window_proof.sinks_equal_the_slow_model_for_every_chunking(SlidingCache, torch.float32)
    window_proof.a_ragged_batch_equals_each_row_alone(SlidingCache, "gpt")


@pytest.mark.parametrize("heads", [dict(n_head=6, n_kv_head=6), dict(n_head=6, n_kv_head=1)], ids=str)
def test_sinks_equal_the_slow_model_for_any_number_of_shared_heads(heads):
    model, tokens = make_model("llama", **heads), random_ids(1, 15)
    expected = with_sinks(6, 2, tuple(tokens[0].tolist()), **heads)
    logits = in_chunks(model, tokens, SlidingCache(6, 2), CHUNKINGS["uneven chunks"](15))
    assert (logits[0] - expected).abs().max() <= ANGLES


@every_model
@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.__name__ for claim in CLAIMS])
def test_within_its_window_it_is_a_full_cache(claim, model_kind):
    claim(lambda starts=None, capacity=None: SlidingCache(40, starts=starts), make_model(model_kind))


RAW = ("it_holds_the_keys_and_values_of_one_pass", "forks_go_their_own_ways")  # these compare keys, which are rotated there


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.__name__ not in RAW], ids=lambda claim: claim.__name__)
def test_within_its_window_one_with_sinks_is_a_full_cache_too(claim):
    claim(lambda starts=None, capacity=None: SlidingCache(40, 3, starts=starts), make_model("llama"))


# llm_from_scratch 3, mistral.rs 246: the window masks, and memory grows for ever.
@pytest.mark.parametrize("sinks", [0, 4])
def test_memory_is_constant_over_ten_thousand_tokens(sinks, full_counts):
    config = LlamaConfig(vocab_size=61, context_length=64, n_layer=1, n_head=2, n_kv_head=1, n_embd=8, n_inner=8)
    torch.manual_seed(0)
    model = Llama(config).eval()
    cache = make_cache("sliding", model, window=32, sinks=sinks)
    prefill(model, random_ids(40).tolist(), cache)
    nbytes = cache.nbytes
    assert nbytes == 2 * 32 * 4 * 4  # K and V, window, D, float32
    with torch.inference_mode():
        for part in random_ids(10_000 if full_counts or not sinks else 2_000).split(1 if full_counts or sinks else 8):
            assert torch.isfinite(model(part[None], cache=cache)).all()
            assert cache.nbytes == nbytes
    assert cache.held == 32 and cache.length >= 2_040
    with Meter() as meter:
        model(torch.tensor([[1]]), cache=cache)
    assert meter.cost.bytes_copied == 0
    storages = {tensor.untyped_storage().nbytes() for rows in cache._buffers.values() for tensor in rows}
    assert storages == {nbytes // 2}  # and no view of something larger


def test_past_the_context_a_llama_goes_on_with_a_window_and_its_logits_depend_on_the_window_alone():
    model = make_model("llama")  # a context of 32
    tokens = random_ids(1, 80)
    logits = in_chunks(model, tokens, SlidingCache(3), CHUNKINGS["uneven chunks"](80))
    # Rotary positions are relative: with one layer's reach of 3 and 3 layers, 7 tokens decide, wherever they stand.
    late = banded(model, tokens[:, -30:], 3)
    assert (logits[:, -20:] - late[:, -20:]).abs().max() < 1e-4  # angles of far positions are float32


@pytest.mark.parametrize(("window", "sinks"), [(33, 0), (33, 2)])
def test_a_window_longer_than_the_context_does_not_lead_past_it(window, sinks):
    model = make_model("llama")
    cache = SlidingCache(window, sinks)
    with pytest.raises(ContextOverflow, match="at most 32 tokens"):
        model(random_ids(1, 33), cache=cache)
    assert cache.length == 0


def test_a_gpt_has_an_end_whatever_the_window():
    model = make_model("gpt")
    cache = SlidingCache(4)
    model(random_ids(1, 32), cache=cache)
    with pytest.raises(ContextOverflow):
        model(random_ids(1, 1), cache=cache)
    assert (cache.length, cache.held) == (32, 4)


@pytest.mark.parametrize("sinks", [0, 2])
def test_generation_goes_past_the_context_and_a_batch_equals_its_rows(sinks):
    model = make_model("llama")
    prompts = [random_ids(length, seed=length).tolist() for length in (20, 3)]
    alone = [generate(model, p, max_new_tokens=30, cache=SlidingCache(6, sinks)) for p in prompts]
    together = generate(model, prompts, max_new_tokens=30, cache=SlidingCache(6, sinks))
    assert [out.tokens for out in together] == [out.tokens for out in alone]
    assert [len(out.tokens) for out in alone] == [30, 30]
    assert alone[0].finish_reason == "length"


def test_a_batch_whose_rows_end_at_different_times_leaves_the_cache_at_the_shortest():
    model = make_model("llama")
    prompts, stop = rows_that_part(lambda ids: generate(model, ids, max_new_tokens=12, cache=SlidingCache(4)))
    cache, expected = SlidingCache(4), SlidingCache(4)
    outs = generate(model, prompts, max_new_tokens=12, stop_ids=[stop], cache=cache)
    n = min(len(out.tokens) for out in outs)
    assert [out.finish_reason for out in outs] == ["stop", "length"]
    seen = torch.tensor([[*p, *out.tokens[: n - 1]] for p, out in zip(prompts, outs, strict=True)])
    model(seen, cache=expected)
    assert cache.length == expected.length and cache.starts is None
    more = random_ids(2, 3, seed=9)
    assert_close(model(more, cache=cache), model(more, cache=expected), "as if only the shared tokens had been there")


def test_an_interrupted_generation_gives_a_wrapped_cache_back_as_it_was():
    model, prompt = make_model("llama"), random_ids(9).tolist()
    cache = SlidingCache(4, 1)
    prefill(model, prompt, cache)
    before = [t.clone() for t in cache.read(0, 6, 9)]

    def stop(token):
        if cache.length == 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(model, prompt[:3], max_new_tokens=20, cache=cache, on_token=stop)
    assert cache.length == 9
    assert all(torch.equal(old, new) for old, new in zip(before, cache.read(0, 6, 9), strict=True))


def test_raising_at_the_last_norm_of_a_split_pass_takes_all_its_parts_back():
    model, tokens = make_model("llama"), random_ids(1, 12)
    cache = SlidingCache(5, 2)
    with raising_in(last_norm(model), ValueError()), pytest.raises(ValueError):
        model(tokens, cache=cache)
    assert (cache.length, cache.nbytes) == (0, 0)
    make_model("llama", seed=3)(tokens[:, :2], cache=cache)  # not even bound


def test_rows_that_are_held_can_be_read_and_others_cannot():
    model, tokens = make_model("llama"), random_ids(1, 12)
    full, plain, sinks = SlidingCache(20), SlidingCache(5), SlidingCache(6, 2)
    for cache in (full, plain, sinks):
        in_chunks(model, tokens, cache, [7, 5])
    assert_close(plain.read(0, 7, 12).keys, full.read(0, 7, 12).keys, "the last five")
    assert_close(sinks.read(0, 8, 12).values, full.read(0, 8, 12).values, "the last four")
    assert_close(sinks.read(0, 0, 2).values, full.read(0, 0, 2).values, "the sinks")
    for cache, start, stop in ((plain, 6, 12), (plain, 0, 1), (sinks, 7, 12), (sinks, 0, 3), (sinks, 2, 3), (plain, 7, 13)):
        with pytest.raises(CacheMisuse):
            cache.read(0, start, stop)


@pytest.mark.parametrize("window_sinks", [(0, 0), (2, 2), (3, 4), (-1, 0), (4, -1), (2.0, 0), (True, 0), ("4", 0)], ids=str)
def test_a_window_that_cannot_be_is_refused(window_sinks):
    with pytest.raises(InputError, match=r"at least sinks \+ 1") as caught:
        SlidingCache(*window_sinks)
    assert caught.value.todo


def test_sinks_with_learned_positions_are_refused_before_anything_changes():
    model = make_model("gpt")
    cache = SlidingCache(4, 1)
    for act in (lambda: model(random_ids(1, 2), cache=cache), lambda: make_cache("sliding", model, window=4, sinks=1)):
        with pytest.raises(CacheMismatch, match="rotary positions"):
            act()
    assert cache.length == 0
    make_model("llama")(random_ids(1, 2), cache=cache)  # still free


def test_several_tokens_past_the_window_are_refused_by_the_cache_and_split_by_the_model():
    model = make_model("llama")
    cache = SlidingCache(5, 2)
    model(random_ids(1, 4), cache=cache)
    assert cache.passes(4) == [1, 1, 1, 1] and SlidingCache(5, 2).passes(8) == [5, 1, 1, 1]
    with pytest.raises(InputError, match=r"cache\.passes"):
        cache.plan(4)
    assert model(random_ids(1, 4), cache=cache, logits_to_keep=2).shape == (1, 2, 61)
    assert cache.length == 8


def test_it_says_what_it_is():
    plain, sinks = SlidingCache(8), SlidingCache(8, 2)
    assert (plain.keys, sinks.keys) == ("rotated", "raw")
    for cache in (plain, sinks):
        assert (cache.exact, cache.can_fork, cache.rewinds, cache.capacity, cache.window) == (False, True, False, None, 8)


def test_sinks_are_an_approximation_and_not_what_recomputing_the_kept_tokens_gives():
    model, tokens = make_model("llama"), random_ids(1, LENGTH)
    logits = model(tokens, cache=SlidingCache(8, 2))[0, -1]
    again = uncached(model, tokens[:, kept_when(LENGTH - 1, 8, 2)])[0, -1]
    assert (logits - again).abs().max() > 1e-3  # deeper layers had mixed in what was thrown away
    one_layer = make_model("llama", n_layer=1)
    logits = one_layer(tokens, cache=SlidingCache(8, 2))[0, -1]
    assert_close(logits, uncached(one_layer, tokens[:, kept_when(LENGTH - 1, 8, 2)])[0, -1], "with one layer they are equal")
