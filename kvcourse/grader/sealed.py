"""Every lesson: grades answers in sealed workers. Knows nothing about notebooks; imports no torch, which is the judge's to use.

The parent's side of the judge: it hands over one task at a time, waits only so long, and starts another judge when one is lost.
One task is then lost with it, never a submission, and never the next one.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import kvcourse
from kvcourse.checks import registry
from kvcourse.checks.exercise import Task
from kvcourse.errors import SetupError
from kvcourse.grader import limits
from kvcourse.grader.results import TaskResult
from kvcourse.grader.submission import cell_bytes

NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


class JudgeLost(Exception):
    """The judge ended, or said nothing for too long."""


class SealedGrader:
    """Grades one exercise of one submission at a time, all with the same seed. Use it as a context manager, or close it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.protections: tuple[str, ...] = ()  # what every worker so far was held by; known after the first
        self._judge: _Judge | None = None
        self._closed = False

    def grade(
        self,
        exercise_file: str,
        answers: Mapping[str, str | None],
        extra: Sequence[str],
        again: Mapping[str, Sequence[str]] = NOTHING,
    ) -> list[TaskResult]:
        """answers: task name to the source of the learner's cell, None where there is none. extra: their other cells.
        again: for a task, those of the other cells that are to have the last word.

        Raises: UnknownName; SetupError if no judge or sandbox can be started on this machine.
        """
        exercise = registry.find_exercise(exercise_file)
        return [self._grade(task, answers, extra, again.get(task.name, ())) for task in exercise.tasks]

    def close(self) -> None:
        """For good, and from any thread: a grade that is under way then raises."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _grade(self, task: Task, answers: Mapping[str, str | None], extra: Sequence[str], again: Sequence[str]) -> TaskResult:
        source = answers.get(task.name)
        if source is None:
            message = f"The answer is missing: no cell defines {task.answers}."
            return TaskResult(task.name, task.title, 0, task.points, message, "missing")
        if cell_bytes(source) > limits.CELL_BYTES:
            message = f"The answer's cell is too long: more than {limits.CELL_BYTES >> 10} kB."
            return TaskResult(task.name, task.title, 0, task.points, message, "failed")
        told = [text for name, text in answers.items() if name != task.name and text is not None]
        others = [text for text in told if cell_bytes(text) <= limits.CELL_BYTES]
        request = {"task": task.name, "answer": source, "support": [*extra, *others, *again], "seed": self.seed}
        verdict = self._verdict(request)
        self._note(verdict.get("protections", ()))
        state = verdict["state"]
        points = task.points if state == "passed" else 0
        return TaskResult(task.name, task.title, points, task.points, _message(verdict), state, verdict["broken"])

    def _verdict(self, request: dict[str, Any]) -> dict[str, Any]:
        self._refuse_if_closed()
        try:
            if self._judge is None:
                _refuse_windows()
                self._judge = _Judge()
            self._refuse_if_closed()
            return self._judge.ask(request)
        except JudgeLost:
            self._drop()
            self._refuse_if_closed()
            lost = "The judge was lost while it graded this answer, so it counts as failed. Other answers are not affected."
            return {"state": "failed", "broken": None, "message": lost}
        except BaseException:
            self._drop()  # half a question has been asked: the answer must not be taken for the next one's
            raise

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ValueError("This grader was closed.")

    def _note(self, held: Sequence[str]) -> None:
        if held:
            before = self.protections or tuple(held)
            self.protections = tuple(one for one in before if one in held)


def _message(verdict: dict[str, Any]) -> str:
    if verdict["state"] == "passed":
        return f"All {verdict['properties']} properties hold." if verdict["properties"] > 1 else "The property holds."
    if verdict["state"] == "not started":
        return "Not started."
    return str(verdict["message"])


def _refuse_windows() -> None:
    if sys.platform == "win32":
        raise SetupError(
            "Answers cannot be graded on Windows itself.",
            expected="Linux, or macOS",
            got="Windows",
            todo="Run this in WSL; there it works as on Linux.",
        )


class _Judge:
    """The process, and one question at a time."""

    def __init__(self) -> None:
        self._said = tempfile.TemporaryFile()
        self._waiting = bytearray()  # of a line that is not whole yet
        # -P: a module beside the learner's notebook, in the folder we happen to run in, is not taken for one of ours
        command = [sys.executable, "-P", "-m", "kvcourse.grader.judge"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, env=_environment(), cwd="/", bufsize=0
        )
        try:
            self._line(limits.START_S)
        except JudgeLost:
            said = self._last_words()
            self.close()
            raise SetupError(
                "The judge did not start.",
                expected="a Python with torch and this package",
                got=said or "nothing",
                todo="Run `kvcourse doctor` to see what is missing.",
            ) from None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Raises: JudgeLost; SetupError where there can be no sandbox."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            raise JudgeLost from None
        reply: dict[str, Any] = json.loads(self._line(limits.START_S + limits.JUDGE_S))
        if "error" in reply:
            raise SetupError("The judge could not grade.", expected="a verdict", got=reply["error"], todo="Report this line.")
        if "gone" in reply:
            raise JudgeLost
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(limits.END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        until = time.monotonic() + seconds
        end = self._waiting.find(b"\n")
        while end < 0:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise JudgeLost
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise JudgeLost
            looked_at = len(self._waiting)
            self._waiting += data
            end = self._waiting.find(b"\n", looked_at)
        line = bytes(self._waiting[:end])
        del self._waiting[: end + 1]
        return line

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def _environment() -> dict[str, str]:
    """Ours, with one thread, and with this very package on the path, wherever the parent found it."""
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    here = str(Path(kvcourse.__file__).resolve().parent.parent)
    threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    return {**os.environ, **threads, "PYTHONPATH": os.pathsep.join([here, *inherited])}
