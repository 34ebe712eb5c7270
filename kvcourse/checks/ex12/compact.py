"""Lesson 12: what must hold of an answer that replaces old steps by a summary behind the fixed part (12.4). Knows nothing about
models: summaries are numbers, and we see what they are made of."""

from itertools import takewhile
from typing import Any

from kvcourse.checks.base import Answer, Broken, Draw, Property, expect
from kvcourse.checks.ex12.parts import FIXED, Window, a_step, as_window, flat, front, shown, size, unchanged, window_of

MOST_CALLS = 30


def returns_a_list_of_parts(answer: Answer, draw: Draw) -> None:
    parts = steps(draw, 5, 2, n=3)
    for limit in (size(parts) + draw.integer(1, 9), size(parts) - 1):
        Compaction(answer, parts, limit)


def leaves_alone_what_fits(answer: Answer, draw: Draw) -> None:
    summed = [*front(draw, 5, 2), ("summary", 0, [901, 902]), *a_step(draw, 4, 4, 6), *a_step(draw, 5, 4, 6)]
    for parts in (steps(draw, 5, 2, n=draw.integer(2, 4)), summed):
        for limit in (size(parts) + 30, size(parts)):
            one = Compaction(answer, parts, limit)
            told = f"{one.told}: there is room"
            lost = size(parts) - warm(parts, one.got)
            expect(one.got == parts, f"{told}, so nothing changes; got {shown(one.got)}, and {lost} tokens are no longer warm.")
            expect(not one.asked, f"{told}, and nothing is summarised; yours called summarise. Each call is one of a model.")


def keeps_the_front_warm(answer: Answer, draw: Draw) -> None:
    for sizes in ((5, 2), (5,), (draw.integer(3, 9), 2, 4)):
        parts = steps(draw, *sizes, n=3)
        one = Compaction(answer, parts, size(parts) - 1)
        fixed, n = front_of(parts), sum(sizes)
        told = f"{one.told}. The {n} tokens of system and task stand in front, and have their rows"
        kept = warm(fixed, one.got)
        expect(kept == n, f"{told}; yours is {shown(one.got)}, and only the first {kept} are the same: the rest is lost.")
        whole = one.got[: len(fixed)] == fixed
        expect(
            whole, f"{told}. Their parts stay as they are; yours begins with {[part[:2] for part in one.got[: len(fixed)]]}."
        )


def puts_one_summary_behind_it(answer: Answer, draw: Draw) -> None:
    for n in (3, draw.integer(4, 6)):
        parts = steps(draw, 5, 2, n=n)
        one = Compaction(answer, parts, size(parts) - draw.integer(1, 9))
        now = f"yours is {shown(one.got)}"
        expect(one.asked, f"{one.told}: more than the limit, but summarise was never called; {now}.")
        made = [part for part in one.got if part[0] == "summary"]
        expect(len(made) == 1, f"{one.told}: one part should be a summary; {now}, and {len(made)} of its parts are.")
        place = len(front_of(parts))
        told = f"{one.told}: the summary comes right behind the front"
        expect(one.got[place : place + 1] == made, f"{told}, at parts[{place}]; {now}.")
        right = ("summary", 0, one.made[-1])
        expect(made == [right], f"{told}: expected {right}, as summarise made it; got {made[0]}.")


def keeps_the_latest_step(answer: Answer, draw: Draw) -> None:
    for sizes in ((4, 6), (4, 6, 3, 6), (4, draw.integer(20, 40))):
        latest = a_step(draw, 9, *sizes)
        parts = [*steps(draw, 5, 2, n=3), *latest]
        for limit in (size(parts) - 1, size(latest)):  # in less than the three things need, too
            one = Compaction(answer, parts, limit)
            got = [part for part in one.got if part[0] not in (*FIXED, "summary")]
            told = f"{one.told}: behind the summary stands the latest step, with every part of it, and no other"
            expect(got == latest, f"{told}. Expected {shown(latest)} there; got {shown(got)}.")


def summarises_all_that_goes(answer: Answer, draw: Draw) -> None:
    for n in (2, 3, draw.integer(4, 6)):
        parts = steps(draw, 5, 2, n=n)
        one = Compaction(answer, parts, size(parts) - 1)
        going = [part for part in parts if part[0] not in FIXED and part[1] != n]
        told = f"{one.told}: what goes is {shown(going)}"
        expect(len(one.asked) == 1, f"{told}, in one call of summarise; yours called it {len(one.asked)} times.")
        expect(one.asked == [going], f"{told}, and summarise is given that; yours gave it {shown(one.asked[0])}.")


def takes_the_old_summary_into_the_new(answer: Answer, draw: Draw) -> None:
    for n in (2, draw.integer(3, 5)):
        parts = steps(draw, 5, 2, n=n)
        parts.insert(2, ("summary", 0, [901, 902, 903]))
        one = Compaction(answer, parts, size(parts) - 1)
        going = [part for part in parts if part[0] not in FIXED and part[1] != n]
        left = [part for part in one.got if part[0] == "summary"]
        told = f"{one.told}: an older summary stands there"
        expect(len(left) == 1, f"{told}, and goes into the new one; yours is {shown(one.got)}, with {len(left)} summaries.")
        fault = f"{told}. What goes is {shown(going)}; yours gave summarise {shown(one.asked[0]) if one.asked else 'nothing'}"
        expect(one.asked == [going], f"{fault}. What is in neither is forgotten: neither summed up nor in the window.")


def summarises_no_nothing(answer: Answer, draw: Draw) -> None:
    for parts in ([*front(draw, 5, 2), *a_step(draw, draw.integer(1, 9), 4, 20)], front(draw, 9, 4)):
        one = Compaction(answer, parts, size(parts) - 2)
        told = f"{one.told}: more than the limit, but there is nothing that could be summarised"
        expect(not one.asked, f"{told}; yours called summarise.")
        expect(one.got == parts, f"{told}. Expected the parts as they are; got {shown(one.got)}.")


def leaves_the_window_alone(answer: Answer, draw: Draw) -> None:
    parts = steps(draw, 5, 2, n=draw.integer(2, 4))
    for limit in (size(parts) - 1, size(parts)):
        kept = answer.keep(parts)
        answer(kept, limit, Summarise())
        unchanged(parts, kept.value())


def stays_warm_over_a_long_run(answer: Answer, draw: Draw) -> None:
    for limit in (60, draw.integer(50, 90)):
        window, fixed, compactions = front(draw, 9, 4), 13, 0
        for step in range(1, 40):
            before, parts = window, [*window, *a_step(draw, step, draw.integer(2, 5), draw.integer(3, 9))]
            one = Compaction(answer, parts, limit)
            window, now = one.got, f"Step {step} of a long run, {one.told}: yours is {shown(one.got)}"
            if size(parts) <= limit:
                expect(window == parts, f"{now}. There was room, so all of it should stay.")
                continue
            compactions += 1
            expect(warm(before, window) >= fixed, f"{now}. The {fixed} tokens in front are no longer warm.")
            latest = [part for part in parts if part[1] == step]
            right = [*parts[:2], ("summary", 0, one.made[-1] if one.made else []), *latest]
            expect(window == right, f"{now}. Expected {shown(right)}.")
        expect(compactions > 1, "The window never became full twice.")


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_parts,
    leaves_alone_what_fits,
    keeps_the_front_warm,
    puts_one_summary_behind_it,
    keeps_the_latest_step,
    summarises_all_that_goes,
    takes_the_old_summary_into_the_new,
    summarises_no_nothing,
    leaves_the_window_alone,
    stays_warm_over_a_long_run,
)


def steps(draw: Draw, *fixed: int, n: int) -> Window:
    """A front of these sizes, and n steps."""
    return [*front(draw, *fixed), *(part for step in range(1, n + 1) for part in a_step(draw, step, 4, draw.integer(5, 9)))]


def front_of(parts: Window) -> Window:
    """What is fixed."""
    return [part for part in parts if part[0] in FIXED]


def warm(before: Window, now: Window) -> int:
    """Tokens that two windows begin with together."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(flat(before), flat(now), strict=False))))


class Summarise:
    """Makes ids of 900 and more, other ones each time, and remembers of what."""

    def __init__(self) -> None:
        self.asked: list[Window] = []
        self.made: list[list[int]] = []

    def __call__(self, parts: Any) -> list[int]:
        if len(self.asked) == MOST_CALLS:
            raise Broken(f"summarise was called more than {MOST_CALLS} times for one window: the loop does not end.")
        self.asked.append(as_window(parts, "What you gave summarise"))
        if not parts:
            raise Broken("You gave summarise an empty list: a summary of nothing.")
        ids = [900 + len(parts), 910 + sum(flat(parts)) % 89, 920 + len(self.made)]
        self.made.append(ids)
        return ids


class Compaction:
    """One call of the answer. got: the window that it leaves; asked: what it had summarised; made: the summaries."""

    def __init__(self, answer: Answer, parts: Window, limit: int) -> None:
        summarise = Summarise()
        self.told = window_of(parts, limit)
        got = answer(parts, limit, summarise)
        self.got = as_window(got, self.told)
        self.asked, self.made = summarise.asked, summarise.made
        expect(got, f"{self.told}: nothing is left; got an empty list.")
