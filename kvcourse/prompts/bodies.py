"""Lessons 10 and 13: request bodies as chat interfaces take them, and the text a model reads. Knows nothing about caches.

Both usual forms are read: {"messages": [...], "tools": [...]}, with the system part among the messages or in a field of its
own, contents as text or as lists of parts. What cannot be turned into text, an image, is refused by its place.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvcourse.causes import Cause, common_length, kind_of_tools
from kvcourse.errors import InputError
from kvcourse.prompts.differ import TextOf
from kvcourse.tokenizer_base import Tokenizer

Message = dict[str, str]  # role, content
_TELLING = 12  # characters by which a message is told from others


@dataclass(frozen=True)
class Body:
    """One request: what was said, and the tools that were offered."""

    messages: tuple[Message, ...]
    tools: tuple[Any, ...] = ()

    @property
    def system(self) -> tuple[Message, ...]:
        """The messages in front that are nobody's turn."""
        rest = next(
            (n for n, one in enumerate(self.messages) if one["role"] not in ("system", "developer")), len(self.messages)
        )
        return self.messages[:rest]


@dataclass(frozen=True)
class Rendered:
    """A request as ids. unit: what an id stands for. text_of: back to text."""

    ids: list[int]
    text_of: TextOf
    unit: str = "tokens"


def read_body(path: Path) -> Body:
    """The request in a JSON file. Raises: InputError, one line, for a file that holds none."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _refused(path.name, "a file that can be read", error.strerror or "an error", "Check the path.") from error
    except (ValueError, RecursionError) as error:
        got = " ".join(str(error).split()) or "nesting without end"
        raise _refused(path.name, "JSON", f"what is none ({got})", "Give one request body.") from error
    return body_of(parsed, path.name)


def body_of(parsed: Any, name: str = "The request") -> Body:
    """The request in what was parsed from JSON. name: what to call it in errors."""
    messages = parsed.get("messages") if isinstance(parsed, dict) else None
    if not isinstance(messages, list) or not messages:
        todo = "Give the body of a chat request, not a log or an answer."
        raise _refused(name, '{"messages": [...]} with one message at least', _outline(parsed), todo)
    tools = parsed.get("tools") or []
    if not isinstance(tools, list):
        raise _refused(name, "tools in a list", _outline(tools), "Correct the body.")
    system = parsed.get("system")
    front = [{"role": "system", "content": _text(system, f"{name}, system")}] if system else []
    return Body(tuple(front + [_message(one, f"{name}, message {n}") for n, one in enumerate(messages)]), tuple(tools))


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
    if tokenizer.chat is not None and "tools" in tokenizer.chat.source:
        return Rendered(tokenizer.encode_chat(messages, tools=tools or None), tokenizer.decode)
    front = tokenizer.encode(_listed(tools)) if tools else []
    return Rendered(front + tokenizer.encode_chat(messages), tokenizer.decode)


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
    rewritten = _rewritten(ours, theirs)
    if rewritten is not None:
        yield rewritten


def _rewritten(ours: Body, theirs: Body) -> tuple[Cause, Body] | None:
    """A turn is another one, gone or put in, while one that came after it is still there as it was."""
    one, other = ours.messages, theirs.messages
    first = common_length(one, other)
    for n in range(first, len(other)):
        turn = other[n]
        if len(turn["content"]) < _TELLING or turn not in one[first:]:
            continue
        now, then = one[first:].index(turn), n - first  # messages between what is shared and this turn
        if now == then:
            why = f"message {first} was another one, and what came after it is the same"
        else:
            why = f"{abs(then - now)} messages before {turn['content'][:30]!r} {'are gone' if now < then else 'are new'}"
        return Cause("history", why), replace(ours, messages=other[:n] + one[first + now :])
    return None


def _message(message: Any, where: str) -> Message:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or not role:
        raise _refused(where, '{"role": ..., "content": ...}', _outline(message), "Correct the body.")
    if role.splitlines() != [role]:  # templates write it into a line of its own
        raise _refused(where, "a role without line breaks", repr(role), "Correct the body.")
    content = _text(message.get("content"), where)
    calls = message.get("tool_calls") or []
    if not content and not calls and message.get("content") is None:
        raise _refused(where, "content", "none", "Correct the body.")
    return {"role": role, "content": content + "".join(_json(call) for call in calls)}


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _refused(where, "text, or a list of parts", _outline(content), "Correct the body.")
    return "".join(_part(part, f"{where}, part {n}") for n, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind == "tool_use":
        return _json({"name": part.get("name"), "input": part.get("input")})
    if kind == "tool_result":
        return _text(part.get("content"), where)
    got = f"a part of type {kind!r}" if isinstance(kind, str) else _outline(part)
    raise _refused(where, "text", got, "Take out what is no text; images are not compared.")


def _listed(tools: Sequence[Any]) -> str:
    return "".join(f"{_json(tool)}\n" for tool in tools)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _outline(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:6])) or 'nothing in it'}"
    return (
        f"a {type(value).__name__}"
        if value or value == 0
        else f"an empty {type(value).__name__}"
        if value is not None
        else "null"
    )


def _refused(name: str, expected: str, got: str, todo: str) -> InputError:
    return InputError(f"{name} cannot be compared.", expected=expected, got=got, todo=todo)
