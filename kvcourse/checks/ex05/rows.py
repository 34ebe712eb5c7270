"""Lesson 05: what must hold of an answer that counts the K/V rows of a run (5.1). Knows nothing about models or tensors.

Expected numbers are counted pass by pass, as a meter would: there is no formula here.
"""

from kvcourse.checks.base import Answer, Draw, Property, describe, expect


def is_a_whole_number(answer: Answer, draw: Draw) -> None:
    for prompt, new, keep in ((4, 3, False), (4, 3, True), (draw.integer(1, 9), draw.integer(1, 9), False)):
        rows(answer, prompt, new, 1, keep)


def reads_the_prompt_for_the_first_new_token(answer: Answer, draw: Draw) -> None:
    for prompt in (4, draw.integer(5, 60), 1):
        for keep in (False, True):
            got = rows(answer, prompt, 1, 1, keep)
            run = f"my_rows(prompt={prompt}, new=1, layers=1, keep={keep})"
            late = "The token that is chosen last is never read: nothing follows it."
            expect(got != prompt + 1, f"{run} gave {got}. {late}")
            pair = " K and V of one token in one layer are one row together." if got == 2 * prompt else ""
            expect(got == prompt, f"{run} gave {got}. One pass over the prompt chooses one token.{pair}")


def counts_every_layer(answer: Answer, draw: Draw) -> None:
    for layers in (2, draw.integer(3, 40)):
        got = rows(answer, 5, 1, layers, False)
        run = f"One pass over 5 tokens, {layers} layers"
        expect(got != 5, f"{run}: yours is 5. Each layer has K and V of its own for each token.")
        expect(got == 5 * layers, f"{run}: 5 rows in each layer; yours is {got}.")


def repeats_everything_without_keeping(answer: Answer, draw: Draw) -> None:
    for prompt, new in ((4, 3), (1, 2), (draw.integer(5, 20), draw.integer(4, 9))):
        got, passes = rows(answer, prompt, new, 1, False), sizes(prompt, new, keep=False)
        likely = {
            sum(passes) + prompt + new: ", one pass too many",
            sum(passes) + new: ". The token chosen last is never read, and each pass reads only what was there before it",
            sum(sizes(prompt, new, keep=True)): ", as if rows were kept. Each pass begins with nothing",
            prompt * new: ", as if the text did not grow",
        }
        run = f"Nothing kept, {prompt} + {new} tokens, 1 layer: the passes read {listed(passes)}"
        expect(got == sum(passes), f"{run}; yours is {got}{likely.get(got, '')}.")


def computes_each_row_once_with_keeping(answer: Answer, draw: Draw) -> None:
    for prompt, new in ((4, 3), (1, 2), (draw.integer(5, 20), draw.integer(4, 9))):
        got, passes = rows(answer, prompt, new, 1, True), sizes(prompt, new, keep=True)
        likely = {
            new: ". The prompt's rows are computed too, once",
            new - 1: ". The prompt's rows are computed too, once",
            sum(passes) + 1: ". The last new token is chosen, and never read",
            sum(sizes(prompt, new, keep=False)): ", as if nothing were kept",
        }
        run = f"Rows kept, {prompt} + {new} tokens, 1 layer: the passes read {listed(passes)}"
        expect(got == sum(passes), f"{run}; yours is {got}{likely.get(got, '')}.")


def holds_for_every_run(answer: Answer, draw: Draw) -> None:
    for keep in (True, False):
        for prompt, new in (
            (12, 4),
            (draw.integer(20, 900), draw.integer(10, 90)),
            (draw.integer(1, 3), draw.integer(100, 300)),
        ):
            layers = draw.integer(2, 40)
            got, right = rows(answer, prompt, new, layers, keep), layers * sum(sizes(prompt, new, keep))
            run = f"my_rows(prompt={prompt}, new={new}, layers={layers}, keep={keep})"
            expect(got == right, f"{run} should be {right:,}: {right // layers:,} in each layer; yours is {got:,}.")


PROPERTIES: tuple[Property, ...] = (
    is_a_whole_number,
    reads_the_prompt_for_the_first_new_token,
    counts_every_layer,
    repeats_everything_without_keeping,
    computes_each_row_once_with_keeping,
    holds_for_every_run,
)


def rows(answer: Answer, prompt: int, new: int, layers: int, keep: bool) -> int:
    """The answer's count, if it is one."""
    got = answer(prompt, new, layers, keep)
    expect(type(got) is int, f"Expected a whole number, an int; got {describe(got)}.")
    return got


def sizes(prompt: int, new: int, keep: bool) -> list[int]:
    """How many tokens each pass of a run reads: told pass by pass, by what has rows already."""
    text, stored, read = prompt, 0, []
    for _ in range(new):
        read.append(text - stored)
        stored = text if keep else 0
        text += 1
    return read


def listed(numbers: list[int]) -> str:
    return " + ".join(map(str, numbers))
