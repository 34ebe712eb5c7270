"""Lesson 14: what must hold of an answer that tests cutting back (14.3). Knows nothing about chunks and forks."""

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex14 import patients, spoils
from kvcourse.checks.ex14.patients import Case, cutting, wrong_after_a_cut
from kvcourse.checks.ex14.spoils import CLEARLY, Wrong, all_off
from kvcourse.checks.ex14.trials import Trial, any_kind, judge, right_ones, shuffled, text, verdict

N, MORE = 8, 4
WHY = "After a cut to n, `others` gave the logits that ids[:n] + others gives without a cache, up to rounding, some 1e-14."


def says_true_or_false(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, [Case("growing"), Case("growing", front=patients.WritesOnce)]):
        trial = tried(answer, draw, case)
        verdict(trial)
        expect(trial.with_cache, "The model was never called with cache=..., so nothing was tested.")
        expect(trial.acted, "truncate was never called, so nothing was tested.")


def leaves_right_caches_alone(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, right_ones()):
        judge(tried(answer, draw, case), WHY)


def cuts_to_nothing(answer: Answer, draw: Draw) -> None:
    told = "truncate(0) keeps everything; every other cut is right."
    cases = [Case(kind, told, cutting(lambda n, held: n or held)) for kind in ("growing", any_kind(draw, "growing"))]
    all_tried(answer, draw, cases)


def cuts_to_every_length(answer: Answer, draw: Draw) -> None:
    one, other, full = 2 * draw.integer(0, 3) + 1, 2 * draw.integer(1, 3), f"A cut to all {N} tokens"
    cases = [
        Case(any_kind(draw), f"A cut to {one} keeps one token too many.", cutting(lambda n, held: n + (n == one))),
        Case(any_kind(draw), f"A cut to {other} keeps one token too few.", cutting(lambda n, held: n - (n == other))),
        Case(
            any_kind(draw),
            f"{full} leaves nothing, where it should change nothing.",
            cutting(lambda n, held: n if n < N else 0),
        ),
        Case(any_kind(draw), "A cut by 4 tokens or more keeps one too many.", cutting(lambda n, held: n + (held - n > 3))),
    ]
    all_tried(answer, draw, cases)


def goes_on_with_other_tokens(answer: Answer, draw: Draw) -> None:
    told = (
        "A slot that was written once keeps its first row. That shows when another token is written there, not with the same."
    )
    all_tried(answer, draw, [Case(kind, told, patients.WritesOnce) for kind in ("growing", any_kind(draw, "growing"))])


def looks_at_the_logits_and_not_at_the_length(answer: Answer, draw: Draw) -> None:
    told = "the length is right, and the next token stands where it would have stood without a cut."
    cases = [
        Case(any_kind(draw), f"After a cut to {n}, {told}", patients.positions_go_on_at(n))
        for n in (draw.integer(1, 3), draw.integer(4, N - 1))
    ]
    all_tried(answer, draw, cases)


def looks_at_every_token_after_a_cut(answer: Answer, draw: Draw) -> None:
    for which in (0, draw.integer(1, MORE - 2), MORE - 1):
        told = f"After a cut, token {which} of others has wrong logits, and the other {MORE - 1} have right ones."
        judge(tried(answer, draw, Case(any_kind(draw), told, wrong_after_a_cut(which, all_off(CLEARLY)))), WHY)


def looks_at_every_logit_after_a_cut(answer: Answer, draw: Draw) -> None:
    all_tried(answer, draw, one_token(draw, spoils.in_one_logit(draw)))


def tells_a_small_difference_from_rounding(answer: Answer, draw: Draw) -> None:
    all_tried(answer, draw, one_token(draw, spoils.by_little(draw)))


def takes_undefined_numbers_for_a_fault(answer: Answer, draw: Draw) -> None:
    wrong = spoils.undefined(draw)
    everywhere = Case(any_kind(draw), f"After a cut, {wrong[0].told}.", wrong_after_a_cut(None, wrong[0].change))
    all_tried(answer, draw, [everywhere, *one_token(draw, wrong)])


def leaves_the_texts_alone(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, [Case(any_kind(draw)), Case(any_kind(draw), "", patients.positions_go_on_at(1))]):
        ids = text(draw, N + MORE)
        trial = Trial(answer, case, ids[:N], ids[N:], gives="truncate")
        for name, before, after in zip(("ids", "others"), (ids[:N], ids[N:]), trial.after, strict=True):
            expect(after == before, f"{name} was {before} and is {after} afterwards. It is the caller's list.")


PROPERTIES: tuple[Property, ...] = (
    says_true_or_false,
    leaves_right_caches_alone,
    cuts_to_nothing,
    cuts_to_every_length,
    goes_on_with_other_tokens,
    looks_at_the_logits_and_not_at_the_length,
    looks_at_every_token_after_a_cut,
    looks_at_every_logit_after_a_cut,
    tells_a_small_difference_from_rounding,
    takes_undefined_numbers_for_a_fault,
    leaves_the_texts_alone,
)


def tried(answer: Answer, draw: Draw, case: Case) -> Trial:
    ids = text(draw, N + MORE)
    return Trial(answer, case, ids[:N], ids[N:], gives="truncate")


def all_tried(answer: Answer, draw: Draw, cases: list[Case]) -> None:
    """The broken ones, and a right one among them."""
    for case in shuffled(draw, [*cases, Case(any_kind(draw))]):
        judge(tried(answer, draw, case), WHY)


def one_token(draw: Draw, wrongs: list[Wrong]) -> list[Case]:
    """Each in the logits of one of the tokens that come after a cut; every other one after cuts to one length only."""
    cases = []
    for number, wrong in enumerate(wrongs):
        which, only = draw.integer(0, MORE - 1), draw.integer(0, N) if number % 2 else None
        told = f"After a cut{'' if only is None else f' to {only}'}, of token {which} of others {wrong.told}."
        cases.append(Case(any_kind(draw), told, wrong_after_a_cut(which, wrong.change, only)))
    return cases
