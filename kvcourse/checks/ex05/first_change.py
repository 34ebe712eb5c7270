"""Lesson 05: what must hold of an answer that finds the first layer to change (5.4). Knows nothing about real models.

`run` is ours: it returns keys that were made up so that earlier rows change in a layer of our choice, and nowhere else.
"""

from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

MOST_CALLS = 8


def runs_both_texts(answer: Answer, draw: Draw) -> None:
    for size in (5, draw.integer(2, 9)):
        trial = Trial(answer, draw, size=size)
        expect(trial.calls, "run was never called.")
        for text, which in ((trial.tokens, "tokens"), (trial.changed, "tokens with `other` in the last place")):
            expect(text in trial.calls, f"run was never given {which}, {text}; it was given {listed(trial.calls)}.")


def leaves_the_tokens_alone(answer: Answer, draw: Draw) -> None:
    trial = Trial(answer, draw)
    expect(trial.tokens_after == trial.tokens, "tokens was changed. It belongs to the caller: make a list of your own.")


def finds_none_where_only_the_last_row_changes(answer: Answer, draw: Draw) -> None:
    for layers in (3, draw.integer(1, 6)):
        got = Trial(answer, draw, layers=layers).got
        own = "The last token's own row changes, of course: it is another token. Only earlier rows count."
        expect(not (type(got) is int and got == 0), f"{own} Here none of them does: expected None, got 0.")
        expect(got is None, f"No earlier row changes, in {layers} layers: expected None; got {said(got)}.")


def names_the_first_layer(answer: Answer, draw: Draw) -> None:
    for layers, first in ((4, 1), (4, 0), (6, draw.integer(2, 4)), (5, 4)):
        got = Trial(answer, draw, layers=layers, first=first).got
        told = f"Of {layers} layers, earlier rows change from layer {first} on, counted from 0"
        expect(type(got) is int, f"{told}: expected the int {first}; got {said(got)}.")
        expect(got == first, f"{told}; yours is {got}.")


def sees_a_change_in_any_earlier_row(answer: Answer, draw: Draw) -> None:
    for size, row in ((6, 0), (6, 4), (7, draw.integer(1, 4))):
        got = Trial(answer, draw, size=size, layers=3, first=1, row=row).got
        told = f"Of {size} rows, row {row} changes in layer 1, and beside the last one no other does"
        expect(got == 1, f"{told}: expected 1; got {said(got)}.")


def sees_the_smallest_change(answer: Answer, draw: Draw) -> None:
    got = Trial(answer, draw, layers=4, first=2, row=1, smallest=True).got
    why = "This is about equal bits, not about nearly equal numbers"
    expect(got == 2, f"In layer 2 one number of an earlier row is another in its last bit. {why}: expected 2; got {said(got)}.")


def takes_a_single_token(answer: Answer, draw: Draw) -> None:
    got = Trial(answer, draw, size=1, layers=draw.integer(1, 3)).got
    expect(got is None, f"A text of one token has no earlier rows: expected None; got {said(got)}.")


PROPERTIES: tuple[Property, ...] = (
    runs_both_texts,
    leaves_the_tokens_alone,
    finds_none_where_only_the_last_row_changes,
    names_the_first_layer,
    sees_a_change_in_any_earlier_row,
    sees_the_smallest_change,
    takes_a_single_token,
)


class Trial:
    """One call of the answer, with keys that change where we want them to; and which texts it asked for.

    first: the first layer in which earlier rows change (None: in none). row: the only one of them that does (None: all).
    """

    def __init__(
        self,
        answer: Answer,
        draw: Draw,
        *,
        size: int = 5,
        layers: int = 3,
        first: int | None = None,
        row: int | None = None,
        smallest: bool = False,
    ) -> None:
        self.tokens = [draw.integer(10, 40) + 50 * place for place in range(size)]
        self.other = self.tokens[-1] + draw.integer(1, 9)
        self.changed = [*self.tokens[:-1], self.other]
        self.calls: list[list[int]] = []
        self._before = [draw.tensor(1, 2, size, 3) for _ in range(layers)]
        self._after = [keys.clone() for keys in self._before]
        for layer, keys in enumerate(self._after):
            keys[:, :, -1] += 1
            if first is not None and layer >= first:
                _change(keys, slice(0, size - 1) if row is None else slice(row, row + 1), smallest)
        kept = answer.keep(self.tokens)
        self.got = answer(self.run, kept, self.other)
        self.tokens_after = kept.value()

    def run(self, tokens: Any) -> list[Tensor]:
        """What the answer is given to run: ids to keys, a tensor (1, 2, T, 3) for each layer."""
        ids = list(tokens) if isinstance(tokens, list | tuple) else None
        good = ids is not None and all(type(token) is int for token in ids)
        expect(good, f"run takes a list of ids; it was given {describe(tokens)}.")
        assert ids is not None
        length = f"run takes the whole text, {len(self.tokens)} tokens; it was given {len(ids)}"
        expect(len(ids) == len(self.tokens), f"{length}. `other` takes the last token's place.")
        expect(len(self.calls) < MOST_CALLS, f"run was called more than {MOST_CALLS} times. Two runs tell all there is.")
        self.calls.append(ids)
        if ids == self.tokens:
            return [keys.clone() for keys in self._before]
        told = f"{self.tokens} with {self.other} in the last place is {self.changed}"
        expect(ids == self.changed, f"{told}; run was given {ids}.")
        return [keys.clone() for keys in self._after]


def _change(keys: Tensor, places: slice, smallest: bool) -> None:
    """Change the rows of these places: every number, or the last bit of one number in each."""
    if not smallest:
        keys[:, :, places] += 0.5
        return
    number = keys[0, 1, places, 2]
    keys[0, 1, places, 2] = torch.nextafter(number, torch.full_like(number, torch.inf))


def said(value: Any) -> str:
    return repr(value) if value is None or type(value) in (int, bool) else describe(value)


def listed(calls: list[list[int]]) -> str:
    return " and ".join(map(str, calls[:3])) + (" ..." if len(calls) > 3 else "")
