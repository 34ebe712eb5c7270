"""Lesson 03: what must hold of an answer that is the MLP (3.2). Knows nothing about attention or norms.

The weights are chosen so that one thing shows at a time: identity matrices show the bend, a large bias switches it off (far
to the right GELU is the identity), a zero input shows the biases.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, expect
from kvcourse.checks.ex03.tensors import near, tensor_of

FAR = 100.0  # GELU(y + 100) is y + 100, to the last bit


def gives_back_the_width_of_the_stream(answer: Answer, draw: Draw) -> None:
    for C, F_ in ((4, 16), (draw.integer(2, 6), draw.integer(7, 12))):
        Weights(draw, C, F_).run(answer, draw.tensor(1, 3, C))


def bends_once_between_the_maps(answer: Answer, draw: Draw) -> None:
    C = draw.integer(3, 6)
    eye, none = torch.eye(C, dtype=torch.float64), torch.zeros(C, dtype=torch.float64)
    x = 2 * draw.tensor(1, 5, C)
    got = tensor_of(answer(x, eye, none, eye, none), (1, 5, C), "What is returned")
    bent = F.gelu(x, approximate="tanh")
    if near(got, bent):
        return
    mistakes = {
        "There is no bend: two linear maps in a row are one linear map. GELU comes between them.": x,
        "The bend is the exact GELU. GPT-2 was trained with approximate='tanh', which differs in the fourth digit.": F.gelu(x),
        "The bend is ReLU. GPT-2's is GELU.": F.relu(x),
        "The bend is SiLU. GPT-2's is GELU.": F.silu(x),
        "There is a bend after the second map as well. Its result is added to the stream as it is.": F.gelu(
            bent, approximate="tanh"
        ),
        "The token itself was added to the result. That is the block's work; the MLP returns only what is to be added.": x
        + bent,
    }
    for message, wrong in mistakes.items():
        expect(not near(got, wrong), message)
    raise Broken("With identity matrices and no biases, GELU of x should come out; something else did.")


def adds_the_first_bias_before_the_bend(answer: Answer, draw: Draw) -> None:
    w = Weights(draw, 5, 5)
    w.fc_b, w.proj_b = 2 * w.fc_b, torch.zeros(5, dtype=torch.float64)
    w.proj_w = torch.eye(5, dtype=torch.float64)
    got = w.run(answer, torch.zeros(1, 3, 5, dtype=torch.float64))
    expect(got.abs().max() > 0, "For a token of zeros nothing came out: c_fc_b is not added.")
    after = near(got, w.fc_b.expand(1, 3, 5))
    expect(not after, "c_fc_b is added after the bend. It belongs to the first map, before it.")
    right = F.gelu(w.fc_b, approximate="tanh").expand(1, 3, 5)
    expect(near(got, right), "c_fc_b should be added once, between the first matrix and the bend.")


def adds_the_second_bias_last(answer: Answer, draw: Draw) -> None:
    for C in (4, draw.integer(2, 6)):
        w = Weights(draw, C, 2 * C)
        w.proj_w = torch.zeros_like(w.proj_w)
        got = w.run(answer, draw.tensor(1, 3, C))
        expect(got.abs().max() > 0, "With c_proj_w all zeros nothing came out: c_proj_b is not added.")
        expect(near(got, w.proj_b.expand(1, 3, C)), "With c_proj_w all zeros, every token should come out as c_proj_b.")


def maps_there_and_back(answer: Answer, draw: Draw) -> None:
    for C, F_ in ((3, 5), (draw.integer(2, 6), draw.integer(7, 12))):
        w = Weights(draw, C, F_)
        w.fc_b, w.proj_b = torch.full((F_,), FAR, dtype=torch.float64), torch.zeros(C, dtype=torch.float64)
        x = draw.tensor(1, 4, C)
        moved = w.run(answer, x) - w.run(answer, torch.zeros_like(x))  # the constant part drops out
        expect(
            near(moved, x @ (w.fc_w @ w.proj_w)),
            "Where GELU is switched off, x should pass through c_fc_w and then c_proj_w, as x @ w; it does not.",
        )


def treats_every_token_of_every_text_alike(answer: Answer, draw: Draw) -> None:
    B, T, C = draw.integer(2, 4), draw.integer(2, 4), draw.integer(3, 5)
    w, x = Weights(draw, C, 4 * C), draw.tensor(B, T, C)
    together = w.run(answer, x)
    for b in range(B):
        for t in range(T):
            alone = w.run(answer, x[b : b + 1, t : t + 1])
            expect(near(together[b, t], alone[0, 0]), "A token among others gives something else than the same token alone.")


def leaves_its_input_alone(answer: Answer, draw: Draw) -> None:
    w, x = Weights(draw, 4, 9), draw.tensor(1, 3, 4)
    given = {"x": x, "c_fc_w": w.fc_w, "c_fc_b": w.fc_b, "c_proj_w": w.proj_w, "c_proj_b": w.proj_b}
    kept = {name: answer.keep(value) for name, value in given.items()}
    answer(*kept.values())
    for name, it in kept.items():
        after = it.value()
        same = isinstance(after, Tensor) and torch.equal(after, given[name])
        expect(same, f"{name} itself was written to. It belongs to the caller: make new tensors.")


PROPERTIES: tuple[Property, ...] = (
    gives_back_the_width_of_the_stream,
    bends_once_between_the_maps,
    adds_the_first_bias_before_the_bend,
    adds_the_second_bias_last,
    maps_there_and_back,
    treats_every_token_of_every_text_alike,
    leaves_its_input_alone,
)


class Weights:
    """An MLP's four parameters, drawn."""

    def __init__(self, draw: Draw, C: int, F_: int) -> None:
        self.fc_w, self.fc_b = draw.tensor(C, F_), draw.tensor(F_)
        self.proj_w, self.proj_b = draw.tensor(F_, C), draw.tensor(C)

    def run(self, answer: Answer, x: Tensor) -> Tensor:
        """The answer's result, which has the shape of x."""
        got = answer(x, self.fc_w, self.fc_b, self.proj_w, self.proj_b)
        return tensor_of(got, tuple(x.shape), "What is returned")
