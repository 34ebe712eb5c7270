"""Lesson 14: what a broken cache is filed under. Knows nothing about which there are, or what they show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Make = Callable[[Any, int], Any]  # (model, capacity in tokens) -> a KV cache or a prefix cache for that model
Kind = Literal["kv", "prefix"]


@dataclass(frozen=True)
class Specimen:
    """A cache with one fault.

    name: a letter, which says nothing. make: (model, capacity in tokens) to a fresh cache; a windowed one has that window.
    fault: the diagnosis, a short key. source: where such a fault was reported. told: what goes wrong, in a sentence.
    kind: "kv", a cache of one sequence, or "prefix", one shared between requests.
    """

    name: str
    make: Make
    fault: str
    source: str
    told: str
    kind: Kind = "kv"
