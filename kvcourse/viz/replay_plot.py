"""Lesson 10: a figure of what a prefix cache finds at every size. Knows nothing about replaying: it takes the rates."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.prefix.replay import Rates
from kvcourse.viz import style

MEANING = {
    "block_hit_rate": "hit blocks / blocks",
    "token_hit_rate": "tokens in hit blocks / input tokens",
    "request_mean_hit_rate": "hit blocks / blocks, mean over requests",
}
CEILING = "opt"
# Told apart by dash and mark as well as by colour; a policy that is not named here takes one that is free.
LOOKS = {
    "lru": (style.PARAMETER.text, "-", "o"),
    "turns": (style.ACTIVATION.text, "-", "s"),
    "lfu": (style.AGGREGATE.text, "--", "^"),
    "slru": (style.MUTED, "-.", "D"),
    "ttl": (style.MUTED, ":", "v"),
}
LABEL_HEIGHT = 0.062  # of the axes


def plot_hit_rates(rates: Sequence[Rates], *, rate: str = "block_hit_rate", title: str | None = None) -> Figure:
    """Hit rate against capacity (log), one line a policy, each named at its left end; above `opt`: grey.

    rate: the name of one of the three. rates: those of one log, in any order.
    Of an unlimited cache, a level line: no policy matters there.
    Raises: InputError for an unknown rate, or without two capacities of one policy at least.
    """
    if rate not in MEANING:
        raise InputError("There is no such hit rate.", expected=", ".join(MEANING), got=repr(rate), todo="Choose one of these.")
    lines = _lines(rates, rate)
    unlimited = [getattr(one, rate) for one in rates if one.capacity_blocks is None]
    top = 1.12 * max([*unlimited, *(value for line in lines.values() for value in line.values())], default=0) or 1.0
    with style.figure(7.2, 3.9) as (fig, ax):
        ax.set_xscale("log")
        for name, line in lines.items():
            _draw(ax, name, line)
        if CEILING in lines:
            _shade(ax, lines[CEILING], top, "no policy gets here:\n" * (rate == "block_hit_rate") + "opt sees the future")
        if unlimited:
            ax.axhline(max(unlimited), color=style.MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
            ax.annotate(f"without a limit {max(unlimited):.3f}", (0.99, max(unlimited)), xycoords=("axes fraction", "data"),
                        xytext=(0, 3), textcoords="offset points", color=style.MUTED, ha="right")  # fmt: skip
        sizes = sorted({size for line in lines.values() for size in line})
        _ticks(ax, sizes)
        ax.set_ylim(0, top)
        _name(ax, lines, top, sizes)
        if title is not None:
            ax.set_title(title, parse_math=False)
        style.label_axes(ax, x=(None, "capacity", "blocks, log scale"), y=(None, MEANING[rate], None))
    return fig


def _lines(rates: Sequence[Rates], rate: str) -> dict[str, dict[int, float]]:
    """{policy: {capacity: rate}}, capacities rising; the ceiling first, to lie under the rest."""
    named = sorted(
        (one for one in rates if one.capacity_blocks is not None), key=lambda one: (one.policy != CEILING, one.policy)
    )
    lines = {}
    for policy, group in groupby(named, key=lambda one: one.policy):
        points = {one.capacity_blocks: getattr(one, rate) for one in group if one.capacity_blocks is not None}
        lines[policy] = dict(sorted(points.items()))
    if not any(len(line) > 1 for line in lines.values()):
        raise InputError("One point is no line.", expected="two capacities of a policy, or more",
                         got=f"{len(rates)} rates", todo="Replay at more capacities, such as 1000 and 10000.")  # fmt: skip
    return lines


def _look(name: str) -> tuple[str, str, str]:
    return (style.INK, "-", "") if name == CEILING else LOOKS.get(name, (style.INK, "--", "x"))


def _draw(ax: Axes, name: str, line: dict[int, float]) -> None:
    colour, dash, mark = _look(name)
    ax.plot(list(line), list(line.values()), color=colour, linestyle=dash, marker=mark, markersize=4.5, label=name)


def _shade(ax: Axes, ceiling: dict[int, float], top: float, text: str) -> None:
    """What lies above the ceiling; `text` where there is room for it."""
    sizes, values = list(ceiling), list(ceiling.values())
    ax.fill_between(sizes, values, top, facecolor=style.GRID, edgecolor="none", zorder=0)
    if values[-1] - values[0] > top / 4:
        height = values[0] + 0.9 * (values[-1] - values[0])
        ax.annotate(text, (sizes[0], height), xytext=(8, 0), textcoords="offset points", va="top", color=style.MUTED)


def _name(ax: Axes, lines: dict[str, dict[int, float]], top: float, sizes: list[int]) -> None:
    """Each line's name beside its left end, with a thin line to it; those that would lie on each other are moved apart."""
    starts = [(next(iter(line.items())), name) for name, line in lines.items()]
    starts.sort(key=lambda start: start[0][1])
    gap = (sizes[-1] / sizes[0]) ** 0.035
    for ((size, value), name), height in zip(starts, _apart([value / top for (_, value), _ in starts]), strict=True):
        colour = _look(name)[0]
        ax.annotate(name, (size, value), xytext=(size / gap, height * top), textcoords="data", color=colour,
                    ha="right", va="center", annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 2})  # fmt: skip
    ax.set_xlim(sizes[0] / (sizes[-1] / sizes[0]) ** 0.12, sizes[-1] * 1.08)


def _apart(heights: list[float]) -> list[float]:
    """Rising heights, moved as little as it takes for names not to touch, and none below the axis."""
    groups: list[list[float]] = []  # of names that touch: each group is centred on the mean of its heights
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _low(groups[-1]) < _low(groups[-2]) + len(groups[-2]) * LABEL_HEIGHT:
            last = groups.pop()
            groups[-1].extend(last)
    return [_low(group) + i * LABEL_HEIGHT for group in groups for i in range(len(group))]


def _low(group: list[float]) -> float:
    """Where the lowest name of a group stands."""
    return max(LABEL_HEIGHT / 2, sum(group) / len(group) - (len(group) - 1) * LABEL_HEIGHT / 2)


def _ticks(ax: Axes, sizes: list[int]) -> None:
    """The capacities that were replayed, as far as their numbers find room."""
    apart = (sizes[-1] / sizes[0]) ** 0.09
    shown: list[int] = []
    for size in reversed(sizes):
        if not shown or shown[-1] / size >= apart:
            shown.append(size)
    ax.set_xticks(shown, [f"{size:,}" for size in shown])
    ax.set_xticks([], minor=True)
