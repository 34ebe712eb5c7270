"""Lesson 14: what must hold of an answer that tests a cache's logits (14.2). Knows nothing about cuts and forks."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex14 import patients
from kvcourse.checks.ex14.patients import Case, Spoil, planned
from kvcourse.checks.ex14.trials import Ids, Trial, any_kind, judge, right_ones, shuffled, text, verdict

N = 8
WHY = "Its logits are those without a cache up to rounding, some 1e-15, for every way of cutting."
WHY_FRESH = f"{WHY} Does each way begin with a cache of its own?"


def says_true_or_false(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, [Case("growing"), Case("growing", front=planned(patients.square))]):
        trial = Trial(answer, case, text(draw, N))
        verdict(trial)
        expect(trial.caches, "No cache was made: new() makes an empty one.")
        expect(trial.with_cache, "The model was never called with cache=..., so nothing was tested.")


def leaves_right_caches_alone(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, right_ones()):
        judge(Trial(answer, case, text(draw, N)), WHY_FRESH)


def catches_what_single_steps_show(answer: Answer, draw: Draw) -> None:
    def single(length: int, T: int) -> bool:
        return T == 1 and 0 < length < N - 1

    told = f"A token that comes alone, up to token {N - 2},"
    cases = [
        Case(any_kind(draw), f"{told} stands at position 0, whatever is cached.", planned(patients.restarting, single)),
        Case(any_kind(draw), f"{told} stands one place too far on.", planned(patients.ahead, single)),
        Case(any_kind(draw), "Of a token that comes alone, the value is not written.", patients.ValuesLost),
    ]
    tried(answer, draw, cases)


def catches_what_several_at_once_show(answer: Answer, draw: Draw) -> None:
    past = "With a past, tokens that come together"
    cases = [
        Case(any_kind(draw), f"{past} see each other only.", planned(patients.square)),
        Case(any_kind(draw), f"{past} see the oldest rows, not the newest.", planned(patients.at_the_left)),
        Case(any_kind(draw), f"{past} see those behind them.", planned(patients.unmasked, lambda length, T: length > 0)),
    ]
    tried(answer, draw, cases)


def tries_every_size(answer: Answer, draw: Draw) -> None:
    """The last case shows in one way only: pieces of 5, of which the second is of 3."""
    sizes = [draw.integer(2, 4), draw.integer(5, 7), N]
    cases = [
        Case(
            any_kind(draw),
            f"Only passes of {m} tokens are wrong, and the text has {N}.",
            planned(patients.unmasked, of_size(m)),
        )
        for m in sizes
    ]
    told = f"Only a pass of 3 tokens with 5 cached is wrong: {N} tokens in pieces of 5 end with such a one."
    tried(
        answer,
        draw,
        [*cases, Case(any_kind(draw), told, planned(patients.ahead, lambda length, T: (length, T) == (5, 3)))],
    )


def looks_at_every_token(answer: Answer, draw: Draw) -> None:
    for place in (0, draw.integer(1, N - 2), N - 1):
        told = f"Only the logits of token {place} are off, by 0.01; those of the other {N - 1} are right."
        judge(Trial(answer, Case(any_kind(draw), told, spoil=at(place, 0.01)), text(draw, N)), WHY)


def tells_a_cast_from_rounding(answer: Answer, draw: Draw) -> None:
    cases = [
        Case(any_kind(draw), "Rows are kept in 32 bits: its logits are some 1e-7 off, far more than rounding.", patients.Cast),
        Case(any_kind(draw), "All logits are 1e-6 too low, which changes no argmax.", spoil=lambda got, start: got - 1e-6),
        Case(any_kind(draw), "All logits are a millionth of themselves too large.", spoil=lambda got, start: got * (1 + 1e-6)),
        Case(any_kind(draw), "Of each token, one logit is 1e-6 too high and another as much too low.", spoil=both_ways),
    ]
    tried(answer, draw, cases)


def takes_undefined_numbers_for_a_fault(answer: Answer, draw: Draw) -> None:
    told = "NaN: it is neither above nor below anything, and not equal to itself"
    cases = [
        Case(any_kind(draw), f"Every logit is {told}.", spoil=at(None, torch.nan)),
        Case(any_kind(draw), f"The logits of one token are {told}.", spoil=at(draw.integer(0, N - 1), torch.nan)),
    ]
    tried(answer, draw, cases)


def leaves_the_ids_alone(answer: Answer, draw: Draw) -> None:
    ids = text(draw, N)
    for case in shuffled(draw, [Case(any_kind(draw)), Case(any_kind(draw), front=patients.ValuesLost)]):
        trial = Trial(answer, case, ids)
        expect(trial.after == [ids], f"ids was {ids} and is {trial.after[0]} afterwards. It is the caller's list.")


PROPERTIES: tuple[Property, ...] = (
    says_true_or_false,
    leaves_right_caches_alone,
    catches_what_single_steps_show,
    catches_what_several_at_once_show,
    tries_every_size,
    looks_at_every_token,
    tells_a_cast_from_rounding,
    takes_undefined_numbers_for_a_fault,
    leaves_the_ids_alone,
)


def tried(answer: Answer, draw: Draw, cases: list[Case]) -> None:
    """The broken ones, and a right one among them."""
    ids: Ids = text(draw, N)
    for case in shuffled(draw, [*cases, Case(any_kind(draw))]):
        judge(Trial(answer, case, ids), WHY)


def both_ways(logits: Tensor, start: int) -> Tensor:
    logits[:, 3] += 1e-6
    logits[:, 8] -= 1e-6
    return logits


def of_size(m: int) -> patients.When:
    return lambda length, T: T == m


def at(place: int | None, off: float) -> Spoil:
    """Add to the logits of one token, or of all."""

    def spoil(logits: Tensor, start: int) -> Tensor:
        if place is None:
            return logits + off
        if start <= place < start + len(logits):
            logits[place - start] += off
        return logits

    return spoil
