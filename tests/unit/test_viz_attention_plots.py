"""The figure of an attention matrix shows each number in its cell, what is hidden as hidden, and refuses what does not fit."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.attention_plots import LARGEST_WITH_NUMBERS, plot_attention

SCORES = np.array([[1.0, -np.inf, -np.inf], [-2.0, 0.5, -np.inf], [0.0, 3.0, 1.5]])
TOKENS = ["ana", " takes", "$x$"]


def numbers(ax) -> dict[tuple[int, int], str]:
    """Text in cells, by (row, column); a chip's letter is no number."""
    return {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in ax.texts if "." in t.get_text()}


def hatched(ax) -> set[tuple[int, int]]:
    """Cells under a hatched box, which may cover several of a row."""
    boxes = [box for box in ax.patches if isinstance(box, Rectangle) and box.get_hatch() == "////"]
    return {
        (round(box.get_y() + 0.5), round(box.get_x() + 0.5) + column)
        for box in boxes
        for column in range(round(box.get_width()))
    }


def test_every_score_is_written_in_its_cell_and_what_is_minus_infinity_is_hatched() -> None:
    figure = plot_attention({"scores": SCORES}, TOKENS)
    (ax,) = figure.axes
    assert numbers(ax) == {
        (0, 0): "1.00",
        (1, 0): "-2.00",
        (1, 1): "0.50",
        (2, 0): "0.00",
        (2, 1): "3.00",
        (2, 2): "1.50",
    }
    assert hatched(ax) == {(0, 1), (0, 2), (1, 2)}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["ana", "␣takes", "$x$"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["ana", "␣takes", "$x$"]
    assert style.png(figure)


def test_what_is_named_as_hidden_is_hatched_and_has_no_number() -> None:
    hidden = np.triu(np.ones((3, 3), dtype=bool), 1)
    (ax,) = plot_attention({"shares": np.full((3, 3), 0.25)}, TOKENS, hidden=hidden).axes
    assert hatched(ax) == {(0, 1), (0, 2), (1, 2)} and len(numbers(ax)) == 6


def test_panels_have_their_own_scale_or_a_common_one() -> None:
    for limit, ends in ((None, [3.0, 1.5]), (1, [1.0, 1.0])):
        axes = plot_attention({"a": SCORES, "b": SCORES / 2}, TOKENS, limit=limit).axes
        assert [ax.images[0].get_clim() for ax in axes] == [(-end, end) for end in ends]


def test_queries_and_keys_can_be_different_tokens() -> None:
    (ax,) = plot_attention({"wide": np.ones((1, 3))}, ["now"], TOKENS).axes
    assert len(ax.get_yticklabels()) == 1 and len(ax.get_xticklabels()) == 3


def test_large_matrices_have_no_numbers() -> None:
    n = LARGEST_WITH_NUMBERS + 1
    (ax,) = plot_attention({"large": np.eye(n)}, [str(i) for i in range(n)]).axes
    assert numbers(ax) == {}


@pytest.mark.parametrize(
    ("panels", "hidden"),
    [({}, None), ({"a": np.ones((2, 3))}, None), ({"a": np.ones((3, 3))}, np.ones((2, 2), dtype=bool))],
)
def test_a_matrix_that_does_not_fit_its_tokens_is_refused(panels, hidden) -> None:
    with pytest.raises(InputError, match="does not fit its tokens"):
        plot_attention(panels, TOKENS, hidden=hidden)
