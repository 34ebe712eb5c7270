"""Lesson 13: what stands in one place of a family's requests, one after the other. Knows nothing about how two are compared.

A short text in front of a long one that is the same (`varied`) may have been edited once, and for good: nothing is to be mended
then. What is new in many requests is something about them or their user, an `id`; a few wordings that come again, a `template`.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvcourse.causes import Cause
from kvcourse.prompts.families import Loss, Text
from kvcourse.prompts.findings import Finding
from kvcourse.prompts.varied import LONGEST

_BEFORE = 24  # characters in front by which a place is known
_KNOWN = 16  # texts of one place that are remembered
_WORDINGS = 4  # that come again: more are no template's
_FAMILIES, _PLACES = 5_000, 4  # with such places, and places of each
_SHARE = 0.02  # of a family's characters: what loses less is not worth a word

_CAPITAL = r"[A-Z][\w'’.-]*"
_ABOUT_SOMEBODY = re.compile(rf"""(?:\d\D*){{3}}|[A-Za-z]\d|\d[A-Za-z]|@|^["'“‘(\[]*{_CAPITAL}(?:\s+{_CAPITAL})*[^\w\s]*\s*$""")
_FIELD = re.compile(r"(?:^|[\n>])\W*\w[\w -]{1,30}[:=]\s*$")
_RELEASE = re.compile(r"(?i)\b(?:version|release|revision|rev|build|v)\W{0,2}[\d.]*$|^\W*(?:version|release|v)[\s_-]?\d")


@dataclass
class Place:
    """Short texts between two that are the same, and what was lost to them."""

    before: str
    behind: str
    first: Any  # what is said of the request in which it was seen first
    characters: int = 0  # lost
    cached: int = 0  # tokens that would be found, and are not
    cost: float = 0.0
    lost: "array[int]" = field(default_factory=lambda: array("Q"))  # which request, and how many tokens, in turn
    texts: dict[str, None] = field(default_factory=dict)  # the last ones
    last: str | None = None
    different: int = 0
    requests: int = 0
    again: int = 0  # how often one has come again after another: once may be an edit that was taken back

    def saw(self, item: str) -> None:
        """One request's item, which may have this place in it."""
        at = item.find(self.before)
        if at < 0:
            return
        at += len(self.before)
        end = item.find(self.behind, at, at + LONGEST + len(self.behind))
        if end >= 0:
            self.stands(item[at:end])

    def stands(self, text: str) -> None:
        """One text more."""
        self.requests += 1
        self.different += text not in self.texts
        self.again += text in self.texts and text != self.last
        self.texts[text], self.last = None, text
        if len(self.texts) > _KNOWN:
            del self.texts[next(iter(self.texts))]

    @property
    def cause(self) -> Cause | None:
        """What it is, by all that stood here; None where it may have been edited for good."""
        shown = [text for text in self.texts if text.strip()]
        release = any(_RELEASE.search(self.before) or _RELEASE.search(text) for text in shown)
        same_words = len({"".join(filter(str.isalnum, text)).lower() for text in self.texts}) == 1  # other marks, or quotes
        somebody = not same_words and (bool(_FIELD.search(self.before)) or all(map(_ABOUT_SOMEBODY.search, shown)))
        if somebody and not release and (self.again >= 2 or self.different >= 3):
            return Cause("id", f"{self.different} texts about a request or its user, in front of what is the same for all")
        often_new = self.different >= 3 and 3 * self.different >= 2 * self.requests
        if often_new or (self.again >= 2 and self.different > _WORDINGS):
            return Cause("id", f"{self.different} different texts, in front of what is the same for all")
        if self.again >= 2:
            return Cause("template", f"{self.different} wordings that come again, in front of what is the same")
        return None

    def is_worth_it(self, characters: int) -> bool:
        """Whether it loses enough of so many characters."""
        return self.characters >= _SHARE * characters


class Places:
    """All of a log, by family; those that were not added to for longest are forgotten first."""

    def __init__(self) -> None:
        self._families: OrderedDict[int, dict[tuple[int, str], Place]] = OrderedDict()

    def of(self, family: int, loss: Loss, say: Callable[[Finding], Any]) -> Place | None:
        """The place at which a request has lost this; None where there are too many. say: what is said of it, for the first."""
        finding = next(one for one in loss.verdict.findings if one.behind)
        assert isinstance(finding.message, int)
        places = self._families.setdefault(family, {})
        self._families.move_to_end(family)
        if len(self._families) > _FAMILIES:
            self._families.popitem(last=False)
        key = finding.message, finding.before[-_BEFORE:]
        if key not in places and len(places) < _PLACES:
            places[key] = Place(key[1], finding.behind, say(finding))
            places[key].stands(finding.cause.theirs)
        return places.get(key)

    def saw(self, family: int, text: Text) -> None:
        """Any request of a family, whatever it lost."""
        for (message, _), place in self._families.get(family, {}).items():
            item = len(text.body.tools) + message
            if item < len(text.items):
                place.saw(text.items[item])

    def named(self) -> Iterator[tuple[int, Place, Cause]]:
        """Each place that is a fault, with its family and its cause."""
        for family, places in self._families.items():
            for place in places.values():
                cause = place.cause
                if cause is not None:
                    yield family, place, cause
