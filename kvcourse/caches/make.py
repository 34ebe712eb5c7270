"""Lesson 06: from the name of a cache to a cache. Knows nothing about how any of them works; called at the edge only."""

from typing import Any

import torch

from kvcourse.caches.base import KVCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.errors import InputError, UnknownName

KINDS: dict[str, type] = {
    "growing": GrowingCache,
    "preallocated": PreallocatedCache,
    "sliding": SlidingCache,
    "quantized": QuantizedCache,
}


def make_cache(
    kind: str, model: torch.nn.Module, batch_size: int = 1, *, room_tokens: int | None = None, **options: Any
) -> KVCache:
    """An empty cache of that kind, bound to `model`.

    kind: "growing", "preallocated", "sliding" (window=, sinks=) or "quantized" (bits=).
    room_tokens: how many tokens it will have to hold, for kinds that want to know beforehand; the context length unless given.
    options: what the class takes.
    Raises: UnknownName; InputError for options that the kind does not take.
    """
    if kind not in KINDS:
        raise UnknownName(
            "No cache of that name.", expected=f"one of {', '.join(KINDS)}", got=repr(kind), todo="Choose one of them."
        )
    if kind == "preallocated":
        options.setdefault("capacity", room_tokens or model.config.context_length)  # type: ignore[union-attr]
    try:
        cache = KINDS[kind](**options)
    except TypeError as fault:
        raise InputError(
            f"An option that {kind!r} does not take: {fault}.", todo=f"See help({KINDS[kind].__name__})."
        ) from None
    weight = next(model.parameters())
    cache.bind(model, batch_size, weight.dtype, weight.device)
    return cache
