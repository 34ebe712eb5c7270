"""Figures of work show what was counted: each box, point and cross is one number that was given."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.work_plots import AGAIN, plot_counts, plot_passes, plot_reach, plot_seconds

PLAIN, KEPT = [[0, 1], [0, 1, 2]], [[0, 1], [2]]
EYE = np.eye(3, dtype=bool)
TRIANGLE = np.triu(np.ones((3, 3), dtype=bool))


def boxes(ax) -> dict[tuple[int, int], tuple]:
    """Each box by the row and column at its middle: what it looks like."""
    found = {}
    for box in ax.patches:
        assert isinstance(box, Rectangle)
        x, y = box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2
        found[round(y), round(x)] = look(box)
    return found


def look(box: Rectangle) -> tuple:
    return tuple(box.get_facecolor()), box.get_linestyle(), box.get_linewidth()


def look_of(slot: style.SlotStyle) -> tuple:
    return look(slot.patch(0, 0))


def key_of(figure) -> dict[str, tuple]:
    """The key below a figure: {words: what its box looks like}."""
    (legend,) = figure.legends
    return {text.get_text(): look(box) for text, box in zip(legend.get_texts(), legend.get_patches(), strict=True)}


def numbers(ax) -> dict[tuple[int, int], str]:
    return {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in ax.texts}


def test_a_box_says_how_often_its_row_has_been_computed_by_then():
    plain, kept = plot_passes({"nothing kept": PLAIN, "rows kept": KEPT}, "ABCD").axes
    assert numbers(plain) == {(0, 0): "1", (0, 1): "1", (1, 0): "2", (1, 1): "2", (1, 2): "1"}
    assert numbers(kept) == {(0, 0): "1", (0, 1): "1", (1, 2): "1"}
    assert [ax.get_title("left") for ax in (plain, kept)] == ["nothing kept", "rows kept"]


def test_new_repeated_held_and_missing_rows_each_look_like_themselves():
    plain, kept = plot_passes({"nothing kept": PLAIN, "rows kept": KEPT}, "ABCD").axes
    written, held, empty = (look_of(style.SLOTS[state]) for state in ("written", "held", "empty"))
    assert boxes(plain)[1, 0] == look_of(AGAIN) and boxes(plain)[1, 2] == written
    assert boxes(kept)[1, 0] == held and boxes(kept)[1, 2] == written
    assert all(boxes(ax)[row, 3] == empty for ax in (plain, kept) for row in (0, 1))  # a token that no pass reads has no row
    assert len({written, held, empty, look_of(AGAIN)}) == 4 and len(boxes(plain)) == 8


def test_passes_stand_from_top_to_bottom_and_name_their_tokens():
    ax = plot_passes({"x": PLAIN}, [" a", "\n", "c"]).axes[0]
    assert ax.yaxis_inverted()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["␣a", "\\n", "c"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["pass 1", "pass 2"]


def test_passes_have_a_key_of_what_occurs_and_nothing_else():
    first, again, kept, none = "computed for the first time", "computed again, for the 2nd, 3rd … time", "kept", "no row"
    written, held, empty = (look_of(style.SLOTS[state]) for state in ("written", "held", "empty"))
    figure = plot_passes({"nothing kept": PLAIN, "rows kept": KEPT}, "ABCD")
    assert key_of(figure) == {first: written, again: look_of(AGAIN), kept: held, none: empty}
    assert key_of(plot_passes({"x": [[0, 1]]}, "AB")) == {first: written}
    assert [ax.get_xlabel() for ax in figure.axes] == ["row of token"] * 2


def test_counts_are_drawn_as_given_and_named_with_the_last():
    panels = {"one": {"plain": ([1, 2, 3], [4, 9, 1500]), "kept": ([1, 2, 3], [4, 5, 6])}, "all": {"plain": ([1, 2], [7, 8])}}
    one, both = plot_counts(panels, x="new tokens", y=["tokens", "rows"]).axes
    assert [line.get_ydata().tolist() for line in one.lines] == [[4, 9, 1500], [4, 5, 6]]
    assert [line.get_xdata().tolist() for line in one.lines] == [[1, 2, 3], [1, 2, 3]]
    assert [text.get_text() for text in one.texts] == ["plain: 1,500", "kept: 6"]
    assert one.get_ylim()[0] == 0 and one.get_ylim()[1] > 1500
    assert (one.get_ylabel(), both.get_ylabel(), one.get_xlabel()) == ("tokens", "rows", "new tokens")


def test_two_lines_of_a_panel_differ_in_more_than_their_colour():
    one = plot_counts({"one": {"a": ([1, 2], [1, 2]), "b": ([1, 2], [2, 3])}}, x="x", y=["y"]).axes[0]
    first, second = one.lines
    assert first.get_linestyle() != second.get_linestyle() and first.get_marker() != second.get_marker()


def test_a_changed_row_is_crossed_and_an_untouched_one_is_held():
    figure = plot_reach({"with": np.stack((EYE, TRIANGLE)), "without": np.stack((EYE, ~EYE))}, "abc")
    assert [ax.get_title("left") for ax in figure.axes] == ["layer 0", "layer 1"] * 2
    assert [ax.get_ylabel() for ax in figure.axes] == ["exchanged token", ""] * 2
    assert [ax.get_xlabel() for ax in figure.axes] == ["whose k and v"] * 4
    for ax, table in zip(figure.axes, (EYE, TRIANGLE, EYE, ~EYE), strict=True):
        for place, is_changed in np.ndenumerate(table):
            assert boxes(ax)[place] == look_of(style.SLOTS["evicted" if is_changed else "held"])
        crosses = [text.get_position() for text in ax.texts if text.get_text() == "×"]
        assert sorted(crosses) == sorted((int(column), int(row)) for row, column in np.argwhere(table))


def test_each_row_of_panels_stands_under_its_name_and_both_kinds_have_a_key():
    figure = plot_reach({"with": np.stack((EYE, TRIANGLE)), "$a$": np.stack((EYE, ~EYE))}, "abc")
    names = [[text.get_text() for text in ax.texts if text.get_text() != "×"] for ax in figure.axes]
    assert names == [["with"], [], ["$a$"], []]
    held, changed = look_of(style.SLOTS["held"]), look_of(style.SLOTS["evicted"])
    assert key_of(figure) == {"k and v as they were, bit for bit": held, "changed": changed}


def test_times_show_median_spread_and_device():
    ax = plot_seconds([1, 8], [0.01, 0.02], [0.02, 0.03], [0.05, 0.04], device="a $machine$, 2 threads").axes[0]
    assert ax.lines[0].get_ydata().tolist() == [20.0, 30.0] and ax.get_ylim()[0] == 0
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == 10.0 and band[:, 1].max() == 50.0
    assert ax.get_title("left") == "a $machine$, 2 threads"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_passes({}, "ab"),
        lambda: plot_passes({"x": []}, "ab"),
        lambda: plot_passes({"x": [[0]]}, ""),
        lambda: plot_passes({"x": [[0, 2]]}, "ab"),
        lambda: plot_counts({}, x="x", y=[]),
        lambda: plot_counts({"a": {}}, x="x", y=["y"]),
        lambda: plot_counts({"a": {"l": ([1], [1])}}, x="x", y=["y", "z"]),
        lambda: plot_counts({"a": {name: ([1], [1]) for name in "lmn"}}, x="x", y=["y"]),
        lambda: plot_counts({"a": {"l": ([1, 2], [1])}}, x="x", y=["y"]),
        lambda: plot_reach({}, "abc"),
        lambda: plot_reach({"a": EYE[None]}, "ab"),
        lambda: plot_reach({"a": EYE[None], "b": np.stack((EYE, EYE))}, "abc"),
        lambda: plot_seconds([], [], [], [], device="x"),
        lambda: plot_seconds([1], [0.1], [0.1, 0.2], [0.1], device="x"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_the_same_counts_give_the_same_bytes():
    for make in (
        lambda: plot_passes({"x": PLAIN, "y": KEPT}, "ABC"),
        lambda: plot_counts({"a": {"l": ([1, 2], [1, 2])}}, x="x", y=["y"]),
        lambda: plot_reach({"with": EYE[None]}, "abc"),
        lambda: plot_seconds([1, 2], [0.1, 0.2], [0.1, 0.2], [0.1, 0.2], device="x"),
    ):
        assert style.png(make()) == style.png(make())
