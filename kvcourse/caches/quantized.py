"""Lesson 08: a cache of small integers: 8 or 4 bits a number, with one scale for each group. Knows nothing about models.

    code = round((x - low) / step)     x ≈ low + step · code     step = (high - low) / (2^bits - 1)

low and high are the least and the greatest number of a group, so no number is off by more than half a step. A key's group is
one channel over `group_tokens` tokens, since a few channels of keys are large in every token; a value's group is one token's
head. Source: Liu et al. 2024 (KIVI), section 3.2; our group_tokens = their G, residual_tokens = their R.

When a row is rounded depends on the text's length and on nothing else: after n tokens, all whole groups but the last
`residual_tokens`, whichever passes brought them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.bound import shape_of
from kvcourse.caches.full import FullCache
from kvcourse.errors import InputError
from kvcourse.meter import count


@dataclass(frozen=True)
class Packed:
    """Rounded numbers: codes, and what turns them back into numbers."""

    codes: UInt8[Tensor, "B H_kv S D_packed"]  # where bits = 4, two to a byte: neighbours, and 0 after the last of an odd D
    low: Float[Tensor, "B H_kv G_or_S D_or_1"]
    step: Float[Tensor, "B H_kv G_or_S D_or_1"]
    D: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.low.nbytes + self.step.nbytes

    def rows(self, start: int, stop: int, per_scale: int) -> "Packed":
        """Some rows of S, whole groups; one scale serves `per_scale` of them."""
        scales = slice(start // per_scale, stop // per_scale)
        return Packed(self.codes[:, :, start:stop], self.low[:, :, scales], self.step[:, :, scales], self.D)


def quantize(x: Float[Tensor, "B H_kv S D"], low: Tensor, high: Tensor, bits: int) -> Packed:
    """Codes of x between `low` and `high`, (B, H_kv, S / n, D or 1): each serves n rows."""
    low, step = low[:, :, :, None], ((high - low) / (2**bits - 1))[:, :, :, None]  # (B, H_kv, G, 1, D or 1)
    grouped = x.unflatten(2, (low.shape[2], -1))  # (B, H_kv, G, n, D)
    codes = ((grouped - low) / torch.where(step > 0, step, 1.0)).round().clamp(0, 2**bits - 1)
    codes = codes.to(torch.uint8).flatten(2, 3)  # (B, H_kv, S, D)
    if bits == 4:
        codes = F.pad(codes, (0, x.shape[3] % 2))
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return Packed(codes, low[:, :, :, 0], step[:, :, :, 0], x.shape[3])


def dequantize(packed: Packed, bits: int) -> Float[Tensor, "B H_kv S D"]:
    """The numbers that the codes stand for."""
    codes = packed.codes
    if bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)[..., : packed.D]  # (B, H_kv, S, D)
    low, step = packed.low[:, :, :, None], packed.step[:, :, :, None]  # (B, H_kv, G, 1, D or 1)
    grouped = codes.unflatten(2, (low.shape[2], -1))  # (B, H_kv, G, n, D)
    return torch.addcmul(low, grouped.to(low.dtype), step).flatten(2, 3)


class QuantizedCache(FullCache):
    """Keeps K and V of every token: old ones in 8 or 4 bits, the last ones in full precision.

    bits: 8 or 4. group_tokens: tokens whose keys share a scale, per channel. residual_tokens: how many of the last tokens are
    never rounded. `exact` is False: `half_step` gives the largest error of every number.

    Cost of an append with n rows held: reads all codes and makes their numbers anew (counted as bytes_copied), in each layer.
    nbytes: codes, scales and the rows in full precision. Rows that are rounded cannot be cut but by whole groups.
    """

    exact = False
    rewinds = False

    def __init__(
        self,
        bits: int = 8,
        group_tokens: int = 32,
        residual_tokens: int = 32,
        starts: Sequence[int] | Tensor | None = None,
    ) -> None:
        super().__init__(starts)
        if bits not in (8, 4) or isinstance(bits, bool):
            raise InputError("Codes have 8 or 4 bits.", expected="bits=8 or bits=4", got=repr(bits), todo="Choose one of them.")
        for name, n, least in (("group_tokens", group_tokens, 1), ("residual_tokens", residual_tokens, 0)):
            if isinstance(n, bool) or not isinstance(n, int) or n < least:
                raise InputError(f"{name} counts tokens.", expected=f"an int of {least} or more", got=repr(n),
                                 todo="32 is usual.")  # fmt: skip
        self.bits, self.group_tokens, self.residual_tokens = bits, group_tokens, residual_tokens
        self.packed = 0  # rows that are rounded: slots 0 to packed - 1
        self._codes: dict[int, tuple[Packed, Packed]] = {}  # layer -> keys, values
        self._tails: dict[int, KeysValues] = {}  # layer -> rows from slot `packed` on, new ones of this pass included

    @property
    def nbytes(self) -> int:
        tails = sum(t[:, :, : self.length - self.packed].nbytes for rows in self._tails.values() for t in rows)
        return tails + sum(part.nbytes for pair in self._codes.values() for part in pair)

    def half_step(self, layer: int) -> KeysValues:
        """The largest error of each number that is rounded, (B, H_kv, packed, D or 1): half its group's step.

        Rounding in the model's own dtype comes on top: a few units in its last place; in float16 more than that for a group
        that spans less than a thousandth, whose step is below that dtype's normal numbers.
        """
        self._require_held(layer, 0, self.packed)
        if layer not in self._codes:
            nothing = self._tails[layer].keys[:, :, :0]
            return KeysValues(nothing, nothing)
        keys, values = self._codes[layer]
        return KeysValues(keys.step.repeat_interleave(self.group_tokens, dim=2) / 2, values.step / 2)

    def can_truncate(self, length: int) -> bool:
        """True if `truncate(length)` would succeed: rows in full precision, or whole groups."""
        return super().can_truncate(length) and (length >= self.packed or length % self.group_tokens == 0)

    def _reach(self) -> str:
        if not self.packed:
            return super()._reach()
        return f"{self.packed} to {self.length} tokens, or a multiple of {self.group_tokens} below: older rows are in groups"

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        tail = self._committed_tail(layer)
        if tail is None or tail.keys.shape[2] == 0:  # copies: the caller's tensors are slices of something larger
            new = KeysValues(k.clone(memory_format=torch.contiguous_format), v.clone(memory_format=torch.contiguous_format))
        else:
            count("bytes_copied", tail.keys.nbytes + tail.values.nbytes)
            new = KeysValues(torch.cat((tail.keys, k), dim=2), torch.cat((tail.values, v), dim=2))
        self._tails[layer] = new
        rows = self._rows(layer)
        assert rows is not None
        return rows

    def _rows(self, layer: int) -> KeysValues | None:
        tail = self._tails.get(layer)
        if tail is None or layer not in self._codes:
            return tail
        keys, values = (dequantize(part, self.bits) for part in self._codes[layer])
        count("bytes_copied", keys.nbytes + values.nbytes)
        return KeysValues(torch.cat((keys, tail.keys), dim=2), torch.cat((values, tail.values), dim=2))

    def _commit(self, T: int) -> None:
        """Round what is old enough now."""
        G = self.group_tokens
        ripe = max(0, self.length + T - self.residual_tokens) // G * G - self.packed
        if ripe <= 0:
            return
        real = self._real(self.packed, self.packed + ripe, self.length + T)
        for layer, tail in self._tails.items():
            new = (
                self._round_keys(tail.keys[:, :, :ripe], real),
                quantize(v := tail.values[:, :, :ripe], v.amin(-1, keepdim=True), v.amax(-1, keepdim=True), self.bits),
            )
            if layer in self._codes:
                old = self._codes[layer]
                count("bytes_copied", sum(part.nbytes for part in old))
                new = (_joined(old[0], new[0]), _joined(old[1], new[1]))
            self._codes[layer] = new
            self._tails[layer] = KeysValues(*(t[:, :, ripe:].clone(memory_format=torch.contiguous_format) for t in tail))
        self.packed += ripe

    def _round_keys(self, keys: Tensor, real: Tensor | None) -> Packed:
        grouped = keys.unflatten(2, (-1, self.group_tokens))  # (B, H_kv, G, group_tokens, D)
        if real is None:
            return quantize(keys, grouped.amin(3), grouped.amax(3), self.bits)
        # What stands in the padding must not widen a real row's steps.
        real = real[:, None, :, None].unflatten(2, (-1, self.group_tokens))
        low, high = grouped.masked_fill(~real, torch.inf).amin(3), grouped.masked_fill(~real, -torch.inf).amax(3)
        empty = low > high
        return quantize(keys, low.masked_fill(empty, 0), high.masked_fill(empty, 0), self.bits)

    def _real(self, start: int, stop: int, length: int) -> Tensor | None:
        """Which of these slots hold tokens, (B, stop - start); a row that is padding from now on has ended, and holds some."""
        if self.starts is None:
            return None
        first = self.starts.to(self._tails[0].keys.device)[:, None]
        return (torch.arange(start, stop, device=first.device) >= first) | (first > length)

    def _committed_tail(self, layer: int) -> KeysValues | None:
        tail = self._tails.get(layer)
        n = self.length - self.packed
        return None if tail is None else KeysValues(tail.keys[:, :, :n], tail.values[:, :, :n])

    def _drop_pending(self) -> None:
        if self.length == 0:
            self._tails.clear()
        for layer in self._tails:
            tail = self._committed_tail(layer)
            assert tail is not None
            self._tails[layer] = tail

    def _forget_after(self, length: int) -> None:
        if length == 0:
            self._codes.clear()
            self._tails.clear()
            self.packed = 0
        elif length < self.packed:
            G = self.group_tokens
            self._codes = {layer: (k.rows(0, length, G), v.rows(0, length, 1)) for layer, (k, v) in self._codes.items()}
            self._codes = {layer: (_copied(k), _copied(v)) for layer, (k, v) in self._codes.items()}
            self.packed = length
        n = length - self.packed
        self._tails = {
            layer: KeysValues(*(t[:, :, :n].clone(memory_format=torch.contiguous_format) for t in tail))
            for layer, tail in self._tails.items()
        }

    def _shape_of(self, layer: int) -> tuple[int, int, int, torch.dtype, torch.device] | None:
        return shape_of(self._tails.get(layer))

    def _copy_rows(self, other: Self) -> None:
        # Neither codes nor tails are ever written in place, so a fork may share them: each side's next append makes its own.
        other._codes, other._tails = dict(self._codes), dict(self._tails)


def _joined(one: Packed, two: Packed) -> Packed:
    codes, low, step = (torch.cat((getattr(one, name), getattr(two, name)), dim=2) for name in ("codes", "low", "step"))
    return Packed(codes, low, step, one.D)


def _copied(part: Packed) -> Packed:
    codes, low, step = (t.clone(memory_format=torch.contiguous_format) for t in (part.codes, part.low, part.step))
    return Packed(codes, low, step, part.D)
