"""Lesson 08: what must hold of an answer that expands K/V heads to query heads (8.3). Knows nothing about attention."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def has_a_head_for_each_query_head(answer: Answer, draw: Draw) -> None:
    for B, H_kv, group, S, D in ((1, 3, 3, 4, 2), (2, 2, 3, draw.integer(1, 5), draw.integer(2, 5))):
        expanded(answer, draw.tensor(B, H_kv, S, D), H_kv * group)


def gives_each_head_whole(answer: Answer, draw: Draw) -> None:
    for H_kv, group in ((2, 3), (3, draw.integer(2, 4))):
        kv = draw.tensor(1, H_kv, draw.integer(2, 5), 4)
        got = expanded(answer, kv, H_kv * group)
        for head in range(H_kv * group):
            whole = any(torch.equal(got[0, head], kv[0, one]) for one in range(H_kv))
            expect(
                whole,
                f"Query head {head} of {H_kv * group} gets none of the {H_kv} K/V heads as it was: rows or numbers are mixed.",
            )


def lets_neighbours_share(answer: Answer, draw: Draw) -> None:
    for H_kv, group in ((2, 3), (3, 3), (draw.integer(2, 5), draw.integer(2, 4))):
        judge(answer, draw, 1, H_kv, group)


def holds_for_every_number_of_heads(answer: Answer, draw: Draw) -> None:
    for H_kv, group in ((1, 6), (6, 1), (1, 1), (draw.integer(2, 5), draw.integer(2, 5))):
        judge(answer, draw, draw.integer(2, 3), H_kv, group)


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float16):
        got = expanded(answer, draw.tensor(1, 2, 3, 4).to(dtype), 4)
        names = [str(one).removeprefix("torch.") for one in (dtype, got.dtype)]
        expect(got.dtype == dtype, f"It came in as {names[0]} and went out as {names[1]}. Convert nothing.")


PROPERTIES: tuple[Property, ...] = (
    has_a_head_for_each_query_head,
    gives_each_head_whole,
    lets_neighbours_share,
    holds_for_every_number_of_heads,
    keeps_the_dtype,
)


def judge(answer: Answer, draw: Draw, B: int, H_kv: int, group: int) -> None:
    kv = draw.tensor(B, H_kv, draw.integer(1, 4), 3)
    H = H_kv * group
    got = expanded(answer, kv, H)
    for text in range(B):
        reads = [next((one for one in range(H_kv) if torch.equal(got[text, h], kv[text, one])), None) for h in range(H)]
        right = [one for one in range(H_kv) for _ in range(group)]
        which = f"{H} query heads, {H_kv} K/V heads: they should read {right}"
        expect(reads == right, f"{which}; yours read {['?' if one is None else one for one in reads]}.".replace("'", ""))


def expanded(answer: Answer, kv: Tensor, H: int) -> Tensor:
    got = answer(kv, H)
    expect(isinstance(got, Tensor), f"Expected a tensor; got {describe(got)}.")
    B, _, S, D = kv.shape
    shapes = f"From {tuple(kv.shape)} to {H} query heads: expected {(B, H, S, D)}"
    expect(tuple(got.shape) == (B, H, S, D), f"{shapes}; got {tuple(got.shape)}.")
    return got
