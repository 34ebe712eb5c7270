"""Lesson 14: what is observed of a cache that serves one sequence. Knows nothing about any fault: only what is right.

Every observation makes caches of its own, drives them as any caller would (what `cache.length` says is held is not computed
again), and reads off logits, counts and refusals.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.errors import KVCourseError
from kvcourse.meter import Meter
from kvcourse.models.gpt import GPT
from kvcourse.zoo.bodies import compared, right_logits, texts, the_model
from kvcourse.zoo.specimen import Make

CHUNK, CUT, N = 4, 5, 12
Row = tuple[str, str | int, str | int, bool]  # what, right, seen, is it right


def feed(model: GPT, cache: KVCache, ids: list[int], chunk: int, start: int = 0) -> Tensor:
    """Logits of tokens `start` on, (T, V): so many tokens a pass, and before them whatever the cache says it does not hold."""
    parts = []
    for first in range(start, len(ids), chunk):
        stop = min(first + chunk, len(ids))
        logits = model(torch.tensor([ids[min(cache.length, first) : stop]]), cache=cache)[0]
        parts.append(logits[first - stop :])
    return torch.cat(parts)


def attempted(see: Callable[[], Any]) -> Any:
    """What was seen, or what stopped it."""
    try:
        return see()
    except (KVCourseError, RuntimeError, IndexError, ValueError) as error:
        return f"stops: {type(error).__name__}"


class Single:
    """The observations of one kind of cache."""

    def __init__(self, make: Make) -> None:
        self.model, self._make = the_model(), make
        sample = self.new()
        self.window, self.rewinds = getattr(sample, "window", None), getattr(sample, "rewinds", True)
        self.rounds = not sample.exact and self.window is None
        self.ids, self.others = texts(2, 2 * N if self.window else N)
        self.chunk = 1 if attempted(lambda: self.fed(1)) == "equal" else len(self.ids)

    def feed(self, cache: KVCache, ids: list[int], start: int = 0) -> Tensor:
        """In the way that this kind is right in, if there is one: so that a fault shows where it is, and not everywhere."""
        return feed(self.model, cache, ids, self.chunk, start)

    def new(self) -> Any:
        return self._make(self.model, N)

    def equality(self, what: str, see: Callable[[], str], may_refuse: bool = False) -> Row:
        """A line about logits: equal, or close where rows are rounded."""
        seen = attempted(see)
        right = "close" if self.rounds else "equal"
        good = {"equal", "nearly equal", "close"} if self.rounds else {"equal"}
        if seen == "refused" and may_refuse:
            right = "refused"
            good = {"refused"}
        return what, right, seen, seen in good

    def against(self, got: Tensor, ids: list[int]) -> str:
        """The logits of the last tokens of a text."""
        want = right_logits(self.model, ids, self.window)[-len(got) :]
        return compared(got, want, first=len(ids) - len(got), rounds=self.rounds)

    def rows(self) -> Iterator[Row]:
        yield self.equality("one pass", lambda: self.fed(len(self.ids)))
        yield self.equality("one token at a time", lambda: self.fed(1))
        yield self.equality(f"{CHUNK} tokens at a time", lambda: self.fed(CHUNK))
        yield self.counted()
        yield self.seen_by(f"a change of token 0 shows at token {CHUNK}", 0, CHUNK, "yes")
        yield self.seen_by(f"a change of token {CHUNK + 1} shows at token {CHUNK}", CHUNK + 1, CHUNK, "no")
        yield self.equality("a second text, after reset", self.reset)
        yield self.equality(f"cut back to {CUT}, another end", lambda: self.cut(CUT), may_refuse=not self.rewinds)
        yield self.equality("cut back to 0, another text", lambda: self.cut(0))
        yield self.equality("a fork, another end", lambda: self.forked()[0])
        yield self.equality("its parent afterwards", lambda: self.forked()[1])
        yield self.equality("rows read out, put into another", self.moved, may_refuse=self.rounds)
        yield self.equality("two texts, one padded", self.padded)
        yield self.bytes_by_passes()
        yield self.bytes_of_a_window()
        yield self.one_too_many()

    def fed(self, chunk: int) -> str:
        return self.against(feed(self.model, self.new(), self.ids, chunk), self.ids)

    def counted(self) -> Row:
        """Tokens through the model, one at a time."""
        with Meter() as meter:
            attempted(lambda: feed(self.model, self.new(), self.ids[:N], 1))
        return f"tokens computed for {N}, one at a time", N, meter.cost.tokens, meter.cost.tokens == N

    def seen_by(self, what: str, changed: int, looked_at: int, right: str) -> Row:
        """Does a change of one token change the logits at another? The first CHUNK are cached, the others come in one pass."""

        def see() -> str:
            other = list(self.ids[: 2 * CHUNK])
            other[changed] = other[changed] % 40 + 1
            one, two = (feed(self.model, self.new(), ids, CHUNK)[looked_at] for ids in (self.ids[: 2 * CHUNK], other))
            return "no" if torch.equal(one, two) else "yes"

        seen = attempted(see)
        return what, right, seen, seen == right

    def reset(self) -> str:
        cache = self.new()
        self.feed(cache, self.ids[:CUT])
        cache.reset()
        ids = self.others[: N - CUT]
        return self.against(self.model(torch.tensor([ids]), cache=cache)[0], ids)

    def cut(self, length: int) -> str:
        cache, ids = self.new(), self.ids[:length] + self.others[length : length + CUT]
        self.feed(cache, self.ids[: N - CUT])
        if not cache.can_truncate(length):
            return "refused"
        cache.truncate(length)
        return self.against(self.feed(cache, ids, start=length), ids)

    def forked(self) -> tuple[str, str]:
        """Both go on from CUT tokens: the fork first, and then its parent; then each once more."""
        cache = self.new()
        one, two = self.ids[:N], self.ids[:CUT] + self.others[CUT:N]
        self.feed(cache, self.ids[:CUT])
        fork = cache.fork()
        parts: dict[int, list[Tensor]] = {0: [], 1: []}
        for start, stop in ((CUT, CUT + 3), (CUT + 3, N)):
            for which, (each, ids) in enumerate(((fork, two), (cache, one))):
                parts[which].append(self.feed(each, ids[:stop], start))
        return self.against(torch.cat(parts[0]), two), self.against(torch.cat(parts[1]), one)

    def moved(self) -> str:
        """The rows of one cache, appended to another: what a session file does."""
        cache, other = self.new(), self.new()
        self.feed(cache, self.ids[: N - CUT])
        n = cache.length
        if self.rounds:
            return "refused"
        if n != N - CUT:
            return f"{n} rows"
        other.bind(self.model, 1, self.model.dtype, self.model.device)
        for layer in range(self.model.config.n_layer):
            other.append(layer, *cache.read(layer, 0, n))
        other.advance(n)
        return self.against(self.feed(other, self.ids[:N], start=n), self.ids[:N])

    def padded(self) -> str:
        """Rows of N and of N - 3 tokens; each is compared with itself alone."""
        cache, short = self.new(), self.others[3:N]
        cache.starts = torch.tensor([0, 3])
        both = torch.tensor([self.ids[:N], [0, 0, 0, *short]])  # (2, N)
        parts = []
        for first in range(0, N, self.chunk):
            now = both[:, min(cache.length, first) : first + self.chunk]
            parts.append(self.model(now, cache=cache)[:, -self.chunk :])
        logits = torch.cat(parts, dim=1)  # (2, N, V)
        seen = [self.against(logits[0], self.ids[:N]), self.against(logits[1, 3:], short)]
        return next((one for one in seen if one.startswith("off")), max(seen, key=len))

    def bytes_by_passes(self) -> Row:
        """Memory depends on how many tokens there are, not on how they came."""

        def held(chunk: int) -> int:
            cache = self.new()
            feed(self.model, cache, self.ids[:N], chunk)
            return int(cache.nbytes)

        pair = held(N), held(1)
        seen = "the same" if pair[0] == pair[1] else f"{pair[0]} and {pair[1]}"
        return "bytes after one pass and after single steps", "the same", seen, pair[0] == pair[1]

    def bytes_of_a_window(self) -> Row:
        what = "bytes at a window's end, and as many tokens later"
        if self.window is None:
            return what, "no window", "no window", True
        cache, held = self.new(), []
        for stop in (N, 2 * N):
            feed(self.model, cache, self.ids[:stop], 1, start=stop - N)
            held.append(int(cache.nbytes))
        seen = "the same" if held[0] == held[1] else f"{held[0]} and {held[1]}"
        return what, "the same", seen, held[0] == held[1]

    def one_too_many(self) -> Row:
        """The cache is filled to its capacity; then comes one more."""
        what, cache = "one token more than its capacity", self.new()
        capacity = cache.capacity
        if capacity is None:
            return what, "no limit", "no limit", True
        ids = texts(1, capacity + 1, seed=2)[0]

        def see() -> str:
            feed(self.model, cache, ids[:-1], capacity)
            feed(self.model, cache, ids, 1, start=capacity)
            return "taken"

        seen = attempted(see)
        return what, "stops: CacheFull", seen, seen == "stops: CacheFull"


def observed(make: Make) -> list[Row]:
    """All of it."""
    with torch.no_grad():
        return list(Single(make).rows())
