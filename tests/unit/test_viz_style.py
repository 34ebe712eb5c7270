"""The look can be read: by anyone who cannot tell red from green, on paper, and the same on every machine."""

import itertools
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from kvcourse.viz import source, style

# Machado, Oliveira and Fernandes 2009, table 1, severity 1.0; they act on linear RGB.
MACHADO = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "nobody": np.eye(3).tolist(),
}


def linear(color: str) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2.2: from 1 (the same) to 21 (black on white). Text needs 4.5, a line 3."""
    light, dark = sorted((float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(color: str, seen_by: str) -> np.ndarray:
    """CIE L*a*b* (D65) of a color as that eye sees it."""
    rgb = np.clip(np.array(MACHADO[seen_by]) @ linear(color), 0, 1)
    to_xyz = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]])
    scaled = to_xyz @ rgb / [0.95047, 1.0, 1.08883]
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, seen_by: str) -> float:
    return float(np.linalg.norm(lab(a, seen_by) - lab(b, seen_by)))


def test_the_measures_are_right_on_known_colors() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)
    assert lab("#FF0000", "nobody") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert distance("#FF0000", "#00A000", "nobody") > 2 * distance("#C00000", "#6B6B00", "protanopia")


@pytest.mark.parametrize("color", [*(role.text for role in style.ROLES), style.INK, style.MUTED])
def test_text_reads_on_white_and_white_reads_on_a_chip(color: str) -> None:
    assert contrast(color, "#FFFFFF") >= 4.5


@pytest.mark.parametrize("back", [source.PAPER, source.ADDED, source.REMOVED])
def test_highlighted_code_reads_on_every_background(back: str) -> None:
    colors = [css.split("color:")[1][:7] for _, css in source.TOKENS if "color:" in css]
    assert len(colors) == 7
    assert min(contrast(color, back) for color in [*colors, source.INK, source.MUTED]) >= 4.5


@pytest.mark.parametrize("seen_by", list(MACHADO))
@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(style.ROLES, 2)))
def test_roles_stay_apart_for_every_kind_of_eye(a: style.Role, b: style.Role, seen_by: str) -> None:
    # 2.3 is just noticeable; 20 is two colors that nobody would give one name.
    assert distance(a.fill, b.fill, seen_by) > 20
    assert distance(a.text, b.text, seen_by) > 15


@pytest.mark.parametrize("seen_by", list(MACHADO))
def test_slots_stay_apart_for_every_kind_of_eye(seen_by: str) -> None:
    # CIE 1976: the distance in L*a*b*. "written" has the color of "held", and an outline of its own.
    for a, b in itertools.combinations(style.SLOTS.values(), 2):
        if {a.state, b.state} != {"held", "written"}:
            assert distance(a.face, b.face, seen_by) > 15, f"{a.state} and {b.state}"


def test_a_palette_of_red_and_green_would_not_pass() -> None:
    assert distance("#FF0033", "#336633", "nobody") > 100
    assert distance("#FF0033", "#336633", "protanopia") < 15


def test_roles_and_slots_differ_in_more_than_color() -> None:
    assert [role.chip for role in style.ROLES] == ["W", "A", "Σ"]
    assert list(style.SLOTS) == ["held", "written", "reused", "evicted", "empty"]
    without_hue = {(slot.width, slot.line, slot.hatch, round(lab(slot.face, "nobody")[0] / 4)) for slot in style.SLOTS.values()}
    assert len(without_hue) == 5
    assert all(contrast(slot.edge, "#FFFFFF") >= 3 for slot in style.SLOTS.values())


def test_the_signed_map_is_white_at_zero_and_even_on_both_sides() -> None:
    cmap = style.signed_cmap()
    assert distance(mpl.colors.to_hex(cmap(0.5)), "#FFFFFF", "nobody") < 3
    for x in (0.0, 0.15, 0.3, 0.42):
        below, above = (mpl.colors.to_hex(cmap(p)) for p in (x, 1 - x))
        assert abs(lab(below, "nobody")[0] - lab(above, "nobody")[0]) < 8, "a sign must not look larger than the other"
        assert x > 0.4 or all(distance(below, above, seen_by) > 20 for seen_by in MACHADO)
    beyond = [mpl.colors.to_hex(color) for color in (cmap(-0.1), cmap(1.1))]
    assert all(distance(mpl.colors.to_hex(cmap(x)), color, "nobody") > 20 for x in (0.0, 1.0) for color in beyond)


def test_use_can_be_called_twice_and_as_a_context_puts_back_what_was_set() -> None:
    with mpl.rc_context({"font.size": 33.0, "axes.grid": False}):
        with style.use():
            assert mpl.rcParams["font.size"] == 10
            once = dict(mpl.rcParams)
            style.use()
            assert dict(mpl.rcParams) == once
        assert mpl.rcParams["font.size"] == 33.0 and mpl.rcParams["axes.grid"] is False


def test_a_personal_setting_does_not_change_a_figure() -> None:
    def drawn() -> bytes:
        with style.figure(3, 2) as (fig, ax):
            ax.plot([0, 1], [1, 0])
            style.label_axes(ax, x=("S", "keys attended", "tokens"), y=(None, "time", "ms"))
        return style.png(fig)

    plain = drawn()
    with mpl.rc_context({"lines.linewidth": 9.0, "axes.facecolor": "#000000", "text.usetex": False, "font.size": 20.0}):
        assert drawn() == plain
    assert b"tEXt" not in plain and b"matplotlib" not in plain


def test_a_figure_is_shown_once_because_pyplot_does_not_know_it() -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    with style.figure(ncols=2) as (fig, axes):
        assert isinstance(fig, Figure) and axes.shape == (2,)
    assert plt.get_fignums() == before


def test_axes_carry_symbol_meaning_and_unit() -> None:
    with style.figure() as (_, ax):
        style.label_axes(ax, x=("S", "keys attended", "tokens"), y=(None, "probability", None))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("$S$  keys attended (tokens)", "probability")


@pytest.mark.parametrize(("low", "high"), [(48.0, 110.0), (0.5, 120.0), (300.0, 12_000.0)])
def test_numbers_of_a_logarithmic_axis_are_plain_and_no_more_than_there_is_room_for(low: float, high: float) -> None:
    with style.figure() as (fig, ax):
        ax.set_yscale("log")
        ax.set_ylim(low, high)
        style.plain_numbers(ax.yaxis)
    fig.draw_without_rendering()
    shown = [tick.label1 for tick in (*ax.yaxis.get_major_ticks(), *ax.yaxis.get_minor_ticks())]
    inside = [text for text in shown if text.get_text() and low <= text.get_position()[1] <= high]
    assert len(inside) >= 2
    assert [float(text.get_text().replace(",", "")) for text in inside] == [round(text.get_position()[1], 9) for text in inside]
    boxes = sorted((text.get_window_extent() for text in inside), key=lambda box: box.y0)
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(boxes))


def test_a_frame_names_the_role_by_letter_and_color_and_takes_any_name() -> None:
    with style.figure() as (fig, ax):
        style.frame(ax, style.ACTIVATION, "scores $q_7$")
    assert [text.get_text() for text in ax.texts] == ["A"]
    assert {spine.get_edgecolor() for spine in ax.spines.values()} == {mpl.colors.to_rgba(style.ACTIVATION.text)}
    assert style.png(fig)


def test_figures_need_no_torch() -> None:
    code = "import sys, kvcourse.viz.plots, kvcourse.viz.source; sys.exit('torch' in sys.modules)"
    folder = Path(style.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=folder).returncode == 0


def test_a_key_shows_each_box_with_what_may_stand_in_it() -> None:
    kinds = [(style.SLOTS["held"], "A", "held"), (style.SLOTS["reused"], "×3", "shared"), (style.SLOTS["empty"], "", "free")]
    with style.figure() as (fig, _):
        legend = style.key(fig, kinds)
    assert [text.get_text() for text in legend.get_texts()] == ["held", "shared", "free"]
    hatches = [box.get_hatch() or "" for box in legend.get_patches()]
    assert hatches == [slot.hatch for slot, _, _ in kinds]
    inside = [text.get_text() for text in legend.findobj(Text) if text not in legend.get_texts()]
    assert [mark for mark in inside if mark] == ["A", "×3"]
    style.png(fig)
