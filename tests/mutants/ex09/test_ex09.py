"""Exercise 09: right answers that are written otherwise pass; and the proof under a model, which follows the scored checks,
holds for the reference and fails with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

RUN = ExerciseRun(
    "09",
    before=("imports", "answers", "memory", "your-cache", "branch", "texts"),
    proofs=("your-proof", "give-all-back"),
)


@pytest.mark.parametrize(("task", "name"), RUN.every_fair)
def test_a_right_answer_passes_however_it_is_written(task, name):
    RUN.assert_passes(task, name)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    RUN.start()
    return RUN


def test_the_proof_holds_for_the_reference(exercise, capsys):
    exercise.prove()
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
    exercise.assert_proofs_fail(task, name)
