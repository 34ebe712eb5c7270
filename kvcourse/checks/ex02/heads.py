"""Lesson 02: what must hold of an answer that attends with several heads (2.4). Knows nothing about models or projections.

Heads are checked by what they may not do (see each other, see the future) before any number is compared, so that a message
can say which rule was broken. Numbers are compared with torch's own attention, head by head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, expect
from kvcourse.checks.ex02.common import close, stays_as_it_was, table

Three = tuple[Tensor, Tensor, Tensor]
SIZES = ((5, 2, 3), (3, 4, 2), (4, 4, 4))  # tokens, heads, numbers a head; the last: a wrong axis has the right length


def returns_rows_of_C(answer: Answer, draw: Draw) -> None:
    for T, H, D in (*SIZES, (draw.integer(2, 6), draw.integer(2, 4), draw.integer(1, 5))):
        heads(answer, drawn(draw, T, H * D), H)


def gives_the_first_token_its_own_value(answer: Answer, draw: Draw) -> None:
    """It sees nothing but itself, so its share is all, in every head."""
    for T, H, D in (*SIZES, (draw.integer(2, 6), draw.integer(2, 4), draw.integer(2, 5))):
        q, k, v = drawn(draw, T, H * D)
        first = heads(answer, (q, k, v), H)[0]
        if not close(first, v[0]):
            raise Broken(f"Token 0 sees itself alone, so row 0 should be v[0], and is not. {first_row(first, v[0], H)}")


def never_looks_ahead(answer: Answer, draw: Draw) -> None:
    for T, H, D in ((5, 2, 3), (draw.integer(3, 6), 3, 2)):
        given = drawn(draw, T, H * D)
        before = heads(answer, given, H)
        q, k, v = (torch.cat((x[:-1], draw.tensor(1, H * D))) for x in given)
        after = heads(answer, (q, k, v), H)
        expect(close(after[:-1], before[:-1]), "Another last token changed the rows of earlier ones. They must not see it.")


def keeps_heads_apart(answer: Answer, draw: Draw) -> None:
    for T, H, D in ((4, 3, 2), (draw.integer(2, 5), draw.integer(2, 4), draw.integer(2, 4))):
        given = drawn(draw, T, H * D)
        before, head = heads(answer, given, H), draw.integer(0, H - 1)
        mine = torch.arange(H * D) // D == head
        q, k, v = (torch.where(mine, draw.tensor(T, H * D), x) for x in given)
        after = heads(answer, (q, k, v), H)
        columns = f"Columns {head * D} to {(head + 1) * D - 1} belong to head {head} of {H}"
        untouched = close(after[:, ~mine], before[:, ~mine])
        expect(untouched, f"{columns}. Changing them in q, k and v changed other columns of the result.")


def is_plain_attention_with_one_head(answer: Answer, draw: Draw) -> None:
    for T, D in ((4, 4), (draw.integer(3, 7), draw.integer(2, 9))):
        q, k, v = given = drawn(draw, T, D)
        got = heads(answer, given, 1)
        swapped = close(got, torch_heads((k, q, v), 1))
        expect(not swapped, "With one head: q and k are exchanged. The rows ask, the columns are asked.")
        unscaled = close(got, torch_heads((q, k, v), 1, scale=1.0))
        expect(not unscaled, f"With one head: the scores are divided by nothing. Divide by √D, here √{D}.")
        right = close(got, torch_heads(given, 1))
        expect(right, "With one head the result is no attention yet: scores, mask, softmax along rows, sum. See 2.1 to 2.3.")


def scales_by_the_size_of_a_head(answer: Answer, draw: Draw) -> None:
    for T, H, D in ((5, 2, 8), (draw.integer(4, 7), 4, draw.integer(5, 8))):
        given = drawn(draw, T, H * D)
        got = heads(answer, given, H)
        whole = close(got, torch_heads(given, H, scale=(H * D) ** -0.5))
        expect(not whole, f"Scores were divided by √{H * D}, with C for D. A head's queries have C / n_head = {D} numbers.")
        count = close(got, torch_heads(given, H, scale=H**-0.5))
        expect(not count, f"Scores were divided by the root of the number of heads, {H}, not of a head's size, {D}.")


def equals_each_head_alone(answer: Answer, draw: Draw) -> None:
    sizes = (*SIZES, (1, 2, 3), (draw.integer(8, 12), draw.integer(2, 5), draw.integer(1, 6)))
    for T, H, D in sizes:
        given = drawn(draw, T, H * D)
        got, want = heads(answer, given, H), torch_heads(given, H)
        wrong = [h for h in range(H) if not close(got[:, h * D : (h + 1) * D], want[:, h * D : (h + 1) * D])]
        of = f"With {T} tokens, {H} heads of {D}"
        alone = "differs from attention on its own columns"
        expect(not wrong, f"{of}: head {', '.join(map(str, wrong))} {alone}.")


def leaves_its_input_alone(answer: Answer, draw: Draw) -> None:
    q, k, v = drawn(draw, draw.integer(2, 5), 6)
    stays_as_it_was(answer, {"q": q, "k": k, "v": v}, draw.integer(2, 3))


def keeps_the_dtype(answer: Answer, draw: Draw) -> None:
    for dtype in (torch.float32, torch.float64):
        q, k, v = (x.to(dtype) for x in drawn(draw, 3, 4))
        heads(answer, (q, k, v), 2)


PROPERTIES: tuple[Property, ...] = (
    returns_rows_of_C,
    gives_the_first_token_its_own_value,
    never_looks_ahead,
    keeps_heads_apart,
    is_plain_attention_with_one_head,
    scales_by_the_size_of_a_head,
    equals_each_head_alone,
    leaves_its_input_alone,
    keeps_the_dtype,
)


def drawn(draw: Draw, T: int, C: int) -> Three:
    return draw.tensor(T, C), draw.tensor(T, C), draw.tensor(T, C)


def heads(answer: Answer, given: Three, n_head: int) -> Tensor:
    """The answer's rows."""
    T, C = given[0].shape
    return table(answer(*given, n_head), ("a row for each token", T), ("its C numbers", C), given[0].dtype)


def torch_heads(given: Three, n_head: int, scale: float | None = None) -> Tensor:
    """torch's attention on each head's columns alone."""
    parts = zip(*(x.chunk(n_head, dim=1) for x in given), strict=True)
    return torch.cat([F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale) for q, k, v in parts], dim=1)


def first_row(first: Tensor, right: Tensor, H: int) -> str:
    """What may have been done to get this in place of token 0's own value."""
    if close(first.sort().values, right.sort().values):
        return "It has the right numbers in another order. Join heads one after the other: all of head 0, then all of head 1."
    own = torch.isin(first.round(decimals=9), right.round(decimals=9))
    if own.all():
        return "It has some of v[0]'s numbers more than once, and others not at all: does each head take its own columns?"
    if own.any():
        return "A part of it is right, the rest is of other tokens: were tokens and heads mixed when you split, or joined?"
    ratios = (first / right).view(H, -1)
    if ratios.std(dim=1, correction=0).max() < 1e-6 and bool((ratios.abs() < 1).all()):
        return "It is less than v[0], so its shares do not add up to 1. Hide the future before softmax, not after."
    return "Its heads blended in other tokens: is the future hidden? Does softmax go over the keys?"
