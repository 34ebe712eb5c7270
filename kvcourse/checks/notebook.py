"""Every lesson: check, hint, reset and progress, as a learner calls them in a notebook. Knows nothing about any exercise.

Whoever runs a notebook (JupyterLab, nbval, nbclient, nbgrader) sees from a cell that ends in CheckFailed that a check did not
pass, and a learner sees what is wrong and no traceback.
"""

import contextlib
import inspect
import io
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from kvcourse.checks.exercise import Task
from kvcourse.checks.progress import as_text, digest, hint_given, note, note_hint, progress_table
from kvcourse.checks.registry import EXERCISES, find_task, hints_of, properties_of
from kvcourse.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kvcourse.checks.base import Verdict

REPORT = "KVCOURSE_CHECK_REPORT"  # names a file: every check adds a line of JSON to it
WIDTH, LINES = 88, 10  # of a message

_NONE: Any = object()  # an argument that was left out
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


def check(name: Any, answer: Any = _NONE, *, seed: int = 0) -> None:
    """Try an answer on fixed and random inputs; print one line when all is well.

    name: the task, "6.2". answer: the function that you wrote, not called.
    seed: of the random inputs; a grader's report names the one that it used.
    Raises: CheckFailed with what is wrong and the likely cause; WrongUse.
    """
    task = _task_to_check(name, answer)
    _refuse_what_is_no_answer(task, answer)
    from kvcourse.checks.base import judge  # PyTorch is needed from here on
    from kvcourse.checks.local import LocalAnswer

    printed = _Sink()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        verdict = judge(task.name, task.title, properties_of(task), LocalAnswer(answer, task.answers), seed)
    note(Path.cwd(), task.name, verdict.state, verdict.held, verdict.properties, _digest(task, answer))
    _report(verdict)
    if verdict.state != "passed":
        raise CheckFailed(_explanation(verdict, printed.used)) from None
    print(verdict)


@contextlib.contextmanager
def in_short() -> Iterator[None]:
    """`with in_short():` ends in one line, instead of a long traceback, when an answer used inside is missing or wrong.

    Raises: CheckFailed.
    """
    try:
        yield
    except (CheckFailed, WrongUse):
        raise
    except Exception as error:
        raise CheckFailed(_in_short(error)) from None


def _in_short(error: Exception) -> str:
    kind, lines = type(error).__name__, str(error).strip().split("\n")
    if kind == "NotImplementedError" and lines[0].startswith("Exercise "):  # "Exercise 6.2: write this function"
        return f"{lines[0].split(':')[0].removeprefix('Exercise ')} not started"
    if kind == "AssertionError" and lines[0]:
        return wrapped(lines[0])
    return wrapped(f"{kind}: {lines[0]}" if lines[0] else f"{kind}.")


def hint(name: Any = "", level: Any = None) -> None:
    """Print the next hint of a task, or the one of that level; 1 is the vaguest. The last one says that it is the last.

    Raises: WrongUse.
    """
    task = _named("hint", name)
    if level is None:
        level = next_hint(Path.cwd(), task)
    print(hint_text(task, level))
    _hints_given[task.name] = level
    note_hint(Path.cwd(), task.name, level)


def next_hint(folder: Path, task: Task) -> int:
    """The level of the hint that comes next: after the one that was shown here, or that the folder's record knows of."""
    return min(max(_hints_given.get(task.name, 0), hint_given(folder, task.name)) + 1, len(hints_of(task)))


def hint_text(task: Task, level: Any) -> str:
    """A task's hint of that level, as it is shown.

    Raises: WrongUse if there is no such level.
    """
    hints = hints_of(task)
    if type(level) is not int or not 1 <= level <= len(hints):
        todo = "Take a lower one." if type(level) is int and level > len(hints) else "Take one of these."
        raise WrongUse("There is no such hint.", expected=f"1 to {len(hints)}", got=repr(level), todo=todo)
    last = ", the last" if level == len(hints) else ""
    return wrapped(f"{task.name} {task.title}, hint {level} of {len(hints)}{last}: {hints[level - 1]}")


def reset(name: Any = "") -> None:
    """Put a task's cell in work/ back to what it was; what you wrote is kept aside."""
    from kvcourse.checks.work import reset_task

    task = _named("reset", name)
    print(reset_task(task.name))
    _hints_given.pop(task.name, None)


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


def _named(function: str, name: Any) -> Task:
    """The task that was named in a call of hint or reset."""
    if not isinstance(name, str | float | int) or name == "":
        task = _answered_by(name) or EXERCISES[0].tasks[0]
        raise WrongUse(f'Name the task. Write {function}("{task.name}").')
    return _task(name)


def _task_to_check(name: Any, answer: object) -> Task:
    """The task that was named in a call of check, which needs a name and an answer."""
    if answer is _NONE:
        task = _task(name) if isinstance(name, str | float | int) else _answered_by(name) or EXERCISES[0].tasks[0]
        raise WrongUse(f'A check needs the task and your function. Write check("{task.name}", {task.answers}).')
    return _task(name)


def _answered_by(function: object) -> Task | None:
    given = getattr(function, "__name__", None)
    return next((task for exercise in EXERCISES for task in exercise.tasks if task.answers == given), None)


def _is_theirs(name: str, answer: object) -> bool:
    """True if the cell that called check has this very object under the answer's name."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and name not in frame.f_globals:
        frame = frame.f_back
    return frame is not None and frame.f_globals[name] is answer


def _refuse_what_is_no_answer(task: Task, answer: object) -> None:
    """No function, a result instead of it, or another task's function: mistakes that a property need not look for."""
    if not callable(answer):
        from kvcourse.checks.base import describe
        from kvcourse.checks.local import snapshot

        what = describe(snapshot(answer))
        if _is_theirs(task.answers, answer):
            note(Path.cwd(), task.name, "did not run", 0, 0)
            raise WrongUse(f"{task.answers} is {what}, not a function. Define it with def {task.answers}(...).")
        call = f'Write check("{task.name}", {task.answers}), without calling {task.answers} yourself.'
        raise WrongUse("A check needs the function itself.", expected=task.answers, got=what, todo=call)
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


def _digest(task: Task, answer: Any) -> str | None:
    """What tells this definition from a later one, where its source is known."""
    try:
        return digest(textwrap.dedent(inspect.getsource(answer)), task.answers)
    except (OSError, TypeError):
        return None


def _report(verdict: "Verdict") -> None:
    path = os.environ.get(REPORT)
    if path:
        fields = ("task", "title", "state", "held", "properties", "message", "broken")
        line = json.dumps({field: getattr(verdict, field) for field in fields})
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
