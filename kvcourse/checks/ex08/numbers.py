"""Lesson 08: what must hold of an answer that turns codes into numbers (8.5). Knows nothing about how codes were made."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def gives_a_number_for_each_code(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float16, torch.float64):
        G, n = draw.integer(2, 4), draw.integer(3, 8)
        codes, low, step = drawn(draw, G, n, 15)
        read(answer, codes, low.to(dtype), step.to(dtype))


def begins_at_low(answer: Answer, draw: Draw) -> None:
    codes, low, step = drawn(draw, 1, 4, 15)
    got = read(answer, torch.zeros_like(codes), low, step)[0, 0].item()
    expect(abs(got - low.item()) < 1e-9, f"Code 0 stands for low, here {low.item():.3f}; yours {got:.3f}.")


def goes_up_by_a_step_a_code(answer: Answer, draw: Draw) -> None:
    codes = torch.arange(16, dtype=torch.uint8)[None]
    _, low, step = drawn(draw, 1, 16, 15)
    got = read(answer, codes, low, step)[0]
    rises = (got[1:] - got[:-1]).tolist()
    even = all(abs(rise - step.item()) < 1e-9 for rise in rises)
    expect(even, f"From code to code a number rises by one step, {step.item():.3f}; yours by {rises[0]:.3f} from 0 to 1.")


def reads_codes_above_127(answer: Answer, draw: Draw) -> None:
    codes = torch.tensor([[127, 128, 200, 255]], dtype=torch.uint8)
    _, low, step = drawn(draw, 1, 4, 255)
    got, right = read(answer, codes, low, step)[0].tolist(), [low.item() + step.item() * code for code in (127, 128, 200, 255)]
    for code, one, other in zip((127, 128, 200, 255), got, right, strict=True):
        expect(
            abs(one - other) < 1e-9, f"Code {code} of 8 bits stands for {other:.3f}; yours {one:.3f}. Bytes go from 0 to 255."
        )


def gives_each_group_its_own(answer: Answer, draw: Draw) -> None:
    for G, n in ((3, 5), (4, 4), (draw.integer(2, 6), draw.integer(2, 6))):
        codes, low, step = drawn(draw, G, n, 15)
        got = read(answer, codes, low, step)
        for group in range(G):
            right = [low[group, 0].item() + step[group, 0].item() * code for code in codes[group].tolist()]
            near = all(abs(a - b) < 1e-9 for a, b in zip(got[group].tolist(), right, strict=True))
            expect(near, f"{G} groups of {n}: group {group} has a low and a step of its own, and they were not used.")


PROPERTIES: tuple[Property, ...] = (
    gives_a_number_for_each_code,
    begins_at_low,
    goes_up_by_a_step_a_code,
    reads_codes_above_127,
    gives_each_group_its_own,
)


def drawn(draw: Draw, G: int, n: int, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, lows and steps of G groups of n."""
    codes = torch.tensor([draw.integers(n, 0, top) for _ in range(G)], dtype=torch.uint8)
    return codes, draw.tensor(G, 1), 0.05 + draw.tensor(G, 1).abs()


def read(answer: Answer, codes: Tensor, low: Tensor, step: Tensor) -> Tensor:
    got = answer(codes, low, step)
    expect(isinstance(got, Tensor), f"Expected a tensor; got {describe(got)}.")
    shape = tuple(codes.shape)
    expect(tuple(got.shape) == shape, f"A number for each code, {shape}; got {tuple(got.shape)}.")
    names = [str(one).removeprefix("torch.") for one in (low.dtype, got.dtype)]
    expect(got.dtype == low.dtype, f"Numbers have the dtype of low and step, {names[0]}; yours {names[1]}.")
    return got
