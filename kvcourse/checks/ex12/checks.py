"""Lesson 12: what must hold of the answers to exercise 12. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex12 import compact, crop, forecast, ledger

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "12.1": ledger.PROPERTIES,
    "12.2": forecast.PROPERTIES,
    "12.3": crop.PROPERTIES,
    "12.4": compact.PROPERTIES,
}
