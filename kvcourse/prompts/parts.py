"""Lesson 13: what a message or a tool says, as text, block by block. Knows nothing about requests, logs or caches.

A content is a text, or a list of parts. Each part is a block, and begins on a line of its own: how a provider joins them is not
told, and parts that change places have to be told from one another. A single part reads as the same text alone. Where a cache
mark stands is no text: `marked` says whether one does.
"""

import json
from typing import Any

from kvcourse.errors import InputError

OPENAI_MARK = "prompt_cache_breakpoint"
MARKS = ("cache_control", OPENAI_MARK)
_SAID = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"} | {
    "thinking": "thinking", "redacted_thinking": "data"}  # fmt: skip


def blocks(content: Any, where: str) -> list[str]:
    """The texts of a content; all of them, joined, are what it says. Raises: InputError for what is no text, by its place."""
    if content is None or isinstance(content, str):
        return [content or ""]
    if not isinstance(content, list):
        raise refused(where, "text, or a list of parts", outline(content))
    found: list[str] = []
    at_line_start = True
    for n, part in enumerate(content):
        text = _part(part, f"{where}, part {n}")
        found.append(text if at_line_start or not text else f"\n{text}")
        at_line_start = text.endswith("\n") if text else at_line_start
    return found


def calls(message: dict[str, Any], where: str) -> list[str]:
    """The calls in an assistant's message: "tool_calls", and "function_call", as they were named before."""
    listed = message.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise refused(where, "tool_calls in a list", outline(listed))
    older = message.get("function_call")
    found = [*(listed or []), *([] if older is None else [older])]
    for n, call in enumerate(found):
        if not isinstance(call, dict):
            raise refused(f"{where}, call {n}", "an object", outline(call))
    return [as_json(without_marks(call)) for call in found]


def tools_in(parsed: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The tools that a request offers, as they stand in front of it: "tools", and "functions", as they were named before."""
    found = []
    for field in ("tools", "functions"):
        listed = parsed.get(field)
        if listed is not None and not isinstance(listed, list):
            raise refused(name, f"{field} in a list", outline(listed))
        for n, tool in enumerate(listed or []):
            if not isinstance(tool, dict):
                raise refused(f"{name}, {field} {n}", "an object", outline(tool))
            found.append(without_marks(tool))
    return found


def schema_in(parsed: dict[str, Any]) -> list[dict[str, Any]]:
    """The schema that an answer has to follow, as a tool of its own behind the others, or nothing.

    OpenAI puts it in front of the system part, and says so; at Anthropic another one is a miss, too.
    """
    config = parsed.get("output_config")
    inner = config.get("format") if isinstance(config, dict) else None
    for one in (parsed.get("response_format"), parsed.get("output_format"), inner):
        if isinstance(one, dict) and one.get("type") == "json_schema":
            return [{"name": "response_format", **{key: value for key, value in one.items() if key not in ("type", "name")}}]
    return []


def is_schema(tool: dict[str, Any]) -> bool:
    """Whether this is what `schema_in` has made."""
    return tool.get("name") == "response_format" and ("json_schema" in tool or "schema" in tool)


def without_marks(value: dict[str, Any]) -> dict[str, Any]:
    """A tool or a call without the marks on it, or on the function in it: moving a mark changes no text."""
    inner = value.get("function")
    marked = isinstance(inner, dict) and any(name in inner for name in MARKS)
    if not marked and not any(name in value for name in MARKS):
        return value
    bare = {name: one for name, one in value.items() if name not in MARKS}
    return {**bare, "function": without_marks(inner)} if isinstance(inner, dict) else bare


def marks_on(value: Any) -> list[str]:
    """The marks on a part, a tool or a message, on the function in it, and on parts of a tool's result in it."""
    if not isinstance(value, dict):
        return []
    found = [name for name in MARKS if value.get(name)]
    if value.get("type") == "tool_result" and isinstance(value.get("content"), list):
        found += [name for part in value["content"] for name in marks_on(part)]
    return found + marks_on(value.get("function"))


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def outline(value: Any) -> str:
    """What was got instead, in a few words."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:6])) or 'nothing in it'}"
    return f"a {type(value).__name__}" if value or value == 0 else f"an empty {type(value).__name__}"


def refused(name: str, expected: str, got: str, todo: str = "Correct the body.") -> InputError:
    return InputError(f"{name} cannot be compared.", expected=expected, got=got, todo=todo)


def _part(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    field = _SAID.get(kind) if isinstance(kind, str) else None
    if field is not None and isinstance(part.get(field), str):
        return str(part[field])
    if kind == "tool_use":  # with its id, as in a call of OpenAI's form: that a provider leaves it out, none says
        named = {} if part.get("id") is None else {"id": part["id"]}
        return as_json({**named, "name": part.get("name"), "input": part.get("input")})
    if kind == "tool_result":
        return "".join(blocks(part.get("content"), where))
    got = f"a part of type {kind!r}" if isinstance(kind, str) else outline(part)
    raise refused(where, "text", got, "Take out what is no text; images are not compared.")
