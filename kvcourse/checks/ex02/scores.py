"""Lesson 02: what must hold of an answer that compares queries with keys (2.1). Knows nothing about masks, values or heads."""

import math

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex02.common import close, stays_as_it_was, table


def has_a_row_for_each_query(answer: Answer, draw: Draw) -> None:
    for T, S, D in ((3, 5, 4), (draw.integer(6, 9), draw.integer(2, 4), 5), (1, draw.integer(2, 6), 3)):
        scores(answer, draw.tensor(T, D), draw.tensor(S, D))


def compares_each_query_with_each_key(answer: Answer, draw: Draw) -> None:
    """Up to a factor: the scale has a property of its own."""
    for T, S, D in ((2, 3, 4), (draw.integer(3, 6), draw.integer(3, 6), draw.integer(2, 9))):
        q, k = draw.tensor(T, D), draw.tensor(S, D)
        got, right = scores(answer, q, k), dots(q, k)
        shares = close(got.sum(dim=1), torch.ones(T, dtype=got.dtype)) and bool((got >= 0).all())
        expect(not shares, "Each row adds up to 1, so a softmax was taken. Here the scores themselves are asked for.")
        same = close(got, right * factor(got, right))
        expect(same, "Entry [i, j] should be the dot product of query i and key j, times one factor for all; yours is not.")


def divides_by_the_root_of_D(answer: Answer, draw: Draw) -> None:
    for D in (4, 16, draw.integer(17, 40), 1, draw.integer(2, 9)):
        T, S = draw.integer(2, 5), draw.integer(6, 8)
        q, k = draw.tensor(T, D), draw.tensor(S, D)
        got, right = scores(answer, q, k), dots(q, k)
        was, should = factor(got, right), 1 / math.sqrt(D)
        expect(abs(was - should) < 1e-6, f"{mistake(was, T, S, D)} Numbers in a query here: D = {D}.")


def leaves_q_and_k_alone(answer: Answer, draw: Draw) -> None:
    for _ in range(2):
        T, S, D = draw.integers(3, 2, 6)
        stays_as_it_was(answer, {"q": draw.tensor(T, D), "k": draw.tensor(S, D)})


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64):
        q, k = draw.tensor(3, 4).to(dtype), draw.tensor(draw.integer(2, 5), 4).to(dtype)
        scores(answer, q, k)


PROPERTIES: tuple[Property, ...] = (
    has_a_row_for_each_query,
    compares_each_query_with_each_key,
    divides_by_the_root_of_D,
    leaves_q_and_k_alone,
    keeps_the_dtype,
)


def scores(answer: Answer, q: Tensor, k: Tensor) -> Tensor:
    """The answer's table."""
    return table(answer(q, k), ("a row for each query", len(q)), ("a column for each key", len(k)), q.dtype)


def dots(q: Tensor, k: Tensor) -> Tensor:
    return torch.stack([(k * query).sum(dim=1) for query in q])


def factor(got: Tensor, right: Tensor) -> float:
    """The one number by which `right` comes nearest to `got`."""
    return float((got * right).sum() / (right * right).sum())


def mistake(factor: float, T: int, S: int, D: int) -> str:
    """What was done in place of dividing by √D."""
    known = {
        "The dot products are right, and divided by nothing. Divide them by √D.": 1.0,
        "Divided by D itself. Divide by its square root.": 1 / D,
        "Multiplied by √D. Divide.": math.sqrt(D),
        "Divided by the root of the number of queries. It is the length of a query that counts.": 1 / math.sqrt(T),
        "Divided by the root of the number of keys. It is the length of a key that counts.": 1 / math.sqrt(S),
    }
    for sentence, value in known.items():
        if abs(factor - value) < 1e-6:
            return sentence
    return f"The dot products were multiplied by {factor:.3g}; dividing by √D multiplies them by {1 / math.sqrt(D):.3g}."
