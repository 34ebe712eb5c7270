"""Lesson 07: a calculator for the memory of a KV cache. Knows nothing about how sizes are computed, or how a bar is drawn."""

import html
from typing import Any

from matplotlib.figure import Figure

from kvcourse.memory import BUDGET_BYTES, DTYPES, Memory, in_words, price
from kvcourse.model_shapes import SHAPES
from kvcourse.viz import widgets
from kvcourse.viz.memory_plots import draw_memory

NOTE = "Run this cell in JupyterLab to change the numbers."
CONTEXTS = tuple(1 << power for power in range(6, 18))  # 64 to 131,072
BATCHES = tuple(1 << power for power in range(9))
WINDOWS = (256, 1024, 4096, 16_384)
MODEL, CONTEXT, DTYPE = "llama-3.1-8b", 8192, "float16"  # what stands there at first


def memory_calculator(*, budget_bytes: int = BUDGET_BYTES, static: bool = False) -> widgets.Live | Figure:
    """Choose a model, the length of a text, how many at once, a dtype and a window: what K and V take, in words and as a bar.

    static: only the figure, which is also what stays where no widget can run.
    """
    memory = price(SHAPES[MODEL], CONTEXT, dtype=DTYPE, budget_bytes=budget_bytes)
    if static:
        return draw_memory(memory)
    words = " ".join(in_words(SHAPES[memory.model], memory))
    return widgets.Live(_Controls(budget_bytes).widget, lambda: draw_memory(memory), words, NOTE)


class _Controls:
    """Five choices, the sum in words, the bar."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._ready = False  # until all choices stand, a change of one is not worth a picture
        self.model = widgets.choice("model", [(name, name) for name in SHAPES], "Which model's shape", "16em", self.show)
        self.context = widgets.sizes("length", CONTEXTS, "Tokens of each text: arrow keys double them", self.show)
        self.batch = widgets.choice("texts", [(f"{n:,}", n) for n in BATCHES], "How many texts at once", "11em", self.show)
        self.dtype = widgets.choice("dtype", [(name, name) for name in DTYPES], "Of K, V and weights", "13em", self.show)
        windows = [("the model's own", None), ("none", max(CONTEXTS)), *((f"{n:,}", n) for n in WINDOWS)]
        self.window = widgets.choice("window", windows, "How many tokens of each text are kept", "17em", self.show)
        self.line, self.picture = widgets.spoken(), widgets.image()
        rows = widgets.row(self.model, self.context, self.batch, self.dtype, self.window)
        self.widget = widgets.column(rows, self.line, self.picture)
        self.model.value, self.dtype.value = MODEL, DTYPE
        self.context.value = CONTEXT
        self._ready = True
        self.show()

    @property
    def memory(self) -> Memory:
        """What is chosen, priced."""
        return price(
            SHAPES[self.model.value],
            self.context.value,
            self.batch.value,
            self.dtype.value,
            window_tokens=self.window.value,
            budget_bytes=self.budget_bytes,
        )

    def show(self, _: dict[str, Any] | None = None) -> None:
        if not self._ready:
            return
        memory = self.memory
        lines = "<br>".join(map(html.escape, in_words(SHAPES[memory.model], memory)))
        self.line.value = f'<div role="status" aria-live="polite">{lines}</div>'
        self.picture.value = widgets.quick_png(draw_memory(memory))
