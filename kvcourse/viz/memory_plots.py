"""Lesson 07: figures of memory: K and V against the length of a text, and one model's bar. Knows nothing about tensors: all
sums are `memory`'s.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MultipleLocator, NullLocator

from kvcourse.errors import InputError
from kvcourse.memory import BUDGET_BYTES, UNITS, Memory, format_bytes, kv_bytes
from kvcourse.model_shapes import Shape, find_shape
from kvcourse.viz import style

SHOWN = ("gpt2", "smollm2-135m", "llama-2-7b", "mistral-7b", "llama-3.1-8b", "llama-3.1-70b")
FIRST_TOKENS = 128
_MARKS = "osD^vPX*"  # K and V are activations, so all lines are green: marks tell them apart, and the name at their end
_NAME_IN = 0.2  # what a name at the right edge needs, in inches
_NOTE = "mark: context the model was made for\ncross: the budget is full, with no weights in it"


def memory_plot(
    models: Sequence[str] = SHOWN, dtype: str = "float16", budget_bytes: int = BUDGET_BYTES, *, batch: int = 1
) -> Figure:
    """Bytes of K and V against the tokens of a text, both doubling; a dashed line at the budget.

    models: names, or paths, as for `find_shape`. A mark stands at the context a model was made for; its line is dotted beyond.
    A cross stands where K and V alone, without any weights, fill the budget. Raises: UnknownName, InputError.
    """
    shapes = [find_shape(name) for name in models]
    if not shapes or len({shape.name for shape in shapes}) < len(shapes):
        raise InputError("These models cannot be drawn.", expected="one name or more, each once", got=repr(list(models)),
                         todo="Such as memory_plot(['gpt2', 'llama-3.1-8b']).")  # fmt: skip
    last = max(2 * FIRST_TOKENS, *(shape.context_tokens for shape in shapes))
    with style.figure(7.6, max(4.4, 1.2 + _NAME_IN * len(shapes))) as (fig, ax):
        ends = []
        for shape, mark in zip(shapes, cycle(_MARKS), strict=False):
            along = _lengths(shape, last)
            sizes = [_bytes(shape, n, dtype, batch) for n in along]
            _draw_line(ax, shape, along, sizes, mark)
            _draw_crossing(ax, along, sizes, budget_bytes)
            ends.append((sizes[-1], _name(shape)))
        ax.set(xscale="log", yscale="log", xlim=(FIRST_TOKENS, last))
        low, high = ax.get_ylim()
        ax.set_ylim(min(low, budget_bytes / 1.6), max(high, 1.6 * budget_bytes))
        ax.axhline(budget_bytes, color=style.INK, linestyle="--", linewidth=1.4)
        ax.annotate(format_bytes(budget_bytes), (FIRST_TOKENS, budget_bytes), (4, 3), textcoords="offset points")
        ax.text(0.99, 0.02, _NOTE, transform=ax.transAxes, ha="right", va="bottom", fontsize=8.5, color=style.MUTED)
        _tick(ax, last)
        texts = "one text" if batch == 1 else f"{batch:,} texts"
        ax.set_title(f"K and V of {texts}, {dtype}")
        style.label_axes(ax, x=("S", "length of a text", "tokens"), y=(None, "K and V", "bytes"))
        _label_ends(fig, ax, ends)  # last: it asks how large the axes have become
    return fig


def draw_memory(memory: Memory) -> Figure:
    """Weights and K/V of one model end to end, beside the budget; below, with K and V for every query head."""
    rows = [("as it is", memory.kv_bytes)]
    if memory.multi_head_kv_bytes > memory.kv_bytes:
        rows.append(("K and V for\nevery query head", memory.multi_head_kv_bytes))
    weights = memory.weight_bytes or 0
    right = 1.06 * max(memory.budget_bytes, weights + memory.multi_head_kv_bytes)
    with style.figure(7.6, 1.3 + 0.7 * len(rows)) as (fig, ax):
        for place, (_, size) in enumerate(rows):
            for role, start, part in ((style.PARAMETER, 0, weights), (style.ACTIVATION, weights, size)):
                ax.barh(place + 0.12, part, left=start, height=0.42, color=role.fill, edgecolor=role.text)
            _name_parts(
                ax, place - 0.28, {style.PARAMETER: ("weights", memory.weight_bytes), style.ACTIVATION: ("K and V", size)}
            )
        ax.axvline(memory.budget_bytes, color=style.INK, linestyle="--", linewidth=1.4)
        side = "right" if memory.budget_bytes > right / 2 else "left"
        ax.text(memory.budget_bytes, -0.66, f" {format_bytes(memory.budget_bytes)} ", ha=side, va="center")
        ax.set(xlim=(0, right), ylim=(len(rows) - 0.5, -0.85), yticks=[n + 0.12 for n in range(len(rows))])
        ax.set_yticklabels([name for name, _ in rows])
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        step = 1 << max(0, math.ceil(math.log2(right / 6)))
        ax.xaxis.set_major_locator(MultipleLocator(step))
        ax.xaxis.set_major_formatter(lambda value, _: _round_bytes(float(value)))
        texts = "one text" if memory.batch == 1 else f"{memory.batch:,} texts"
        ax.set_title(f"{memory.model}: {texts} of {memory.context_tokens:,} tokens, {memory.dtype}", parse_math=False)
    return fig


def _name(shape: Shape) -> str:
    """With the version that its source names: another may have no window."""
    version = re.search(r"-(v\d+(\.\d+)*)$", shape.source)
    name = shape.name if version is None else f"{shape.name} {version[1]}"
    return name if shape.window_tokens is None else f"{name}, with its window"


def _bytes(shape: Shape, tokens: int, dtype: str, batch: int) -> int:
    return kv_bytes(shape, tokens, batch=batch, dtype=dtype, window_tokens=shape.window_tokens)


def _lengths(shape: Shape, last: int) -> list[int]:
    """Doubling, with the lengths at which something happens."""
    doubling = {FIRST_TOKENS << i for i in range(last.bit_length()) if FIRST_TOKENS << i < last}
    special = {shape.context_tokens, shape.window_tokens or last, last}
    return sorted(n for n in doubling | special if FIRST_TOKENS <= n <= last)


def _draw_line(ax: Axes, shape: Shape, along: list[int], sizes: list[int], mark: str) -> None:
    inside = sum(n <= shape.context_tokens for n in along)
    look: dict[str, Any] = {"color": style.ACTIVATION.text, "clip_on": False}
    ax.plot(along[:inside], sizes[:inside], "-", marker=mark, markevery=[inside - 1] if inside else [], markersize=6, **look)
    ax.plot(along[max(0, inside - 1) :], sizes[max(0, inside - 1) :], ":", linewidth=1.2, **look)


def _draw_crossing(ax: Axes, along: list[int], sizes: list[int], budget_bytes: int) -> None:
    """A cross where the line goes through the budget: on a straight line between two lengths, as sizes are proportional."""
    for (n0, b0), (n1, b1) in pairwise(zip(along, sizes, strict=True)):
        if b0 <= budget_bytes < b1:
            ax.plot(n0 + (n1 - n0) * (budget_bytes - b0) / (b1 - b0), budget_bytes, "x", color=style.INK, markersize=7)


def _label_ends(fig: Figure, ax: Axes, ends: list[tuple[int, str]]) -> None:
    """Names at the right edge, each beside its line, or as near to it as the names above and below let it."""
    ends = sorted(ends)
    fig.draw_without_rendering()  # only now the axes have their size
    gap = _NAME_IN / (ax.get_window_extent().height / fig.dpi)
    at = [ax.transAxes.inverted().transform(ax.transData.transform((FIRST_TOKENS, size)))[1] for size, _ in ends]
    heights = list(at)
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    heights[-1] = min(heights[-1], 1.0)
    for i in range(len(heights) - 2, -1, -1):
        heights[i] = min(heights[i], heights[i + 1] - gap)
    for start, height, (_, name) in zip(at, heights, ends, strict=True):
        look: dict[str, Any] = {"color": style.ACTIVATION.text, "transform": ax.transAxes}
        ax.plot([1.0, 1.03], [start, height], "-", linewidth=0.8, clip_on=False, **look)
        ax.text(1.04, height, name, va="center", parse_math=False, **look)


def _name_parts(ax: Axes, height: float, parts: Mapping[style.Role, tuple[str, int | None]]) -> None:
    """A line above a bar: each part's chip, name and size. On white, since the budget's line may pass behind it."""
    place = ax.get_yaxis_transform()  # x as a share of the width, y in rows
    paper = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 1.0}
    for start, (role, (name, size)) in zip((0.0, 0.36), parts.items(), strict=True):
        style.chip(ax, role, start + 0.02, height, transform=place, zorder=4)
        said = f"{name} {'unknown' if size is None else format_bytes(size)}"
        ax.text(start + 0.045, height, said, color=role.text, va="center", transform=place, bbox=paper, zorder=3)


def _round_bytes(value: float) -> str:
    """A tick's size, with as many decimals as it has."""
    unit = max(i for i in range(len(UNITS)) if value >= 1024**i or i == 0)
    return f"{value / 1024**unit:g} {UNITS[unit]}"


def _tick(ax: Axes, last: int) -> None:
    low, high = ax.get_ylim()
    ax.xaxis.set_major_locator(FixedLocator([FIRST_TOKENS << i for i in range(0, 40, 2) if FIRST_TOKENS << i <= last]))
    ax.yaxis.set_major_locator(FixedLocator([1 << i for i in range(0, 80, 5) if low <= 1 << i <= high]))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_formatter(lambda value, _: _round_bytes(float(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
