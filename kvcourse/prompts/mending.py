"""Lesson 13: a log as it would be once mended, request by request, in tokens. Knows nothing about how faults are found.

A mended request need not be as long as the one that was sent: a history that was cropped is kept, and grows, and so does one in
which each turn has the clock it was sent with. What was kept for one request is there for those that go on from it, too. So
each is counted against the *mended* form of the earlier one: it has a longer prompt, more of it is cached, and what is computed
is only what is new.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from kvcourse.prompts.families import Loss, Text
from kvcourse.providers.rules import Rules
from kvcourse.providers.tree import Found

_REMEMBERED = 50_000  # requests
TURN_END = "<|im_end|>\n"


class Count(NamedTuple):
    """One request, in tokens. shared: that an earlier one begins with, and that are still held. last: up to the last mark."""

    prompt: int
    shared: int
    cached: int
    written: int
    last: int = 0

    @property
    def computed(self) -> int:
        return self.prompt - self.cached


class Sharing(NamedTuple):
    """What a request shares with the earlier one, once mended, and by how much it is longer then.

    tokens: shared ones. blocks: those of them up to the end of a whole block. grown: tokens; below 0: it is shorter.
    """

    tokens: int
    blocks: int
    grown: float


class _Grown(NamedTuple):
    """By how many tokens a mended request is longer, and up to which of its characters one has to share it to be so, too."""

    tokens: float
    at: int
    cuts: int = 0  # made in a row, and not made here
    front: "_Grown | None" = None  # what of it stands further in front, for whoever shares no more

    def up_to(self, reach: int) -> "_Grown":
        """What somebody has of it who shares so many characters."""
        grown: _Grown | None = self
        while grown is not None and reach < grown.at:
            grown = grown.front
        return grown or _AS_SENT


_AS_SENT = _Grown(0, 0)


class MendedLog:
    """Counts the mended log beside the log. every: None mends all; a number only makes so many cuts at once."""

    def __init__(self, rules: Rules, every: int | None = None) -> None:
        self.rules, self.every = rules, every
        self._grown: OrderedDict[int, _Grown] = OrderedDict()

    def count(self, number: int, now: Count, text: Text, found: Found, loss: Loss | None, sharing: Sharing | None) -> Count:
        """The request with this number as it would be. loss, sharing: None where it has lost nothing."""
        if self.every is not None and loss is not None and not is_cut(loss):
            return now
        theirs, reach = (found.nearest, found.alive) if loss is None else (loss.earlier, loss.shared)
        before = self._grown.get(theirs, _AS_SENT) if theirs is not None else _AS_SENT
        before = before.up_to(found.shared if loss is None else reach)
        here = _grown_with(before, text, loss, sharing)
        if self.every is not None and here.cuts == self.every:
            return now
        if here.tokens or here.cuts:
            self._grown[number] = here
            if len(self._grown) > _REMEMBERED:
                self._grown.popitem(last=False)
        if not here.tokens and not before.tokens:
            return self._of_same_length(now, sharing)
        return self._of_other_length(now, text, found, sharing, here, before.up_to(reach))

    def alone(self, now: Count, sharing: Sharing) -> Count:
        """The request without faults that change no length, whatever others are."""
        return self._of_same_length(now, sharing)

    def _of_same_length(self, now: Count, sharing: Sharing | None) -> Count:
        if sharing is None:
            return now
        shared = min(self._whole(sharing), now.prompt - 1)
        more = max(0, self.rules.reusable(shared) - now.cached)
        cached = now.cached + more
        return now._replace(cached=cached, written=min(max(0, now.written - more), now.prompt - cached))

    def _of_other_length(
        self, now: Count, text: Text, found: Found, sharing: Sharing | None, here: _Grown, before: _Grown
    ) -> Count:
        prompt, kept = max(1, now.prompt + round(here.tokens)), round(before.tokens)
        if self.rules.matching == "longest_prefix":
            shared = (now.shared if sharing is None else sharing.tokens) + kept
            return Count(prompt, shared, self.rules.reusable(max(0, min(shared, prompt - 1))), 0)

        def tokens(characters: int) -> int:
            return characters * now.prompt // len(text.text)

        shared = now.cached if sharing is None else sharing.blocks
        held = min(now.last, tokens(whole_blocks(text.ends, found.alive)))
        if sharing is None and held < self.rules.minimum_tokens:  # as it is, it was too short to be stored
            shared = max(shared, held)
        shared += kept if shared >= tokens(before.at) else 0
        cached = self.rules.reusable(max(0, min(shared, prompt - 1)))
        last = min(now.last + (round(here.tokens) if now.last >= tokens(here.at) else 0), prompt)
        written = max(0, last - cached) if last >= self.rules.minimum_tokens else 0
        return Count(prompt, shared, cached, written, last)

    def _whole(self, sharing: Sharing) -> int:
        return sharing.blocks if self.rules.matching == "breakpoints" else sharing.tokens


def is_cut(loss: Loss) -> bool:
    """Whether what was lost is lost to a history that is shorter than it was."""
    return loss.verdict.grown > 0 and all(finding.cause.kind == "history" for finding in loss.verdict.findings)


def _grown_with(before: _Grown, text: Text, loss: Loss | None, sharing: Sharing | None) -> _Grown:
    """What the request keeps: what the earlier one did, and what it has left out itself."""
    if loss is None or sharing is None:
        return before
    verdict, tools = loss.verdict, len(text.body.tools)
    tokens = max(0, before.tokens + sharing.grown)  # what is new in a request, and in none before it, is not saved
    if verdict.goes_on and verdict.stamps and not verdict.left_out:
        at = text.ends[tools + verdict.goes_on - 1] - len(TURN_END)
        return _Grown(tokens, at, before.cuts, before if before.tokens else None)
    first = verdict.findings[0].message
    item = tools + first if isinstance(first, int) else max(0, tools - 1)
    place = text.ends[min(item, len(text.ends) - 1)]
    at = max(place, before.at - verdict.left_out)
    return _Grown(tokens, at, before.cuts + is_cut(loss))


def whole_blocks(ends: Sequence[int], shared: int) -> int:
    """Of the ends of blocks, the last that is not behind what is shared."""
    return max((end for end in ends if end <= shared), default=0)
