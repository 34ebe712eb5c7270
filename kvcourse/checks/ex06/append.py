"""Lesson 06: what must hold of an answer that appends keys and values (6.1). Knows nothing about masks, positions or models."""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Kept, Property, describe, expect

Pair = tuple[Tensor, Tensor]
UNLIKE_KEYS = "These are not the keys that went in: changed, or in another order. Old ones come first and stay as they are."


def starts_with_the_first_rows(answer: Answer, draw: Draw) -> None:
    for layer in (0, draw.integer(1, 9)):
        Texts(answer, draw).append(layer, 3)


def starts_empty_with_new_rows(answer: Answer, draw: Draw) -> None:
    for T in draw.integers(3, 1, 4):
        Texts(answer, draw).append(0, T)


def keeps_the_past(answer: Answer, draw: Draw) -> None:
    text = Texts(answer, draw)
    text.append(0, 3)
    text.append(0, 3)


def joins_calls_of_any_size(answer: Answer, draw: Draw) -> None:
    for _ in range(2):
        B, H, D = draw.integers(3, 1, 4)
        text = Texts(answer, draw, B, H, D)
        for T in draw.integers(4, 1, 5):
            text.append(2, T)


def keeps_layers_apart(answer: Answer, draw: Draw) -> None:
    text = Texts(answer, draw)
    layers = [0, 1, draw.integer(2, 9)]
    for layer in (*layers, *reversed(layers), *layers):
        text.append(layer, draw.integer(1, 3))


def leaves_what_was_handed_out_alone(answer: Answer, draw: Draw) -> None:
    text = Texts(answer, draw)
    handed_out: list[tuple[Kept, Any]] = []
    for T in (3, draw.integer(1, 3), 1):
        text.append(0, T)
        handed_out.append((answer.returned, answer.returned.value()))
        for kept, before in handed_out:
            expect(same(kept.value(), before), "A tensor that had been handed out before was written to. Make a new one.")


def leaves_k_and_v_alone(answer: Answer, draw: Draw) -> None:
    rows = answer.keep({})
    given = []
    for T in (2, 3, draw.integer(1, 4)):
        k, v = draw.tensor(1, 2, T, 4), draw.tensor(1, 2, T, 4)
        kept = answer.keep(k), answer.keep(v)
        given += [(kept[0], k), (kept[1], v)]
        answer(rows, 0, *kept)
        untouched = all(same(it.value(), before) for it, before in given)
        expect(untouched, "k or v itself was written to. They belong to the caller, who may still read them.")


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64, torch.float16):
        text = Texts(answer, draw, dtype=dtype)
        text.append(1, 2)
        text.append(1, draw.integer(1, 3))


PROPERTIES: tuple[Property, ...] = (
    starts_with_the_first_rows,
    starts_empty_with_new_rows,
    keeps_the_past,
    joins_calls_of_any_size,
    keeps_layers_apart,
    leaves_what_was_handed_out_alone,
    leaves_k_and_v_alone,
    keeps_the_dtype,
)


class Texts:
    """One `rows` dictionary, and beside it what it should hold: each call's rows, kept in a plain list."""

    def __init__(
        self, answer: Answer, draw: Draw, B: int = 1, H: int = 2, D: int = 4, dtype: torch.dtype = torch.float64
    ) -> None:
        self._answer, self._draw, self._shape, self._dtype = answer, draw, (B, H, D), dtype
        self._rows = answer.keep({})
        self._given: dict[int, list[Pair]] = {}

    def append(self, layer: int, T: int) -> None:
        """Let the answer append T random tokens, and judge what it returned and what it stored."""
        (B, H, D), draw = self._shape, self._draw
        k, v = (draw.tensor(B, H, T, D).to(self._dtype) for _ in range(2))
        past = sum(keys.shape[2] for keys, _ in self._given.get(layer, []))
        returned = self._answer(self._rows, layer, k, v)
        self._given.setdefault(layer, []).append((k, v))
        which = "second" if past else "first"
        keys, values = pair(returned, f"What a {which} call returns")
        stored = self._rows.value()
        expect(isinstance(stored, dict), f"rows is no dictionary any more, but {describe(stored)}.")
        expect(layer in stored, f"There is no rows[{layer}] after the {which} call for layer {layer}{instead(stored)}.")
        judge_shape(keys, past, (B, H, T, D))
        judge_shape(values, past, (B, H, T, D), what="values")
        self._judge_rows(layer, keys, values)
        held = pair(stored[layer], f"rows[{layer}]")
        expect(same(held, self._expected(layer)), f"What is returned is right, but rows[{layer}] holds something else.")
        for other in self._given:
            untouched = other in stored and same(stored[other], self._expected(other))
            expect(untouched, f"Appending to layer {layer} changed layer {other}.")

    def _expected(self, layer: int) -> Pair:
        keys, values = zip(*self._given[layer], strict=True)
        return torch.cat(keys, 2), torch.cat(values, 2)

    def _judge_rows(self, layer: int, keys: Tensor, values: Tensor) -> None:
        right_keys, right_values = self._expected(layer)
        for got in (keys, values):
            names = [str(dtype).removeprefix("torch.") for dtype in (self._dtype, got.dtype)]
            expect(got.dtype == self._dtype, f"The rows came in as {names[0]} and went out as {names[1]}. Convert nothing.")
        swapped = same(keys, right_values) and same(values, right_keys)
        expect(not swapped, "The keys are where the values belong, and the values where the keys belong.")
        expect(same(keys, right_keys), UNLIKE_KEYS)
        expect(same(values, right_values), "The keys are right and the values are not. Both need their past.")


def pair(value: Any, what: str) -> Pair:
    """The value, if it is a pair of tensors."""
    good = isinstance(value, tuple) and len(value) == 2 and all(isinstance(x, Tensor) for x in value)
    expect(good, f"{what} should be a pair of tensors, (keys, values); it is {describe(value)}.")
    return value


def instead(stored: dict[Any, Any]) -> str:
    """What `rows` holds, when it does not hold what it should."""
    keys = ", ".join(repr(key)[:20] for key in list(stored)[:6])
    return f"; rows has the keys [{keys}]" if keys else ": nothing was stored"


def judge_shape(got: Tensor, past: int, new: tuple[int, int, int, int], what: str = "keys") -> None:
    """The shape alone tells which mistake was made."""
    B, H, T, D = new
    shape, right, tokens = tuple(got.shape), (B, H, past + T, D), f"{T} {'token' if T == 1 else 'tokens'}"
    if not past and len(shape) == 4 and shape[2] > T:
        raise Broken(f"rows was empty and {tokens} came, yet {shape[2]} {what} were returned: some are kept outside rows.")
    if past and shape == new:
        raise Broken(f"A second call returned the new {tokens} only, as {what}. The old ones belong to it.")
    expect(shape == right, f"With {past} + {T} tokens the {what} should be {right}, and are {shape}. Which axis?")


def same(got: Any, want: Any) -> bool:
    """Equal tensors of one dtype, or pairs of such."""
    if isinstance(want, Tensor):
        return isinstance(got, Tensor) and got.dtype == want.dtype and torch.equal(got, want)
    return isinstance(got, type(want)) and len(got) == len(want) and all(map(same, got, want))
