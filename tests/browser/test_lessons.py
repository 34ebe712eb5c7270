"""Every lesson in a real browser: it opens, it runs, its widget answers, and a copy that was saved can be opened again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controls import LIVE, Widget
from jupyter_lab import ROOT, Lab
from notebook_page import NotebookPage
from playwright.sync_api import Browser

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells_with(path: Path, mark: str) -> list[str]:
    """Ids of the cells whose kept outputs hold this text."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell["id"] for cell in cells if mark in json.dumps(cell.get("outputs", []))]


WIDGETS = {path.stem: cells_with(path, f"{LIVE[1:]}-rules") for path in NOTEBOOKS}
FIGURES = {path.stem: cells_with(path, "image/png") for path in NOTEBOOKS}


def each(names: Any) -> pytest.MarkDecorator:
    """A test for each of these lessons; one process has all tests of a lesson."""
    return pytest.mark.parametrize("lesson", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in names])


every_lesson = each(WIDGETS)
every_lesson_with_a_widget = each(name for name, cells in WIDGETS.items() if cells)


class Stage:
    """One lesson at a time: opened when its first test asks, run when one asks for that, closed when the next lesson comes."""

    def __init__(self, browser: Browser, lab: Lab) -> None:
        self.browser, self.lab = browser, lab
        self.name = ""
        self.notebook: NotebookPage | None = None
        self.saved: list[str] = []
        self.ran = False

    def opened(self, lesson: str) -> NotebookPage:
        if self.notebook is None or self.name != lesson:
            self.close()
            self.name = lesson
            self.notebook = NotebookPage(self.browser, self.lab, f"notebooks/{lesson}.ipynb")
            self.saved = [cell for cell in FIGURES[lesson] if not shows_a_figure(self.notebook, cell)]
        return self.notebook

    def run(self, lesson: str) -> NotebookPage:
        notebook = self.opened(lesson)
        if not self.ran:
            self.ran = True  # a lesson that failed is not run again for each of its tests
            notebook.run_all()
        return notebook

    def close(self) -> None:
        if self.notebook is not None:
            self.notebook.close()
        self.notebook, self.ran = None, False


@pytest.fixture(scope="session")
def stage(browser: Browser, lab: Lab) -> Iterator[Stage]:
    stage = Stage(browser, lab)
    yield stage
    stage.close()


@pytest.fixture
def notebook(stage: Stage, lesson: str) -> NotebookPage:
    """The lesson, with all its cells run, in a window of 1280 by 800."""
    page = stage.run(lesson)
    page.resize(1280, 800)
    return page


@pytest.fixture
def widgets(notebook: NotebookPage, lesson: str) -> list[Widget]:
    """Those of the lesson, each on the screen when it is used."""
    found = []
    for cell in WIDGETS[lesson]:
        roots = notebook.show(cell).locator(LIVE)
        roots.first.wait_for(state="visible")
        found += [Widget(notebook, root) for root in roots.all()]
    return found


FIGURE = ".jp-OutputArea-child .jp-RenderedImage img"


def shows_a_figure(notebook: NotebookPage, cell: str) -> bool:
    """Every picture among the cell's outputs has arrived and can be seen."""
    images = notebook.show(cell).locator(FIGURE)
    images.first.wait_for(state="attached")
    arrived = [image.evaluate("async img => { await img.decode(); return img.naturalWidth }") for image in images.all()]
    return min(arrived) > 1 and all(image.is_visible() for image in images.all())


@every_lesson
def test_a_lesson_opens_with_the_figures_that_were_kept(stage: Stage, lesson: str, pictures: Path) -> None:
    notebook = stage.opened(lesson)
    assert stage.saved == [], "these cells show no figure before they are run"
    heading = notebook.show(notebook.page.evaluate("kv.cells()[0].model.id")).locator("h1")
    assert heading.inner_text().startswith(lesson[:2])
    notebook.picture(f"{lesson}-page", pictures)


@every_lesson
def test_every_cell_of_a_lesson_runs_without_an_error(notebook: NotebookPage) -> None:
    assert notebook.page.evaluate("kv.failed()") == []
    counts = notebook.page.evaluate("kv.code().map(cell => cell.model.executionCount)")
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.page.evaluate("kv.answers.length") >= len(counts)
    assert notebook.faults == []


@every_lesson_with_a_widget
def test_a_widget_that_lives_stands_in_the_place_of_its_figure(
    notebook: NotebookPage, widgets: list[Widget], lesson: str, pictures: Path
) -> None:
    for number, widget in enumerate(widgets):
        cell = widget.root.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]")
        assert not any(image.is_visible() for image in cell.locator(FIGURE).all())
        assert all(image.evaluate("img => img.naturalWidth") > 1 for image in widget.root.locator("img").all())
        notebook.picture(f"{lesson}-widget{number or ''}", pictures)


@every_lesson_with_a_widget
def test_tab_reaches_every_control_of_a_widget_in_the_order_of_the_page(widgets: list[Widget]) -> None:
    for widget in widgets:
        expected = widget.numbered()
        reached = widget.reached_by_tab()
        assert [one for one in reached if one in expected] == expected


@every_lesson_with_a_widget
def test_every_control_and_every_picture_has_a_name_for_screen_readers(widgets: list[Widget]) -> None:
    for widget in widgets:
        names = widget.names_read_out()
        assert len(names) >= len(widget.controls()) + 1 and "image" in dict(names)
        assert [(role, name) for role, name in names if not any(letter.isalnum() for letter in name)] == []


@every_lesson_with_a_widget
def test_where_the_keyboard_is_can_be_seen(widgets: list[Widget]) -> None:
    for widget in widgets:
        for control in widget.controls():
            widget.keyboard.press("Shift")  # from here on a focus is the keyboard's
            control.at.focus()
            style, width = control.at.evaluate(
                "part => { const s = getComputedStyle(part); return [s.outlineStyle, s.outlineWidth] }"
            )
            assert style != "none" and float(width.removesuffix("px")) >= 2, f"{control.kind} {control.name}: {style} {width}"


@every_lesson_with_a_widget
@pytest.mark.parametrize("way", ["keys", "mouse"])
def test_every_control_changes_picture_or_words(widgets: list[Widget], way: str) -> None:
    for widget in widgets:
        widget.wake()
        for control in widget.controls():
            widget.use(control, way)


@every_lesson_with_a_widget
def test_keys_pressed_in_a_widget_do_nothing_to_the_notebook(notebook: NotebookPage, widgets: list[Widget]) -> None:
    # "b" makes a cell below, "d" twice deletes one, an arrow goes to another: not from inside a list.
    cells = notebook.page.evaluate("kv.cells().map(cell => cell.model.id)")
    for widget in widgets:
        for control in widget.controls():
            if control.kind in ("choice", "list", "slider"):
                control.at.focus()
                active = notebook.page.evaluate("kv.panel().content.activeCellIndex")
                for key in ("b", "d", "d", "ArrowDown", "ArrowDown", "x"):
                    widget.keyboard.press(key)
                assert notebook.page.evaluate("kv.panel().content.activeCellIndex") == active
        widget.state()
    assert notebook.page.evaluate("kv.cells().map(cell => cell.model.id)") == cells


@every_lesson_with_a_widget
def test_at_1280_pixels_a_widget_is_not_wider_than_its_place(widgets: list[Widget]) -> None:
    for widget in widgets:
        assert too_wide(widget) == []


@every_lesson_with_a_widget
def test_at_200_percent_a_widget_fits_and_every_control_answers(
    notebook: NotebookPage, widgets: list[Widget], lesson: str, pictures: Path
) -> None:
    notebook.resize(640, 400)  # what is left of 1280 by 800 when everything is twice as large
    for number, widget in enumerate(widgets):
        widget.root.scroll_into_view_if_needed()
        notebook.picture(f"{lesson}-widget{number or ''}-200-percent", pictures)
        assert too_wide(widget) == []
        widget.wake()
        for control in widget.controls():
            widget.use(control, "mouse")


def too_wide(widget: Widget) -> list[str]:
    """What sticks out of the place that the page gives to a cell's output."""
    return list(
        widget.root.evaluate("""
        root => {
          const place = root.closest(".jp-OutputArea-output").getBoundingClientRect();
          const parts = [root, ...root.querySelectorAll("img, button, select, input, .widget-slider, .widget-html-content")];
          return parts.filter(part => {
            const box = part.getBoundingClientRect();
            const hidden = getComputedStyle(part).clipPath !== "none" || !box.width;
            return !hidden && (box.right > place.right + 0.5 || box.left < place.left - 0.5);
          }).map(part => `${part.tagName} ${part.className} ${part.title} ${part.getBoundingClientRect().right - place.right}`);
        }
    """)
    )


@every_lesson_with_a_widget
def test_a_saved_copy_shows_its_figure_when_the_widget_is_gone(
    stage: Stage, notebook: NotebookPage, widgets: list[Widget], lesson: str, pictures: Path
) -> None:
    notebook.restart()
    for cell in WIDGETS[lesson]:
        assert_figure_instead_of_widget(notebook, cell)
    copy = f"work/copy of {lesson}.ipynb"
    notebook.save_copy(copy)
    stage.close()
    again = NotebookPage(stage.browser, stage.lab, copy)
    try:
        for cell in WIDGETS[lesson]:
            assert_figure_instead_of_widget(again, cell)
            again.picture(f"{lesson}-reopened", pictures)
        again.shut_down()
        for cell in WIDGETS[lesson]:
            assert_figure_instead_of_widget(again, cell)
    finally:
        again.close()


def assert_figure_instead_of_widget(notebook: NotebookPage, cell: str) -> None:
    place = notebook.show(cell)
    place.locator(FIGURE).first.wait_for(state="visible")
    assert shows_a_figure(notebook, cell)
    assert not any(root.is_visible() for root in place.locator(LIVE).all())
    shown = place.locator(".jp-OutputArea").inner_text().lower()
    assert "in words" in shown and not any(word in shown for word in ("error", "not found", "loading"))
    assert len(place.locator("details p").text_content() or "") > 60
