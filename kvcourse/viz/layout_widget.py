"""Lesson 13: a prompt's parts to move up and down, and what becomes of hits and bill. Knows nothing about drawing."""

import html
from typing import Any

from matplotlib.figure import Figure

from kvcourse.providers.replaying import replay_requests
from kvcourse.viz import widgets
from kvcourse.viz.frames import Frames, quick_png
from kvcourse.viz.layout_picture import (
    FIRST_ORDER,
    MEANING,
    PromptPart,
    layout_in_words,
    plot_layouts,
    requests_of,
    toggled,
)

NOTE = "Run this cell in JupyterLab to move the parts."
BASE_PRICE = 3.0  # of a million input tokens, in some currency
PROVIDERS = ("local", "openai", "openai:tenth", "openai:breakpoints", "anthropic", "anthropic:1h", "gemini", "deepseek")
GAPS = {60.0: "minute", 600.0: "10 minutes", 7200.0: "2 hours"}
WRITTEN, BETTER = "as it was written", "the clock behind the history"


def layout_editor(*, static: bool = False) -> widgets.Live | Figure:
    """Order the parts of a prompt, mark each as fixed or changing, choose a provider: hits and bill follow at once.

    static: only the figure, which is also what stays where no widget can run.
    """
    if static:
        return _overview()
    words = " ".join(
        f"{title}: {layout_in_words(parts, replay_requests(requests_of(parts), 'openai'), BASE_PRICE)}"
        for title, parts in _layouts().items()
    )
    return widgets.Live(_Controls().widget, _overview, words, NOTE)


def _layouts() -> dict[str, tuple[PromptPart, ...]]:
    clock, *others, question = FIRST_ORDER
    return {WRITTEN: FIRST_ORDER, BETTER: (*others, clock, question)}


def _overview() -> Figure:
    return plot_layouts(_layouts(), "openai", base_price=BASE_PRICE)


def _draw(parts: tuple[PromptPart, ...], rules: str, gap: float) -> bytes:
    title = f"{rules}, asked every {GAPS[gap]}"
    return quick_png(plot_layouts({title: parts}, rules, gap_seconds=gap, base_price=BASE_PRICE))


class _Controls:
    """The list of parts, buttons that move and mark the chosen one, provider and time between requests, words and picture."""

    def __init__(self) -> None:
        self.parts = list(FIRST_ORDER)
        self._ready = False  # until all controls stand, and while the list is written anew
        self._frames = Frames(_draw)
        self.order = widgets.listed("parts", self._lines(), "The prompt from its start: arrow keys choose a part", self._chosen)
        self.order.layout.width = "30em"
        self.up = widgets.button("up", "Move the chosen part one place to the front", lambda: self._move(-1), "arrow-up")
        self.down = widgets.button("down", "Move the chosen part one place back", lambda: self._move(1), "arrow-down")
        self.mark = widgets.button("", "Mark the chosen part as fixed or as changing", self._toggle)
        self.mark.layout.width = "auto"
        names = [(name, name) for name in PROVIDERS]
        self.provider = widgets.choice("provider", names, "Whose rules and prices", "18em", self.show)
        self.gap = widgets.choice(
            "asked", [(f"every {name}", s) for s, name in GAPS.items()], "Time between requests", "18em", self.show
        )
        self.line, self.picture = widgets.spoken(), widgets.image()
        side = widgets.column(widgets.row(self.up, self.down, self.mark), self.provider, self.gap, width_px=330)
        self.widget = widgets.column(widgets.row(self.order, side), self.line, self.picture)
        self.provider.value, self.order.value = "openai", FIRST_ORDER[0].name
        self._ready = True
        self._chosen()
        self.show()

    def show(self, _: dict[str, Any] | None = None) -> None:
        if not self._ready:
            return
        rules, gap = self.provider.value, self.gap.value
        words = layout_in_words(self.parts, replay_requests(requests_of(self.parts, gap_seconds=gap), rules), BASE_PRICE)
        self.line.value = f'<span role="status" aria-live="polite" style="{widgets.FOR_READERS}">{html.escape(words)}</span>'
        parts, near = tuple(self.parts), PROVIDERS.index(rules)
        self.picture.value = self._frames[parts, rules, gap]
        self._frames.ahead([(parts, other, gap) for other in (*PROVIDERS[near + 1 : near + 2], *PROVIDERS[:near][-1:])])

    @property
    def place(self) -> int:
        """Of the chosen part, from 0."""
        return next(n for n, part in enumerate(self.parts) if part.name == self.order.value)

    def _lines(self) -> list[tuple[str, str]]:
        return [(f"{part} · {part.tokens:,} tokens, {MEANING[part.kind]}", part.name) for part in self.parts]

    def _chosen(self, _: dict[str, Any] | None = None) -> None:
        """What can be done with the chosen part."""
        if not self._ready:
            return
        part = self.parts[self.place]
        other = toggled(part)
        self.mark.disabled = other == part
        self.mark.description = f"mark {part.name} as {other.kind}" if other != part else f"{part.name} always changes"

    def _move(self, by: int) -> None:
        """At either end nothing happens: a button that went grey would lose the keyboard's focus."""
        here = self.place
        there = here + by
        if 0 <= there < len(self.parts):
            self.parts[here], self.parts[there] = self.parts[there], self.parts[here]
            self._changed()

    def _toggle(self) -> None:
        self.parts[self.place] = toggled(self.parts[self.place])
        self._changed()

    def _changed(self) -> None:
        """Write the list anew, with the same part chosen, and show what came of it."""
        name, self._ready = self.order.value, False
        self.order.options = self._lines()
        self.order.value = name
        self._ready = True
        self._chosen()
        self.show()
