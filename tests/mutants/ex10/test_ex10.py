"""Exercise 10: right answers that are written otherwise pass; and the proofs under a model, which follow the scored checks,
hold for the reference and fail with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

RUN = ExerciseRun(
    "10",
    before=("imports", "digest", "answers", "your-prefixes", "your-keep", "requests", "ask", "worst"),
    proofs=("your-proof", "worst-proof"),
)


@pytest.mark.parametrize(("task", "name"), RUN.every_fair)
def test_a_right_answer_passes_however_it_is_written(task, name):
    RUN.assert_passes(task, name)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    RUN.start()
    return RUN


def test_the_proofs_hold_for_the_reference(exercise, capsys):
    exercise.prove()
    shown = capsys.readouterr().out
    assert "18 tokens: 17 known, 16 found in blocks, 2 computed, the same logits" in shown
    assert shown.count("the same logits fifty times") == 3


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


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
    exercise.assert_proofs_fail(task, name)
