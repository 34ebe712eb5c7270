"""Every lesson: the one look of all figures. Knows nothing about models, caches or what a figure shows.

    with style.figure(width=6) as (fig, ax):       # or style.use() once, for figures of your own
        ax.plot(...)
        style.label_axes(ax, x=("S", "keys attended", "tokens"), y=(None, "time", "ms"))

A tensor's role is told three times, so that colour is never the only signal: by its colour (llm-viz's: parameters
blue-violet, activations green, aggregates amber), by the letter on its chip, and by the word beside it.
"""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import matplotlib as mpl
import matplotlib.style
from cycler import cycler
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.legend_handler import HandlerPatch
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import LogFormatter
from matplotlib.transforms import ScaledTranslation

DPI = 100  # of one figure unit; notebooks show twice as many pixels, at the same size
INK, MUTED, GRID = "#1F2430", "#5F6673", "#E3E6EB"


@dataclass(frozen=True)
class Role:
    """One of the three things a tensor can be. `fill` for areas, `text` for text and lines, `chip` for its one letter."""

    name: str
    chip: str
    fill: str
    text: str


PARAMETER = Role("parameter", "W", "#4D4DFF", "#3B3BD6")
ACTIVATION = Role("activation", "A", "#66CC66", "#15803D")
AGGREGATE = Role("aggregate", "Σ", "#FFCC4D", "#8A6100")
ROLES = (PARAMETER, ACTIVATION, AGGREGATE)


@dataclass(frozen=True)
class SlotStyle:
    """How one slot of a cache is drawn. Each state differs from the others in more than its colour."""

    state: str
    face: str
    edge: str
    width: float
    line: str = "solid"
    hatch: str = ""

    def patch(self, x: float | int, y: float | int, width: float | int = 0.86, height: float | int = 0.86) -> Rectangle:
        """A box around the point (x, y), to be given to `ax.add_patch`."""
        return Rectangle(
            (x - width / 2, y - height / 2),
            width,
            height,
            facecolor=self.face,
            edgecolor=self.edge,
            linewidth=self.width,
            linestyle=self.line,
            hatch=self.hatch,
        )


SLOTS = {
    slot.state: slot
    for slot in (
        SlotStyle("held", ACTIVATION.fill, "#14532D", 1.0),
        SlotStyle("written", ACTIVATION.fill, INK, 2.6),
        SlotStyle("reused", "#C9EEC9", "#14532D", 1.0, hatch="////"),
        SlotStyle("evicted", "#C4C8D0", MUTED, 1.0),
        SlotStyle("empty", "#FFFFFF", MUTED, 1.0, line="dotted"),
    )
}

_RC = {
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.facecolor": "#FFFFFF",
    "savefig.facecolor": "#FFFFFF",  # opaque: readable on a dark page
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.08,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
    "font.size": 10,
    "text.color": INK,
    "figure.titlesize": 12,
    "figure.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=[role.text for role in ROLES], linestyle=["-", "--", ":"]),
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.hashsalt": "kvcourse",  # the same ids in every SVG
}


class use:  # a function to the reader, who calls it once or enters it as a context
    """Set the course's style, on top of matplotlib's defaults and of nothing personal. Safe to call again.

    Call it once at the top of a notebook; or `with style.use(): ...`, which puts back what was set before.
    """

    def __init__(self) -> None:
        self._before = mpl.rcParams.copy()
        matplotlib.style.use(["default", _RC])
        _sharp_notebook_figures()

    def _ipython_display_(self) -> None:
        """Show nothing where `style.use()` is the last line of a cell."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A backend that was chosen meanwhile stays: it is no matter of style.
        mpl.rcParams.update({key: value for key, value in self._before.items() if key != "backend"})


@contextmanager
def figure(
    width: float | int = 6.4,
    height: float | int = 3.2,
    *,
    layout: Literal["constrained", "compressed"] = "constrained",
    **subplots: Any,
) -> Iterator[tuple[Figure, Any]]:
    """`(fig, ax)` in the course's style, in inches; `**subplots` as for `Figure.subplots` (then `ax` is an array).

    layout: "compressed" where several panels have square cells; "constrained" lets those overlap their neighbours.

    The figure is not registered with pyplot: a cell that ends in `fig` shows it once, and nothing stays open.
    """
    with use():
        fig = Figure(figsize=(width, height), dpi=DPI, layout=layout)
        yield fig, fig.subplots(**subplots)


def png(fig: Figure, scale: float | int = 2) -> bytes:
    """The figure as PNG, the same bytes each time: no version and no date inside."""
    buffer = io.BytesIO()
    with use():
        fig.savefig(buffer, format="png", dpi=DPI * scale, metadata={"Software": None})
    return buffer.getvalue()


def chip(ax: Axes, role: Role, x: float | int, y: float | int, *, size: float | int = 9, **text: Any) -> Text:
    """Write a role's letter, white on its own colour, in a small box at (x, y) in data coordinates."""
    box = {"boxstyle": "round,pad=0.25", "facecolor": role.text, "edgecolor": "none"}
    defaults: dict[str, Any] = {"color": "#FFFFFF", "fontweight": "bold", "ha": "center", "va": "center"}
    return ax.text(x, y, role.chip, fontsize=size, bbox=box, **{**defaults, **text})


def frame(ax: Axes, role: Role, name: str) -> None:
    """Frame a drawn tensor in its role's colour and title it with its chip and name: `W  c_attn.weight`."""
    for spine in ax.spines.values():
        spine.set(visible=True, color=role.text, linewidth=2.0)
    ax.set_title(f"     {name}", color=role.text, parse_math=False, pad=9)
    raised = ax.transAxes + ScaledTranslation(4 / 72, 9 / 72, ax.figure.dpi_scale_trans)  # points, whatever the panel's size
    chip(ax, role, 0.0, 1.0, transform=raised, ha="left", va="bottom")


def label_axes(ax: Axes, *, x: tuple[str | None, str, str | None], y: tuple[str | None, str, str | None]) -> None:
    """Name both axes by (symbol, meaning, unit): `S  keys attended (tokens)`. None: it has no symbol, or no unit."""
    ax.set_xlabel(_axis_label(*x))
    ax.set_ylabel(_axis_label(*y))


def key(fig: Figure, kinds: Sequence[tuple[SlotStyle, str, str]]) -> Legend:
    """Below the whole figure, what its boxes mean: (how it is drawn, the mark that stands in it or "", the words)."""
    boxes = [slot.patch(0, 0) for slot, _, _ in kinds]
    marks: dict[Any, Any] = {box: _MarkedBox(mark) for box, (_, mark, _) in zip(boxes, kinds, strict=True)}
    return fig.legend(
        boxes,
        [words for _, _, words in kinds],
        handler_map=marks,
        loc="outside lower center",
        ncols=len(kinds),
        handlelength=1.5,
        handleheight=1.5,
    )


class _MarkedBox(HandlerPatch):
    """A slot in a key, with what may stand in it."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def create_artists(self, legend: Legend, orig_handle: Artist, xdescent: float, ydescent: float,
                       width: float, height: float, fontsize: float, trans: Any) -> Sequence[Artist]:  # fmt: skip
        assert isinstance(orig_handle, Rectangle)
        (box,) = super().create_artists(legend, orig_handle, xdescent, ydescent, width, height, fontsize, trans)
        assert isinstance(box, Rectangle)
        box.set_linestyle(orig_handle.get_linestyle())  # matplotlib copies the dashes, and leaves the name "solid"
        at = width / 2 - xdescent, height / 2 - ydescent
        plate = {"facecolor": "#FFFFFF", "edgecolor": "none", "pad": 0.4} if self._mark and box.get_hatch() else None
        look: dict[str, Any] = {"color": INK, "fontsize": 8, "ha": "center", "va": "center", "parse_math": False}
        return [box, Text(*at, self._mark, transform=trans, bbox=plate, **look)]


class _PlainNumbers(LogFormatter):
    """Of a logarithmic axis: 60, where matplotlib writes 6 × 10¹. Which ticks have room for a number is left to matplotlib."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,g}" if super().__call__(x, pos) else ""


def plain_numbers(axis: Axis) -> None:
    """Write the numbers of a logarithmic axis as they are spoken. Call it once the scale is set."""
    axis.set_major_formatter(_PlainNumbers())
    axis.set_minor_formatter(_PlainNumbers())


def signed_cmap() -> Colormap:
    """The one map for signed values: blue below 0, white at 0, red above. Give it limits that are symmetric about 0.

    Neither end is a role's colour. A value beyond the limits is nearly black (blue or red), and one that is masked or not a
    number is left to the caller's hatching: see `plots.draw_signed`, which does all of this.
    """
    cmap = LinearSegmentedColormap.from_list("kvcourse-signed", ["#1E5FA8", "#8DB9E2", "#FAFAFA", "#F0A08A", "#B3261E"])
    return cmap.with_extremes(bad=(0, 0, 0, 0), under="#071A33", over="#3A0508")


def _axis_label(symbol: str | None, meaning: str, unit: str | None) -> str:
    name = f"${symbol}$  {meaning}" if symbol else meaning
    return f"{name} ({unit})" if unit else name


def _sharp_notebook_figures() -> None:
    """In a notebook, show figures at twice the pixels and exactly in the size asked for."""
    ipython = sys.modules.get("IPython")  # not imported: then this is no notebook
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "kernel"):
        return
    from IPython.core.pylabtools import select_figure_formats
    from matplotlib_inline.config import InlineBackend

    inline = InlineBackend.instance(parent=shell)
    # bbox_inches=None: the default crops every figure to its own ink, and panels that are compared would differ in size.
    options: dict[str, Any] = {"bbox_inches": None, "metadata": {"Software": None}}
    inline.print_figure_kwargs = options
    inline.figure_formats = {"retina"}
    select_figure_formats(shell, {"retina"}, **options)
