"""Lesson 07: a cache that never moves a row: all its memory is taken once. Knows nothing about models.

The buffer is larger than what it holds, so every reader gets a view of the rows in use, never the buffer itself.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.errors import InputError
from kvcourse.meter import count


class PreallocatedCache(FullCache):
    """Keeps K and V of every token in buffers of `capacity` (tokens), made when a layer appends for the first time.

    Cost of an append: writes 2·B·H_kv·T·D elements a layer, copies none. nbytes: the whole buffers, used or not.
    """

    def __init__(self, capacity: int, starts: Sequence[int] | Tensor | None = None) -> None:
        super().__init__(starts)
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise InputError(
                "A cache needs room.",
                expected="capacity of 1 token or more",
                got=capacity,
                todo="Pass the most tokens it will hold.",
            )
        self._capacity = capacity
        self._buffers: dict[int, KeysValues] = {}
        self._made_now: list[int] = []  # layers whose buffers the present pass has made
        self._viewed = (0, 0)  # the slots that _views are of: from and up to
        self._views: dict[int, tuple[Tensor, Tensor, KeysValues]] = {}  # layer -> new slots of K, of V, and all rows so far

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for rows in self._buffers.values() for buffer in rows)

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        if layer not in self._buffers:
            self._allocate(layer, k)
        slots = self.length, self.length + k.shape[2]
        if self._viewed != slots or layer not in self._views:
            self._view(*slots)
        new_keys, new_values, rows = self._views[layer]
        new_keys.copy_(k)
        new_values.copy_(v)
        return rows

    def _view(self, start: int, stop: int) -> None:
        """Make this pass's views for every layer at once. In a row they cost a fraction of what each costs between two large
        products, after which nothing is left in the processor's caches.
        """
        T = stop - start
        self._viewed = start, stop
        self._views = {
            layer: (
                keys.narrow(2, start, T),
                values.narrow(2, start, T),
                KeysValues(keys.narrow(2, 0, stop), values.narrow(2, 0, stop)),
            )
            for layer, (keys, values) in self._buffers.items()
        }

    def _allocate(self, layer: int, k: Tensor) -> KeysValues:
        B, H_kv, _, D = k.shape
        # Ordinary tensors even inside torch.inference_mode(): one made there could not be written to outside.
        with torch.inference_mode(False):
            keys, values = (torch.empty(B, H_kv, self._capacity, D, dtype=k.dtype, device=k.device) for _ in range(2))
        self._buffers[layer] = KeysValues(keys, values)
        self._made_now.append(layer)
        return self._buffers[layer]

    def _rows(self, layer: int) -> KeysValues | None:
        return self._buffers.get(layer)

    def _forget_after(self, length: int) -> None:
        """Nothing to do: rows beyond the length are never read, and the next append overwrites them."""

    def advance(self, T: int) -> None:
        super().advance(T)
        self._made_now.clear()

    def abort(self) -> None:
        super().abort()
        for layer in self._made_now:
            del self._buffers[layer]
        self._made_now.clear()
        self._views.clear()

    def _copy_rows(self, other: Self) -> None:
        other._buffers, other._made_now, other._views = {}, [], {}
        for layer in self._buffers:
            used = self.read(layer, 0, self.length)
            copy = other._allocate(layer, used.keys)
            for target, source in zip(copy, used, strict=True):
                target[:, :, : self.length] = source
            count("bytes_copied", used.keys.nbytes + used.values.nbytes)
        other._made_now.clear()  # they stay, whatever becomes of the fork's first pass
