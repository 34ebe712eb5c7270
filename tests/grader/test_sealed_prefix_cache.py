"""Exercise 10, sealed: a digest of ours is called through the wire, and dicts with numbers for keys come back changed."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex10 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("10.1", "compared by is"),
    ("10.1", "texts sorted"),
    ("10.2", "Python's hash()"),
    ("10.2", "bytes for digest"),
    ("10.2", "digits in a row"),
    ("10.2", "hash() of everything"),
    ("10.3", "compared with a tuple"),
    ("10.3", "only root compared"),
    ("10.3", "misses entered"),
    ("10.4", "taken out of a copy"),
    ("10.4", "leaves looked for once"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("10", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("10", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("10", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message


def test_sealed_a_digest_that_is_given_no_text_ends_the_call_and_not_the_grading(sealed):
    wrong = MUTANTS["10.2"]["two arguments for digest"][0]
    results = {one.name: one.state for one in sealed.grade("10", SOLUTIONS | {"10.2": wrong}, [])}
    assert results == {"10.1": "passed", "10.2": "failed", "10.3": "passed", "10.4": "passed"}
