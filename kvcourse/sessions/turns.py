"""Lesson 11: one turn of a conversation: what was said, what it took, and who is watching. Knows nothing about models."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kvcourse.generate import Usage
from kvcourse.meter import Cost


@dataclass(frozen=True)
class Turn:
    """What one turn added. Its prompt is ids start to prompt_stop - 1, its reply ids prompt_stop to stop - 1."""

    user: str
    reply: str
    start: int
    prompt_stop: int
    stop: int
    finish_reason: str


@dataclass(frozen=True)
class Reply:
    """What one turn gave. `finish_reason` is "interrupted" where the watcher said stop, else generate's own."""

    text: str
    tokens: list[int]
    usage: Usage
    cost: Cost
    finish_reason: str
    first_token_s: float | None
    tokens_per_s: float | None  # after the first token; None where there was no second

    def summary(self) -> str:
        usage = self.usage
        parts = [
            f"prompt {usage.prompt_tokens} = cached {usage.cached_tokens} + computed {usage.computed_tokens}",
            f"completion {usage.completion_tokens} tokens",
        ]
        if self.first_token_s is not None:
            parts.append(f"first token after {self.first_token_s:.2f} s")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.1f} tokens/s")
        return "usage: " + " · ".join(parts)


@dataclass
class Clock:
    """The time and the tokens of the reply under way."""

    started_s: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    last_s: float | None = None
    reply: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str = "interrupted"  # until generation says why it ended

    def saw(self, token: int) -> None:
        self.reply.append(token)
        self.last_s = time.perf_counter()
        self.first_s = self.first_s or self.last_s

    def first_token_s(self) -> float | None:
        return self.first_s - self.started_s if self.first_s is not None else None

    def tokens_per_s(self) -> float | None:
        if self.first_s is None or self.last_s is None or len(self.reply) < 2:
            return None
        return (len(self.reply) - 1) / (self.last_s - self.first_s)


@dataclass(frozen=True)
class Watch:
    """What the caller wants to see of a turn while it runs, and the question it is asked between tokens: stop here?"""

    on_text: Callable[[str], None] = lambda text: None
    on_token: Callable[[], None] = lambda: None
    on_prefill: Callable[[int, int], None] = lambda done, total: None  # tokens of the prompt computed, and to compute
    interrupted: Callable[[], bool] = lambda: False


UNWATCHED = Watch()
