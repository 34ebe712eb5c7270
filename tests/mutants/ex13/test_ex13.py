"""Exercise 13: right answers that are written otherwise pass; and the proofs at work, which follow the scored checks, hold for
the reference and fail with a wrong piece."""

import pytest
from exercise_runs import ExerciseRun

from kvcourse.checks.ex13 import EXERCISE

RUN = ExerciseRun(
    "13",
    before=("imports", "common", "answers", "bodies", "pairs", "help-desk", "asked-by", "help-desk-log", "sent", "usages"),
    proofs=("pairs-proof", "layout-proof", "found-proof", "bill-proof"),
)


@pytest.mark.parametrize(("task", "name"), RUN.every_fair)
def test_a_right_answer_passes_however_it_is_written(task, name):
    RUN.assert_passes(task, name)


def test_graded_answers_find_the_same_function_as_in_the_notebook():
    """`common` stands in a cell of the notebook, and in what an answer is given where it is graded."""
    assert RUN.cells["common"].strip() in EXERCISE.preamble


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    RUN.start()
    return RUN


def test_the_proofs_hold_for_the_reference(exercise, capsys):
    exercise.prove()
    shown = capsys.readouterr().out
    assert "(1, 28, 't is 9:00. You are t', 't is 9:07. You are t')\n    the linter says: clock" in shown
    assert "24 orders are allowed." in shown
    assert "your order: rules, house, reader, loans, clock, question" in shown
    assert shown.count("found in the worst order") == 4
    assert shown.count("without a cache") == 4


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("13.1", "the end is a difference"),
        ("13.1", "the last difference"),
        ("13.1", "off by one"),
        ("13.1", "messages only"),
        ("13.1", "tools sorted"),
        ("13.1", "characters of the content"),
        ("13.2", "before ignored"),
        ("13.2", "the order of the log"),
        ("13.2", "the longest first"),
        ("13.2", "the clock left out"),
        ("13.3", "itself"),
        ("13.3", "no steps"),
        ("13.3", "no minimum"),
        ("13.3", "no lifetime"),
        ("13.3", "not renewed"),
        ("13.4", "always added"),
        ("13.4", "included the wrong way round"),
        ("13.4", "None is a figure"),
        ("13.4", "writing at the plain price"),
        ("13.4", "the same twice"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    exercise.assert_proofs_fail(task, name)
