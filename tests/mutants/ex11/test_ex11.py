"""Exercise 11: right answers that are written otherwise pass; and the proofs under a model, which follow the scored checks,
hold for the reference and fail with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

RUN = ExerciseRun(
    "11",
    before=("imports", "answers", "your-rows", "compare", "say", "file"),
    proofs=("your-proof", "file-proof", "foreign-proof"),
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
    assert "turn 2: 25 ids, 13 tokens through the model, the rows of a fresh run" in shown
    assert shown.count("still its own rows") == 4
    assert "from the file: the same reply, 8 tokens through the model" in shown


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


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
    exercise.assert_proofs_fail(task, name)
