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
# # 08 · How can it be made smaller?
#
# **You need** to know what a KV cache holds, how it is proved right and what its size is (lessons 06 and 07). About 45 minutes,
# half of it yours.
#
# **At the end** you can shrink a cache in three ways, say to the byte what each saves, and measure what each costs in answers.

# %% id="imports"
import torch
import torch.nn.functional as F

from kvcourse import GrowingCache, Llama, QuantizedCache, SlidingCache, causal_mask, load_model
from kvcourse.caches.base import Plan
from kvcourse.config import LlamaConfig, kv_bytes_per_token
from kvcourse.viz import plot_first_token, plot_losses, plot_ring, show_source

_ = torch.set_grad_enabled(False)  # nothing is trained here

smollm2 = load_model("smollm2")  # the real one: thirty layers, 32 bits
config = smollm2.config

# %% [markdown] id="levers"
# ## Three levers
#
# Lesson 07's formula: 2 · L · H_kv · D · S · bytes. Layers L and head size D are left alone here. Three factors remain:
# **H_kv**, the heads that have keys and values, chosen before training; **S**, the tokens that are kept; and the **bytes** of
# each number.
#
# One of the three can be made smaller on this model with hardly a word changed. Which?

# %% id="guess-lever"
guess = None  # "heads", "tokens" or "bytes"

# %% [markdown] id="heads"
# ## Fewer heads
#
# In a GPT each query head has a key and a value head of its own. In a Llama several query heads share one: **grouped-query
# attention**. Six query heads and two K/V heads make two groups of three. Which K/V head does each query head read?

# %% id="guess-heads"
guess = [None, None, None, None, None, None]  # 0 or 1, for each query head

# %% id="toy-heads"
H, H_kv = 6, 2
print([h // (H // H_kv) for h in range(H)])

# %% [markdown] id="explain-heads"
# Neighbours share: head h reads h // 3. The other arrangement, 0 1 0 1 0 1, has the right shape, runs, and is wrong for every
# published model. So expanding K/V heads to query heads is a lookup:


# %% id="expand"
from kvcourse import attend


def expand(kv, n_head):
    """(B, H_kv, S, D) -> (B, n_head, S, D): each K/V head once for each query head of its group."""
    n_kv_head = kv.shape[1]
    return kv[:, torch.arange(n_head) // (n_head // n_kv_head)]


torch.manual_seed(8)  # and SmolLM2's heads:
q, k, v = torch.randn(1, 9, 4, 64), torch.randn(1, 3, 10, 64), torch.randn(1, 3, 10, 64)
repeated = attend(q, expand(k, 9), expand(v, 9))
# The package's: three query heads stand as extra rows before their K/V head, read in place
shared = attend(q, k, v)
assert torch.allclose(shared, repeated, atol=1e-6)
alternating = attend(q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1))  # 0 1 2 0 1 2 0 1 2
off = (alternating - repeated).abs().max()
print(f"neighbours share: equal · taking turns: off by {off:.0f} or so")

# %% [markdown] id="ask-saved"
# Equal, and nothing was repeated in memory, which would give away what was won. What is won? SmolLM2 has H = 9 and H_kv = 3.

# %% id="saved"
all_heads = 2 * config.n_layer * config.n_head * config.head_size * 4
print(f"a token's K and V with a pair for every query head: {all_heads:7,} bytes")
print(f"with three:                                         {kv_bytes_per_token(config):7,} bytes")
assert kv_bytes_per_token(config) * 3 == all_heads

# %% [markdown] id="explain-saved"
# A third. The multiply-adds stay: every query still meets every key. And this lever is pulled before training; you inherit it,
# or you do not have it. Some that you may know, at 16 bits and a context of 4,096 tokens:

# %% id="known-models"
from kvcourse.memory import format_bytes, kv_bytes
from kvcourse.model_shapes import SHAPES

for name in ("gpt2-xl", "llama-2-7b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "gemma-2b"):
    shape = SHAPES[name]
    ours, alone = (kv_bytes(shape, 4096, n_kv_head=n) for n in (shape.n_kv_head, shape.n_head))
    heads = f"H {shape.n_head:2}  H_kv {shape.n_kv_head:2}"
    print(f"{name:14} {heads}  {format_bytes(ours):>9}  instead of {format_bytes(alone)}")

# %% [markdown] id="llama"
# SmolLM2 is a **Llama**. Three of its parts differ from the GPT you built: norms that only scale (RMSNorm), an MLP with a gate
# (SwiGLU), and positions that turn q and k (rotary) where a GPT adds a vector. Here is its attention. New are `rotate` and its
# `angles`; the branch for raw keys is explained below.

# %% id="source-attention"
from kvcourse.models.llama import Attention

show_source(Attention.forward)

# %% [markdown] id="rope"
# Position p turns a vector's pairs of numbers by angles that grow with p. The product of a turned q and a turned k then depends
# on one thing only. Three pairs, a query at 9 and a key at 2, 507 and 500, 9 and 5: which two scores will be equal?

# %% id="guess-rope"
guess = None

# %% id="rope-distance"
from kvcourse.models.rope import rotate


def turned(x, position):
    return rotate(x, *smollm2.rope.at(torch.tensor([position]), x))


q, k = torch.randn(2, 1, 1, 1, 64, generator=torch.Generator().manual_seed(8))
pairs = (9, 2), (507, 500), (9, 5)
scores = {(p, s): (turned(q, p) * turned(k, s)).sum().item() for p, s in pairs}
for (p, s), score in scores.items():
    print(f"query at {p:3}, key at {s:3}: score {score:6.2f}")
assert abs(scores[9, 2] - scores[507, 500]) < 1e-3

# %% [markdown] id="explain-rope"
# The distance, 7, is all that counts. Keep that in mind: a key may be given another place later, if it was kept before it was
# turned.

# %% [markdown] id="window"
# ## Fewer tokens
#
# Keep the last W tokens and forget the rest: a **window**. Memory must not move (lesson 07), so a new row takes the slot of
# the oldest: a **ring**. Four slots, tokens 0 to 8 arrive one by one. What lies in the slots at the end?

# %% id="guess-ring"
guess = [None, None, None, None]

# %% id="ring"
slots, moments = [None] * 4, []
for token in range(9):
    slots[token % 4] = token
    moments.append(list(slots))
plot_ring(moments, [f"after token {token}" for token in range(9)])

# %% [markdown] id="ask-ring"
# Token p lies in slot p mod 4. Slots are no longer in the order of the text; attention does not mind, it is a sum. The package's
# cache, given rows that hold their own token's number:

# %% id="ring-package"
cache = SlidingCache(window=4)
for token in range(9):
    row = torch.full((1, 1, 1, 2), float(token))
    keys, values = cache.append(0, row, row)
    cache.advance(1)
print("slots", keys[0, 0, :, 0].int().tolist(), "· length", cache.length, "· held", cache.held)
assert keys[0, 0, :, 0].int().tolist() == slots

# %% [markdown] id="band"
# What should a model with a window compute? The same as one without a cache whose mask is a band: each token sees itself and
# the W − 1 before it. Which tokens may token 5 see when W = 3?

# %% id="guess-band"
guess = []


# %% id="band-mask"
def band(T, window):
    places = torch.arange(T)
    return causal_mask(places, places) & (places[None, :] > places[:, None] - window)


for row in band(6, 3):
    print(" ".join("x" if seen else "." for seen in row))

# %% [markdown] id="proof-window-text"
# Equality first, at every position and for every way of cutting, window and text lengths around each other. A small Llama with
# random weights, in 64 bits:


# %% id="small"
def small_llama(n_layer):
    torch.manual_seed(8)
    sizes = {"vocab_size": 97, "context_length": 64, "n_embd": 48, "n_inner": 96}
    model = Llama(LlamaConfig(n_layer=n_layer, n_head=6, n_kv_head=2, **sizes))
    for weight in model.parameters():
        weight.mul_(6 if weight.dim() == 2 else 1)  # large enough that a wrong row shows
    return model.double()


small = small_llama(2)
text = torch.randint(97, (1, 20))


def in_passes(model, tokens, sizes, cache):
    return torch.cat([model(part, cache=cache) for part in tokens.split(sizes, dim=1)], dim=1)


# %% id="proof-window"
for W in (1, 4, 19, 20, 21):
    places = torch.arange(20)
    banded = small.compute(text, Plan(places, places, band(20, W)), None)  # no cache, another mask
    for sizes in ([20], [1] * 20, [4] * 5, [7, 1, 1, 9, 2]):
        difference = (in_passes(small, text, sizes, SlidingCache(W)) - banded).abs().max()
        assert difference < 1e-9, (W, sizes)
    print(f"window {W:2}: one pass, ones, fours, uneven: equal to the band at every position")

# %% [markdown] id="explain-window"
# Window 1 sees only itself, 20 and 21 see all of a 20-token text; an off-by-one would show at 19. Passes longer than the
# window are the interesting case: tokens of one pass see different windows.
#
# **Change one thing.** Let the cell test `SlidingCache(W + 1)`. It stops at the first window. Take that one out, then the next:
# which windows notice, and why do the last two not?

# %% [markdown] id="ask-constant"
# Now memory. Two thousand tokens, in a model whose context is 64. How many bytes after 16, after 100, after 2,000?

# %% id="guess-constant"
guess = None

# %% id="constant"
cache = SlidingCache(16)
for done in (16, 100, 2000):
    while cache.length < done:
        small(torch.randint(97, (1, 4)), cache=cache)
    print(f"after {cache.length:5,} tokens: {cache.nbytes:,} bytes")
    # K and V · layers · K/V heads · window · head size · bytes
    assert cache.nbytes == 2 * 2 * 2 * 16 * 8 * 8

# %% [markdown] id="explain-constant"
# The same to the byte, and the text has gone past the context, since no distance is ever larger than the window. There is a
# price already: what has been overwritten cannot come back.

# %% id="refuse-truncate" tags=["raises-exception"]
cache.truncate(1990)

# %% [markdown] id="real-text"
# ## What a window costs
#
# On the real model, with a text of our own. It states facts, and its last paragraph repeats three of them.

# %% id="text"
TEXT = """The lighthouse on Brannock Island was built in 1874 by two brothers, Tom and Elias \
Hale. Tom drew the plans and Elias cut the stone. It took them three summers. The tower is \
thirty-one metres high and has one hundred and fifty-two steps, and for most of its life a \
single keeper lived at the top of them.

The keeper had a simple day. In the morning he cleaned the glass, because salt from the sea made \
it grey. In the afternoon he filled the lamp with oil, wound the clock that turned the lens, and \
wrote the weather in a book. At sunset he lit the lamp. The light could be seen from twenty \
miles away, and every ship that came to the harbour knew it: two short flashes, then one long \
flash.

Today the tower is a small museum. Visitors climb the one hundred and fifty-two steps, look at \
the old clock, and read what the keepers wrote about the weather. A guide tells them who built \
the lighthouse on Brannock Island: two brothers, Tom and Elias Hale. When it is dark, they wait \
outside for the light: two short flashes, then one long flash."""

ids = smollm2.tokenizer.encode(TEXT)
tokens = torch.tensor([ids])
print(len(ids), "tokens")

# %% [markdown] id="perplexity"
# How good a model is at a text: the mean loss of its tokens, or e to that power, the **perplexity**. A perplexity of 20 means: as
# unsure, on average, as between 20 equally likely tokens. We also compare the logits themselves with those of the full cache.


# %% id="measure"
def losses_of(logits):
    return F.cross_entropy(logits[0, :-1], tokens[0, 1:], reduction="none")  # of tokens 1 to n - 1


exact = smollm2(tokens)  # no cache at all
results, logits_of = {}, {}


def measure(name, cache, size=1000):
    """Read the text, `size` tokens a pass; note bytes for each token, perplexity, two errors."""
    logits = torch.cat([smollm2(part, cache=cache) for part in tokens.split(size, dim=1)], dim=1)
    error = (logits - exact).abs().mean().item()
    same = (logits.argmax(-1) == exact.argmax(-1)).double().mean().item()
    results[name] = (cache.nbytes / len(ids), losses_of(logits).mean().exp().item(), error, same)
    logits_of[name] = logits
    print(f"{name:26} perplexity {results[name][1]:5.1f}")


measure("everything, 32 bits", GrowingCache(), 16)
assert (logits_of["everything, 32 bits"] - exact).abs().max() < 1e-2

# %% [markdown] id="ask-window"
# Now windows of 128, 64 and 32 of these tokens. Prose rarely depends on what stood a hundred words ago. Which perplexity do you
# expect for 128?

# %% id="guess-window"
guess = None

# %% id="windows"
for W in (128, 64, 32):
    measure(f"window {W}", SlidingCache(W))

# %% [markdown] id="look-window"
# Much worse than forgetting should make it. Where in the text does it go wrong? For the window of 64, three things happen: the
# first token leaves, a few more tokens leave, and near the end come the facts that are no longer held.

# %% id="losses-window"
decode = smollm2.tokenizer.decode
facts = next(i for i in range(150, len(ids)) if decode(ids[i:]).startswith(" museum"))
lines = {name: losses_of(logits_of[name]).tolist() for name in ("everything, 32 bits", "window 64")}
plot_losses(lines, over=16, marks={"the first token leaves": 64, "facts are repeated": facts})

# %% [markdown] id="explain-losses"
# The two curves part as soon as the first tokens have left, long before anything that they say is needed again. "The
# lighthouse" cannot be that important. Ask the model where it looks.

# %% [markdown] id="sinks"
# ## Why the first token matters
#
# `trace` gives the attention weights of a full pass. Tokens 64 to 127 look back; if they spread their attention evenly, the first
# token would get about 1%. Guess its share.

# %% id="guess-share"
guess = None

# %% id="first-token"
from kvcourse import trace

seen = trace(smollm2, ids[:128])
blocks = range(config.n_layer)
patterns = [seen[f"blocks.{b}.attn.pattern"][0, :, 64:] for b in blocks]  # (H, 64, 128) each
share = [pattern[:, :, 0].mean().item() for pattern in patterns]
lengths = [seen[f"blocks.{b}.attn.v"][0].norm(dim=-1).mean(0) for b in blocks]  # (128,) each
relative = [(length[0] / length[1:].median()).item() for length in lengths]
plot_first_token(share, relative, evenly=1 / 96)

# %% [markdown] id="explain-sink"
# Lesson 02's attention sink: from layer 12 on it gets half of all attention, and its value vector is short. What is new here
# is what happens when it leaves.

# %% id="sink-counted"
late = range(12, config.n_layer)
first = sum(share[b] for b in late) / len(late)
print(f"layers 12 to 29: {first:.0%} of attention to the first token")
assert first > 0.4
assert max(relative[b] for b in late) < 0.6

# %% [markdown] id="explain-leaves"
# When it leaves the window, the softmax still sums to one. What went to the sink now falls on tokens whose values are not short,
# in every head, at every step. That is the damage, and it suggests the repair: never overwrite the first few tokens. Window 6
# with 2 **sinks**, ten tokens:

# %% id="ring-sinks"
slots, moments = [None] * 6, []
for token in range(10):
    # Two slots that stay, a ring of four
    slots[token if token < 2 else 2 + (token - 2) % 4] = token
    moments.append(list(slots))
titles = [f"after token {token}" for token in range(5, 10)]
plot_ring(moments[5:], titles, before=moments[4])

# %% [markdown] id="positions"
# At which distance does token 10 see token 0? By places in the text it grows for ever, past what the model was trained for. So
# positions are counted **inside the cache**: kept tokens stand at 0, 1, 2 … in their order. That is why keys are kept raw, and turned
# at each step. Token 10 takes the slot of token 6. Where will it stand?

# %% id="guess-positions"
guess = None

# %% id="positions-inside"
cache = SlidingCache(window=6, sinks=2)
for _ in range(10):
    cache.append(0, torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    cache.advance(1)
plan = cache.plan(1)  # what token 10 will be told
slots[2 + (10 - 2) % 4] = 10
print("in slots 0 to 5: tokens", slots, "· at positions", plan.key_positions.tolist())
assert [slots[slot] for slot in plan.key_positions.argsort()] == sorted(slots)
assert plan.query_positions.tolist() == [5]

# %% [markdown] id="proof-sinks-text"
# Is it right? First: every way of cutting gives the same. Second, an independent answer: throw the cache away, take the kept
# tokens as a text of their own, and run them from scratch. In a model of one layer the two must agree.


# %% id="from-scratch"
def from_scratch(model, tokens, i, window, sinks):
    """The last logits of a text made of the tokens that are kept when token i looks."""
    first = max(sinks, i + 1 - (window - sinks))
    kept = tokens[:, : i + 1]
    if i >= sinks:
        kept = torch.cat((tokens[:, :sinks], tokens[:, first : i + 1]), dim=1)
    return model(kept)[:, -1]


def distance(model, tokens, window, sinks):
    n = tokens.shape[1]
    cached = in_passes(model, tokens, [1] * n, SlidingCache(window, sinks))
    scratch = [from_scratch(model, tokens, i, window, sinks) for i in range(n)]
    return (cached - torch.stack(scratch, dim=1)).abs().max().item()


# %% id="proof-sinks"
for sizes in ([20], [4] * 5, [7, 1, 1, 9, 2]):
    ones = in_passes(small, text, [1] * 20, SlidingCache(8, 2))
    difference = in_passes(small, text, sizes, SlidingCache(8, 2)) - ones
    assert difference.abs().max() < 1e-9, sizes
one_layer = distance(small_llama(1), text, window=8, sinks=2)
assert one_layer < 1e-9
print("every cut: the same · one layer: equal to the kept tokens from scratch, at every position")

# %% [markdown] id="ask-two-layers"
# And in a model of two layers?

# %% id="guess-two-layers"
guess = None  # equal or not?

# %% id="two-layers"
two_layers = distance(small, text, window=8, sinks=2)
print(f"two layers: off by {two_layers:.1f} somewhere")
assert two_layers > 0.1

# %% [markdown] id="explain-two-layers"
# Not equal, and it need not be. A token's k in layer 1 was computed from what it saw in layer 0, tokens among them that have left
# since. They are gone; their trace is not. So a cache with sinks only **approximates** the model on the kept tokens. (What it
# *equals*, a slow model that keeps all raw keys, is in `tests/equivalence/test_windows.py`.)

# %% [markdown] id="measure-sinks-text"
# Now the real model, four sinks. Past the window every token gives the kept ones new positions, so they go in one by one; this
# is the slow cell of the lesson.

# %% id="measure-sinks"
for W in (128, 64, 32):
    measure(f"window {W}, 4 sinks", SlidingCache(W, sinks=4))

# %% id="losses-sinks"
names = "everything, 32 bits", "window 64", "window 64, 4 sinks"
lines = {name: losses_of(logits_of[name]).tolist() for name in names}
plot_losses(lines, over=16, marks={"the first token leaves": 64, "facts are repeated": facts})

# %% [markdown] id="explain-sinks"
# Four rows of 64 repair the middle of the text: the curve lies on that of the full cache, or close to it. At the end it parts from it.
# What the last paragraph repeats has left the window, and a sink is no memory. The perplexity before the museum, and from there on:

# %% id="two-parts"
for name in lines:
    losses = losses_of(logits_of[name])
    before, after = losses[63 : facts - 1].mean().exp(), losses[facts - 1 :].mean().exp()
    print(f"{name:20} {before:5.1f} in the middle, {after:5.1f} where facts are repeated")

# %% [markdown] id="far-text"
# How far is this from recomputing the kept tokens from scratch, which would be far slower? A few places in the text, window 32:

# %% id="far"
print("token   cache with sinks   kept tokens from scratch    mean difference of logits")
for i in (80, 120, 160, 200):
    scratch = from_scratch(smollm2, tokens, i, 32, 4)[0]
    cached = logits_of["window 32, 4 sinks"][0, i]
    words = [repr(smollm2.tokenizer.decode([int(row.argmax())])) for row in (cached, scratch)]
    print(f"{i:5}   {words[0]:16}   {words[1]:24}   {(cached - scratch).abs().mean():.1f}")

# %% [markdown] id="refuse-gpt-text"
# Different numbers, as announced. Last, a model whose positions are added to the tokens: they are mixed into k for good, and cannot
# be given anew. Sinks with a GPT are refused.

# %% id="refuse-gpt" tags=["raises-exception"]
tiny = load_model("tiny")
tiny(torch.tensor([[1, 2, 3]]), cache=SlidingCache(8, sinks=2))

# %% [markdown] id="bits"
# ## Fewer bits
#
# Keep every token, and store each number in 8 or 4 bits instead of 32. Eight numbers, and 4 bits: sixteen codes, 0 to 15. The
# smallest number gets 0, the largest 15, and the rest the nearest code in between. How wrong can a number be?

# %% id="guess-bits"
guess = None


# %% id="codes"
def to_codes(x, bits):
    low, high = x.min(), x.max()
    step = (high - low) / (2**bits - 1)
    return ((x - low) / step).round().to(torch.uint8), low, step


x = torch.tensor([-0.70, 0.05, 0.31, -0.18, 1.55, 0.92, -0.44, 0.66])
codes, low, step = to_codes(x, 4)
back = low + step * codes
print("numbers", " ".join(f"{n:5.2f}" for n in x.tolist()))
print("codes  ", " ".join(f"{n:5}" for n in codes.tolist()))
print("back   ", " ".join(f"{n:5.2f}" for n in back.tolist()))
print(f"low {low:.2f}, step {step:.2f}")
assert (back - x).abs().max() <= step / 2 + 1e-6

# %% [markdown] id="explain-bits"
# Never by more than half a step. **Change one thing:** let the fifth number be 15.5. What becomes of the other seven?
#
# The step is the distance from least to greatest, divided by 15, or by 255 with 8 bits. The package
# does the same thing, and puts two 4-bit codes into a byte:

# %% id="packed"
from kvcourse.caches.quantized import dequantize, quantize

packed = quantize(x.view(1, 1, 1, 8), low.view(1, 1, 1, 1), x.max().view(1, 1, 1, 1), bits=4)
four = " ".join(f"{byte:08b}" for byte in packed.codes.flatten().tolist())
print(f"four bytes: {four} · low half: even places")
assert torch.allclose(dequantize(packed, 4).flatten(), back)
assert packed.codes.nbytes == 4
assert packed.nbytes == 4 + 2 * 4  # and low and step, in the model's own dtype

# %% [markdown] id="outlier"
# One large number makes the step large, for all that share it. So who should share a **scale**, that is, one low and one step?
# Below are the keys of four tokens, of D = 4 numbers each. A column, number i of every token, is called a **channel**, and
# channel 2 is large in every token. One scale for each row (a token), or for each column (a channel)?

# %% id="guess-groups"
guess = None  # "token" or "channel"


# %% id="outlier-toy"
def rounded(x, axis, bits=4):
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    step = (high - low) / (2**bits - 1)
    return low + step * ((x - low) / step).round()


keys = torch.tensor(
    [[0.2, -0.4, 9.1, 0.3], [0.1, 0.5, 8.7, -0.2], [-0.3, 0.2, 9.4, 0.4], [0.4, -0.1, 8.9, -0.5]]
)
for name, axis in (("token", 1), ("channel", 0)):
    error = (rounded(keys, axis) - keys).abs()
    small_ones = error[:, [0, 1, 3]].max().item()
    print(f"one scale for each {name:7}: the small numbers are off by up to {small_ones:.2f}")

# %% [markdown] id="real-channels"
# Real keys look like that. One K/V head of SmolLM2, layer 15, 48 tokens:

# %% id="channels"
from kvcourse.viz import plot_channels

rows = {name: seen[f"blocks.15.attn.{name}"][0, 0, :48].numpy() for name in ("k", "v")}
plot_channels({"keys, layer 15": rows["k"], "values, layer 15": rows["v"]})

# %% [markdown] id="explain-channels"
# A few columns of the keys are large in every token, apart from the first row, which is our sink. The values have no such columns.
# So keys are rounded **per channel**, 32 tokens to a scale. And values? Measure two things: how far the numbers move, and how far
# what attention returns moves, which is what counts.

# %% id="guess-values"
guess = None  # values: "token" or "channel"?

# %% id="who-shares"
mask = causal_mask(torch.arange(128), torch.arange(128))
ways = {
    "channel": lambda x: rounded(x.unflatten(2, (-1, 32)), axis=3).flatten(2, 3),
    "token": lambda x: rounded(x, axis=3),
}
totals = {}
for b in late:
    # z: what attention returned
    q, k, v, z = (seen[f"blocks.{b}.attn.{name}"] for name in ("q", "k", "v", "z"))
    for scale, rounds in ways.items():
        for name, moved, out in (
            ("keys", rounds(k) - k, attend(q, rounds(k), v, mask) - z),
            ("values", rounds(v) - v, attend(q, k, rounds(v), mask) - z),
        ):
            means = torch.stack([moved.abs().mean(), out.abs().mean()])
            totals[name, scale] = totals.get((name, scale), 0) + means / len(late)

# %% id="who-shares-table"
print("4 bits, layers 12 to 29     numbers moved by   attention's result by")
for (name, scale), (moved, out) in sorted(totals.items()):
    print(f"{name:6} one scale per {scale:7}   {moved:16.3f}   {out:21.3f}")
assert totals["keys", "channel"][1] < totals["keys", "token"][1]
assert totals["values", "token"][1] < totals["values", "channel"][1]
assert totals["values", "token"][0] > totals["values", "channel"][0]

# %% [markdown] id="explain-values"
# Keys: per channel, by a factor of three. Values are the surprise: per channel moves the numbers less and the *result* more.
# Is the sink why? Its v is short. If it shares a scale with 31 longer vectors, it gets their large error, and with half of
# the attention on it that error goes into every result. So keep the first token's v exact, and measure again:

# %% id="sink-exact"
exact_sink = {}
for b in late:
    q, k, v, z = (seen[f"blocks.{b}.attn.{name}"] for name in ("q", "k", "v", "z"))
    for scale, rounds in ways.items():
        values = rounds(v)
        values[:, :, 0] = v[:, :, 0]  # the sink's, as it was
        moved = (attend(q, k, values, mask) - z).abs().mean().item()
        exact_sink[scale] = exact_sink.get(scale, 0) + moved / len(late)
for scale, moved in exact_sink.items():
    print(f"values one scale per {scale:7}, the sink exact: the result moves by {moved:.3f}")
assert exact_sink["channel"] < exact_sink["token"]

# %% [markdown] id="explain-sink-exact"
# Now per channel wins, for values as for keys: the sink was why. With a scale for each token it has one of its own, and is
# nearly exact without being treated apart. Keys per channel and values per token is the scheme of KIVI (Liu et al. 2024), and
# of our cache.

# %% [markdown] id="residual"
# One more piece. A key's scale needs a whole group of 32 tokens, so the newest wait in full precision: the **residual**, the last 32
# at least. When a row is rounded depends on the text's length alone, not on who brought it. The same random k and v, cut in three ways:


# %% id="same-codes"
def filled(sizes):
    cache, generator = QuantizedCache(bits=4), torch.Generator().manual_seed(8)
    k, v = torch.randn(2, 1, 3, 150, 64, generator=generator)
    for part_k, part_v in zip(k.split(sizes, dim=2), v.split(sizes, dim=2), strict=True):
        cache.append(0, part_k, part_v)
        cache.advance(part_k.shape[2])
    return cache, k


cuts = {"one pass": [150], "one by one": [1] * 150, "uneven": [40, 1, 1, 99, 9]}
caches = {name: filled(sizes)[0] for name, sizes in cuts.items()}
for name, cache in caches.items():
    same = torch.equal(cache.read(0, 0, 150).keys, caches["one pass"].read(0, 0, 150).keys)
    print(
        f"{name:10}: {cache.packed} rows rounded, {cache.length - cache.packed} not, "
        f"{cache.nbytes:,} bytes, same rows: {same}"
    )
    assert same and cache.nbytes == caches["one pass"].nbytes
    assert cache.packed == (150 - 32) // 32 * 32

# %% [markdown] id="bound-text"
# Equality first: with nothing rounded it must be the full cache; and with something rounded no number may be off by more than the
# half step that the cache itself states.

# %% id="bound"
full = in_passes(small, text, [4] * 5, GrowingCache())
assert torch.equal(in_passes(small, text, [4] * 5, QuantizedCache(4)), full)
print("20 tokens, none rounded: equal")

cache, k = filled([150])
error, half_step = (cache.read(0, 0, 96).keys - k[:, :, :96]).abs(), cache.half_step(0).keys
assert (error <= half_step + 1e-6).all()
print(f"96 rounded: off by {error.max():.2f} at most, half a step is up to {half_step.max():.2f}")

# %% [markdown] id="measure-bits-text"
# Now the real model. Eight bits, four bits, and four bits without a residual. It reads in passes of 16, so each token sees a rounded
# past, as it would when writing. Guess the perplexity at 4 bits; everything in full gave the number above.

# %% id="guess-int4"
guess = None

# %% id="measure-bits"
measure("int8", QuantizedCache(8), 16)
measure("int4", QuantizedCache(4), 16)
measure("int4, no residual", QuantizedCache(4, residual_tokens=0), 16)

# %% [markdown] id="explain-int4"
# The same to the first decimal. Is nothing lost, then? Perplexity is a mean over tokens, and errors of both signs cancel in it. The
# logits did move, and the likeliest token is sometimes another one. All of it in one table:

# %% [markdown] id="together"
# ## Memory against error

# %% id="table"
full_bytes, full_perplexity, _, _ = results["everything, 32 bits"]
assert full_bytes == kv_bytes_per_token(config)
print(f"{'':22} bytes/token  of full  perplexity  logits off by  same choice")
for name, (size, perplexity, error, same) in results.items():
    held = f"{size:11,.0f} {size / full_bytes:8.0%}"
    print(f"{name:22} {held} {perplexity:11.1f} {error:14.2f} {same:12.0%}")


# %% id="check-table"
def perplexity_of(name):
    return results[name][1]


for W in (128, 64, 32):
    assert perplexity_of(f"window {W}") > 1.3 * perplexity_of(f"window {W}, 4 sinks")
    held = full_bytes * W / len(ids)
    assert results[f"window {W}"][0] == results[f"window {W}, 4 sinks"][0] == held
for name in ("int8", "int4", "int4, no residual"):
    assert abs(perplexity_of(name) / full_perplexity - 1) < 0.03
names = "int8", "int4", "int4, no residual", "window 128, 4 sinks"
errors = [results[name][2] for name in names]
assert errors == sorted(errors)

# %% [markdown] id="explain-share"
# Four bits of 32 would be 13%, and int4 holds 35%. What is on top: a low and a step for each group, and the newest rows,
# which are not rounded yet. In 243 tokens those weigh much; a whole context takes 18%, 66 of 377 MB (last table of this
# lesson).

# %% id="plot"
from kvcourse.viz import plot_memory_and_error

families = {
    "fewer bits": {name: results[name][:2] for name in ("int8", "int4", "int4, no residual")},
    "window, 4 sinks": {f"window {W}": results[f"window {W}, 4 sinks"][:2] for W in (128, 64, 32)},
    "window": {f"window {W}": results[f"window {W}"][:2] for W in (128, 64, 32)},
}
plot_memory_and_error(families, exact=results["everything, 32 bits"][:2])

# %% [markdown] id="explain-plot"
# At a quarter of the bytes, rounding costs next to nothing here, and forgetting a lot: the text asks for what was forgotten.
# Two things the plot does not show. Rounded rows still grow with the text; a window never does. And codes are made into numbers
# again at every step, so this cache saves memory, not time.

# %% [markdown] id="newer-models"
# Newer models pull such levers before training. In Gemma 3 five layers of six have a window, in gpt-oss every second one, and each
# head's softmax there has a learned sink, so that no token has to be one. DeepSeek-V2 and V3 keep two things for each token and
# layer: one short vector, from which K and V of all heads are made, and one rotated key that all heads share. This is called
# **multi-head latent attention**.

# %% [markdown] id="change"
# **Change one thing.** Give `TEXT` a last paragraph that repeats nothing, and rebuild the table. Which rows move? Then try
# `SlidingCache(64, sinks=1)`: how much of the repair does one sink do?

# %% [markdown] id="closing"
# ## What to keep
#
# A cache shrinks by fewer K/V heads (decided in training), fewer tokens (constant memory, and what leaves is lost) or fewer bits
# (an error of half a step at most). A window must keep the first tokens, because heads rest their attention there. Which loss hurts
# depends on the text, so measure it on yours.

# %% id="measured"
print(f"SmolLM2's whole context, 8,192 tokens; perplexity as measured on {len(ids)} tokens\n")
print(f"{'':26} {'held':>8}  perplexity")
shape = SHAPES["smollm2-135m"]
for name, options in (
    ("everything, 32 bits", {}),
    ("int8", {"dtype": "int8", "model_dtype": "float32"}),
    ("int4", {"dtype": "int4", "model_dtype": "float32"}),
    ("window 128, 4 sinks", {"window_tokens": 128}),
):
    size = kv_bytes(shape, 8192, **{"dtype": "float32", **options})
    print(f"{name:26} {size / 1e6:5.1f} MB  {perplexity_of(name):10.1f}")

# %% [markdown] id="next"
# **Your turn:** exercise 08, `08_smaller_cache.ipynb` in your `work/` folder: the ring, the window, the heads and the codes.
#
# One text was cached here. A server has many, of lengths nobody knows beforehand. **Next:** how do many sequences share memory?
