"""Lesson 13: earlier turns that are others now, or gone. Knows nothing about what their text means.

What came after them is there as it was, up to where the earlier request ends: that tells them from another conversation.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from kvcourse.causes import Cause
from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, Message
from kvcourse.prompts.findings import Fault, placed

TELLING = 12  # characters by which a text is told from others
NAMED = 8  # where its place says so, too


class _Run(NamedTuple):
    """Turns at the end of a request: how many, their characters, and whether one of them is an answer."""

    turns: int
    characters: int
    answered: bool


def rewritten(ours: Body, theirs: Body, first: int) -> Fault | None:
    """Earlier turns are others, or gone, while what came after them is there as it was."""
    one, other = ours.messages, theirs.messages
    systems = max(len(ours.system), len(theirs.system))
    if first < systems:
        found = _another_system(ours, theirs, first)
        if found is not None or not _grew(one[first], other[first]):
            return found
    runs, meeting = _runs(other), _meetings(one, other, first)
    for n in range(max(first, systems), len(other)):
        for m in sorted(meeting.get(n, ())):
            goes_on = m + runs[n].turns < len(one)
            if not _is_cut(m, n, first, systems):
                continue
            moved_up = m == first < n and goes_on and len(other[n]["content"]) >= NAMED  # what came last comes first now
            if moved_up or _telling(runs[n], (m == n and first > systems) or first >= systems + 2, goes_on):
                cause = Cause("history", _why(first, m, n, other[n]))
                return placed(cause, one, other, first), replace(ours, messages=other[:n] + one[m:]), 0
    return None


def _is_cut(m: int, n: int, first: int, systems: int) -> bool:
    """Whether turn n of the earlier request may be turn m now: in its place, or with what stood in front gone or another."""
    in_place = m == n and first > systems
    dropped = m < n or (m == n == first + 1)  # earlier turns are gone, or one is another
    return in_place or ((dropped or n == first) and m <= first + 2)


def _meetings(one: Sequence[Message], other: Sequence[Message], first: int) -> dict[int, set[int]]:
    """n: places m of `one` from where on it is as `other` from n to its end. Only m that `_is_cut` allows, in linear time."""
    names: dict[tuple[str, str], int] = {}
    a, b = ([names.setdefault((turn["role"], turn["content"]), len(names)) for turn in side] for side in (one, other))
    found: dict[int, set[int]] = {}
    for m in range(first, min(first + 3, len(a))):
        for turns in _starts_that_end(a[m:], b[first:]):
            found.setdefault(len(b) - turns, set()).add(m)
    n = len(b)
    while first < n <= len(a) and a[n - 1] == b[n - 1]:
        n -= 1
        found.setdefault(n, set()).add(n)
    return found


def _starts_that_end(pattern: list[int], text: list[int]) -> list[int]:
    """How long the starts of `pattern` are that `text` ends with: Knuth, Morris and Pratt's table, and what it leaves."""
    borders, k = [0] * len(pattern), 0
    for i in range(1, len(pattern)):
        while k and pattern[i] != pattern[k]:
            k = borders[k - 1]
        k += pattern[i] == pattern[k]
        borders[i] = k
    k = 0
    for turn in text:
        while k and (k == len(pattern) or turn != pattern[k]):
            k = borders[k - 1]
        k += bool(pattern) and turn == pattern[k]
    lengths = []
    while k:
        lengths.append(k)
        k = borders[k - 1]
    return lengths


def _grew(one: Message, other: Message) -> bool:
    """Whether one of two messages is the start of the other: a summary was put behind a system part."""
    short, long = sorted((one["content"], other["content"]), key=len)
    return one["role"] == other["role"] and len(short) >= TELLING and long.startswith(short)


def _another_system(ours: Body, theirs: Body, first: int) -> Fault | None:
    """The same conversation, up to where the earlier request ends, behind another system part."""
    turns, others = ours.messages[len(ours.system) :], theirs.messages[len(theirs.system) :]
    if common_length(turns, others) < len(others) or not others:
        return None
    if not _telling(_runs(others)[0], len(others) >= 2, len(turns) > len(others)):
        return None
    cause = Cause("template", "the system part is another one, and the conversation behind it is the same")
    return placed(cause, ours.messages, theirs.messages, first), replace(ours, messages=theirs.system + turns), 0


def _runs(messages: Sequence[Message]) -> list[_Run]:
    """For each turn, the run from it to the end."""
    behind = reversed(messages)
    single = [_Run(1, len(one["content"]), one["role"] == "assistant") for one in behind]
    joined = accumulate(single, lambda run, turn: _Run(run.turns + 1, run.characters + turn.characters, run[2] or turn[2]))
    return list(joined)[::-1]


def _telling(run: _Run, known: bool, goes_on: bool) -> bool:
    """Whether so many equal turns, up to where the earlier request ends, are no accident: many a chat ends with thanks.

    known: something else says that it is the same conversation.
    """
    if known and (run.turns >= 2 or goes_on):
        return run.characters >= 2 * TELLING
    enough = run.turns >= 3 or (run.turns >= 2 and run.characters >= 80)
    return run.answered and enough and run.characters >= (2 * TELLING if goes_on else 200)


def _why(first: int, m: int, n: int, turn: Message) -> str:
    if m == n:
        return f"message {first} was another one, and what came after it is the same"
    return f"{abs(n - m)} messages before {turn['content'][:30]!r} {'are gone' if m < n else 'are new'}"
