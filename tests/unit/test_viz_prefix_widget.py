"""The prefix explorer: every button does what it says to the tree, and picture and words follow."""

import io

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from kvcourse.viz import prefix_explorer, style, widgets
from kvcourse.viz.prefix_story import first_story, told
from kvcourse.viz.prefix_widget import SHOWN, _Controls


@pytest.fixture
def ui() -> _Controls:
    return _Controls(first_story())


def look(picture: bytes) -> np.ndarray:
    return matplotlib.image.imread(io.BytesIO(picture))


def test_it_starts_at_the_first_step(ui):
    assert ui.slider.value == 0 and ui.slider.max == len(ui.story.steps) - 1
    assert ui.story.steps[0].words in ui.words.value and 'role="status"' in ui.words.value
    np.testing.assert_array_equal(look(ui.picture.value), look(widgets.quick_png(ui.draw(0))))


def test_slider_and_step_buttons_choose_the_picture_and_its_words(ui):
    _, back, forth, slider = ui.bar
    forth.click()
    assert slider.value == 1 and ui.picture.value == widgets.quick_png(ui.draw(1))
    slider.value = 7
    assert ui.picture.value == widgets.quick_png(ui.draw(7)) and "“short”" in ui.words.value
    back.click()
    assert slider.value == 6
    slider.value = 0
    back.click()
    assert slider.value == 0
    slider.value = slider.max
    forth.click()
    assert slider.value == slider.max


def test_all_pictures_have_one_size(ui):
    sizes = {tuple(ui.draw(number).get_size_inches()) for number in range(len(ui.story.steps))}
    assert len(sizes) == 1


def test_each_button_adds_a_step_to_the_tree_and_goes_there(ui):
    ui.text.value = "in short who was curie ?"
    for name, title in (("match", "match: in short"), ("insert", "insert: in short"), ("lease", "lease: in short"),
                        ("release", "release"), ("evict", "evict 1 word")):  # fmt: skip
        before = len(ui.story.steps)
        ui.buttons[name].click()
        step = ui.story.steps[-1]
        assert len(ui.story.steps) == before + 1 and step.title.startswith(title)
        assert ui.slider.value == ui.slider.max == before and ui.picture.value == widgets.quick_png(ui.draw(before))
    ui.story.tree.check(ui.story._leases)


def test_whose_text_it_is_follows_the_list(ui):
    ui.whose.value = "ben"
    ui.text.value = "in short who was ada ?"
    for name in ("match", "insert", "lease"):
        ui.buttons[name].click()
        assert ui.story.steps[-1].title == f"ben, {name}: in short who was ada ?"
    assert "5 of its 6 words known" in ui.words.value


def test_a_call_works_on_the_last_tree_whatever_is_shown(ui):
    ui.slider.value = 2
    ui.buttons["evict"].click()
    assert ui.slider.value == len(ui.story.steps) - 1
    assert [step.title for step in ui.story.steps[:-1]] == [step.title for step in first_story().steps]


def test_a_text_that_cannot_be_drawn_is_said_and_nothing_changes(ui):
    ui.slider.value = 3
    before, steps = ui.picture.value, len(ui.story.steps)
    ui.text.value = "one two three four five six seven eight nine ten"
    ui.buttons["insert"].click()
    assert 'role="alert"' in ui.words.value and "1 to 9 words" in ui.words.value
    assert ui.picture.value == before and ui.slider.value == 3 and len(ui.story.steps) == steps
    ui.slider.value = 4
    assert 'role="status"' in ui.words.value


def test_what_was_typed_is_shown_as_text_not_as_html(ui):
    ui.text.value = "<b>x</b> y"
    ui.buttons["match"].click()
    assert "<b>" not in ui.words.value and "&lt;b&gt;" in ui.words.value


def test_every_control_has_a_name_and_a_tip(ui):
    parts = [*ui.bar, ui.whose, ui.text, *ui.buttons.values()]
    assert all(part.tooltip for part in parts)
    assert all(part.description for part in (ui.slider, ui.whose, ui.text, *ui.buttons.values()))


def test_it_leaves_a_figure_and_its_words():
    live, figure = prefix_explorer(), prefix_explorer(static=True)
    assert isinstance(live, widgets.Live) and isinstance(figure, Figure)
    assert style.png(live.draw()) == style.png(figure)
    story = first_story()
    assert live.words == told(story.steps)
    shown = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(f"{number}  {story.steps[number].title}" in shown for number in SHOWN)
    assert all(name in shown for name in ("held", "written now", "found and reused", "evicted", "pinned by 1"))
