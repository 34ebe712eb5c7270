"""Lesson 14: the small seeded model that broken caches are observed on, and how near logits are to the right ones.

Knows nothing about caches.
"""

from functools import cache as once

import torch
from torch import Tensor

from kvcourse.attention import causal_mask
from kvcourse.caches.base import Plan
from kvcourse.config import GPTConfig
from kvcourse.models.gpt import GPT

EQUAL, NEAR, CLOSE = 1e-10, 1e-4, 0.2  # of the spread of the right logits: rounding, a lower precision, rounded rows
SHAPE = GPTConfig(vocab_size=48, context_length=64, n_layer=2, n_head=2, n_embd=16)


def small_model(seed: int = 0) -> GPT:
    """A new GPT in float64 whose weights are drawn at random, and large enough that each token matters."""
    generator = torch.Generator().manual_seed(seed)
    model = GPT(SHAPE).double().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(1 + 0.1 * drawn if "ln_" in name and "weight" in name else 0.4 * drawn)
    return model


@once
def the_model() -> GPT:
    """One for all who only look."""
    return small_model()


def texts(n: int, tokens: int, seed: int = 1) -> list[list[int]]:
    """So many texts, drawn at random. Token 0 is left out: padding is made of it."""
    generator = torch.Generator().manual_seed(seed)
    drawn: list[list[int]] = torch.randint(1, SHAPE.vocab_size, (n, tokens), generator=generator).tolist()
    return drawn


def right_logits(model: GPT, ids: list[int], window: int | None = None) -> Tensor:
    """What a model without a cache says, (T, V); with a window, each token sees so many keys, itself included."""
    positions = torch.arange(len(ids))
    mask = causal_mask(positions, positions)  # (T, T)
    if window is not None:
        mask &= positions > positions[:, None] - window
    with torch.no_grad():
        return model.compute(torch.tensor([ids]), Plan(positions, positions, mask), None)[0]


def compared(got: Tensor, want: Tensor, first: int = 0, rounds: bool = False) -> str:
    """ "equal", "nearly equal" (as after a cast), "close" (where rows are rounded), or "off from 4": from that token on.

    got, want: (T, V), of a text's tokens `first` to first + T - 1.
    """
    off = (got - want).abs().amax(-1).nan_to_num(torch.inf) / want.std()  # (T,)
    for said, bound in (("equal", EQUAL), ("nearly equal", NEAR), ("close", CLOSE if rounds else 0)):
        if bool((off <= bound).all()):
            return said
    return f"off from {first + int((off > NEAR).nonzero()[0])}"
