"""Lesson 06 onwards: pictures that somebody waits for. Knows nothing about what they show, or about widgets."""

import asyncio
import io
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from kvcourse.viz import style


class Frames:
    """Pictures by (moment, head): drawn when first asked for, or ahead of time, while the kernel has nothing else to do."""

    def __init__(self, draw: Callable[[int, int], bytes]) -> None:
        self._draw = draw
        self._drawn: dict[tuple[int, int], bytes] = {}
        self._waiting: list[tuple[int, int]] = []
        self._busy = False

    def __getitem__(self, which: tuple[int, int]) -> bytes:
        if which not in self._drawn:
            self._drawn[which] = self._draw(*which)
        return self._drawn[which]

    def ahead(self, which: Sequence[tuple[int, int]]) -> None:
        """Draw these next, one at a time, whenever the event loop is free. Without a loop: when they are asked for."""
        self._waiting = [one for one in which if one not in self._drawn]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._waiting and not self._busy:
            self._busy = True
            loop.call_later(0.05, self._one, loop)

    def _one(self, loop: asyncio.AbstractEventLoop) -> None:
        self._busy = False
        if self._waiting:
            self[self._waiting.pop(0)]
            self.ahead(self._waiting)


def quick_png(figure: Figure) -> bytes:
    """For frames that somebody waits for: fewer pixels and lighter compression than `style.png`, and drawn once, where
    `savefig` draws twice.
    """
    buffer = io.BytesIO()
    with style.use():
        figure.set_dpi(1.5 * style.DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        Image.fromarray(np.asarray(canvas.buffer_rgba())).save(buffer, format="png", compress_level=3)
    return buffer.getvalue()
