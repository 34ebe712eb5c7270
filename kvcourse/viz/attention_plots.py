"""Lesson 02: attention's matrices, a row for each token that looks. Knows nothing about models: it takes arrays and texts.

Widgets for whole models are elsewhere; this is the static figure for one or a few matrices side by side.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import draw_signed, drawable

LARGEST_WITH_NUMBERS = 8  # rows or columns: more numbers than that nobody reads


def plot_attention(
    panels: Mapping[str, Float[np.ndarray, "T S"]],
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    hidden: Bool[np.ndarray, "rows columns"] | None = None,
    limit: float | int | None = None,
) -> Figure:
    """Scores or shares, {title: matrix}, one panel each: rows are the tokens that look, columns those that are looked at.

    keys: the columns' tokens, where they are others than the rows'.
    hidden: True where a token may not look; such a cell is hatched, as is every score of -inf.
    limit: the value at the end of the colours, for all panels; by default each panel has its own. Small matrices show numbers.
    """
    columns = list(queries if keys is None else keys)
    shape = (len(queries), len(columns))
    matrices = {title: np.asarray(values, dtype=float) for title, values in panels.items()}
    wrong = [title for title, values in matrices.items() if values.shape != shape]
    if not matrices or wrong or (hidden is not None and np.shape(hidden) != shape):
        raise InputError(
            "A matrix that does not fit its tokens, or none.",
            expected=f"{shape}: a row for each query, a column for each key",
            got=", ".join(f"{title!r} {values.shape}" for title, values in matrices.items()) or "no matrix",
            todo="Choose one head, and name every row and column.",
        )
    side = max(2.3, 0.3 * max(shape))
    width, height = (side + 1.5) * len(matrices), side * shape[0] / max(shape) + 1.3
    with style.figure(width, height, layout="compressed", ncols=len(matrices), squeeze=False) as (fig, axes):
        for ax, (title, values) in zip(axes[0], matrices.items(), strict=True):
            unseen = np.isneginf(values) if hidden is None else np.isneginf(values) | hidden
            draw_signed(ax, values, limit=limit, mask=unseen)
            _name_tokens(ax, queries, columns)
            if max(shape) <= LARGEST_WITH_NUMBERS:
                _write_numbers(ax, values, unseen, limit)
            style.frame(ax, style.ACTIVATION, title)
        axes[0, 0].set_ylabel("token that looks")
        for ax in axes[0, 1:]:
            ax.tick_params(labelleft=False)
    return fig


def _name_tokens(ax: Axes, queries: Sequence[str], keys: Sequence[str]) -> None:
    ax.set_xticks(range(len(keys)), [drawable(key) for key in keys], rotation=60 if len(keys) > 4 else 0)
    ax.set_yticks(range(len(queries)), [drawable(query) for query in queries])
    for tick in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        tick.set(parse_math=False)
    ax.set_xlabel("token looked at")


def _write_numbers(ax: Axes, values: np.ndarray, unseen: np.ndarray, limit: float | int | None) -> None:
    """Each number in its cell, white where the cell is dark."""
    shown = np.isfinite(values) & ~unseen
    end = float(limit or np.abs(values[shown]).max(initial=0.0)) or 1.0
    for row, column in np.argwhere(shown):
        value = values[row, column]
        ink = "#FFFFFF" if abs(value) > 0.7 * end else style.INK
        ax.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=ink)
