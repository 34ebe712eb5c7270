"""Lesson 10: where two sequences part. Knows nothing about what is in them: characters, token ids, messages."""

from collections.abc import Sequence
from typing import Any


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items two sequences of one type begin with in common. Where they differ, found by halves, at the speed of C."""
    n = min(len(one), len(other))
    if one[:n] == other[:n]:
        return n
    low = 0
    while n - low > 1:  # one[:low] == other[:low], and one[:n] != other[:n]
        middle = (low + n) // 2
        low, n = (middle, n) if one[low:middle] == other[low:middle] else (low, middle)
    return low
