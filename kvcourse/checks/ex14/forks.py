"""Lesson 14: what must hold of an answer that tests forks (14.4). Knows nothing about chunks and cuts."""

from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex14 import patients, spoils
from kvcourse.checks.ex14.patients import BLOCK_TOKENS, Case, SharesRows, forking, wrong_after_a_fork
from kvcourse.checks.ex14.spoils import CLEARLY, Wrong, all_off
from kvcourse.checks.ex14.trials import Ids, Trial, any_kind, judge, right_ones, shuffled, text, verdict

N, MORE = 8, 4
WHY = "The cache gave the logits of ids[:n] + one, and its fork those of ids[:n] + two, up to rounding, some 1e-14."
SIDES = (("After a fork{}, in the first cache", "one"), ("In a fork{}", "two"))  # of which kind; what goes on there
SHARED = "A fork and its parent write into the same rows"


def says_true_or_false(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, [Case("growing"), Case("growing", front=forking(emptied_fork))]):
        trial = tried(answer, draw, case)
        verdict(trial)
        expect(trial.with_cache, "The model was never called with cache=..., so nothing was tested.")
        expect(trial.acted, "fork was never called, so nothing was tested.")


def leaves_right_caches_alone(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, right_ones()):
        judge(tried(answer, draw, case), WHY)


def looks_at_the_fork(answer: Answer, draw: Draw) -> None:
    cases = [
        Case(any_kind(draw), "A fork is empty, which only its own logits show.", forking(emptied_fork)),
        Case(any_kind(draw), "A fork lacks its parent's last row, which only its own logits show.", forking(shortened_fork)),
    ]
    all_tried(answer, draw, cases)


def looks_at_the_parent_too(answer: Answer, draw: Draw) -> None:
    told = "The fork is right. Its parent has lost its"
    cases = [
        Case(any_kind(draw), f"{told} rows, which only the parent's logits show.", forking(emptied_parent)),
        Case(any_kind(draw), f"{told} last row, which only the parent's logits show.", forking(shortened_parent)),
    ]
    all_tried(answer, draw, cases)


def lets_them_go_on_in_two_ways(answer: Answer, draw: Draw) -> None:
    told = "Where one of the two has written a row, the other's is not written. With the same token in both that does not show."
    all_tried(answer, draw, [Case(any_kind(draw), told, patients.WritesOnce) for _ in range(2)])


def lets_both_go_on_in_turns(answer: Answer, draw: Draw) -> None:
    told = f"{SHARED}. Whoever goes on first is overwritten by the other, which shows when it goes on once more."
    all_tried(answer, draw, [Case(kind, told, SharesRows) for kind in ("growing", "preallocated")])


def forks_at_every_length(answer: Answer, draw: Draw) -> None:
    at = draw.integer(1, N - 1)
    blocks = (
        f"Blocks of {BLOCK_TOKENS}: the last one is shared and not copied. Where it is full, at {BLOCK_TOKENS} or {N} tokens, "
    )
    blocks += "that does not show."
    cases = [
        Case("paged", blocks, SharesRows),
        Case(
            any_kind(draw, "paged"), f"{SHARED} if it is made at {at} tokens; elsewhere it is right.", patients.sharing_at(at)
        ),
        Case(any_kind(draw, "paged"), f"{SHARED} if it is made at {N} tokens; elsewhere it is right.", patients.sharing_at(N)),
    ]
    all_tried(answer, draw, cases)


def looks_at_every_token_of_both(answer: Answer, draw: Draw) -> None:
    others = f"and the other {MORE - 1} have right ones"
    cases = [
        Case(any_kind(draw), f"{SIDES[side][0].format('')}, token {which} of {SIDES[side][1]} has wrong logits, {others}.",
             wrong_after_a_fork(side == 1, which, all_off(CLEARLY)))
        for side in (0, 1) for which in range(MORE)
    ]  # fmt: skip
    all_tried(answer, draw, cases)


def looks_at_every_logit_of_both(answer: Answer, draw: Draw) -> None:
    all_tried(answer, draw, one_token(draw, spoils.in_one_logit(draw)))


def tells_a_small_difference_from_rounding(answer: Answer, draw: Draw) -> None:
    all_tried(answer, draw, one_token(draw, [*spoils.by_little(draw), *spoils.by_little(draw)]))


def takes_undefined_numbers_for_a_fault(answer: Answer, draw: Draw) -> None:
    wrong, side = spoils.undefined(draw), draw.integer(0, 1)
    everywhere = Case(
        any_kind(draw), f"{SIDES[side][0].format('')}, {wrong[0].told}.", wrong_after_a_fork(side == 1, None, wrong[0].change)
    )
    all_tried(answer, draw, [everywhere, *one_token(draw, [*wrong, *spoils.undefined(draw)])])


def leaves_the_texts_alone(answer: Answer, draw: Draw) -> None:
    for case in shuffled(draw, [Case(any_kind(draw)), Case(any_kind(draw), "", SharesRows)]):
        texts = three(draw)
        trial = Trial(answer, case, *texts, gives="fork")
        for name, before, after in zip(("ids", "one", "two"), texts, trial.after, strict=True):
            expect(after == before, f"{name} was {before} and is {after} afterwards. It is the caller's list.")


PROPERTIES: tuple[Property, ...] = (
    says_true_or_false,
    leaves_right_caches_alone,
    looks_at_the_fork,
    looks_at_the_parent_too,
    lets_them_go_on_in_two_ways,
    lets_both_go_on_in_turns,
    forks_at_every_length,
    looks_at_every_token_of_both,
    looks_at_every_logit_of_both,
    tells_a_small_difference_from_rounding,
    takes_undefined_numbers_for_a_fault,
    leaves_the_texts_alone,
)


def three(draw: Draw) -> list[Ids]:
    """ids, one and two: no token stands in two of them."""
    ids = text(draw, N + 2 * MORE)
    return [ids[:N], ids[N : N + MORE], ids[N + MORE :]]


def tried(answer: Answer, draw: Draw, case: Case) -> Trial:
    return Trial(answer, case, *three(draw), gives="fork")


def all_tried(answer: Answer, draw: Draw, cases: list[Case]) -> None:
    """The broken ones, and a right one among them."""
    for case in shuffled(draw, [*cases, Case(any_kind(draw))]):
        judge(tried(answer, draw, case), WHY)


def one_token(draw: Draw, wrongs: list[Wrong]) -> list[Case]:
    """Each in the logits of one token of one or two, in turns; the second half in forks of one length only."""
    cases = []
    for number, wrong in enumerate(wrongs):
        side, which = number % 2, draw.integer(0, MORE - 1)
        only = draw.integer(1, N) if number >= len(wrongs) // 2 else None
        (where, name), made = SIDES[side], "" if only is None else f" that is made at {only} tokens"
        told = f"{where.format(made)}, of token {which} of {name} {wrong.told}."
        cases.append(Case(any_kind(draw), told, wrong_after_a_fork(side == 1, which, wrong.change, only)))
    return cases


def emptied_fork(parent: Any, fork: Any) -> Any:
    fork.truncate(0)
    return fork


def shortened_fork(parent: Any, fork: Any) -> Any:
    fork.truncate(max(fork.length - 1, 0))
    return fork


def emptied_parent(parent: Any, fork: Any) -> Any:
    parent.truncate(0)
    return fork


def shortened_parent(parent: Any, fork: Any) -> Any:
    parent.truncate(max(parent.length - 1, 0))
    return fork
