"""Lesson 07: what must hold of an answer that judges guesses (7.4). Knows nothing about models: ids are any numbers."""

from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def returns_ids_and_a_length(answer: Answer, draw: Draw) -> None:
    for k in (3, draw.integer(1, 6)):
        verdict(answer, *case(draw, k, draw.integer(0, k)))


def takes_the_models_own_id_when_no_guess_agrees(answer: Answer, draw: Draw) -> None:
    for k in (3, draw.integer(1, 6), 1):
        guesses, chosen, length = case(draw, k, 0)
        new, _ = verdict(answer, guesses, chosen, length)
        what = f"Guessed {guesses}, the model chose {chosen}: the first guess is wrong"
        expect(new != [], f"{what}, but the model's own {chosen[0]} is right, whatever was guessed. Every pass gives a token.")
        expect(new == chosen[:1], f"{what}, and only {chosen[0]} was chosen after a true text; yours {new}.")


def stops_at_the_first_that_disagrees(answer: Answer, draw: Draw) -> None:
    for k, agreed in ((4, 2), (5, draw.integer(1, 4)), (6, draw.integer(1, 3))):
        guesses, chosen, length = case(draw, k, agreed)
        for late in range(agreed + 1, k):  # after a wrong guess, others that look right
            guesses[late] = chosen[late]
        new, _ = verdict(answer, guesses, chosen, length)
        what = f"Guessed {guesses}, the model chose {chosen}: the first {agreed} agree"
        expect(new != guesses[:agreed], f"{what}, and the model's own id after them is missing.")
        late = len(new) > agreed + 1
        expect(not late, f"{what}. What was chosen after the first wrong guess was chosen for another text; yours {new}.")
        expect(new == chosen[: agreed + 1], f"{what}: {agreed + 1} ids are right; yours {new}.")


def adds_one_when_all_agree(answer: Answer, draw: Draw) -> None:
    for k in (3, draw.integer(1, 7)):
        guesses, chosen, length = case(draw, k, k)
        new, _ = verdict(answer, guesses, chosen, length)
        what = f"Guessed {guesses}, the model chose {chosen}: all agree"
        expect(new != guesses, f"{what}. The model's choice after the last of them is true as well.")
        expect(new == chosen, f"{what}: all {k + 1} ids are right; yours {new}.")


def keeps_the_rows_of_what_is_true(answer: Answer, draw: Draw) -> None:
    for k, agreed in ((4, 2), (3, 3), (5, 0), (draw.integer(4, 7), draw.integer(0, 4))):
        guesses, chosen, length = case(draw, k, agreed)
        _, keep = verdict(answer, guesses, chosen, length)
        rows = f"The cache held {length} rows after the pass, {k} of them of guesses, and {agreed} of those are true"
        expect(keep != length or agreed == k, f"{rows}: rows of wrong guesses are kept.")
        expect(keep != length - k or not agreed, f"{rows}: rows of right guesses are thrown away.")
        one_more = keep == length - (k - agreed) + 1
        expect(not one_more, f"{rows}: you keep one too many. The last new id went through no pass, so it has no row.")
        expect(keep == length - (k - agreed), f"{rows}: {length - (k - agreed)} rows should stay; yours {keep}.")


def leaves_the_lists_alone(answer: Answer, draw: Draw) -> None:
    for k, agreed in ((4, 2), (3, 3), (3, 0)):
        guesses, chosen, length = case(draw, k, agreed)
        kept = answer.keep(guesses), answer.keep(chosen)
        answer(*kept, length)
        unchanged = kept[0].value() == guesses and kept[1].value() == chosen
        expect(unchanged, "One of the lists that you were given was changed. Make a new one.")


PROPERTIES: tuple[Property, ...] = (
    returns_ids_and_a_length,
    takes_the_models_own_id_when_no_guess_agrees,
    stops_at_the_first_that_disagrees,
    adds_one_when_all_agree,
    keeps_the_rows_of_what_is_true,
    leaves_the_lists_alone,
)


def case(draw: Draw, k: int, agreed: int) -> tuple[list[int], list[int], int]:
    """k guesses of which the first `agreed` are right and the next is wrong; the model's k + 1 choices; the cache's length."""
    chosen = [10 * place + draw.integer(0, 9) for place in range(1, k + 2)]  # all different
    guesses = [*chosen[:agreed], *(choice + 100 for choice in chosen[agreed:k])]
    return guesses, chosen, draw.integer(20, 60) + k + 1


def verdict(answer: Answer, guesses: list[int], chosen: list[int], length: int) -> tuple[list[int], int]:
    got: Any = answer(guesses, chosen, length)
    good = isinstance(got, tuple | list) and len(got) == 2
    expect(good, f"Expected two things, the new ids and the length to keep; got {describe(got)}.")
    new, keep = got
    expect(
        isinstance(new, list) and all(type(one) is int for one in new),
        f"The new ids should be a list of ints; got {describe(new)}.",
    )
    expect(type(keep) is int, f"The length to keep should be an int; got {describe(keep)}.")
    return new, keep
