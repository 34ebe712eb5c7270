"""Lesson 06: from the name of a cache to a cache. Knows nothing about how any of them works; called at the edge only."""

from typing import Any

import torch

from kvcourse.caches.base import KVCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool, checked_block_tokens
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.errors import InputError, UnknownName

KINDS: dict[str, type] = {
    "growing": GrowingCache,
    "preallocated": PreallocatedCache,
    "sliding": SlidingCache,
    "quantized": QuantizedCache,
    "paged": PagedCache,
}


def make_cache(
    kind: str, model: torch.nn.Module, batch_size: int = 1, *, room_tokens: int | None = None, **options: Any
) -> KVCache:
    """An empty cache of that kind, bound to `model`.

    kind: "growing", "preallocated", "sliding" (window=, sinks=), "quantized" (bits=) or "paged" (pool=, or n_blocks= and
        block_tokens= for a pool of its own).
    room_tokens: how many tokens it will have to hold, 1 or more, for kinds that want to know beforehand; the context length
        unless given.
    options: what the class takes.
    Raises: UnknownName; InputError for numbers below 1, or options that the kind does not take.
    """
    if kind not in KINDS:
        raise UnknownName(
            "No cache of that name.", expected=f"one of {', '.join(KINDS)}", got=repr(kind), todo="Choose one of them."
        )
    _require_number("batch_size", batch_size)
    if room_tokens is None:
        room_tokens = model.config.context_length  # type: ignore[union-attr, assignment]
    _require_number("room_tokens", room_tokens)
    if kind == "preallocated":
        options.setdefault("capacity", room_tokens)
    if kind == "sliding" and "window" not in options:
        raise InputError("A sliding cache needs a window.", expected="window=, the keys that a token sees", got="none",
                         todo="make_cache('sliding', model, window=1024, sinks=4), for instance.")  # fmt: skip
    if kind == "paged" and options.get("pool") is None:
        options["pool"] = _own_pool(model, batch_size, room_tokens, options)
    try:
        cache = KINDS[kind](**options)
    except TypeError as fault:
        raise InputError(
            f"An option that {kind!r} does not take: {fault}.", todo=f"See help({KINDS[kind].__name__})."
        ) from None
    cache.bind(model, batch_size, model.dtype, model.device)
    return cache


def _require_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"A cache needs {name}.", expected="1 or more", got=repr(value), todo="Leave it out, or count again.")


def _own_pool(model: Any, batch_size: int, room_tokens: Any, options: dict[str, Any]) -> PagedPool:
    """A pool with room for one cache. Takes its settings out of `options`."""
    block_tokens, n_blocks = checked_block_tokens(options.pop("block_tokens", 16)), options.pop("n_blocks", None)
    if n_blocks is None:
        n_blocks = batch_size * -(-room_tokens // block_tokens)
    return PagedPool(model, n_blocks, block_tokens)


def release(cache: KVCache) -> None:
    """Done with a cache that nobody else has: where its memory can serve the next one, it will. Its rows are gone."""
    if isinstance(cache, PreallocatedCache):
        cache.release()
