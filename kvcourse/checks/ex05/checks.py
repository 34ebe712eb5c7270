"""Lesson 05: what must hold of the answers to exercise 05. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex05 import changed, first_change, reusable, rows

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "5.1": rows.PROPERTIES,
    "5.2": reusable.PROPERTIES,
    "5.3": changed.PROPERTIES,
    "5.4": first_change.PROPERTIES,
}
