"""Lesson 01 onwards: pictures that answer to a keyboard. Knows nothing about models: it shows what it is given.

The only importer of ipywidgets. A widget lives as long as its kernel, so each one comes with a figure that stays: see
`Live`.
"""

import asyncio
import functools
import html
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import ipywidgets
import traitlets
from IPython.display import display
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.errors import KVCourseError
from kvcourse.models.base import CausalLM
from kvcourse.viz import stepper, style
from kvcourse.viz.frames import Frames as Frames
from kvcourse.viz.frames import quick_png as quick_png
from kvcourse.viz.moments import Run, describe, describe_run
from kvcourse.viz.plots import plot_next_tokens
from kvcourse.viz.recording import record_run
from kvcourse.viz.widget_page import LIVE as LIVE
from kvcourse.viz.widget_page import page_rules

PLAY_S = 1.5
NOTE = "Run this cell in JupyterLab to step through it."
BESIDE = "What the picture shows is said in words beside it."
FULL = "calc(100% - 4px)"  # a part of a widget has margins of 2 px
_VIEW = "application/vnd.jupyter.widget-view+json"


class Live:
    """A widget, and the figure that stands for it wherever it cannot run. The last value of a cell, or `display(...)` it.

    Three outputs: the widget, which is there at once; the figure; a line with the page's rules and the picture in words.
    """

    def __init__(self, widget: ipywidgets.DOMWidget, draw: Callable[[], Figure], words: str, note: str = NOTE) -> None:
        self.widget, self.draw, self.words, self.note = widget, draw, words, note
        widget.add_class(LIVE)

    def _ipython_display_(self) -> None:
        view = self.widget._repr_mimebundle_()[_VIEW]  # without the usual text, which is a dump of the widget's parts
        display({_VIEW: view}, raw=True)
        figure = self.draw()
        about = {"image/png": {"alt": self.words, "width": round(figure.get_figwidth() * style.DPI)}}
        display({"image/png": style.png(figure), "text/plain": self.words}, metadata=about, raw=True)
        words = f"<details><summary>{self.note} The picture in words.</summary><p>{html.escape(self.words)}</p></details>"
        display({"text/html": page_rules() + words, "text/plain": self.note}, raw=True)

    def __repr__(self) -> str:
        return self.words


class Picture(ipywidgets.Image):
    """A PNG with a name for those who cannot see it: ipywidgets' own has none, and a tooltip needs a description."""

    description = traitlets.Unicode("").tag(sync=True)

    def __init__(self, **options: Any) -> None:
        super().__init__(format="png", tooltip=BESIDE, **options)


class Clickable:
    """A picture with an invisible button over each of its parts: a click chooses one, and so do Tab and Enter."""

    def __init__(self, spots: Mapping[Any, tuple[float, float, float, float]], on_click: Callable[[Any], None]) -> None:
        """spots: (left, top, width, height) of each part, as shares of the picture."""
        self.picture = Picture(layout={"width": "100%", "height": "auto"})
        self.buttons = {key: ipywidgets.Button() for key in spots}
        rules = ipywidgets.HTML(layout={"display": "none"})
        self.widget = ipywidgets.Box([self.picture, *self.buttons.values(), rules], layout={"overflow": "visible"})
        name = f"{LIVE}-{self.widget.model_id}"
        self.widget.add_class(name)
        lines = [line.replace("HERE", f".{name}") for line in _SPOT_RULES]
        for number, (key, place) in enumerate(spots.items()):
            self.buttons[key].add_class(f"spot-{number}")
            self.buttons[key].on_click(lambda _, key=key: on_click(key))
            sides = zip(("left", "top", "width", "height"), place, strict=True)
            lines.append(f".{name} .spot-{number}{{{';'.join(f'{side}:{share:.3%}' for side, share in sides)}}}")
        rules.value = f"<style>{''.join(lines)}</style>"

    def show(self, png: bytes, titles: Mapping[Any, str], chosen: Sequence[Hashable] = ()) -> None:
        """titles: what each button is called, for a pointer that rests on it and for screen readers. chosen: to be framed."""
        if self.picture.value != png:
            self.picture.value = png
        for key, button in self.buttons.items():
            button.tooltip = button.description = titles[key]  # a button without text is read out as nothing, tooltip or not
            (button.add_class if key in chosen else button.remove_class)("chosen")


def choice(label: str, options: Sequence[tuple[str, Any]], tooltip: str, width: str, changed: Callable[..., None]) -> Any:
    """A drop-down list: arrow keys move through it, and Space opens it."""
    box = ipywidgets.Dropdown(options=options, description=label, tooltip=tooltip, layout=_wide(width))
    box.observe(changed, "value")
    return box


def listed(label: str, options: Sequence[tuple[str, Any]], tooltip: str, changed: Callable[..., None]) -> Any:
    """A list that shows all its lines: a click or the arrow keys choose one."""
    box = ipywidgets.Select(options=options, description=label, tooltip=tooltip, rows=len(options), layout=_wide("21em"))
    box.observe(changed, "value")
    return box


def switch(label: str, tooltip: str, changed: Callable[..., None]) -> Any:
    """A button that stays down."""
    box = ipywidgets.ToggleButton(description=label, tooltip=tooltip, layout={"width": "auto"})
    box.observe(changed, "value")
    return box


def slider(label: str, last: int, tooltip: str, changed: Callable[..., None]) -> Any:
    """From 0 to `last`: arrow keys move it."""
    box = ipywidgets.IntSlider(max=last, description=label, tooltip=tooltip, layout=_wide("22em"))
    box.observe(changed, "value")
    return box


def sizes(label: str, numbers: Sequence[int], tooltip: str, changed: Callable[..., None]) -> Any:
    """A slider that stops at each of these numbers and says which: arrow keys move it."""
    options = [(f"{number:,}", number) for number in numbers]
    box = ipywidgets.SelectionSlider(options=options, description=label, tooltip=tooltip, layout=_wide("22em"))
    box.observe(changed, "value")
    return box


def button(label: str, tooltip: str, clicked: Callable[[], object], icon: str = "") -> Any:
    """label: what it is called, for the eye and the ear. tooltip: what it does."""
    one = ipywidgets.Button(description=label, tooltip=tooltip, icon=icon, layout={"width": "auto"})
    one.on_click(lambda _: clicked())
    return one


def field(label: str, value: str, tooltip: str, width: str) -> Any:
    """A line of text to be typed."""
    return ipywidgets.Text(value=value, description=label, tooltip=tooltip, layout=_wide(width))


def _wide(width: str) -> dict[str, str]:
    """So wide, or as wide as the page where that is less: at 200 % zoom it may be."""
    return {"width": width, "max_width": FULL}


def row(*parts: Any) -> Any:
    """Side by side, and below each other where the page is narrow."""
    return ipywidgets.HBox(parts, layout={"flex_flow": "row wrap", "overflow": "visible"})


def column(*parts: Any, width_px: int | None = None) -> Any:
    """Below each other. `width_px`: at most; where the page is narrow, a column shrinks to three quarters before it moves."""
    size = (
        {"flex": "1 1 100%"}
        if width_px is None
        else {"flex": f"{width_px} 1 {0.75 * width_px:.0f}px", "max_width": f"{width_px}px"}
    )
    return ipywidgets.VBox(parts, layout={**size, "overflow": "visible"})


def image() -> Any:
    return Picture(layout={"max_width": FULL, "height": "auto"})


def spoken() -> Any:
    """A line of HTML; what changes in it is read out where it is marked as a status."""
    return ipywidgets.HTML(layout={"width": "auto"})


def cache_stepper(
    model: CausalLM,
    prompt_ids: Sequence[int] | Tensor,
    *,
    max_new_tokens: int = 5,
    cache: str | KVCache = "preallocated",
    layers: Sequence[int] | None = None,
) -> Live:
    """Step through a real run: the prompt goes in, then one token at a time; K and V stay, each Q is thrown away.

    cache: "preallocated" (shows its empty slots), "growing", or an empty cache of your own.
    layers: which to draw; by default all, or four spread evenly.
    """
    return step_through(record_run(model, prompt_ids, max_new_tokens=max_new_tokens, cache=cache, layers=layers))


def step_through(run: Run) -> Live:
    """The same for a run that was recorded before."""
    return Live(_controls(run), lambda: stepper.draw_run(run), describe_run(run))


def _controls(run: Run) -> ipywidgets.VBox:
    """Play, two step buttons, a slider, a choice of heads, and the picture that follows them."""
    last = len(run.moments) - 1
    frames = Frames(lambda index, head: quick_png(stepper.draw_moment(run, index, head)))
    names = [(", ".join(run.head_lines(head)), head) for head in range(run.heads)]
    heads = ipywidgets.Dropdown(options=names, description="showing", tooltip="Which head is drawn", layout=_wide("18em"))
    picture = image()
    picture.width = round(stepper.WIDTH * style.DPI)
    words = ipywidgets.HTML(layout={"margin": "0", "height": "0"})

    def show(_: Any = None) -> None:
        index, head = bar.value, heads.value
        picture.value = frames[index, head]
        spoken = html.escape(" ".join(describe(run, index)))
        words.value = f'<span role="status" aria-live="polite" style="{FOR_READERS}">{spoken}</span>'
        frames.ahead([(i % (last + 1), head) for i in range(index + 1, index + last + 1)])

    parts = steps("moment", last, "Moment of the run: arrow keys move it", show)
    bar = parts[-1]
    heads.observe(show, "value")
    show()
    return ipywidgets.VBox([ipywidgets.HBox([*parts, heads], layout={"flex_flow": "row wrap"}), words, picture])


def steps(label: str, last: int, tooltip: str, changed: Callable[..., None]) -> list[Any]:
    """Play, one back, one forward, and the slider that they move."""
    bar = slider(label, last, tooltip, changed)

    def move(by: int) -> None:
        bar.value = min(max(bar.value + by, 0), bar.max)

    back = button("back", f"One {label} backward", lambda: move(-1), "step-backward")
    forth = button("forward", f"One {label} forward", lambda: move(1), "step-forward")
    return [_play_button(bar), back, forth, bar]


def _play_button(slider: ipywidgets.IntSlider) -> ipywidgets.ToggleButton:
    """Moves the slider; from the start if it stands at the end. The buttons of ipywidgets.Play have no names to be read out,
    and a button that shows nothing but an icon is read out as that icon's letter.
    """
    button = ipywidgets.ToggleButton(description="play", icon="play", tooltip="Play", layout={"width": "6em"})
    ticking: list[asyncio.TimerHandle] = []

    def tick() -> None:
        slider.value += 1
        button.value = slider.value < slider.max
        if button.value:
            ticking[:] = [asyncio.get_running_loop().call_later(PLAY_S, tick)]

    def pressed(change: dict[str, Any]) -> None:
        button.description = button.icon = "pause" if change["new"] else "play"
        button.tooltip = button.icon.capitalize()
        for timer in ticking:
            timer.cancel()
        if change["new"]:
            slider.value = slider.min if slider.value == slider.max else slider.value
            ticking[:] = [asyncio.get_running_loop().call_later(PLAY_S / 3, tick)]

    button.observe(pressed, "value")
    return button


def next_token_explorer(
    probabilities: Callable[[str], Float[Tensor, " V"]],
    token_text: Callable[[int], str],
    template: str,
    words: Sequence[str],
    *,
    k: int = 4,
) -> Live:
    """Change one word of a prompt and watch the next token: the first of `words` on the left, any other one on the right.

    probabilities: of the token after a text. template: the text, with {} in the word's place. k: likeliest tokens of each side.
    """
    compare = _Comparison(probabilities, token_text, template, words[0], k)
    note = "Run this cell in JupyterLab to change the word."
    return Live(_word_controls(compare, words), lambda: compare.draw(words[1]), compare.say(words[1]), note)


class _Comparison:
    """The same prompt with two words. The rows are the left side's k likeliest tokens, then k more of the right side's."""

    def __init__(self, probabilities: Any, token_text: Callable[[int], str], template: str, base: str, k: int) -> None:
        self._token_text, self.template, self.base, self._k = token_text, template, base, k
        self._after = functools.cache(lambda word: probabilities(template.format(word)))

    def draw(self, word: str) -> Figure:
        rows = self._after(self.base).topk(self._k).indices.tolist()
        rows += [i for i in self._after(word).topk(2 * self._k).indices.tolist() if i not in rows][: self._k]
        sides = {self.template.format(side): self._pairs(side, rows) for side in (self.base, word)}
        return plot_next_tokens(sides, scale=1.0)  # one scale for every word: the bars are compared from picture to picture

    def say(self, word: str) -> str:
        likeliest = self._after(word).topk(self._k).indices.tolist()
        spoken = ", ".join(f"{text} {p:.1%}" for text, p in self._pairs(word, likeliest))
        return f"After \u201c{self.template.format(word)}\u201d: {spoken}."

    def _pairs(self, word: str, ids: list[int]) -> list[tuple[str, float]]:
        return [(self._token_text(i), float(self._after(word)[i])) for i in ids]


def _word_controls(compare: _Comparison, words: Sequence[str]) -> ipywidgets.VBox:
    """A field for any word, a button for each that is suggested, and the picture that follows them."""
    field = ipywidgets.Text(
        value=words[1], description="word", continuous_update=False, tooltip="Another word, then Enter", layout=_wide("23em")
    )
    buttons = [ipywidgets.Button(description=word, layout={"width": "auto"}) for word in words[1:]]
    picture = image()
    spoken = ipywidgets.HTML()

    def show(_: Any = None) -> None:
        word = field.value.strip() or compare.base
        try:
            figure, said = compare.draw(word), compare.say(word)
        except KVCourseError as error:  # half an emoji, a page of text: an exception in here would be seen by nobody
            spoken.value = f'<span role="alert">{html.escape(str(error))}</span>'
            return
        picture.width, picture.value = round(figure.get_figwidth() * style.DPI), style.png(figure)
        spoken.value = f'<span role="status" aria-live="polite">{html.escape(said)}</span>'

    def take(button: ipywidgets.Button) -> None:
        field.value = button.description

    for button in buttons:
        button.on_click(take)
    field.observe(show, "value")
    show()
    return ipywidgets.VBox([ipywidgets.HBox([field, *buttons], layout={"flex_flow": "row wrap"}), picture, spoken])


_SPOT_RULES = (
    "HERE{position:relative}",
    "HERE img{margin:0;display:block}",
    "HERE .jupyter-button{position:absolute;margin:0;padding:0;min-width:0;background:transparent!important;"
    "border:0;border-radius:5px;cursor:pointer;font-size:0;color:transparent;overflow:hidden}",
    f"HERE .jupyter-button:hover{{outline:2px solid {style.MUTED}}}",
    f"HERE .jupyter-button.chosen{{outline:3px solid {style.INK}}}",
    "HERE .jupyter-button:focus-visible{outline:3px dashed #B3261E;outline-offset:2px}",
)
# For screen readers only: the picture says the same to the eye.
FOR_READERS = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)"
