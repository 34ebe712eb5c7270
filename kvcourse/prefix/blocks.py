"""Lesson 10: hash-chained blocks. Knows nothing about tensors, trees or time.

A text is cut into blocks of P tokens. A block's key is the digest of the key before it and its tokens, so one look into a dict
says whether the whole text up to there is known. A digest is a claim, not a proof: it is believed after the tokens were
compared. What does not fill a block is not shared. Source: Kwon et al. 2023 (vLLM), section 4.3, and its prefix caching.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kvcourse.amounts import whole
from kvcourse.errors import BrokenInvariant
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import Match, PrefixIndex, Rows, RowsOf, Split, must
from kvcourse.prefix.keys import Digest, chained, digest_of


class HashedBlocks(PrefixIndex):
    """Blocks by their digest. digest: from bytes to bytes; a poor one costs hits, never a wrong answer."""

    def __init__(self, rows: Rows, block_tokens: int = 16, digest: Digest = digest_of, **options: Any) -> None:
        super().__init__(rows, **options)
        self.step_tokens = whole("block_tokens", block_tokens, least=1)
        self.digest = digest
        self._by_digest: dict[bytes, Entry] = {}

    def _walk(self, root: Entry, tokens: Sequence[int], now: float | None) -> Match:
        path: list[Entry] = []
        before = root
        for start, stop in self.pieces(0, len(tokens)):
            block = tuple(tokens[start:stop])
            entry = self._by_digest.get(chained(before.digest, block, self.digest))
            if entry is None or entry.tokens != block or entry.parent is not before or self._is_expired(entry, now):
                break
            path.append(entry)
            before = entry
        return Match(path, before.stop)

    def _attach(self, root: Entry, tokens: tuple[int, ...], match: Match, rows_of: RowsOf, split: Split) -> list[Entry]:
        path = list(match.entries)
        self._mark(path, self._now)  # before what comes behind, where storing may fail
        for start, stop in self.pieces(match.length, len(tokens)):
            parent = path[-1] if path else root
            digest = chained(parent.digest, tokens[start:stop], self.digest)
            if digest in self._by_digest:  # another block has this very digest: this one, and what follows, stays out
                break
            entry = self._new(Entry(tokens[start:stop], start, parent, digest, digest), rows_of)
            path.append(entry)
            self._by_digest[digest] = entry
        return path

    def _unlinked(self, entry: Entry) -> None:
        if self._by_digest.get(entry.digest) is entry:
            del self._by_digest[entry.digest]

    def pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        P = self.step_tokens
        return [(first, first + P) for first in range(start - start % P, stop - P + 1, P)]

    def check(self, leased: Iterable[Entry] = ()) -> None:
        super().check(leased)
        found = list(self.entries())
        for entry in found:
            must(len(entry.tokens) == self.step_tokens, entry, "holds", f"{self.step_tokens} tokens", len(entry.tokens))
            must(self._by_digest.get(entry.digest) is entry, entry, "is found", "by its digest", "it is not")
        if len(found) != len(self._by_digest):
            raise BrokenInvariant(
                "Digests without a block.", expected=len(found), got=len(self._by_digest), todo="Report this."
            )
