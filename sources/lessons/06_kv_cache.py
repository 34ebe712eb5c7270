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
# # 06 · How does a cache enter attention?
#
# **You need** to know what a logit is, attention's q, k and v, and which work plain generation repeats (lessons 01, 02 and 05).
# About 35 minutes, half of it yours.
#
# **At the end** you can add a KV cache to any attention layer, and prove that it changed nothing but the work.

# %% id="imports"
import torch

from kvcourse import GrowingCache, attend, causal_mask, generate, load_model, trace
from kvcourse.caches.base import Plan
from kvcourse.viz import show_diff, show_source

tiny = load_model("tiny", dtype=torch.float64)  # four layers, 64 bits: rounding cannot hide a fault
smollm2 = load_model("smollm2")  # the real one: thirty layers, 32 bits

# %% [markdown] id="ask"
# ## What has to be remembered?
#
# Write 16 tokens after a prompt of 64, the plain way: for every new token the whole text goes through the model again.

# %% id="plain-loop"
prompt = smollm2.tokenizer.encode("A model reads. " * 20)[:64]
plain = generate(smollm2, prompt, max_new_tokens=16, cache=None)
print(f"{plain.cost.tokens:,} tokens went through the model; {len(prompt) + 15} different ones.")

# %% [markdown] id="ask-what"
# All but 79 of those had been through before. What would the model have to remember so that it never sees them again? Each
# token leaves many tensors behind in every layer: its q, k and v, its row of scores, what attention returned, what the MLP
# returned.

# %% id="guess-keep"
# True: later tokens need it.
guess = {"q": None, "k": None, "v": None, "scores": None, "mlp_out": None}

# %% [markdown] id="ask-change"
# Lesson 05 compared k and v of two texts. Here also q and the scores, since the next formula needs them. Two runs over seven
# tokens, the last of them another one in the second run: what do the first six positions hold?

# %% id="untouched"
ids = tiny.tokenizer.encode("where is ana ? ana is in the garden")[:7]
other = ids[:6] + tiny.tokenizer.encode("market")

one, two = trace(tiny, ids), trace(tiny, other)
for name in ("q", "k", "v", "scores"):
    inside = [f"blocks.{b}.attn.{name}" for b in range(tiny.config.n_layer)]
    pairs = [(one[place], two[place]) for place in inside]
    same = all(torch.equal(x[:, :, :6, :6], y[:, :, :6, :6]) for x, y in pairs)
    print(f"{name:6} the first six positions are untouched in every block: {same}")
    assert same

# %% [markdown] id="explain-untouched"
# Bit for bit the same, in every block, and not only k and v. So "it never changes" is true, and is not the reason why k and v
# are kept and q is not. Look at who reads what:
#
# $$\text{out}_7 = \text{softmax}\big(q_7\,[k_1 \dots k_7]^\top / \sqrt{D}\big)\,[v_1 \dots v_7]$$

# %% [markdown] id="seventh"
# The seventh row needs every k, every v, and one q: its own. We compute it from just those and compare with what the model's
# attention returned for the seventh token. (`attend` is the package's attention: scores, softmax, weighted sum.)

# %% id="seventh-token"
for b in range(tiny.config.n_layer):
    q, k, v, z = (one[f"blocks.{b}.attn.{name}"] for name in ("q", "k", "v", "z"))  # (B, H, 7, D)
    seventh = attend(q[:, :, 6:], k, v)  # one query, seven keys
    assert torch.allclose(seventh, z[:, :, 6:], atol=1e-12)
print("one q, seven k, seven v: enough for the seventh token, in every block")

# %% [markdown] id="explain-keep"
# Everything else that tokens 1 to 6 computed (their q, scores, attention output, MLP output) was read by those tokens
# themselves, on their way up, and is never asked for again. Old questions are not asked twice; old answers are.
#
# So: k and v, of every token, in every block. Those two, and nothing else, are the **KV cache**. (All of this rests on the
# causal mask: lesson 05 took it away.)

# %% [markdown] id="build"
# ## The cache, and one new line
#
# A cache keeps, per layer, the k and v rows so far, and hands back old and new together. `append` is called by every layer
# during a pass. `advance` is called once at the end and counts the new tokens in.


# %% id="first-cache"
class FirstCache:
    def __init__(self):
        self.rows, self.length = {}, 0  # rows[layer] = (keys, values); length: tokens so far

    def append(self, layer, k, v):
        if layer in self.rows:
            old_k, old_v = self.rows[layer]
            k = torch.cat((old_k, k), dim=2)  # (B, H, length + T, D)
            v = torch.cat((old_v, v), dim=2)
        self.rows[layer] = (k, v)
        return k, v

    def advance(self, T):
        self.length += T


# %% [markdown] id="ask-forward"
# Now attention. Here is its forward pass without a cache, and with one. Guess first: how many lines differ, apart from the
# signature?

# %% id="guess-lines"
guess = None  # lines of attention that change


# %% id="two-forwards"
def forward(attn, x, mask):
    B, T, C = x.shape
    # (B, H, T, D) each
    q, k, v = attn.c_attn(x).view(B, T, 3, attn.n_head, -1).permute(2, 0, 3, 1, 4)
    z = attend(q, k, v, mask)  # (B, H, T, D)
    return attn.c_proj(z.transpose(1, 2).reshape(B, T, C))


def forward_with_cache(attn, x, mask, cache):
    B, T, C = x.shape
    # (B, H, T, D) each
    q, k, v = attn.c_attn(x).view(B, T, 3, attn.n_head, -1).permute(2, 0, 3, 1, 4)
    k, v = cache.append(attn.layer, k, v)  # (B, H, S, D): the past and these
    z = attend(q, k, v, mask)  # (B, H, T, D)
    return attn.c_proj(z.transpose(1, 2).reshape(B, T, C))


show_diff(forward, forward_with_cache)

# %% [markdown] id="explain-diff"
# One line. `q` still has T rows, one per new token; k and v now have S = length + T. Nothing else in the model looks at other
# tokens, so nothing else changes: embedding, norms, MLP and head work on each token alone.
#
# The package's attention does the same thing. We hold ours against it, on seven tokens in two calls.

# %% id="same-as-package"
attn = tiny.transformer.h[0].attn
x = torch.randn(1, 7, tiny.config.n_embd, dtype=torch.float64)
slots = torch.arange(7)
plan = Plan(slots, slots, causal_mask(slots, slots))
whole = attn(x, plan, None)  # the package's, without a cache

cache = FirstCache()
first = forward_with_cache(attn, x[:, :4], causal_mask(slots[:4], slots[:4]), cache)
cache.advance(4)
second = forward_with_cache(attn, x[:, 4:], causal_mask(slots[4:], slots), cache)
assert torch.allclose(torch.cat((first, second), dim=1), whole, atol=1e-12)
print("four tokens, then three: the same as seven at once")

# %% [markdown] id="two-traps"
# ## Two things attention cannot know
#
# That cell passed something new by hand: `causal_mask(slots[4:], slots)`. With four tokens cached and three arriving, three
# queries look at seven keys. Which of these may be True? Fill in the three rows before you run the next cell.

# %% id="guess-mask"
guess = """
. . . . . . .
. . . . . . .
. . . . . . .
"""  # write x where token 4, 5, 6 may look

# %% id="wide-mask"
mask = causal_mask(query_positions=slots[4:], key_positions=slots)
for position, row in zip(slots[4:].tolist(), mask, strict=True):
    print(f"token {position}:  " + " ".join("x" if seen else "." for seen in row))

# %% [markdown] id="explain-mask"
# A wide rectangle whose triangle sits at the **right-hand end**. Put it top left, as a mask made for square attention does,
# and token 4 sees itself not at all. One token alone sees everything, so decoding one by one needs no mask, and never notices
# that the mask is wrong.

# %% [markdown] id="positions"
# The other thing is **where in the text** the new tokens stand. Attention has no idea; the position vectors (or, in a Llama,
# the rotations) tell it. The model asks the cache, which is the only owner of that number: its `length`.

# %% id="plan"
cache = GrowingCache()  # the package's, which does what FirstCache does and refuses misuse
tiny(torch.tensor([ids[:4]]), cache=cache)
plan = cache.plan(3)  # what the next three tokens would be told
print("length", cache.length, "· positions of the next three:", plan.query_positions.tolist())
assert torch.equal(plan.mask, mask)

# %% [markdown] id="proof"
# ## The proof
#
# A cache is right if the logits are what they were without it: at **every** position, for **every** way of cutting the text
# into calls. Not "the text looks fine", not one position, not one cut. The next function is the whole proof.


# %% id="largest-difference"
def largest_difference(model, ids, cuts, cache):
    """Feed ids in calls of these sizes; compare with the logits of one pass without a cache."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        whole = model(tokens)
        parts = [model(part, cache=cache) for part in tokens.split(cuts, dim=1)]
    return (torch.cat(parts, dim=1) - whole).abs().max().item()


# %% [markdown] id="proof-tiny-text"
# First on the small model, in 64 bits, where even the largest rounding error is below a billionth. One call; then one token
# at a time; then four; then an uneven cut.

# %% id="proof-text"
text = tiny.tokenizer.encode("ana is in the garden . the key is in the kitchen . where is ana ?")
n = len(text)
fours = [4] * (n // 4) + [n % 4] * (n % 4 > 0)
print(n, "tokens; fours:", fours)

# %% id="proof-one-pass"
assert largest_difference(tiny, text, [n], GrowingCache()) < 1e-9
print("one call: equal")

# %% id="proof-ones"
assert largest_difference(tiny, text, [1] * n, GrowingCache()) < 1e-9
print("one token a call: equal")

# %% id="proof-fours"
assert largest_difference(tiny, text, fours, GrowingCache()) < 1e-9
print("four tokens a call: equal")

# %% id="proof-uneven"
assert largest_difference(tiny, text, [5, 1, 1, 3, n - 10], GrowingCache()) < 1e-9
print("uneven calls: equal")

# %% [markdown] id="proof-real-text"
# Then on the real one. It is built differently (rotary positions, three queries to a key), it has thirty layers, and it
# computes in 32 bits: the order of additions differs between one long pass and many short ones, so the last digits do too.
# We ask for a thousandth of a logit.

# %% id="proof-real"
real = smollm2.tokenizer.encode("The capital of France is Paris, and the capital of Italy is")
m = len(real)
ways = {"one call": [m], "ones": [1] * m, "fours": [4] * 3 + [m - 12]}
for name, cuts in (ways | {"uneven": [6, 1, 2, m - 9]}).items():
    assert largest_difference(smollm2, real, cuts, GrowingCache()) < 1e-3, name
    print(f"SmolLM2, {name}: equal within 0.001")
print(f"for scale, the largest logit: {smollm2(torch.tensor([real])).max().item():.0f}")

# %% [markdown] id="reset-text"
# And a second prompt after the first. A cache that is **reset** must be as good as new; what a first prompt leaves behind is a
# classic fault.

# %% id="proof-reset"
cache = GrowingCache()
largest_difference(tiny, text, [n], cache)
cache.reset()
assert cache.length == 0 and cache.nbytes == 0
assert largest_difference(tiny, ids, [3, 4], cache) < 1e-9
print("after a reset: equal")

# %% [markdown] id="break"
# **Change one thing.** Why so many cuts? Break the cache on purpose: a mask with its triangle top left. Before you run it:
# which of the four cuts notices?


# %% id="broken-mask"
class TopLeft(GrowingCache):
    def plan(self, T):
        right = super().plan(T)
        mask = right.key_positions <= torch.arange(T)[:, None] if T > 1 else None
        return Plan(right.query_positions, right.key_positions, mask)


ways = {"one call": [n], "ones": [1] * n, "fours": fours, "uneven": [5, 1, 1, 3, n - 10]}
for name, cuts in ways.items():
    print(f"{name:9} largest difference {largest_difference(tiny, text, cuts, TopLeft()):.1f}")

# %% [markdown] id="explain-break"
# Only a cut in which several tokens arrive on top of a past. A suite that tests "one call" and "one token at a time", which is
# how most caches are tested, would ship this one. It has been shipped, more than once. It bites when a conversation goes on: a
# second question is several tokens on top of a past.

# %% [markdown] id="watch"
# ## Watch it fill
#
# The same small model, a short prompt, then one token at a time. Move the slider. Rows of K and V appear and stay; the query
# is used and thrown away.

# %% id="stepper" tags=["volatile"]
from kvcourse.viz import cache_stepper

cache_stepper(tiny, ids, max_new_tokens=5)

# %% [markdown] id="counts"
# ## What it saves, counted
#
# Sixteen tokens after sixty-four once more, with the cache. Guess how many tokens go through the model.

# %% id="guess-tokens"
guess = None

# %% id="counted"
cached = generate(smollm2, prompt, max_new_tokens=16, cache="growing")
for name, cost in (("without", plain.cost), ("with", cached.cost)):
    work = f"{cost.macs / 1e9:6.1f} billion multiply-adds"
    print(f"{name:7} {cost.tokens:6,} tokens {cost.kv_rows:7,} K/V rows {work}")
assert plain.cost.tokens == sum(range(64, 80)) == 1144
assert cached.cost.tokens == 64 + 15
assert cached.tokens == plain.tokens

# %% [markdown] id="explain-counts"
# 64 + 15, not 64 + 16: the last new token is chosen and never computed, since nothing follows it. Its k and v do not exist
# yet. If the conversation goes on, it is the first token of the next call. Forgetting that is a classic off-by-one in
# chat programs.

# %% [markdown] id="price"
# The price is memory, and something less obvious. `GrowingCache` makes a new tensor at every step and copies all old rows into
# it. The meter counted that as well.

# %% id="copied"
held, copied = cached.cost.bytes_held, cached.cost.bytes_copied
print(f"held at the end: {held / 1e6:.1f} MB   copied on the way: {copied / 1e6:.1f} MB")
row_bytes = 2 * 3 * 64 * 4 * 30  # K and V, three heads of 64 numbers, 4 bytes each, thirty layers
assert held == 79 * row_bytes
assert copied == sum(range(64, 79)) * row_bytes

# %% [markdown] id="different-answers"
# ## Every answer is different. Why is so much reused?
#
# Three samples of one prompt, with three seeds. Does a cache save less when the answer is one that nobody has given before?

# %% id="guess-samples"
guess = None  # will the three cost the same?

# %% id="samples"
from kvcourse import Sampler

start = smollm2.tokenizer.encode("The best thing about winter is")
for seed in (1, 2, 3):
    out = generate(smollm2, start, max_new_tokens=8, sampler=Sampler(temperature=0.8, seed=seed))
    print(out.cost.tokens, "tokens ·", repr(smollm2.tokenizer.decode(out.tokens)))
    assert out.cost.tokens == len(start) + 7

# %% [markdown] id="explain-samples"
# The same, to the token. A KV cache does not guess what will be said; it keeps what **has been** said, for the one text that
# is being written. Whatever comes next will read it. Another person's text has a cache of its own: what is common to both is
# the weights. (Two texts that begin alike could share their beginning. That is another cache, and lesson 10.)

# %% [markdown] id="where"
# ## Where does it live?
#
# Not in the model. The weights are the same before and after, and no cached row is among them:

# %% id="not-in-model"
names, before = set(smollm2.state_dict()), smollm2.fingerprint
generate(smollm2, start, max_new_tokens=2)
assert set(smollm2.state_dict()) == names and smollm2.fingerprint == before
print(f"{len(names)} tensors in the model, fingerprint unchanged")

# %% [markdown] id="explain-where"
# Not in training either: there all positions are computed at once and nothing is generated. A cache is a way of *executing*
# the model at inference, held by whoever runs the loop. LLM-Visualization (bbycroft.net/llm) draws one forward pass, every K
# and V column in it computed there and then; a cache would be drawn beside that picture, carrying columns from one pass to
# the next.

# %% [markdown] id="map-text"
# You will find the same five parts in every code base, under other names. In three code bases, as of 2026:
#
# | part | here | labml's GPT-NeoX (`labml_nn/neox`) | Hugging Face transformers 5 |
# |---|---|---|---|
# | attention that appends | `models/gpt.py`, `Attention.forward` | `model.py`, `AttentionLayer.forward` | `models/gpt2/modeling_gpt2.py`, `GPT2Attention.forward` |
# | the rows | `caches/growing.py` | `utils/cache.py`, one queue per step in a global `Cache` | `cache_utils.py`, `DynamicLayer.update` |
# | position of a new token | `cache.length`, through `plan` | `offset = k_past.shape[1]`, given to `RoPE` | `cache.get_seq_length()` |
# | the wide mask | `attention.py`, `causal_mask` | `_get_mask`: `triu` from diagonal 1 + nk − nq | `masking_utils.py`, `create_causal_mask` |
# | the loop | `generate.py` | `samples/generate.py` | `generation/utils.py` |

# %% id="source"
show_source(type(attn).forward)

# %% [markdown] id="closing"
# ## What to keep
#
# A token's k and v depend on nothing that comes later, and later tokens read them: so they are kept, and q is not. Attention
# gains one line; the mask becomes wide and the positions go on counting. It is right when the logits are the same, at every
# position, for every cut.

# %% id="measured" tags=["volatile"]
from kvcourse import timed


def sixteen(kind):
    generate(smollm2, prompt, max_new_tokens=16, cache=kind)


print(f"{'16 tokens after 64':20} {'tokens':>6} {'K/V rows':>9}  time on this machine")
for name, out, kind in (("without a cache", plain, None), ("with GrowingCache", cached, "growing")):
    took = timed(lambda kind=kind: sixteen(kind), runs=3, warmup=0)
    print(f"{name:20} {out.cost.tokens:6,} {out.cost.kv_rows:9,}  {took}")

# %% [markdown] id="next"
# Sixteen tokens made that cache copy its rows fifteen times over. For a thousand it would be more than half a million rows
# per layer. **Next:** what does the cache itself cost, and can it stop moving?
