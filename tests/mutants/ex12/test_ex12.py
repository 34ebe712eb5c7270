"""Exercise 12: right answers that are written otherwise pass; and the proofs under a model, which follow the scored checks,
hold for the reference and fail with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

RUN = ExerciseRun(
    "12",
    before=("imports", "answers", "ask", "run-agent", "judge", "ways"),
    proofs=("your-proof", "forecast-proof", "warm-proof"),
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
    assert "replay all: window 165, sent 1074, computed 128" in shown
    assert "12 steps, as forecast: (165, 1074, 128)" in shown
    assert "crop: lost at each step [0, 0, 0, 0, 52, 52, 52, 52, 52, 52, 52]" in shown
    assert "compact: lost at each step [0, 0, 0, 0, 52, 0, 0, 0, 55, 0, 0]" in shown


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("12.1", "nothing cached"),
        ("12.1", "the prompt alone is held"),
        ("12.1", "the answer's last token has a row"),
        ("12.1", "equal places counted"),
        ("12.1", "occupancy summed"),
        ("12.1", "the last turn for totals"),
        ("12.1", "computed with the answer"),
        ("12.2", "the last result, too"),
        ("12.2", "straight line"),
        ("12.2", "the answer's last has a row"),
        ("12.2", "nothing cached"),
        ("12.3", "part by part"),
        ("12.3", "parts counted"),
        ("12.3", "the newest goes"),
        ("12.3", "the system goes first"),
        ("12.4", "always"),
        ("12.4", "never"),
        ("12.4", "the summary first"),
        ("12.4", "into the system part"),
        ("12.4", "all steps go"),
        ("12.4", "a count of compactions in the system part"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    exercise.assert_proofs_fail(task, name)
