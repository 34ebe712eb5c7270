"""Paged caches and block pools with one fault each. `caught_by` names the claim of tests/paged_proof.py that it breaks."""

import torch

from kvcourse.caches.block_pool import BlockPool
from kvcourse.caches.paged import PagedCache, PagedPool


def _with_blocks(blocks: type[BlockPool]) -> type[PagedPool]:
    class Pool(PagedPool):
        def __init__(self, model, n_blocks, block_tokens=16):
            super().__init__(model, n_blocks, block_tokens)
            self.blocks = blocks(n_blocks)

    return Pool


class NoCopyOnWrite(PagedCache):
    """A fork writes into the block that its parent reads."""

    caught_by = "forks write into copies"

    def _shared_rows(self):
        return []


class OnlyTheFirstRowIsCopied(PagedCache):
    """Copy on write was tried with one sequence."""

    caught_by = "forks write into copies"

    def _shared_rows(self):
        return super()._shared_rows()[:1]


class ForkUsesItsParentsTable(PagedCache):
    """One list for two caches: whoever grows makes the other grow."""

    caught_by = "forks write into copies"

    def _copy_rows(self, other):
        super()._copy_rows(other)
        other.tables = self.tables


class ForkIsNotCounted(PagedCache):
    """exo PR 991: handed out by reference, and nobody knows that there are two."""

    caught_by = "forks share every block and are charged for what they copy"

    def _copy_rows(self, other):
        super()._copy_rows(other)
        self.pool.blocks.release(block for table in self.tables for block in table)


class CopyKeepsTheOriginal(PagedCache):
    """The copy is made, and the shared block never given back."""

    caught_by = "forks share every block and are charged for what they copy"

    def _settle(self):
        self._replaced.clear()
        super()._settle()


class WrittenAtTheWrongOffset(PagedCache):
    """The offset counts from the first new row, not from the first row of the block."""

    caught_by = "caches that take turns equal one pass"

    def _find_places(self, T):
        places = super()._find_places(T)
        if places.slots is None:
            return places
        P = self.pool.block_tokens
        offsets = torch.arange(self.length, self.length + T) % P
        wrong = torch.arange(T) % P
        return places._replace(slots=(places.slots.view(-1, T) - offsets + wrong).flatten())


class AllInTheFirstNewBlock(PagedCache):
    """A pass that crosses the border of a block goes on behind it, into whatever lies next in memory."""

    caught_by = "caches that take turns equal one pass"

    def _find_places(self, T):
        places = super()._find_places(T)
        if places.slots is None:
            return places
        first = places.slots.view(-1, T)[:, :1]
        return places._replace(
            slots=((first + torch.arange(T)) % (self.pool.blocks.n_blocks * self.pool.block_tokens)).flatten()
        )


class GatheredThroughAnOldTable(PagedCache):
    """vLLM's block tables on the device: copied once, and not when a block is replaced."""

    caught_by = "forks write into copies"

    def _copy_last_block(self, rows):
        before, run = self._index, self._run_blocks
        super()._copy_last_block(rows)
        self._index, self._run_blocks = before, run


class TakenForARun(PagedCache):
    """Consecutive once, consecutive for ever."""

    caught_by = "caches that take turns equal one pass"

    def _reindex(self, start):
        super()._reindex(start)
        if len(self.tables) == 1:
            self._run_blocks = len(self.tables[0])


class BlocksOfOneMore(PagedCache):
    """The number of blocks is worked out with another block size than the slots are."""

    caught_by = "ragged rows in blocks equal each row alone"

    def _blocks_for(self, length):
        return -(-length // (self.pool.block_tokens + 1))


class OneBlockTooMany(PagedCache):
    """length // P + 1: right but where the last block is full."""

    caught_by = "truncation gives back whole blocks and leaves shared rows to others"

    def _blocks_for(self, length):
        return length // self.pool.block_tokens + 1 if length else 0


class AbortLeaks(PagedCache):
    """The table is put back, and the blocks are nobody's."""

    caught_by = "a pass that fails gives back what it took"

    def _drop_pending(self):
        release, self.pool.blocks.release = self.pool.blocks.release, lambda blocks: None
        try:
            super()._drop_pending()
        finally:
            self.pool.blocks.release = release


class AbortKeepsTheCopy(PagedCache):
    """The new blocks go back, the copy of the shared one stays in the table."""

    caught_by = "a pass that fails gives back what it took"

    def _drop_pending(self):
        undo = self._undo
        if undo is not None:
            self.pool.blocks.release(self._replaced)
            undo.replaced.clear()
        super()._drop_pending()


class OriginalIsGivenBackTooEarly(PagedCache):
    """The shared block is released when it has been copied, and not there any more when the pass fails."""

    caught_by = "a pass may fail after another cache has let go"

    def _copy_last_block(self, rows):
        super()._copy_last_block(rows)
        self.pool.blocks.release(self._replaced)
        self._replaced.clear()

    def _drop_pending(self):
        if self._undo is not None and all(self.pool.blocks.count(block) for _, block in self._undo.replaced):
            self.pool.blocks.share([block for _, block in self._undo.replaced])
        super()._drop_pending()


class PartlyUsedBlockGivenBack(PagedCache):
    """Truncation rounds down: the rows that were kept lose their block."""

    caught_by = "truncation gives back whole blocks and leaves shared rows to others"

    def _forget_after(self, length):
        self._drop_pending()
        self._cut(length // self.pool.block_tokens)


class TruncationKeepsBlocks(PagedCache):
    """The length is cut, the memory is not."""

    caught_by = "truncation gives back whole blocks and leaves shared rows to others"

    def _forget_after(self, length):
        if length == 0:
            super()._forget_after(length)


class GivenBackTwice(PagedCache):
    """Once by truncation, and once more by the commit."""

    caught_by = "truncation gives back whole blocks and leaves shared rows to others"

    def _cut(self, n):
        given = [block for table in self.tables for block in table[n:]]
        super()._cut(n)
        self.pool.blocks.release(block for block in given if self.pool.blocks.count(block))


class DroppedWithoutGivingBack(PagedCache):
    """Only reset releases: a cache that is collected takes its blocks with it."""

    caught_by = "what nobody holds is free again"

    def _own_tables(self, tables):
        super()._own_tables([])
        self.tables = tables


class CapacityForgetsTheBatch(PagedCache):
    """The free blocks, as if one row could have them all."""

    caught_by = "its capacity is what the pool can give"

    @property
    def capacity(self):
        free = self.pool.blocks.n_free - len(self._shared_rows())
        return self.length if free < 0 else self.pool.block_tokens * (self._blocks_per_row + free)


class CapacityForgetsTheCopy(PagedCache):
    """Copy on write needs a block, too."""

    caught_by = "its capacity is what the pool can give"

    @property
    def capacity(self):
        return self.pool.block_tokens * (self._blocks_per_row + self.pool.blocks.n_free // self._batch_size)


class RoomIsForOneRow(PagedCache):
    """The first row takes its block before the second finds none."""

    caught_by = "blocks that another takes in between are missed at once"

    def _require_room(self, T):
        pass

    def _reserve(self, B, T):
        require, self.pool.blocks.require = self.pool.blocks.require, lambda n: require(min(n, 1))
        try:
            super()._reserve(B, T)
        finally:
            self.pool.blocks.require = require


class _FreesWithoutCounting(BlockPool):
    def _release(self, blocks):
        for block in blocks:
            if self._counts[block]:
                self._counts[block] = 0
                self._free.append(block)
        self._free.sort()


class FreedWithoutCounting(PagedCache):
    """The first who lets go of a shared block frees it for all."""

    caught_by, pool = "forks write into copies", _with_blocks(_FreesWithoutCounting)


class _TakesWhatThereIs(BlockPool):
    def require(self, n):
        pass


class AllocatesFewerThanAsked(PagedCache):
    """An exhausted pool hands out what it has, and says nothing."""

    caught_by, pool = "an exhausted pool says what is missing and changes nothing", _with_blocks(_TakesWhatThereIs)


class _CopiesWholeBlocks(PagedPool):
    def copy_rows(self, sources, targets, n_rows):
        super().copy_rows(sources, targets, self.block_tokens)


class CopiesRowsNobodyUses(PagedCache):
    """A copy of the block, where a copy of its rows in use would do."""

    caught_by, pool = "forks share every block and are charged for what they copy", _CopiesWholeBlocks


class _CopiesKeysOnly(PagedPool):
    def copy_rows(self, sources, targets, n_rows):
        values, self.values = self.values, []
        super().copy_rows(sources, targets, n_rows)
        self.values = values


class ValuesAreNotCopied(PagedCache):
    """The copy has the keys of the shared block, and somebody's values."""

    caught_by, pool = "forks write into copies", _CopiesKeysOnly


FAULTS = [kind for kind in list(globals().values()) if isinstance(kind, type) and hasattr(kind, "caught_by")]
