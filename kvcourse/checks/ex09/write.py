"""Lesson 09: what must hold of an answer that makes room for one token (9.4). Knows nothing about tensors: tables and counts.

The last property judges by what a reader would read: texts in a memory of plain numbers, each through its own table.
"""

from typing import NamedTuple

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

P = 4
Tables = list[list[int]]


class Books(NamedTuple):
    """What the answer left behind."""

    returned: tuple[int, int] | None
    tables: Tables
    counts: list[int]
    told: str  # what it was given


def needs_nothing_in_a_block_of_its_own(answer: Answer, draw: Draw) -> None:
    for length in (1, 3, draw.integer(5, 7)):
        tables = [[2], [0]] if length < P else [[2, 4], [0]]
        counts = [1, 0, 1, 0, 1]
        counts[4] = len(tables[0]) - 1
        after = write(answer, tables, counts, 0, length)
        why = "the last block has room and is in no other table: nothing to do"
        expect(after.returned is None, f"{after.told}: {why}, so None; got {after.returned}.")
        same = after.tables == tables and after.counts == counts
        expect(same, f"{after.told}: {why}. Yours leaves tables {after.tables} and counts {after.counts}.")


def takes_a_block_when_the_last_is_full(answer: Answer, draw: Draw) -> None:
    for table, length in (([2], 4), ([], 0), ([2, 0], 8)):
        tables = [[5], table]
        counts = [tables[1].count(block) + (block == 5) for block in range(7)]
        free = counts.index(0)
        after = write(answer, tables, counts, 1, length)
        why = f"all {len(table)} blocks of row 1 are full" if table else "row 1 has no block yet"
        expect(after.returned is None, f"{after.told}: {why}. It needs one more, and no copy: None; got {after.returned}.")
        told = f"{after.told}: {why}. Its table gets one more entry, the smallest free number"
        expect(after.tables == [[5], [*table, free]], f"{told}; yours are {after.tables}.")
        new = f"Block {free} was taken for row 1, so it is counted once"
        expect(after.counts[free] == 1, f"{new}; yours counts {after.counts[free]}.")
        counts[free] = 1
        expect(after.counts == counts, f"{after.told}: counts should be {counts} afterwards; yours are {after.counts}.")


def returns_which_block_to_copy_where(answer: Answer, draw: Draw) -> None:
    for row in (1, draw.integer(0, 2)):
        tables, counts = three_branches()
        after = write(answer, tables, counts, row, 6)
        why = "block 1 has room, and two other tables name it. It must be copied before row writes"
        expect(after.returned is not None, f"{after.told}: {why.replace('row', f'row {row}')}; yours returned None.")
        assert after.returned is not None
        old, new = after.returned
        expect((new, old) != (1, 2), f"{after.told}: yours returned (2, 1). The old block first, then the new one.")
        expect(old == 1, f"{after.told}: yours copies block {old}, and the shared one that will be written to is block 1.")
        expect(new == 2, f"{after.told}: the copy goes into the smallest free block, 2; yours into {new}.")


def puts_the_copy_into_its_own_table(answer: Answer, draw: Draw) -> None:
    for row in (1, draw.integer(0, 2)):
        tables, counts = three_branches()
        after = write(answer, tables, counts, row, 6)
        for other in {0, 1, 2} - {row}:
            why = f"Row {row} writes, and the table of row {other} changed from {tables[other]} to {after.tables[other]}"
            expect(after.tables[other] == tables[other], f"{why}.")
        told = f"Row {row} names blocks 0 and 1; 1 is copied to 2, which takes its place in the table"
        expect(after.tables[row] == [0, 2], f"{told}; yours is {after.tables[row]}.")


def moves_the_count(answer: Answer, draw: Draw) -> None:
    for more in (0, draw.integer(1, 3)):
        tables, counts = three_branches()
        counts[1] += more
        after = write(answer, tables, counts, 2, 6)
        old = f"Block 1 was counted {counts[1]} times, and one table has left it: {counts[1] - 1}"
        expect(after.counts[1] == counts[1] - 1, f"{old}; yours counts {after.counts[1]}.")
        expect(after.counts[2] == 1, f"The copy, block 2, stands in one table: 1; yours counts {after.counts[2]}.")
        rest = f"Neither block 0 nor a free one had anything to do with it; yours are {after.counts}, from {counts}"
        expect(after.counts[0] == 3 and not any(after.counts[3:]), f"{rest}.")


def copies_no_full_block(answer: Answer, draw: Draw) -> None:
    for row in (0, draw.integer(0, 2)):
        tables, counts = three_branches()
        after = write(answer, tables, counts, row, 8)
        why = "block 1 is shared, but full. The token goes into a block after it, and nobody writes into block 1"
        expect(after.returned is None, f"{after.told}: {why}: no copy. Yours returned {after.returned}.")
        tables[row].append(2)
        counts[2] = 1
        told = f"{after.told}: {why}. Expected the tables {tables}"
        expect(after.tables == tables and after.counts == counts, f"{told}; yours are {after.tables}, counts {after.counts}.")


def lets_the_last_one_write_in_place(answer: Answer, draw: Draw) -> None:
    tables, counts = three_branches()
    first = draw.integer(0, 2)
    order = [first, (first + 1) % 3, (first + 2) % 3]
    for turn, row in enumerate(order):
        after = write(answer, tables, counts, row, 6)
        tables, counts = after.tables, after.counts
        wrote = f"Three tables share block 1, and rows {order} write one after another"
        if turn < 2:
            expect(after.returned is not None, f"{wrote}. Row {row} shares it still, and yours copied nothing for it.")
        else:
            told = f"{wrote}. Row {row} comes last and has block 1 for itself: no copy"
            expect(after.returned is None, f"{told}; yours returned {after.returned}. counts is {counts}.")


def believes_the_counts(answer: Answer, draw: Draw) -> None:
    counts = [1, 2, 1, 0, 0]
    after = write(answer, [[0, 1], [2]], counts, 0, draw.integer(5, 7))
    why = "block 1 is counted twice. Somebody holds it who is not in these tables, so it must be copied"
    expect(after.returned is not None, f"{after.told}: {why}; yours returned None.")


def keeps_every_text(answer: Answer, draw: Draw) -> None:
    n_blocks = 40
    tables: Tables = [[]]
    texts: list[list[int]] = [[]]
    counts, memory = [0] * n_blocks, [0] * (n_blocks * P)
    for token in range(1, 61):
        if len(texts) < 4 and draw.integer(0, 9) == 0:  # a fork, by the check
            parent = draw.integer(0, len(texts) - 1)
            tables, texts = [*tables, list(tables[parent])], [*texts, list(texts[parent])]
            for block in tables[parent]:
                counts[block] += 1
        row = draw.integer(0, len(texts) - 1)
        after = write(answer, tables, counts, row, len(texts[row]))
        tables, counts = after.tables, after.counts
        if after.returned:
            old, new = after.returned
            memory[new * P : (new + 1) * P] = memory[old * P : (old + 1) * P]
        needed = len(texts[row]) // P
        expect(
            len(tables[row]) == needed + 1, f"{after.told}: row {row} needs {needed + 1} blocks; its table is {tables[row]}."
        )
        memory[tables[row][needed] * P + len(texts[row]) % P] = token
        texts[row].append(token)
        for other, text in enumerate(texts):
            read = [memory[tables[other][slot // P] * P + slot % P] for slot in range(len(text))]
            told = f"{after.told}. Then row {row} wrote, and what row {other} reads through its table"
            expect(read == text, f"{told} is no longer its own text. Two tables write into one block.")


PROPERTIES: tuple[Property, ...] = (
    needs_nothing_in_a_block_of_its_own,
    takes_a_block_when_the_last_is_full,
    returns_which_block_to_copy_where,
    puts_the_copy_into_its_own_table,
    moves_the_count,
    copies_no_full_block,
    lets_the_last_one_write_in_place,
    believes_the_counts,
    keeps_every_text,
)


def three_branches() -> tuple[Tables, list[int]]:
    """Three rows that share two blocks, of six."""
    return [[0, 1], [0, 1], [0, 1]], [3, 3, 0, 0, 0, 0]


def write(answer: Answer, tables: Tables, counts: list[int], row: int, length: int) -> Books:
    """Let the answer make room for the next token of a row, and look at what it left."""
    kept_tables, kept_counts = answer.keep(tables), answer.keep(counts)
    got = answer(kept_tables, kept_counts, row, length, P)
    shown = f"{counts[:8]}{' ...' if len(counts) > 8 else ''}"
    told = f"tables {tables}, counts {shown}, row {row} of {length} tokens, blocks of {P}"
    pair = isinstance(got, tuple) and len(got) == 2 and all(type(block) is int for block in got)
    expect(got is None or pair, f"{told}: expected None or a pair of block numbers (old, new); got {describe(got)}.")
    after, books = kept_tables.value(), kept_counts.value()
    good = isinstance(after, list) and len(after) == len(tables) and all(isinstance(table, list) for table in after)
    expect(good, f"{told}: tables is {describe(after)} afterwards, and should be a list of {len(tables)} lists.")
    numbers = all(type(block) is int and 0 <= block < len(counts) for table in after for block in table)
    expect(numbers, f"{told}: tables is {after} afterwards, and should hold numbers of blocks.")
    right = isinstance(books, list) and len(books) == len(counts) and all(type(count) is int for count in books)
    expect(right, f"{told}: counts is {describe(books)} afterwards, and should hold {len(counts)} ints.")
    return Books(got, after, books, told)
