"""Lesson 07: what must hold of an answer that writes rows into slots (7.1). Knows nothing about truncating, or models."""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Kept, Property, describe, expect
from kvcourse.checks.ex07.common import Pair, a_cache, buffers, look, refuses, same


def makes_buffers_as_long_as_the_capacity(answer: Answer, draw: Draw) -> None:
    for B, H, T, D, capacity in ((1, 2, 3, 4, 8), (draw.integer(2, 3), 3, 2, 6, draw.integer(5, 9))):
        kept = empty(answer, capacity)
        answer(kept, 0, draw.tensor(B, H, T, D), draw.tensor(B, H, T, D))
        for buffer in buffers(look(kept), 0):
            right = (B, H, capacity, D)
            told = f"For k of {(B, H, T, D)} and capacity {capacity} a buffer should be {right}; it is {tuple(buffer.shape)}."
            expect(tuple(buffer.shape) == right, told)


def returns_keys_and_values(answer: Answer, draw: Draw) -> None:
    for T in (3, draw.integer(1, 5)):
        k, v = draw.tensor(1, 2, T, 4), draw.tensor(1, 2, T, 4)
        keys, values = pair(answer(empty(answer, 8), 0, k, v))
        names = [str(one.dtype).removeprefix("torch.") for one in (k, keys)]
        expect(names[0] == names[1], f"The keys came as {names[0]} and went out as {names[1]}. A buffer is made of k's dtype.")
        expect(not (same(keys, v) and same(values, k)), "The keys are where the values belong, and the other way round.")
        swapped = keys.shape == k.shape and not same(keys, k)
        expect(not swapped, "The first call's keys are not those that went in.")
        wrong = values.shape == v.shape and not same(values, v)
        expect(not wrong, "The keys are right and the values are not.")


def hands_out_the_rows_in_use_only(answer: Answer, draw: Draw) -> None:
    for length, T in ((0, 3), (2, 3), (draw.integer(1, 3), 1)):
        keys, values = pair(answer(answer.keep(a_cache(draw, length, 8, (0,))), 0, *new(draw, T)))
        for got in (keys, values):
            slots = got.shape[2] if got.dim() == 4 else None
            expect(slots != 8, f"All 8 slots were handed out; {length + T} are in use. Attention would look at the others too.")
            only_new = bool(length) and slots == T and T != length + T
            expect(not only_new, f"With {length} rows in use and {T} new ones, only the new ones came back.")
            right = (1, 2, length + T, 4)
            told = f"With {length} rows in use and {T} new ones, expected {right}; got {tuple(got.shape)}."
            expect(tuple(got.shape) == right, told)


def writes_where_the_length_says(answer: Answer, draw: Draw) -> None:
    for length, T in ((2, 3), (0, 4), (draw.integer(1, 4), draw.integer(1, 3))):
        before = a_cache(draw, length, 8, (0,))
        kept, given = answer.keep(before), new(draw, T)
        answer(kept, 0, *given)
        for name, buffer, old, rows in zip(("keys", "values"), buffers(look(kept), 0), before["rows"][0], given, strict=True):
            slots = f"slots {length} to {length + T - 1}"
            expect(same(buffer[:, :, length : length + T], rows), f"The new {name} should be in {slots}, and are not.")
            kept_old = same(buffer[:, :, :length], old[:, :, :length])
            expect(kept_old, f"The {name} of slots 0 to {length - 1} were in use, and have changed.")


def leaves_other_slots_alone(answer: Answer, draw: Draw) -> None:
    for length, T in ((2, 3), (draw.integer(0, 3), 1)):
        before = a_cache(draw, length, 9, (0,))
        kept = answer.keep(before)
        answer(kept, 0, *new(draw, T))
        for buffer, old in zip(buffers(look(kept), 0), before["rows"][0], strict=True):
            untouched = same(buffer[:, :, length + T :], old[:, :, length + T :])
            expect(untouched, f"With {length + T} rows in use, slots from {length + T} on need no work; they have changed.")


def leaves_the_length_alone(answer: Answer, draw: Draw) -> None:
    for length in (0, draw.integer(1, 4)):
        kept = answer.keep(a_cache(draw, length, 8, (0, 1)))
        for layer in (0, 1):
            answer(kept, layer, *new(draw, 2))
            expect(look(kept)["length"] == length, 'cache["length"] has changed. Other layers still write to the same slots.')


def keeps_layers_apart(answer: Answer, draw: Draw) -> None:
    layers = (0, 1, draw.integer(2, 9))
    kept, given = empty(answer, 6), {layer: new(draw, 3) for layer in layers}
    for layer in layers:
        answer(kept, layer, *given[layer])
    for layer in layers:
        for buffer, rows in zip(buffers(look(kept), layer), given[layer], strict=True):
            expect(same(buffer[:, :, :3], rows), f"Layers 0, 1 and {layers[2]} were written; layer {layer} holds other rows.")


def hands_out_views(answer: Answer, draw: Draw) -> None:
    kept = answer.keep(a_cache(draw, 0, 8, (0,)))
    answer(kept, 0, *new(draw, 4))
    handed_out, rows = answer.returned, new(draw, 4)
    answer(kept, 0, *rows)  # the length is still 0: into the same slots
    told = "After slot 0 was written anew, what was handed out before still shows the old row: it is a copy, not a view."
    expect(all(map(same, pair(handed_out.value()), rows)), told)


def fills_the_last_slot(answer: Answer, draw: Draw) -> None:
    for length, T in ((5, 3), (7, 1), (0, 8)):
        kept = answer.keep(a_cache(draw, length, 8, (0,)))
        refused = refuses(answer, kept, 0, *new(draw, T))
        expect(not refused, f"{length} rows in use, {T} new, 8 slots: that fits, and was refused.")


def refuses_what_does_not_fit(answer: Answer, draw: Draw) -> None:
    for length, T in ((8, 1), (6, 3), (draw.integer(1, 7), 8)):
        before = a_cache(draw, length, 8, (0,))
        kept = answer.keep(before)
        refused = refuses_by_itself(answer, kept, new(draw, T))
        expect(refused, f"{length} rows in use, {T} new, 8 slots: expected a ValueError, and there was none.{silent(T)}")
        for buffer, old in zip(buffers(look(kept), 0), before["rows"][0], strict=True):
            expect(same(buffer, old), "It was refused only after something had been written. Ask first.")
    kept = empty(answer, 4)
    refused = refuses_by_itself(answer, kept, new(draw, 5))
    expect(refused, "5 rows for an empty cache of 4 slots: expected a ValueError, and there was none.")
    expect(look(kept)["rows"] == {}, "5 rows for 4 slots were refused, and yet buffers had been made. Ask first.")


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float64, torch.float16):
        kept = empty(answer, 6)
        answer(kept, 1, *(x.to(dtype) for x in new(draw, 2)))
        for buffer in buffers(look(kept), 1):
            names = [str(one).removeprefix("torch.") for one in (dtype, buffer.dtype)]
            expect(buffer.dtype == dtype, f"k and v came as {names[0]}, and the buffer is {names[1]}. Take theirs.")


PROPERTIES: tuple[Property, ...] = (
    makes_buffers_as_long_as_the_capacity,
    returns_keys_and_values,
    hands_out_the_rows_in_use_only,
    writes_where_the_length_says,
    leaves_other_slots_alone,
    leaves_the_length_alone,
    keeps_layers_apart,
    hands_out_views,
    fills_the_last_slot,
    refuses_what_does_not_fit,
    keeps_the_dtype,
)


def empty(answer: Answer, capacity: int) -> Kept:
    return answer.keep({"capacity": capacity, "length": 0, "rows": {}})


def new(draw: Draw, T: int) -> Pair:
    """k and v of T tokens, for `a_cache`."""
    return draw.tensor(1, 2, T, 4), draw.tensor(1, 2, T, 4)


def pair(value: Any) -> Pair:
    good = isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(x, Tensor) for x in value)
    expect(good, f"Expected a pair of tensors, (keys, values); got {describe(value)}.")
    return value[0], value[1]


def refuses_by_itself(answer: Answer, kept: Kept, given: Pair) -> bool:
    """torch refuses some of these as well, but only when the write has begun: that is not the answer's doing."""
    try:
        return refuses(answer, kept, 0, *given)
    except Broken as fault:
        if " stopped with RuntimeError" in str(fault):
            raise Broken("Rows that do not fit: torch stopped the write half-way, with a RuntimeError. Ask first.") from None
        raise Broken(f"Rows that do not fit: expected a ValueError. {fault}") from None


def silent(T: int) -> str:
    return " torch says nothing either when one row meets a slice of no slots: the row is lost." if T == 1 else ""
