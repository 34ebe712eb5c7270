"""Lesson 08: rotary positions. Knows nothing about attention: it turns vectors by angles.

Position p turns the pair (x_i, x_{i + D/2}) by p·θ^(-2i/D), so that a product of two turned vectors depends on their distance
only. Source: Su et al. 2021, section 3.2; the pairing is Hugging Face's (halves), not the paper's (neighbours).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kvcourse.config import LlamaConfig, RopeScaling


class Rope:
    """cos and sin of every position a model has, made at first use for a dtype and device; of more, when they are asked for.

    Angles are computed in float32, as the code that trained these models computed them.
    """

    def __init__(self, config: LlamaConfig) -> None:
        self._config = config
        self._tables: tuple[Tensor, Tensor] | None = None

    def at(
        self, positions: Int[Tensor, "*B T"], like: Tensor, stop: int = 0
    ) -> tuple[Float[Tensor, "*B T D"], Float[Tensor, "*B T D"]]:
        """cos, and sin with its first half negated (what `rotate` wants), at these positions.

        stop: all positions are below it, where some may lie past the context.
        """
        tables = self._tables
        if tables is None or len(tables[0]) < stop or tables[0].dtype != like.dtype or tables[0].device != like.device:
            length = self._config.context_length
            while length < stop:  # a text that grows token by token makes them a few times, not at every token
                length *= 2
            tables = self._tables = self._make(length, like.dtype, like.device)
        cos, sin = tables
        return cos[positions], sin[positions]

    def _make(self, length: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        D, scaling = self._config.head_size, self._config.rope_scaling
        frequencies = self._config.rope_theta ** -(torch.arange(0, D, 2, dtype=torch.float32) / D)  # (D / 2,)
        if scaling is not None:
            frequencies = _stretch(frequencies, scaling)
        angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies  # (positions, D / 2)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), -1).to(device, dtype), torch.cat((-sin, sin), -1).to(device, dtype)


def rotate(x: Float[Tensor, "B H T D"], cos: Float[Tensor, "..."], sin: Float[Tensor, "..."]) -> Float[Tensor, "B H T D"]:
    """Turn each pair by its angle. cos, sin: (T, D), or (B, 1, T, D) when rows stand at different positions."""
    low, high = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((high, low), dim=-1), sin)


def _stretch(frequencies: Float[Tensor, " half"], scaling: RopeScaling) -> Float[Tensor, " half"]:
    """Llama 3.1's scaling: low frequencies divided by `factor`, high ones kept, a smooth blend between.

    Source: Hugging Face transformers, modeling_rope_utils, rope_type "llama3"; our names are theirs.
    """
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_context_length / wavelengths  # full turns within the original context
    blend = ((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0, 1)
    return (1 - blend) * frequencies / scaling.factor + blend * frequencies
