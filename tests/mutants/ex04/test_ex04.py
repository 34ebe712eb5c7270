"""Exercise 04: what comes after its scored checks. Held against the model and the file, a wrong piece is seen there too; and
answers that are right and written otherwise pass."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("04")
TASKS = {task.name: task for task in EXERCISE.tasks}
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / f"{EXERCISE.file}.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)
FAIR = fair_variants_of(ROOT, EXERCISE)
PROOFS = ("your-keys", "from-bytes", "real-model")


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "tiny", "a-file"):
        exec(CELLS[cell], names)
    return names


@pytest.mark.parametrize("cell", PROOFS)
def test_a_proof_holds_for_the_reference(exercise, cell, capsys):
    exec(CELLS[cell], dict(exercise))
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "task", "mutant"),
    [
        ("your-keys", "4.3", "no heads"),
        ("your-keys", "4.3", "values"),
        ("your-keys", "4.3", "without ln_1"),
        ("your-keys", "4.3", "folded without care"),
        ("your-keys", "4.3", "block 0 always"),
        ("from-bytes", "4.1", "bias forgotten"),
        ("from-bytes", "4.1", "attention's output too"),
        ("from-bytes", "4.2", "keys first"),
        ("from-bytes", "4.2", "every third column"),
        ("from-bytes", "4.4", "from the start of the file"),
        ("from-bytes", "4.4", "without the first eight"),
        ("real-model", "4.1", "digit anywhere"),
        ("real-model", "4.1", "GPT-2 only"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, cell, task, mutant):
    names = dict(exercise)
    exec(MUTANTS[task][mutant][0], names)
    with fails_in_one_line():
        exec(CELLS[cell], names)


@pytest.mark.parametrize(("task", "name"), [(task, name) for task, answers in FAIR.items() for name in answers])
def test_a_right_answer_written_otherwise_passes(task, name):
    for seed in range(3):
        verdict = verdict_on(TASKS[task], FAIR[task][name], seed)
        assert verdict.state == "passed", str(verdict)
