"""Lesson 12: two gauges, the window and the account. Knows nothing about agents: it takes what was counted.

The first is a share of something that can be full. The second has no end, so it never says percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from kvcourse.errors import InputError
from kvcourse.ledger import Bill, Ledger, TurnCount
from kvcourse.viz import style
from kvcourse.viz.budget_plots import CACHED, COMPUTED, WRITTEN

WIDTH, HEIGHT = 7.6, 4.1  # inches
LEFT, RIGHT = 0.25, 7.35
HELD, ROOM = style.SLOTS["held"], style.SLOTS["empty"]


@dataclass(frozen=True)
class Reading:
    """What both gauges show. replayed: what an agent that sends everything would have processed, the scale of the second.

    summaries: requests that made summaries; they are part of the second gauge and of the bill, and of no window.
    """

    title: str
    ledger: Ledger
    bill: Bill
    replayed: int
    summaries: tuple[TurnCount, ...] = ()
    stopped: str = ""  # why it went no further, if it did not

    def __post_init__(self) -> None:
        if not len(self.ledger) or self.replayed < 1:
            raise InputError("Nothing to show.", expected="a ledger with a turn, and a scale", got=f"{len(self.ledger)} turns",
                             todo="Record a turn.")  # fmt: skip

    @property
    def requests(self) -> tuple[TurnCount, ...]:
        return (*self.ledger, *self.summaries)

    def sums(self) -> dict[str, int]:
        """All requests, by class."""
        names = ("cached", "computed", "completion")
        return {name: sum(getattr(turn, f"{name}_tokens") for turn in self.requests) for name in names}

    def in_words(self) -> list[str]:
        """The two gauges, and the bill."""
        ledger, sums = self.ledger, self.sums()
        parts = f"{sums['cached']:,} cached + {sums['computed']:,} computed + {sums['completion']:,} written by the model"
        lines = [
            f"In the window now: {ledger.occupancy:,} of {ledger.limit:,} tokens, {ledger.share:.0%}.",
            f"Processed in {len(ledger)} steps: {sum(sums.values()):,} tokens = {parts}.",
            f"Billed: as much as {self.bill.total:,.0f} input tokens that nobody caches.",
        ]
        return [*lines, self.stopped] if self.stopped else lines


def draw_gauges(reading: Reading) -> Figure:
    """The window with its limit, the account without one, and the window after each step."""
    with style.use():
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=style.DPI)
        figure.set_layout_engine("none")
        sheet = figure.add_axes((0, 0, 1, 1))
        sheet.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
        sheet.set_axis_off()
        sheet.text(LEFT, 0.2, reading.title, fontsize=11, fontweight="bold", va="center", parse_math=False)
        _draw_window(sheet, reading.ledger)
        _draw_account(sheet, reading)
        _draw_steps(figure, reading.ledger)
    return figure


def _draw_window(ax: Axes, ledger: Ledger) -> None:
    _name(
        ax,
        0.58,
        "in the window now",
        f"{ledger.occupancy:,} of {ledger.limit:,} tokens · {ledger.share:.0%}",
        style.ACTIVATION.text,
    )
    width = (RIGHT - LEFT) * ledger.share
    _bar(ax, [(HELD, width), (ROOM, RIGHT - LEFT - width)], 0.76)


def _draw_account(ax: Axes, reading: Reading) -> None:
    sums = reading.sums()
    total = sum(sums.values())
    _name(ax, 1.34, "processed so far", f"{total:,} tokens · billed like {reading.bill.total:,.0f}", style.INK)
    scale = (RIGHT - LEFT) / max(reading.replayed, total)
    slots = (("cached", CACHED), ("computed", COMPUTED), ("completion", WRITTEN))
    _bar(ax, [(slot, sums[name] * scale) for name, slot in slots], 1.52)
    x = LEFT
    for (name, slot), word in zip(slots, ("cached", "computed", "written by the model"), strict=True):
        ax.add_patch(slot.patch(x + 0.1, 1.97, 0.2, 0.14))
        ax.text(x + 0.27, 1.97, f"{word} {sums[name]:,}", fontsize=8.5, va="center")
        x += 1.75
    end = LEFT + reading.replayed * scale
    ax.plot([end, end], [1.48, 1.84], color=style.MUTED, linewidth=1.2, linestyle=":")
    ax.text(RIGHT, 1.97, f"replay all: {reading.replayed:,}", fontsize=8.5, color=style.MUTED, ha="right", va="center")


def _draw_steps(figure: Figure, ledger: Ledger) -> None:
    """The window as each step left it, and its limit."""
    ax = figure.add_axes((0.105, 0.12, 0.862, 0.3))
    heights = [turn.occupancy for turn in ledger]
    sides = [step + side for step in range(1, len(heights) + 1) for side in (-0.43, 0.43)]
    tops = [top for height in heights for top in (height, nan)][:-1]  # nan: the gap after it. A patch for each is slow
    ax.stairs(tops, sides, fill=True, facecolor=HELD.face, edgecolor=HELD.edge, linewidth=0.5)
    ax.axhline(ledger.limit, color=style.INK, linewidth=1.2, linestyle=":")
    ax.set(xlim=(0.3, max(10, len(heights)) + 0.7), ylim=(0, 1.12 * ledger.limit), yticks=[0, ledger.limit / 2, ledger.limit])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.grid(visible=False, axis="x")
    ax.tick_params(labelsize=8.5)
    ax.set_xlabel("step", fontsize=9)
    ax.set_title("the window after each step", fontsize=9, fontweight="normal", pad=3)


def _name(ax: Axes, y: float, name: str, value: str, colour: str) -> None:
    how: dict[str, Any] = {"va": "center", "parse_math": False}
    ax.text(LEFT, y, name, color=colour, **how)
    ax.text(RIGHT, y, value, fontweight="bold", ha="right", color=colour, **how)


def _bar(ax: Axes, parts: Sequence[tuple[style.SlotStyle, float]], top: float) -> None:
    x = LEFT
    for slot, width in parts:
        ax.add_patch(slot.patch(x + width / 2, top + 0.14, width, 0.28))
        x += width
    ax.add_patch(Rectangle((LEFT, top), x - LEFT, 0.28, fill=False, edgecolor=style.INK, linewidth=0.8))
