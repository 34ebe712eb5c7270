"""Lesson 14: caches that keep the wrong rows, or the right ones for too long: after a reset, a cut, a fork, past a window.

Knows nothing about how they are told apart.
"""

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.full import FullCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache


class ResetKeepsLength(PreallocatedCache):
    """The rows are given up, and the counter stays."""

    def reset(self) -> None:
        length = self.length
        super().reset()
        self.length = length


class ZeroKeepsAll(PreallocatedCache):
    """truncate(0) is taken for "no limit"."""

    def truncate(self, length: int) -> None:
        super().truncate(length or self.length)


class ForkShares(PreallocatedCache):
    """A fork has a length of its own, and its parent's rows."""

    def _copy_rows(self, other: Self) -> None:
        other._buffers, other._views, other._made_now = dict(self._buffers), {}, []


class NoCheck(PreallocatedCache):
    """Nobody looks whether there is room, so PyTorch finds out, in its own words."""

    def _require_room(self, T: int) -> None:
        pass


class GrowsByResize(FullCache):
    """One tensor (L, 2, B, H_kv, room, D) for all layers, resized when it is full.

    The numbers stay where they are in memory, so that each row lands in another layer, head or slot.
    """

    def __init__(self, room_tokens: int = 4) -> None:
        super().__init__()
        self._room = room_tokens
        self._all: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self._all is None else self._all.nbytes

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        start, stop = self.length, self.length + k.shape[2]
        while self._all is None or stop > self._room:
            self._grow(k, stop)
        self._all[layer, 0, :, :, start:stop], self._all[layer, 1, :, :, start:stop] = k, v
        return KeysValues(*self._all[layer, :, :, :, :stop])

    def _grow(self, k: Tensor, stop: int) -> None:
        assert self._binding is not None
        B, H_kv, _, D = k.shape
        old = self._all
        while stop > self._room:
            self._room *= 2
        new = torch.zeros(self._binding.n_layer, 2, B, H_kv, self._room, D, dtype=k.dtype)
        if old is not None:
            new.view(-1)[: old.numel()] = old.flatten()  # what resize_ does
        self._all = new

    def _rows(self, layer: int) -> KeysValues | None:
        return None if self._all is None else KeysValues(*self._all[layer])

    def _forget_after(self, length: int) -> None:
        """Nothing to do: rows beyond the length are never read."""

    def _copy_rows(self, other: Self) -> None:
        other._all = None if self._all is None else self._all.clone()


class WindowOneShort(SlidingCache):
    """The mask says "less than" where the ring says "at most": in a pass of several tokens each sees one key too few."""

    def _sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        return super()._sees(queries, keys) & ((keys > queries - self.window + 1) | (keys == queries))


class SeesTheFuture(SlidingCache):
    """The window is kept, on both sides: tokens of one pass see those that come after them."""

    def _sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (keys >= 0) & ((keys - queries).abs() < self.window)


class WindowInTheMask(GrowingCache):
    """The mask has a window, and every row is kept all the same."""

    exact = False

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window: int = window

    def plan(self, T: int) -> Plan:
        plan = super().plan(T)
        queries, keys = plan.query_positions[..., :, None], plan.key_positions[..., None, :]
        near = keys > queries - self.window  # (T, S) or (B, T, S)
        near = near if self.starts is None else near[:, None]
        return replace(plan, mask=near if plan.mask is None else plan.mask & near)


class RoundsPerCall(QuantizedCache):
    """Whether rows are old enough to be rounded is judged within each call, so that one token at a time never is."""

    def _commit(self, T: int) -> None:
        if T > self.residual_tokens:
            super()._commit(T)
