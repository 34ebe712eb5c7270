"""Lesson 07: what the checks of exercise 07 share: a cache as a dictionary, and whether an answer refused something.

Knows nothing about any task.
"""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Kept, describe, expect

Pair = tuple[Tensor, Tensor]


def refuses(answer: Answer, *args: Any) -> bool:
    """True if this call ends in a ValueError. What else goes wrong in it is told as it is."""
    try:
        answer(*args)
    except Broken as fault:
        if " stopped with ValueError" in str(fault):
            return True
        raise
    return False


def refuses_with_a_value_error(answer: Answer, case: str, *args: Any) -> bool:
    """The same where a refusal is due. An error of another kind is told together with the one that was asked for."""
    try:
        return refuses(answer, *args)
    except Broken as fault:
        raise Broken(f"{case}: expected a ValueError. {fault}") from None


def a_cache(draw: Draw, length: int, capacity: int, layers: tuple[int, ...], B: int = 1, H: int = 2, D: int = 4) -> dict:
    """A cache in which every slot of every buffer holds something, also those that are not in use."""
    rows = {layer: (draw.tensor(B, H, capacity, D), draw.tensor(B, H, capacity, D)) for layer in layers}
    return {"capacity": capacity, "length": length, "rows": rows}


def look(kept: Kept) -> dict[str, Any]:
    """What a cache holds now, if it still is one."""
    cache = kept.value()
    good = isinstance(cache, dict) and isinstance(cache.get("rows"), dict) and "length" in cache
    expect(good, 'The cache is no longer a dictionary with "capacity", "length" and "rows".')
    return cache


def buffers(cache: dict[str, Any], layer: int) -> Pair:
    """The two buffers of a layer, if they are there."""
    expect(layer in cache["rows"], f'There is no cache["rows"][{layer}] after a call for layer {layer}.')
    found = cache["rows"][layer]
    good = isinstance(found, tuple | list) and len(found) == 2 and all(isinstance(x, Tensor) for x in found)
    expect(good, f'cache["rows"][{layer}] should be a pair of tensors, (keys, values); it is {describe(found)}.')
    return found[0], found[1]


def same(got: Any, want: Tensor) -> bool:
    return isinstance(got, Tensor) and got.dtype == want.dtype and torch.equal(got, want)
