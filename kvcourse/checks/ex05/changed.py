"""Lesson 05: what must hold of an answer that finds changed rows (5.3). Knows nothing about models: tensors only."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_row_of_bools(answer: Answer, draw: Draw) -> None:
    for shape in ((1, 3, 5, 4), (1, 2, 1, 3), (1, draw.integer(1, 3), draw.integer(2, 9), draw.integer(2, 9))):
        one = draw.tensor(*shape)
        changed(answer, one, one + 1)


def finds_nothing_where_nothing_changed(answer: Answer, draw: Draw) -> None:
    for T in (5, draw.integer(2, 9)):
        one = draw.tensor(1, 2, T, 4)
        got = changed(answer, one, one)
        expect(got != [True] * T, "Two equal tensors: no row changed, and yours are all True. Turned round?")
        expect(not any(got), f"Two equal tensors: no row changed. Yours: {got}.")


def finds_the_rows_that_changed(answer: Answer, draw: Draw) -> None:
    for T, places in ((5, [4]), (6, [1, 3]), (7, [0]), (draw.integer(5, 9), [draw.integer(0, 4)])):
        one = draw.tensor(1, 2, T, 4)
        two = one.clone()
        two[:, :, places] += 1
        got = [place for place, is_changed in enumerate(changed(answer, one, two)) if is_changed]
        where = f"Of {T} rows, {list_of(places)} changed, in every number"
        expect(got == places, f"{where}; yours: {list_of(got)}.")


def needs_one_number_only(answer: Answer, draw: Draw) -> None:
    for _ in range(3):
        one = draw.tensor(1, 3, 6, 4)
        head, place, number = draw.integer(0, 2), draw.integer(0, 5), draw.integer(0, 3)
        two = one.clone()
        two[0, head, place, number] += 1
        got = [at for at, is_changed in enumerate(changed(answer, one, two)) if is_changed]
        where = f"One number of row {place} changed, number {number} of head {head}. That is a change"
        expect(got == [place], f"{where}; yours: {list_of(got)}.")


def lets_no_changes_cancel(answer: Answer, draw: Draw) -> None:
    one = draw.tensor(1, 2, 5, 4)
    place = draw.integer(0, 4)
    two = one.clone()
    two[0, 0, place, 0], two[0, 0, place, 1] = one[0, 0, place, 1], one[0, 0, place, 0]
    heads = one.clone()
    heads[0, :, place] = one[0, :, place].flip(0)
    for what, other in (("Two numbers of a row changed places", two), ("Two heads of a row changed places", heads)):
        got = changed(answer, one, other)
        expect(got[place], f"{what}: the sum is the same, the row is not. Compare number with number.")


def sees_the_last_bit(answer: Answer, draw: Draw) -> None:
    one = draw.tensor(1, 2, 5, 4)
    place = draw.integer(0, 4)
    two = one.clone()
    two[0, 1, place, 2] = torch.nextafter(one[0, 1, place, 2], torch.tensor(torch.inf, dtype=one.dtype))
    got = changed(answer, one, two)
    why = "This is about equal bits, not about nearly equal numbers"
    expect(got[place], f"One number of row {place} is another in its last bit, and was not seen. {why}.")


def looks_at_every_text(answer: Answer, draw: Draw) -> None:
    for B in (2, draw.integer(3, 5)):
        one = draw.tensor(B, 2, 5, 4)
        two = one.clone()
        two[B - 1, :, 3] += 1
        got = [at for at, is_changed in enumerate(changed(answer, one, two)) if is_changed]
        expect(got == [3], f"B = {B}: row 3 changed in the last text only. That counts; yours: {list_of(got)}.")


def leaves_both_alone(answer: Answer, draw: Draw) -> None:
    one, two = draw.tensor(1, 2, 5, 4), draw.tensor(1, 2, 5, 4)
    kept = [answer.keep(one), answer.keep(two)]
    answer(*kept)
    for before, after in zip((one, two), kept, strict=True):
        now = after.value()
        same = isinstance(now, Tensor) and now.shape == before.shape and torch.equal(now, before)
        expect(same, "A tensor that was handed in was written to. It belongs to the caller.")


PROPERTIES: tuple[Property, ...] = (
    is_a_row_of_bools,
    finds_nothing_where_nothing_changed,
    finds_the_rows_that_changed,
    needs_one_number_only,
    lets_no_changes_cancel,
    sees_the_last_bit,
    looks_at_every_text,
    leaves_both_alone,
)


def changed(answer: Answer, one: Tensor, two: Tensor) -> list[bool]:
    """The answer's row of bools, as a list."""
    got = answer(one, two)
    expect(isinstance(got, Tensor) and got.dtype == torch.bool, f"Expected a bool tensor; got {describe(got)}.")
    B, H, T, D = one.shape
    shape = tuple(got.shape)
    sizes = f"(B, H, T, D) = ({B}, {H}, {T}, {D}): expected one bool for each of T tokens, ({T},)"
    expect(shape == (T,), f"{sizes}; got the shape {shape}.")
    return got.tolist()


def list_of(places: list[int]) -> str:
    return f"row{'' if len(places) == 1 else 's'} {', '.join(map(str, places))}" if places else "none"
