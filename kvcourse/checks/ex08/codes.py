"""Lesson 08: what must hold of an answer that turns numbers into codes (8.4). Knows nothing about who turns them back."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Codes = tuple[Tensor, Tensor, Tensor]


def gives_codes_low_and_step(answer: Answer, draw: Draw) -> None:
    for bits in (4, 8):
        coded(answer, draw.tensor(draw.integer(2, 4), draw.integer(3, 9)), bits)


def starts_each_group_at_its_least(answer: Answer, draw: Draw) -> None:
    for x in (torch.tensor([[-1.0, 2.0, 0.5]], dtype=torch.float64), draw.tensor(3, 8), 5 + draw.tensor(2, 8)):
        codes, low, _ = coded(answer, x, 4)
        for group in range(len(x)):
            least = x[group].min().item()
            got = f"low is the least number of each group, here {least:.3g}; yours {low[group].item():.3g}"
            expect(abs(low[group].item() - least) < 1e-9, f"{got}.")
            code = codes[group][x[group].argmin()].item()
            expect(code == 0, f"The least number of a group has the code 0; yours {code}.")


def ends_each_group_at_the_last_code(answer: Answer, draw: Draw) -> None:
    for bits in (4, 8):
        top = 2**bits - 1
        for x in (torch.tensor([[-1.0, 2.0, 0.5]], dtype=torch.float64), draw.tensor(3, 8)):
            codes, _, step = coded(answer, x, bits)
            for group in range(len(x)):
                right, code = (x[group].max() - x[group].min()).item() / top, codes[group][x[group].argmax()].item()
                sizes = f"{bits} bits are the codes 0 to {top}, so {top} steps from least to greatest: step {right:.4g}"
                expect(abs(step[group].item() - right) < 1e-9, f"{sizes}; yours {step[group].item():.4g}.")
                expect(code == top, f"With {bits} bits the greatest number has the code {top}; yours {code}.")


def takes_the_nearest_code(answer: Answer, draw: Draw) -> None:
    for bits in (4, 8):
        x = draw.tensor(3, 32)
        codes, low, step = coded(answer, x, bits)
        error = ((low + step * codes - x) / step).abs().max().item()
        nearest = f"With {bits} bits a number is {error:.2f} steps from what its code stands for; half a step is the most"
        expect(error < 0.5 + 1e-6, f"{nearest}. Round to the nearest.")


def bears_a_group_of_equal_numbers(answer: Answer, draw: Draw) -> None:
    same = float(draw.integer(1, 5))
    for x in (torch.full((1, 4), same), torch.cat((torch.zeros(1, 4), torch.full((1, 4), -same), draw.tensor(1, 4).float()))):
        codes, low, step = coded(answer, x, 4)
        finite = bool(low.isfinite().all()) and bool(step.isfinite().all())
        expect(finite, "A group of equal numbers gives a low or a step that is no number.")
        for group in range(len(x)):
            if x[group].min() == x[group].max():
                back = (low[group] + step[group] * codes[group]).tolist()
                equal = f"A group of equal numbers, {x[group, 0].item():g}, comes back as {back[0]:.3g}"
                expect(
                    back == x[group].tolist(), f"{equal}: its step is 0. What is divided by it, and which codes come of that?"
                )


def never_leaves_the_range_of_codes(answer: Answer, draw: Draw) -> None:
    for bits, most in ((8, 2.2e-5), (4, 1.25e-6)):  # half precision has few numbers down there, and a step becomes much smaller
        tiny = torch.linspace(0, most, draw.integer(5, 9)).to(torch.float16)[None]
        codes, _, step = coded(answer, tiny, bits)
        if step.item() == 0:  # so small a step may come out as nothing: then all codes are as good
            continue
        rising = codes[0].tolist() == sorted(codes[0].tolist())
        got = f"Rising numbers got the codes {codes[0].tolist()}"
        expect(rising, f"{got}: in float16 the step is inexact, a code came out above {2**bits - 1}, and wrapped round.")
        expect(codes.max() <= 2**bits - 1, f"A code of {codes.max().item()} does not fit into {bits} bits. Clamp.")


def leaves_x_alone(answer: Answer, draw: Draw) -> None:
    x = draw.tensor(2, 6)
    kept = answer.keep(x)
    answer(kept, 4)
    untouched = isinstance(kept.value(), Tensor) and torch.equal(kept.value(), x)
    expect(untouched, "x itself was written to. It belongs to the caller.")


PROPERTIES: tuple[Property, ...] = (
    gives_codes_low_and_step,
    starts_each_group_at_its_least,
    ends_each_group_at_the_last_code,
    takes_the_nearest_code,
    bears_a_group_of_equal_numbers,
    never_leaves_the_range_of_codes,
    leaves_x_alone,
)


def coded(answer: Answer, x: Tensor, bits: int) -> Codes:
    got = answer(x, bits)
    good = isinstance(got, tuple) and len(got) == 3 and all(isinstance(part, Tensor) for part in got)
    expect(good, f"Expected three tensors, (codes, low, step); got {describe(got)}.")
    codes, low, step = got
    expect(codes.dtype == torch.uint8, f"Codes go into bytes, a uint8 tensor; yours is {describe(codes)}.")
    expect(tuple(codes.shape) == tuple(x.shape), f"A code for each number, {tuple(x.shape)}; got {tuple(codes.shape)}.")
    for name, part in (("low", low), ("step", step)):
        G = len(x)
        expect(tuple(part.shape) == (G, 1), f"One {name} for each of {G} groups, ({G}, 1); got {tuple(part.shape)}.")
        names = [str(dtype).removeprefix("torch.") for dtype in (x.dtype, part.dtype)]
        expect(part.dtype == x.dtype, f"{name} has x's dtype, {names[0]}; yours {names[1]}.")
    return codes, low, step
