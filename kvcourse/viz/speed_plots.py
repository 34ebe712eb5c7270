"""Lesson 07: figures of what a cache costs: bytes copied, and speed under the limit that memory sets. Knows nothing about
models or caches: it takes numbers that somebody counted or timed.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.meter import Timing
from kvcourse.viz import style

# Told apart by dash and mark as well as by colour.
LINES = ((style.INK, "-", "o"), (style.ACTIVATION.text, "--", "s"), (style.AGGREGATE.text, ":", "^"))
LIMIT = style.PARAMETER  # what limits a step is reading the weights


def plot_copied(tokens: Sequence[int], lines: Mapping[str, Sequence[int]]) -> Figure:
    """Exact byte counts against tokens, one line for each name, its last count written at its end.

    Raises: InputError unless there are one to three lines, with a count for each of at least two numbers of tokens.
    """
    _require(lines, len(tokens))
    with style.figure(6.8, 3.3) as (fig, ax):
        top = max(max(counts) for counts in lines.values()) or 1
        for counts, (colour, dash, mark) in zip(lines.values(), LINES, strict=False):
            ax.plot(tokens, counts, color=colour, linestyle=dash, marker=mark, markersize=3.5, clip_on=False)
        ax.set_xlim(0, tokens[-1])
        _name_ends(ax, tokens[-1], {name: (counts[-1], f"{_megabytes(counts[-1])} MB") for name, counts in lines.items()}, top)
        ax.set_ylim(0, 1.05 * top)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value / 1e6:,.0f}")
        style.label_axes(ax, x=("S", "tokens, one by one", None), y=(None, "copied or held so far", "MB"))
    return fig


def plot_speed(
    lengths: Sequence[int],
    seconds: Mapping[str, Sequence[Timing]],
    limit: tuple[Sequence[float], Sequence[float]],
    *,
    title: str,
) -> Figure:
    """Tokens a second against the length of the text, both doubling; the limit as a band from slowest to fastest reading.

    seconds: {name: the time of one new token at each length}. A mark is a median, a bar reaches from the slowest run to the
    fastest. limit: tokens a second at each length, lower and upper edge. title: what was timed, and on what.
    Raises: InputError unless there are one to three lines, with a timing and both edges for each of at least two lengths.
    """
    low, high = limit
    _require({**seconds, "limit, low": low, "limit, high": high}, len(lengths), most=len(LINES) + 2)
    with style.figure(7.2, 3.9) as (fig, ax):
        ax.fill_between(lengths, low, high, facecolor=LIMIT.fill, alpha=0.25, hatch="///", edgecolor=LIMIT.text, linewidth=0)
        ax.plot(lengths, high, color=LIMIT.text, linewidth=1.2)
        ax.annotate(
            "limit: every byte a step needs is read once",
            (lengths[0], high[0]),
            xytext=(0, 5),
            textcoords="offset points",
            color=LIMIT.text,
        )
        for (name, timings), (colour, dash, mark) in zip(seconds.items(), LINES, strict=False):
            speed = [1 / timing.median_s for timing in timings]
            spread = [
                [1 / timing.median_s - 1 / timing.max_s for timing in timings],
                [1 / timing.min_s - 1 / timing.median_s for timing in timings],
            ]
            ax.errorbar(lengths, speed, spread, color=colour, linestyle=dash, marker=mark, markersize=5, capsize=3, label=name)
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(lengths, [f"{n:,}" for n in lengths], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_ylim(top=1.6 * max(high))
        style.plain_numbers(ax.yaxis)
        ax.legend(loc="lower left")
        ax.set_title(title, parse_math=False, fontsize=9.5)
        style.label_axes(ax, x=("S", "tokens in the text", None), y=(None, "speed", "new tokens a second"))
    return fig


def _name_ends(ax: Axes, x: int, ends: Mapping[str, tuple[int, str]], top: int) -> None:
    """Each line's name beside its end, the lower ones moved up where they would lie on each other."""
    height = -1.0
    for (name, (count, text)), (colour, _, _) in sorted(zip(ends.items(), LINES, strict=False), key=lambda end: end[0][1]):
        height = max(count / top, height + 0.1)
        ax.annotate(f"{name}: {text}", (x, height * top), xytext=(8, 0), textcoords="offset points", color=colour, va="center")


def _megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}" if value == round(value, -6) else f"{value / 1e6:,.1f}"


def _require(lines: Mapping[str, Sequence[object]], n_points: int, most: int = len(LINES)) -> None:
    if not 1 <= len(lines) <= most or n_points < 2 or any(len(points) != n_points for points in lines.values()):
        raise InputError(
            "These lines cannot be drawn.",
            expected=f"one to {len(LINES)} lines, a point on each for each of two lengths or more",
            got=f"{n_points} lengths, {', '.join(f'{name}: {len(points)}' for name, points in lines.items()) or 'no line'}",
            todo="Give every line as many points as there are lengths.",
        )
