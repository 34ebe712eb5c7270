"""The proof that a sliding cache is right: claims that every window must keep, for test_windows.py and for the broken ones.

Each takes Sliding, a class like SlidingCache, and raises AssertionError where it does not hold.
"""

from functools import cache as remembered

import torch
from helpers import CHUNKINGS, assert_close, blocks, in_chunks, last_norm, make_model, padded, random_ids, refuses
from reference import llama_logits, weights_of

from kvcourse.caches.base import Plan
from kvcourse.errors import CacheMisuse

LENGTH = 22
ANGLES = 5e-5  # of logits: angles are float32 in model and reference, and NumPy rounds their cosines otherwise


def banded(model, tokens, window):
    """Logits of the model itself, without a cache, when every query sees `window` keys."""
    places = torch.arange(tokens.shape[1])
    mask = (places[None] <= places[:, None]) & (places[None] > places[:, None] - window)
    with torch.no_grad():
        return model.compute(tokens, Plan(places, places, mask), None)


def kept_when(t, window, sinks):
    """Plain lists: the sinks, and the last tokens, `window` in all."""
    every = list(range(t + 1))
    return every if t < window else every[:sinks] + every[-(window - sinks) :]


@remembered
def with_sinks(window, sinks, ids, **changes):
    """Logits of the slow model, in float64."""
    model = make_model("llama", **changes)
    return torch.from_numpy(llama_logits(weights_of(model), model.config, list(ids), lambda t: kept_when(t, window, sinks)))


class raising_after:
    """`place` raises at its call number `n` (from 0): with sinks a pass is cut in parts, and a later one fails."""

    def __init__(self, place, fault, n):
        self.place, self.fault, self.calls, self.n = place, fault, iter(range(99)), n

    def __enter__(self):
        def fail(*_):
            if next(self.calls) >= self.n:
                raise self.fault

        self.handle = self.place.register_forward_pre_hook(fail)

    def __exit__(self, *_):
        self.handle.remove()


# transformers 37574, litgpt 2182, nanochat 452: off by one; a prefill longer than the window; decode that ignores the window.
def every_chunking_equals_full_attention_under_a_banded_mask(Sliding, kind="llama", dtype=torch.float64):
    model, tokens = make_model(kind, dtype), random_ids(2, LENGTH)
    for window in (1, 2, 5, 11, LENGTH, LENGTH + 1):
        expected = banded(model, tokens, window)
        for name, sizes in CHUNKINGS.items():
            cache = Sliding(window)
            assert_close(in_chunks(model, tokens, cache, sizes(LENGTH)), expected, f"window {window}, {name}")
            assert (cache.length, cache.held) == (LENGTH, min(LENGTH, window)), f"window {window}, {name}"


# transformers 35350, streaming-llm 73: keys cached after rotation. Ours are raw, and turned by their place in the kept set.
def sinks_equal_the_slow_model_for_every_chunking(Sliding, dtype=torch.float64):
    model, tokens = make_model("llama", dtype), random_ids(1, LENGTH)
    for sinks, window in ((1, 2), (1, 6), (3, 4), (4, 11), (2, LENGTH)):
        expected = in_chunks(model, tokens, Sliding(window, sinks), [1] * LENGTH)
        wrong = (expected[0].double() - with_sinks(window, sinks, tuple(tokens[0].tolist()))).abs().max()
        assert wrong <= ANGLES, f"window {window}, {sinks} sinks: one by one differs by {wrong:.3g}"
        for name, sizes in CHUNKINGS.items():
            cache = Sliding(window, sinks)
            assert_close(in_chunks(model, tokens, cache, sizes(LENGTH)), expected, f"window {window}, {sinks} sinks, {name}")
            assert (cache.length, cache.held) == (LENGTH, min(LENGTH, window)), name


def a_ragged_batch_equals_each_row_alone(Sliding, kind="llama"):
    model = make_model(kind)
    prompts = [random_ids(length, seed=length).tolist() for length in (9, 4, 1, 7)]
    tokens, starts = padded(prompts)
    more = random_ids(4, 6, seed=4)
    for window, sinks in ((1, 0), (4, 0), (7, 0), (30, 0), (3, 1), (7, 2), (30, 3)):
        if sinks and kind == "gpt":
            continue
        for name, sizes in CHUNKINGS.items():
            cache = Sliding(window, sinks, starts=starts)
            logits = torch.cat((in_chunks(model, tokens, cache, sizes(9)), in_chunks(model, more, cache, sizes(6))), dim=1)
            for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
                ids = torch.tensor([[*prompt, *more[row].tolist()]])
                alone = in_chunks(model, ids, Sliding(window, sinks), [1] * ids.shape[1])
                assert_close(logits[row : row + 1, start:], alone, f"{window}, {sinks}, {name}: row {row}, padded by {start}")


def a_failed_pass_over_a_wrapped_ring_changes_nothing(Sliding):
    model, tokens = make_model("llama"), random_ids(1, 20)
    for fault in (RuntimeError("on purpose"), KeyboardInterrupt()):
        for sinks, held, T in ((s, h, t) for s in (0, 2) for h in (3, 6, 13) for t in (1, 3, 7)):
            for place in (blocks(model)[1].mlp, last_norm(model)):
                cache, untouched = Sliding(6, sinks), Sliding(6, sinks)
                for each in (cache, untouched):
                    in_chunks(model, tokens[:, :held], each, [held - 1, 1])
                with raising_after(place, fault, min(1, len(cache.passes(T)) - 1)):
                    refuses(type(fault), lambda c=cache, h=held, t=T: model(tokens[:, h : h + t], cache=c))
                assert (cache.length, cache.held) == (held, min(held, 6))
                start = 0 if held <= 6 else held - (6 - sinks)
                for kept, old in zip(cache.read(0, start, held), untouched.read(0, start, held), strict=True):
                    assert_close(kept, old, f"rows, {held} held, {T} new")
                rest = tokens[:, held:]
                assert_close(model(rest, cache=cache), model(rest, cache=untouched), f"{held} held, {T} new")


# mlx-lm 1776, PR 1109: a wrapped ring is cut, or a cache rolled back that cannot be.
def it_is_cut_until_it_has_gone_round_and_never_after(Sliding):
    model, tokens = make_model("llama"), random_ids(1, 7)
    for sinks in (0, 2):
        for n in range(7):
            cache, whole = Sliding(7, sinks), Sliding(7, sinks)
            model(tokens, cache=cache)
            cache.truncate(n)
            assert (cache.length, cache.held) == (n, n)
            if n:
                model(tokens[:, :n], cache=whole)
            assert_close(model(tokens, cache=cache), model(tokens, cache=whole), f"cut to {n}")
        cache = Sliding(6, sinks)
        model(tokens, cache=cache)
        for n in (-2, -1, 0, 1, 5, 6, 8):
            assert not cache.can_truncate(n), f"cut to {n}"
            refuses(CacheMisuse, lambda c=cache, n=n: c.truncate(n))
        cache.truncate(7)
        assert (cache.length, cache.held) == (7, 6)


def forks_of_a_wrapped_ring_go_their_own_ways(Sliding):
    model, trunk = make_model("llama"), random_ids(1, 9)
    for sinks in (0, 1):
        cache = Sliding(4, sinks)
        model(trunk, cache=cache)
        family = [cache, cache.fork(), cache.fork()]
        ends = [random_ids(1, 5, seed=seed) for seed in range(3)]
        steps = [[model(end[:, i : i + 1], cache=one) for one, end in zip(family, ends, strict=True)] for i in range(5)]
        for number, end in enumerate(ends):
            alone = Sliding(4, sinks)
            model(trunk, cache=alone)
            got = torch.cat([step[number] for step in steps], dim=1)
            assert_close(got, model(end, cache=alone), f"fork {number}")


def after_a_reset_it_is_as_new(Sliding):
    model, one, two = make_model("llama"), random_ids(1, 9), random_ids(1, 13, seed=5)
    for sinks in (0, 2):
        cache = Sliding(5, sinks)
        in_chunks(model, one, cache, [4, 1, 4])
        cache.reset()
        assert (cache.length, cache.held) == (0, 0)
        assert_close(model(two, cache=cache), model(two, cache=Sliding(5, sinks)), f"{sinks} sinks")


# llm_from_scratch 3, mistral.rs 246: the window masks, and memory grows for ever.
def its_memory_does_not_grow(Sliding):
    model = make_model("llama")
    for sinks in (0, 2):
        cache, sizes = Sliding(5, sinks), set()
        for size in (5, 1, 9, 1, 1, 2):
            model(random_ids(1, size), cache=cache)
            sizes.add(cache.nbytes)
            stored = [t for rows in cache._buffers.values() for t in rows]
            assert sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in stored}.values()) == cache.nbytes
        assert sizes == {2 * 3 * 2 * 5 * 6 * 8}, str(sizes)  # K and V, L, H_kv, window, D, float64


CLAIMS = (
    every_chunking_equals_full_attention_under_a_banded_mask,
    sinks_equal_the_slow_model_for_every_chunking,
    a_ragged_batch_equals_each_row_alone,
    a_failed_pass_over_a_wrapped_ring_changes_nothing,
    it_is_cut_until_it_has_gone_round_and_never_after,
    forks_of_a_wrapped_ring_go_their_own_ways,
    after_a_reset_it_is_as_new,
    its_memory_does_not_grow,
)
