"""The next-token explorer: what it compares, and that field, buttons and faults all reach the picture."""

import ipywidgets
import pytest
import torch

from kvcourse.errors import TokenizerError
from kvcourse.viz import widgets

V = 12
TEMPLATE = "The {} sat"


def probabilities(text: str) -> torch.Tensor:
    """The likeliest token is the number of letters in the text."""
    if "\ud83d" in text:
        raise TokenizerError("Half an emoji.", expected="text", got="<half>", todo="Type it again.")
    return torch.eye(V)[len(text) % V] * 0.75 + 0.25 / V


@pytest.fixture
def explorer() -> widgets.Live:
    return widgets.next_token_explorer(
        probabilities, lambda token: f"<{token}>", TEMPLATE, ["cat", "horse", "hippo", "yak"], k=2
    )


def parts(live: widgets.Live) -> tuple[ipywidgets.Text, list[ipywidgets.Button], ipywidgets.Image, ipywidgets.HTML]:
    row, picture, spoken = live.widget.children
    field, *buttons = row.children
    return field, buttons, picture, spoken


def test_it_starts_with_the_second_word_against_the_first(explorer):
    field, buttons, _, spoken = parts(explorer)
    assert field.value == "horse"
    assert [button.description for button in buttons] == ["horse", "hippo", "yak"]
    assert "The horse sat" in spoken.value and "&lt;1&gt; 77.1%" in spoken.value  # 13 letters


def test_the_static_figure_shows_both_prompts_on_one_scale(explorer):
    left, right = explorer.draw().axes
    assert [left.get_title(loc="left"), right.get_title(loc="left")] == ["The cat sat", "The horse sat"]
    assert left.get_xlim() == right.get_xlim() == (0.0, 1.0)
    assert explorer.words.startswith("After “The horse sat”")


def test_a_typed_word_changes_picture_and_words(explorer):
    field, _, picture, spoken = parts(explorer)
    before = picture.value
    field.value = "elephant"
    assert picture.value != before
    assert "The elephant sat" in spoken.value and "&lt;4&gt; 77.1%" in spoken.value  # 16 letters


def test_a_button_is_the_same_as_typing_its_word(explorer):
    field, buttons, picture, _ = parts(explorer)
    field.value = "yak"
    typed = picture.value
    field.value = "elephant"
    buttons[2].click()
    assert field.value == "yak"
    assert picture.value == typed


def test_an_empty_field_shows_the_first_word_alone(explorer):
    field, _, _, spoken = parts(explorer)
    field.value = "  "
    assert "The cat sat" in spoken.value


def test_what_was_typed_is_shown_as_text_not_as_html(explorer):
    field, _, _, spoken = parts(explorer)
    field.value = "<img src=x>"
    assert "<img" not in spoken.value and "&lt;img" in spoken.value


def test_a_fault_is_said_and_the_picture_stays(explorer):
    field, _, picture, spoken = parts(explorer)
    before = picture.value
    field.value = "\ud83d"
    assert 'role="alert"' in spoken.value and "Half an emoji. Expected text; got &lt;half&gt;." in spoken.value
    assert picture.value == before


def test_every_picture_has_the_same_rows_and_size(explorer):
    field, _, picture, _ = parts(explorer)
    sizes = set()
    for word in ("yak", "elephant", "horse"):
        field.value = word
        sizes.add((picture.width, picture.value[16:24]))  # width and height in the PNG's header
    assert len(sizes) == 1
