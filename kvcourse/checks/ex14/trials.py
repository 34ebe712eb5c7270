"""Lesson 14: a learner's test, tried on one cache. Knows nothing about which faults there are.

Model and caches are on our side: the test calls functions of ours, and what it is given for a cache says its length and nothing
else.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Opaque, describe, expect
from kvcourse.checks.ex14.patients import KINDS, Case
from kvcourse.errors import KVCourseError
from kvcourse.zoo.bodies import SHAPE, the_model

Ids = list[int]
ROUNDING = 2.0**-51  # a right cache adds up in another order, and so differs in the last bits; here it does so on every machine
MOST_CALLS = 1500  # of one test of one cache


class Handle:
    """What a test is given for a cache: to be handed on, and to be asked for its length."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    @property
    def length(self) -> int:
        return int(self._cache.length)


class Trial:
    """One call of the answer. texts: lists of ids that it is given; they stay as they are."""

    def __init__(self, answer: Answer, case: Case, *texts: Ids, gives: str | None = None) -> None:
        self.case, self.calls, self.caches, self.acted = case, 0, list[Handle](), 0
        self.with_cache = 0
        kept = [answer.keep(ids) for ids in texts]
        acting = {None: (), "truncate": (self.truncate,), "fork": (self.fork,)}[gives]
        self.got = answer(self.model, self.new, *acting, *kept)
        self.after = [one.value() for one in kept]

    def new(self) -> Opaque:
        """An empty cache."""
        return self._handed(self.case.make(the_model()))

    def model(self, tokens: Any, cache: Any = None) -> Tensor:
        """Logits (1, T, V), without a cache or with one."""
        good = isinstance(tokens, Tensor) and tokens.dtype == torch.int64 and tokens.dim() == 2 and tokens.shape[0] == 1
        expect(good, f"The model takes an int64 tensor (1, T); it was given {describe(tokens)}.")
        expect(tokens.numel(), "A call gave the model no token at all.")
        self.calls += 1
        expect(self.calls <= MOST_CALLS, f"One cache, and more than {MOST_CALLS} calls of the model: does the loop end?")
        low, high = int(tokens.min()), int(tokens.max())
        expect(0 <= low <= high < SHAPE.vocab_size, f"A call gave the model an id that is none of its {SHAPE.vocab_size}.")
        with torch.no_grad():
            if cache is None:
                return self._run(tokens, None)
            handle = self._mine(cache)
            self.with_cache += 1
            start, logits = handle.length, self._run(tokens, handle._cache) * (1 + ROUNDING)
            spoil = self.case.spoil or getattr(handle._cache, "spoiled", None)
            return logits if spoil is None else spoil(logits[0].clone(), start)[None]

    def truncate(self, cache: Any, length: Any) -> None:
        """Keep the first `length` tokens."""
        handle = self._mine(cache)
        good = type(length) is int and 0 <= length <= handle.length
        expect(good, f"truncate takes an n from 0 to the cache's length, {handle.length}; yours gave it {length!r}.")
        self.acted += 1
        handle._cache.truncate(length)

    def fork(self, cache: Any) -> Opaque:
        """A second cache with the same rows."""
        self.acted += 1
        return self._handed(self._mine(cache)._cache.fork())

    def _run(self, tokens: Tensor, cache: Any) -> Tensor:
        try:
            return the_model()(tokens, cache=cache)
        except KVCourseError as error:
            raise Broken(str(error)) from None

    def _handed(self, cache: Any) -> Opaque:
        self.caches.append(Handle(cache))
        return Opaque(self.caches[-1], attributes=("length",))

    def _mine(self, cache: Any) -> Handle:
        expect(isinstance(cache, Handle), f"That is no cache of new(): {describe(cache)}.")
        return cache


def right_ones() -> list[Case]:
    return [Case(kind) for kind in KINDS]


def shuffled(draw: Draw, cases: Sequence[Case]) -> list[Case]:
    """In an order of the draw's own, so that results known by heart are of no use."""
    left, order = list(cases), []
    while left:
        order.append(left.pop(draw.integer(0, len(left) - 1)))
    return order


def any_kind(draw: Draw, *but: str) -> str:
    """One of the kinds."""
    kinds = [kind for kind in KINDS if kind not in but]
    return kinds[draw.integer(0, len(kinds) - 1)]


def text(draw: Draw, n: int) -> Ids:
    """Ids that are all different, so that none can stand for another."""
    left = list(range(1, SHAPE.vocab_size))
    return [left.pop(draw.integer(0, len(left) - 1)) for _ in range(n)]


def verdict(trial: Trial) -> bool:
    """What the test said, if it is True or False."""
    got = trial.got
    odd = isinstance(got, Tensor) and got.dtype == torch.bool
    expect(type(got) is bool, f"A test says True or False; got {describe(got)}.{' bool(...) makes one of it.' if odd else ''}")
    return bool(got)


def judge(trial: Trial, why: str) -> None:
    """Raise Broken unless the test says True of a right cache and False of a broken one. why: of a wrong False."""
    got, case = verdict(trial), trial.case
    if case.is_right:
        expect(got, f"A right cache, {case.kind}: expected True; got False. {why}")
    told = f"A broken cache, {case.kind}. {case.told}"
    expect(got is case.is_right, f"{told} Expected False; got {got}.")
