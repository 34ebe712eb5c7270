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
# # 05 · Why is plain generation slow?
#
# **You need** to know what a token, attention's q, k and v, and a trace are (lessons 01, 02 and 04). About 35 minutes, half of it
# yours.
#
# **At the end** you can count, to the row, what plain generation computes twice, say how fast that grows, and prove which of it
# may be reused, in which models, and why.

# %% id="imports"
import random

import numpy as np
import torch

from kvcourse import GrowingCache, Meter, decode_step, generate, greedy, load_model, prefill, trace
from kvcourse.config import kv_bytes_per_token
from kvcourse.viz import plot_counts, plot_passes, plot_reach, plot_seconds

_ = torch.set_grad_enabled(False)  # nothing is trained here

# Four layers, 64 bits: rounding cannot hide a difference
tiny = load_model("tiny", dtype=torch.float64)
smollm2 = load_model("smollm2")  # the real one: thirty layers, 32 bits

# %% [markdown] id="ask-loop"
# ## Three new tokens
#
# Lesson 01's loop: give the model everything so far, take the likeliest next token, put it at the end, start again. Here it is
# once more, with a meter around each pass.


# %% id="recompute"
def recompute(model, prompt, new):
    """The plain loop: the whole text goes through the model for every new token."""
    ids, costs = list(prompt), []
    for _ in range(new):
        with Meter() as meter:
            logits = model(torch.tensor([ids]), logits_to_keep=1)  # the last position's only
        costs.append(meter.cost)
        ids.append(greedy(logits[0, -1]))
    return ids, costs


# %% [markdown] id="ask-letters"
# Four tokens go in, three come out. We call them A B C D and E F G, since it does not matter here what they say. How many tokens
# does each of the three passes read?

# %% id="guess-letters"
guess = [None, None, None]

# %% id="run-letters"
prompt = tiny.tokenizer.encode("where is the key")
ids, plain = recompute(tiny, prompt, 3)
for number, cost in enumerate(plain, 1):
    read = "ABCDEFG"[: cost.tokens]
    written = "ABCDEFG"[cost.tokens]
    print(f"pass {number}: {cost.tokens} tokens in the model: {' '.join(read):11} → {written}")

# %% id="check-letters"
package = generate(tiny, prompt, max_new_tokens=3, cache=None)  # the package's plain loop
assert ids[4:] == package.tokens
assert [cost.tokens for cost in plain] == [4, 5, 6]
assert sum(cost.tokens for cost in plain) == package.cost.tokens == 15

# %% [markdown] id="explain-letters"
# 15 tokens went through, and there were six different ones: G was chosen, and the loop ended before anybody read it.
#
# Each token that goes through leaves a k and a v in every layer. We call these two, of one token in one layer, a **K/V row**, and
# count them.

# %% [markdown] id="ask-rows"
# `tiny` has four layers. How many K/V rows were computed in the three passes together? And how many different ones are there?

# %% id="guess-rows"
guess = {"computed": None, "different": None}

# %% id="run-rows"
computed = sum(cost.kv_rows for cost in plain)
print(computed, "rows computed, by the meter")

# %% id="check-rows"
assert computed == package.cost.kv_rows == 4 * (4 + 5 + 6)

# %% [markdown] id="ask-same"
# Different ones: at most 4 · 6 = 24, if the row of A in the third pass is the row of A in the first. Is it? The text is longer
# by then. We keep all keys and values of passes 1 and 3 (`trace`, lesson 04) and compare what they say about A B C D.

# %% id="run-same"
first, third = trace(tiny, ids[:4]), trace(tiny, ids[:6])
names = [f"blocks.{layer}.attn.{part}" for layer in range(4) for part in "kv"]
largest = max((first[name] - third[name][:, :, :4]).abs().max().item() for name in names)
print("the same rows, to twelve digits:", largest < 1e-12)

# %% id="check-same"
assert largest < 1e-12

# %% [markdown] id="explain-same"
# The same. (To twelve digits and not always to the last bit: a matrix product over six rows may add in another order than one over
# four. When we need the last bit, further down, both texts will have one length.)
#
# So 36 of the 60 rows had been computed before. A model that kept its rows would need 24.

# %% [markdown] id="two-words"
# ## Prefill and decode
#
# The package can keep them. How is lesson 06; today we only hold the meter next to it. Its work comes in two kinds, and the two
# words for them are used everywhere:

# %% [markdown] id="prefill-decode"
# - **prefill**: the prompt goes through, many tokens in one pass (or a few). It leaves the prompt's rows and chooses the first new token.
# - **decode**: one new token, one pass. It reads the rows of all tokens before it and adds its own.


# %% id="keeping"
def keeping(model, prompt, new):
    """The same loop with a cache: whatever has rows is not read again."""
    cache, ids, costs = GrowingCache(), list(prompt), []
    for number in range(new):
        with Meter() as meter:
            logits = decode_step(model, ids[-1], cache) if number else prefill(model, prompt, cache)
        costs.append(meter.cost)
        ids.append(greedy(logits[0]))
    return ids, costs, cache


kept_ids, kept, cache = keeping(tiny, prompt, 3)
assert kept_ids == ids

# %% [markdown] id="ask-table"
# The same three tokens come out. Now the table, pass by pass. `K/V rows` is what the meter counted in the plain loop, `new` what it
# counted in the loop that keeps, and `again` the rest, which had been there before.

# %% id="table"
print("pass  reads          K/V rows  new  again")
for number, (cost, needed) in enumerate(zip(plain, kept, strict=True), 1):
    text = " ".join("ABCDEF"[: cost.tokens])
    again = cost.kv_rows - needed.kv_rows
    print(f"{number:4}  {text:13}  {cost.kv_rows:8}  {needed.kv_rows:3}  {again:5}")
new = sum(cost.kv_rows for cost in kept)
print(f"{'all':>4}  {'':13}  {computed:8}  {new:3}  {computed - new:5}")

# %% id="check-table"
assert [cost.tokens for cost in kept] == [4, 1, 1]
assert [cost.kv_rows for cost in kept] == [16, 4, 4]
assert (computed, new, computed - new) == (60, 24, 36)

# %% [markdown] id="ask-passes"
# The same as a picture, for one layer. The number in a box says how often that row has been computed by then.

# %% id="passes"
ends = np.cumsum([cost.tokens for cost in kept])  # what has gone through after each pass
read = {
    "nothing kept": [range(cost.tokens) for cost in plain],
    "rows kept": [range(end - cost.tokens, end) for end, cost in zip(ends, kept, strict=True)],
}
plot_passes(read, "ABCDEFG")

# %% [markdown] id="explain-passes"
# Left, A's row is computed three times. Right, every row is computed once, and from then on held. And G has no row on either side:
# it was chosen last, and nothing followed it. The cache says so as well:

# %% id="last-token"
print("tokens in the text:", len(kept_ids), "· tokens in the cache:", cache.length)
assert len(kept_ids) == 7 and cache.length == 6

# %% [markdown] id="change-last"
# **Change one thing.** Let four tokens be written instead of three. Which token has no row now, and what did G's row cost in each
# of the two loops?

# %% [markdown] id="ask-growth"
# ## How does it grow?
#
# A longer run: 128 tokens after a prompt of 64. If twice as many new tokens are asked for, how much more goes through the model?

# %% id="guess-growth"
guess = {"nothing kept": None, "rows kept": None}  # 2 times? 4 times? something else?

# %% id="run-growth"
start = tiny.tokenizer.encode("ana is in the garden . " * 11)[:64]
plain_ids, plain_costs = recompute(tiny, start, 128)
kept_ids, kept_costs, _ = keeping(tiny, start, 128)
plain_total = np.cumsum([cost.tokens for cost in plain_costs])  # after 1, 2, ... 128 new tokens
kept_total = np.cumsum([cost.tokens for cost in kept_costs])

print("new tokens  nothing kept  rows kept")
for m in (16, 32, 64, 128):
    print(f"{m:10}  {plain_total[m - 1]:12,}  {kept_total[m - 1]:9,}")

# %% id="check-growth"
assert plain_total[15] == 1144 and kept_total[15] == 79
assert plain_total[127] == 16320 and kept_total[127] == 191
assert plain_ids == kept_ids  # and the same 128 tokens came out

# %% [markdown] id="ask-fit"
# Between 2 and 4 times, and rising. Which curve is that? We need not guess: fit a parabola through all 128 counts.

# %% id="run-fit"
m = np.arange(1, 129)
square, linear, constant = np.polyfit(m, plain_total, 2)
print(f"nothing kept: {square:.3f} m² + {linear:.3f} m + {abs(constant):.3f}")
assert np.array_equal(plain_total, 64 * m + m * (m - 1) // 2)
assert np.array_equal(kept_total, 64 + m - 1)

# %% [markdown] id="explain-fit"
# A parabola, exactly. With a prompt of $n$ tokens, pass $i$ reads $n + i - 1$, so $m$ new tokens take
#
# $$n + (n+1) + \dots + (n+m-1) = n\,m + \frac{m\,(m-1)}{2}$$
#
# tokens, and $n + m - 1$ if rows are kept. The first grows with the square of the new tokens, and the prompt is paid for $m$
# times.

# %% [markdown] id="change-fit"
# **Change one thing.** In a cell of your own, run `recompute(tiny, start[:4], 128)` and fit its counts. Which of the two numbers
# stays as it is, and what does the other one become?

# %% [markdown] id="growth-text"
# Both counts as a picture, for one pass and for all passes so far:

# %% id="growth"
rows = [np.cumsum([cost.kv_rows for cost in costs]) for costs in (plain_costs, kept_costs)]
places = m[7::8]  # every eighth
plot_counts(
    {
        "One pass": {
            "nothing kept": (places, [plain_costs[i - 1].tokens for i in places]),
            "rows kept": (places, [kept_costs[i - 1].tokens for i in places]),
        },
        "All passes so far": {
            "nothing kept": (places, [rows[0][i - 1] for i in places]),
            "rows kept": (places, [rows[1][i - 1] for i in places]),
        },
    },
    x="new tokens after a prompt of 64",
    y=["tokens through the model", "K/V rows computed, 4 layers"],
)

# %% [markdown] id="explain-growth"
# Left, one pass: a line that rises by one token a pass, against one token. Right, everything up to there: the area under the left
# lines, times four layers. The prefill, 64 tokens, lies left of the first mark.

# %% [markdown] id="ask-share"
# Which share of the work is repetition? Three kinds of use: a long prompt and a short answer, the run from above, and a short prompt
# with a long answer. Where is the share largest, where smallest?

# %% id="guess-share"
guess = {"256 + 8": None, "64 + 16": None, "4 + 128": None}  # per cent of the K/V rows

# %% id="run-share"
print("prompt + new  K/V rows  of these again   multiply-adds saved")
for n, new in ((256, 8), (64, 16), (4, 128)):
    ids_n = (start * 4)[:n]
    without = generate(tiny, ids_n, max_new_tokens=new, cache=None).cost
    with_rows = generate(tiny, ids_n, max_new_tokens=new, cache="growing").cost
    again = 1 - with_rows.kv_rows / without.kv_rows
    saved = 1 - with_rows.macs / without.macs
    print(f"{n:6} + {new:3}  {without.kv_rows:8,}  {again:14.1%}   {saved:19.1%}")
    assert without.kv_rows == 4 * (n * new + new * (new - 1) // 2)
    assert with_rows.kv_rows == 4 * (n + new - 1)

# %% [markdown] id="explain-share"
# 87 per cent with eight new tokens: the prompt went through eight times, and once would have done. The longer the answer, the
# nearer to 100. Multiply-adds say nearly the same as rows do, since a token that does not go through needs no MLP and no projection
# either. What is at stake is not "the attention part". It is the whole pass.

# %% [markdown] id="ask-time"
# Counts are the same on every machine. Time is not, and here is some: how long a pass of the real model takes on this one,
# depending on how many tokens it reads. In plain generation this is the time for **one** new token.

# %% id="time" tags=["volatile"]
from kvcourse import timed

text = smollm2.tokenizer.encode("A model reads everything again for every new word. " * 16)[:128]
lengths = [1, 16, 32, 64, 96, 128]
starts = [torch.tensor([text[:n]]) for n in lengths]
times = [timed(lambda ids=ids: smollm2(ids, logits_to_keep=1), runs=3) for ids in starts]
plot_seconds(
    lengths,
    [t.min_s for t in times],
    [t.median_s for t in times],
    [t.max_s for t in times],
    device=f"SmolLM2, median and spread of 3 runs; {times[0].device}",
)

# %% [markdown] id="explain-time"
# The left end is a pass over one token: about what a step costs when nothing is read twice (looking back at kept rows comes
# on top). A pass over 128 is not 128 times as long, and lesson 07 says why. Time comes after proof, though: nobody has shown
# yet that leaving out the old tokens is allowed.

# %% [markdown] id="ask-proof"
# ## May rows be reused?
#
# We saw that rows came out the same, once. Was that luck? What would break it: a later token that changes an earlier token's row.
# So we exchange tokens and look which rows notice. Two texts of one length, compared bit for bit:


# %% id="changed"
def changed(one, two, part):
    """True where a token's row differs in any bit, for each layer: (L, T)."""
    layers = [name for name in one if name.endswith(f".attn.{part}")]
    return torch.stack([(one[name] != two[name]).any(dim=-1).any(dim=1)[0] for name in layers])


sentence = tiny.tokenizer.encode("ana is in the garden . where")
market = tiny.tokenizer.encode("market")[0]

# %% [markdown] id="ask-last"
# First the last token: "where" becomes "market". Which of the seven rows of k change, in which of the four layers?

# %% id="guess-last"
guess = """
layer 0:  . . . . . . .
layer 1:  . . . . . . .
layer 2:  . . . . . . .
layer 3:  . . . . . . .
"""  # x where the row changes

# %% id="run-last"
one, two = trace(tiny, sentence), trace(tiny, [*sentence[:-1], market])
for part in "kv":
    for layer, row in enumerate(changed(one, two, part)):
        print(f"{part}, layer {layer}:  " + " ".join("x" if c else "." for c in row))

# %% id="check-last"
for part in "kv":
    found = changed(one, two, part)
    assert not found[:, :-1].any() and found[:, -1].all()

# %% [markdown] id="explain-last"
# Only its own. No earlier k or v moved by a single bit, in any layer.
#
# Now exchange every token in turn. A row of the picture: which token was exchanged. A column: whose k and v we look at. Green has
# stayed as it was, × has changed.


# %% id="reach"
def reach(model, ids, other, causal=True):
    """[layer, exchanged, looked at]: did k or v change? (L, T, T)"""
    before, tables = trace(model, ids, causal=causal), []
    for place in range(len(ids)):
        after = trace(model, [*ids[:place], other, *ids[place + 1 :]], causal=causal)
        tables.append(changed(before, after, "k") | changed(before, after, "v"))
    return torch.stack(tables, dim=1)


words = [tiny.tokenizer.token_text(i) for i in sentence]
masked = reach(tiny, sentence, market)
plot_reach({"with the mask": masked.numpy()}, words)

# %% id="check-reach"
earlier = torch.ones(7, 7).tril(-1).bool()  # columns before the exchanged token
assert not masked[:, earlier].any()  # never, in any layer
assert torch.equal(masked[0], torch.eye(7).bool())  # layer 0: its own row alone
assert masked[1:, ~earlier].all()  # from layer 1 on: its own and every later one

# %% [markdown] id="explain-reach"
# Layer 0 makes k and v from a token and its place, nothing else: only the exchanged token's own row changes. Then attention carries
# it to the tokens **after** it, and from layer 1 on all of these have changed. To the left of the exchanged token all is green, in
# every layer: nothing ever travels backwards.

# %% [markdown] id="ask-many"
# A single other token could be an accident. So: forty random tails of random length, and each time every k and v before the tail is
# compared, bit for bit.

# %% id="run-many"
draw, compared, different = random.Random(0), 0, 0
for _ in range(40):
    keep = draw.randrange(1, 7)
    tail = [draw.randrange(tiny.tokenizer.vocab_size) for _ in range(7 - keep)]
    other = trace(tiny, sentence[:keep] + tail)
    for name in names:
        unequal = one[name][:, :, :keep] != other[name][:, :, :keep]
        compared, different = compared + unequal.numel(), different + int(unequal.sum())
print(f"{compared:,} numbers compared, {different} of them different")

# %% id="check-many"
assert different == 0 and compared > 100_000

# %% [markdown] id="ask-real"
# And the real model: another family, positions made in another way (lesson 08), thirty layers, 32 bits. Thirteen tokens; each is
# exchanged in turn. Do 32 bits suffice for "bit for bit"?

# %% id="guess-real"
guess = None

# %% id="run-real"
capital = smollm2.tokenizer.encode("The capital of France is Paris, and the capital of Italy is")
real = reach(smollm2, capital, smollm2.tokenizer.encode(" market")[0])
before = torch.ones(13, 13).tril(-1).bool()
print(f"{real.shape[0]} layers, {int(before.sum())} pairs of an exchanged token and an earlier one")
print(f"earlier rows that changed: {int(real[:, before].sum())}")

# %% id="check-real"
assert not real[:, before].any()
assert real.any(dim=0)[~before].all()  # the exchanges did something: every later token noticed

# %% [markdown] id="explain-real"
# They do. The same operations on the same numbers give the same bits, whatever the width, as long as both texts have one length.
#
# That is the licence for everything that follows in this course: **a token's k and v depend on what came before, never on what
# comes after. Once computed, they stay right for every continuation.**

# %% [markdown] id="ask-mask"
# ## Where it is not allowed
#
# What makes it so? One part of the model only: the causal mask (lesson 02). Take it away, as in an encoder (a model that reads a
# finished text, such as BERT), and exchange the **last** token again. Which is the first layer in which an earlier row changes?

# %% id="guess-mask"
guess = None  # 0, 1, 2 or 3?

# %% id="no-mask"
bare = reach(tiny, sentence, market, causal=False)
first_layer = next(layer for layer in range(4) if bare[layer, -1, :-1].any())
print("first layer in which an earlier row changes:", first_layer)
plot_reach({"without the mask": bare.numpy()}, words)

# %% id="check-mask"
assert first_layer == 1
assert torch.equal(bare[0], torch.eye(7).bool()) and bare[1:].all()

# %% [markdown] id="explain-mask"
# Layer 0 is what it was: its k and v are made before any token has looked at another. But in its attention all see all, so what it
# hands on is new everywhere, and from layer 1 on not one row can be kept. One new token, and an encoder must read the whole text
# again.

# %% [markdown] id="change-mask"
# **Change one thing.** In the picture without the mask, look at the top row: "ana" was exchanged. And in the one with the mask? For
# one exchange of seven the two pictures agree, in every layer. Why for this one?

# %% [markdown] id="ask-trap"
# ## The same word is not the same row
#
# A trap. The text below says "ana" twice. Could the second one take over the row of the first? And the k of "is", after "ana" in
# one text and after "ben" in another?

# %% id="guess-trap"
# Layers in which the rows are equal:
guess = {"ana, twice in one text": None, "is, after ana and after ben": None}

# %% id="run-trap"
encode = tiny.tokenizer.encode
twice = trace(tiny, encode("ana is in the garden . where is ana"))  # ana stands at 0 and at 8
ben = trace(tiny, encode("ben is in the garden . where is ana"))
for layer in range(4):
    k, other = twice[f"blocks.{layer}.attn.k"][0], ben[f"blocks.{layer}.attn.k"][0]
    ana, verb = torch.equal(k[:, 0], k[:, 8]), torch.equal(k[:, 1], other[:, 1])
    said = ["equal" if same else "differ" for same in (ana, verb)]
    print(f"layer {layer}: ana and ana {said[0]} · is and is {said[1]}")
    assert not ana and verb == (layer == 0)

# %% [markdown] id="explain-trap"
# Neither. The first pair stands in different places; the second has a different past, which shows from layer 1 on. A row belongs to
# a token **in its place, after everything before it**. So two texts share rows exactly as far as they begin alike, and not one token
# further.

# %% [markdown] id="ask-q"
# ## Why not q?
#
# The first six q did not change either (print `changed(one, two, "q")`). So why is nobody keeping them? Ask who still reads them.
# We compute the last token's attention once more, from the trace, and spoil the old rows of one tensor at a time.

# %% id="guess-q"
guess = {"q": None, "k": None, "v": None}  # True: the last token's result changes

# %% id="run-q"
from kvcourse import attend, causal_mask

mask = causal_mask(torch.arange(7), torch.arange(7))
for spoiled in "qkv":
    touched = False
    for layer in range(4):
        parts = {part: one[f"blocks.{layer}.attn.{part}"].clone() for part in "qkv"}
        right = attend(*parts.values(), mask)[:, :, -1]
        parts[spoiled][:, :, :-1] = 7.0  # the six old rows become nonsense
        touched = touched or not torch.equal(attend(*parts.values(), mask)[:, :, -1], right)
    what = "changes" if touched else "stays the same"
    print(f"old {spoiled} spoiled: the last token's result {what}")
    assert touched == (spoiled in "kv")

# %% [markdown] id="explain-q"
# An old q was a question. It was asked by its own token, in its own pass, and answered. The new token brings a question of its own,
# and the answer needs every k (who has it?) and every v (what is it?). The two that will be read again are kept. That is the whole
# reason.

# %% [markdown] id="ask-forget"
# ## What is in the rows?
#
# `tiny` was trained to answer from what was said earlier, so its rows must hold it. We ask, and take away the rows of the very fact
# that is asked for: from everything that follows it, or only when the question comes, or only before the answer.

# %% id="guess-forget"
# Right answers, in percent:
guess = {"from the start": None, "before the question": None, "before the answer": None}

# %% id="run-forget"
from kvcourse.recall import held_out, measure_recall

exam = held_out(n_facts=8, count=20)  # conversations that it was not trained on
found = {hide: measure_recall(tiny, exam, hide) for hide in (None, *guess)}
for hide, recall in found.items():
    rows_are = f"hidden {hide}" if hide else "all rows there"
    print(f"{rows_are:26} {recall.right:3} of {recall.asked} right, {recall.share:.0%}")

# %% id="check-forget"
chance = found[None].chance
assert found[None].share > 0.95
assert all(abs(found[hide].share - chance) < 0.1 for hide in guess)
print(f"a guess would get {chance:.0%}")

# %% [markdown] id="explain-forget"
# Without the rows it can only guess, even when they go at the last moment. It might have been otherwise: the tokens in between have
# read the fact, and could have carried it on in rows of their own. Nothing forbids that, so dropping a row from a cache is no safe way to make
# a model forget. Here nobody copied: the answer is looked up when it is due, in the one place where it was said.

# %% [markdown] id="teacher"
# ## A picture, and where it ends
#
# A teacher comments on an essay, a sentence at a time. One way: read it from the first line again before each sentence. The other:
# read once, take notes, and go by the notes. Plain generation is the first teacher.
#
# The picture holds for the work. It is wrong about the notes, in four ways:

# %% [markdown] id="teacher-ends"
# - The notes are **exact**. No summary: each row is what reading again would give, up to rounding in the last digits.
# - There is **a set per layer**, for every token, thirty for SmolLM2. Only layer 0's are about the words alone.
# - They **cannot be corrected** in the middle. Change an early token, and every later row is wrong (the × above).
# - They **grow**, with every token, by the same amount:

# %% id="bytes"
per_token = kv_bytes_per_token(smollm2.config)  # K and V, 3 heads of 64 numbers, 4 bytes, 30 layers
whole = per_token * 8192 / 1e6
print(f"SmolLM2: {per_token:,} bytes a token, {whole:.0f} MB for its whole context of 8,192")
assert per_token == 2 * 3 * 64 * 4 * 30

# %% [markdown] id="closing"
# ## What to keep
#
# The plain loop reads everything again for every new token, so its work grows with the square of what it writes, and nearly all
# of it is repetition. Behind a causal mask a later token changes no earlier k or v, by no bit, in no layer, so these may be kept, and
# without the mask they may not. Only k and v are read again, so they are all that must be kept.

# %% id="measured" tags=["volatile"]
print("counted                          nothing kept   rows kept")
print(f"tokens, 64 + 16 {plain_total[15]:29,} {kept_total[15]:11,}")
print(f"tokens, 64 + 128 {plain_total[127]:28,} {kept_total[127]:11,}")
print(f"K/V rows, 64 + 128, four layers {rows[0][-1]:13,} {rows[1][-1]:11,}")
print(f"\none pass of SmolLM2, milliseconds ({times[0].device})")
for n, took in zip(lengths, times, strict=True):
    spread = f"({took.min_s * 1e3:.0f} to {took.max_s * 1e3:.0f})"
    print(f"reads {n:3} tokens {took.median_s * 1e3:29.0f}   {spread}")

# %% [markdown] id="next"
# **Your turn:** exercise 05, `05_wasted_work.ipynb` in your `work/` folder: count the rows of any run, find the ones that two texts
# share, and write the experiment that tells a model that may keep them from one that may not.
#
# **Next:** the rows are there, and may be kept. How does a new token get to see them? **How does a cache enter attention?** That is
# lesson 06.
