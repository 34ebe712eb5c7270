"""Lesson 12: what must hold of an answer that says in advance what an agent will take (12.2). Knows nothing about models or
ids: sizes only."""

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Sizes = tuple[int, int, int, int]  # fixed, answer, result, n
NAMES = ("occupancy", "sent", "computed")


def returns_three_ints(answer: Answer, draw: Draw) -> None:
    for n in (3, draw.integer(4, 9)):
        forecast(answer, (20, 4, 9, n))


def knows_a_single_step(answer: Answer, draw: Draw) -> None:
    for sizes in ((20, 4, 9, 1), (draw.integer(5, 90), draw.integer(2, 9), draw.integer(2, 30), 1)):
        for name in NAMES:
            judge(answer, sizes, name, "one request, and no tool result is in it: the fixed part is sent, and answered")


def knows_what_the_window_holds_at_the_end(answer: Answer, draw: Draw) -> None:
    for sizes in ((20, 4, 9, 3), (20, 4, 9, 2), some(draw)):
        judge(answer, sizes, "occupancy", "the fixed part, every answer, and every result that was sent are in the window")


def counts_what_is_sent_again_and_again(answer: Answer, draw: Draw) -> None:
    for sizes in ((20, 4, 9, 3), (20, 4, 9, 4), (20, 4, 9, 2), some(draw), some(draw)):
        judge(answer, sizes, "sent", f"the prompts have {listed(sizes)} tokens")


def computes_only_what_has_no_row(answer: Answer, draw: Draw) -> None:
    for sizes in ((20, 4, 9, 3), (20, 4, 9, 2), some(draw)):
        judge(answer, sizes, "computed", "all in front of what is new has its row already")


def stays_exact_for_large_numbers(answer: Answer, draw: Draw) -> None:
    for sizes in ((3 * 10**17 + 1, 10**16 + 2, 10**17 + 5, 1001), (10**18 + draw.integer(1, 99), 10**17, 10**17 + 1, 334)):
        got, right = forecast(answer, sizes), by_hand(sizes)
        for name, mine, theirs in zip(NAMES, right, got, strict=True):
            told = f"{asked(sizes)}: expected {name} {mine}; got {theirs}"
            expect(mine == theirs, f"{told}. Whole numbers stay exact if nothing in between is a float: / makes one.")


def forecasts_many_agents(answer: Answer, draw: Draw) -> None:
    drawn = [(draw.integer(1, 60), draw.integer(1, 4), draw.integer(1, 4), draw.integer(1, 40)) for _ in range(40)]
    for sizes in ((7, 1, 1, 5), (7, 1, 6, 5), *drawn):
        for name in NAMES:
            judge(answer, sizes, name, "one of many agents")


PROPERTIES: tuple[Property, ...] = (
    returns_three_ints,
    knows_a_single_step,
    knows_what_the_window_holds_at_the_end,
    counts_what_is_sent_again_and_again,
    computes_only_what_has_no_row,
    stays_exact_for_large_numbers,
    forecasts_many_agents,
)


def some(draw: Draw) -> Sizes:
    """The sizes of an agent of a few steps."""
    return draw.integer(10, 50), draw.integer(2, 6), draw.integer(7, 12), draw.integer(2, 7)


def prompts(sizes: Sizes) -> list[int]:
    """Tokens of each prompt, one after another."""
    fixed, answer, result, n = sizes
    held = [fixed]
    while len(held) < n:
        held.append(held[-1] + answer + result)
    return held


def by_hand(sizes: Sizes) -> tuple[int, int, int]:
    """What is right: step by step, as the agent goes."""
    each, computed, rows = prompts(sizes), 0, 0
    for prompt in each:
        computed += prompt - rows
        rows = prompt + sizes[1] - 1
    return each[-1] + sizes[1], sum(each), computed


def listed(sizes: Sizes) -> str:
    """The prompts' sizes for a message: "20, 33 and 46"."""
    each = prompts(sizes)
    return f"{', '.join(map(str, each[:-1]))} and {each[-1]}"


def asked(sizes: Sizes) -> str:
    fixed, answer, result, n = sizes
    steps = f"{n} {'step' if n == 1 else 'steps'}"
    return f"{steps}, fixed part {fixed}, answers of {answer}, results of {result}"


def judge(answer: Answer, sizes: Sizes, name: str, why: str) -> None:
    """Is this one of the three numbers right?"""
    place = NAMES.index(name)
    got, right = forecast(answer, sizes)[place], by_hand(sizes)[place]
    fault = f"{asked(sizes)}: {why}. Expected {name} {right}; got {got}."
    expect(got == right, f"{fault}{likely(sizes, name, got - right) if sizes[3] > 1 else ''}")


def likely(sizes: Sizes, name: str, off: int) -> str:
    """The cause of an error of this size, if it is a known one; with a space in front."""
    fixed, said, result, n = sizes
    occupancy, sent, computed = by_hand(sizes)
    causes = {
        ("occupancy", result): "Nobody asks after the last step, so its result is sent to nobody.",
        ("occupancy", -said): "The last answer is in the window, too.",
        ("occupancy", sent - occupancy): "That is what was sent over time; the window holds the last request only.",
        ("sent", occupancy - sent): "That is the window at the end. Each prompt is sent, and counts, anew.",
        ("sent", prompts(sizes)[-1] - sent): "That is the last prompt. Those before it were sent, too.",
        ("sent", (1 - n) * fixed): "Each prompt begins with the fixed part, and counts it.",
        ("computed", 1 - n): "An answer's last token has no row when it is answered: it is computed with what comes next.",
        ("computed", (n - 1) * (said - 1)): "An answer's tokens went through the model as they were written, but for its last.",
        ("computed", sent - computed): "That is every token that was sent: nothing would be cached.",
    }
    return f" {causes[name, off]}" if (name, off) in causes else ""


def forecast(answer: Answer, sizes: Sizes) -> tuple[int, int, int]:
    """The answer's three numbers, if they are that."""
    got = answer(*sizes)
    told = f"{asked(sizes)}: expected three ints (occupancy, sent, computed)"
    expect(isinstance(got, tuple) and len(got) == 3, f"{told}; got {describe(got)}.")
    for name, number in zip(NAMES, got, strict=True):
        expect(type(number) is int, f"{told}; {name} is {describe(number)}. Tokens are counted in whole numbers.")
    return got
