"""Lesson 04: what must hold of an answer that cuts a fused c_attn into three (4.2). Knows nothing about layers or heads."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect

NAMES = ("q", "k", "v")
Parts = list[tuple[Tensor, Tensor]]


def returns_three_pairs(answer: Answer, draw: Draw) -> None:
    parts(answer, draw.tensor(4, 12), draw.tensor(12))


def gives_each_part_its_shape(answer: Answer, draw: Draw) -> None:
    cut(answer, draw.tensor(4, 12), draw.tensor(12))


def cuts_the_weight_by_columns(answer: Answer, draw: Draw) -> None:
    for _ in range(2):
        weight = draw.tensor(4, 12)
        got = cut(answer, weight, draw.tensor(12))
        judge_columns(weight, [W for W, _ in got])


def cuts_the_bias_in_the_same_places(answer: Answer, draw: Draw) -> None:
    for _ in range(2):
        weight, bias = draw.tensor(4, 12), draw.tensor(12)
        for which, (_, b) in enumerate(cut(answer, weight, bias)):
            right = torch.equal(b, bias[4 * which : 4 * which + 4])
            expect(right, f"W{NAMES[which]} is right, b{NAMES[which]} is not: its numbers belong to other columns.")


def goes_by_the_size_it_is_given(answer: Answer, draw: Draw) -> None:
    for C in (1, 2, draw.integer(5, 12), 16):
        weight, bias = draw.tensor(C, 3 * C), draw.tensor(3 * C)
        got = cut(answer, weight, bias)
        whole = torch.cat([W for W, _ in got], dim=1), torch.cat([b for _, b in got])
        same = torch.equal(whole[0], weight) and torch.equal(whole[1], bias)
        expect(same, f"With C = {C} the three parts, side by side, are not the fused tensors again.")


def leaves_the_fused_tensors_alone(answer: Answer, draw: Draw) -> None:
    weight, bias = draw.tensor(4, 12), draw.tensor(12)
    kept = answer.keep(weight), answer.keep(bias)
    answer(*kept)
    same = torch.equal(kept[0].value(), weight) and torch.equal(kept[1].value(), bias)
    expect(same, "weight or bias itself was changed. The model still computes with them.")


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float16, torch.float64):
        weight = draw.tensor(4, 12).to(dtype)
        for W, b in cut(answer, weight, draw.tensor(12).to(dtype)):
            names = [str(kind).removeprefix("torch.") for kind in (dtype, W.dtype, b.dtype)]
            expect(W.dtype == b.dtype == dtype, f"{names[0]} went in; {names[1]} and {names[2]} came out. Convert nothing.")


PROPERTIES: tuple[Property, ...] = (
    returns_three_pairs,
    gives_each_part_its_shape,
    cuts_the_weight_by_columns,
    cuts_the_bias_in_the_same_places,
    goes_by_the_size_it_is_given,
    leaves_the_fused_tensors_alone,
    keeps_the_dtype,
)


def parts(answer: Answer, weight: Tensor, bias: Tensor) -> Parts:
    """What the answer returns, if it is three pairs of tensors."""
    got = answer(weight, bias)
    expect(isinstance(got, list | tuple), f"Expected three pairs, (Wq, bq), (Wk, bk), (Wv, bv); got {describe(got)}.")
    expect(len(got) == 3, f"Expected three pairs, (Wq, bq), (Wk, bk), (Wv, bv); got {len(got)} of something.")
    for name, pair in zip(NAMES, got, strict=True):
        good = isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(x, Tensor) for x in pair)
        expect(good, f"The part for {name} should be a pair of tensors, (W{name}, b{name}); it is {describe(pair)}.")
    return [(pair[0], pair[1]) for pair in got]


def cut(answer: Answer, weight: Tensor, bias: Tensor) -> Parts:
    """The same, if every part has the right shape."""
    C = len(weight)
    got = parts(answer, weight, bias)
    for name, (W, b) in zip(NAMES, got, strict=True):
        judge_shape(f"W{name}", tuple(W.shape), (C, C), C)
        judge_shape(f"b{name}", tuple(b.shape), (C,), C)
    return got


def judge_shape(name: str, got: tuple[int, ...], right: tuple[int, ...], C: int) -> None:
    if got == right:
        return
    if len(right) == 2 and len(got) == 2 and got[1] == 3 * C and got[0] != C:
        raise Broken(f"{name} is {got}: rows were cut. Each column makes one number of q, k or v, so columns stay whole.")
    if got == (3 * C,) or got == (C, 3 * C):
        raise Broken(f"{name} is {got}: all of q, k and v together. Cut it too.")
    raise Broken(f"With C = {C}, {name} should be {right}, and is {got}.")


def judge_columns(weight: Tensor, got: list[Tensor]) -> None:
    C = len(weight)
    right = [weight[:, C * which : C * which + C] for which in range(3)]
    if all(torch.equal(W, R) for W, R in zip(got, right, strict=True)):
        return
    for which, W in enumerate(got):
        found = [NAMES[other] for other in range(3) if torch.equal(W, right[other])]
        name = NAMES[which]
        expect(found in ([], [name]), f"What you return as W{name} is W{''.join(found)}. The order is q, k, v.")
        expect(not torch.equal(W, right[which].t()), f"W{name} is turned over: rows where columns belong.")
        every_third = torch.equal(W, weight[:, which::3])
        expect(not every_third, f"W{name} takes every third column. In GPT-2 the first C columns are q's, then k's, then v's.")
    raise Broken(
        "The parts have the right shape and not the right numbers: the first C columns are q's, the next k's, then v's."
    )
