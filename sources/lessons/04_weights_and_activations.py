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
# # 04 · Which tensors are weights, which are computed?
#
# **You need** lessons 02 and 03: what q, k and v are, and what a block does with them. About 40 minutes, half of them yours.
#
# **At the end** you can point at any tensor of a GPT and say whether it lies in the file or was computed just now; compute a
# block's keys by hand; and read a file of weights with nothing but Python.

# %% id="imports"
import json
import struct
from tempfile import TemporaryDirectory

import numpy as np
import torch

from kvcourse import load_model, save_model, timed, trace
from kvcourse.viz import model_map, plot_projection
from kvcourse.weights import inventory, split_qkv

_ = torch.set_grad_enabled(False)  # nothing is trained here
tiny = load_model("tiny")  # the course's GPT: four blocks, four heads, C = 128

# %% [markdown] id="ask"
# ## Two heaps
#
# A model that is running is made of tensors, more than a hundred of them. Some came out of a file and are the same for every text.
# The others did not exist a moment ago. Sort these seven before you read on.

# %% id="guess-heaps"
guess = {  # "file" or "computed"
    "the table of token vectors": None,
    "the table of position vectors": None,
    "Wk": None,
    "K": None,
    "the attention pattern": None,
    "the causal mask": None,
    "the logits": None,
}

# %% [markdown] id="three-views"
# We look at one model three times: at its parts, at what is stored for them, and at what they compute. Three lists, and the names
# in them look alike. Most confusion about caches begins with taking one list for another.

# %% [markdown] id="view-structure"
# **First view: the structure.** Which part is inside which. Block 0, as PyTorch prints it:

# %% id="structure"
print(tiny.transformer.h[0])

# %% [markdown] id="explain-structure"
# Parts, in the order in which they were written down. No number of the model is visible, and no K: attention consists of two
# linear maps, `c_attn` and `c_proj`. What happens between them is an action, and actions are not listed here.

# %% [markdown] id="view-weights"
# **Second view: the weights**, or parameters. `inventory` lists every stored tensor with its name, its role and its shape. How many
# are there, in this model of four blocks?

# %% id="guess-count"
guess = None

# %% id="weights"
weights = inventory(tiny)
total = sum(w.parameters for w in weights)
print(f"{len(weights)} names, {total:,} parameters. Those of block 0:")
for w in weights:
    if w.layer == 0:
        name = w.name.removeprefix("transformer.")
        print(f"  {name:24} {w.role:28} {w.shape!s:12} {w.parameters:7,}")

# %% [markdown] id="explain-weights"
# Now with numbers. Twelve tensors in a block, and every shape is made of C = 128 and its multiples. No T: how long
# your text is, the file does not know.

# %% [markdown] id="ask-zero"
# The inventory has 53 names. Does each of them have numbers of its own?

# %% id="guess-zero"
guess = None  # is there a name without any?

# %% id="totals"
for w in weights:
    if w.layer is None:
        print(f"{w.name:26} {w.role:45} {w.parameters:7,}")
print(f"{sum(w.bytes for w in weights) / 1e6:.2f} MB, four bytes a number")
assert sum(w.parameters for w in weights) == sum(p.numel() for p in tiny.parameters())

# %% [markdown] id="explain-zero"
# Not `lm_head.weight`: it is the token table again, under a second name (lesson 01). Whoever adds up names counts those numbers
# twice.

# %% [markdown] id="view-activations"
# **Third view: the activations.** `trace` runs one pass and keeps what is computed on the way, by name. This is block 0:

# %% id="activations"
prompt = tiny.tokenizer.encode("ana is in the garden .")
named = trace(tiny, prompt)
for name, tensor in named.items():
    if name.startswith("blocks.0."):
        print(f"{name.removeprefix('blocks.0.'):13} {tuple(tensor.shape)}")

# %% [markdown] id="explain-activations"
# The 6 is T, the number of tokens, and it is in every shape. (The 1 in front: one text at a time.) q, k and v have come apart into
# 4 heads of 32 numbers.

# %% [markdown] id="explain-names"
# `ln1` and `ln2` are what the two norms return; `mlp.pre` and `mlp.post` the MLP's hidden numbers, before and after the bend;
# `resid_pre`, `resid_mid` and `resid_post` the stream. The names are those of TransformerLens, a library for looking into models: its
# `blocks.0.attn.hook_k` is our `blocks.0.attn.k`.

# %% id="two-heaps"
stored, computed = {w.name for w in weights}, set(named)
both = stored & computed
print(f"{len(stored)} names in one heap, {len(computed)} in the other, {len(both)} in both")
assert not stored & computed

# %% [markdown] id="ask-map"
# ## All of it on one map
#
# Blue-violet with a W: stored. Green with an A: computed. Amber with a Σ: sums over many numbers, such as the one by which softmax
# divides. Choose a box to see its numbers and what made them, and find the switch that shows what later lessons keep.

# %% id="map" tags=["volatile"]
model_map(tiny, "ana is in the garden .")

# %% [markdown] id="ask-change"
# ## What changes with the prompt?
#
# Two prompts of six tokens. Between them we keep a copy of every weight; of both runs, every named tensor is compared. How many
# of the weights change, and how many of the activations?

# %% id="guess-change"
guess = {"weights": None, "activations": None}  # none, some or all

# %% id="run-change"
before = {name: tensor.clone() for name, tensor in tiny.state_dict().items()}
other = trace(tiny, tiny.tokenizer.encode("the cup is with ben ."))
after = tiny.state_dict()

untouched = [name for name in before if torch.equal(before[name], after[name])]
alike = [name for name in named if torch.equal(named[name], other[name])]
print(f"weights: {len(untouched)} of {len(before)} are the same after both prompts")
print(f"activations: {len(alike)} of {len(named)} are the same for both prompts: {alike}")

# %% id="check-change"
assert len(untouched) == len(before)
assert alike == ["pos_embed"]

# %% [markdown] id="explain-change"
# All weights stay, to the last bit. All activations move but one: `pos_embed` holds the rows 0 to 5 of a stored table, and place 3 is
# place 3 in every text. It is an activation all the same: a longer prompt has more of it.

# %% [markdown] id="explain-seven"
# Of your seven, then: both tables and `Wk` lie in the file; K, the pattern and the logits are computed; and the causal mask belongs to
# neither heap. It is made from the places alone, and nobody learned it.

# %% [markdown] id="define"
# So, in one sentence each:
#
# - A **weight** is found by training, stored in the file, and the same for every prompt.
# - An **activation** is computed from this prompt, and gone when nobody keeps it.
#
# `Wk` is a weight. K is an activation. A KV cache keeps K and V, never `Wk` and `Wv`: those are kept anyway.

# %% [markdown] id="ask-toy"
# ## K = x @ Wk + bk
#
# But there is no `Wk` in the inventory. GPT-2 stores the three projections as one, `c_attn`, and does them in one product. A toy, with
# C = 2: three tokens of two numbers, and a fused weight of six columns.

# %% id="toy"
x = torch.tensor([[1, 0], [0, 1], [2, 1]])
fused = torch.tensor([[1, 2, 10, 20, 100, 200], [3, 4, 30, 40, 300, 400]])
bias = torch.tensor([0, 0, 5, 5, 0, 0])

# %% id="guess-toy"
guess = None  # K of the third token, two numbers. And which columns did you use?

# %% id="run-toy"
print(x @ fused + bias)

# %% [markdown] id="explain-toy"
# Each row is q, k and v of one token, side by side. A column of the weight makes one number of the result and has nothing to do with
# the columns beside it. So the middle third of the columns is `Wk`, the middle third of the bias is `bk`, and K can be computed
# without q and v:


# %% id="split"
def split(fused):
    C = fused.shape[-1] // 3
    return fused[..., :C], fused[..., C : 2 * C], fused[..., 2 * C :]


Wk, bk = split(fused)[1], split(bias)[1]
print(x @ Wk + bk)
assert torch.equal(x @ Wk + bk, (x @ fused + bias)[:, 2:4])

# %% [markdown] id="check-split-text"
# The package calls it `split_qkv` and refuses what is no such tensor. The same on a real weight:

# %% id="check-split"
c_attn = tiny.transformer.h[1].attn.c_attn
for ours, theirs in zip(split(c_attn.weight), split_qkv(c_attn.weight), strict=True):
    assert torch.equal(ours, theirs)
Wk, bk = split_qkv(c_attn.weight).k, split_qkv(c_attn.bias).k
print("c_attn", tuple(c_attn.weight.shape), "  Wk", tuple(Wk.shape), "  bk", tuple(bk.shape))

# %% [markdown] id="ask-hand"
# Now block 1's keys by hand. What is x here? Attention does not read the stream; it reads what `ln_1` made of it.

# %% id="by-hand"
x = named["blocks.1.ln1"][0]
K = x @ Wk + bk
for name, tensor, role, origin in (
    ("x", x, "activation", "the six tokens, after ln_1 of block 1"),
    ("Wk", Wk, "weight", "columns 128 to 255 of transformer.h.1.attn.c_attn.weight"),
    ("bk", bk, "weight", "numbers 128 to 255 of transformer.h.1.attn.c_attn.bias"),
    ("K", K, "activation", "x @ Wk + bk"),
):
    print(f"{name:3} {tuple(tensor.shape)!s:11} {role:11} {origin}")

# %% [markdown] id="ask-heads"
# The trace's `attn.k` is (4, 6, 32): four heads. Lesson 02's trap again: cut the last axis, then exchange axes. Which line
# does it?

# %% id="guess-heads"
guess = None  # "a": K.view(4, 6, 32)    "b": K.view(6, 4, 32).transpose(0, 1)

# %% id="run-heads"
theirs = named["blocks.1.attn.k"][0]
for name, folded in {"a": K.view(4, 6, 32), "b": K.view(6, 4, 32).transpose(0, 1)}.items():
    print(name, tuple(folded.shape), "the model's keys:", torch.allclose(folded, theirs, atol=1e-4))

# %% id="check-heads"
assert torch.allclose(K.view(6, 4, 32).transpose(0, 1), theirs, atol=1e-4)
assert not torch.allclose(K.view(4, 6, 32), theirs, atol=1e-4)

# %% [markdown] id="explain-heads"
# Both have the right shape, and only (b) keeps a token's row together while it is cut: head h is columns 32·h to 32·h + 31 of
# every token.

# %% [markdown] id="change-heads"
# **Change one thing.** Which columns of `Wk` make head 2, and nothing else? Compute that head alone from them and compare it with
# `theirs[2]`.

# %% [markdown] id="picture-text"
# One head, two prompts, drawn. Follow the frames: what is blue-violet stands there once, what is green belongs to one prompt.

# %% id="picture" alt="For each of two prompts a green-framed matrix x of six tokens by 128 numbers, in the middle one blue-violet framed weight Wk of 128 by 32, and on the right a green-framed K of six tokens by 32 numbers. The two x and the two K differ; Wk is drawn once."
runs = {}
for text, run in (("ana is in the garden .", named), ("the cup is with ben .", other)):
    tokens = [tiny.tokenizer.token_text(i) for i in tiny.tokenizer.encode(text)]
    runs[text] = tokens, run["blocks.1.ln1"][0].numpy(), run["blocks.1.attn.k"][0, 0].numpy()
plot_projection(runs, Wk[:, :32].numpy(), part="head 0")

# %% [markdown] id="ask-poke"
# A sharper test of who does what. First change one word of the prompt, then, in a copy of the model, one number of `Wk`. K of block 0
# has 6 rows and 128 columns. Which of them move each time?

# %% id="guess-poke"
guess = {"one word": None, "one number of Wk": None}

# %% id="run-poke"
poked = load_model("tiny")
poked.transformer.h[0].attn.c_attn.weight[3, 128 + 5] += 1  # row 3, column 5 of the middle third
word = trace(tiny, tiny.tokenizer.encode("ana was in the garden ."))
number = trace(poked, prompt)


def moved(run):
    """(6, 128), True where block 0's K is not what it was."""
    before, now = (r["blocks.0.attn.k"][0].transpose(0, 1).flatten(1) for r in (named, run))
    return (now - before).abs() > 1e-5


for name, where in (("one word", moved(word)), ("one number of Wk", moved(number))):
    rows, columns = where.any(dim=1).nonzero().flatten().tolist(), where.any(dim=0).sum()
    print(f"{name:16} moves {columns:3} columns, in the rows {rows}")

# %% id="check-poke"
assert moved(word).any(dim=1).tolist() == [False, True, False, False, False, False]
assert moved(number).any(dim=0).nonzero().flatten().tolist() == [5]
assert tiny.fingerprint != poked.fingerprint

# %% [markdown] id="explain-poke"
# A word owns a row: K has one for every token. A number of `Wk` owns a part of a column, for all tokens alike, in this text and in
# every other. (From block 1 on, x has been through attention, and a word reaches further. Which rows? Lesson 05.)

# %% [markdown] id="ask-file"
# ## Read the file by hand
#
# "Stored in the file": we look. A model is saved in the safetensors format, and from here on `raw` is nothing but its bytes. What is
# in them: `Wk` as a tensor of its own? The mask? K? `lm_head`?

# %% id="guess-file"
guess = {"Wk": None, "mask": None, "K": None, "lm_head": None}

# %% id="save"
with TemporaryDirectory() as folder:
    file = save_model(tiny, folder) / "model.safetensors"
    raw, listed = file.read_bytes(), inventory(file)
print(f"{len(raw):,} bytes. The first sixteen: {raw[:16]}")

# %% [markdown] id="file-layout"
# Three regions: 8 bytes that hold a length; a header of that length, in JSON; and the numbers, without a gap. The length is written
# with its smallest byte first: `<` says so, and `Q` means 8 bytes without a sign.

# %% id="header"
(length,) = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8 : 8 + length])
print(f"a header of {length:,} bytes with {len(header) - 1} tensors and a note; three entries:")
c_attn_of_1 = "transformer.h.1.attn.c_attn"
for name in ("__metadata__", f"{c_attn_of_1}.bias", f"{c_attn_of_1}.weight"):
    print(f"  {name.removeprefix('transformer.')}: {header[name]}")

# %% [markdown] id="explain-header"
# `__metadata__` is the note, for whoever reads the file; all else are tensors. `data_offsets` says where a tensor's bytes begin
# and end, counted from the end of the header. F32 is a float of four bytes. That is all we need.

# %% id="read"
entry = header[f"{c_attn_of_1}.weight"]
start, stop = (8 + length + offset for offset in entry["data_offsets"])
numbers = np.frombuffer(raw[start:stop], dtype="<f4").reshape(entry["shape"])
same = np.array_equal(numbers, c_attn.weight.numpy())
print(numbers.shape, "equal to the model's weight, to the last bit:", same)

# %% id="check-read"
assert same
from_bytes = x.numpy() @ numbers[:, 128:256] + bk.numpy()  # block 1's keys
assert np.allclose(from_bytes, K.numpy(), atol=1e-4)

# %% id="what-is-in-it"
tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
sizes = [stop - start for start, stop in (entry["data_offsets"] for entry in tensors.values())]
print(f"8 + {length:,} + {sum(sizes):,} = {8 + length + sum(sizes):,} bytes")
print("in the model, and not in the file:", stored - set(tensors))
print("computed, and in the file:", computed & set(tensors))

# %% id="check-file"
assert 8 + length + sum(sizes) == len(raw)
assert stored - set(tensors) == {"lm_head.weight"} and not computed & set(tensors)
shapes = {name: entry["shape"] for name, entry in tensors.items()}
assert {w.name: list(w.shape) for w in listed} == shapes

# %% [markdown] id="explain-file"
# Every byte is accounted for, and no K is among them, nor a mask. `Wk` is there as a third of `c_attn`. The token table is stored
# once, so there is no `lm_head`. (Old GPT-2 files did store the mask, as `attn.bias`, a name that has misled many a script.)
#
# `inventory` reads headers in the same way, so `kvcourse weights PATH` lists a file of many gigabytes at once.

# %% [markdown] id="change-file"
# **Change one thing.** Leave out the `8 +` in the cell that reads `numbers`. Does anything stop you? Print a few of them: which
# numbers slipped in, and from where?

# %% [markdown] id="ask-real"
# ## The real model's names
#
# SmolLM2 is a Llama. Same roles, other names? We put both inventories side by side, by role.

# %% id="guess-real"
guess = None  # which of GPT-2's roles will it not have?

# %% id="names"
smollm2 = load_model("smollm2")


def by_role(model):
    """{role: (name inside its block, shape)} of block 0 and what stands outside; no biases."""
    found = [w for w in inventory(model) if w.layer in (None, 0) and not w.role.endswith("bias")]
    return {w.role.split(":")[0]: (w.name.split(".0.")[-1], str(w.shape)) for w in found}


gpt, llama = by_role(tiny), by_role(smollm2)
print(f"{'role':23}{'GPT-2 (here: tiny)':35}Llama (here: SmolLM2)")
for role in [*gpt, *(role for role in llama if role not in gpt)]:
    (ours, shape), (theirs, size) = gpt.get(role, ("–", "")), llama.get(role, ("–", ""))
    print(f"{role:23}{ours:24}{shape:11}{theirs:33}{size}")

# %% id="check-real"
assert set(gpt) - set(llama) == {"position embedding", "q, k and v projections"}
assert not any(w.role.endswith("bias") for w in inventory(smollm2))

# %% [markdown] id="explain-real"
# No table of positions: a Llama turns q and k instead, as we shall see. No fused projection: q, k and v have names of their own. No
# biases at all. And a second way up in its MLP, the gate. The rest is the same model under other names.

# %% [markdown] id="ask-llama"
# `k_proj` is (192, 576). Llama's matrices are stored the other way round, outputs first: K = x @ Wkᵀ, 192 numbers a token, where q has
# 576. With 64 numbers a head, how many heads has q, and how many has K? And is this K what the trace calls k?

# %% id="guess-llama"
guess = {"heads of q": None, "heads of K": None, "the same": None}

# %% id="llama-k"
ids = smollm2.tokenizer.encode("The capital of France is")
real = trace(smollm2, ids)
Wk = smollm2.model.layers[0].self_attn.k_proj.weight
k = (real["blocks.0.ln1"][0] @ Wk.T).view(len(ids), 3, 64).transpose(0, 1)  # (H_kv, T, D)
theirs = real["blocks.0.attn.k"][0]
print("q", tuple(real["blocks.0.attn.q"][0].shape), "  k", tuple(theirs.shape))
for t in range(len(ids)):
    ours, seen = k[:, t], theirs[:, t]
    difference, ratio = (ours - seen).abs().max(), seen.norm() / ours.norm()
    print(f"position {t}: off by up to {difference:.2f}; the trace's is {ratio:.3f} times as long")

# %% id="check-llama"
assert torch.allclose(k[:, 0], theirs[:, 0], atol=1e-3)
assert all((k[:, t] - theirs[:, t]).abs().max() > 0.5 for t in range(1, len(ids)))
assert torch.allclose(k.norm(dim=-1), theirs.norm(dim=-1), rtol=1e-3)

# %% [markdown] id="explain-llama"
# Nine heads ask, three label: the heads are **grouped**, three of q's to one of K's. And K is **rotated**: pairs of its numbers are
# turned by an angle that grows with the position. Lengths stay, and position 0 is not turned at all. How and why, is lesson 08.
#
# The sorting stays as it is: `k_proj.weight` is stored, K is computed.

# %% [markdown] id="ask-share"
# ## How much of it is K and V?
#
# Of all the activations that the trace names, which share is K and V?

# %% id="guess-share"
guess = None  # in percent, for tiny


# %% id="share"
def n_bytes(run, *endings):
    return sum(tensor.nbytes for name, tensor in run.items() if name.endswith(endings))


for name, run in (("tiny", named), ("SmolLM2", real)):
    T, kv, everything = run["embed"].shape[1], n_bytes(run, "attn.k", "attn.v"), n_bytes(run, "")
    of_these = f"{kv / 1e6:.2f} MB of them K and V: {kv / everything:.0%}"
    print(f"{name:8} {T} tokens: {everything / 1e6:.2f} MB of activations, {of_these}")
    config = (tiny if run is named else smollm2).config
    assert kv == T * 2 * config.n_layer * config.n_kv_head * config.head_size * 4

# %% [markdown] id="explain-share"
# A small part. Everything else is read on the way, and not kept by anybody. Whether this part is worth keeping is the next lesson's
# question.

# %% [markdown] id="closing"
# ## In three sentences
#
# A weight is stored and the same for every prompt; an activation is computed from one prompt, and has a row for each of its T tokens.
# K = x @ Wk + bk joins the two: a word owns a row of K, a number of `Wk` a part of a column. A file of weights is a length, a header
# and numbers, and there is no K in it.

# %% [markdown] id="ask-measured"
# Measured on this machine. The bytes are the same everywhere, the times are not.

# %% id="measured" tags=["volatile"]
print(f"{'model':9} {'parameters':>12} {'weights':>9} {'K and V':>15}   one pass")
for name, model, text in (("tiny", tiny, prompt), ("SmolLM2", smollm2, ids)):
    listed = inventory(model)
    parameters, size = sum(w.parameters for w in listed), sum(w.bytes for w in listed)
    kv = n_bytes(trace(model, text), "attn.k", "attn.v") / len(text)
    took = timed(lambda model=model, text=text: model(torch.tensor([text])), runs=5)
    sizes = f"{parameters:12,} {size / 1e6:6.1f} MB {kv / 1e3:7.1f} kB/token"
    spread = f"({took.min_s * 1e3:.1f} to {took.max_s * 1e3:.1f})"
    print(f"{name:9} {sizes}   {took.median_s * 1e3:.1f} ms {spread}")
print(f"\nmedian of 5 runs, fastest and slowest; {took.device}")

# %% [markdown] id="next"
# ## Next
#
# **Your turn:** exercise 04, `04_weights_and_activations.ipynb` in your `work/` folder. Four functions that go from the bytes of a file
# to the keys of any block.
#
# Then: a word owns a row of K. If the next pass brings one more word, which rows are computed once again, and did any of them change?
# **Why is plain generation slow?** That is lesson 05.
