"""Figures of memory draw the sums of `memory`, name every line, and the calculator says what its picture shows."""

import io
import itertools

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from kvcourse.errors import InputError, UnknownName
from kvcourse.memory import BUDGET_BYTES, DTYPES, format_bytes, in_words, kv_bytes, price
from kvcourse.model_shapes import SHAPES, Shape
from kvcourse.viz import draw_memory, memory_calculator, memory_plot, style, widgets
from kvcourse.viz.memory_plots import FIRST_TOKENS, SHOWN
from kvcourse.viz.memory_widget import BATCHES, CONTEXTS, _Controls

GIB = 1 << 30
LLAMA = SHAPES["llama-3.1-8b"]


def curves(figure: Figure) -> list[tuple[list, list]]:
    """The solid line of each model, in their order: lengths and bytes."""
    lines = [line for line in figure.axes[0].lines if line.get_markevery() is not None]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in lines]


def crosses(figure: Figure) -> list[tuple[float, float]]:
    return [tuple(np.ravel(line.get_data())) for line in figure.axes[0].lines if line.get_marker() == "x"]


def names(figure: Figure) -> dict[str, float]:
    """What stands right of the axes, and how high."""
    return {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts if text.get_position()[0] == 1.04}


def said(figure: Figure) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].texts]


def look(picture: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(picture))


# Lines.


@pytest.mark.parametrize("dtype", ["float16", "int4"])
def test_every_point_of_a_line_is_the_sum_for_its_length(dtype):
    drawn = curves(memory_plot(dtype=dtype, batch=3))
    assert len(drawn) == len(SHOWN)
    for name, (lengths, sizes) in zip(SHOWN, drawn, strict=True):
        shape = SHAPES[name]
        assert lengths[0] == FIRST_TOKENS and lengths[-1] == shape.context_tokens
        expected = [kv_bytes(shape, n, batch=3, dtype=dtype, window_tokens=shape.window_tokens) for n in lengths]
        assert sizes == expected


def test_a_line_goes_on_dotted_to_the_longest_context_of_all():
    ax = memory_plot(["gpt2", "llama-3.1-8b"]).axes[0]
    dotted = [line for line in ax.lines if line.get_linestyle() == ":"]
    assert (dotted[0].get_xdata()[0], dotted[0].get_xdata()[-1]) == (1024, 131_072)
    assert len(dotted[1].get_xdata()) == 1  # nothing beyond its own end
    assert ax.get_xscale() == ax.get_yscale() == "log" and ax.get_xlim() == (FIRST_TOKENS, 131_072)


def test_a_window_bends_its_line_where_it_is_full():
    (lengths, sizes), *_ = curves(memory_plot(["mistral-7b"]))
    full = lengths.index(4096)
    assert sizes[full] == sizes[-1] > sizes[full - 1]
    assert list(names(memory_plot(["mistral-7b"]))) == ["mistral-7b v0.1, with its window"]


def test_crosses_stand_where_the_budget_is_full():
    figure = memory_plot(["llama-2-7b", "llama-3.1-8b", "gpt2"], budget_bytes=4 * GIB)
    per_token = [kv_bytes(SHAPES[name], 1) for name in ("llama-2-7b", "llama-3.1-8b")]
    found = crosses(figure)  # GPT-2's stands beyond its context, on the dotted part, at 4 GiB / 36 KiB
    expected = [*(4 * GIB / n for n in per_token), 4 * GIB / kv_bytes(SHAPES["gpt2"], 1)]
    np.testing.assert_allclose([x for x, _ in found], expected)
    assert all(y == 4 * GIB for _, y in found) and "4.0 GiB" in said(figure)
    assert crosses(memory_plot(["gpt2"], budget_bytes=1 << 40)) == []


def test_the_budget_is_always_in_the_picture():
    for budget in (1 << 20, 80 * GIB, 1 << 45):
        ax = memory_plot(["gpt2"], budget_bytes=budget).axes[0]
        low, high = ax.get_ylim()
        assert low < budget < high


@pytest.mark.parametrize("models", [SHOWN, tuple(SHAPES), ("gpt2",)])
def test_every_line_has_its_name_beside_it_and_no_two_overlap(models):
    figure = memory_plot(models)
    assert len(names(figure)) == len(models)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_position()[0] == 1.04]
    boxes.sort(key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))
    assert all(box.x1 <= figure.bbox.x1 and 0 <= box.y0 and box.y1 <= figure.bbox.y1 for box in boxes)


def test_ticks_are_round_in_units_of_1024():
    figure = memory_plot()
    figure.draw_without_rendering()
    (ax,) = figure.axes
    assert {"32 MiB", "1 GiB", "32 GiB"} <= {label.get_text() for label in ax.get_yticklabels()}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["128", "512", "2,048", "8,192", "32,768", "131,072"]


def test_what_cannot_be_drawn_is_refused():
    for models in ([], ["gpt2", "gpt2"], ["smollm2", "smollm2-135m"]):
        with pytest.raises(InputError, match="each once"):
            memory_plot(models)
    with pytest.raises(UnknownName, match="gpt2"):
        memory_plot(["gpt-2"])
    with pytest.raises(InputError, match="dtype"):
        memory_plot(dtype="fp8")


# Bars.


def test_bars_are_as_long_as_the_sums():
    memory = price(LLAMA, 8192, batch=4)
    bars = draw_memory(memory).axes[0].patches
    whole = [(bar.get_x(), bar.get_width()) for bar in bars]
    weights = memory.weight_bytes
    assert whole == [(0, weights), (weights, 4 * GIB), (0, weights), (weights, 16 * GIB)]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars[:2]] == [style.PARAMETER.fill, style.ACTIVATION.fill]
    words = said(draw_memory(memory))
    assert {"W", "A", "weights 15.0 GiB", "K and V 4.0 GiB", "K and V 16.0 GiB", "24.0 GiB"} <= set(words)


def test_a_model_without_shared_heads_has_one_row():
    assert len(draw_memory(price(SHAPES["gpt2"])).axes[0].patches) == 2


def test_unknown_weights_are_said_to_be_unknown():
    figure = draw_memory(price(Shape("x", 2, 2, 2, 4, 64, None, "here")))
    assert "weights unknown" in said(figure)


@pytest.mark.parametrize("name", SHAPES)
def test_nothing_is_cut_off_and_no_words_overlap_whatever_the_sizes(name):
    for batch, budget in ((1, GIB), (256, 24 * GIB)):
        figure = draw_memory(price(SHAPES[name], batch=batch, budget_bytes=budget))
        figure.draw_without_rendering()
        (ax,) = figure.axes
        assert ax.get_xlim()[1] > max(bar.get_x() + bar.get_width() for bar in ax.patches)
        boxes = [text.get_window_extent() for text in ax.texts if text.get_text() not in ("W", "A")]
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
        assert 3 <= len(ax.get_xticks()) <= 9


# The calculator.


@pytest.fixture
def controls() -> _Controls:
    return _Controls(BUDGET_BYTES)


def test_it_starts_with_a_known_sum(controls):
    assert controls.memory == price(LLAMA, 8192)
    assert "1.0 GiB = 2 · 32 · 8 · 128 · 8,192 · 1 · 2 bytes." in controls.line.value
    np.testing.assert_array_equal(look(controls.picture.value), look(widgets.quick_png(draw_memory(price(LLAMA, 8192)))))


def test_each_choice_changes_the_sum_the_words_and_the_picture(controls):
    chosen = {"shape": LLAMA, "context_tokens": 8192}
    for part, value, change in (
        (controls.model, "mistral-7b", {"shape": SHAPES["mistral-7b"]}),
        (controls.context, 65_536, {"context_tokens": 65_536}),
        (controls.batch, 16, {"batch": 16}),
        (controls.dtype, "int8", {"dtype": "int8"}),
        (controls.window, 1024, {"window_tokens": 1024}),
        (controls.window, max(CONTEXTS), {"window_tokens": max(CONTEXTS)}),
    ):
        before = controls.picture.value
        part.value = value
        chosen |= change
        expected = price(**chosen)
        assert controls.memory == expected
        assert format_bytes(expected.kv_bytes) in controls.line.value and 'role="status"' in controls.line.value
        assert controls.picture.value != before
    assert expected.kept_tokens == 65_536  # "none" keeps every token of a model that has a window of its own


def test_all_models_dtypes_and_lengths_can_be_chosen(controls):
    assert [value for _, value in controls.model.options] == list(SHAPES)
    assert [value for _, value in controls.dtype.options] == list(DTYPES)
    assert [value for _, value in controls.batch.options] == list(BATCHES)
    assert controls.context.readout and controls.context.options == tuple((f"{n:,}", n) for n in CONTEXTS)
    assert max(CONTEXTS) == max(shape.context_tokens for shape in SHAPES.values())
    for part in (controls.model, controls.context, controls.batch, controls.dtype, controls.window):
        assert part.tooltip and part.description


def test_it_leaves_a_figure_and_its_words():
    live, figure = memory_calculator(budget_bytes=80 * GIB), memory_calculator(budget_bytes=80 * GIB, static=True)
    memory = price(LLAMA, 8192, budget_bytes=80 * GIB)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert live.words == repr(live) == " ".join(in_words(LLAMA, memory))
    assert style.png(live.draw()) == style.png(figure) == style.png(draw_memory(memory))
