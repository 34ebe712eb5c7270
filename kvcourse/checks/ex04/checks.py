"""Lesson 04: what must hold of the answers to exercise 04. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex04 import find, keys, read, split

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "4.1": find.PROPERTIES,
    "4.2": split.PROPERTIES,
    "4.3": keys.PROPERTIES,
    "4.4": read.PROPERTIES,
}
