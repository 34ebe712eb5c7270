"""Lesson 13: what is said about a log. Knows nothing about how it was found out."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvcourse.prompts.counting import Count
from kvcourse.prompts.families import Loss
from kvcourse.prompts.judge import Finding
from kvcourse.prompts.logs import BadLine, Entry
from kvcourse.prompts.report import in_words, shown
from kvcourse.prompts.suggestion import Suggestion, suggest
from kvcourse.providers.rules import Rules
from kvcourse.providers.usage import UsageCounts

_NAMED = 1_000  # lines that are remembered with what is wrong with them; of more, only the number


class RequestCount(NamedTuple):
    """One request, in tokens. cached: as the rules allow. lost: what would have been, too. group: its family's number."""

    line: int
    prompt_tokens: int
    cached_tokens: int
    tokens_lost: int
    group: int


@dataclass(frozen=True)
class Difference:
    """Where two requests part. request, against: lines. message: its number; "system" or "tools" for a field of its own."""

    request: int
    against: int
    message: int | str
    character: int
    before: str
    ours: str
    theirs: str
    why: str

    def as_record(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass
class Group:
    """A family of requests: those that share a start, or would."""

    number: int
    first_line: int
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens_lost: int = 0
    cost: float = 0.0  # in base-price tokens, as is cost_lost
    cost_lost: float = 0.0
    has_tools: bool = False
    characters_lost: Counter[str] = field(default_factory=Counter)  # by cause: also where prompts are too short to be cached
    first: dict[str, Difference] = field(default_factory=dict)
    places: dict[str, set[str]] = field(default_factory=dict)  # of each cause: tools, system, conversation

    @property
    def cause(self) -> str:
        """What cost most; "none" where nothing is wrong."""
        return max(self.characters_lost, key=lambda one: self.characters_lost[one], default="none")

    @property
    def first_difference(self) -> Difference | None:
        return self.first.get(self.cause)

    @property
    def suggestion(self) -> Suggestion | None:
        if self.cause == "none":
            return None
        order = sorted(self.places, key=lambda one: -self.characters_lost[one])
        now, then = (tokens / self.prompt_tokens for tokens in (self.cached_tokens, self.cached_tokens + self.tokens_lost))
        return suggest({cause: self.places[cause] for cause in order}, self.has_tools, now, then)

    def as_record(self) -> dict[str, Any]:
        difference, suggestion = self.first_difference, self.suggestion
        return {
            "requests": self.requests, "first_request": self.first_line, "cause": self.cause,
            "first_difference": difference.as_record() if difference else None,
            "tokens_lost": self.tokens_lost, "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
            "cost": round(self.cost, 3), "cost_lost": round(self.cost_lost, 3),
            "suggestion": suggestion.as_record() if suggestion else None,
        }  # fmt: skip


class Report:
    """A log's families, what they lost, and what could not be read. `print` shows it; `as_record()` is for JSON."""

    def __init__(self, rules: Rules, unit: str, base_price: float | None) -> None:
        self.rules, self.unit, self.base_price = rules, unit, base_price
        self.skipped: list[BadLine] = []
        self.skipped_lines = self.below_minimum = self.timed = self.unread_usage = 0
        self.forgotten = False
        self.reported = UsageCounts(0, 0)  # the sums of what the log's own usage says
        self.reported_requests = 0
        self._groups: dict[int, Group] = {}
        self._counts = array("Q")

    # Filling.

    def add(self, entry: Entry, family: int, count: Count, loss: Loss | None, lost: int) -> None:
        """One request more."""
        group = self._groups.setdefault(family, Group(family, entry.line))
        after = count.cached + lost
        cost = self.rules.input_cost(count.prompt, count.cached, count.written)
        written = min(max(0, count.written - lost), count.prompt - after)
        group.requests += 1
        group.prompt_tokens += count.prompt
        group.cached_tokens += count.cached
        group.tokens_lost += lost
        group.cost += cost
        group.cost_lost += cost - self.rules.input_cost(count.prompt, after, written)
        group.has_tools |= bool(entry.body.tools)
        self.timed += entry.seconds is not None
        self.below_minimum += count.prompt < self.rules.minimum_tokens
        self._counts.extend((entry.line, count.prompt, count.cached, lost, family))
        if loss is not None:
            group.characters_lost[loss.verdict.findings[0].cause.kind] += loss.gained
            for n, finding in enumerate(loss.verdict.findings):
                kind = finding.cause.kind
                group.places.setdefault(kind, set()).add(_place(finding, entry))
                if n == 0 and kind not in group.first:
                    group.first[kind] = _difference(finding, entry, loss.earlier)

    def skip(self, fault: BadLine) -> None:
        self.skipped_lines += 1
        if len(self.skipped) < _NAMED:
            self.skipped.append(fault)

    def measured(self, one: UsageCounts) -> None:
        """What the log itself says was cached."""
        now = self.reported
        self.reported_requests += 1
        self.reported = UsageCounts(now.prompt_tokens + one.prompt_tokens, now.cached_tokens + one.cached_tokens)

    # Reading.

    @property
    def requests(self) -> int:
        return len(self._counts) // 5

    @property
    def counts(self) -> list[RequestCount]:
        """Every request, in the log's order."""
        return [RequestCount(*self._counts[n : n + 5]) for n in range(0, len(self._counts), 5)]

    @property
    def groups(self) -> list[Group]:
        """Families, what lost most first."""
        lost = {
            number: (-one.tokens_lost, -one.characters_lost.total(), one.first_line) for number, one in self._groups.items()
        }
        return sorted(self._groups.values(), key=lambda one: lost[one.number])

    @property
    def faults(self) -> list[Group]:
        """Those in which something is wrong."""
        return [group for group in self.groups if group.cause != "none"]

    def total(self, name: str) -> Any:
        """A figure of all families together: prompt_tokens, cached_tokens, tokens_lost, cost or cost_lost."""
        return sum(getattr(group, name) for group in self._groups.values())

    def money(self, base_price_tokens: float) -> float | None:
        return None if self.base_price is None else base_price_tokens * self.base_price / 1e6

    @property
    def notes(self) -> list[str]:
        """What has to be known to read the figures."""
        rules = self.rules
        notes = []
        if self.requests == 1:
            notes.append("One request: there is nothing to compare it with.")
        if self.below_minimum:
            notes.append(f"{self.below_minimum:,} of {self.requests:,} prompts are shorter than the {rules.minimum_tokens:,} "
                         f"tokens that {rules.name} caches at least.")  # fmt: skip
        if rules.lifetime_seconds and self.timed < self.requests:
            notes.append(f"{self.requests - self.timed:,} requests have no time: for them nothing expires, though "
                         f"{rules.name} keeps a prefix for {rules.lifetime_seconds:,} s.")  # fmt: skip
        if self.forgotten:
            notes.append("The log is larger than what is remembered of it: requests far apart were not compared.")
        if self.unread_usage:
            notes.append(f"{self.unread_usage:,} usage objects are not {rules.name}'s, and were not read.")
        return notes

    def as_record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("prompt_tokens", "cached_tokens", "tokens_lost")
        reported = None
        if self.reported_requests:
            reported = {"requests": self.reported_requests, "prompt_tokens": self.reported.prompt_tokens,
                        "cached_tokens": self.reported.cached_tokens}  # fmt: skip
        return {
            "provider": self.rules.name, "as_of": self.rules.as_of.isoformat(), "unit": self.unit, "requests": self.requests,
            **{name: self.total(name) for name in names},
            "cost": round(self.total("cost"), 3), "cost_lost": round(self.total("cost_lost"), 3),
            "money": self.money(self.total("cost")), "money_lost": self.money(self.total("cost_lost")),
            "reported_usage": reported, "skipped": self.skipped_lines,
            "skipped_lines": [{"line": one.line, "reason": one.reason} for one in self.skipped], "notes": self.notes,
            "groups": [group.as_record() for group in self.groups],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        prompt, cached, lost = (self.total(name) for name in ("prompt_tokens", "cached_tokens", "tokens_lost"))
        faults = self.faults
        yield (f"{self.requests:,} {_plural('request', self.requests)} in {len(self._groups):,} "
               f"{_plural('group', len(self._groups))}, {prompt:,} {self.unit}")  # fmt: skip
        found = f"{cached:,} cached ({cached / prompt:.1%}), {lost:,} lost{self._money()}"
        yield f"{self.rules.title}, as of {self.rules.as_of}: {found}"
        if self.reported_requests:
            told = self.reported
            yield (f"the log's own usage, {self.reported_requests:,} requests: {told.cached_tokens:,} of "
                   f"{told.prompt_tokens:,} prompt tokens cached")  # fmt: skip
        for group in faults:
            yield ""
            yield from _of_group(group)
        if not faults:
            yield "Nothing to mend: every request shares what it can."
        for note in self.notes:
            yield f"Note: {note}"

    def _money(self) -> str:
        lost, money = self.total("cost_lost"), self.money(self.total("cost_lost"))
        said = f", worth {lost:,.0f} tokens at the base price" if lost else ""
        return said + (f" = {money:,.4g}" if money is not None and lost else "")


def _of_group(group: Group) -> Iterator[str]:
    first, suggestion = group.first_difference, group.suggestion
    assert first is not None and suggestion is not None
    place = first.message if isinstance(first.message, str) else f"message {first.message}"
    rows = [("group", f"{group.requests:,} requests from line {group.first_line}, {group.prompt_tokens:,} tokens: "
             f"{group.cached_tokens:,} cached, {group.tokens_lost:,} lost"),
            ("cause", f"{in_words(group.cause)}: {first.why}"),
            ("where", f"line {first.request} against line {first.against}, {place}, character {first.character}"
             + (f", after {shown(first.before, from_end=True)}" if first.before else "")),
            ("  earlier", shown(first.theirs)), ("  here", shown(first.ours))]  # fmt: skip
    rows += [("change" if not n else "", advice) for n, advice in enumerate(suggestion.changes)]
    layout, rates = str(suggestion).split("\n")
    rows += [("layout", layout), ("", rates)]
    yield from (f"{name:<10} {text}" for name, text in rows)


def _difference(finding: Finding, entry: Entry, earlier: int) -> Difference:
    cause, message = finding.cause, finding.message
    return Difference(entry.line, earlier, entry.place(message), finding.character, finding.before, finding.ours,
                      finding.theirs, cause.why)  # fmt: skip


def _place(finding: Finding, entry: Entry) -> str:
    if finding.message == "tools":
        return "tools"
    systems = max(1, len(entry.body.system)) if finding.cause.kind != "history" else len(entry.body.system)
    return "system" if isinstance(finding.message, int) and finding.message < systems and entry.body.system else "conversation"


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"
