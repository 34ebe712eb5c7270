"""Lessons 10 and 13: why two requests do not share what they could. Knows nothing about tokens, caches or files.

Two texts are equal up to a place and differ from there on. What stands there on both sides, whole words and not single
characters, is given a name: a clock, an id, other whitespace, the same paragraphs in another order … What somebody meant to
write otherwise is `content`, and no fault; in doubt it is content, since a wrong name sends people looking in the wrong place.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal

from kvcourse.common_prefix import common_length
from kvcourse.stamps import Stamp, clock_at, epochs_at, ids_at, marker_at, role_at, turn_around, without_markers

Kind = Literal[
    "clock", "id", "tool_order", "schema", "retrieval_order", "template", "history", "whitespace", "re_encoded",
    "content", "none", "evicted", "expired", "cleared", "mismatch", "other_namespace", "other_weights", "below_minimum", "cold",
]  # fmt: skip

# What to change. Kinds that are no fault have nothing to say.
ADVICE: dict[str, str] = {
    "clock": "Move the clock behind everything that stays the same, or round it to the day.",
    "id": "Leave the id out of the prompt, or move it behind everything that stays the same.",
    "tool_order": "Send the tools in one order, sorted by name.",
    "schema": "Keep the tool definitions as they are while a conversation lasts, byte for byte.",
    "retrieval_order": "Put retrieved documents in one order, by their id and not by score, or behind what stays the same.",
    "template": "Render every request with one template, in one wording; what has to differ goes behind what is the same.",
    "history": "Append to the conversation; leave earlier turns as they were sent.",
    "whitespace": "Build the text in one place, with the same spaces and line breaks each time.",
    "re_encoded": "Keep the ids of what was generated, and append to them, instead of encoding its text again.",
    "evicted": "Give the cache more max_bytes, or another policy.",
    "expired": "Give the cache a longer ttl, or ask again sooner.",
    "other_namespace": "Share a namespace only between those who may see each other's text.",
    "other_weights": "Expected after a change of weights: the first request of each kind pays once.",
    "mismatch": "Stored rows were wrong; report it, with the tokens.",
    "below_minimum": "Nothing, or a smaller block_tokens.",
}

_BLANK = " \t\n\r\f\v\u00a0\u2000-\u200d\u2028\u2029\u202f\u205f\u3000\u2060\ufeff"
_BLANKS = re.compile(f"[{_BLANK}]+")
_WINDOW = 400  # characters in which single words are looked for
_AGREE = 24  # characters that have to be equal behind a difference, for it to be the only one
_PARAGRAPH = 12  # characters of a paragraph that is told from others by its text
_PARAGRAPHS, _LINES, _OBJECTS = r"\n[^\S\n]*\n\s*", r"\n\s*", r"\}\s*,\s*(?=\{)"
_NUMBERED = re.compile(
    r"^\W*(?:(?:human|user|assistant|system):\W+)?"
    r"(?:(?:document|doc|source|passage|result|chunk|context)\W{0,2}\d*\W+|\d{1,3}\W+)?(?:<[^>]*>\s*)*",
    re.I,
)


_SCORES = ("score", "relevance", "similarity", "distance")
_SCORE = re.compile(rf"""(?i)[(\["']*\b(?:{"|".join(_SCORES)})\b["']?\s*[:=]?\s*-?\d+(?:\.\d+)?(?:e-?\d+)?%?["')\]]*[,:]?\s*""")


@dataclass(frozen=True)
class Cause:
    """What kind of difference it is. ours, theirs: what differs, whole; `widened`: how many characters of it are in front."""

    kind: Kind
    why: str
    ours: str = ""
    theirs: str = ""
    widened: int = 0

    @property
    def is_fault(self) -> bool:
        """Whether the same request could have been sent so that it shares more."""
        return self.kind not in ("content", "none", "cold")


def kind_of_difference(before: str, ours: str, theirs: str) -> Cause:
    """Name the first difference between `before + ours` and `before + theirs`.

    before: what both share, or the end of it; turn markers in it (<|im_start|>system) tell whose text it is.
    ours, theirs: what follows, as much as there is: paragraphs in another order are found only where they are given.
    """
    same = common_length(ours, theirs)
    before, ours, theirs = before + ours[:same], ours[same:], theirs[same:]
    if not ours or not theirs:
        return Cause("none", "one text is the start of the other")
    for judge in (_whitespace, _order, _clock, _id, _template):
        found = judge(before, ours, theirs)
        if found is not None:
            return found
    return _content(before, ours, theirs)


def kind_of_tools(ours: Sequence[Any], theirs: Sequence[Any]) -> Cause:
    """Name the difference between two lists of tool definitions, as parsed from JSON."""
    if json.dumps(ours) == json.dumps(theirs):
        return Cause("none", "the tools are the same")
    one, other = ([json.dumps(tool, sort_keys=True) for tool in tools] for tools in (ours, theirs))
    names = [[_tool_name(tool) for tool in tools] for tools in (ours, theirs)]
    if one == other:
        return Cause("schema", "the same tool definitions, with their keys in another order")
    if Counter(one) == Counter(other):
        return Cause("tool_order", "the same tools in another order", ", ".join(names[0]), ", ".join(names[1]))
    new, lost = ([name for name in names[a] if name not in names[1 - a]] for a in (0, 1))
    changed = [name for name, tool in zip(names[0], one, strict=True) if tool not in other and name not in new]
    parts = [f"{verb}: {', '.join(found)}" for verb, found in (("new", new), ("gone", lost), ("changed", changed)) if found]
    return Cause("schema", "the tool definitions are others; " + "; ".join(parts), ", ".join(names[0]), ", ".join(names[1]))


def bare_parts(text: str) -> Iterator[list[str]]:
    """A text's paragraphs, then its lines, then the objects of the list in it, without their numbers, labels and spaces."""
    for break_ in (_PARAGRAPHS, _LINES):
        yield [_bare(part) for part in re.split(break_, text)]
    front, *listed = re.split(r"\[\s*(?=\{)", text, maxsplit=1)
    parts = [part for rest in listed for part in re.split(_OBJECTS, rest)]
    behind = [part for last in parts[-1:] for part in re.split(r"(?<=\})\s*\]", last, maxsplit=1)]
    yield [_bare(part) for part in (front, *parts[:-1], *behind)]


# One function a kind: the cause, or None.


def _whitespace(before: str, ours: str, theirs: str) -> Cause | None:
    spaces = [_BLANKS.match(text) for text in (ours, theirs)]
    if not any(spaces):
        return None
    one, other = (_BLANKS.sub("", text[: 4 * _WINDOW]) for text in (ours, theirs))
    same = common_length(one, other)
    if same < _AGREE and not (one == other or 8 <= same == min(len(one), len(other))):
        return None
    kept = len(before) - len(before.rstrip())
    shown = [before[len(before) - kept :] + (found.group() if found else "") for found in spaces]
    return Cause("whitespace", "the same text with other spaces or line breaks", shown[0], shown[1], kept)


def _order(before: str, ours: str, theirs: str) -> Cause | None:
    texts, place = [before + ours, before + theirs], len(before)
    turns = [turn_around(text, place) for text in texts]  # what follows a turn is no part of its last paragraph
    for break_ in (_PARAGRAPHS, _LINES, _OBJECTS):
        head = _last_part(break_, before[turns[0].start :])
        sides = [_parts(break_, text[place - len(head) : turn.stop]) for text, turn in zip(texts, turns, strict=True)]
        one, other = ([_bare(part) for part in side] for side in sides)
        first = common_length(one, other)
        if first >= min(len(one), len(other)) or (one[first] not in other[first:] or other[first] not in one[first:]):
            continue
        if min(len(one[first]), len(other[first])) < _PARAGRAPH:
            continue
        is_tools = all("parameters" in part or "input_schema" in part for part in (one[first], other[first]))
        kind: Kind = "tool_order" if is_tools else "retrieval_order"
        what = "tools" if is_tools else "paragraphs"
        return Cause(kind, f"the same {what} in another order", sides[0][first], sides[1][first], 0 if first else len(head))
    return None


def _last_part(break_: str, text: str) -> str:
    """The part that a text ends in. Of objects, the first begins behind the bracket of its list."""
    parts = re.split(break_, text)
    return re.split(r"\[\s*(?=\{)", text, maxsplit=1)[-1] if break_ == _OBJECTS and len(parts) == 1 else parts[-1]


def _parts(break_: str, text: str) -> list[str]:
    """All parts of a text. Of objects, the last ends with the bracket of its list."""
    parts = re.split(break_, text)
    return [*parts[:-1], re.split(r"\}\s*\]", parts[-1], maxsplit=1)[0]] if break_ == _OBJECTS else parts


def _clock(before: str, ours: str, theirs: str) -> Cause | None:
    head, one, other = _windows(before, ours, theirs)
    pair = epochs_at(one, other, head)
    if pair is None:
        a, b = clock_at(one, head), clock_at(other, head)
        if a is None or b is None:
            return None
        pair = a, b
    what = pair[0].what if pair[0].what == pair[1].what else "a clock"
    return _stamped("clock", f"{what}: another one each time it is asked", one, other, pair, head)


def _id(before: str, ours: str, theirs: str) -> Cause | None:
    head, one, other = _windows(before, ours, theirs)
    pair = ids_at(one, other, head)
    return _stamped("id", f"{pair[0].what}: a new one for each request", one, other, pair, head) if pair else None


def _template(before: str, ours: str, theirs: str) -> Cause | None:
    head, one, other = _windows(before, ours, theirs)
    a, b = marker_at(one, head), marker_at(other, head)
    if a is not None and b is not None:
        return _two_markers(before, one, other, (a, b), head)
    marked, plain = (ours, theirs) if a is not None or ours.startswith("<think>") else (theirs, ours)
    rest = without_markers(marked)
    if rest != marked and not plain[:1].isspace():
        rest = rest.lstrip()  # "[INST] text" against "text"
    same = common_length(rest, plain)
    if rest != marked and plain and (same >= _AGREE or same == len(rest) == len(plain)):
        inserted = marked[: len(marked) - len(rest)]
        shown = (inserted, "") if marked is ours else ("", inserted)
        return Cause("template", f"{_short(inserted)} is in one of the two only", *shown)
    return None


def _two_markers(before: str, one: str, other: str, pair: tuple[Stamp, Stamp], head: int) -> Cause | None:
    """Other marks are a template's doing; another role is, only where the same is said, or where the text opens."""
    a, b = pair
    marks = [text[stamp.start : stamp.stop].replace(stamp.what, "") for text, stamp in zip((one, other), pair, strict=True)]
    rests = [without_markers(text[stamp.stop :]).lstrip() for text, stamp in zip((one, other), pair, strict=True)]
    same_text = common_length(*rests) >= min(_AGREE, *map(len, rests)) > 0
    opens = role_at(before, len(before) - (head - a.start)) is None and "system" in (a.what, b.what)
    if marks[0] == marks[1] and not (same_text or opens):
        return None
    why = f"the turn begins as {_short(a.what)} here and as {_short(b.what)} there"
    return _stamped("template", why, one, other, pair, head)


def _content(before: str, ours: str, theirs: str) -> Cause:
    head, one, other = _windows(before, ours, theirs)
    start = head - len(list(takewhile(str.isalnum, reversed(one[:head]))))
    words = [re.compile(r"\w+|\W").match(text, start) for text in (one, other)]
    shown = [word.group() if word else "" for word in words]
    forms = [unicodedata.normalize("NFC", text[start : start + _AGREE]) for text in (one, other)]
    why = "another text: nothing that a different layout would save"
    if shown[0] != shown[1] and common_length(*forms) >= max(1, min(map(len, forms)) - 2):
        why = "the same letters in two Unicode forms (normalise both to NFC)"
    return Cause("content", why, shown[0], shown[1], head - start)


# Small parts.


def _stamped(kind: Kind, why: str, one: str, other: str, pair: tuple[Stamp, Stamp], head: int) -> Cause | None:
    """A cause from what stands in both texts, unless it is the same."""
    start = min(pair[0].start, pair[1].start)
    shown = one[start : pair[0].stop], other[start : pair[1].stop]
    return None if shown[0] == shown[1] else Cause(kind, why, *shown, head - start)


def _windows(before: str, ours: str, theirs: str) -> tuple[int, str, str]:
    """The end of what is shared, with its length, and a beginning of each side behind it. The last turn marker stays in."""
    begin = max(0, len(before) - _WINDOW)
    header = max((before.rfind(mark) for mark in ("<|im_start|>", "<|start_header_id|>", "<start_of_turn>")), default=-1)
    lead = before[header : header + 40] + "\n" if 0 <= header < begin else ""
    head = lead + before[begin:]
    return len(head), head + ours[:_WINDOW], head + theirs[:_WINDOW]


def _bare(paragraph: str) -> str:
    """A paragraph without its number, label, score or tags, and with single spaces."""
    lower = paragraph.lower()
    scored = any(word in lower for word in _SCORES)
    bare = _NUMBERED.sub("", _SCORE.sub("", paragraph.strip(), count=1) if scored else paragraph.strip(), count=1)
    bare = " ".join(bare.split())
    while bare.endswith(">") and (last := bare.rfind("<")) >= 0 and bare.startswith("</", last):
        bare = bare[:last].rstrip()
    return bare.rstrip("}],")


def _tool_name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name", "?")) if isinstance(inner, dict) else "?"


def _short(text: str) -> str:
    return repr(text if len(text) <= 30 else text[:27] + "...")
