"""Every lesson: what a learner handed in, read from a notebook. Knows nothing about running or judging it.

A notebook comes back in many states: saved by another editor that dropped the cell ids, with cells added, copied, turned into
text, checks deleted. Only the answers count, so only they are looked for: by the cell's id, and where that was lost by the name
of the function. Everything else of the notebook (checks, outputs, tags, kernel) is the course's own when it is graded.
"""

import ast
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

import kvcourse
from kvcourse.checks.cells import (
    Cell,
    canonical_notebook,
    cells_of,
    defines,
    is_old_format,
    parse,
    read_notebook,
    top_level_names,
)
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.registry import EXERCISES
from kvcourse.errors import SubmissionError
from kvcourse.grader import limits

LIMIT_CELLS = 2000
END = ""  # in `Submission.before`: no cell of the course follows


@dataclass(frozen=True)
class Submission:
    """One exercise, as a learner left it."""

    name: str  # the file's name without .ipynb
    path: Path
    exercise: Exercise
    answers: dict[str, str | None]  # task's name: source of its answer, or None where there is none
    extra: tuple[str, ...]  # sources of the learner's other code cells, in their order
    notes: tuple[str, ...]
    before: tuple[
        str, ...
    ] = ()  # for each of `extra`, the id of the next answer or check cell in the learner's notebook, or END

    def again(self) -> dict[str, tuple[str, ...]]:
        """For tasks whose helpers are defined anew further down: the earlier cells, to be read in once more after all others.
        In the notebook the task's check had run before the later definition was there."""
        ids = [cell_id for task in self.exercise.tasks for cell_id in (task.cell, task.check_cell)]
        places = [ids.index(place) if place in ids else len(ids) for place in self.before]
        cells = list(zip(self.extra, places, map(_names, self.extra), strict=True))
        found = {}
        for task in self.exercise.tasks:
            check = ids.index(task.check_cell)
            later = {name for _, place, names in cells if place > check for name in names}
            earlier = tuple(source for source, place, names in cells if place <= check and names & later)
            if earlier:
                found[task.name] = earlier
        return found


def read_submission(path: Path, expected: Exercise | None = None) -> Submission:
    """Read a notebook that was handed in. `expected`: the exercise that it must be, if that is known.

    Raises: SubmissionError if it cannot be graded: one line that says why.
    """
    notebook = read_notebook(path)
    metadata = notebook.get("metadata")
    metadata = metadata.get("kvcourse") if isinstance(metadata, dict) else None
    told: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    _refuse_newer(path, told)
    cells = cells_of(notebook)
    if len(cells) > LIMIT_CELLS:
        expected_cells, todo = f"at most {LIMIT_CELLS:,} cells", "Delete what is no part of the answer."
        raise SubmissionError(f"{path.name} is too long.", expected=expected_cells, got=f"{len(cells):,}", todo=todo)
    exercise = _which(path, told, cells)
    if expected is not None and exercise != expected:
        raise SubmissionError(
            f"{path.name} is another exercise's notebook.", expected=expected.file, got=exercise.file, todo="Check the path."
        )
    notes = []
    if is_old_format(notebook):
        notes.append("The notebook is of nbformat 3, without cell ids: answers were found by their names.")
    if not told:
        notes.append("The notebook does not say which version of the exercise it is: graded as the present one.")
    reader = _Reader(exercise, cells)
    answers = {task.name: reader.answer(task) for task in exercise.tasks}
    extra = reader.extra()
    return Submission(
        path.stem,
        path,
        exercise,
        answers,
        tuple(source for source, _ in extra),
        tuple(notes + reader.notes),
        tuple(place for _, place in extra),
    )


def _refuse_newer(path: Path, told: dict[str, Any]) -> None:
    try:
        newer = Version(str(told.get("version", kvcourse.__version__))) > Version(kvcourse.__version__)
    except InvalidVersion:
        return
    if newer:
        raise SubmissionError(
            f"{path.name} comes from a newer version of the course.",
            expected=f"kvcourse {kvcourse.__version__} or older",
            got=told["version"],
            todo="Update kvcourse, then grade it.",
        )


def _which(path: Path, told: dict[str, Any], cells: list[Cell]) -> Exercise:
    """By what the notebook says of itself, else by the file's name, else by what is in it."""
    names = {exercise.file: exercise for exercise in EXERCISES}
    source = str(told.get("source", ""))
    if source.startswith("sources/lessons/"):
        todo = "Name your copy of the exercise, in work/."
        raise SubmissionError(f"{path.name} is a lesson.", expected="an exercise", got=source, todo=todo)
    claimed = told.get("exercise", Path(source).stem)
    if claimed:
        if isinstance(claimed, str) and claimed in names:
            return names[claimed]
        raise SubmissionError(
            f"{path.name} belongs to no exercise of this course.",
            expected=", ".join(names),
            got=repr(claimed),
            todo="Update kvcourse, or check the path.",
        )
    if path.stem in names:
        return names[path.stem]
    likeness = {exercise.file: _likeness(exercise, cells) for exercise in EXERCISES}
    best = max(likeness, key=likeness.__getitem__)
    if not likeness[best]:
        raise SubmissionError(
            f"{path.name} has no answer to any exercise.",
            expected="a copy of an exercise",
            got="none of its cells",
            todo="Check the path.",
        )
    return names[best]


def _likeness(exercise: Exercise, cells: list[Cell]) -> int:
    """How many of an exercise's cells and names are in these cells."""
    ids = {cell.id for cell in cells}
    found = sum((task.cell in ids) + (task.check_cell in ids) for task in exercise.tasks)
    code = [cell.source for cell in cells if cell.kind == "code"]
    return found + sum(any(defines(source, task.answers) for source in code) for task in exercise.tasks)


class _Reader:
    """Tells the cells of one notebook apart: answers, the course's own, the learner's others."""

    def __init__(self, exercise: Exercise, cells: list[Cell]) -> None:
        self.notes: list[str] = []
        self._cells = cells
        ours = cells_of(canonical_notebook(exercise))
        self._ours = {cell.id: cell for cell in ours}
        self._sources = {_squeezed(cell.source): cell.id for cell in ours if cell.kind == "code"}
        self._exercise = exercise
        self._answer_ids = {task.cell for task in exercise.tasks}
        self._check_ids = {task.check_cell for task in exercise.tasks}
        self._taken: dict[int, str] = {}  # index of a cell: the id of the answer that it gives
        self._following: list[str] = []  # for each cell, the course's next one

    def answer(self, task: Task) -> str | None:
        """The source that answers a task; notes what is unusual about where it was found."""
        stub = _squeezed(self._ours[task.cell].source)
        same_id = [i for i, cell in enumerate(self._cells) if cell.id == task.cell]
        code = [i for i in same_id if self._cells[i].kind == "code" and self._cells[i].source.strip()]
        others = [i for i, cell in enumerate(self._cells) if cell.kind == "code" and cell.id not in self._ours]
        named = [i for i in (*others, *code) if defines(self._cells[i].source, task.answers)]
        written = [i for i in named if _squeezed(self._cells[i].source) != stub]
        best = [i for i in written if i in code] or written or [i for i in named if i in code] or code or named
        if not best:
            if same_id and any(self._cells[i].kind != "code" for i in same_id):
                self.notes.append(f"{task.name}: its cell is no code cell any more, so there is no answer.")
            return None
        index = best[-1]  # the last one, as when the notebook is run from top to bottom
        self._taken[index] = task.cell
        if len(code) > 1:
            self.notes.append(f"{task.name}: {len(code)} cells have its id; the one that defines {task.answers} was taken.")
        if index not in code:
            why = "its own cell does not have it" if same_id else "its cell's id was lost"
            self.notes.append(f"{task.name}: {why}; {task.answers} was found by its name.")
        return self._cells[index].source

    def extra(self) -> list[tuple[str, str]]:
        """The learner's own code cells, and what was added to the course's: each with the id of what comes next."""
        found = self._all_extra()
        sizes = [cell_bytes(source) for source, _ in found]
        small = [size <= limits.CELL_BYTES for size in sizes]
        if sum(size for size, fits in zip(sizes, small, strict=True) if fits) > limits.CELLS_BYTES:
            self.notes.append(f"The other cells hold more than {limits.CELLS_BYTES >> 10} kB of code: they were left out.")
            return []
        if not all(small):
            self.notes.append(f"{small.count(False)} of the other cells left out: longer than {limits.CELL_BYTES >> 10} kB.")
        return [one for one, fits in zip(found, small, strict=True) if fits]

    def _all_extra(self) -> list[tuple[str, str]]:
        self._following = self._nexts()
        found = []
        for index, cell in enumerate(self._cells):
            if cell.kind != "code" or index in self._taken or not cell.source.strip():
                continue
            if _squeezed(cell.source) in self._sources:
                continue  # the course's own, with or without its id
            given = self._ours.get(cell.id)
            if given is None or cell.id in self._answer_ids:
                found.append((cell.source, self._again(cell.source) or self._following[index]))
            elif cell.id not in self._check_ids and given.kind == "code":
                added = _added(given.source, cell.source)
                if added:
                    self.notes.append(f'Cell "{cell.id}" was changed: the imports and functions added to it are kept.')
                    found.append((added, self._following[index]))
        return found

    def _again(self, source: str) -> str | None:
        """The answer's id, if a cell defines an answer that was taken from another cell: it must not come after that one."""
        for task in self._exercise.tasks:
            if task.cell in self._taken.values() and defines(source, task.answers):
                self.notes.append(f"{task.name}: {task.answers} is defined in another cell too; that one does not count.")
                return task.cell
        return None

    def _nexts(self) -> list[str]:
        """For each cell, the id of the first answer or check cell of the course's that follows it."""
        places = self._answer_ids | self._check_ids
        following, nearest = [], END
        for index in reversed(range(len(self._cells))):
            following.append(nearest)
            cell_id = self._taken.get(index) or self._cells[index].id
            if cell_id is None:
                cell_id = self._sources.get(_squeezed(self._cells[index].source))
            if cell_id in places:
                nearest = str(cell_id)
        return following[::-1]


def _names(source: str) -> set[str]:
    """What a cell defines, as far as it can be read."""
    tree = parse(source)
    try:
        return set() if tree is None else top_level_names(tree.body)
    except RecursionError:
        return set()


def cell_bytes(source: str) -> int:
    """What a source takes when it is sent, where some characters take six bytes."""
    return len(json.dumps(source))


def _squeezed(source: str) -> str:
    """A source without what no reader would call a change."""
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


def _added(given: str, edited: str) -> str:
    """The imports, functions and classes that a learner wrote into a cell of the course's, under names that are new there."""
    before, after = parse(given), parse(edited)
    if before is None or after is None:
        return ""
    known = {ast.dump(node) for node in before.body}
    names = top_level_names(before.body)
    kinds = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef
    new = [node for node in after.body if isinstance(node, kinds) and ast.dump(node) not in known]
    return "\n".join(ast.unparse(node) for node in new if not top_level_names([node]) & names)
