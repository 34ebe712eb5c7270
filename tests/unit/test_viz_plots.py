"""The figures show what they were given, all of it, and nothing else."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import draw_signed, drawable, plot_next_tokens

SKY = [(" blue", 0.41), (" the", 0.13), ("\n", 0.03)]
GRASS = [(" green", 0.62), (" blue", 0.03)]


def texts(ax: object) -> list[str]:
    return [text.get_text() for text in ax.texts]


def bars(ax: object) -> dict[float, float]:
    return {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in ax.patches}


def test_compared_panels_share_scale_and_rows_and_label_every_bar() -> None:
    left, right = plot_next_tokens({"The sky is": SKY, "The grass is": GRASS}).axes
    assert left.get_xlim() == right.get_xlim() and left.get_xlim()[0] == 0 and left.get_xlim()[1] > 0.62
    assert left.get_ylim() == right.get_ylim() and left.yaxis_inverted()
    assert [label.get_text() for label in left.get_yticklabels()] == ["␣blue", "␣the", "\\n", "␣green"]
    assert bars(left) == {0: 0.41, 1: 0.13, 2: 0.03} and bars(right) == {3: 0.62, 0: 0.03}
    assert texts(left) == ["41.0%", "13.0%", "3.0%", "not listed"]
    assert texts(right) == ["3.0%", "not listed", "not listed", "62.0%"]
    assert [ax.get_title("left") for ax in (left, right)] == ["The sky is", "The grass is"]


def test_two_tokens_that_look_alike_keep_a_bar_each() -> None:
    (ax,) = plot_next_tokens({"a": [("�", 0.5), ("�", 0.25)]}).axes
    assert bars(ax) == {0: 0.5, 1: 0.25}


def test_dollar_signs_and_letters_that_the_font_lacks_are_drawn_as_text() -> None:
    figure = plot_next_tokens({"cost $x^2$ \t天": [("$", 0.5), ("$y$", 0.2), ("天", 0.1), ("_^{", 0.1), ("\u200b", 0.1)]})
    assert style.png(figure)  # under pytest a missing glyph, or bad mathtext, is an error
    assert figure.axes[0].get_title("left") == "cost $x^2$ \\t\\u5929"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a b ", "␣a b␣"),
        ("  ", "␣␣"),
        ("\n", "\\n"),
        ("é", "é"),
        ("", ""),
        ("天", "\\u5929"),
        ("\u202e", "\\u202e"),
        (" \n", "␣\\n"),
    ],
)
def test_no_two_kinds_of_blank_look_the_same(text: str, shown: str) -> None:
    assert drawable(text) == shown


@pytest.mark.parametrize(
    "predictions",
    [{}, {"a": []}, {"a": [("x", 1.2)]}, {"a": [("x", -0.1)]}, {"a": [("x", float("nan"))]}, {"a": [("x", float("inf"))]}],
)
def test_what_is_no_prediction_is_refused(predictions: dict) -> None:
    with pytest.raises(InputError):
        plot_next_tokens(predictions)


def test_a_panel_of_zeros_and_an_unlisted_prompt_are_drawn() -> None:
    assert style.png(plot_next_tokens({"a": [("x", 0.0)], "b": []}))


def test_the_same_prediction_gives_the_same_bytes() -> None:
    assert style.png(plot_next_tokens({"a": SKY})) == style.png(plot_next_tokens({"a": SKY}))


def test_masked_missing_and_out_of_range_values_are_each_drawn() -> None:
    values = np.array([[1.0, 2.0, 9.0], [np.nan, -1.0, -9.0], [np.inf, 0.0, 3.0]])
    mask = np.zeros((3, 3), dtype=bool)
    mask[0, 1] = True
    with style.figure() as (fig, ax):
        image = draw_signed(ax, values, limit=3, mask=mask)
    assert (image.norm.vmin, image.norm.vmax) == (-3, 3)
    hatches = {(round(p.get_x() + 0.5), round(p.get_y() + 0.5)): p.get_hatch() for p in ax.patches if isinstance(p, Rectangle)}
    assert hatches == {(1, 0): "////", (0, 1): "xx", (0, 2): "xx"}
    drawn = image.cmap(image.norm(image.get_array()))
    assert tuple(drawn[0, 2]) == tuple(image.cmap.get_over()) and tuple(drawn[1, 2]) == tuple(image.cmap.get_under())
    assert tuple(drawn[2, 2]) != tuple(image.cmap.get_over())  # the limit itself is in range
    assert style.png(fig)


def test_the_limit_is_the_largest_magnitude_that_takes_part() -> None:
    with style.figure() as (_, ax):
        image = draw_signed(ax, np.array([[-2.0, np.inf], [1.0, 50.0]]), mask=np.array([[False, False], [False, True]]))
        nothing = draw_signed(ax, np.zeros((2, 2)))
    assert (image.norm.vmin, image.norm.vmax) == (-2, 2) and (nothing.norm.vmin, nothing.norm.vmax) == (-1, 1)


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_not_positive_is_refused(limit: float) -> None:
    with style.figure() as (_, ax), pytest.raises(InputError):
        draw_signed(ax, np.zeros((2, 2)), limit=limit)


def test_a_mask_of_another_shape_is_refused() -> None:
    with style.figure() as (_, ax), pytest.raises(Exception, match=r"mask|shape"):
        draw_signed(ax, np.zeros((2, 2)), mask=np.zeros((2, 3), dtype=bool))
