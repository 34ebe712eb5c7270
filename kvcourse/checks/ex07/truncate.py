"""Lesson 07: what must hold of an answer that takes tokens back (7.2). Knows nothing about how rows are written, or models."""

from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.checks.ex07.common import a_cache, buffers, look, refuses, refuses_with_a_value_error, same

LAYERS = (0, 1, 5)


def keeps_the_first_n(answer: Answer, draw: Draw) -> None:
    for length, n in ((6, 2), (7, draw.integer(1, 6)), (5, 4)):
        got = after(answer, draw, length, n)["length"]
        dropped = got == length - n and got != n
        expect(not dropped, f"Of {length} tokens, truncate({n}) left {got}: n says how many to keep, not how many to drop.")
        expect(is_int(got) and got == n, f"Of {length} tokens, truncate({n}) should keep {n}; the length is {shown(got)}.")


def zero_empties_it(answer: Answer, draw: Draw) -> None:
    for length in (5, draw.integer(1, 8)):
        got = after(answer, draw, length, 0)["length"]
        expect(is_int(got) and got == 0, f"Of {length} tokens, truncate(0) should keep none; the length is {shown(got)}.")


def may_keep_all(answer: Answer, draw: Draw) -> None:
    for length in (5, draw.integer(1, 7), 8, 0):
        got = after(answer, draw, length, length)["length"]
        expect(got == length, f"Of {length} tokens, truncate({length}) should keep all; the length is {shown(got)}.")


def refuses_more_than_there_is(answer: Answer, draw: Draw) -> None:
    for length, more in ((3, 1), (draw.integer(0, 5), 2), (8, 1)):
        told = "Rows that were dropped, or never written, would come back to life."
        refused_unchanged(answer, draw, length, length + more, told)


def refuses_a_negative_number(answer: Answer, draw: Draw) -> None:
    for length, n in ((5, -1), (5, -2), (draw.integer(0, 6), -draw.integer(3, 9))):
        refused_unchanged(answer, draw, length, n, "A negative number of tokens cannot be kept.")


def touches_no_row(answer: Answer, draw: Draw) -> None:
    for length, n in ((6, 2), (draw.integer(3, 7), 0)):
        before = a_cache(draw, length, 8, LAYERS)
        kept = answer.keep(before)
        answer(kept, n)
        for layer in LAYERS:
            for buffer, old in zip(buffers(look(kept), layer), before["rows"][layer], strict=True):
                slots = buffer.shape[2] if buffer.dim() == 4 else buffer.numel()
                expect(slots == 8, f"A buffer of layer {layer} had 8 slots and has {slots} now: the room is lost for good.")
                expect(
                    same(buffer, old), f"Rows of layer {layer} have changed. Those beyond the length do no harm: leave them."
                )


PROPERTIES: tuple[Property, ...] = (
    keeps_the_first_n,
    zero_empties_it,
    may_keep_all,
    refuses_more_than_there_is,
    refuses_a_negative_number,
    touches_no_row,
)


def after(answer: Answer, draw: Draw, length: int, n: int) -> dict[str, Any]:
    """The cache after truncate(n), which has to be accepted."""
    kept = answer.keep(a_cache(draw, length, 8, LAYERS))
    expect(not refuses(answer, kept, n), f"Of {length} tokens, truncate({n}) was refused. {why_right(length, n)}")
    return look(kept)


def why_right(length: int, n: int) -> str:
    """What somebody overlooked who refuses truncate(n), with n from 0 to `length`."""
    if length == 0:
        return "In an empty cache there are 0 to keep: that is all of them, and changes nothing."
    if n == length:
        return f"It keeps all {length}, which is right: only more than are there, {length + 1} or above, has to be refused."
    if n == 0:
        return "It keeps none, which is right: only a number below 0 has to be refused."
    return f"0 to {length} are right."


def refused_unchanged(answer: Answer, draw: Draw, length: int, n: int, why: str) -> None:
    kept = answer.keep(a_cache(draw, length, 8, LAYERS))
    refused = refuses_with_a_value_error(answer, f"Of {length} tokens, truncate({n})", kept, n)
    now = look(kept)["length"]
    outcome = f"the length is {shown(now)} and there was no ValueError"
    expect(refused, f"Of {length} tokens, truncate({n}) should be refused; {outcome}. {why}")
    expect(now == length, f"truncate({n}) of {length} was refused, but the length is {shown(now)} by then. Ask first.")


def is_int(value: Any) -> bool:
    return type(value) is int


def shown(value: Any) -> str:
    return str(value) if is_int(value) else describe(value)
