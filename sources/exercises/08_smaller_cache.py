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
# # Exercise 08 · A smaller cache
#
# **You will write** the parts of three smaller caches: a ring of slots with its window, heads that are shared, and numbers of 4 bits.
# 20 lines in all, and a real model runs on them.
#
# **You need** Python and lesson 08, or lesson 06 and the next three cells. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** In each layer of a language model a token leaves a key and a value, which all later tokens read. A KV
# cache keeps them. Its size is 2 · L · H_kv · D · S · bytes: layers, heads with keys and values, numbers in a head, tokens kept,
# bytes of a number.

# %% [markdown] id="recap-window"
# **Fewer tokens.** A **window** of W: each token sees W keys, itself included, and W slots are enough. When all are taken, a new row
# takes the slot of the oldest. A model that loses the very first tokens does badly: its heads rest their attention there. So the
# first few, the **sinks**, may keep their slots, and the others share the rest of the window.

# %% [markdown] id="recap-heads"
# **Fewer heads, fewer bits.** Several query heads can share one K/V head. And a number can be stored as a **code**: with 4 bits, one of
# 0 to 15, counted in equal **steps** from the least number of its group to the greatest.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("8.1")` gives a hint, and each further call a plainer one. `reset("8.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-slots"
# ## 8.1 · The ring
#
# Tokens 0, 1, 2 … have arrived, `length` of them. Which token lies in which slot? Return a list of `window` entries: a token's number,
# or None for a slot that is still empty.

# %% [markdown] id="rules-slots"
# Slots fill in order, 0 first. When all are taken, the next token takes the slot of the oldest that is not a sink; no row ever
# moves. The first `sinks` tokens are the sinks, and `window` is at least `sinks + 1`.
#
# Window 6, sinks 2, on paper first. Tokens 0 to 5 lie in slots 0 to 5. Where do 6, 7, 8 go, and where 10?

# %% id="guess-slots"
guess = {6: None, 7: None, 8: None, 10: None}  # token: slot


# %% id="answer-slots" exercise="8.1"
def my_slots(length, window, sinks):
    """A list of `window` entries: which token lies in each slot after `length` tokens,
    None where there is none."""
    ### BEGIN SOLUTION
    slots = [None] * window
    for token in range(length):
        slot = token if token < sinks else sinks + (token - sinks) % (window - sinks)
        slots[slot] = token
    return slots
    ### END SOLUTION


# %% id="check-slots" tags=["check"] exercise="8.1"
check("8.1", my_slots)

# %% [markdown] id="task-window"
# ## 8.2 · The window
#
# Who sees whom? `queries` and `keys` are tensors of token numbers. Return a table of bools, a row for each query, a column for each
# key: True where that token may look at the other. It sees itself, those before it as far as the window reaches, and the sinks from
# anywhere. `window` counts all of them.

# %% [markdown] id="rules-window"
# Keys come in the order of their slots, such as `[0, 1, 6, 7, 8, 5]`: go by the numbers, not by their places. Window 6, sinks 2: which
# keys does token 9 see in a text where nothing has been overwritten yet?

# %% id="guess-window"
guess = []  # six numbers


# %% [markdown] id="useful-window"
# Useful: comparing a column `x[:, None]` with a row `y[None, :]` gives a table. Tables of bools are joined with `&` (and) and `|` (or),
# each comparison in brackets: `(a < b) & (c > d)`.


# %% id="answer-window" exercise="8.2"
def my_window(queries, keys, window, sinks):
    """A bool tensor (T, S): True where the query of that row, one of (T,),
    may see the key of that column, one of (S,)."""
    ### BEGIN SOLUTION
    q, k = queries[:, None], keys[None, :]
    recent = k > q - (window - sinks)
    return (k <= q) & (recent | (k < sinks))
    ### END SOLUTION


# %% id="check-window" tags=["check"] exercise="8.2"
check("8.2", my_window)

# %% [markdown] id="together"
# ## Your ring in a model
#
# The next cell puts your two functions where the package's cache has its own. What is left to the package: it writes the rows, counts
# tokens in, and tells the model at which position each kept token stands.

# %% id="your-cache"
from kvcourse.caches.sliding import SlidingCache


class YourWindow(SlidingCache):
    def _slot(self, token):
        return my_slots(token + 1, self.window, self.sinks).index(token)

    @property
    def _next_slot(self):
        return self._slot(self.length)

    def _slots(self, tokens):
        return torch.tensor([self._slot(token) for token in tokens.tolist()])

    def _tokens_in_slots(self, n_slots, length):
        slots = my_slots(int(length), self.window, self.sinks)
        return torch.tensor(slots[:n_slots], dtype=torch.int64)

    def _sees(self, queries, keys):
        return my_window(queries[:, 0], keys[0], self.window, self.sinks)


# %% [markdown] id="about-proof"
# The proof. Without sinks: the logits of every position are those of the same model without a cache and with a band for a mask (written
# here with two loops, so that it does not need your answer). With sinks: in a model of one layer, they are those of the kept tokens as
# a text of their own. A small Llama, random weights.

# %% id="small"
from kvcourse import Llama
from kvcourse.caches.base import Plan
from kvcourse.config import LlamaConfig

_ = torch.set_grad_enabled(False)


def small_llama(n_layer):
    torch.manual_seed(8)
    sizes = {"vocab_size": 97, "context_length": 64, "n_embd": 48, "n_inner": 96}
    model = Llama(LlamaConfig(n_layer=n_layer, n_head=6, n_kv_head=2, **sizes))
    for weight in model.parameters():
        weight.mul_(6 if weight.dim() == 2 else 1)  # large enough that a wrong row shows
    return model.double()


one, two = small_llama(1), small_llama(2)
text, places = torch.randint(97, (1, 20)), torch.arange(20)


def in_calls(model, cuts, cache):
    return torch.cat([model(part, cache=cache) for part in text.split(cuts, dim=1)], dim=1)


# %% id="your-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    cuttings = ([20], [1] * 20, [4] * 5, [7, 1, 1, 9, 2])
    for W in (1, 4, 19, 20, 21):
        band = torch.tensor([[q - W < k <= q for k in range(20)] for q in range(20)])
        right = two.compute(text, Plan(places, places, band), None)
        for cuts in cuttings:
            difference = (in_calls(two, cuts, YourWindow(W)) - right).abs().max().item()
            assert difference < 1e-9, (
                f"Window {W}, calls of {cuts} tokens: "
                f"they differ by {difference:.3g} from a model with a band."
            )
    print("windows 1, 4, 19, 20, 21, four ways of cutting: the same logits at every position")
    # Window 8, sinks 2
    kept = [[*range(min(2, i + 1)), *range(max(2, i - 5), i + 1)] for i in range(20)]
    right = torch.stack([one(text[:, tokens])[:, -1] for tokens in kept], dim=1)
    for cuts in cuttings:
        difference = (in_calls(one, cuts, YourWindow(8, 2)) - right).abs().max().item()
        assert difference < 1e-9, (
            f"Window 8, sinks 2, calls of {cuts} tokens: "
            f"they differ by {difference:.3g} from the kept tokens."
        )
    print("window 8 with 2 sinks, one layer: as the kept tokens from scratch")

# %% [markdown] id="task-expand"
# ## 8.3 · Shared heads
#
# `kv` is `(B, H_kv, S, D)`: texts, K/V heads, tokens, numbers. `n_head` query heads share them, and n_head is a multiple of H_kv. Return
# `(B, n_head, S, D)`: for each query head the K/V head that it reads. Neighbours share: with 6 query heads and 2 K/V heads, query
# heads 0, 1, 2 read K/V head 0.


# %% id="answer-expand" exercise="8.3"
def my_expand(kv, n_head):
    """(B, H_kv, S, D) -> (B, n_head, S, D): each query head's K/V head, neighbours sharing one."""
    ### BEGIN SOLUTION
    n_kv_head = kv.shape[1]
    return kv[:, torch.arange(n_head) // (n_head // n_kv_head)]
    ### END SOLUTION


# %% id="check-expand" tags=["check"] exercise="8.3"
check("8.3", my_expand)

# %% [markdown] id="task-quantize"
# ## 8.4 · Codes
#
# Each row of `x`, (G, n), is a group. Its least number gets the code 0, its greatest the last code (15 with 4 bits, 255 with 8), and
# each number the code that is nearest. Return `(codes, low, step)`: codes as a uint8 tensor (G, n); low, the least number, and step,
# from code to code, as (G, 1) tensors of x's dtype.

# %% [markdown] id="rules-quantize"
# Two dangers. In a group of equal numbers the step is 0, and a division by it leaves the codes to chance; such a group must come
# back as it was. And in half precision a step is inexact, so that a quotient may end up above the last code. What happens to 256
# in a byte?

# %% id="byte"
print(torch.tensor([255, 256, 369]).to(torch.uint8))

# %% [markdown] id="useful-quantize"
# So keep codes in their range while they are still floats: `t.clamp(low, high)`. Also useful: `x.amin(1, keepdim=True)` is the least of
# each row, as a column; `x.amax` the greatest; `t.round()`; `t.to(torch.uint8)`; `torch.where(condition, a, b)`.


# %% id="answer-quantize" exercise="8.4"
def my_quantize(x, bits):
    """(codes, low, step) of each row of x, (G, n): uint8 (G, n), and (G, 1) twice, in x's dtype."""
    ### BEGIN SOLUTION
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    codes = (x - low) / torch.where(step > 0, step, 1.0)
    return codes.round().clamp(0, 2**bits - 1).to(torch.uint8), low, step
    ### END SOLUTION


# %% id="check-quantize" tags=["check"] exercise="8.4"
check("8.4", my_quantize)

# %% [markdown] id="task-dequantize"
# ## 8.5 · Numbers again
#
# And back: the numbers that the codes stand for, in the dtype of `low` and `step`.


# %% id="answer-dequantize" exercise="8.5"
def my_dequantize(codes, low, step):
    """The numbers, (G, n), of codes (G, n), which lie `step` apart, (G, 1), from `low` on,
    (G, 1)."""
    ### BEGIN SOLUTION
    return low + step * codes
    ### END SOLUTION


# %% id="check-dequantize" tags=["check"] exercise="8.5"
check("8.5", my_dequantize)

# %% [markdown] id="real-task"
# ## All of it on the real model
#
# Keys and values of one of SmolLM2's layers, a text of 64 tokens. Your heads first: attention on your expanded K/V heads must equal the
# package's, which shares them. Then your codes, each channel of the keys a group of 32 tokens. How far off may a number be?

# %% id="guess-error"
guess = None  # in steps

# %% id="real-model" tags=["check"]
from kvcourse import attend, load_model, trace

with in_short():
    smollm2 = load_model("smollm2")
    ids = smollm2.tokenizer.encode(
        "The lighthouse was built by two brothers. Tom drew the plans and Elias cut the stone. " * 4
    )[:64]
    seen = trace(smollm2, ids)
    # 9 query heads, 3 K/V heads
    q, k, v = (seen[f"blocks.15.attn.{name}"] for name in ("q", "k", "v"))
    same = torch.allclose(attend(q, my_expand(k, 9), my_expand(v, 9)), attend(q, k, v), atol=1e-5)
    assert same, "Attention on your expanded heads differs from the package's."
    print("your heads: the same attention")
    # A row for each channel and 32 tokens
    groups = k.unflatten(2, (2, 32)).transpose(-1, -2).reshape(-1, 32)
    for bits in (8, 4):
        codes, low, step = my_quantize(groups, bits)
        error = (my_dequantize(codes, low, step) - groups).abs()
        assert (error <= step / 2 + 1e-4).all(), (
            f"With {bits} bits a number is off by {(error / step).max():.2f} steps."
        )
        print(
            f"your {bits}-bit codes: no key is off by more than half a step; "
            f"mean error {error.mean():.3f}"
        )

# %% [markdown] id="real-window-task"
# And your window: SmolLM2 writes on after 53 tokens, with 24 kept. Four sinks keep it to its story. Without them it loses itself.

# %% id="real-window" tags=["check"]
from kvcourse import generate

with in_short():
    story = smollm2.tokenizer.encode(
        "The keeper had a simple day. In the morning he cleaned the glass. "
        "In the afternoon he filled the lamp with oil, wound the clock that turned the lens, "
        "and wrote the weather in a book. "
        "At sunset he lit the lamp, and in the night he"
    )
    for sinks in (4, 0):
        yours = generate(smollm2, story, max_new_tokens=12, cache=YourWindow(24, sinks)).tokens
        ours = generate(smollm2, story, max_new_tokens=12, cache=SlidingCache(24, sinks)).tokens
        assert yours == ours, "Other tokens than ours."
        print(f"sinks {sinks}: {smollm2.tokenizer.decode(yours)!r}")

# %% [markdown] id="closing"
# You have built what long chats on small machines run on. Two things to try. Give `YourWindow` one sink, then 20 of 24: what does the model
# write? And quantize the keys with a group for each token, `k.reshape(-1, 64)`: how much larger is the mean error, and which lesson 08
# figure shows why?
