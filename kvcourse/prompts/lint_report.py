"""Lesson 13: what is said about a log. Knows nothing about how it was found out."""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvcourse.prompts.families import Loss
from kvcourse.prompts.judge import Finding
from kvcourse.prompts.logs import BadLine, Entry
from kvcourse.prompts.mending import Count
from kvcourse.prompts.report import in_words, shown
from kvcourse.prompts.suggestion import Suggestion, suggest
from kvcourse.providers.rules import Rules
from kvcourse.providers.usage import UsageCounts

CUTS_AT_ONCE = 4  # of a history that is cut each time: priced beside keeping everything
_NAMED = 1_000  # lines that are remembered with what is wrong with them; of more, only the number


class RequestCount(NamedTuple):
    """One request, in tokens. cached: as the rules allow. group: its family's number.

    tokens_lost: computed, and not once all is mended; 0 where that computes no less. So where prompts grow, and only whole
    steps are found, these may be a few more together than their group's figure, in which gains and losses are set off.
    """

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
    """A family of requests: those that share a start, or would. mended_: as they would be, which may be longer."""

    number: int
    first_line: int
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    mended_prompt_tokens: int = 0
    mended_cached_tokens: int = 0
    cost: float = 0.0  # in base-price tokens, as are all costs
    cost_lost: float = 0.0  # below 0: mended, it costs more
    cost_fewer_cuts: float = 0.0  # if a history that is cut were cut CUTS_AT_ONCE at once
    has_tools: bool = False
    characters_lost: Counter[str] = field(default_factory=Counter)  # by cause: also where prompts are too short to be cached
    first: dict[str, Difference] = field(default_factory=dict)
    places: dict[str, set[str]] = field(default_factory=dict)  # of each cause: tools, system, conversation

    @property
    def cause(self) -> str:
        """What cost most; "none" where nothing is wrong."""
        return max(self.characters_lost, key=lambda one: self.characters_lost[one], default="none")

    @property
    def tokens_lost(self) -> int:
        """Computed, and not once all is mended; 0 where that computes no less."""
        return max(0, self.tokens_fewer)

    @property
    def tokens_fewer(self) -> int:
        """How many fewer are computed once all is mended; below 0: more are, since prompts are longer then."""
        now, mended = self.prompt_tokens - self.cached_tokens, self.mended_prompt_tokens - self.mended_cached_tokens
        return now - mended

    @property
    def price_note(self) -> str | None:
        """What is to be known before it is mended, where the longer prompts cost more than they save."""
        if round(self.cost_lost) >= 0:
            return None
        fewer, found = abs(self.tokens_fewer), self.mended_cached_tokens - self.cached_tokens
        what = "Keeping everything" if self.cause == "history" else "Mended, the log"
        why = f"{found:,} more are read from the cache" if found > 0 else "prompts are longer, and no more of them is found"
        said = (f"{what} would compute {fewer:,} {plural('token', fewer)} {'fewer' if self.tokens_fewer >= 0 else 'more'}, "
                f"and cost {-self.cost_lost:,.0f} more at the base price: {why}.")  # fmt: skip
        if set(self.places) != {"history"}:
            return said
        saved = self.cost - self.cost_fewer_cuts
        return (f"{said} Cut at fixed points, several turns at once: between two cuts nothing is lost. {CUTS_AT_ONCE} cuts in "
                f"one would cost {abs(saved):,.0f} {'less' if saved >= 0 else 'more'} than now.")  # fmt: skip

    @property
    def first_difference(self) -> Difference | None:
        return self.first.get(self.cause)

    @property
    def suggestion(self) -> Suggestion | None:
        if self.cause == "none":
            return None
        order = sorted(self.places, key=lambda one: -self.characters_lost[one])
        now, then = self.cached_tokens / self.prompt_tokens, self.mended_cached_tokens / self.mended_prompt_tokens
        return suggest({cause: self.places[cause] for cause in order}, self.has_tools, now, then)

    def as_record(self) -> dict[str, Any]:
        difference, suggestion = self.first_difference, self.suggestion
        return {
            "requests": self.requests, "first_request": self.first_line, "cause": self.cause,
            "first_difference": difference.as_record() if difference else None,
            "tokens_lost": self.tokens_lost, "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
            "cost": round(self.cost, 3), "cost_lost": round(self.cost_lost, 3),
            "mended_prompt_tokens": self.mended_prompt_tokens, "mended_cached_tokens": self.mended_cached_tokens,
            "price_note": self.price_note,
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

    def add(self, entry: Entry, family: int, count: Count, loss: Loss | None, mended: Count, fewer_cuts: Count) -> None:
        """One request more: as it is, mended, and with fewer cuts."""
        group = self._groups.setdefault(family, Group(family, entry.line))
        costs = [self.rules.input_cost(one.prompt, one.cached, one.written) for one in (count, mended, fewer_cuts)]
        group.requests += 1
        group.prompt_tokens += count.prompt
        group.cached_tokens += count.cached
        group.mended_prompt_tokens += mended.prompt
        group.mended_cached_tokens += mended.cached
        group.cost += costs[0]
        group.cost_lost += costs[0] - costs[1]
        group.cost_fewer_cuts += costs[2]
        group.has_tools |= bool(entry.body.tools)
        self.timed += entry.seconds is not None
        self.below_minimum += count.prompt < self.rules.minimum_tokens
        self._counts.extend((entry.line, count.prompt, count.cached, max(0, count.computed - mended.computed), family))
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
            are = "prompts are" if self.requests > 1 else "prompt is"
            notes.append(f"{self.below_minimum:,} of {self.requests:,} {are} shorter than the {rules.minimum_tokens:,} "
                         f"tokens that {rules.name} caches at least.")  # fmt: skip
        if rules.lifetime_seconds and self.timed < self.requests:
            untimed = self.requests - self.timed
            which = "1 request has no time: for it" if untimed == 1 else f"{untimed:,} requests have no time: for them"
            notes.append(f"{which} nothing expires, though "
                         f"{rules.name} keeps a prefix for {rules.lifetime_seconds:,} s.")  # fmt: skip
        if self.forgotten:
            notes.append("The log is larger than what is remembered of it: requests far apart were not compared.")
        if self.unread_usage:
            what = "1 usage object is" if self.unread_usage == 1 else f"{self.unread_usage:,} usage objects are"
            notes.append(f"{what} not {rules.name}'s, and not read.")
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
        yield (f"{self.requests:,} {plural('request', self.requests)} in {len(self._groups):,} "
               f"{plural('group', len(self._groups))}, {prompt:,} {self.unit}")  # fmt: skip
        yield f"{self.rules.title}, as of {self.rules.as_of}"
        yield f"{cached:,} cached ({cached / prompt:.1%}), {lost:,} lost{self._money()}"
        if self.reported_requests:
            told = self.reported
            said = plural("request", self.reported_requests)
            yield (f"the log's own usage, {self.reported_requests:,} {said}: {told.cached_tokens:,} of "
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
        if not round(lost, 6):
            return ""
        said = ", worth {:,.0f} tokens at the base price" if lost > 0 else "; all mended, {:,.0f} more at the base price"
        return said.format(abs(lost)) + (f" = {abs(money):,.4g}" if money is not None else "")


def _of_group(group: Group) -> Iterator[str]:
    first, suggestion = group.first_difference, group.suggestion
    assert first is not None and suggestion is not None
    place = first.message if isinstance(first.message, str) else f"message {first.message}"
    said = plural("request", group.requests)
    rows = [("group", f"{group.requests:,} {said} from line {group.first_line}, {group.prompt_tokens:,} tokens: "
             f"{group.cached_tokens:,} cached, {group.tokens_lost:,} lost"),
            ("cause", f"{in_words(group.cause)}: {first.why}"),
            ("where", f"line {first.request} against line {first.against}, {place}, character {first.character}"
             + (f", after {shown(first.before, from_end=True)}" if first.before else "")),
            ("  earlier", shown(first.theirs)), ("  here", shown(first.ours))]  # fmt: skip
    rows += [("change" if not n else "", advice) for n, advice in enumerate(suggestion.changes)]
    rows += [("price", group.price_note)] if group.price_note else []
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


def plural(word: str, n: int) -> str:
    """The word, as it is said of so many."""
    return word if n == 1 else f"{word}s"
