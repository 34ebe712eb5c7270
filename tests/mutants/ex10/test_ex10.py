"""Exercise 10: right answers that are written otherwise pass; and the proofs under a model, which follow the scored checks,
hold for the reference and fail with a wrong piece."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("10")
TASKS = {task.name: task for task in EXERCISE.tasks}
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / f"{EXERCISE.file}.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)
FAIR = fair_variants_of(ROOT, EXERCISE)
BEFORE = (
    "imports",
    "digest",
    *(task.cell for task in EXERCISE.tasks),
    "your-prefixes",
    "your-keep",
    "requests",
    "ask",
    "worst",
)
PROOFS = ("your-proof", "worst-proof")


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, variants in FAIR.items() for name in variants])
def test_a_right_answer_passes_however_it_is_written(task, name):
    for seed in range(3):
        verdict = verdict_on(TASKS[task], FAIR[task][name], seed)
        assert (verdict.state, verdict.held) == ("passed", verdict.properties), str(verdict)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    names: dict = {}
    for cell in BEFORE:
        exec(CELLS[cell], names)
    return names


def run(exercise, mutants=()):
    for source in mutants:
        exec(source, exercise)
    for cell in PROOFS:
        exec(CELLS[cell], exercise)


def test_the_proofs_hold_for_the_reference(exercise, capsys):
    run(exercise)
    shown = capsys.readouterr().out
    assert "18 tokens: 17 known, 16 found in blocks, 2 computed, the same logits" in shown
    assert shown.count("the same logits fifty times") == 3


@pytest.mark.parametrize("task", FAIR)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    """Their outputs are compared with the reference's when a notebook is graded."""
    run(exercise)
    reference, right = capsys.readouterr().out, exercise[TASKS[task].answers]
    for source in FAIR[task].values():
        run(exercise, [source])
        assert capsys.readouterr().out == reference
    exercise[TASKS[task].answers] = right


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("10.1", "equal places counted"),
        ("10.1", "all of it"),
        ("10.2", "the block alone"),
        ("10.2", "namespace left out"),
        ("10.2", "part block included"),
        ("10.2", "the whole text in every key"),
        ("10.3", "keys believed"),
        ("10.3", "tokens not compared"),
        ("10.3", "all that are there"),
        ("10.4", "by age alone"),
        ("10.4", "left in entries"),
        ("10.4", "pins not looked at"),
        ("10.4", "min of nothing"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    right = {task.answers: exercise[task.answers] for task in EXERCISE.tasks}
    with fails_in_one_line():
        run(exercise, [MUTANTS[task][name][0]])
    exercise.update(right)
