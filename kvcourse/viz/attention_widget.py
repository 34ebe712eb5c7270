"""Lesson 02 onwards: an attention viewer that can be clicked. Knows nothing about how a pattern is drawn."""

import functools
import html
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from kvcourse.models.base import CausalLM
from kvcourse.trace import trace
from kvcourse.viz import style, widgets
from kvcourse.viz.attention_picture import WIDTH, Patterns, draw_attention, draw_head, draw_query, look, plan
from kvcourse.viz.frames import Backdrop
from kvcourse.viz.model_map_parts import prompt_ids

NOTE = "Run this cell in JupyterLab to choose a layer, a head and a query."
HINT = "Click a small picture to choose a head, a row of the large one to choose a query; or use the lists and the slider."


def attention_viewer(model: CausalLM, prompt: str | Sequence[int] | Tensor, *, static: bool = False) -> widgets.Live | Figure:
    """Who looks at whom, for any layer, head and query of one pass.

    prompt: a text, or token ids. static: only the figure, which is also what stays where no widget can run.
    """
    patterns = record_patterns(model, prompt)
    start = (0, 0, len(patterns.texts) - 1)  # the last query sees every key
    if static:
        return draw_attention(patterns, *start)
    words = f"An attention pattern, a row for each query, a column for each key. {look(patterns, *start)}"
    return widgets.Live(_Controls(patterns).widget, lambda: draw_attention(patterns, *start), words, NOTE)


def record_patterns(model: CausalLM, prompt: str | Sequence[int] | Tensor) -> Patterns:
    """All patterns of one pass over the prompt."""
    ids = prompt_ids(model, prompt)
    named = trace(model, ids)
    every = [named[f"blocks.{layer}.attn.pattern"][0] for layer in range(model.config.n_layer)]
    texts = tuple(str(i) if model.tokenizer is None else model.tokenizer.token_text(i) for i in ids)
    return Patterns(texts, torch.stack(every).cpu().double().numpy().astype(np.float64))


class _Controls:
    """Layer, head, query; the picture; one line that says whom the query looks at."""

    def __init__(self, patterns: Patterns) -> None:
        self.patterns = patterns
        at = plan(patterns)
        self.titles = {("head", h): f"Head {h}" for h in range(len(at.thumbs))}
        self.titles |= {("query", t): f"Query {t}: {text}" for t, text in enumerate(patterns.texts)}
        rects = {**{("head", h): r for h, r in enumerate(at.thumbs)}, **{("query", t): r for t, r in enumerate(at.rows)}}
        spots = {key: (r.x / WIDTH, r.y / at.height, r.width / WIDTH, r.height / at.height) for key, r in rects.items()}
        n_layer, heads, T = patterns.values.shape[:3]
        self.drawn = widgets.Frames(self.draw)
        self.backdrop = functools.lru_cache(1)(lambda layer, head: Backdrop(draw_head(patterns, layer, head)))
        self.layer = widgets.choice(
            "layer", [(str(n), n) for n in range(n_layer)], "Which block's attention", "11em", self.show
        )
        self.head = widgets.choice("head", [(str(n), n) for n in range(heads)], "Which head is drawn large", "11em", self.show)
        self.query = widgets.slider("query", T - 1, "Position of the token that looks: arrow keys move it", self.show)
        self.picture, self.line, self.hint = widgets.Clickable(spots, self.choose), widgets.spoken(), widgets.spoken()
        self.hint.value = html.escape(HINT)
        framed = widgets.column(self.picture.widget, width_px=round(WIDTH * style.DPI))
        self.widget = widgets.column(widgets.row(self.layer, self.head, self.query), self.hint, self.line, framed)
        self.last = T - 1  # the query that was shown before
        self.query.value = T - 1
        self.show()

    def choose(self, spot: tuple[str, int]) -> None:
        kind, number = spot
        (self.head if kind == "head" else self.query).value = number

    def draw(self, place: int, query: int) -> bytes:
        layer, head = divmod(place, self.patterns.values.shape[1])
        return self.backdrop(layer, head).png(lambda ax: draw_query(ax, self.patterns, layer, head, query))

    def show(self, _: dict[str, Any] | None = None) -> None:
        at = (self.layer.value, self.head.value, self.query.value)
        layer, head, query = at
        heads, T = self.patterns.values.shape[1:3]
        place = layer * heads + head
        self.picture.show(self.drawn[place, query], self.titles)
        self.line.value = f'<b role="status" aria-live="polite">{html.escape(look(self.patterns, *at))}</b>'
        onward = 1 if query >= self.last else -1
        self.last = query
        self.drawn.ahead([(place, t) for t in (query + onward, query - onward) if 0 <= t < T])
