"""Lesson 08: a cache that forgets: the last `window` tokens, and the first few if they are wanted. Knows nothing about models.

A ring: token p of a row lies in slot p mod W, so a new row takes the place of the oldest one, and memory stays what it is.
The first `sinks` tokens have slots of their own and are never overwritten.

    window 6, no sinks,  9 tokens:   6 7 8 3 4 5
    window 6, 2 sinks,   9 tokens:   0 1 6 7 8 5

Without sinks a row's key is kept rotated, at its place in the text. With sinks it is kept raw, and rotated by its place among
the kept rows (0 to window - 1), so that the model never sees a distance it was not trained for.
Source: Beltagy et al. 2020, section 3.1 (window); Xiao et al. 2023, section 3.2 (sinks).
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.bound import BoundCache, shape_of
from kvcourse.errors import CacheMismatch, CacheMisuse, InputError
from kvcourse.meter import count


class SlidingCache(BoundCache):
    """Keeps K and V of the last `window` tokens, of which `sinks` may be the first of the text instead.

    window: keys that a query sees, itself included. sinks: how many of them are the first of the text; needs rotary positions.
    A text may grow past a Llama's context length. `exact` is False: past the window, logits are those of a model with a window.

    Cost of one token with a full window: writes 2·B·H_kv·D elements a layer, copies none. Of several tokens, or of rows that
    are padded: copies the rows held (counted), since tokens of one pass see different windows.
    nbytes: `window` rows, from the first token on. Once a row has been overwritten nothing can be cut off any more.
    """

    exact = False
    rewinds = False

    def __init__(self, window: int, sinks: int = 0, starts: Sequence[int] | Tensor | None = None) -> None:
        super().__init__(starts)
        whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (window, sinks))
        if not whole or sinks < 0 or window < sinks + 1:
            raise InputError(
                "A window holds its sinks and the token that looks.",
                expected="sinks of 0 or more tokens and a window of at least sinks + 1",
                got=f"window {window}, sinks {sinks}",
                todo="Make the window larger.",
            )
        self.window: int = window
        self.sinks = sinks
        self.keys = "raw" if sinks else "rotated"
        self._buffers: dict[int, KeysValues] = {}  # layer -> (B, H_kv, window, D) each
        self._made_now: list[int] = []  # layers whose buffers the present pass has made
        self._new: dict[int, KeysValues] = {}  # layer -> rows of several tokens, put in their slots when they are committed
        self._overwritten: dict[int, KeysValues] = {}  # layer -> what stood in the slot that this pass has taken

    @property
    def held(self) -> int:
        return min(self.length, self.window)

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for rows in self._buffers.values() for buffer in rows)

    def bind(self, model: object, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        if self.sinks and not getattr(model, "rotary", True):
            raise CacheMismatch(
                "Sinks need positions that can be given anew.",
                expected="a model with rotary positions",
                got=f"{type(model).__name__}, whose positions are added to the tokens",
                todo="Leave sinks out.",
            )
        super().bind(model, batch_size, dtype, device)

    def passes(self, T: int) -> list[int]:
        """With sinks, one by one past the window: each token gives the kept rows other positions."""
        if not self.sinks:
            return [T]
        padding = 0 if self.starts is None else int(self.starts.min())
        fits = max(0, self.window + padding - self.length)  # tokens until the longest row has filled its window
        return [T] if fits >= T else ([fits] if fits else []) + [1] * (T - fits)

    def plan(self, T: int) -> Plan:
        """Positions and mask for the next T tokens. Changes nothing."""
        self._require_tokens(T)
        if self.passes(T) != [T]:
            raise InputError(
                "Past its window a cache with sinks takes one token a pass.",
                expected="1",
                got=T,
                todo="Cut the tokens as cache.passes(T) says; a model does.",
            )
        tokens = torch.arange(self.length, self.length + T, device=self._device())  # (T,)
        if self.starts is not None:
            tokens = tokens - self.starts.to(tokens.device)[:, None]  # (B, T)
        if self._in_place(T):
            keys = self._tokens_in_slots(min(self.length + 1, self.window), tokens + 1)
            return Plan(self._place(tokens, tokens), self._place(keys, tokens), None)
        held = self._tokens_in_slots(self.held, tokens[..., :1])  # (held,) or (B, held)
        keys = torch.cat((held, tokens), dim=-1)  # (S,) or (B, S)
        mask = self._sees(tokens[..., :, None], keys[..., None, :])
        padding = 0
        if self.starts is not None:
            # A padding query that sees nothing would be NaN, and NaN spreads even through masked keys: let it see itself.
            mask[..., held.shape[-1] :] |= torch.eye(T, dtype=torch.bool, device=mask.device)
            mask, padding = mask[:, None], int((tokens < 0).sum())
        last = tokens[..., -1:]
        return Plan(self._place(tokens, last), self._place(keys, last), mask, padding)

    def read(self, layer: int, start: int, stop: int) -> KeysValues:
        """Committed rows of slots start to stop - 1 of the text, copied; they must not have been overwritten."""
        self._require_held(layer, start, stop)
        oldest = 0 if self.length <= self.window else self.length - (self.window - self.sinks)
        if start < oldest and stop > self.sinks and start < stop:
            raise CacheMisuse(
                "Rows that have left the window.",
                expected=f"rows from {oldest} on" + (f", or below {self.sinks}" if self.sinks else ""),
                got=f"start {start}, stop {stop}",
                todo="Read them while they are there, or make the window larger.",
            )
        tokens = torch.arange(start, stop)
        keys, values = self._buffers[layer]
        if self.starts is None:
            slots = self._slots(tokens)
            return KeysValues(keys[:, :, slots], values[:, :, slots])
        slots = self._slots((tokens - self.starts.cpu()[:, None]).clamp(min=0))  # (B, S); padding was not kept: any row will do
        index = slots[:, None, :, None].expand(-1, keys.shape[1], -1, keys.shape[3]).to(keys.device)
        return KeysValues(keys.gather(2, index), values.gather(2, index))

    def can_truncate(self, length: int) -> bool:
        """True if `truncate(length)` would succeed: any length, until the ring has gone round once."""
        return super().can_truncate(length) and (self.length <= self.window or length == self.length)

    def _reach(self) -> str:
        if self.length <= self.window:
            return super()._reach()
        return f"{self.length} tokens: {self.length - self.window} rows have been overwritten"

    # Who lies where. A token is a place in its own row's text: below 0 it is padding.

    @property
    def _next_slot(self) -> int:
        if self.length < self.window:
            return self.length
        return self.sinks + (self.length - self.sinks) % (self.window - self.sinks)

    def _slots(self, tokens: Tensor) -> Tensor:
        ring = self.window - self.sinks
        return torch.where(tokens < self.sinks, tokens, self.sinks + (tokens - self.sinks) % ring)

    def _tokens_in_slots(self, n_slots: int, length: Tensor) -> Tensor:
        """Which token lies in each of the first slots of rows of these lengths, (…, 1) -> (…, n_slots). Below 0: none."""
        slots = torch.arange(n_slots, device=length.device)
        ring = self.window - self.sinks
        last = length - 1 - (length - 1 - slots) % ring  # the last token before `length` that this slot is for
        return torch.where(slots < length, torch.where(slots < self.sinks, slots, last), -1)

    def _sees(self, queries: Tensor, keys: Tensor) -> Tensor:
        recent = keys > queries - (self.window - self.sinks)
        return (keys >= 0) & (keys <= queries) & (recent | (keys < self.sinks))

    def _place(self, tokens: Tensor, last: Tensor) -> Tensor:
        """Positions as the model shall see them: in the text, or with sinks among the rows kept when `last` looks."""
        if not self.sinks:
            return tokens
        gone = (last + 1 - self.window).clamp(min=0)
        return torch.where(tokens < self.sinks, tokens, tokens - gone).clamp(max=self.window - 1)

    # Rows.

    def _device(self) -> torch.device | None:
        return self._binding.device if self._binding else None

    def _in_place(self, T: int) -> bool:
        return T == 1 and self.starts is None

    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        if layer not in self._buffers:
            self._allocate(layer, k)
        buffers, n = self._buffers[layer], self.held
        if not self._in_place(k.shape[2]):
            held = KeysValues(*(buffer.narrow(2, 0, n) for buffer in buffers))
            self._new[layer] = KeysValues(k, v)
            count("bytes_copied", held.keys.nbytes + held.values.nbytes)
            return KeysValues(torch.cat((held.keys, k), dim=2), torch.cat((held.values, v), dim=2))
        places = KeysValues(*(buffer.narrow(2, self._next_slot, 1) for buffer in buffers))
        if self.length >= self.window and layer not in self._overwritten:
            self._overwritten[layer] = KeysValues(places.keys.clone(), places.values.clone())
        places.keys.copy_(k)
        places.values.copy_(v)
        n = min(self.length + 1, self.window)
        return KeysValues(*(buffer.narrow(2, 0, n) for buffer in buffers))

    def _commit(self, T: int) -> None:
        for layer, rows in self._new.items():
            tokens = torch.arange(self.length, self.length + T)[None]  # (1, T)
            if self.starts is not None:
                tokens = tokens - self.starts.cpu()[:, None]  # (B, T)
            tokens = tokens.expand(rows.keys.shape[0], T)
            kept = (tokens >= 0) & ((tokens < self.sinks) | (tokens > tokens[:, -1:] - (self.window - self.sinks)))
            row, token = kept.nonzero(as_tuple=True)
            slots = self._slots(tokens[row, token])
            for buffer, new in zip(self._buffers[layer], rows, strict=True):
                buffer[row, :, slots] = new[row, :, token]
        self._new.clear()
        self._overwritten.clear()
        self._made_now.clear()

    def _drop_pending(self) -> None:
        for layer in self._made_now:
            del self._buffers[layer]
        for layer, rows in self._overwritten.items():
            for buffer, old in zip(self._buffers[layer], rows, strict=True):
                buffer.narrow(2, self._next_slot, 1).copy_(old)
        self._made_now.clear()
        self._overwritten.clear()
        self._new.clear()

    def _forget_after(self, length: int) -> None:
        """Nothing to do: slots beyond the length are never read, and the next rows overwrite them."""

    def _allocate(self, layer: int, k: Tensor) -> None:
        B, H_kv, _, D = k.shape
        # Ordinary tensors even inside torch.inference_mode(): one made there could not be written to outside. Zeros, because
        # slots that a row has not filled are multiplied by a weight of 0, and 0 times what memory happens to hold may be NaN.
        with torch.inference_mode(False):
            keys, values = (torch.zeros(B, H_kv, self.window, D, dtype=k.dtype, device=k.device) for _ in range(2))
        self._buffers[layer] = KeysValues(keys, values)
        self._made_now.append(layer)

    def _shape_of(self, layer: int) -> tuple[int, int, int, torch.dtype, torch.device] | None:
        return shape_of(self._buffers.get(layer))

    def _copy_rows(self, other: Self) -> None:
        other._made_now, other._new, other._overwritten = [], {}, {}
        with torch.inference_mode(False):
            other._buffers = {
                layer: KeysValues(*(torch.empty_like(b).copy_(b) for b in rows)) for layer, rows in self._buffers.items()
            }
        count("bytes_copied", self.nbytes)
