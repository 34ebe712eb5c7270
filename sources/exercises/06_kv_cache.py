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
# # Exercise 06 · Build a KV cache
#
# **You will write** the three pieces of a KV cache and the loop that uses it, 20 lines in all, and run a real language model
# on them.
#
# **You need** Python and lesson 06, or lesson 01 and the next three cells. About 40 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A language model is a stack of layers. In each layer every token gets three vectors: a query `q`,
# a key `k` and a value `v`. A token's query is compared with the keys of all tokens up to and including its own; the result
# says how much of each of those tokens' values it takes. Nothing ever looks ahead.

# %% [markdown] id="recap-cache"
# So a token's `k` and `v` never change once they are computed, and later tokens will read them again. Its `q` is used once,
# in its own forward pass, and never again. A **KV cache** keeps the `k` and `v` of every token, layer by layer, and from then
# on only new tokens go through the model.

# %% [markdown] id="shapes"
# **The shapes.** A forward pass is one call of the model, with `T` new tokens; `past` tokens came in earlier calls. In each
# layer `k` and `v` have the shape `(B, H, T, D)`: `B` texts at once (here 1), `H` heads, `T` tokens, `D` numbers for each. A
# layer makes `H` independent sets of q, k and v, called heads, so that a token can look for several things at once. You treat
# them all alike.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("6.1")` gives a hint, and each further call a plainer one. `reset("6.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-append"
# ## 6.1 · Append
#
# `rows` is a dictionary. `rows[layer]` is the pair `(keys, values)` of everything kept for that layer; before a layer's first
# call, `layer` is not in `rows`. Put the new keys after the old ones along the axis that counts tokens, the new values after
# the old values, store the new pair in `rows[layer]`, and return it.
#
# Tensors that were handed out before must stay as they are: somebody may still be reading them.

# %% [markdown] id="useful-append"
# Useful: `torch.cat([a, b], dim=…)` joins two tensors into a new one along an axis; axes count from 0.


# %% id="answer-append" exercise="6.1"
def my_append(rows, layer, k, v):
    """Keep k and v, (B, H, T, D) each, after those of `layer`;
    return all keys and all values, (B, H, past + T, D) each."""
    ### BEGIN SOLUTION
    if layer in rows:
        old_k, old_v = rows[layer]
        k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
    rows[layer] = (k, v)
    return k, v
    ### END SOLUTION


# %% id="check-append" tags=["check"] exercise="6.1"
check("6.1", my_append)

# %% [markdown] id="task-mask"
# ## 6.2 · The mask
#
# One call handles its `T` tokens at once, so each of them must be kept from looking at those after it. A mask says who may
# look at whom: a row for each new token, a column for each of all `past + T` tokens, `True` where the one may look at the
# other. A token may look at itself and at everything before it.

# %% [markdown] id="mask-picture"
# With nothing in the cache and three tokens:
#
#     x . .
#     x x .
#     x x x
#
# Now on paper: two tokens are in the cache, three arrive.

# %% id="guess-mask"
guess = """
. . . . .
. . . . .
. . . . .
"""  # put an x where the new token may look

# %% [markdown] id="task-mask-code"
# Useful: `torch.arange(a, b)` is the tensor a, a + 1, …, b - 1. Comparing a column of numbers `x[:, None]` with a row
# `y[None, :]` gives a table. Or start from `torch.zeros(rows, columns, dtype=torch.bool)` and two plain loops.


# %% id="answer-mask" exercise="6.2"
def my_mask(past, T):
    """A bool tensor (T, past + T): True where the new token of that row may look at the token of
    that column."""
    ### BEGIN SOLUTION
    rows = torch.arange(past, past + T)
    columns = torch.arange(past + T)
    return columns[None, :] <= rows[:, None]
    ### END SOLUTION


# %% id="check-mask" tags=["check"] exercise="6.2"
check("6.2", my_mask)

# %% [markdown] id="task-positions"
# ## 6.3 · Positions
#
# To each token's vector the model adds another one, for its place in the text: 0 for the first token, 1 for the next. It sees
# only the tokens of this call, so it has to be told where they stand.


# %% id="answer-positions" exercise="6.3"
def my_positions(past, T):
    """An int64 tensor (T,), as torch.arange gives:
    where in the text each of the T new tokens stands."""
    ### BEGIN SOLUTION
    return torch.arange(past, past + T)
    ### END SOLUTION


# %% id="check-positions" tags=["check"] exercise="6.3"
check("6.3", my_positions)

# %% [markdown] id="together"
# ## Your cache in a model
#
# The next cell puts your three functions where the package has its own. The model asks `plan` once per call (where do the new
# tokens stand, where do all stand, who may look at whom), and hands each layer's k and v to `_write`. The rest of the class,
# which counts the tokens in when all layers are done, is the package's.

# %% id="your-cache"
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.growing import GrowingCache


class YourCache(GrowingCache):
    def plan(self, T):
        past = self.length
        return Plan(my_positions(past, T), torch.arange(past + T), my_mask(past, T))

    def _write(self, layer, k, v):
        self._stored[layer] = KeysValues(*my_append(self._stored, layer, k, v))
        return self._stored[layer]


# %% [markdown] id="about-tiny"
# `tiny` is a model of four layers that knows 148 words and was trained to answer from what it has read. Here its logits count, at
# every position, and not what it says. The real model comes at the end.

# %% id="tiny"
from kvcourse import generate, load_model

tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
ids = tiny.tokenizer.encode("ana is in the garden . where is ana ?")
print(len(ids), "tokens:", ids)

# %% id="your-proof" tags=["check"]
tokens = torch.tensor([ids])
whole = tiny(tokens)  # all ten at once, without a cache


def in_calls(cuts):
    cache = YourCache()
    return torch.cat([tiny(part, cache=cache) for part in tokens.split(cuts, dim=1)], dim=1)


with in_short():  # an error in here is told in a line
    for cuts in ([10], [1] * 10, [4, 4, 2], [6, 1, 2, 1]):
        difference = (in_calls(cuts) - whole).abs().max().item()
        assert difference < 1e-9, (
            f"Calls of {cuts} tokens differ by {difference:.3g} from one call without a cache."
        )
        print(f"calls of {cuts}: the same logits at every position")

# %% [markdown] id="task-decode"
# ## 6.4 · The loop
#
# Write greedy generation with a cache. `model(tokens, cache=cache)` takes an int64 tensor `(1, T)` with the tokens that the
# cache does not have yet, and returns logits `(1, T, V)`: one row per token, and the last row says what comes next. Take the
# id with the largest logit.

# %% [markdown] id="task-decode-plan"
# The prompt goes in once. After that, how many tokens does each call need? And does the last new id have to go in at all?
# Leave `prompt_ids` as it is.


# %% id="answer-decode" exercise="6.4"
def my_decode(model, prompt_ids, n, cache):
    """Return a list of n new token ids (ints), each the likeliest next one.
    `cache` is empty at the start."""
    ### BEGIN SOLUTION
    new = []
    tokens = list(prompt_ids)
    for _ in range(n):
        logits = model(torch.tensor([tokens]), cache=cache)
        tokens = [int(logits[0, -1].argmax())]
        new += tokens
    return new
    ### END SOLUTION


# %% [markdown] id="about-check-decode"
# The check has a cache of its own, so it does not need your other answers. It notes which tokens each call is given, and keeps
# `tiny` from choosing one token twice in a row, since equal ids would hide which of them went in. The model without a cache says
# what should come out.

# %% id="check-decode" tags=["check"] exercise="6.4"
check("6.4", my_decode)

# %% [markdown] id="real-task"
# ## Your cache in the real model
#
# SmolLM2 tells positions in another way than `tiny` (by rotating q and k, lesson 08), and three of its query heads share one
# key head. Nothing that you wrote has to change.

# %% id="real-model" tags=["check"]
with in_short():
    smollm2 = load_model("smollm2")
    asked = [{"role": "user", "content": "Name three primary colours."}]
    question = smollm2.tokenizer.encode_chat(asked)
    yours = my_decode(smollm2, question, 12, YourCache())
    print(smollm2.tokenizer.decode(yours))
    right = list(yours) == generate(smollm2, question, max_new_tokens=12).tokens
    assert right, "Your tokens differ. Does the proof above hold? If so, it is the loop."

# %% [markdown] id="closing"
# You have built the cache that every serving engine starts from. Two things to try. In `YourCache`, give the model `None` for
# a mask whenever `self.length > 0`: which cuts of the proof notice, and why does `[1, 1, 1, …]` not? And ask yourself what
# joining tensors at every step does to the ones that were there already. That is lesson 07.
