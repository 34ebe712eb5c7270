"""The attention viewer shows the patterns that a pass really had, and every row can be chosen."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

from kvcourse.config import GPTConfig, LlamaConfig
from kvcourse.errors import InputError
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.tiny import tiny_tokenizer
from kvcourse.trace import trace
from kvcourse.viz import attention_viewer, style, widgets
from kvcourse.viz.attention_picture import MOST_NUMBERS, WIDTH, Patterns, draw_attention, draw_head, draw_query, look, plan
from kvcourse.viz.attention_widget import _Controls, record_patterns
from kvcourse.viz.frames import Backdrop

TEXT = "ana is in the garden ."


def gpt() -> GPT:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=148, context_length=64, n_layer=3, n_head=2, n_embd=16)).eval()
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.weight.mul_(80)  # sharp enough that heads and rows differ
    model.tokenizer = tiny_tokenizer()
    return model


def llama() -> Llama:
    torch.manual_seed(0)
    shape = {"vocab_size": 148, "context_length": 64, "n_embd": 48, "n_inner": 32}
    model = Llama(LlamaConfig(**shape, n_layer=2, n_head=6, n_kv_head=2)).eval()
    model.tokenizer = tiny_tokenizer()
    return model


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("make", [gpt, llama])
def test_patterns_are_those_of_the_trace_for_every_layer_and_head(make):
    model = make()
    ids = model.tokenizer.encode(TEXT)
    patterns, named = record_patterns(model, TEXT), trace(model, ids)
    assert patterns.texts == ("ana", "is", "in", "the", "garden", ".")
    assert patterns.values.shape == (model.config.n_layer, model.config.n_head, 6, 6)
    for layer in range(model.config.n_layer):
        np.testing.assert_allclose(patterns.values[layer], named[f"blocks.{layer}.attn.pattern"][0].numpy())
    np.testing.assert_array_equal(patterns.values, record_patterns(model, ids).values)


def test_the_large_map_and_each_small_one_hold_the_patterns_drawn():
    patterns = record_patterns(gpt(), TEXT)
    figure = draw_attention(patterns, 1, 1, 3)
    drawn = [image.get_array().filled(0) for image in figure.axes[0].images]
    assert len(drawn) == 3  # two heads, and the chosen one again
    for values, expected in zip(drawn, (patterns.values[1, 0], patterns.values[1, 1], patterns.values[1, 1]), strict=True):
        np.testing.assert_allclose(values, expected)
    assert all(image.get_clim() == (-1, 1) for image in figure.axes[0].images)
    assert sum(patch.get_hatch() == "////" for patch in figure.axes[0].patches if isinstance(patch, Polygon)) == 3


def test_cells_and_bars_say_percent():
    patterns = record_patterns(gpt(), TEXT)
    row, shown = patterns.values[1, 0, 4], words(draw_attention(patterns, 1, 0, 4))
    assert all(f"{100 * share:.0f}" in shown for share in row[:5]) and all(f"{share:.0%}" in shown for share in row[:5])
    assert shown.count("later: masked") == 1 and "“garden” at position 4 looks at" in shown
    long = record_patterns(gpt(), list(range(MOST_NUMBERS + 1)))
    assert not any(text.isdigit() for text in words(draw_attention(long, 1, 0, 4)))


def test_one_line_says_whom_the_query_looks_at_and_adds_up_to_all():
    values = np.zeros((1, 1, 4, 4))
    values[0, 0, 3] = (0.05, 0.6, 0.1, 0.25)
    patterns = Patterns(("a", "b", "c", "d"), values)
    assert look(patterns, 0, 0, 3) == (
        "Layer 0, head 0: “d” at position 3 looks at “b” at 1 (60%), “d” at 3 (25%), “c” at 2 (10%), all others together 5%."
    )
    values[0, 0, 0, 0] = 1
    assert look(patterns, 0, 0, 0) == "Layer 0, head 0: “a” at position 0 looks at “a” at 0 (100%)."


def test_a_broken_number_is_crossed_not_hidden():
    patterns = record_patterns(gpt(), TEXT)
    patterns.values[0, 0, 3, 1] = np.nan
    figure = draw_attention(patterns, 0, 0, 2)
    assert sum(patch.get_hatch() == "xx" for patch in figure.axes[0].patches) == 2  # small and large


@pytest.mark.parametrize(("heads", "T"), [(1, 1), (2, 3), (9, 12), (32, 6), (4, 60)])
def test_heads_and_rows_stand_apart_and_inside_the_figure(heads, T):
    texts = tuple("a rather long one" if t % 2 else "b" for t in range(T))
    at = plan(Patterns(texts, np.tile(np.eye(T), (1, heads, 1, 1))))
    spots = [*at.thumbs, *at.rows]
    assert len(at.thumbs) == heads and len(at.rows) == T
    shrunk = [type(r)(r.x, r.y + 1e-9, r.width, r.height - 2e-9) for r in spots]  # rows touch
    assert [(a, b) for a, b in itertools.combinations(shrunk, 2) if a.overlaps(b)] == []
    assert all(0 <= r.x and r.right <= WIDTH and 0 <= r.y and r.bottom <= at.height for r in [*spots, at.map, at.bars])
    figure = draw_attention(Patterns(texts, np.tile(np.eye(T), (1, heads, 1, 1))), 0, 0, T - 1)
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
        assert inside, text.get_text()
    caption, title = (
        next(text.get_window_extent() for text in figure.axes[0].texts if part in text.get_text())
        for part in ("each row", "at position")
    )
    assert caption.x1 + 5 < title.x0 <= at.bars.x * figure.dpi + 1
    assert (
        title.x0 > at.bars.x * figure.dpi - 1 or title.x1 > (WIDTH - 0.25) * figure.dpi
    )  # only a long one begins further left


def test_a_head_that_is_drawn_once_serves_every_query_and_keeps_nothing_of_the_last_one():
    patterns = record_patterns(gpt(), TEXT)
    below = Backdrop(draw_head(patterns, 1, 0))
    for query in (5, 0, 3, 5):
        drawn = below.png(lambda ax, query=query: draw_query(ax, patterns, 1, 0, query))
        assert drawn == widgets.quick_png(draw_attention(patterns, 1, 0, query))


def test_a_click_on_a_head_or_a_row_chooses_it():
    patterns = record_patterns(gpt(), TEXT)
    ui = _Controls(patterns)
    assert (ui.layer.value, ui.head.value, ui.query.value) == (0, 0, 5)
    ui.picture.buttons["head", 1].click()
    ui.picture.buttons["query", 3].click()
    ui.layer.value = 1
    assert (ui.layer.value, ui.head.value, ui.query.value) == (1, 1, 3)
    assert ui.picture.picture.value == widgets.quick_png(draw_attention(patterns, 1, 1, 3))
    assert look(patterns, 1, 1, 3) in ui.line.value.replace("&quot;", '"') and 'aria-live="polite"' in ui.line.value
    assert all(button.tooltip for button in ui.picture.buttons.values())
    assert ui.picture.buttons["query", 3].tooltip == "Query 3: the" and ui.picture.buttons["head", 1].tooltip == "Head 1"
    assert all(part.tooltip for part in (ui.layer, ui.head, ui.query))


def test_the_figure_that_stays_is_the_static_one():
    model = gpt()
    live, figure = attention_viewer(model, TEXT), attention_viewer(model, TEXT, static=True)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert style.png(live.draw()) == style.png(figure)
    assert look(record_patterns(model, TEXT), 0, 0, 5) in repr(live)


def test_layers_heads_and_queries_that_do_not_exist_are_refused():
    patterns = record_patterns(gpt(), TEXT)
    for at, name in (((3, 0, 0), "layer"), ((0, 2, 0), "head"), ((0, 0, 6), "query"), ((-1, 0, 0), "layer")):
        with pytest.raises(InputError, match=f"No such {name}"):
            draw_attention(patterns, *at)
    with pytest.raises(InputError, match="No such head"):
        draw_head(patterns, 0, 2)
