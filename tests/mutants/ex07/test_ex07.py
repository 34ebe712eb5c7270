"""Exercise 07: right answers that are written otherwise pass, and what follows the scored checks fails with a wrong piece."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise, find_task
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("07")
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / "07_fast_cache.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)
FAIR = [
    (task, name, source) for task, variants in fair_variants_of(ROOT, EXERCISE).items() for name, source in variants.items()
]


@pytest.mark.parametrize(("task", "name", "source"), FAIR, ids=[f"{task} {name}" for task, name, _ in FAIR])
def test_a_right_answer_passes_however_it_is_written(task, name, source):
    for seed in range(3):
        verdict = verdict_on(find_task(task)[1], source, seed)
        assert (verdict.state, verdict.held) == ("passed", verdict.properties), str(verdict)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to the small model, with the reference answers in place."""
    import torch

    before, names = torch.is_grad_enabled(), {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "tiny"):
        exec(CELLS[cell], names)
    yield names
    torch.set_grad_enabled(before)


def prove(names: dict) -> None:
    exec(CELLS["your-cache"], names)  # after the answers: a class looks names up where it was made
    exec(CELLS["your-proof"], names)


def test_the_proof_in_the_model_holds_for_the_reference(exercise, capsys):
    prove(dict(exercise))
    shown = capsys.readouterr().out
    assert "the same logits at every position" in shown and "as in a new text" in shown


@pytest.mark.parametrize(
    ("task", "mutant"),
    [
        ("7.1", "keys and values swapped"),
        ("7.1", "whole buffer"),
        ("7.1", "new rows only"),
        ("7.1", "always at the beginning"),
        ("7.1", "layers share one pair"),
        ("7.1", "off by one: last slot refused"),
        ("7.2", "drops n"),
        ("7.2", "zero keeps all"),
        ("7.2", "off by one"),
        ("7.2", "kept rows emptied"),
    ],
)
def test_the_proof_in_the_model_fails_for_a_wrong_piece(exercise, task, mutant):
    names = dict(exercise)
    exec(MUTANTS[task][mutant][0], names)
    with fails_in_one_line():
        prove(names)


@pytest.mark.parametrize(
    "mutant", ["the guess that was wrong", "all choices", "keeps all rows", "drops all guesses", "off by one: own id kept too"]
)
def test_the_decoder_fails_with_a_wrong_judge(exercise, mutant):
    """The exercise's own decoder, with `tiny` in the real model's place: other tokens come out, or none at all."""
    names = dict(exercise)
    for cell in ("your-cache", "real-decode"):
        exec(CELLS[cell], names)
    names["right"] = names["my_verify"]
    exec(MUTANTS["7.4"][mutant][0], names)
    tiny, ids = names["tiny"], names["ids"]
    draft = names["first_layers"](tiny, 3)

    def decode(judge):
        names["my_verify"] = judge
        return names["speculate"](tiny, draft, ids, 20, names["YourCache"](64))[0]

    wrong = names["my_verify"]
    right = decode(names["right"])
    assert right == names["generate"](tiny, ids, max_new_tokens=len(right)).tokens
    try:
        got = decode(wrong)
    except Exception:
        return
    assert got != names["generate"](tiny, ids, max_new_tokens=len(got)).tokens
