"""Figures of an agent's requests show the counts they are given: tokens one by one, columns to their height, whole bills."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from kvcourse.context.agent import run_agent, scripted
from kvcourse.context.policies import CompactNearLimit, CropOldest, ReplayAll
from kvcourse.context.summaries import DigestSummary
from kvcourse.errors import InputError
from kvcourse.ledger import Bill, TurnCount
from kvcourse.viz import style
from kvcourse.viz.budget_plots import (
    CACHED,
    COMPUTED,
    SUMMARY,
    Sent,
    plot_bills,
    plot_parts,
    plot_two_figures,
    plot_windows,
    sent_of,
)

TURNS = [TurnCount(5, 0, 1), TurnCount(8, 5, 1), TurnCount(6, 2, 1)]


def words(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def state_of(box) -> str:
    return "cached" if box.get_hatch() else "computed"


def legend(figure) -> list[str]:
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def areas(ax) -> dict[bool, tuple[float, float]]:
    """{hatched: (lowest, highest)} of the filled areas."""
    found = {}
    for area in ax.collections:
        heights = np.concatenate([path.vertices[:, 1] for path in area.get_paths()])
        found[bool(area.get_hatch())] = (heights.min(), heights.max())
    return found


# Token by token.


def test_every_token_of_a_window_is_a_box_and_the_cached_ones_are_hatched():
    figure = plot_parts([[("system", 3), ("task", 2)], [("system", 3), ("task", 5)]], TURNS[:2])
    (ax,) = figure.axes
    rows = [[state_of(box) for box in ax.patches if round(box.get_y() + box.get_height() / 2) == row] for row in (0, 1)]
    assert rows == [["computed"] * 5, ["cached"] * 5 + ["computed"] * 3]
    assert [word for word in words(ax) if word.isdigit()] == ["5", "8"] and words(ax).count("system") == 2
    assert legend(figure) == ["computed", "cached"]


def test_the_key_names_what_occurs_and_nothing_else():
    assert legend(plot_parts([[("task", 5)]], TURNS[:1])) == ["computed"]
    assert legend(plot_windows({"a": Sent(tuple(TURNS))})) == ["cached", "computed"]
    assert legend(plot_windows({"a": Sent((TURNS[0],), None, ((1, 2),))})) == ["cached", "computed", "Σ summary"]
    assert legend(plot_windows({"a": Sent(tuple(TURNS), 20)})) == ["cached", "computed", "limit of the window"]


def test_the_key_of_the_columns_looks_like_them():
    figure = plot_windows({"a": Sent(tuple(TURNS), 20)})
    (ax,), (key,) = figure.axes, figure.legends
    drawn = [(area.get_linewidth()[0], bool(area.get_hatch())) for area in ax.collections]
    assert [(box.get_linewidth(), bool(box.get_hatch())) for box in key.get_patches()] == drawn
    (line,), (limit,) = key.get_lines(), ax.lines
    assert (line.get_linestyle(), line.get_color()) == (limit.get_linestyle(), limit.get_color())


def test_windows_that_do_not_fit_their_counts_are_refused():
    for windows in ([], [[("task", 4)]], [[("task", 5)], [("task", 8)]]):
        with pytest.raises(InputError, match="cannot be drawn"):
            plot_parts(windows, TURNS[:1])


# Columns.


def test_a_run_s_areas_end_at_its_cached_and_its_prompt_tokens():
    (ax,) = plot_windows({"a": Sent(tuple(TURNS))}).axes
    assert areas(ax) == {True: (0, 5), False: (0, 8)}
    edge = ax.collections[1].get_paths()[0].vertices
    assert {tuple(point) for point in ((0.5, 5.0), (1.5, 8.0), (2.5, 6.0))} <= {tuple(point) for point in edge}
    assert ax.get_title("left") == "a\n12 computed"


def test_panels_have_one_scale_and_each_run_its_own_limit_inside_it():
    figure = plot_windows({"a": Sent(tuple(TURNS), 20), "b": Sent(tuple(TURNS), 40), "c": Sent(tuple(TURNS))}, columns=2)
    drawn = [ax for ax in figure.axes if ax.axison]
    assert len(drawn) == 3 and len({ax.get_ylim() for ax in drawn}) == len({ax.get_xlim() for ax in drawn}) == 1
    assert [[line.get_ydata()[0] for line in ax.lines] for ax in drawn] == [[20], [40], []]
    assert drawn[0].get_ylim()[0] == 0 and drawn[0].get_ylim()[1] > 40


def test_a_summary_is_drawn_where_it_stands_in_each_window_that_has_it():
    script = scripted(12, system=20, task=6, answer=4, result=9)
    run = run_agent(script, CompactNearLimit(DigestSummary(5), 0.7), limit=120)
    places = sent_of(run, 120).summaries
    first = places.index((26, 5))
    assert set(places[:first]) == {None} and set(places[first:]) == {(26, 5)} and first > 3
    (ax,) = plot_windows({"compact": sent_of(run, 120)}).axes
    bars = [(round(bar.get_x() + bar.get_width() / 2), bar.get_y(), bar.get_height()) for bar in ax.patches]
    assert bars == [(number, 26, 5) for number in range(first + 1, 13)]
    assert {to_hex(bar.get_facecolor()).upper() for bar in ax.patches} == {SUMMARY.fill}
    crop = run_agent(script, CropOldest(), limit=120)
    assert set(sent_of(crop).summaries) == {None} and sent_of(crop).turns == tuple(crop.ledger)


def test_nothing_to_draw_is_said():
    for draw in (lambda: plot_windows({}), lambda: plot_windows({"a": Sent(())}), lambda: plot_two_figures({}, 10),
                 lambda: plot_two_figures({"a": []}, 10), lambda: plot_bills({}, "tokens")):  # fmt: skip
        with pytest.raises(InputError, match="Nothing to draw") as caught:
            draw()
        assert caught.value.todo


# Two figures on one axis.


def test_occupancy_and_cumulative_input_are_drawn_as_counted_and_disagree():
    (ax,) = plot_two_figures({"a": TURNS}, 16).axes
    lines = {tuple(line.get_ydata()) for line in ax.lines if len(line.get_xdata()) == 3}
    assert lines == {(6, 9, 7), (5, 13, 19)}
    assert {"sent so far\n19", "in the window now\n7", "the window: 16"} <= set(words(ax))
    assert ax.get_yscale() == "log" and ax.get_ylim()[1] > 19


def test_two_runs_share_the_axis_of_tokens():
    one, other = plot_two_figures({"a": TURNS, "b": [TurnCount(9000, 0, 1)]}, 16_000).axes
    assert one.get_ylim() == other.get_ylim() and [one.get_title("left"), other.get_title("left")] == ["a", "b"]


# Bills.


def test_a_bill_s_bar_is_its_classes_end_to_end_and_says_its_total():
    (ax,) = plot_bills({"a": Bill(10.0, 2.0, 5.0), "b": Bill(1.0, 0.0, 0.0)}, "tokens").axes
    first = [(round(box.get_x(), 6), round(box.get_width(), 6)) for box in ax.patches[:3]]
    assert first == [(0, 2), (2, 10), (12, 5)]
    assert words(ax) == ["17", "1"] and ax.get_xlabel() == "tokens"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_parts([[("system", 3), ("task", 2)]], TURNS[:1]),
        lambda: plot_windows({"a policy with a long name": Sent(tuple(TURNS), 20)}),
        lambda: plot_two_figures({"a": TURNS}, 16),
        lambda: plot_bills({"a": Bill(10.0, 2.0, 5.0)}, "tokens"),
    ],
)
def test_a_figure_is_the_same_each_time_it_is_made_and_nothing_is_cut_off(draw):
    figure = draw()
    assert style.png(figure) == style.png(draw())
    figure.draw_without_rendering()
    for ax in figure.axes:
        for text in ax.texts:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1


def test_cached_and_computed_differ_in_more_than_colour():
    assert CACHED.hatch and not COMPUTED.hatch
    turns = tuple(run_agent(scripted(3, system=3, task=2, answer=1, result=2), ReplayAll(), limit=20).ledger)
    assert [turn.cached_tokens for turn in turns] == [0, 5, 8]
