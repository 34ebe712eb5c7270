"""Lesson 14: broken caches whose faults begin where they are drawn. Knows nothing about what is said of them.

No two wards are alike then, so that a diagnosis has to be a rule.
`at` is a number of tokens; what it counts, each fault says. In twelve tokens, and in four at a time, every one of them shows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache as once
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.paged import PagedCache, PagedPool
from kvcourse.caches.sliding import SlidingCache
from kvcourse.checks.base import Draw
from kvcourse.checks.ex14 import patients
from kvcourse.checks.ex14.patients import BLOCK_TOKENS, KINDS, planned
from kvcourse.zoo.keeping import GrowsByResize

if TYPE_CHECKING:  # for the type checker a front stands before every kind
    from kvcourse.caches.full import FullCache as Front
else:
    Front = object

FULL = tuple(KINDS)
KEPT_WHOLE = (*FULL, "sliding")  # a window as long as the text keeps every row, too


@dataclass(frozen=True)
class Fault:
    """front: from `at` to a class in front of a kind, or a whole cache where kinds is empty."""

    key: str
    front: Callable[[int], Any]
    lowest: int
    highest: int
    kinds: tuple[str, ...] = FULL


@dataclass(frozen=True)
class Patient:
    """A cache with a fault, of a kind. Makes what `symptoms` observes."""

    fault: str
    kind: str
    at: int

    @property
    def key(self) -> str:
        return FAULTS[self.fault].key

    def __call__(self, model: Any, n: int) -> Any:
        made = front_of(self.fault, self.at)
        if not self.kind:
            return made()
        one = kind_of(made, self.kind)
        if self.kind == "growing":
            return one()
        return one(PagedPool(model, 3 * -(-n // BLOCK_TOKENS), BLOCK_TOKENS) if issubclass(one, PagedCache) else n)


@once
def front_of(fault: str, at: int) -> Any:
    return FAULTS[fault].front(at)


@once
def kind_of(front: type, kind: str) -> type:
    base = {**KINDS, "sliding": SlidingCache}[kind]
    return type(f"{front.__name__}{base.__name__}", (front, base), {})


# Masks. One token has none: what it may see is all that there is.


def several(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type:
    """Another mask for several tokens of one text. change: the mask (T, S), queries (T, 1) and keys (1, S) to a mask."""

    def replan(plan: Plan, length: int, T: int) -> Plan:
        if plan.mask is None or plan.mask.dim() != 2:
            return plan
        return replace(plan, mask=change(plan.mask, plan.query_positions[:, None], plan.key_positions[None]))

    return planned(replan, lambda length, T: T > 1)


def square_from(at: int) -> type:
    """With so many tokens held, or more, those of a call see each other only."""
    return planned(patients.square, lambda length, T: length >= at)


def short_sighted(at: int) -> type:
    """Each token of a call sees the last so many, itself included."""
    return several(lambda mask, queries, keys: mask & (keys > queries - at))


def one_too_many(at: int) -> type:
    """From that token on, each token of a call sees the one behind it, too."""
    return several(lambda mask, queries, keys: mask | ((keys == queries + 1) & (queries >= at)))


def one_hidden(at: int) -> type:
    """Those behind that token do not see it."""
    return several(lambda mask, queries, keys: mask & ((keys != at) | (queries == at)))


# Positions.


def shifted(by: int) -> type:
    return planned(
        lambda plan, length, T: replace(plan, query_positions=plan.query_positions + by), lambda length, T: length > 0
    )


def counted_again(by: int) -> type:
    """Tokens of a call are counted from `by` on; those of the first one rightly."""
    return planned(
        lambda plan, length, T: replace(plan, query_positions=plan.query_positions - plan.query_positions[..., :1] + by - 1),
        lambda length, T: length > 0,
    )


# Rows.


def exchanges_layers(at: int) -> type:
    """When there are more than so many tokens, each of two layers finds the old rows of the other."""

    class ExchangesLayers(Front):
        def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
            n, S = self.length, self.length + k.shape[2]
            other = self._kept().get(1 - layer)
            rows = super().append(layer, k, v)
            self._now()[layer] = KeysValues(rows.keys.clone(), rows.values.clone())
            if not n or S <= at or other is None:
                return rows
            return KeysValues(*(torch.cat((o[:, :, :n], r[:, :, n:]), dim=2) for o, r in zip(other, rows, strict=True)))

        def _kept(self) -> dict[int, KeysValues]:
            return self.__dict__.setdefault("kept", {})

        def _now(self) -> dict[int, KeysValues]:
            return self.__dict__.setdefault("now", {})

        def advance(self, T: int) -> None:
            super().advance(T)
            self.kept = dict(self._now())

    return ExchangesLayers


def resized_from(room: int) -> Any:
    return lambda: GrowsByResize(room)


def lower(rows: Tensor) -> Tensor:
    return rows.float().double()


def cast_from(at: int) -> type:
    """Rows from that slot on are kept in 32 bits."""

    class CastFrom(Front):
        def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
            late = torch.arange(self.length, self.length + k.shape[2])[:, None] >= at  # (T, 1)
            return super().append(layer, torch.where(late, lower(k), k), torch.where(late, lower(v), v))

    return CastFrom


def cast_when_kept(at: int) -> type:
    """A call's own rows are exact for it; read again they have 32 bits, but for the first `at`."""

    class CastWhenKept(Front):
        def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
            n, rows = self.length, super().append(layer, k, v)
            parts = [(t[:, :, :at], lower(t[:, :, at:n]), t[:, :, n:]) for t in rows] if at < n else []
            return KeysValues(*(torch.cat(part, dim=2) for part in parts)) if parts else rows

    return CastWhenKept


def forgets_at(at: int) -> type:
    """Whenever so many tokens are held, all are forgotten."""

    class Forgets(Front):
        def advance(self, T: int) -> None:
            super().advance(T)
            if self.length >= at:
                self.truncate(0)

    return Forgets


FAULTS: Mapping[str, Fault] = {
    "square from": Fault("mask", square_from, 1, 8),
    "short-sighted": Fault("mask", short_sighted, 2, 11),
    "one too many": Fault("mask", one_too_many, 0, 10),
    "one hidden": Fault("mask", one_hidden, 0, 10),
    "shifted": Fault("positions", shifted, 1, 6, KEPT_WHOLE),
    "counted again": Fault("positions", counted_again, 3, 9),
    "layers exchanged": Fault("layers", exchanges_layers, 2, 11),
    "resized": Fault("layers", resized_from, 2, 11, ("",)),
    "cast from": Fault("dtype", cast_from, 0, 10, KEPT_WHOLE),
    "cast when kept": Fault("dtype", cast_when_kept, 0, 9),
    "forgets": Fault("unused", forgets_at, 1, 11),
}


def drawn(draw: Draw, key: str, n: int) -> list[Patient]:
    """So many with that fault, first one of each sort."""
    sorts = [name for name, fault in FAULTS.items() if fault.key == key]
    found = []
    for number in range(n):
        name = sorts[number % len(sorts)]
        fault = FAULTS[name]
        kind = fault.kinds[draw.integer(0, len(fault.kinds) - 1)]
        found.append(Patient(name, kind, draw.integer(fault.lowest, fault.highest)))
    return found


def everybody() -> list[Patient]:
    """All that can be drawn."""
    return [
        Patient(name, kind, at)
        for name, fault in FAULTS.items()
        for kind in fault.kinds
        for at in range(fault.lowest, fault.highest + 1)
    ]
