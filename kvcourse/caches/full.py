"""Lesson 06: what caches that keep every row have in common: a row's slot is its place in the batch's text, and stays so.

Knows nothing about where the rows are: each kind says that.
"""

from abc import abstractmethod

import torch

from kvcourse.attention import causal_mask
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.bound import BoundCache, shape_of


class FullCache(BoundCache):
    """A cache that keeps every row. Each kind brings `_write`, `_rows`, `_forget_after` and `_copy_rows`."""

    @abstractmethod
    def _rows(self, layer: int) -> KeysValues | None:
        """The stored tensors of a layer, (B, H_kv, at least length, D), or None before its first row."""

    @property
    def held(self) -> int:
        return self.length

    def plan(self, T: int) -> Plan:
        """Positions and mask for the next T tokens. Changes nothing.

        Raises: CacheFull if length + T > capacity (tokens).
        """
        self._require_tokens(T)
        device = self._binding.device if self._binding else None
        slots = torch.arange(self.length + T, device=device)  # (S,)
        if self.starts is None:
            queries = slots[self.length :]  # (T,)
            # One new token is the youngest: it may look at everything, so it needs no mask.
            return Plan(queries, slots, causal_mask(queries, slots) if T > 1 else None)
        positions = slots - self.starts.to(slots.device)[:, None]  # (B, S)
        queries = positions[:, self.length :]  # (B, T)
        mask = causal_mask(queries, positions) & (positions >= 0)[:, None, :]  # (B, T, S)
        # A padding query that sees nothing would be NaN, and NaN spreads even through masked keys: let it see itself.
        mask |= slots[self.length :, None] == slots
        return Plan(queries, positions, mask[:, None], padding=int((queries < 0).sum()))

    def read(self, layer: int, start: int, stop: int) -> KeysValues:
        """Committed rows of slots start to stop - 1, as views: copy what you keep."""
        self._require_held(layer, start, stop)
        rows = self._rows(layer)
        assert rows is not None
        return KeysValues(rows.keys[:, :, start:stop], rows.values[:, :, start:stop])

    def _shape_of(self, layer: int) -> tuple[int, int, int, torch.dtype, torch.device] | None:
        return shape_of(self._rows(layer))

    def _drop_pending(self) -> None:
        self._forget_after(self.length)
