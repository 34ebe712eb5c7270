"""How long one waits for a widget with the real model's data: measured in the page and printed, never asserted.

Whether it is fast enough depends on the machine. What is asserted is that each picture came.
"""

import json
import statistics
from collections.abc import Callable, Iterator

import pytest
from controls import LIVE, Widget
from jupyter_lab import Lab
from notebook_page import NotebookPage
from playwright.sync_api import Browser

MAKE = {
    "prepare": "from kvcourse import load_model\nfrom kvcourse.viz import *\nmodel = load_model('smollm2')\n"
    "text = 'The queen raised her voice, and the queen left.'",
    "cache_stepper": "live = cache_stepper(model, model.tokenizer.encode(text), max_new_tokens=5)",
    "attention_viewer": "live = attention_viewer(model, text)",
    "model_map": "live = model_map(model, text)",
    "memory_calculator": "live = memory_calculator()",
    "prefix_explorer": "live = prefix_explorer()",
    "budget_gauges": "live = budget_gauges()",
    "layout_editor": "live = layout_editor()",
}
NAMES = [name for name in MAKE if name != "prepare"]
MOVED = {"memory_calculator": "choice", "model_map": "spot", "layout_editor": "choice"}  # what is moved; else the slider
TIMES = 12
# From the key to the frame in which the new picture stands; a widget may have two, of which one changes.
_CLOCK = """
() => {
  window.kvClock = place => {
    let start = null;
    kv.time = null;
    addEventListener("keydown", event => { start ??= event.timeStamp; }, {capture: true, once: true});
    const pictures = () => [...document.querySelectorAll(place)];
    const sources = () => pictures().map(img => img.src).join();
    const before = sources();
    const look = async () => {
      const now = sources();
      const arrived = pictures().every(img => img.complete);
      if (start === null || !now || now === before || !arrived) return requestAnimationFrame(look);
      await Promise.all(pictures().map(img => img.decode()));
      requestAnimationFrame(() => { kv.time = performance.now() - start; });
    };
    look();
  };
}
"""


@pytest.fixture(scope="module")
def notebook(browser: Browser, lab: Lab) -> Iterator[NotebookPage]:
    """A notebook with a cell that makes each widget, and one that shows it."""
    cells = {}
    for name, source in MAKE.items():
        cells[name] = source
        if name in NAMES:
            cells[f"{name}-show"] = "live"
    made = [
        {"cell_type": "code", "id": name, "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for name, source in cells.items()
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    content = {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (lab.course / "work" / "speed.ipynb").write_text(json.dumps(content), encoding="utf-8")
    page = NotebookPage(browser, lab, "work/speed.ipynb")
    page.page.evaluate(_CLOCK)
    page.run_cell("prepare")
    yield page
    page.close()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.xdist_group("speed")) for name in NAMES])
def test_a_widget_paints_and_answers(notebook: NotebookPage, name: str, record_property: Callable[[str, object], None]) -> None:
    notebook.run_cell(name)
    assert notebook.page.evaluate("kv.failed()") == []
    notebook.editor(f"{name}-show").click()
    index = notebook.page.evaluate("id => kv.find(id)", f"{name}-show")
    place = f'.jp-Cell[data-windowed-list-index="{index}"] {LIVE} img'
    first = timed(notebook, place, lambda: notebook.page.keyboard.press("Shift+Enter"))
    widget = Widget(notebook, notebook.show(f"{name}-show").locator(LIVE))
    moves = [timed(notebook, place, move) for move in moves_of(widget, MOVED.get(name, "slider"))]
    assert len(moves) == TIMES
    record_property(f"measured {name}, first paint", f"{first:6.0f} ms")
    record_property(
        f"measured {name}, key to picture", f"{statistics.median(moves):6.0f} ms (median of {TIMES}; most {max(moves):.0f})"
    )


def timed(notebook: NotebookPage, place: str, act: Callable[[], None]) -> float:
    """Milliseconds from the first key of `act` to the new picture."""
    notebook.page.evaluate("place => kvClock(place)", place)
    act()
    notebook.wait("() => kv.time !== null")
    return float(notebook.page.evaluate("() => kv.time"))


def moves_of(widget: Widget, kind: str) -> Iterator[Callable[[], None]]:
    """As many acts as are timed; each changes the picture."""
    if kind == "spot":
        spots = widget.root.locator("button[title^='activation']:not(.chosen)").all()  # each with numbers of its own
        for place in range(TIMES):
            spots[place % len(spots)].focus()
            yield lambda: widget.keyboard.press("Enter")
        return
    control = next(control for control in widget.controls() if control.kind == kind)
    control.at.focus()
    widget.keyboard.press("Home")
    widget.state()
    last = int(control.at.evaluate("part => part.options?.length - 1 || +part.getAttribute('aria-valuemax')"))
    forward, back = ("ArrowDown", "ArrowUp") if kind == "choice" else ("ArrowRight", "ArrowLeft")
    place, step = 0, 1
    for _ in range(TIMES):
        if not 0 <= place + step <= last:
            step = -step
        place += step
        yield lambda step=step: widget.keyboard.press(forward if step > 0 else back)
