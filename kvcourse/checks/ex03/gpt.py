"""Lesson 03: what must hold of an answer that is a whole GPT (3.4). Knows nothing about what a block does.

Blocks and the last norm are ours and note what they are given, as in 3.3.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect
from kvcourse.checks.ex03.tensors import near, tensor_of


def gives_a_row_of_logits_for_each_token(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw, T=draw.integer(2, 5))
    (B, T), V = run.tokens.shape, run.wte.shape[0]
    expect(isinstance(run.got, Tensor), f"Logits should be a tensor; they are {describe(run.got)}.")
    shape = tuple(run.got.shape)
    expect(shape not in ((B, V), (B, 1, V)), f"Only one row came back, {shape}. Each token has its logits: ({B}, {T}, {V}).")
    narrow = shape == (B, T, run.wte.shape[1])
    expect(not narrow, f"The result {shape} has the model's width: the last product with the token table is missing.")
    tensor_of(run.got, (B, T, V), "What is returned")


def starts_from_token_and_position(answer: Answer, draw: Draw) -> None:
    for T in (3, draw.integer(2, 6), 1):
        run = Run(answer, draw, T=T)
        expect(run.given, "No block was called.")
        first, tokens, places = run.given[0], run.wte[run.tokens], run.wpe[:T]
        mistakes = {
            "The first block was given the tokens' rows without positions. Add row t of wpe to the token in place t.": tokens,
            "The position rows were looked up by token id. They go by place in the text: 0, 1, 2, ...": (
                tokens + run.wpe[run.tokens % len(run.wpe)]
            ),
            "The positions begin at 1. The first token stands at 0.": tokens + run.wpe[1 : T + 1],
            "Every token was given position 0. The next one stands at 1.": tokens + (run.wpe[0] if T > 1 else 0),
            "The first block was given positions without the tokens' rows.": places.expand_as(tokens),
            "The two tables were multiplied. Their rows are added.": tokens * places,
        }
        right = tokens + places
        for message, wrong in mistakes.items():
            expect(near(first, right) or not near(first, wrong), message)
        expect(near(first, right), "The first block should be given the row of each token plus the row of its place.")


def runs_every_block_on_the_one_before(answer: Answer, draw: Draw) -> None:
    for L in (3, draw.integer(1, 5)):
        run = Run(answer, draw, L=L)
        right = list(range(L))
        expect(run.calls == right, f"With {L} blocks, they should run in the order {right}; yours ran {run.calls}.")
        for n in range(1, L):
            expect(near(run.given[n], run.out[n - 1]), f"Block {n} should be given what block {n - 1} returned.")


def normalises_at_the_end(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    times = len(run.normed)
    expect(times == 1, f"ln_f should be called once, after the last block; it was called {times} times.")
    expect(near(run.normed[0], run.out[-1]), "ln_f should be given what the last block returned.")


def scores_with_the_token_table(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    got = tensor_of(run.got, (*run.tokens.shape, run.wte.shape[0]), "What is returned")
    logits = torch.einsum("btc,vc->btv", run.last, run.wte)
    if near(got, logits):
        return
    if near(got.exp(), logits.softmax(-1)) or near(got, logits.softmax(-1)):
        raise Broken("These are probabilities, or their logarithms. A model returns logits: no softmax at the end.")
    skipped = near(got, torch.einsum("btc,vc->btv", run.out[-1], run.wte))
    expect(not skipped, "The product was taken with the last block's result. Take what ln_f returned.")
    raise Broken("A logit is the dot product of a token's last vector and a row of wte. These are something else.")


def leaves_its_input_alone(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    for name, before in (("tokens", run.tokens), ("wte", run.wte), ("wpe", run.wpe)):
        after = run.kept[name].value()
        same = isinstance(after, Tensor) and torch.equal(after, before)
        expect(same, f"{name} itself was written to. It belongs to the caller: make new tensors.")


PROPERTIES: tuple[Property, ...] = (
    gives_a_row_of_logits_for_each_token,
    starts_from_token_and_position,
    runs_every_block_on_the_one_before,
    normalises_at_the_end,
    scores_with_the_token_table,
    leaves_its_input_alone,
)


class Run:
    """One call of the answer: what blocks and last norm were given, what they returned, and what came back."""

    def __init__(self, answer: Answer, draw: Draw, *, T: int | None = None, L: int = 2) -> None:
        C, V, places = draw.integer(3, 6), draw.integer(11, 15), draw.integer(8, 10)
        self.wte, self.wpe = draw.tensor(V, C), draw.tensor(places, C)
        B, T = draw.integer(2, 3), T or draw.integer(2, 6)
        self.tokens = torch.tensor([draw.integers(T, 3, V - 1) for _ in range(B)])  # no id equals a place by chance alone
        self.calls, self.given, self.normed = list[int](), list[Tensor](), list[Tensor]()
        self.out = [draw.tensor(B, T, C) for _ in range(L)]
        self.last = draw.tensor(B, T, C)
        self.kept = {name: answer.keep(getattr(self, name)) for name in ("tokens", "wte", "wpe")}
        self.got = answer(*self.kept.values(), [self._block(n) for n in range(L)], self._norm)

    def _block(self, n: int) -> Callable[[Any], Tensor]:
        def block(x: Any) -> Tensor:
            self.calls.append(n)
            self.given.append(tensor_of(x, tuple(self.last.shape), f"What block {n} is given").clone())
            return self.out[n].clone()

        return block

    def _norm(self, x: Any) -> Tensor:
        self.normed.append(tensor_of(x, tuple(self.last.shape), "What ln_f is given").clone())
        return self.last.clone()
