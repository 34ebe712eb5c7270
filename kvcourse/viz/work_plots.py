"""Lesson 05: figures of work: what passes read, how counts grow, how far a change reaches. Knows nothing about models: it takes
numbers that somebody counted.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import drawable

AGAIN = style.SlotStyle("computed again", "#FFFFFF", style.INK, 1.6, line="dashed")
PASSES = (  # each state, a mark that stands in such a box, and what it means
    ("written", "1", "computed for the first time"),
    (AGAIN.state, "2", "computed again, for the 2nd, 3rd … time"),
    ("held", "", "kept"),
    ("empty", "", "no row"),
)
LINES = ((style.INK, "-", "o"), (style.ACTIVATION.text, "--", "s"))  # told apart by dash and mark as well


def plot_passes(runs: Mapping[str, Sequence[Sequence[int]]], tokens: Sequence[str]) -> Figure:
    """Which K/V rows each pass of a run computes, one panel for each run, side by side.

    runs: {title: [places that pass 1 reads, places that pass 2 reads, ...]}. tokens: one text for each place.
    The number in a box says how often that row has been computed by then. A row that was computed earlier and is not computed
    again is drawn as held. A place that no pass reads has no row. What occurs is explained below.
    """
    places = [place for passes in runs.values() for pass_ in passes for place in pass_]
    if not places or not all(runs.values()) or not 0 <= min(places) <= max(places) < len(tokens):
        raise InputError(
            "These passes cannot be drawn.",
            expected=f"{{title: [places, ...]}}, each place one of the {len(tokens)} tokens",
            got=repr(dict(runs)),
            todo="Give at least one pass, and a text for each place.",
        )
    deepest = max(len(passes) for passes in runs.values())
    width, states = max(6.5, 1.0 + 0.5 * len(tokens) * len(runs)), set()
    with style.figure(width, 1.3 + 0.5 * deepest, ncols=len(runs), squeeze=False, layout="compressed") as (fig, axes):
        for ax, (title, passes) in zip(axes[0], runs.items(), strict=True):
            states |= _draw_passes(ax, passes, len(tokens))
            ax.set_title(title, parse_math=False)
            ax.set_xlabel("row of token")
            ax.set_xticks(range(len(tokens)), [drawable(text) for text in tokens])
            ax.set_yticks(range(len(passes)), [f"pass {number}" for number in range(1, len(passes) + 1)])
        style.key(fig, [(_of_pass(state), mark, words) for state, mark, words in PASSES if state in states])
    return fig


def plot_counts(panels: Mapping[str, Mapping[str, tuple[Sequence[int], Sequence[int]]]], *, x: str, y: Sequence[str]) -> Figure:
    """Exact counts as points joined by lines: a panel for each title, a line for each name in it, its last count at its end.

    panels: {title: {name: (values along x, counts)}}, at most two lines a panel. y: what each panel's counts are.
    """
    few = all(1 <= len(lines) <= len(LINES) for lines in panels.values())
    paired = all(len(along) == len(counts) > 0 for lines in panels.values() for along, counts in lines.values())
    if not panels or len(y) != len(panels) or not few or not paired:
        raise InputError(
            "These counts cannot be drawn.",
            expected="one or two lines in each panel, a count for each x, and a y for each panel",
            got=f"{len(panels)} panels, {len(y)} names",
            todo="Split them.",
        )
    with style.figure(4.6 * len(panels), 3.1, ncols=len(panels), squeeze=False) as (fig, axes):
        for ax, (title, lines), meaning in zip(axes[0], panels.items(), y, strict=True):
            for (name, (along, counts)), (colour, dash, mark) in zip(lines.items(), LINES, strict=False):
                ax.plot(along, counts, color=colour, linestyle=dash, marker=mark, markersize=3.5, clip_on=False)
                tip = {"xytext": (-4, 7), "textcoords": "offset points", "ha": "right", "va": "bottom"}
                ax.annotate(f"{name}: {counts[-1]:,}", (along[-1], counts[-1]), color=colour, **tip)
            ax.set_ylim(0, 1.15 * max(max(counts) for _, counts in lines.values()))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            ax.set_title(title, parse_math=False)
            style.label_axes(ax, x=(None, x, None), y=(None, meaning, None))
    return fig


def plot_reach(reach: Mapping[str, Bool[np.ndarray, "L T T"]], tokens: Sequence[str]) -> Figure:
    """How far the exchange of one token reaches: a row of panels under each name, a panel for each layer.

    reach[name][layer, exchanged, looked_at]: True where exchanging the one token changed the row of the other. Untouched rows
    are drawn as held, changed ones grey and crossed; both are explained below.
    """
    found = {name: np.asarray(layers, dtype=bool) for name, layers in reach.items()}
    shapes = {layers.shape for layers in found.values()}
    if len(shapes) != 1 or next(iter(shapes))[1:] != (len(tokens), len(tokens)):
        raise InputError(
            "The tables do not fit the tokens.",
            expected=f"(L, {len(tokens)}, {len(tokens)}) for each name",
            got=", ".join(map(str, shapes)) or "nothing",
            todo="One row for each exchanged token, one column for each token looked at.",
        )
    n_layer, side = next(iter(shapes))[0], len(tokens)
    panel = 0.6 + 0.21 * side
    with style.figure(
        0.9 + panel * n_layer,
        0.85 + (panel + 0.7) * len(found),
        nrows=len(found),
        ncols=n_layer,
        squeeze=False,
        layout="compressed",
    ) as (fig, axes):
        for row, (name, layers) in zip(axes, found.items(), strict=True):
            for layer, ax in enumerate(row):
                _draw_reach(ax, layers[layer])
                ax.set_title(f"layer {layer}", fontsize=10, fontweight="normal")
                labels = [drawable(text) for text in tokens]
                ax.set_yticks(range(side), labels if layer == 0 else [""] * side)
                ax.set_xticks(range(side), labels, rotation=90)
                ax.set_xlabel("whose k and v")
            row[0].set_ylabel("exchanged token")
            row[0].annotate(name, (0, 1), xycoords="axes fraction", xytext=(0, 24), textcoords="offset points", fontsize=11,
                            fontweight="bold", parse_math=False)  # fmt: skip
        same, changed = style.SLOTS["held"], style.SLOTS["evicted"]
        style.key(fig, [(same, "", "k and v as they were, bit for bit"), (changed, "×", "changed")])
    return fig


def plot_seconds(
    lengths: Sequence[int], low: Sequence[float], median: Sequence[float], high: Sequence[float], *, device: str
) -> Figure:
    """Milliseconds of a pass against how many tokens it reads: the median, and the spread as a band. The device is named."""
    if not len(lengths) == len(low) == len(median) == len(high) or not lengths:
        raise InputError(
            "Nothing to draw.", expected="as many times as lengths", got=f"{len(lengths)} lengths", todo="Time them."
        )
    with style.figure(6.4, 3.0) as (fig, ax):
        colour, dash, mark = LINES[0]
        ax.fill_between(lengths, [1e3 * s for s in low], [1e3 * s for s in high], color=style.GRID, linewidth=0)
        ax.plot(lengths, [1e3 * s for s in median], color=colour, linestyle=dash, marker=mark, markersize=3.5)
        ax.set_ylim(bottom=0)
        ax.set_title(device, parse_math=False)
        style.label_axes(ax, x=(None, "read by the pass", "tokens"), y=(None, "time of the pass", "ms"))
    return fig


def _draw_passes(ax: Axes, passes: Sequence[Sequence[int]], n_places: int) -> set[str]:
    """Draws them, and says which kinds of boxes there are."""
    times, states = [0] * n_places, set()
    for row, places in enumerate(passes):
        for place in range(n_places):
            reads = place in places
            times[place] += reads
            state = ("held" if times[place] else "empty") if not reads else ("written" if times[place] == 1 else AGAIN.state)
            states.add(state)
            ax.add_patch(_of_pass(state).patch(place, row))
            if reads:
                ax.text(place, row, str(times[place]), ha="center", va="center", fontweight="bold")
    _bare(ax, n_places, len(passes))
    return states


def _of_pass(state: str) -> style.SlotStyle:
    return AGAIN if state == AGAIN.state else style.SLOTS[state]


def _draw_reach(ax: Axes, changed: Bool[np.ndarray, "T T"]) -> None:
    for (exchanged, place), is_changed in np.ndenumerate(changed):
        ax.add_patch(style.SLOTS["evicted" if is_changed else "held"].patch(place, exchanged))
        if is_changed:
            ax.text(place, exchanged, "×", ha="center", va="center", fontsize=8, color=style.INK)
    _bare(ax, *changed.shape)


def _bare(ax: Axes, columns: int, rows: int) -> None:
    """A grid of boxes needs no axes: square cells, the first row on top."""
    ax.set(xlim=(-0.6, columns - 0.4), ylim=(rows - 0.4, -0.6), aspect="equal")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
