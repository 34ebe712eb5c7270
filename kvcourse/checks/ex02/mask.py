"""Lesson 02: what must hold of an answer that hides the future (2.2). Knows nothing about queries, keys, values or heads."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex02.common import stays_as_it_was, table


def is_a_table_of_the_same_shape(answer: Answer, draw: Draw) -> None:
    for T in (4, draw.integer(5, 9)):
        masked(answer, draw.tensor(T, T))


def keeps_what_may_be_seen(answer: Answer, draw: Draw) -> None:
    for T in (4, draw.integer(3, 8)):
        scores = draw.tensor(T, T)
        got = masked(answer, scores)
        for row in range(T):
            itself = "" if got[row, row] == scores[row, row] else hidden(got[row, row])
            expect(not itself, f"Token {row} may look at itself; its own score {itself}.")
            for column in range(row):
                kept = got[row, column] == scores[row, column]
                change = hidden(got[row, column])
                expect(kept, f"Token {row} may look at token {column}, which came before it; that score {change}.")


def hides_the_future_for_good(answer: Answer, draw: Draw) -> None:
    """Minus infinity, and nothing else: see what each other number would do."""
    for T in (4, draw.integer(3, 8)):
        got = masked(answer, draw.tensor(T, T))
        for row in range(T):
            for column in range(row + 1, T):
                why = instead(float(got[row, column]))
                expect(not why, f"Token {row} must not look at token {column}, which comes later. {why}")


def holds_for_every_size(answer: Answer, draw: Draw) -> None:
    for T in (1, 2, draw.integer(10, 20), draw.integer(21, 40)):
        scores = draw.tensor(T, T)
        got = masked(answer, scores)
        finite = got.isfinite().sum(dim=1).tolist()
        right = list(range(1, T + 1))
        expect(finite == right, f"With {T} tokens, row i should keep i + 1 scores; yours keeps {few(finite)}.")
        kept = torch.equal(got.tril().nan_to_num(), scores.tril())
        expect(kept, f"With {T} tokens, scores that may be seen were changed.")


def keeps_scores_of_any_value(answer: Answer, draw: Draw) -> None:
    """A score of zero is a score. So is a very low one."""
    T = draw.integer(3, 6)
    for name, scores in (("0", torch.zeros(T, T).double()), ("-1e30", torch.full((T, T), -1e30).double())):
        got = masked(answer, scores)
        seen = all(got[row, column] == scores[row, column] for row in range(T) for column in range(row + 1))
        expect(seen, f"Scores of {name} that may be seen were changed. Only a token's place decides.")


def leaves_scores_alone(answer: Answer, draw: Draw) -> None:
    for T in (3, draw.integer(4, 7)):
        stays_as_it_was(answer, {"scores": draw.tensor(T, T)})


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64):
        masked(answer, draw.tensor(3, 3).to(dtype))


PROPERTIES: tuple[Property, ...] = (
    is_a_table_of_the_same_shape,
    keeps_what_may_be_seen,
    hides_the_future_for_good,
    holds_for_every_size,
    keeps_scores_of_any_value,
    leaves_scores_alone,
    keeps_the_dtype,
)


def masked(answer: Answer, scores: Tensor) -> Tensor:
    """The answer's table."""
    T = len(scores)
    return table(answer(scores), ("a row for each token that looks", T), ("a column for each it looks at", T), scores.dtype)


def hidden(score: Tensor) -> str:
    """What became of a score that should have stayed."""
    if score.isnan():
        return "became nan (0 times infinity?)"
    return "was hidden" if score == -torch.inf or score == 0 else "was changed"


def instead(score: float) -> str:
    """What a number other than minus infinity does there; "" for minus infinity."""
    if score == -torch.inf:
        return ""
    if score == 0:
        return "Its score is 0, and e⁰ = 1: that is a share like any other. Which score has e^score = 0?"
    if score != score:
        return "Its score is nan (0 times infinity?), and every sum with it will be nan."
    if score == torch.inf:
        return "Its score is +inf, which would take everything. The other sign."
    if score < -1e3:
        return f"Its score is {score:.3g}: low, but a finite number. -torch.inf is lower than every score."
    return "Its score was left as it came."


def few(numbers: list[int]) -> str:
    return str(numbers) if len(numbers) <= 6 else f"[{', '.join(map(str, numbers[:3]))}, ..., {numbers[-1]}]"
