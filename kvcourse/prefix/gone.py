"""Lesson 10: what a prefix cache remembers of what is gone, so that a miss can be explained. Knows nothing about K/V.

What was cleared, and what had gone before from where everything was cleared, is known by its digest and its length alone: a
text that is asked again as a whole is recognised, and nobody can read it here. What was evicted, expired, dropped or made
worthless by other weights is kept as token ids, until it is cleared or `REMEMBERED` more stretches have gone.
"""

from collections import OrderedDict
from collections.abc import Container
from typing import NamedTuple

from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import Reason

REMEMBERED = 10_000  # stretches
REMEMBERED_TOKENS = 2**20  # of theirs, at most: some 40 MB


class Gone(NamedTuple):
    """A stretch that was stored once."""

    tokens: tuple[int, ...]  # none where it was cleared
    start: int
    reason: Reason
    seconds: float
    length: int  # tokens it had
    root: bytes  # the key of the root it stood under


class Memory:
    """Stretches by the digests in front of them and at their end, and the namespace of each root there was."""

    def __init__(self) -> None:
        self.names: OrderedDict[bytes, object] = OrderedDict()
        self.gone: OrderedDict[tuple[bytes, bytes], Gone] = OrderedDict()
        self._tokens = 0

    def name(self, root: bytes, namespace: object) -> None:
        self.names[root] = namespace
        self.names.move_to_end(root)
        if len(self.names) > REMEMBERED:
            self.names.popitem(last=False)

    def keep(self, entry: Entry, reason: Reason, seconds: float) -> None:
        """An entry is gone."""
        assert entry.parent is not None
        name = entry.parent.digest, entry.digest
        if name in self.gone:
            self._tokens -= len(self.gone.pop(name).tokens)
        tokens = () if reason == "cleared" else entry.tokens
        self.gone[name] = Gone(tokens, entry.start, reason, seconds, len(entry.tokens), entry.root)
        self._tokens += len(tokens)
        while len(self.gone) > REMEMBERED or self._tokens > REMEMBERED_TOKENS:
            self._tokens -= len(self.gone.popitem(last=False)[1].tokens)

    def strike_out(self, roots: Container[bytes] | None) -> None:
        """Keep no text of what stood under these roots; None: under any."""
        for name, gone in self.gone.items():
            if gone.tokens and (roots is None or gone.root in roots):
                self._tokens -= len(gone.tokens)
                self.gone[name] = gone._replace(tokens=())
