"""Lesson 13: what must hold of the answers to exercise 13. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex13 import bill, cached, difference, layout

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "13.1": difference.PROPERTIES,
    "13.2": layout.PROPERTIES,
    "13.3": cached.PROPERTIES,
    "13.4": bill.PROPERTIES,
}
