"""Exercise 08, sealed: lists with None, tables of bools, and bytes of codes come through the wire as they are."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex08 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("8.1", "-1 for an empty slot"),
    ("8.2", "keys put in order"),
    ("8.3", "taking turns"),
    ("8.4", "no clamp"),
    ("8.4", "caller's tensor changed"),
    ("8.5", "signed bytes"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("08", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("08", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("08", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message
