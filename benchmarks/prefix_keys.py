"""Lesson 10: how long finding and storing a key takes. Knows nothing about how it is found: it counts and times.

Rows of a few bytes, so that finding is timed and not copying, with some and with many other texts stored. The texts begin as
the key does, so that no index is done after one look. Everything that is compared is asked in turn, round by round.
"""

import gc
import importlib.util
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.subjects import random_model
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.config import GPTConfig
from kvcourse.prefix.cache import BlockPrefixCache, PrefixCache, RadixPrefixCache

KINDS: dict[str, Callable[..., PrefixCache]] = {"radix": RadixPrefixCache, "blocks": BlockPrefixCache}
OTHER_TOKENS, SHARED_TOKENS = 256, 16  # of every other text; of its start, which the key has, too


@dataclass
class Key:
    """One index, a key of `tokens`, and `others` stored beside it."""

    index: str
    tokens: int
    others: int
    found: int  # tokens, counted
    wanted: int
    bookkeeping_bytes: float  # of Python objects, for each token; 0 unless they are being counted
    match_s: list[float] = field(default_factory=list)
    insert_s: list[float] = field(default_factory=list)


def text(n: int, seed: int) -> list[int]:
    """The common start, then tokens of its own."""
    return random.Random(0).choices(range(900), k=SHARED_TOKENS) + random.Random(seed).choices(range(900), k=n - SHARED_TOKENS)


class Ours:
    """One of our prefix caches, on a model whose rows are 16 bytes."""

    def __init__(self, kind: str, longest: int) -> None:
        model = random_model(GPTConfig(vocab_size=997, context_length=8, n_layer=1, n_head=1, n_embd=2, n_inner=2))
        self.name, self.pc = kind, KINDS[kind](model, max_bytes=2**34)
        self.rows = PreallocatedCache(capacity=longest)
        self.rows.bind(model, 1, model.dtype, model.device)
        self.rows.append(0, *torch.zeros(2, 1, 1, longest, 2))
        self.rows.advance(longest)

    def insert(self, ids: list[int]) -> None:
        self.pc.insert(ids, self.rows)

    def match(self, ids: list[int]) -> int:
        return self.pc.match(ids).length

    def wanted(self, n: int) -> int:
        """Of n known tokens, those that are found: all but the last, in whole blocks."""
        return n - 1 - (n - 1) % self.pc.index.step_tokens


class Mlx:
    """mlx-lm's LRUPromptCache. Of what it does at a hit, the copy of all K/V is left out: here only finding counts."""

    name = "mlx-lm LRUPromptCache"

    class Rows:
        nbytes, length = 16, 0

        def __deepcopy__(self, memo: dict[int, Any]) -> "Mlx.Rows":
            return self

        def is_trimmable(self) -> bool:
            return True

        def trim(self, n: int) -> int:
            return n

    def __init__(self) -> None:
        from mlx_lm.models.cache import LRUPromptCache

        self.cache = LRUPromptCache(max_size=2**31)

    def insert(self, ids: list[int]) -> None:
        self.cache.insert_cache("model", ids, [self.Rows()])

    def match(self, ids: list[int]) -> int:
        return len(ids) - len(self.cache.fetch_nearest_cache("model", [*ids[:-1], 999])[1])

    def wanted(self, n: int) -> int:
        return n - 1


def has_mlx() -> bool:
    return importlib.util.find_spec("mlx_lm") is not None


def time_keys(lengths: list[int], others: list[int], rounds: int) -> list[Key]:
    """Every index with every key and every number of other texts: what it finds, then matches and inserts in turn."""
    return [key for n_others in others for n in lengths for key in _side_by_side(n, n_others, rounds)]


def _side_by_side(n: int, n_others: int, rounds: int) -> list[Key]:
    indices: list[Ours | Mlx] = [Ours(kind, max(n, OTHER_TOKENS)) for kind in KINDS]
    indices += [Mlx()] if has_mlx() else []
    ids, keys = text(n, seed=1), []
    for index in indices:
        for other in range(n_others):
            index.insert(text(OTHER_TOKENS, seed=1000 + other))
        before = _python_bytes()
        index.insert(ids)
        keys.append(Key(index.name, n, n_others, index.match(ids), index.wanted(n), (_python_bytes() - before) / n))
    gc.collect()
    for turn in range(rounds):
        again = text(n, seed=10 + turn)
        for index, key in zip(indices, keys, strict=True):
            key.insert_s.append(_seconds(index.insert, again, 1))
            key.match_s.append(_seconds(index.match, ids, max(1, 8192 // n)))
    return keys


def bookkeeping(tokens: int) -> dict[str, float]:
    """Bytes of Python objects for each stored token of a key, by index. Counted apart: counting makes everything slow."""
    tracemalloc.start()
    try:
        return {key.index: key.bookkeeping_bytes for key in time_keys([tokens], [0], rounds=0)}
    finally:
        tracemalloc.stop()


def _python_bytes() -> int:
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0


def _seconds(act: Callable[[list[int]], object], ids: list[int], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        act(ids)
    return (time.perf_counter() - start) / times
