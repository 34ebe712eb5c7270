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
# # Exercise 03 · Build a GPT
#
# **You will write** the parts of a GPT as plain functions, about 15 lines in all, put them together, and let them compute what
# a finished model computes.
#
# **You need** Python and lesson 03. Attention is given (lesson 02). About 40 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A GPT gives every token a vector of `C` numbers and passes it through a stack of blocks. A block
# reads the vector, computes something and **adds** it to the vector. So does the next one. The vectors on their way are called
# the residual stream. In the end each is compared with the token table, which gives the logits.

# %% [markdown] id="shapes"
# **The shapes.** The stream is a tensor `(B, T, C)`: `B` texts, `T` tokens in each, `C` numbers for each token. The last axis
# is always the one with a token's own numbers; it can be called `dim=-1`. Weights of linear maps have the shape `(in, out)`, as
# in GPT-2: they are used as `x @ w + b`.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("3.1")` gives a hint, and each further call a plainer one. `reset("3.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-layer-norm"
# ## 3.1 · Layer norm
#
# Every part of a block first brings each token to a common scale: take the mean of the token's numbers off, divide by the
# root of their variance plus `eps`, multiply number `c` by `weight[c]`, and add `bias[c]`:
#
# $$\frac{x - \text{mean}}{\sqrt{\text{var} + \text{eps}}} \cdot \text{weight} + \text{bias}$$

# %% [markdown] id="useful-layer-norm"
# The variance is the **average** of the squared distances from the mean, so it divides by `C`; torch's divides by `C - 1`
# unless it is told otherwise. Leave `x` itself as it is. (When graded, torch's own layer norm is not there.)
#
# Useful: `x.mean(dim=…, keepdim=True)`, `x.var(dim=…, keepdim=True, correction=0)`.


# %% id="answer-layer-norm" exercise="3.1"
def my_layer_norm(x, weight, bias, eps):
    """x (B, T, C), weight and bias (C,): every token normalised by itself, then scaled and shifted.
    Returns (B, T, C)."""
    ### BEGIN SOLUTION
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred**2).mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * weight + bias
    ### END SOLUTION


# %% id="check-layer-norm" tags=["check"] exercise="3.1"
check("3.1", my_layer_norm)

# %% [markdown] id="task-mlp"
# ## 3.2 · The MLP
#
# A linear map from `C` to `F` numbers, GELU on each of them, a linear map back from `F` to `C`. No token sees another one.
#
# Useful: `torch.nn.functional.gelu(h, approximate="tanh")`. GPT-2 was trained with this approximation, and a model has to be run
# with the one it was trained with.


# %% id="answer-mlp" exercise="3.2"
def my_mlp(x, c_fc_w, c_fc_b, c_proj_w, c_proj_b):
    """x (B, T, C); c_fc_w (C, F), c_fc_b (F,), c_proj_w (F, C), c_proj_b (C,).
    Returns what is to be added: (B, T, C)."""
    ### BEGIN SOLUTION
    hidden = torch.nn.functional.gelu(x @ c_fc_w + c_fc_b, approximate="tanh")
    return hidden @ c_proj_w + c_proj_b
    ### END SOLUTION


# %% id="check-mlp" tags=["check"] exercise="3.2"
check("3.2", my_mlp)

# %% [markdown] id="task-block"
# ## 3.3 · A block
#
# Now the parts come as finished functions, each of which takes the stream's shape and returns it. First attention, then the
# MLP: each reads a copy of the stream that its own norm (`ln_1`, `ln_2`) has made, and its result is added to the stream.

# %% [markdown] id="guess-block-text"
# Before you write: if `attn` and `mlp` returned nothing but zeros, what would a block return?

# %% id="guess-block"
guess = None


# %% id="answer-block" exercise="3.3"
def my_block(x, ln_1, attn, ln_2, mlp):
    """x (B, T, C); the others are functions from (B, T, C) to (B, T, C).
    Returns the stream after the block; x stays as it is."""
    ### BEGIN SOLUTION
    x = x + attn(ln_1(x))
    return x + mlp(ln_2(x))
    ### END SOLUTION


# %% id="check-block" tags=["check"] exercise="3.3"
check("3.3", my_block)

# %% [markdown] id="task-gpt"
# ## 3.4 · A GPT
#
# From ids to logits. `wte` has a row for each token of the vocabulary, `wpe` a row for each place in the text. The stream starts
# as the sum of a token's row and its place's row. Then come the blocks, one after the other, and the norm `ln_f`. The logits are
# the dot products of each vector with every row of `wte`.

# %% [markdown] id="useful-gpt"
# Useful: `table[ids]` picks rows; `torch.arange(n)` is 0, 1, …, n - 1; `m.T` turns a matrix on its side.


# %% id="answer-gpt" exercise="3.4"
def my_gpt(tokens, wte, wpe, blocks, ln_f):
    """tokens int64 (B, T); wte (V, C); wpe (places, C);
    blocks: a list of functions of the stream; ln_f: one more.

    Returns logits (B, T, V).
    """
    ### BEGIN SOLUTION
    x = wte[tokens] + wpe[torch.arange(tokens.shape[1])]
    for block in blocks:
        x = block(x)
    return ln_f(x) @ wte.T
    ### END SOLUTION


# %% id="check-gpt" tags=["check"] exercise="3.4"
check("3.4", my_gpt)

# %% [markdown] id="together"
# ## Your GPT, with a model's weights
#
# The next cells give your functions the weights of `tiny`, by their names: `transformer.h.0.mlp.c_fc.weight` is the first matrix
# of the MLP in block 0. Attention is given.

# %% id="tiny"
from kvcourse import attend, causal_mask, load_model

tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
weights = tiny.state_dict()
L, H, eps = tiny.config.n_layer, tiny.config.n_head, tiny.config.norm_eps


# %% id="your-parts"
def read(name, *parts):
    return [weights[f"{name}.{part}.{kind}"] for part in parts for kind in ("weight", "bias")]


def norm_named(name, part):
    weight, bias = read(name, part)
    return lambda x: my_layer_norm(x, weight, bias, eps)


def mlp_named(name):
    four = read(name, "c_fc", "c_proj")
    return lambda x: my_mlp(x, *four)


# %% id="given-attention"
def attention_named(name):
    c_attn_w, c_attn_b, c_proj_w, c_proj_b = read(name, "c_attn", "c_proj")

    def attention(x):
        B, T, C = x.shape
        # (B, H, T, D) each
        q, k, v = (x @ c_attn_w + c_attn_b).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4)
        z = attend(q, k, v, causal_mask(torch.arange(T), torch.arange(T)))  # (B, H, T, D)
        return z.transpose(1, 2).reshape(B, T, C) @ c_proj_w + c_proj_b

    return attention


# %% id="your-model"
def block_named(name):
    ln_1, ln_2 = norm_named(name, "ln_1"), norm_named(name, "ln_2")
    attn, mlp = attention_named(f"{name}.attn"), mlp_named(f"{name}.mlp")
    return lambda x: my_block(x, ln_1, attn, ln_2, mlp)


blocks = [block_named(f"transformer.h.{layer}") for layer in range(L)]


def your_gpt(tokens):
    wte, wpe = (weights[f"transformer.{table}.weight"] for table in ("wte", "wpe"))
    return my_gpt(tokens, wte, wpe, blocks, norm_named("transformer", "ln_f"))


# %% id="your-proof" tags=["check"]
tokens = torch.tensor([tiny.tokenizer.encode("ana is in the garden . where is ana ?")])

with in_short():  # an error in here is told in a line
    difference = (your_gpt(tokens) - tiny(tokens)).abs().max().item()
    assert difference < 1e-9, (
        f"Your logits differ from the model's by {difference:.3g}. Do the four checks above pass?"
    )
    print(
        f"{tokens.shape[1]} tokens, {L} blocks: the logits of your GPT are the model's, everywhere"
    )

# %% [markdown] id="task-count"
# ## 3.5 · How many parameters?
#
# Only from the sizes: how many numbers are there in such a GPT? Count weights and biases of everything: the two tables, in each
# block two norms, `c_attn` (from `C` to `3·C`), attention's `c_proj` (`C` to `C`), `c_fc` (`C` to `F`) and the MLP's `c_proj` (`F`
# to `C`), and the last norm. The head is the token table again, the same tensor.

# %% [markdown] id="useful-count"
# Heads do not appear: they share the numbers of `c_attn` among them, however many they are. Do not take `F` for `4·C`: that is
# GPT-2's choice, not a law.


# %% id="answer-count" exercise="3.5"
def my_parameter_count(vocab_size, context_length, n_layer, n_embd, n_inner):
    """How many numbers a GPT of these sizes has, each tensor counted once. An int."""
    ### BEGIN SOLUTION
    C, F = n_embd, n_inner
    attention = C * 3 * C + 3 * C + C * C + C
    mlp = C * F + F + F * C + C
    norm = 2 * C
    block = norm + attention + norm + mlp
    return vocab_size * C + context_length * C + n_layer * block + norm
    ### END SOLUTION


# %% id="check-count" tags=["check"] exercise="3.5"
check("3.5", my_parameter_count)

# %% [markdown] id="sizes-text"
# GPT-2 came in four sizes. Let your formula count them, and set the count of `tiny` against its tensors.

# %% id="sizes" tags=["check"]
with in_short():
    sizes = {"small": (12, 768), "medium": (24, 1024), "large": (36, 1280), "XL": (48, 1600)}
    for name, (n_layer, C) in sizes.items():
        print(f"GPT-2 {name:6} {my_parameter_count(50257, 1024, n_layer, C, 4 * C):13,}")
    c = tiny.config
    counted = my_parameter_count(c.vocab_size, c.context_length, c.n_layer, c.n_embd, c.n_inner)
    assert counted == sum(p.numel() for p in tiny.parameters()), (
        "The formula and the tensors of tiny disagree."
    )
    print(f"tiny         {counted:13,}, as many as its tensors hold")

# %% [markdown] id="closing"
# You have built the whole forward pass of GPT-2. Two things to try. Take `x +` out of the first line of your block and run the
# proof again: by how much do the logits differ? And in `your_gpt`, hand over the blocks in reverse order. The model has the same
# parameters, to the last one. Does it still say the same?
