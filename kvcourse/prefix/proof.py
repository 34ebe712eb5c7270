"""Lesson 10: proof that stored K/V is right: compute it, and the logits, again. Knows nothing about how prefixes are found."""

import contextvars
from typing import NamedTuple

import torch
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.caches.growing import GrowingCache
from kvcourse.models.base import CausalLM


class Comparison(NamedTuple):
    """How far what comes from stored rows is from what comes without them, and how far rounding may take it.

    first_wrong: the first token of which a stored row is another one; None: all are as computed, up to rounding.
    """

    off: float  # logits
    bound: float
    first_wrong: int | None

    @property
    def is_equal(self) -> bool:
        return self.off <= self.bound and self.first_wrong is None  # not the other way round: NaN is no match


def compared(model: CausalLM, ids: list[int], cache: KVCache) -> Comparison:
    """Logits after the last of `ids`, and all rows but its own: from nothing, and from `cache`, which holds all but that one.

    Logits alone would not do: one position's hide what other positions hardly attend to, and no logit says where the fault is.
    Leaves the cache as it is. No meter counts what is done here.
    """
    with torch.inference_mode():
        return contextvars.Context().run(_compared, model, ids, cache)


def _compared(model: CausalLM, ids: list[int], cache: KVCache) -> Comparison:
    copy, fresh = GrowingCache(), GrowingCache()  # a fork might find no room for one more token
    for layer in range(model.config.n_layer):
        copy.append(layer, *cache.read(layer, 0, cache.length))
    copy.advance(cache.length)
    tokens = torch.tensor([ids], device=model.device)
    alone, reused = model(tokens, cache=fresh, logits_to_keep=1), model(tokens[:, -1:], cache=copy)
    are_right = torch.ones(cache.length, dtype=torch.bool, device=model.device)
    for layer in range(model.config.n_layer):
        for stored, computed in zip(cache.read(layer, 0, cache.length), fresh.read(layer, 0, cache.length), strict=True):
            off = (stored - computed).abs().amax((0, 1, 3))  # (n,)
            are_right &= off <= _bound(computed)
    wrong = (~are_right).nonzero()
    return Comparison((alone - reused).abs().max().item(), _bound(alone), int(wrong[0]) if len(wrong) else None)


def _bound(right: Tensor) -> float:
    return torch.finfo(right.dtype).eps ** 0.5 * (1 + right.abs().max().item())
