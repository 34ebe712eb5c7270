"""Lesson 09: what must hold of an answer that looks slots up in a table (9.3). Knows nothing about counts or tensors.

What is right is read off a memory in which every place is written to, slot after slot, so no formula is needed here.
"""

from collections.abc import Iterator

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Place = tuple[int, int]


def is_a_list_of_pairs(answer: Answer, draw: Draw) -> None:
    for start, T in ((0, 3), (0, draw.integer(1, 4))):
        looked_up(answer, [0], start, T, 4)


def finds_places_inside_a_block(answer: Answer, draw: Draw) -> None:
    for start, T in ((0, 4), (1, 2), (2, 1), (draw.integer(1, 2), 2)):
        judge(answer, [0], start, T, 4)


def goes_on_in_the_next_block(answer: Answer, draw: Draw) -> None:
    for T in (5, 8, 12, draw.integer(5, 12)):
        judge(answer, [0, 1, 2], 0, T, 4)


def reads_the_table(answer: Answer, draw: Draw) -> None:
    for table, T in (([3, 0], 8), ([5, 2, 7], 12), (scattered(draw, 3), draw.integer(5, 12))):
        judge(answer, table, 0, T, 4)


def starts_in_the_middle(answer: Answer, draw: Draw) -> None:
    for start, T in ((4, 1), (6, 5), (11, 1), (draw.integer(4, 7), draw.integer(2, 5))):
        judge(answer, [5, 2, 7], start, T, 4)


def takes_blocks_of_any_size(answer: Answer, draw: Draw) -> None:
    for size in (1, 3, 16, draw.integer(5, 9)):
        table = scattered(draw, 4)
        start = draw.integer(0, 2 * size)
        judge(answer, table, start, draw.integer(1, 4 * size - start), size)


def leaves_the_table_alone(answer: Answer, draw: Draw) -> None:
    table = scattered(draw, 3)
    kept = answer.keep(table)
    answer(kept, draw.integer(0, 2), 9, 4)
    expect(kept.value() == table, f"The table was {table}, and is {kept.value()} afterwards. Looking up changes nothing.")


PROPERTIES: tuple[Property, ...] = (
    is_a_list_of_pairs,
    finds_places_inside_a_block,
    goes_on_in_the_next_block,
    reads_the_table,
    starts_in_the_middle,
    takes_blocks_of_any_size,
    leaves_the_table_alone,
)


def scattered(draw: Draw, n: int) -> list[int]:
    """n different block numbers, never all in a row: the first is the largest."""
    table: list[int] = []
    while len(table) < n - 1:
        block = draw.integer(0, 15)
        if block not in table:
            table.append(block)
    return [draw.integer(20, 30), *table]


def walk(table: list[int], size: int) -> Iterator[Place]:
    """All places of a table, in the order of its slots."""
    for block in table:
        for offset in range(size):
            yield block, offset


def judge(answer: Answer, table: list[int], start: int, T: int, size: int) -> None:
    """Hold what the answer found against the walk through the table's places."""
    got, told = looked_up(answer, table, start, T, size)
    right = list(walk(table, size))[start : start + T]
    for slot, (mine, yours) in enumerate(zip(right, got, strict=True), start):
        where = f"{told}: slot {slot} is entry {mine[1]} of block {mine[0]}, ({mine[0]}, {mine[1]})"
        hint = ""
        if yours[0] not in table:
            hint = f" Block {yours[0]} is not in the table at all."
        elif yours[1] >= size:
            hint = f" A block of {size} ends at offset {size - 1}."
        expect(yours == mine, f"{where}; yours is {yours}.{hint}")


def looked_up(answer: Answer, table: list[int], start: int, T: int, size: int) -> tuple[list[Place], str]:
    """The answer's pairs, and what was asked."""
    got = answer(table, start, T, size)
    told = f"table {table}, blocks of {size}, {T} slots from slot {start} on"
    expect(isinstance(got, list), f"{told}: expected a list of pairs; got {describe(got)}.")
    expect(len(got) == T, f"{told}: expected {T} pairs, one for each slot; got {len(got)}.")
    for pair in got:
        good = isinstance(pair, tuple) and len(pair) == 2 and all(type(number) is int for number in pair)
        expect(good, f"{told}: expected pairs (block, offset) of ints; one of yours is {describe(pair)}.")
    return got, told
