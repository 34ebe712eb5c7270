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
# **You will write** the four pieces of a KV cache, 20 lines in all, and run a real language model on them.
#
# **You need** Python and lesson 06, or lesson 01 and the two paragraphs below. About 40 minutes.
#
# Replace each `raise NotImplementedError(...)`, run your cell, then run the check under it. A check prints one line when all
# is well, and otherwise says what is wrong.

# %% [markdown] id="recap"
# **What you need to know.** A language model is a stack of layers. In each layer every token gets three vectors: a query `q`,
# a key `k` and a value `v`. A token's query is compared with the keys of all tokens up to and including its own; the result
# says how much of each of those tokens' values it takes. Nothing ever looks ahead.
#
# So a token's `k` and `v` never change once they are computed, and later tokens will read them again. Its `q` is never asked
# again. A **KV cache** keeps the `k` and `v` rows, layer by layer, and the model then computes new tokens only.

# %% [markdown] id="shapes"
# **The shapes.** `k` and `v` of one layer have the shape `(B, H, T, D)`: `B` texts at once (here 1), `H` heads, each with its
# own rows, `T` tokens in this call, `D` numbers a row. With `past` tokens in the cache there are `S = past + T` rows to
# attend to.

# %% id="imports"
import torch

from kvcourse import generate, load_model
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.growing import GrowingCache
from kvcourse.meter import Meter

tiny = load_model("tiny", dtype=torch.float64)
ids = tiny.tokenizer.encode("ana is in the garden . where is ana ?")
print(len(ids), "tokens:", ids)

# %% [markdown] id="task-append"
# ## 6.1 · Append
#
# `rows` is a dictionary: `rows[layer]` is the pair `(keys, values)` of everything kept for that layer, and is missing before the
# layer's first call. Put the new rows after the old ones along the token axis, keep the result in `rows`, and return it.
#
# The tensors that were kept before must stay as they are: somebody may still be reading them.


# %% id="answer-append" exercise="6.1"
def my_append(rows, layer, k, v):
    """Keep k and v, (B, H, T, D) each, after the rows of `layer`; return all keys and all values, (B, H, past + T, D) each."""
    ### BEGIN SOLUTION
    if layer in rows:
        old_k, old_v = rows[layer]
        k, v = torch.cat((old_k, k), dim=2), torch.cat((old_v, v), dim=2)
    rows[layer] = (k, v)
    return k, v
    ### END SOLUTION


# %% id="check-append" tags=["check"]
def check_append(append):
    torch.manual_seed(0)
    k, v = torch.randn(2, 1, 2, 5, 3)
    rows = {}
    for layer in (0, 1):
        append(rows, layer, k[:, :, :2] + layer, v[:, :, :2] + layer)
    first = rows[0][0]
    held = first.clone()
    got = append(rows, 0, k[:, :, 2:], v[:, :, 2:])
    assert got is not None, "6.1 append returned nothing. Return the keys and the values."
    keys, values = got
    assert keys.shape == k.shape, (
        f"6.1 five rows were appended, so expected {tuple(k.shape)}; got {tuple(keys.shape)}. Which axis counts tokens?"
    )
    assert torch.equal(keys, k), "6.1 the keys came back changed or in another order. Old rows stand first, new ones after."
    assert torch.equal(values, v), "6.1 the keys are right and the values are not. Both need the past."
    assert torch.equal(rows[0][0], k), "6.1 what you returned is right, but it was not kept in rows[layer] for the next call."
    assert torch.equal(rows[1][0], k[:, :, :2] + 1), "6.1 appending to layer 0 changed layer 1. Each layer has rows of its own."
    assert torch.equal(first, held), "6.1 a tensor that had been handed out before was changed. Make a new one."
    print("6.1 append: 6/6")


check_append(my_append)

# %% [markdown] id="task-mask"
# ## 6.2 · The mask
#
# `past` tokens are in the cache and `T` new ones arrive. Row `i` of the mask belongs to the `i`-th new token, column `j` to the
# `j`-th token of all `past + T`. True means: may look. A token may look at itself and at everything before it.
#
# On paper first: which cells are True for `past = 2` and `T = 3`?


# %% id="answer-mask" exercise="6.2"
def my_mask(past, T):
    """A bool tensor (T, past + T): True where the new token of that row may look at the token of that column."""
    ### BEGIN SOLUTION
    rows = torch.arange(past, past + T)
    columns = torch.arange(past + T)
    return columns[None, :] <= rows[:, None]
    ### END SOLUTION


# %% id="check-mask" tags=["check"]
def check_mask(mask):
    got = mask(2, 3)
    assert isinstance(got, torch.Tensor) and got.dtype == torch.bool, (
        f"6.2 expected a bool tensor; got {getattr(got, 'dtype', type(got).__name__)}."
    )
    assert got.shape == (3, 5), (
        f"6.2 three new tokens look at five: expected the shape (3, 5); got {tuple(got.shape)}. The mask is wider than it is high."
    )
    seen = mask(0, 4).sum(dim=1).tolist()
    assert seen == [1, 2, 3, 4], f"6.2 with nothing cached, tokens 0 to 3 may look at 1, 2, 3 and 4 tokens; got {seen}."
    assert got[:, :2].all(), (
        "6.2 with 2 cached, a new token does not see all of the past. The triangle belongs at the right-hand end."
    )
    assert not got[0, 3:].any(), "6.2 with 2 cached, the first new token sees tokens that come after it."
    for past, T in ((0, 1), (5, 1), (4, 4), (7, 2)):
        expected = [past + i + 1 for i in range(T)]
        seen = mask(past, T).sum(dim=1).tolist()
        assert seen == expected, f"6.2 with {past} cached and {T} new, the rows should see {expected} tokens; got {seen}."
    print("6.2 mask: 8/8")


check_mask(my_mask)

# %% [markdown] id="task-positions"
# ## 6.3 · Positions
#
# The model adds a vector to each token that says where in the text it stands: 0 for the first token, 1 for the next. It cannot
# see how many tokens came in earlier calls. You tell it.


# %% id="answer-positions" exercise="6.3"
def my_positions(past, T):
    """An int64 tensor (T,): where in the text each of the T new tokens stands, after `past` earlier ones."""
    ### BEGIN SOLUTION
    return torch.arange(past, past + T)
    ### END SOLUTION


# %% id="check-positions" tags=["check"]
def check_positions(positions):
    got = positions(0, 3)
    assert isinstance(got, torch.Tensor) and got.dtype == torch.int64, (
        f"6.3 expected an int64 tensor; got {getattr(got, 'dtype', type(got).__name__)}."
    )
    assert got.tolist() == [0, 1, 2], f"6.3 with nothing cached, three tokens stand at 0, 1, 2; got {got.tolist()}."
    got = positions(6, 1).tolist()
    assert got != [0], "6.3 with 6 cached, the seventh token was put at position 0: positions restart at every call."
    assert got == [6], f"6.3 with 6 cached, the seventh token stands at position 6, since the first stands at 0; got {got}."
    assert positions(4, 3).tolist() == [4, 5, 6], "6.3 several new tokens after a past stand one after the other."
    print("6.3 positions: 4/4")


check_positions(my_positions)

# %% [markdown] id="together"
# ## Your cache in a model
#
# The next cell puts your three functions where the package has its own. `plan` is asked once per call, `append` once per
# layer, and `advance`, which you need not write, counts the tokens in when all layers are done.


# %% id="your-cache"
class YourCache(GrowingCache):
    def plan(self, T):
        everything = torch.arange(self.length + T)
        return Plan(my_positions(self.length, T), everything, my_mask(self.length, T))

    def _write(self, layer, k, v):
        self._stored[layer] = KeysValues(*my_append(dict(self._stored), layer, k, v))
        return self._stored[layer]


# %% id="your-proof" tags=["check"]
whole = tiny(torch.tensor([ids]))
for cuts in ([len(ids)], [1] * len(ids), [4, 4, 2], [6, 1, 2, 1]):
    cache = YourCache()
    parts = [tiny(part, cache=cache) for part in torch.tensor([ids]).split(cuts, dim=1)]
    difference = (torch.cat(parts, dim=1) - whole).abs().max().item()
    print(f"calls of {cuts}: same logits at every position: {difference < 1e-9}")
    assert difference < 1e-9, (
        f"Calls of {cuts} tokens differ by {difference:.3g}. Which of 6.1 to 6.3 sees this cut differently from the one before?"
    )

# %% [markdown] id="task-decode"
# ## 6.4 · The loop
#
# Write greedy generation with a cache. `model(tokens, cache=cache)` takes an int64 tensor `(1, T)` with the tokens that the
# cache does not have yet, and returns logits `(1, T, V)`: one row per token, and the last row says what comes next. Take the
# id with the largest logit.
#
# The prompt goes in once. After that, how many tokens does each call need?


# %% id="answer-decode" exercise="6.4"
def my_decode(model, prompt_ids, n, cache):
    """Return n new token ids, each the likeliest next one. `cache` is empty at the start."""
    ### BEGIN SOLUTION
    new = []
    tokens = list(prompt_ids)
    for _ in range(n):
        logits = model(torch.tensor([tokens]), cache=cache)
        tokens = [int(logits[0, -1].argmax())]
        new += tokens
    return new
    ### END SOLUTION


# %% id="check-decode" tags=["check"]
def check_decode(decode):
    expected = generate(tiny, ids, max_new_tokens=8, cache=None).tokens
    cache = YourCache()
    with Meter() as meter:
        got = decode(tiny, ids, 8, cache)
    assert got is not None and len(got) == 8, f"6.4 expected 8 new ids; got {got}."
    through = meter.cost.tokens
    assert through != sum(range(len(ids), len(ids) + 8)), (
        "6.4 every call took the whole text again. The cache has it already: pass what is new."
    )
    assert got[0] == expected[0], (
        f"6.4 the first new id should be {expected[0]}; got {got[0]}. It comes from the logits after the prompt's last token."
    )
    assert list(got) == expected, f"6.4 the plain loop gives {expected}; got {got}. Is each new id passed exactly once?"
    assert through == len(ids) + 7, (
        f"6.4 the ids are right, and {through} tokens went through the model; {len(ids)} + 7 are enough: nothing follows the last one."
    )
    print("6.4 decode loop: 4/4")


check_decode(my_decode)

# %% [markdown] id="real-task"
# ## Your cache in the real model
#
# SmolLM2 is a Llama: its keys are turned by their position before they are kept, and three query heads share one key head.
# Nothing that you wrote has to change.

# %% id="real-model" tags=["check"]
smollm2 = load_model("smollm2")
question = smollm2.tokenizer.encode_chat([{"role": "user", "content": "Name three primary colours."}])
yours = my_decode(smollm2, question, 12, YourCache())
print(smollm2.tokenizer.decode(yours))
assert yours == generate(smollm2, question, max_new_tokens=12).tokens, "The package's cache leads to other tokens than yours."

# %% [markdown] id="closing"
# You have built the cache that every serving engine starts from. Two things to try: put `past - 1` for `past` in one of your
# functions and see which check notices first; and ask yourself what `torch.cat` does at every step to the rows that were there
# already. That is lesson 07.
