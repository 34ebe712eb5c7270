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
# # Exercise 05 · Find the wasted work
#
# **You will write** a counter for the work of a run, a function that says which of it can be reused, and an experiment that
# finds out whether a model lets you: 25 lines in all. Then you hold them against two real models.
#
# **You need** Python and lesson 05, or the next four cells. About 35 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A language model is a stack of layers. In each layer every token gets a query `q`, a key `k` and a
# value `v`: three lists of numbers. The k and v of one token in one layer together are one **K/V row**. A token's q is compared
# with the k of every token up to its own, and picks from their v. Nothing looks ahead.

# %% [markdown] id="recap-run"
# **A run** writes `new` tokens after a prompt of `prompt` tokens. Each pass through the model chooses one token:
#
#     A B C D          → E
#     A B C D E        → F
#     A B C D E F      → G
#
# That is the plain way, in which every pass reads everything so far.

# %% [markdown] id="recap-keep"
# **With keeping**, the rows of every token that was read are kept, in every layer, and a pass reads only tokens that have no
# rows yet: first A B C D, then E, then F. In neither case is G read: it was chosen, and the run is over.

# %% [markdown] id="recap-row"
# **What a row depends on**, if nothing looks ahead: its own token, its place in the text, and, from the second layer on, every
# token **before** it. On nothing after it.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("5.1")` gives a hint, and each further call a plainer one. `reset("5.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-rows"
# ## 5.1 · Count
#
# How many K/V rows does a run compute? A row that is computed three times counts three times. Every layer makes a row for every
# token that it reads.
#
# First on paper: 4 + 3 tokens, one layer, as above.

# %% id="guess-rows"
guess = {"nothing kept": None, "rows kept": None}

# %% [markdown] id="task-rows-code"
# There is at least one token in the prompt, and at least one new one. Loop or formula, as you like.


# %% id="answer-rows" exercise="5.1"
def my_rows(prompt, new, layers, keep):
    """An int: the K/V rows computed in all layers while `new` tokens are written after `prompt`
    tokens. keep: True or False."""
    ### BEGIN SOLUTION
    computed, text = 0, prompt
    for number in range(new):
        computed += 1 if keep and number else text
        text += 1
    return layers * computed
    ### END SOLUTION


# %% id="check-rows" tags=["check"] exercise="5.1"
check("5.1", my_rows)

# %% [markdown] id="against-meter"
# Now against the meter, which counts inside the model while it runs. `tiny` is the course's own model: four layers, 148 words.
# (`generate` runs the whole loop: with a cache it keeps rows, with `cache=None` it does not.)

# %% id="meter" tags=["check"]
from kvcourse import generate, load_model, trace

tiny = load_model("tiny", dtype=torch.float64)
ids = tiny.tokenizer.encode("ana is in the garden . where is ana ?")
with in_short():
    for new in (1, 5, 20):
        for keep, kind in ((False, None), (True, "growing")):
            counted = generate(tiny, ids, max_new_tokens=new, cache=kind).cost.kv_rows
            yours = my_rows(len(ids), new, tiny.config.n_layer, keep)
            assert yours == counted, (
                f"{len(ids)} + {new} tokens, keep={keep}: the meter counts {counted}, you {yours}."
            )
            run = f"{len(ids)} + {new:2} tokens, keep={keep!s:5}"
            print(f"{run}  {counted:5,} rows, by the meter and by you")

# %% [markdown] id="task-reusable"
# ## 5.2 · Find what can be reused
#
# A text `first` has gone through the model, and all its rows are at hand. Now comes `second`. For each of its tokens: does `first`
# have a row **for this place** that is the very one that `second` would compute, in every layer?
#
# Mark these by hand before you write any code:

# %% id="guess-reusable"
first = "ana is in the garden".split()
second = "ana is at the garden now".split()
guess = [None, None, None, None, None, None]  # True or False, for each token of second

# %% [markdown] id="task-reusable-code"
# Reread what a row depends on. Then write it for lists of ids of any length; either may be empty.


# %% id="answer-reusable" exercise="5.2"
def my_reusable(first, second):
    """A list with a True or False for each token of `second`:
    is its row equal to the one that `first` has in its place?"""
    ### BEGIN SOLUTION
    agreed, marks = True, []
    for place, token in enumerate(second):
        agreed = agreed and place < len(first) and first[place] == token
        marks.append(agreed)
    return marks
    ### END SOLUTION


# %% id="check-reusable" tags=["check"] exercise="5.2"
check("5.2", my_reusable)

# %% [markdown] id="task-changed"
# ## 5.3 · Compare rows
#
# `one` and `two` are the keys (or values) of one layer, from two runs over texts of one length. Their shape is `(B, H, T, D)`: `B`
# texts at once, `H` heads (sets of q, k, v that a layer computes side by side), `T` tokens, `D` numbers for each.

# %% [markdown] id="task-changed-code"
# Which tokens' rows differ? One other number is enough, wherever in the row, in whichever head and text, and be it in the last bit.

# %% [markdown] id="useful-changed"
# Useful: `one != two` compares number with number. A tensor of bools has `.any(dim=…)` and `.all(dim=…)`, which take one axis or
# a tuple of several, counted from 0.


# %% id="answer-changed" exercise="5.3"
def my_changed(one, two):
    """A bool tensor (T,): True for each token whose row differs between `one` and `two`,
    (B, H, T, D) each."""
    ### BEGIN SOLUTION
    return (one != two).any(dim=(0, 1, 3))
    ### END SOLUTION


# %% id="check-changed" tags=["check"] exercise="5.3"
check("5.3", my_changed)

# %% [markdown] id="together"
# ## Were you right about the rows?
#
# Your 5.3 can now examine your 5.2. Two texts of one length go through `tiny`. `trace` keeps what the model computes, by name:
# `blocks.2.attn.k` are the keys of layer 2. A row is reusable where neither k nor v differs, in no layer.

# %% id="your-proof" tags=["check"]
with in_short():
    for text in (
        "ana is in the garden . who is ana ?",
        "ana is at the garden . where is ana ?",
        "ben is in the garden . where is ana ?",
    ):
        other = tiny.tokenizer.encode(text)
        one, two = trace(tiny, ids), trace(tiny, other)
        layers = range(tiny.config.n_layer)
        names = [f"blocks.{layer}.attn.{part}" for layer in layers for part in "kv"]
        differs = torch.stack([my_changed(one[name], two[name]) for name in names]).any(dim=0)
        said = my_reusable(ids, other)
        assert said == (~differs).tolist(), (
            f"For {text!r} the model's rows are not the ones that you said."
        )
        print(f"{sum(said)} of {len(said)} rows are reusable, and the model agrees: {text}")

# %% [markdown] id="task-first-change"
# ## 5.4 · Does the model allow it?
#
# All this holds because nothing looks ahead. You are given a model and do not know whether that is so. `run(tokens)` takes a list
# of ids and returns a list: for each layer, the keys of all its tokens, `(1, H, T, D)`.

# %% [markdown] id="task-first-change-code"
# Exchange the **last** token for `other`, run both texts, and find the first layer in which the row of an **earlier** token
# changes. Layers count from 0.

# %% [markdown] id="useful-first-change"
# The last token's own row changes in any case, and does not count. Leave `tokens` as it is. Useful: `my_changed`, once its check
# passes; or `torch.equal(a, b)`, which is True if two tensors are the same in every number.


# %% id="answer-first-change" exercise="5.4"
def my_first_change(run, tokens, other):
    """The first layer (int) in which a row before the last changes when the last token becomes
    `other`; None if in none."""
    ### BEGIN SOLUTION
    before, after = run(tokens), run([*tokens[:-1], other])
    for layer, (one, two) in enumerate(zip(before, after, strict=True)):
        if not torch.equal(one[:, :, :-1], two[:, :, :-1]):
            return layer
    return None
    ### END SOLUTION


# %% id="check-first-change" tags=["check"] exercise="5.4"
check("5.4", my_first_change)

# %% [markdown] id="two-models"
# ## Two models under your experiment
#
# `causal=False` takes the mask away that keeps a token from looking ahead: then every token sees every other, as in BERT. Say
# first what your function will find, for each of the two.

# %% id="guess-models"
guess = {"with the mask": None, "without": None}

# %% id="your-experiment" tags=["check"]


def keys_of(model, causal):
    """A `run` for your function."""

    def run(tokens):
        kept = trace(model, tokens, causal=causal)
        return [kept[f"blocks.{layer}.attn.k"] for layer in range(model.config.n_layer)]

    return run


with in_short():
    market = tiny.tokenizer.encode("market")[0]
    found = {
        causal: my_first_change(keys_of(tiny, causal), ids, market) for causal in (True, False)
    }
    print(f"tiny, with the causal mask: {found[True]} · without: {found[False]}")
    assert found == {True: None, False: 1}, (
        "That is not what the model does. Does the check of 5.4 pass?"
    )

# %% [markdown] id="why-one"
# Layer 0 makes k and v from the token and its place, before anything has looked anywhere. Its attention then brings news of the
# last token to all the others, and layer 1 is the first to make k and v from that.

# %% id="real-model" tags=["check"]
with in_short():
    smollm2 = load_model("smollm2")
    text = smollm2.tokenizer.encode("The capital of France is Paris")
    rome = smollm2.tokenizer.encode(" Rome")[0]
    found = my_first_change(keys_of(smollm2, True), text, rome)
    assert found is None, f"SmolLM2 looks ahead in no layer; you found a change in layer {found}."
    print("SmolLM2, thirty layers: Paris or Rome, no earlier row has changed")

# %% [markdown] id="closing"
# You can now say of any run what was computed twice, and of any two texts what the second need not compute. Two things to try.
# `my_first_change` looks at the last token only: write one that exchanges the token at any place, and find out which rows **after**
# it survive, and in which layer. And `my_rows` with `keep=True` is a promise so far. The cache that keeps it is exercise 06.
