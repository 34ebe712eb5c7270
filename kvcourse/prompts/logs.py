"""Lesson 13: logs of requests, one JSON object a line, read one at a time. Knows nothing about caches or misses.

A line is a request body, {"messages": [...], "tools": [...]}, in either usual form (`bodies`), or an object with the body in
"request", "body" or "params" (as in files of batches), as text or as an object, and beside it, where known, the time in
"timestamp" ("time", "ts", "created", "created_at") and the answer's "usage" (or "response": {"usage": ...}). Times are seconds,
milli-, micro- or nanoseconds since 1970, or ISO 8601. Blank lines are passed over.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kvcourse.errors import InputError
from kvcourse.prompts.bodies import Body, body_of
from kvcourse.prompts.parts import OPENAI_MARK, as_json, blocks, is_schema, marks_on
from kvcourse.streams import called, opened

_LINE_BYTES = 32 * 2**20  # what providers take at most; a longer line is passed over, never held
_HOLDERS = ("request", "body", "params")
_TIMES = ("timestamp", "time", "ts", "created_at", "created")
_UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # at least so large: so many to a second
_LATEST = 1e21  # a number beyond it is no time in any of these units; NaN is below nothing


@dataclass(frozen=True)
class Entry:
    """One request of a log. line: from 1. seconds: since 1970. usage: as the provider gave it.

    blocks: how long each content block is, in characters, of each tool and message that has several; nothing for the others.
    marks: (item, block) behind which a cache breakpoint stands. model: "" where none is named; models share nothing.
    """

    line: int
    body: Body
    seconds: float | None = None
    usage: Mapping[str, Any] | None = None
    blocks: tuple[tuple[int, ...], ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    own_system: bool = False  # the system part has a field of its own, in front of the messages
    model: str = ""

    def place(self, message: int | str) -> int | str:
        """A message of `body` by its number in the request as it was sent."""
        if isinstance(message, str) or not self.own_system:
            return message
        return message - 1 if message else "system"


class BadLine(InputError):
    """A line that holds no request that could be read. line: from 1; `reason`: the fault, without what to do about it."""

    def __init__(self, line: int, fault: str, expected: object, got: object, todo: str = "Mend it, or leave it out.") -> None:
        super().__init__(f"Line {line}: {fault}", expected=expected, got=got, todo=todo)
        self.line = line

    @property
    def reason(self) -> str:
        return f"{self.fault} Expected {self.expected}; got {self.got}."


def read_log(path: Path, on_bytes: Callable[[int], None] = lambda n: None) -> Iterator[Entry | BadLine]:
    """Every line of a log, as a request or as the fault that keeps it from being one. "-" is standard input.

    on_bytes: told how many bytes each line took. Raises: InputError if the file cannot be read.
    """
    try:
        with opened(path) as file:
            line = 0
            while raw := file.readline(_LINE_BYTES):
                line += 1
                on_bytes(len(raw))
                if len(raw) == _LINE_BYTES and not raw.endswith(b"\n"):
                    yield BadLine(line, "it is too long.", f"less than {_LINE_BYTES // 2**20} MiB", "more")
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(_LINE_BYTES)
                        on_bytes(len(raw))
                elif raw.strip(b" \t\r\n\xef\xbb\xbf"):
                    yield entry_or_fault(raw, line)
    except OSError as error:
        raise InputError(f"{called(path)} cannot be read.", expected="a file of JSON lines", got=error.strerror or "an error",
                         todo="Check the path.") from error  # fmt: skip


def entries_of(requests: Iterable[Any]) -> Iterator[Entry | BadLine]:
    """The same for requests that are parsed already, or are text, numbered from 1."""
    for line, one in enumerate(requests, start=1):
        yield entry_or_fault(one, line) if isinstance(one, str | bytes) else _entry_or_fault(one, line)


def entry_or_fault(raw: str | bytes, line: int) -> Entry | BadLine:
    """The request in a line of JSON, or what is wrong with it."""
    try:
        text = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        return BadLine(line, "it is not JSON.", "UTF-8", f"bytes that are none ({error.reason})")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = str(error) if isinstance(error, ValueError) else "nesting without end"
        return BadLine(line, "it is not JSON.", "one JSON object", f"{_short(text)} ({fault})")
    return _entry_or_fault(parsed, line)


def _entry_or_fault(parsed: Any, line: int) -> Entry | BadLine:
    try:
        return entry_of(parsed, line)
    except BadLine as fault:
        return fault
    except InputError as error:
        return BadLine(line, error.fault, error.expected, error.got)
    except RecursionError:
        return BadLine(line, "it cannot be compared.", "a request", "nesting without end")


def entry_of(parsed: Any, line: int) -> Entry:
    """The request in what was parsed from a line. Raises: InputError."""
    outer = parsed if isinstance(parsed, dict) else {}
    inner = parsed
    if "messages" not in outer:
        inner = next((outer[name] for name in _HOLDERS if name in outer), parsed)
        if isinstance(inner, dict) and "messages" not in inner:
            inner = next((inner[name] for name in _HOLDERS[1:] if isinstance(inner.get(name), dict | str)), inner)
        if isinstance(inner, str):
            found = entry_or_fault(inner, line)
            inner = json.loads(inner) if isinstance(found, Entry) else inner
    body = body_of(inner, "The request")
    _require_text(body)
    cut, marks = _blocks(inner, body)
    return Entry(line, body, _seconds(outer), _usage(outer), cut, marks, bool(inner.get("system")), _model(inner, outer))


def _model(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> str:
    named = inner.get("model") or outer.get("model") or ""
    return named if isinstance(named, str) else json.dumps(named)


def _require_text(body: Body) -> None:
    texts = [("tool", n, as_json(tool)) for n, tool in enumerate(body.tools)]
    for n, message in enumerate(body.messages):
        texts += [("message", n, message["role"]), ("message", n, message["content"])]
    for kind, n, text in texts:
        if text.isascii():  # which costs nothing
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(f"The request cannot be compared: {kind} {n} is no text.", expected="Unicode",
                             got="half a surrogate pair", todo="Mend the log.") from None  # fmt: skip


def _blocks(inner: Mapping[str, Any], body: Body) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...]]:
    """How each tool and message is cut into blocks, and behind which of them a breakpoint stands."""
    system = inner.get("system")
    tools = [tool for field in ("tools", "functions") for tool in inner.get(field) or []]
    schemas: list[Any] = [None for tool in body.tools[len(tools) :] if is_schema(tool)]
    items = [*tools, *schemas, *([system] if system else []), *inner["messages"]]
    cut, marks, theirs = [], [], False
    for n, item in enumerate(items):
        content = item.get("content") if isinstance(item, dict) else item
        parts = content if isinstance(content, list) and n >= len(tools) else []
        cut.append(tuple(map(len, blocks(parts, ""))) if len(parts) > 1 else ())
        last = max(0, len(parts) - 1)
        marked = [(k, name) for k, part in enumerate(parts) for name in marks_on(part)]
        marked += [(last, name) for name in marks_on(item)]
        marks += [(n, k) for k, _ in marked]
        theirs |= OPENAI_MARK in (name for _, name in marked)
    options = inner.get("prompt_cache_options")
    explicit = isinstance(options, dict) and options.get("mode") == "explicit"
    if inner.get("cache_control") or (theirs and not explicit):  # behind the last block; OpenAI puts one there unasked
        marks.append((len(items) - 1, last))
    return tuple(cut), tuple(dict.fromkeys(marks))


def _seconds(outer: Mapping[str, Any]) -> float | None:
    """The time beside a request; None where there is none that can be read."""
    for name in _TIMES:
        value = outer.get(name)
        if isinstance(value, str):
            return _parsed(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LATEST:
            return next((value / scale for least, scale in _UNITS if abs(value) >= least), float(value))
    return None


def _parsed(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _usage(outer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for holder in (outer, outer.get("response")):
        for one in (holder, holder.get("body") if isinstance(holder, dict) else None):
            for name in ("usage", "usageMetadata"):
                if isinstance(one, dict) and isinstance(one.get(name), dict):
                    return dict(one[name])
    return None


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 30 else text[:27] + "...")
