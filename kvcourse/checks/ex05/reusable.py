"""Lesson 05: what must hold of an answer that finds reusable rows (5.2). Knows nothing about models or tensors: ids only.

Every pair of texts is made with a known common beginning, so that what is right needs no search.
"""

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_list_with_a_bool_for_each_token(answer: Answer, draw: Draw) -> None:
    for shared, left, right in ((2, 1, 2), (draw.integer(1, 5), draw.integer(1, 4), draw.integer(1, 4))):
        reusable(answer, *forked(draw, shared, left, right))


def takes_the_common_beginning(answer: Answer, draw: Draw) -> None:
    for shared in (3, draw.integer(2, 9)):
        same, _ = forked(draw, shared, 0, 0)
        expect(all(reusable(answer, same, same)), f"The same text twice, {same}: every row is there already.")
        first, second = forked(draw, shared, 1, 1)
        got = reusable(answer, first, second)
        begin = f"{first} and {second} begin with the same {shared} tokens"
        expect(all(got[:shared]), f"{begin}: their rows are equal, and yours: {marks(got)}.")
        expect(not got[shared], f"{begin}, and end in different ones. The last row cannot be equal; yours: {marks(got)}.")


def stops_at_the_first_difference(answer: Answer, draw: Draw) -> None:
    for size in (6, draw.integer(5, 9)):
        first, _ = forked(draw, size, 0, 0)
        place = draw.integer(1, size - 3)
        second = [*first[:place], first[place] + 100, *first[place + 1 :]]
        got = reusable(answer, first, second)
        told = f"{first} and {second} differ at place {place}"
        why = "the same id after it is no help, since its K and V depend on every token before"
        expect(not any(got[place + 1 :]), f"{told}: {why}. Yours: {marks(got)}.")
        expect(got == known(place, second), f"{told}; yours: {marks(got)}.")


def needs_the_same_place(answer: Answer, draw: Draw) -> None:
    for size in (4, draw.integer(3, 8)):
        first, _ = forked(draw, size, 0, 0)
        for second in (first[1:], [first[-1] + 100, *first], first[::-1]):
            got = reusable(answer, first, second)
            told = f"{first}, then {second}: no token stands where it stood, after what it stood after"
            expect(not any(got), f"{told}. Yours: {marks(got)}.")


def takes_texts_of_any_length(answer: Answer, draw: Draw) -> None:
    for shared, left, right in ((3, 0, 2), (3, 2, 0), (0, 0, 3), (0, 3, 0), (0, 0, 0), (draw.integer(20, 40), 0, 30)):
        first, second = forked(draw, shared, left, right)
        got = reusable(answer, first, second)
        sizes = f"{len(first)} tokens, then {len(second)}, of which {shared} are the same beginning"
        expect(got == known(shared, second), f"{sizes}; yours: {marks(got)}.")


def leaves_both_texts_alone(answer: Answer, draw: Draw) -> None:
    first, second = forked(draw, 3, 2, 2)
    kept = [answer.keep(first), answer.keep(second)]
    answer(*kept)
    expect([one.value() for one in kept] == [first, second], "first or second was changed. They belong to the caller.")


PROPERTIES: tuple[Property, ...] = (
    is_a_list_with_a_bool_for_each_token,
    takes_the_common_beginning,
    stops_at_the_first_difference,
    needs_the_same_place,
    takes_texts_of_any_length,
    leaves_both_texts_alone,
)


def forked(draw: Draw, shared: int, left: int, right: int) -> tuple[list[int], list[int]]:
    """Two texts with `shared` tokens in common, then `left` and `right` others. No id is there twice."""
    start = draw.integer(10, 50)
    common = [start + 2 * i for i in range(shared)]
    first, second = (draw.integer(200, 250), draw.integer(400, 450))
    return [*common, *range(first, first + left)], [*common, *range(second, second + right)]


def known(shared: int, second: list[int]) -> list[bool]:
    return [True] * shared + [False] * (len(second) - shared)


def reusable(answer: Answer, first: list[int], second: list[int]) -> list[bool]:
    """The answer's list, if it has a bool for each token of `second`."""
    got = answer(first, second)
    good = isinstance(got, list) and all(type(item) is bool for item in got)
    expect(good, f"Expected a list of True and False; got {describe(got)}.")
    size = f"One for each token of second, {len(second)} of them"
    expect(len(got) == len(second), f"{size}; got {len(got)}. The first text has {len(first)}.")
    return got


def marks(row: list[bool]) -> str:
    """Short: = for reusable, - for not, a long one as a number."""
    return f"[{' '.join('=' if item else '-' for item in row)}]" if len(row) <= 12 else f"{sum(row)} of {len(row)} True"
