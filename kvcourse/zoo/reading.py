"""Lesson 14: caches whose rows are right, and are read wrongly: masks, positions, padding, precision. Knows nothing about how
they are told apart.

Each is one of our own caches with one method changed, and each of these changes has been shipped by somebody.
"""

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from kvcourse.attention import causal_mask
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache


class SquareMask(PreallocatedCache):
    """Several tokens at once see each other and nothing of the past: the mask was made for T keys, not for length + T."""

    def plan(self, T: int) -> Plan:
        plan = super().plan(T)
        if plan.mask is None:
            return plan
        return replace(plan, mask=plan.mask & (torch.arange(self.length + T) >= self.length))


class MaskAtTheLeft(GrowingCache):
    """The triangle sits at the left end of the wide rectangle, where the oldest keys are."""

    def plan(self, T: int) -> Plan:
        plan = super().plan(T)
        if plan.mask is None or self.starts is not None:
            return plan
        return replace(plan, mask=causal_mask(torch.arange(T), torch.arange(self.length + T)))


class PositionsRestart(GrowingCache):
    """Every call begins at position 0."""

    def plan(self, T: int) -> Plan:
        plan = super().plan(T)
        start = plan.query_positions[..., :1]
        return replace(plan, query_positions=plan.query_positions - start.clamp(min=0))


class PaddingLeaks(PreallocatedCache):
    """Rows that are padded on the left attend to their padding."""

    def plan(self, T: int) -> Plan:
        plan = super().plan(T)
        if self.starts is None:
            return plan
        return replace(plan, mask=causal_mask(plan.query_positions, plan.key_positions)[:, None])


class CastRows(GrowingCache):
    """Rows are stored in half the precision that they were computed in."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        lower = torch.float32 if k.dtype == torch.float64 else torch.bfloat16
        return super().append(layer, k.to(lower).to(k.dtype), v.to(lower).to(v.dtype))


class ReadsOneBefore(PreallocatedCache):
    """What is read out, to be written to a file or put into another cache, is one slot off."""

    def read(self, layer: int, start: int, stop: int) -> KeysValues:
        super().read(layer, start, stop)  # refuses what is not held
        slots = (torch.arange(start, stop) - 1).clamp(min=0)
        return KeysValues(*(rows[:, :, slots] for rows in super().read(layer, 0, self.length)))

    def _copy_rows(self, other: Self) -> None:
        other._buffers = {layer: KeysValues(*(t.clone() for t in rows)) for layer, rows in self._buffers.items()}
        other._made_now, other._views = [], {}


class NeverUsed(GrowingCache):
    """Rows are put together, and thrown away when the pass ends: whoever asks has to compute everything again."""

    def advance(self, T: int) -> None:
        self.abort()
