"""One test for each row of the list of faults that real systems shipped, as far as its parts exist here.

The comment above a test names where the fault was reported. What the proof of tests/helpers.py already claims for every cache
is not repeated: here is what needs a sharper look.
"""

import pytest
import torch
from helpers import (
    CACHES,
    MODELS,
    assert_close,
    in_chunks,
    make_empty,
    make_model,
    padded,
    random_ids,
    snapshot,
    uncached,
)

from kvcourse.caches.make import make_cache
from kvcourse.errors import CacheFull, CacheMismatch, ContextOverflow
from kvcourse.generate import generate

every_cache = pytest.mark.parametrize("cache_kind", CACHES)
every_model = pytest.mark.parametrize("model_kind", MODELS)


# LLMs-from-scratch PR 697, llama 899, PyTorch 108108: a square or top-left mask when T < S.
@every_model
@every_cache
def test_m_tokens_after_n_cached_ones_equal_one_pass_for_every_m_and_n(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens = random_ids(2, 12)
    expected = uncached(model, tokens)
    for n in range(1, 12):
        for m in range(1, 13 - n):
            cache = make_empty(cache_kind)
            model(tokens[:, :n], cache=cache)
            assert_close(model(tokens[:, n : n + m], cache=cache), expected[:, n : n + m], f"{m} after {n}")


# nanochat 514, GPT-2 137, transformers 1749: the bound is checked on T, not on length + T.
@every_model
@every_cache
def test_the_context_can_be_filled_exactly_and_one_token_more_is_refused_with_the_cache_unchanged(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens = random_ids(1, 33)
    for sizes in ([32], [31, 1], [10, 22], [1] * 32):
        cache = make_empty(cache_kind)
        assert_close(in_chunks(model, tokens[:, :32], cache, sizes), uncached(model, tokens[:, :32]), str(sizes))
        before = snapshot(cache, 3)
        with pytest.raises(ContextOverflow, match="at most 32 tokens; got 32 before and 1 now"):
            model(tokens[:, 32:], cache=cache)
        assert snapshot(cache, 3) == before
    cache = make_empty(cache_kind)
    with pytest.raises(ContextOverflow, match="at most 32 tokens"):
        model(tokens, cache=cache)
    with pytest.raises(ContextOverflow, match="at most 32 tokens"):
        model(tokens)
    assert cache.length == 0
    make_model(model_kind, seed=5)(tokens[:, :2], cache=cache)  # not even bound


# The same with padding: a row's context is counted in its own tokens, not in slots.
@every_model
@every_cache
def test_a_padded_row_has_its_whole_context(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens, starts = padded([[1, 2, 3], [4]])
    rest = random_ids(2, 29)
    cache = make_empty(cache_kind, starts)
    model(tokens, cache=cache)
    logits = model(rest, cache=cache)
    assert_close(logits[1:], uncached(model, torch.tensor([[4, *rest[1].tolist()]]))[:, 1:], "the padded row")
    with pytest.raises(ContextOverflow):  # the row without padding is full
        model(rest[:, :1], cache=cache)
    cache = make_empty(cache_kind, [4, 3])
    model(random_ids(2, 35), cache=cache)  # three slots are padding in both rows
    assert cache.length == 35


# mlx-lm PR 93, nanoVLM 71, nano-vllm PR 67, tiny-llm PR 46: positions restart, or are off by one, with a cache.
@every_model
@every_cache
def test_a_repeated_token_gets_the_logits_of_its_own_position(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens = torch.full((1, 20), 7)
    tokens[0, 3] = 8  # something to be near to, or far from
    expected = uncached(model, tokens)
    apart = (expected[0, 4:, None] - expected[0, None, 4:]).abs().amax(-1) + torch.eye(16)
    assert apart.min() > 1e-4  # every position has logits of its own, so that a shift would show
    assert_close(in_chunks(model, tokens, make_empty(cache_kind), [1] * 20), expected, "step by step")


# unsloth 3699, transformers 18104, LLMs-from-scratch's batched recipe: what stands in the padding leaks into the answer.
@every_model
@every_cache
def test_the_content_of_padding_changes_nothing(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens, starts = padded([[5, 6, 7, 8, 9], [10, 11]])
    results = []
    for filler in (0, 33, 60):
        filled = torch.where(torch.arange(5) < torch.tensor(starts)[:, None], filler, tokens)
        cache = make_empty(cache_kind, starts)
        results.append(torch.cat((in_chunks(model, filled, cache, [2, 3]), model(random_ids(2, 2), cache=cache)), dim=1))
    for other in results[1:]:
        assert torch.equal(other[0], results[0][0])
        assert torch.equal(other[1, 3:], results[0][1, 3:])


# x-transformers 219: absolute positions past the window turn to junk. There are none: no cache lets a GPT go on.
@every_cache
def test_a_gpt_never_runs_past_its_learned_positions(cache_kind):
    model = make_model("gpt")
    cache = make_cache(cache_kind, model)
    out = generate(model, random_ids(1, 30)[0].tolist(), max_new_tokens=50, cache=make_empty(cache_kind, capacity=200))
    assert (len(out.tokens), out.finish_reason) == (3, "context")
    model(random_ids(1, 32), cache=cache)
    with pytest.raises(ContextOverflow):
        model(random_ids(1, 1), cache=cache)


# LLMs-from-scratch PR 925, transformers PR 48509: the second prompt is answered with something of the first.
@every_model
@every_cache
def test_two_prompts_in_a_row_are_answered_as_each_alone(cache_kind, model_kind):
    model = make_model(model_kind)
    first, second = random_ids(9, seed=1).tolist(), random_ids(4, seed=2).tolist()
    cache = make_empty(cache_kind)
    generate(model, first, max_new_tokens=6, cache=cache)
    cache.reset()
    again = generate(model, second, max_new_tokens=6, cache=cache)
    alone = generate(model, second, max_new_tokens=6, cache=None)
    assert again.tokens == alone.tokens
    assert (again.usage.prompt_tokens, again.usage.cached_tokens) == (4, 0)


# LLMs-from-scratch, optimized variant: another batch size is silently wrong; an uncached call in between corrupts the cache.
@every_model
@every_cache
def test_another_batch_size_is_refused_and_an_uncached_call_in_between_does_no_harm(cache_kind, model_kind):
    model = make_model(model_kind)
    tokens = random_ids(2, 10)
    cache = make_empty(cache_kind)
    model(tokens[:, :5], cache=cache)
    for other in (tokens[:1, 5:], tokens[:, 5:].repeat(2, 1)):
        with pytest.raises(CacheMismatch, match="batch size"):
            model(other, cache=cache)
        uncached(model, other)
    assert_close(model(tokens[:, 5:], cache=cache), uncached(model, tokens)[:, 5:], "after all that")


# nanochat PR 186: growing by a resize scrambles the other layers.
@every_model
def test_growing_over_several_steps_leaves_all_layers_in_order(model_kind):
    model = make_model(model_kind, n_layer=5)
    tokens = random_ids(2, 16)
    whole, parts = make_empty("growing"), make_empty("growing")
    model(tokens, cache=whole)
    in_chunks(model, tokens, parts, [1, 2, 3, 4, 6])
    for layer in range(5):
        for one, other in zip(whole.read(layer, 0, 16), parts.read(layer, 0, 16), strict=True):
            assert_close(other, one, f"layer {layer}")


# nanochat PR 627: no check of the capacity.
@every_model
def test_capacity_is_usable_to_the_last_slot_and_not_beyond(model_kind):
    model = make_model(model_kind)
    tokens = random_ids(1, 8)
    for sizes in ([7], [1] * 7, [4, 3]):
        cache = make_empty("preallocated", capacity=7)
        assert_close(in_chunks(model, tokens[:, :7], cache, sizes), uncached(model, tokens[:, :7]), str(sizes))
        before = snapshot(cache, 3)
        with pytest.raises(CacheFull, match="at most 7 tokens; got 7 held and 1 more"):
            model(tokens[:, 7:], cache=cache)
        assert snapshot(cache, 3) == before


# transformers 47433, mlx-lm PR 1868: crop(0) keeps all, a negative crop grows. See also it_is_cut_to_every_length_and_goes_on.
@every_model
@every_cache
def test_cutting_to_nothing_frees_every_position(cache_kind, model_kind):
    model = make_model(model_kind)
    cache = make_empty(cache_kind, capacity=32)
    model(random_ids(1, 32), cache=cache)
    cache.truncate(0)
    tokens = random_ids(1, 32, seed=3)
    assert_close(model(tokens, cache=cache), uncached(model, tokens), "a whole context after truncate(0)")


# exo PR 991, lattice PR 516: a hit handed out by reference; one fork reads another's rows.
@every_model
@every_cache
def test_writing_into_a_fork_or_into_read_rows_that_were_copied_reaches_nobody_else(cache_kind, model_kind):
    model = make_model(model_kind)
    trunk = random_ids(1, 6)
    cache = make_empty(cache_kind)
    model(trunk, cache=cache)
    forks = [cache.fork(), cache.fork()]
    rows = [t.clone() for t in cache.read(1, 0, 6)]
    for number, member in enumerate(forks):
        member.truncate(4)
        model(random_ids(1, 5, seed=40 + number), cache=member)
    for held, before in zip(cache.read(1, 0, 6), rows, strict=True):
        assert torch.equal(held, before)
    assert not torch.equal(forks[0].read(1, 4, 9).keys, forks[1].read(1, 4, 9).keys)
    copied = cache.read(0, 0, 6).keys.clone()
    copied.zero_()
    assert cache.read(0, 0, 6).keys.abs().min() > 0


# LLMs-from-scratch 913: the cache is built and never used. Counted, not timed.
@every_model
@every_cache
def test_generation_puts_each_token_through_the_model_once(cache_kind, model_kind):
    model = make_model(model_kind)
    out = generate(model, random_ids(10).tolist(), max_new_tokens=12, cache=cache_kind)
    assert out.cost.tokens == 10 + 11


# nanochat 795: caches and models of several precisions side by side, whichever comes first.
@every_cache
def test_a_cache_refuses_the_precision_it_does_not_hold_when_its_model_is_converted(cache_kind):
    model = make_model("gpt", torch.float32)
    cache = make_empty(cache_kind)
    model(random_ids(1, 3), cache=cache)
    model.to(torch.bfloat16)
    before = snapshot(cache, 3)
    with pytest.raises(CacheMismatch, match=r"dtype.*float32.*bfloat16"):
        model(random_ids(1, 1), cache=cache)
    assert snapshot(cache, 3) == before
    model.to("meta")
    with pytest.raises(CacheMismatch, match=r"dtype|device"):
        model(random_ids(1, 1), cache=cache)
