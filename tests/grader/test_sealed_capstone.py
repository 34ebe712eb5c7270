"""Exercise 14, sealed: charts travel as dicts; caches are opaque things with a length; what makes, cuts and forks them is
called through the wire."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex14 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
SEEN_THROUGH_THE_WIRE = (
    ("14.1", "the sick only"),
    ("14.1", "words of one's own"),
    ("14.1", "nearly is off"),
    ("14.1", "charts read off and thrown away"),
    ("14.2", "a tensor"),
    ("14.2", "a cache and nothing else"),
    ("14.2", "equal to the last bit"),
    ("14.2", "too large?"),
    ("14.2", "ids used up"),
    ("14.3", "never cut"),
    ("14.3", "one more than there is"),
    ("14.3", "from 1 on"),
    ("14.3", "lengths compared"),
    ("14.4", "the fork only"),
    ("14.4", "one to its end, then the other"),
    ("14.4", "both the same way"),
    ("14.4", "texts used up"),
)


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("14", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize("task", FAIR)
def test_right_answers_written_otherwise_pass_sealed(sealed, task):
    for name, source in FAIR[task].items():
        got = {one.name: one for one in sealed.grade("14", {task: source}, [])}[task]
        assert got.state == "passed", f"{name}: {got.message}"


@pytest.mark.parametrize(
    ("task", "name"), SEEN_THROUGH_THE_WIRE, ids=[f"{task} {name}" for task, name in SEEN_THROUGH_THE_WIRE]
)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("14", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message


@pytest.mark.parametrize("reached", ["cache.truncate(0)", "cache._cache", "cache.fork()", "cache.reset()"])
def test_a_cache_is_to_be_handed_on_and_nothing_else_here_and_sealed(sealed, reached):
    """What works in a notebook works when graded: so there, too, a cache says its length and nothing else."""
    source = SOLUTIONS["14.3"].replace("truncate(cache, n)", reached)
    got = {one.name: one for one in sealed.grade("14", {"14.3": source}, [])}["14.3"]
    assert got.state == "failed" and "has no attribute" in got.message, got.message
