"""Every lesson: how far a learner is, in a small file beside the notebooks. Knows nothing about how anything is checked.

Imports no torch. A file that was torn, edited or written by another version costs no more than the entries that it spoils.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.registry import EXERCISES

RECORD = ".kvcourse-progress.json"
COURSE_FOLDERS = ("notebooks", "exercises", "solutions")  # a clone's own, where nothing of a learner's is kept
State = Literal["passed", "failed", "not started", "not checked"]


@dataclass(frozen=True)
class ProgressRow:
    """One task, and what its last check said."""

    exercise: str  # "06_kv_cache"
    task: str  # "6.2"
    title: str  # "mask"
    state: State
    held: int  # properties that held
    properties: int
    points: int
    max_points: int

    @property
    def says(self) -> str:
        return f"{self.held} of {self.properties} hold" if self.state == "failed" else self.state


def progress_table(folder: Path) -> list[ProgressRow]:
    """Every task of every exercise, in the order of the lessons, with what the folder's record says."""
    record = _read(folder)
    return [_row(exercise, task, record.get(task.name)) for exercise in EXERCISES for task in exercise.tasks]


def note(folder: Path, task: str, state: State, held: int, properties: int) -> None:
    """Keep the outcome of one check. A course folder of a clone, or one that cannot be written to, is left alone: a check
    is worth having there too."""
    if folder.name in COURSE_FOLDERS and (folder.parent / "sources").is_dir():
        return
    tasks = {**_read(folder), task: {"state": state, "held": held, "properties": properties}}
    unfinished = folder / f"{RECORD}.{os.getpid()}.part"
    try:
        unfinished.write_text(json.dumps({"tasks": tasks}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(unfinished, folder / RECORD)
    except OSError:
        unfinished.unlink(missing_ok=True)


def as_text(rows: Sequence[ProgressRow]) -> str:
    """The table as plain lines: a heading for each exercise, a line for each task, the points at the end."""
    width = max((len(row.title) for row in rows), default=0)
    lines: list[str] = []
    for number, row in enumerate(rows):
        if not number or rows[number - 1].exercise != row.exercise:
            lines.append(f"{row.exercise}")
        lines.append(f"  {row.task:<5} {row.title:<{width}}  {row.says:<14} {row.points} of {row.max_points}")
    lines.append(f"{sum(row.points for row in rows)} of {sum(row.max_points for row in rows)} points")
    return "\n".join(lines)


def _row(exercise: Exercise, task: Task, entry: dict[str, Any] | None) -> ProgressRow:
    state: State = "not checked" if entry is None else entry["state"]
    held, properties = (0, 0) if entry is None else (entry["held"], entry["properties"])
    points = task.points if state == "passed" else 0
    return ProgressRow(exercise.file, task.name, task.title, state, held, properties, points, task.points)


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries that can be understood; none if there is no record."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    tasks = record.get("tasks") if isinstance(record, dict) else None
    return {task: entry for task, entry in tasks.items() if _is_entry(entry)} if isinstance(tasks, dict) else {}


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("state") not in get_args(State):
        return False
    return type(entry.get("held")) is int and type(entry.get("properties")) is int
