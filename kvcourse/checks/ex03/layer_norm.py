"""Lesson 03: what must hold of an answer that normalises each token (3.1). Knows nothing about what comes before or after."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, expect
from kvcourse.checks.ex03.tensors import near, tensor_of

TINY_EPS = 1e-12  # so small that it changes nothing which is compared


def gives_back_the_same_shape(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float64, torch.float32):
        B, T, C = draw.integer(1, 3), draw.integer(2, 5), draw.integer(4, 8)
        x = draw.tensor(B, T, C).to(dtype)
        got = answer(x, torch.ones(C, dtype=dtype), torch.zeros(C, dtype=dtype), 1e-5)
        tensor_of(got, (B, T, C), "What is returned", dtype)


def centres_each_token(answer: Answer, draw: Draw) -> None:
    for T in (3, draw.integer(4, 6)):
        x = draw.tensor(1, T, 8) + 5 * draw.tensor(1, T, 1)
        got = normed(answer, x)
        if near(got.mean(dim=-1), torch.zeros(1, T, dtype=x.dtype)):
            continue
        swapped = near(got, torch.ones_like(x))
        expect(not swapped, "With weight 1 and bias 0 every number came out as 1. Are weight and bias the wrong way round?")
        axis = "Its own numbers are the last axis, C."
        if near(got.mean(dim=1), torch.zeros(1, 8, dtype=x.dtype)):
            raise Broken(f"The mean was taken over the tokens. A token is normalised by itself. {axis}")
        if abs(got.mean().item()) < 1e-9:
            raise Broken(f"One mean was taken for all tokens together. Each token has its own. {axis}")
        raise Broken(f"With weight 1 and bias 0 the mean of each token's numbers should be 0. {axis}")


def scales_each_token_to_variance_one(answer: Answer, draw: Draw) -> None:
    for C in (8, draw.integer(4, 12)):
        x = draw.tensor(1, 4, C) * torch.tensor([0.5, 1.0, 3.0, 9.0], dtype=torch.float64)[:, None]
        got = normed(answer, x).var(dim=-1, correction=0)
        if near(got, torch.ones_like(got)):
            continue
        true = x.var(dim=-1, correction=0)
        if near(got, torch.full_like(got, 1 - 1 / C)):
            raise Broken(f"The variance comes out as {1 - 1 / C:.3f}, not 1: here it divides by C, and torch's by C - 1.")
        if near(got * true, torch.ones_like(got)):
            raise Broken("You divide by the variance. To make it 1, divide by its root.")
        if near(got, true):
            raise Broken("The mean is taken off, and the numbers are not scaled: their variance should be 1.")
        seen = [round(value, 2) for value in got.flatten().tolist()]
        raise Broken(f"With weight 1 and bias 0, each token's variance should be 1; for four tokens of yours it is {seen}.")


def adds_eps_to_the_variance(answer: Answer, draw: Draw) -> None:
    x = draw.tensor(1, 3, 8)
    for eps in (0.5, draw.integer(1, 9) / 10):
        wide, plain = normed(answer, x, eps), normed(answer, x)
        ratio = (wide.norm(dim=-1) / plain.norm(dim=-1)) ** 2  # of the two variances: v / (v + eps) when all is right
        v = x.var(dim=-1, correction=0)
        expect(not near(ratio, torch.ones_like(v)), f"eps = {eps} or nearly 0 gives the same: eps is not used.")
        outside = near(ratio, (v.sqrt() / (v.sqrt() + eps)) ** 2)
        expect(not outside, "eps was added to the root of the variance. It belongs under the root, to the variance.")
        expect(near(ratio, v / (v + eps)), f"With eps = {eps} the scale is off. eps is added to the variance, nowhere else.")
    flat = normed(answer, torch.full((1, 2, 8), 3.0, dtype=torch.float64), 1e-5)
    expect(torch.isfinite(flat).all(), "A token whose numbers are all equal came out as NaN or infinite.")


def applies_weight_then_bias(answer: Answer, draw: Draw) -> None:
    for C in (8, draw.integer(3, 9)):
        x, weight, bias = draw.tensor(1, 4, C), draw.tensor(C), draw.tensor(C)
        plain, got = normed(answer, x), tensor_of(answer(x, weight, bias, TINY_EPS), (1, 4, C), "What is returned")
        scaled = weight * plain
        if near(got, scaled + bias):
            continue
        if near(got, plain) or near(got, plain + bias):
            raise Broken("weight is not used: number c of every token is multiplied by weight[c].")
        if near(got, scaled):
            raise Broken("bias is not used: bias[c] is added to number c of every token.")
        if near(got, weight * (plain + bias)):
            raise Broken("First times weight, then plus bias; yours adds the bias first.")
        raise Broken("Right with weight 1 and bias 0, wrong with others. They come last, when the token is normalised.")


def treats_every_token_of_every_text_alike(answer: Answer, draw: Draw) -> None:
    B, T, C = draw.integer(2, 4), draw.integer(2, 5), 8
    x = draw.tensor(B, T, C) * 2 + draw.tensor(B, T, 1)
    together = normed(answer, x)
    for b in range(B):
        for t in range(T):
            alone = normed(answer, x[b : b + 1, t : t + 1])
            expect(near(together[b, t], alone[0, 0]), "A token among others gives something else than the same token alone.")


def leaves_its_input_alone(answer: Answer, draw: Draw) -> None:
    given = [draw.tensor(1, 3, 8), draw.tensor(8), draw.tensor(8)]
    kept = [answer.keep(value) for value in given]
    answer(*kept, 1e-5)
    for name, it, before in zip(("x", "weight", "bias"), kept, given, strict=True):
        after = it.value()
        same = isinstance(after, Tensor) and torch.equal(after, before)
        expect(same, f"{name} itself was written to. It belongs to the caller: make new tensors.")


PROPERTIES: tuple[Property, ...] = (
    gives_back_the_same_shape,
    centres_each_token,
    scales_each_token_to_variance_one,
    adds_eps_to_the_variance,
    applies_weight_then_bias,
    treats_every_token_of_every_text_alike,
    leaves_its_input_alone,
)


def normed(answer: Answer, x: Tensor, eps: float = TINY_EPS) -> Tensor:
    """The answer's result with weight 1 and bias 0."""
    C = x.shape[-1]
    got = answer(x, torch.ones(C, dtype=x.dtype), torch.zeros(C, dtype=x.dtype), eps)
    return tensor_of(got, tuple(x.shape), "What is returned")
