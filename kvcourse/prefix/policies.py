"""Lesson 10: which entry goes first when room is needed. Knows nothing about trees, tensors or who is pinned.

A policy gives every entry a score when it is stored or used; the lowest score among those that may go, goes. Scores are made
of the past only. Requests are counted from 1; a position is counted in tokens.

    lru    the one not used for longest
    lfu    the one used least often, where what goes raises the bar for what comes: an old favourite fades
           (LFU with dynamic ageing: Arlitt et al. 2000, score = uses + age, age = score of the last one that went)
    slru   a first use is on probation, a second one protects; at most four fifths are protected (Karedla et al. 1994)
    ttl    the one stored first, used since or not: what has the shortest time to live
    depth  as lru, but an entry counts as older the further back in its text it stands: what stands in front is shared by more
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from kvcourse.errors import InputError
from kvcourse.prefix.entries import Entry


class Policy:
    """LRU, and the base of all. `rescore` tells the owner that an entry's score changed without its being used."""

    name = "lru"

    def __init__(self, rescore: Callable[[Entry], None]) -> None:
        self.rescore = rescore

    def score(self, entry: Entry) -> Any:
        """The score of an entry that has just been stored or used. All scores of one policy can be compared."""
        return entry.used

    def went(self, entry: Entry) -> None:
        """An entry was evicted or dropped."""

    def split(self, upper: Entry, lower: Entry) -> None:
        """`upper` is new and takes the place of the front part of `lower`."""
        upper.score = lower.score


class LFU(Policy):
    """Least frequently used, with ageing."""

    name = "lfu"

    def __init__(self, rescore: Callable[[Entry], None]) -> None:
        super().__init__(rescore)
        self.age = 0

    def score(self, entry: Entry) -> tuple[int, int]:
        return self.age + entry.uses, entry.used

    def went(self, entry: Entry) -> None:
        self.age = max(self.age, entry.score[0])


class SLRU(Policy):
    """Segmented LRU: (0, last use) on probation, (1, last use) protected."""

    name = "slru"
    PROTECTED = 0.8  # of the stored tokens, at most

    def __init__(self, rescore: Callable[[Entry], None]) -> None:
        super().__init__(rescore)
        self._known: dict[Entry, int] = {}  # tokens of every entry
        self._protected: OrderedDict[Entry, None] = OrderedDict()  # the one used last at the end
        self._tokens = self._protected_tokens = 0

    def score(self, entry: Entry) -> tuple[int, int]:
        if entry not in self._known:
            self._know(entry)
        if entry.uses < 2:
            return 0, entry.used
        if entry not in self._protected:
            self._protected_tokens += self._known[entry]
        self._protected[entry] = None
        self._protected.move_to_end(entry)
        while self._protected_tokens > self.PROTECTED * self._tokens and len(self._protected) > 1:
            oldest, _ = self._protected.popitem(last=False)
            self._protected_tokens -= self._known[oldest]
            oldest.score = 0, entry.used  # back on probation, as the youngest there
            self.rescore(oldest)
        return 1, entry.used

    def went(self, entry: Entry) -> None:
        tokens = self._known.pop(entry, 0)
        self._tokens -= tokens
        if entry in self._protected:
            del self._protected[entry]
            self._protected_tokens -= tokens

    def split(self, upper: Entry, lower: Entry) -> None:
        super().split(upper, lower)
        if lower in self._known:
            self._known[lower] -= len(upper.tokens)
            self._known[upper] = len(upper.tokens)
        if lower in self._protected:
            self._protected[upper] = None

    def _know(self, entry: Entry) -> None:
        self._known[entry] = len(entry.tokens)
        self._tokens += len(entry.tokens)


class TTL(Policy):
    """First stored, first out."""

    name = "ttl"

    def score(self, entry: Entry) -> int:
        return entry.created


class Depth(Policy):
    """LRU in which a position of 512 tokens further back counts as 20 requests without use."""

    name = "depth"
    REQUESTS_PER_TOKEN = 20 / 512

    def score(self, entry: Entry) -> float:
        return entry.used - self.REQUESTS_PER_TOKEN * entry.start


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Policy, LFU, SLRU, TTL, Depth)}


def policy_named(name: str, rescore: Callable[[Entry], None]) -> Policy:
    """A policy by its name. Raises: InputError if there is none."""
    if name not in POLICIES:
        raise InputError("There is no such policy.", expected=", ".join(POLICIES), got=repr(name), todo="Choose one of these.")
    return POLICIES[name](rescore)
