"""Lesson 10: proof that stored K/V is right: compute the same logits without it. Knows nothing about how prefixes are found."""

import contextvars
from typing import NamedTuple

import torch
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.models.base import CausalLM


class Comparison(NamedTuple):
    """How far logits from stored rows are from logits without them, and how far rounding may take them."""

    off: float
    bound: float

    @property
    def is_equal(self) -> bool:
        return self.off <= self.bound  # not the other way round: NaN is no match


def compared(model: CausalLM, ids: list[int], cache: KVCache) -> Comparison:
    """Logits after the last of `ids`, from nothing, and from the rows of `cache`, which holds all but that one.

    Leaves the cache as it is. No meter counts what is done here.
    """
    with torch.inference_mode():
        alone, reused = contextvars.Context().run(_twice, model, ids, cache)
    bound = torch.finfo(alone.dtype).eps ** 0.5 * (1 + alone.abs().max().item())
    return Comparison((alone - reused).abs().max().item(), bound)


def _twice(model: CausalLM, ids: list[int], cache: KVCache) -> tuple[Tensor, Tensor]:
    copy = GrowingCache()  # a fork might find no room for one more token
    for layer in range(model.config.n_layer):
        copy.append(layer, *cache.read(layer, 0, cache.length))
    copy.advance(cache.length)
    tokens = torch.tensor([ids], device=model.device)
    return model(tokens, logits_to_keep=1), model(tokens[:, -1:], cache=copy)
