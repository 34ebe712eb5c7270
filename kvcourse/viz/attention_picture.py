"""Lesson 02 onwards: who looks at whom, for one layer and head. Knows nothing about models: it draws patterns and texts.

    draw_attention(Patterns(texts, patterns), layer=0, head=1, query=4)

Above: all heads of the layer, small. Below left: the chosen head, a row for each query, a column for each key, in percent.
Right: the chosen query's row as bars.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.model_map_layout import Rect
from kvcourse.viz.moments import quoted
from kvcourse.viz.plots import drawable

WIDTH = 9.4
THUMBS_TOP, LEFT = 0.72, 0.2
MOST_NUMBERS = 16  # tokens up to which a cell has room for its number
HIDING = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.5}  # behind a name in bold: the same one in normal letters


@dataclass(frozen=True)
class Patterns:
    """The attention patterns of one pass. A row is a query, and sums to 1."""

    texts: tuple[str, ...]
    values: Float[np.ndarray, "L H T S"]

    def row(self, layer: int, head: int, query: int) -> Float[np.ndarray, " S"]:
        """Raises: InputError for a layer, head or query that does not exist."""
        for name, index, count in zip(("layer", "head", "query"), (layer, head, query), self.values.shape, strict=False):
            if not 0 <= index < count:
                raise InputError(f"No such {name}.", expected=f"0 to {count - 1}", got=index, todo="Choose one that there is.")
        return self.values[layer, head, query]


@dataclass(frozen=True)
class Plan:
    """Where things stand, in inches, y downwards: the same for all layers, heads and queries of a prompt."""

    height: float
    map: Rect
    bars: Rect
    thumbs: tuple[Rect, ...]
    rows: tuple[Rect, ...]  # of the map: one for each query, or for each few where they are many


def plan(patterns: Patterns) -> Plan:
    heads, T = patterns.values.shape[1:3]
    across = min(heads, 12)
    pitch = min(0.86, (WIDTH - 2 * LEFT) / across)
    thumbs = tuple(
        Rect(LEFT + (h % across) * pitch, THUMBS_TOP + (h // across) * (pitch + 0.16), pitch - 0.1, pitch - 0.1)
        for h in range(heads)
    )
    longest = max(len(short(text)) for text in patterns.texts)
    label = 0.14 + 0.085 * longest
    side = min(4.2, max(2.5, 0.42 * T))  # no narrower than what is written above it
    top = thumbs[-1].bottom + 0.46
    where = Rect(LEFT + 0.2 + label, top, side, side)
    rows = tuple(Rect(where.x - label, top + t * side / T, side + label, side / T) for t in range(T))
    bars = Rect(where.right + 0.4 + label, top, WIDTH - where.right - label - 0.5, side)
    return Plan(where.bottom + label + 0.36, where, bars, thumbs, rows)


def draw_attention(patterns: Patterns, layer: int, head: int, query: int) -> Figure:
    figure = draw_head(patterns, layer, head)
    with style.use():
        draw_query(figure.axes[0], patterns, layer, head, query)
    return figure


def draw_head(patterns: Patterns, layer: int, head: int) -> Figure:
    """What is the same for every query: all heads small, the chosen one large."""
    patterns.row(layer, head, query=0)
    at = plan(patterns)
    with style.use():
        fig = Figure(figsize=(WIDTH, at.height), dpi=style.DPI)
        fig.set_layout_engine("none")
        sheet = fig.add_axes((0, 0, 1, 1))
        sheet.set_axis_off()
        style.chip(sheet, style.ACTIVATION, LEFT + 0.1, 0.24, size=10)
        sheet.text(LEFT + 0.32, 0.24, f"blocks.{layer}.attn.pattern", fontsize=12, fontweight="bold", va="center")
        shape = f"(1, {', '.join(map(str, patterns.values.shape[1:]))}): the layer's heads, small; head {head}, large"
        sheet.text(LEFT + 3.0, 0.24, shape, fontsize=9, va="center", color=style.MUTED)
        _draw_heads(sheet, at, patterns.values[layer], head)
        _draw_pattern(sheet, at, patterns.values[layer, head])
        for t in range(0, len(patterns.texts), _every(len(patterns.texts))):
            _name_token(sheet, at, patterns.texts, t)
        words = "Percent of one query's attention: a row adds up to 100. White 0, dark red 100. Hatched: later, so masked."
        sheet.text(LEFT, at.height - 0.18, words, fontsize=8, color=style.MUTED, va="center")
        sheet.set(xlim=(0, WIDTH), ylim=(at.height, 0), aspect="auto")  # imshow moved them
    return fig


def draw_query(ax: Axes, patterns: Patterns, layer: int, head: int, query: int) -> None:
    """What changes with the query: its row's outline, its name in bold, the bars."""
    row, at = patterns.row(layer, head, query), plan(patterns)
    cell = at.map.width / len(row)
    _outline(ax, Rect(at.map.x, at.map.y + query * cell, at.map.width, cell), style.INK, 2.4)
    if query % _every(len(row)) == 0:
        _name_token(ax, at, patterns.texts, query, fontweight="bold", bbox=HIDING)
    _draw_bars(ax, at, patterns.texts, row, query)


def look(patterns: Patterns, layer: int, head: int, query: int) -> str:
    """Whom the query looks at, in one line."""
    row = patterns.row(layer, head, query)
    best = [int(s) for s in np.argsort(-row, kind="stable")[:3] if row[s] >= 0.005]
    seen = ", ".join(f"{quoted(patterns.texts[s])} at {s} ({row[s]:.0%})" for s in best)
    rest = 1 - sum(row[s] for s in best)
    others = f", all others together {rest:.0%}" if rest >= 0.005 else ""
    return f"Layer {layer}, head {head}: {quoted(patterns.texts[query])} at position {query} looks at {seen}{others}."


def short(text: str) -> str:
    shown = drawable(text)
    return shown if len(shown) <= 10 else shown[:9] + "…"


def _draw_square(ax: Axes, where: Rect, pattern: Float[np.ndarray, "T S"]) -> None:
    """A pattern in its square. The future is one hatched staircase: a box for each cell is slow to draw."""
    T, cell = len(pattern), where.width / len(pattern)
    future = np.triu(np.ones(pattern.shape, dtype=bool), 1)
    shown = np.ma.array(pattern, mask=future | ~np.isfinite(pattern))
    extent = (where.x, where.right, where.bottom, where.y)
    ax.imshow(shown, cmap=style.signed_cmap(), vmin=-1, vmax=1, interpolation="nearest", extent=extent, aspect="auto", zorder=1)
    steps = [(where.x + (t + dx) * cell, where.y + (t + dy) * cell) for t in range(T) for dx, dy in ((1, 0), (1, 1))]
    ax.add_patch(Polygon([*steps, (where.right, where.y)], facecolor="#FFFFFF", edgecolor="#B9BEC8", linewidth=0, hatch="////"))
    for t, s in np.argwhere(~np.isfinite(pattern) & ~future):  # broken, not masked
        box = Rectangle((where.x + s * cell, where.y + t * cell), cell, cell, facecolor="#FFFFFF", linewidth=0, hatch="xx")
        box.set_edgecolor(style.INK)
        ax.add_patch(box)


def _outline(ax: Axes, where: Rect, color: str, width: float) -> None:
    ax.add_patch(
        Rectangle((where.x, where.y), where.width, where.height, fill=False, edgecolor=color, linewidth=width, zorder=5)
    )


def _draw_heads(ax: Axes, at: Plan, patterns: Float[np.ndarray, "H T S"], chosen: int) -> None:
    for head, where in enumerate(at.thumbs):
        _draw_square(ax, where, patterns[head])
        _outline(ax, where, style.INK if head == chosen else style.MUTED, 2.6 if head == chosen else 0.7)
        weight = "bold" if head == chosen else "normal"
        ax.text(where.x, where.y - 0.08, f"head {head}", fontsize=7.5, fontweight=weight, va="center")


def _draw_pattern(ax: Axes, at: Plan, pattern: Float[np.ndarray, "T S"]) -> None:
    T, where = len(pattern), at.map
    cell = where.width / T
    _draw_square(ax, where, pattern)
    _outline(ax, where, style.ACTIVATION.text, 2.0)
    if T <= MOST_NUMBERS:
        for t in range(T):
            for s in range(t + 1):
                ink = "#FFFFFF" if pattern[t, s] > 0.6 else style.INK
                number = f"{100 * pattern[t, s]:.0f}" if np.isfinite(pattern[t, s]) else ""
                x, y = where.x + (s + 0.5) * cell, where.y + (t + 0.5) * cell
                ax.text(x, y, number, ha="center", va="center", fontsize=8, color=ink, zorder=6)
    ax.text(where.x, where.y - 0.12, "each row: one query, and the keys it looks at", fontsize=9, va="center")


def _name_token(ax: Axes, at: Plan, texts: tuple[str, ...], t: int, **look: Any) -> None:
    """At its row of the large map, and at its column."""
    cell = at.map.width / len(texts)
    how: dict[str, Any] = {"fontsize": 8.5, "parse_math": False, **look}
    ax.text(at.map.x - 0.06, at.map.y + (t + 0.5) * cell, short(texts[t]), ha="right", va="center", **how)
    ax.text(at.map.x + (t + 0.5) * cell, at.map.bottom + 0.06, short(texts[t]), ha="center", va="top", rotation=90, **how)


def _draw_bars(ax: Axes, at: Plan, texts: tuple[str, ...], row: Float[np.ndarray, " S"], query: int) -> None:
    role, where, T = style.ACTIVATION, at.bars, len(texts)
    cell = where.height / T
    scale = where.width - 0.4  # room for the number at a bar's end
    shares = np.nan_to_num(row[: query + 1])
    for s, share in enumerate(shares):
        bar = Rectangle((where.x, where.y + (s + 0.15) * cell), share * scale, 0.7 * cell, linewidth=0.8)
        bar.set(facecolor=role.fill, edgecolor=role.text)
        ax.add_patch(bar)
    ax.plot([where.x] * 2, [where.y, where.bottom], color=style.MUTED, linewidth=0.8, linestyle="-")
    for s in range(0, T, _every(T)):
        middle = where.y + (s + 0.5) * cell
        how: dict[str, Any] = {"va": "center", "fontsize": 8.5, "parse_math": False}
        ax.text(where.x - 0.08, middle, short(texts[s]), ha="right", color=style.MUTED if s > query else style.INK, **how)
        share, ink = (f"{row[s]:.0%}", role.text) if s <= query else ("later: masked", style.MUTED)
        ax.text(where.x + 0.06 + (shares[s] * scale if s <= query else 0), middle, share, color=ink, **how)
    title = f"{quoted(short(texts[query]))} at position {query} looks at"
    name = ax.text(where.x, where.y - 0.12, title, fontsize=10, fontweight="bold", va="center", parse_math=False)
    if name.get_window_extent().width > (WIDTH - 0.2 - where.x) * ax.figure.dpi:  # a long name begins left of its bars
        name.set(x=WIDTH - 0.2, ha="right")


def _every(T: int) -> int:
    """Every which token is named: more would overlap."""
    return math.ceil(T / 30)
