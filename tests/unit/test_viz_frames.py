"""Frames that somebody waits for show what matplotlib draws, pixel by pixel, and nothing that lay on top of the last one."""

import io

import numpy as np
from matplotlib.patches import Rectangle
from PIL import Image

from kvcourse.viz import style
from kvcourse.viz.frames import Backdrop, quick_png


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


def drawing(width: float = 2.0):
    with style.figure(width, 1.5) as (figure, ax):
        ax.plot([0, 1], [0, 1])
        ax.set_title("a title")
    return figure


def test_a_quick_picture_has_the_pixels_that_matplotlib_saves_at_its_size():
    for width in (2.0, 2.34, 2.0):  # another size in between
        saved = style.png(drawing(width), scale=1.5)
        np.testing.assert_array_equal(pixels(quick_png(drawing(width))), pixels(saved))


def test_a_figure_that_was_drawn_quickly_is_saved_as_itself():
    """Its canvas draws others afterwards, and must not save one of them in its place."""
    first, second = drawing(2.0), drawing(3.0)
    quick_png(first)
    quick_png(second)
    assert [pixels(style.png(one)).shape[1] for one in (first, second)] == [400, 600]


def test_what_is_drawn_over_a_backdrop_lies_in_order_and_is_gone_in_the_next_frame():
    def cover(ax):
        ax.add_patch(Rectangle((0, 0), 1, 1, facecolor="#000000", zorder=9))
        ax.add_patch(Rectangle((0, 0), 1, 1, facecolor="#FFFFFF", zorder=8))

    figure = drawing()
    ax, below = figure.axes[0], Backdrop(figure)
    plain = pixels(below.png(lambda ax: None))
    np.testing.assert_array_equal(plain, pixels(quick_png(drawing())))
    left, bottom, right, top = ax.bbox.extents.astype(int)
    middle = (plain.shape[0] - (bottom + top) // 2, (left + right) // 2)
    assert pixels(below.png(cover))[middle].tolist() == [0, 0, 0, 255]
    np.testing.assert_array_equal(pixels(below.png(lambda ax: None)), plain)
    assert ax.patches[:] == []
