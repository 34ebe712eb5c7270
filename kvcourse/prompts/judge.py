"""Lesson 13: what keeps one request from reusing another, difference by difference. Knows nothing about tokens, logs or prices.

A difference is named, then mended: the request is rewritten as it would be without it. Whether it shares more then is the test
of the name, and how much more is what it cost. So each difference that is a fault leads to the next, until one is meant.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from kvcourse.causes import Cause, bare_parts, kind_of_difference, kind_of_tools
from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, Message
from kvcourse.prompts.findings import (
    SHOWN,
    Fault,
    Finding,
    Verdict,
    item_texts,
    length,
    message_text,
    placed,
    shared_characters,
    tool_texts,
    with_message,
)
from kvcourse.prompts.rewritten import NAMED, TELLING, rewritten
from kvcourse.prompts.varied import varied

__all__ = ["Finding", "Verdict", "item_texts", "judge", "length", "message_text", "pieces", "shared_characters", "tool_texts"]

_SENTENCE_ENDS = re.compile(r"\n+|(?<=[.!?;])\s+|(?<=[。！？；])\s*|\}\s*,\s*(?=\{)|\[\s*(?=\{)|\}\s*\]")  # objects, too
_DIGIT, _WITH_DIGIT = re.compile(r"\d"), re.compile(r"(?<![!-~])[!-/:-~]*+[0-9][!-~]*+")
_MOST = 12  # differences of one pair
_BEFORE, _BEHIND, _NEXT = 2_000, 40_000, 500  # characters looked at: in front, in the message that differs, behind it
_STAMPS = ("clock", "id")


def judge(ours: Body, theirs: Body) -> Verdict:
    """Name and mend what keeps `ours` from reusing `theirs`, as far as it was not meant."""
    return judge_twice(ours, theirs)[0]


def judge_twice(ours: Body, theirs: Body) -> tuple[Verdict, Verdict | None]:
    """`judge`, and the same with short texts mended, too, that only other requests tell from what was meant; None: no such."""
    plain = None
    findings: list[Finding] = []
    stamps: list[tuple[int, str]] = []
    extra = left_out = 0
    while len(findings) < _MOST and not extra:
        found = _next_fault(ours, theirs)
        if found is None:
            break
        finding, mended, extra = found
        if finding.behind and plain is None:
            plain = _verdict(findings, ours, theirs, stamps, extra, left_out)
        findings.append(finding)
        if finding.cause.kind in _STAMPS:
            item = len(theirs.tools) + finding.message if isinstance(finding.message, int) else max(0, len(theirs.tools) - 1)
            stamps.append((item, finding.cause.theirs))
        if finding.cause.kind == "history" or len(mended.messages) > len(ours.messages):  # or the system part is gone
            left_out += length(mended) - length(ours)
        ours = mended
    full = _verdict(findings, ours, theirs, stamps, extra, left_out)
    return (full, None) if plain is None else (plain, full)


def _verdict(
    findings: list[Finding], mended: Body, theirs: Body, stamps: list[tuple[int, str]], extra: int, left_out: int
) -> Verdict:
    n = len(theirs.messages)
    on = not extra and len(mended.messages) > n and mended.tools == theirs.tools and mended.messages[:n] == theirs.messages
    return Verdict(tuple(findings), mended, tuple(stamps), n if on else 0, extra, left_out)


def _next_fault(ours: Body, theirs: Body) -> Fault | None:
    if ours.tools is not theirs.tools:
        texts = tool_texts(ours), tool_texts(theirs)
        if texts[0] != texts[1]:
            return _tools(ours, theirs, *texts)
    first = common_length(ours.messages, theirs.messages)
    if first == min(len(ours.messages), len(theirs.messages)):
        return None
    for judged in (_missing_system, _text, _documents, rewritten, _sent_otherwise, varied):
        found = judged(ours, theirs, first)
        if found is not None:
            return found
    return None


def _tools(ours: Body, theirs: Body, one: list[str], other: list[str]) -> Fault | None:
    cause = kind_of_tools(ours.tools, theirs.tools)
    names = [{_name(tool) for tool in tools} for tools in (ours.tools, theirs.tools)]
    if not names[0] & names[1] and (all(names) or not _same_start(ours.messages, theirs.messages)):
        return None  # another agent, or another kind of request
    first = common_length(one, other)
    at = sum(map(len, one[:first]))
    sides = ["".join(texts[first:]) for texts in (one, other)]
    same = common_length(*sides)
    if cause.kind == "schema" and len(one) == len(other) and names[0] == names[1]:
        inner = kind_of_difference("\n" + sides[0][:same], sides[0][same:], sides[1][same:])
        cause = inner if inner.kind in _STAMPS else cause
    start = max(0, same - cause.widened) if cause.kind in _STAMPS else same
    shown = [side[start:][:SHOWN] for side in sides]
    if cause.kind == "tool_order":
        shown = [cause.ours, cause.theirs]
    finding = Finding(cause, "tools", at + start, sides[0][:start][-SHOWN:], *shown)
    return finding, replace(ours, tools=theirs.tools), 0


def _missing_system(ours: Body, theirs: Body, first: int) -> Fault | None:
    if bool(ours.system) == bool(theirs.system):
        return None
    turns, others = ours.messages[len(ours.system) :], theirs.messages[len(theirs.system) :]
    if not _same_start(turns, others):
        return None
    which = (
        "this request has a system part, and the earlier has none" if ours.system else "the earlier request has a system part"
    )
    finding = Finding(Cause("template", which), 0, 0, "", _head(ours.messages[0]), _head(theirs.messages[0]))
    return finding, replace(ours, messages=theirs.system + turns), 0


def _text(ours: Body, theirs: Body, first: int) -> Fault | None:
    """What the text shows: a clock, an id, spaces, an order, a template."""
    one, other = ours.messages[first], theirs.messages[first]
    before = "".join(message_text(message) for message in ours.messages[:first][-2:])[-_BEFORE:]
    sides = [_from(messages, first) for messages in (ours.messages, theirs.messages)]
    same = common_length(*sides)
    cause = kind_of_difference((before + sides[0][:same])[-_BEFORE:], sides[0][same:], sides[1][same:])
    if not cause.is_fault or cause.kind == "tool_order":
        return None
    if cause.kind == "retrieval_order" and (cause.ours not in one["content"] or cause.theirs not in other["content"]):
        return None  # turns, not paragraphs
    header = len(f"<|im_start|>{one['role']}\n")
    if cause.widened > same - header >= 0:  # what differs is in the message, and not in the line that opens it
        cause = _behind(cause, cause.widened - (same - header))
    start = same - cause.widened
    shown = [side[start:][: max(SHOWN, len(part))] for side, part in zip(sides, (cause.ours, cause.theirs), strict=True)]
    finding = Finding(cause, first, max(0, start - header), (before + sides[0][:start])[-SHOWN:], *(s[:400] for s in shown))
    if cause.kind == "retrieval_order":
        return _in_order(finding, ours, other, first)
    content = one["content"]
    begin, end = start - header, start - header + len(cause.ours)
    if cause.kind == "whitespace" and content.split() == other["content"].split():
        content = other["content"]
    elif one["role"] == other["role"] and 0 <= begin and end <= len(content):
        content = content[:begin] + cause.theirs + content[end:]
    mended = with_message(ours, first, {"role": other["role"], "content": content})
    return None if mended == ours else (finding, mended, 0)


def _from(messages: Sequence[Message], first: int) -> str:
    """The message that differs, its end mark set apart from its last paragraph, and the start of what follows it."""
    head = f"<|im_start|>{messages[first]['role']}\n{messages[first]['content'][:_BEHIND]}\n\n<|im_end|>\n"
    return head + "".join(map(message_text, messages[first + 1 : first + 4]))[:_NEXT]


def _same_start(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two conversations begin alike, by more than a greeting."""
    run = common_length(one, other)
    return run >= 2 or (run == 1 and len(one[0]["content"]) >= 2 * TELLING)


def _behind(cause: Cause, characters: int) -> Cause:
    """The cause without so many characters in front, that both texts share."""
    return replace(cause, ours=cause.ours[characters:], theirs=cause.theirs[characters:], widened=cause.widened - characters)


def _in_order(finding: Finding, ours: Body, other: Message, first: int) -> Fault:
    """The same paragraphs in another order. Where some are others, those that both have are lost, and nothing behind them."""
    contents = ours.messages[first]["content"], other["content"]
    both = 0
    for one, them in zip(*map(bare_parts, contents), strict=True):
        if sorted(one) == sorted(them):
            return finding, with_message(ours, first, other), 0
        same = common_length(one, them)
        parts = Counter(one[same:]) & Counter(them[same:])
        both = both or sum(len(part) * n for part, n in parts.items() if len(part) >= TELLING)
    return finding, ours, both


def _documents(ours: Body, theirs: Body, first: int) -> Fault | None:
    """The same messages in another order, one document each: turns of somebody who is not answered in between."""
    one, other = ours.messages, theirs.messages
    role = one[first]["role"]
    if role == "assistant" or one[first] not in other[first:] or other[first] not in one[first:]:
        return None
    runs = [[*takewhile(lambda turn: turn["role"] == role, side[first:])] for side in (one, other)]
    texts = [[turn["content"] for turn in run] for run in runs]
    n, ours_then, theirs_then = 0, Counter(texts[0][:1]), Counter(texts[1][:1])
    for n in range(2, min(map(len, texts)) + 1):
        ours_then[texts[0][n - 1]] += 1
        theirs_then[texts[1][n - 1]] += 1
        if ours_then == theirs_then:
            break
    finding = placed(Cause("retrieval_order", "the same messages in another order"), one, other, first)
    if n and ours_then == theirs_then and min(map(len, texts[0][:n])) >= TELLING:
        return finding, replace(ours, messages=(*one[:first], *other[first : first + n], *one[first + n :])), 0
    both = sum(len(text) * k for text, k in (Counter(texts[0]) & Counter(texts[1])).items() if len(text) >= TELLING)
    return (finding, ours, both) if both else None


def _sent_otherwise(ours: Body, theirs: Body, first: int) -> Fault | None:
    """A turn that was sent with more, or less, in it than it has now that the conversation has gone on."""
    one, other = ours.messages[first], theirs.messages[first]
    if first != len(theirs.messages) - 1 or first >= len(ours.messages) - 1 or one["role"] != other["role"]:
        return None
    short, long = sorted((one["content"].strip(), other["content"].strip()), key=len)
    if len(short) < NAMED or short not in long or ours.messages[first + 1]["role"] == one["role"]:
        return None
    later = "\n".join(message["content"] for message in ours.messages[first + 1 :])
    gone = [part for part in re.split(r"\n\s*", long.replace(short, "\n", 1)) if len(part) >= 2 * TELLING]
    if other["content"].strip() == long and any(part in later for part in gone):
        cause = Cause("retrieval_order", f"documents that stood in message {first} stand further behind now")
    else:
        cause = Cause("history", f"message {first} is not as it was when it was sent")
    return placed(cause, ours.messages, theirs.messages, first), with_message(ours, first, other), 0


def _head(message: Message) -> str:
    return message_text(message)[:SHOWN]


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name", "?")) if isinstance(inner, dict) else "?"


def pieces(text: str, most: int = 200) -> Iterator[tuple[int, int]]:
    """(a name, its weight) for each sentence of a text, whatever numbers, dates or ids stand in it."""
    for part in _SENTENCE_ENDS.split(text[: 100 * most], maxsplit=most)[:most]:
        if part.startswith("<|im_start|>"):
            continue
        bare = "".join((_WITH_DIGIT.sub("", part) if _DIGIT.search(part) else part).split())
        if len(bare) >= TELLING:
            yield hash(bare), len(bare)
