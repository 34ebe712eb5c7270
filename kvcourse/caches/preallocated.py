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
from kvcourse.huge_pages import empty_matrix, give_back, used_matrix
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
        self._waiting: list[Tensor] = []  # K or V buffers, (B, H_kv, capacity, D) each, for the layers to come of this pass
        self._all: Tensor | None = None  # the memory of all layers, where it was taken at once
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
        if self._viewed != slots:
            self._viewed = slots
            self._views = {each: self._view(each) for each in self._buffers}
        elif layer not in self._views:
            self._views[layer] = self._view(layer)
        new_keys, new_values, rows = self._views[layer]
        new_keys.copy_(k)
        new_values.copy_(v)
        return rows

    def _view(self, layer: int) -> tuple[Tensor, Tensor, KeysValues]:
        """This pass's views of a layer. Made in a row, for every layer at once, they cost a fraction of what each costs between
        two large products, after which nothing is left in the processor's caches.
        """
        start, stop = self._viewed
        keys, values = self._buffers[layer]
        return (
            keys.narrow(2, start, stop - start),
            values.narrow(2, start, stop - start),
            KeysValues(keys.narrow(2, 0, stop), values.narrow(2, 0, stop)),
        )

    def _allocate(self, layer: int, k: Tensor) -> KeysValues:
        B, H_kv, T, D = k.shape
        shape = torch.Size((B, H_kv, self._capacity, D))
        if not self._waiting or self._waiting[0].shape != shape:
            self._waiting = list(self._memory(k, 2 * T >= self._capacity).view(-1, *shape))
        self._buffers[layer] = KeysValues(self._waiting.pop(0), self._waiting.pop(0))
        self._made_now.append(layer)
        return self._buffers[layer]

    def _memory(self, k: Tensor, is_filled_at_once: bool) -> Tensor:
        """For this layer's K and V, or for every layer's: huge pages make that much faster, and a cache that is filled token
        by token would get 2 MB for each of them.
        """
        columns = k.shape[0] * k.shape[1] * self._capacity * k.shape[3]
        # Ordinary tensors even inside torch.inference_mode(): one made there could not be written to outside.
        with torch.inference_mode(False):
            if self._binding is None or not is_filled_at_once:
                return empty_matrix(2, columns, like=k)
            self._all = used_matrix(2 * self._binding.n_layer, columns, like=k)
            return self._all

    def release(self) -> None:
        """Empty it, and give its memory to the next cache that is made. Only for whoever knows that nobody reads its rows."""
        self.reset()
        self._buffers, self._views, self._waiting = {}, {}, []
        if self._all is not None:
            give_back(self._all)
            self._all = None

    def _rows(self, layer: int) -> KeysValues | None:
        return self._buffers.get(layer)

    def _forget_after(self, length: int) -> None:
        """Nothing to do: rows beyond the length are never read, and the next append overwrites them."""

    def advance(self, T: int) -> None:
        super().advance(T)
        self._made_now.clear()
        self._waiting.clear()

    def abort(self) -> None:
        super().abort()
        for layer in self._made_now:
            del self._buffers[layer]
        if self._made_now:
            self._all = None
        self._made_now.clear()
        self._waiting.clear()
        self._views.clear()

    def _copy_rows(self, other: Self) -> None:
        other._buffers, other._made_now, other._views, other._waiting, other._all = {}, [], {}, [], None
        for layer in self._buffers:
            used = self.read(layer, 0, self.length)
            copy = other._allocate(layer, used.keys)
            for target, source in zip(copy, used, strict=True):
                target[:, :, : self.length] = source
            count("bytes_copied", used.keys.nbytes + used.values.nbytes)
        other._made_now.clear()  # they stay, whatever becomes of the fork's first pass
