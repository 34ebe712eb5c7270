"""Optional: `solutions/` are valid nbgrader sources. Run with nbgrader installed (`pip install nbgrader`), and skipped, with
the reason, where it is not: nobody but instructors who use it needs it."""

import csv
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvcourse.checks.registry import find_exercise

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = find_exercise("06")
NOTEBOOK = f"{EXERCISE.file}.ipynb"

pytestmark = pytest.mark.skipif(importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed")


def nbgrader(course: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "nbgrader", *arguments, f"--course={course}"]
    # It calls `alembic` by name, from the environment it was installed into.
    environment = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    run = subprocess.run(command, capture_output=True, text=True, cwd=course, timeout=600, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr


def cells(notebook: Path) -> dict[str, dict]:
    return {cell["id"]: cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]}


def submit(course: Path, student: str, answers: dict[str, str]) -> None:
    """The released notebook with these answers, by cell id."""
    notebook = json.loads((course / "release" / "ps06" / NOTEBOOK).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if cell["id"] in answers:
            cell["source"] = answers[cell["id"]]
    folder = course / "submitted" / student / "ps06"
    folder.mkdir(parents=True)
    (folder / NOTEBOOK).write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def scores(tmp_path_factory) -> dict[str, float]:
    """Points by student, from nbgrader's own generate_assignment, autograde and export."""
    course = tmp_path_factory.mktemp("course")
    source = course / "source" / "ps06"
    source.mkdir(parents=True)
    (source / NOTEBOOK).write_bytes((ROOT / "solutions" / NOTEBOOK).read_bytes())
    nbgrader(course, "generate_assignment", "ps06")
    released = cells(course / "release" / "ps06" / NOTEBOOK)
    solved = {task.cell: "".join(cells(ROOT / "solutions" / NOTEBOOK)[task.cell]["source"]) for task in EXERCISE.tasks}
    for task in EXERCISE.tasks:
        assert "SOLUTION" not in "".join(released[task.cell]["source"])
        assert "NotImplementedError" in "".join(released[task.cell]["source"])
    submit(course, "ana", solved)
    submit(course, "bo", {})
    submit(course, "cy", {**solved, "answer-mask": "def my_mask(past, T):\n    return torch.ones(T, past + T).bool()"})
    nbgrader(course, "autograde", "ps06", "--create")
    nbgrader(course, "export", f"--to={course / 'grades.csv'}")
    with open(course / "grades.csv", encoding="utf-8", newline="") as file:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}


def test_nbgrader_gives_the_solution_full_points(scores):
    assert scores["ana"] == EXERCISE.points


def test_nbgrader_gives_the_untouched_exercise_none(scores):
    assert scores["bo"] == 0


def test_nbgrader_takes_the_points_of_the_broken_task_only(scores):
    assert scores["cy"] == EXERCISE.points - next(task.points for task in EXERCISE.tasks if task.name == "6.2")
