"""What a page is given beside a widget: one style and one script. What they do is seen in tests/browser."""

import re

import ipywidgets

from kvcourse.viz import widgets
from kvcourse.viz.widget_page import LIVE, page_rules


def test_the_page_gets_one_style_and_one_script_on_a_line_without_a_comment():
    [style], [script] = (re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page_rules(), re.DOTALL) for tag in ("style", "script"))
    assert "\n" not in page_rules() and "//" not in script  # a comment would silence the rest of the line
    assert "HERE" not in script and script.count(f'"."{LIVE}'.replace('"."', ".")) == 2
    assert style.count("{") == style.count("}") == 3
    assert script.count("{") == script.count("}") and script.count("(") == script.count(")")


def test_a_picture_and_the_parts_of_one_that_can_be_clicked_have_names():
    seen = widgets.Clickable({"k": (0.1, 0.1, 0.2, 0.2)}, lambda key: None)
    seen.show(b"png", {"k": "Wk, a parameter"})
    assert seen.picture.tooltip == widgets.BESIDE and seen.picture.description == ""
    assert seen.buttons["k"].description == seen.buttons["k"].tooltip == "Wk, a parameter"


def test_no_button_shows_an_icon_alone():
    parts = [*widgets.steps("step", 3, "Steps", lambda _: None), widgets.button("up", "One up", lambda: None, "arrow-up")]
    labels = [part.description for part in parts if isinstance(part, ipywidgets.Button | ipywidgets.ToggleButton)]
    assert labels == ["play", "back", "forward", "up"]


def test_every_control_is_at_most_as_wide_as_the_page():
    parts = [
        widgets.choice("c", [("a", 1)], "", "31em", lambda _: None),
        widgets.listed("l", [("a", 1)], "", lambda _: None),
        widgets.slider("s", 3, "", lambda _: None),
        widgets.field("f", "", "", "30em"),
        widgets.image(),
    ]
    assert {part.layout.max_width for part in parts} == {widgets.FULL}
