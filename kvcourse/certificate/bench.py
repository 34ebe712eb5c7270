"""Lesson 14: what a proof is made of: comparisons, refusals, and cases. Knows nothing about models or caches.

A case that fails does not end the proof: which cases hold and which do not is half of the diagnosis. What failed is kept in
words: where, by how much, and how much rounding explains.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

_POSITION_AXIS = {3: 1, 4: 2}  # of logits (B, T, V), and of K or V (B, H_kv, S, D)


class NotProved(AssertionError):
    """Two things that had to be equal and are not, or a refusal that did not come."""


class NotClaimed(Exception):
    """What a cache says itself that it does not promise, in words."""


class Failure(NamedTuple):
    """Where a proof failed, and what differed; or where it did not apply, and why."""

    case: str
    why: str


def rounding(expected: Tensor) -> float:
    """How far two computations of the same numbers may be apart: ε^(2/3) · (1 + the largest of them)."""
    largest = expected.abs().max().item() if expected.numel() else 0.0
    return float(torch.finfo(expected.dtype).eps ** (2 / 3) * (1 + largest))


def rounding_of_an_unsteady_model(expected: Tensor, unsteadiness: float) -> float:
    """`rounding`, or ten times what one ε does to the model: at most 1 % of the largest number, so that a fault shows."""
    return max(rounding(expected), min(10 * unsteadiness, 0.01 * expected.abs().max().item()))


class Bench:
    """Compares for one proof, and counts: comparisons made, and single numbers compared."""

    def __init__(self) -> None:
        self.comparisons = 0
        self.numbers = 0
        self.cases: list[str] = []
        self.failures: list[Failure] = []
        self.not_claimed: list[Failure] = []  # cases in which a cache says itself that it does not promise this

    @contextmanager
    def case(self, *names: object) -> Iterator[None]:
        """One of the proof's cases. Whatever is raised inside is noted, and the proof goes on with the next one."""
        name = ", ".join(map(str, names))
        self.cases.append(name)
        try:
            yield
        except NotClaimed as reason:
            self.skip(name, str(reason))
        except NotProved as fault:
            self.failures.append(Failure(name, str(fault)))
        except (Exception, SystemExit) as fault:  # a cache under test may raise anything; status 0 would look like a proof
            self.failures.append(Failure(name, f"{type(fault).__name__}: {' '.join(str(fault).split())}"))

    def skip(self, case: str, why: str) -> None:
        """This is not asked here. why: as the cache has said it."""
        self.not_claimed.append(Failure(case, why))

    def close(
        self, got: Tensor, expected: Tensor, what: str = "logits", first_position: int = 0, bound: float | None = None
    ) -> None:
        """Numbers are equal but for rounding. first_position: of the first row, for the message. bound: if not `rounding`."""
        self._count(expected.numel())
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise NotProved(
                f"{what}: {tuple(got.shape)} {got.dtype}, expected {tuple(expected.shape)} {expected.dtype}".replace(
                    "torch.", ""
                )
            )
        off, bound = (got - expected).abs(), rounding(expected) if bound is None else bound
        wrong = ~(off <= bound)  # this way round NaN is wrong, too
        if wrong.any():
            raise NotProved(f"{what} differ by {_largest(off)}{_place(wrong, first_position)}; rounding explains {bound:.0e}")

    def same(self, got: object, expected: object, what: str) -> None:
        """Equal, as Python has it."""
        self._count(1)
        if got != expected:
            raise NotProved(f"{what}: {_short(got)}, expected {_short(expected)}")

    def holds(self, claim: bool, what: str) -> None:
        self._count(1)
        if not claim:
            raise NotProved(f"not so: {what}")

    def differ(self, got: Tensor, other: Tensor, what: str) -> None:
        """Numbers that must not be equal: a counter-example has to fail."""
        self._count(other.numel())
        if (got - other).abs().max().item() <= rounding(other):
            raise NotProved(f"{what} are equal, and should not be")

    def refuses(self, fault: type[Exception], act: Callable[[], object], what: str) -> None:
        """This very error is raised."""
        self._count(1)
        try:
            act()
        except fault:
            return
        except Exception as other:
            raise NotProved(f"{what}: {type(other).__name__} was raised, expected {fault.__name__}") from other
        raise NotProved(f"{what}: nothing was raised, expected {fault.__name__}")

    def _count(self, numbers: int) -> None:
        self.comparisons += 1
        self.numbers += numbers


def _largest(off: Tensor) -> str:
    largest = off.max().item() if not off.isnan().any() else float("nan")
    return f"up to {largest:.2g}"


def _place(wrong: Tensor, first: int) -> str:
    axis = _POSITION_AXIS.get(wrong.dim())
    if axis is None:
        return ""
    others = tuple(dim for dim in range(wrong.dim()) if dim != axis)
    return f", first at position {first + int(wrong.any(dim=others).nonzero()[0])}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
