"""Lesson 06 onwards: pictures that somebody waits for. Knows nothing about what they show, or about widgets."""

import asyncio
import io
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from kvcourse.viz import style

_CANVAS = FigureCanvasAgg(Figure())  # one for all: it remembers how wide words are, and the next frame has the same ones


class Frames:
    """Pictures by what they show, such as (moment, head): drawn when first asked for, or ahead of time, while the kernel has
    nothing else to do.
    """

    def __init__(self, draw: Callable[..., bytes]) -> None:
        self._draw = draw
        self._drawn: dict[tuple[Hashable, ...], bytes] = {}
        self._waiting: list[tuple[Hashable, ...]] = []
        self._busy = False

    def __getitem__(self, which: tuple[Hashable, ...]) -> bytes:
        if which not in self._drawn:
            self._drawn[which] = self._draw(*which)
        return self._drawn[which]

    def ahead(self, which: Sequence[tuple[Hashable, ...]]) -> None:
        """Draw these next, one at a time, whenever the event loop is free. Without a loop: when they are asked for."""
        self._waiting = [one for one in which if one not in self._drawn]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waiting and not self._busy:
            self._busy = True
            loop.call_later(0.02, self._one, loop)

    def _one(self, loop: asyncio.AbstractEventLoop) -> None:
        self._busy = False
        if self._waiting:
            self[self._waiting.pop(0)]
            self.ahead(self._waiting)


class Backdrop:
    """A figure that is drawn once, for many frames: each shows it with something else on top."""

    def __init__(self, figure: Figure) -> None:
        with style.use():
            figure.set_dpi(1.5 * style.DPI)
            self._figure, self._canvas = figure, FigureCanvasAgg(figure)
            self._canvas.draw()
            self._drawn = self._canvas.copy_from_bbox(figure.bbox)

    def png(self, draw_over: Callable[[Axes], None]) -> bytes:
        """draw_over: adds to the figure's first axes what lies on top. It is taken away again."""
        ax = self._figure.axes[0]
        below = set(ax.get_children())
        self._canvas.restore_region(self._drawn)
        with style.use():
            draw_over(ax)
            for artist in sorted((one for one in ax.get_children() if one not in below), key=Artist.get_zorder):
                ax.draw_artist(artist)
                artist.remove()
        return _encode(self._canvas)


def quick_png(figure: Figure) -> bytes:
    """For frames that somebody waits for: fewer pixels and lighter compression than `style.png`, and drawn once, where
    `savefig` draws twice.
    """
    figure.set_canvas(_CANVAS)
    _CANVAS.figure = figure
    with style.use():
        figure.set_dpi(1.5 * style.DPI)
        _CANVAS.draw()
    FigureCanvasBase(figure)  # a canvas of its own again: the next frame takes this one
    return _encode(_CANVAS)


def _encode(canvas: FigureCanvasAgg) -> bytes:
    """PNG, compressed lightly and without the alpha channel, which says nothing here: half the time that RGBA takes."""
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(buffer, format="png", compress_level=1)
    return buffer.getvalue()
