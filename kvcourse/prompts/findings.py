"""Lesson 13: what is found between two requests, and the requests as text. Knows nothing about how differences are named."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvcourse.causes import Cause
from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, Message

SHOWN = 60  # characters of each side


@dataclass(frozen=True)
class Finding:
    """One difference. message: its number, "system" or "tools"; character: where in it. before: the end of what is shared.

    behind: what both say after it, for a short text that other requests have to bear out (`varied`); "" for all others.
    """

    cause: Cause
    message: int | str
    character: int
    before: str
    ours: str
    theirs: str
    behind: str = ""


@dataclass(frozen=True)
class Verdict:
    """The faults between two requests, in order, and `ours` as it would be without them.

    stamps: clocks and ids of the earlier request that stand in `mended` still, and would stand behind its last message: each
    with the item it is in. goes_on: how many messages the earlier request has, where the mended one goes on from them all; then
    these stamps are left there, and shared. extra: characters that are shared beyond what the mended request shows: paragraphs
    that both have, each among others. left_out: characters of turns that `ours` has left out and the mended request keeps;
    below 0: that it has put in. Of two templates, tool lists or spacings either may be the one that stays.
    """

    findings: tuple[Finding, ...]
    mended: Body
    stamps: tuple[tuple[int, str], ...] = ()
    goes_on: int = 0
    extra: int = 0
    left_out: int = 0

    @property
    def stamped(self) -> int:
        """Characters of all clocks and ids that would be moved."""
        return sum(len(text) for _, text in self.stamps)

    @property
    def moved(self) -> int:
        """Characters in front of what is shared that would stand behind it, and so are not shared."""
        return 0 if self.goes_on else self.stamped

    @property
    def grown(self) -> int:
        """By how many characters the mended request is longer than it was; below 0: shorter."""
        return self.left_out + (self.stamped if self.goes_on else 0)


Fault = tuple[Finding, Body, int]  # what it is, `ours` without it, and the `extra` characters


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


def placed(cause: Cause, one: Sequence[Message], other: Sequence[Message], first: int) -> Finding:
    """A finding at the first character of a message that is another one."""
    contents = one[first]["content"], other[first]["content"]
    at = common_length(*contents)
    shown = [content[at:][:SHOWN] for content in contents]
    return Finding(cause, first, at, contents[0][:at][-SHOWN:], *shown)


def with_message(body: Body, place: int, message: Message) -> Body:
    """The request with another message in one place."""
    return replace(body, messages=(*body.messages[:place], message, *body.messages[place + 1 :]))
