"""Exercise 13, sealed: a template is called through the wire, `common` is there without the notebook, and lists of dicts with
tools, figures that are None and numbers that are floats come over as they are."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex13 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("13.1", "contents for text"),
    ("13.1", "a tool at a time"),
    ("13.1", "dicts compared"),
    ("13.1", "texts or dicts"),
    ("13.1", "a start below 0"),
    ("13.1", "tools put in"),
    ("13.2", "a tuple"),
    ("13.2", "before ignored"),
    ("13.2", "the last request only"),
    ("13.2", "pairs crossed off"),
    ("13.3", "shares"),
    ("13.3", "equal places"),
    ("13.3", "steps before the minimum"),
    ("13.3", "old ones taken out of the log"),
    ("13.4", "a list"),
    ("13.4", "always added"),
    ("13.4", "None is a figure"),
    ("13.4", "figures filled in"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("13", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("13", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("13", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message


def test_sealed_a_template_that_is_given_no_part_ends_the_call_and_not_the_grading(sealed):
    wrong = MUTANTS["13.1"]["contents for text"][0]
    results = {one.name: one for one in sealed.grade("13", SOLUTIONS | {"13.1": wrong}, [])}
    assert {name: one.state for name, one in results.items()} == {
        "13.1": "failed",
        "13.2": "passed",
        "13.3": "passed",
        "13.4": "passed",
    }
    assert "yours gave it a str" in results["13.1"].message
