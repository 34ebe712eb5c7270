"""The README's figure: what it counts is what ran, and what cannot be drawn is refused."""

import pytest
from matplotlib.figure import Figure

from kvcourse.errors import InputError
from kvcourse.viz.overview_picture import Pass, Scene, plot_overview
from tools.readme_figure import HERE, scenes


@pytest.fixture(scope="module")
def recorded():
    return scenes()


def test_the_figure_counts_what_went_through_the_model(recorded):
    within, between, turns = recorded
    assert within.tokens == (4 + 5 + 6 + 7, 4 + 1 + 1 + 1)
    assert between.tokens == (7 + 7, 7 + 2)
    assert turns.tokens == (3 + 1 + 7 + 1, 3 + 1 + 3 + 1)  # the last token that was chosen is computed with the next turn


def test_a_cache_never_skips_what_it_does_not_hold(recorded):
    for scene in recorded:
        computed: set[str] = set()
        for one in scene.with_it:
            assert all(one.text[: place + 1] in computed for place in range(one.start))
            computed |= {one.text[: place + 1] for place in range(one.start, one.stop)}


def test_every_column_says_both_counts(recorded):
    figure = plot_overview(recorded)
    assert isinstance(figure, Figure)
    said = [(above.get_xlabel(), below.get_xlabel()) for above, below in zip(*[iter(figure.axes)] * 2, strict=True)]
    shown = [ax.xaxis.get_label().get_text() or ax.get_xlabel() for ax in figure.axes]
    assert len(said) == 3 and shown[:3] == [f"without it: {scene.tokens[0]} tokens computed" for scene in recorded]
    assert shown[3:] == [f"with it: {scene.tokens[1]}" for scene in recorded]


def test_the_figure_is_there_and_the_readme_shows_it():
    assert HERE.stat().st_size > 10_000
    assert "docs/overview.png" in (HERE.parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("wrong", [Pass(2, 2, 0, "", "abc"), Pass(0, 4, 0, "", "abc"), Pass(1, 2, 2, "", "abc")])
def test_a_pass_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="cannot be drawn"):
        plot_overview([Scene("a", "b", [wrong], [wrong])])
    with pytest.raises(InputError, match="Nothing to draw"):
        plot_overview([])
