"""Lesson 10: logs of requests, read line by line and checked. Knows nothing about caches, policies or hit rates.

Two kinds of line are understood, in one file too; blank lines are passed over, fields not named here are ignored:

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ..., 2354]}
        The public Mooncake traces (Qin et al., FAST 2025). Milliseconds; tokens; one id for each block of the input, the last
        of which may be part filled. Equal ids mean equal blocks behind equal prefixes, so that no request has an id twice.

    {"tokens": [1, 2, 3, ...]}, with "timestamp" and "output_length" where known
        Our own: the input's token ids. They are cut into blocks, each named by a digest of its tokens and of the name before
        it (`keys.chained`), so that here, too, equal ids mean equal prefixes.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, SupportsIndex

from kvcourse.amounts import whole
from kvcourse.errors import InputError
from kvcourse.prefix.keys import chained
from kvcourse.streams import called, opened

BLOCK_TOKENS = 512  # of the Mooncake traces
TOKEN_IDS = 1 << 63  # lengths and times are below it, too: no sum of them is more than a float holds


@dataclass(frozen=True)
class Request:
    """One line of a log. timestamp: milliseconds. Lengths: tokens. hash_ids: a name for each block of the input, in order."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]

    def as_record(self) -> dict[str, Any]:
        """A line of a Mooncake trace, as JSON has it."""
        return asdict(self) | {"hash_ids": list(self.hash_ids)}


class BrokenLine(InputError):
    """A line of a log that cannot be used. `number` counts from 1; `reason` is the message without what to do about it."""

    def __init__(self, number: int, fault: str, expected: object, got: object, todo: str = "Mend it") -> None:
        todo += ", or leave such lines out with --skip-bad (skip_bad=True)."
        super().__init__(f"Line {number}: {fault}", expected=expected, got=got, todo=todo)
        self.number = number

    @property
    def reason(self) -> str:
        return f"{self.fault} Expected {self.expected}; got {self.got}."


def read_trace(
    path: str | Path,
    skip_bad: bool = False,
    *,
    block_tokens: SupportsIndex = BLOCK_TOKENS,
    skipped: list[BrokenLine] | None = None,
) -> list[Request]:
    """All requests of a log, in the file's order. path: "-" is standard input.

    skip_bad: leave broken lines out, and name each in `skipped`, or, without such a list, on stderr.
    block_tokens: tokens in a block; a Mooncake trace has one size, and another is noticed.
    Raises: BrokenLine, with its number, for the first line that cannot be used, unless they are skipped; InputError if the file
    cannot be read, or holds no request.
    """
    block = require_whole("block_tokens", block_tokens, "512 is what Mooncake's traces have.")
    requests: list[Request] = []
    n_broken = 0
    for number, line in _lines(Path(path)):
        try:
            requests.append(_request(number, line, block))
        except BrokenLine as error:
            if not skip_bad:
                raise
            n_broken += 1
            if skipped is None:
                print(f"Skipped: {error.reason}", file=sys.stderr)
            else:
                skipped.append(error)
    if not requests:
        got = f"{n_broken:,} broken {'line' if n_broken == 1 else 'lines'}" if n_broken else "none"
        raise InputError(
            f"{called(Path(path))} holds no request.", expected="one JSON object a line", got=got, todo="Give it a log."
        )
    return requests


def require_whole(name: str, value: object, todo: str) -> int:
    """`value` as an int, whatever kind of integer it is. Raises: InputError unless it is one, and 1 or more."""
    try:
        return whole(name, value, 1)
    except InputError as error:
        raise InputError(f"{name} cannot be used.", expected="a whole number, 1 or more", got=error.got, todo=todo) from None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with opened(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise InputError(
            f"{called(path)} cannot be read.", expected="a file", got=error.strerror or str(error), todo="Check the path."
        ) from error


def _request(number: int, line: bytes, block_tokens: int) -> Request:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BrokenLine(number, "it is no JSON.", expected="one object", got=str(error)) from None
    if not isinstance(record, dict) or not {"tokens", "hash_ids"} & record.keys():
        raise BrokenLine(number, "it is no request.", expected='"hash_ids" and lengths, or "tokens"', got=_short(record),
                         todo="Write it as `kvcourse replay --help` shows")  # fmt: skip
    field = _Fields(number, record)
    if "tokens" in record:
        tokens = field.ids("tokens", lambda token: 0 <= token < TOKEN_IDS)
        return Request(
            field.time(default=0), len(tokens), field.length("output_length", 0, default=0), _named(tokens, block_tokens)
        )
    ids = field.ids("hash_ids", lambda _: True)
    length = field.length("input_length", 1)
    blocks = -(-length // block_tokens)
    if len(ids) != blocks:
        raise BrokenLine(number, f"{length} tokens and {len(ids)} blocks of {block_tokens} do not agree.",
                         expected=f"{blocks} hash_ids", got=len(ids), todo="Give the log's own --block-tokens")  # fmt: skip
    if len(set(ids)) != len(ids):
        raise BrokenLine(number, "a block stands in it twice.", expected="hash_ids that name a block and all in front of it",
                         got="an id twice")  # fmt: skip
    return Request(field.time(), length, field.length("output_length", 0), ids)


def _named(tokens: tuple[int, ...], block_tokens: int) -> tuple[int, ...]:
    names, before = [], b""
    for start in range(0, len(tokens), block_tokens):
        before = chained(before, tokens[start : start + block_tokens])
        names.append(int.from_bytes(before, "little"))
    return tuple(names)


@dataclass(frozen=True)
class _Fields:
    """What a record holds, each field checked. Without a default it has to be there."""

    number: int
    record: dict[str, Any]

    def length(self, name: str, least: int, default: int | None = None) -> int:
        value = self.record.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < TOKEN_IDS:
            raise self._fault(name, f"a whole number, {least} or more and below 2**63", value)
        return value

    def time(self, default: float | None = None) -> float:
        value = self.record.get("timestamp", default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < TOKEN_IDS:
            raise self._fault("timestamp", "milliseconds", value)
        return value

    def ids(self, name: str, allowed: Callable[[int], bool]) -> tuple[int, ...]:
        values = self.record[name]
        if not isinstance(values, list) or not values:
            raise self._fault(name, "a list of one id or more", values)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not allowed(value):
                raise self._fault(name, "ids: whole numbers" + (", 0 or more" if name == "tokens" else ""), value)
        return tuple(values)

    def _fault(self, name: str, expected: str, got: object) -> BrokenLine:
        return BrokenLine(self.number, f'"{name}" is missing or wrong.', expected=expected, got=_short(got))


def _short(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:  # it could be read, some frames further out
        return "nesting without end"
    return "nothing" if value is None else text if len(text) <= 40 else text[:37] + "..."
