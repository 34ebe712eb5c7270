"""Lesson 07: what must hold of an answer that counts a cache's bytes (7.3). Knows nothing about how rows are kept.

The right number is read off tensors of that shape, which take no memory themselves.
"""

from typing import Any

import torch

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

ONE: dict[str, Any] = {"n_layer": 1, "n_head": 1, "n_kv_head": 1, "n_embd": 8, "tokens": 1, "batch": 1, "dtype": torch.float32}


def counts_one_row(answer: Answer, draw: Draw) -> None:
    for width in (8, draw.integer(3, 99)):
        got, want = both(answer, n_embd=width)
        half = 2 * got == want
        expect(
            not half, f"One token, one layer, one head of {width} float32 numbers: {got} bytes are those of K, or of V, alone."
        )
        numbers = 4 * got == want
        expect(not numbers, f"One row of K and V has {got} numbers. How many bytes is that in float32?")
        expect(
            got == want, f"One token, one layer, one head of {width} float32 numbers: K and V take {want} bytes; yours {got}."
        )


def counts_tokens_layers_and_texts(answer: Answer, draw: Draw) -> None:
    for name, what in (("tokens", "tokens"), ("n_layer", "layers"), ("batch", "texts")):
        n = draw.integer(2, 40)
        (one, _), (many, _) = both(answer), both(answer, **{name: n})
        expect(many == n * one, f"{n} {what} should take {n} times what one takes, {n * one} bytes; yours {many}.")


def splits_the_width_among_heads(answer: Answer, draw: Draw) -> None:
    for heads in (2, draw.integer(3, 12)):
        got, want = both(answer, n_head=heads, n_kv_head=heads, n_embd=16 * heads)
        whole = got == heads * want
        expect(
            not whole, f"Width {16 * heads} and {heads} heads: a head has {16 * heads} / {heads} numbers, not the whole width."
        )
        expect(got == want, f"Width {16 * heads}, {heads} heads, all with K and V: {want} bytes a token; yours {got}.")


def counts_heads_that_have_k_and_v(answer: Answer, draw: Draw) -> None:
    for heads, kv_heads in ((9, 3), (8 * draw.integer(1, 3), draw.integer(1, 2) * 2), (draw.integer(2, 9), 1)):
        got, want = both(answer, n_head=heads, n_kv_head=kv_heads, n_embd=64 * heads)
        shape = f"{heads} query heads share {kv_heads} K/V {'head' if kv_heads == 1 else 'heads'} of 64 numbers"
        expect(got * kv_heads != want * heads, f"{shape}: you counted K and V for every query head.")
        expect(got == want, f"{shape}: {want} bytes a token; yours {got}. n_embd is n_head times the size of a head.")


def follows_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float16, torch.float64, torch.int8, torch.bfloat16):
        got, want = both(answer, dtype=dtype)
        name = str(dtype).removeprefix("torch.")
        expect(got == want, f"In {name}, 8 numbers of K and 8 of V take {want} bytes; yours {got}.")


def prices_whole_models(answer: Answer, draw: Draw) -> None:
    gpt2 = {"n_layer": 12, "n_head": 12, "n_kv_head": 12, "n_embd": 768}
    llama = {"n_layer": 32, "n_head": 32, "n_kv_head": 8, "n_embd": 4096}
    for name, shape, dtype in (("GPT-2", gpt2, torch.float32), ("Llama 3.1 8B", llama, torch.float16)):
        tokens, batch = draw.integer(1000, 9000), draw.integer(1, 9)
        got, want = both(answer, **shape, dtype=dtype, tokens=tokens, batch=batch)
        expect(got == want, f"{name}, {batch} texts of {tokens} tokens: {want} bytes; yours {got}.")


PROPERTIES: tuple[Property, ...] = (
    counts_one_row,
    counts_tokens_layers_and_texts,
    splits_the_width_among_heads,
    counts_heads_that_have_k_and_v,
    follows_the_dtype,
    prices_whole_models,
)


def both(answer: Answer, **changed: Any) -> tuple[int, int]:
    """The answer's number and the right one, for one small row but for what is changed."""
    shape = ONE | changed
    got = answer(*shape.values())
    whole = type(got) is int
    expect(whole, f"Expected a whole number of bytes, an int; got {describe(got)}.")
    head_size = shape["n_embd"] // shape["n_head"]
    size = (shape["n_layer"], shape["batch"], shape["n_kv_head"], shape["tokens"], head_size)
    kv = torch.empty((2, *size), dtype=shape["dtype"], device="meta")
    return got, kv.nbytes
