"""Maintainers only: what graders find in a built exercise, ours and nbgrader; and what is refused. No kernel starts here."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from kvcourse import __version__
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.registry import EXERCISES
from tools.notebooks.build import templates
from tools.notebooks.source import BuildError, Source, find

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("exercises", "solutions")
EVERY_NOTEBOOK = pytest.mark.parametrize(
    ("folder", "exercise"),
    [(folder, exercise) for folder in FOLDERS for exercise in EXERCISES],
    ids=[f"{folder}/{exercise.file}" for folder in FOLDERS for exercise in EXERCISES],
)


def cells_by_id(folder: str, exercise: Exercise) -> dict[str, dict]:
    text = (REPOSITORY / folder / f"{exercise.file}.ipynb").read_text(encoding="utf-8")
    return {cell["id"]: cell for cell in json.loads(text)["cells"]}


def test_the_registry_and_the_sources_name_the_same_exercises() -> None:
    assert [source.name for source in find(REPOSITORY) if source.is_exercise] == [exercise.file for exercise in EXERCISES]


@EVERY_NOTEBOOK
def test_every_answer_and_every_check_of_the_registry_is_in_the_notebook(folder: str, exercise: Exercise) -> None:
    cells = cells_by_id(folder, exercise)
    for task in exercise.tasks:
        answer, check = cells[task.cell], cells[task.check_cell]
        defined = [node.name for node in ast.parse("".join(answer["source"])).body if isinstance(node, ast.FunctionDef)]
        assert task.answers in defined
        assert answer["metadata"]["exercise"] == check["metadata"]["exercise"] == task.name
        assert "".join(check["source"]) == f'check("{task.name}", {task.answers})' and check["metadata"]["tags"] == ["check"]
        assert list(cells).index(task.cell) < list(cells).index(task.check_cell)


@EVERY_NOTEBOOK
def test_nbgrader_finds_the_points_of_the_registry_and_everything_else_locked(folder: str, exercise: Exercise) -> None:
    cells = cells_by_id(folder, exercise)
    points = {task.check_cell: task.points for task in exercise.tasks}
    answers = {task.cell for task in exercise.tasks}
    for name, cell in cells.items():
        meta = cell["metadata"]["nbgrader"]
        assert (meta["grade_id"], meta["schema_version"], meta["task"]) == (name, 3, False)
        assert (meta["solution"], meta["locked"], meta["grade"]) == (name in answers, name not in answers, name in points)
        assert meta.get("points") == points.get(name)
    assert sum(cell["metadata"]["nbgrader"].get("points", 0) for cell in cells.values()) == exercise.points
    assert ("### BEGIN SOLUTION" in json.dumps(cells)) is (folder == "solutions")


@EVERY_NOTEBOOK
def test_an_exercise_says_which_one_it_is_and_which_version_built_it(folder: str, exercise: Exercise) -> None:
    metadata = json.loads((REPOSITORY / folder / f"{exercise.file}.ipynb").read_text(encoding="utf-8"))["metadata"]["kvcourse"]
    assert metadata["exercise"] == exercise.file and Version(metadata["version"]) <= Version(__version__)


REGISTERED = Exercise("06_a", (Task("6.1", "join", "join", "answer", "check-join", points=2),))
SOURCE = """\
# %% id="answer" exercise="6.1"
def join(a, b):
    ### BEGIN SOLUTION
    both_lists = [*a, *b]
    return both_lists
    ### END SOLUTION


# %% id="check-join" tags=["check"] exercise="6.1"
check("6.1", join)
"""


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.notebooks.grading.EXERCISES", (REGISTERED,))


def test_points_come_from_the_registry(tmp_path: Path, write: Callable, registered: None) -> None:
    solution, stubs = templates(Source(tmp_path, write("exercises/06_a", SOURCE))).values()
    for notebook in (solution, stubs):
        answer, check = (cell.metadata.nbgrader for cell in notebook.cells)
        assert (answer.solution, answer.locked, answer.grade, "points" in answer) == (True, False, False, False)
        assert (check.solution, check.locked, check.grade, check.points) == (False, True, True, 2)
        assert notebook.metadata.kvcourse.version == __version__


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('id="answer"', 'id="reply"', '1: 6.1 has no answer cell "answer"'),
        (' exercise="6.1"\ncheck', "\ncheck", '1: 6.1 has no check cell "check-join"'),
        ('exercise="6.1"\ncheck', 'exercise="6.2"\ncheck', 'cell "check-join": kvcourse/checks has no task 6.2'),
        ("def join(", "def joined(", 'cell "answer": the answer to 6.1 defines join'),
        ('check("6.1", join)', 'check("6.1", joined)', 'cell "check-join": the check of 6.1 is check("6.1", join)'),
    ],
)
def test_a_source_that_contradicts_the_registry_is_refused(
    tmp_path: Path, write: Callable, registered: None, old: str, new: str, says: str
) -> None:
    assert old in SOURCE
    with pytest.raises(BuildError) as refused:
        templates(Source(tmp_path, write("exercises/06_a", SOURCE.replace(old, new))))
    assert says in str(refused.value)


def test_a_scored_check_that_the_registry_does_not_know_is_refused(tmp_path: Path, write: Callable) -> None:
    with pytest.raises(BuildError, match=r'cell "check-join": kvcourse/checks has no task 6\.1'):
        templates(Source(tmp_path, write("exercises/06_a", SOURCE)))


def test_checks_that_hold_a_line_of_the_solution_are_refused(tmp_path: Path, write: Callable, registered: None) -> None:
    source = Source(tmp_path, write("exercises/06_a", SOURCE))
    checks = tmp_path / "kvcourse" / "checks" / "ex06" / "checks.py"
    checks.parent.mkdir(parents=True)
    checks.write_text("def expected(a, b):\n    return a + b\n", encoding="utf-8")
    templates(source)
    checks.write_text("def expected(a, b):\n    both_lists = [*a, *b]\n    return both_lists\n", encoding="utf-8")
    with pytest.raises(BuildError, match=r"kvcourse/checks/ex06/checks.py holds a line of the solution: 'both_lists"):
        templates(source)
