"""Lesson 11: what must hold of the answers to exercise 11. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex11 import branch, drift, fault, send

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "11.1": send.PROPERTIES,
    "11.2": branch.PROPERTIES,
    "11.3": drift.PROPERTIES,
    "11.4": fault.PROPERTIES,
}
