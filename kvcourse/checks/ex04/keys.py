"""Lesson 04: what must hold of an answer that computes a block's keys by hand (4.3). Knows nothing about files or prompts."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect

Weights = dict[str, Tensor]
EPS = 1e-5


def gives_each_head_a_row_for_each_token(answer: Answer, draw: Draw) -> None:
    for T, C, n_head in ((3, 8, 2), (draw.integer(4, 6), 12, 3)):
        shaped(answer, draw.tensor(T, C), block_weights(draw, 1, C), 0, n_head)


def computes_the_keys(answer: Answer, draw: Draw) -> None:
    for C, n_head in ((8, 2), (12, 3)):
        x, weights = draw.tensor(5, C), block_weights(draw, 1, C)
        got = shaped(answer, x, weights, 0, n_head)
        judge(got, x, weights, n_head)


def takes_the_weights_of_that_block(answer: Answer, draw: Draw) -> None:
    weights = block_weights(draw, 13, 4)
    for layer in (1, draw.integer(2, 9), draw.integer(10, 12), 0):
        x = draw.tensor(3, 4)
        got = shaped(answer, x, weights, layer, 2)
        if close(got, keys_of(x, weights, layer, 2)):
            continue
        for other in range(13):
            taken = close(got, keys_of(x, weights, other, 2))
            expect(not taken, f"For block {layer} you took the weights of block {other}.")
        raise Broken(f"The keys of block 0 alone are right; with 13 blocks, those of block {layer} are not.")


def takes_any_number_of_tokens_and_heads(answer: Answer, draw: Draw) -> None:
    for T, C, n_head in ((1, 8, 2), (4, 6, 1), (3, 5, 5), (draw.integer(2, 9), 16, 4)):
        x, weights = draw.tensor(T, C), block_weights(draw, 1, C)
        got = shaped(answer, x, weights, 0, n_head)
        what = f"{T} token{'s' * (T > 1)}, {n_head} head{'s' * (n_head > 1)} and C = {C}"
        expect(close(got, keys_of(x, weights, 0, n_head)), f"Right so far, but not for {what}.")


def adds_the_norms_small_number(answer: Answer, draw: Draw) -> None:
    """An x whose variance is not far above eps tells 1e-5 from 1e-6, from 0, and from one outside the root."""
    x, weights = draw.tensor(3, 8) * 2e-3, block_weights(draw, 1, 8)
    got = shaped(answer, x, weights, 0, 2)
    right = close(got, keys_of(x, weights, 0, 2), tolerance=1e-9)
    expect(right, f"For a very small x the keys differ: ln_1 adds eps = {EPS:g} to the variance, before the root is taken.")


def leaves_x_and_the_weights_alone(answer: Answer, draw: Draw) -> None:
    x, weights = draw.tensor(3, 8), block_weights(draw, 1, 8)
    kept_x, kept = answer.keep(x), answer.keep(weights)
    for _ in range(2):
        answer(kept_x, kept, 0, 2)
    expect(torch.equal(kept_x.value(), x), "x was changed. It goes on to the rest of the block, so leave it as it is.")
    after = kept.value()
    changed = [name for name, tensor in weights.items() if name not in after or not torch.equal(after[name], tensor)]
    expect(not changed, f"A weight was changed: {''.join(changed[:1])}. Weights are the same before and after a pass.")


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64):
        weights = {name: tensor.to(dtype) for name, tensor in block_weights(draw, 1, 8).items()}
        got = shaped(answer, draw.tensor(3, 8).to(dtype), weights, 0, 2)
        names = [str(kind).removeprefix("torch.") for kind in (dtype, got.dtype)]
        expect(got.dtype == dtype, f"x and the weights are {names[0]}, your keys are {names[1]}. Convert nothing.")


PROPERTIES: tuple[Property, ...] = (
    gives_each_head_a_row_for_each_token,
    computes_the_keys,
    takes_the_weights_of_that_block,
    takes_any_number_of_tokens_and_heads,
    adds_the_norms_small_number,
    leaves_x_and_the_weights_alone,
    keeps_the_dtype,
)


def block_weights(draw: Draw, n_layer: int, C: int) -> Weights:
    """What of a GPT's weights could be taken for the right ones. Nothing is 0 or 1, so that nothing can be left out unseen."""
    weights: Weights = {}
    for layer in range(n_layer):
        at = f"transformer.h.{layer}."
        for norm in ("ln_1", "ln_2"):
            weights |= {f"{at}{norm}.weight": 1 + 0.3 * draw.tensor(C), f"{at}{norm}.bias": draw.tensor(C)}
        weights |= {f"{at}attn.c_attn.weight": draw.tensor(C, 3 * C), f"{at}attn.c_attn.bias": draw.tensor(3 * C)}
        weights |= {f"{at}attn.c_proj.weight": draw.tensor(C, C), f"{at}attn.c_proj.bias": draw.tensor(C)}
    return weights


def projected(
    x: Tensor, weights: Weights, layer: int, norm: str | None = "ln_1", learned: bool = True, part: int = 1, bias: bool = True
) -> Tensor:
    """(T, C): what a block's fused projection makes of x, in one of its three parts.

    norm, learned (the norm's own weights), part and bias: as a mistake has them.
    """
    at, C = f"transformer.h.{layer}.", x.shape[1]
    if norm:
        centred = x - x.mean(1, keepdim=True)
        spread = (centred.square().mean(1, keepdim=True) + EPS).sqrt()
        x = centred / spread
        if learned:
            x = x * weights[f"{at}{norm}.weight"] + weights[f"{at}{norm}.bias"]
    fused = x @ weights[f"{at}attn.c_attn.weight"]
    if bias:
        fused = fused + weights[f"{at}attn.c_attn.bias"]
    return fused.narrow(1, part * C, C)


def by_head(flat: Tensor, n_head: int) -> Tensor:
    """(T, C) to (H, T, D): a head is a run of columns."""
    D = flat.shape[1] // n_head
    return torch.stack([flat.narrow(1, head * D, D) for head in range(n_head)])


def keys_of(x: Tensor, weights: Weights, layer: int, n_head: int) -> Tensor:
    return by_head(projected(x, weights, layer), n_head)


def close(got: Tensor, right: Tensor, tolerance: float = 1e-2) -> bool:
    """Equal but for rounding, and for another eps: that has a property of its own. Another key is further away by far."""
    return got.shape == right.shape and torch.allclose(got.double(), right.double(), atol=tolerance, rtol=tolerance)


def shaped(answer: Answer, x: Tensor, weights: Weights, layer: int, n_head: int) -> Tensor:
    """The answer's keys, if they have the shape of keys."""
    got = answer(x, weights, layer, n_head)
    (T, C) = x.shape
    right: tuple[int, ...] = (n_head, T, C // n_head)
    expect(isinstance(got, Tensor) and got.is_floating_point(), f"Expected a tensor of floats; got {describe(got)}.")
    shape: tuple[int, ...] = tuple(got.shape)
    given = f"With {T} tokens, C = {C} and {n_head} heads the keys are (H, T, D) = {right}"
    expect(len(shape) != 2, f"{given}; yours are {shape}: not cut into heads yet.")
    turned = shape == (right[1], right[0], right[2]) and shape != right
    expect(not turned, f"{given}; yours are {shape}: tokens first. Exchange two axes.")
    expect(shape != (1, *right), f"{given}; yours are {shape}. There is no batch here.")
    expect(shape == right, f"{given}; yours are {shape}.")
    return got


def judge(got: Tensor, x: Tensor, weights: Weights, n_head: int) -> None:
    """If these are not the keys, which natural mistake gives them?"""
    if close(got, keys_of(x, weights, 0, n_head)):
        return
    mistakes = {
        "These are the keys without ln_1: attention reads the normalised x.": projected(x, weights, 0, norm=None),
        "You normalised with ln_2. That one stands before the MLP; attention reads what ln_1 returns.": projected(
            x, weights, 0, norm="ln_2"
        ),
        "ln_1's own weight and bias are missing: the one multiplies what was normalised, the other is added.": projected(
            x, weights, 0, learned=False
        ),
        "These are the queries: the first C columns of c_attn. Keys come next.": projected(x, weights, 0, part=0),
        "These are the values: the last C columns of c_attn. Keys come before them.": projected(x, weights, 0, part=2),
        "The bias is missing.": projected(x, weights, 0, bias=False),
    }
    for message, flat in mistakes.items():
        expect(not close(got, by_head(flat, n_head)), message)
    flat = projected(x, weights, 0)
    scrambled = close(got, flat.reshape(got.shape)) or close(got, flat.t().reshape(got.shape))
    expect(not scrambled, "The shape is right and the numbers are mixed up. Head 0 is the first D columns, for every token.")
    interleaved = flat.reshape(len(x), -1, n_head).permute(2, 0, 1)
    expect(not close(got, interleaved), "Each head took every H-th column. A head's columns lie side by side.")
    raise Broken("These are not the keys. In order: ln_1, times the middle third of c_attn, plus its bias, cut into heads.")
