"""Exercise 11, sealed: model, tokenizer, template and digest are called through the wire, a cache is an opaque thing with a
length, and lists and tensors that two conversations share are shared over there."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex11 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("11.1", "everything again"),
    ("11.1", "the new text only"),
    ("11.1", "encoded again, as one text"),
    ("11.1", "another list"),
    ("11.1", "tensors for ids"),
    ("11.1", "rows remembered, not asked for"),
    ("11.2", "cut in place"),
    ("11.2", "the same dict"),
    ("11.2", "one kv for both"),
    ("11.2", "a view of kv"),
    ("11.2", "one list of stops"),
    ("11.3", "messages one by one"),
    ("11.3", "zip"),
    ("11.3", "messages used up"),
    ("11.4", "its own digest in it"),
    ("11.4", "the header left out"),
    ("11.4", "shapes only"),
    ("11.4", "digest taken out"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("11", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("11", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("11", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message


def test_sealed_a_digest_of_no_header_ends_the_call_and_not_the_grading(sealed):
    wrong = SOLUTIONS["11.4"].replace("digest(rest, rows)", "digest(str(rest), rows)")
    results = {one.name: one for one in sealed.grade("11", SOLUTIONS | {"11.4": wrong}, [])}
    assert {name: one.state for name, one in results.items()} == {
        "11.1": "passed",
        "11.2": "passed",
        "11.3": "passed",
        "11.4": "failed",
    }
    assert "digest takes a header, a dict; yours gave it a str" in results["11.4"].message
