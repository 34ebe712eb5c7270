"""Lesson 04: one weight, several prompts: x @ W + b drawn as the product it is. Knows nothing about models, names or files.

    plot_projection({"first prompt": (tokens, x, K), "second prompt": (tokens, x, K)}, Wk)

The weight stands in the middle, once: it is the same for every prompt. What is beside it belongs to one prompt each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import draw_signed, drawable

Run = tuple[Sequence[str], np.ndarray, np.ndarray]  # texts of T tokens, x (T, n_in), result (T, n_out)
MOST_TOKENS = 16


def plot_projection(
    runs: Mapping[str, Run],
    weight: np.ndarray,
    *,
    names: tuple[str, str, str, str] = ("x", "Wk", "bk", "K"),
    part: str | None = None,
) -> Figure:
    """Each prompt's x on the left, the one weight (n_in, n_out) in the middle, each prompt's result on the right.

    runs: {prompt: (its tokens' texts, x, result)}; 16 tokens at most.
    names: of x, the weight, the bias (which is written and not drawn) and the result.
    part: what the result's numbers belong to, such as "head 0", if it is not all of K.
    The panels of a column share one scale, so that what looks the same is the same.
    Raises: InputError for shapes that cannot be multiplied, for no run and for too many tokens.
    """
    _judge(runs, weight)
    numbers = range(len(runs))
    rows: list[Any] = [[f"x{i}", "weight", f"result{i}"] for i in numbers]
    heights = [len(tokens) for tokens, _, _ in runs.values()]
    with style.use():
        fig = Figure(figsize=(9.6, 1.2 + 0.22 * sum(heights) + 0.4 * len(heights)), dpi=style.DPI, layout="constrained")
        axes = fig.subplot_mosaic(rows, width_ratios=[2.2, 1, 1], height_ratios=heights)
        _draw(axes["weight"], weight, _limit([weight]))
        style.frame(axes["weight"], style.PARAMETER, _title(names[1], weight))
        n_in, n_out = weight.shape
        _say(axes["weight"], f"from {n_in} numbers to {n_out}")
        limits = _limit([x for _, x, _ in runs.values()]), _limit([result for _, _, result in runs.values()])
        for i, (prompt, (tokens, x, result)) in enumerate(runs.items()):
            left, right = axes[f"x{i}"], axes[f"result{i}"]
            for ax, values, limit, name in ((left, x, limits[0], names[0]), (right, result, limits[1], names[3])):
                _draw(ax, values, limit)
                style.frame(ax, style.ACTIVATION, _title(name, values))
            left.set_yticks(range(len(tokens)), [drawable(token) for token in tokens], parse_math=False)
            left.set_ylabel(prompt, parse_math=False)
            _say(left, f"{len(tokens)} tokens, {n_in} numbers each")
            _say(right, f"{n_out} numbers" if part is None else f"{n_out} numbers of {part}")
            left.text(1.05, 0.5, "@", transform=left.transAxes, va="center", fontsize=12)
            right.text(-0.05, 0.5, f"+ {names[2]} =", transform=right.transAxes, ha="right", va="center", fontsize=12)
        fig.align_ylabels([axes[f"x{i}"] for i in numbers])
        fig.supxlabel("blue below 0, white 0, red above; one scale for each column", fontsize=9, color=style.MUTED)
    return fig


def _draw(ax: Axes, values: np.ndarray, limit: float) -> None:
    draw_signed(ax, values, limit=limit)
    ax.set_aspect("auto")
    ax.set_xticks([])
    ax.set_yticks([])


def _say(ax: Axes, along: str) -> None:
    """What the columns of a panel are."""
    ax.set_xlabel(along, fontsize=9, color=style.MUTED, parse_math=False)


def _title(name: str, values: np.ndarray) -> str:
    return f"{name}  ({values.shape[0]}, {values.shape[1]})"


def _limit(panels: Sequence[np.ndarray]) -> float:
    finite = [np.abs(values[np.isfinite(values)]).max(initial=0.0) for values in panels]
    return float(max(finite)) or 1.0


def _judge(runs: Mapping[str, Run], weight: np.ndarray) -> None:
    for prompt, (tokens, x, result) in runs.items():
        shapes = f"{len(tokens)} tokens, {x.shape} and {result.shape}"
        if weight.ndim != 2 or x.shape != (len(tokens), weight.shape[0]) or result.shape != (len(tokens), weight.shape[1]):
            raise InputError(
                f"x @ W cannot be drawn for {prompt!r}.",
                expected=f"T tokens, (T, n_in) and (T, n_out), for a weight {weight.shape}",
                got=shapes,
                todo="Pass one prompt's rows, without a batch axis.",
            )
    longest = max((len(tokens) for tokens, _, _ in runs.values()), default=0)
    if not 0 < longest <= MOST_TOKENS:
        raise InputError("Nothing to draw, or too much.", expected=f"1 to {MOST_TOKENS} tokens", got=longest,
                         todo="Pass shorter prompts.")  # fmt: skip
