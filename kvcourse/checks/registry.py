"""Every lesson: which exercises and tasks there are. Knows nothing about how they are checked, and imports no torch."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from kvcourse.checks import ex02, ex03, ex04, ex05, ex06, ex07, ex08, ex09, ex10, ex11, ex12, ex13, ex14
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.errors import UnknownName

# In the order of the lessons.
EXERCISES: tuple[Exercise, ...] = (
    ex02.EXERCISE,
    ex03.EXERCISE,
    ex04.EXERCISE,
    ex05.EXERCISE,
    ex06.EXERCISE,
    ex07.EXERCISE,
    ex08.EXERCISE,
    ex09.EXERCISE,
    ex10.EXERCISE,
    ex11.EXERCISE,
    ex12.EXERCISE,
    ex13.EXERCISE,
    ex14.EXERCISE,
)


def find_exercise(name: str) -> Exercise:
    """An exercise by its number ("6", "06") or name ("06_kv_cache").

    Raises: UnknownName.
    """
    for exercise in EXERCISES:
        if name == exercise.file or (name.isdecimal() and int(name) == exercise.number):
            return exercise
    raise UnknownName(
        "There is no such exercise.",
        expected=", ".join(exercise.file for exercise in EXERCISES),
        got=repr(name),
        todo="Name one of these, or its number.",
    )


def find_task(name: str) -> tuple[Exercise, Task]:
    """A task by its name, such as "6.2" or "06.2", and the exercise it belongs to.

    Raises: UnknownName.
    """
    for exercise in EXERCISES:
        for task in exercise.tasks:
            if task.name == name.lstrip("0"):
                return exercise, task
    for exercise in EXERCISES:
        if name == exercise.file or (name.isdecimal() and int(name) == exercise.number):
            todo = f"Name one task, such as {exercise.tasks[0].name}."
            raise UnknownName(f"{name} is a whole exercise.", expected="a task of it", got=repr(name), todo=todo)
    near = next((exercise for exercise in EXERCISES if name.lstrip("0").startswith(f"{exercise.number}.")), None)
    known = [task.name for exercise in EXERCISES for task in exercise.tasks]
    raise UnknownName(
        "There is no such task.",
        expected=", ".join(task.name for task in near.tasks) if near else f"one of {known[0]} to {known[-1]}",
        got=repr(name),
        todo="The number stands in the heading of the task.",
    )


def properties_of(task: Task) -> Sequence[Callable[..., None]]:
    """What must hold of an answer, in the order in which it is tried. Imports torch."""
    return _beside(task, "checks").PROPERTIES[task.name]


def hints_of(task: Task) -> Sequence[str]:
    """A task's hints, the vaguest first."""
    return _beside(task, "hints").HINTS[task.name]


def _beside(task: Task, module: str) -> Any:
    exercise, _ = find_task(task.name)
    return importlib.import_module(f"kvcourse.checks.ex{exercise.number:02d}.{module}")
