"""Lesson 10: how fast a model reads a prompt on this machine. Knows nothing about caches."""

import contextvars
from weakref import WeakKeyDictionary

import torch

from kvcourse.meter import timed
from kvcourse.models.base import CausalLM

_TOKENS = 128  # enough that a pass is limited by arithmetic, as a long prompt's is
_measured: WeakKeyDictionary[CausalLM, float] = WeakKeyDictionary()


def prefill_rate(model: CausalLM) -> float:
    """Prompt tokens a second: the median of three short passes, taken once for each model. Nobody's meter counts them."""
    if model not in _measured:
        n = min(_TOKENS, model.config.context_length)
        ids = torch.zeros(1, n, dtype=torch.int64, device=model.device)
        with torch.inference_mode():
            timing = contextvars.Context().run(timed, lambda: model(ids, logits_to_keep=1), runs=3)
        _measured[model] = n / timing.median_s
    return _measured[model]
