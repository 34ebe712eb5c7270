"""Lesson 03: what must hold of an answer that counts parameters (3.5). Knows nothing about tensors.

The formula itself stands nowhere here: it is asked how much it grows when one size grows by one. How many numbers a block
has is counted on the package's model, made without memory.
"""

import re
from dataclasses import asdict, astuple, dataclass, replace

import torch

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.config import GPTConfig
from kvcourse.models.gpt import GPT

GPT2_SMALL = 124_439_808  # as published: Hugging Face, model gpt2
MISSING = {  # what is forgotten most: the names of its parameters in a block
    "the two norms, and as many in the biases of attention": r"ln.*",
    "one of the two norms, and as many in the weights, or the biases, of both": r"ln_1.*",
    "attention's c_proj": r"attn\.c_proj.*",
    "the bias of attention's c_proj, and as many in that of the MLP's": r"attn\.c_proj\.bias",
    "the bias of c_attn": r"attn\.c_attn\.bias",
    "all of attention": r"attn.*",
    "all biases, those of the norms apart": r"(attn|mlp).*bias",
    "all biases": r".*bias",
    "all biases and the norms": r"ln.*|.*bias",
}


@dataclass(frozen=True)
class Sizes:
    vocab_size: int
    context_length: int
    n_layer: int
    n_embd: int
    n_inner: int

    def __str__(self) -> str:
        return (
            f"V = {self.vocab_size}, context {self.context_length}, L = {self.n_layer}, C = {self.n_embd}, F = {self.n_inner}"
        )


def is_a_whole_number(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(50257, 1024, 12, 768, 3072), drawn(draw)):
        count(answer, sizes)


def a_word_more_costs_one_row(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(100, 64, 2, 8, 32), drawn(draw)):
        more, C = count(answer, replace(sizes, vocab_size=sizes.vocab_size + 1)) - count(answer, sizes), sizes.n_embd
        twice = "The head is the token table once more, the same tensor: it is counted once."
        expect(more != 2 * C, f"With C = {C}, one word more costs a row of {C} numbers; in yours {more}. {twice}")
        expect(more == C, f"With C = {C}, one word more costs a row of {C} numbers in the token table; in yours {more}.")


def a_position_more_costs_one_row(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(100, 64, 2, 8, 32), drawn(draw)):
        more, C = count(answer, replace(sizes, context_length=sizes.context_length + 1)) - count(answer, sizes), sizes.n_embd
        expect(more != 0, "A longer context costs nothing in yours. Positions are learned: each has a row in wpe.")
        expect(more == C, f"With C = {C}, one position more costs a row of {C} numbers in wpe; in yours {more}.")


def a_hidden_number_more_costs_two_lines_of_weights(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(100, 64, 1, 8, 32), drawn(draw)):
        more, C, L = (
            count(answer, replace(sizes, n_inner=sizes.n_inner + 1)) - count(answer, sizes),
            sizes.n_embd,
            sizes.n_layer,
        )
        expect(more != 0, "F changes nothing in yours. The MLP's width is F; it is 4·C in GPT-2 only by custom.")
        expect(more != 2 * C * L, "The bias of c_fc is missing: F numbers in each block.")
        expect(
            more == L * (C + C + 1),
            f"With C = {C} and L = {L}, one hidden number more costs each block a column of c_fc, its bias, and a row of "
            f"c_proj: {L * (C + C + 1)} in all; in yours {more}.",
        )


def a_block_more_costs_attention_norms_and_mlp(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(100, 64, 1, 8, 32), drawn(draw)):
        block = count(answer, replace(sizes, n_layer=sizes.n_layer + 1)) - count(answer, sizes)
        parts = parts_of_a_block(sizes)
        right = sum(parts.values())
        for what, pattern in MISSING.items():
            size = sum(size for name, size in parts.items() if re.fullmatch(pattern, name))
            expect(right - block != size, f"With {sizes}, a block is {size} numbers short. As many are in {what}.")
        off = f"{abs(right - block)} too {'few' if right > block else 'many'}"
        expect(block == right, f"With {sizes}, one block has {right} numbers; in yours {off}.")


def the_rest_is_the_last_norm(answer: Answer, draw: Draw) -> None:
    for sizes in (Sizes(100, 64, 1, 8, 32), drawn(draw)):
        one = count(answer, sizes)
        block = count(answer, replace(sizes, n_layer=sizes.n_layer + 1)) - one
        rows = (sizes.vocab_size + sizes.context_length) * sizes.n_embd
        rest, C = one - rows - sizes.n_layer * block, sizes.n_embd
        expect(rest != 0, "Beside tables and blocks there is one thing more: the last norm.")
        expect(
            rest == 2 * C, f"Beside tables and blocks there is the last norm: with C = {C}, {2 * C} numbers; in yours {rest}."
        )


def is_the_published_number_for_gpt2_small(answer: Answer, draw: Draw) -> None:
    got = count(answer, Sizes(50257, 1024, 12, 768, 3072))
    expect(got == GPT2_SMALL, f"Right for small sizes; for GPT-2 small {GPT2_SMALL:,} should come out, and {got:,} did.")


PROPERTIES: tuple[Property, ...] = (
    is_a_whole_number,
    a_word_more_costs_one_row,
    a_position_more_costs_one_row,
    a_hidden_number_more_costs_two_lines_of_weights,
    a_block_more_costs_attention_norms_and_mlp,
    the_rest_is_the_last_norm,
    is_the_published_number_for_gpt2_small,
)


def drawn(draw: Draw) -> Sizes:
    """F is not a multiple of C: whoever writes 4·C for it is found out."""
    C = draw.integer(5, 9)
    return Sizes(draw.integer(40, 90), draw.integer(20, 60), draw.integer(2, 5), C, 3 * C + draw.integer(1, 4))


def count(answer: Answer, sizes: Sizes) -> int:
    got = answer(*astuple(sizes))
    expect(type(got) is not float, f"A count is an int; got the float {got}. Divide nothing, or use //.")
    expect(type(got) is int, f"Expected an int; got {describe(got)}.")
    expect(abs(got) < 10**15, f"For {sizes} the count is far too large: {len(str(abs(got)))} digits.")
    return got


def parts_of_a_block(sizes: Sizes) -> dict[str, int]:
    """Numbers in each parameter of one block, counted on a model that has shapes and no memory."""
    with torch.device("meta"):
        block = GPT(GPTConfig(**{**asdict(sizes), "n_layer": 1, "n_head": 1})).transformer.h[0]
    return {name: parameter.numel() for name, parameter in block.named_parameters()}
