"""The cache stepper shows what really ran: rows, queries, attention and counts are compared with runs of other code."""

import asyncio
import base64
import itertools
from dataclasses import replace

import nbformat
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.checkpoints import load_model
from kvcourse.config import GPTConfig, LlamaConfig
from kvcourse.errors import ContextOverflow, InputError
from kvcourse.generate import generate
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.trace import trace
from kvcourse.viz import cache_stepper, style, widgets
from kvcourse.viz.moments import Run, describe, describe_run, key_moments
from kvcourse.viz.recording import record_run
from kvcourse.viz.stepper import GONE, draw_moment, draw_run
from tools.notebooks.outputs import tidy, widget_fault

PROMPT = [3, 1, 4, 1, 5]
VIEW = "application/vnd.jupyter.widget-view+json"


def gpt() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=60, context_length=16, n_layer=2, n_head=2, n_embd=16)).eval()


def llama(n_layer: int = 2) -> Llama:
    torch.manual_seed(0)
    shape = {"vocab_size": 60, "context_length": 64, "n_embd": 48, "n_inner": 32}
    return Llama(LlamaConfig(**shape, n_layer=n_layer, n_head=6, n_kv_head=2)).eval()


@pytest.fixture(params=[gpt, llama], ids=["multi-head", "grouped-query"])
def model(request):
    return request.param()


@pytest.fixture(scope="module")
def run() -> Run:
    return record_run(gpt(), PROMPT, max_new_tokens=4)


def boxes(figure: Figure, slot: style.SlotStyle) -> int:
    """How many boxes of this state stand in the panels: all but the one in the key."""
    found = 0
    for part in figure.axes[0].collections:
        if isinstance(part, PatchCollection) and np.allclose(part.get_edgecolor()[0], to_rgba(slot.edge)):
            same = part.get_linewidth()[0] == slot.width and np.allclose(part.get_facecolor()[0], to_rgba(slot.face))
            found += len(part.get_paths()) if same else 0
    return found


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


# What is recorded.


@pytest.mark.parametrize("kind", ["preallocated", "growing"])
def test_every_moment_holds_the_rows_that_a_model_without_a_cache_computes(model, kind):
    run = record_run(model, PROMPT, max_new_tokens=4, cache=kind)
    out = generate(model, PROMPT, max_new_tokens=4, cache=None)
    assert run.texts == tuple(map(str, PROMPT + out.tokens))
    for moment in run.moments:
        assert not np.isfinite(moment.k[:, :, moment.length :]).any() and not np.isfinite(moment.v[:, :, moment.length :]).any()
        if not moment.length:
            continue
        whole = trace(model, (PROMPT + out.tokens)[: moment.length])
        T = moment.q.shape[2]
        for layer in range(2):
            q, k, v, pattern = (whole[f"blocks.{layer}.attn.{name}"][0].numpy() for name in ("q", "k", "v", "pattern"))
            np.testing.assert_allclose(moment.k[layer, :, : moment.length], k, atol=1e-6)
            np.testing.assert_allclose(moment.v[layer, :, : moment.length], v, atol=1e-6)
            np.testing.assert_allclose(moment.q[layer], q[:, moment.length - T :], atol=1e-6)
            if T:
                np.testing.assert_allclose(moment.weights[layer], pattern[:, -1], atol=1e-6)
    assert [moment.q.shape[2] for moment in run.moments] == [0, 5, 1, 1, 1, 0]


def test_counts_are_those_of_generate_with_and_without_a_cache(model):
    run = record_run(model, PROMPT, max_new_tokens=4)
    assert [moment.tokens for moment in run.moments] == [0, 5, 6, 7, 8, 8]
    assert [moment.tokens_recomputed for moment in run.moments] == [0, 5, 11, 18, 26, 26]
    assert run.moments[-1].tokens == generate(model, PROMPT, max_new_tokens=4).cost.tokens
    assert run.moments[-1].tokens_recomputed == generate(model, PROMPT, max_new_tokens=4, cache=None).cost.tokens


def test_slots_are_empty_then_written_then_held(run):
    kinds = [(moment.kind, "".join(state[0] for state in moment.states)) for moment in run.moments]
    assert kinds == [
        ("empty", "eeeeeeeee"),
        ("prefill", "wwwwweeee"),
        ("decode", "hhhhhweee"),
        ("decode", "hhhhhhwee"),
        ("decode", "hhhhhhhwe"),
        ("end", "hhhhhhhhe"),
    ]


def test_a_cache_of_your_own_is_filled_and_one_in_use_is_refused():
    model, cache = gpt(), PreallocatedCache(10)
    run = record_run(model, PROMPT, max_new_tokens=2, cache=cache)
    assert cache.length == 6 and run.capacity == 10 and len(run.moments[0].states) == 10
    with pytest.raises(InputError, match=r"empty cache.*length 0.*6"):
        record_run(model, PROMPT, cache=cache)


def test_only_some_slots_of_a_large_buffer_are_drawn_and_the_rest_are_named():
    run = record_run(gpt(), PROMPT, max_new_tokens=2, cache=PreallocatedCache(1000))
    assert len(run.moments[0].states) == 10
    assert any("990 more empty slots are not drawn" in text for text in words(draw_moment(run, 0)))


def test_of_many_layers_four_are_drawn_unless_others_are_asked_for():
    assert record_run(llama(n_layer=9), PROMPT, max_new_tokens=1).layers == (0, 3, 5, 8)
    chosen = record_run(llama(n_layer=9), PROMPT, max_new_tokens=1, layers=[7])
    assert chosen.layers == (7,) and chosen.moments[1].k.shape[0] == 1 and "layers 7 of 9" in describe_run(chosen)
    for wrong in ([], [9], [-1]):
        with pytest.raises(InputError, match="0 to 8"):
            record_run(llama(n_layer=9), PROMPT, layers=wrong)


def test_a_run_past_the_context_is_refused():
    with pytest.raises(ContextOverflow):
        record_run(gpt(), PROMPT, max_new_tokens=13)
    assert record_run(gpt(), PROMPT, max_new_tokens=12).moments[-1].length == 16


# What is drawn.


def test_boxes_say_which_slots_are_held_written_and_empty(run):
    figure = draw_moment(run, 3, head=1)
    assert boxes(figure, style.SLOTS["held"]) == 6 * 2 * 2 + 1  # slots · (K, V) · layers, and one in the key
    assert boxes(figure, style.SLOTS["written"]) == 1 * 2 * 2
    assert boxes(figure, style.SLOTS["empty"]) == 2 * 2 * 2 + 1
    before = draw_moment(run, 0)
    assert boxes(before, style.SLOTS["empty"]) == 9 * 2 * 2 + 1 and boxes(before, style.SLOTS["written"]) == 0


def test_every_query_is_crossed_out_once_its_pass_is_over(run):
    for index, gone in enumerate([0, 0, 5, 6, 7, 8]):
        figure = draw_moment(run, index)
        (crosses,) = (part for part in figure.axes[0].collections if isinstance(part, LineCollection))
        assert len(crosses.get_segments()) == 2 * (gone * 2 + 1)  # two strokes · (layers, and one in the key)
        assert boxes(figure, GONE) == gone * 2 + 1


def test_a_growing_cache_has_no_empty_slots():
    run = record_run(gpt(), PROMPT, max_new_tokens=4, cache=GrowingCache())
    assert boxes(draw_moment(run, 2), style.SLOTS["empty"]) == 0
    assert boxes(draw_moment(run, 2), style.SLOTS["held"]) == 5 * 2 * 2 + 1


@pytest.mark.parametrize("head", [0, 1])
def test_strips_are_the_real_values_of_the_chosen_head_and_all_its_queries(model, head):
    run = record_run(model, PROMPT, max_new_tokens=3)
    moment, group = run.moments[2], run.group
    drawn = [image.get_array() for image in draw_moment(run, 2, head).axes[0].images]
    expected = []
    for layer in range(2):
        expected += [moment.k[layer, head, :6], moment.v[layer, head, :6]]
        expected += [moment.q[layer, head * group : (head + 1) * group, 0]]
    assert len(drawn) == len(expected)
    for image, vectors in zip(drawn, expected, strict=True):
        columns = image.reshape(image.shape[0], -1, 10)  # ten parts a slot, of which the middle six show the numbers
        assert columns.mask[:, :, [0, 1, 8, 9]].all() and not columns.mask[:, :, 2:8].any()
        for part in range(2, 8):
            np.testing.assert_array_equal(columns[:, :, part].data.T, vectors)


def test_bars_are_the_attention_of_the_last_query_on_one_scale(model):
    run = record_run(model, PROMPT, max_new_tokens=3)
    for index in (1, 2, 3):
        heights = [-bar.get_height() for bar in draw_moment(run, index, head=1).axes[0].patches]
        bars = np.array(heights[2:]).reshape(2, run.group, -1)  # the first two are the counts
        shown = run.moments[index].weights[:, run.group : 2 * run.group]
        np.testing.assert_allclose(bars / bars.max() * shown.max(), shown, rtol=1e-6)
    tallest = [max(-bar.get_height() for bar in draw_moment(run, i, h).axes[0].patches[2:]) for i in (1, 2, 3) for h in (0, 1)]
    shares = [run.moments[i].weights[:, h * run.group : (h + 1) * run.group].max() for i in (1, 2, 3) for h in (0, 1)]
    np.testing.assert_allclose(np.array(tallest) / tallest[0], np.array(shares) / shares[0], rtol=1e-6)


def test_count_bars_have_the_length_of_their_counts(run):
    for index, moment in enumerate(run.moments):
        figure = draw_moment(run, index)
        with_cache, without = (bar.get_width() for bar in figure.axes[0].patches[:2])
        assert {str(moment.tokens), str(moment.tokens_recomputed)} <= set(words(figure))
        assert with_cache * moment.tokens_recomputed == pytest.approx(without * moment.tokens)


def test_the_token_that_was_chosen_waits_below_the_next_slot():
    tiny = load_model("tiny")
    ids = tiny.tokenizer.encode("ana is in the garden")
    run = record_run(tiny, ids, max_new_tokens=2)
    waiting = [text.get_text() for text in draw_moment(run, 1).axes[0].texts if text.get_fontstyle() == "italic"]
    assert waiting == [run.texts[5]] and run.texts[:5] == ("ana", "is", "in", "the", "garden")
    waiting = [text.get_text() for text in draw_moment(run, 0).axes[0].texts if text.get_fontstyle() == "italic"]
    assert waiting == list(run.texts[:5])


def test_the_static_figure_shows_prefill_and_decode_1_2_and_last_with_their_counts():
    run = record_run(gpt(), PROMPT, max_new_tokens=6)
    assert key_moments(run) == [1, 2, 3, 6]
    shown = words(draw_run(run))
    assert [text for text in shown if text.startswith(("Prefill", "Decode"))] == ["Prefill", "Decode 1", "Decode 2", "Decode 5"]
    for index in key_moments(run):
        moment = run.moments[index]
        assert f"{moment.tokens} with the cache" in shown and f"{moment.tokens_recomputed} recomputing all" in shown
    assert [key_moments(record_run(gpt(), PROMPT, max_new_tokens=n)) for n in (1, 2, 3)] == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("n", "said"), [(4, []), (5, ["not shown: decode 3"]), (6, ["not shown: decode 3 to 4"]), (8, ["not shown: decode 3 to 6"])]
)
def test_the_static_figure_says_which_steps_it_leaves_out(n, said):
    shown = words(draw_run(record_run(gpt(), PROMPT, max_new_tokens=n)))
    assert [text for text in shown if text.startswith("not shown")] == said


@pytest.mark.parametrize("prompt_tokens", [1, 45])
def test_nothing_is_drawn_outside_the_figure_and_no_two_tokens_overlap(prompt_tokens):
    run = record_run(llama(), list(range(10, 10 + prompt_tokens)), max_new_tokens=3)
    for figure in (draw_moment(run, 1), draw_run(run)):
        frame = figure.bbox
        texts = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
        assert all(box.x0 >= 0 and box.x1 <= frame.width and box.y0 >= 0 and box.y1 <= frame.height for box in texts)
        assert [(a, b) for a, b in itertools.combinations(texts, 2) if a.shrunk(0.9, 0.8).overlaps(b.shrunk(0.9, 0.8))] == []


def test_the_same_run_gives_the_same_bytes(run):
    assert style.png(draw_moment(run, 2)) == style.png(draw_moment(run, 2))


def test_moments_and_heads_that_do_not_exist_are_refused(run):
    for index, head in ((-1, 0), (6, 0), (0, -1), (0, 2)):
        with pytest.raises(InputError, match="No such"):
            draw_moment(run, index, head)


# What is said.


def test_words_tell_what_happens(run):
    assert describe(run, 0) == ("Before: the prompt waits", "All 9 slots are empty.", "5 tokens will go in.")
    title, written, chosen = describe(run, 2)
    assert title == f"Decode 1: “{run.texts[5]}” goes in" and "1 column" in written and "reads 6 keys" in written
    assert chosen == f"Chosen next: “{run.texts[6]}”."
    assert "it has no K and V yet" in describe(run, 5)[2]
    assert "8 tokens with the cache, 26 with the recompute loop" in describe_run(run)


def test_a_line_break_in_a_token_stays_on_one_line(run):
    odd = replace(run, texts=(*run.texts[:5], "a\n$x$\t", *run.texts[6:]))
    assert describe(odd, 2)[0] == "Decode 1: “a\\n$x$\\t” goes in"
    draw_moment(odd, 2).canvas.draw()


# What can be clicked.


class Controls:
    def __init__(self, live: widgets.Live) -> None:
        bar, self.words, self.picture = live.widget.children
        self.play, self.back, self.forth, self.slider, self.heads = bar.children


def test_slider_buttons_and_head_choose_the_picture_and_its_words(run):
    ui = Controls(widgets.step_through(run))
    assert ui.picture.value == widgets.quick_png(draw_moment(run, 0, 0))
    ui.slider.value = 3
    assert ui.picture.value == widgets.quick_png(draw_moment(run, 3, 0)) and 'aria-live="polite"' in ui.words.value
    assert describe(run, 3)[1] in ui.words.value
    ui.heads.value = 1
    assert ui.picture.value == widgets.quick_png(draw_moment(run, 3, 1))
    ui.forth.click()
    assert ui.slider.value == 4 and ui.picture.value == widgets.quick_png(draw_moment(run, 4, 1))
    ui.slider.value = 0
    ui.back.click()
    assert ui.slider.value == 0
    ui.slider.value = 5
    ui.forth.click()
    assert ui.slider.value == 5


def test_every_control_has_a_name_for_screen_readers(model):
    ui = Controls(widgets.step_through(record_run(model, PROMPT, max_new_tokens=1)))
    assert all(part.tooltip for part in (ui.play, ui.back, ui.forth, ui.slider, ui.heads))
    names = [name for name, _ in ui.heads.options]
    expected = ["head 0", "head 1"] if model.config.n_head == 2 else ["K/V head 0, Q heads 0–2", "K/V head 1, Q heads 3–5"]
    assert names == expected


def test_play_runs_to_the_end_stops_and_starts_over(run, monkeypatch):
    monkeypatch.setattr(widgets, "PLAY_S", 0.01)

    async def play() -> None:
        ui = Controls(widgets.step_through(run))
        seen = []
        ui.slider.observe(lambda change: seen.append(change["new"]), "value")
        for start in (0, 5):  # from the beginning, and again from the end
            assert ui.slider.value == start
            ui.play.value = True
            assert ui.play.tooltip == "Pause"
            while ui.play.value:
                await asyncio.sleep(0.01)
            assert ui.slider.value == 5 and ui.play.tooltip == "Play"
        assert seen == [1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]
        ui.slider.value = 1
        ui.play.value = True
        ui.play.value = False
        await asyncio.sleep(0.1)
        assert ui.slider.value == 1

    asyncio.run(play())


def test_frames_are_drawn_once_and_ahead_of_time():
    drawn = []
    frames = widgets.Frames(lambda index, head: drawn.append((index, head)) or b"")

    async def wait() -> None:
        frames.ahead([(1, 0), (2, 0)])
        frames.ahead([(2, 0), (3, 0)])  # another wish replaces the first
        while len(drawn) < 2:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(wait(), 10))
    assert frames[2, 0] == b"" and drawn == [(2, 0), (3, 0)]
    frames.ahead([(4, 0)])  # without a loop: when asked for
    assert drawn == [(2, 0), (3, 0)] and frames[4, 0] == b"" and drawn[-1] == (4, 0)


def test_a_cell_keeps_a_figure_with_words_when_the_widget_is_gone(monkeypatch):
    shown = []
    monkeypatch.setattr(widgets, "display", lambda data, raw, metadata=None: shown.append((data, metadata)))
    live = cache_stepper(gpt(), PROMPT, max_new_tokens=3)
    live._ipython_display_()
    (view, _), (figure, about), (rules, _) = shown
    assert list(view) == [VIEW] and widgets.LIVE in live.widget._dom_classes
    assert figure["image/png"].startswith(b"\x89PNG") and figure["text/plain"] == about["image/png"]["alt"] == repr(live)
    assert "7 tokens with the cache" in repr(live) and repr(live) in rules["text/html"]
    assert f'<style class="{widgets.LIVE}-rules">' in rules["text/html"]


def test_the_builder_keeps_the_figure_and_drops_the_view(run):
    live = widgets.step_through(run)
    output = nbformat.v4.new_output
    picture = {"image/png": base64.b64encode(style.png(live.draw())).decode("ascii"), "text/plain": repr(live)}
    cell = nbformat.v4.new_code_cell("cache_stepper(model, ids)", metadata={"tags": ["volatile"]})
    cell.outputs = [output("display_data", data={VIEW: {"model_id": "x"}}), output("display_data", data=picture)]
    assert widget_fault(cell) is None
    tidy(cell)
    assert [sorted(kept.data) for kept in cell.outputs] == [["image/png", "text/plain"]]
