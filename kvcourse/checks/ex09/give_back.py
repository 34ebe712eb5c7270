"""Lesson 09: what must hold of an answer that gives blocks back (9.2). Knows nothing about tables: counts only."""

from collections import Counter

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def returns_a_list_of_numbers(answer: Answer, draw: Draw) -> None:
    for counts, blocks in (([1, 1, 1, 0], [0, 2]), ([1] * 5, [draw.integer(0, 4)]), ([1, 1], [])):
        given_back(answer, counts, blocks)


def counts_each_once_less(answer: Answer, draw: Draw) -> None:
    for counts, blocks in (([1, 2, 3, 0], [0, 1, 2]), (draw.integers(6, 1, 4), [1, draw.integer(2, 3), 5])):
        _, after = given_back(answer, counts, blocks)
        for block, (old, new) in enumerate(zip(counts, after, strict=True)):
            if block in blocks:
                told = f"Block {block} stood in {old} tables and now in one less, {old - 1}"
                expect(new == old - 1, f"{told}; yours counts {new}.")
            else:
                expect(new == old, f"Block {block} was not given back, and its count went from {old} to {new}.")


def returns_what_became_free(answer: Answer, draw: Draw) -> None:
    high = draw.integer(2, 4)
    for counts, blocks, right in (([2, 1, 3, 0], [0, 1, 2], [1]), ([high, 2, 0], [0, 1], []), ([1, 0, 1, high], [0, 3], [0])):
        got, _ = given_back(answer, counts, blocks)
        told = f"counts = {counts}, given back {blocks}"
        shared = [block for block in got if block in blocks and counts[block] > 1]
        others = f"block {shared[0]} still stands in another table, and is not free" if shared else ""
        expect(not shared, f"{told}: {others}. Yours: {got}.")
        before = [block for block in got if block not in blocks]
        was = f"block {before[0]} was not given back now" if before else ""
        expect(not before, f"{told}: {was}. Only what becomes free by this call; yours: {got}.")
        expect(got == right, f"{told}: {len(right)} of these become free; yours: {got}.")


def lists_the_smallest_first(answer: Answer, draw: Draw) -> None:
    for blocks in ([4, 1, 3], [3, 0], [5, draw.integer(2, 4), 1]):
        got, _ = given_back(answer, [1] * 6, blocks)
        expect(set(got) == set(blocks), f"Given back {blocks}, each counted once: all become free; yours: {got}.")
        expect(got == sorted(got), f"Given back {blocks}: the freed ones, the smallest number first; yours: {got}.")


def leaves_the_list_of_blocks_alone(answer: Answer, draw: Draw) -> None:
    for blocks in ([4, 1, 3], [2, draw.integer(0, 1)]):
        kept = answer.keep(blocks)
        answer(answer.keep([1] * 6), kept)
        told = f"blocks was {blocks} and is {kept.value()} afterwards. It is the caller's table"
        expect(kept.value() == blocks, f"{told}; make a list of your own.")


def takes_a_block_as_often_as_it_is_listed(answer: Answer, draw: Draw) -> None:
    times = draw.integer(3, 4)
    for counts, blocks in (([2, 1], [0, 0, 1]), ([3, 5, 2], [2, 0, 2]), ([times, 1], [0] * times)):
        got, after = given_back(answer, counts, blocks)
        told = f"counts = {counts}, given back {blocks}: two tables at once may name a block twice"
        right = [count - blocks.count(block) for block, count in enumerate(counts)]
        expect(after == right, f"{told}, and each time counts. Yours leaves {after}.")
        free = [block for block, count in enumerate(right) if count == 0]
        expect(got == free, f"{told}. {len(free)} became free; yours: {got}. Each of them once.")


def refuses_a_block_that_is_free(answer: Answer, draw: Draw) -> None:
    for counts, blocks in (([0, 1], [0]), ([1, 2, 0], [2, 0]), ([1, 0, draw.integer(1, 3)], [0, 1])):
        refused(answer, counts, blocks, "is free already, and nobody can give it back")


def changes_nothing_when_it_refuses(answer: Answer, draw: Draw) -> None:
    for counts, blocks in (([1, 2, 0], [0, 1, 2]), ([draw.integer(1, 3), 0], [0, 1])):
        kept = answer.keep(counts)
        answer(kept, blocks)
        told = f"counts was {counts}, and {blocks} was refused; afterwards counts is {kept.value()}"
        expect(kept.value() == counts, f"{told}. Look at all of them first, change afterwards.")


def refuses_more_than_is_counted(answer: Answer, draw: Draw) -> None:
    high = draw.integer(2, 4)
    for counts, blocks in (([1, 1], [0, 0]), ([2, high], [0, *[1] * (high + 1)])):
        block, times = Counter(blocks).most_common(1)[0]
        refused(answer, counts, blocks, f"is counted {counts[block]} times and was given back {times} times")


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_numbers,
    counts_each_once_less,
    returns_what_became_free,
    lists_the_smallest_first,
    leaves_the_list_of_blocks_alone,
    takes_a_block_as_often_as_it_is_listed,
    refuses_a_block_that_is_free,
    changes_nothing_when_it_refuses,
    refuses_more_than_is_counted,
)


def refused(answer: Answer, counts: list[int], blocks: list[int], why: str) -> None:
    """Raise Broken unless the answer says None."""
    block = next(block for block in blocks if blocks.count(block) > counts[block])
    kept = answer.keep(counts)
    got = answer(kept, blocks)
    told = f"counts = {counts}, given back {blocks}: block {block} {why}. Expected None"
    expect(got is None, f"{told}; got {got if isinstance(got, list) else describe(got)}, and counts {kept.value()}.")


def given_back(answer: Answer, counts: list[int], blocks: list[int]) -> tuple[list[int], list[int]]:
    """The blocks that the answer says became free, and the counts afterwards."""
    kept = answer.keep(counts)
    got = answer(kept, blocks)
    told = f"counts = {counts}, given back {blocks}: "
    expect(got is not None, f"{told}every one of them is counted often enough, and yours returned None.")
    is_list = isinstance(got, list) and all(type(block) is int for block in got)
    expect(is_list, f"{told}expected a list of block numbers (ints); got {describe(got)}.")
    after = kept.value()
    good = isinstance(after, list) and len(after) == len(counts) and all(type(count) is int for count in after)
    expect(good, f"counts should still hold {len(counts)} ints; it is {describe(after)} now.")
    return got, after
