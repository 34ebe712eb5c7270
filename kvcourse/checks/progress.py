"""Every lesson: how far a learner is, in a small file beside the notebooks. Knows nothing about how anything is checked.

Imports no torch. A file that was torn, edited or written by another version costs no more than the entries that it spoils.
"""

import ast
import hashlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from kvcourse.checks.cells import cells_of, parse, read_notebook
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.registry import EXERCISES
from kvcourse.errors import SubmissionError

RECORD = ".kvcourse-progress.json"
COURSE_FOLDERS = ("notebooks", "exercises", "solutions")  # a clone's own, where nothing of a learner's is kept
State = Literal["passed", "failed", "not started", "missing", "did not run", "took too long", "not checked"]


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
    changed: bool = False  # passed, and the notebook holds another answer by now

    @property
    def says(self) -> str:
        if self.state == "failed":
            return f"{self.held} of {self.properties} hold"
        if self.state == "missing":
            return "no answer"
        return f"{self.state}, changed since" if self.changed else self.state


def progress_table(folder: Path) -> list[ProgressRow]:
    """Every task of every exercise, in the order of the lessons, with what the folder's record says."""
    record = _read(folder)
    return [_row(folder, exercise, task, record.get(task.name)) for exercise in EXERCISES for task in exercise.tasks]


def note(folder: Path, task: str, state: State, held: int, properties: int, answer: str | None = None) -> None:
    """Keep the outcome of one check. A course folder of a clone, or one that cannot be written to, is left alone: a check
    is worth having there too.

    answer: the `digest` of what was checked, where it is known.
    """
    entry: dict[str, Any] = {"state": state, "held": held, "properties": properties}
    if answer is not None:
        entry |= {"answer": answer, "when": time.time()}
    _write(folder, {**_read(folder), task: entry}, _read_hints(folder))


def forget(folder: Path, tasks: Iterable[str]) -> None:
    """Take out what is kept about these tasks: their answers are new."""
    if (folder / RECORD).is_file():
        gone, kept, hints = set(tasks), _read(folder), _read_hints(folder)
        if gone & (kept.keys() | hints.keys()):
            kept = {task: entry for task, entry in kept.items() if task not in gone}
            _write(folder, kept, {task: level for task, level in hints.items() if task not in gone})


def hint_given(folder: Path, task: str) -> int:
    """The level of the hint of this task that was shown last; 0 before the first."""
    return _read_hints(folder).get(task, 0)


def note_hint(folder: Path, task: str, level: int) -> None:
    """Keep the level of the hint that was shown."""
    _write(folder, _read(folder), {**_read_hints(folder), task: level})


def digest(source: str, name: str) -> str | None:
    """What tells one definition of the answer `name` from another; comments and blanks do not count. None: there is none."""
    tree = parse(source)
    kinds = ast.FunctionDef | ast.ClassDef
    found = [node for node in tree.body if isinstance(node, kinds) and node.name == name] if tree else []
    try:
        return hashlib.sha256(ast.dump(found[-1]).encode("utf-8", "replace")).hexdigest() if found else None
    except RecursionError:  # a thousand `elif`s
        return None


def _write(folder: Path, tasks: dict[str, Any], hints: dict[str, int]) -> None:
    if folder.name in COURSE_FOLDERS and (folder.parent / "sources").is_dir():
        return
    record = {"tasks": tasks, **({"hints": hints} if hints else {})}
    unfinished = folder / f"{RECORD}.{os.getpid()}.part"
    try:
        unfinished.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(unfinished, folder / RECORD)
    except OSError:
        unfinished.unlink(missing_ok=True)


def as_text(rows: Sequence[ProgressRow]) -> str:
    """The table as plain lines: a heading for each exercise, a line for each task, the points at the end."""
    width = max((len(row.title) for row in rows), default=0)
    says = max([14, *(len(row.says) for row in rows)])
    lines: list[str] = []
    for number, row in enumerate(rows):
        if not number or rows[number - 1].exercise != row.exercise:
            lines.append(f"{row.exercise}")
        lines.append(f"  {row.task:<5} {row.title:<{width}}  {row.says:<{says}} {row.points} of {row.max_points}")
    lines.append(f"{sum(row.points for row in rows)} of {sum(row.max_points for row in rows)} points")
    return "\n".join(lines)


def _row(folder: Path, exercise: Exercise, task: Task, entry: dict[str, Any] | None) -> ProgressRow:
    state: State = "not checked" if entry is None else entry["state"]
    held, properties = (0, 0) if entry is None else (entry["held"], entry["properties"])
    points = task.points if state == "passed" else 0
    changed = entry is not None and state == "passed" and _changed(folder / f"{exercise.file}.ipynb", task, entry)
    return ProgressRow(exercise.file, task.name, task.title, state, held, properties, points, task.points, changed)


def _changed(path: Path, task: Task, entry: dict[str, Any]) -> bool:
    """True if the notebook was saved after the check, and what passed is not in it."""
    try:
        if "answer" not in entry or path.stat().st_mtime <= entry["when"]:  # as long as it is open, the file may be older
            return False
        cells = cells_of(read_notebook(path))
    except (OSError, SubmissionError):
        return False
    return entry["answer"] not in {digest(cell.source, task.answers) for cell in cells if cell.kind == "code"}


def _load(folder: Path, part: str) -> dict[str, Any]:
    """One part of the record; empty if there is none that can be understood."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    found = record.get(part) if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def _read_hints(folder: Path) -> dict[str, int]:
    return {task: level for task, level in _load(folder, "hints").items() if type(level) is int and level > 0}


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries that can be understood; none if there is no record."""
    tasks = _load(folder, "tasks")
    return {task: entry for task, entry in tasks.items() if _is_entry(entry)}


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.get("state") not in get_args(State):
        return False
    if "answer" in entry and not (isinstance(entry["answer"], str) and type(entry.get("when")) in (int, float)):
        return False
    return type(entry.get("held")) is int and type(entry.get("properties")) is int
