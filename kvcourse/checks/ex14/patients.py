"""Lesson 14: caches for a learner's test to be tried on: right ones of three kinds, and broken ones. Knows nothing about how
a test is judged.

A fault is a class in front of a kind, or something that is done to the logits on their way.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvcourse.attention import causal_mask
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache, PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.checks.ex14.spoils import Change, Spoil, at

if TYPE_CHECKING:  # for the type checker a front stands before every kind
    from kvcourse.caches.full import FullCache as Front
else:
    Front = object

CAPACITY, BLOCK_TOKENS, SPARE_BLOCKS = 24, 4, 18
KINDS: dict[str, type] = {"growing": GrowingCache, "preallocated": PreallocatedCache, "paged": PagedCache}
When = Callable[[int, int], bool]  # length, T
Replan = Callable[[Plan, int, int], Plan]  # a plan, length, T


@dataclass(frozen=True)
class Case:
    """A kind of cache, right unless it has a fault. told: what is wrong with it, in words for a learner."""

    kind: str
    told: str = ""
    front: type | None = None
    spoil: Spoil | None = None

    @property
    def is_right(self) -> bool:
        return self.front is None and self.spoil is None

    def make(self, model: Any, capacity: int = CAPACITY) -> Any:
        kind = KINDS[self.kind]
        if self.front is not None:
            kind = type(f"{self.front.__name__}{kind.__name__}", (self.front, kind), {})
        if self.kind == "growing":
            return kind()
        return kind(capacity if self.kind == "preallocated" else PagedPool(model, SPARE_BLOCKS, BLOCK_TOKENS))


def always(length: int, T: int) -> bool:
    return True


def planned(change: Replan, when: When = always) -> type:
    """A cache whose plan is another one, for some calls."""

    class Planned(Front):
        def plan(self, T: int) -> Plan:
            plan = super().plan(T)
            return change(plan, self.length, T) if when(self.length, T) else plan

    return Planned


def restarting(plan: Plan, length: int, T: int) -> Plan:
    return replace(plan, query_positions=torch.arange(T))


def ahead(plan: Plan, length: int, T: int) -> Plan:
    return replace(plan, query_positions=plan.query_positions + 1)


def unmasked(plan: Plan, length: int, T: int) -> Plan:
    return replace(plan, mask=None)


def square(plan: Plan, length: int, T: int) -> Plan:
    return plan if plan.mask is None else replace(plan, mask=plan.mask & (torch.arange(length + T) >= length))


def at_the_left(plan: Plan, length: int, T: int) -> Plan:
    return plan if plan.mask is None else replace(plan, mask=causal_mask(torch.arange(T), torch.arange(length + T)))


class Cast(Front):
    """Rows in 32 bits."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        return super().append(layer, k.float().double(), v.float().double())


class ValuesLost(Front):
    """Of a single token, the value is not written."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        lost = torch.zeros_like(v) if self.length and k.shape[2] == 1 else v
        return super().append(layer, k, lost)


class NothingKept(Front):
    """Every pass is forgotten."""

    def advance(self, T: int) -> None:
        self.abort()


# Faults of truncate.


def cutting(to: Callable[[int, int], int]) -> type:
    """truncate(n) cuts to something else. to: n and the present length to the new one."""

    class Cutting(Front):
        def truncate(self, length: int) -> None:
            super().truncate(to(length, self.length))

    return Cutting


def wrong_after_a_cut(which: int | None, change: Change, only: int | None = None) -> type:
    """After a cut, or one to `only`, the logits of a token are wrong, or of all: the first that comes is number 0."""

    class WrongAfterACut(Front):
        cut_to: int | None = None

        def truncate(self, length: int) -> None:
            super().truncate(length)
            self.cut_to = length if only in (None, length) else None

        def spoiled(self, logits: Tensor, start: int) -> Tensor:
            if self.cut_to is None:
                return logits
            return at(None if which is None else self.cut_to + which, change)(logits, start)

    return WrongAfterACut


def positions_go_on_at(n: int) -> type:
    """After a cut to n, rows are gone, and the next token stands where it would have stood without the cut."""

    class PositionsGoOn(Front):
        too_far = 0

        def truncate(self, length: int) -> None:
            self.too_far = self.length - length if length == n else 0
            super().truncate(length)

        def plan(self, T: int) -> Plan:
            plan = super().plan(T)
            return replace(plan, query_positions=plan.query_positions + self.too_far)

    return PositionsGoOn


class WritesOnce(Front):
    """A slot that was written once keeps its row for ever, whatever is written there after a cut, or by a fork."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        rows = super().append(layer, k, v)
        first = self.__dict__.setdefault("first_rows", {})  # layer -> rows that were the first in their slots
        old = first.get(layer, KeysValues(rows.keys[:, :, :0], rows.values[:, :, :0]))
        n, S = old.keys.shape[2], rows.keys.shape[2]
        told = KeysValues(*(torch.cat((o[:, :, :S], r[:, :, n:]), dim=2) for o, r in zip(old, rows, strict=True)))
        first[layer] = told if S >= n else old
        return told


# Faults of fork.


def share(cache: Any, other: Any) -> None:
    """A fork writes where its parent writes."""
    if isinstance(cache, PreallocatedCache):
        other._buffers, other._views, other._made_now = dict(cache._buffers), {}, []
    else:
        other._stored = cache._stored


class SharesRows(Front):
    """Of blocks, the last one: nobody copies it before writing."""

    def _copy_rows(self, other: Any) -> None:
        if isinstance(self, PagedCache):
            super()._copy_rows(other)  # type: ignore[safe-super]
        else:
            share(self, other)

    def _shared_rows(self) -> list[int]:
        return []


def sharing_at(n: int) -> type:
    """The same, of a fork that is made at one length only; growing or preallocated."""

    class SharesOnce(Front):
        def _copy_rows(self, other: Any) -> None:
            if self.length == n:
                share(self, other)
            else:
                super()._copy_rows(other)  # type: ignore[safe-super]

    return SharesOnce


def forking(after: Callable[[Any, Any], Any]) -> type:
    """A fork with something done to it, or to its parent. after: parent and fork to what is handed out."""

    class Forking(Front):
        def fork(self) -> Any:
            return after(self, super().fork())

    return Forking


def wrong_after_a_fork(in_fork: bool, which: int | None, change: Change, only: int | None = None) -> type:
    """After a fork, or one at length `only`, one side's logits of a token are wrong, or of all: the first that comes is 0."""

    class WrongAfterAFork(Front):
        parted_at: int | None = None

        def fork(self) -> Any:
            other = super().fork()
            if only in (None, self.length):
                (other if in_fork else self).parted_at = self.length
            return other

        def spoiled(self, logits: Tensor, start: int) -> Tensor:
            if self.parted_at is None:
                return logits
            return at(None if which is None else self.parted_at + which, change)(logits, start)

    return WrongAfterAFork
