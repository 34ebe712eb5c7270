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
# # Exercise 04 · From bytes to K
#
# **You will write** four short functions, 25 lines in all. Together they go from the bytes of a weights file to the keys of any
# block, with no model in between.
#
# **You need** Python, a little PyTorch and lesson 04, or the next two cells. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A model's file holds **weights**: named tensors, found by training, the same for every prompt. What a
# model computes from a prompt are **activations**. In each block every token gets a query q, a key k and a value v:
#
# $$K = x\,W_k + b_k$$
#
# `Wk` and `bk` are weights. `x`, the normalised vectors of the prompt's tokens, and `K` are activations.

# %% [markdown] id="shapes"
# **The shapes.** T tokens of C numbers each make `x` (T, C). `Wk` is (C, C) and `bk` (C,), so K is (T, C). Its C columns belong
# to H heads, `D = C / H` each, side by side: head 0 has the first D columns, head 1 the next. `@` multiplies matrices, and `+ b`
# adds b to every row.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("4.1")` gives a hint, and each further call a plainer one. `reset("4.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are.

# %% id="imports"
import json

import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-find"
# ## 4.1 · Find a tensor by its role
#
# `shapes` is what a file's header tells: a dictionary from each tensor's name to its shape. Which of them make block `layer`'s K
# out of its `x`? Two families of names have to be understood.

# %% [markdown] id="names"
# | | GPT-2 | Llama |
# |---|---|---|
# | projections | `transformer.h.7.attn.c_attn.weight`, `.bias` | `model.layers.7.self_attn.q_proj.weight`, `k_proj`, `v_proj` |
# | attention's output | `transformer.h.7.attn.c_proj.weight` | `model.layers.7.self_attn.o_proj.weight` |
#
# GPT-2's c_attn makes q, k and v in one product. A Llama has three, mostly without a bias. Models between the two have `k_proj.bias`.

# %% [markdown] id="names-traps"
# Three things that real files hold: more than ten blocks; GPT-2 without its first word, as in `h.7.attn.c_attn.weight`; and, in
# old files, `transformer.h.7.attn.bias`, which is the causal mask and no weight at all.


# %% id="answer-find" exercise="4.1"
def my_k_names(shapes, layer):
    """A list of the names of all tensors that take part in making K in block `layer` from its x,
    in any order."""
    ### BEGIN SOLUTION
    makes_k = []
    for name in shapes:
        words = name.split(".")
        if str(layer) in words and ("c_attn" in words or "k_proj" in words):
            makes_k.append(name)
    return makes_k
    ### END SOLUTION


# %% id="check-find" tags=["check"] exercise="4.1"
check("4.1", my_k_names)

# %% [markdown] id="task-split"
# ## 4.2 · Cut c_attn apart
#
# The fused weight is (C, 3C), and `x @ weight + bias` gives each token 3C numbers: q's C numbers, then k's, then v's. Before you
# write: x has two numbers, C = 2. Which of these six columns make k?

# %% id="guess-columns"
guess = """
. . . . . .
. . . . . .
"""  # put an x in the columns of Wk

# %% [markdown] id="useful-split"
# Useful: `w[:, a:b]` is the columns a to b - 1 of a matrix, `w.split(n, dim=…)` cuts a tensor into pieces of n along an axis.


# %% id="answer-split" exercise="4.2"
def my_split(weight, bias):
    """Three pairs, (Wq, bq), (Wk, bk), (Wv, bv): each W is (C, C) and each b is (C,).
    The fused tensors stay as they are."""
    ### BEGIN SOLUTION
    C = weight.shape[0]
    weights, biases = weight.split(C, dim=1), bias.split(C)
    return tuple(zip(weights, biases, strict=True))
    ### END SOLUTION


# %% id="check-split" tags=["check"] exercise="4.2"
check("4.2", my_split)

# %% [markdown] id="task-keys"
# ## 4.3 · K by hand
#
# Now a whole block's keys. `x` is (T, C) and comes straight from the block below, so it is not normalised yet; `weights` has all
# of a GPT's tensors by name. Block `layer` first lets its `ln_1` normalise each token, then multiplies.

# %% [markdown] id="task-keys-norm"
# `torch.nn.functional.layer_norm(x, (C,), weight, bias, eps=1e-5)` is that norm: `transformer.h.7.ln_1.weight` and `.bias` are its
# weights.
#
# The result has a matrix for each head: (H, T, D). Useful: `view(a, b, c)` folds the same numbers, in the same order, into another
# shape; `transpose(0, 1)` exchanges two axes. Which axis can be folded without mixing two tokens?


# %% id="answer-keys" exercise="4.3"
def my_keys(x, weights, layer, n_head):
    """The keys of block `layer`, (H, T, D). x: (T, C), what the block is given.
    weights: {name: tensor} of a GPT."""
    ### BEGIN SOLUTION
    T, C = x.shape
    block = f"transformer.h.{layer}."
    gain, shift = weights[block + "ln_1.weight"], weights[block + "ln_1.bias"]
    normed = torch.nn.functional.layer_norm(x, (C,), gain, shift, eps=1e-5)
    Wk = weights[block + "attn.c_attn.weight"][:, C : 2 * C]
    bk = weights[block + "attn.c_attn.bias"][C : 2 * C]
    K = normed @ Wk + bk  # (T, C)
    return K.view(T, n_head, C // n_head).transpose(0, 1)
    ### END SOLUTION


# %% id="check-keys" tags=["check"] exercise="4.3"
check("4.3", my_keys)

# %% [markdown] id="trace-text"
# ## Does the model agree?
#
# `trace` runs a model and keeps everything it computes, by name. We give your function what each block was given, and compare with
# the keys that the model computed there.

# %% id="tiny"
from kvcourse import load_model, trace

tiny = load_model("tiny")
ids = tiny.tokenizer.encode("ana is in the garden . where is ana ?")
named = trace(tiny, ids)
print(len(ids), "tokens,", tiny.config.n_layer, "blocks,", tiny.config.n_head, "heads")

# %% id="your-keys" tags=["check"]
with in_short():  # an error in here is told in a line
    for b in range(tiny.config.n_layer):
        given, theirs = named[f"blocks.{b}.resid_pre"][0], named[f"blocks.{b}.attn.k"][0]
        yours = my_keys(given, tiny.state_dict(), b, tiny.config.n_head)
        assert yours.shape == theirs.shape, (
            f"Block {b}: {tuple(yours.shape)}, and the model's are {tuple(theirs.shape)}."
        )
        assert torch.allclose(yours, theirs, atol=1e-4), (
            f"Block {b}: your keys are not the model's."
        )
        print(f"block {b}: the model's keys, by hand")

# %% [markdown] id="task-read"
# ## 4.4 · Read a weights file
#
# Last, without a model and without a library. A safetensors file has three regions, one after the other:
#
# | bytes | what |
# |---|---|
# | 8 | a whole number, least significant byte first: how long the header is |
# | that many | the header, JSON: `{"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …}` |
# | the rest | the numbers, row after row |

# %% [markdown] id="task-read-details"
# `data_offsets` says where a tensor's bytes begin and end, counted from the first byte of the third region. The tensors may be
# listed in any order. `dtype` is "F32" (torch.float32, 4 bytes a number) or "F16" (torch.float16, 2 bytes) here. There may be an
# entry `__metadata__`, which is no tensor, and spaces after the JSON, which `json.loads` skips.

# %% [markdown] id="useful-read"
# `data` is the file's bytes as a list of numbers from 0 to 255. Useful: `bytes(data)`; `int.from_bytes(eight, "little")`;
# `json.loads(some_bytes)`; `torch.frombuffer(bytearray(some_bytes), dtype=…)`, which takes bytes for a row of numbers; and
# `reshape(shape)`.


# %% id="answer-read" exercise="4.4"
def my_read(data, name):
    """The tensor of that name, with the shape and dtype that the header states.
    data: a list of the file's bytes."""
    ### BEGIN SOLUTION
    data = bytes(data)
    begin = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:begin])[name]
    start, stop = entry["data_offsets"]
    dtype = {"F32": torch.float32, "F16": torch.float16}[entry["dtype"]]
    row = torch.frombuffer(bytearray(data[begin + start : begin + stop]), dtype=dtype)
    return row.reshape(entry["shape"])
    ### END SOLUTION


# %% id="check-read" tags=["check"] exercise="4.4"
check("4.4", my_read)

# %% [markdown] id="together"
# ## From bytes to K
#
# All four together. `tiny` is written to a file, and from then on the model is not used any more: your functions find the names,
# read the numbers and cut them, and the K that they make is compared with what the model computed.

# %% id="a-file"
from pathlib import Path
from tempfile import TemporaryDirectory

from kvcourse import save_model
from kvcourse.weights import inventory

with TemporaryDirectory() as folder:
    file = save_model(tiny, folder) / "model.safetensors"
    shapes = {weight.name: weight.shape for weight in inventory(file)}
    data = list(file.read_bytes())
print(f"{len(data):,} bytes, beginning with {data[:8]}")

# %% id="from-bytes" tags=["check"]
with in_short():
    last = tiny.config.n_layer - 1
    names = sorted(my_k_names(shapes, last))
    assert len(names) == 2, f"Block {last} needs two tensors for K; my_k_names found {names}."
    bias, weight = (my_read(data, name) for name in names)
    normed = named[f"blocks.{last}.ln1"][0]
    Wk, bk = my_split(weight, bias)[1]
    # (T, C): heads side by side again
    theirs = named[f"blocks.{last}.attn.k"][0].transpose(0, 1).flatten(1)
    assert torch.allclose(normed @ Wk + bk, theirs, atol=1e-4), (
        "The keys from the file differ from the model's."
    )
    print(
        f"block {last}: K from {weight.numel() + bias.numel():,} numbers of the file and "
        f"{len(ids)} tokens"
    )

# %% [markdown] id="real-task"
# And the real model? Its names are a Llama's. Your function finds the one tensor it needs in each of thirty blocks.

# %% id="real-model" tags=["check"]
with in_short():
    smollm2 = load_model("smollm2")
    shapes = {name: tuple(tensor.shape) for name, tensor in smollm2.state_dict().items()}
    found = [my_k_names(shapes, layer) for layer in range(smollm2.config.n_layer)]
    assert all(len(names) == 1 for names in found), "Each block of this model has one such tensor."
    print(found[0][0], shapes[found[0][0]])
    print(found[-1][0], shapes[found[-1][0]])

# %% [markdown] id="closing"
# Whatever a file of weights calls its tensors, you can find the ones that matter, read their bytes and check what a model does
# with them. Two things to try. Add 1 to one number of `Wk` and compute K again: which of its numbers move? And the real model's
# tensor is (192, 576), while x has 576 numbers: which way round is it multiplied, and how many heads of 64 does it make? (Lesson 08.)
