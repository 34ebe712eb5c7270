"""The controls of a widget on a page, found by what they are and not by whose they are: keys move them, and so does the mouse.

Whether a control did anything is seen in the pictures and the words beside them, after the kernel has answered for everything
that was sent before: no time is waited.
"""

from dataclasses import dataclass
from typing import Any

from notebook_page import NotebookPage
from playwright.sync_api import Locator

LIVE = ".kvcourse-live"
CONTROLS = "select, input, .noUi-handle, button:not([class*='spot-'])"
SPOTS = "button[class*='spot-']"  # the parts of a picture that can be clicked
# What only prepares for a button: alone it changes nothing that is shown.
SILENT = {"whose": "the namespace of a call", "text": "the text of a call", "parts": "the part that the buttons move"}
TYPED = ("water", "storm")
ROLES = {"button", "toggleButton", "slider", "comboBoxMenuButton", "combobox", "listbox", "textbox", "image", "checkbox"}

_STATE = """
async root => {
  const digest = async img => {
    const bytes = await (await fetch(img.src)).arrayBuffer();
    return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).slice(0, 8)).join(".");
  };
  const pictures = await Promise.all([...root.querySelectorAll("img")].map(digest));
  const words = [...root.querySelectorAll(".widget-html-content")].map(part => part.textContent);
  return JSON.stringify([pictures, words]);
}
"""
_DESCRIBE = """
part => {
  const label = part.closest(".widget-slider")?.querySelector("label") || part.labels?.[0];
  const kind = part.matches(".noUi-handle") ? "slider" : part.matches(".widget-toggle-button") ? "switch" :
    part.matches("[class*='spot-']") ? "spot" : part.tagName === "SELECT" ? (part.size > 1 ? "list" : "choice") :
    part.tagName === "INPUT" ? "field" : "button";
  return {kind, name: (label?.textContent || part.textContent || part.title).trim()};
}
"""


@dataclass(frozen=True)
class Control:
    """One control: what it is ("slider", "button", ...), what it is called, where it is."""

    kind: str
    name: str
    at: Locator

    @property
    def value(self) -> Any:
        return self.at.evaluate("part => part.getAttribute('aria-valuenow') ?? part.value ?? part.className")


class Widget:
    """A live widget in a notebook that was run."""

    def __init__(self, notebook: NotebookPage, root: Locator) -> None:
        self.notebook, self.root, self.keyboard, self.mouse = notebook, root, notebook.page.keyboard, notebook.page.mouse
        root.scroll_into_view_if_needed()

    def state(self) -> str:
        """Pictures and words, after everything that was sent has been answered."""
        self.notebook.settle()
        return str(self.root.evaluate(_STATE))

    def controls(self) -> list[Control]:
        """What can be used now, in the page's order; of a picture's parts three that stand for all."""
        spots = self.root.locator(SPOTS).all()
        some = [spots[place] for place in (1, len(spots) // 2, len(spots) - 2)] if len(spots) > 3 else spots
        found = [part for part in self.root.locator(CONTROLS).all() if part.is_visible() and part.is_enabled()]
        return [Control(**part.evaluate(_DESCRIBE), at=part) for part in [*found, *some]]

    def wake(self) -> None:
        """Sliders and lists to their middle: then every button has something to do."""
        for control in self.controls():
            if control.kind == "slider":
                control.at.focus()
                self.keyboard.press("Home")
                for _ in range(int(float(control.at.get_attribute("aria-valuemax") or 0)) // 2):
                    self.keyboard.press("ArrowRight")
            elif control.kind == "list":
                options = control.at.locator("option").count()
                control.at.select_option(index=options // 2)

    def use(self, control: Control, way: str) -> None:
        """By "keys" or by "mouse". A switch that stays down is released, once it has shown what it does."""
        silent, value = control.name in SILENT, control.value
        self._unchoose(control)
        before = self.state()
        where = f"{self.notebook.path}: {control.kind} {control.name!r} does not answer to {way}"
        if silent:
            getattr(self, f"_{way}")(control)
            assert control.value != value, where
        elif control.kind == "switch":
            getattr(self, f"_{way}")(control)
            self._wait_for_another(before, where)
            if "mod-active" in (control.at.get_attribute("class") or ""):
                getattr(self, f"_{way}")(control)
            self.state()
        elif control.kind in ("choice", "list"):  # two of its lines may come to the same; not all
            others = control.at.locator("option").count() - 1
            assert any(self._changed(control, way, before) for _ in range(others)), where
        elif not self._changed(control, way, before):
            assert control.kind == "spot", where  # it may be chosen already: its neighbour first, and then it again
            control.at.locator("xpath=(following-sibling::button | preceding-sibling::button)[1]").click()
            assert self._changed(control, way, self.state()), where

    def _changed(self, control: Control, way: str, before: str) -> bool:
        getattr(self, f"_{way}")(control)
        return self.state() != before

    def _unchoose(self, control: Control) -> None:
        """A word that stands in the field already is no change: choose another first."""
        fields = [other for other in self.controls() if other.kind == "field" and other.value == control.name]
        others = [other for other in self.controls() if other.kind == "button" and other.name != control.name]
        if control.kind == "button" and fields and others:
            others[0].at.click()

    def _wait_for_another(self, before: str, where: str) -> None:
        """Play shows the next picture after a while, by itself."""
        for _ in range(600):
            if self.state() != before:
                return
        raise AssertionError(where)

    def _keys(self, control: Control) -> None:
        control.at.focus()
        if control.kind in ("slider", "choice", "list"):
            last = "part => part.selectedIndex === part.options.length - 1"
            forward, back = "ArrowDown", "Home"  # from the last line to the first
            if control.kind == "slider":
                last = "part => +part.getAttribute('aria-valuenow') === +part.getAttribute('aria-valuemax')"
                forward, back = "ArrowRight", "ArrowLeft"
            self.keyboard.press(back if control.at.evaluate(last) else forward)
        elif control.kind == "field":
            self._type(control)
        else:
            self.keyboard.press("Space" if control.kind == "switch" else "Enter")

    def _mouse(self, control: Control) -> None:
        if control.kind == "slider":
            self._drag(control.at)
        elif control.kind in ("choice", "list"):
            options = control.at.locator("option")
            chosen = int(control.at.evaluate("part => part.selectedIndex"))
            other = (chosen + 1) % options.count()
            if control.kind == "list":
                options.nth(other).click()
            else:  # the open list is no part of the page, so it cannot be clicked here
                control.at.select_option(index=other)
        else:
            control.at.click()
            if control.kind == "field":
                self._type(control)

    def _drag(self, handle: Locator) -> None:
        """To the other third of its way."""
        handle.scroll_into_view_if_needed()
        track = handle.locator("xpath=ancestor::*[contains(@class, 'noUi-base')]").bounding_box()
        start = handle.bounding_box()
        assert track and start
        x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
        share = 0.2 if x > track["x"] + track["width"] / 2 else 0.8
        self.mouse.move(x, y)
        self.mouse.down()
        self.mouse.move(track["x"] + share * track["width"], y, steps=4)
        self.mouse.up()

    def _type(self, control: Control) -> None:
        self.keyboard.press("ControlOrMeta+A")
        before = control.value
        for key in next(word for word in TYPED if word != before):
            self.keyboard.press(key)
        self.keyboard.press("Enter")

    def names_read_out(self) -> list[tuple[str, str]]:
        """(role, name) of everything that can be used or looked at, as Chromium tells a screen reader. No letters of icons."""
        devtools = self.notebook.context.new_cdp_session(self.notebook.page)
        self.root.evaluate("root => { window.kvRoot = root }")
        root = devtools.send("Runtime.evaluate", {"expression": "window.kvRoot"})["result"]["objectId"]
        nodes = devtools.send("Accessibility.queryAXTree", {"objectId": root})["nodes"]
        devtools.detach()
        named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
        spoken = [(role, "".join(c for c in name if not "\ue000" <= c <= "\uf8ff").strip()) for role, name in named]
        return [(role, name) for role, name in spoken if role in ROLES]

    def reached_by_tab(self) -> list[str]:
        """Every control that Tab comes to, from the cell's text on, until it leaves the widget. Escape leaves the text."""
        cell = self.root.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]")
        cell.locator(".jp-InputArea .cm-content").click()
        self.keyboard.press("Escape")
        seen: list[str] = []
        inside = "root => root.contains(document.activeElement) && window.kvNumber(document.activeElement)"
        self.notebook.page.evaluate(_NUMBER)
        for _ in range(400):
            self.keyboard.press("Tab")
            here = self.root.evaluate(inside)
            if not here and seen:
                break
            if here:
                seen.append(here)
        return seen

    def numbered(self) -> list[str]:
        self.notebook.page.evaluate(_NUMBER)
        parts = [part for part in self.root.locator(f"{CONTROLS}, {SPOTS}").all() if part.is_visible() and part.is_enabled()]
        return [str(part.evaluate("part => window.kvNumber(part)")) for part in parts]


_NUMBER = """
() => {
  window.kvNumber ??= part => (part.dataset.kvNumber ??= `${part.tagName} ${(window.kvCount = (window.kvCount || 0) + 1)}`);
}
"""
