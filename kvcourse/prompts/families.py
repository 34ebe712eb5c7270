"""Lesson 13: which earlier request this one should have reused, found without comparing all pairs. Knows nothing about prices.

Two ways lead to an earlier request: the tree of all texts, by what both begin with, and an index of sentences, by what both say
anywhere behind that. A request whose rest nobody has said before has lost nothing, and is not looked at any further: that is
every growing conversation, and every new question. What is held is bounded; the oldest is forgotten first.
"""

import json
from array import array
from collections import Counter, OrderedDict
from dataclasses import dataclass
from itertools import accumulate

from kvcourse.prompts.bodies import Body
from kvcourse.prompts.findings import Verdict, item_texts, shared_characters
from kvcourse.prompts.judge import judge_twice, pieces
from kvcourse.prompts.varied import LEAST
from kvcourse.providers.tree import Found, Node, PrefixTree

OPENING = "<|im_start|>assistant\n"  # what every prompt ends with
_SENTENCES, _REQUESTS, _ITEMS = 300_000, 50_000, 2_000_000  # remembered at most; items: tools and messages of all requests
_RELATED = 48  # shared characters that make a family
_LEAST, _LEAST_AT_END = 24, 256  # characters to be gained, for a fault; the second in a request's last turn
_CONTENT = {"tool": 2, "assistant": 2, "function": 2}  # whole messages to be gained, where nobody lays out what differs


@dataclass(frozen=True)
class Text:
    """A request as one text. ends: characters up to the end of each item, tools first."""

    body: Body
    items: list[str]
    text: str
    ends: list[int]

    @classmethod
    def of(cls, body: Body) -> "Text":
        items = item_texts(body)
        return cls(body, items, "".join(items) + OPENING, list(accumulate(map(len, items))))


@dataclass(frozen=True)
class Loss:
    """What a request did not reuse. earlier: the number of the other one. shared: characters, once all is mended.

    gained: characters that are computed now, and would not be then.
    """

    verdict: Verdict
    earlier: int
    shared: int
    gained: int


@dataclass(slots=True)
class _Seen:
    """An earlier request: where its text ends in the tree, and how it is cut."""

    end: Node
    tools: int
    lengths: "array[int]"
    roles: str
    family: int
    seconds: float | None

    def body(self) -> Body:
        text, at, tools, messages = self.end.text, 0, [], []
        named = self.roles.split("\n")
        for n, length in enumerate(self.lengths):
            part, at = text[at : at + length], at + length
            if n < self.tools:
                tools.append(json.loads(part))
            else:
                role = named[n - self.tools]
                messages.append({"role": role, "content": part[len(f"<|im_start|>{role}\n") : -len("<|im_end|>\n")]})
        return Body(tuple(messages), tuple(tools))


class Families:
    """All requests so far, by what they share; those to different models share nothing.

    lifetime, renewed: as the provider's cache has them.
    """

    def __init__(self, lifetime: float | None = None, renewed: bool = True) -> None:
        self.tree, self.lifetime = PrefixTree(lifetime, renewed), lifetime
        self.count = 0  # families
        self.forgotten = False  # whether there was more than is remembered
        self._seen: OrderedDict[int, _Seen] = OrderedDict()
        self._items = 0
        self._sentences: dict[int, int] = {}  # a sentence: the last request that said it
        self._earlier_sentences: dict[int, int] = {}  # the same, from before the first dict was full
        self.repeats = 0  # requests that lost nothing, and yet say what was said before, behind a difference
        self.varied: Loss | None = None  # of the last request: what it lost if a short text that varies is a fault, too

    def add(self, text: Text, number: int, seconds: float | None, model: str = "") -> tuple[Found, int, Loss | None]:
        """Add a request; return what was there of it, its family's number, and what it lost."""
        found = self.tree.insert(text.text, number, seconds, model)
        self._forget()  # before anything is compared: of a text that the tree has dropped, nothing is left to read
        first = next((n for n, end in enumerate(text.ends) if end > found.shared), len(text.items))
        told = self._told(text, found.shared, first, hash(model))
        loss = self._loss(text, found, told, seconds)
        family = self._family(text, found, loss or self.varied, told)
        for place in told:
            for name, _ in place:
                self._sentences[name] = number
        if 2 * len(self._sentences) > _SENTENCES:
            self._earlier_sentences, self._sentences = self._sentences, {}
        roles = "\n".join(message["role"] for message in text.body.messages)
        lengths = array("L", map(len, text.items))
        self._seen[number] = _Seen(found.end, len(text.body.tools), lengths, roles, family, seconds)
        self._items += len(lengths)
        return found, family, loss

    @property
    def oldest(self) -> int:
        """The number of the oldest request that is remembered: a family without such a request gets no more."""
        return next(iter(self._seen), 0)

    def body(self, number: int) -> Body:
        """A request that is still remembered: one that a loss names is, until the next is added."""
        return self._seen[number].body()

    def _told(self, text: Text, shared: int, first: int, model: int) -> list[list[tuple[int, int]]]:
        """Every item that is not shared whole, and its sentences, as (name, weight). model: told to it, not to another."""
        told = []
        for n in range(first, len(text.items)):
            start = max(0, shared - (text.ends[n - 1] if n else 0)) if n == first else 0
            item = text.items[n]
            start = max(0, item.rfind("\n", 0, start), item.rfind(". ", 0, start)) if start else 0  # from its sentence's start
            told.append([(name ^ model, weight) for name, weight in ((hash(item), len(item)), *pieces(item[start:]))])
        return told

    def _loss(self, text: Text, found: Found, told: list[list[tuple[int, int]]], seconds: float | None) -> Loss | None:
        votes: Counter[int] = Counter()
        deepest = self.varied = None
        again = 0
        for n, place in enumerate(told):
            for k, (name, weight) in enumerate(place):
                earlier = self._last_to_say(name)
                if earlier is not None and earlier in self._seen:
                    votes[earlier] += weight
                    deepest = earlier
                    again += 0 if (n, k) == (0, 1) else weight  # that sentence began in what is shared
        if deepest is None:
            return None
        candidates = dict.fromkeys([deepest, votes.most_common(1)[0][0], found.nearest])
        best: Loss | None = None
        for earlier in candidates:
            if earlier is None or earlier not in self._seen or not self._is_alive(self._seen[earlier], seconds):
                continue
            theirs = self._seen[earlier].body()
            verdict, full = judge_twice(text.body, theirs)
            best = _more(best, _between(text, verdict, theirs, earlier, found.alive))
            if full is not None:
                self.varied = _more(self.varied, _between(text, full, theirs, earlier, found.alive))
        if self.varied is not None and self.varied.gained - (best.gained if best else 0) < LEAST:
            self.varied = None
        self.repeats += best is None and again >= _LEAST
        return best

    def _last_to_say(self, name: int) -> int | None:
        return self._sentences.get(name, self._earlier_sentences.get(name))

    def _is_alive(self, seen: _Seen, now: float | None) -> bool:
        return self.lifetime is None or now is None or seen.seconds is None or now - seen.seconds <= self.lifetime

    def _family(self, text: Text, found: Found, loss: Loss | None, told: list[list[tuple[int, int]]]) -> int:
        header = text.items[0].find("\n") + 1 if not text.body.tools else 0
        nearest = found.nearest
        if loss is not None:
            return self._seen[loss.earlier].family
        if nearest is not None and nearest in self._seen and found.shared >= min(header + _RELATED, text.ends[0]):
            return self._seen[nearest].family
        said = [self._last_to_say(name) for place in told[:1] for name, _ in place]
        known = Counter(one for one in said if one is not None and one in self._seen)
        if known and 2 * sum(known.values()) > len(said):
            return self._seen[known.most_common(1)[0][0]].family
        self.count += 1
        return self.count

    def _forget(self) -> None:
        """Requests whose text the tree no longer has, and the oldest where there is no room for one more."""
        gone = self.tree.forgotten_up_to
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) < _REQUESTS and self._items <= _ITEMS and (gone is None or oldest > gone):
                return
            self._items -= len(self._seen.pop(oldest).lengths)
            self.forgotten = True


def _more(one: Loss | None, other: Loss | None) -> Loss | None:
    """The one of two losses that has more in it."""
    return max((loss for loss in (one, other) if loss is not None), key=lambda loss: loss.gained, default=None)


def _between(text: Text, verdict: Verdict, theirs: Body, earlier: int, alive: int) -> Loss | None:
    """What the request lost of this earlier one, where it is enough to be no accident."""
    if not verdict.findings:
        return None
    shared = shared_characters(verdict.mended, theirs) + verdict.extra
    if verdict.goes_on and not verdict.left_out and verdict.mended.messages[verdict.goes_on]["role"] == "assistant":
        shared += len(OPENING)  # the answer begins as the earlier prompt ends
    more = shared - verdict.moved - alive
    gained = more - max(0, verdict.grown)
    first = verdict.findings[0]
    at_end = first.message == len(text.body.messages) - 1 and first.cause.kind != "history"
    if more < (_LEAST_AT_END if at_end else _LEAST) or gained <= 0:
        return None
    if isinstance(first.message, int) and first.cause.kind != "history":
        needed = _CONTENT.get(text.body.messages[first.message]["role"], 0)
        behind = text.body.messages[first.message + 1 : first.message + 1 + needed]
        if needed and not (len(behind) == needed and list(theirs.messages[first.message + 1 :][:needed]) == list(behind)):
            return None
    return Loss(verdict, earlier, shared, gained)
