"""Lesson 12: what must hold of an answer that makes room by dropping the oldest steps (12.3). Knows nothing about caches:
windows of parts only."""

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex12.parts import FIXED, Window, a_step, as_window, front, shown, size, unchanged, window_of


def returns_a_list_of_parts(answer: Answer, draw: Draw) -> None:
    parts = [*front(draw, 5, 2), *a_step(draw, 1, 4, 6), *a_step(draw, 2, 4, draw.integer(1, 6))]
    for limit in (100, 20):
        cropped(answer, parts, limit)


def leaves_alone_what_fits(answer: Answer, draw: Draw) -> None:
    parts = [*front(draw, 5, 2), *a_step(draw, 1, 4, 6), *a_step(draw, 2, 4, draw.integer(1, 6))]
    for limit, why in ((size(parts) + 30, "there is room"), (size(parts), "exactly as many as the window takes")):
        judge(answer, parts, limit, why)
    for parts in (front(draw, 5, 2), [*front(draw, 5), *a_step(draw, 3, 4, 6)]):
        judge(answer, parts, size(parts), "exactly as many as the window takes")


def drops_the_oldest_step(answer: Answer, draw: Draw) -> None:
    for first in (1, draw.integer(2, 30)):
        parts = [*front(draw, 5, 2), *(part for i in range(4) for part in a_step(draw, first + i, 4, 6))]
        judge(answer, parts, size(parts) - 3, "one step has to go, and the oldest goes first")
    large = [*front(draw, 5, 2), *a_step(draw, 1, 2, 2), *a_step(draw, 2, 4, 30), *a_step(draw, 3, 4, 6)]
    judge(answer, large, size(large) - 3, "one step has to go: the oldest, though it is not the largest")


def drops_whole_steps(answer: Answer, draw: Draw) -> None:
    tool = draw.integer(20, 30)
    for sizes in ((4, tool), (tool, 4), (4, 9, 3, 9), (4, 9, 3)):
        parts = [*front(draw, 5, 2), *a_step(draw, 1, *sizes), *a_step(draw, 2, 4, 6)]
        judge(answer, parts, size(parts) - 1, "step 1 has to go, as a whole: a result without its call is refused by a model")


def keeps_the_fixed_parts(answer: Answer, draw: Draw) -> None:
    steps = [part for step in (1, 2, 3) for part in a_step(draw, step, 4, 6)]
    for fixed in (front(draw, 5), front(draw, 5, 2, 3), front(draw, 40, draw.integer(1, 9))):
        judge(answer, [*fixed, *steps], size(fixed) + 25, "system and task stay, whatever they take")
    late = ("task", 0, draw.integers(3, 10, 99))
    parts = [*front(draw, 5, 2), *steps[:4], late, *steps[4:]]
    judge(answer, parts, size(parts) - 3, "a task that came later stays, too, in its place")


def drops_as_many_as_it_must(answer: Answer, draw: Draw) -> None:
    parts = [*front(draw, 5, 2), *(part for step in range(1, 6) for part in a_step(draw, step, 3, draw.integer(4, 9)))]
    sizes = [size([part for part in parts if part[1] == step]) for step in range(1, 6)]
    for gone in (2, 3, 4):
        left = size(parts) - sum(sizes[:gone])
        judge(answer, parts, left, f"the first {gone} steps have to go")
        judge(answer, parts, left + sizes[gone - 1] - 1, f"the first {gone} steps have to go, the last of them for one token")


def gives_up_when_the_latest_does_not_fit(answer: Answer, draw: Draw) -> None:
    judge_ordinary(answer, draw)
    fixed, latest = front(draw, 5, 2), a_step(draw, 4, 4, draw.integer(20, 40))
    for parts, why in (
        ([*fixed, *latest], "nothing can go: without the latest step there is nothing to answer"),
        ([*fixed, *a_step(draw, 3, 4, 6), *latest], "system, task and the latest step alone are more than that"),
    ):
        judge(answer, parts, size([*fixed, *latest]) - 1, why)
    judge(answer, front(draw, 9, 4), draw.integer(3, 12), "system and task alone are more than that")
    judge(answer, [*fixed, *a_step(draw, 3, 4, 6), *latest], size([*fixed, *latest]), "the latest step alone just fits")


def leaves_the_window_alone(answer: Answer, draw: Draw) -> None:
    parts = [*front(draw, 5, 2), *(part for step in (1, 2, 3) for part in a_step(draw, step, 4, draw.integer(3, 6)))]
    judge_ordinary(answer, draw)
    for limit in (size(parts) - 3, size(parts), 3):
        kept = answer.keep(parts)
        answer(kept, limit)
        unchanged(parts, kept.value())


def holds_for_many_windows(answer: Answer, draw: Draw) -> None:
    judge_ordinary(answer, draw)
    for _ in range(60):
        parts, step = front(draw, *draw.integers(draw.integer(1, 3), 1, 9)), draw.integer(1, 5)
        for _ in range(draw.integer(1, 6)):
            parts += a_step(draw, step, *draw.integers(draw.integer(1, 4), 1, 9))
            parts += [("task", 0, [1, 2])] if draw.integer(0, 4) == 0 else []
            step += draw.integer(1, 3)
        judge(answer, parts, draw.integer(size(parts) // 3, size(parts)), "one of many windows")


PROPERTIES: tuple[Property, ...] = (
    returns_a_list_of_parts,
    leaves_alone_what_fits,
    drops_the_oldest_step,
    drops_whole_steps,
    keeps_the_fixed_parts,
    drops_as_many_as_it_must,
    gives_up_when_the_latest_does_not_fit,
    leaves_the_window_alone,
    holds_for_many_windows,
)


def judge_ordinary(answer: Answer, draw: Draw) -> None:
    """Windows in which something can go. A loop that gets these wrong may never end in one where nothing can."""
    late = ("task", 0, draw.integers(2, 10, 99))
    parts = [*front(draw, 5, 2), *a_step(draw, 2, 4, 6, 3, 6), late, *a_step(draw, 3, 4, 6), *a_step(draw, 4, 5, 8)]
    for over in (0, 1, 20, 29):
        judge(answer, parts, size(parts) - over, "whole steps go, the oldest first")


def judge(answer: Answer, parts: Window, limit: int, why: str) -> None:
    """Is what the answer leaves right? Otherwise: what is wrong with it."""
    got = cropped(answer, parts, limit)
    steps = sorted({step for role, step, _ in parts if role not in FIXED})
    fits = [first for first in steps if size(since(parts, first)) <= limit]
    told = f"{window_of(parts, limit)}: {why}"
    if not fits and size(parts) > limit:
        expect(got is None, f"{told}. Expected None; got {'' if got is None else shown(got)}.")
        return
    right = since(parts, fits[0]) if steps else parts
    if got == right:
        return
    now = "None" if got is None else shown(got)
    expect(False, f"{told}. Expected {shown(right)}; got {now}.{likely(parts, got, limit)}")


def likely(parts: Window, got: Window | None, limit: int) -> str:
    """What is wrong with a window, with a space in front; nothing where it is plain to see."""
    if got is None:
        return ""
    rest = iter(parts)
    if not all(part in rest for part in got):
        return " Its parts are to be those of the window, in the same order, each once."
    if any(part not in got for part in parts if part[0] in FIXED):
        return " A part of what is fixed is gone."
    cut = [step for _, step, _ in got if step and [p for p in got if p[1] == step] != [p for p in parts if p[1] == step]]
    if cut:
        return f" Of step {cut[0]} a part is gone, and a part is left."
    if size(got) > limit:
        return f" That is {size(got)} tokens."
    return ""


def since(parts: Window, first: int) -> Window:
    """What is fixed, and all steps from `first` on."""
    return [part for part in parts if part[0] in FIXED or part[1] >= first]


def cropped(answer: Answer, parts: Window, limit: int) -> Window | None:
    """What the answer leaves: None, or a list of parts."""
    got = answer(parts, limit)
    return None if got is None else as_window(got, window_of(parts, limit))
