"""The figure of hit rates shows what it is given: each policy's line, its name, the ceiling, the limit."""

from itertools import pairwise

import pytest

from kvcourse.errors import InputError
from kvcourse.prefix.replay import REPLAYED, Rates
from kvcourse.viz import style
from kvcourse.viz.replay_plot import plot_hit_rates


def rates(policy: str, points: dict[int | None, float]) -> list[Rates]:
    return [Rates(policy, size, 10, 100, rate, rate / 2, rate / 4) for size, rate in points.items()]


LRU = rates("lru", {1000: 0.05, 10000: 0.2})
OPT = rates("opt", {10000: 0.37, 1000: 0.19})  # in any order
OURS = rates("turns", {1000: 0.08, 10000: 0.22})
UNLIMITED = rates("lru", {None: 0.38})


def drawn(rates, **options):
    return plot_hit_rates(rates, **options).axes[0]


def lines(ax) -> dict[str, list[tuple[float, float]]]:
    return {
        line.get_label(): [tuple(point) for point in line.get_xydata().tolist()]
        for line in ax.lines
        if line.get_label()[0] != "_"
    }


def test_a_line_is_a_policy_s_rates_against_its_capacities_on_a_log_axis():
    ax = drawn([*LRU, *OURS, *OPT])
    assert lines(ax) == {
        "opt": [(1000, 0.19), (10000, 0.37)],
        "lru": [(1000, 0.05), (10000, 0.2)],
        "turns": [(1000, 0.08), (10000, 0.22)],
    }
    assert ax.get_xscale() == "log" and ax.get_ylim()[0] == 0
    assert ax.get_xlabel() == "capacity (blocks, log scale)"


@pytest.mark.parametrize(("rate", "part"), [("block_hit_rate", 1), ("token_hit_rate", 2), ("request_mean_hit_rate", 4)])
def test_the_rate_that_is_drawn_is_the_one_the_axis_names(rate, part):
    ax = drawn([*LRU, *OPT], rate=rate)
    assert lines(ax)["lru"] == [(1000, 0.05 / part), (10000, 0.2 / part)]
    assert {"block_hit_rate": "hit blocks / blocks", "token_hit_rate": "tokens in hit blocks / input tokens",
            "request_mean_hit_rate": "hit blocks / blocks, mean over requests"}[rate] == ax.get_ylabel()  # fmt: skip
    assert any("no policy gets here" in text.get_text() for text in ax.texts) == (rate == "block_hit_rate"), (
        "true of blocks only"
    )


def test_every_line_has_its_name_beside_it_in_its_colour_and_no_name_lies_on_another():
    close = [one for n, name in enumerate(REPLAYED) for one in rates(name, {1000: 0.05 + n / 10000, 10000: 0.3})]
    ax = drawn(close)
    names = {text.get_text(): text for text in ax.texts if text.get_text() in REPLAYED}
    colours = {line.get_label(): line.get_color() for line in ax.lines}
    assert set(names) == set(REPLAYED) and all(text.get_color() == colours[name] for name, text in names.items())
    heights = sorted(text.xyann[1] for text in names.values())
    top = ax.get_ylim()[1]
    assert all(above - below > 0.06 * top for below, above in pairwise(heights)) and heights[0] > 0
    assert all(text.xyann[0] < text.xy[0] for text in names.values())
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(looks) == len(REPLAYED), "told apart by more than colour"


def test_names_that_have_room_stand_at_their_lines():
    ax = drawn([*LRU, *rates("opt", {1000: 0.3, 10000: 0.4})])
    for text in ax.texts:
        if text.get_text() in REPLAYED:
            assert text.xyann[1] == pytest.approx(text.xy[1])


def test_above_the_ceiling_lies_the_shaded_area():
    (area,) = drawn([*LRU, *OPT]).collections
    corners = {tuple(corner) for corner in area.get_paths()[0].vertices.tolist()}
    assert {(1000.0, 0.19), (10000.0, 0.37)} <= corners
    assert not drawn(LRU).collections, "without opt there is none"


def test_an_unlimited_cache_is_a_level_line_with_its_rate():
    ax = drawn([*LRU, *UNLIMITED])
    assert any(text.get_text() == "without a limit 0.380" for text in ax.texts)
    assert [0.38, 0.38] in [list(line.get_ydata()) for line in ax.lines]
    assert ax.get_ylim()[1] > 0.38


def test_capacities_are_written_at_the_axis_as_far_as_they_find_room():
    ax = drawn(rates("lru", dict.fromkeys((1000, 1010, 5859, 100000), 0.1)))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["100,000", "5,859", "1,010"]


def test_hit_rates_of_nothing_at_all_can_be_drawn():
    figure = plot_hit_rates(rates("lru", {1: 0.0, 2: 0.0}), title="a $log$")
    assert figure.axes[0].get_title("left") == "a $log$"
    assert style.png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("given", "options"),
    [([], {}), (LRU[:1], {}), (UNLIMITED, {}), ([*LRU[:1], *OPT[:1]], {}), (LRU, {"rate": "hits"})],
)
def test_what_makes_no_curve_is_refused(given, options):
    with pytest.raises(InputError):
        plot_hit_rates(given, **options)
