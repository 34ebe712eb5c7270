"""Exercise 04, sealed: files travel as lists of numbers, weights as dictionaries; no library answers in the learner's place."""

import re
from pathlib import Path

import pytest

from kvcourse.checks.ex04 import EXERCISE
from tools.kill_table import fair_variants_of, mutants_of, solutions_of, verdict_on

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS, MUTANTS, FAIR = (of(ROOT, EXERCISE) for of in (solutions_of, mutants_of, fair_variants_of))
TASKS = {task.name: task for task in EXERCISE.tasks}
FAIR_CASES = [(task, name) for task, answers in FAIR.items() for name in answers]
FINISHED = {
    "4.2": "from kvcourse.weights import split_qkv\ndef my_split(weight, bias):\n"
    "    return tuple(zip(split_qkv(weight), split_qkv(bias)))",
    "4.4": "from safetensors.torch import load\ndef my_read(data, name):\n    return load(bytes(data))[name]",
}


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("04", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize(("task", "name"), FAIR_CASES, ids=[f"{task} {name}" for task, name in FAIR_CASES])
def test_a_right_answer_written_otherwise_passes_sealed(sealed, task, name):
    got = {one.name: one for one in sealed.grade("04", {task: FAIR[task][name]}, [])}[task]
    assert got.state == "passed", got.message


@pytest.mark.parametrize("task", FINISHED)
def test_a_finished_answer_passes_in_a_notebook_and_is_refused_when_sealed(sealed, task):
    assert verdict_on(TASKS[task], FINISHED[task]).state == "passed"
    got = {one.name: one for one in sealed.grade("04", {task: FINISHED[task]}, [])}[task]
    assert (got.state, got.points) == ("failed", 0) and re.search("ImportError|ModuleNotFoundError|NameError", got.message), (
        got.message
    )


def test_keys_may_be_made_of_the_learner_s_own_earlier_answer(sealed):
    own = """\
def my_keys(x, weights, layer, n_head):
    Wk, bk = my_split(*(weights[f"transformer.h.{layer}.attn.c_attn.{end}"] for end in ("weight", "bias")))[1]
    gain, shift = (weights[f"transformer.h.{layer}.ln_1.{end}"] for end in ("weight", "bias"))
    K = torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift) @ Wk + bk
    return K.unflatten(1, (n_head, -1)).movedim(1, 0)"""
    got = {one.name: one for one in sealed.grade("04", {**SOLUTIONS, "4.3": own}, [])}["4.3"]
    assert got.state == "passed", got.message


@pytest.mark.parametrize("task", TASKS)
def test_sealed_a_learner_is_told_what_the_notebook_says(sealed, task):
    for name in list(MUTANTS[task])[::5]:
        source, says = MUTANTS[task][name]
        got = {one.name: one for one in sealed.grade("04", {task: source}, [])}[task]
        assert got.state == "failed" and re.search(says, got.message), f"{name}: {got.message}"  # other draws, so other numbers
