"""Lesson 10: the K and V of stored stretches of tokens, by id. Knows nothing about texts, trees or eviction.

A stretch is one tensor (L, 2, H_kv, n, D) of its own, never a view of a longer one: freeing it frees its bytes, and nobody
who was handed a cache can write into it. K/V of one token in all layers: 2·L·H_kv·D numbers.
"""

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.meter import count

Stretch = Float[Tensor, "L 2 H_kv n D"]


def copied(cache: KVCache, n_layer: int, start: int, stop: int) -> Float[Tensor, "L 2 H_kv n D"]:
    """Rows start to stop - 1 of a cache with one row of text, in every layer. Counts the bytes it copies."""
    rows: Tensor | None = None
    for layer in range(n_layer):
        keys, values = cache.read(layer, start, stop)  # (1, H_kv, n, D) each
        if rows is None:
            with torch.inference_mode(False):  # ordinary memory, whoever is asking
                rows = torch.empty(n_layer, 2, *keys.shape[1:], dtype=keys.dtype, device=keys.device)
        rows[layer, 0], rows[layer, 1] = keys[0], values[0]
    assert rows is not None
    count("bytes_copied", rows.nbytes)
    return rows


def part(rows: Float[Tensor, "L 2 H_kv n D"], start: int, stop: int) -> Float[Tensor, "L 2 H_kv m D"]:
    """Tokens start to stop - 1 of a stretch, copied: a view would keep the whole of it alive."""
    with torch.inference_mode(False):
        return rows[:, :, :, start:stop].clone(memory_format=torch.contiguous_format)


def load(stretches: Sequence[tuple[Tensor, int]], cache: KVCache) -> None:
    """Append stretches, the first so many tokens of each, to a cache, as one pass would. Undone if anything is raised."""
    parts = [rows[:, :, :, :n] for rows, n in stretches]  # (L, 2, H_kv, n, D) each
    try:
        if isinstance(cache, PreallocatedCache):
            cache.append_all(parts)
        else:  # layer by layer, so that what is put together in passing stays in the processor's caches
            for layer, pieces in enumerate(zip(*(part.unbind() for part in parts), strict=True)):  # (2, H_kv, n, D) each
                keys, values = (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=2)).split(1)
                cache.append(layer, keys, values)
        cache.advance(sum(n for _, n in stretches))
    except BaseException:
        cache.abort()
        raise
    count("bytes_copied", sum(part.nbytes for part in parts))


class KVStore:
    """Stretches by id. `nbytes` is exact after every call."""

    def __init__(self) -> None:
        self._rows: dict[int, Tensor] = {}
        self._ids = itertools.count()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, rows: Tensor) -> int:
        """Keep a stretch, which must be nobody else's, and hand out its id."""
        name = next(self._ids)
        self._rows[name] = rows
        self.nbytes += rows.nbytes
        return name

    def rows(self, name: int) -> Tensor:
        """The stretch of an id. Read only."""
        return self._rows[name]

    def split(self, name: int, at: int, parts: tuple[Tensor, Tensor] | None = None) -> tuple[int, int]:
        """Two stretches in place of one: its first `at` tokens, and the rest. parts: both, where they were copied before."""
        rows = self._rows[name]
        front, back = parts or (part(rows, 0, at), part(rows, at, rows.shape[3]))
        first, second = next(self._ids), next(self._ids)
        del self._rows[name]  # at once, and of as many bytes
        self._rows[first], self._rows[second] = front, back
        return first, second

    def free(self, name: int) -> None:
        """Give a stretch back. Whoever holds its tensor, a lease, keeps it alive until done."""
        self.nbytes -= self._rows.pop(name).nbytes

    def check(self) -> int:
        """Bytes counted one by one."""
        return sum(rows.nbytes for rows in self._rows.values())
