"""Lesson 13: what must hold of an answer that computes a bill (13.4). Knows nothing about caches: figures and prices only.

A sum that is off is compared with those that usual mistakes give, so that a message can name the mistake.
"""

import math
from collections.abc import Iterable
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Usage = dict[str, int | None]
Prices = dict[str, Any]
Pair = tuple[float, float]
MILLION = 1_000_000


def returns_two_numbers(answer: Answer, draw: Draw) -> None:
    for included in (True, False):
        billed(answer, [usage(draw.integer(2000, 9000), 1000, 500, 100)], prices(included))


def counts_what_is_included_once(answer: Answer, draw: Draw) -> None:
    for cached in (0, 1000, draw.integer(1, 1999)):
        judge(answer, [usage(2000, cached)], prices(True), "The prompt's figure includes what was found", 0)


def adds_what_is_not_included(answer: Answer, draw: Draw) -> None:
    for cached in (0, 1000, draw.integer(3000, 9000)):
        judge(answer, [usage(2000, cached)], prices(False), "The prompt's figure leaves out what was found", 0)


def charges_what_was_written(answer: Answer, draw: Draw) -> None:
    for included, how in ((True, "includes what was found and what was written"), (False, "leaves out both")):
        for cached, written in ((0, 1500), (500, 1000), (draw.integer(1, 900), draw.integer(1, 900))):
            judge(answer, [usage(2000, cached, written)], prices(included), f"The prompt's figure {how}", 0)


def charges_the_answer(answer: Answer, draw: Draw) -> None:
    for included in (True, False):
        for completion in (200, draw.integer(1, 900)):
            judge(answer, [usage(2000, 500, 0, completion)], prices(included), "Tokens of the answer have their own price", 0)


def takes_a_figure_that_is_missing_for_none(answer: Answer, draw: Draw) -> None:
    for included in (True, False):
        for missing in (("cached",), ("written",), ("cached", "written")):
            full = usage(draw.integer(2000, 4000), 500, 400, 60)
            why = " and ".join(f"{name!r} is" for name in missing)
            without = {name: value for name, value in full.items() if name not in missing}
            judge(answer, [without], prices(included), f"{why} not there, which is 0", 0)
            judge(answer, [{**full, **dict.fromkeys(missing)}], prices(included), f"{why} None, which is 0", 0)


def says_what_it_would_cost_without_a_cache(answer: Answer, draw: Draw) -> None:
    for included in (True, False):
        for cached, written in ((0, 0), (1000, 0), (500, 1200), (draw.integer(1, 900), draw.integer(1, 900))):
            why = "Without a cache, every token of the prompt has the plain price"
            judge(answer, [usage(2000, cached, written, 100)], prices(included), why, 1)


def adds_all_requests(answer: Answer, draw: Draw) -> None:
    for included in (True, False):
        log = [usage(2000, 0, 1500, 10), usage(2400, 1500, 400, 20), usage(draw.integer(2900, 4000), 1900, 500, 30)]
        for n in (3, 0):
            for which in (0, 1):
                judge(answer, log[:n], prices(included), f"The log has {n} requests, and a bill is about all of them", which)


def leaves_the_log_alone(answer: Answer, draw: Draw) -> None:
    log, table = [usage(2000, None, 500, 10), usage(draw.integer(2000, 3000), 500, 40, 10)], prices(True)
    kept = answer.keep(log), answer.keep(table)
    answer(*kept)
    for was, now, name in ((log, kept[0], "log"), (table, kept[1], "prices")):
        expect(now.value() == was, f"{name} was {was} and is {now.value()} afterwards. Looking changes nothing.")


def holds_for_many_bills(answer: Answer, draw: Draw) -> None:
    for _ in range(40):
        log = []
        for _ in range(draw.integer(1, 6)):
            cached, written = (draw.integer(0, 3000) or None for _ in range(2))
            log.append(usage((cached or 0) + (written or 0) + draw.integer(0, 3000), cached, written, draw.integer(0, 400)))
        table = prices(draw.integer(0, 1) == 1, *(draw.integer(1, 80) / 4 for _ in range(4)))
        for which in (0, 1):
            judge(answer, log, table, "One of many bills", which)


PROPERTIES: tuple[Property, ...] = (
    returns_two_numbers,
    counts_what_is_included_once,
    adds_what_is_not_included,
    charges_what_was_written,
    charges_the_answer,
    takes_a_figure_that_is_missing_for_none,
    says_what_it_would_cost_without_a_cache,
    adds_all_requests,
    leaves_the_log_alone,
    holds_for_many_bills,
)


def usage(prompt: int, cached: int | None = 0, written: int | None = 0, completion: int = 0) -> Usage:
    return {"prompt": prompt, "cached": cached, "written": written, "completion": completion}


def prices(included: bool, plain: float = 4.0, read: float = 0.5, write: float = 5.0, completion: float = 20.0) -> Prices:
    """Money for a million tokens of each class."""
    return {"included": included, "plain": plain, "read": read, "write": write, "completion": completion}


def figures(one: Usage) -> tuple[int, int, int, int]:
    """prompt, cached, written, completion; what is not there is 0."""
    prompt, cached, written, completion = (one.get(name) or 0 for name in ("prompt", "cached", "written", "completion"))
    return prompt, cached, written, completion


def right_bill(log: list[Usage], table: Prices) -> Pair:
    """What all cost, and would have cost without a cache, by the check."""
    paid, without = 0.0, 0.0
    for one in log:
        prompt, cached, written, completion = figures(one)
        whole = prompt if table["included"] else prompt + cached + written
        answer = completion * table["completion"]
        paid += (whole - cached - written) * table["plain"] + cached * table["read"] + written * table["write"] + answer
        without += whole * table["plain"] + answer
    return paid / MILLION, without / MILLION


def mistakes(log: list[Usage], table: Prices) -> dict[str, Pair]:
    """What usual mistakes give: the mistake, and the bill that it leads to; nan where that number says nothing about it."""
    paid, without = right_bill(log, table)
    _, cached, written, answers = (sum(figures(one)[n] for one in log) / MILLION for n in range(4))
    plain, read, write, completion = (table[name] for name in ("plain", "read", "write", "completion"))
    other = right_bill(log, {**table, "included": not table["included"]})
    double = "the figure was taken to leave the others out, and they were added to it"
    short = "the figure was taken to include the others, and they were taken out of it"
    return {
        "cached tokens stand on it twice, once at the plain price": (paid + cached * plain, math.nan),
        "written tokens stand on it twice, once at the plain price": (paid + written * plain, math.nan),
        "it is what was paid with the cache": (math.nan, paid),
        double if table["included"] else short: other,
        "cached tokens cost nothing there, and they have a price": (paid - cached * read, math.nan),
        "cached tokens have the plain price there": (paid + cached * (plain - read), math.nan),
        "cached tokens are missing there": (math.nan, without - cached * plain),
        "cached tokens have the price of reading there": (math.nan, without - cached * (plain - read)),
        "written tokens cost nothing there": (paid - written * write, without - written * plain),
        "written tokens have the plain price there": (paid - written * (write - plain), math.nan),
        "written tokens have the price of writing there": (math.nan, without + written * (write - plain)),
        "the answer costs nothing there": (paid - answers * completion, without - answers * completion),
        "the answer has the plain price there": tuple_of(one - answers * (completion - plain) for one in (paid, without)),
        "it is about the last request alone": right_bill(log[-1:], table),
        "it is about the first request alone": right_bill(log[:1], table),
        "prices were taken to be those of one token": (paid * MILLION, without * MILLION),
        "the two are the other way round": (without, paid),
    }


def tuple_of(numbers: Iterable[float]) -> Pair:
    one, other = numbers
    return one, other


def judge(answer: Answer, log: list[Usage], table: Prices, why: str, which: int) -> None:
    """One of the two numbers. which: 0, what was paid; 1, what it would have been without a cache."""
    got, told = billed(answer, log, table)
    right = right_bill(log, table)[which]
    if close(got[which], right):
        return
    named = (name for name, wrong in mistakes(log, table).items() if close(got[which], wrong[which]))
    mistake = next(named, None)
    what = ("paid", "without a cache")[which]
    reason = f" It looks as if {mistake}." if mistake else ""
    expect(False, f"{told}. {why}. {what.capitalize()}: expected {right:.6f}; got {got[which]:.6f}.{reason}")


def close(got: float, right: float) -> bool:
    return math.isclose(got, right, rel_tol=1e-9, abs_tol=1e-12)


def shown(log: list[Usage], table: Prices) -> str:
    """What was asked, for a message."""
    about = f"prices {', '.join(f'{name} {table[name]:g}' for name in ('plain', 'read', 'write', 'completion'))}"
    if len(log) == 1:
        return f"{', '.join(f'{name} {value}' for name, value in log[0].items())} (included: {table['included']}; {about})"
    return f"{len(log)} requests (included: {table['included']}; {about})"


def billed(answer: Answer, log: list[Usage], table: Prices) -> tuple[Pair, str]:
    """The answer's two numbers, and what was asked."""
    got: Any = answer(log, table)
    told = shown(log, table)
    good = isinstance(got, tuple) and len(got) == 2 and all(type(one) in (int, float) for one in got)
    expect(good, f"{told}: expected a pair of numbers, (paid, without); got {describe(got)}.")
    return (float(got[0]), float(got[1])), told
