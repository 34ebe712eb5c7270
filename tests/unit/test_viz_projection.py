"""`plot_projection`: the weight once, each prompt's activations beside it, all values as they are."""

import numpy as np
import pytest

from kvcourse.errors import InputError
from kvcourse.viz import plot_projection, style


@pytest.fixture
def numbers():
    random = np.random.default_rng(0)
    weight = random.normal(size=(6, 4))
    runs = {}
    for prompt, tokens in (("one", ["a", "b", "$c$"]), ("two", [" d", "e"])):
        x = random.normal(size=(len(tokens), 6))
        runs[prompt] = (tokens, x, x @ weight + 1)
    return runs, weight


def panels(fig):
    """Title of each panel to what it draws, and its limits."""
    return [(ax.get_title(loc="left"), ax.images[0].get_array().data, ax.images[0].get_clim()) for ax in fig.axes]


def test_the_weight_is_drawn_once_and_every_prompt_has_its_own_x_and_result(numbers):
    runs, weight = numbers
    drawn = panels(plot_projection(runs, weight))
    expected = [("x  (3, 6)", runs["one"][1]), ("Wk  (6, 4)", weight), ("K  (3, 4)", runs["one"][2]),
                ("x  (2, 6)", runs["two"][1]), ("K  (2, 4)", runs["two"][2])]  # fmt: skip
    assert sorted(title.strip() for title, _, _ in drawn) == sorted(title for title, _ in expected)
    for title, values in expected:
        assert any(drawn_title.strip() == title and np.array_equal(array, values) for drawn_title, array, _ in drawn)


def test_panels_of_a_column_share_a_scale_that_is_symmetric_about_zero(numbers):
    runs, weight = numbers
    for name, arrays in (("x", [run[1] for run in runs.values()]), ("K", [run[2] for run in runs.values()]), ("Wk", [weight])):
        largest = max(np.abs(array).max() for array in arrays)
        limits = {clim for title, _, clim in panels(plot_projection(runs, weight)) if title.split()[0] == name}
        assert limits == {(-largest, largest)}


def test_roles_are_told_by_colour_and_by_letter(numbers):
    fig = plot_projection(*numbers)
    for ax in fig.axes:
        role = style.PARAMETER if "Wk" in ax.get_title(loc="left") else style.ACTIVATION
        assert ax.spines["left"].get_edgecolor()[:3] == pytest.approx(
            tuple(int(role.text[i : i + 2], 16) / 255 for i in (1, 3, 5))
        )
        assert role.chip in [text.get_text() for text in ax.texts]


def test_tokens_label_the_rows_and_prompts_the_panels(numbers):
    fig = plot_projection(*numbers, names=("n", "Wv", "bv", "V"))
    labelled = {ax.get_ylabel(): [tick.get_text() for tick in ax.get_yticklabels()] for ax in fig.axes if ax.get_ylabel()}
    assert labelled == {"one": ["a", "b", "$c$"], "two": ["␣d", "e"]}
    written = [text.get_text() for ax in fig.axes for text in ax.texts]
    assert written.count("@") == 2 and written.count("+ bv =") == 2
    assert style.png(fig)[:4] == b"\x89PNG"  # it can be drawn, dollar signs included


def test_each_panel_says_what_its_columns_are(numbers):
    runs, weight = numbers
    for part, result in ((None, "4 numbers"), ("head 0", "4 numbers of head 0")):
        below = [ax.get_xlabel() for ax in plot_projection(runs, weight, part=part).axes]
        each = ["3 tokens, 6 numbers each", "2 tokens, 6 numbers each", result, result]
        assert sorted(below) == sorted([*each, "from 6 numbers to 4"])


@pytest.mark.parametrize("change", ["batch", "tokens", "weight", "none", "many"])
def test_what_cannot_be_multiplied_is_refused(numbers, change):
    runs, weight = numbers
    tokens, x, result = runs["one"]
    wrong = {
        "batch": ({"one": (tokens, x[None], result[None])}, weight),
        "tokens": ({"one": (tokens[:2], x, result)}, weight),
        "weight": (runs, weight.T),
        "none": ({}, weight),
        "many": ({"one": (["a"] * 17, np.zeros((17, 6)), np.zeros((17, 4)))}, weight),
    }[change]
    with pytest.raises(InputError):
        plot_projection(*wrong)
