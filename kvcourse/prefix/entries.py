"""Lesson 10: one stored stretch of tokens, and the order in which such stretches go. Knows nothing about how they are found.

Only leaves go, and only those that nobody is using: what stands in front of a stored stretch must stay as long as it does.
"""

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Entry:
    """A stretch of tokens whose K/V is stored, and what stands in front of it. A root holds no tokens."""

    tokens: tuple[int, ...]
    start: int  # tokens in front of it
    parent: "Entry | None"  # None: a root
    key: Any  # the name under which its parent has it
    digest: bytes  # names all tokens up to its end, and what they depend on
    rows: int | None = None  # its K/V, by the id that the store gave
    root: bytes = b""  # the key of the root it stands under
    children: dict[Any, "Entry"] = field(default_factory=dict)
    pins: int = 0  # leases on it, or on something behind it

    # What policies look at.
    created: int = 0  # the request, counted from 1, that stored it
    used: int = 0  # the last request that used it
    uses: int = 0  # how many did, the one that stored it included
    seconds: float = 0.0  # when that was, by the owner's clock
    score: Any = 0  # the lowest goes first

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)

    @property
    def path(self) -> list["Entry"]:
        """From the first entry behind the root to this one."""
        entries, entry = [], self
        while entry.parent is not None:
            entries.append(entry)
            entry = entry.parent
        return entries[::-1]

    @property
    def may_go(self) -> bool:
        return not self.children and not self.pins and self.parent is not None


class EvictionOrder:
    """Entries that may go, lowest score first; of equal ones, the one furthest back in its text.

    Adding and taking cost O(log n). Removing costs O(1): the entry's place in the heap stays, and is skipped when it comes up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, int, Entry]] = []
        self._ticket: dict[Entry, int] = {}  # an entry's valid place
        self._tickets = itertools.count()

    def __len__(self) -> int:
        return len(self._ticket)

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._ticket

    def add(self, entry: Entry) -> None:
        """Take its place by its present score; an earlier place is given up."""
        ticket = self._ticket[entry] = next(self._tickets)
        heapq.heappush(self._heap, (entry.score, -entry.start, ticket, entry))
        if len(self._heap) > 64 + 4 * len(self._ticket):
            self._heap = [place for place in self._heap if self._ticket.get(place[3]) == place[2]]
            heapq.heapify(self._heap)

    def discard(self, entry: Entry) -> None:
        self._ticket.pop(entry, None)

    def first(self) -> Entry | None:
        """The entry that goes first, or None if none may. It keeps its place."""
        while self._heap:
            _, _, ticket, entry = self._heap[0]
            if self._ticket.get(entry) == ticket:
                return entry
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Entry | None:
        """The same; its place is given up."""
        entry = self.first()
        if entry is not None:
            heapq.heappop(self._heap)
            del self._ticket[entry]
        return entry
