"""Exercise 12, sealed: requests and windows go through the wire as lists and tuples, a summariser of ours is called from there,
and windows that an answer changes in place are changed over there."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex12 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("12.1", "turns alone"),
    ("12.1", "a list of two"),
    ("12.1", "shares, not tokens"),
    ("12.1", "occupancy summed"),
    ("12.1", "answers put behind prompts"),
    ("12.1", "requests used up"),
    ("12.1", "one cache for all agents"),
    ("12.2", "a float"),
    ("12.2", "a list"),
    ("12.2", "through a float"),
    ("12.3", "a tuple of parts"),
    ("12.3", "lists for parts"),
    ("12.3", "part by part"),
    ("12.3", "an empty window"),
    ("12.3", "deleted in place"),
    ("12.3", "popped"),
    ("12.4", "ids for summarise"),
    ("12.4", "one part after another"),
    ("12.4", "summary made for nothing"),
    ("12.4", "the summary first"),
    ("12.4", "newest first"),
    ("12.4", "old summaries forgotten"),
    ("12.4", "put in place"),
    ("12.4", "the summary remembered"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("12", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("12", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("12", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message


def test_sealed_a_summary_of_no_parts_ends_the_call_and_not_the_grading(sealed):
    wrong = MUTANTS["12.4"]["a summary of nothing"][0]
    results = {one.name: one for one in sealed.grade("12", SOLUTIONS | {"12.4": wrong}, [])}
    assert {name: one.state for name, one in results.items()} == {
        "12.1": "passed",
        "12.2": "passed",
        "12.3": "passed",
        "12.4": "failed",
    }
    assert "You gave summarise an empty list" in results["12.4"].message
