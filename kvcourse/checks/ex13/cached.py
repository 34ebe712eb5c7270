"""Lesson 13: what must hold of an answer that predicts what a provider finds (13.3). Knows nothing about prices or text: only
times, token ids, and rules.
"""

from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.common_prefix import common_length

Log = list[tuple[int, list[int]]]  # seconds, ids
Rules = dict[str, int]


def returns_a_count_for_each_request(answer: Answer, draw: Draw) -> None:
    for log in ([(0, [5, 3, 8]), (10, [5, 3, 9])], [(n, draw.integers(3, 1, 9)) for n in range(4)], [(0, [5, 3])]):
        found(answer, log, rules())


def finds_nothing_that_was_not_there(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(6, 10, 99)
    for log in ([(0, ids)], [(0, [5, 3, 8]), (1, [6, 3, 8])], [(0, ids[:3]), (1, [1, *ids]), (2, [2, *ids[3:]])]):
        got, told = found(answer, log, rules())
        expect(got[0] == 0, f"{told}: before request 0 there was nothing that it could find, itself included; got {got[0]}.")
        expect(not any(got), f"{told}: no request begins like an earlier one. Expected {[0] * len(log)}; got {got}.")


def finds_the_longest_start_of_any_before(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(8, 10, 99)
    for texts, why in (
        ([[5, 3, 8, 1, 7], [5, 3, 8, 2, 6]], "the second begins like the first, with 3 tokens"),
        ([[5, 3, 8, 1], [5, 9, 8, 1]], "behind the first difference nothing is found, equal or not"),
        ([[5, 3, 8, 1], [7, 7], [5, 3, 8, 2]], "a cache holds all earlier requests, not the last one only"),
        (
            [[5, 3, 8, 1], [5, 3, 2], [5, 9], [5, 3, 8, 4]],
            "of all earlier requests, the first has most in common with the last",
        ),
        ([[5, 3], [5, 3, 8, 1], [5, 3, 8, 1, 9, 9]], "of all earlier requests, the second has most in common with the third"),
        ([[1, *ids], ids, [1, *ids[:4], 5], [*ids, 7]], "each is compared with all before it"),
    ):
        judge(answer, [(n, text) for n, text in enumerate(texts)], rules(), why)


def leaves_the_last_token_to_compute(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(draw.integer(5, 7), 10, 99)
    why = "all of it is known, but the answer's first token comes out of computing the prompt's last one"
    for text, front in (([5, 3, 8, 1], []), (ids, []), ([5, 3, 8, 1], [2])):
        judge(answer, [(0, [*text, *front]), (1, text)], rules(), why)


def counts_whole_steps(answer: Answer, draw: Draw) -> None:
    step = draw.integer(3, 6)
    for size, shared in ((4, 7), (4, 8), (4, 3), (4, 11), (step, 2 * step - 1), (step, 2 * step + 1)):
        why = f"{shared} tokens are the same, and only whole steps of {size} count, from the front"
        judge(answer, parting(draw, shared, 4), rules(step=size), why)
    why = "all 8 tokens are known and the last one is computed all the same, so 7 are left, in which there is one step of 4"
    judge(answer, [(0, [1, 2, 3, 4, 5, 6, 7, 8]), (1, [1, 2, 3, 4, 5, 6, 7, 8])], rules(step=4), why)


def asks_for_the_minimum(answer: Answer, draw: Draw) -> None:
    least = draw.integer(6, 12)
    for minimum, shared, step, behind in (
        (8, 7, 1, 20),
        (8, 8, 1, 20),
        (8, 9, 1, 2),
        (least, least - 1, 1, 30),
        (least, least, 1, 3),
        (10, 10, 4, 9),
        (10, 11, 4, 9),
        (10, 9, 4, 30),
    ):
        told = f"{shared} tokens are the same, and the minimum is {minimum}"
        short = "below it nothing is found, however long the prompt" if shared < minimum else "that is enough, and steps count"
        judge(answer, parting(draw, shared, behind), rules(minimum=minimum, step=step), f"{told}: {short}")


def forgets_after_the_lifetime(answer: Answer, draw: Draw) -> None:
    lifetime, start = draw.integer(60, 600), draw.integer(0, 1000)
    for seconds, why in (
        (lifetime, "after exactly its lifetime a prompt is still there"),
        (lifetime + 1, "after more than its lifetime a prompt is gone"),
        (lifetime // 2, "within its lifetime a prompt is there"),
    ):
        ids = draw.integers(6, 10, 99)
        judge(answer, [(start, ids), (start + seconds, [*ids, 5])], rules(lifetime=lifetime), why)


def starts_the_lifetime_again_with_each_use(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(5, 10, 99)
    often = [(seconds, [*ids, 100 + n]) for n, seconds in enumerate((0, 200, 400, 600, 1000))]
    judge(
        answer,
        often,
        rules(lifetime=300),
        "each request uses what it begins with, and 300 seconds start again; 400 are too many",
    )
    n = draw.integer(1, 3)
    log = [(0, [*ids, 7, 8, 9]), (250, [*ids[: n + 1], 200]), (500, [*ids, 7, 8, 9, 5])]
    why = f"only the {n + 1} tokens that request 1 used again are young enough at 500 seconds; what stood behind them is gone"
    judge(answer, log, rules(lifetime=300), why)


def leaves_the_log_alone(answer: Answer, draw: Draw) -> None:
    log, told = parting(draw, 5, 2), rules(minimum=2, step=2)
    kept = answer.keep(log), answer.keep(told)
    answer(*kept)
    for was, now, name in ((log, kept[0], "log"), (told, kept[1], "rules")):
        expect(now.value() == was, f"{name} was {was} and is {now.value()} afterwards. Looking changes nothing.")


def holds_for_many_logs(answer: Answer, draw: Draw) -> None:
    for _ in range(40):
        now, log = 0, []
        for _ in range(draw.integer(2, 9)):
            now += draw.integer(0, 6) * 50
            log.append((now, [1, 2, *draw.integers(draw.integer(1, 6), 1, 2)]))
        minimum, step, lifetime = draw.integer(0, 4), draw.integer(1, 3), draw.integer(2, 6) * 50
        judge(answer, log, rules(minimum, step, lifetime), "one of many logs")


PROPERTIES: tuple[Property, ...] = (
    returns_a_count_for_each_request,
    finds_nothing_that_was_not_there,
    finds_the_longest_start_of_any_before,
    leaves_the_last_token_to_compute,
    counts_whole_steps,
    asks_for_the_minimum,
    forgets_after_the_lifetime,
    starts_the_lifetime_again_with_each_use,
    leaves_the_log_alone,
    holds_for_many_logs,
)


def rules(minimum: int = 0, step: int = 1, lifetime: int = 3600) -> Rules:
    return {"minimum": minimum, "step": step, "lifetime": lifetime}


def parting(draw: Draw, shared: int, behind: int) -> Log:
    """Two requests that begin alike, and then go on with so many other tokens."""
    front = draw.integers(shared, 10, 99)
    return [(n * 10, [*front, *([n + 1] * behind)]) for n in range(2)]


def right_counts(log: Log, told: Rules) -> list[int]:
    """What is found, by the check."""
    counts = []
    for i, (now, ids) in enumerate(log):
        alive = [earlier for then, earlier in log[:i] if now - then <= told["lifetime"]]
        most = min(max((common_length(ids, earlier) for earlier in alive), default=0), len(ids) - 1)
        counts.append(0 if most < told["minimum"] else most - most % told["step"])
    return counts


def judge(answer: Answer, log: Log, told: Rules, why: str) -> None:
    got, asked = found(answer, log, told)
    right = right_counts(log, told)
    wrong = next((n for n, pair in enumerate(zip(got, right, strict=True)) if pair[0] != pair[1]), None)
    if wrong is not None:
        fault = f"For request {wrong}, expected {right[wrong]}; got {got[wrong]}. The first is request 0."
        expect(False, f"{asked}: {why}. {fault}")


def shown(log: Log, told: Rules) -> str:
    """What was asked, for a message."""
    parts = [f"{ids if len(ids) <= 9 else f'{len(ids)} tokens'} at {seconds} s" for seconds, ids in log]
    about = f"minimum {told['minimum']}, step {told['step']}, lifetime {told['lifetime']} s"
    return f"{'; '.join(parts)} ({about})" if len(log) <= 5 else f"{len(log)} requests ({about})"


def found(answer: Answer, log: Log, told: Rules) -> tuple[list[int], str]:
    """The answer's counts, and what was asked."""
    got: Any = answer(log, told)
    asked = shown(log, told)
    good = isinstance(got, list) and all(type(one) is int for one in got)
    expect(good, f"{asked}: expected a list of counts, ints; got {describe(got)}.")
    expect(len(got) == len(log), f"{asked}: {len(log)} requests, so {len(log)} counts; got {len(got)}.")
    return got, asked
