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
# # Exercise 07 · A cache that moves nothing
#
# **You will write** a cache that takes its memory once, the way back out of it, the formula for what it takes, and the judge of a
# speculative decoder: 25 lines in all. Then a real model runs on them.
#
# **You need** Python and lesson 07, or lesson 06 and the next four cells. About 40 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A language model is a stack of layers. In each layer every token leaves a key `k` and a value `v`,
# which all later tokens read: together, a **K/V row**. A KV cache keeps the rows, so that only new tokens go through the model.

# %% [markdown] id="recap-growing"
# A first cache joins old and new rows with `torch.cat`. That makes a new tensor each time, and copies every old row into it:
# n tokens one by one copy n(n − 1)/2 rows. Instead, take a **buffer** with room for `capacity` rows once, and write each new row
# into the next free slot.

# %% [markdown] id="recap-shapes"
# **The shapes.** `k` and `v` are `(B, H, T, D)`: `B` texts at once, `H` heads that have K and V, `T` new tokens, `D` numbers
# each. A buffer is `(B, H, capacity, D)`. All texts are equally long, so one number, the **length**, says how many slots are in
# use. Slots from there on hold whatever they hold, and nobody may look at them.

# %% [markdown] id="recap-cache"
# **The cache** is a dictionary in this exercise:
#
#     {"capacity": 8,                    # slots in each buffer
#      "length": 3,                      # slots in use, in every layer
#      "rows": {0: (keys, values),       # the buffers of layer 0, and so on;
#               1: (keys, values)}}      # a layer that has had no row yet is not in there

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("7.1")` gives a hint, and each further call a plainer one. `reset("7.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-write"
# ## 7.1 · Write into slots
#
# Write the `T` rows of `k` and `v` into the layer's next `T` slots, and return all rows in use, the new ones included, as views:
# slices of the buffers, not copies. If the layer has no buffers yet, make them, of k's dtype.

# %% [markdown] id="task-write-refuse"
# If the rows do not fit, `raise ValueError("...")` before anything is made or written. Leave the length as it is: the other
# layers still have to write to the same slots, and when all have, somebody else counts the tokens in.
#
# Before you write: what does torch do here?

# %% id="guess-slice"
guess = None  # an error, or what will the buffer hold?

# %% id="slice"
shelf = torch.zeros(1, 4)
shelf[:, 4:5] = torch.ones(1, 1)  # a fifth row for four slots
print(shelf)

# %% [markdown] id="useful-write"
# Useful: `torch.empty(shape, dtype=…)` makes a tensor without filling it; `x.shape` and `x.dtype` say what x is like. To write into
# slots 3 and 4 of a buffer with four axes: `buffer[:, :, 3:5] = …`.


# %% id="answer-write" exercise="7.1"
def my_write(cache, layer, k, v):
    """Write k and v, (B, H, T, D) each, after the rows in use;
    return views of keys and values, (B, H, length + T, D) each."""
    ### BEGIN SOLUTION
    B, H, T, D = k.shape
    start, stop = cache["length"], cache["length"] + T
    if stop > cache["capacity"]:
        raise ValueError(f"{stop} rows do not fit into {cache['capacity']} slots")
    if layer not in cache["rows"]:
        cache["rows"][layer] = tuple(
            torch.empty(B, H, cache["capacity"], D, dtype=k.dtype) for _ in range(2)
        )
    keys, values = cache["rows"][layer]
    keys[:, :, start:stop] = k
    values[:, :, start:stop] = v
    return keys[:, :, :stop], values[:, :, :stop]
    ### END SOLUTION


# %% id="check-write" tags=["check"] exercise="7.1"
check("7.1", my_write)

# %% [markdown] id="task-truncate"
# ## 7.2 · Truncate
#
# Take the last tokens back: keep the first `n`. Every n from 0 to the length is right, both included; anything else is refused
# with a `ValueError`, and then nothing has changed.
#
# What has to happen to the rows beyond n? Think of who looks at them, and of what the next write does.


# %% id="answer-truncate" exercise="7.2"
def my_truncate(cache, n):
    """Keep the first n tokens of every layer. Returns nothing."""
    ### BEGIN SOLUTION
    if not 0 <= n <= cache["length"]:
        raise ValueError(f"the cache holds {cache['length']} tokens, it cannot keep {n}")
    cache["length"] = n
    ### END SOLUTION


# %% id="check-truncate" tags=["check"] exercise="7.2"
check("7.2", my_truncate)

# %% [markdown] id="together"
# ## Your cache in a model
#
# The next cell puts your two functions where the package has its own. What is left to the package: it counts tokens in when all
# layers have written, and tells the model where new tokens stand and who may look at whom.

# %% id="your-cache"
from kvcourse.caches.base import KeysValues
from kvcourse.caches.preallocated import PreallocatedCache


class YourCache(PreallocatedCache):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.yours = {"capacity": capacity, "length": 0, "rows": {}}

    def _write(self, layer, k, v):
        self.yours["length"] = self.length
        return KeysValues(*my_write(self.yours, layer, k, v))

    def truncate(self, n):
        self.yours["length"] = self.length
        my_truncate(self.yours, n)
        self.length = self.yours["length"]


# %% [markdown] id="about-proof"
# The proof: for several ways of cutting a text into calls, the logits of every position are those of one call without a cache.
# And after going back to any length, other tokens get the logits that they would get in a new text: no row of the old one is
# seen. `tiny` is a model of four layers that knows 148 words.

# %% id="tiny"
from kvcourse import generate, load_model

_ = torch.set_grad_enabled(False)
tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
ids = tiny.tokenizer.encode("ana is in the garden . where is ana ?")
others = tiny.tokenizer.encode("the key is in the kitchen")[:3]


def in_calls(cache, ids, cuts):
    parts = torch.tensor([ids]).split(cuts, dim=1)
    return torch.cat([tiny(part, cache=cache) for part in parts], dim=1)


# %% id="your-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    whole = tiny(torch.tensor([ids]))
    for cuts in ([10], [1] * 10, [4, 4, 2], [6, 1, 2, 1]):
        difference = (in_calls(YourCache(10), ids, cuts) - whole).abs().max().item()
        assert difference < 1e-9, (
            f"Calls of {cuts} tokens differ by {difference:.3g} from one call without a cache."
        )
    print("four ways of cutting, filled to the last slot: the same logits at every position")
    for n in range(11):
        cache = YourCache(13)
        in_calls(cache, ids, [10])
        cache.truncate(n)
        fresh = tiny(torch.tensor([ids[:n] + others]))[:, n:]
        difference = (in_calls(cache, others, [2, 1]) - fresh).abs().max().item()
        assert difference < 1e-9, (
            f"Cut to {n} of 10, what follows differs by {difference:.3g} from a new text."
        )
    print("cut to 0, 1, ... 10 tokens, then three others: as in a new text")

# %% [markdown] id="task-nbytes"
# ## 7.3 · How much does it hold?
#
# How many bytes are K and V of `batch` texts with `tokens` tokens each? A model has `n_layer` layers of width `n_embd`, which is
# shared out among `n_head` query heads. Only `n_kv_head` heads have K and V, as large as a query head: in newer models several
# query heads share one. `dtype` is torch's, such as `torch.float16`.

# %% [markdown] id="task-nbytes-paper"
# On paper first: Llama 3.1 8B has 32 layers of width 4,096, 32 query heads and 8 that have K and V. One token, float16?

# %% id="guess-nbytes"
guess = None  # bytes

# %% [markdown] id="useful-nbytes"
# Useful: `dtype.itemsize` is the bytes of one number.


# %% id="answer-nbytes" exercise="7.3"
def my_nbytes(n_layer, n_head, n_kv_head, n_embd, tokens, batch, dtype):
    """An int: the bytes of all K and V."""
    ### BEGIN SOLUTION
    head_size = n_embd // n_head
    return 2 * n_layer * n_kv_head * head_size * tokens * batch * dtype.itemsize
    ### END SOLUTION


# %% id="check-nbytes" tags=["check"] exercise="7.3"
check("7.3", my_nbytes)

# %% [markdown] id="nbytes-real"
# Your number against what a real cache holds: SmolLM2, two texts of 21 tokens.

# %% id="nbytes-held" tags=["check"]
with in_short():
    from kvcourse import GrowingCache

    smollm2 = load_model("smollm2")
    shape, cache = smollm2.config, GrowingCache()
    smollm2(torch.zeros(2, 21, dtype=torch.int64), cache=cache)
    sizes = shape.n_layer, shape.n_head, shape.n_kv_head, shape.n_embd
    yours = my_nbytes(*sizes, 21, 2, torch.float32)
    assert yours == cache.nbytes, f"It holds {cache.nbytes:,} bytes; yours {yours:,}."
    print(f"{cache.nbytes:,} bytes, as you said")

# %% [markdown] id="task-verify"
# ## 7.4 · Judge the guesses
#
# One pass over five tokens reads the model's weights once, as one over a single token does. So let something cheap guess the next
# tokens, and let the model read the last token of the text and all guesses in one pass. It then says at each place what it would
# have written itself.

# %% [markdown] id="verify-picture"
# Three guesses, `drafted`, and the model's four choices, `chosen`:
#
#     read       … on   the   mat   and        the text's last token, and the guesses
#     chosen        the   sofa  .     it       what the model writes after each of them
#
# `chosen[0]` follows the true text. `chosen[1]` is what it writes after "the", if "the" is right, and so on. Which of the four are
# what the model would have written without any guesses?

# %% id="guess-verify"
guess = None  # how many of the four

# %% [markdown] id="task-verify-code"
# Return two things. First the new tokens, as many as are certain, as a list. Second the length to which the cache must be cut. It
# holds `length` rows now: the text's, its last token's, and one for each guess. Rows of wrong guesses have to go, those of right
# ones stay, and a token that no pass has read has no row.


# %% id="answer-verify" exercise="7.4"
def my_verify(drafted, chosen, length):
    """drafted: k guessed ids. chosen: the model's k + 1 ids.
    Return (new ids, rows to keep of the cache's `length`)."""
    ### BEGIN SOLUTION
    agreed = 0
    while agreed < len(drafted) and drafted[agreed] == chosen[agreed]:
        agreed += 1
    return chosen[: agreed + 1], length - (len(drafted) - agreed)
    ### END SOLUTION


# %% id="check-verify" tags=["check"] exercise="7.4"
check("7.4", my_verify)

# %% [markdown] id="real-task"
# ## All of it in the real model
#
# A speculative decoder of a few lines: SmolLM2's first 26 layers guess, the whole model reads, your function judges, and your cache
# goes back. What comes out must be what the model writes alone, token for token.

# %% id="real-decode"
from kvcourse.speculative import first_layers


def speculate(model, draft, ids, n, cache):
    """At least n new ids, and how many passes of the whole model they took."""
    text, passes = list(ids), 0
    model(torch.tensor([text[:-1]]), cache=cache)  # the first pass reads the last token
    while len(text) < len(ids) + n:
        drafted = generate(draft, text, max_new_tokens=4).tokens
        chosen = model(torch.tensor([text[-1:] + drafted]), cache=cache)[0].argmax(-1).tolist()
        new, keep = my_verify(drafted, chosen, cache.length)
        cache.truncate(keep)
        text, passes = text + new, passes + 1
    return text[len(ids) :], passes


# %% id="real-model" tags=["check"]
with in_short():
    fox = smollm2.tokenizer.encode(
        "The quick brown fox jumps over the lazy dog. The quick brown fox"
    )
    new, passes = speculate(smollm2, first_layers(smollm2, 26), fox, 12, YourCache(64))
    alone = generate(smollm2, fox, max_new_tokens=len(new)).tokens
    assert new == alone, "Other tokens than the model writes alone. Do the checks above hold?"
    print(f"{len(new)} tokens from {passes} passes of the whole model, the same as alone")

# %% [markdown] id="closing"
# You have built a cache that moves nothing, and taken tokens back without touching a row. Two things to try. Let `my_write` return
# whole buffers: which way of cutting notices, if the cache is exactly as long as the text? And let the draft have 4 layers, or 30:
# how many passes does it take, and what does a guess cost?
