"""Lesson 02: hints for exercise 02, the vaguest first. Knows nothing about the checks, and gives no answer away."""

from collections.abc import Mapping, Sequence

HINTS: Mapping[str, Sequence[str]] = {
    "2.1": (
        "One dot product first: how would you compare query 0 with key 0? Then think of a table that holds all of them.",
        "A matrix product A @ B takes rows of A and columns of B. The queries are rows already. The keys are rows, too, and "
        "have to lie the other way.",
        "(T, D) times (D, S) gives (T, S). What remains is one division, of the whole table, by the root of the number that "
        "was summed over: the length of a query, which its shape tells.",
    ),
    "2.2": (
        "Draw the table for three tokens: rows look, columns are looked at. In which corner is the future?",
        "You need a table of True and False with the shape of scores: True where the column's number is larger than the row's. "
        "Two torch.arange, one standing up, one lying down, and one comparison make it.",
        "Write the new number where the table is True, and keep the rest: torch.where picks from two tensors, and a tensor's "
        "masked_fill gives a new tensor. (A name that ends in _ would change the one you were given.)",
    ),
    "2.3": (
        "Two steps: each row of scores becomes a row of shares that add up to 1. Then the shares of row i weigh the values.",
        "Softmax has to know along which axis numbers add up to 1. Rows are axis 0, and going along a row means axis 1 (or "
        "-1): over the keys.",
        "(T, S) times (S, D) gives (T, D): the sum over all keys of share times value is a matrix product. By hand, the "
        "powers of e come from torch.exp, after the row's largest score was taken away; sum with keepdim=True keeps its axis.",
    ),
    "2.4": (
        "A head is attention on some of the columns. With 2 heads and C = 6, which columns of q, k and v belong to head 1?",
        "One way: a loop over the heads. Cut out a head's columns of q, k and v, do what you did in 2.1 to 2.3, collect the "
        "results, and put them side by side with torch.cat.",
        "The other way, without a loop: view (T, C) as (T, n_head, D), then exchange the first two axes, so that each head has "
        "a table of tokens. (A view as (n_head, T, D) in one step cuts the rows in the wrong places.) The matrix products, the "
        "mask and softmax work on all heads at once. On the way back, exchange the axes first and join afterwards.",
    ),
}
