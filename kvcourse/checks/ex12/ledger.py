"""Lesson 12: what must hold of an answer that keeps an agent's books (12.1). Knows nothing about models or caches: a request is
two lists of ids, and which rows are kept is said in the task."""

from itertools import islice, takewhile
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Request = tuple[list[int], list[int]]  # prompt, answer
Counts = dict[str, int]
ADDED = ("prompt", "cached", "computed", "completion")
FIELDS = (*ADDED, "occupancy")


def returns_turns_and_totals(answer: Answer, draw: Draw) -> None:
    for requests in ([([5, 3, 8], [1, 7])], growing(draw, 3)):
        books(answer, requests)


def counts_what_a_request_is_made_of(answer: Answer, draw: Draw) -> None:
    for requests in ([([5, 3, 8], [1, 7]), ([5, 3, 8, 1, 7, 2], [4])], growing(draw, draw.integer(2, 4))):
        turns, _ = books(answer, requests)
        for number, (turn, (prompt, said)) in enumerate(zip(turns, requests, strict=True), 1):
            told = f"Request {number} is {both(requests[number - 1])}"
            right = {"prompt": len(prompt), "completion": len(said), "occupancy": len(prompt) + len(said)}
            why = {"occupancy": " Prompt and answer are both in the window as it leaves it."}
            for field, want in right.items():
                fault = f"{told}: expected {field!r} {want}; got {turn[field]}.{why.get(field, '')}"
                expect(turn[field] == want, fault)


def reuses_what_the_last_request_left(answer: Answer, draw: Draw) -> None:
    for requests in ([([5, 3, 8], [1, 7]), ([5, 3, 8, 1, 7, 2, 6], [4])], growing(draw, draw.integer(2, 4))):
        for number, turn in enumerate(books(answer, requests)[0], 1):
            judge(requests, number, turn["cached"])


def stops_at_the_first_difference(answer: Answer, draw: Draw) -> None:
    front, tail = draw.integers(draw.integer(1, 4), 10, 49), draw.integers(4, 10, 49)
    for requests in (
        [([5, 3, 8, 1], [2, 7]), ([5, 9, 8, 1, 2, 7], [4])],
        [([5, 3, 8], [2, 7, 7]), ([6, 5, 3, 8, 2], [4])],
        [([*front, 50, *tail], [7, 7]), ([*front, 60, *tail, 7, 7], [4])],
    ):
        judge(requests, 2, books(answer, requests)[0][1]["cached"])


def computes_one_at_least(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(draw.integer(3, 6), 10, 49)
    for first, second in (([5, 3, 8], [5, 3, 8]), ([5, 3, 8, 1, 7], [5, 3, 8]), ([*ids, 9], ids)):
        requests = [(first, [2, 4]), (second, [6])]
        got, right = books(answer, requests)[0][1]["cached"], len(second) - 1
        told = f"Request 1 was {both(requests[0])}, request 2 is {both(requests[1])}: every token of its prompt has a row"
        why = "But the answer's first token comes from the logits of the last one, so that one is computed"
        expect(got == right, f"{told}. {why}: expected 'cached' {right}; got {got}.")


def knows_the_last_request_only(answer: Answer, draw: Draw) -> None:
    ids = draw.integers(5, 10, 49)
    other = [ids[0] + 1, *ids[1:]]
    for prompts, why in (
        ([ids, other, ids], "the cache holds the last request, and that began otherwise"),
        ([[*ids, 7, 8, 6], ids, [*ids, 7, 8, 6]], "the cache holds the last request, and that was shorter"),
    ):
        requests = [(prompt, [7, 9]) for prompt in prompts]
        judge(requests, 3, books(answer, requests)[0][2]["cached"], why)


def adds_up(answer: Answer, draw: Draw) -> None:
    for requests in (growing(draw, 2), growing(draw, draw.integer(3, 6))):
        turns, totals = books(answer, requests)
        for number, turn in enumerate(turns, 1):
            split = f"Turn {number} of yours has prompt {turn['prompt']}, cached {turn['cached']}, computed {turn['computed']}"
            expect(
                turn["prompt"] == turn["cached"] + turn["computed"],
                f"{split}. Each prompt token is either cached or computed: the two add up to the prompt.",
            )
        for field in ADDED:
            each = [turn[field] for turn in turns]
            told = f"The turns of yours have {field!r} {each}, together {sum(each)}; your totals say {totals[field]}"
            expect(totals[field] == sum(each), f"{told}.")


def tells_the_window_from_the_sum(answer: Answer, draw: Draw) -> None:
    shrunk = [(draw.integers(9, 10, 49), [7, 7]), (draw.integers(4, 10, 49), [6])]
    for requests in (growing(draw, 3), shrunk, []):
        turns, totals = books(answer, requests)
        each = [turn["occupancy"] for turn in turns]
        right, got = (each or [0])[-1], totals["occupancy"]
        told = f"After the turns the window holds {each} tokens" if each else "Nothing was asked yet"
        confused = len(each) > 1 and got in (sum(each), totals["prompt"], totals["prompt"] + totals["completion"])
        why = " That is what was processed over time; the window never held so much." if confused else ""
        expect(got == right, f"{told}: the window holds {right} now; your totals say {got}.{why}")
        if not requests:
            expect(not any(totals.values()), f"No request: all totals are 0; yours are {totals}.")


def leaves_the_requests_alone(answer: Answer, draw: Draw) -> None:
    requests = growing(draw, draw.integer(2, 4))
    kept = answer.keep(requests)
    first = answer(kept)
    after = kept.value()
    changed = next((i for i, one in enumerate(requests) if after[i : i + 1] != [one]), None)
    if changed is not None or len(after) != len(requests):
        number = min(changed or 0, len(requests) - 1)
        now = both(after[number]) if number < len(after) and len(after[number]) == 2 else "gone"
        expect(False, f"Request {number + 1} was {both(requests[number])} and is {now} afterwards. Counting changes nothing.")
    again = answer(requests)
    for one, other in zip((*first[0], first[1]), (*again[0], again[1]), strict=False):
        expect(one == other, f"Asked the same twice, yours said {one}, then {other}: something is kept between calls.")


def holds_for_many_runs(answer: Answer, draw: Draw) -> None:
    for _ in range(25):
        requests: list[Request] = []
        for _ in range(draw.integer(1, 7)):
            before = [*requests[-1][0], *requests[-1][1]] if requests else draw.integers(12, 1, 3)
            stay = before[: draw.integer(len(before) // 3, len(before))]
            requests.append(([*stay, *draw.integers(draw.integer(1, 9), 1, 3)], draw.integers(draw.integer(1, 4), 1, 3)))
        turns, totals = books(answer, requests)
        for number, turn in enumerate(turns, 1):
            judge(requests, number, turn["cached"], "one of many runs")
            computed = turn["prompt"] - turn["cached"]
            expect(turn["computed"] == computed, f"One of many runs, turn {number}: expected computed {computed}; got {turn}.")
        right = {field: sum(turn[field] for turn in turns) for field in ADDED} | {"occupancy": turns[-1]["occupancy"]}
        expect(totals == right, f"One of many runs: its turns make {right}; your totals are {totals}.")


PROPERTIES: tuple[Property, ...] = (
    returns_turns_and_totals,
    counts_what_a_request_is_made_of,
    reuses_what_the_last_request_left,
    stops_at_the_first_difference,
    computes_one_at_least,
    knows_the_last_request_only,
    adds_up,
    tells_the_window_from_the_sum,
    leaves_the_requests_alone,
    holds_for_many_runs,
)


def growing(draw: Draw, n: int) -> list[Request]:
    """An agent that sends everything: each prompt is the one before, its answer, and what a tool said."""
    start, stride = draw.integer(0, 96), draw.integer(1, 96)
    ids = iter([(start + i * stride) % 97 for i in range(97)])  # none comes twice

    def some(low: int, high: int) -> list[int]:
        return list(islice(ids, draw.integer(low, high)))

    requests = [(some(3, 3), some(2, 3))]
    while len(requests) < n:
        requests.append(([*requests[-1][0], *requests[-1][1], *some(1, 3)], some(1, 3)))
    return requests


def both(request: Any) -> str:
    """A request for a message."""
    return f"{request[0]} + {request[1]}"


def common(one: list[int], other: list[int]) -> int:
    """Tokens that are the same from the front."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def judge(requests: list[Request], number: int, got: int, why: str = "") -> None:
    """Is that the number of prompt tokens that have a row, in request `number`, counted from 1?"""
    prompt = requests[number - 1][0]
    if number == 1:
        expect(got == 0, f"Request 1 is {both(requests[0])}, and the cache is empty: expected 'cached' 0; got {got}.")
        return
    before, said = requests[number - 2]
    right = min(common([*before, *said[:-1]], prompt), len(prompt) - 1)
    told = f"Request {number - 1} was {both(requests[number - 2])}, request {number} is {both(requests[number - 1])}"
    hint = f" The first {right} of them have rows." if got < right else ""
    if got == common(before, prompt) < right:
        hint = " The answer went through the model, too, and its rows are kept."
    elif got == right + 1 == len(before) + len(said):
        hint = " The answer's last token was chosen, but never went through the model."
    elif right < got <= sum(a == b for a, b in zip([*before, *said], prompt, strict=False)):
        hint = " Behind the first difference every token has another text in front of it, and so another row."
    expect(got == right, f"{told}{': ' + why if why else ''}. Expected 'cached' {right}; got {got}.{hint}")


def books(answer: Answer, requests: list[Request]) -> tuple[list[Counts], Counts]:
    """The answer's turns and totals, if they are that."""
    got = answer(requests)
    told = f"{len(requests)} {'request' if len(requests) == 1 else 'requests'}: expected a pair (turns, totals)"
    expect(isinstance(got, tuple) and len(got) == 2, f"{told}; got {describe(got)}.")
    turns, totals = got
    expect(isinstance(turns, list), f"{told}, turns being a list of dicts; got {describe(turns)}.")
    expect(len(turns) == len(requests), f"{told}, with a turn for each request; got {len(turns)}.")
    for name, one in (*((f"turn {number}", turn) for number, turn in enumerate(turns, 1)), ("totals", totals)):
        expect(isinstance(one, dict), f"{told}; {name} should be a dict; it is {describe(one)}.")
        missing, more = [field for field in FIELDS if field not in one], sorted(map(str, set(one) - set(FIELDS)))
        expect(not missing, f"{told}; {name} has no {missing[0] if missing else ''!r}.")
        expect(not more, f"{told}; {name} has a field that nobody asked for, {more[0] if more else ''!r}.")
        for field in FIELDS:
            expect(type(one[field]) is int, f"{told}; {field!r} of {name} should be an int; it is {describe(one[field])}.")
    return (turns, totals)
