"""Lesson 06: the picture of a cache that fills. Knows nothing about models, caches or notebooks: it draws a `moments.Run`.

    draw_moment(run, 2, head=0)     # one moment, large: what the widget shows
    draw_run(run, head=0)           # the moments that matter, side by side: for pages that cannot step

Every layer is a panel, every slot a column. From the top: the queries Q, the share of attention that the last one gives to
each key, the keys K, the values V. K and V stay where they were written; Q is crossed out as soon as its pass is over.

A picture is one pair of axes in inches, y downwards, and few artists: it is drawn while somebody waits.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kvcourse.viz import style
from kvcourse.viz.moments import Moment, Run, describe, key_moments
from kvcourse.viz.plots import drawable

WIDTH = 9.0  # inches, of both pictures: a notebook's column
LEFT, RIGHT = 1.5, 8.86  # of the slots
ROWS = {"Q": 0.55, "reads": 2.12, "K": 2.8, "V": 3.86}  # centres, in slot heights from a panel's top; of "reads" the base line
BAR, BOX, PANEL = 0.74, 0.92, 4.4  # the tallest bar, a slot, a panel
MEANS = {"Q": "asks, then goes", "reads": "attention", "K": "stays", "V": "stays"}
COMPUTED, RECOMPUTED = style.ACTIVATION, "#C4C8D0"
GONE = style.SlotStyle("thrown away", "#FFFFFF", "#9AA1AD", 0.8, line="dashed")
ASKING = style.SlotStyle("query", "#E6F6E6", style.ACTIVATION.text, 1.0, line="dashed")
LAST_ASKING = style.SlotStyle("query", "#E6F6E6", style.ACTIVATION.text, 2.0, line="dashed")


class _Sheet:
    """A figure of given inches. Boxes and lines are collected, and drawn together at the end."""

    def __init__(self, height: float) -> None:
        self.fig = Figure(figsize=(WIDTH, height), dpi=style.DPI)
        self.fig.set_layout_engine("none")
        self.ax: Axes = self.fig.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.ax.set_axis_off()
        self._boxes: dict[style.SlotStyle, list[Rectangle]] = defaultdict(list)
        self._crosses: list[Sequence[tuple[float, float]]] = []

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        self.ax.text(x, y, text, **{"va": "center", "parse_math": False, **how})

    def box(self, slot: style.SlotStyle, x: float, y: float, width: float, height: float) -> None:
        box = slot.patch(x, y, width, height)
        if slot.line == "dashed":
            box.set_linestyle((0, (2.4, 1.4)))  # matplotlib's own dashes are too long for a narrow column
        self._boxes[slot].append(box)
        if slot is GONE:
            dx, dy = width * 0.32, height * 0.32
            self._crosses += [[(x - dx, y - sign * dy), (x + dx, y + sign * dy)] for sign in (-1, 1)]

    def strips(self, values: Float[np.ndarray, "n D"], limit: float, x: float, y: float, pitch: float, height: float) -> None:
        """Vectors as columns of D colours, the first number on top; each fills 0.6 of a pitch, the first stands around x."""
        n, D = values.shape
        grid = np.full((D, n * 10), np.nan)
        for column, vector in enumerate(values):
            grid[:, column * 10 + 2 : column * 10 + 8] = vector[:, None]
        self.ax.imshow(
            np.ma.masked_invalid(grid), cmap=style.signed_cmap(), vmin=-limit, vmax=limit, interpolation="nearest",
            extent=(x - pitch / 2, x + (n - 0.5) * pitch, y + height / 2, y - height / 2), aspect="auto", zorder=3,
        )  # fmt: skip

    def finish(self) -> Figure:
        for slot, boxes in self._boxes.items():
            # Written slots lie on top: their outline must not be cut by a neighbour's.
            zorder = 2.5 if slot.state == "written" else 2
            self.ax.add_collection(PatchCollection(boxes, match_original=True, hatch=slot.hatch or None, zorder=zorder))
        self.ax.add_collection(LineCollection(self._crosses, colors=GONE.edge, linewidths=1.0, zorder=2.2))
        height = self.fig.get_figheight()
        self.ax.set(xlim=(0, WIDTH), ylim=(height, 0), aspect="auto")  # imshow moved them
        return self.fig


@dataclass(frozen=True)
class _Panel:
    """Where one layer is drawn, at one moment: inches, but for the number of slots."""

    x: float
    y: float
    width: float
    height: float
    slots: int

    @property
    def pitch(self) -> float:
        return self.width / max(self.slots, 1)

    @property
    def unit(self) -> float:
        return self.height / PANEL

    def column(self, slot: int | float) -> float:
        return self.x + (slot + 0.5) * self.pitch

    def row(self, name: str) -> float:
        return self.y + ROWS[name] * self.unit


def draw_moment(run: Run, index: int, head: int = 0) -> Figure:
    """One moment of a run, for one K/V head and the query heads that share it."""
    moment = run.at(index, head)
    slots = _slots(run)
    upright = _longest(run) * 0.088 < (RIGHT - LEFT) / slots
    below = 0.2 if upright else 0.06 + 0.078 * _longest(run)  # tokens below the slots
    panel, header = 1.5, 0.92
    height = header + panel * len(run.layers) + 0.1 + below + 0.86
    with style.use():
        sheet = _Sheet(height)
        for y, text, how in zip(
            (0.22, 0.49, 0.69), describe(run, index), ({"fontsize": 13, "fontweight": "bold"}, {}, {}), strict=True
        ):
            sheet.text(0.14, y, drawable(text), **how)
        _draw_counts(sheet, run, moment)
        for row, layer in enumerate(run.layers):
            at = _Panel(LEFT, header + row * panel, RIGHT - LEFT, panel - 0.14, slots)
            _draw_layer(sheet, run, moment, at, row, head)
            _name_rows(sheet, at, layer, run.head_lines(head), words=row == 0)
        _name_slots(sheet, run, moment, at, upright, 8.5)
        _draw_foot(sheet, run, height)
        return sheet.finish()


def draw_run(run: Run, head: int = 0) -> Figure:
    """The moments that matter, side by side, layers below each other."""
    chosen, slots = key_moments(run), _slots(run)
    gap, panel, header = 0.14, 1.16, 1.06
    width = (RIGHT - LEFT - gap * (len(chosen) - 1)) / len(chosen)
    height = header + panel * len(run.layers) + 0.16 + 0.07 * _longest(run) + 0.86
    with style.use():
        sheet = _Sheet(height)
        sheet.text(0.14, 0.22, "K and V stay. Each Q asks once, and goes.", fontsize=13, fontweight="bold")
        sheet.text(LEFT - 0.14, 0.73, "tokens through", ha="right", fontsize=8, color=style.MUTED)
        sheet.text(LEFT - 0.14, 0.87, "the model so far", ha="right", fontsize=8, color=style.MUTED)
        if left_out := [f"{index - 1}" for index in range(1, chosen[-1]) if index not in chosen]:
            said = f"not shown: decode {' to '.join(dict.fromkeys((left_out[0], left_out[-1])))}"
            sheet.text(RIGHT, 0.22, said, ha="right", fontsize=8, color=style.MUTED)
        for column, index in enumerate(chosen):
            moment, x = run.at(index, head), LEFT + column * (width + gap)
            name = "Prefill" if moment.kind == "prefill" else f"Decode {index - 1}"
            sheet.text(x + 0.02, 0.55, name, fontsize=10.5, fontweight="bold")
            sheet.text(x + 0.02, 0.73, f"{moment.tokens} with the cache", fontsize=8, color=COMPUTED.text, fontweight="bold")
            sheet.text(x + 0.02, 0.87, f"{moment.tokens_recomputed} recomputing all", fontsize=8)
            for row, layer in enumerate(run.layers):
                at = _Panel(x, header + row * panel, width, panel - 0.12, slots)
                _draw_layer(sheet, run, moment, at, row, head)
                if column == 0:
                    _name_rows(sheet, at, layer, run.head_lines(head), words=row == 0)
            _name_slots(sheet, run, moment, at, False, 7.5)
        _draw_foot(sheet, run, height)
        return sheet.finish()


def _draw_layer(sheet: _Sheet, run: Run, moment: Moment, at: _Panel, row: int, head: int) -> None:
    """One layer at one moment: four rows, a column for each slot."""
    height = BOX * at.unit
    for slot, state in enumerate(moment.states):
        for name in ("K", "V"):
            sheet.box(_thin(style.SLOTS[state], at.pitch), at.column(slot), at.row(name), at.pitch * 0.86, height)
    for name, rows, limit in (("K", moment.k, run.limit("k", row, head)), ("V", moment.v, run.limit("v", row, head))):
        held = rows[row, head, : moment.length]
        sheet.strips(held, limit, at.column(0), at.row(name), at.pitch, height * 0.8)
    T = moment.q.shape[2]
    for slot in range(moment.length):
        kind = GONE if slot < moment.length - T else LAST_ASKING if slot == moment.length - 1 else ASKING
        sheet.box(kind if kind is GONE else _thin(kind, at.pitch), at.column(slot), at.row("Q"), at.pitch * 0.86, height)
    if T:
        heads = slice(head * run.group, (head + 1) * run.group)
        _draw_queries(sheet, moment.q[row, heads], run.limit("q", row, head), moment.length - T, at)
        _draw_reads(sheet, moment.weights[row, heads], run.largest_share, at)


def _draw_queries(sheet: _Sheet, q: Float[np.ndarray, "group T D"], limit: float, first: int, at: _Panel) -> None:
    """The queries of this pass, in their dashed boxes; those that share a K/V head stand side by side."""
    group, T, _ = q.shape
    height = BOX * 0.8 * at.unit
    if group == 1:
        sheet.strips(q[0], limit, at.column(first), at.row("Q"), at.pitch, height)
        return
    pitch = at.pitch * 0.78 / group
    for t in range(T):
        x = at.column(first + t) - (group - 1) / 2 * pitch
        sheet.strips(q[:, t], limit, x, at.row("Q"), pitch, height)


def _draw_reads(sheet: _Sheet, weights: Float[np.ndarray, "group S"], limit: float, at: _Panel) -> None:
    """A bar over each key: its share of the last query's attention. All panels have one scale."""
    group, S = weights.shape
    base, width = at.row("reads"), 0.3 * at.pitch / group
    sheet.ax.plot([at.column(-0.43), at.column(S - 0.57)], [base, base], color=style.MUTED, linewidth=0.6, linestyle="-")
    offsets = (np.arange(group) - (group - 1) / 2)[:, None] * width  # (group, 1)
    x = at.column(0) + np.arange(S) * at.pitch + offsets  # (group, S)
    tall = weights / limit * BAR * at.unit
    sheet.ax.bar(x.ravel(), -tall.ravel(), width * (1 if group == 1 else 0.8), bottom=base, color=COMPUTED.text, linewidth=0)
    if at.pitch > 0.3:  # elsewhere the row below the picture names the tallest bar of all
        most = np.unravel_index(int(weights.argmax()), weights.shape)
        share = f"{weights[most]:.0%}"
        sheet.text(x[most], base - tall[most] - 0.015, share, ha="center", va="bottom", fontsize=7, color=COMPUTED.text)


def _thin(slot: style.SlotStyle, pitch: float) -> style.SlotStyle:
    """The same slot with an outline that suits a narrow column."""
    if pitch > 0.3 or slot.width < 1.5:
        return slot
    return style.SlotStyle(slot.state, slot.face, slot.edge, 1.6, slot.line, slot.hatch)


def _name_rows(sheet: _Sheet, at: _Panel, layer: int, heads: list[str], *, words: bool) -> None:
    """Left of a panel: the layer and head, and what each row is."""
    for name in ROWS:
        y = at.row(name) - (BAR / 2 * at.unit if name == "reads" else 0)
        if name != "reads":
            sheet.text(at.x - 0.1, y, name, ha="right", fontsize=10.5, fontweight="bold")
        if words:
            inset = 0.1 if name == "reads" else 0.28
            sheet.text(at.x - inset, y, MEANS[name], ha="right", fontsize=8, color=style.MUTED)
    y = at.row("K") - 0.04
    sheet.text(0.14, y, f"layer {layer}", fontsize=10, fontweight="bold")
    for line, text in enumerate(heads, 1):
        sheet.text(0.14, y + 0.03 + 0.14 * line, text, fontsize=8, color=style.MUTED)


def _name_slots(sheet: _Sheet, run: Run, moment: Moment, at: _Panel, upright: bool, size: float) -> None:
    """Below the last panel: positions, and the token in each slot. Grey and slanted: waiting to go in."""
    y = at.y + at.height + 0.1
    known = run.prompt_tokens if moment.kind == "empty" else moment.length + 1
    every = int(np.ceil(0.13 / at.pitch))  # more would overlap
    for slot in range(0, at.slots, every):
        sheet.text(at.column(slot), y, str(slot), ha="center", fontsize=size - 1, color=style.MUTED)
    how: dict[str, Any] = {"ha": "center", "va": "top", "rotation": 0 if upright else 90, "fontsize": size}
    for slot in range(0, min(known, at.slots), every):
        waits = slot >= moment.length
        look = {"color": style.MUTED if waits else style.INK, "fontstyle": "italic" if waits else "normal"}
        sheet.text(at.column(slot), y + 0.11, _short(run.texts[slot]), **how, **look)


def _draw_counts(sheet: _Sheet, run: Run, moment: Moment) -> None:
    """Top right: what has gone through the model, and what would have without a cache, on one scale."""
    x, scale = 6.3, 2.2 / max(run.moments[-1].tokens_recomputed, 1)
    sheet.text(x, 0.2, "tokens through the model so far", fontsize=8.5, color=style.MUTED)
    counts = (
        ("with the cache", moment.tokens, COMPUTED.fill, COMPUTED.text),
        ("recomputing all", moment.tokens_recomputed, RECOMPUTED, style.INK),
    )
    for y, (name, count, fill, ink) in zip((0.44, 0.69), counts, strict=True):
        sheet.ax.barh(y, count * scale, 0.18, left=x, color=fill, edgecolor=ink, linewidth=0.8)
        sheet.text(x + count * scale + 0.06, y, str(count), fontweight="bold", color=ink)
        sheet.text(x - 0.06, y, name, ha="right", fontsize=8.5, color=ink)


def _draw_foot(sheet: _Sheet, run: Run, height: float) -> None:
    """The three last lines: the axis, what outlines mean, and the two scales."""
    axis = "$s$  slot; here it is also the position in the text (tokens)"
    if run.capacity is not None and run.capacity > _slots(run):
        axis += f"; {run.capacity - _slots(run)} more empty slots are not drawn"
    sheet.text((LEFT + RIGHT) / 2, height - 0.75, axis, ha="center", fontsize=9, parse_math=True)
    y, x = height - 0.43, LEFT
    style.chip(sheet.ax, COMPUTED, 0.22, y, size=7.5)
    sheet.text(0.38, y, "activations", fontsize=8.5)
    used = {state for moment in run.moments for state in moment.states}
    for slot in [*(slot for state, slot in style.SLOTS.items() if state in used), ASKING, GONE]:
        name = {"written": "written in this pass", "query": "query of this pass"}.get(slot.state, slot.state)
        sheet.box(_thin(slot, 0.0), x + 0.1, y, 0.18, 0.18)
        sheet.text(x + 0.26, y, name, fontsize=8.5)
        x += 0.5 + 0.068 * len(name)
    D = run.moments[0].k.shape[-1]
    scales = f"Strips: D = {D} numbers, blue below 0, white 0, red above; each row has its own scale."
    sheet.text(
        LEFT,
        height - 0.17,
        f"{scales} Tallest bar of all: {run.largest_share:.0%}.",
        fontsize=8,
        color=style.MUTED,
    )


def _slots(run: Run) -> int:
    """Columns that all moments have in common: the same scale everywhere."""
    return max(len(run.texts) if run.capacity is None else 0, *(len(moment.states) for moment in run.moments))


def _longest(run: Run) -> int:
    return max(len(_short(text)) for text in run.texts)


def _short(text: str) -> str:
    shown = drawable(text)
    return shown if len(shown) <= 12 else shown[:11] + "…"
