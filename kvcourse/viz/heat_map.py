"""Lesson 04: a heat map of any tensor of a model. Knows nothing about models: it takes a tensor, and texts for its tokens.

    draw_tensor(fig, (0, 0, 1, 1), tensor, texts, kind="heads")

One diverging map, 0 in white, the same ends on both sides. A tensor too large for the screen is cut into tiles, and each tile
shows its number furthest from 0, so that no outlier, infinity or NaN gets lost between pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from kvcourse.viz import style
from kvcourse.viz.plots import draw_signed, drawable

Kind = Literal["weight", "tokens", "heads", "attention", "by head"]
MOST = 384  # cells along an axis; more than a screen's column has pixels for


@dataclass(frozen=True)
class Grid:
    """Matrices to be drawn side by side, and how they came from the tensor."""

    panels: tuple[tuple[str, Float[np.ndarray, "rows columns"]], ...]
    rows: str  # what a row is
    columns: str
    cuts: tuple[int, ...] = ()  # columns at which a new head begins
    row_tokens: bool = False  # rows are the prompt's tokens
    column_tokens: bool = False
    tile: tuple[int, int] = (1, 1)  # numbers that one cell stands for


def grid_of(tensor: Tensor, kind: Kind) -> Grid:
    """A tensor (of one prompt) as matrices."""
    if kind == "weight":
        flat = tensor[None] if tensor.dim() == 1 else tensor
        names = ("one number a column", f"{tensor.shape[0]} numbers")
        if tensor.dim() == 2:
            names = (f"first axis ({tensor.shape[0]})", f"second axis ({tensor.shape[1]})")
        return _grid([("", flat)], *names)
    x = tensor[0]
    if kind == "attention":  # (H, T, S)
        return _grid([(f"head {h}", x[h]) for h in range(x.shape[0])], "query", "key", row_tokens=True, column_tokens=True)
    if kind == "heads":  # (H, T, D): side by side, as the model lays them out
        H, _, D = x.shape
        merged = x.transpose(0, 1).flatten(1)
        return _grid(
            [("", merged)], "token", f"{H} heads of {D} numbers, side by side", tuple(range(D, H * D, D)), row_tokens=True
        )
    if kind == "by head":  # (H, T)
        x = x.T
    elif x.dim() == 1:  # (T,)
        x = x[:, None]
    each = f"{x.shape[1]} number{'s' if x.shape[1] > 1 else ''} for each token"
    return _grid([("", x)], "token", each + (", one a head" if kind == "by head" else ""), row_tokens=True)


def _grid(
    panels: Sequence[tuple[str, Tensor]], rows: str, columns: str, cuts: tuple[int, ...] = (), *,
    row_tokens: bool = False, column_tokens: bool = False,
) -> Grid:  # fmt: skip
    height, width = panels[0][1].shape
    tile = (math.ceil(height / MOST), math.ceil(width / MOST))
    drawn = tuple((name, furthest_from_0(matrix, tile)) for name, matrix in panels)
    return Grid(drawn, rows, columns, tuple(cut // tile[1] for cut in cuts), row_tokens, column_tokens, tile)


def furthest_from_0(matrix: Float[Tensor, "rows columns"], tile: tuple[int, int]) -> Float[np.ndarray, "..."]:
    """Of each tile, the number with the largest magnitude; what is not finite counts as larger than any number."""
    x = matrix.detach().float().cpu()
    if tile == (1, 1):
        return x.numpy().astype(np.float64)
    (h, w), (rows, columns) = tile, x.shape
    x = torch.nn.functional.pad(x, (0, -columns % w, 0, -rows % h))  # with 0, which is never further than anything
    tiles = x.unflatten(0, (-1, h)).unflatten(2, (-1, w)).transpose(1, 2).flatten(2)
    size = torch.where(tiles.isfinite(), tiles.abs(), torch.inf)
    return tiles.gather(-1, size.argmax(-1, keepdim=True))[..., 0].numpy().astype(np.float64)


def draw_tensor(fig: Figure, box: tuple[float, float, float, float], tensor: Tensor, texts: Sequence[str], kind: Kind) -> str:
    """Draw into a part of a figure (left, bottom, width, height, in inches) and return what its colours mean."""
    grid = grid_of(tensor, kind)
    finite = [np.abs(panel[np.isfinite(panel)]).max(initial=0.0) for _, panel in grid.panels]
    limit = float(max(finite)) or 1.0
    count = len(grid.panels)
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    longest = max(len(_short(text)) for text in texts) if grid.row_tokens else 3
    label = min(0.075 * longest + 0.3, box[2] / 3)  # room for the tokens' texts
    below = label if grid.column_tokens else 0.4
    left, bottom, width, height = box[0] + label, box[1] + below, box[2] - label, box[3] - below
    cell_w, cell_h = width / across, height / down
    for place, (name, panel) in enumerate(grid.panels):
        row, column = divmod(place, across)
        panel_h = cell_h - (0.2 if name else 0.04)
        panel_w = cell_w - 0.08
        if kind == "attention":  # square cells
            panel_w = panel_h = min(panel_w, panel_h)
        elif panel.shape[0] < 12:
            panel_h = min(panel_h, 0.3 * panel.shape[0])
        top = bottom + height - row * cell_h - (0.2 if name else 0.04)
        size = fig.get_size_inches()
        ax = fig.add_axes(((left + column * cell_w) / size[0], (top - panel_h) / size[1], panel_w / size[0], panel_h / size[1]))
        _draw_panel(ax, panel, grid, limit, texts, first=column == 0, last=place + across >= count)
        if name:
            ax.set_title(name, fontsize=7.5, fontweight="normal", pad=3)
    return colours(grid, limit)


def colours(grid: Grid, limit: float) -> str:
    """What the colours mean, with what is special in these matrices."""
    parts = [f"Blue below 0, white 0, red above; the darkest is ±{limit:.3g}."]
    panels = [panel for _, panel in grid.panels]
    if any(np.isneginf(panel).any() for panel in panels):
        parts.append("Hatched: −inf, a key that the query may not see.")
    if any((np.isnan(panel) | np.isposinf(panel)).any() for panel in panels):
        parts.append("Crossed: NaN or infinity.")
    if grid.tile != (1, 1):
        parts.append(f"A cell shows the number furthest from 0 of {grid.tile[0]}×{grid.tile[1]}.")
    return " ".join(parts)


def _draw_panel(
    ax: Axes, panel: np.ndarray, grid: Grid, limit: float, texts: Sequence[str], *, first: bool, last: bool
) -> None:
    draw_signed(ax, panel, limit=limit, mask=np.isneginf(panel))
    ax.set_aspect("auto")
    for spine in ax.spines.values():
        spine.set(visible=True, color=style.MUTED, linewidth=0.8)
    for cut in grid.cuts:
        ax.axvline(cut - 0.5, color=style.INK, linewidth=0.8, linestyle="-")
    ax.tick_params(labelsize=7, length=2, pad=2)
    for axis, tokens, shown, name in (
        (ax.yaxis, grid.row_tokens, first, grid.rows),
        (ax.xaxis, grid.column_tokens, last, grid.columns),
    ):
        if tokens:
            every = math.ceil(len(texts) / 24)
            places = list(range(0, len(texts), every))
            axis.set_ticks([place / grid.tile[0] for place in places], [_short(texts[place]) for place in places])
        if not shown:
            axis.set_ticklabels([])
        elif not tokens or not grid.column_tokens:
            axis.set_label_text(name, fontsize=7.5)
    if grid.column_tokens:
        ax.tick_params(axis="x", rotation=90)
    if not grid.row_tokens:
        ax.set_yticks(
            [0, panel.shape[0] - 1] if panel.shape[0] > 1 else [],
            [0, panel.shape[0] * grid.tile[0] - 1][: panel.shape[0]] if panel.shape[0] > 1 else [],
        )
    for label in [*ax.get_xticklabels(), *ax.get_yticklabels()]:
        label.set(parse_math=False)


def _short(text: str) -> str:
    shown = drawable(text)
    return shown if len(shown) <= 10 else shown[:9] + "…"
