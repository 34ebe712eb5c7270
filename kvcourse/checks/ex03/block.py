"""Lesson 03: what must hold of an answer that is a block (3.3). Knows nothing about how the four parts compute.

The four parts are ours and note what they are given. What a part returns is random, so every tensor tells where it is from.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect
from kvcourse.checks.ex03.tensors import near, tensor_of

ORDER = ["ln_1", "attn", "ln_2", "mlp"]


def calls_each_part_once(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    for name in ORDER:
        expect(name in run.calls, f"{name} was never called.")
    for name in ORDER:
        expect(run.calls.count(name) == 1, f"{name} was called {run.calls.count(name)} times. Each part is called once.")


def attention_reads_a_normalised_copy(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    if near(run.given["attn"], run.x):
        raise Broken("attn was given x itself. It reads what ln_1 makes of x.")
    if near(run.given["ln_1"], run.out["attn"]):
        raise Broken("ln_1 was given what attn returned. In GPT-2 the norm comes before attention, not after it.")
    expect(near(run.given["ln_1"], run.x), "ln_1 should be given x as it came in.")
    expect(near(run.given["attn"], run.out["ln_1"]), "attn should be given what ln_1 returned.")


def adds_attention_to_the_stream(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    stream = run.given["ln_2"]
    if near(stream, run.out["attn"]):
        raise Broken("After attention x is gone: attn's result should be added to x, and ln_2 be given the sum.")
    if near(stream, run.out["ln_1"] + run.out["attn"]):
        raise Broken("attn's result was added to the normalised copy. It is added to x itself; the copy has done its work.")
    if near(stream, run.x):
        raise Broken("ln_2 was given x without attn's result: here the MLP cannot see what attention found.")
    expect(near(stream, run.x + run.out["attn"]), "ln_2 should be given x plus what attn returned.")


def mlp_reads_a_normalised_copy(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    unnormalised = near(run.given["mlp"], run.given["ln_2"])
    expect(not unnormalised, "mlp was given the stream itself. It reads what ln_2 makes of it.")
    expect(near(run.given["mlp"], run.out["ln_2"]), "mlp should be given what ln_2 returned.")


def adds_the_mlp_to_the_stream(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    got = tensor_of(run.got, tuple(run.x.shape), "What is returned")
    mistakes = {
        "What mlp returned was returned alone. It is added to the stream.": run.out["mlp"],
        "mlp's result was added to the normalised copy. It is added to the stream.": run.out["ln_2"] + run.out["mlp"],
        "attn's result is missing in the end: mlp's is added to the stream, which holds it already.": run.x + run.out["mlp"],
        "mlp's result is missing in the end.": run.x + run.out["attn"],
        "x is missing in the end: both results are added to it.": run.out["attn"] + run.out["mlp"],
        "x was added twice: it is in the stream already.": 2 * run.x + run.out["attn"] + run.out["mlp"],
    }
    for message, wrong in mistakes.items():
        expect(not near(got, wrong), message)
    right = run.x + (run.out["attn"] + run.out["mlp"])
    expect(near(got, right), "Expected x, plus what attn returned, plus what mlp returned; something else came out.")


def leaves_x_alone(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    after = run.kept.value()
    same = isinstance(after, Tensor) and torch.equal(after, run.x)
    expect(same, "x itself was written to. `x += y` changes the caller's tensor; `x = x + y` makes a new one.")


PROPERTIES: tuple[Property, ...] = (
    calls_each_part_once,
    attention_reads_a_normalised_copy,
    adds_attention_to_the_stream,
    mlp_reads_a_normalised_copy,
    adds_the_mlp_to_the_stream,
    leaves_x_alone,
)


class Run:
    """One call of the answer: which parts it called, what they were given, what they returned, and what came back."""

    def __init__(self, answer: Answer, draw: Draw) -> None:
        self.x = draw.tensor(draw.integer(1, 3), draw.integer(2, 4), draw.integer(3, 6))
        self.calls: list[str] = []
        self.given = dict.fromkeys(ORDER, torch.empty(0))
        self.out = {name: draw.tensor(*self.x.shape) for name in ORDER}
        self.kept = answer.keep(self.x)
        self.got = answer(self.kept, *(self._part(name) for name in ORDER))

    def _part(self, name: str) -> Callable[..., Tensor]:
        def part(*given: Any) -> Tensor:
            expect(len(given) == 1, f"{name} takes one tensor; it was given {len(given)} things.")
            expect(isinstance(given[0], Tensor), f"{name} takes a tensor; it was given {describe(given[0])}.")
            self.calls.append(name)
            self.given[name] = tensor_of(given[0], tuple(self.x.shape), f"What {name} is given").clone()
            return self.out[name].clone()

        return part
