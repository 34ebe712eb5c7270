"""Lesson 09: what must hold of the answers to exercise 09. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex09 import give_back, places, take, write

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "9.1": take.PROPERTIES,
    "9.2": give_back.PROPERTIES,
    "9.3": places.PROPERTIES,
    "9.4": write.PROPERTIES,
}
