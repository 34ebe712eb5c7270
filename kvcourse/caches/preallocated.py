"""Lesson 07: a cache that never moves a row: all its memory is taken once. Knows nothing about models.

The buffer is larger than what it holds, so every reader gets a view of the rows in use, never the buffer itself.
"""

import math
from collections.abc import Sequence
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.errors import CacheMismatch, InputError
from kvcourse.huge_pages import give_back, used_matrix
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
        self._all: Tensor | None = None  # (L, 2, B, H_kv, capacity, D), where the buffers of all layers were made at once
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
        shape = B, H_kv, self._capacity, D
        # Ordinary tensors even inside torch.inference_mode(): one made there could not be written to outside.
        with torch.inference_mode(False):
            if self._binding and not self._buffers and 2 * T >= self._capacity:
                # In huge pages, which make filling it at once faster; filled slowly, it would get 2 MB for every token.
                n_layer = self._binding.n_layer
                self._all = used_matrix(2 * n_layer, math.prod(shape), like=k).view(n_layer, 2, *shape)
            if self._all is not None and self._all.shape[2:] == shape:
                keys, values = self._all[layer]
            else:
                keys, values = (torch.empty(shape, dtype=k.dtype, device=k.device) for _ in range(2))
        self._buffers[layer] = KeysValues(keys, values)
        self._made_now.append(layer)
        return self._buffers[layer]

    def append_all(self, parts: Sequence[Float[Tensor, "L 2 H_kv _ D"]]) -> None:
        """Append rows that were computed before, in every layer, one part after the other: one copy for each part.

        Commits nothing, as `append`: call `advance` or `abort`. Raises: InputError without rows; what `append` raises.
        """
        self._require_alike(parts)
        n_layer, _, H_kv, _, D = parts[0].shape
        T = sum(part.shape[3] for part in parts)
        keys, values = (rows[None, :, :1].expand(1, H_kv, T, D) for rows in parts[0][0])
        self._require_room(T)
        for layer in range(n_layer):
            self._require_fit(layer, keys, values)
            if layer not in self._buffers:
                self._allocate(layer, keys)
            self._pending[layer] = T
        at = self.length
        for part in parts:
            stop = at + part.shape[3]
            if self._all is not None:
                self._all[:, :, 0, :, at:stop].copy_(part)
            else:
                for layer, (k, v) in enumerate(part.unbind()):
                    self._buffers[layer].keys[0, :, at:stop].copy_(k)
                    self._buffers[layer].values[0, :, at:stop].copy_(v)
            at = stop

    def _require_alike(self, parts: Sequence[Tensor]) -> None:
        if not sum(part.shape[3] for part in parts):
            raise InputError("There is nothing to append.", expected="one row or more", got="none", todo="Leave the call out.")
        looks = {(*part.shape[:3], part.shape[4], part.dtype, part.device) for part in parts}
        if len(looks) > 1 or (self._binding and len(parts[0]) != self._binding.n_layer):
            layers = f" of {self._binding.n_layer} layers" if self._binding else ""
            raise CacheMismatch("Rows that do not fit together.", expected=f"parts{layers}, all alike",
                                got=f"L, 2, H_kv, D, dtype, device {sorted(looks, key=str)}",
                                todo="Take them from caches of one model.")  # fmt: skip

    def release(self) -> None:
        """Empty it, and give its memory to the next cache that is made. Only for whoever knows that nobody reads its rows."""
        self.reset()
        self._buffers, self._views = {}, {}
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

    def abort(self) -> None:
        super().abort()
        for layer in self._made_now:
            del self._buffers[layer]
        if self._made_now:
            self._all = None
        self._made_now.clear()
        self._views.clear()

    def _copy_rows(self, other: Self) -> None:
        other._buffers, other._made_now, other._views, other._all = {}, [], {}, None
        for layer in self._buffers:
            used = self.read(layer, 0, self.length)
            copy = other._allocate(layer, used.keys)
            for target, source in zip(copy, used, strict=True):
                target[:, :, : self.length] = source
            count("bytes_copied", used.keys.nbytes + used.values.nbytes)
        other._made_now.clear()  # they stay, whatever becomes of the fork's first pass
