"""Lesson 10: how fast a model reads a prompt on this machine. Knows nothing about caches."""

import contextvars
from weakref import WeakKeyDictionary

import torch

from kvcourse.meter import timed
from kvcourse.models.base import CausalLM

_TOKENS = 128  # enough that a pass is limited by arithmetic, as a long prompt's is
PASSES = 3
_measured: WeakKeyDictionary[CausalLM, float] = WeakKeyDictionary()


def measured_tokens(model: CausalLM) -> int:
    """How long a prompt the rate is measured on."""
    return min(_TOKENS, model.config.context_length)


def prefill_rate(model: CausalLM) -> float:
    """Prompt tokens a second: the median of PASSES short passes, taken once for each model. Nobody's meter counts them."""
    if model not in _measured:
        n = measured_tokens(model)
        ids = torch.zeros(1, n, dtype=torch.int64, device=model.device)
        with torch.inference_mode():
            timing = contextvars.Context().run(timed, lambda: model(ids, logits_to_keep=1), runs=PASSES)
        _measured[model] = n / timing.median_s
    return _measured[model]
