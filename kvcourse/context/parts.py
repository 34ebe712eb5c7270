"""Lesson 12: what a window is made of. Knows nothing about models, caches or policies.

A window is a list of parts, each a stretch of tokens with a role. Parts are never changed: a policy leaves some out, or puts
another in their place, and whatever comes before the first such place is what a prefix cache still knows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kvcourse.common_prefix import common_length

Role = Literal["system", "task", "assistant", "tool", "summary", "handle"]


@dataclass(frozen=True)
class Part:
    """Tokens of one message. step: which step of the agent it belongs to, from 1; 0: what was there before the first."""

    role: Role
    tokens: tuple[int, ...]
    step: int = 0
    handle: str | None = None  # of what was put outside the window: fetch it by this name

    def __len__(self) -> int:
        return len(self.tokens)


def n_tokens(parts: Iterable[Part]) -> int:
    """Tokens of all parts together."""
    return sum(len(part) for part in parts)


def flat(parts: Iterable[Part]) -> list[int]:
    """Their ids, one after another."""
    return [token for part in parts for token in part.tokens]


def shared_tokens(before: Sequence[Part], now: Sequence[Part]) -> int:
    """How many tokens two windows begin with together."""
    return common_length(flat(before), flat(now))
