"""Lesson 08: what must hold of an answer that says which token lies in which slot (8.1). Knows nothing about tensors."""

from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Slots = list[int | None]


def is_a_list_with_an_entry_for_each_slot(answer: Answer, draw: Draw) -> None:
    for length, window, sinks in ((2, 4, 0), (4, 4, 0), (9, 4, 0), (9, 6, 2), (draw.integer(0, 5), draw.integer(6, 9), 0)):
        look(answer, length, window, sinks)


def fills_empty_slots_in_order(answer: Answer, draw: Draw) -> None:
    for window, sinks in ((4, 0), (draw.integer(5, 9), draw.integer(1, 3))):
        for length in range(window + 1):
            got, right = look(answer, length, window, sinks), [*range(length), *[None] * (window - length)]
            expect(got == right, f"{case(length, window, sinks)}: nothing has to leave yet, so {right}; yours {got}.")


def puts_a_new_token_where_the_oldest_was(answer: Answer, draw: Draw) -> None:
    for window in (4, draw.integer(2, 9)):
        walk(answer, 2 * window, window, 0)


def goes_round_again_and_again(answer: Answer, draw: Draw) -> None:
    for last, window in ((9, 1), (20, 3), (draw.integer(40, 60), draw.integer(5, 9))):
        walk(answer, last, window, 0)


def never_overwrites_a_sink(answer: Answer, draw: Draw) -> None:
    for length, window, sinks in ((9, 6, 2), (draw.integer(20, 60), draw.integer(6, 9), draw.integer(1, 4))):
        got, first = look(answer, length, window, sinks), list(range(sinks))
        kept = got[:sinks] == first
        expect(kept, f"{case(length, window, sinks)}: the first slots keep {first} for ever; yours {got}.")


def runs_the_ring_beside_the_sinks(answer: Answer, draw: Draw) -> None:
    walk(answer, 16, 6, 2)
    sinks, ring = draw.integer(1, 4), draw.integer(1, 7)
    walk(answer, draw.integer(30, 50), sinks + ring, sinks)


PROPERTIES: tuple[Property, ...] = (
    is_a_list_with_an_entry_for_each_slot,
    fills_empty_slots_in_order,
    puts_a_new_token_where_the_oldest_was,
    goes_round_again_and_again,
    never_overwrites_a_sink,
    runs_the_ring_beside_the_sinks,
)


def walk(answer: Answer, last: int, window: int, sinks: int) -> None:
    """From a full window on, token by token: one slot changes, the one whose token is the oldest that may leave."""
    before = look(answer, window, window, sinks)
    for length in range(window + 1, last + 1):
        now = look(answer, length, window, sinks)
        new, oldest = length - 1, length - 1 - (window - sinks)
        where = f"{case(length, window, sinks)}: token {new}"
        expect(now.count(new), f"{where}, the newest, is in no slot; yours {now}.")
        expect(now.count(new) == 1, f"{where} is in {now.count(new)} slots; yours {now}.")
        expect(oldest in before, f"{case(length - 1, window, sinks)}: token {oldest} should still be held; yours {before}.")
        slot = before.index(oldest)
        expect(now[slot] == new, f"{where} belongs in slot {slot}, where token {oldest} was; yours {now}.")
        moved = sum(a != b for a, b in zip(before, now, strict=True))
        expect(moved == 1, f"{where} changes one slot, and {moved} have changed, from {before} to {now}. Rows must not move.")
        before = now


def look(answer: Answer, length: int, window: int, sinks: int) -> Slots:
    got: Any = answer(length, window, sinks)
    what = f"{case(length, window, sinks)}: expected a list of {window} entries"
    expect(isinstance(got, list), f"{what}; got {describe(got)}.")
    expect(len(got) == window, f"{what}, one for each slot; got {len(got)}.")
    plain = all(entry is None or type(entry) is int for entry in got)
    expect(plain, f"{what}, each a token's number (an int) or None; got {describe(got)}.")
    return got


def case(length: int, window: int, sinks: int) -> str:
    return f"{length} token{'' if length == 1 else 's'}, window {window}, sinks {sinks}"
