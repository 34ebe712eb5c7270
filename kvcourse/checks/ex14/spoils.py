"""Lesson 14: wrong logits, made of right ones on their way out of a cache. Knows nothing about caches.

A learner's test sees logits and nothing else. So there is one fault for each thing that it may have left out: a token, a logit
of the vocabulary, a small difference, a number that is none.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcourse.checks.base import Draw
from kvcourse.zoo.bodies import SHAPE

V = SHAPE.vocab_size
PARTS = 6  # of the vocabulary: a test that looks at a few logits misses one part at least
CLEARLY, BARELY = 0.01, 3e-9  # the task says that 1e-9 is not equal
Spoil = Callable[[Tensor, int], Tensor]  # logits (T, V), its own, and the first token's place: what is given out in their place
Change = Callable[[Tensor], Tensor]  # the logits (V,) of one token


@dataclass(frozen=True)
class Wrong:
    """What is done to the logits of a token. told: a sentence's end, after "Of token 3, "."""

    told: str
    change: Change


def all_off(by: float) -> Change:
    return lambda row: row + by


def one_off(column: int, by: float) -> Change:
    def change(row: Tensor) -> Tensor:
        row[column] += by
        return row

    return change


def exchanged(one: int, other: int) -> Change:
    def change(row: Tensor) -> Tensor:
        row[[one, other]] = row[[other, one]]
        return row

    return change


def turned(column: int) -> Change:
    def change(row: Tensor) -> Tensor:
        row[column] = -row[column]
        return row

    return change


def column_of(draw: Draw, part: int) -> int:
    """One of a part of the vocabulary."""
    size = V // PARTS
    return draw.integer(part * size, part * size + size - 1)


def in_one_logit(draw: Draw) -> list[Wrong]:
    """In each part of the vocabulary one; and faults that leave sums, squares or the sorted logits as they are."""
    wrong = [
        Wrong(f"logit {c} is off by {CLEARLY}, and the other {V - 1} are right", one_off(c, CLEARLY))
        for c in (column_of(draw, part) for part in range(PARTS))
    ]
    one, other = column_of(draw, draw.integer(0, 2)), column_of(draw, draw.integer(3, 5))
    wrong.append(Wrong(f"logits {one} and {other} are exchanged: each is right, for another token", exchanged(one, other)))
    c = column_of(draw, draw.integer(0, PARTS - 1))
    return [*wrong, Wrong(f"logit {c} has the wrong sign", turned(c))]


def by_little(draw: Draw) -> list[Wrong]:
    few = "far more than rounding, some 1e-14"
    c = column_of(draw, draw.integer(0, PARTS - 1))
    return [
        Wrong(f"all logits are {BARELY} too low, {few}", all_off(-BARELY)),
        Wrong(f"logit {c} is {BARELY} too high, {few}", one_off(c, BARELY)),
    ]


def undefined(draw: Draw) -> list[Wrong]:
    nan = "NaN: it is neither above nor below anything, and not equal to itself"
    c = column_of(draw, draw.integer(0, PARTS - 1))
    return [
        Wrong(f"every logit is {nan}", all_off(torch.nan)),
        Wrong(f"logit {c} is {nan}", one_off(c, torch.nan)),
    ]


def at(place: int | None, change: Change) -> Spoil:
    """Change the logits of one token, or of all."""

    def spoil(logits: Tensor, start: int) -> Tensor:
        for row in range(len(logits)):
            if place in (None, start + row):
                logits[row] = change(logits[row].clone())
        return logits

    return spoil


def before_the_last(logits: Tensor, start: int) -> Tensor:
    """Of a pass of several tokens only the last one's logits are right."""
    logits[:-1] += CLEARLY
    return logits


def last_of_several(logits: Tensor, start: int) -> Tensor:
    """Of a pass of several tokens only the last one's logits are wrong."""
    if len(logits) > 1:
        logits[-1] += CLEARLY
    return logits


def last_two_exchanged(logits: Tensor, start: int) -> Tensor:
    """Two tokens of a pass have each other's logits."""
    return logits if len(logits) < 2 else torch.cat((logits[:-2], logits[-2:].flip(0)))
