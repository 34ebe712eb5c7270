"""Lesson 06: the contract between a model and its cache. Knows nothing about models, attention or how rows are stored.

One forward pass over T tokens: the model asks for `plan(T)` once, calls `append` in each layer, then `advance(T)` once.
If anything raises on the way it calls `abort()`, and the cache is as it was. A cache that cannot take T tokens at once says
so (`passes`), and `undone_on_error` undoes several passes.

A slot is a place in storage, a position a place in the text. They differ when rows are left-padded: position = slot - start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kvcourse.attention import causal_mask


class KeysValues(NamedTuple):
    """Keys and values of one layer, (B, H_kv, S, D) each."""

    keys: Float[Tensor, "B H_kv S D"]
    values: Float[Tensor, "B H_kv S D"]


@dataclass(frozen=True)
class Plan:
    """What one forward pass over T tokens needs to know about the past."""

    query_positions: Int[Tensor, " T"] | Int[Tensor, "B T"]  # below 0: padding
    key_positions: Int[Tensor, " S"] | Int[Tensor, "B S"]
    mask: Bool[Tensor, "T S"] | Bool[Tensor, "B 1 T S"] | None  # True: may look. None: every query sees every key
    padding: int = 0  # how many of the B·T queries are padding


@runtime_checkable
class KVCache(Protocol):
    """What a model and `generate` may rely on, whatever the cache."""

    length: int  # tokens processed and not truncated = the next position; the only owner of that number
    starts: Int[Tensor, " B"] | None  # first slot of each row when rows are left-padded
    keys: Literal["rotated", "raw"]  # raw: the model hands over unrotated keys and rotates them when attending
    exact: bool  # logits equal those without a cache, up to rounding
    can_fork: bool

    @property
    def held(self) -> int: ...  # rows stored: a window holds fewer than length
    @property
    def capacity(self) -> int | None: ...  # None: unbounded
    @property
    def nbytes(self) -> int: ...
    def bind(self, model: object, batch_size: int, dtype: torch.dtype, device: torch.device) -> None: ...
    def plan(self, T: int) -> Plan: ...
    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues: ...
    def advance(self, T: int) -> None: ...
    def abort(self) -> None: ...
    def can_truncate(self, length: int) -> bool: ...
    def truncate(self, length: int) -> None: ...
    def fork(self) -> "KVCache": ...
    def reset(self) -> None: ...
    def read(self, layer: int, start: int, stop: int) -> KeysValues: ...


class LimitedCache(KVCache, Protocol):
    """What a cache says besides if it forgets rows, or rounds them. One that does not say is taken for one that keeps all."""

    rewinds: bool  # truncate reaches every length from 0 to the present one
    window: int | None  # keys that a query sees, itself included; None: all before it

    def passes(self, T: int) -> list[int]: ...  # how many of T tokens it takes at once, pass by pass
    def restore(self, saved: Any) -> None: ...  # be what `saved`, a fork, is


def rewinds(cache: KVCache) -> bool:
    """True if a cache can be cut back to any length."""
    return getattr(cache, "rewinds", True)


def plan_without_cache(T: int, device: torch.device | str = "cpu", causal: bool = True) -> Plan:
    """The plan of a model that remembers nothing: positions 0 to T - 1. `causal=False` lets every token see every other."""
    positions = torch.arange(T, device=device)
    return Plan(positions, positions, causal_mask(positions, positions) if causal and T > 1 else None)


@contextmanager
def undone_on_error(cache: KVCache | None) -> Iterator[None]:
    """Whatever is raised inside, an interrupt included, leaves the cache as it was: cut back, or restored from a fork."""
    if cache is None:
        yield
        return
    before, starts = cache.length, cache.starts
    saved: Any = None if rewinds(cache) else cache.fork()
    try:
        yield
    except BaseException:
        if saved is not None:
            cast(LimitedCache, cache).restore(saved)
        elif cache.length != before and cache.can_truncate(before):
            cache.truncate(before)
        cache.starts = starts
        raise
