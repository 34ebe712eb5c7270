"""Lesson 12: an agent's two gauges to play with. Knows nothing about how a window is made, or how a gauge is drawn."""

import functools
import html
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from kvcourse.context.agent import Run, Script, replayed_tokens, run_agent, scripted
from kvcourse.context.policies import CompactNearLimit, CropOldest, Externalise, Policy, ReplayAll, Summarise
from kvcourse.context.summaries import DigestSummary
from kvcourse.errors import ContextOverflow
from kvcourse.ledger import Prices
from kvcourse.providers import known_providers, rules_of
from kvcourse.viz import widgets
from kvcourse.viz.budget_picture import Reading, draw_gauges

NOTE = "Run this cell in JupyterLab to move the sliders."
WINDOW = 16_000  # tokens
SYSTEM, TASK, ANSWER, SUMMARY, HANDLE, LONGEST = 2250, 200, 100, 300, 20, 256  # tokens
RESULTS = (50, 100, 200, 400, 700, 1000, 1500, 2000, 3000)  # tokens of a tool result
STEPS, MOST_STEPS, RESULT, POLICY, PRICES = 30, 40, 700, "compact near the limit", "anthropic"  # what stands there at first


def _reference(handle: str) -> tuple[int, ...]:
    first = 10**12 + HANDLE * int(handle.removeprefix("result-"))
    return tuple(range(first, first + HANDLE))


POLICIES: dict[str, Callable[[], Policy]] = {
    "replay all": ReplayAll,
    "crop oldest": CropOldest,
    "summarise": lambda: Summarise(DigestSummary(SUMMARY)),
    "externalise": lambda: Externalise(_reference, LONGEST),
    "compact near the limit": lambda: CompactNearLimit(DigestSummary(SUMMARY)),
}


def price_lists() -> dict[str, tuple[Prices, bool]]:
    """Prices by name, and whether a prefix is kept at all."""
    named = {name: (rules_of(name).prices(), True) for name in known_providers() if name != "local"}
    return {"no cache": (Prices(1.0, 1.0, 5.0), False), **named}


def read_gauges(n_steps: int = STEPS, result: int = RESULT, policy: str = POLICY, prices: str = PRICES) -> Reading:
    """A task of `n_steps`, each tool result of `result` tokens, under a policy and at a provider's prices, on counts only.

    It goes as far as the window takes it. Raises: KeyError for a policy or prices that are not listed.
    """
    script = scripted(n_steps, system=SYSTEM, task=TASK, answer=ANSWER, result=result)
    listed, cached = price_lists()[prices]
    run, done = _as_far_as_it_goes(script, POLICIES[policy], cached)
    stopped = "" if done == n_steps else f"Step {done + 1} does not fit into the window: refused."
    steps = f"{done} steps" if done == n_steps else f"{done} of {n_steps} steps, then it is refused"
    title = f"{policy}: {steps}, tool results of {result:,} tokens, {prices}"
    whole = Script(script.system, script.task, script.steps[:done])
    sent = replayed_tokens(whole) + done * ANSWER
    return Reading(title, run.ledger, run.billed(listed), sent, run.summaries, stopped)


def budget_gauges(*, static: bool = False) -> widgets.Live | Figure:
    """Choose steps, the size of tool results, a policy and prices: what is in the window, what was processed, what it costs.

    static: only the figure, which is also what stays where no widget can run.
    """
    reading = read_gauges()
    if static:
        return draw_gauges(reading)
    return widgets.Live(_Controls().widget, lambda: draw_gauges(reading), " ".join(reading.in_words()), NOTE)


def _as_far_as_it_goes(script: Script, make: Callable[[], Policy], cached: bool) -> tuple[Run, int]:
    """The run of the most steps that fit, and how many they are; found by halves, as every policy refuses once and for all."""

    def run(n: int) -> Run | None:
        try:
            return run_agent(Script(script.system, script.task, script.steps[:n]), make(), limit=WINDOW, cached=cached)
        except ContextOverflow:
            return None

    best, fits, fails = run(len(script.steps)), len(script.steps), len(script.steps) + 1
    if best is None:
        fits, fails = 1, len(script.steps)
        best = run(1)
    while fails - fits > 1:
        middle = (fits + fails) // 2
        tried = run(middle)
        best, fits, fails = (best, fits, middle) if tried is None else (tried, middle, fails)
    assert best is not None, "one step fits into an empty window"
    return best, fits


class _Controls:
    """Two sliders, two lists, the gauges in words and as a picture."""

    def __init__(self) -> None:
        self._ready = False  # until all of them stand, a change of one is not worth a picture
        self._read = functools.lru_cache(8)(read_gauges)  # once for words and picture
        self._frames = widgets.Frames(lambda *chosen: widgets.quick_png(draw_gauges(self._read(*chosen))))
        self.steps = widgets.slider("steps", MOST_STEPS, "Steps of the task: arrow keys move it", self.show)
        self.steps.min = 1
        self.result = widgets.sizes("tool result", RESULTS, "Tokens of each tool result: arrow keys", self.show)
        names = [(name, name) for name in POLICIES]
        self.policy = widgets.choice("policy", names, "Who decides what stays in the window", "19em", self.show)
        prices = [(name, name) for name in price_lists()]
        self.prices = widgets.choice("prices", prices, "Whose prices, cached and not", "15em", self.show)
        self.line, self.picture = widgets.spoken(), widgets.image()
        rows = [widgets.row(self.steps, self.result), widgets.row(self.policy, self.prices)]
        self.widget = widgets.column(*rows, self.line, self.picture)
        self.steps.value, self.result.value = STEPS, RESULT
        self.policy.value, self.prices.value = POLICY, PRICES
        self._ready = True
        self.show()

    @property
    def reading(self) -> Reading:
        """What is chosen, counted."""
        return self._read(*self._chosen)

    @property
    def _chosen(self) -> tuple[int, int, str, str]:
        return self.steps.value, self.result.value, self.policy.value, self.prices.value

    def show(self, _: dict[str, Any] | None = None) -> None:
        if not self._ready:
            return
        lines = "<br>".join(map(html.escape, self.reading.in_words()))
        self.line.value = f'<div role="status" aria-live="polite">{lines}</div>'
        self.picture.value = self._frames[self._chosen]
        steps, *others = self._chosen
        self._frames.ahead([(n, *others) for n in (steps + 1, steps - 1) if 1 <= n <= MOST_STEPS])
