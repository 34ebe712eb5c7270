"""Lesson 12: an agent with tools, without chance. Knows nothing about terminals or real tools.

Each step sends the window to the model, which answers with a tool call; the tool's result is what came since when the next
step asks the policy. On counts only, the "model" is a script and the cache a radix tree of ids, the same that
RadixPrefixCache uses; on a real model the very ids go through it, and the counts must come out the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcourse.amounts import whole
from kvcourse.context.parts import Part, flat
from kvcourse.context.policies import Policy
from kvcourse.errors import InputError
from kvcourse.ledger import Bill, Ledger, Prices, TurnCount
from kvcourse.prefix.radix import RadixTree


@dataclass(frozen=True)
class Step:
    """What the model writes, and what the tool gives back, as ids. The tool of the last step answers nobody."""

    answer: tuple[int, ...]
    result: tuple[int, ...]


@dataclass(frozen=True)
class Script:
    """A task: fixed parts, and steps."""

    system: tuple[int, ...]
    task: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Run:
    """What a task took under a policy."""

    policy: str
    ledger: Ledger
    windows: tuple[tuple[Part, ...], ...]  # of each request
    answers: tuple[tuple[int, ...], ...]  # what the model wrote, or the script
    summaries: tuple[TurnCount, ...] = ()  # the requests that made summaries; they are in no window, and cost all the same

    def billed(self, prices: Prices) -> Bill:
        """Steps and summaries at these prices."""
        return Ledger(math.inf, [*self.ledger, *self.summaries]).billed(prices)


def scripted(n_steps: int, *, system: int, task: int, answer: int, result: int, vocab_size: int = 2**31) -> Script:
    """A script of these sizes (tokens), in which no two parts begin alike, if vocab_size is more than all tokens together."""
    sizes = {"n_steps": n_steps, "system": system, "task": task, "answer": answer, "result": result, "vocab_size": vocab_size}
    for name, value in sizes.items():
        whole(name, value, least=1)
    counter = iter(range(10**12))
    stride = next((prime for prime in (7919, 7907, 7901) if vocab_size % prime), 1)  # else some ids would never come

    def new(n: int) -> tuple[int, ...]:
        return tuple(next(counter) * stride % vocab_size for _ in range(n))

    return Script(new(system), new(task), tuple(Step(new(answer), new(result)) for _ in range(n_steps)))


def replayed_tokens(script: Script) -> int:
    """Cumulative input of an agent that sends everything every time: the closed formula.

    With equal steps, n·(s + t) + (a + r)·n·(n - 1) / 2: the square law.
    """
    n, fixed = len(script.steps), len(script.system) + len(script.task)
    return n * fixed + sum((n - 1 - i) * (len(step.answer) + len(step.result)) for i, step in enumerate(script.steps))


def run_agent(
    script: Script,
    policy: Policy,
    *,
    limit: int,
    model: Any = None,
    cached: bool = True,
    writes: bool = False,
    stop_ids: Sequence[int] = (),
) -> Run:
    """Run a task under a policy.

    limit: tokens that the window takes, what the model writes included. model: None counts only; a model runs the very ids
    through a RadixPrefixCache of its own, and writes what the script says. cached: whether prefixes are kept between steps.
    writes: the model chooses its own words, at most as many tokens as the script's, up to a stop id. The tools answer as in
    the script all the same: what is looked at is the window, not the wit.
    Raises: ContextOverflow where the policy leaves more than fits; InputError for `writes` without a model.
    """
    if writes and model is None:
        raise InputError("Nobody to write.", expected="model=, where writes=True", got=None, todo="Pass a model.")
    cache = _Counting(cached) if model is None else _Running(model, cached, writes, stop_ids)
    ledger, windows, answers = Ledger(limit), [], []
    before = len(summary_counts(policy))
    kept: list[Part] = []
    new = [Part("system", script.system), Part("task", script.task)]
    for number, step in enumerate(script.steps, start=1):
        window = policy.window(kept, new, limit - len(step.answer))
        prompt = flat(window)
        known, answer = cache.ask(prompt, step.answer)
        ledger.record(TurnCount(len(prompt), known, len(answer)))
        windows.append(tuple(window))
        answers.append(answer)
        unended = () if answer == step.answer or not stop_ids or answer[-1] in stop_ids else (stop_ids[0],)
        kept, new = window, [Part("assistant", answer, number), Part("tool", (*unended, *step.result), number)]
    return Run(policy.name, ledger, tuple(windows), tuple(answers), tuple(summary_counts(policy)[before:]))


def summary_counts(policy: Policy) -> list[TurnCount]:
    """What the requests for a policy's summaries have taken so far; none where it makes none, or does not say."""
    return list(getattr(getattr(policy, "summary", None), "counts", ()))


class _NoRows:
    """Nobody keeps any K/V."""

    def split(self, rows: int, at: int) -> tuple[int, int]:
        return 0, 0

    def free(self, rows: int) -> None:
        pass


class _Counting:
    """A prefix cache without tensors and without a limit."""

    def __init__(self, cached: bool) -> None:
        self.cached, self.tree = cached, RadixTree(_NoRows())

    def ask(self, prompt: Sequence[int], answer: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """How many prompt tokens are known, and the answer; what was computed is known from now on, but for the last token."""
        root = self.tree.root(b"")
        known = self.tree.match(root, prompt[:-1], None).length if self.cached else 0
        self.tree.add(root, [*prompt, *answer][:-1], lambda start, stop: 0, 0.0)
        return known, answer


class _Running:
    """The same on a model."""

    def __init__(self, model: Any, cached: bool, writes: bool, stop_ids: Sequence[int]) -> None:
        from kvcourse.prefix.cache import RadixPrefixCache

        self.model, self.writes, self.stop_ids = model, writes, tuple(stop_ids)
        self.prefix_cache = RadixPrefixCache(model, max_bytes=2**40) if cached else None

    def ask(self, prompt: Sequence[int], answer: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        from kvcourse.generate import generate
        from kvcourse.sampling import greedy

        said = iter(answer)
        output = generate(self.model, list(prompt), max_new_tokens=len(answer), prefix_cache=self.prefix_cache,
                          sampler=greedy if self.writes else lambda logits: next(said),
                          stop_ids=self.stop_ids if self.writes else ())  # fmt: skip
        return int(output.usage.cached_tokens), tuple(output.tokens)
