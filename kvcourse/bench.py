"""Lesson 14: what each cache saves on this machine. Knows nothing about other engines: `benchmarks/` compares with those.

Every way answers the same request. Nothing is timed before all of them have chosen the same tokens, and what is compared first
is what went through the model, which is the same everywhere. Times are taken in turn, round by round, so that a machine which
slows down slows all of them.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvcourse.errors import InputError, KVCourseError
from kvcourse.generate import generate
from kvcourse.loops import Output
from kvcourse.prefix.cache import RadixPrefixCache

WITHOUT = "no cache"


@dataclass
class Way:
    """One way to the same answer. tokens: through the model, for this answer alone. seconds: one a round."""

    name: str
    tokens: int
    bytes_held: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)


def bench(model: Any, prompt_tokens: int = 256, new_tokens: int = 16, rounds: int = 3, seed: int = 0) -> list[Way]:
    """Time one request in every way, the one without a cache first.

    Raises: InputError for sizes that are none, or do not fit the model; KVCourseError where a way chose other tokens.
    """
    for name, value, least in (("prompt_tokens", prompt_tokens, 2), ("new_tokens", new_tokens, 1), ("rounds", rounds, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} is a number.", expected=f"{least} or more", got=value, todo="Correct it.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise InputError("seed is a number of 64 bits.", expected="0, 1, 2 ...", got=seed, todo="Correct it.")
    if prompt_tokens + new_tokens > model.config.context_length:
        raise InputError("That is more than the model was made for.", expected=f"at most {model.config.context_length} tokens",
                         got=prompt_tokens + new_tokens, todo="Ask for fewer.")  # fmt: skip
    import torch

    drawn = torch.randint(model.config.vocab_size, (prompt_tokens,), generator=torch.Generator().manual_seed(seed))
    acts = _ways(model, drawn.tolist(), new_tokens)
    ways, right = [], None
    for name, act in acts.items():  # this first time warms up, and is looked at
        output = act()
        right = right or output.tokens
        if output.tokens != right:
            raise KVCourseError(f"{name!r} chose other tokens, so nothing is timed.", expected=right, got=output.tokens,
                                todo="A near tie can do that: try another --seed. If it stays, it is a fault.")  # fmt: skip
        ways.append(Way(name, output.cost.tokens, output.cost.bytes_held))
    for _ in range(rounds):
        for way in ways:
            start = time.perf_counter()
            acts[way.name]()
            way.seconds.append(time.perf_counter() - start)
    return ways


def _ways(model: Any, ids: list[int], new_tokens: int) -> dict[str, Callable[[], Output]]:
    shared = RadixPrefixCache(model, max_bytes=2**40)
    generate(model, ids[:-1], max_new_tokens=1, prefix_cache=shared)  # somebody else's request, which begins alike

    def ask(**options: Any) -> Callable[[], Output]:
        return lambda: generate(model, ids, max_new_tokens=new_tokens, **options)

    return {
        WITHOUT: ask(cache=None),
        "growing": ask(cache="growing"),
        "preallocated": ask(),
        "paged": ask(cache="paged"),
        "prefix cache, warm": ask(prefix_cache=shared),
    }
