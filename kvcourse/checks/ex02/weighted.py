"""Lesson 02: what must hold of an answer that weighs values (2.3). Knows nothing about queries, keys or heads."""

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Draw, Property, expect
from kvcourse.checks.ex02.common import close, stays_as_it_was, table


def has_a_row_for_each_query(answer: Answer, draw: Draw) -> None:
    for T, S, D in ((3, 5, 4), (draw.integer(6, 9), draw.integer(2, 4), 5), (1, draw.integer(3, 6), 2)):
        weighted(answer, draw.tensor(T, S), draw.tensor(S, D))


def takes_shares_that_add_up_to_one(answer: Answer, draw: Draw) -> None:
    """Where all values are equal, so is every mean of them."""
    for T, S in ((3, 5), (draw.integer(2, 6), draw.integer(7, 9))):
        got = weighted(answer, draw.tensor(T, S), torch.ones(S, 2).double())
        right = close(got, torch.ones(T, 2).double())
        low, high = got.min().item(), got.max().item()
        why = "the shares of a row do not add up to 1. Softmax goes along a row, over the keys"
        expect(right, f"All values were 1, so every mean of them is 1; yours lie between {low:.3g} and {high:.3g}: {why}.")


def gives_equal_scores_equal_shares(answer: Answer, draw: Draw) -> None:
    for S in (4, draw.integer(2, 8)):
        values = draw.tensor(S, 3)
        got = weighted(answer, torch.full((2, S), float(draw.integer(-3, 3))).double(), values)
        want = values.mean(dim=0).expand(2, 3)
        expect(close(got, want), f"{S} equal scores should give {S} equal shares: the plain mean of the values. Yours differs.")


def weighs_by_powers_of_e(answer: Answer, draw: Draw) -> None:
    """Checked first on two keys, where the ratio of the shares can be read off."""
    for lead in (1.0, draw.integer(2, 4) / 2):
        share = weighted(answer, torch.tensor([[lead, 0.0]]).double(), torch.tensor([[1.0], [0.0]]).double()).item()
        want = 1 / (1 + torch.tensor(-lead).double().exp().item())
        expect(
            abs(share - want) < 1e-6, f"A score that leads by {lead:g} should take {want:.1%} of two; yours takes {share:.1%}."
        )
    for T, S, D in ((3, 4, 2), (draw.integer(2, 5), draw.integer(3, 7), draw.integer(1, 4))):
        scores, values = draw.tensor(T, S), draw.tensor(S, D)
        got = weighted(answer, scores, values)
        message = "Right for one row of two keys, wrong for a table: row i of the result weighs all values by row i of scores."
        expect(close(got, means(scores, values)), message)


def gives_hidden_keys_nothing(answer: Answer, draw: Draw) -> None:
    for T in (4, draw.integer(3, 7)):
        scores, values = draw.tensor(T, T), draw.tensor(T, 2)
        scores[torch.arange(T)[None, :] > torch.arange(T)[:, None]] = -torch.inf
        values[-1] = 1e6  # only the last row may see it
        got = weighted(answer, scores, values)
        expect(not got.isnan().any(), "A score of -inf made nan. e to the power of it is 0: a share of nothing, not an error.")
        right = close(got[:-1], means(scores, values)[:-1])
        expect(right, "A key with the score -inf took a share, or cost the others theirs. It takes nothing, they share all.")


def survives_large_scores(answer: Answer, draw: Draw) -> None:
    size = float(draw.integer(800, 5000))
    for sizes in ((1000.0, 1000.0), (-1000.0, -1000.0), (size, size), (0.0, -size)):
        scores = draw.tensor(2, 4) + torch.tensor(sizes).double()[:, None]
        values = draw.tensor(4, 3)
        got = weighted(answer, scores, values)
        where = f"With scores near {sizes[0]:g} in one row and {sizes[1]:g} in the other"
        made = f"{where}, the result holds {bad(got)}. e^1000 is too large for a float, e^-1000 too small."
        finite = got.isfinite().all() and got.abs().sum(dim=1).min() > 0
        expect(finite, f"{made} Only differences count: take each row's own largest score away first.")
        right = torch.allclose(got, means(scores, values), rtol=0.0, atol=1e-6)
        expect(right, f"{where}, the shares are others than near 0 with the same differences.")


def leaves_its_input_alone(answer: Answer, draw: Draw) -> None:
    T, S = draw.integer(2, 4), draw.integer(2, 5)
    stays_as_it_was(answer, {"scores": draw.tensor(T, S), "v": draw.tensor(S, 3)})


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64):
        weighted(answer, draw.tensor(2, 3).to(dtype), draw.tensor(3, 4).to(dtype))


PROPERTIES: tuple[Property, ...] = (
    has_a_row_for_each_query,
    takes_shares_that_add_up_to_one,
    gives_equal_scores_equal_shares,
    weighs_by_powers_of_e,
    gives_hidden_keys_nothing,
    survives_large_scores,
    leaves_its_input_alone,
    keeps_the_dtype,
)


def weighted(answer: Answer, scores: Tensor, values: Tensor) -> Tensor:
    """The answer's rows."""
    rows, columns = ("a row for each query", len(scores)), ("as many numbers as a value has", values.shape[1])
    return table(answer(scores, values), rows, columns, scores.dtype)


def means(scores: Tensor, values: Tensor) -> Tensor:
    """What should come out, row by row."""
    rows = []
    for row in scores:
        powers = torch.exp(row - row.max())
        rows.append((values * powers[:, None]).sum(dim=0) / powers.sum())
    return torch.stack(rows)


def bad(got: Tensor) -> str:
    return "nan" if got.isnan().any() else "infinity" if got.isinf().any() else "a row of 0"
