"""Lesson 14: the course in one picture: what three caches keep, and what is computed all the same.

Knows nothing about models: it takes passes that somebody recorded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz import style
from kvcourse.viz.plots import drawable
from kvcourse.viz.work_plots import AGAIN

_LEGEND = (
    ("written", "computed now, for the first time"),
    ("again", "computed again"),
    ("held", "kept by this generation"),
    ("reused", "kept from an earlier request"),
)


@dataclass(frozen=True)
class Pass:
    """One forward pass: the first of the places that it computed, and one past the last. Places before `start` it looked up.

    kept_from: how many of those places were kept from an earlier request. label: written before the row, if any.
    """

    start: int
    stop: int
    kept_from: int = 0
    label: str = ""
    text: str = ""  # one character a place


@dataclass(frozen=True)
class Scene:
    """The same work without a cache and with it."""

    title: str
    words: str
    without: Sequence[Pass]
    with_it: Sequence[Pass]

    @property
    def tokens(self) -> tuple[int, int]:
        """Through the model, without and with."""
        return tuple(sum(one.stop - one.start for one in passes) for passes in (self.without, self.with_it))  # type: ignore[return-value]


def plot_overview(scenes: Sequence[Scene]) -> Figure:
    """A column for each scene: above, the work without the cache; below, with it. The numbers are counted from the passes."""
    for scene in scenes:
        for one in (*scene.without, *scene.with_it):
            if not 0 <= one.kept_from <= one.start < one.stop or len(one.text) < one.stop:
                raise InputError("This pass cannot be drawn.", expected="0 <= kept_from <= start < stop <= characters",
                                 got=one, todo="Record where it began and ended.")  # fmt: skip
    if not scenes:
        raise InputError("Nothing to draw.", expected="a scene or more", got="none", todo="Record one.")
    rows = [max(len(getattr(scene, side)) for scene in scenes) for side in ("without", "with_it")]
    with style.figure(4.0 * len(scenes), 1.7 + 0.42 * sum(rows), nrows=2, ncols=len(scenes), squeeze=False,
                      height_ratios=[row + 1 for row in rows]) as (fig, axes):  # fmt: skip
        for column, scene in enumerate(scenes):
            before, after = scene.tokens
            for ax, passes, height in ((axes[0][column], scene.without, rows[0]), (axes[1][column], scene.with_it, rows[1])):
                _draw(ax, passes, height)
            axes[0][column].set_title(f"{scene.title}\n", parse_math=False)
            axes[0][column].text(0, 1.03, scene.words, transform=axes[0][column].transAxes, color=style.MUTED, va="bottom")
            count: dict[str, Any] = {"loc": "left", "fontsize": 13, "fontweight": "bold"}
            axes[0][column].set_xlabel(f"without it: {before} tokens computed", **count)
            axes[1][column].set_xlabel(f"with it: {after}", color=style.ACTIVATION.text, **count)
        style.key(fig, [(_slot(state), "", words) for state, words in _LEGEND])
    return fig


def _draw(ax: Axes, passes: Sequence[Pass], height: int) -> None:
    seen: set[tuple[str, int]] = set()
    widest = max(one.stop for one in passes)
    for row, one in enumerate(passes):
        for place in range(one.stop):
            letters = one.text[: place + 1]
            computed = place >= one.start
            if computed:
                state = "again" if (letters, place) in seen else "written"
                seen.add((letters, place))
            else:
                state = "reused" if place < one.kept_from else "held"
            ax.add_patch(_slot(state).patch(place, row))
            plate = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.8} if state == "reused" else None
            weight = "bold" if computed else "normal"
            ax.text(place, row, drawable(one.text[place]), ha="center", va="center", fontweight=weight, bbox=plate)
    ax.set_xlim(-0.6, max(widest, 8) - 0.4)
    ax.set_ylim(max(height, len(passes)) - 0.4, -0.6)
    ax.set_yticks(range(len(passes)), [one.label for one in passes])
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.grid(False)
    ax.spines[:].set_visible(False)


def _slot(state: str) -> style.SlotStyle:
    return AGAIN if state == "again" else style.SLOTS[state]
