"""Lesson 09: what must hold of an answer that takes free blocks (9.1). Knows nothing about tables: counts only."""

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def returns_a_list_of_numbers(answer: Answer, draw: Draw) -> None:
    for n_blocks, n in ((5, 2), (draw.integer(4, 8), draw.integer(2, 4))):
        taken(answer, [0] * n_blocks, n)


def takes_blocks_that_are_free(answer: Answer, draw: Draw) -> None:
    for counts, n in (([1, 0, 2, 0, 0], 2), (some_counts(draw, 4), draw.integer(2, 3))):
        got, _ = taken(answer, counts, n)
        known = [block for block in got if not 0 <= block < len(counts)]
        expect(not known, f"counts = {counts}: there is no block {known[0] if known else ''}.")
        held = [block for block in got if counts[block]]
        whose = f"block {held[0]} is counted {counts[held[0]]} times, so somebody holds it" if held else ""
        expect(not held, f"counts = {counts}, {n} taken: {whose}. Yours: {got}.")
        expect(len(set(got)) == n, f"counts = {counts}, {n} taken: yours are {got}, one of them twice.")


def takes_the_smallest_numbers_first(answer: Answer, draw: Draw) -> None:
    for counts, n in (([1, 0, 2, 0, 0], 2), (some_counts(draw, 4), draw.integer(2, 3))):
        got, _ = taken(answer, counts, n)
        free = [block for block in range(len(counts)) if counts[block] == 0]
        asked = f"counts = {counts}, {n} taken: the smallest numbers first"
        expect(got == sorted(got), f"{asked}; yours come in the order {got}.")
        expect(got[-1] == free[n - 1], f"{asked}, of the free ones {free}; yours are {got}.")


def counts_what_it_took_once(answer: Answer, draw: Draw) -> None:
    for counts, n in (([1, 0, 2, 0, 0], 2), (some_counts(draw, 4), draw.integer(2, 3))):
        got, after = taken(answer, counts, n)
        for block, (old, new) in enumerate(zip(counts, after, strict=True)):
            if block in got:
                told = f"Block {block} stands in one table now, so its count is 1"
                expect(new == 1, f"{told}; in yours it is {new}. The caller's list itself has to change.")
            else:
                expect(new == old, f"Block {block} was not taken, and its count went from {old} to {new}.")


def takes_all_there_are_or_none(answer: Answer, draw: Draw) -> None:
    for free in (2, draw.integer(3, 5)):
        counts = some_counts(draw, free)
        got, _ = taken(answer, counts, free, f"counts = {counts}: exactly {free} blocks are free, and {free} are wanted. ")
        expect(len(got) == free, f"All {free} free blocks were wanted; got {got}.")
        got, after = taken(answer, counts, 0, "None are wanted: nothing to refuse. ")
        expect((got, after) == ([], counts), f"0 blocks are an empty list; got {got}, and counts {after}.")


def refuses_what_is_not_there(answer: Answer, draw: Draw) -> None:
    for free, more in ((2, 1), (0, 1), (draw.integer(1, 3), draw.integer(2, 9))):
        counts = some_counts(draw, free)
        got = answer(answer.keep(counts), free + more)
        told = f"counts = {counts}: {free} blocks are free, and {free + more} are wanted. Expected None"
        expect(got is None, f"{told}; got {got if isinstance(got, list) else describe(got)}.")


def changes_nothing_when_it_refuses(answer: Answer, draw: Draw) -> None:
    for free, more in ((2, 1), (draw.integer(1, 3), draw.integer(2, 5))):
        counts = some_counts(draw, free)
        kept = answer.keep(counts)
        answer(kept, free + more)
        told = f"counts was {counts}, {free + more} were wanted and refused, and counts is {kept.value()} afterwards"
        expect(kept.value() == counts, f"{told}. Look first, change afterwards.")


def takes_again_what_was_given_back(answer: Answer, draw: Draw) -> None:
    counts: list[int] = [0] * 12
    held: list[int] = []
    for n in (4, 5, *draw.integers(6, 1, 4)):
        if counts.count(0) < n:
            for block in held[: len(held) // 2 + 2]:  # given back, by the check
                counts[block] = 0
            held = held[len(held) // 2 + 2 :]
        n = min(n, counts.count(0))
        before = f"counts = {counts}: {counts.count(0)} blocks are free, some of them for the second time, and {n} are wanted. "
        got, after = taken(answer, counts, n, before)
        free = [block for block in range(12) if counts[block] == 0]
        expect(got == free[:n], f"{before}Yours: {got}. Only counts says what is free; keep nothing between calls.")
        counts, held = after, held + got


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_numbers,
    takes_blocks_that_are_free,
    takes_the_smallest_numbers_first,
    counts_what_it_took_once,
    takes_all_there_are_or_none,
    refuses_what_is_not_there,
    changes_nothing_when_it_refuses,
    takes_again_what_was_given_back,
)


def some_counts(draw: Draw, free: int) -> list[int]:
    """Counts of fewer than ten blocks, of which `free` are 0, in any order."""
    counts = [0] * free + draw.integers(draw.integer(1, 4), 1, 3)
    for place in range(len(counts) - 1, 0, -1):
        other = draw.integer(0, place)
        counts[place], counts[other] = counts[other], counts[place]
    return counts


def taken(answer: Answer, counts: list[int], n: int, told: str = "") -> tuple[list[int], list[int]]:
    """The n blocks that the answer took, and the counts afterwards."""
    kept = answer.keep(counts)
    got = answer(kept, n)
    is_list = isinstance(got, list) and all(type(block) is int for block in got)
    expect(is_list, f"{told}Expected a list of {n} block numbers (ints); got {describe(got)}.")
    expect(len(got) == n, f"{told}Expected a list of {n} block numbers; got {got}.")
    after = kept.value()
    good = isinstance(after, list) and len(after) == len(counts) and all(type(count) is int for count in after)
    expect(good, f"counts should still hold {len(counts)} ints; it is {describe(after)} now.")
    return got, after
