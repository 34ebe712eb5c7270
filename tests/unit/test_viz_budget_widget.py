"""The two gauges: the window never above 100 %, the account in tokens, and both follow every slider and list."""

import io

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from kvcourse.context.agent import replayed_tokens, run_agent, scripted
from kvcourse.errors import InputError
from kvcourse.ledger import Bill, Ledger, Prices, TurnCount
from kvcourse.viz import budget_gauges, style, widgets
from kvcourse.viz.budget_picture import LEFT, RIGHT, Reading, draw_gauges
from kvcourse.viz.budget_widget import (
    ANSWER,
    MOST_STEPS,
    POLICIES,
    RESULTS,
    SYSTEM,
    TASK,
    WINDOW,
    _Controls,
    price_lists,
    read_gauges,
)


@pytest.fixture(scope="module")
def controls() -> _Controls:
    return _Controls()


def look(picture: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(picture))


def said(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def reading(**change) -> Reading:
    whole = {"title": "t", "ledger": Ledger(100, [TurnCount(40, 0, 10), TurnCount(70, 50, 10)]), "bill": Bill(60, 5, 20.0),
             "replayed": 500}  # fmt: skip
    return Reading(**whole | change)


# What is read.


@pytest.mark.parametrize("prices", ["no cache", "anthropic"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_window_is_never_above_its_limit_and_the_account_adds_up(policy, prices):
    for n_steps, result in ((1, 50), (12, 3000), (MOST_STEPS, 700)):
        one = read_gauges(n_steps, result, policy, prices)
        assert 0 < one.ledger.share <= 1 and all(turn.occupancy <= WINDOW for turn in one.ledger)
        sums, totals = one.sums(), one.ledger.totals
        summaries = [sum(getattr(turn, f"{name}_tokens") for turn in one.summaries) for name in sums]
        assert list(sums.values()) == [a + b for a, b in zip(
            (totals.cached_tokens, totals.computed_tokens, totals.completion_tokens), summaries, strict=True)]  # fmt: skip
        assert (sums["cached"] == 0) == (prices == "no cache" or len(one.ledger) == 1)
        assert bool(one.stopped) == (len(one.ledger) < n_steps)


def test_a_run_that_does_not_fit_goes_as_far_as_it_can_and_no_further():
    one = read_gauges(MOST_STEPS, 700, "replay all", "openai")
    done = (WINDOW - SYSTEM - TASK - ANSWER) // (ANSWER + 700) + 1
    assert len(one.ledger) == done == 17 and f"Step {done + 1} does not fit" in one.stopped and one.stopped in one.in_words()
    assert f"{done} of {MOST_STEPS} steps" in one.title
    script = scripted(done, system=SYSTEM, task=TASK, answer=ANSWER, result=700)
    assert list(one.ledger) == list(run_agent(script, POLICIES["replay all"](), limit=WINDOW).ledger)
    assert one.replayed == replayed_tokens(script) + done * ANSWER == sum(one.sums().values())


@pytest.mark.parametrize("result", RESULTS)
def test_it_goes_to_the_last_step_that_fits(result):
    fit = (WINDOW - SYSTEM - TASK - ANSWER) // (ANSWER + result) + 1
    for n_steps in (1, fit - 1, fit, fit + 1, MOST_STEPS):
        n_steps = min(n_steps, MOST_STEPS)
        assert len(read_gauges(n_steps, result, "replay all").ledger) == min(fit, n_steps)


def test_a_bill_has_the_prices_that_are_named():
    lists = price_lists()
    assert lists["no cache"] == (Prices(1, 1, 5), False) and "local" not in lists and len(lists) >= 5
    for name, (prices, cached) in lists.items():
        one = read_gauges(30, 700, "compact near the limit", name)
        sums = one.sums()
        assert len(one.summaries) == 2  # and they are billed
        expected = sums["computed"] * prices.computed + sums["cached"] * prices.cached + sums["completion"] * prices.completion
        assert one.bill.total == pytest.approx(expected) and cached == (sums["cached"] > 0)
    with pytest.raises(KeyError):
        read_gauges(policy="forget all")


def test_only_the_window_is_told_in_percent():
    window, account, *_ = reading().in_words()
    assert "80 of 100 tokens, 80%" in window and "130 tokens = 50 cached + 60 computed + 20 written" in account
    assert "%" not in account
    percents = [text for text in said(draw_gauges(reading())) if "%" in text]
    assert percents == ["80 of 100 tokens · 80%"]


def test_nothing_to_show_is_refused():
    for wrong in ({"ledger": Ledger(100)}, {"replayed": 0}):
        with pytest.raises(InputError, match="Nothing to show"):
            reading(**wrong)


# The picture.


def test_bars_are_as_long_as_their_counts():
    ax = draw_gauges(reading(summaries=(TurnCount(100, 0, 5),))).axes[0]
    bars = [box for box in ax.patches if round(box.get_height(), 2) == 0.28 and box.get_fill()]
    widths = [round(box.get_width() / (RIGHT - LEFT), 4) for box in bars]
    assert widths == [0.8, 0.2, round(50 / 500, 4), round(160 / 500, 4), round(25 / 500, 4)]


def test_more_than_replaying_all_still_fits_the_picture():
    bars = draw_gauges(reading(replayed=100)).axes[0].patches
    assert max(box.get_x() + box.get_width() for box in bars) <= RIGHT + 1e-6


def test_the_lowest_panel_shows_the_window_after_each_step_under_its_limit():
    ax = draw_gauges(reading()).axes[1]
    tops, sides, _ = ax.patches[0].get_data()
    np.testing.assert_array_equal(tops, [50, np.nan, 80])  # nothing between two bars
    np.testing.assert_allclose(sides, [0.57, 1.43, 1.57, 2.43])
    assert ax.lines[0].get_ydata()[0] == 100 < ax.get_ylim()[1]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_words_overlap_and_nothing_is_cut_off(policy):
    for n_steps, result, prices in ((1, 50, "no cache"), (MOST_STEPS, 3000, "anthropic")):
        figure = draw_gauges(read_gauges(n_steps, result, policy, prices))
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.axes[0].texts]
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


# The controls.


def test_it_starts_with_thirty_steps_under_compaction(controls):
    start = _Controls()
    np.testing.assert_array_equal(look(start.picture.value), look(widgets.quick_png(draw_gauges(read_gauges()))))
    assert "6,850 of 16,000 tokens, 43%" in start.line.value and 'role="status"' in start.line.value


def test_each_slider_and_list_changes_words_and_picture(controls):
    chosen = {"n_steps": 30, "result": 700, "policy": "compact near the limit", "prices": "anthropic"}
    for part, value, change in (
        (controls.steps, 12, {"n_steps": 12}),
        (controls.result, 2000, {"result": 2000}),
        (controls.policy, "crop oldest", {"policy": "crop oldest"}),
        (controls.prices, "no cache", {"prices": "no cache"}),
    ):
        before = controls.picture.value
        part.value = value
        chosen |= change
        assert controls.reading.in_words() == read_gauges(**chosen).in_words()
        assert read_gauges(**chosen).in_words()[0] in controls.line.value and controls.picture.value != before


def test_everything_is_reached_and_named(controls):
    assert (controls.steps.min, controls.steps.max) == (1, MOST_STEPS)
    assert controls.result.readout and controls.result.options == tuple((f"{n:,}", n) for n in RESULTS)
    assert [value for _, value in controls.policy.options] == list(POLICIES)
    assert [value for _, value in controls.prices.options] == list(price_lists())
    for part in (controls.steps, controls.result, controls.policy, controls.prices):
        assert part.tooltip and part.description and part.keys


def test_it_leaves_a_figure_and_its_words():
    live, figure = budget_gauges(), budget_gauges(static=True)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert live.words == repr(live) == " ".join(read_gauges().in_words())
    assert style.png(live.draw()) == style.png(figure)
