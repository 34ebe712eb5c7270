"""Lesson 12: windows made of parts, as the checks of 12.3 and 12.4 draw, read and show them. Knows nothing about what a right
answer is."""

from itertools import groupby
from typing import Any

from kvcourse.checks.base import Draw, describe, expect

Part = tuple[str, int, list[int]]  # role, step, ids
Window = list[Part]
FIXED = ("system", "task")


def a_step(draw: Draw, step: int, *sizes: int) -> Window:
    """Answers and results in turn, of these sizes: two for a call and its result, four for a step with two calls."""
    return [(("assistant", "tool")[i % 2], step, draw.integers(size, 10, 99)) for i, size in enumerate(sizes)]


def front(draw: Draw, *sizes: int) -> Window:
    """The system part and the tasks, of these sizes."""
    return [("task" if i else "system", 0, draw.integers(size, 10, 99)) for i, size in enumerate(sizes)]


def size(parts: Window) -> int:
    """Tokens of all parts together."""
    return sum(len(ids) for _, _, ids in parts)


def flat(parts: Window) -> list[int]:
    """Their ids, one after another."""
    return [id for _, _, ids in parts for id in ids]


def shown(parts: Window) -> str:
    """A window for a message: "system 5, task 2, step 1: 4 + 9", with the numbers of tokens."""
    runs = []
    for (role, step), group in groupby(parts, key=lambda part: (part[0] if part[1] == 0 else "step", part[1])):
        sizes = " + ".join(str(len(ids)) for _, _, ids in group)
        runs.append(f"step {step}: {sizes}" if step else f"{role} {sizes}")
    return ", ".join(runs) if runs else "nothing"


def window_of(parts: Window, limit: int) -> str:
    """What was asked, for a message."""
    return f"Tokens: {shown(parts)}; the limit is {limit}"


def as_window(got: Any, told: str) -> Window:
    """A result, if it is a list of parts."""
    expect(isinstance(got, list), f"{told}: expected a list of parts; got {describe(got)}.")
    for part in got:
        triple = isinstance(part, tuple) and len(part) == 3
        expect(triple, f"{told}: a part is a tuple (role, step, ids); one of yours is {describe(part)}.")
        role, step, ids = part
        good = isinstance(role, str) and type(step) is int
        expect(good, f"{told}: a part is a tuple (role, step, ids), a str, an int and a list; one of yours has {role, step}.")
        good = isinstance(ids, list) and all(type(id) is int for id in ids)
        expect(good, f"{told}: a part's ids are a list of ints; those of your {role!r} are {describe(ids)}.")
    return got


def unchanged(before: Window, after: Any) -> None:
    """The caller's window is as it was."""
    for i, part in enumerate(before):
        if after[i : i + 1] != [part]:
            now = f"{after[i][:2]} with {len(after[i][2])} ids" if i < len(after) else "gone"
            told = f"parts[{i}] was {part[:2]} with {len(part[2])} ids, and is {now} afterwards"
            expect(False, f"{told}. The window is the caller's: make another list.")
    expect(len(after) == len(before), f"parts had {len(before)} parts, and has {len(after)}. Make another list.")
