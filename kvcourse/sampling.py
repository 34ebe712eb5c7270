"""Lesson 05: from one row of logits to one token id. Knows nothing about models or caches.

A sampler is anything that maps logits (V,) to an id. `greedy` is one; `Sampler(...)` makes seeded random ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from kvcourse.errors import InputError

Pick = Callable[[Tensor], int]


def greedy(logits: Float[Tensor, " V"]) -> int:
    """The likeliest token; of equals, the one with the smallest id."""
    _require_numbers(logits)
    return int((logits == logits.max()).to(torch.uint8).argmax())


@dataclass(frozen=True)
class Sampler:
    """Random sampling, the same on every run: each generation starts again from `seed`.

    temperature: divides the logits; 0 is greedy. top_k: keep the k likeliest. top_p: of those, keep the fewest whose
    probabilities reach p. Source: Holtzman et al. 2020 (top-p); the order is Hugging Face's.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, good, expected in (
            ("temperature", 0 <= self.temperature < float("inf"), "0 or more"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more, or None"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 and at most 1, or None"),
        ):
            if not good:
                raise InputError(f"{name} cannot be used.", expected=expected, got=getattr(self, name), todo="Correct it.")

    def start(self) -> Pick:
        """A fresh stream of choices: one for each sequence, so that a row of a batch draws what it would draw alone."""
        if self.temperature == 0:
            return greedy
        generator = torch.Generator().manual_seed(self.seed)

        def pick(logits: Float[Tensor, " V"]) -> int:
            return int(torch.multinomial(self.probabilities(logits).cpu(), 1, generator=generator))

        return pick

    def probabilities(self, logits: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
        """What `pick` draws from, in float64: zero for every token that top_k and top_p leave out."""
        _require_numbers(logits)
        values, order = logits.double().sort(descending=True, stable=True)  # (V,)
        values = (values - values[0]) / max(self.temperature, 1e-300)
        if self.top_k is not None:
            values[self.top_k :] = -torch.inf
        chances = values.softmax(dim=-1)
        if self.top_p is not None:
            before = chances.cumsum(0) - chances  # what the likelier ones have together
            chances = torch.where(before < self.top_p, chances, 0.0)
            chances = chances / chances.sum()
        return torch.zeros_like(chances).scatter(0, order, chances)


def start(sampler: Sampler | Pick) -> Pick:
    """A sampler ready for one sequence, whether it has settings or is a plain function."""
    return sampler.start() if isinstance(sampler, Sampler) else sampler


def _require_numbers(logits: Tensor) -> None:
    # -inf forbids a token and is fine; a row whose largest logit is NaN, inf or -inf says nothing.
    if logits.dim() != 1 or logits.numel() == 0 or not bool(logits.max().isfinite()):
        raise InputError(
            "These logits cannot be sampled.",
            expected="one row (V,) whose largest number is finite",
            got=f"{tuple(logits.shape)}, largest {logits.max().item() if logits.numel() else 'missing'}",
            todo="Look for what made them.",
        )
