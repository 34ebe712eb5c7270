"""Lesson 08: what must hold of an answer that says who sees whom (8.2). Knows nothing about slots, keys or values."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_table_of_bools(answer: Answer, draw: Draw) -> None:
    for T, S in ((3, 5), (1, draw.integer(2, 9)), (draw.integer(2, 5), 1)):
        table(answer, list(range(S, S + T)), list(range(S)), 4, 0)


def never_looks_ahead(answer: Answer, draw: Draw) -> None:
    for n, window, sinks in ((6, 3, 0), (6, 4, 2), (draw.integer(5, 9), draw.integer(3, 9), 1)):
        for query, sees in rows(answer, n, window, sinks):
            ahead = [key for key in sees if key > query]
            expect(not ahead, f"{case(window, sinks)}: token {query} sees token {ahead[:1] and ahead[0]}, which comes later.")


def sees_itself_and_those_just_before(answer: Answer, draw: Draw) -> None:
    for window in (3, 1, draw.integer(4, 8)):
        for n in (window - 1, window, window + 1, 2 * window + draw.integer(0, 3)):
            for query, sees in rows(answer, n, window, 0):
                right = range(max(0, query - window + 1), query + 1)
                lost = [key for key in right if key not in sees]
                expect(not lost, f"{case(window, 0)}: token {query} should see {listed(right)}; yours {listed(sees)}.")


def sees_nothing_older(answer: Answer, draw: Draw) -> None:
    for window in (3, 1, draw.integer(4, 8)):
        for query, sees in rows(answer, 2 * window + 2, window, 0):
            right = range(max(0, query - window + 1), query + 1)
            whole = f"A window of {window} is {window} keys, the token itself included"
            expect(len(sees) <= len(right), f"{whole}; token {query} sees {len(sees)}: {listed(sees)}.")


def sees_the_sinks_from_everywhere(answer: Answer, draw: Draw) -> None:
    for window, sinks in ((6, 2), (draw.integer(5, 8), draw.integer(1, 4))):
        for query, sees in rows(answer, 2 * window + 3, window, sinks):
            lost = [key for key in range(min(sinks, query + 1)) if key not in sees]
            expect(not lost, f"{case(window, sinks)}: token {query} does not see sink {lost[:1] and lost[0]}.")


def counts_the_sinks_among_the_window(answer: Answer, draw: Draw) -> None:
    for window, sinks in ((6, 2), (4, 3), (draw.integer(5, 8), draw.integer(1, 4))):
        for query, sees in rows(answer, 2 * window + 3, window, sinks):
            right = [key for key in range(query + 1) if key < sinks or key > query - (window - sinks)]
            all_in_all = f"{case(window, sinks)}: at most {window} keys in all. Token {query} should see {listed(right)}"
            expect(sees == right, f"{all_in_all}; yours {listed(sees)}.")


def goes_by_numbers_and_not_by_columns(answer: Answer, draw: Draw) -> None:
    first = draw.integer(20, 40)
    for keys in ([0, 1, 8, 9, 6, 7], [0, first + 2, first, first + 1], [first + 1, first, first + 2]):
        query = max(keys)
        got = table(answer, [query - 1, query], keys, 4, 1)
        for row, at in enumerate((query - 1, query)):
            right = [key <= at and (key < 1 or key > at - 3) for key in keys]
            order = f"Columns are the keys {keys}, in the order of their slots. Window 4, sinks 1: token {at} should see"
            wanted, seen = ([key for key, yes in zip(keys, flags, strict=True) if yes] for flags in (right, got[row]))
            expect(got[row] == right, f"{order} {listed(wanted)}; yours {listed(seen)}.")


PROPERTIES: tuple[Property, ...] = (
    is_a_table_of_bools,
    never_looks_ahead,
    sees_itself_and_those_just_before,
    sees_nothing_older,
    sees_the_sinks_from_everywhere,
    counts_the_sinks_among_the_window,
    goes_by_numbers_and_not_by_columns,
)


def rows(answer: Answer, n: int, window: int, sinks: int) -> list[tuple[int, list[int]]]:
    """Each token of a text of n, and which tokens the answer lets it see."""
    if n < 1:
        return []
    found = table(answer, list(range(n)), list(range(n)), window, sinks)
    return [(query, [key for key in range(n) if found[query][key]]) for query in range(n)]


def table(answer: Answer, queries: list[int], keys: list[int], window: int, sinks: int) -> list[list[bool]]:
    got = answer(torch.tensor(queries), torch.tensor(keys), window, sinks)
    expect(isinstance(got, Tensor) and got.dtype == torch.bool, f"Expected a bool tensor; got {describe(got)}.")
    right = (len(queries), len(keys))
    expect(tuple(got.shape) == right, f"A row for each query, a column for each key: {right}; got {tuple(got.shape)}.")
    return got.tolist()


def case(window: int, sinks: int) -> str:
    return f"Window {window}" + (f", sinks {sinks}" if sinks else "")


def listed(tokens: list[int] | range) -> str:
    return ", ".join(map(str, tokens)) or "nothing"
