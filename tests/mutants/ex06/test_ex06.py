"""Exercise 06: what comes after its scored checks. The proof in the model fails when one of the three pieces is wrong."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import mutants_of
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("06")
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / "06_kv_cache.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to the model, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "tiny"):
        exec(CELLS[cell], names)
    return names


def prove(names: dict) -> None:
    exec(CELLS["your-cache"], names)  # after the answers: a class looks names up where it was made
    exec(CELLS["your-proof"], names)


def test_the_proof_in_the_model_holds_for_the_reference(exercise, capsys):
    prove(dict(exercise))
    assert capsys.readouterr().out.count("the same logits at every position\n") == 4


@pytest.mark.parametrize(
    ("task", "mutant"),
    [
        ("6.1", "no tensors returned"),
        ("6.1", "past forgotten"),
        ("6.1", "new before old"),
        ("6.2", "square mask"),
        ("6.2", "no mask with past"),
        ("6.2", "off by one: not itself"),
        ("6.3", "position restart"),
        ("6.3", "off by one with past"),
    ],
)
def test_the_proof_in_the_model_fails_for_a_wrong_piece(exercise, task, mutant):
    names = dict(exercise)
    exec(MUTANTS[task][mutant][0], names)
    with fails_in_one_line():
        prove(names)
