"""Lesson 02: what several tasks of exercise 02 ask of an answer. Knows nothing about attention."""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, describe, expect

ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative to the largest number


def table(got: Any, rows: tuple[str, int], columns: tuple[str, int], dtype: torch.dtype = torch.float64) -> Tensor:
    """The result, if it is a tensor with these rows and columns, each named by what it stands for."""
    shape = (rows[1], columns[1])
    wanted = f"a tensor {shape}: {rows[0]}, {columns[0]}"
    expect(isinstance(got, Tensor), f"Expected {wanted}; got {describe(got)}.")
    turned = tuple(got.shape) == shape[::-1] and shape[0] != shape[1]
    expect(not turned, f"Expected {wanted}; got {tuple(got.shape)}: rows and columns are exchanged.")
    expect(tuple(got.shape) == shape, f"Expected {wanted}; got {describe(got)}.")
    names = [str(one).removeprefix("torch.") for one in (dtype, got.dtype)]
    expect(got.dtype == dtype, f"{names[0]} came in and {names[1]} went out. Convert nothing.")
    return got


def close(got: Tensor, want: Tensor) -> bool:
    """Equal up to rounding; infinities have to be the same, and no NaN equals anything."""
    size = want[want.isfinite()].abs().max().item() if want.isfinite().any() else 1.0
    return torch.allclose(got, want, rtol=0.0, atol=ROUNDING[want.dtype] * max(size, 1.0))


def stays_as_it_was(answer: Answer, given: dict[str, Tensor], *more: Any) -> None:
    """Call the answer, and look at its arguments afterwards."""
    kept = {name: answer.keep(tensor) for name, tensor in given.items()}
    answer(*kept.values(), *more)
    for name, tensor in given.items():
        after = kept[name].value()
        untouched = isinstance(after, Tensor) and after.shape == tensor.shape and torch.equal(after, tensor)
        expect(untouched, f"{name} was changed. It belongs to the caller: make a new tensor.")
