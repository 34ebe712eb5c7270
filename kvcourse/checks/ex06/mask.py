"""Lesson 06: what must hold of an answer that makes the mask (6.2). Knows nothing about keys, values or models."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_table_of_bools(answer: Answer, draw: Draw) -> None:
    for past, T in ((2, 3), (draw.integer(1, 9), draw.integer(1, 9)), (draw.integer(1, 9), 1), (0, draw.integer(2, 9))):
        table(answer, past, T)


def is_a_triangle_when_nothing_is_cached(answer: Answer, draw: Draw) -> None:
    for T in (4, draw.integer(2, 9), 1):
        seen = [sum(row) for row in table(answer, 0, T)]
        right = ", ".join(str(row + 1) for row in range(T))
        expect(
            seen == [row + 1 for row in range(T)],
            f"With nothing cached, {count(T)} may look at {right} tokens; yours at {seen}.",
        )


def sees_all_of_the_past(answer: Answer, draw: Draw) -> None:
    for past, T in ((2, 3), (draw.integer(3, 9), draw.integer(2, 5))):
        for row, sees in enumerate(table(answer, past, T)):
            expect(all(sees[:past]), f"With {past} cached, new token {row} does not see all of the past.")


def sees_itself(answer: Answer, draw: Draw) -> None:
    for past, T in ((2, 3), (draw.integer(1, 9), draw.integer(2, 5))):
        for row, sees in enumerate(table(answer, past, T)):
            expect(sees[past + row], f"With {past} cached, new token {row} does not see itself.")


def never_looks_ahead(answer: Answer, draw: Draw) -> None:
    for past, T in ((2, 3), (draw.integer(1, 9), draw.integer(2, 5))):
        for row, sees in enumerate(table(answer, past, T)):
            expect(not any(sees[past + row + 1 :]), f"With {past} cached, new token {row} sees one that comes after it.")


def holds_for_every_size(answer: Answer, draw: Draw) -> None:
    for past, T in (
        (5, 1),
        (4, 4),
        (7, 2),
        (draw.integer(10, 30), draw.integer(1, 9)),
        (draw.integer(1, 5), draw.integer(10, 30)),
    ):
        rows = table(answer, past, T)
        seen, right = [sum(row) for row in rows], [past + row + 1 for row in range(T)]
        sizes = f"With {past} cached and {T} new, the rows should see"
        expect(seen == right, f"{sizes} {short(right)} tokens; yours {short(seen)}.")
        for row, sees in enumerate(rows):
            allowed = [column <= past + row for column in range(past + T)]
            expect(sees == allowed, f"{sizes} the first tokens, up to their own; row {row} sees as many, but others.")


def makes_a_new_mask_each_time(answer: Answer, draw: Draw) -> None:
    T = draw.integer(2, 5)
    before = table(answer, 0, T)
    kept = answer.returned
    table(answer, draw.integer(1, 5), T)
    after = kept.value()
    unchanged = isinstance(after, Tensor) and after.tolist() == before
    expect(unchanged, "A mask that had been handed out before was written to. Make a new one.")


PROPERTIES: tuple[Property, ...] = (
    is_a_table_of_bools,
    is_a_triangle_when_nothing_is_cached,
    sees_all_of_the_past,
    sees_itself,
    never_looks_ahead,
    holds_for_every_size,
    makes_a_new_mask_each_time,
)


def table(answer: Answer, past: int, T: int) -> list[list[int]]:
    """The answer's mask as rows of True and False."""
    got = answer(past, T)
    expect(isinstance(got, Tensor) and got.dtype == torch.bool, f"Expected a bool tensor; got {describe(got)}.")
    shape = tuple(got.shape)
    look = f"{count(T, 'new ')} {'looks' if T == 1 else 'look'} at {past + T}"
    expect(shape == (T, past + T), f"{look}: expected the shape ({T}, {past + T}); got {shape}.")
    return got.tolist()


def count(T: int, kind: str = "") -> str:
    return f"{T} {kind}token{'' if T == 1 else 's'}"


def short(numbers: list[int]) -> str:
    """A long list without its middle."""
    return str(numbers) if len(numbers) <= 6 else f"[{', '.join(map(str, numbers[:3]))}, ..., {numbers[-1]}]"
