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
# # 02 · How does a token look back?
#
# **You need** lesson 01, and NumPy's `@`, which multiplies matrices. About 40 minutes, half of them yours.
#
# **At the end** you can compute attention on paper, write it in six lines, say what each of its steps is for, and find in a real
# model the place where one word learns about another.

# %% id="load"
import numpy as np
import torch
import torch.nn.functional as F

from kvcourse import attend, causal_mask, load_model, trace
from kvcourse.caches.base import Plan
from kvcourse.viz import plot_attention, show_source

_ = torch.set_grad_enabled(False)  # nothing is trained here
np.set_printoptions(precision=2, suppress=True)

model = load_model("smollm2")
tokenizer = model.tokenizer

# %% [markdown] id="ask-where"
# ## Where does the word come in?
#
# After "The queen raised her" the model expects "voice", after "The lion raised her" it expects "cubs". Yet " her" enters with the
# same 576 numbers in both. In which of the 30 layers do the two vectors of " her" first differ?

# %% id="guess-where"
guess = None  # 0 to 29

# %% id="run-where"
texts = (f"The {word} raised her" for word in ("queen", "lion"))
queen, lion = (trace(model, tokenizer.encode(text)) for text in texts)

names = ["embed", "blocks.0.resid_pre", "blocks.0.attn_out", "blocks.0.resid_post"]
for name in [*names, "blocks.29.resid_post"]:
    apart = (queen[name][0, -1] - lion[name][0, -1]).norm().item()
    print(f"{name:20} of ' her' differs by {apart:6.3g}")
    assert (apart == 0) == (name in ("embed", "blocks.0.resid_pre"))

# %% [markdown] id="explain-where"
# In the first. What goes into layer 0 (`resid_pre`) is equal; what its part `attn` returns is not. That part is **attention**, and
# every layer has one. This lesson builds it from four numbers upwards, and comes back to the queen.

# %% [markdown] id="ask-lookup"
# ## A dictionary with soft edges
#
# `{"key": "kitchen", "cup": "garden"}["key"]` compares a question with labels, and hands over the value of the one that is equal.
# Vectors are hardly ever equal. But they can be compared by a dot product: large if they point the same way, 0 at right angles.

# %% id="soft-lookup"
labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.2]])  # "key", "cup", "keys": almost "key"
places = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]])  # kitchen, garden, hall
question = np.array([4.0, 0.0])  # asks for "key"
print("scores", labels @ question)

# %% id="guess-lookup"
# Shares of kitchen, garden and hall, if softmax (lesson 01) turns the three scores into shares
guess = None


# %% id="run-lookup"
def softmax(scores):
    # The largest taken away: nothing changes, nothing overflows
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


shares = softmax(labels @ question)
print("shares", shares)
print("answer", shares @ places)  # each value times its share, added up

# %% id="check-lookup"
assert np.isclose(shares.sum(), 1)
assert shares.argmax() == 0 and 0.25 < shares[2] < 0.35

# %% [markdown] id="explain-lookup"
# Two thirds kitchen, almost one third hall, hardly any garden. No label has to be equal, and every value takes part, if only a
# little. That is attention; the rest is doing it for all tokens at once.

# %% [markdown] id="names"
# The three vectors have names:
#
# | | whose | what for |
# |---|---|---|
# | **query**, q | the token that looks | asks: what am I looking for? |
# | **key**, k | each token that is looked at | labels: what can I be found by? |
# | **value**, v | each token that is looked at | answers: what do I hand over? |

# %% [markdown] id="change-lookup"
# **Change one thing**: the question. Ask ten times as loudly (`[40, 0]`), for nothing (`[0, 0]`), and for the opposite of a key
# (`[-4, 0]`). Can a question get no answer at all?

# %% [markdown] id="ask-self"
# ## Every token asks
#
# Four tokens. Each has three numbers, chosen here so that you can read them: is it a person, a thing, a verb? (A model's numbers
# are learned, and mean nothing so plain.) Three matrices, which are weights, make a q, a k and a v of each token.

# %% id="qkv"
text = ["ana", "takes", "the", "key"]
x = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0.5], [0, 1, 0]])  # person, thing, verb
# A person looks for a thing, a thing for a person, a verb for either
Wq = np.array([[0, 3], [3, 0], [2, 2]])
Wk = np.array([[2, 0], [0, 2], [0, 0]])  # persons and things can be found, verbs cannot
Wv = np.array([[5, 0], [0, 5], [1, 1]])

Q, K, V = x @ Wq, x @ Wk, x @ Wv  # (4, 2) each: a row for each token
for t in range(4):
    print(f"{text[t]:6} q {Q[t]}  k {K[t]}  v {V[t]}")

# %% id="guess-scores"
# All dot products at once: what shape has Q @ K.T,
# and which token's question fits which label best?
guess = None

# %% id="run-scores"
D = Q.shape[1]
scores = Q @ K.T / np.sqrt(D)
print(scores)
assert np.isclose(scores[3, 0], Q[3] @ K[0] / np.sqrt(2))

# %% [markdown] id="explain-scores"
# (4, 4): row i has what token i asks, column j how well token j fits. Row 3 says that "key" looks for a person and finds "ana" (6 /
# √2 = 4.24); row 0 that "ana" looks for a thing and finds "key". The root of D is there for a reason that we measure below.

# %% [markdown] id="ask-mask"
# ## Nobody looks ahead
#
# But "key" comes after "ana". A row has to predict the next token (lesson 01): if it saw what follows, it would copy its answer in
# training, and be lost in writing, where nothing follows yet. So which scores have to go?

# %% id="guess-mask"
guess = """
. . . .
. . . .
. . . .
. . . .
"""  # an x where the token of that row may look at the token of that column

# %% id="run-mask"
hidden = np.triu(np.ones((4, 4), dtype=bool), k=1)  # True above the diagonal
print("\n".join(" ".join("." if h else "x" for h in row) for row in hidden))
assert [int((~row).sum()) for row in hidden] == [1, 2, 3, 4]  # how many each token sees

# %% [markdown] id="ask-how"
# A triangle, the **causal mask**. How do we hide a score? Three ways that come to mind: write 0 over it and take the softmax; take
# the softmax and write 0 over the share; write −∞ over it and take the softmax. Which of them hides it?

# %% id="guess-how"
guess = {"0 before": None, "0 after": None, "-inf before": None}  # True: does its job

# %% id="run-how"
ways = {
    "0 before": lambda s: softmax(np.where(hidden, 0, s)),
    "0 after": lambda s: np.where(hidden, 0, softmax(s)),
    "-inf before": lambda s: softmax(np.where(hidden, -np.inf, s)),
}
other = np.array([*x[:3], [1, 0, 0]])  # the last token is another one: a person
other_scores = (other @ Wq) @ (other @ Wk).T / np.sqrt(D)
for name, way in ways.items():
    row, moved = way(scores)[0], way(other_scores)[0]
    print(f"{name:12} ana: {row}, sum {row.sum():.2f}; with another last token {moved}")

# %% id="check-how"
for name, way in ways.items():
    gives_nothing = way(scores)[hidden].sum() == 0
    tells_nothing = np.allclose(way(scores)[:3], way(other_scores)[:3])
    print(f"{name:12} gives the future no share: {gives_nothing}")
    print(f"{'':12} shares do not depend on it: {tells_nothing}")
    assert (gives_nothing and tells_nothing) == (name == "-inf before")

# %% [markdown] id="explain-how"
# "ana" sees only itself, so its share should be 1. A score of 0 is a score like any other: e⁰ = 1. Zeros written afterwards leave a
# rest that still tells how well the hidden token had fitted: another last token, another first row. Only −∞ hides: e to that
# power is 0, before anything is divided.

# %% [markdown] id="change-how"
# **Change one thing.** Divide the rows of "0 after" by their sums. Now it equals "-inf before": it *is* softmax over what is left,
# done in two steps. Forget the second, and the future leaks.

# %% id="run-figure" alt="Two four by four tables. Scores: what lies above the diagonal is hatched, the largest are 4.24, where key looks at ana. Shares: each row adds up to 1; key gives 0.96 to ana."
masked = np.where(hidden, -np.inf, scores)
shares = softmax(masked)
plot_attention({"scores, masked": masked, "shares": shares}, text, hidden=hidden)

# %% id="guess-sums"
guess = None  # what do the rows of the right table add up to? And the columns?

# %% id="run-sums"
print("rows   ", shares.sum(axis=1))
print("columns", shares.sum(axis=0))

# %% [markdown] id="explain-sums"
# Each row adds up to 1: a token has one whole of attention to give, and has to give it. Columns can add up to anything: that is how
# much a token was looked at, and "ana", whom all can see, gets most.

# %% [markdown] id="ask-sum"
# Last step: each token takes its share of each value. It is again one product of matrices. Which row of the result can you write
# down without computing?

# %% id="guess-out"
guess = None

# %% id="run-out"
out = shares @ V
for t in range(4):
    print(f"{text[t]:6} v {V[t]}  takes {out[t]}")
assert np.allclose(out[0], V[0])
assert (out >= V.min(axis=0)).all() and (out <= V.max(axis=0)).all()

# %% [markdown] id="explain-out"
# The first: a token without a past gets its own value. "key" now holds almost exactly what "ana" had to give. And since the shares
# are positive and add up to 1, no result lies outside the values: attention mixes, it invents nothing.

# %% [markdown] id="ask-whole"
# ## The whole of it
#
# Scores, mask, softmax, sum: as one function.


# %% id="attend-numpy"
def attend_by_hand(q, k, v, may_look=None):
    """q: (T, D); k, v: (S, D). may_look: (T, S), True where a query may see a key; None: all."""
    scores = q @ k.T / np.sqrt(q.shape[-1])  # (T, S)
    if may_look is not None:
        scores = np.where(may_look, scores, -np.inf)
    return softmax(scores) @ v  # (T, D)


assert np.allclose(attend_by_hand(Q, K, V, ~hidden), out)

# %% [markdown] id="ask-torch"
# PyTorch has the same in one call, and so has this course's package. Ours against both, on larger numbers that nobody chose:

# %% id="same-as-torch"
rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 50, 16))
mine = torch.tensor(attend_by_hand(q, k, v, np.tril(np.ones((50, 50), dtype=bool))))

qt, kt, vt = (torch.tensor(a)[None, None] for a in (q, k, v))  # (1, 1, 50, 16): one text, one head
slots = torch.arange(50)
theirs = F.scaled_dot_product_attention(qt, kt, vt, is_causal=True)[0, 0]
assert torch.allclose(mine, theirs, atol=1e-12)
assert torch.allclose(mine, attend(qt, kt, vt, causal_mask(slots, slots))[0, 0], atol=1e-12)
print("six lines of NumPy, torch's attention and the package's: the same 50 × 16 numbers")

# %% [markdown] id="from-now"
# From here on we use the package's. It hands over to torch's, and counts the work: each of T queries against each of S keys takes D
# multiplications, and each share times its value D more.

# %% id="package-source"
show_source(attend)

# %% [markdown] id="ask-root"
# ## Why √D?
#
# A dot product of D random pairs is a sum of D random numbers. Let D grow, with 64 keys to choose from. What becomes of the largest
# share?

# %% id="guess-root"
guess = None  # with D = 1024 and without dividing: how much does the best of 64 random keys get?

# %% id="run-root"
measured = {}
print("                    not divided        divided by √D")
print("   D  std of q·k    share   slope      share   slope")
for D in (1, 4, 16, 64, 256, 1024):
    q, k = rng.standard_normal((1000, 1, D)), rng.standard_normal((1000, 64, D))
    dots = (q * k).sum(axis=-1)  # (1000, 64): a thousand queries, 64 keys for each
    for root in (1, np.sqrt(D)):
        w = softmax(dots / root)
        squares = (w**2).sum(axis=-1, keepdims=True)
        # Size of softmax's derivative, a matrix of 64 × 64
        slope = np.sqrt((w**2 * (1 - 2 * w + squares)).sum(axis=-1))
        measured[D, root] = w.max(axis=-1).mean(), np.median(slope)
    (a, b), (c, d) = measured[D, 1], measured[D, np.sqrt(D)]
    print(f"{D:4} {dots.std():11.0f} {a:8.0%} {b:7.2f} {c:10.0%} {d:7.2f}")

# %% id="check-root"
assert measured[1024, 1][0] > 0.9 and measured[1024, 32][0] < 0.15
assert measured[1024, 1][1] < 0.01 < 0.1 < measured[1024, 32][1]

# %% [markdown] id="explain-root"
# The spread grows as √D. Undivided, the best of 64 random keys soon takes nearly all, by chance. And such a softmax is stuck: its
# derivative (slope) is 0, so changing a score changes nothing, and training, which goes by derivatives, has nothing to go by.
# Divided by √D, share and slope stay where they were, for any D.

# %% [markdown] id="change-root"
# **Change one thing.** Divide by D in place of its root. What is the largest share then, with D = 1024, and what would all tokens
# receive? (64 equal shares are 1.6% each.)

# %% [markdown] id="ask-order"
# ## It does not know the order
#
# The last token asks. Shuffle the tokens before it, each key together with its value. How much of the answer changes?

# %% id="guess-order"
guess = None

# %% id="run-order"
order = [2, 0, 1, 3]
asked, shuffled = attend_by_hand(Q[3:], K, V), attend_by_hand(Q[3:], K[order], V[order])
print("ana takes the key", asked[0])
print("the ana takes key", shuffled[0])
assert np.allclose(asked, shuffled)

# %% [markdown] id="explain-order"
# Nothing. A sum has no order, so to attention a text is a bag of tokens, and "ana saw ben" is "ben saw ana". Whoever wants to say "the
# word before" must put the place into the vectors. A GPT adds a vector for each position before the first layer:

# %% id="positions"
# A vector for each of the places 0 to 3
where = np.array([[0.0, 0, 0], [0.3, 0, 0.1], [0, 0.5, 0], [0.2, 0.2, 0]])
for tokens in (x, x[order]):
    placed = tokens + where
    print(attend_by_hand((placed @ Wq)[3:], placed @ Wk, placed @ Wv)[0])

# %% [markdown] id="explain-positions"
# Now they differ. (The model of this lesson, a Llama, turns q and k by an angle for each place instead: lesson 08. And the mask
# itself tells a little, since the first token sees one and the tenth ten.)

# %% [markdown] id="ask-heads"
# ## Several heads
#
# A token takes one mixture. If it needs two things, say who acts and what is acted on, one row of shares has to serve both, and
# returns a blend. So a model cuts q, k and v into **heads**, a few columns each, which attend separately.

# %% [markdown] id="ask-split"
# The cut is one line of torch, and the classic place to go wrong. Three tokens, six numbers each, two heads of three. Number 21 is
# token 2's number 1. Which of the two lines gives head 0 the first three numbers of every token?

# %% id="guess-split"
guess = None  # the first or the second

# %% id="run-split"
rows = torch.tensor([[0, 1, 2, 3, 4, 5], [10, 11, 12, 13, 14, 15], [20, 21, 22, 23, 24, 25]])
print("head 0:", rows.view(2, 3, 3)[0].tolist())
print("head 0:", rows.view(3, 2, 3).transpose(0, 1)[0].tolist())

# %% [markdown] id="explain-split"
# The second. The first has the right shape, (heads, tokens, numbers), and gives head 0 all of token 0 and half of token 1. No error
# is raised, and a model would even train. Cut the last axis first, then exchange axes; on the way back, exchange first, then join.


# %% id="multi-head"
def multi_head(x, n_head, make_qkv, mix):
    """x: (B, T, C). make_qkv and mix are linear maps, C to 3C and C to C."""
    B, T, C = x.shape
    parts = make_qkv(x).split(C, dim=-1)
    q, k, v = (part.view(B, T, n_head, -1).transpose(1, 2) for part in parts)  # (B, H, T, D)
    slots = torch.arange(T)
    z = attend(q, k, v, causal_mask(slots, slots))  # (B, H, T, D): every head on its own
    return mix(z.transpose(1, 2).reshape(B, T, C))  # side by side again, and mixed


# %% [markdown] id="ask-module"
# With the weights of a layer in it, that is a GPT's whole attention. `tiny` is this course's own small GPT; its first layer, ours and
# the package's:

# %% id="same-as-module"
tiny = load_model("tiny", dtype=torch.float64)
attn, T = tiny.transformer.h[0].attn, 7
some = torch.randn(2, T, tiny.config.n_embd, dtype=torch.float64)
slots = torch.arange(T)
theirs = attn(some, Plan(slots, slots, causal_mask(slots, slots)), None)
H, C = tiny.config.n_head, tiny.config.n_embd
assert torch.allclose(multi_head(some, H, attn.c_attn, attn.c_proj), theirs, atol=1e-12)
print(f"{H} heads of {C // H}: the same as the model's own attention")

# %% [markdown] id="ask-cost"
# Four heads in place of one: how many times the multiplications in `attend`?

# %% id="guess-cost"
guess = None

# %% id="run-cost"
from kvcourse import Meter

for heads in (1, 2, 4, 8):
    q = torch.zeros(1, heads, 100, 128 // heads)
    with Meter() as meter:
        attend(q, q, q)
    print(f"{heads} heads of {128 // heads:3}: {meter.cost.macs:,} multiply-adds")
    assert meter.cost.macs == 2 * 100 * 100 * 128

# %% [markdown] id="explain-cost"
# The same: more heads, each as much narrower. What does grow is the number of pairs: a text of twice the tokens has four times as
# many. Keep that for lesson 05.

# %% [markdown] id="ask-real"
# ## The real model
#
# SmolLM2 has 30 layers with 9 heads each: 270 tables of shares for every text. `trace` calls them `pattern`. What do real heads look
# at? Nobody told them. We measure two guesses: the share that goes to the token just before, and the share that goes to the very
# first token.

# %% id="guess-real"
guess = {"the token before": None, "the first token": None}  # percent, on average over all heads

# %% id="patterns"
ids = tokenizer.encode("The old clock on the wall stopped at noon, and nobody noticed.")
noted = trace(model, ids)
patterns = torch.cat([noted[f"blocks.{b}.attn.pattern"] for b in range(30)])  # (30, 9, T, T)
assert torch.allclose(patterns.sum(dim=-1), torch.ones(()), atol=1e-4)

# Means over all t of entry [t, t - 1] and of entry [t, 0]: (30, 9) each
before = patterns.diagonal(offset=-1, dim1=-2, dim2=-1).mean(dim=-1)
first = patterns[:, :, 1:, 0].mean(dim=-1)
blind = sum(1 / (t + 1) for t in range(1, len(ids))) / (len(ids) - 1)  # equal shares for all
print(f"token before {before.mean():.0%}, first token {first.mean():.0%}")
print(f"with equal shares {blind:.0%} each")
assert first.mean() > 0.5 > 0.2 > before.mean()

# %% [markdown] id="explain-real"
# More than half of all attention goes to the first token, "The", which has nothing to say about a clock. The token before gets what
# blind chance would give it, on average. But an average of 270 heads is nobody. Which head comes nearest to each guess?

# %% id="find-heads"
names = [tokenizer.token_text(i) for i in ids]
found = {}
for what, share in (("the token before", before), ("the first token", first)):
    layer, head = divmod(int(share.argmax()), 9)
    found[f"layer {layer}, head {head}"] = patterns[layer, head].numpy()
    print(f"{what}: layer {layer:2}, head {head}, with {share[layer, head]:.0%} on average")

# %% id="check-heads"
assert before.max() > 4 * blind
assert first.max() > 0.99

# %% id="draw-heads" alt="Two triangular tables of shares over the fourteen tokens of the sentence. In the left one the line just below the diagonal is dark: each token looks at the one before. In the right one the first column is dark: every token looks at the first."
hidden = np.triu(np.ones((len(ids), len(ids)), dtype=bool), k=1)
plot_attention(found, names, hidden=hidden, limit=1)

# %% [markdown] id="explain-heads"
# Left, a head that reads the word before: it has learned a program, one line of which we can see. Right, a head that looks at the
# first token and at nothing else. Why would 270 heads spend half of their attention there?

# %% [markdown] id="ask-sink"
# Remember that a row must add up to 1: a token cannot look at nothing. What would a value have to be, to be taken without effect?

# %% id="guess-sink"
guess = None

# %% id="run-sink"
values = torch.cat([noted[f"blocks.{b}.attn.v"] for b in range(30)])
lengths = values.norm(dim=-1)  # (30, 3, T): of each value vector
ratio = lengths[:, :, 0] / lengths[:, :, 1:].mean(dim=-1)
print(f"length of the first token's v, beside the others' mean: {ratio.median():.2f} in the median")
print(f"shorter in {(ratio < 1).sum()} of {ratio.numel()}")
assert ratio.median() < 0.4

# %% [markdown] id="explain-sink"
# Nearly 0. The first token's values are a quarter of the others' in length, so a share given to it adds little: there a head can leave
# the attention that it has no use for. Such a token is called an **attention sink** (Xiao et al. 2023). What happens to a model that
# has to forget it, lesson 08 will show.

# %% [markdown] id="three-heads"
# (Only 3 × 30 sets of values, for 9 × 30 heads: in this model three heads share one k and one v. That, too, is lesson 08.)

# %% [markdown] id="look-around"
# Look around yourself: choose a layer and a head, click a row. Layer 0, the middle, the end: which heads look at neighbours, which
# at equal words, which at nothing in particular?

# %% id="viewer" tags=["volatile"]
from kvcourse.viz import attention_viewer

attention_viewer(model, "The queen raised her voice, and the queen left.")

# %% [markdown] id="ask-queen"
# ## Back to the queen
#
# Teacher, queen, lion: which head lets " her", in all three texts, look most at that word? "Most in all three" is the largest of the
# smallest shares.

# %% id="run-queen"
words = ("teacher", "queen", "lion")
texts = [tokenizer.encode(f"The {word} raised her") for word in words]
looks = []
for one in texts:
    noted = trace(model, one)
    patterns = torch.cat([noted[f"blocks.{b}.attn.pattern"] for b in range(30)])
    looks.append(patterns[:, :, 3, 1])  # (30, 9): " her" at the word
looks = torch.stack(looks)  # (3, 30, 9)
layer, head = divmod(int(looks.amin(dim=0).argmax()), 9)
shares = [f"{share:.0%}" for share in looks[:, layer, head]]
print(f"layer {layer}, head {head}:", dict(zip(words, shares, strict=True)))

# %% [markdown] id="ask-proof"
# It asks, perhaps, whom "her" may mean. But a picture of shares is no proof that anything depends on them. So we take the way itself
# away: in all layers and heads, the two last tokens may not look at the word. Everything else stays. What will the model expect
# after each text?

# %% id="guess-proof"
guess = {"teacher": None, "queen": None, "lion": None}

# %% id="run-proof"
places = torch.arange(4)
usual = causal_mask(places, places)
cut = usual.clone()
cut[2:, 1] = False  # " raised" and " her" do not see the word

for name, mask in (("usual mask", usual), ("cut", cut)):
    logits = model.compute(torch.tensor(texts), Plan(places, places, mask), None)[:, -1]  # (3, V)
    p = logits.softmax(dim=-1)
    likeliest = [f"{tokenizer.token_text(row.argmax())} {row.max():.0%}" for row in p]
    print(f"{name:10}", dict(zip(words, likeliest, strict=True)))

# %% id="check-proof"
assert torch.allclose(logits[0], logits[1], atol=1e-4)
assert torch.allclose(logits[0], logits[2], atol=1e-4)
print("cut: the three texts have the same logits")

# %% [markdown] id="explain-proof"
# One and the same answer for all three. The word still stands there, and has its vector in every layer, but the position that
# predicts cannot reach it. Attention is the only way by which tokens hear of each other: remember it, because all that
# a KV cache has to keep is what travels on this way.

# %% [markdown] id="change-proof"
# **Change one thing.** Cut only " her" off (`cut[3, 1] = False`), and leave " raised" its look at the word. Are the three answers
# equal now? By which way does " her" still hear of the lion?

# %% [markdown] id="closing"
# ## In three sentences
#
# A token's query is compared with the keys up to its own; softmax makes shares of the scores, and the values are mixed by them. √D
# keeps the softmax soft, −∞ keeps the future out, and heads let a token look for several things. It is the one place where tokens
# meet, and knows no order but what their vectors tell.

# %% id="measured"
print("measured on this machine")
plain, divided = measured[1024, 1][0], measured[1024, 32][0]
print(f"best of 64 random keys, D = 1024       not divided {plain:.0%}, divided {divided:.0%}")
for where, share in (("first token ", first), ("token before", before)):
    said = f"{share.mean():.0%} over all heads, {share.max():.0%} in one"
    print(f"SmolLM2, share of the {where}     {said}")
print("SmolLM2, 'her' cut off from the word   the same logits after teacher, queen and lion")

# %% [markdown] id="next"
# **Your turn:** exercise 02, `02_attention.ipynb` in your `work/` folder: scores, mask, weighted sum and heads, which end up in the
# real model, in the place of its own.
#
# **Next:** attention mixes values, and a mixture invents nothing. Who computes something new? **What is a GPT made of?** That is
# lesson 03.
