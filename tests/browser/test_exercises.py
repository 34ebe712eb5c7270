"""An exercise in the page, as a learner does it: a wrong answer is told what is wrong with it, the right one passes."""

import json
import re

import pytest
from jupyter_lab import ROOT, Lab
from notebook_page import NotebookPage
from playwright.sync_api import Browser

from kvcourse.checks.exercise import Exercise
from kvcourse.checks.registry import EXERCISES
from tools.kill_table import mutants_of, solutions_of

BUILT = [exercise for exercise in EXERCISES if (ROOT / "exercises" / f"{exercise.file}.ipynb").is_file()]


def kept_line(exercise: Exercise, cell: str) -> str:
    """What the check prints for the reference answer: the exercise keeps it."""
    notebook = json.loads((ROOT / "exercises" / f"{exercise.file}.ipynb").read_text(encoding="utf-8"))
    outputs = next(one["outputs"] for one in notebook["cells"] if one["id"] == cell)
    return " ".join("".join(part for output in outputs for part in output["text"]).split())


def imports_of(exercise: Exercise) -> list[str]:
    """The code cells in front of the first answer."""
    notebook = json.loads((ROOT / "exercises" / f"{exercise.file}.ipynb").read_text(encoding="utf-8"))
    ids = [cell["id"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ids[: ids.index(exercise.tasks[0].cell)]


@pytest.mark.parametrize("exercise", [pytest.param(one, id=one.file, marks=pytest.mark.xdist_group(one.file)) for one in BUILT])
def test_a_wrong_answer_gets_its_diagnosis_and_the_right_one_passes(browser: Browser, lab: Lab, exercise: Exercise) -> None:
    task = exercise.tasks[0]
    wrong, diagnosis = next(iter(mutants_of(ROOT, exercise)[task.name].values()))
    right = solutions_of(ROOT, exercise)[task.name]
    notebook = NotebookPage(browser, lab, f"work/{exercise.file}.ipynb")
    try:
        for cell in imports_of(exercise):
            notebook.run_cell(cell)
        assert answered(notebook, task.cell, task.check_cell) == f"{task.name} not started"
        told = answered(notebook, task.cell, task.check_cell, wrong)
        assert re.search(diagnosis, told), f"{told!r} says nothing of {diagnosis!r}"
        assert "Traceback" not in told and notebook.errors(task.check_cell) == 1
        assert answered(notebook, task.cell, task.check_cell, right) == kept_line(exercise, task.check_cell)
        assert notebook.errors(task.check_cell) == 0
        notebook.save()
    finally:
        notebook.close()
    saved = json.loads((lab.course / "work" / f"{exercise.file}.ipynb").read_text(encoding="utf-8"))
    assert right in ["".join(cell["source"]) for cell in saved["cells"]]
    assert right not in (lab.course / "exercises" / f"{exercise.file}.ipynb").read_text(encoding="utf-8")


def answered(notebook: NotebookPage, answer: str, check: str, source: str | None = None) -> str:
    """Write an answer, if one is given, run it and its check; what the learner reads then."""
    if source is not None:
        notebook.write(answer, source)
    notebook.run_cell(answer)
    notebook.run_cell(check)
    return notebook.shown(check)
