"""Every lesson: numbers that somebody gives. Knows nothing about what they count."""

import math
import operator
from typing import Any

from kvcourse.errors import InputError


def whole(name: str, value: Any, least: int = 0) -> int:
    """An int, whatever kind of integer it came as (NumPy's, a tensor of one). Raises: InputError for anything else."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        number = None
    if number is None or number < least:
        raise InputError(
            f"{name} is a whole number.", expected=f"an int, {least} or more", got=_shown(value), todo="Correct it."
        )
    return number


def amount(name: str, value: Any, *, finite: bool = True) -> float:
    """0 or more, as a float. Raises: InputError for anything else, NaN and True among it."""
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not number >= 0 or (finite and number == math.inf):
        raise InputError(f"{name} is an amount.", expected="a number, 0 or more", got=_shown(value), todo="Correct it.")
    return number


def _shown(value: Any) -> str:
    return f"{value!r:.80}" if not isinstance(value, int) or abs(value) < 10**80 else "an int of more than 80 digits"
