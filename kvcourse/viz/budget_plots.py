"""Lesson 12: figures of what an agent sends: its windows, two figures that disagree, bills. Knows nothing about policies: it
takes what was counted.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from kvcourse.errors import InputError
from kvcourse.ledger import Bill, TurnCount
from kvcourse.viz import style

CACHED, COMPUTED, SUMMARY = style.SLOTS["reused"], style.SLOTS["written"], style.AGGREGATE
WRITTEN = style.SlotStyle("written by the model", style.ACTIVATION.text, "#14532D", 1.0)
CUMULATIVE, OCCUPANCY = (style.INK, "-"), (style.ACTIVATION.text, "--")  # colour and dash of a line
NAMED = 1.42  # steps on the axis for each step drawn: the rest is for the lines' names
LIMIT: dict[str, Any] = {"color": style.INK, "linewidth": 1.2, "linestyle": ":"}
CLASSES = (("cached", CACHED), ("computed", COMPUTED), ("completion", WRITTEN))
NAMES = {"cached": "cached", "computed": "computed", "completion": "written by the model, summaries included"}
EDGE = 0.5  # points: the line around an area, in a panel and in its key


class Sent(NamedTuple):
    """The requests of one run, ready to be drawn. limit: tokens that its window takes, or None for no line.

    summaries: for each request, where its summary stands: (first token, how many), or None.
    """

    turns: tuple[TurnCount, ...]
    limit: int | None = None
    summaries: tuple[tuple[int, int] | None, ...] = ()


def sent_of(run: Any, limit: int | None = None) -> Sent:
    """What `run_agent` returned."""
    return Sent(tuple(run.ledger), limit, tuple(_summary(window) for window in run.windows))


def _summary(window: Sequence[Any]) -> tuple[int, int] | None:
    start = 0
    for part in window:
        if part.role == "summary":
            return start, len(part)
        start += len(part)
    return None


def plot_parts(windows: Sequence[Sequence[tuple[str, int]]], counts: Sequence[TurnCount]) -> Figure:
    """Small windows token by token, a row for each request: what was there before is hatched, what is new has a bold outline.

    windows: (name, tokens) of each part, in order. counts: of the same requests.
    Raises: InputError unless each window has as many tokens as its prompt.
    """
    sizes = [sum(size for _, size in window) for window in windows]
    if not windows or sizes != [turn.prompt_tokens for turn in counts]:
        raise InputError("These windows cannot be drawn.", expected=f"prompts of {sizes} tokens",
                         got=[turn.prompt_tokens for turn in counts], todo="Give the counts of the same requests.")  # fmt: skip
    with style.figure(1.3 + 0.56 * max(sizes), 0.72 * len(windows) + 0.75) as (fig, ax):
        for row, (window, turn) in enumerate(zip(windows, counts, strict=True)):
            place = 0
            for name, size in window:
                for token in range(place, place + size):
                    ax.add_patch((CACHED if token < turn.cached_tokens else COMPUTED).patch(token, row, 0.9, 0.5))
                ax.text(place + (size - 1) / 2, row - 0.38, name, ha="center", fontsize=9, color=style.MUTED)
                place += size
            ax.text(place - 0.2, row, f"{turn.prompt_tokens}", va="center", fontweight="bold")
        ax.set(xlim=(-0.6, max(sizes) + 0.4), ylim=(len(windows) - 0.6, -0.75))
        _bare(ax, [f"request {number}" for number in range(1, len(windows) + 1)])
        used = [("computed", COMPUTED)] + [("cached", CACHED)] * any(turn.cached_tokens for turn in counts)
        fig.legend([slot.patch(0, 0) for _, slot in used], [name for name, _ in used], loc="outside lower right", ncols=2,
                   fontsize=9)  # fmt: skip
    return fig


def plot_windows(runs: Mapping[str, Sent], *, columns: int = 3) -> Figure:
    """Each request of a run as a column, panels on one scale: cached tokens below, computed ones above, a summary in amber.

    The height of a column is the occupancy before the answer; the area of all columns is the cumulative input.
    Raises: InputError without runs, or for a run without requests.
    """
    if not runs or not all(run.turns for run in runs.values()):
        raise InputError("Nothing to draw.", expected="{title: Sent}, each with a request or more", got=list(runs),
                         todo="Make them with sent_of(run).")  # fmt: skip
    columns = min(columns, len(runs))
    rows = -(-len(runs) // columns)
    top = 1.06 * max(max(run.limit or 0, *(turn.prompt_tokens for turn in run.turns)) for run in runs.values())
    last = max(len(run.turns) for run in runs.values())
    with style.figure(2.95 * columns + 0.5, 2.5 * rows + 0.4, nrows=rows, ncols=columns, squeeze=False, sharex=True,
                      sharey=True) as (fig, axes):  # fmt: skip
        for ax, (title, run) in zip(axes.flat, runs.items(), strict=False):
            _draw_run(ax, run)
            computed = sum(turn.computed_tokens for turn in run.turns)
            ax.set_title(f"{title}\n{computed:,} computed", fontsize=9.5, parse_math=False)
            ax.set(xlim=(0.4, last + 0.6), ylim=(0, top))
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        for ax in axes.flat[len(runs) :]:
            ax.set_axis_off()
        for ax in axes[-1]:
            ax.set_xlabel("request")
        for ax in axes[:, 0]:
            ax.set_ylabel("prompt (tokens)")
        _add_key(fig, runs.values())
    return fig


def plot_two_figures(turns: Mapping[str, Sequence[TurnCount]], limit: int) -> Figure:
    """Occupancy and cumulative input after each turn, on one log axis, with the window's limit; a panel for each run.

    limit: tokens that the window takes. Raises: InputError without turns.
    """
    if not turns or not all(turns.values()):
        raise InputError("Nothing to draw.", expected="{title: turns}, one turn or more", got=list(turns), todo="Run an agent.")
    series = {title: ([turn.occupancy for turn in run], _running([turn.prompt_tokens for turn in run]))
              for title, run in turns.items()}  # fmt: skip
    top = 1.5 * max(limit, *(cumulative[-1] for _, cumulative in series.values()))
    with style.figure(5.4 * len(turns) + 0.5, 3.4, ncols=len(turns), squeeze=False, sharey=True) as (fig, axes):
        for ax, (title, (occupancy, cumulative)) in zip(axes[0], series.items(), strict=True):
            steps = range(1, len(occupancy) + 1)
            ax.set_yscale("log", base=2)
            ax.axhspan(limit, top, facecolor=style.GRID, edgecolor="none", zorder=0)
            ax.axhline(limit, color=style.MUTED, linewidth=1.2, linestyle=":")
            ax.text(
                len(occupancy), limit * 1.06, f"the window: {limit:,}", color=style.MUTED, ha="right", va="bottom", fontsize=9
            )
            lines = ((cumulative, "sent so far", CUMULATIVE, "center"), (occupancy, "in the window now", OCCUPANCY, "top"))
            for values, name, (colour, dash), side in lines:
                ax.plot(steps, values, color=colour, linestyle=dash)
                ax.annotate(f"{name}\n{values[-1]:,}", (len(values), values[-1]), xytext=(5, 0), textcoords="offset points",
                            color=colour, va=side, fontsize=9)  # fmt: skip
            ax.set_title(title, parse_math=False)
            ax.set(xlim=(0.5, 0.5 + NAMED * len(occupancy)), ylim=(None, top))
            ax.yaxis.set_major_locator(FixedLocator([1000 * 2**power for power in range(20)]))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            ax.set_xticks([tick for tick in ax.get_xticks() if 1 <= tick <= len(occupancy)])
            ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            style.label_axes(ax, x=("n", "steps done", None), y=(None, "tokens (log scale)", None))
    return fig


def plot_bills(bills: Mapping[str, Bill], unit: str) -> Figure:
    """What each run costs, by class, one bar each, the total at its end.

    unit: what a price is counted in. Raises: InputError without bills.
    """
    if not bills:
        raise InputError("Nothing to draw.", expected="{title: Bill}", got="nothing", todo="Bill a run.")
    top = max(bill.total for bill in bills.values()) or 1
    with style.figure(7.6, 0.75 + 0.46 * len(bills)) as (fig, ax):
        for row, bill in enumerate(bills.values()):
            left = 0.0
            for name, slot in CLASSES:
                amount = getattr(bill, name)
                ax.add_patch(slot.patch(left + amount / 2, row, amount, 0.6))
                left += amount
            ax.text(left + 0.012 * top, row, f"{left:,.0f}", va="center")
        ax.set(xlim=(0, 1.13 * top), ylim=(len(bills) - 0.5, -0.5))
        _bare(ax, list(bills))
        ax.set_xticks([])
        ax.set_xlabel(unit)
        fig.legend([slot.patch(0, 0) for _, slot in CLASSES], [NAMES[name] for name, _ in CLASSES], loc="outside upper right",
                   ncols=3, fontsize=9)  # fmt: skip
    return fig


def _draw_run(ax: Axes, run: Sent) -> None:
    """Columns without gaps: cached as one hatched area, computed as another, so that many columns stay readable."""
    edges = [number + 0.5 for number in range(len(run.turns) + 1)]
    known = [turn.cached_tokens for turn in run.turns]
    whole = [turn.prompt_tokens for turn in run.turns]
    for slot, low, high in ((CACHED, [0] * len(known), known), (COMPUTED, known, whole)):
        ax.fill_between(edges, [*low, low[-1]], [*high, high[-1]], step="post", facecolor=slot.face, hatch=slot.hatch or None,
                        edgecolor=slot.edge, linewidth=EDGE)  # fmt: skip
    for number, place in enumerate(run.summaries, start=1):
        if place is not None:
            ax.bar(number, place[1], 1.0, bottom=place[0], facecolor=SUMMARY.fill, edgecolor=SUMMARY.text, linewidth=0.6)
    if run.limit is not None:
        ax.axhline(run.limit, **LIMIT)


def _add_key(fig: Figure, runs: Any) -> None:
    boxes: list[tuple[Artist, str]] = [
        (replace(CACHED, width=EDGE).patch(0, 0), "cached"), (replace(COMPUTED, width=EDGE).patch(0, 0), "computed")
    ]  # fmt: skip
    if any(place for run in runs for place in run.summaries):
        look = style.SlotStyle("summary", SUMMARY.fill, SUMMARY.text, 0.8)
        boxes.append((look.patch(0, 0), "Σ summary"))
    if any(run.limit is not None for run in runs):
        boxes.append((Line2D([], [], **LIMIT), "limit of the window"))
    fig.legend([box for box, _ in boxes], [name for _, name in boxes], loc="outside lower center", ncols=4, fontsize=9)


def _running(values: Sequence[int]) -> list[int]:
    return [sum(values[: number + 1]) for number in range(len(values))]


def _bare(ax: Axes, rows: Sequence[str]) -> None:
    """Rows with names, and no lines around them."""
    ax.set_yticks(range(len(rows)), rows)
    ax.set_xticks([])
    ax.grid(visible=False)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
