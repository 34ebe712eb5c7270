"""Lesson 09: a cache in blocks: many sequences in one pool, each with a table that says which blocks are its own, in order.

    slot s of a row is in block table[s // P], at offset s % P

A fork copies the table and no row. A block that stands in two tables is copied by whoever writes into it first. Knows nothing
about models, and leaves the counting of blocks to `block_pool`.
Source: Kwon et al. 2023 (PagedAttention), sections 4.1 to 4.4; our P = their block size B.
"""

import weakref
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.caches.paged_pool import PagedPool
from kvcourse.errors import CacheMismatch, InputError
from kvcourse.meter import count

__all__ = ["PagedCache", "PagedPool"]


class _Undo(NamedTuple):
    """What a pass found, for an abort to put back."""

    n_blocks: int  # per row
    table: Tensor | None
    run_blocks: int
    replaced: list[tuple[int, int]]  # row, shared block: where the row has a copy now


class _Places(NamedTuple):
    """Where a pass writes and reads: in every layer the same slots."""

    T: int
    views: list[tuple[Tensor, Tensor, KeysValues]]  # by layer: new slots of K, of V, and all rows; none if rows have to move
    slots: Tensor | None = None  # (B·T,): where the new rows go, then, in the strip of N·P slots
    blocks: Tensor | None = None  # (B·n,): the whole table


class PagedCache(FullCache):
    """Keeps K and V of every token in blocks of a pool, taken when they are needed.

    tables: each row's blocks, in order; empty before the first pass. Read it, and leave it as it is.

    Cost of an append: writes 2·B·H_kv·T·D elements a layer. Where one row's blocks follow each other in the pool, nothing is
    copied; otherwise all blocks of the table are gathered (counted). A fork copies nothing, and the first pass after it the
    rows of one block in each layer, if that block is not full.
    nbytes: the blocks of its tables, whether others share them or not; `pool.used_bytes` counts each once.
    """

    def __init__(self, pool: PagedPool, starts: Sequence[int] | Tensor | None = None) -> None:
        super().__init__(starts)
        if not isinstance(pool, PagedPool):
            raise InputError("Blocks come from a pool.", expected="a PagedPool", got=repr(pool),
                             todo="Make one: PagedPool(model, n_blocks).")  # fmt: skip
        self.pool = pool
        self._own_tables([])

    def _own_tables(self, tables: list[list[int]]) -> None:
        self.tables = tables
        self._replaced: list[int] = []  # shared blocks that the present pass has copied: kept until it commits
        self._index: Tensor | None = None  # the tables as a tensor (B, n), never written in place: forks share it
        self._run_blocks = 0  # how many of an only row's first blocks follow each other in the pool
        self._undo: _Undo | None = None
        self._places: _Places | None = None
        # Nobody resets a cache that is merely dropped.
        weakref.finalize(self, _give_back, self.pool, tables, self._replaced).atexit = False

    # What it can hold.

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.tables)) * self.pool.block_bytes

    @property
    def capacity(self) -> int:
        """Tokens per row that the pool could give now: another cache may have them first. Before the batch size is known, as
        for a batch of one.
        """
        free = self.pool.blocks.n_free - len(self._shared_rows())
        if free < 0:  # not one row more: the last block would have to be copied
            return self.length
        return self.pool.block_tokens * (self._blocks_per_row + free // self._batch_size)

    @property
    def _batch_size(self) -> int:
        if self._binding is not None:
            return self._binding.batch_size
        return len(self.tables) or (1 if self.starts is None else len(self.starts))

    @property
    def _blocks_per_row(self) -> int:
        return len(self.tables[0]) if self.tables else 0

    def _shared_rows(self) -> list[int]:
        """The rows whose next token goes into a block that stands in another table, too."""
        last, offset = divmod(self.length, self.pool.block_tokens)
        if not offset:
            return []
        return [row for row, table in enumerate(self.tables) if self.pool.blocks.count(table[last]) > 1]

    def _require_room(self, T: int) -> None:
        if self._places is None or self._places.T != T:
            more = self._blocks_for(self.length + T) - self._blocks_per_row
            self.pool.blocks.require(max(0, more) * self._batch_size + len(self._shared_rows()))

    def _blocks_for(self, length: int) -> int:
        return -(-length // self.pool.block_tokens)

    def bind(self, model: object, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        if self._binding is None:
            self.pool.require(model.config, dtype, device)  # type: ignore[attr-defined]
        super().bind(model, batch_size, dtype, device)

    def _require_fit(self, layer: int, k: Tensor, v: Tensor) -> None:
        super()._require_fit(layer, k, v)
        pool = self.pool
        want = pool.n_kv_head, pool.head_size, pool.dtype, pool.device
        got = k.shape[1], k.shape[3], k.dtype, k.device
        if want != got or not 0 <= layer < pool.n_layer:
            raise CacheMismatch(
                "Rows that the pool has no place for.",
                expected=f"H_kv, D, dtype, device {want} in layers 0 to {pool.n_layer - 1}",
                got=f"{got} in layer {layer}",
                todo="Make a pool for this model: PagedPool(model, n_blocks).",
            )

    # One pass.

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        B, H_kv, T, D = k.shape
        places = self._places
        if places is None or places.T != T:
            self._reserve(B, T)
            places = self._places = self._find_places(T)
        if places.views:
            new_keys, new_values, rows = places.views[layer]
            new_keys.copy_(k)
            new_values.copy_(v)
            return rows
        assert places.slots is not None and places.blocks is not None
        for strip, new in zip(self.pool.strips[layer], (k, v), strict=True):
            strip[0].transpose(0, 1).index_copy_(0, places.slots, new.transpose(1, 2).reshape(B * T, H_kv, D))
        return self._gather(layer, places.blocks, 0, self.length + T)

    def _reserve(self, B: int, T: int) -> None:
        """Give every row the blocks that T more tokens need, and a copy of its last one where others share that."""
        pool = self.pool.blocks
        n, shared = self._blocks_per_row, self._shared_rows()
        more = max(0, self._blocks_for(self.length + T) - n)
        pool.require(more * B + len(shared))
        self._undo = self._undo or _Undo(n, self._index, self._run_blocks, [])
        if not self.tables:
            self.tables.extend([] for _ in range(B))
        if shared:
            self._copy_last_block(shared)
        if more:
            for table in self.tables:
                table.extend(pool.allocate(more, after=table[-1] if table else None))
            self._reindex(n)

    def _copy_last_block(self, rows: list[int]) -> None:
        """Copy on write. The shared blocks stay counted until the pass commits: an abort needs them."""
        assert self._undo is not None
        last, offset = divmod(self.length, self.pool.block_tokens)
        shared = [self.tables[row][last] for row in rows]
        copies = self.pool.blocks.allocate(len(rows))
        for row, block, copy in zip(rows, shared, copies, strict=True):
            self._undo.replaced.append((row, block))
            self._replaced.append(block)
            self.tables[row][last] = copy
        self.pool.copy_rows(shared, copies, offset)
        self._reindex(last)

    def _reindex(self, start: int) -> None:
        """Follow the tables from column `start` on: what came before is not looked at, however long it is."""
        new = torch.tensor([table[start:] for table in self.tables], device=self.pool.device)  # (B, n - start)
        self._index = new if self._index is None or start == 0 else torch.cat((self._index[:, :start], new), dim=1)
        self._run_blocks = min(self._run_blocks, start)
        if len(self.tables) == 1 and self._run_blocks == start:
            table = self.tables[0]
            for n in range(start, len(table)):
                if n and table[n] != table[n - 1] + 1:
                    break
                self._run_blocks = n + 1

    def _find_places(self, T: int) -> _Places:
        P, start, stop = self.pool.block_tokens, self.length, self.length + T
        if self._run_blocks * P >= stop:
            first = self.tables[0][0] * P
            # For all layers in a row: see PreallocatedCache._view.
            views = [
                (
                    keys.narrow(2, first + start, T),
                    values.narrow(2, first + start, T),
                    KeysValues(keys.narrow(2, first, stop), values.narrow(2, first, stop)),
                )
                for keys, values in self.pool.strips
            ]
            return _Places(T, views)
        assert self._index is not None
        new = torch.arange(start, stop, device=self.pool.device)  # (T,)
        slots = self._index[:, new // P] * P + new % P  # (B, T)
        return _Places(T, [], slots.flatten(), self._index.flatten())

    def _gather(self, layer: int, blocks: Tensor, start: int, stop: int) -> KeysValues:
        """Rows start to stop - 1 of the blocks (B·n,), side by side."""
        pool, B = self.pool, len(self.tables)
        n_slots = blocks.numel() // B * pool.block_tokens  # of each row
        found = [t.index_select(0, blocks) for t in (pool.keys[layer], pool.values[layer])]  # (B·n, P, H_kv, D)
        count("bytes_copied", sum(t.nbytes for t in found))
        rows = (t.view(B, n_slots, pool.n_kv_head, pool.head_size)[:, start:stop].transpose(1, 2) for t in found)
        return KeysValues(*rows)  # (B, H_kv, S, D)

    def _commit(self, T: int) -> None:
        self._settle()
        self._cut(self._blocks_for(self.length + T))  # no more than what a layer first asked for

    def _settle(self) -> None:
        """From here on there is no way back."""
        self.pool.blocks.release(self._replaced)
        self._replaced.clear()
        self._undo = self._places = None

    def _drop_pending(self) -> None:
        undo, self._undo, self._places = self._undo, None, None
        if undo is None:
            return
        last = self.length // self.pool.block_tokens
        given = [block for table in self.tables for block in table[undo.n_blocks :]]
        for table in self.tables:
            del table[undo.n_blocks :]
        for row, block in undo.replaced:
            given.append(self.tables[row][last])
            self.tables[row][last] = block
        self._replaced.clear()
        self._index, self._run_blocks = undo.table, undo.run_blocks
        if not undo.n_blocks:
            self.tables.clear()
        self.pool.blocks.release(given)

    # Between passes.

    def _cut(self, n: int) -> None:
        """Keep the first n blocks of each row."""
        given = [block for table in self.tables for block in table[n:]]
        if not given:
            return
        for table in self.tables:
            del table[n:]
        self._run_blocks = min(self._run_blocks, n)
        self._index = None if n == 0 or self._index is None else self._index[:, :n]
        if n == 0:
            self.tables.clear()
        self.pool.blocks.release(given)

    def _forget_after(self, length: int) -> None:
        self._drop_pending()
        self._cut(self._blocks_for(length))

    def read(self, layer: int, start: int, stop: int) -> KeysValues:
        """Committed rows of slots start to stop - 1: a view where their blocks follow each other, else gathered (counted)."""
        self._require_held(layer, start, stop)
        P = self.pool.block_tokens
        first, n = start // P, self._blocks_for(stop)
        if len(self.tables) == 1 and n <= self._run_blocks:
            keys, values = self.pool.strips[layer]
            slot = self.tables[0][0] * P + start
            return KeysValues(keys.narrow(2, slot, stop - start), values.narrow(2, slot, stop - start))
        assert self._index is not None
        return self._gather(layer, self._index[:, first:n].flatten(), start - first * P, stop - first * P)

    def _rows(self, layer: int) -> KeysValues | None:
        return self.read(layer, 0, self.length) if self._shape_of(layer) is not None else None

    def _shape_of(self, layer: int) -> tuple[int, int, int, torch.dtype, torch.device] | None:
        pool = self.pool
        if not self.tables or not 0 <= layer < pool.n_layer:
            return None
        return len(self.tables), pool.n_kv_head, pool.head_size, pool.dtype, pool.device

    def _copy_rows(self, other: Self) -> None:
        self._drop_pending()  # what a pass reserved that broke off before its first row
        self.pool.blocks.share(block for table in self.tables for block in table)
        other._own_tables([list(table) for table in self.tables])
        other._index, other._run_blocks = self._index, self._run_blocks

    def restore(self, saved: Self) -> None:
        """Be what `saved`, a fork of this cache, is. `saved` is used up, and gives its blocks away."""
        self._drop_pending()
        self.pool.blocks.release(block for table in self.tables for block in table)
        self.tables[:] = saved.tables
        mine = {name: self.__dict__[name] for name in ("tables", "_replaced")}  # the lists that our finalizer knows
        self.__dict__.update(saved.__dict__)
        self.__dict__.update(mine)
        saved.tables.clear()
        saved.length = 0


def _give_back(pool: PagedPool, tables: list[list[int]], replaced: list[int]) -> None:
    pool.blocks.abandon([*(block for table in tables for block in table), *replaced])
