"""Lesson 06: what must hold of an answer that counts positions (6.3). Knows nothing about keys, values, masks or models."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_row_of_int64(answer: Answer, draw: Draw) -> None:
    for past, T in ((0, 3), (0, draw.integer(1, 9))):
        stand(answer, past, T)


def counts_from_zero(answer: Answer, draw: Draw) -> None:
    for T in (3, draw.integer(4, 9)):
        got, right = stand(answer, 0, T), list(range(T))
        expect(got == right, f"With nothing cached, {T} tokens stand at {listed(right)}; yours at {few(got)}.")


def goes_on_where_the_past_ended(answer: Answer, draw: Draw) -> None:
    for past in (6, draw.integer(1, 5), draw.integer(7, 99)):
        got = stand(answer, past, 1)
        expect(got != [0], f"With {past} cached, the next token was put at position 0: positions restart at every call.")
        one = f"One position for each new token: with {past} cached and 1 new, expected one number"
        expect(len(got) == 1, f"{one}; got {few(got)}.")
        right = f"With {past} cached, the next token stands at {past}, since the first stands at 0"
        expect(got == [past], f"{right}; yours at {got}.")


def gives_each_new_token_its_own(answer: Answer, draw: Draw) -> None:
    for past, T in ((4, 3), (draw.integer(1, 3), draw.integer(4, 9)), (draw.integer(10, 99), draw.integer(2, 5))):
        got, right = stand(answer, past, T), [past + i for i in range(T)]
        expect(got == right, f"With {past} cached, {T} new ones stand at {listed(right)}; yours at {few(got)}.")


def starts_again_with_another_text(answer: Answer, draw: Draw) -> None:
    past, T = draw.integer(2, 9), draw.integer(2, 4)
    for now in (0, past, 0, past + T, 0):
        got, right = stand(answer, now, T), [now + i for i in range(T)]
        where = f"{T} tokens with {now} cached stand at {few(got)}"
        expect(got == right, f"After other calls, {where}: something is kept between calls.")


PROPERTIES: tuple[Property, ...] = (
    is_a_row_of_int64,
    counts_from_zero,
    goes_on_where_the_past_ended,
    gives_each_new_token_its_own,
    starts_again_with_another_text,
)


def stand(answer: Answer, past: int, T: int) -> list[int]:
    """Where the answer puts the new tokens."""
    got = answer(past, T)
    expect(isinstance(got, Tensor) and got.dtype == torch.int64, f"Expected an int64 tensor; got {describe(got)}.")
    expect(got.dim() == 1, f"Expected one row of {T} numbers, ({T},); got the shape {tuple(got.shape)}.")
    return got.tolist()


def few(numbers: list[int]) -> str:
    """As a list, without the middle of one that is far too long: millions of numbers would take minutes to write."""
    return str(numbers) if len(numbers) <= 24 else f"[{listed(numbers[:6])}, ...], {len(numbers)} numbers"


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
