"""Lessons 10 and 13: request bodies as chat interfaces take them, and the text a model reads. Knows nothing about caches.

Both usual forms are read: {"messages": [...], "tools": [...]}, with the system part among the messages or in a field of its
own, contents as text or as lists of parts (`parts`). What cannot be turned into text, an image, is refused by its place.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvcourse.causes import Cause, common_length, kind_of_tools
from kvcourse.prompts.differ import TextOf
from kvcourse.prompts.parts import as_json, blocks, calls, is_schema, outline, refused, schema_in, tools_in
from kvcourse.streams import STDIN, called, opened
from kvcourse.tokenizer_base import Tokenizer

Message = dict[str, str]  # role, content
_NOBODY = ("system", "developer")  # roles of messages that are nobody's turn
_TELLING = 12  # characters by which a message is told from others
_SPARE, _TOO_DEEP = 100, "nesting without end"  # the levels that are left to those who write a request that was read


@dataclass(frozen=True)
class Body:
    """One request: what was said, and the tools that were offered, the answer's schema behind them."""

    messages: tuple[Message, ...]
    tools: tuple[Any, ...] = ()

    @property
    def system(self) -> tuple[Message, ...]:
        """The messages in front that are nobody's turn."""
        rest = next((n for n, one in enumerate(self.messages) if one["role"] not in _NOBODY), len(self.messages))
        return self.messages[:rest]


@dataclass(frozen=True)
class Rendered:
    """A request as ids. unit: what an id stands for. text_of: back to text."""

    ids: list[int]
    text_of: TextOf
    unit: str = "tokens"


def read_body(path: Path) -> Body:
    """The request in a JSON file, or on standard input for "-". Raises: InputError, one line, for a file that holds none."""
    name = path.name if str(path) != STDIN else called(path)
    try:
        with opened(path) as file:
            parsed = json.loads(file.read().decode("utf-8-sig"))
    except OSError as error:
        raise refused(name, "a file that can be read", error.strerror or "an error", "Check the path.") from error
    except ValueError as error:
        got = " ".join(str(error).split())
        raise refused(name, "JSON", f"what is none ({got})", "Give one request body.") from error
    except RecursionError:
        raise refused(name, "JSON", f"what is none ({_TOO_DEEP})", "Give one request body.") from None
    return body_of(parsed, name)


def body_of(parsed: Any, name: str = "The request") -> Body:
    """The request in what was parsed from JSON. name: what to call it in errors. Raises: InputError for what is none."""
    try:
        body = _body(parsed, name)
        if body.tools:
            as_json(_deeper(body.tools))  # once more, and from further in, they are written when requests are compared
    except RecursionError:
        raise refused(name, "a chat request", _TOO_DEEP) from None
    return body


def _body(parsed: Any, name: str) -> Body:
    messages = parsed.get("messages") if isinstance(parsed, dict) else None
    if not isinstance(messages, list) or not messages:
        todo = "Give the body of a chat request, not a log or an answer."
        raise refused(name, '{"messages": [...]} with one message at least', outline(parsed), todo)
    system = parsed.get("system")
    said = [] if system is None else blocks(system, f"{name}, system")
    front = [{"role": "system", "content": "".join(said)}] if system else []
    turns = [_message(one, f"{name}, message {n}") for n, one in enumerate(messages)]
    return Body((*front, *turns), (*tools_in(parsed, name), *schema_in(parsed)))


def render(body: Body, tokenizer: Tokenizer | None) -> Rendered:
    """The request as a model reads it: by its chat template, or plainly, one id a character.

    Tools that a template has no place for go to the front as JSON, where hosted models have them.
    Raises: TokenizerError for messages that the template refuses.
    """
    messages, tools = list(body.messages), list(body.tools)
    if tokenizer is None:
        turns = "".join(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n" for one in messages)
        text = f"{_listed(tools)}{turns}<|im_start|>assistant\n"
        return Rendered([ord(character) for character in text], lambda ids: "".join(map(chr, ids)), "characters")
    offered = None
    if tokenizer.chat is not None and "tools" in tokenizer.chat.source:
        offered, tools = [tool for tool in tools if not is_schema(tool)] or None, [tool for tool in tools if is_schema(tool)]
    front = tokenizer.encode(_listed(tools)) if tools else []
    return Rendered(front + tokenizer.encode_chat(messages, tools=offered), tokenizer.decode)


def causes_between(ours: Body, theirs: Body) -> Iterator[tuple[Cause, Body]]:
    """What the bodies show that text alone does not: other tools, a missing system part, earlier turns rewritten or left out.

    Yields: each cause with `ours` as it would be without it. It explains a miss if that one shares more.
    """
    tools = kind_of_tools(ours.tools, theirs.tools)
    if tools.kind != "none":
        yield tools, replace(ours, tools=theirs.tools)
    if bool(ours.system) != bool(theirs.system):
        which = (
            "the later request has a system part and the earlier"
            if ours.system
            else "the earlier has a system part and the later"
        )
        turns = ours.messages[len(ours.system) :]
        yield Cause("template", f"{which} has none"), replace(ours, messages=theirs.system + turns)
    elif ours.system != theirs.system:
        yield from _another_system(ours, theirs)
    rewritten = _rewritten(ours, theirs)
    if rewritten is not None:
        yield rewritten


def _another_system(ours: Body, theirs: Body) -> Iterator[tuple[Cause, Body]]:
    """All that was said and answered so far is the same: one conversation, and its system part has changed."""
    turns, others = ours.messages[len(ours.system) :], theirs.messages[len(theirs.system) :]
    if len(others) >= 2 and common_length(turns, others) == len(others) and _is_telling(others):
        yield (Cause("template", "the system part is another one, and the conversation behind it is the same"),
               replace(ours, messages=theirs.system + turns))  # fmt: skip


def _rewritten(ours: Body, theirs: Body) -> tuple[Cause, Body] | None:
    """A turn is another one, gone or put in, while one that came after it is still there as it was.

    Behind another system part it is somebody else's conversation, unless that part has only grown (by a summary, say) and turns
    are gone: that two people ask the same says nothing about either.
    """
    one, other = ours.messages, theirs.messages
    first, systems = common_length(one, other), max(len(ours.system), len(theirs.system))
    if first < systems and not _grew(one[first], other[first]):
        return None
    for n in range(max(first, systems), len(other)):
        turn = other[n]
        if turn["role"] in _NOBODY or not _is_telling([turn]) or turn not in one[first:]:
            continue
        now, then = one[first:].index(turn), n - first  # messages between what is shared and this turn
        if now >= then and first < systems:
            continue
        if now == then:
            why = f"message {first} was another one, and what came after it is the same"
        else:
            why = f"{abs(then - now)} messages before {turn['content'][:30]!r} {'are gone' if now < then else 'are new'}"
        return Cause("history", why), replace(ours, messages=other[:n] + one[first + now :])
    return None


def _grew(one: Message, other: Message) -> bool:
    """Whether one of two messages is the start of the other."""
    short, long = sorted((one["content"], other["content"]), key=len)
    return one["role"] == other["role"] and len(short) >= _TELLING and long.startswith(short)


def _is_telling(messages: Sequence[Message]) -> bool:
    return sum(len(one["content"]) for one in messages) >= _TELLING


def _message(message: Any, where: str) -> Message:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or not role:
        raise refused(where, '{"role": ..., "content": ...}', outline(message))
    if role.splitlines() != [role]:  # templates write it into a line of its own
        raise refused(where, "a role without line breaks", repr(role))
    given = message.get("content")
    given = message.get("refusal") if given is None else given
    content, called = "".join(blocks(given, where)), "".join(calls(message, where))
    if given is None and not called:
        raise refused(where, "content", "none")
    return {"role": role, "content": content + called}


def _deeper(value: Any) -> Any:
    for _ in range(_SPARE):
        value = [value]
    return value


def _listed(tools: Sequence[Any]) -> str:
    return "".join(f"{as_json(tool)}\n" for tool in tools)
