"""Lesson 06: a run with a cache, moment by moment, as plain arrays and words. Knows nothing about models, caches or drawing.

`recording.record_run` makes one from a real model; `stepper` draws it.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float

from kvcourse.errors import InputError

Kind = Literal["empty", "prefill", "decode", "end"]


@dataclass(frozen=True)
class Moment:
    """The cache before, between and after passes. The arrays hold the drawn layers only.

    states: of each slot, by the names of `style.SLOTS`: "held", "written" (in this pass), "reused", "evicted", "empty".
    """

    kind: Kind
    states: tuple[str, ...]
    k: Float[np.ndarray, "L H_kv slots D"]  # NaN where a slot holds nothing
    v: Float[np.ndarray, "L H_kv slots D"]
    q: Float[np.ndarray, "L H T D"]  # of this pass; T is 0 where none runs
    weights: Float[np.ndarray, "L H S"]  # the attention pattern of the pass's last query
    length: int  # tokens whose K and V are held
    tokens: int  # through the model so far
    tokens_recomputed: int  # through it so far, had there been no cache


@dataclass(frozen=True)
class Run:
    """A prompt and the tokens that followed."""

    texts: tuple[str, ...]  # of all tokens; the last one was chosen and never computed
    prompt_tokens: int
    layers: tuple[int, ...]  # the ones that are drawn
    n_layer: int
    capacity: int | None
    moments: tuple[Moment, ...]

    @property
    def heads(self) -> int:
        """K/V heads."""
        return self.moments[0].k.shape[1]

    @property
    def group(self) -> int:
        """Query heads that share a K/V head."""
        return self.moments[0].q.shape[1] // self.heads

    def limit(self, name: Literal["q", "k", "v"], row: int, head: int) -> float:
        """The largest magnitude in one layer and K/V head, over all slots and moments: the end of that row's colour scale."""
        heads = slice(head, head + 1) if name != "q" else slice(head * self.group, (head + 1) * self.group)
        parts = [np.abs(getattr(moment, name)[row, heads]) for moment in self.moments]
        return max((float(np.nanmax(part)) for part in parts if np.isfinite(part).any()), default=0.0) or 1.0

    @cached_property
    def largest_share(self) -> float:
        """The tallest bar: one scale for all layers, heads and moments."""
        return max((float(moment.weights.max()) for moment in self.moments if moment.weights.size), default=0.0) or 1.0

    def at(self, index: int, head: int = 0) -> Moment:
        """Raises: InputError for a moment or a K/V head that does not exist."""
        for name, value, count in (("moment", index, len(self.moments)), ("K/V head", head, self.heads)):
            if not 0 <= value < count:
                raise InputError(f"No such {name}.", expected=f"0 to {count - 1}", got=value, todo="Choose one that there is.")
        return self.moments[index]

    def head_lines(self, head: int) -> list[str]:
        """Which heads are drawn: one line, or two where query heads share a K/V head."""
        if self.group == 1:
            return [f"head {head}"]
        return [f"K/V head {head}", f"Q heads {head * self.group}–{(head + 1) * self.group - 1}"]


def describe(run: Run, index: int) -> tuple[str, str, str]:
    """What happens at a moment: a title and two short sentences."""
    moment = run.at(index)
    chosen = f"Chosen next: {quoted(run.texts[min(moment.length, len(run.texts) - 1)])}."
    if moment.kind == "empty":
        room = "The cache has no slots yet." if run.capacity is None else f"All {run.capacity} slots are empty."
        return "Before: the prompt waits", room, f"{_count(run.prompt_tokens, 'token')} will go in."
    if moment.kind == "prefill":
        written = f"{_count(moment.length, 'column')} of K and V written; the last query reads them all."
        return f"Prefill: {_count(moment.length, 'token')} in one pass", written, chosen
    if moment.kind == "decode":
        title = f"Decode {index - 1}: {quoted(run.texts[moment.length - 1])} goes in"
        return title, f"1 column of K and V written; the new query reads {_count(moment.length, 'key')}.", chosen
    last = f"{quoted(run.texts[-1])} came last: it has no K and V yet."
    return "After: K and V stay, every Q is gone", f"{_count(moment.length, 'column')} held for whatever comes next.", last


def describe_run(run: Run, head: int = 0) -> str:
    """The picture of the whole run in words, for those who cannot see it."""
    last = run.moments[-1]
    shown = f"{_count(run.n_layer, 'layer')}"
    if len(run.layers) < run.n_layer:
        shown = f"layers {', '.join(map(str, run.layers))} of {run.n_layer}"
    steps = " ".join("{}. {} {}".format(*describe(run, index)) for index in key_moments(run))
    return (
        f"A KV cache while tokens are generated; {', '.join(run.head_lines(head))}, {shown}. {steps} "
        "Columns of K and V stay where they were written; each query is crossed out after its pass. "
        f"Through the model: {_count(last.tokens, 'token')} with the cache, {last.tokens_recomputed} with the recompute loop."
    )


def key_moments(run: Run) -> list[int]:
    """After prefill, after one and two decode steps, after the last one: as many of these as there are."""
    last = max(index for index, moment in enumerate(run.moments) if moment.kind in ("prefill", "decode"))
    return sorted({index for index in (1, 2, 3, last) if index <= last})


def quoted(text: str) -> str:
    """The text in quotation marks, on one line."""
    return "“" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text) + "”"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
