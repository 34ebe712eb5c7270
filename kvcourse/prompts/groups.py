"""Lesson 13: what was found in each family of requests, in a bounded number of groups. Knows nothing about how it was found.

Most logs have few families. One with a hundred thousand, each a single question, is told in few words all the same: those that
lost most are groups of their own, and the others are counted together, with those of the same cause. Nothing is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kvcourse.prompts.suggestion import Suggestion, suggest

CUTS_AT_ONCE = 4  # of a history that is cut each time: priced beside keeping everything
LISTED = 1_000  # groups that are told one by one; of more, what is left is counted together
_ROOM = 75_000  # groups that are held while a log is read: more than there are requests in it that a further one could join
_SUMS = ("requests", "prompt_tokens", "cached_tokens", "mended_prompt_tokens", "mended_cached_tokens", "cost", "cost_lost",
         "cost_fewer_cuts")  # fmt: skip


@dataclass(frozen=True, slots=True)
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


@dataclass(slots=True)
class Fault:
    """What one cause did in a family. characters: lost, also where prompts are too short to be cached.

    first: where it was seen first, unless another cause stood in front of it. places: tools, system, conversation.
    """

    characters: int = 0
    first: Difference | None = None
    places: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Group:
    """A family of requests: those that share a start, or would. mended_: as they would be, which may be longer.

    families: 1; more where several are counted together, and then lost_together is the sum of what each of them lost.
    """

    number: int
    first_line: int
    families: int = 1
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    mended_prompt_tokens: int = 0
    mended_cached_tokens: int = 0
    cost: float = 0.0  # in base-price tokens, as are all costs
    cost_lost: float = 0.0  # below 0: mended, it costs more
    cost_fewer_cuts: float = 0.0  # if a history that is cut were cut CUTS_AT_ONCE at once
    has_tools: bool = False
    lost_together: int = 0
    last_line: int = 0
    faults: dict[str, Fault] | None = None  # by cause

    def fault(self, cause: str) -> Fault:
        """What is known of a cause, to be added to."""
        if self.faults is None:
            self.faults = {}
        return self.faults.setdefault(cause, Fault())

    @property
    def cause(self) -> str:
        """What cost most; "none" where nothing is wrong."""
        return max(self.faults, key=lambda one: self._characters(one)) if self.faults else "none"

    @property
    def tokens_lost(self) -> int:
        """Computed, and not once all is mended; 0 where that computes no less."""
        return max(0, self.tokens_fewer) if self.families == 1 else self.lost_together

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
        if set(self.faults or ()) != {"history"}:
            return said
        saved = self.cost - self.cost_fewer_cuts
        return (f"{said} Cut at fixed points, several turns at once: between two cuts nothing is lost. {CUTS_AT_ONCE} cuts in "
                f"one would cost {abs(saved):,.0f} {'less' if saved >= 0 else 'more'} than now.")  # fmt: skip

    @property
    def first_difference(self) -> Difference | None:
        return self.faults[self.cause].first if self.faults else None

    @property
    def suggestion(self) -> Suggestion | None:
        if not self.faults:
            return None
        order = sorted(self.faults, key=lambda one: -self._characters(one))
        now, then = self.cached_tokens / self.prompt_tokens, self.mended_cached_tokens / self.mended_prompt_tokens
        return suggest({cause: self.faults[cause].places for cause in order}, self.has_tools, now, then)

    @property
    def weight(self) -> tuple[int, int]:
        """How much it lost."""
        return self.tokens_lost, sum(map(self._characters, self.faults or ()))

    def take(self, other: "Group") -> None:
        """Count another family with the ones that are here."""
        self.families += other.families
        self.lost_together += other.tokens_lost
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_line, self.last_line = min(self.first_line, other.first_line), max(self.last_line, other.last_line)
        self.has_tools |= other.has_tools
        for cause, theirs in (other.faults or {}).items():
            mine = self.fault(cause)
            mine.characters += theirs.characters
            mine.first = mine.first or theirs.first
            mine.places |= theirs.places

    def as_record(self) -> dict[str, Any]:
        difference, suggestion = self.first_difference, self.suggestion
        return {
            "requests": self.requests, "families": self.families, "first_request": self.first_line, "cause": self.cause,
            "first_difference": difference.as_record() if difference else None,
            "tokens_lost": self.tokens_lost, "prompt_tokens": self.prompt_tokens, "cached_tokens": self.cached_tokens,
            "cost": round(self.cost, 3), "cost_lost": round(self.cost_lost, 3),
            "mended_prompt_tokens": self.mended_prompt_tokens, "mended_cached_tokens": self.mended_cached_tokens,
            "price_note": self.price_note,
            "suggestion": suggestion.as_record() if suggestion else None,
        }  # fmt: skip

    def _characters(self, cause: str) -> int:
        return self.faults[cause].characters if self.faults else 0


class Groups:
    """All families of a log."""

    def __init__(self) -> None:
        self._single: dict[int, Group] = {}
        self._together: dict[str, Group] = {}  # by cause

    def of(self, family: int, line: int) -> Group:
        """The group of a family that has a request in this line."""
        group = self._single.get(family)
        if group is None:
            group = self._single[family] = Group(family, line)
        group.last_line = line
        return group

    def find(self, family: int) -> Group | None:
        """The group of a family, unless it was counted together with others."""
        return self._single.get(family)

    def __len__(self) -> int:
        """How many families there are."""
        return sum(group.families for group in self)

    def __iter__(self) -> Iterator[Group]:
        yield from self._single.values()
        yield from self._together.values()

    def make_room(self, oldest: int) -> None:
        """Where there are very many, count together those that end before this line: no request will join them any more."""
        if len(self._single) > _ROOM:
            self._fold([group for group in self._single.values() if group.last_line < oldest])

    def settle(self) -> None:
        """Count together what is too much to be told one by one."""
        self._fold(list(self._single.values()))

    def ranked(self) -> list[Group]:
        """What lost most first; then what is counted together."""
        single = sorted(self._single.values(), key=lambda one: (*(-part for part in one.weight), one.first_line))
        return single + sorted(self._together.values(), key=lambda one: (*(-part for part in one.weight), one.first_line))

    def _fold(self, groups: list[Group]) -> None:
        """Count together all of these but those that lost most, and of those that lost nothing, those with most requests."""
        groups.sort(key=lambda one: (*one.weight, one.requests, -one.first_line), reverse=True)
        for group in groups[LISTED:]:
            cause = group.cause
            if cause not in self._together:
                self._together[cause] = Group(0, group.first_line, families=0)
            self._together[cause].take(group)
            del self._single[group.number]


def plural(word: str, n: int) -> str:
    """The word, as it is said of so many."""
    return word if n == 1 else f"{word}s"
