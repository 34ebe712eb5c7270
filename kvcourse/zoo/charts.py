"""Lesson 14: a chart: what was observed of a cache, beside what a right one shows. Knows nothing about any fault."""

from dataclasses import dataclass
from typing import Any

from kvcourse.caches.base import KVCache
from kvcourse.errors import InputError
from kvcourse.zoo import shared, single
from kvcourse.zoo.bodies import the_model
from kvcourse.zoo.specimen import Make

CAPACITY_TOKENS = 12
Reading = str | int


@dataclass(frozen=True)
class Observation:
    """One line of a chart."""

    what: str
    right: Reading  # what a right cache of this kind shows
    seen: Reading
    is_right: bool


@dataclass(frozen=True)
class Chart:
    """All observations of one cache. Prints as a table."""

    observations: tuple[Observation, ...]

    @property
    def wrong(self) -> tuple[str, ...]:
        """Names of the observations that a right cache would not give: the symptoms."""
        return tuple(one.what for one in self.observations if not one.is_right)

    @property
    def readings(self) -> dict[str, Reading]:
        """What was seen, by name."""
        return {one.what: one.seen for one in self.observations}

    def __str__(self) -> str:
        rows = [(one.what, str(one.right), str(one.seen), "" if one.is_right else "<-") for one in self.observations]
        rows.insert(0, ("observed", "right", "seen", ""))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def symptoms(make: Make) -> Chart:
    """Observe what `make(model, capacity)` makes, a KV cache or a prefix cache.

    In float64, on a small seeded model, in a fraction of a second; the same on every machine.
    Raises: InputError if it makes neither.
    """
    one: Any = make(the_model(), CAPACITY_TOKENS)
    is_single = isinstance(one, KVCache)
    if not is_single and not all(hasattr(one, name) for name in ("lease", "insert", "index")):
        raise InputError("There is no cache to observe.", expected="a KVCache, or a prefix cache with lease and insert",
                         got=type(one).__name__, todo="Let make(model, capacity) return an empty cache.")  # fmt: skip
    seen = single.observed(make) if is_single else shared.observed(make)
    return Chart(tuple(Observation(*row) for row in seen))
