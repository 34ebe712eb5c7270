"""Lesson 13: what is said about a log. Knows nothing about how it was found out."""

from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from kvcourse.causes import Cause
from kvcourse.prompts.counting import CHARACTERS
from kvcourse.prompts.families import Loss
from kvcourse.prompts.groups import CUTS_AT_ONCE, LISTED, Difference, Group, Groups, plural
from kvcourse.prompts.judge import Finding
from kvcourse.prompts.logs import BadLine, Entry
from kvcourse.prompts.mending import Count
from kvcourse.prompts.places import Place
from kvcourse.prompts.report import in_words, shown
from kvcourse.providers.rules import Rules
from kvcourse.providers.usage import UsageCounts

__all__ = ["CUTS_AT_ONCE", "Difference", "Group", "Report", "RequestCount", "plural"]

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


class Report:
    """A log's families, what they lost, and what could not be read. `print` shows it; `as_record()` is for JSON.

    each: whether every request's own figures are kept, for `counts`: 40 bytes each.
    """

    def __init__(self, rules: Rules, unit: str, base_price: float | None, each: bool = True) -> None:
        self.rules, self.unit, self.base_price, self.each = rules, unit, base_price, each
        self.skipped: list[BadLine] = []
        self.requests = self.skipped_lines = self.below_minimum = self.timed = self.unread_usage = 0
        self.repeats = 0  # requests that lost nothing, and say again what was said behind something else
        self.forgotten = False
        self.reported = UsageCounts(0, 0)  # the sums of what the log's own usage says
        self.reported_requests = 0
        self._groups = Groups()
        self._counts = array("Q")

    # Filling.

    def add(self, entry: Entry, family: int, count: Count, loss: Loss | None, mended: Count, fewer_cuts: Count) -> None:
        """One request more: as it is, mended, and with fewer cuts."""
        group = self._groups.of(family, entry.line)
        costs = [self.cost_of(one) for one in (count, mended, fewer_cuts)]
        self.requests += 1
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
        if self.each:
            lost = max(0, count.computed - mended.computed)
            self._counts.extend((entry.line, count.prompt, count.cached, lost, family))
        if loss is not None:
            group.fault(loss.verdict.findings[0].cause.kind).characters += loss.gained
            for n, finding in enumerate(loss.verdict.findings):
                fault = group.fault(finding.cause.kind)
                fault.places.add(_place(finding, entry))
                if n == 0 and fault.first is None:
                    fault.first = difference_of(finding, entry, loss.earlier)

    def amend(self, family: int, place: Place, cause: Cause) -> None:
        """What requests were found to have lost when the whole log was read, where it is enough to be worth a word."""
        group = self._groups.find(family)
        if group is None or not place.is_worth_it(CHARACTERS * group.prompt_tokens):
            return
        group.mended_cached_tokens += place.cached
        group.cost_lost += place.cost
        fault = group.fault(cause.kind)
        fault.characters += place.characters
        fault.places.add("system")
        fault.first = fault.first or replace(place.first, why=cause.why)
        for request, lost in zip(place.lost[::2], place.lost[1::2], strict=True):
            self._counts[5 * request + 3] = lost

    def cost_of(self, count: Count) -> float:
        """In base-price tokens."""
        return self.rules.input_cost(count.prompt, count.cached, count.written)

    def make_room(self, oldest: int) -> None:
        """While a log is read: hold no more than is needed. oldest: the first line whose request others may still join."""
        self._groups.make_room(oldest)

    def settle(self) -> None:
        """When a log is read: count together the families that are too many to be told one by one."""
        self._groups.settle()

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
    def nothing_to_mend(self) -> str:
        """What is said where no fault was found, and no more than is known."""
        if not self.repeats:
            return "Nothing to mend: every request shares what it can."
        say = "requests say" if self.repeats > 1 else "request says"
        return (f"Nothing to mend was found. {self.repeats:,} {say} again what was said before, and cannot share it: what "
                "stands in front of it is another text, and looks meant.")  # fmt: skip

    @property
    def counts(self) -> list[RequestCount]:
        """Every request, in the log's order."""
        return [RequestCount(*self._counts[n : n + 5]) for n in range(0, len(self._counts), 5)]

    @property
    def groups(self) -> list[Group]:
        """Families, what lost most first; behind them, where there are many, those that are counted together."""
        return self._groups.ranked()

    @property
    def faults(self) -> list[Group]:
        """Those in which something is wrong."""
        return [group for group in self.groups if group.cause != "none"]

    def total(self, name: str) -> Any:
        """A figure of all families together: prompt_tokens, cached_tokens, tokens_lost, cost or cost_lost."""
        return sum(getattr(group, name) for group in self._groups)

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
        together = [group for group in self._groups if group.families > 1]
        if together:
            n = sum(group.families for group in together)
            notes.append(f"{n:,} of {len(self._groups):,} groups are counted together, with those of the same cause: "
                         f"the {LISTED:,} that lost most are listed.")  # fmt: skip
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
            yield self.nothing_to_mend
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
    several = f" in {group.families:,} groups of this cause, the first" if group.families > 1 else ""
    rows = [("group", f"{group.requests:,} {said}{several} from line {group.first_line}, {group.prompt_tokens:,} tokens: "
             f"{group.cached_tokens:,} cached, {group.tokens_lost:,} lost"),
            ("cause", f"{in_words(group.cause)}: {first.why}"),
            ("where", f"line {first.request} against line {first.against}, {place}, character {first.character}"
             + (f", after {shown(first.before, from_end=True)}" if first.before else "")),
            ("  earlier", shown(first.theirs)), ("  here", shown(first.ours))]  # fmt: skip
    rows += [("change" if not n else "", advice) for n, advice in enumerate(suggestion.changes)]
    rows += [("price", group.price_note)] if group.price_note else []
    rows += [("layout" if not n else "", line) for n, line in enumerate(str(suggestion).split("\n"))]
    yield from (f"{name:<10} {text}" for name, text in rows)


def difference_of(finding: Finding, entry: Entry, earlier: int) -> Difference:
    """A finding as a report tells it."""
    cause, message = finding.cause, finding.message
    return Difference(entry.line, earlier, entry.place(message), finding.character, finding.before, finding.ours,
                      finding.theirs, cause.why)  # fmt: skip


def _place(finding: Finding, entry: Entry) -> str:
    if finding.message == "tools":
        return "tools"
    systems = max(1, len(entry.body.system)) if finding.cause.kind != "history" else len(entry.body.system)
    return "system" if isinstance(finding.message, int) and finding.message < systems and entry.body.system else "conversation"
