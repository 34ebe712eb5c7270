"""Lesson 08: figures of smaller caches: a ring, a sink, outlier channels, memory against error. Knows nothing about models or
caches: it takes numbers that somebody counted or measured.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import draw_signed

# Told apart by dash and mark as well as by colour.
LINES = (
    (style.INK, "-", "o"),
    (style.ACTIVATION.text, "--", "s"),
    (style.AGGREGATE.text, ":", "^"),
    (style.PARAMETER.text, "-.", "D"),
)


def plot_ring(
    steps: Sequence[Sequence[int | None]], titles: Sequence[str], *, before: Sequence[int | None] | None = None
) -> Figure:
    """Which token lies in which slot, one row of boxes for each moment.

    steps: the token in each slot, None where there is none. A slot that was written just now is outlined in bold, and says in
    small print whose place the token has taken.
    before: the moment before the first one. Without it, there was nothing.
    """
    width = {len(slots) for slots in steps} | ({len(before)} if before is not None else set())
    if len(width) != 1 or len(titles) != len(steps) or 0 in width:
        raise InputError(
            "These slots cannot be drawn.",
            expected="as many slots at every moment, and a title for each",
            got=f"{len(steps)} moments with {sorted(width)} slots, {len(titles)} titles",
            todo="Use None for an empty slot.",
        )
    n_slots = width.pop()
    last = [None] * n_slots if before is None else before
    with style.figure(1.9 + 0.72 * n_slots, 0.7 + 0.46 * len(steps)) as (fig, ax):
        for row, slots in enumerate(steps):
            for slot, token in enumerate(slots):
                state = "empty" if token is None else "held" if token == last[slot] else "written"
                ax.add_patch(style.SLOTS[state].patch(slot, row))
                takes = state == "written" and last[slot] is not None  # a place that another token had
                if token is not None:
                    weight, y = "bold" if state == "written" else "normal", row - 0.14 * takes
                    ax.text(slot, y, str(token), ha="center", va="center", fontweight=weight)
                if takes:
                    ax.text(slot + 0.37, row + 0.37, f"was {last[slot]}", ha="right", va="bottom", fontsize=7.5)
            last = slots
        ax.set(xlim=(-0.6, n_slots - 0.4), ylim=(len(steps) - 0.4, -0.6))
        ax.set_xticks(range(n_slots), [f"slot {slot}" for slot in range(n_slots)])
        ax.set_yticks(range(len(steps)), list(titles))
        ax.tick_params(length=0)
        ax.xaxis.tick_top()
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
    return fig


def plot_first_token(share: Sequence[float], length: Sequence[float], *, evenly: float) -> Figure:
    """Two panels over the layers: how much of all attention the first token gets, and how long its value vector is.

    share: 0 to 1. evenly: what it would get if all tokens got the same. length: of the first token's v, divided by the others'
    median.
    """
    if not share or len(share) != len(length):
        raise InputError(
            "One share and one length for each layer.",
            expected="as many shares as lengths",
            got=f"{len(share)} and {len(length)}",
            todo="Give both for every layer.",
        )
    layers = range(len(share))
    role = style.ACTIVATION
    with style.figure(9.4, 3.2, ncols=2) as (fig, axes):
        axes[0].bar(layers, share, color=role.fill, edgecolor=role.text, linewidth=0.8)
        axes[0].axhline(evenly, color=style.INK, linewidth=1, label=f"shared evenly: {evenly:.0%}")
        axes[0].legend(loc="upper left")
        axes[0].set_ylim(0, 1)
        axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes[0].set_title("How much it is looked at")
        style.label_axes(axes[0], x=(None, "layer", None), y=(None, "attention to the first token", "share"))
        axes[1].bar(layers, length, color=role.fill, edgecolor=role.text, linewidth=0.8)
        axes[1].axhline(1, color=style.INK, linewidth=1, label="as long as the others'")
        axes[1].legend(loc="upper right")
        axes[1].set_ylim(0, 1.25 * max(1.0, *length))
        axes[1].set_title("What there is to take")
        style.label_axes(axes[1], x=(None, "layer", None), y=("|v|", "of the first token", "others' median"))
    return fig


def plot_losses(lines: Mapping[str, Sequence[float]], *, over: int, marks: Mapping[str, int]) -> Figure:
    """The loss of each token along a text, as the mean of the last `over` tokens; one to four lines, named in a legend.

    marks: {what happens: at which token}, drawn as upright lines.
    """
    lengths = {len(losses) for losses in lines.values()}
    if not 1 <= len(lines) <= len(LINES) or len(lengths) != 1 or not 1 <= over <= min(lengths):
        raise InputError(
            "These losses cannot be drawn.",
            expected=f"one to {len(LINES)} lines of one length, and over from 1 to that length",
            got=f"{len(lines)} lines of {sorted(lengths)}, over {over}",
            todo="Give every line a loss for each token.",
        )
    with style.figure(8.2, 3.4) as (fig, ax):
        for (name, losses), (colour, dash, _) in zip(lines.items(), LINES, strict=False):
            means = np.convolve(np.asarray(losses, dtype=float), np.full(over, 1 / over), mode="valid")
            ax.plot(range(over, over + len(means)), means, color=colour, linestyle=dash, label=name)
        top = ax.get_ylim()[1]
        for what, where in marks.items():
            ax.axvline(where, color=style.MUTED, linewidth=1)
            ax.annotate(what, (where, top), xytext=(3, -2), textcoords="offset points", va="top", fontsize=9, color=style.MUTED)
        ax.set_ylim(0, top)
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=len(lines))  # above all lines and marks
        style.label_axes(ax, x=(None, "place in the text", "tokens"), y=(None, f"loss, mean of {over} tokens", "nats"))
    return fig


def plot_channels(panels: Mapping[str, Float[np.ndarray, "S D"]]) -> Figure:
    """Rows of K or V as signed values, a panel for each title, one scale for all: a token is a row, a channel a column."""
    if not panels:
        raise InputError("Nothing to draw.", expected="{title: (S, D)}", got="no panel", todo="Give one head's rows.")
    arrays = {title: np.asarray(values, dtype=float) for title, values in panels.items()}
    limit = max(float(np.abs(values).max()) for values in arrays.values()) or 1.0
    tallest = max(len(values) for values in arrays.values())
    with style.figure(4.9 * len(arrays), 1.0 + 0.07 * tallest, ncols=len(arrays), squeeze=False) as (fig, axes):
        for ax, (title, values) in zip(axes[0], arrays.items(), strict=True):
            image = draw_signed(ax, values, limit=limit)
            ax.set_title(title, parse_math=False)
            style.label_axes(ax, x=("D", "channel", None), y=("S", "token", None))
        fig.colorbar(image, ax=axes[0].tolist(), shrink=0.8)
    return fig


def plot_memory_and_error(families: Mapping[str, Mapping[str, tuple[float, float]]], *, exact: tuple[float, float]) -> Figure:
    """Bytes a token against perplexity: down and to the left is better. A line for each family, its points named.

    families: {family: {point: (bytes a token, perplexity)}}. exact: the same two numbers of the cache that changes nothing.
    """
    points = [point for family in families.values() for point in family.values()]
    if not 1 <= len(families) <= len(LINES) or not all(families.values()) or not all(x > 0 and y > 0 for x, y in points):
        raise InputError(
            "These points cannot be drawn.",
            expected=f"one to {len(LINES)} families of points, sizes and perplexities above 0",
            got=f"{len(families)} families, {len(points)} points",
            todo="Measure them.",
        )
    with style.figure(8.0, 4.2) as (fig, ax):
        ax.axhline(exact[1], color=style.MUTED, linewidth=1)
        ax.plot(*exact, color=style.INK, marker="*", markersize=13, linestyle="none", label="everything, 32 bits")
        for (name, family), (colour, dash, mark) in zip(families.items(), LINES, strict=False):
            along = sorted(family.values())
            ax.plot(*zip(*along, strict=True), color=colour, linestyle=dash, marker=mark, markersize=6, label=name)
            for place, (label, where) in enumerate(sorted(family.items(), key=lambda point: point[1])):
                # By turns above on the right and below on the left: neighbours may be close, and lines fall.
                side, ha = ((5, 6), "left") if place % 2 == 0 else ((-5, -14), "right")
                ax.annotate(label, where, xytext=side, textcoords="offset points", color=colour, fontsize=9, ha=ha)
        ax.set(xscale="log", yscale="log")
        ax.set_xlim(0.8 * min(x for x, _ in [*points, exact]), 1.35 * max(x for x, _ in [*points, exact]))
        ax.set_ylim(0.85 * min(y for _, y in [*points, exact]), 1.2 * max(y for _, y in [*points, exact]))
        ticks = [1024 * 2**i for i in range(20) if 0.8 * min(p[0] for p in points) < 1024 * 2**i < 1.35 * exact[0]]
        ax.set_xticks(ticks, [f"{tick // 1024} KiB" for tick in ticks], minor=False)
        ax.set_xticks([], minor=True)
        style.plain_numbers(ax.yaxis)
        ax.legend(loc="upper right")
        corner = {"xycoords": "axes fraction", "xytext": (6, 5), "textcoords": "offset points"}
        ax.annotate("↙ better: down and left", (0, 0), fontsize=9, color=style.MUTED, **corner)
        style.label_axes(ax, x=(None, "held, for each token of the text", "bytes"), y=(None, "perplexity", None))
    return fig
