"""Every lesson: check, hint, reset and progress, as a learner calls them in a notebook. Knows nothing about any exercise.

Whoever runs a notebook (JupyterLab, nbval, nbclient, nbgrader) sees from a cell that ends in CheckFailed that a check did not
pass, and a learner sees what is wrong and no traceback.
"""

import contextlib
import io
import json
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcourse.checks.exercise import Task
from kvcourse.checks.progress import as_text, note, progress_table
from kvcourse.checks.registry import EXERCISES, find_task, hints_of, properties_of
from kvcourse.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kvcourse.checks.base import Verdict

REPORT = "KVCOURSE_CHECK_REPORT"  # names a file: every check adds a line of JSON to it
WIDTH, LINES = 88, 10  # of a message

_hints_given: dict[str, int] = {}


class _Short(Exception):
    """An exception that IPython shows without its traceback: what happened inside a check is no help to a learner."""

    def _render_traceback_(self) -> list[str]:
        return str(self).split("\n")


class CheckFailed(_Short, AssertionError):
    """A check did not pass. Its text is all there is to say."""


class WrongUse(_Short, InputError):
    """check or hint was called in a way that makes no sense."""

    def __str__(self) -> str:
        return wrapped(super().__str__())


def check(name: str | float, answer: Any, *, seed: int = 0) -> None:
    """Try an answer on fixed and random inputs; print one line when all is well.

    name: the task, "6.2". answer: the function that you wrote, not called.
    seed: of the random inputs; a grader's report names the one that it used.
    Raises: CheckFailed with what is wrong and the likely cause; WrongUse.
    """
    task = _task(name)
    _refuse_what_is_no_answer(task, answer)
    from kvcourse.checks.base import judge  # PyTorch is needed from here on
    from kvcourse.checks.local import LocalAnswer

    printed = _Sink()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        verdict = judge(task.name, task.title, properties_of(task), LocalAnswer(answer, task.answers), seed)
    note(Path.cwd(), task.name, verdict.state, verdict.held, verdict.properties)
    _report(verdict)
    if verdict.state != "passed":
        raise CheckFailed(_explanation(verdict, printed.used)) from None
    print(verdict)


def hint(name: str | float, level: int | None = None) -> None:
    """Print the next hint of a task, or the one of that level; 1 is the vaguest. The last one says that it is the last.

    Raises: WrongUse.
    """
    task = _task(name)
    total = len(hints_of(task))
    if level is None:
        level = min(_hints_given.get(task.name, 0) + 1, total)
    print(hint_text(task, level))
    _hints_given[task.name] = level


def hint_text(task: Task, level: int) -> str:
    """A task's hint of that level, as it is shown.

    Raises: WrongUse if there is no such level.
    """
    hints = hints_of(task)
    if not 1 <= level <= len(hints):
        raise WrongUse("There is no such hint.", expected=f"1 to {len(hints)}", got=level, todo=f'Or hint("{task.name}").')
    last = ", the last" if level == len(hints) else ""
    return wrapped(f"{task.name} {task.title}, hint {level} of {len(hints)}{last}: {hints[level - 1]}")


def reset(name: str | float) -> None:
    """Put a task's cell in work/ back to what it was; what you wrote is kept aside."""
    from kvcourse.checks.work import reset_task

    print(reset_task(_task(name).name))


def progress() -> None:
    """Print a table of all exercises and tasks, with what the last check of each said."""
    print(as_text(progress_table(Path.cwd())))


def wrapped(text: str) -> str:
    """At most LINES lines of at most WIDTH characters."""
    return "\n".join(textwrap.wrap(text, WIDTH, max_lines=LINES, placeholder=" ..."))


class _Sink(io.TextIOBase):
    """Takes what an answer prints: called a hundred times, it would bury the one line that matters."""

    used = False

    def write(self, text: str) -> int:
        self.used = self.used or bool(text.strip())
        return len(text)


def _task(name: str | float) -> Task:
    try:
        return find_task(str(name))[1]
    except UnknownName as error:
        raise WrongUse(error.fault, expected=error.expected, got=error.got, todo=error.todo) from None


def _refuse_what_is_no_answer(task: Task, answer: object) -> None:
    """A result instead of the function, or another task's function: mistakes of the call, not of the answer."""
    if not callable(answer):
        call = f'Write check("{task.name}", {task.answers}), without calling {task.answers} yourself.'
        raise WrongUse("A check needs the function itself.", expected=task.answers, got=f"a {type(answer).__name__}", todo=call)
    others = {other.answers: other.name for exercise in EXERCISES for other in exercise.tasks}
    given = getattr(answer, "__name__", task.answers)
    if others.get(given, task.name) != task.name:
        fault = f"{given} answers {others[given]}, not {task.name}."
        raise WrongUse(fault, expected=task.answers, got=given, todo=f'Write check("{task.name}", {task.answers}).')


def _explanation(verdict: "Verdict", printed: bool) -> str:
    """What CheckFailed says: at most LINES lines."""
    if verdict.state == "not started":
        return f"{verdict}"
    lines = textwrap.wrap(str(verdict), WIDTH, max_lines=LINES - 2, placeholder=" ...")
    if printed:
        lines.append("(What your code printed is not shown here. Call it in a cell of its own.)")
    return "\n".join([*lines, f'Stuck? hint("{verdict.task}")'])


def _report(verdict: "Verdict") -> None:
    path = os.environ.get(REPORT)
    if path:
        fields = ("task", "title", "state", "held", "properties", "message", "broken")
        line = json.dumps({field: getattr(verdict, field) for field in fields})
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
