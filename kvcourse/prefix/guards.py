"""Lesson 10: which caches may give rows to others, and take them. Knows nothing about prefixes."""

import weakref
from typing import Any, NamedTuple

from kvcourse.caches.base import KVCache
from kvcourse.errors import CacheMisuse, InputError
from kvcourse.models.base import CausalLM


class Loaded(NamedTuple):
    """Where the first rows of a cache come from. A fork carries it along; a cache that starts anew is bound anew."""

    source: "weakref.ref[Any]"  # a prefix cache
    drops: int  # how often something had been found wrong there
    binding: object


def note_loaded(cache: KVCache, source: Any, drops: int) -> None:
    """Write down that a prefix cache has filled this cache, before anything it finds wrong from now on."""
    vars(cache)["loaded"] = Loaded(weakref.ref(source), drops, getattr(cache, "_binding", None))


def is_doubted(cache: KVCache) -> bool:
    """True if rows of this cache come from a prefix cache that has found stored rows to be wrong since."""
    loaded: Loaded | None = getattr(cache, "loaded", None)
    if loaded is None or loaded.binding is not getattr(cache, "_binding", None):
        return False
    source = loaded.source()
    return source is not None and source.drops > loaded.drops


def require_cache(cache: Any) -> None:
    if not isinstance(getattr(cache, "length", None), int) or not hasattr(cache, "append"):
        raise InputError("This is no KV cache.", expected="a growing, preallocated or paged cache", got=f"{cache!r:.80}",
                         todo="Make one: PreallocatedCache(capacity), or make_cache(kind, model).")  # fmt: skip


def require_exact(cache: KVCache) -> None:
    """Raise CacheMisuse unless a cache holds the very rows that the model computed, of one text, rotated."""
    if cache.starts is not None:
        got = "padding"
    elif cache.keys != "rotated":
        got = "raw keys"
    elif not cache.exact:
        got = "approximate rows"
    else:
        return
    raise CacheMisuse(
        "A prefix cache shares exact rows.",
        expected="rotated keys and values of one unpadded text, all of them, as computed",
        got=f"{type(cache).__name__}: {got}",
        todo="Use a growing, preallocated or paged cache.",
    )


def require_source(cache: KVCache, model: CausalLM) -> None:
    """Raise CacheMisuse, or CacheMismatch, unless a cache holds rows that this model, as it is now, has computed."""
    require_cache(cache)
    if not cache.length:
        raise CacheMisuse(
            "Nothing has been computed yet.", expected="a cache that holds rows", got="length 0", todo="Insert after the pass."
        )
    require_exact(cache)
    if cache.held != cache.length:
        raise CacheMisuse(
            "This cache has forgotten rows.",
            expected=f"{cache.length} rows",
            got=cache.held,
            todo="Use a cache that keeps all.",
        )
    cache.bind(model, 1, model.dtype, model.device)  # refuses another model's
    filled_by = getattr(cache, "weights_version", None)
    if filled_by is not None and filled_by != model.weights_version:
        raise CacheMisuse(
            "The model's weights changed since this cache was filled.",
            expected="K/V of the present weights",
            got="K/V of earlier ones",
            todo="Compute the text again.",
        )
