"""Lesson 05: prefill and decode, the two ways in which tokens go through a model with a cache. Knows `caches/base` alone.

prefill      the prompt, in one pass or in chunks: fills the cache
decode_step  one token, one pass: reads the cache, adds a row
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.caches.base import KVCache, undone_on_error
from kvcourse.errors import InputError
from kvcourse.models.base import CausalLM

Ids = Sequence[int] | Tensor


def prefill(model: CausalLM, ids: Ids, cache: KVCache, chunk: int | None = None) -> Float[Tensor, "B V"]:
    """Process a prompt, `chunk` tokens a pass (None: all in one); return the logits after its last token.

    ids: a list, or an int64 tensor (T,) or (B, T). Whatever is raised on the way leaves the cache as it was.
    """
    tokens = torch.as_tensor(ids, device=model.device)
    tokens = tokens[None] if tokens.dim() == 1 else tokens  # (B, T)
    if chunk is not None and chunk < 1:
        raise InputError("A chunk needs tokens.", expected="1 or more", got=chunk, todo="None takes the prompt in one pass.")
    with torch.inference_mode(), undone_on_error(cache):
        for part in tokens.split(chunk or max(tokens.shape[1], 1), dim=1):
            logits = model(part, cache=cache, logits_to_keep=1)
    return logits[:, -1]


def decode_step(model: CausalLM, token: int | Ids, cache: KVCache) -> Float[Tensor, "B V"]:
    """Process one new token (an id, or one id per row); return the logits after it."""
    ids = [token] if isinstance(token, int) else token
    with torch.inference_mode():
        return model(torch.as_tensor(ids, device=model.device).view(-1, 1), cache=cache)[:, -1]
