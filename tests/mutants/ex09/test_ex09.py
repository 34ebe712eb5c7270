"""Exercise 09: right answers that are written otherwise pass; and the proof under a model, which follows the scored checks,
holds for the reference and fails with a wrong piece."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("09")
TASKS = {task.name: task for task in EXERCISE.tasks}
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / f"{EXERCISE.file}.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)
FAIR = fair_variants_of(ROOT, EXERCISE)
PROOFS = ("your-proof", "give-all-back")


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, variants in FAIR.items() for name in variants])
def test_a_right_answer_passes_however_it_is_written(task, name):
    for seed in range(3):
        verdict = verdict_on(TASKS[task], FAIR[task][name], seed)
        assert (verdict.state, verdict.held) == ("passed", verdict.properties), str(verdict)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "memory", "your-cache", "branch", "texts"):
        exec(CELLS[cell], names)
    return names


def run(exercise, mutants=()):
    for source in mutants:
        exec(source, exercise)
    for cell in PROOFS:
        exec(CELLS[cell], exercise)


def test_the_proof_holds_for_the_reference(exercise, capsys):
    run(exercise)
    shown = capsys.readouterr().out
    assert "two branches of the first: the same logits" in shown and "all twelve blocks are there again" in shown


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("9.1", "no refusal"),
        ("9.1", "off by one: keeps one back"),
        ("9.2", "set to 0"),
        ("9.2", "0 at least"),
        ("9.3", "table not read"),
        ("9.3", "first block for ever"),
        ("9.4", "no copy"),
        ("9.4", "every table changed"),
        ("9.4", "old count left"),
        ("9.4", "no new block"),
    ],
)
def test_the_proof_fails_for_a_wrong_piece(exercise, task, name):
    right = {task.answers: exercise[task.answers] for task in EXERCISE.tasks}
    with fails_in_one_line():
        run(exercise, [MUTANTS[task][name][0]])
    exercise.update(right)
