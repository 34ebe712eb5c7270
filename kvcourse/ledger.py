"""Lesson 12: what a conversation has cost, turn by turn. Knows nothing about models, caches or money.

Two figures that are often taken for each other: occupancy, the tokens in the window now, and cumulative tokens, all that were
processed on the way there. The first can never pass the window; the second grows with every turn, and with every replay.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from kvcourse.errors import InputError


@dataclass(frozen=True)
class TurnCount:
    """One request, in tokens. prompt = cached + computed; occupancy = prompt + completion, as the turn left the window."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    def __post_init__(self) -> None:
        if not 0 <= self.cached_tokens < max(1, self.prompt_tokens) or min(self.prompt_tokens, self.completion_tokens) < 0:
            raise InputError(
                "These counts contradict each other.",
                expected="0 <= cached < prompt, and completion of 0 or more",
                got=f"prompt {self.prompt_tokens}, cached {self.cached_tokens}, completion {self.completion_tokens}",
                todo="Count what was computed: at least one prompt token always is.",
            )

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def occupancy(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Totals:
    """All turns together: the sums of theirs."""

    turns: int = 0
    prompt_tokens: int = 0  # cumulative input: what a bill without a cache is about
    cached_tokens: int = 0
    computed_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class Prices:
    """What a token costs by class, in units of one input token that is not cached. Factors move: see `providers`."""

    computed: float = 1.0
    cached: float = 0.1
    completion: float = 5.0

    def __post_init__(self) -> None:
        if min(self.computed, self.cached, self.completion) < 0:
            raise InputError("A price below nothing.", expected="0 or more", got=self, todo="Correct it.")


@dataclass(frozen=True)
class Bill:
    """What all turns cost, by class."""

    computed: float
    cached: float
    completion: float

    @property
    def total(self) -> float:
        return self.computed + self.cached + self.completion


class Ledger:
    """Every turn that ran, in order; what was taken back later was computed all the same, and stays.

    limit: tokens that the window holds.
    """

    def __init__(self, limit: float, turns: Iterable[TurnCount] = ()) -> None:
        if not limit > 0:  # this way round NaN is none, too
            raise InputError("A window holds tokens.", expected="a limit above 0", got=limit, todo="Give the context length.")
        self.limit = limit
        self._turns: list[TurnCount] = []
        for turn in turns:
            self.record(turn)

    def record(self, turn: TurnCount) -> None:
        """Add a turn. Raises: InputError for one that the window could not have held."""
        if turn.occupancy > self.limit + 1:  # the last token that is chosen needs no place any more
            raise InputError("More tokens than the window holds.", expected=f"at most {self.limit}", got=turn.occupancy,
                             todo="Count tokens in the window, not all that were processed.")  # fmt: skip
        self._turns.append(turn)

    def __iter__(self) -> Iterator[TurnCount]:
        return iter(self._turns)

    def __len__(self) -> int:
        return len(self._turns)

    def __getitem__(self, index: int) -> TurnCount:
        return self._turns[index]

    @property
    def totals(self) -> Totals:
        sums = {name: sum(getattr(turn, name) for turn in self._turns) for name in list(asdict(Totals()))[1:]}
        return Totals(len(self._turns), **sums)

    @property
    def occupancy(self) -> int:
        """Tokens in the window as the last turn left it."""
        return self._turns[-1].occupancy if self._turns else 0

    @property
    def share(self) -> float:
        """Of the window, in use: never above 1."""
        return min(1.0, self.occupancy / self.limit)

    def billed(self, prices: Prices) -> Bill:
        """All turns at these prices."""
        sums = self.totals
        return Bill(
            computed=sums.computed_tokens * prices.computed,
            cached=sums.cached_tokens * prices.cached,
            completion=sums.completion_tokens * prices.completion,
        )

    def copy(self) -> "Ledger":
        """The same turns, independent from here on."""
        return Ledger(self.limit, self._turns)
