"""Lesson 03: a training run as a picture that is redrawn while it runs. Knows nothing about models, or how they are trained.

    with LiveCurve(steps=1000, chance=0.1) as curve:  # one figure below the cell, replaced as training goes on
        model = train(SMALL, on_step=curve)
    curve.recalls                                     # [(step, recall), ...] as they came

The figure that is left in the notebook is the last one, an ordinary PNG. Outside a notebook nothing is shown.
"""

import itertools
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from kvcourse.errors import InputError
from kvcourse.viz import style

SHARE = 0.08  # of the training time that drawing may take
SHORTEST_S = 0.4  # between two drawings: the eye needs no more
SMOOTH = 8  # steps that the dark line of the loss averages over
LOSS, RECALL = "#4A5262", style.AGGREGATE.text


@runtime_checkable
class Progress(Protocol):
    """What training tells after a step. `recalls`: (step, recall) of each time that it was measured so far.

    stage: which one training is in, counted from 0. It may have changed at the end of this step.
    """

    step: int
    stage: int
    loss: float
    recalls: list[tuple[int, float]]


class LiveCurve:
    """Hand it to training as `on_step`. It notes every step, and redraws when the last drawing has paid for itself.

    steps: at most so many. chance: recall of somebody who guesses.
    """

    def __init__(self, *, steps: int, chance: float, clock: Callable[[], float] = time.monotonic) -> None:
        if not 0 <= chance <= 1:
            raise InputError("Chance is a share.", expected="0 to 1", got=chance, todo="Divide right guesses by all guesses.")
        self.steps, self.chance = steps, chance
        self.losses: list[tuple[int, float]] = []
        self.recalls: list[tuple[int, float]] = []
        self.stages: list[tuple[int, int]] = []  # (step, stage) of each change: the steps after this one are of that stage
        self._stage = 0
        self._clock = clock
        self._due = -float("inf")
        self._screen = _Screen()

    def __call__(self, progress: Progress) -> None:
        self.losses.append((progress.step, float(progress.loss)))
        self.recalls = list(progress.recalls)
        if progress.stage != self._stage:
            self._stage = progress.stage
            self.stages.append((progress.step, progress.stage))
        now = self._clock()
        if self._screen.is_there and now >= self._due:
            self._screen.show(self.draw())
            took = self._clock() - now
            self._due = now + max(SHORTEST_S, took / SHARE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the whole curve, also when training was interrupted."""
        if self.losses and self._screen.is_there:
            self.steps = self.losses[-1][0]  # it may have needed fewer
            self._screen.show(self.draw(), last=True)

    def draw(self) -> Figure:
        """Loss above, recall below, on one axis of steps; dotted upright lines where a stage begins. While it runs, the axis
        already has its full length.
        """
        if not self.losses:
            raise InputError("Nothing to draw.", expected="a step of training", got="none", todo="Pass this as on_step first.")
        with style.figure(7.2, 4.4, nrows=2, sharex=True, height_ratios=(3, 4)) as (fig, (top, bottom)):
            _draw_loss(top, self.losses)
            _draw_recall(bottom, self.recalls, self.chance, self.steps)
            bottom.set_xlim(0, max(self.steps, 1))
            _draw_stages(top, bottom, self.stages, self.steps)
            style.label_axes(top, x=(None, "", None), y=(None, "training loss,\nweighted", "nats"))
            style.label_axes(bottom, x=(None, "training", "steps"), y=(None, "recall", None))
            fig.align_ylabels([top, bottom])
            done = self.losses[-1][0]
            top.set_title(f"step {done} of {self.steps}   loss {_smooth(self.losses)[-1]:.2f}")
        return fig


def steepest_rise(recalls: list[tuple[int, float]]) -> tuple[int, int]:
    """The two neighbouring measurements, by their steps, between which recall rose most."""
    if len(recalls) < 2:
        raise InputError("No rise yet.", expected="two measurements", got=len(recalls), todo="Measure recall along the way.")
    rises = [(after - before, a, b) for (a, before), (b, after) in itertools.pairwise(recalls)]
    _, first, second = max(rises, key=lambda rise: rise[0])
    return first, second


def _draw_loss(ax: Axes, losses: list[tuple[int, float]]) -> None:
    steps, values = zip(*losses, strict=True)
    ax.plot(steps, values, ".", color=LOSS, markersize=2.5, alpha=0.35, markeredgewidth=0)
    ax.plot(steps, _smooth(losses), color=LOSS, linestyle="-")
    ax.set_ylim(bottom=0)


def _draw_recall(ax: Axes, recalls: list[tuple[int, float]], chance: float, steps: int) -> None:
    ax.axhline(chance, color=style.MUTED, linestyle=":", linewidth=1.4)
    # On the right while the curve is on the left, and out of its way: just above the line it names.
    ax.text(steps, chance + 0.02, f"chance {chance:.0%} ", ha="right", va="bottom", color=style.MUTED)
    if recalls:
        at, shares = zip(*recalls, strict=True)
        ax.plot(at, shares, "o-", color=RECALL, markersize=3.5, clip_on=False)
        near_end = at[-1] > 0.8 * steps
        offset, side = ((-8, 8), "right") if near_end else ((8, 6), "left")
        ax.annotate(
            f"{shares[-1]:.0%}",
            (at[-1], shares[-1]),
            xytext=offset,
            textcoords="offset points",
            color=RECALL,
            fontweight="bold",
            ha=side,
            va="bottom",
        )
    ax.set_ylim(0, 1.12)
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _draw_stages(top: Axes, bottom: Axes, stages: list[tuple[int, int]], steps: int) -> None:
    """A dotted line through both panels where a stage begins; its name is above, or its number alone where room is short."""
    for (step, stage), (end, _) in itertools.pairwise([*stages, (steps, 0)]):
        for ax in (top, bottom):
            ax.axvline(step, color=style.MUTED, linestyle=":", linewidth=1.2, zorder=1)
        name = f"stage {stage + 1}" if end - step > 0.08 * steps else str(stage + 1)
        place: dict[str, Any] = {"xycoords": top.get_xaxis_transform(), "xytext": (3, -1), "textcoords": "offset points"}
        top.annotate(name, (step, 1), color=style.MUTED, fontsize=8, va="top", **place)


def _smooth(losses: list[tuple[int, float]]) -> list[float]:
    """The average of each loss and up to SMOOTH - 1 before it."""
    total = np.cumsum([0.0, *(loss for _, loss in losses)])
    ends = np.arange(1, len(total))
    starts = np.maximum(ends - SMOOTH, 0)
    return ((total[ends] - total[starts]) / (ends - starts)).tolist()


class _Screen:
    """One output below the running cell, replaced each time. Not there outside a notebook."""

    def __init__(self) -> None:
        ipython = sys.modules.get("IPython")  # not imported: then nobody looks
        shell = ipython.get_ipython() if ipython else None
        self.is_there = shell is not None and hasattr(shell, "kernel")
        self._handle: Any = None

    def show(self, fig: Figure, last: bool = False) -> None:
        """While training runs, fewer pixels: they are drawn in half the time."""
        from IPython.display import display

        data = {"image/png": style.png(fig, scale=2 if last else 1), "text/plain": _in_words(fig)}
        about = {"image/png": {"width": round(fig.get_figwidth() * style.DPI), "alt": _in_words(fig)}}
        if self._handle is None:
            self._handle = display(data, metadata=about, raw=True, display_id=True)
        else:
            self._handle.update(data, metadata=about, raw=True)


def _in_words(fig: Figure) -> str:
    """For readers who do not see the picture, and for a terminal."""
    top, bottom = fig.axes
    shown = [text.get_text().strip() for text in bottom.texts]
    begun = [f"{text.get_text().removeprefix('stage ')} after step {text.xy[0]}" for text in top.texts]  # type: ignore[attr-defined]
    stages = f"; stage {', '.join(begun)}" if begun else ""
    return f"Training: {top.get_title(loc='left')}{stages}; recall: {', '.join(reversed(shown))}."
