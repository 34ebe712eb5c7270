"""Figures of speed show what they are given: exact counts, medians with their spread, the limit, the device."""

from itertools import pairwise

import pytest

from kvcourse.errors import InputError
from kvcourse.meter import Timing
from kvcourse.viz import style
from kvcourse.viz.speed_plots import plot_copied, plot_speed

FAST = [Timing(0.1, 0.05, 0.2, 3, "d"), Timing(0.2, 0.1, 0.25, 3, "d")]
SLOW = [Timing(1.0, 0.5, 2.0, 3, "d"), Timing(4.0, 2.0, 5.0, 3, "d")]
LIMIT = ([12.0, 11.0], [20.0, 18.0])


def test_copied_bytes_are_drawn_as_given_and_named_with_the_last():
    ax = plot_copied(
        [0, 512, 1024], {"growing": [0, 10**6, 4 * 10**6], "held": [0, 100_000, 1_500_000], "fixed": [0, 0, 0]}
    ).axes[0]
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0, 10**6, 4 * 10**6], [0, 100_000, 1_500_000], [0, 0, 0]]
    assert {text.get_text() for text in ax.texts} == {"growing: 4 MB", "held: 1.5 MB", "fixed: 0 MB"}
    assert len({line.get_linestyle() for line in ax.lines}) == 3 and len({line.get_marker() for line in ax.lines}) == 3


def test_names_at_the_ends_of_lines_do_not_lie_on_each_other():
    ax = plot_copied([1, 2], {"a": [0, 1000], "b": [0, 1], "c": [0, 0]}).axes[0]
    heights = sorted(text.xy[1] for text in ax.texts)
    assert all(above - below >= 99 for below, above in pairwise(heights))


def test_speed_is_the_inverse_of_the_median_and_bars_are_the_spread():
    ax = plot_speed([64, 128], {"cached": FAST, "plain": SLOW}, LIMIT, title="a $model$, 2 threads").axes[0]
    drawn = {bars.get_label(): bars for bars in ax.containers}
    assert drawn["cached"].lines[0].get_ydata().tolist() == [10.0, 5.0]
    ends = drawn["plain"].lines[2][0].get_segments()
    assert [[round(float(y), 6) for _, y in bar] for bar in ends] == [[0.5, 2.0], [0.2, 0.5]]
    assert ax.get_title("left") == "a $model$, 2 threads"
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"cached", "plain"}


def test_the_limit_is_a_band_between_its_edges():
    ax = plot_speed([64, 128], {"cached": FAST}, LIMIT, title="t").axes[0]
    band = ax.collections[0].get_paths()[0].vertices
    assert {tuple(point) for point in band.tolist()} >= {(64.0, 12.0), (64.0, 20.0), (128.0, 11.0), (128.0, 18.0)}
    assert ax.get_ylim()[1] > 20 and any("limit" in text.get_text() for text in ax.texts)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_copied([1, 2], {}),
        lambda: plot_copied([1], {"a": [1]}),
        lambda: plot_copied([1, 2], {"a": [1]}),
        lambda: plot_copied([1, 2], {name: [1, 2] for name in "abcd"}),
        lambda: plot_speed([64, 128], {"cached": FAST[:1]}, LIMIT, title="t"),
        lambda: plot_speed([64, 128], {"cached": FAST}, ([1.0], [2.0, 2.0]), title="t"),
        lambda: plot_speed([64], {"cached": FAST[:1]}, ([1.0], [2.0]), title="t"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(InputError):
        draw()


def test_the_same_numbers_give_the_same_bytes():
    for make in (
        lambda: plot_copied([1, 2], {"a": [1, 2]}),
        lambda: plot_speed([64, 128], {"cached": FAST}, LIMIT, title="t"),
    ):
        assert style.png(make()) == style.png(make())
