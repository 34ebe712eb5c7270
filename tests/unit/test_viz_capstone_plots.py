"""The zoo's figure: a cross for every observation that is wrong, where it is wrong, and nowhere else."""

import pytest

from kvcourse.errors import InputError
from kvcourse.viz.capstone_plots import plot_symptoms

PATIENTS = {"A": {"one": True, "two": False, "three": True}, "B": {"one": False, "two": False, "three": True}}


def marks(ax, marker):
    return {
        (int(x), int(y))
        for line in ax.lines
        if line.get_marker() == marker
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


def test_wrong_observations_are_crosses_and_right_ones_dots():
    ax = plot_symptoms(PATIENTS).axes[0]
    assert marks(ax, "X") == {(1, 0), (0, 1), (1, 1)}
    assert marks(ax, ".") == {(0, 0), (2, 0), (2, 1)}


def test_rows_and_columns_are_named_and_the_first_row_is_on_top():
    ax = plot_symptoms(PATIENTS).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["one", "two", "three"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "B"]
    assert ax.yaxis_inverted()


def test_the_column_of_speed_is_marked_and_said_in_words():
    ax = plot_symptoms(PATIENTS, speed="three").axes[0]
    (band,) = ax.patches
    assert band.get_x() == 1.5 and band.get_width() == 1.0
    assert [text.get_text() for text in ax.texts] == ["what a plot of speed shows"]
    assert not plot_symptoms(PATIENTS).axes[0].texts


@pytest.mark.parametrize("patients", [{}, {"A": {}}, {"A": {"one": True}, "B": {"two": True}}])
def test_charts_that_do_not_fit_are_refused(patients):
    with pytest.raises(InputError, match="do not fit"):
        plot_symptoms(patients)


def test_a_column_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no such column"):
        plot_symptoms(PATIENTS, speed="four")
