"""Lesson 12: what a conversation has cost, turn by turn. Knows nothing about models, caches or money.

Two figures that are often taken for each other: occupancy, the tokens in the window now, and cumulative tokens, all that were
processed on the way there. The first can never pass the window; the second grows with every turn, and with every replay.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields

from kvcourse.amounts import amount, whole
from kvcourse.errors import InputError


@dataclass(frozen=True)
class TurnCount:
    """One request, in tokens. prompt = cached + computed; occupancy = prompt + completion, as the turn left the window.

    Raises: InputError for what is no count, and for counts that contradict each other.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, whole(field.name, getattr(self, field.name)))
        if self.cached_tokens and self.cached_tokens >= self.prompt_tokens:
            raise InputError(
                "These counts contradict each other.",
                expected="cached < prompt",
                got=f"prompt {self.prompt_tokens}, cached {self.cached_tokens}, completion {self.completion_tokens}",
                todo="Count what was computed: at least one prompt token always is.",
            )

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens

    @property
    def occupancy(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def billed(self, prices: "Prices") -> "Bill":
        """This turn at these prices."""
        return _bill(self, prices)


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
        for field in fields(self):
            amount(f"The price {field.name}", getattr(self, field.name))


@dataclass(frozen=True)
class Bill:
    """What all turns cost, by class."""

    computed: float
    cached: float
    completion: float

    @property
    def total(self) -> float:
        return self.computed + self.cached + self.completion


def _bill(counts: TurnCount | Totals, prices: Prices) -> Bill:
    return Bill(
        computed=counts.computed_tokens * prices.computed,
        cached=counts.cached_tokens * prices.cached,
        completion=counts.completion_tokens * prices.completion,
    )


class Ledger:
    """Every turn that ran, in order; what was taken back later was computed all the same, and stays.

    limit: tokens that the window holds; infinite where there is none. The last token of an answer is chosen and not sent, so
    a turn may end one token beyond it.
    """

    def __init__(self, limit: float, turns: Iterable[TurnCount] = ()) -> None:
        if amount("The window's limit", limit, finite=False) == 0:
            raise InputError("A window holds tokens.", expected="a limit above 0", got=limit, todo="Give the context length.")
        self.limit = limit
        self._turns: list[TurnCount] = []
        for turn in turns:
            self.record(turn)

    def record(self, turn: TurnCount) -> None:
        """Add a turn. Raises: InputError for one that the window could not have held."""
        if not isinstance(turn, TurnCount):
            raise InputError("A ledger takes turns.", expected="a TurnCount", got=type(turn).__name__,
                             todo="TurnCount(prompt_tokens, cached_tokens, completion_tokens).")  # fmt: skip
        if turn.prompt_tokens > self.limit or turn.occupancy > self.limit + 1:
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
        """Tokens in the window as the last turn left it: never more than it holds."""
        last = self._turns[-1] if self._turns else TurnCount(0, 0, 0)
        return last.occupancy if last.occupancy <= self.limit else last.occupancy - 1

    @property
    def share(self) -> float:
        """Of the window, in use: never above 1."""
        return self.occupancy / self.limit

    def billed(self, prices: Prices) -> Bill:
        """All turns at these prices."""
        return _bill(self.totals, prices)

    def copy(self) -> "Ledger":
        """The same turns, independent from here on."""
        return Ledger(self.limit, self._turns)
