"""Lesson 06: what must hold of the answers to exercise 06. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def _mask(answer: Answer, past: int, T: int) -> Any:
    got = answer(past, T)
    expect(isinstance(got, torch.Tensor) and got.dtype == torch.bool, f"Expected a bool tensor; got {describe(got)}.")
    expect(
        tuple(got.shape) == (T, past + T),
        f"{T} new tokens look at {past + T}: expected the shape ({T}, {past + T}); got {tuple(got.shape)}.",
    )
    return got


def sees_all_of_the_past(answer: Answer, draw: Draw) -> None:
    past, T = draw.integer(2, 6), draw.integer(2, 4)
    got = _mask(answer, past, T)
    expect(got[:, :past].all(), f"With {past} cached, a new token does not see all of the past.")


PROPERTIES: Mapping[str, Sequence[Property]] = {"6.2": (sees_all_of_the_past,)}  # an example; the rest follows
