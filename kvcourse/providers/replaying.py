"""Lesson 13: a log of requests under a provider's rules: what would have been found, and the bill. Knows nothing about JSON.

What is predicted is what the rules allow. A provider may have less room, or send a request to a machine that has not seen its
start; its own usage figures (`usage_of`) say what really was found.
"""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from kvcourse.errors import InputError
from kvcourse.providers.rules import Rules, rules_of
from kvcourse.providers.tree import PrefixTree, as_text
from kvcourse.providers.usage import UsageCounts

_REMEMBERED = 500_000  # marked prefixes
_LARGEST_ID = 0x10FFFF  # an id is kept as a character


@dataclass(frozen=True)
class Logged:
    """A request in a log. tokens: ids. seconds: when it was sent; None: not known, and then nothing expires.

    ends: how many tokens there are up to the end of each content block, ascending. marks: which of them are breakpoints. Both
    matter only where prefixes are found by breakpoints; without them the whole prompt is one block, and marked.
    """

    tokens: Sequence[int]
    seconds: float | None = None
    ends: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()


@dataclass
class Replayed:
    """What a log gives: the counts of each request, and the bill of all in base-price tokens."""

    rules: Rules
    counts: list[UsageCounts] = field(default_factory=list)

    @property
    def prompt_tokens(self) -> int:
        return sum(one.prompt_tokens for one in self.counts)

    @property
    def cached_tokens(self) -> int:
        return sum(one.cached_tokens for one in self.counts)

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    @property
    def cost(self) -> float:
        """Base-price tokens: times the price of an input token, it is money."""
        return sum(self.rules.input_cost(one.prompt_tokens, one.cached_tokens, one.written_tokens) for one in self.counts)

    @property
    def cost_without_cache(self) -> float:
        return float(self.prompt_tokens)


class Block(NamedTuple):
    """A content block: its text, and how many tokens there are up to its end. marked: a breakpoint stands behind it."""

    text: str
    end_tokens: int
    marked: bool = False


class Breakpoints:
    """Prefixes that end at a mark. A request finds the longest that ends at one of its marks, or a few blocks before one."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._written: OrderedDict[bytes, float | None] = OrderedDict()  # digest of a prefix: when it was used last

    def ask(self, blocks: Sequence[Block], seconds: float | None = None) -> tuple[int, int]:
        """Tokens found, and tokens written, of a request; its marks are stored."""
        marks = [n for n, block in enumerate(blocks) if block.marked]
        self.require_few(len(marks))
        digests = _digests(blocks)
        lookback = self.rules.lookback_blocks or len(blocks)
        within = {n for mark in marks for n in range(max(0, mark - lookback + 1), mark + 1)}
        found = next((n for n in sorted(within, reverse=True) if self._is_alive(digests[n], seconds)), None)
        cached = 0 if found is None else blocks[found].end_tokens
        last = cached
        for n in marks:
            if blocks[n].end_tokens >= self.rules.minimum_tokens:
                known = self._is_alive(digests[n], seconds)
                if self.rules.renewed or not known:
                    self._store(digests[n], seconds)
                last = max(last, blocks[n].end_tokens)
        if found is not None and self.rules.renewed:
            self._store(digests[found], seconds)
        return cached, last - cached

    def require_few(self, n_marks: int) -> None:
        """Raises: InputError for more breakpoints than the provider takes."""
        most = self.rules.max_breakpoints
        if most is not None and n_marks > most:
            raise InputError(f"{self.rules.name} takes fewer breakpoints.", expected=f"at most {most}", got=n_marks,
                             todo="Mark the ends of what stays the same: tools, system, history.")  # fmt: skip

    def _is_alive(self, digest: bytes, now: float | None) -> bool:
        if digest not in self._written:
            return False
        then, lifetime = self._written[digest], self.rules.lifetime_seconds
        return lifetime is None or now is None or then is None or now - then <= lifetime

    def _store(self, digest: bytes, seconds: float | None) -> None:
        self._written[digest] = seconds
        self._written.move_to_end(digest)
        if len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)


def replay_requests(requests: Iterable[Logged | Sequence[int]], provider: str | Rules = "local") -> Replayed:
    """Replay requests, in their order, from an empty cache. A bare list of token ids is a request at no known time.

    Raises: InputError for an empty request, or no request at all, by its number, counted from 1; UnknownName for the provider.
    """
    rules = provider if isinstance(provider, Rules) else rules_of(provider)
    made = Replayed(rules)
    tree, points = PrefixTree(rules.lifetime_seconds, rules.renewed), Breakpoints(rules)
    for number, one in enumerate(requests, start=1):
        request = one if isinstance(one, Logged) else Logged(one)
        ids = _ids(request.tokens, number)
        n, text, written = len(ids), as_text(ids), 0
        if rules.matching == "breakpoints":
            found, written = points.ask(_blocks(request, text, number), request.seconds)
            cached = min(found, n - 1)  # of a prompt that is stored whole, too, the last token is computed
        else:
            cached = rules.reusable(min(tree.insert(text, number, request.seconds).alive, n - 1))
        made.counts.append(UsageCounts(n, cached, written_tokens=written))
    if not made.counts:
        raise InputError("There is nothing to replay.", expected="one request or more", got="none", todo="Read a log first.")
    return made


def _ids(tokens: Iterable[int], number: int) -> list[int]:
    """A request's ids as ints, whatever kind of integers they came as."""
    given: list[object] = list(tokens) if isinstance(tokens, Iterable) else [tokens]
    ids = [_as_id(one) for one in given] if isinstance(tokens, Iterable) else [None]
    if not ids or None in ids:
        got = f"{given[ids.index(None)]!r:.80}" if ids else "none"
        raise InputError(f"Request {number} holds no token ids.", expected=f"whole numbers from 0 to {_LARGEST_ID:,}", got=got,
                         todo="Encode it with a tokenizer first.")  # fmt: skip
    return [one for one in ids if one is not None]


def _as_id(one: Any) -> int | None:
    """None if it is no id."""
    try:
        number = operator.index(one)
    except (TypeError, ValueError, RuntimeError):
        return None
    return number if 0 <= number <= _LARGEST_ID and not isinstance(one, bool) else None


def _blocks(request: Logged, text: str, number: int) -> list[Block]:
    ends = request.ends or (len(text),)
    marks = request.marks if request.ends else (len(text),)
    if list(ends) != sorted({*ends}) or not set(marks) <= set(ends) or ends[0] < 1 or ends[-1] > len(text):
        expected = f"ascending ends up to {len(text)}, marks among them"
        raise InputError(f"Request {number}: the blocks do not fit.", expected=expected,
                         got=f"ends {ends}, marks {marks}", todo="Count tokens from the start of the request.")  # fmt: skip
    return [Block(text[a:b], b, b in marks) for a, b in zip((0, *ends), ends, strict=False)]


def _digests(blocks: Sequence[Block]) -> list[bytes]:
    """A name for everything up to the end of each block. The border counts: cut otherwise, it is another block."""
    running, names = blake2b(digest_size=16), []
    for block in blocks:
        data = block.text.encode("utf-8", "surrogatepass")
        running.update(len(data).to_bytes(8, "little") + data)
        names.append(running.digest())
    return names
