"""Exercise 03, sealed: torch's finished layer norm is out of reach wherever it has a name that can be taken away; right answers
written in other ways pass; the parts of a block are functions that run on our side."""

import re
import runpy
from pathlib import Path

import pytest

from kvcourse.checks.base import judge
from kvcourse.checks.ex03 import EXERCISE
from kvcourse.checks.ex03.checks import PROPERTIES
from kvcourse.checks.local import LocalAnswer
from tools.kill_table import defined, mutants_of, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = solutions_of(ROOT, EXERCISE)
MUTANTS = mutants_of(ROOT, EXERCISE)
TASKS = {task.name: task for task in EXERCISE.tasks}
FAIR = runpy.run_path(str(ROOT / "tests" / "mutants" / "ex03" / "test_ex03.py"))["FAIR"]

# By each of these an answer is right in a notebook, where nothing is withheld.
FINISHED = {
    "torch.nn.functional": "torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    "torch": "torch.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    "native": "torch.native_layer_norm(x, x.shape[-1:], weight, bias, eps)[0]",
    "torch.ops": "torch.ops.aten.layer_norm(x, x.shape[-1:], weight, bias, eps)",
    "torch.ops, an overload": "torch.ops.aten.native_layer_norm.default(x, x.shape[-1:], weight, bias, eps)[0]",
    "one group": "torch.group_norm(x.reshape(-1, x.shape[-1]), 1, weight, bias, eps).view_as(x)",
    "a layer": "torch.nn.LayerNorm(x.shape[-1], eps, dtype=x.dtype)(x) * weight + bias",
    "a layer, where it is made": "torch.nn.modules.normalization.LayerNorm(x.shape[-1], eps, dtype=x.dtype)(x) * weight + bias",
}


@pytest.mark.parametrize("way", FINISHED)
def test_a_finished_layer_norm_passes_in_a_notebook_and_is_refused_when_sealed(sealed, way):
    source = f"def my_layer_norm(x, weight, bias, eps):\n    return {FINISHED[way]}"
    one = TASKS["3.1"]
    here = judge("3.1", one.title, PROPERTIES["3.1"], LocalAnswer(defined(one, source), one.answers), 0)
    assert here.state == "passed", here.message
    got = {result.name: result for result in sealed.grade("03", {"3.1": source}, [])}["3.1"]
    assert (got.state, got.points) == ("failed", 0)
    assert "has no attribute" in got.message


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("03", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize(("task", "source"), FAIR, ids=[f"{task} {n}" for n, (task, _) in enumerate(FAIR)])
def test_a_right_answer_written_otherwise_passes_sealed(sealed, task, source):
    got = {one.name: one for one in sealed.grade("03", {task: source}, [])}[task]
    assert got.state == "passed", got.message


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("3.1", "in place"),
        ("3.2", "exact GELU"),
        ("3.3", "parallel"),
        ("3.3", "in place"),
        ("3.4", "backwards"),
        ("3.5", "tensor"),
    ],
)
def test_a_wrong_answer_hears_the_same_sealed_as_in_a_notebook(sealed, task, name):
    source, says = MUTANTS[task][name]
    got = {one.name: one for one in sealed.grade("03", {task: source}, [])}[task]
    assert got.state == "failed" and re.search(says, got.message), got.message
