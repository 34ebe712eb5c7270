"""Maintainers only: what graders need to find in an exercise, ours and nbgrader. Knows nothing about kernels or outputs.

Points, cell ids and the names of answers come from kvcourse/checks/exNN/__init__.py; a source that says otherwise is refused.
nbgrader's metadata makes solutions/ fit to be the source of an nbgrader course.
"""

import ast
from collections.abc import Sequence

from nbformat import NotebookNode

from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.registry import EXERCISES
from tools.notebooks.exercises import regions, solution_lines
from tools.notebooks.source import BuildError, Source

SCHEMA_VERSION = 3  # of nbgrader's metadata; see "metadata" in its documentation, under contributor guide


def for_graders(source: Source, cells: Sequence[NotebookNode]) -> list[NotebookNode]:
    """The cells, each with nbgrader's metadata: answers can be edited, scored checks give points, all else is locked.

    Raises: BuildError where the source and the registry of exercises differ.
    """
    exercise = next((exercise for exercise in EXERCISES if exercise.file == source.name), None)
    if exercise is not None:
        _refuse_missing_tasks(source, exercise)
    for index, cell in enumerate(cells):
        answer = bool(regions(source, index))
        task = _task(source, index, exercise) if _is_scored(source.cells[index]) or answer else None
        kind = {"solution": answer, "locked": not answer, "grade": bool(task and not answer)}
        cell.metadata["nbgrader"] = NotebookNode(grade_id=cell.id, schema_version=SCHEMA_VERSION, task=False, **kind)
        if task and not answer:
            cell.metadata["nbgrader"]["points"] = task.points
    return list(cells)


def refuse_leaks_from_checks(source: Source) -> None:
    """Raise BuildError when the checks, which learners have installed, hold a line of a solution."""
    lines = sorted(solution_lines(source))
    for path in sorted((source.root / "kvcourse" / "checks").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for line in lines:
            if line in text:
                name = path.relative_to(source.root).as_posix()
                raise BuildError(f"{source.relative}:1: {name} holds a line of the solution: {line!r}.")


def _is_scored(cell: NotebookNode) -> bool:
    return "check" in cell.metadata.get("tags", []) and "exercise" in cell.metadata


def _task(source: Source, index: int, exercise: Exercise | None) -> Task | None:
    """The task that a cell answers or checks. None: an answer in a source that the registry does not know."""
    cell = source.cells[index]
    name, is_check = cell.metadata["exercise"], _is_scored(cell)
    if exercise is None and not is_check:
        return None
    task = next((task for task in exercise.tasks if task.name == name), None) if exercise else None
    if task is None:
        raise BuildError(f"{source.where(index)}: kvcourse/checks has no task {name}.")
    right = task.check_cell if is_check else task.cell
    if cell.id != right:
        raise BuildError(f'{source.where(index)}: kvcourse/checks says that "{right}" is the cell of {name}.')
    if is_check and f'check("{task.name}", {task.answers})' not in cell.source:
        raise BuildError(f'{source.where(index)}: the check of {name} is check("{task.name}", {task.answers}).')
    if not is_check and task.answers not in _defined(cell.source):
        raise BuildError(f"{source.where(index)}: the answer to {name} defines {task.answers}.")
    return task


def _defined(text: str) -> set[str]:
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _refuse_missing_tasks(source: Source, exercise: Exercise) -> None:
    answers = {cell.id for index, cell in enumerate(source.cells) if regions(source, index)}
    checks = {cell.id for cell in source.cells if _is_scored(cell)}
    for task in exercise.tasks:
        for kind, cell, there in (("answer", task.cell, answers), ("check", task.check_cell, checks)):
            if cell not in there:
                raise BuildError(f'{source.relative}:1: {task.name} has no {kind} cell "{cell}", and kvcourse/checks says so.')
