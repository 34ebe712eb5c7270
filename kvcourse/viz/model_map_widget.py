"""Lesson 04: the model map that can be clicked. Knows nothing about how a map is drawn or where its numbers come from."""

import html
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from kvcourse.models.base import CausalLM
from kvcourse.viz import style, widgets
from kvcourse.viz.model_map_layout import HEIGHT, WIDTH, layout
from kvcourse.viz.model_map_parts import Box, MapData, Recording
from kvcourse.viz.model_map_picture import DETAIL, draw_detail, draw_map, draw_static, kept_summary, kept_words

NOTE = "Run this cell in JupyterLab to click the boxes."
HINT = "Click a box to see its numbers; or press Tab until it is framed, then Enter; or choose it in the list."
FIRST = "k"
ROLE_WORDS = {
    style.PARAMETER: "parameter: learned, in the file, the same for every prompt",
    style.ACTIVATION: "activation: computed just now, from these tokens",
    style.AGGREGATE: "aggregate: many numbers summed into a few, just now",
}


def model_map(model: CausalLM, prompt: str | Sequence[int] | Tensor, *, static: bool = False) -> widgets.Live | Figure:
    """Every tensor of one pass, on a map: what is a weight, what was computed, what a KV cache keeps.

    prompt: a text, or token ids. static: only the figure, which is also what stays where no widget can run.
    """
    recording = Recording(model, prompt)
    data = recording.at(0)
    if static:
        return draw_static(data, FIRST)
    return widgets.Live(_Controls(recording).widget, lambda: draw_static(data, FIRST), describe_map(data), NOTE)


def describe_map(data: MapData) -> str:
    """The map in words, for those who cannot see it."""
    lists = []
    for role in style.ROLES:
        names = [f"{box.full_name} {box.shape}" for box in data.boxes.values() if box.part.role is role]
        lists.append(f"{role.name.capitalize()}s: {', '.join(names)}.")
    where = f"Block {data.layer} of {data.n_layer}, with what stands before and after the blocks, for {len(data.ids)} tokens."
    return f"A model map. {where} {' '.join(lists)} {kept_summary(data)}"


class _Controls:
    """Layer, tensor, switch; the map; the chosen tensor's numbers."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.details: dict[tuple[int, str], tuple[bytes, str]] = {}
        self.maps = widgets.Frames(lambda layer, keeps: widgets.quick_png(draw_map(recording.at(layer), keeps=bool(keeps))))
        self.ready = False  # controls speak up while they are put together, and while their lists change
        self.data = recording.at(0)
        rects = layout(box.part for box in self.data.boxes.values())
        spots = {key: (r.x / WIDTH, r.y / HEIGHT, r.width / WIDTH, r.height / HEIGHT) for key, r in rects.items()}
        self.map = widgets.Clickable(spots, self.choose)
        layers = [(str(layer), layer) for layer in range(recording.config.n_layer)]
        self.layer = widgets.choice("layer", layers, "Which block is drawn", "11em", self.show)
        self.tensor = widgets.choice("tensor", self._names(), "Which tensor's numbers are shown", "31em", self.show)
        self.keeps = widgets.switch("what the KV cache keeps", "Mark what a KV cache keeps of this pass", self.show)
        self.hint, self.words, self.numbers = widgets.spoken(), widgets.spoken(), widgets.image()
        left = widgets.column(self.map.widget, width_px=round(WIDTH * style.DPI))
        right = widgets.column(self.words, self.numbers, width_px=round(DETAIL * style.DPI))
        self.tensor.value = FIRST
        self.widget = widgets.column(widgets.row(self.layer, self.tensor, self.keeps), self.hint, widgets.row(left, right))
        self.ready = True
        self.show()

    def choose(self, key: str) -> None:
        self.tensor.value = key

    def show(self, _: dict[str, Any] | None = None) -> None:
        if not self.ready:
            return
        if self.layer.value != self.data.layer:
            self.data = self.recording.at(self.layer.value)
            self._rename()
        data, key, keeps = self.data, self.tensor.value, self.keeps.value
        titles = {k: f"{box.part.role.name} {box.full_name} {box.shape}" for k, box in data.boxes.items()}
        self.map.show(self.maps[data.layer, keeps], titles, [key])
        self.maps.ahead([(data.layer, not keeps)])
        if (data.layer, key) not in self.details:
            figure, meaning = draw_detail(data, key)
            self.details[data.layer, key] = widgets.quick_png(figure), meaning
        self.numbers.value, meaning = self.details[data.layer, key]
        self.numbers.width = round(DETAIL * style.DPI)
        self.words.value = describe_box(data, data.boxes[key], meaning)
        self.hint.value = f'<span role="status" aria-live="polite">{html.escape(kept_summary(data) if keeps else HINT)}</span>'

    def _rename(self) -> None:
        """The names change with the layer; the choice stays."""
        chosen, self.ready = self.tensor.value, False
        self.tensor.options = self._names()
        self.tensor.value, self.ready = chosen, True

    def _names(self) -> list[tuple[str, str]]:
        return [(f"{box.part.role.chip}  {box.full_name}", key) for key, box in self.data.boxes.items()]


def describe_box(data: MapData, box: Box, meaning: str) -> str:
    """A tensor's name and shape, what it is, what produced it and what it is for, as HTML."""
    role, shape, e = box.part.role, box.shape, html.escape
    chip = f'<b style="background:{role.text};color:#fff;border-radius:4px;padding:0 6px">{role.chip}</b>'
    lines = [
        f'{chip} <b style="color:{role.text};font-size:115%">{e(box.part.symbol)}</b> <code>{e(box.full_name)}</code> {shape}',
        f"<i>{e(ROLE_WORDS[role])}</i>",
        f"<code><b>{e(box.made)}</b></code>",
        *[f"<code>{e(line)}</code>" for line in data.shapes(box)],
    ]
    used = ", ".join(other.full_name for other in data.used_for(box))
    if used:
        lines.append(f"Used for: {e(used)}")
    lines += [e(kept_words(box)), f'<span style="color:{style.MUTED}">{e(meaning)}</span>']
    body = "".join(f'<div style="margin-bottom:3px">{line}</div>' for line in lines)
    return f'<div role="status" aria-live="polite" style="line-height:1.35;overflow-wrap:anywhere">{body}</div>'
