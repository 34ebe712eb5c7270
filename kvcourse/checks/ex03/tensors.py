"""Lesson 03: how the checks of exercise 03 compare tensors. Knows nothing about any task.

Everything is in 64 bits, so that a billionth separates rounding from a fault.
"""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import describe, expect

TOLERANCE = 1e-9


def tensor_of(value: Any, shape: tuple[int, ...], what: str, dtype: torch.dtype = torch.float64) -> Tensor:
    """The value, if it is a tensor of that shape and dtype."""
    expect(isinstance(value, Tensor), f"{what} should be a tensor; it is {describe(value)}.")
    expect(tuple(value.shape) == shape, f"{what} should have the shape {shape}; it has {tuple(value.shape)}.")
    want, got = (str(one).removeprefix("torch.") for one in (dtype, value.dtype))
    expect(want == got, f"{what} should be {want}, like what came in; it is {got}.")
    return value


def near(a: Tensor, b: Tensor) -> bool:
    """Equal but for rounding. A tensor of another shape is never near, and neither is one that holds a NaN."""
    return a.shape == b.shape and bool(torch.allclose(a, b, atol=TOLERANCE, rtol=TOLERANCE))


def largest(a: Tensor, b: Tensor) -> str:
    return f"{(a - b).abs().max().item():.2g}"
