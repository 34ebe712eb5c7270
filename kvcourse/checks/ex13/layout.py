"""Lesson 13: what must hold of an answer that puts a prompt's parts in order (13.2). Knows nothing about tokens: what is found
is counted in characters.

Several orders may be equally good, and each of them is right.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.common_prefix import common_length

Log = list[dict[str, str]]
Pairs = list[tuple[str, str]]


def returns_every_part_once(answer: Answer, draw: Draw) -> None:
    hour = draw.integer(1, 9)
    for log in (
        log_of(clock=["9:00", f"9:0{hour}"], rules="Be brief."),
        log_of(a="x", b=[f"{hour}", "0"], c=["y", "z"]),
        log_of(rules="Be brief."),
    ):
        ordered(answer, log, [])


def keeps_what_must_stand_in_front(answer: Answer, draw: Draw) -> None:
    clock = [f"{hour} o'clock" for hour in draw.integers(4, 1, 9)]
    for log, before in (
        (log_of(clock=clock, rules="Be brief, be kind.", ask=["who", "are", "you", "now"]), [("clock", "rules")]),
        (log_of(ask=["who", "are", "you"], rules="Be brief.", news="none"), [("ask", "news"), ("news", "rules")]),
        (log_of(rules="Be brief, be kind.", who=["ann", "ben"] * 2, ask="hm", tail="So:"), [("who", "ask"), ("ask", "tail")]),
    ):
        order, told = ordered(answer, log, before)
        expect_allowed(order, before, told)


def puts_what_never_changes_first(answer: Answer, draw: Draw) -> None:
    names = [f"{letter}{draw.integer(1, 9)}" for letter in "abc"]
    for log in (
        log_of(clock=["9:10", "8:20", "7:30"], rules="Be brief, and be kind."),
        log_of(name=names, clock=["9:10", "8:20", "7:30"], rules="Be brief.", shop="A shop for hats."),
        log_of(name=names, x="x", rules="Be brief.", clock=["9:10", "8:20", "7:30"]),
    ):
        judge(answer, log, [], "Behind a part that changes each time nothing is found, and some parts never change")


def puts_what_changes_often_behind(answer: Answer, draw: Draw) -> None:
    name, why = (
        f"Ann {draw.integer(1, 9)}",
        "Each time a part changes, all that stands behind it is lost, so it matters how often each does",
    )
    day = ["Monday, and the sun is out. "] * 5 + ["Tuesday, and it rains. "]
    judge(answer, log_of(ask=list("abcdef"), user=[name] * 3 + ["Ben 0"] * 3, day=day, rules="Be brief."), [], why)
    log = log_of(day=["Mo", "Tu", "We", "Fr"], user=["ann", "ann", "ben", "ben"], rules="Be brief.")
    judge(answer, log, [("rules", "user")], why)


def weighs_by_length(answer: Answer, draw: Draw) -> None:
    text, other = "what the shop sells, at length" + "." * draw.integer(1, 5), "Nothing yet, but ask again tomorrow."
    why = "'name' and 'stock' both change once, and the one in front survives the other's change: the longer text is worth more"
    for log in (
        log_of(name=["Ann", "Ann", "Ann", "Ben"], stock=[other, text, text, text]),
        log_of(name=["Ann", "Ann", "Ann", "Ben"], rules="Be brief.", stock=[other, text, text, text]),
    ):
        judge(answer, log, [], why)


def looks_at_all_requests_before(answer: Answer, draw: Draw) -> None:
    texts = ["all about hats, large and small", "shoes, both black and brown"]
    why = "Two texts of 'about' take turns, so each was there two requests ago, and a cache keeps all of them"
    names = ["ann", "ann", "ann", *[f"bo{draw.integer(1, 9)}"] * 3]
    judge(answer, log_of(user=names, about=[texts[n % 2] for n in range(6)]), [], why)
    judge(answer, log_of(user=names, rules="Be brief.", about=[texts[n % 2] for n in range(6)]), [], why)
    users = [f"{name}, a reader since 199{draw.integer(0, 9)}, no fines" for name in ("ann", "bob", "cyd")]
    log = log_of(about=["hats, all sizes, ", "shoes, and boots."] * 3, user=[users[n // 2] for n in range(6)])
    judge(answer, log, [], "Each request finds its longest start once, however many before it begin in the same way")


def sees_that_a_text_may_grow(answer: Answer, draw: Draw) -> None:
    chat = ["hi. "]
    for _ in range(4):
        chat.append(f"{chat[-1]}and then {draw.integer(10, 99)}. ")
    clock = [f"{n}:00" for n in (7, 9, 1, 4, 3)]
    why = (
        "'chat' is another text each time, but begins with the one before it: that much is found, if it stands where it can be"
    )
    judge(answer, log_of(clock=clock, chat=chat, rules="Be brief."), [], why)
    judge(answer, log_of(clock=clock, rules="Be brief.", chat=chat, who=["Ann"] * 4 + ["Ben"]), [("rules", "chat")], why)


def puts_up_with_a_change_for_what_is_behind_it(answer: Answer, draw: Draw) -> None:
    long = "the shop, what it sells, and where it has it from" + "." * draw.integer(1, 5)
    why = "'shop' is long, never changes, and must stand behind 'often'. It can be worth it to have 'often' far in front"
    seldom = ["a", "b", "b", "b", "c", "c"]
    judge(answer, log_of(seldom=seldom, often=[*"112233"], shop=long), [("often", "shop")], why)
    log = log_of(seldom=seldom, often=[*"122333"], shop=long, rules="Be brief.")
    judge(answer, log, [("often", "shop"), ("rules", "shop")], why)
    judge(answer, log_of(rare=["x"] * 5 + ["y"], often=[*"112233"], shop=long, end=""), [("often", "shop")], why)


def leaves_the_log_alone(answer: Answer, draw: Draw) -> None:
    log = log_of(clock=[f"9:{draw.integer(10, 99)}", "8:00"], rules="Be brief.", ask=["who", "why"])
    before = [("rules", "ask"), ("clock", "ask")]
    kept = answer.keep(log), answer.keep(before)
    answer(*kept)
    for was, now, name in ((log, kept[0], "log"), (before, kept[1], "before")):
        expect(now.value() == was, f"{name} was {was} and is {now.value()} afterwards. Looking changes nothing.")


def is_best_for_many_logs(answer: Answer, draw: Draw) -> None:
    six = log_of(clock=["9:10", f"8:2{draw.integer(0, 9)}"], rules="Be brief.", a="x", b="y", c="z", d=["1", "1"])
    judge(answer, six, [("rules", "d")], "Of six parts there are 720 orders, and the best may be any of them")
    for _ in range(12):
        parts = {}
        for name in ("p", "q", "r", "s", "t")[: draw.integer(3, 5)]:
            start, kinds = "abcdef"[: draw.integer(0, 6)], draw.integer(1, 4)
            parts[f"{name}{draw.integer(1, 9)}"] = [
                f"{start}{draw.integer(1, kinds)}{'-' * draw.integer(0, 1)}" for _ in range(5)
            ]
        names = list(parts)
        pairs = [(names[a], names[b]) for a in range(len(names)) for b in range(a) if draw.integer(0, 3) == 0]
        judge(answer, log_of(**parts), pairs, "One of many logs")


PROPERTIES: tuple[Property, ...] = (
    returns_every_part_once,
    keeps_what_must_stand_in_front,
    puts_what_never_changes_first,
    puts_what_changes_often_behind,
    weighs_by_length,
    looks_at_all_requests_before,
    sees_that_a_text_may_grow,
    puts_up_with_a_change_for_what_is_behind_it,
    leaves_the_log_alone,
    is_best_for_many_logs,
)


def log_of(**parts: str | list[str]) -> Log:
    """Requests from what each part says in them, in order; one text: it is always the same."""
    n = max((len(texts) for texts in parts.values() if isinstance(texts, list)), default=2)
    return [{name: texts if isinstance(texts, str) else texts[i] for name, texts in parts.items()} for i in range(n)]


def found_in(log: Log, order: Iterable[str]) -> int:
    """Characters that each request's longest common start with an earlier one has, together."""
    names = list(order)
    prompts = ["".join(request[name] for name in names) for request in log]
    return sum(max((common_length(one, earlier) for earlier in prompts[:i]), default=0) for i, one in enumerate(prompts))


def keeps(order: Sequence[str], before: Pairs) -> bool:
    return all(order.index(a) < order.index(b) for a, b in before)


def expect_allowed(order: list[str], before: Pairs, told: str) -> None:
    for a, b in before:
        expect(order.index(a) < order.index(b), f"{told}: yours is {order}, and {a!r} has to stand in front of {b!r}.")


def judge(answer: Answer, log: Log, before: Pairs, why: str) -> None:
    """The order is allowed, and none that is finds more."""
    order, told = ordered(answer, log, before)
    expect_allowed(order, before, told)
    most, got = max(found_in(log, each) for each in permutations(log[0]) if keeps(each, before)), found_in(log, order)
    what = f"Your order {order} finds {got} characters, and {most} can be found"
    expect(got == most, f"{told}. {what}. {why}. {changes(log)}")


def changes(log: Log) -> str:
    """How the parts behave: rules never changes; user has 2 texts."""
    kinds = {name: len({request[name] for request in log}) for name in log[0]}
    said = [f"{name!r} {'never changes' if n == 1 else f'has {n} different texts'}" for name, n in kinds.items()]
    return f"In {len(log)} requests, {', '.join(said)}."


def shown(log: Log, before: Pairs) -> str:
    """What was asked, for a message."""
    order = f", {', '.join(f'{a} before {b}' for a, b in before)}" if before else ""
    return f"{len(log)} requests with the parts {list(log[0])}{order}"


def ordered(answer: Answer, log: Log, before: Pairs) -> tuple[list[str], str]:
    """The answer's order, if it is one of these parts, and what was asked."""
    got, told = answer(log, before), shown(log, before)
    good = isinstance(got, list) and all(isinstance(name, str) for name in got)
    expect(good, f"{told}: expected a list of names; got {describe(got)}.")
    missing = [name for name in log[0] if name not in got]
    expect(not missing, f"{told}: yours is {got}, without {missing[0] if missing else ''!r}. The model has to read every part.")
    expect(len(got) == len(log[0]), f"{told}: yours is {got}. Every part stands there once, and nothing else.")
    return got, told
