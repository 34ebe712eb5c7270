"""A quantized cache equals a full cache whose old rows were rounded by loops over plain numbers, on the same schedule."""

import math
from itertools import pairwise

import pytest
import torch
from helpers import (
    CHUNKINGS,
    CLAIMS,
    MODELS,
    assert_close,
    blocks,
    in_chunks,
    last_norm,
    make_model,
    padded,
    raising_in,
    random_ids,
    rows_that_part,
    uncached,
)

from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.make import make_cache
from kvcourse.caches.quantized import QuantizedCache, dequantize, quantize
from kvcourse.errors import CacheMisuse, InputError
from kvcourse.generate import generate, prefill

LENGTH = 26
every_model = pytest.mark.parametrize("model_kind", MODELS)
settings = pytest.mark.parametrize(
    ("bits", "group", "residual"), [(8, 4, 4), (4, 4, 4), (8, 1, 0), (4, 3, 5), (4, 8, 0), (8, 32, 0), (8, 4, 99)]
)


def rounded(numbers, bits):
    """A group of plain numbers, as its codes stand for them."""
    low, high = min(numbers), max(numbers)
    step = (high - low) / (2**bits - 1)
    return [low + step * (math.floor((x - low) / step + 0.5) if step else 0) for x in numbers]


class RoundedGrowingCache(GrowingCache):
    """Keeps every row as it was, and hands over old ones rounded: in loops, from the length alone."""

    def __init__(self, bits, group, residual):
        super().__init__()
        self.bits, self.group, self.residual = bits, group, residual

    def _write(self, layer, k, v):
        rows = super()._write(layer, k, v)
        ripe = max(0, self.length - self.residual) // self.group * self.group
        keys, values = (t.tolist() for t in rows)
        for b, h in ((b, h) for b in range(len(keys)) for h in range(len(keys[0]))):
            for start in range(0, ripe, self.group):
                tokens = range(start, start + self.group)
                for channel in range(len(keys[b][h][0])):
                    for token, x in zip(tokens, rounded([keys[b][h][t][channel] for t in tokens], self.bits), strict=True):
                        keys[b][h][token][channel] = x
                for token in tokens:
                    values[b][h][token] = rounded(values[b][h][token], self.bits)
        return KeysValues(torch.tensor(keys, dtype=k.dtype), torch.tensor(values, dtype=k.dtype))


@settings
@every_model
def test_every_chunking_equals_a_cache_that_rounds_by_loops_on_the_same_schedule(bits, group, residual, model_kind):
    model, tokens = make_model(model_kind), random_ids(2, LENGTH)
    for name, sizes in CHUNKINGS.items():
        cache = QuantizedCache(bits, group, residual)
        expected = in_chunks(model, tokens, RoundedGrowingCache(bits, group, residual), sizes(LENGTH))
        assert_close(in_chunks(model, tokens, cache, sizes(LENGTH)), expected, name)
        assert (cache.length, cache.held) == (LENGTH, LENGTH)
        assert cache.packed == max(0, LENGTH - residual) // group * group


# VeloxQuant 86, kvpress 27: the residual is judged call by call, so that tokens of decode are never rounded.
@settings
def test_the_same_rows_have_the_same_codes_whatever_passes_brought_them(bits, group, residual):
    generator = torch.Generator().manual_seed(0)
    k, v = (torch.randn(2, 3, LENGTH, 6, generator=generator) for _ in range(2))
    codes = []
    for sizes in CHUNKINGS.values():
        cache = QuantizedCache(bits, group, residual)
        for start, stop in pairwise([0, *torch.tensor(sizes(LENGTH)).cumsum(0).tolist()]):
            cache.append(0, k[:, :, start:stop], v[:, :, start:stop])
            cache.advance(stop - start)
        codes.append([t for part in cache._codes.get(0, ()) for t in (part.codes, part.low, part.step)])
        assert all(torch.equal(one, two) for one, two in zip(codes[0], codes[-1], strict=True))
        assert all(
            torch.equal(*pair)
            for pair in zip(
                cache.read(0, cache.packed, LENGTH), (k[:, :, cache.packed :], v[:, :, cache.packed :]), strict=True
            )
        )
    assert bool(codes[0]) == (residual < LENGTH and group <= LENGTH - residual)


@settings
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_no_number_is_off_by_more_than_half_its_step_and_the_last_ones_by_nothing(bits, group, residual, dtype):
    generator = torch.Generator().manual_seed(1)
    k, v = (torch.randn(2, 3, LENGTH, 6, generator=generator, dtype=dtype) * 10 for _ in range(2))
    cache = QuantizedCache(bits, group, residual)
    cache.append(0, k, v)
    cache.advance(LENGTH)
    slack = 40 * torch.finfo(dtype).eps * 10
    largest = 0.0
    for kept, given, half in zip(cache.read(0, 0, cache.packed), (k, v), cache.half_step(0), strict=True):
        wrong = (kept - given[:, :, : cache.packed]).abs()
        assert (wrong <= half.expand_as(wrong) + slack).all()
        largest = max(largest, (wrong / half.clamp(min=1e-9)).max().item() if wrong.numel() else 0.0)
    assert largest > 0.9 or cache.packed == 0 or group == 1  # the bound is tight; of values alone where a key's group is itself
    for kept, given in zip(cache.read(0, cache.packed, LENGTH), (k, v), strict=True):
        assert torch.equal(kept, given[:, :, cache.packed :])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("D", [1, 2, 5, 8])
def test_constant_groups_and_odd_widths_survive(bits, D):
    x = torch.full((1, 1, 4, D), 3.25)
    packed = quantize(x, x.amin(2, keepdim=True), x.amax(2, keepdim=True), bits)
    assert torch.equal(dequantize(packed, bits), x)
    assert packed.codes.shape[-1] == (D if bits == 8 else (D + 1) // 2)
    ends = torch.tensor([0.0, 1.0]).repeat(2)[None, None, :, None].expand(1, 1, 4, D)
    assert torch.equal(dequantize(quantize(ends, ends.amin(2, keepdim=True), ends.amax(2, keepdim=True), bits), bits), ends)


@every_model
@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.__name__ for claim in CLAIMS])
def test_while_nothing_is_rounded_it_is_a_full_cache(claim, model_kind):
    claim(lambda starts=None, capacity=None: QuantizedCache(8, starts=starts), make_model(model_kind))


@pytest.mark.parametrize("bits", [8, 4])
def test_memory_is_what_the_formula_says(bits):
    model = make_model("llama", torch.float32)
    cache = QuantizedCache(bits, 4, 6)
    model(random_ids(1, 20), cache=cache)
    L, H_kv, D, packed = 3, 2, 6, 12
    codes = 2 * packed * D * bits // 8
    scales = 4 * (2 * (packed // 4) * D + 2 * packed)  # low and step: of a key a channel and group, of a value a token
    assert cache.packed == packed
    assert cache.nbytes == L * H_kv * (codes + scales + 2 * (20 - packed) * D * 4)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_ragged_batch_is_as_near_to_each_row_alone_as_the_steps_allow(bits):
    model = make_model("llama")
    prompts = [random_ids(length, seed=length).tolist() for length in (13, 5, 1, 9)]
    tokens, starts = padded(prompts)
    more = random_ids(4, 7, seed=4)
    cache = QuantizedCache(bits, 4, 0, starts=starts)
    logits = torch.cat((model(tokens, cache=cache), model(more, cache=cache)), dim=1)
    for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
        ids = torch.tensor([[*prompt, *more[row].tolist()]])
        alone = in_chunks(model, ids, QuantizedCache(bits, 4, 0), [len(prompt), 7])
        exact = uncached(model, ids)
        here, there = ((x - exact).abs().max() for x in (logits[row : row + 1, start:], alone))
        assert here <= 3 * there + 1e-9, f"row {row}: {here:.3g} against {there:.3g} alone"
        full = GrowingCache()
        model(ids, cache=full)  # layer 0 reads tokens alone: its rows are the same, but for rounding
        half = QuantizedCache.half_step(cache, 0)
        for kept, given, step in zip(
            cache.read(0, start, cache.packed), full.read(0, 0, cache.packed - start), half, strict=True
        ):
            assert ((kept[row] - given[0]).abs() <= step[row, :, start:].expand_as(given[0]) + 1e-12).all()


def test_what_stands_in_the_padding_changes_no_step_of_a_real_row():
    k, v = (torch.randn(2, 3, 12, 6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    kept = []
    for padding in (0.0, 1000.0):
        k[0, :, :6], v[0, :, :6] = padding, padding  # one whole group, and half of the next
        cache = QuantizedCache(8, 4, 0, starts=[6, 0])
        cache.append(0, k, v)
        cache.advance(12)
        kept.append([t[0, :, 6:] for t in cache.read(0, 0, 12)] + [t[1] for t in cache.read(0, 0, 12)])
    assert all(torch.equal(one, two) for one, two in zip(*kept, strict=True))


@pytest.mark.parametrize("place", ["middle", "end"])
def test_a_failed_pass_rounds_nothing(place):
    model, tokens = make_model("llama"), random_ids(1, 24)
    for held in (0, 3, 9, 16):
        cache, untouched = QuantizedCache(8, 4, 2), QuantizedCache(8, 4, 2)
        for each in (cache, untouched):
            if held:
                model(tokens[:, :held], cache=each)
        where = blocks(model)[1].mlp if place == "middle" else last_norm(model)
        with raising_in(where, KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
            model(tokens[:, held : held + 7], cache=cache)
        assert (cache.length, cache.packed, cache.nbytes) == (held, untouched.packed, untouched.nbytes)
        assert_close(model(tokens[:, held:], cache=cache), model(tokens[:, held:], cache=untouched), f"{held} held")


def test_an_interrupted_generation_gives_the_cache_back_though_groups_were_rounded_meanwhile():
    model, prompt = make_model("llama"), random_ids(9).tolist()
    cache = QuantizedCache(4, 4, 0)
    prefill(model, prompt, cache)
    before = [t.clone() for t in cache.read(0, 0, 9)]

    def stop(token):
        if cache.length == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(model, prompt[:3], max_new_tokens=20, cache=cache, on_token=stop)
    assert (cache.length, cache.packed) == (9, 8)
    assert all(torch.equal(old, new) for old, new in zip(before, cache.read(0, 0, 9), strict=True))


def test_it_is_cut_within_its_residual_and_by_whole_groups_and_nowhere_else():
    model, tokens = make_model("llama"), random_ids(1, 19)
    for n in range(-2, 22):
        cache = QuantizedCache(8, 4, 5)  # 12 rows rounded, 7 not
        model(tokens, cache=cache)
        rows = [t.clone() for t in cache.read(1, 0, 19)]
        possible = 12 <= n <= 19 or n in (0, 4, 8)
        assert cache.can_truncate(n) == possible, n
        if not possible:
            with pytest.raises(CacheMisuse, match="12 to 19 tokens, or a multiple of 4 below"):
                cache.truncate(n)
            n = 19
        else:
            cache.truncate(n)
        assert (cache.length, cache.packed) == (n, min(12, n))
        if n:
            assert all(torch.equal(old[:, :, :n], new) for old, new in zip(rows, cache.read(1, 0, n), strict=True))
        model(tokens[:, :6], cache=cache)
        assert cache.length == n + 6


def test_forks_round_their_own_rows():
    model, trunk = make_model("llama"), random_ids(1, 10)
    cache = QuantizedCache(4, 4, 2)
    model(trunk, cache=cache)
    family = [cache, cache.fork(), cache.fork()]
    ends = [random_ids(1, 9, seed=seed) for seed in range(3)]
    steps = [[model(end[:, i : i + 1], cache=one) for one, end in zip(family, ends, strict=True)] for i in range(9)]
    family[0].truncate(8)
    for number, end in enumerate(ends):
        alone = QuantizedCache(4, 4, 2)
        model(trunk, cache=alone)
        expected = in_chunks(model, end, alone, [1] * 9)
        assert_close(torch.cat([step[number] for step in steps], dim=1), expected, f"fork {number}")
        if number:
            assert_close(family[number].read(2, 0, 19).keys, alone.read(2, 0, 19).keys, f"rows of fork {number}")


# LLMs-from-scratch PR 925, transformers PR 48509: a reset leaves quantized state behind.
def test_after_a_reset_it_is_as_new():
    model, one, two = make_model("gpt"), random_ids(1, 17), random_ids(1, 22, seed=5)
    cache, fresh = QuantizedCache(4, 4, 3), QuantizedCache(4, 4, 3)
    in_chunks(model, one, cache, [6, 1, 10])
    cache.reset()
    assert (cache.length, cache.packed, cache.nbytes) == (0, 0, 0)
    assert_close(in_chunks(model, two, cache, [5, 17]), in_chunks(model, two, fresh, [5, 17]), "the next prompt")


def test_a_batch_whose_rows_end_at_different_times_leaves_the_cache_at_the_shortest():
    model = make_model("llama")
    cache, expected = QuantizedCache(8, 2, 0), QuantizedCache(8, 2, 0)
    prompts, stop = rows_that_part(lambda ids: generate(model, ids, max_new_tokens=12, cache=QuantizedCache(8, 2, 0)))
    outs = generate(model, prompts, max_new_tokens=12, stop_ids=[stop], cache=cache)
    n = min(len(out.tokens) for out in outs)
    assert n < 12 and max(len(out.tokens) for out in outs) == 12
    model(torch.tensor(prompts), cache=expected)
    for i in range(n - 1):
        model(torch.tensor([[out.tokens[i]] for out in outs]), cache=expected)
    assert (cache.length, cache.packed) == (expected.length, expected.packed) and cache.starts is None
    assert_close(cache.read(1, 0, cache.length).keys, expected.read(1, 0, cache.length).keys, "its rows")


@pytest.mark.parametrize(
    "options",
    [
        dict(bits=3),
        dict(bits=16),
        dict(bits="8"),
        dict(bits=True),
        dict(group_tokens=0),
        dict(residual_tokens=-1),
        dict(group_tokens=1.5),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options):
    with pytest.raises(InputError) as caught:
        QuantizedCache(**options)
    assert caught.value.todo


def test_it_is_made_by_name_and_says_what_it_is():
    made = make_cache("quantized", make_model("gpt"), bits=4, group_tokens=2, residual_tokens=3)
    assert isinstance(made, QuantizedCache) and (made.bits, made.group_tokens, made.residual_tokens) == (4, 2, 3)
    cache = QuantizedCache(4)
    assert (cache.keys, cache.exact, cache.can_fork, cache.rewinds, cache.capacity, cache.window) == (
        "rotated",
        False,
        True,
        False,
        None,
        None,
    )


def test_fewer_bits_make_a_larger_error():
    model, tokens = make_model("llama", torch.float32), random_ids(1, 30)
    errors = []
    for bits in (8, 4):
        logits = in_chunks(model, tokens, QuantizedCache(bits, 4, 0), [1] * 30)
        errors.append((logits - uncached(model, tokens)).abs().mean().item())
    assert 0 < errors[0] < errors[1] / 4
