"""The layout editor: parts move by mouse and keyboard, hits and bill are those of the provider's replay, and all is drawn."""

import io
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from kvcourse.errors import InputError, UnknownName
from kvcourse.providers import replay_requests, rules_of
from kvcourse.viz import style, widgets
from kvcourse.viz.layout_picture import (
    BARS,
    CLOCK,
    DOCUMENTS,
    FIRST_ORDER,
    HISTORY,
    QUESTION,
    SYSTEM,
    TOOLS,
    PromptPart,
    bill_in_words,
    layout_in_words,
    plot_layouts,
    requests_of,
    shares_of,
    toggled,
)
from kvcourse.viz.layout_widget import BASE_PRICE, GAPS, PROVIDERS, _Controls, layout_editor

GOOD = (SYSTEM, TOOLS, DOCUMENTS, HISTORY, CLOCK, QUESTION)


def found(parts, provider="local", **options) -> list[int]:
    return [one.cached_tokens for one in replay_requests(requests_of(parts, **options), provider).counts]


def words(figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def look(picture: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(picture))


# What is sent, and what is found of it.


def test_each_request_has_the_sizes_of_its_parts():
    assert [len(one.tokens) for one in requests_of(GOOD, 3)] == [2190, 2190 + 180, 2190 + 2 * 180]
    assert [size for _, size in shares_of(GOOD, 0)] == [500, 700, 900, 30, 60]  # no history yet
    assert [size for _, size in shares_of(GOOD, 2)] == [500, 700, 900, 360, 30, 60]


def test_what_changes_in_front_costs_everything_and_behind_the_history_only_itself():
    assert found(FIRST_ORDER) == [0] * 5
    assert found(GOOD) == [0, 2100, 2280, 2460, 2640]


def test_a_question_right_behind_the_history_is_found_again_in_it():
    assert found((SYSTEM, HISTORY, QUESTION), n_requests=3) == [0, 560, 740]
    assert found((SYSTEM, HISTORY, QUESTION, CLOCK), n_requests=3) == [0, 560, 740]
    assert found((SYSTEM, HISTORY, CLOCK, QUESTION), n_requests=3) == [0, 500, 680]


def test_what_stands_behind_a_growing_part_moves_and_is_not_found():
    assert found((HISTORY, SYSTEM, QUESTION), n_requests=3) == [0, 0, 180]


def test_parts_that_change_are_others_each_time_and_a_rewritten_history_shares_nothing():
    changing = replace(TOOLS, kind="changing")
    assert found((SYSTEM, changing, QUESTION), n_requests=3) == [0, 500, 500]
    assert found((SYSTEM, replace(HISTORY, kind="changing"), QUESTION), n_requests=4) == [0, 500, 500, 500]


def test_marks_stand_behind_the_fixed_parts_in_front_behind_the_history_and_at_the_end():
    first, second = requests_of(GOOD, 2)
    assert first.marks == (2100, 2190) and second.marks == (2100, 2280, 2370)
    assert second.ends == (500, 1200, 2100, 2160, 2280, 2310, 2370)
    assert requests_of((QUESTION, SYSTEM), 1)[0].marks == (560,)
    assert found(GOOD, "anthropic") == [0, 2100, 2280, 2460, 2640]


def test_the_time_between_requests_reaches_the_provider():
    assert found(GOOD, "openai", gap_seconds=301.0) == [0] * 5
    assert found(GOOD, "openai:24h", gap_seconds=301.0)[1] == 2048


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_of_the_list_is_known_and_replayed(provider):
    assert rules_of(provider).name == provider
    assert sum(found(GOOD, provider)) > 0 == sum(found(FIRST_ORDER, provider))


def test_marking_a_part_the_other_way_and_back_changes_nothing_and_a_question_stays():
    for part in FIRST_ORDER:
        assert toggled(toggled(part)) == part
    assert toggled(SYSTEM).kind == toggled(HISTORY).kind == "changing" and toggled(CLOCK).kind == "fixed"
    assert toggled(QUESTION) == QUESTION


@pytest.mark.parametrize(
    "parts",
    [[], [SYSTEM, SYSTEM], [PromptPart("x", 0)], [PromptPart("x", 5000)], [HISTORY, SYSTEM, HISTORY],
     [HISTORY, PromptPart("log", 5, "growing")]],
)  # fmt: skip
def test_parts_that_make_no_prompt_are_refused(parts):
    with pytest.raises(InputError, match="make no prompt"):
        requests_of(parts)


# The figure.


def test_bars_are_as_long_as_what_was_found_and_what_was_computed():
    figure = plot_layouts({"good": GOOD}, n_requests=2)
    scale = BARS / 2370
    boxes = [box for box in figure.axes[0].patches if box.get_height() > 0.2]
    sizes = [(round(box.get_width() / scale), bool(box.get_hatch())) for box in boxes]
    first = [(500, False), (700, False), (900, False), (30, False), (60, False)]
    assert sizes == [*first, (500, True), (700, True), (900, True), (180, False), (30, False), (60, False)]


def test_a_part_that_is_found_in_part_is_drawn_in_two():
    figure = plot_layouts({"x": (SYSTEM, HISTORY, CLOCK, QUESTION)}, n_requests=3)
    boxes = [box for box in figure.axes[0].patches if box.get_height() > 0.2]
    scale = BARS / (500 + 360 + 90)
    assert [round(box.get_width() / scale) for box in boxes[-5:]] == [500, 180, 180, 30, 60]
    assert [bool(box.get_hatch()) for box in boxes[-5:]] == [True, True, False, False, False]


def test_the_figure_says_the_counts_the_bill_and_each_part_once_a_panel():
    said = words(plot_layouts({"a": FIRST_ORDER, "b": GOOD}, "openai", base_price=3.0))
    assert said.count("0 of 2,190") == 2 and "2,560 of 2,910" in said
    assert all(said.count(str(part)) == 2 for part in FIRST_ORDER)
    bill = replay_requests(requests_of(GOOD), "openai")
    assert bill_in_words(bill, 3.0) in said and f"{bill.cost * 3 / 1000:,.2f}" in bill_in_words(bill, 3.0)
    assert not plot_layouts({"a": GOOD}, "openai").axes[0].lines[-1].get_marker() == "v"
    assert "breakpoint" in words(plot_layouts({"a": GOOD}, "anthropic"))


def test_a_bill_that_grew_says_so():
    assert "25% more" in bill_in_words(replay_requests(requests_of(FIRST_ORDER), "anthropic"))
    assert "billed as 12,750 of 12,750 tokens, as much as without a cache" in bill_in_words(
        replay_requests(requests_of(FIRST_ORDER))
    )


@pytest.mark.parametrize("parts", [FIRST_ORDER, GOOD, FIRST_ORDER[::-1], (QUESTION, CLOCK, HISTORY, SYSTEM, TOOLS, DOCUMENTS)])
def test_no_two_words_overlap_and_none_is_cut_off(parts):
    figure = plot_layouts({"x": parts, "y": GOOD}, "anthropic", base_price=3.0)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert all(0 <= box.x0 and box.x1 <= figure.bbox.x1 and 0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def test_nothing_to_draw_and_an_unknown_provider_are_refused():
    with pytest.raises(InputError, match="nothing to draw"):
        plot_layouts({})
    with pytest.raises(UnknownName, match="no such provider"):
        plot_layouts({"x": GOOD}, "acme")


# The editor.


@pytest.fixture
def ui() -> _Controls:
    return _Controls()


def shown(ui, title, provider="openai", gap=60.0) -> None:
    expected = plot_layouts({title: ui.parts}, provider, gap_seconds=gap, base_price=BASE_PRICE)
    np.testing.assert_array_equal(look(ui.picture.value), look(widgets.quick_png(expected)))
    replayed = replay_requests(requests_of(ui.parts, gap_seconds=gap), provider)
    assert layout_in_words(ui.parts, replayed, BASE_PRICE).replace("≠", "") in ui.line.value.replace("&#x27;", "'")


def test_it_starts_with_the_clock_in_front_and_nothing_found(ui):
    assert tuple(ui.parts) == FIRST_ORDER and ui.order.value == "clock" and ui.place == 0
    assert "request by request: 0 of 2,190, 0 of 2,370" in ui.line.value and 'role="status"' in ui.line.value
    shown(ui, "openai, asked every minute")


def test_a_part_is_moved_to_the_end_step_by_step_and_stays_chosen(ui):
    for _ in range(4):
        ui.down.click()
        assert ui.order.value == "clock"
    assert [part.name for part in ui.parts] == ["system", "tools", "documents", "history", "clock", "question"]
    assert [name for _, name in ui.order.options] == [part.name for part in ui.parts]
    assert "2,560 of 2,910" in ui.line.value
    shown(ui, "openai, asked every minute")
    ui.up.click()
    assert ui.place == 3


def test_the_ends_of_the_list_are_the_ends(ui):
    ui.up.click()
    assert ui.place == 0 and not ui.up.disabled
    assert tuple(ui.parts) == FIRST_ORDER
    ui.order.value = "question"
    ui.down.click()
    assert tuple(ui.parts) == FIRST_ORDER


def test_a_part_is_marked_and_the_button_says_what_it_would_become(ui):
    assert ui.mark.description == "mark clock as fixed"
    ui.mark.click()
    assert ui.parts[0].kind == "fixed" and ui.mark.description == "mark clock as changing"
    assert "2,176 of 2,370" in ui.line.value  # in steps of 128
    ui.order.value = "history"
    assert ui.mark.description == "mark history as changing"
    ui.order.value = "question"
    assert ui.mark.disabled and ui.mark.description == "question always changes"


def test_provider_and_time_change_the_hits(ui):
    ui.mark.click()
    ui.provider.value = "anthropic"
    shown(ui, "anthropic, asked every minute", "anthropic")
    ui.gap.value = 600.0
    assert "0% found" in ui.line.value
    shown(ui, "anthropic, asked every 10 minutes", "anthropic", 600.0)
    ui.provider.value = "anthropic:1h"
    assert "0% found" not in ui.line.value


def test_every_control_has_a_name_and_a_tip(ui):
    parts = [ui.order, ui.up, ui.down, ui.mark, ui.provider, ui.gap]
    assert all(part.tooltip and part.description for part in parts)
    assert [value for _, value in ui.gap.options] == list(GAPS)


def test_it_leaves_a_figure_and_its_words():
    live, figure = layout_editor(), layout_editor(static=True)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert style.png(live.draw()) == style.png(figure)
    assert "0 of 2,910" in live.words and "2,560 of 2,910" in live.words
