"""Lesson 10: a radix tree of token ids. Knows nothing about tensors, hashes or time.

Every edge is a stretch of tokens; two texts share edges up to the very token at which they part, and there the edge is split.
Source: Zheng et al. 2024 (SGLang), section 3; Morrison 1968.
"""

from collections.abc import Iterable, Sequence

from kvcourse.common_prefix import common_length
from kvcourse.errors import BrokenInvariant
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import Match, PrefixIndex, RowsOf, Split, must
from kvcourse.prefix.keys import digest_of, token_bytes


class RadixTree(PrefixIndex):
    """Children are found by their first token, so two of one parent never start alike."""

    def _walk(self, root: Entry, tokens: Sequence[int], now: float | None) -> Match:
        path: list[Entry] = []
        node, length = root, 0
        while length == node.stop and length < len(tokens):
            child = node.children.get(tokens[length])
            if child is None or self._is_expired(child, now):
                break
            path.append(child)
            length += common_length(child.tokens, tuple(tokens[length : length + len(child.tokens)]))
            node = child
        return Match(path, length)

    def _attach(self, root: Entry, tokens: tuple[int, ...], match: Match, rows_of: RowsOf, split: Split) -> list[Entry]:
        path, length = match
        if length == len(tokens):
            return path
        if path and length < path[-1].stop:
            path = [*path[:-1], self._split(path[-1], length - path[-1].start, split)]
        parent = path[-1] if path else root
        digest = digest_of(root.digest + token_bytes(tokens))
        leaf = Entry(tokens[length:], length, parent, tokens[length], digest)
        return [*path, self._new(leaf, rows_of)]

    def _split(self, lower: Entry, at: int, split: Split) -> Entry:
        """Cut an entry in two; return the new front part. Leases of the whole are leases of both."""
        assert lower.parent is not None and lower.rows is not None
        parent = lower.parent
        before = [token for entry in lower.path[:-1] for token in entry.tokens]
        digest = digest_of(self._root_of(lower).digest + token_bytes([*before, *lower.tokens[:at]]))
        front, back = split(lower.rows, at)  # it may fail: nothing has changed yet
        upper = Entry(lower.tokens[:at], lower.start, parent, lower.key, digest, front, lower.root, pins=lower.pins,
                      created=lower.created, used=lower.used, uses=lower.uses, seconds=lower.seconds,
                      score=lower.score)  # fmt: skip
        lower.tokens, lower.start, lower.rows = lower.tokens[at:], lower.start + at, back
        lower.parent, lower.key = upper, lower.tokens[0]
        upper.children[lower.key] = lower
        parent.children[upper.key] = upper
        self._recent[upper] = None
        try:
            self.policy.split(upper, lower)
        finally:
            if lower in self._order:
                self._order.add(lower)  # it stands further back now
        return upper

    def pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(start, stop)] if start < stop else []

    def check(self, leased: Iterable[Entry] = ()) -> None:
        super().check(leased)
        for entry in self.entries():
            must(entry.key == entry.tokens[0], entry, "is known by", entry.tokens[0], entry.key)
            known = digest_of(self._root_of(entry).digest + token_bytes([t for one in entry.path for t in one.tokens]))
            if entry.digest != known:
                raise BrokenInvariant(
                    "A digest names other tokens.", expected=known.hex(), got=entry.digest.hex(), todo="Report this."
                )
