"""Lesson 10: what a prefix cache hands out and reports. Knows nothing about how it came to be."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.errors import CacheMisuse
from kvcourse.prefix.entries import Entry


@dataclass(frozen=True)
class Stats:
    """What has happened since the cache was made, in tokens where nothing else is said. A snapshot."""

    lookups: int = 0  # leases
    hits: int = 0  # of those, how many found anything
    lookup_tokens: int = 0
    hit_tokens: int = 0
    inserted_tokens: int = 0
    evicted_tokens: int = 0
    expired_tokens: int = 0
    verified: int = 0  # hits that were computed again
    mismatches: int = 0  # of those, how many gave other rows or other logits
    refused: int = 0  # inserts that stored nothing, because their rows may come from such a mismatch
    leases: int = 0  # out now
    tokens: int = 0  # stored now
    bytes: int = 0  # their K/V

    @property
    def hit_rate(self) -> float:
        """Of all tokens looked up, the share that was found."""
        return self.hit_tokens / self.lookup_tokens if self.lookup_tokens else 0.0


class Found(NamedTuple):
    """How many tokens of a text are known. Nothing is pinned: the next call may evict it."""

    length: int


@dataclass(eq=False)
class Hit:
    """What is known of a text, pinned while its `with` block lasts. length: tokens, always fewer than the text has."""

    length: int
    _load: "Callable[[Hit, KVCache], None]"
    _tokens: list[int]
    _weights: str
    _entries: list[Entry] = field(default_factory=list)
    _stretches: list[tuple[Tensor, int]] = field(default_factory=list)
    _open: bool = True

    def load_into(self, cache: KVCache) -> None:
        """Copy the known rows into an empty cache, whose length is `length` afterwards.

        After a failed verification (see `verify`), of this hit or of one that shares wrong rows, that is 0. Whatever is raised
        leaves the cache as it was.
        Raises: CacheMisuse outside the with block, for a cache that is not empty, or one that cannot hold exact, rotated rows;
        CacheMismatch for a cache of another model; CacheFull.
        """
        if not self._open:
            raise CacheMisuse("This lease has ended.", expected="load_into inside its with block", got="a call after it",
                              todo="Lease again: what was known may be evicted by now.")  # fmt: skip
        self._load(self, cache)
