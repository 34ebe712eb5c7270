"""Lesson 02: what must hold of the answers to exercise 02. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex02 import heads, mask, scores, weighted

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "2.1": scores.PROPERTIES,
    "2.2": mask.PROPERTIES,
    "2.3": weighted.PROPERTIES,
    "2.4": heads.PROPERTIES,
}
