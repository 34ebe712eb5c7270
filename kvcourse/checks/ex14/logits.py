"""Lesson 14: what must hold of an answer that tests a cache's logits (14.2). Knows nothing about cuts and forks."""

from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex14 import patients, spoils
from kvcourse.checks.ex14.patients import Case, planned
from kvcourse.checks.ex14.spoils import CLEARLY, Wrong, all_off, at
from kvcourse.checks.ex14.trials import Ids, Trial, any_kind, judge, right_ones, shuffled, text, verdict

N = 8
WHY = "Its logits are those without a cache up to rounding, some 1e-14, for every way of cutting."
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
        told = f"Only the logits of token {place} are off, by {CLEARLY}; those of the other {N - 1} are right."
        judge(Trial(answer, Case(any_kind(draw), told, spoil=at(place, all_off(CLEARLY))), text(draw, N)), WHY)


def looks_at_every_token_of_a_pass(answer: Answer, draw: Draw) -> None:
    several = "Where several tokens come together,"
    cases = [
        Case(any_kind(draw), f"{several} only the logits of the last one are right.", spoil=spoils.before_the_last),
        Case(any_kind(draw), f"{several} only the logits of the last one are wrong.", spoil=spoils.last_of_several),
        Case(any_kind(draw), f"{several} the last two have each other's logits.", spoil=spoils.last_two_exchanged),
    ]
    tried(answer, draw, cases)


def looks_at_every_logit(answer: Answer, draw: Draw) -> None:
    tried(answer, draw, one_token(draw, spoils.in_one_logit(draw)))


def tells_a_cast_from_rounding(answer: Answer, draw: Draw) -> None:
    cases = [
        Case(any_kind(draw), "Rows are kept in 32 bits: its logits are some 1e-7 off, far more than rounding.", patients.Cast),
        Case(any_kind(draw), "All logits are 1e-6 too low, which changes no argmax.", spoil=lambda got, start: got - 1e-6),
        Case(any_kind(draw), "All logits are a millionth of themselves too large.", spoil=lambda got, start: got * (1 + 1e-6)),
        Case(any_kind(draw), "Of each token, one logit is 1e-6 too high and another as much too low.", spoil=both_ways(draw)),
    ]
    tried(answer, draw, cases)


def tells_a_small_difference_from_rounding(answer: Answer, draw: Draw) -> None:
    tried(answer, draw, one_token(draw, spoils.by_little(draw)))


def takes_undefined_numbers_for_a_fault(answer: Answer, draw: Draw) -> None:
    wrong = spoils.undefined(draw)
    told = f"Of each token, {wrong[0].told}."
    tried(answer, draw, [Case(any_kind(draw), told, spoil=at(None, wrong[0].change)), *one_token(draw, wrong)])


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
    looks_at_every_token_of_a_pass,
    looks_at_every_logit,
    tells_a_cast_from_rounding,
    tells_a_small_difference_from_rounding,
    takes_undefined_numbers_for_a_fault,
    leaves_the_ids_alone,
)


def tried(answer: Answer, draw: Draw, cases: list[Case]) -> None:
    """The broken ones, and a right one among them."""
    ids: Ids = text(draw, N)
    for case in shuffled(draw, [*cases, Case(any_kind(draw))]):
        judge(Trial(answer, case, ids), WHY)


def one_token(draw: Draw, wrongs: list[Wrong]) -> list[Case]:
    """Each in the logits of one token, which is drawn."""
    cases = []
    for wrong in wrongs:
        place = draw.integer(0, N - 1)
        cases.append(Case(any_kind(draw), f"Of token {place}, {wrong.told}.", spoil=at(place, wrong.change)))
    return cases


def both_ways(draw: Draw) -> spoils.Spoil:
    up, down = spoils.column_of(draw, draw.integer(0, 2)), spoils.column_of(draw, draw.integer(3, 5))

    def spoil(logits: Tensor, start: int) -> Tensor:
        logits[:, up] += 1e-6
        logits[:, down] -= 1e-6
        return logits

    return spoil


def of_size(m: int) -> patients.When:
    return lambda length, T: T == m
