"""Lesson 14: what is observed of a cache that is shared between requests. Knows nothing about any fault: only what is right."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.models.gpt import GPT
from kvcourse.zoo.bodies import compared, right_logits, small_model, texts, the_model
from kvcourse.zoo.single import CUT, N, Row, attempted, feed
from kvcourse.zoo.specimen import Make

ROOM_TEXTS = 8


class Shared:
    """The observations of one kind of prefix cache."""

    def __init__(self, make: Make) -> None:
        self.model, self._make = the_model(), make
        self.texts = texts(ROOM_TEXTS, N)

    def new(self, model: GPT | None = None, n_texts: int = ROOM_TEXTS) -> Any:
        return self._make(model or self.model, n_texts * N)

    def stored(self, shared: Any, ids: list[int], namespace: object = None) -> Any:
        """The prefix cache, with the rows of a text that was computed."""
        cache = PreallocatedCache(2 * N)
        shared.model(torch.tensor([ids]), cache=cache)
        shared.insert(ids, cache, namespace)
        return shared

    def ask(self, shared: Any, ids: list[int], namespace: object = None) -> tuple[int, str, Any]:
        """Tokens found, how the logits of the rest compare with a model without a cache, and the cache that was filled."""
        cache = PreallocatedCache(2 * N)
        with shared.lease(ids, namespace) as hit:
            if hit.length:
                hit.load_into(cache)
        found = cache.length
        got = shared.model(torch.tensor([ids[found:]], dtype=torch.int64), cache=cache)[0]
        return found, compared(got, right_logits(shared.model, ids)[found:], first=found), cache

    def rows(self) -> Iterator[Row]:
        ids, other = self.texts[:2]
        half = ids[: N // 2] + other[N // 2 :]
        step = self.new().index.step_tokens
        known, common = (N - 1) // step * step, N // 2 // step * step
        yield self.found("the same text again: found", known, lambda one: self.ask(self.stored(one, ids), ids))
        yield self.equality("the same text again", lambda one: self.ask(self.stored(one, ids), ids)[1])
        yield self.found("the same start: found", common, lambda one: self.ask(self.stored(one, ids), half))
        yield self.equality("the same start", lambda one: self.ask(self.stored(one, ids), half)[1])
        yield self.equality(f"{ROOM_TEXTS} texts, one after another", self.one_after_another)
        yield self.found("another namespace: found", 0, lambda one: self.ask(self.stored(one, ids, "a"), ids, "b"))
        yield self.found("after an update of the weights: found", 0, lambda _: self.after_an_update(ids))
        yield self.equality("a second hit, the first one written on", self.written_on)
        yield self.within_budget()

    def found(self, what: str, right: int, ask: Callable[[Any], tuple[int, str, Any]]) -> Row:
        seen = attempted(lambda: ask(self.new())[0])
        return what, right, seen, seen == right

    def equality(self, what: str, see: Callable[[Any], str]) -> Row:
        seen = attempted(lambda: see(self.new()))
        return what, "equal", seen, seen == "equal"

    def one_after_another(self, shared: Any) -> str:
        said = []
        for ids in self.texts:
            said.append(self.ask(shared, ids)[1])
            self.stored(shared, ids)
        return next((one for one in said if one != "equal"), "equal")

    def after_an_update(self, ids: list[int]) -> tuple[int, str, Any]:
        model = small_model()  # of our own: it is changed
        shared = self.stored(self.new(model), ids)
        next(model.parameters()).mul_(1.5)
        return self.ask(shared, ids)

    def written_on(self, shared: Any) -> str:
        ids, other = self.texts[:2]
        _, _, cache = self.ask(self.stored(shared, ids), ids[: N - 3])
        cache.truncate(CUT)
        feed(self.model, cache, ids[:CUT] + other[CUT : CUT + 2], 1, start=CUT)
        return self.ask(shared, ids)[1]

    def within_budget(self) -> Row:
        shared = self.new(n_texts=2)
        for ids in self.texts[:4]:
            self.stored(shared, ids)
        good = bool(shared.stats.bytes <= shared.max_bytes)
        return "bytes of 4 texts where 2 have room", "within the budget", "within the budget" if good else "above it", good


def observed(make: Make) -> list[Row]:
    """All of it."""
    with torch.no_grad():
        return list(Shared(make).rows())
