"""Figures of smaller caches show what they are given: every token in its slot, every loss, every point under its name."""

import numpy as np
import pytest

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.smaller_plots import plot_channels, plot_first_token, plot_losses, plot_memory_and_error, plot_ring

STEPS = [[0, 1, None], [0, 1, 2], [3, 1, 2]]
FAMILIES = {"codes": {"int8": (4096.0, 17.0), "int4": (2048.0, 18.0)}, "window": {"64": (2048.0, 50.0)}}


def test_a_ring_shows_each_token_in_its_slot_and_what_it_replaced():
    ax = plot_ring(STEPS, ["2 tokens", "3 tokens", "4 tokens"]).axes[0]
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["0", "1", "0", "1", "2", "3", "was 0", "1", "2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2 tokens", "3 tokens", "4 tokens"]


def test_a_ring_outlines_what_was_written_now_and_dots_what_is_empty():
    ax = plot_ring(STEPS, ["a", "b", "c"]).axes[0]
    widths = [patch.get_linewidth() for patch in ax.patches]
    written, held = style.SLOTS["written"].width, style.SLOTS["held"].width
    assert widths == [written, written, style.SLOTS["empty"].width, held, held, written, written, held, held]
    assert len({patch.get_linestyle() for patch in ax.patches}) == 2


def test_a_ring_that_is_shown_from_later_on_outlines_only_what_was_written_since():
    ax = plot_ring(STEPS[1:], ["b", "c"], before=STEPS[0]).axes[0]
    written, held = style.SLOTS["written"].width, style.SLOTS["held"].width
    assert [patch.get_linewidth() for patch in ax.patches] == [held, held, written, written, held, held]
    assert [text.get_text() for text in ax.texts] == ["0", "1", "2", "3", "was 0", "1", "2"]


def test_the_first_token_gets_a_bar_for_each_layer_in_both_panels():
    share, length = plot_first_token([0.1, 0.6], [1.5, 0.2], evenly=0.25).axes
    assert [bar.get_height() for bar in share.patches] == [0.1, 0.6]
    assert [bar.get_height() for bar in length.patches] == [1.5, 0.2]
    assert share.get_ylim() == (0, 1) and share.lines[0].get_ydata()[0] == 0.25
    assert length.get_ylim()[1] > 1.5


def test_losses_are_means_of_the_last_few_and_stand_at_the_last_of_them():
    ax = plot_losses({"full": [1, 2, 3, 6], "window": [2, 2, 2, 2]}, over=2, marks={"it leaves": 3}).axes[0]
    full, window, mark = ax.lines
    assert full.get_xdata().tolist() == [2, 3, 4] and full.get_ydata().tolist() == [1.5, 2.5, 4.5]
    assert window.get_ydata().tolist() == [2, 2, 2] and full.get_linestyle() != window.get_linestyle()
    assert mark.get_xdata()[0] == 3 and ax.texts[0].get_text() == "it leaves"


def test_the_legend_of_losses_covers_neither_a_line_nor_a_mark():
    fig = plot_losses({"full": [1, 2, 3, 6], "window": [2, 2, 2, 2]}, over=2, marks={"it leaves": 3})
    style.png(fig)  # now everything has its place
    (ax,) = fig.axes
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_channels_share_one_scale_over_all_panels():
    fig = plot_channels({"keys": np.array([[8.0, 0.0], [7.0, 1.0]]), "values": np.array([[0.5, -0.5]])})
    images = [ax.images[0] for ax in fig.axes if ax.images]
    assert [image.get_clim() for image in images] == [(-8.0, 8.0), (-8.0, 8.0)]
    assert images[0].get_array().tolist() == [[8.0, 0.0], [7.0, 1.0]]


def test_memory_and_error_names_every_point_where_it_was_measured():
    ax = plot_memory_and_error(FAMILIES, exact=(8192.0, 16.9)).axes[0]
    places = {text.get_text(): text.xy for text in ax.texts}
    assert places.pop("↙ better: down and left") == (0, 0)
    assert places == {"int8": (4096.0, 17.0), "int4": (2048.0, 18.0), "64": (2048.0, 50.0)}
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"everything, 32 bits", "codes", "window"}
    assert ax.lines[0].get_ydata()[0] == 16.9 and ax.lines[1].get_xdata()[0] == 8192.0


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_ring([[0], [0, 1]], ["a", "b"]),
        lambda: plot_ring(STEPS, ["a"]),
        lambda: plot_ring([], []),
        lambda: plot_ring(STEPS, ["a", "b", "c"], before=[0, 1]),
        lambda: plot_first_token([], [], evenly=0.5),
        lambda: plot_first_token([0.5], [1.0, 1.0], evenly=0.5),
        lambda: plot_losses({}, over=1, marks={}),
        lambda: plot_losses({"a": [1.0], "b": [1.0, 2.0]}, over=1, marks={}),
        lambda: plot_losses({"a": [1.0]}, over=2, marks={}),
        lambda: plot_channels({}),
        lambda: plot_memory_and_error({}, exact=(1.0, 1.0)),
        lambda: plot_memory_and_error({"a": {}}, exact=(1.0, 1.0)),
        lambda: plot_memory_and_error({"a": {"b": (0.0, 1.0)}}, exact=(1.0, 1.0)),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_the_same_numbers_give_the_same_bytes():
    for make in (lambda: plot_ring(STEPS, ["a", "b", "c"]), lambda: plot_memory_and_error(FAMILIES, exact=(8192.0, 16.9))):
        assert style.png(make()) == style.png(make())
