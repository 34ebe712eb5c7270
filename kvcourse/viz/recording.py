"""Lesson 06: a real run with a real cache, turned into plain arrays for `stepper`. Knows nothing about how it is drawn.

Every number comes from what ran: K and V are read back from the cache, Q and the attention pattern come from `trace`, the
counts from meters around this run and around the recompute loop's.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.caches.make import make_cache
from kvcourse.errors import InputError
from kvcourse.generate import stream
from kvcourse.meter import Meter
from kvcourse.models.base import CausalLM
from kvcourse.sampling import greedy
from kvcourse.trace import Trace, trace
from kvcourse.viz.moments import Kind, Moment, Run

MOST_LAYERS = 4  # panels that fit on a screen
SPARE_SLOTS = 3  # of a large empty buffer, how many are drawn beyond what this run needs


def record_run(
    model: CausalLM,
    prompt_ids: Sequence[int] | Tensor,
    *,
    max_new_tokens: int = 5,
    cache: str | KVCache = "preallocated",
    layers: Sequence[int] | None = None,
) -> Run:
    """Continue a prompt greedily with a cache, and once more without one, and keep every moment.

    cache: "preallocated", "growing", or an empty cache of your own, which is full afterwards.
    layers: which to keep; by default all, or four spread evenly from the first to the last.
    Raises: InputError for a cache that holds something; what `generate` raises.
    """
    ids = [int(token) for token in prompt_ids]
    plain = stream(model, ids, max_new_tokens=max_new_tokens, cache=None)  # checks the ids; runs when asked for a token
    if isinstance(cache, str):
        cache = make_cache(cache, model, room_tokens=len(ids) + max_new_tokens)
    if cache.length:
        raise InputError("A run starts with an empty cache.", expected="length 0", got=cache.length, todo="Call cache.reset().")
    shown = _chosen_layers(model.config.n_layer, layers)
    slots = len(ids) + max_new_tokens
    if cache.capacity is not None:
        slots = min(cache.capacity, slots + SPARE_SLOTS)
    recorder = _Recorder(model, cache, shown, slots)
    recorder.keep("empty", None, 0)
    new = ids
    for step in range(max_new_tokens):
        with Meter() as meter:
            named = trace(model, new, cache)
        recorder.tokens += meter.cost.tokens
        next(plain)
        recorder.tokens_recomputed = plain.output.cost.tokens
        recorder.keep("decode" if step else "prefill", named, len(new))
        new = [greedy(named["logits"][0, -1])]
        ids = ids + new
    recorder.keep("end", None, 0)
    texts = tuple(_text(model, token) for token in ids)
    return Run(texts, len(ids) - max_new_tokens, shown, model.config.n_layer, cache.capacity, tuple(recorder.moments))


class _Recorder:
    """Turns the state of a cache into moments."""

    def __init__(self, model: CausalLM, cache: KVCache, layers: tuple[int, ...], slots: int) -> None:
        self.config, self.cache, self.layers, self.slots = model.config, cache, layers, slots
        self.tokens = self.tokens_recomputed = 0
        self.moments: list[Moment] = []

    def keep(self, kind: Kind, named: Trace | None, T: int) -> None:
        """One moment: after the pass that `named` traced over T tokens, or when none runs."""
        H, D, length = self.config.n_head, self.config.head_size, self.cache.length
        q, weights = np.zeros((len(self.layers), H, 0, D)), np.zeros((len(self.layers), H, 0))
        if named is not None:
            q = _stack(named[f"blocks.{layer}.attn.q"][0] for layer in self.layers)  # (L, H, T, D)
            weights = _stack(named[f"blocks.{layer}.attn.pattern"][0, :, -1] for layer in self.layers)  # (L, H, S)
        k, v = (self._rows(part) for part in ("keys", "values"))
        states = ["held"] * (length - T) + ["written"] * T
        states += ["empty"] * ((self.slots if self.cache.capacity is not None else 0) - length)
        self.moments.append(Moment(kind, tuple(states), k, v, q, weights, length, self.tokens, self.tokens_recomputed))

    def _rows(self, part: str) -> np.ndarray:
        """What the cache holds now, (L, H_kv, slots, D); NaN where a slot is empty."""
        rows = np.full((len(self.layers), self.config.n_kv_head, self.slots, self.config.head_size), np.nan)
        if self.cache.length:
            for place, layer in enumerate(self.layers):
                rows[place, :, : self.cache.length] = _array(getattr(self.cache.read(layer, 0, self.cache.length), part)[0])
        return rows


def _stack(tensors: Iterable[Tensor]) -> np.ndarray:
    return np.stack([_array(tensor) for tensor in tensors])


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()


def _chosen_layers(n_layer: int, layers: Sequence[int] | None) -> tuple[int, ...]:
    if layers is None:
        count = min(n_layer, MOST_LAYERS)
        return tuple(sorted({round(place) for place in np.linspace(0, n_layer - 1, count)}))
    if not layers or any(not 0 <= layer < n_layer for layer in layers):
        raise InputError(
            "No such layer.",
            expected=f"layers from 0 to {n_layer - 1}, at least one",
            got=list(layers),
            todo="Choose layers that the model has.",
        )
    return tuple(layers)


def _text(model: CausalLM, token: int) -> str:
    return str(token) if model.tokenizer is None else model.tokenizer.token_text(token)
