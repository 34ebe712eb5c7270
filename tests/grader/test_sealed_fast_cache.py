"""Exercise 07, sealed: a cache travels as a dictionary of tensors, stays one object from call to call, and views stay views."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex07 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("7.1", "copies handed out"),
    ("7.1", "no question asked"),
    ("7.1", "asked too late"),
    ("7.1", "layers share one pair"),
    ("7.2", "buffers cut"),
    ("7.2", "changed, then asked"),
    ("7.3", "always four bytes"),
    ("7.4", "list eaten"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("07", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("07", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("07", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message
