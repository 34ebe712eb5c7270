"""Every lesson: runs a merged notebook with nbval, and says what became of each task. Knows nothing about what tasks check.

nbval executes every cell in a fresh kernel and compares outputs with the course's. It runs in an empty temporary folder with a
configuration of its own, so nothing that lies beside the learner's notebook (conftest.py, pytest.ini, a torch.py) has a say.
A task has passed if nbval passed its check's cell and the check itself reported so: one that never ran is no success.

This is feedback, in a kernel that the learner's code shares with the checks. The score comes from `kvcourse grade`.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kvcourse.checks.cells import canonical_notebook, without_magics
from kvcourse.checks.exercise import Task
from kvcourse.checks.progress import State
from kvcourse.checks.work import REPORT
from kvcourse.errors import SetupError
from kvcourse.grader.merge import EXTRA, merge
from kvcourse.grader.results import TaskResult
from kvcourse.grader.submission import Submission

CELL_S = 60.0  # a check takes a second; what takes longer than this is an endless loop
RUN_S = 1800.0  # everything
_ENDLESS = "This took too long, or made Python stop. Look for a loop that never ends."
NOT_RUN = "This cell did not run."
_COLOUR = re.compile(r"(?:\x1b|#x1B)\[[\d;]*m")  # as IPython writes it, and as pytest writes that into XML
_REPORT = {"task": str, "state": str, "held": int, "properties": int}  # what a line of the checks' report must hold
_DROPPED = {"PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTEST_CURRENT_TEST"}


@dataclass(frozen=True)
class Checked:
    """What `kvcourse check` found out about one notebook."""

    submission: Submission
    results: tuple[TaskResult, ...]
    notes: tuple[str, ...]
    held: dict[str, tuple[int, int]]  # by task, where a check ran: properties that held, and all

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    def outcome(self, result: TaskResult) -> State:
        """What `progress` is to remember of a task."""
        if result.state == "failed" and result.message == _ENDLESS:
            return "took too long"
        if result.state == "failed" and not self.held.get(result.name, (0, 0))[1]:
            return "did not run"
        return cast(State, result.state)

    @property
    def passed(self) -> bool:
        return all(result.state == "passed" for result in self.results)


@dataclass
class _Run:
    """One execution of a notebook: by cell id, what nbval had against it (None: nothing); by task, the checks' own reports."""

    faults: dict[str, str | None] = field(default_factory=dict)
    reports: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def stopped_in(self) -> str | None:
        """The cell that did not come back, if there was one: nothing ran after it."""
        ran = [cell for cell, fault in self.faults.items() if fault != NOT_RUN]
        return ran[-1] if ran and len(ran) < len(self.faults) else None

    def report_of(self, task: Task) -> dict[str, Any] | None:
        """The line that the course's check wrote. The learner's own cells may have called `check` too, before or after: it is
        the last line that agrees with what nbval saw, or else the last one."""
        lines, passed = self.reports.get(task.name, []), self.faults.get(task.check_cell, NOT_RUN) is None
        agreeing = [line for line in lines if (line["state"] == "passed") == passed] or lines
        return agreeing[-1] if agreeing else None


def check_submission(submission: Submission, *, cell_s: float = CELL_S) -> Checked:
    """Run a learner's answers under the course's checks.

    A cell that never ends, or takes the kernel down with it, is taken out and all others are run again, so no task is lost
    to another.
    """
    exercise = submission.exercise
    canonical = canonical_notebook(exercise)
    stopped: dict[str, str] = {}  # cell id: what became of it
    run = _Run()
    for _ in range(2 * len(exercise.tasks) + 2):
        kept = {task.name: None if stopped.keys() & {task.cell, task.check_cell} else submission.answers[task.name]
                for task in exercise.tasks}  # fmt: skip
        merged = merge(replace(submission, answers=kept), canonical)
        for cell in merged["cells"]:
            if cell["id"] in stopped and cell["id"] not in {task.cell for task in exercise.tasks}:
                cell["source"] = []
        run = execute(merged, cell_s)
        fatal = run.stopped_in
        if fatal is None:
            break
        stopped[fatal] = _ENDLESS
        if all(run.faults[task.check_cell] != NOT_RUN for task in exercise.tasks):
            break
    results = tuple(_result(task, submission, run, stopped) for task in exercise.tasks)
    notes = (*submission.notes, *_notes(submission, results, run, stopped))
    reports = {task.name: run.report_of(task) for task in exercise.tasks}
    held = {name: (report["held"], report["properties"]) for name, report in reports.items() if report}
    return Checked(submission, results, notes, held)


def execute(notebook: dict[str, Any], cell_s: float) -> _Run:
    """Run a notebook under nbval, in an empty folder.

    Raises: SetupError if nbval is not installed or broke down.
    """
    with tempfile.TemporaryDirectory(prefix="kvcourse-") as name:
        folder = Path(name)
        (folder / "merged.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        (folder / "empty.ini").write_text("[pytest]\n", encoding="utf-8")
        options = ["-c", "empty.ini", "--rootdir", ".", "--noconftest", "-p", "no:cacheprovider", "-q"]
        nbval = [
            "-p",
            "nbval.plugin",
            "-p",
            "kvcourse.grader.nbval_watch",
            "--nbval",
            "--nbval-current-env",
            f"--nbval-cell-timeout={cell_s}",
            "--junitxml=report.xml",
        ]
        command = [sys.executable, "-P", "-m", "pytest", *options, *nbval, "merged.ipynb"]
        try:
            done = subprocess.run(
                command, cwd=folder, env=_environment(folder), stdin=subprocess.DEVNULL,
                capture_output=True, text=True, errors="replace", timeout=RUN_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise _broke_down(f"nothing within {RUN_S:g} s", "Try again on a quieter machine.") from None
        if done.returncode not in (0, 1, 2) or not (folder / "report.xml").is_file():
            last = next((line for line in reversed((done.stdout + done.stderr).splitlines()) if line.strip()), "nothing")
            raise _broke_down(last[:200], "Install what checking needs: pip install nbval ipykernel.")
        return _Run(_faults(notebook, folder / "report.xml"), _reports(folder / "reports.jsonl"))


def _environment(folder: Path) -> dict[str, str]:
    """The learner's environment, without what would change how pytest and IPython start."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {
        **kept,
        REPORT: str(folder / "reports.jsonl"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _faults(notebook: dict[str, Any], report: Path) -> dict[str, str | None]:
    """By cell id: what nbval had against it. nbval counts code cells: "Cell 0", "Cell 1" ..."""
    code = [cell["id"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    faults: dict[str, str | None] = dict.fromkeys(code, NOT_RUN)
    for case in ET.parse(report).iter("testcase"):
        bad = [part for part in case if part.tag in ("failure", "error", "skipped")]
        text = _COLOUR.sub("", "\n".join(part.text or part.get("message") or "" for part in bad))
        faults[code[int(case.attrib["name"].removeprefix("Cell "))]] = (text or "It failed.") if bad else None
    return faults


def _reports(path: Path) -> dict[str, list[dict[str, Any]]]:
    """By task: the lines that `check` wrote about it. The learner's code can write there too, so they may be anything."""
    reports: dict[str, list[dict[str, Any]]] = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                report = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(report, dict) and all(type(report.get(name)) is kind for name, kind in _REPORT.items()):
                reports.setdefault(report["task"], []).append(report)
    return reports


def _result(task: Task, submission: Submission, run: _Run, stopped: dict[str, str]) -> TaskResult:
    def result(state: str, message: str, broken: str | None = None) -> TaskResult:
        points = task.points if state == "passed" else 0
        return TaskResult(task.name, task.title, points, task.points, message, state, broken)

    if submission.answers[task.name] is None:
        return result("missing", f"There is no answer: {task.answers} was not found.")
    for cell in (task.cell, task.check_cell):
        if cell in stopped:
            return result("failed", stopped[cell])
    fault, report = run.faults.get(task.check_cell, NOT_RUN), run.report_of(task)
    if report is None:
        return result("failed", _plainly(run.faults.get(task.cell) or fault, task, submission))
    held = f"{report['held']} of {report['properties']} properties hold."
    if report["state"] == "not started":
        return result("not started", "not started")
    if report["state"] != "passed":
        return result("failed", f"{held} {report.get('message')}", str(report.get("broken")))
    if fault:
        return result("failed", f"{held} But the check's output is not the usual one: take what prints out of {task.answers}.")
    return result("passed", f"{report['held']}/{report['properties']}")


def _plainly(fault: str | None, task: Task, submission: Submission) -> str:
    """The error of a cell that kept a check from running, as one sentence."""
    if fault is None:
        return "The check did not run as it should. Is something named `check` in your cells?"
    if re.search(r"^Cell \d+: Timeout of", fault, re.MULTILINE):
        return _ENDLESS
    kind, text = _error(fault)
    if kind is None:  # a message of the check's own
        text = _squeezed(" ".join(fault.rpartition("Traceback:")[2].split("\n\n")[1:]))
        return text or f"The check did not run: {task.answers} may not be defined."
    if kind == "NameError" and text == f"NameError: name '{task.answers}' is not defined":
        return f"There is no {task.answers}. Keep the function's name."
    where = _line(submission.answers[task.name] or "", fault)
    return f"The cell stopped: {text}{f' ({where}).' if where else ''}"


def _error(fault: str) -> tuple[str | None, str]:
    """The kind of error that stopped a cell, and its last line; None if it is a short message without a traceback."""
    lines = [line for line in fault.splitlines() if re.match(r"[A-Za-z_.]+(Error|Exception|Exit)\b", line)]
    return (re.split(r"[:\s]", lines[-1])[0], _squeezed(lines[-1])) if lines else (None, "")


def _line(source: str, fault: str) -> str:
    """Where an answer's cell stopped, "line 2: ..."; "" if it is not known."""
    try:
        ast.parse(without_magics(source))
        arrow = re.search(r"^-+> (\d+) ", fault, re.MULTILINE)  # the first is in the cell, others in what it called
        number = int(arrow[1]) if arrow else None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = getattr(error, "lineno", None)
    lines = source.splitlines()
    return f"line {number}: {_squeezed(lines[number - 1])[:80]}" if number and number <= len(lines) else ""


def _squeezed(text: str) -> str:
    return " ".join(text.split())[:300]


def _notes(submission: Submission, results: tuple[TaskResult, ...], run: _Run, stopped: dict[str, str]) -> list[str]:
    """What else went wrong, in cells that nobody is scored for. The course's own are told about only when every task is right:
    before that they fail because of the tasks."""
    done = all(result.state == "passed" for result in results)
    scored = {cell for task in submission.exercise.tasks for cell in (task.cell, task.check_cell)}
    notes = _of_their_own(submission, run, stopped)
    for cell in [cell for cell in run.faults if cell not in scored and (run.faults[cell] or cell in stopped)]:
        if cell.startswith(EXTRA) or not done:
            continue
        elif "NotFetched" in (run.faults[cell] or ""):
            notes.append(f'Cell "{cell}" needs the real model, which is not here (kvcourse fetch); it is not scored.')
        else:
            notes.append(f'Cell "{cell}" does not pass; it is not scored.')
    return notes


def _of_their_own(submission: Submission, run: _Run, stopped: dict[str, str]) -> list[str]:
    """One line about all cells that the learner added, and that did not come to their end."""
    bad = [cell for cell, fault in run.faults.items() if cell.startswith(EXTRA) and (fault or cell in stopped)]
    if not bad:
        return []
    source = submission.extra[int(bad[0].removeprefix(EXTRA))]
    first = _squeezed(next((line for line in source.splitlines() if line.strip()), ""))[:80]
    kind = _error(run.faults[bad[0]] or "")[0]
    end = "it took too long" if bad[0] in stopped else kind
    begin = f"{len(bad)} cells you added stopped; the first" if len(bad) > 1 else "A cell you added stopped"
    return [f"{begin}: {first}{f' ({end}).' if end else ''}"]


def _broke_down(got: str, todo: str) -> SetupError:
    return SetupError("The notebook could not be run with nbval.", expected="its report", got=got, todo=todo)
