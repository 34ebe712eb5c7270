"""Exercise 14: right answers that are written otherwise pass; and the proofs on the zoo, after the scored checks, hold for the
reference and fail with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

RUN = ExerciseRun("14", before=("imports", "ward", "answers", "tests"), proofs=("rounds", "tests-proof"))


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
    assert "two rooms are right; in the others: dtype, layers, mask, positions, unused" in shown
    assert "three right kinds pass all three tests" in shown
    assert "logits: BCFGKQ found, 6 left\ncuts: J found, 5 left\nforks: N found, 4 left" in shown


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("14.1", "everybody is ill"),
        ("14.1", "masks first"),
        ("14.1", "nearly is off"),
        ("14.1", "equal is well"),
        ("14.2", "equal to the last bit"),
        ("14.2", "one cache for all sizes"),
        ("14.2", "single steps only"),
        ("14.2", "one pass only"),
        ("14.3", "without the cache"),
        ("14.3", "from 1 on"),
        ("14.4", "a cache for the fork"),
        ("14.4", "one to its end, then the other"),
        ("14.4", "both the same way"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    exercise.assert_proofs_fail(task, name)
