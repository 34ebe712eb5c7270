"""Lesson 01 onwards: the figures. Knows nothing about models or tokenizers: it takes texts, numbers and arrays.

Every function returns a matplotlib Figure, in the style of `viz.style`.
"""

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from jaxtyping import Bool, Float
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.viz import style

Row = tuple[str, int]  # a token's text, and which of the tokens with that text it is: two ids can look the same


def plot_next_tokens(
    predictions: Mapping[str, Sequence[tuple[str, float | int]]], *, title: str | None = None, scale: float | int | None = None
) -> Figure:
    """Probabilities of the next token, one panel for each prompt, side by side.

    predictions: {prompt: [(token's text, probability), ...]}, the most probable first, as many as should be shown.
    scale: the probability at the right edge; by default a little more than the largest.
    The panels share their scale, and each token has one row across all of them, so that what moves is what changed. A token
    that a panel's list does not name says so there; nothing is drawn as 0 that was not 0.
    """
    panels = {label: _rows(label, pairs) for label, pairs in predictions.items()}
    if not panels or not any(panels.values()):
        raise InputError(
            "Nothing to draw.",
            expected="{prompt: [(token, probability), ...]}",
            got=repr(dict(predictions)),
            todo="Give at least one pair.",
        )
    order: dict[Row, None] = {}
    for rows in panels.values():
        order.update(dict.fromkeys(rows))
    largest = max(p for rows in panels.values() for p in rows.values())
    right = scale if scale is not None else max(largest * 1.25, 1e-6)  # room for the label at the bar's end
    width = 1.6 + 3.4 * len(panels)
    with style.figure(width, 1.1 + 0.3 * len(order), ncols=len(panels), sharex=True, sharey=True, squeeze=False) as (fig, axes):
        for ax, (label, rows) in zip(axes[0], panels.items(), strict=True):
            _draw_panel(ax, list(order), rows, right)
            ax.set_title(textwrap.fill(drawable(label), 38), parse_math=False)
        axes[0, 0].set_yticks(range(len(order)), [drawable(text) for text, _ in order])
        for tick in axes[0, 0].get_yticklabels():
            tick.set(parse_math=False, fontfamily="DejaVu Sans Mono")
        axes[0, 0].invert_yaxis()
        axes[0, 0].set_ylabel("next token")
        if title:
            fig.suptitle(title, x=0.01, ha="left", parse_math=False)
    return fig


def draw_signed(
    ax: Axes,
    values: Float[np.ndarray, "rows columns"],
    *,
    limit: float | int | None = None,
    mask: Bool[np.ndarray, "rows columns"] | None = None,
) -> AxesImage:
    """Draw a matrix of signed values: 0 is white, -limit and limit are the ends of `style.signed_cmap`.

    limit: by default the largest finite magnitude. Give panels that are compared the same one.
    mask: True where a value does not take part (a causal mask): hatched. A NaN or an infinity is crossed; a finite value beyond
    the limit is nearly black. Nothing is hidden: each of the three looks like itself.
    """
    values = np.asarray(values, dtype=float)
    masked = np.zeros(values.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if values.ndim != 2 or masked.shape != values.shape:
        raise InputError(
            "Not a matrix, or a mask of another shape.",
            expected="two axes",
            got=f"{values.shape} and {masked.shape}",
            todo="Choose one head, or one row of the batch.",
        )
    shown = np.isfinite(values) & ~masked
    if limit is None:
        limit = float(np.abs(values[shown]).max(initial=0.0)) or 1.0
    if not limit > 0:
        raise InputError(
            "The limit of a signed map must be positive.",
            expected="limit > 0",
            got=limit,
            todo="Leave it out for the largest value.",
        )
    grid = np.ma.array(values, mask=~shown)
    image = ax.imshow(grid, cmap=style.signed_cmap(), vmin=-limit, vmax=limit, interpolation="nearest", aspect="equal")
    for row, first, last in _runs(~shown & masked) + _runs(~shown & ~masked):
        box = Rectangle((first - 0.5, row - 0.5), last - first, 1, facecolor="#FFFFFF", linewidth=0)
        box.set(hatch="////" if masked[row, first] else "xx", edgecolor="#B9BEC8" if masked[row, first] else style.INK)
        ax.add_patch(box)
    ax.grid(visible=False)
    return image


def _runs(where: Bool[np.ndarray, "rows columns"]) -> list[tuple[int, int, int]]:
    """(row, first column, past the last) of each run: one box for a row of a causal mask, where one for each cell is slow."""
    steps = np.diff(np.pad(where, ((0, 0), (1, 1))).astype(int), axis=1)
    return [(int(r), int(a), int(b)) for (r, a), (_, b) in zip(np.argwhere(steps == 1), np.argwhere(steps == -1), strict=True)]


def drawable(text: str) -> str:
    """The text with each invisible character, and each one that the figure font lacks, written as an escape.

    A space at either end becomes an open box, because " sky" and "sky" are two tokens.
    """
    body = text.strip(" ")
    front = len(text) - len(text.lstrip(" ")) if body else len(text)
    back = len(text) - len(text.rstrip(" ")) if body else 0
    return "␣" * front + "".join(map(_drawable_character, body)) + "␣" * back


def _drawable_character(character: str) -> str:
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")
    if hidden or ord(character) not in _glyphs():
        return character.encode("unicode_escape").decode("ascii")
    return character


@cache
def _glyphs() -> frozenset[int]:
    return frozenset(FT2Font(font_manager.findfont("DejaVu Sans Mono")).get_charmap())


def _rows(label: str, pairs: Sequence[tuple[str, float | int]]) -> dict[Row, float]:
    rows: dict[Row, float] = {}
    for text, probability in pairs:
        if not 0.0 <= float(probability) <= 1.0:  # NaN fails as well
            raise InputError(
                f"Not a probability, for {text!r} after {label!r}.",
                expected="0 to 1",
                got=probability,
                todo="Take the softmax of the logits first.",
            )
        copy = 0
        while (text, copy) in rows:
            copy += 1
        rows[text, copy] = float(probability)
    return rows


def _draw_panel(ax: Axes, order: list[Row], rows: dict[Row, float], right: float) -> None:
    role = style.ACTIVATION  # a probability is computed from this prompt
    places = [place for place, row in enumerate(order) if row in rows]
    values = [rows[order[place]] for place in places]
    ax.barh(places, values, height=0.68, color=role.fill, edgecolor=role.text, linewidth=0.8)
    for place, row in enumerate(order):
        known = row in rows
        text = f"{rows[row]:.1%}" if known else "not listed"
        color = role.text if known else style.MUTED
        ax.text(rows.get(row, 0.0) + right * 0.015, place, text, va="center", color=color, fontsize=9)
    ax.set_xlim(0, right)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if right > 0.05 else f"{value:.1%}")
    ax.set_xlabel("probability")
