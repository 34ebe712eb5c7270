"""Lesson 14: prefix caches that give the right rows to the wrong request, or the wrong rows to any.

Knows nothing about how they are told apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvcourse.caches.base import KeysValues, KVCache
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.hits import Hit
from kvcourse.prefix.index import Match
from kvcourse.prefix.keys import chained


def weak_digest(data: bytes) -> bytes:
    """One of four digests for everything, so that equal ones are met in a small test, too."""
    return bytes([sum(data) % 4])


class BelievesTheHash(BlockPrefixCache):
    """Whoever has the hash has the rows: the tokens behind it are not compared."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.index.__class__ = _Believing


class _Believing(HashedBlocks):
    def _walk(self, root: Entry, tokens: Sequence[int], now: float | None) -> Match:
        path: list[Entry] = []
        before = root
        for start, stop in self.pieces(0, len(tokens)):
            entry = self._by_digest.get(chained(before.digest, tokens[start:stop], self.digest))
            if entry is None or entry.start != start:
                break
            path.append(entry)
            before = entry
        return Match(path, before.stop)


class NamespaceIgnored(RadixPrefixCache):
    """The namespace never arrives where keys are made: one tenant finds what another has asked."""

    def _key(self, namespace: object) -> bytes:
        return super()._key(None)


class StaleAfterUpdate(RadixPrefixCache):
    """Keys say nothing about the weights, so K and V of the old ones are found under the new ones."""

    def _require_weights(self) -> None:
        self._weights = "some weights"

    def _require_unchanged(self, weights: str | None = None) -> None:
        pass


class HandsOutItsRows(RadixPrefixCache):
    """A hit is the stored rows themselves, so that whoever goes on with them writes into the store."""

    def _load(self, hit: Hit, cache: KVCache) -> None:
        super()._load(hit, cache)
        stretches = hit._stretches
        if len(stretches) == 1 and hasattr(cache, "_buffers"):
            rows = stretches[0][0]  # (L, 2, H_kv, n, D)
            cache._buffers = {layer: KeysValues(both[:1], both[1:]) for layer, both in enumerate(rows)}
            cache._views, cache._all = {}, None  # type: ignore[attr-defined]


class LeavesNothing(RadixPrefixCache):
    """A text that is known as a whole is found as a whole, and there is no token left whose logits would say what follows."""

    @contextmanager
    def lease(self, tokens: Sequence[int], namespace: object = None) -> Iterator[Hit]:
        with super().lease([*tokens, 0], namespace) as hit:
            yield hit
