"""Lesson 10: one text on its way into a prefix cache. Knows nothing about locks, trees or what has to go for it.

Rows are copied before the lock is taken. That goes for a stored stretch that is to be split, too: both halves are made ready
while others read the whole, and under the lock ids change places. If somebody else was faster, what is lacking is copied next,
and so on. While it is split a stretch is there twice. Two views of one storage would cost nothing, and not be freed apart.
"""

from dataclasses import dataclass, field

from torch import Tensor

from kvcourse.prefix.entries import Entry
from kvcourse.prefix.store import part

Ends = tuple[int, int]  # the first and the last-but-one token of a stretch


@dataclass(eq=False)
class Insert:
    """What one insert holds, and what it has copied so far."""

    held: Entry | None = None  # pinned: the last entry that is known of its text, or a root
    known: int = 0  # tokens, when it began
    pieces: list[Ends] = field(default_factory=list)  # what there was room for behind them
    reserved: int = 0  # tokens
    rows: dict[Ends, Tensor] = field(default_factory=dict)
    halves: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(
        default_factory=dict
    )  # by the rows' id, and where they are cut

    @property
    def stop(self) -> int:
        """Tokens of its text that are, or will be, stored."""
        return self.pieces[-1][1] if self.pieces else self.known

    def has(self, pieces: list[Ends], cut: tuple[int, int] | None) -> bool:
        """True if nothing is left to copy."""
        return all(ends in self.rows for ends in pieces) and (cut is None or cut in self.halves)

    def copy(self, pieces: list[Ends], cut: tuple[int, int] | None, whole: Tensor | None) -> None:
        """Copy what is lacking. whole: the rows that are to be cut, of an entry that is pinned."""
        for start, stop in pieces:
            if (start, stop) not in self.rows:  # somebody else has stored what stands in front of it in the meantime
                first, rows = next((a, rows) for (a, b), rows in self.rows.items() if a <= start and stop <= b)
                self.rows[start, stop] = part(rows, start - first, stop - first)
        if cut is not None and whole is not None:
            n = whole.shape[3]
            self.halves = {cut: (part(whole, 0, cut[1]), part(whole, cut[1], n))}
