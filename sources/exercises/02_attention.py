# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] id="opening"
# # Exercise 02 · Write attention
#
# **You will write** the four pieces of attention, about 15 lines in all, and put them into a real language model in place of its
# own.
#
# **You need** Python and lesson 02, or a first idea of matrices and the next two cells. About 35 minutes.

# %% [markdown] id="recap"
# **What you need to know.** Each token has three vectors of D numbers: a **query** q, what it looks for; a **key** k, what it can be
# found by; a **value** v, what it has to give. It compares its query with the keys up to its own, turns the results into shares that
# add up to 1, and takes that share of each value:
#
# $$\text{out}_i = \sum_j w_{ij}\, v_j \qquad w_i = \text{softmax}\Big(\frac{q_i \cdot k_1}{\sqrt D}, \dots, \frac{q_i \cdot k_i}{\sqrt D}\Big)$$

# %% [markdown] id="recap-tables"
# All tokens do so at once, so the vectors lie in tables, a row for each token: `q` is (T, D), T tokens with D numbers each.
# `q.shape` gives the two, `q @ k` multiplies tables (rows of the first by columns of the second), and `k.T` lays a table on its
# side. Softmax takes e to the power of each number and divides by the sum of them all.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("2.1")` gives a hint, and each further call a plainer one. `reset("2.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.
#
# PyTorch has attention ready-made. It is not there where this exercise is graded.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-scores"
# ## 2.1 · Scores
#
# Compare every query with every key: entry [i, j] of the table is the dot product of query i and key j (number by number, added
# up), divided by the root of D, the length of a query. Here the T queries and S keys may be of different texts, so T and S can
# differ.


# %% id="answer-scores" exercise="2.1"
def my_scores(q, k):
    """q: (T, D), k: (S, D). Return a new table (T, S) of scores."""
    ### BEGIN SOLUTION
    return q @ k.T / q.shape[1] ** 0.5
    ### END SOLUTION


# %% id="check-scores" tags=["check"] exercise="2.1"
check("2.1", my_scores)

# %% [markdown] id="task-mask"
# ## 2.2 · Mask
#
# Now T tokens of one text look at each other. Row i has the scores of token i; column j is token j. A token may look at itself
# and at those before it. Which score makes sure that the softmax, later, gives a token no share at all? The shares are powers of
# e.

# %% id="guess-mask"
guess = None  # what must x become for e to the power of x to be 0?

# %% [markdown] id="mask-picture"
# With three tokens, these scores (x) stay as they are, and those (.) get that score:
#
#     x . .
#     x x .
#     x x x
#
# Useful: comparing a column of numbers `a[:, None]` with a row `b[None, :]` gives a table of True and False.


# %% id="answer-mask" exercise="2.2"
def my_masked(scores):
    """scores: (T, T). Return a new table in which no token sees a later one;
    leave `scores` as it is."""
    ### BEGIN SOLUTION
    places = torch.arange(len(scores))
    return scores.masked_fill(places[None, :] > places[:, None], -torch.inf)
    ### END SOLUTION


# %% id="check-mask" tags=["check"] exercise="2.2"
check("2.2", my_masked)

# %% [markdown] id="task-weighted-sum"
# ## 2.3 · Softmax and weighted sum
#
# Turn each row of scores into shares that add up to 1. Row i of the result is the sum of all value vectors, each times its share in
# row i.
#
# A tensor's `softmax` needs to be told along which axis. You may also write it yourself; then mind what e to the power of 1000
# is.


# %% id="answer-weighted-sum" exercise="2.3"
def my_weighted_sum(scores, v):
    """scores: (T, S), -inf where a key is hidden; v: (S, D). Return (T, D)."""
    ### BEGIN SOLUTION
    return scores.softmax(dim=1) @ v
    ### END SOLUTION


# %% id="check-weighted-sum" tags=["check"] exercise="2.3"
check("2.3", my_weighted_sum)

# %% [markdown] id="one-head"
# ## One head, whole
#
# Your three functions one after the other are attention. Four tokens, three numbers each; beside it torch's own.

# %% id="your-attention" tags=["check"]
q, k, v = torch.arange(36.0, dtype=torch.float64).view(3, 4, 3).sin()

with in_short():  # an error in here is told in a line
    yours = my_weighted_sum(my_masked(my_scores(q, k)), v)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(yours, right), (
        f"Differs by up to {(yours - right).abs().max():.3g}. Do the three checks pass?"
    )
    print("the same as torch's:", [round(x, 3) for x in yours[3].tolist()], "for the last token")

# %% [markdown] id="task-heads"
# ## 2.4 · Heads
#
# One mixture per token is little. So a model cuts its q, k and v, C numbers wide, into `n_head` **heads** of D = C / n_head
# numbers each: the first D columns are head 0's, the next D head 1's, and so on. Each head attends by itself, on its own columns
# of q, k and v, with its own scores, mask and shares.

# %% [markdown] id="task-heads-join"
# The results lie side by side in the same order, and are C numbers wide again. A loop over the heads is fine. So is none:
# `view` cuts an axis in two, `transpose` exchanges two axes, and `@`, the mask and softmax take many tables at once. You may call
# your functions from above.


# %% id="answer-heads" exercise="2.4"
def my_heads(q, k, v, n_head):
    """q, k, v: (T, C). Attention with n_head heads in which no token sees a later one;
    return (T, C)."""
    ### BEGIN SOLUTION
    T, C = q.shape
    D = C // n_head
    q, k, v = (x.view(T, n_head, D).transpose(0, 1) for x in (q, k, v))  # (H, T, D) each
    future = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(future, -torch.inf)
    z = scores.softmax(dim=2) @ v  # (H, T, D)
    return z.transpose(0, 1).reshape(T, C)
    ### END SOLUTION


# %% id="check-heads" tags=["check"] exercise="2.4"
check("2.4", my_heads)

# %% [markdown] id="real-task"
# ## Your attention in a real model
#
# The next cell puts `my_heads` where SmolLM2 has its own attention, in all thirty layers. In that model three queries share one
# key and one value (lesson 08), so the cell hands each of them its copy. Then the model says what comes after a text, with yours and
# with its own.

# %% id="your-model"
from unittest.mock import patch

from kvcourse import load_model


def your_attend(q, k, v, mask=None):
    """As kvcourse.attend: q (1, H, T, D), k and v (1, fewer, T, D)."""
    H = q.shape[1]
    k, v = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (k, v))  # (1, H, T, D)
    z = my_heads(*(x[0].transpose(0, 1).flatten(1) for x in (q, k, v)), H)  # (T, H·D)
    return z.view(len(z), H, -1).transpose(0, 1)[None]


# %% id="your-proof" tags=["check"]
with in_short(), torch.no_grad():
    smollm2 = load_model("smollm2")
    ids = torch.tensor([smollm2.tokenizer.encode("The capital of France is")])
    whole = smollm2(ids)
    with patch("kvcourse.models.llama.attend", your_attend):
        yours = smollm2(ids)
    difference = (yours - whole).abs().max().item()
    assert difference < 1e-2, f"The logits differ by up to {difference:.3g}. Does check 2.4 pass?"
    print(
        "the same logits at every position; next comes:",
        smollm2.tokenizer.decode([int(yours[0, -1].argmax())]),
    )

# %% [markdown] id="closing"
# You have written the one operation by which a token learns about the others. Two things to try. Let `my_masked` return its input
# as it is, and run the last cell again: what becomes of the logits? Then put it back, and give `my_heads` the wrong number of
# heads: is there an error, or only a wrong answer? What else a model consists of is lesson 03.
