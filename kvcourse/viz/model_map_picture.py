"""Lesson 04: the picture of a model map. Knows nothing about models or notebooks: it draws `model_map_parts.MapData`.

draw_map(data)                      # the map alone: what stands behind the buttons of the widget
draw_static(data, "k")              # the map, a tensor chosen on it, and that tensor's numbers: for pages that cannot run
"""

import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from kvcourse.viz import style
from kvcourse.viz.heat_map import Kind, draw_tensor
from kvcourse.viz.model_map_layout import (
    BLOCK,
    HEIGHT,
    LEFT_LANE,
    RIGHT_LANE,
    SPINE,
    WIDTH,
    Rect,
    arrows,
    bus,
    layout,
    row_top,
    stream,
)  # fmt: skip
from kvcourse.viz.model_map_parts import Box, MapData
from kvcourse.viz.plots import drawable

DETAIL = 3.4  # inches, of a tensor's picture
TINTS = {"W": "#DCDCFF", "A": "#DDF3DD", "Σ": "#FFF0C9"}
GREY = style.Role("not kept", "", "#F1F2F4", "#8A909C")
KEPT = style.SLOTS["held"]
LANES = (
    (LEFT_LANE, style.PARAMETER, "PARAMETERS", "in the file, the same for every prompt", "not kept: weights are in the model"),
    (
        RIGHT_LANE,
        style.ACTIVATION,
        "ACTIVATIONS",
        "computed just now, from these tokens",
        "the KV cache keeps K and V, nothing else",
    ),
)


def draw_map(data: MapData, *, keeps: bool = False) -> Figure:
    """keeps: mark what a KV cache keeps of this pass, and grey out everything else."""
    with style.use():
        fig = Figure(figsize=(WIDTH, HEIGHT), dpi=style.DPI)
        fig.set_layout_engine("none")
        _draw_on(fig.add_axes((0, 0, 1, 1)), data, keeps, None)
    return fig


def draw_static(data: MapData, key: str = "k", *, keeps: bool = False) -> Figure:
    """The map, and beside it the numbers of one tensor."""
    box = data.boxes[key]
    with style.use():
        fig = Figure(figsize=(WIDTH + DETAIL, HEIGHT), dpi=style.DPI)
        fig.set_layout_engine("none")
        _draw_on(fig.add_axes((0, 0, WIDTH / (WIDTH + DETAIL), 1)), data, keeps, key)
        ax = fig.add_axes((WIDTH / (WIDTH + DETAIL), 0, DETAIL / (WIDTH + DETAIL), 1))
        ax.set(xlim=(0, DETAIL), ylim=(HEIGHT, 0))
        ax.set_axis_off()
        y = _heading(ax, box, 0.3)
        for line in (box.made, *data.shapes(box), kept_words(box)):
            for piece in textwrap.wrap(line, 54):
                ax.text(0.1, y, piece, fontsize=8, va="center", parse_math=False)
                y += 0.16
            y += 0.05
        room = 0.5  # for what the colours mean, which is known when they are drawn
        meaning = draw_tensor(
            fig, (WIDTH + 0.05, HEIGHT - y - room - 3.3, DETAIL - 0.15, 3.3), box.value, data.texts, kind_of(box)
        )
        ax.text(0.1, y, textwrap.fill(meaning, 54), fontsize=8, va="top", color=style.MUTED, parse_math=False)
    return fig


def draw_detail(data: MapData, key: str) -> tuple[Figure, str]:
    """One tensor's numbers as a picture of their own, and what its colours mean."""
    box = data.boxes[key]
    with style.use():
        fig = Figure(figsize=(DETAIL, 3.5), dpi=style.DPI)
        fig.set_layout_engine("none")
        meaning = draw_tensor(fig, (0.05, 0.05, DETAIL - 0.15, 3.4), box.value, data.texts, kind_of(box))
    return fig, meaning


def kind_of(box: Box) -> Kind:
    if box.part.role is style.PARAMETER:
        return "weight"
    if box.part.key in ("scores", "pattern"):
        return "attention"
    if box.part.key == "totals":
        return "by head"
    return "heads" if box.value.dim() == 4 else "tokens"


def kept_words(box: Box) -> str:
    if box.kept:
        return "A KV cache keeps these numbers: later tokens will read them."
    if box.part.role is style.PARAMETER:
        return "Not in a KV cache: weights stay in the model."
    return f"Not in a KV cache: {box.part.gone}."


def kept_summary(data: MapData) -> str:
    """What the switch says."""
    return (
        f"Kept: K and V of all {data.n_layer} blocks, {data.kv_bytes:,} bytes for these {len(data.ids)} tokens. Not kept: "
        "Q (asks once), the attention matrix (scores), softmax (totals, pattern), every output (z … logits), and no weight."
    )


def _draw_on(ax: Axes, data: MapData, keeps: bool, chosen: str | None) -> None:
    ax.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    ax.set_axis_off()
    at = layout(box.part for box in data.boxes.values())
    _draw_lanes(ax, data, keeps)
    _draw_tokens(ax, data)
    _draw_block(ax, data)
    _draw_lines(ax, at, keeps)
    for key, box in data.boxes.items():
        _draw_box(ax, at[key], box, data.short(box), keeps)
    if chosen:
        _outline(ax, at[chosen])


def _draw_lanes(ax: Axes, data: MapData, keeps: bool) -> None:
    for (left, right), role, name, words, cache_words in LANES:
        tint = TINTS[role.chip] if not keeps else "#F7F8F9"
        _rounded(ax, Rect(left, 0.08, right - left, HEIGHT - 0.16), tint, "none", alpha=0.45)
        ink = role.text if not keeps else style.MUTED
        style.chip(ax, role, left + 0.2, 0.28, size=11)
        ax.text(left + 0.4, 0.28, name, fontsize=11, fontweight="bold", color=ink, va="center")
        ax.text(left + 0.1, 0.52, cache_words if keeps else words, fontsize=8, color=ink, va="center")
    style.chip(ax, style.AGGREGATE, 5.18, 0.28, size=9)
    ax.text(5.36, 0.28, "aggregate: a sum", fontsize=8, color=style.AGGREGATE.text, va="center")


def _draw_tokens(ax: Axes, data: MapData) -> None:
    """The prompt: as many tokens as fit, with their ids."""
    left, y = RIGHT_LANE[0] + 0.1, 0.84
    end = RIGHT_LANE[1] - 0.1
    x = left
    for place, (text, token) in enumerate(zip(data.texts, data.ids, strict=True)):
        shown = drawable(text) if len(text) <= 10 else drawable(text[:9]) + "…"
        width = max(0.072 * len(shown), 0.065 * len(str(token))) + 0.1
        if x + width > end - (0.3 if place + 1 < len(data.ids) else 0):
            ax.text(x + 0.03, y, f"… {len(data.ids)} in all", fontsize=7, va="center", color=style.MUTED)
            break
        _rounded(ax, Rect(x, y - 0.16, width, 0.34), "#FFFFFF", style.MUTED)
        ax.text(x + width / 2, y - 0.06, shown, ha="center", va="center", fontsize=8, parse_math=False)
        ax.text(x + width / 2, y + 0.09, str(token), ha="center", va="center", fontsize=6.5, color=style.MUTED)
        x += width + 0.05
    words = f"tokens (1, {len(data.ids)}): their ids choose rows of the table"
    ax.text(left + 0.22, y + 0.31, words, fontsize=7.5, va="center")
    enters = row_top("embed") + 0.06
    _draw_arrows(ax, [[(left + 0.12, y + 0.2), (left + 0.12, enters), (left + 0.18, enters)]], "#6B7280", 1.0)


def _draw_block(ax: Axes, data: MapData) -> None:
    _rounded(ax, BLOCK, "none", style.INK, linewidth=1.0, linestyle=(0, (4, 2)))
    top, bottom = row_top("ln1") - 0.2, BLOCK.bottom + 0.11
    title = f"block {data.layer} of 0 … {data.n_layer - 1}" if data.n_layer > 1 else "block 0, the only one"
    ax.text(0.2, top, title, fontsize=8.5, fontweight="bold", va="center")
    ax.text(LEFT_LANE[1] - 0.1, top, f"{data.block}. …", fontsize=7, color=style.PARAMETER.text, va="center", ha="right")
    ax.text(RIGHT_LANE[0] + 0.1, top, f"{data.traced}. …", fontsize=7, color=style.ACTIVATION.text, va="center")
    before, after = data.layer, data.n_layer - 1 - data.layer
    for y, count, where in ((top, before, "before"), (bottom, after, "after")):
        if count:
            words = f"{count} block{'s' if count > 1 else ''} like it {where}"
            ax.text(5.95, y, words, fontsize=7, ha="right", va="center", color=style.MUTED)
            for step in range(min(count, 4)):
                ax.plot(
                    [SPINE - 0.12, SPINE + 0.12], [y - 0.06 + 0.04 * step] * 2, color=style.MUTED, linewidth=1.2, linestyle="-"
                )


def _draw_lines(ax: Axes, at: dict[str, Rect], keeps: bool) -> None:
    color = "#C9CDD5" if keeps else "#6B7280"
    _draw_arrows(ax, arrows(at), color, 1.0)
    _draw_arrows(ax, stream(at), "#C9CDD5" if keeps else style.ACTIVATION.text, 2.2)
    ax.add_collection(LineCollection([bus(at)], colors=color, linewidths=1.0, zorder=1))
    for key in ("resid_mid", "resid_post"):
        center = (SPINE, at[key].y - 0.1)
        ax.add_patch(Circle(center, 0.075, facecolor="#FFFFFF", edgecolor=color, linewidth=1.0, zorder=4))
        ax.text(*center, "+", ha="center", va="center_baseline", fontsize=8, zorder=5, color=style.INK)


def _draw_box(ax: Axes, at: Rect, box: Box, short: str, keeps: bool) -> None:
    role = box.part.role
    kept, grey = keeps and box.kept, keeps and not box.kept
    ink = GREY.text if grey else style.INK if kept else role.text
    face = GREY.fill if grey else KEPT.face if kept else TINTS[role.chip]
    _rounded(ax, at, face, KEPT.edge if kept else ink, linewidth=2.6 if kept else 1.2, zorder=2)
    upper, lower = at.y + 0.12, at.y + 0.28
    chip = style.Role(role.name, role.chip, role.fill, ink if grey else role.text)
    style.chip(ax, chip, at.x + 0.13, upper, size=6.5, zorder=3)
    how: dict[str, Any] = {"va": "center", "color": ink, "parse_math": False, "zorder": 3}
    shape = str(box.shape) if not grey else ""
    if role is style.PARAMETER:
        ax.text(at.x + 0.26, upper, box.part.symbol, fontsize=8.5, fontweight="bold", **how)
        ax.text(at.right - 0.06, upper, shape, fontsize=7, ha="right", **how)
        name = short.rpartition(".")[2] if at.width < 1.1 else short  # a bias beside its weight
        ax.text(at.x + 0.06, lower, name, fontsize=6.5 if len(name) * 0.052 < at.width - 0.1 else 6.1, **how)
        return
    title = box.part.symbol if role is style.AGGREGATE else short
    ax.text(at.x + 0.25, upper, title, fontsize=7.5 if len(title) < 12 else 6.5, fontweight="bold", **how)
    line = "KEPT" if box.part.gone is None and kept else str(box.part.gone) if grey else shape
    ax.text(at.x + 0.06, lower, line, fontsize=7 if at.width > 0.9 else 6.5, fontweight="bold" if kept else "normal", **how)
    if box.part.key in ("q", "k", "v") and not keeps:
        ax.text(at.right - 0.08, upper, box.part.symbol, fontsize=11, fontweight="bold", ha="right", **how)


def _heading(ax: Axes, box: Box, y: float) -> float:
    """Chip, name and shape of the chosen tensor; returns where the next line stands."""
    role = box.part.role
    style.chip(ax, role, 0.22, y, size=10)
    ax.text(0.42, y, box.part.symbol, fontsize=12, fontweight="bold", color=role.text, va="center", parse_math=False)
    ax.text(DETAIL - 0.1, y, str(box.shape), fontsize=9, ha="right", va="center", parse_math=False)
    for piece in textwrap.wrap(box.full_name, 46):
        y += 0.2
        ax.text(0.1, y, piece, fontsize=8.5, color=role.text, va="center", parse_math=False)
    return y + 0.24


def _outline(ax: Axes, at: Rect) -> None:
    _rounded(ax, Rect(at.x - 0.03, at.y - 0.03, at.width + 0.06, at.height + 0.06), "none", style.INK, linewidth=2.4, zorder=6)


def _rounded(ax: Axes, at: Rect, face: str, edge: str, **how: Any) -> None:
    radius = 0.05
    box = f"round,pad=0,rounding_size={radius}"
    how = {"linewidth": 1.0, "zorder": 0, **how}
    ax.add_patch(FancyBboxPatch((at.x, at.y), at.width, at.height, boxstyle=box, facecolor=face, edgecolor=edge, **how))


def _draw_arrows(ax: Axes, lines: list[list[tuple[float, float]]], color: str, width: float) -> None:
    """Lines that end in a head, all at once: an annotation for each would take as long as the rest of the picture."""
    heads = []
    for *_, (x0, y0), (x1, y1) in lines:
        length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
        dx, dy = (x1 - x0) / length * 0.08, (y1 - y0) / length * 0.08
        heads.append([(x1, y1), (x1 - dx - dy / 2, y1 - dy + dx / 2), (x1 - dx + dy / 2, y1 - dy - dx / 2)])
    ax.add_collection(LineCollection(lines, colors=color, linewidths=width, capstyle="butt", zorder=1))
    ax.add_collection(PolyCollection(heads, facecolors=color, edgecolors="none", zorder=1.1))
