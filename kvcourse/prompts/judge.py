"""Lesson 13: what keeps one request from reusing another, difference by difference. Knows nothing about tokens, logs or prices.

A difference is named, then mended: the request is rewritten as it would be without it. Whether it shares more then is the test
of the name, and how much more is what it cost. So each difference that is a fault leads to the next, until one is meant.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvcourse.causes import Cause, kind_of_difference, kind_of_tools
from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, Message

_SENTENCE_ENDS = re.compile(r"\n+|(?<=[.!?;])\s+|(?<=[。！？；])\s*")
_DIGIT, _WITH_DIGIT = re.compile(r"\d"), re.compile(r"[!-~]*[0-9][!-~]*")
_MOST = 12  # differences of one pair
_BEFORE, _BEHIND, _NEXT = 2_000, 40_000, 500  # characters looked at: in front, in the message that differs, behind it
_SHOWN = 60
_TELLING = 12  # characters by which a text is told from others
_NAMED = 8  # where its place says so, too
_STAMPS = ("clock", "id")
_LABEL = re.compile(r"^\W*(?:(?:document|doc|source|passage|result|chunk|context)\b\W*)?(?:\d{1,3}\b)?\W*", re.I)


@dataclass(frozen=True)
class Finding:
    """One difference. message: its number, "system" or "tools"; character: where in it. before: the end of what is shared."""

    cause: Cause
    message: int | str
    character: int
    before: str
    ours: str
    theirs: str


@dataclass(frozen=True)
class Verdict:
    """The faults between two requests, in order, and `ours` as it would be without them.

    moved: characters that would have to stand elsewhere (a clock), and so are not shared. extra: characters that are shared
    beyond what the mended request shows: paragraphs that both have, each among others. grown: characters by which the mended
    request is longer, since it keeps turns that `ours` has left out; below 0: shorter. A clock that is moved changes no length,
    and of two templates, tool lists or spacings either may be the one that stays.
    """

    findings: tuple[Finding, ...]
    mended: Body
    moved: int = 0
    extra: int = 0
    grown: int = 0


def judge(ours: Body, theirs: Body) -> Verdict:
    """Name and mend what keeps `ours` from reusing `theirs`, as far as it was not meant."""
    findings: list[Finding] = []
    moved = extra = grown = 0
    while len(findings) < _MOST:
        found = _next_fault(ours, theirs)
        if found is None:
            break
        finding, mended, more = found
        findings.append(finding)
        moved += len(finding.cause.ours) if finding.cause.kind in _STAMPS else 0
        left_out = finding.cause.kind == "history" or len(mended.messages) > len(ours.messages)  # or the system part is gone
        grown += length(mended) - length(ours) if left_out else 0
        ours = mended
        extra += more
        if more:
            break
    return Verdict(tuple(findings), ours, moved, extra, grown)


def tool_texts(body: Body) -> list[str]:
    """Each tool as it stands in front of the conversation."""
    return [f"{json.dumps(tool, ensure_ascii=False)}\n" for tool in body.tools]


def message_text(message: Message) -> str:
    """A message as it stands in a conversation: the common form with marks around each turn."""
    return f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"


def item_texts(body: Body) -> list[str]:
    """All of a request, in order: each tool, then each message."""
    return tool_texts(body) + [message_text(one) for one in body.messages]


def length(body: Body) -> int:
    """Characters of a request."""
    return sum(map(len, item_texts(body)))


def shared_characters(one: Body, other: Body) -> int:
    """With how many characters in common two requests begin."""
    if one.tools != other.tools:
        return common_length("".join(item_texts(one)), "".join(item_texts(other)))
    first = common_length(one.messages, other.messages)
    total = sum(map(len, tool_texts(one))) + sum(len(message_text(message)) for message in one.messages[:first])
    if first < min(len(one.messages), len(other.messages)):
        total += common_length(message_text(one.messages[first]), message_text(other.messages[first]))
    return total


_Fault = tuple[Finding, Body, int]


def _next_fault(ours: Body, theirs: Body) -> _Fault | None:
    if ours.tools is not theirs.tools:
        texts = tool_texts(ours), tool_texts(theirs)
        if texts[0] != texts[1]:
            return _tools(ours, theirs, *texts)
    first = common_length(ours.messages, theirs.messages)
    if first == min(len(ours.messages), len(theirs.messages)):
        return None
    for judged in (_missing_system, _text, _rewritten, _sent_otherwise):
        found = judged(ours, theirs, first)
        if found is not None:
            return found
    return None


def _tools(ours: Body, theirs: Body, one: list[str], other: list[str]) -> _Fault | None:
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
    shown = [side[start:][:_SHOWN] for side in sides]
    if cause.kind == "tool_order":
        shown = [cause.ours, cause.theirs]
    finding = Finding(cause, "tools", at + start, sides[0][:start][-_SHOWN:], *shown)
    return finding, replace(ours, tools=theirs.tools), 0


def _missing_system(ours: Body, theirs: Body, first: int) -> _Fault | None:
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


def _text(ours: Body, theirs: Body, first: int) -> _Fault | None:
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
    start = same - cause.widened
    header = len(f"<|im_start|>{one['role']}\n")
    shown = [side[start:][: max(_SHOWN, len(part))] for side, part in zip(sides, (cause.ours, cause.theirs), strict=True)]
    finding = Finding(cause, first, max(0, start - header), (before + sides[0][:start])[-_SHOWN:], *(s[:400] for s in shown))
    if cause.kind == "retrieval_order":
        return _in_order(finding, ours, other, first)
    content = one["content"]
    begin, end = start - header, start - header + len(cause.ours)
    if cause.kind == "whitespace" and content.split() == other["content"].split():
        content = other["content"]
    elif one["role"] == other["role"] and 0 <= begin and end <= len(content):
        content = content[:begin] + cause.theirs + content[end:]
    mended = _with_message(ours, first, {"role": other["role"], "content": content})
    return None if mended == ours else (finding, mended, 0)


def _from(messages: Sequence[Message], first: int) -> str:
    """The message that differs, its end mark set apart from its last paragraph, and the start of what follows it."""
    head = f"<|im_start|>{messages[first]['role']}\n{messages[first]['content'][:_BEHIND]}\n\n<|im_end|>\n"
    return head + "".join(map(message_text, messages[first + 1 : first + 4]))[:_NEXT]


def _same_start(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two conversations begin alike, by more than a greeting."""
    run = common_length(one, other)
    return run >= 2 or (run == 1 and len(one[0]["content"]) >= 2 * _TELLING)


def _in_order(finding: Finding, ours: Body, other: Message, first: int) -> _Fault:
    """The same paragraphs in another order. Where some are others, those that both have are lost, and nothing behind them."""
    contents = ours.messages[first]["content"], other["content"]
    for break_ in (r"\n[^\S\n]*\n\s*", r"\n\s*"):
        one, them = ([_bare(part) for part in re.split(break_, content)] for content in contents)
        if sorted(one) == sorted(them):
            return finding, _with_message(ours, first, other), 0
    left = list(them)
    both = 0
    for part in one[common_length(one, them) :]:
        if part in left:
            left.remove(part)
            both += len(part)
    return finding, ours, both


def _rewritten(ours: Body, theirs: Body, first: int) -> _Fault | None:
    """Earlier turns are others, or gone, while what came after them is there as it was."""
    one, other = ours.messages, theirs.messages
    systems = max(len(ours.system), len(theirs.system))
    if first < systems:
        found = _another_system(ours, theirs, first)
        if found is not None or not _grew(one[first], other[first]):
            return found
    places: dict[tuple[str, str], list[int]] = {}
    for m in range(first, len(one)):
        places.setdefault(_key(one[m]), []).append(m)
    for n in range(max(first, systems), len(other)):
        for m in places.get(_key(other[n]), ()):
            run = common_length(one[m:], other[n:])
            in_place = m == n and first > systems
            dropped = m < n or (m == n == first + 1)  # earlier turns are gone, or one is another
            if n + run < len(other) or not (in_place or ((dropped or n == first) and m <= first + 2)):
                continue
            goes_on = m + run < len(one)
            moved_up = m == first < n and goes_on and len(other[n]["content"]) >= _NAMED  # what came last comes first now
            if moved_up or _telling(other[n:], in_place or first >= systems + 2, goes_on):
                finding = _placed(
                    Finding(Cause("history", _why(first, m, n, other[n])), first, 0, "", "", ""), one, other, first
                )
                return finding, replace(ours, messages=other[:n] + one[m:]), 0
    return None


def _grew(one: Message, other: Message) -> bool:
    """Whether one of two messages is the start of the other: a summary was put behind a system part."""
    short, long = sorted((one["content"], other["content"]), key=len)
    return one["role"] == other["role"] and len(short) >= _TELLING and long.startswith(short)


def _another_system(ours: Body, theirs: Body, first: int) -> _Fault | None:
    """The same conversation, up to where the earlier request ends, behind another system part."""
    turns, others = ours.messages[len(ours.system) :], theirs.messages[len(theirs.system) :]
    if common_length(turns, others) < len(others) or not _telling(others, len(others) >= 2, len(turns) > len(others)):
        return None
    cause = Cause("template", "the system part is another one, and the conversation behind it is the same")
    finding = _placed(Finding(cause, first, 0, "", "", ""), ours.messages, theirs.messages, first)
    return finding, replace(ours, messages=theirs.system + turns), 0


def _telling(run: Sequence[Message], known: bool, goes_on: bool) -> bool:
    """Whether so many equal turns, up to where the earlier request ends, are no accident: many a chat ends with thanks.

    known: something else says that it is the same conversation.
    """
    total = sum(len(one["content"]) for one in run)
    answered = any(one["role"] == "assistant" for one in run)
    if known and (len(run) >= 2 or goes_on):
        return total >= 2 * _TELLING
    enough = len(run) >= 3 or (len(run) >= 2 and total >= 80)
    return answered and enough and total >= (2 * _TELLING if goes_on else 200)


def _why(first: int, m: int, n: int, turn: Message) -> str:
    if m == n:
        return f"message {first} was another one, and what came after it is the same"
    return f"{abs(n - m)} messages before {turn['content'][:30]!r} {'are gone' if m < n else 'are new'}"


def _sent_otherwise(ours: Body, theirs: Body, first: int) -> _Fault | None:
    """A turn that was sent with more, or less, in it than it has now that the conversation has gone on."""
    one, other = ours.messages[first], theirs.messages[first]
    if first != len(theirs.messages) - 1 or first >= len(ours.messages) - 1 or one["role"] != other["role"]:
        return None
    short, long = sorted((one["content"].strip(), other["content"].strip()), key=len)
    if len(short) < _NAMED or short not in long or ours.messages[first + 1]["role"] == one["role"]:
        return None
    later = "\n".join(message["content"] for message in ours.messages[first + 1 :])
    gone = [part for part in re.split(r"\n\s*", long.replace(short, "\n", 1)) if len(part) >= 2 * _TELLING]
    if other["content"].strip() == long and any(part in later for part in gone):
        cause = Cause("retrieval_order", f"documents that stood in message {first} stand further behind now")
    else:
        cause = Cause("history", f"message {first} is not as it was when it was sent")
    finding = _placed(Finding(cause, first, 0, "", "", ""), ours.messages, theirs.messages, first)
    return finding, _with_message(ours, first, other), 0


def _placed(finding: Finding, one: Sequence[Message], other: Sequence[Message], first: int) -> Finding:
    """The finding at the first character that is another one."""
    contents = one[first]["content"], other[first]["content"]
    at = common_length(*contents)
    shown = [content[at:][:_SHOWN] for content in contents]
    return replace(finding, character=at, before=contents[0][:at][-_SHOWN:], ours=shown[0], theirs=shown[1])


def _with_message(body: Body, place: int, message: Message) -> Body:
    return replace(body, messages=(*body.messages[:place], message, *body.messages[place + 1 :]))


def _key(message: Message) -> tuple[str, str]:
    return message["role"], message["content"]


def _head(message: Message) -> str:
    return message_text(message)[:_SHOWN]


def _bare(paragraph: str) -> str:
    return " ".join(_LABEL.sub("", paragraph.strip(), count=1).split())


def _name(tool: Any) -> str:
    inner = tool.get("function", tool) if isinstance(tool, dict) else {}
    return str(inner.get("name", "?")) if isinstance(inner, dict) else "?"


def pieces(text: str, most: int = 200) -> Iterator[tuple[int, int]]:
    """(a name, its weight) for each sentence of a text, whatever numbers, dates or ids stand in it."""
    for part in _SENTENCE_ENDS.split(text[: 100 * most], maxsplit=most)[:most]:
        if part.startswith("<|im_start|>"):
            continue
        bare = "".join((_WITH_DIGIT.sub("", part) if _DIGIT.search(part) else part).split())
        if len(bare) >= _TELLING:
            yield hash(bare), len(bare)
