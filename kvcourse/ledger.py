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
        if not 0 <= self.cached_tokens < max(1, self.prompt_tokens) or self.completion_tokens < 0:
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


class Ledger:
    """Every turn that ran, in order; what was taken back later was computed all the same, and stays.

    limit: tokens that the window holds.
    """

    def __init__(self, limit: float, turns: Iterable[TurnCount] = ()) -> None:
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

    def copy(self) -> "Ledger":
        """The same turns, independent from here on."""
        return Ledger(self.limit, self._turns)
