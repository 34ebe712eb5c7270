"""Lesson 06: the cache as one would first write it: concatenate. Knows nothing about models, and nothing about capacity.

Each new row moves every old one: after n tokens, one by one, n·(n - 1)/2 rows have been copied. Lesson 07 stops that.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.meter import count


class GrowingCache(FullCache):
    """Keeps K and V of every token, in tensors that are made anew, one row longer, at every step.

    Cost of an append with n rows held: copies 2·B·H_kv·n·D elements a layer (counted), writes 2·B·H_kv·T·D.
    """

    def __init__(self, starts: Sequence[int] | Tensor | None = None) -> None:
        super().__init__(starts)
        self._stored: dict[int, KeysValues] = {}

    @property
    def nbytes(self) -> int:
        return sum(tensor[:, :, : self.length].nbytes for rows in self._stored.values() for tensor in rows)

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        if self.length == 0:
            # Copies of the new rows: the caller's tensors are slices of something larger, which would stay alive.
            rows = KeysValues(k.clone(memory_format=torch.contiguous_format), v.clone(memory_format=torch.contiguous_format))
        else:
            old = self.read(layer, 0, self.length)
            count("bytes_copied", old.keys.nbytes + old.values.nbytes)
            rows = KeysValues(torch.cat((old.keys, k), dim=2), torch.cat((old.values, v), dim=2))  # (B, H_kv, length + T, D)
        self._stored[layer] = rows
        return rows

    def _rows(self, layer: int) -> KeysValues | None:
        return self._stored.get(layer)

    def _forget_after(self, length: int) -> None:
        if length == 0:
            self._stored.clear()
        for layer, rows in self._stored.items():
            if rows.keys.shape[2] > length:  # a view would keep the memory of what is dropped
                kept = KeysValues(*(tensor[:, :, :length].clone(memory_format=torch.contiguous_format) for tensor in rows))
                count("bytes_copied", kept.keys.nbytes + kept.values.nbytes)
                self._stored[layer] = kept

    def _copy_rows(self, other: Self) -> None:
        # No row is ever written in place here, so a fork may share the tensors: each side's next append makes its own.
        other._stored = dict(self._stored)
