"""Lesson 10: what must hold of the answers to exercise 10. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex10 import chain, evict, lookup, match

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "10.1": match.PROPERTIES,
    "10.2": chain.PROPERTIES,
    "10.3": lookup.PROPERTIES,
    "10.4": evict.PROPERTIES,
}
