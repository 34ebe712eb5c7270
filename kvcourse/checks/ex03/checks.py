"""Lesson 03: what must hold of the answers to exercise 03. Knows nothing about how they are run, and holds no solution."""

from collections.abc import Mapping, Sequence

from kvcourse.checks.base import Property
from kvcourse.checks.ex03 import block, count, gpt, layer_norm, mlp

PROPERTIES: Mapping[str, Sequence[Property]] = {
    "3.1": layer_norm.PROPERTIES,
    "3.2": mlp.PROPERTIES,
    "3.3": block.PROPERTIES,
    "3.4": gpt.PROPERTIES,
    "3.5": count.PROPERTIES,
}
