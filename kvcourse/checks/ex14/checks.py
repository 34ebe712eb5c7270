"""Lesson 14: what must hold of the answers to exercise 14. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex14 import cuts, diagnosis, forks, logits

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "14.1": diagnosis.PROPERTIES,
    "14.2": logits.PROPERTIES,
    "14.3": cuts.PROPERTIES,
    "14.4": forks.PROPERTIES,
}
