"""Lesson 14: a proof, what came of it, and all of them in one table. Knows nothing about what is proved.

A table names no times: counts are the same on every machine, and so is the table.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvcourse.certificate.bed import Bed
from kvcourse.certificate.bench import Bench, Failure

Run = Callable[[Bed, Bench], None]
_SHOWN = 3  # failures of a proof that the table tells
_LINE = 104  # characters that a page of JupyterLab shows without breaking a line
_COUNTS = {"cases": "cases", "compared": "comparisons", "numbers": "numbers"}  # a column's title: a result's field


@dataclass(frozen=True)
class Proof:
    """A claim, by name. own: the field of a Bed of which it asks, where it can be asked of anybody's cache."""

    name: str
    lesson: int
    run: Run
    own: str | None = None


class Book(list[Proof]):
    """Proofs, entered by decorating their functions. The claim is the title, or the function's name where that can say it."""

    def __call__(self, lesson: int, title: str | None = None, *, own: str | None = None) -> Callable[[Run], Run]:
        def enter(run: Run) -> Run:
            self.append(Proof(title or run.__name__.replace("_", " "), lesson, run, own))
            return run

        return enter


@dataclass(frozen=True)
class Result:
    """What came of a proof. failures: of which cases, and what differed."""

    name: str
    lesson: int
    cases: int
    comparisons: int
    numbers: int
    failures: tuple[Failure, ...] = ()
    not_claimed: tuple[Failure, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def verdict(self) -> str:
        if self.failures:
            return "FAILS"
        return "holds" if self.comparisons else "not claimed"

    def as_record(self) -> dict[str, Any]:
        failures = [failure._asdict() for failure in self.failures]
        not_claimed = [f"{case}: {why}" for case, why in self.not_claimed]
        return {**self.__dict__, "failures": failures, "not_claimed": not_claimed, "verdict": self.verdict}


@dataclass(frozen=True)
class Certificate:
    """Every result, in the order of the lessons. `print` shows the table."""

    results: tuple[Result, ...]
    seconds: float = field(default=0.0, compare=False)
    of_yours: bool = False  # somebody's own cache: then what was not asked of it is told, and why

    @property
    def ok(self) -> bool:
        """All of them hold, and something was compared."""
        return all(result.ok for result in self.results) and self.comparisons > 0

    @property
    def failed(self) -> list[Result]:
        return [result for result in self.results if not result.ok]

    @property
    def comparisons(self) -> int:
        return sum(result.comparisons for result in self.results)

    @property
    def numbers(self) -> int:
        return sum(result.numbers for result in self.results)

    def __getitem__(self, name: str) -> Result:
        """The result of the proof of that name."""
        return next(result for result in self.results if result.name == name)

    @property
    def summary(self) -> str:
        held = sum(result.verdict == "holds" for result in self.results)
        rest = len(self.results) - held - len(self.failed)
        parts = [f"{held} of {len(self.results)} proofs hold"] + ([f"{len(self.failed)} fail"] if self.failed else [])
        parts += [f"{rest} not claimed"] if rest else []
        return f"{', '.join(parts)}; {self.comparisons:,} comparisons of {self.numbers:,} numbers"

    def __str__(self) -> str:
        name = max((len(result.name) for result in self.results), default=5)
        cases, compared, numbers = (self._width(title) for title in _COUNTS)
        lines = [f"{'lesson, proof':{name + 4}}  {'cases':>{cases}}  {'compared':>{compared}}  {'numbers':>{numbers}}"]
        for one in self.results:
            counts = f"{one.cases:{cases},}  {one.comparisons:{compared},}  {one.numbers:{numbers},}"
            lines.append(f"{one.lesson:2}  {one.name:{name}}  {counts}  {one.verdict}")
            for failure in one.failures[:_SHOWN]:
                lines += _indented(f"{failure.case}: {failure.why}")
            if len(one.failures) > _SHOWN:
                lines += _indented(f"and {len(one.failures) - _SHOWN} more of {one.cases} cases")
        return "\n".join([*lines, *self._notes(), "", self.summary])

    def _notes(self) -> list[str]:
        """What was not asked, by reason."""
        reasons: dict[str, dict[str, set[str]]] = {}  # why: of which cache: in which proofs
        for result in self.results if self.of_yours else ():
            for case, why in result.not_claimed:
                told = reasons.setdefault(why, {"cases": set(), "proofs": set()})
                told["cases"].add(", ".join(case.split(", ")[:2]))
                told["proofs"].add(result.name)
        lines = [""] if reasons else []
        for why, told in reasons.items():
            proofs = f"{len(told['proofs'])} proof{'s' * (len(told['proofs']) > 1)}"
            lines += _indented(f"not asked of {'; '.join(sorted(told['cases']))}, in {proofs}: {why}")
        if self.results and not self.comparisons:
            lines += ["", "Nothing was compared, so nothing is proved."]
        return lines

    def _width(self, title: str) -> int:
        """Of a column of counts."""
        return max([len(title), *(len(f"{getattr(result, _COUNTS[title]):,}") for result in self.results)])

    def as_record(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "ok": self.ok, "proofs": len(self.results), "comparisons": self.comparisons, "numbers": self.numbers,
            "seconds": round(self.seconds, 2), "results": [result.as_record() for result in self.results],
        }  # fmt: skip


def _indented(told: str) -> list[str]:
    """Under a proof, broken between words."""
    return textwrap.wrap(
        told, _LINE, initial_indent=" " * 6, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )
