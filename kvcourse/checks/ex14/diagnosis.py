"""Lesson 14: what must hold of an answer that names the faults of caches by their charts (14.1). Knows nothing about tests.

The charts are real: broken caches of the zoo, others whose faults begin where they are drawn, and right ones, all observed
here.
"""

from collections.abc import Mapping, Sequence
from functools import cache as once
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.checks.ex14.admitted import drawn
from kvcourse.zoo import HEALTHY, SPECIMENS, symptoms
from kvcourse.zoo.specimen import Make

KEYS = ("mask", "positions", "layers", "dtype", "unused")
Chart = Mapping[str, str | int]
MOST = 4  # readings in a message
ZOO: Mapping[str, Make] = {one.fault: one.make for one in SPECIMENS}


# By key, the one of the notebook first.
SICK: Mapping[str, Sequence[Make]] = {
    "mask": (ZOO["square mask"], ZOO["mask at the left"], ZOO["sees the future"]),
    "positions": (ZOO["positions restart"],),
    "layers": (ZOO["layers scrambled"],),
    "dtype": (ZOO["rows cast"],),
    "unused": (ZOO["never used"],),
}
WELL: Sequence[Make] = [HEALTHY[kind] for kind in ("growing", "preallocated", "paged", "sliding")]


@once  # a patient that is drawn again is not observed again
def chart_of(make: Make) -> Chart:
    return symptoms(make).readings


@once
def right_readings() -> Chart:
    return {one.what: one.right for one in symptoms(WELL[1]).observations}


def names_every_patient(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [(key, SICK[key][0]) for key in KEYS], judged=False)


def leaves_the_healthy_alone(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [(None, make) for make in WELL])


def tells_a_wrong_mask(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [*with_fault(draw, "mask", 6), healthy(draw)])


def tells_wrong_positions(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [*with_fault(draw, "positions", 3), *with_fault(draw, "mask", 1), healthy(draw)])


def tells_scrambled_layers(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [*with_fault(draw, "layers", 5), *with_fault(draw, "positions", 0), healthy(draw)])


def tells_a_lower_precision(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [*with_fault(draw, "dtype", 3), *with_fault(draw, "mask", 0), healthy(draw)])


def tells_a_cache_that_saves_nothing(answer: Answer, draw: Draw) -> None:
    ask(answer, draw, [*with_fault(draw, "unused", 3), healthy(draw)])


def goes_by_the_chart(answer: Answer, draw: Draw) -> None:
    """Wards of one, and whole ones with anybody in any room."""
    for key in KEYS:
        ask(answer, draw, [(key, drawn(draw, key, 1)[0])])
    everybody = [patient for key in KEYS for patient in with_fault(draw, key, 1)] + [(None, make) for make in WELL]
    for _ in range(3):
        ask(answer, draw, [everybody[draw.integer(0, len(everybody) - 1)] for _ in range(draw.integer(1, 9))])


def leaves_the_charts_alone(answer: Answer, draw: Draw) -> None:
    charts = {"room 1": dict(chart_of(SICK["mask"][0])), "room 2": dict(chart_of(WELL[0]))}
    kept = answer.keep(charts)
    answer(kept)
    expect(kept.value() == charts, "The charts are others afterwards. They are the caller's: reading changes nothing.")


PROPERTIES: tuple[Property, ...] = (
    names_every_patient,
    leaves_the_healthy_alone,
    tells_a_wrong_mask,
    tells_wrong_positions,
    tells_scrambled_layers,
    tells_a_lower_precision,
    tells_a_cache_that_saves_nothing,
    goes_by_the_chart,
    leaves_the_charts_alone,
)


def with_fault(draw: Draw, key: str, n: int) -> list[tuple[str | None, Make]]:
    """Those of the zoo, and so many that are drawn."""
    makes: list[Make] = [*SICK[key], *drawn(draw, key, n)]
    return [(key, make) for make in makes]


def healthy(draw: Draw) -> tuple[None, Make]:
    return None, WELL[draw.integer(0, len(WELL) - 1)]


def ask(answer: Answer, draw: Draw, patients: list[tuple[str | None, Make]], judged: bool = True) -> None:
    """Let the answer name them, in beds that are drawn."""
    left, beds = list(patients), dict[str, tuple[str | None, Chart]]()
    number = draw.integer(1, 40)
    while left:
        key, make = left.pop(draw.integer(0, len(left) - 1))
        beds[f"room {number}"] = key, chart_of(make)
        number += draw.integer(1, 3)
    got = answer({bed: dict(chart) for bed, (_, chart) in beds.items()})
    expect(isinstance(got, dict), f"A dict is wanted, from each name of charts to a key or None; got {describe(got)}.")
    expect(
        set(got) == set(beds), f"charts has {shown(beds)}; what came back has {shown(got)}. Every one is named, and no other."
    )
    odd = {bed: key for bed, key in got.items() if not (key is None or (type(key) is str and key in KEYS))}
    expect(not odd, f"The keys are {shown(KEYS)} and None; yours has {next(iter(odd.values()), None)!r}.")
    for bed, (right, chart) in beds.items():
        if judged:
            expect(got[bed] == right, f"{bed}: {told(chart)}. Expected {right!r}; got {got[bed]!r}.")


def shown(names: Any) -> str:
    """Some names, in their order."""
    few = [str(name)[:12] for name in list(names)[:9]]
    return ", ".join(few) or "nothing"


def told(chart: Chart) -> str:
    """What is not as it should be on a chart, the first lines of it."""
    right = right_readings()
    wrong = [f"{what}: {seen}" for what, seen in chart.items() if seen != right.get(what) and str(seen) not in HARMLESS]
    return "; ".join(wrong[:MOST]) or "every line is right"


HARMLESS = ("no limit", "no window", "the same", "stops: CacheFull")
