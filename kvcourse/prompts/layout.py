"""Lesson 13: what a log of requests pays for its layout. Knows nothing about how a difference is named (`judge`) or shown.

    report = lint_requests(requests, provider="anthropic")
    print(report)

Requests fall into families that share a start, or would, were it not for a fault. For each family: the first text that keeps
requests apart, its cause, the tokens that were computed again because of it, and a layout that would have shared them.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvcourse.errors import InputError, KVCourseError, TokenizerError
from kvcourse.prompts.counting import Counter
from kvcourse.prompts.families import Families, Loss, Text
from kvcourse.prompts.lint_report import CUTS_AT_ONCE, Report, difference_of, plural
from kvcourse.prompts.logs import BadLine, Entry, entries_of, read_log
from kvcourse.prompts.mending import Count, MendedLog
from kvcourse.prompts.places import Places
from kvcourse.providers.rules import Rules, rules_of
from kvcourse.providers.usage import usage_of
from kvcourse.tokenizer_base import Tokenizer

DEAREST = 1e12  # so that no sum is more than a number holds

__all__ = ["Linter", "Report", "lint_log", "lint_requests"]


def lint_requests(
    requests: Iterable[Any],
    tokenizer: Tokenizer | None = None,
    provider: str | Rules = "local",
    *,
    base_price: float | None = None,
    strict: bool = False,
) -> Report:
    """What keeps these requests from sharing, and what it costs.

    requests: bodies as parsed from JSON, or as text, in the order in which they were sent; what a line of a log may be
        (`logs`). tokenizer: whose template and tokens; None: characters / 4. provider: whose rules (`kvcourse.providers`).
    base_price: of a million input tokens, in any currency; None: no money, tokens only.
    strict: the first request that cannot be read raises; otherwise such are counted, and named in `report.skipped`.
    Raises: UnknownName for the provider; InputError where no request could be read.
    """
    return _linted(entries_of(requests), Linter(tokenizer, provider, base_price), strict)


def lint_log(
    path: str | Path,
    tokenizer: Tokenizer | None = None,
    provider: str | Rules = "local",
    *,
    base_price: float | None = None,
    strict: bool = False,
) -> Report:
    """The same for a file of JSON lines, read one at a time. Raises: InputError if it cannot be read."""
    return _linted(read_log(Path(path)), Linter(tokenizer, provider, base_price), strict)


def _linted(entries: Iterable[Entry | BadLine], linter: "Linter", strict: bool) -> Report:
    for entry in entries:
        linter.add(entry, strict)
    return linter.report()


class Linter:
    """Takes a log line by line; holds a bounded part of it.

    each: whether the report has every request's own figures (`counts`), which take 40 bytes each.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        provider: str | Rules = "local",
        base_price: float | None = None,
        each: bool = True,
    ) -> None:
        if base_price is not None and not 0 <= base_price <= DEAREST:
            raise InputError("That is no price.", expected=f"money for a million input tokens, 0 to {DEAREST:,.0f}",
                             got=base_price, todo="Leave it out for tokens only.")  # fmt: skip
        self.rules = provider if isinstance(provider, Rules) else rules_of(provider)
        self._families = Families(self.rules.lifetime_seconds, self.rules.renewed)
        self._counter = Counter(self.rules, tokenizer)
        self._mended = MendedLog(self.rules), MendedLog(self.rules, CUTS_AT_ONCE)
        self._places = Places()
        self._report = Report(self.rules, self._counter.measure.unit, base_price, each)

    def add(self, entry: Entry | BadLine, strict: bool = False) -> None:
        """Count and judge one request, or the fault in its place. Raises: BadLine, where `strict`."""
        try:
            if isinstance(entry, BadLine):
                raise entry
            self._add(entry)
        except BadLine as fault:
            if strict:
                raise
            self._report.skip(fault)

    def report(self) -> Report:
        """All that was found. Raises: InputError where no request could be read."""
        if not self._report.requests:
            n = self._report.skipped_lines
            got = f"{n:,} {plural('line', n)} without one" if n else "nothing"
            todo = f"The first: {self._report.skipped[0].reason}" if self._report.skipped else "Give it a log."
            raise InputError("There is no request in this log.", expected="one request body a line", got=got, todo=todo)
        self._report.forgotten, self._report.repeats = self._families.forgotten, self._families.repeats
        for family, place, cause in self._places.named():
            self._report.amend(family, place, cause)
        self._places = Places()
        self._report.settle()
        return self._report

    def _hold(self, entry: Entry, family: int, text: Text, loss: Loss, count: Count, mended: Count) -> None:
        """Remember what was lost to a short text, until it is known whether that is a fault."""
        place = self._places.of(family, loss, lambda finding: difference_of(finding, entry, loss.earlier))
        if place is None or mended.prompt != count.prompt:
            return
        then = self._mended[0].alone(count, self._counter.sharing(count, text, loss, lambda: self._families.body(loss.earlier)))
        place.characters += loss.gained
        place.cached += then.cached - mended.cached
        place.cost += self._report.cost_of(mended) - self._report.cost_of(then)
        if self._report.each:
            place.lost.extend((self._report.requests - 1, max(0, count.computed - then.computed)))

    def _add(self, entry: Entry) -> None:
        try:
            self._counter.require_countable(entry)
        except (InputError, TokenizerError) as error:
            raise BadLine(entry.line, error.fault, error.expected, error.got) from error
        text = Text.of(entry.body)
        found, family, loss = self._families.add(text, entry.line, entry.seconds, entry.model)
        count = self._counter.count(entry, text, found)
        sharing = None
        if loss is not None:
            sharing = self._counter.sharing(count, text, loss, lambda: self._families.body(loss.earlier))
        mended, fewer_cuts = (log.count(entry.line, count, text, found, loss, sharing) for log in self._mended)
        self._report.add(entry, family, count, loss, mended, fewer_cuts)
        if self._families.varied is not None:
            self._hold(entry, family, text, self._families.varied, count, mended)
        self._places.saw(family, text)
        self._report.make_room(self._families.oldest)
        if entry.usage is not None:
            try:
                self._report.measured(usage_of(self.rules, entry.usage))
            except KVCourseError:
                self._report.unread_usage += 1
