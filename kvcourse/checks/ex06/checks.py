"""Lesson 06: what must hold of the answers to exercise 06. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex06 import append, decode, mask, positions

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "6.1": append.PROPERTIES,
    "6.2": mask.PROPERTIES,
    "6.3": positions.PROPERTIES,
    "6.4": decode.PROPERTIES,
}
