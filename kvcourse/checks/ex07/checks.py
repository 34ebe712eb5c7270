"""Lesson 07: what must hold of the answers to exercise 07. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex07 import nbytes, truncate, verify, write

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "7.1": write.PROPERTIES,
    "7.2": truncate.PROPERTIES,
    "7.3": nbytes.PROPERTIES,
    "7.4": verify.PROPERTIES,
}
