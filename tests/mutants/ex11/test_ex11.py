"""Exercise 11: right answers that are written otherwise pass; and the proofs under a model, which follow the scored checks,
hold for the reference and fail with a wrong piece."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("11")
TASKS = {task.name: task for task in EXERCISE.tasks}
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / f"{EXERCISE.file}.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)
FAIR = fair_variants_of(ROOT, EXERCISE)
BEFORE = ("imports", *(task.cell for task in EXERCISE.tasks), "your-rows", "say", "file")
PROOFS = ("your-proof", "file-proof", "foreign-proof")


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
    assert "turn 2: 25 ids, 13 tokens through the model, the rows of a fresh run" in shown
    assert shown.count("still its own rows") == 4
    assert "from the file: the same reply, 8 tokens through the model" in shown


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
        ("11.1", "everything again"),
        ("11.1", "the new text only"),
        ("11.1", "the last token twice"),
        ("11.1", "another list"),
        ("11.1", "a reply's last token once more at its end"),
        ("11.2", "all ids"),
        ("11.2", "rows not cut"),
        ("11.2", "a row for each id"),
        ("11.2", "one kv for both"),
        ("11.2", "cut in place"),
        ("11.2", "rows in use only"),
        ("11.4", "the wrong way round"),
        ("11.4", "no digest at all"),
        ("11.4", "the model ignored"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    right = {task.answers: exercise[task.answers] for task in EXERCISE.tasks}
    try:
        with fails_in_one_line():
            run(exercise, [MUTANTS[task][name][0]])
    finally:
        exercise.update(right)
