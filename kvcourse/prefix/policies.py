"""Lesson 10: which entry goes first when room is needed. Knows nothing about trees, tensors or who is pinned.

A policy gives every entry a score when it is stored or used; the lowest score among those that may go, goes. Scores are made
of the past only. Requests are counted from 1; a position is counted in tokens.

    lru    the one not used for longest
    lfu    the one used least often, where what goes raises the bar for what comes: an old favourite fades
           (LFU with dynamic ageing: Arlitt et al. 2000, score = uses + age, age = score of the last one evicted)
    slru   a first use is on probation, a second one protects; at most four fifths are protected (Karedla et al. 1994)
    ttl    the one stored first, used since or not: what has the shortest time to live
    turns  as lru, but an entry counts as younger the more turns its text has had, and as older the further back it stands:
           a chat that went on before goes on again, and what stands in front is shared by more

What they keep of a production chat service's requests is in `Turns`; `kvcourse replay` measures it on any trace.
"""

import math
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
        """An entry was evicted: of those that might go it had the lowest score."""
        self.forget(entry)

    def forget(self, entry: Entry) -> None:
        """An entry is gone, for whatever reason: it expired, was cleared, was dropped, or was evicted."""

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
        super().went(entry)
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

    def forget(self, entry: Entry) -> None:
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


class Turns(Policy):
    """LRU with two allowances, counted in requests without use.

    A doubling of the turns that a text has had is worth 800: of a chat's first turns one in three is followed by another, of
    its fifth ones two in three. An entry's turns are its own uses, and half of those that its text had before it was stored.
    A doubling of its distance from the front, from 512 tokens on, costs 150.

    Block hit rates on the Mooncake conversation trace (12,031 requests), at a capacity of 1,000 / 5,859 / 10,000 / 30,000 /
    50,000 blocks of 512 tokens:
        all                turns  0.0768 0.1691 0.2247 0.3297 0.3551    lru  0.0445 0.1361 0.2116 0.3257 0.3546
        first half only    turns  0.0753 0.1616 0.2136 0.3185 0.3417    lru  0.0434 0.1379 0.2085 0.3160 0.3418
        second half only   turns  0.0719 0.1639 0.2142 0.3106 0.3318    lru  0.0458 0.1320 0.2083 0.3107 0.3317
    The numbers were chosen on this trace, from a plateau: 400 and 75 give 0.0679 0.1567 0.2201 0.3294 0.3548. Where nearly
    everything fits, as in the last two columns of each half, there is little to choose, and lru does as well.
    """

    name = "turns"
    REQUESTS_PER_DOUBLING = 800
    REQUESTS_PER_DISTANCE = 150
    NEAR_TOKENS = 512

    def __init__(self, rescore: Callable[[Entry], None]) -> None:
        super().__init__(rescore)
        self._before: dict[Entry, int] = {}  # turns that its text had before an entry was stored

    def score(self, entry: Entry) -> float:
        if entry not in self._before:
            self._before[entry] = self._turns_before(entry)
        turns = entry.uses + self._before[entry] / 2
        bonus = self.REQUESTS_PER_DOUBLING * math.log2(turns)
        return entry.used + bonus - self.REQUESTS_PER_DISTANCE * math.log2(1 + entry.start / self.NEAR_TOKENS)

    def forget(self, entry: Entry) -> None:
        self._before.pop(entry, None)

    def split(self, upper: Entry, lower: Entry) -> None:
        super().split(upper, lower)
        if lower in self._before:
            self._before[upper] = self._before[lower]
            lower.score = self.score(lower)  # it stands further back now

    def _turns_before(self, entry: Entry) -> int:
        front = entry.parent
        if front is None or front.parent is None:  # it stands at the front
            return 0
        return self._before.get(front, 0) + (front.created != entry.created)


POLICIES: dict[str, type[Policy]] = {policy.name: policy for policy in (Policy, LFU, SLRU, TTL, Turns)}


def policy_named(name: str, rescore: Callable[[Entry], None]) -> Policy:
    """A policy by its name. Raises: InputError if there is none."""
    if not isinstance(name, str) or name not in POLICIES:
        raise InputError("There is no such policy.", expected=", ".join(POLICIES), got=repr(name), todo="Choose one of these.")
    return POLICIES[name](rescore)
