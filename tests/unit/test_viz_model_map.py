"""The model map shows real tensors under their real names, and marks exactly what a KV cache keeps."""

import itertools

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from kvcourse.caches.growing import GrowingCache
from kvcourse.config import GPTConfig, LlamaConfig
from kvcourse.errors import InputError
from kvcourse.models.base import CausalLM
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.tiny import tiny_tokenizer
from kvcourse.trace import trace
from kvcourse.viz import model_map, style, widgets
from kvcourse.viz.heat_map import MOST, draw_tensor, furthest_from_0, grid_of
from kvcourse.viz.model_map_layout import HEIGHT, LEFT_LANE, RIGHT_LANE, WIDTH, Rect, arrows, bus, layout, stream
from kvcourse.viz.model_map_parts import MapData, Recording
from kvcourse.viz.model_map_picture import draw_detail, draw_map, draw_static, kept_summary
from kvcourse.viz.model_map_widget import _Controls, describe_box, describe_map

PROMPT = [3, 1, 4, 1, 5]


def gpt() -> GPT:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=60, context_length=16, n_layer=3, n_head=2, n_embd=16)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # new ones are 0 and 1, and would prove nothing
            if name.endswith("bias") or "ln_" in name:
                weight.add_(torch.randn_like(weight) * 0.2)
    return model


def llama() -> Llama:
    torch.manual_seed(0)
    shape = {"vocab_size": 60, "context_length": 64, "n_embd": 48, "n_inner": 32}
    return Llama(LlamaConfig(**shape, n_layer=3, n_head=6, n_kv_head=2)).eval()


def wide() -> Llama:
    """SmolLM2's widths: the longest names and shapes there are."""
    torch.manual_seed(0)
    return Llama(LlamaConfig(vocab_size=49152, n_layer=30, n_head=9, n_kv_head=3, n_embd=36, n_inner=1536)).eval()


@pytest.fixture(params=[gpt, llama], ids=["gpt", "llama"])
def model(request):
    return request.param()


def value(data: MapData, key: str) -> torch.Tensor:
    return data.boxes[key].value


# What stands on it.


def test_every_parameter_box_is_the_state_dicts_tensor_of_that_name_and_cut(model):
    state, data = model.state_dict(), Recording(model, PROMPT).at(1)
    boxes = [box for box in data.boxes.values() if box.part.role is style.PARAMETER]
    for box in boxes:
        tensor = eval(f"tensor{box.cut}", {"tensor": state[box.name]})  # the cut is Python, as a learner would type it
        assert box.shape == tuple(tensor.shape) and torch.equal(box.value, tensor), box.full_name
    elsewhere = tuple(f"{data.block[:-1]}{layer}." for layer in (0, 2))
    assert {box.name for box in boxes} == {name for name in state if not name.startswith(elsewhere)}


def test_the_three_cuts_of_a_fused_tensor_are_all_of_it():
    data = Recording(gpt(), PROMPT).at(2)
    fused = [data.boxes[key] for key in ("wq", "wk", "wv")]
    assert [box.full_name for box in fused] == [
        f"transformer.h.2.attn.c_attn.weight[:, {first}:{first + 16}]" for first in (0, 16, 32)
    ]
    assert torch.equal(torch.cat([box.value for box in fused], 1), gpt().state_dict()["transformer.h.2.attn.c_attn.weight"])
    assert data.boxes["bk"].full_name == "transformer.h.2.attn.c_attn.bias[16:32]"


@pytest.mark.parametrize("layer", [0, 2])
def test_every_activation_box_is_the_traces_tensor_and_none_is_missing(model, layer):
    named, data = trace(model, PROMPT), Recording(model, PROMPT).at(layer)
    boxes = [box for box in data.boxes.values() if box.part.role is style.ACTIVATION]
    for box in boxes:
        assert box.shape == tuple(named[box.name].shape) and torch.equal(box.value, named[box.name]), box.name
    assert len({box.name for box in boxes}) == len(boxes)
    assert {box.name for box in boxes} == {
        name for name in named if not name.startswith("blocks") or f"blocks.{layer}." in name
    }


def test_aggregates_are_what_norms_and_softmax_divide_by(model):
    data = Recording(model, PROMPT).at(1)
    sums = {key: box for key, box in data.boxes.items() if box.part.role is style.AGGREGATE}
    assert len(sums) == 3 and all(data.boxes[box.part.sources[0]].name in box.name for box in sums.values())
    scores = value(data, "scores")
    pattern = (scores - scores.amax(-1, keepdim=True)).exp() / value(data, "totals")[..., None]
    assert torch.allclose(pattern, value(data, "pattern"), atol=1e-6)
    for x, out, stats, gain, bias in (("resid_pre", "ln1", "1", "g1", "c1"), ("resid_mid", "ln2", "2", "g2", "c2")):
        if isinstance(model, GPT):
            mean, std = value(data, f"stats{stats}").unbind(-1)
            made = (value(data, x) - mean[..., None]) / std[..., None] * value(data, gain) + value(data, bias)
        else:
            made = value(data, x) / value(data, f"rms{stats}")[..., None] * value(data, gain)
        assert torch.allclose(made, value(data, out), atol=1e-5)


def heads(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.unflatten(-1, (count, -1)).transpose(1, 2)


def test_the_lines_that_say_what_made_a_gpts_tensors_are_true():
    boxes = Recording(gpt(), PROMPT).at(1).boxes
    x = {key: box.value for key, box in boxes.items()}
    z = x["z"].transpose(1, 2).flatten(2)
    lines = {
        "q": ("q = ln1 @ Wq + bq, cut into 2 heads of 8", heads(x["ln1"] @ x["wq"] + x["bq"], 2)),
        "k": ("k = ln1 @ Wk + bk, cut into 2 heads of 8", heads(x["ln1"] @ x["wk"] + x["bk"], 2)),
        "v": ("v = ln1 @ Wv + bv, cut into 2 heads of 8", heads(x["ln1"] @ x["wv"] + x["bv"], 2)),
        "z": ("z = pattern @ V", x["pattern"] @ x["v"]),
        "attn_out": ("attn_out = (the heads of z side by side) @ Wo + bo", z @ x["wo"] + x["bo"]),
        "resid_mid": ("resid_mid = resid_pre + attn_out", x["resid_pre"] + x["attn_out"]),
        "mlp.pre": ("mlp.pre = ln2 @ W1 + b1", x["ln2"] @ x["w1"] + x["b1"]),
        "mlp.post": ("mlp.post = gelu(mlp.pre)", torch.nn.functional.gelu(x["mlp.pre"], approximate="tanh")),
        "mlp_out": ("mlp_out = mlp.post @ W2 + b2", x["mlp.post"] @ x["w2"] + x["b2"]),
        "resid_post": ("resid_post = resid_mid + mlp_out", x["resid_mid"] + x["mlp_out"]),
        "logits": ("logits = ln_final @ unembedᵀ", x["ln_final"] @ x["head"].T),
    }
    for key, (line, made) in lines.items():
        assert boxes[key].made.startswith(line) and torch.allclose(made, x[key], atol=1e-5), key
    assert Recording(gpt(), PROMPT).at(0).boxes["resid_pre"].made == "resid_pre = embed + pos_embed"
    assert boxes["resid_pre"].made == "resid_pre = blocks.0.resid_post"
    assert boxes["head"].made == "the same tensor as transformer.wte.weight, under a second name"


def test_the_lines_that_say_what_made_a_llamas_tensors_are_true():
    boxes = Recording(llama(), PROMPT).at(1).boxes
    x = {key: box.value for key, box in boxes.items()}
    lines = {
        "v": ("v = ln1 @ Wvᵀ, 2 heads of 8: each serves 3 of Q's", heads(x["ln1"] @ x["wv"].T, 2)),
        "z": ("z = pattern @ V", x["pattern"] @ x["v"].repeat_interleave(3, 1)),
        "attn_out": ("attn_out = (the heads of z side by side) @ Woᵀ", x["z"].transpose(1, 2).flatten(2) @ x["wo"].T),
        "mlp.pre": ("mlp.pre = ln2 @ Wgᵀ", x["ln2"] @ x["wg"].T),
        "mlp.pre_linear": ("mlp.pre_linear = ln2 @ Wuᵀ", x["ln2"] @ x["wu"].T),
        "mlp.post": (
            "mlp.post = silu(mlp.pre) · mlp.pre_linear",
            torch.nn.functional.silu(x["mlp.pre"]) * x["mlp.pre_linear"],
        ),
        "mlp_out": ("mlp_out = mlp.post @ Wdᵀ", x["mlp.post"] @ x["w2"].T),
        "resid_post": ("resid_post = resid_mid + mlp_out", x["resid_mid"] + x["mlp_out"]),
    }
    for key, (line, made) in lines.items():
        assert boxes[key].made.startswith(line) and torch.allclose(made, x[key], atol=1e-5), key
    for key, weight in (("q", "wq"), ("k", "wk")):  # at position 0 nothing is rotated
        plain = heads(x["ln1"] @ x[weight].T, x[key].shape[1])
        assert boxes[key].made.startswith(f"{key} = rotate(ln1 @ W{key}ᵀ, by position)")
        assert torch.allclose(plain[:, :, 0], x[key][:, :, 0], atol=1e-5)
        assert not torch.allclose(plain[:, :, 1:], x[key][:, :, 1:], atol=1e-3)


def test_what_is_kept_is_k_and_v_and_takes_the_bytes_a_cache_holds(model):
    data, cache = Recording(model, PROMPT).at(1), GrowingCache()
    assert {box.name for box in data.boxes.values() if box.kept} == {"blocks.1.attn.k", "blocks.1.attn.v"}
    trace(model, PROMPT, cache)
    assert data.kv_bytes == cache.nbytes
    assert f"K and V of all 3 blocks, {cache.nbytes:,} bytes for these 5 tokens" in kept_summary(data)
    for word in ("Q", "attention matrix", "softmax", "output", "weight"):
        assert word in kept_summary(data).partition("Not kept:")[2]


def test_a_text_and_its_ids_give_the_same_map_and_what_cannot_be_drawn_is_refused():
    model = GPT(GPTConfig(vocab_size=148, context_length=16, n_layer=1, n_head=2, n_embd=16)).eval()
    with pytest.raises(InputError, match="no tokenizer"):
        Recording(model, "ana is")
    model.tokenizer = tiny_tokenizer()
    spoken, ids = Recording(model, "ana is").at(0), model.tokenizer.encode("ana is")
    assert spoken.texts == ("ana", "is") and list(spoken.ids) == ids
    assert torch.equal(spoken.boxes["k"].value, Recording(model, torch.tensor([ids])).at(0).boxes["k"].value)
    with pytest.raises(InputError, match=r"No such layer.*0 to 0"):
        Recording(model, ids).at(1)
    with pytest.raises(InputError, match="no token"):
        Recording(model, [])
    with pytest.raises(InputError, match="no map for this kind"):
        Recording(CausalLM(model.config), [1])


# Where it stands.


def test_no_boxes_overlap_and_each_stands_in_its_roles_lane(model):
    data = Recording(model, PROMPT).at(0)
    at = layout(box.part for box in data.boxes.values())
    assert at.keys() == data.boxes.keys()
    assert [(a, b) for a, b in itertools.combinations(at, 2) if at[a].overlaps(at[b])] == []
    for key, box in data.boxes.items():
        left, right = LEFT_LANE if box.part.role is style.PARAMETER else RIGHT_LANE
        assert left < at[key].x and at[key].right < right and 0 < at[key].y and at[key].bottom < HEIGHT, key


def test_no_line_runs_through_a_box(model):
    at = layout(box.part for box in Recording(model, PROMPT).at(0).boxes.values())
    inner = {key: Rect(r.x + 0.02, r.y + 0.02, r.width - 0.04, r.height - 0.04) for key, r in at.items()}
    for line in [*arrows(at), *stream(at), bus(at)]:
        for (x0, y0), (x1, y1) in itertools.pairwise(line):
            for share in np.linspace(0, 1, 200).tolist():
                point = Rect(x0 + share * (x1 - x0), y0 + share * (y1 - y0), 0, 0)
                assert [key for key, rect in inner.items() if rect.overlaps(point)] == [], line


@pytest.mark.parametrize(("make", "keeps"), [(gpt, False), (gpt, True), (llama, True), (wide, False)])
def test_words_fit_into_their_boxes_and_do_not_run_into_each_other(make, keeps):
    data = Recording(make(), PROMPT).at(2)
    figure = draw_map(data, keeps=keeps)
    figure.canvas.draw()
    ax = figure.axes[0]
    back = ax.transData.inverted()
    extents = []
    for text in ax.texts:
        box = text.get_window_extent()
        (x0, y1), (x1, y0) = back.transform([(box.x0, box.y0), (box.x1, box.y1)]).tolist()
        extents.append((text, Rect(x0, y0, x1 - x0, y1 - y0)))
        assert x0 > 0 and x1 < WIDTH and y0 > 0 and y1 < HEIGHT, text.get_text()
    for key, rect in layout(box.part for box in data.boxes.values()).items():
        inside = [(text, e) for text, e in extents if rect.overlaps(Rect(e.x, e.middle, 0.01, 0.001))]
        assert len(inside) >= 2, key
        assert [text.get_text() for text, e in inside if e.x < rect.x or e.right > rect.right] == [], key
        lines = [(text.get_text(), Rect(e.x, e.middle - 0.02, e.width, 0.04)) for text, e in inside]
        assert [(a, b) for (a, m), (b, n) in itertools.combinations(lines, 2) if m.overlaps(n)] == [], key


# How it looks.


def faces(figure: Figure) -> dict[str, int]:
    found: dict[str, int] = {}
    for patch in figure.axes[0].patches:
        if isinstance(patch, FancyBboxPatch) and patch.get_linewidth() > 1.1:
            color = "#{:02X}{:02X}{:02X}".format(*(round(255 * part) for part in patch.get_edgecolor()[:3]))
            found[color] = found.get(color, 0) + 1
    return found


def test_each_role_has_its_colour_and_its_chip(model):
    data = Recording(model, PROMPT).at(0)
    figure = draw_map(data)
    chips = [text.get_text() for text in figure.axes[0].texts]
    for role in style.ROLES:
        count = sum(box.part.role is role for box in data.boxes.values())
        assert faces(figure)[role.text] == count and chips.count(role.chip) == count + 1  # one in the heading


def test_the_switch_marks_k_and_v_and_greys_everything_else(model):
    data = Recording(model, PROMPT).at(0)
    figure = draw_map(data, keeps=True)
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert shown.count("KEPT") == 2 and {"Q asks once", "attention matrix", "softmax", "output"} <= set(shown)
    assert "not kept: weights are in the model" in shown
    assert faces(figure) == {style.SLOTS["held"].edge: 2, "#8A909C": len(data.boxes) - 2}


def test_other_blocks_are_counted_before_and_after():
    recording = Recording(gpt(), PROMPT)
    for layer, words in ((0, {"2 blocks like it after"}), (1, {"1 block like it before", "1 block like it after"})):
        shown = {text.get_text() for text in draw_map(recording.at(layer)).axes[0].texts}
        assert {text for text in shown if "like it" in text} == words


def test_the_same_map_gives_the_same_bytes():
    data = Recording(gpt(), PROMPT).at(0)
    assert style.png(draw_static(data)) == style.png(draw_static(data))


def test_a_long_prompt_says_how_many_tokens_it_has():
    data = Recording(llama(), list(range(40))).at(0)
    assert "… 40 in all" in [text.get_text() for text in draw_map(data).axes[0].texts]


# A tensor's numbers.


def test_heads_lie_side_by_side_as_the_model_lays_them_out():
    data = Recording(gpt(), PROMPT).at(1)
    grid = grid_of(value(data, "k"), "heads")
    side_by_side = value(data, "k")[0].transpose(0, 1).flatten(1)
    np.testing.assert_allclose(grid.panels[0][1], side_by_side.numpy())
    assert grid.cuts == (8,) and grid.row_tokens and not grid.column_tokens


def test_of_each_tile_the_number_furthest_from_0_is_drawn_and_nothing_is_lost():
    torch.manual_seed(0)
    matrix = torch.randn(7, 10)
    matrix[6, 9], matrix[0, 0], matrix[3, 5] = -9.0, torch.nan, -torch.inf
    pooled = furthest_from_0(matrix, (2, 3))
    assert pooled.shape == (4, 4) and pooled[3, 3] == -9 and np.isnan(pooled[0, 0]) and np.isneginf(pooled[1, 1])
    tile = matrix[0:2, 3:6]
    assert abs(pooled[0, 1]) == tile.abs().max() and pooled[0, 1] in tile
    assert (furthest_from_0(matrix[:2], (1, 1))[1] == matrix[1].numpy()).all()
    assert (furthest_from_0(-torch.ones(3, 3), (2, 2)) == -1).all()  # what fills up the last tile never shows


def test_a_tensor_larger_than_the_screen_is_drawn_in_tiles_and_says_so():
    figure = Figure(figsize=(3, 3))
    meaning = draw_tensor(figure, (0, 0, 3, 3), torch.ones(2 * MOST, 3), [], "weight")
    assert figure.axes[0].images[0].get_array().shape == (MOST, 3) and "furthest from 0 of 2×1" in meaning


def test_what_is_masked_or_broken_is_drawn_and_named():
    data = Recording(gpt(), PROMPT).at(0)
    figure, meaning = draw_detail(data, "scores")
    assert [ax.get_title() or ax.get_title("left") for ax in figure.axes] == ["head 0", "head 1"]
    assert (
        all(sum(patch.get_hatch() == "////" for patch in ax.patches) == 4 for ax in figure.axes) and "Hatched: −inf" in meaning
    )
    broken = torch.tensor([[1.0, torch.nan, torch.inf]])
    figure = Figure(figsize=(3, 3))
    meaning = draw_tensor(figure, (0, 0, 3, 3), broken, [], "weight")
    assert [patch.get_hatch() for patch in figure.axes[0].patches] == ["xx"] and "Crossed: NaN or infinity" in meaning


def test_zero_is_white_and_both_ends_are_equally_far(model):
    data = Recording(model, PROMPT).at(0)
    for key in ("wk", "g1", "k", "pattern", "totals", "ln1", "logits"):
        figure, meaning = draw_detail(data, key)
        for image in (image for ax in figure.axes for image in ax.images):
            low, high = image.get_clim()
            assert low == -high and f"±{high:.3g}" in meaning, key
        assert figure.axes, key


# What can be clicked.


def test_a_click_shows_the_tensor_and_what_made_it(model):
    ui = _Controls(Recording(model, PROMPT))
    assert ui.tensor.value == "k" and "k = " in ui.words.value
    for key in ("wk", "scores", "totals", "logits"):
        ui.map.buttons[key].click()
        assert ui.tensor.value == key and ui.numbers.value == widgets.quick_png(draw_detail(ui.data, key)[0])
        assert ui.words.value.startswith('<div role="status" aria-live="polite"') and ui.data.boxes[key].name in ui.words.value
        assert [k for k, button in ui.map.buttons.items() if "chosen" in button._dom_classes] == [key]


def test_the_words_name_every_source_with_its_shape():
    data = Recording(gpt(), PROMPT).at(1)
    words = describe_box(data, data.boxes["k"], "")
    for line in ("ln1: blocks.1.ln1 (1, 5, 16)", "Wk: transformer.h.1.attn.c_attn.weight[:, 16:32] (16, 16)"):
        assert line in words
    assert "Used for: blocks.1.attn.scores" in words and "A KV cache keeps these" in words
    assert "Used for: blocks.1.attn.k" in describe_box(data, data.boxes["wk"], "")


def test_the_layer_changes_names_and_numbers_but_not_the_choice():
    ui = _Controls(Recording(gpt(), PROMPT))
    first = ui.map.picture.value, ui.numbers.value
    ui.tensor.value = "v"
    ui.layer.value = 2
    assert ui.tensor.value == "v" and "blocks.2.attn.v" in ui.words.value and "blocks.2.attn.v" in ui.map.buttons["v"].tooltip
    assert ("A  blocks.2.attn.v", "v") in ui.tensor.options and ui.map.picture.value != first[0]
    ui.layer.value, ui.tensor.value = 0, "k"
    assert (ui.map.picture.value, ui.numbers.value) == first


def test_the_switch_changes_the_map_and_says_what_is_kept():
    ui = _Controls(Recording(gpt(), PROMPT))
    assert "Click a box" in ui.hint.value
    ui.keeps.value = True
    assert ui.map.picture.value == widgets.quick_png(draw_map(ui.data, keeps=True)) and "Kept: K and V" in ui.hint.value
    ui.keeps.value = False
    assert ui.map.picture.value == widgets.quick_png(draw_map(ui.data)) and "Click a box" in ui.hint.value


def test_every_box_is_a_button_with_a_name_in_the_order_of_the_path(model):
    ui = _Controls(Recording(model, PROMPT))
    for key, box in ui.data.boxes.items():
        assert ui.map.buttons[key].tooltip == f"{box.part.role.name} {box.full_name} {box.shape}"
    assert list(ui.map.buttons) == list(ui.data.boxes) == [key for _, key in ui.tensor.options]
    assert all(part.tooltip for part in (ui.layer, ui.tensor, ui.keeps))
    at, rules = layout(box.part for box in ui.data.boxes.values()), ui.map.widget.children[-1].value
    number = list(at).index("k")
    assert f".spot-{number}{{left:{at['k'].x / WIDTH:.3%};top:{at['k'].y / HEIGHT:.3%};" in rules


def test_the_figure_that_stays_is_the_static_one(model):
    live, figure = model_map(model, PROMPT), model_map(model, PROMPT, static=True)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert style.png(live.draw()) == style.png(figure)
    data = Recording(model, PROMPT).at(0)
    assert repr(live) == describe_map(data)
    assert all(f"{box.full_name} {box.shape}" in repr(live) for box in data.boxes.values())
