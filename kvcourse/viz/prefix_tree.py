"""Lesson 10: what a prefix index holds, drawn. Knows nothing about tensors, or why anything is stored.

    plot_trees({"after the first": pieces_of(index, word=str)})

A word's column is its place in its text, so that equal starts stand above each other and every split shows. A stored stretch
is framed; what follows it hangs behind it; the first branch goes on in the same line, the others below. A root is a namespace.
"""

import functools
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import TextPath

from kvcourse.common_prefix import common_length
from kvcourse.errors import InputError
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import PrefixIndex
from kvcourse.viz import style

ROW, SLOT, GAP = 0.49, 0.27, 0.13  # inches: a line of stretches, the height of a slot, between two columns
FRAME = 0.035  # by how much a stretch's frame is larger than its slots
FONT = 8.5  # points
LINE, MARGIN, BETWEEN = 0.185, 0.14, 0.34  # a line of text; around everything; between two columns of panels
KEY = {"held": "held", "written": "written now", "reused": "found and reused", "evicted": "evicted"}


class Request(NamedTuple):
    """The text that a picture is about: its first `known` tokens were found, the others up to `stored` written just now.

    root: where it was looked for, by the key; None: under the only root there is.
    """

    tokens: Sequence[int]
    known: int
    stored: int = 0
    root: bytes | None = None


@dataclass(frozen=True)
class Piece:
    """One stretch as it is drawn. path: all tokens up to its end, under its root. words, states: of its own tokens only."""

    root: str
    path: tuple[int, ...]
    words: tuple[str, ...]
    states: tuple[str, ...]  # of style.SLOTS
    pins: int = 0
    order: int = 0  # of two branches, the lower one is drawn first

    @property
    def start(self) -> int:
        return len(self.path) - len(self.words)

    @property
    def front(self) -> tuple[int, ...]:
        return self.path[: self.start]


class Panel(NamedTuple):
    """A tree with what is said about it."""

    pieces: Sequence[Piece]
    words: str = ""
    roots: Sequence[str] = ()  # drawn even if nothing hangs there


def pieces_of(
    index: PrefixIndex,
    word: Callable[[int], str] = str,
    *,
    name: Callable[[bytes], str] = lambda key: "root",
    request: Request | None = None,
    gone: Iterable[Entry] = (),
) -> list[Piece]:
    """All that an index holds, as it is now.

    word: the text of a token. name: of a root, by its key. gone: entries that have just been removed, drawn as evicted.
    """
    lost = list(gone)
    return [_piece(entry, word, name, request, "evicted" if entry in lost else "held") for entry in [*index.entries(), *lost]]


def plot_trees(
    panels: Mapping[str, Sequence[Piece] | Panel], *, columns: int = 1, like: Iterable[Panel] = (), width: float | int = 0
) -> Figure:
    """Trees, a panel each, on one scale, and a key of the states that occur.

    columns: how many panels stand side by side. like: panels that are shown elsewhere: this picture gets their scale, and the
    height of the tallest. width: of the figure, in inches; it is wider if a tree needs that.
    """
    shown = {title: panel if isinstance(panel, Panel) else Panel(panel) for title, panel in panels.items()}
    others = [*like, *shown.values()]
    states = {state for panel in others for piece in panel.pieces for state in piece.states}
    if not shown or columns < 1 or not states <= set(style.SLOTS):
        raise InputError("These trees cannot be drawn.", expected=f"panels, and states {', '.join(style.SLOTS)}",
                         got=", ".join(sorted(states)) or "nothing", todo="Make the pieces with pieces_of(index).")  # fmt: skip
    grid = _Grid(others)
    each = max(grid.width, (width - 2 * MARGIN - (columns - 1) * BETWEEN) / columns)
    rows = [list(shown.items())[at : at + columns] for at in range(0, len(shown), columns)]
    heights = [max(_height(panel, each) for _, panel in row) for row in rows]
    total = max(sum(heights), *(_height(panel, each) for panel in others))
    sheet = _sheet(2 * MARGIN + columns * each + (columns - 1) * BETWEEN, total + MARGIN + 0.4)
    top = MARGIN
    for row, height in zip(rows, heights, strict=True):
        for column, (title, panel) in enumerate(row):
            _draw_panel(sheet, grid, title, panel, MARGIN + column * (each + BETWEEN), top, each)
        top += height
    _draw_key(sheet, [state for state in KEY if state in states], MARGIN + total + 0.1)
    figure = sheet.figure
    assert isinstance(figure, Figure)
    return figure


class _Grid:
    """Where the columns of words stand: as wide as the widest word of any panel, measured from a panel's left edge."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        widths: dict[int, float] = defaultdict(lambda: 0.2)
        for piece in (piece for panel in panels for piece in panel.pieces):
            for place, word in enumerate(piece.words, piece.start):
                widths[place] = max(widths[place], _inches(word) + 0.15)
        names = [name for panel in panels for name in _roots(panel)]
        self.root = max((_inches(name) + 0.18 for name in names), default=0.4)
        self.left = [self.root + 0.2]
        for place in range(max(widths, default=0) + 1):
            self.left.append(self.left[-1] + widths[place] + GAP)
        self.width = self.left[-1]

    def ends(self, start: int, stop: int) -> tuple[float, float]:
        """From the left edge of one column to the right edge of another."""
        return self.left[start], self.left[stop] - GAP


def _piece(
    entry: Entry, word: Callable[[int], str], name: Callable[[bytes], str], request: Request | None, state: str
) -> Piece:
    root = entry.path[0].parent
    assert root is not None
    path = tuple(token for one in entry.path for token in one.tokens)
    states = [state] * len(entry.tokens)
    if request is not None and state == "held" and request.root in (None, root.key):
        same = common_length(path, tuple(request.tokens))
        for place in range(entry.start, min(entry.stop, same)):
            now = "reused" if place < request.known else "written" if place < request.stored else state
            states[place - entry.start] = now
    return Piece(name(root.key), path, tuple(map(word, entry.tokens)), tuple(states), entry.pins, entry.created)


@functools.cache
def _inches(word: str) -> float:
    """How wide a word is when it is drawn."""
    with style.use():
        path = TextPath((0, 0), word, size=FONT, prop=FontProperties(family=mpl.rcParams["font.family"]))
    return float(path.get_extents().width) / 72 if len(path.vertices) else 0.0


def _roots(panel: Panel) -> list[str]:
    return list(dict.fromkeys([*panel.roots, *(piece.root for piece in panel.pieces)])) or ["root"]


def _lines(panel: Panel) -> dict[Piece | str, int]:
    """In which line each piece stands, from 0; and, under its name, each root."""
    children: dict[tuple[str, tuple[int, ...]], list[Piece]] = defaultdict(list)
    for piece in sorted(panel.pieces, key=lambda piece: piece.order):
        children[piece.root, piece.front].append(piece)
    placed: dict[Piece | str, int] = {}
    line = 0
    for root in _roots(panel):
        placed[root] = line
        waiting = children[root, ()][::-1]
        first = True
        while waiting:
            piece = waiting.pop()
            continues = first if not piece.start else children[root, piece.front][0] is piece
            line += not continues
            placed[piece], first = line, False
            waiting += children[root, piece.path][::-1]
        line += 1
    return placed


def _height(panel: Panel, width: float) -> float:
    return 0.3 + LINE * len(_wrapped(panel.words, width)) + ROW * (max(_lines(panel).values()) + 1) + 0.22


def _wrapped(words: str, width: float) -> list[str]:
    return textwrap.wrap(words, int(width / 0.066)) if words else []


def _sheet(width: float, height: float) -> Axes:
    """Axes in inches, y downwards."""
    with style.use():
        figure = Figure(figsize=(width, height), dpi=style.DPI)
        figure.set_layout_engine("none")
        ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.set_axis_off()
    return ax


def _draw_panel(ax: Axes, grid: _Grid, title: str, panel: Panel, left: float, top: float, width: float) -> None:
    plain: dict[str, Any] = {"va": "center", "parse_math": False}
    ax.text(left, top + 0.1, title, fontsize=10, fontweight="bold", color=style.INK, **plain)
    lines = _wrapped(panel.words, width)
    for number, words in enumerate(lines):
        ax.text(left, top + 0.32 + LINE * number, words, fontsize=8.5, color=style.MUTED, **plain)
    first = top + 0.36 + LINE * len(lines) + ROW / 2
    placed = _lines(panel)
    behind = {(piece.root, piece.path): line for piece, line in placed.items() if isinstance(piece, Piece)}
    for item, line in placed.items():
        y = first + ROW * line
        if isinstance(item, str):
            _draw_root(ax, item, left, y, grid.root)
        else:
            y_from = first + ROW * (behind[item.root, item.front] if item.start else placed[item.root])
            _draw_branch(ax, left + grid.left[item.start], y_from, y, is_first=not item.start)
            _draw_piece(ax, grid, item, left, y)


def _draw_root(ax: Axes, name: str, left: float, y: float, width: float) -> None:
    _draw_round(ax, left, y, width, 0.24, 0.1, facecolor=style.INK, edgecolor="none")
    ax.text(left + width / 2, y, name, color="#FFFFFF", fontsize=FONT, ha="center", va="center", parse_math=False)


def _draw_round(ax: Axes, x: float, y: float, width: float, height: float, corner: float, **look: Any) -> None:
    """A box with round corners, from x on, around the height y."""
    shape = f"round,pad=0,rounding_size={corner}"
    ax.add_patch(FancyBboxPatch((x, y - height / 2), width, height, boxstyle=shape, **look))


def _draw_branch(ax: Axes, x: float, y_from: float, y: float, *, is_first: bool) -> None:
    """The line to a piece that begins at x: straight on, or down the gap between two columns."""
    left, middle, right = (x - 0.2, x - 0.1, x - FRAME) if is_first else (x - GAP + FRAME, x - GAP / 2, x - FRAME)
    xs, ys = ([left, right], [y, y]) if y == y_from else ([left, middle, middle, right], [y_from, y_from, y, y])
    ax.plot(xs, ys, color=style.INK, linewidth=1.2, linestyle="-", zorder=1, solid_joinstyle="round")


def _draw_piece(ax: Axes, grid: _Grid, piece: Piece, left: float, y: float) -> None:
    start, stop = grid.ends(piece.start, piece.start + len(piece.words))
    gone = all(state == "evicted" for state in piece.states)
    edge = style.INK if piece.pins else style.MUTED
    look = {"edgecolor": edge, "linewidth": 1.8 if piece.pins else 0.9, "linestyle": "dashed" if gone else "solid"}
    _draw_round(ax, left + start - FRAME, y, stop - start + 2 * FRAME, SLOT + 0.08, 0.05, facecolor="#FFFFFF", **look)
    for place, (word, state) in enumerate(zip(piece.words, piece.states, strict=True), piece.start):
        x0, x1 = grid.ends(place, place + 1)
        ax.add_patch(style.SLOTS[state].patch(left + (x0 + x1) / 2, y, x1 - x0, SLOT))
        plate = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.7} if state == "reused" else None
        ax.text(
            left + (x0 + x1) / 2, y, word, fontsize=FONT, ha="center", va="center_baseline", bbox=plate, parse_math=False,
            color=style.MUTED if state == "evicted" else style.INK,
        )  # fmt: skip
    if piece.pins:
        text = f"pinned by {piece.pins}"
        ax.text(left + stop + FRAME, y - SLOT / 2 - 0.05, text, fontsize=7, ha="right", va="bottom", color=style.INK)


def _draw_key(ax: Axes, states: Sequence[str], y: float) -> None:
    x = MARGIN
    for state in states:
        ax.add_patch(style.SLOTS[state].patch(x + 0.13, y + 0.06, 0.26, 0.2))
        ax.text(x + 0.34, y + 0.06, KEY[state], fontsize=8, color=style.MUTED, va="center")
        x += 0.34 + 0.066 * len(KEY[state]) + 0.3
