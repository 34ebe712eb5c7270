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

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for rows in self._buffers.values() for buffer in rows)

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        keys, values = self._buffers.get(layer) or self._allocate(layer, k)
        T = k.shape[2]
        keys.narrow(2, self.length, T).copy_(k)
        values.narrow(2, self.length, T).copy_(v)
        return KeysValues(keys.narrow(2, 0, self.length + T), values.narrow(2, 0, self.length + T))

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

    def _copy_rows(self, other: Self) -> None:
        other._buffers, other._made_now = {}, []
        for layer in self._buffers:
            used = self.read(layer, 0, self.length)
            copy = other._allocate(layer, used.keys)
            for target, source in zip(copy, used, strict=True):
                target[:, :, : self.length] = source
            count("bytes_copied", used.keys.nbytes + used.values.nbytes)
        other._made_now.clear()  # they stay, whatever becomes of the fork's first pass
