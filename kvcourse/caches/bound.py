"""Lesson 06: what every cache does around its rows: whom it serves, what is pending, what is refused before anything changed.

Knows nothing about which rows are kept, or where: each kind says that.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.caches.base import KeysValues, Plan
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse, InputError


class _Binding(NamedTuple):
    """Who may use a cache."""

    model: "weakref.ref[object]"
    n_layer: int
    batch_size: int
    dtype: torch.dtype
    device: torch.device
    weights_version: object = None  # the model's, when this cache took its first row


class BoundCache(ABC):
    """What all caches share: the length, the binding to one model, and the way from append to advance or abort.

    starts: first slot of each row, one per row of the batch, when prompts of different lengths are padded on the left.
    """

    keys: Literal["rotated", "raw"] = "rotated"
    exact = True
    can_fork = True
    rewinds = True
    window: int | None = None

    def __init__(self, starts: Sequence[int] | Tensor | None = None) -> None:
        self.length = 0
        self.starts = _checked_starts(starts)
        self._binding: _Binding | None = None
        self._bound_now = False  # by this very pass: an abort undoes that, too
        self._pending: dict[int, int] = {}  # layer -> rows appended and not yet committed
        self._fitting: dict[int, tuple[object, ...]] = {}  # layer -> shapes, dtypes and device found to fit its rows

    # What a kind of cache brings.

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of K and V in memory."""

    @property
    @abstractmethod
    def held(self) -> int:
        """Rows stored."""

    @abstractmethod
    def plan(self, T: int) -> Plan:
        """Positions and mask for the next T tokens. Changes nothing.

        Raises: CacheFull if length + T > capacity (tokens).
        """

    @abstractmethod
    def _write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        """Take the new rows of a layer; return all rows that the new queries attend to, in the order of the plan."""

    @abstractmethod
    def _shape_of(self, layer: int) -> tuple[int, int, int, torch.dtype, torch.device] | None:
        """B, H_kv, D, dtype and device of a layer's rows, or None before its first one."""

    @abstractmethod
    def _drop_pending(self) -> None:
        """Undo what `_write` has done since the last commit."""

    @abstractmethod
    def _forget_after(self, length: int) -> None:
        """Drop what is stored of tokens from `length` on. `can_truncate` has said that it can be done."""

    @abstractmethod
    def _copy_rows(self, other: Self) -> None:
        """Make `other`, a shallow copy of self, independent."""

    @abstractmethod
    def read(self, layer: int, start: int, stop: int) -> KeysValues:
        """Committed rows of slots start to stop - 1. They may be views: copy what you keep.

        Raises: CacheMisuse for rows that are not held.
        """

    def _commit(self, T: int) -> None:  # noqa: B027 (most kinds write at once)
        """Keep the T rows that every layer has written. The length is still the old one."""

    # What they share.

    @property
    def capacity(self) -> int | None:
        return None

    def bind(self, model: object, batch_size: int, dtype: torch.dtype, device: torch.device) -> None:
        """Serve this model from now on, and no other. The model calls it before every pass.

        Raises: CacheMismatch if the cache serves another model, batch size, dtype or device already.
        """
        n_layer = model.config.n_layer  # type: ignore[attr-defined]
        mine = self._binding
        self._bound_now = mine is None
        if mine is None:
            if self.starts is not None and len(self.starts) != batch_size:
                raise _mismatch("batch size", f"{len(self.starts)}, one row per start", batch_size)
            self._binding = _Binding(weakref.ref(model), n_layer, batch_size, dtype, device)
            return
        if mine.model() is not model:
            raise _mismatch("model", "the model object that used it first", f"another {type(model).__name__}")
        for name, expected, got in (
            ("batch size", mine.batch_size, batch_size),
            ("dtype", mine.dtype, dtype),
            ("device", mine.device, device),
        ):
            if expected != got:
                raise _mismatch(name, expected, got)

    @property
    def weights_version(self) -> object:
        """Which state of the model's weights filled it from the start; None before, or where the model does not say."""
        return self._binding.weights_version if self._binding and self.length else None

    def passes(self, T: int) -> list[int]:
        """How many of the next T tokens can go through the model at once, pass by pass: all of them, for most caches."""
        return [T]

    def append(self, layer: int, k: Float[Tensor, "B H_kv T D"], v: Float[Tensor, "B H_kv T D"]) -> KeysValues:
        """Write this call's keys and values; return everything that is attended to in `layer`, these rows included.

        Commits nothing: the model calls `advance(T)` once, after the last layer, or `abort()`.

        k: rotated, or not, as this cache's `keys` says; dtype, device and shape must equal the cache's.
        Returns: rows in the order of the plan's key positions, read only, valid until the next `append`.
        Raises: CacheFull if length + T > capacity (tokens); CacheMismatch if the rows do not fit those held.
        """
        T = k.shape[2]
        self._require_room(T)
        looks = (k.shape, v.shape, k.dtype, v.dtype, k.device)
        if self._fitting.get(layer) != looks:  # as in the step before, as a rule
            self._require_fit(layer, k, v)
            self._fitting[layer] = looks
        rows = self._write(layer, k, v)
        self._pending[layer] = T
        return rows

    def advance(self, T: int) -> None:
        """Commit the T rows that every layer appended.

        Raises: CacheMisuse if a layer appended none, or another number.
        """
        layers = range(self._binding.n_layer) if self._binding else sorted(self._pending)
        if not self._pending or any(self._pending.get(layer) != T for layer in layers):
            raise CacheMisuse(
                f"advance({T}) commits what every layer appended.",
                expected=f"{T} rows from each of {len(layers) or 'its'} layers",
                got=f"rows by layer {self._pending}",
                todo="Call append once in every layer before advance.",
            )
        self._commit(T)
        self._pending.clear()
        if self._binding and not self.length:  # only now: weights may change until the first pass, and that pass may move them
            self._binding = self._binding._replace(weights_version=getattr(self._binding.model(), "weights_version", None))
        self.length += T

    def abort(self) -> None:
        """Drop what was appended and not committed. A cache that this pass was the first to use is free for any model again."""
        self._drop_pending()
        self._pending.clear()
        self._fitting.clear()
        if self._bound_now:
            self._binding, self._bound_now = None, False

    def can_truncate(self, length: int) -> bool:
        """True if `truncate(length)` would succeed."""
        return not self._pending and isinstance(length, int) and 0 <= length <= self.length

    def truncate(self, length: int) -> None:
        """Forget every token after the first `length`.

        Raises: CacheMisuse, with nothing changed, where `can_truncate` says no.
        """
        if not self.can_truncate(length):
            raise CacheMisuse(
                "A cache can only be cut to a length it has reached, between two passes.",
                expected=self._reach(),
                got=length,
                todo="Pass the number of tokens to keep.",
            )
        self._forget_after(length)
        self._fitting.clear()
        self.length = length

    def _reach(self) -> str:
        """The lengths that `truncate` takes, in words."""
        return f"0 to {self.length} tokens"

    def fork(self) -> Self:
        """A second cache with the same rows, independent from here on. It serves the same model."""
        if self._pending:
            raise CacheMisuse(
                "A fork in the middle of a pass.", expected="no rows pending", got=self._pending, todo="Advance or abort first."
            )
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._pending, other._fitting = {}, {}
        self._copy_rows(other)
        return other

    def restore(self, saved: Self) -> None:
        """Be what `saved`, a fork of this cache, is. `saved` is used up."""
        self.__dict__.update(saved.__dict__)

    def reset(self) -> None:
        """Empty again, without padding, ready for another prompt of the same model and batch size."""
        self._drop_pending()
        self._pending.clear()
        self._fitting.clear()
        self._forget_after(0)
        self.length, self.starts = 0, None

    def _require_tokens(self, T: int) -> None:
        if T < 1:
            raise InputError("A pass needs tokens.", expected="T of 1 or more", got=T, todo="Pass at least one token.")
        self._require_room(T)

    def _require_room(self, T: int) -> None:
        capacity = self.capacity
        if capacity is not None and self.length + T > capacity:
            raise CacheFull(
                "The cache is full.",
                expected=f"at most {capacity} tokens",
                got=f"{self.length} held and {T} more",
                todo=f"Make it with capacity={self.length + T} or more, or truncate it.",
            )

    def _require_held(self, layer: int, start: int, stop: int) -> None:
        known = self._shape_of(layer) is not None
        if not known or not 0 <= start <= stop <= self.length:
            raise CacheMisuse(
                f"Rows that layer {layer} does not hold.",
                expected=f"0 <= start <= stop <= {self.length if known else 0}",
                got=f"start {start}, stop {stop}",
                todo="Read within the rows that are held.",
            )

    def _require_fit(self, layer: int, k: Tensor, v: Tensor) -> None:
        got, dtype = k.shape, k.dtype
        if got != v.shape or dtype != v.dtype:
            raise _mismatch("keys and values", f"values like the keys, {tuple(got)} {dtype}", f"{tuple(v.shape)} {v.dtype}")
        bound = self._binding
        if bound is not None and (got[0] != bound.batch_size or dtype != bound.dtype):
            raise _mismatch("rows", f"batch size {bound.batch_size}, {bound.dtype}", f"{got[0]}, {dtype}")
        held = self._shape_of(layer)
        new = (got[0], got[1], got[3], dtype, k.device)
        if held is not None and held != new:
            raise _mismatch("rows", f"B, H_kv, D = {held[:3]}, {held[3]} on {held[4]}", f"{new[:3]}, {new[3]} on {new[4]}")


def shape_of(rows: KeysValues | None) -> tuple[int, int, int, torch.dtype, torch.device] | None:
    """B, H_kv, D, dtype and device of stored rows (B, H_kv, S, D)."""
    if rows is None:
        return None
    B, H_kv, _, D = rows.keys.shape
    return B, H_kv, D, rows.keys.dtype, rows.keys.device


def _mismatch(what: str, expected: object, got: object) -> CacheMismatch:
    return CacheMismatch(
        f"This cache serves another {what}.",
        expected=expected,
        got=got,
        todo="Make a new cache for it: make_cache(kind, model, batch_size).",
    )


def _checked_starts(starts: Sequence[int] | Tensor | None) -> Tensor | None:
    if starts is None:
        return None
    tensor = torch.as_tensor(starts, dtype=torch.int64)
    if tensor.dim() != 1 or len(tensor) == 0 or int(tensor.min()) < 0:
        raise InputError(
            "starts: the first slot of each row.",
            expected="one int of 0 or more per row",
            got=starts,
            todo="Count each row's padding.",
        )
    return tensor
