"""Lesson 05: the two loops of generation, for one prompt or several. Knows `caches/base` alone; names of caches go to `make`.

Recompute: everything so far through the model, for every new token. Cached: prefill, then one token a step.

The last token that is chosen is never computed: nothing follows it. So cache.length = start + prompt + new - 1.
"""

import operator
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.caches.base import KVCache, LimitedCache, rewinds
from kvcourse.caches.make import make_cache, release
from kvcourse.errors import CacheFull, CacheMismatch, InputError
from kvcourse.meter import Cost, Meter
from kvcourse.models.base import CausalLM
from kvcourse.prompt_ids import fitted
from kvcourse.sampling import Pick, Sampler, greedy, start
from kvcourse.steps import decode_step, prefill

FinishReason = Literal["stop", "length", "context"]
FINISHED = 1 << 40  # a start beyond every slot: the whole row is padding from now on


@dataclass(frozen=True)
class Usage:
    """Tokens as a provider would bill them. prompt = cached + computed."""

    prompt_tokens: int  # everything before the first new token, what the cache held at the start included
    cached_tokens: int  # of those, how many were not computed again
    computed_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Output:
    """What one prompt led to."""

    tokens: list[int]  # new ids only, the stop token included
    usage: Usage
    finish_reason: FinishReason | None  # None: not finished (a stream that was left)
    cost: Cost


@dataclass
class _Row:
    """One prompt on its way."""

    prompt: list[int]
    before: int  # tokens of this row that the cache held at the start
    limit: int  # new tokens at most, by max_new_tokens and by the context
    pick: Pick
    padding: int = 0
    reused: int = 0  # prompt tokens taken from a prefix cache
    tokens: list[int] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    finish: FinishReason | None = None


class Generation:
    """All prompts of one call, and the two loops that continue them."""

    def __init__(
        self,
        model: CausalLM,
        prompts: list[list[int]],
        *,
        max_new_tokens: int,
        cache: str | KVCache | None = "preallocated",
        sampler: Sampler | Pick = greedy,
        prefix_cache: Any = None,
        namespace: object = None,
        prefill_chunk: int | None = None,
        stop_ids: Sequence[int] = (),
        overflow: Literal["error", "truncate"] = "error",
    ) -> None:
        _require_settings(max_new_tokens, cache)
        self.model, self.max_new_tokens, self.chunk = model, max_new_tokens, prefill_chunk
        self.stop_ids, self.prefix_cache = frozenset(stop_ids), prefix_cache
        self._namespace = {} if namespace is None else {"namespace": namespace}
        _require_prefix_cache(prefix_cache, namespace)
        before, context = _held(cache, len(prompts)), model.room(None if isinstance(cache, str) else cache)
        prompts = [fitted(ids, held, max_new_tokens, context, overflow) for ids, held in zip(prompts, before, strict=True)]
        longest = max(len(ids) for ids in prompts)
        self.rows = [
            _Row(ids, held, int(min(max_new_tokens, context - held - len(ids) + 1)), start(sampler), longest - len(ids))
            for ids, held in zip(prompts, before, strict=True)
        ]
        self._shared: Any = None  # a fork from when the first of several rows ended, of a cache that cannot be cut
        self._is_own = isinstance(cache, str)  # nobody else has its cache
        self._held: int | None = None  # bytes of such a cache, once its memory is gone
        slots = 0 if cache is None or isinstance(cache, str) else cache.length
        self.cache = self._prepared(cache, slots + longest + max(row.limit for row in self.rows) - 1)

    def outputs(self) -> list[Output]:
        """Every row as it stands."""
        held = self._held if self._held is not None else 0 if self.cache is None else self.cache.nbytes
        return [
            Output(
                tokens=list(row.tokens),
                usage=Usage(
                    prompt_tokens=row.before + len(row.prompt),
                    cached_tokens=row.before + row.reused,
                    computed_tokens=len(row.prompt) - row.reused,
                    completion_tokens=len(row.tokens),
                ),
                finish_reason=row.finish,
                cost=replace(row.cost, bytes_held=held // len(self.rows)),
            )
            for row in self.rows
        ]

    def steps(self) -> Generator[tuple[int, int], None, None]:
        """Yield (row, token) as tokens are chosen."""
        if self.cache is not None:
            yield from self._cached(self.cache)
            return
        for index in range(len(self.rows)):
            yield from self._recompute(index)

    def _recompute(self, index: int) -> Iterator[tuple[int, int]]:
        """The plain loop: everything so far through the model, for every new token."""
        row = self.rows[index]
        while row.finish is None:
            with Meter() as meter, torch.inference_mode():
                ids = torch.tensor([row.prompt + row.tokens], device=self.model.device)
                logits = self.model(ids, logits_to_keep=1)
            row.cost += meter.cost
            self._choose(row, logits[0, -1])
            yield index, row.tokens[-1]

    def _cached(self, cache: KVCache) -> Iterator[tuple[int, int]]:
        """Prefill, then one token a step for all rows at once. A finished row is padding from then on."""
        before = cache.length
        if any(row.padding for row in self.rows):
            cache.starts = torch.tensor([row.padding for row in self.rows])
        starts = cache.starts
        try:
            self._load_prefix(cache)
            with Meter() as meter:
                ids = torch.tensor([[0] * row.padding + row.prompt[row.reused :] for row in self.rows])
                logits = prefill(self.model, ids, cache, self.chunk)
            self._charge(meter.cost, [len(row.prompt) - row.reused for row in self.rows])
            while True:
                live = [index for index, row in enumerate(self.rows) if row.finish is None]
                for index in live:
                    self._choose(self.rows[index], logits[index])
                for index in live:
                    yield index, self.rows[index].tokens[-1]
                if not self._retire(cache):
                    break
                with Meter() as meter:
                    logits = decode_step(self.model, [row.tokens[-1] for row in self.rows], cache)
                self._charge(meter.cost, [int(row.finish is None) for row in self.rows])
        except GeneratorExit:
            self._release(cache)
            return  # a stream that was left, long ago perhaps: the cache may have gone on without it
        except BaseException:
            self._settle(cache, starts, before)
            raise
        self._settle(cache, starts, before)
        if self.prefix_cache is not None:
            row = self.rows[0]
            with Meter() as meter:
                self.prefix_cache.insert((row.prompt + row.tokens)[: cache.length], cache, **self._namespace)
            row.cost += meter.cost
        self._release(cache)

    def _release(self, cache: KVCache) -> None:
        """The next run's cache takes over this one's memory, where nobody else can have its rows."""
        if self._is_own:
            self._held = cache.nbytes
            release(cache)

    def _prepared(self, cache: str | KVCache | None, needed: int) -> KVCache | None:
        """The cache to fill: made if need be, large enough, told about padding."""
        if isinstance(cache, str):
            cache = make_cache(cache, self.model, len(self.rows), room_tokens=needed)
        if self.prefix_cache is not None and (cache is None or cache.length or not cache.exact or cache.keys != "rotated"):
            raise InputError(
                "A prefix cache fills an empty cache with exact rows.",
                expected="an empty growing, preallocated or paged cache",
                got="no cache" if cache is None else f"{type(cache).__name__}, length {cache.length}",
                todo="Use another cache, or leave prefix_cache out.",
            )
        if self.prefix_cache is not None and getattr(self.prefix_cache, "model", self.model) is not self.model:
            raise CacheMismatch("This prefix cache serves another model.", expected="the model it was made for",
                                got=f"another {type(self.model).__name__}", todo="Make one for this model.")  # fmt: skip
        if cache is None:
            return None
        if cache.capacity is not None and cache.capacity < needed:
            raise CacheFull(
                "The cache is too small for this prompt and what may follow.",
                expected=f"a capacity of {needed} tokens",
                got=cache.capacity,
                todo=f"Make it larger, or lower max_new_tokens by {needed - cache.capacity}.",
            )
        if any(row.padding for row in self.rows) and cache.length:
            raise InputError(
                "Prompts of different lengths need an empty cache.",
                expected="length 0",
                got=cache.length,
                todo="Reset it, or pass prompts of one length.",
            )
        return cache

    def _load_prefix(self, cache: KVCache) -> None:
        if self.prefix_cache is not None:
            with Meter() as meter, self.prefix_cache.lease(self.rows[0].prompt, **self._namespace) as hit:
                if hit.length:
                    hit.load_into(cache)
            self.rows[0].reused = cache.length
            self.rows[0].cost += meter.cost

    def _choose(self, row: _Row, logits: Float[Tensor, " V"]) -> None:
        row.tokens.append(operator.index(row.pick(logits)))  # a sampler of your own may give a tensor; stop ids are ints
        if row.tokens[-1] in self.stop_ids:
            row.finish = "stop"
        elif len(row.tokens) == row.limit:
            row.finish = "length" if row.limit == self.max_new_tokens else "context"

    def _charge(self, cost: Cost, tokens: list[int]) -> None:
        """Give each row that is not finished its share of a pass: its own tokens, and an equal part of what ran for all."""
        B = len(self.rows)
        for row, own in zip(self.rows, tokens, strict=True):
            if row.finish is None:
                row.cost += Cost(own, cost.kv_rows * own // cost.tokens, cost.macs // B, cost.bytes_copied // B)

    def _retire(self, cache: KVCache) -> bool:
        """Turn finished rows into padding; say whether any row is left."""
        finished = torch.tensor([row.finish is not None for row in self.rows])
        if finished.any() and not finished.all():
            if self._shared is None and not rewinds(cache):
                self._shared = cache.fork()
            starts = torch.zeros(len(self.rows), dtype=torch.int64) if cache.starts is None else cache.starts
            cache.starts = starts.masked_fill(finished, FINISHED)
        return not bool(finished.all())

    def _settle(self, cache: KVCache, starts: Tensor | None, before: int) -> None:
        """Padding without finished rows, and only slots in which every row has a token of its own that something followed."""
        if self._shared is not None:
            cast(LimitedCache, cache).restore(self._shared)
            self._shared = None
        cache.starts = starts
        new = min(len(row.tokens) for row in self.rows)
        shared = before + self.rows[0].padding + len(self.rows[0].prompt) + new - 1 if new else before
        if cache.length > shared and cache.can_truncate(shared):
            cache.truncate(shared)


def _require_settings(max_new_tokens: object, cache: object) -> None:
    if isinstance(max_new_tokens, bool) or not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise InputError(
            "Nothing to generate.",
            expected="max_new_tokens, an int of 1 or more",
            got=repr(max_new_tokens),
            todo="To fill a cache only, call prefill.",
        )
    if not (cache is None or isinstance(cache, str | KVCache)):
        raise InputError(
            "That is no cache.",
            expected="a name such as 'preallocated', a cache, or None",
            got=type(cache).__name__,
            todo="Make one with make_cache(kind, model).",
        )


def _require_prefix_cache(prefix_cache: Any, namespace: object) -> None:
    if prefix_cache is None and namespace is not None:
        raise InputError("A namespace says whose prefixes are asked for.", expected="a prefix_cache with it", got="none",
                         todo="Pass prefix_cache=, or leave namespace out.")  # fmt: skip
    is_one = not isinstance(prefix_cache, type) and all(callable(getattr(prefix_cache, do, None)) for do in ("lease", "insert"))
    if prefix_cache is not None and not is_one:
        raise InputError("That is no prefix cache.", expected="a RadixPrefixCache, a BlockPrefixCache, or None",
                         got=f"{prefix_cache!r:.80}", todo="Make one: RadixPrefixCache(model, max_bytes=2**30).")  # fmt: skip


def _held(cache: str | KVCache | None, rows: int) -> list[int]:
    """Tokens that a cache holds of each row: padding is none."""
    if cache is None or isinstance(cache, str):
        return [0] * rows
    if cache.starts is None or len(cache.starts) != rows:  # another batch size is refused when the cache is bound
        return [cache.length] * rows
    return [max(0, cache.length - int(first)) for first in cache.starts]
