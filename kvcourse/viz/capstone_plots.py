"""Lesson 14: the figure of the zoo: which observation of which broken cache is wrong. Knows nothing about caches or faults."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style

CELL, LABEL = 0.3, 0.068  # inches: a cell, and a letter of a label
ANGLE = 0.8  # of a label's length, how much of it is height at 52 degrees


def plot_symptoms(patients: Mapping[str, Mapping[str, bool]], *, speed: str | None = None) -> Figure:
    """A row for each patient, a column for each observation: a cross where it is wrong, a dot where it is right.

    patients: {name: {observation: is it right}}, the same observations for all. speed: the column that a plot of speed shows,
    framed.
    """
    columns = _columns(patients, speed)
    n_rows, n_columns = len(patients), len(columns)
    top = 0.25 + ANGLE * LABEL * max(map(len, columns))
    side = 0.7 + 0.66 * LABEL * max(map(len, columns))
    width, height = 0.5 + CELL * n_columns + side, CELL * n_rows + top + 0.35
    with style.figure(width, height) as (fig, ax):
        for row, (_, seen) in enumerate(patients.items()):
            wrong = [x for x, column in enumerate(columns) if not seen[column]]
            right = [x for x in range(n_columns) if x not in wrong]
            names = ("as it should be", "wrong") if row == 0 else (None, None)  # one entry each in the legend
            ax.plot(right, [row] * len(right), linestyle="none", marker=".", markersize=3, color=style.MUTED, label=names[0])
            ax.plot(
                wrong,
                [row] * len(wrong),
                linestyle="none",
                marker="X",
                markersize=9,
                color=style.AGGREGATE.text,
                label=names[1],
            )
        if speed is not None:
            place = columns.index(speed)
            ax.axvspan(place - 0.5, place + 0.5, facecolor=style.AGGREGATE.fill, alpha=0.35, edgecolor="none")
            ax.annotate("what a plot of speed shows", (place, n_rows - 0.45), ha="center", va="top", fontsize=8.5)
        ax.set(xlim=(-0.6, n_columns - 0.4), ylim=(n_rows, -0.6))
        ax.set_xticks(range(n_columns), columns, rotation=52, ha="left", rotation_mode="anchor", fontsize=8.5)
        ax.set_yticks(range(n_rows), list(patients))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        ax.grid(color=style.GRID, linewidth=0.6)
        ax.set_ylabel("cache")
        fig.legend(loc="outside lower right", ncols=2)
    return fig


def _columns(patients: Mapping[str, Mapping[str, bool]], speed: str | None) -> Sequence[str]:
    found = [list(seen) for seen in patients.values()]
    if not found or not found[0] or any(columns != found[0] for columns in found):
        raise InputError("These charts do not fit into one figure.", expected="the same observations of every patient",
                         got=f"{len(found)} patients with {sorted({len(columns) for columns in found})} observations",
                         todo="Draw KV caches and prefix caches apart.")  # fmt: skip
    if speed is not None and speed not in found[0]:
        raise InputError("There is no such column.", expected=", ".join(found[0]), got=repr(speed), todo="Name one of these.")
    return found[0]
