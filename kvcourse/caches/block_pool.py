"""Lesson 09: who has which block. Plain ints: knows nothing about tensors, models, or what a block holds.

A pool of N blocks is N counts. A count says how many tables a block stands in; 0: it is free. Who wants a block allocates it,
who wants another's shares it, and who is done with one releases it. The last one out frees it.
Source: Kwon et al. 2023 (PagedAttention), sections 4.2 and 4.4; our count = their reference count, n_blocks = their number of
physical blocks.
"""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from kvcourse.errors import CacheFull, CacheMisuse, InputError


class BlockPool:
    """N blocks, numbered from 0, each free or counted.

    n_blocks: 1 or more.
    """

    def __init__(self, n_blocks: int) -> None:
        if isinstance(n_blocks, bool) or not isinstance(n_blocks, int) or n_blocks < 1:
            raise InputError(
                "A pool needs blocks.", expected="n_blocks of 1 or more", got=repr(n_blocks), todo="Pass how many there are."
            )
        self._counts = [0] * n_blocks
        self._free = list(range(n_blocks))  # in order, so that neighbours are found
        self._abandoned: deque[list[int]] = deque()

    @property
    def n_blocks(self) -> int:
        return len(self._counts)

    @property
    def n_free(self) -> int:
        self._take_back()
        return len(self._free)

    @property
    def n_used(self) -> int:
        return self.n_blocks - self.n_free

    def count(self, block: int) -> int:
        """How many tables a block stands in.

        Raises: InputError for a block that is none of this pool's.
        """
        self._take_back()
        self._require_known([block])
        return self._counts[block]

    def require(self, n: int) -> None:
        """Nothing, if n blocks are free.

        Raises: CacheFull, which says how many are missing.
        """
        missing = n - self.n_free
        if missing > 0:
            raise CacheFull(
                "The block pool is exhausted.",
                expected=f"{n} free of {self.n_blocks} blocks",
                got=f"{self.n_free}",
                todo=f"{missing} {'block is' if missing == 1 else 'blocks are'} missing: reset or truncate a cache that "
                f"shares the pool, or make one of {self.n_blocks + missing} blocks or more.",
            )

    def allocate(self, n: int, after: int | None = None) -> list[int]:
        """n free blocks, counted once each: those that follow block `after`, if they are free; else n in a row, if there are;
        else the first ones.

        Raises: CacheFull, with nothing changed, where fewer than n are free.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise InputError("A number of blocks.", expected="0 or more", got=repr(n), todo="Count what the rows need.")
        self.require(n)
        here = self._run_of(n, after)
        blocks = self._free[here : here + n]
        del self._free[here : here + n]
        for block in blocks:
            self._counts[block] = 1
        return blocks

    def _run_of(self, n: int, after: int | None) -> int:
        """Where in the list of free blocks to take n from."""
        free = self._free
        if n == 0:
            return 0
        if after is not None:
            here = bisect_left(free, after + 1)
            if free[here : here + 1] == [after + 1] and free[here + n - 1 : here + n] == [after + n]:
                return here
        return next((here for here in range(len(free) - n + 1) if free[here + n - 1] - free[here] == n - 1), 0)

    def share(self, blocks: Iterable[int]) -> None:
        """Count each once more: it stands in one more table.

        Raises: CacheMisuse, with nothing changed, for a block that is free.
        """
        self._take_back()
        blocks = list(blocks)
        self._require_counted(blocks, least=1)
        for block in blocks:
            self._counts[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Count each once less; at 0 it is free.

        Raises: CacheMisuse, with nothing changed, for a block that would be released more often than it is counted.
        """
        self._take_back()
        self._release(list(blocks))

    def abandon(self, blocks: Iterable[int]) -> None:
        """`release` at the next call of any other method, and so safe to call in the middle of one, as a finalizer may."""
        self._abandoned.append(list(blocks))

    def check(self, tables: Iterable[Sequence[int]] | None = None) -> None:
        """Nothing, if the books are right: free + used = N, no count below 0 and, where all `tables` are given, each block
        counted once for each table that it stands in.

        Raises: CacheMisuse, which names the first fault.
        """
        self._take_back()
        for block, count in enumerate(self._counts):
            if count < 0:
                raise _broken(f"block {block} is counted", "0 times or more", count)
        free = [block for block, count in enumerate(self._counts) if count == 0]
        if self._free != free:
            raise _broken("the list of free blocks", free, self._free)
        if tables is None:
            return
        standing: Counter[int] = Counter()
        for table in tables:
            if len(set(table)) != len(table):
                raise _broken("a table", "each block once", list(table))
            standing.update(table)
        self._require_known(standing)
        for block, count in enumerate(self._counts):
            if standing[block] != count:
                raise _broken(f"block {block} is counted", f"{standing[block]} times, as it stands in so many tables", count)

    def _take_back(self) -> None:
        while self._abandoned:
            self._release(self._abandoned.popleft())

    def _release(self, blocks: list[int]) -> None:
        for block, times in Counter(blocks).items():
            self._require_counted([block], least=times)
        for block in blocks:
            self._counts[block] -= 1
            if self._counts[block] == 0:
                insort(self._free, block)

    def _require_known(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            if isinstance(block, bool) or not isinstance(block, int) or not 0 <= block < self.n_blocks:
                raise InputError(
                    "No block of this pool.",
                    expected=f"0 to {self.n_blocks - 1}",
                    got=repr(block),
                    todo="Pass what allocate returned.",
                )

    def _require_counted(self, blocks: list[int], least: int) -> None:
        self._require_known(blocks)
        for block in blocks:
            if self._counts[block] < least:
                raise CacheMisuse(
                    "A block that is free, or will be.",
                    expected=f"block {block} counted {least} times or more",
                    got=self._counts[block],
                    todo="Share what a table holds, and release it once for each table.",
                )


def _broken(what: str, expected: object, got: object) -> CacheMisuse:
    return CacheMisuse(
        f"The books of the block pool are wrong: {what}.",
        expected=expected,
        got=got,
        todo="Look for a table that was copied without share, or dropped without release.",
    )
