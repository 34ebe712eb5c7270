"""Lesson 08: what must hold of the answers to exercise 08. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex08 import codes, heads, numbers, slots, window

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "8.1": slots.PROPERTIES,
    "8.2": window.PROPERTIES,
    "8.3": heads.PROPERTIES,
    "8.4": codes.PROPERTIES,
    "8.5": numbers.PROPERTIES,
}
