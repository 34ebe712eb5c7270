"""Lesson 14: some specimens and some right caches, mixed, under numbers. Knows nothing about what is said of them."""

import random

from kvcourse.zoo.charts import Chart, symptoms
from kvcourse.zoo.specimens import HEALTHY, SPECIMENS

SICK = ("square mask", "positions restart", "layers scrambled", "rows cast", "never used")
WELL = ("preallocated", "sliding")


def ward(seed: int) -> dict[str, Chart]:
    """Charts of five broken caches and two right ones, by their number on the door; the seed decides who lies where."""
    makes = [one.make for one in SPECIMENS if one.fault in SICK] + [HEALTHY[kind] for kind in WELL]
    random.Random(seed).shuffle(makes)
    return {f"room {number}": symptoms(make) for number, make in enumerate(makes, 1)}
