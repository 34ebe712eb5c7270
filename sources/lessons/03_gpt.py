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
# # 03 · What is a GPT made of?
#
# **You need** lessons 01 and 02. About 40 minutes, half of them yours.
#
# **At the end** you can write a GPT in fifty lines and prove that it is one, say where each of its parameters sits and what
# its parts are for, and you have trained a small one and watched it begin to read.

# %% id="imports"
import torch
from torch import nn

from kvcourse import GPT, GPTConfig, attend, causal_mask, load_model, trace
from kvcourse.models.linear import Conv1D
from kvcourse.viz import show_source

# GPT-2 in small: four blocks, 64 bits so that rounding hides nothing
tiny = load_model("tiny", dtype=torch.float64)
tokenizer = tiny.tokenizer
_ = torch.set_grad_enabled(False)  # until we train
_ = torch.manual_seed(0)

# %% [markdown] id="ask-parts"
# ## What is in a block?
#
# A GPT is a stack of equal **blocks**. Here is one, as the file of weights has it: names and shapes.

# %% id="parts"
for name, parameter in tiny.transformer.h[0].named_parameters():
    print(f"{name:20} {tuple(parameter.shape)}")

# %% [markdown] id="explain-parts"
# `attn` is lesson 02's: `c_attn` makes q, k and v of each token, all in one product, and `c_proj` mixes the heads' answers. Two
# things are new: `ln`, twice, and `mlp`. They never look at another token.

# %% [markdown] id="ask-norm"
# ## Layer norm: a common scale
#
# Two tokens, four numbers each. One is loud, one is quiet. Layer norm takes each token's mean off and divides by the root of its
# variance. What comes out?

# %% id="guess-norm"
# (B=1, T=2, C=4)
x = torch.tensor([[[1.0, 2.0, 3.0, 6.0], [100.0, 200.0, 300.0, 600.0]]], dtype=torch.float64)
guess = None  # the same numbers for both tokens, or a hundred times as large for the second?


# %% id="norm"
class LayerNorm(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)  # (B, T, 1): each token has its own
        variance = x.var(dim=-1, keepdim=True, correction=0)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


# %% id="run-norm"
for token in LayerNorm(4)(x)[0].tolist():
    print([round(number, 3) for number in token])

# %% id="check-norm"
package = tiny.transformer.h[0].ln_1
ours = LayerNorm(128).double()
ours.load_state_dict(package.state_dict())  # the same weight and bias
stream = torch.randn(1, 7, 128, dtype=torch.float64) * 10
assert torch.allclose(ours(stream), package(stream), atol=1e-12)

# %% [markdown] id="explain-norm"
# The same. What a token says counts, not how loud it is, so what follows always works on numbers of the same size. `weight` and
# `bias` then set a size for each of the C numbers, as training finds useful. (The 1e-5 keeps a token whose numbers are all equal
# from being divided by zero.)

# %% [markdown] id="ask-mlp"
# ## MLP: wider, bent, back
#
# `mlp` (multi-layer perceptron, an old name) has two linear maps: from C = 128 numbers to F = 512, and back. What can two linear
# maps in a row do that one cannot?

# %% id="guess-mlp"
guess = None

# %% id="two-maps"
one, two = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
assert torch.allclose((x @ one) @ two, x @ (one @ two))
print("two maps in a row are one map:", tuple((one @ two).shape))

# %% [markdown] id="explain-two-maps"
# Nothing. So there is a bend between them, the function GELU: large numbers pass, negative ones hardly. Each of the F hidden
# numbers becomes a small detector: it stays near 0 unless the token points its way, and what it found is written back by the
# second map.

# %% id="gelu"
for number in (-3.0, -1.0, 0.0, 1.0, 3.0):
    print(f"GELU({number:4}) = {nn.functional.gelu(torch.tensor(number), approximate='tanh'):5.2f}")


# %% id="mlp"
class MLP(nn.Module):
    def __init__(self, C):
        super().__init__()
        # Conv1D: GPT-2's name for x @ weight + bias
        self.c_fc, self.c_proj = Conv1D(C, 4 * C), Conv1D(4 * C, C)

    def forward(self, x):
        hidden = nn.functional.gelu(self.c_fc(x), approximate="tanh")  # (B, T, 4C)
        return self.c_proj(hidden)


# %% id="check-mlp"
package = tiny.transformer.h[0].mlp
ours = MLP(128).double()
ours.load_state_dict(package.state_dict())
assert torch.allclose(ours(stream), package(stream), atol=1e-12)

# %% [markdown] id="ask-alone"
# Does the MLP let tokens see each other? Change the first of seven tokens and look at what comes out for the others.

# %% id="guess-alone"
guess = None  # for how many of the seven does the result change?

# %% id="run-alone"
changed = stream.clone()
changed[:, 0] += 1
moved = (ours(changed) - ours(stream)).abs().sum(dim=-1)[0] > 1e-9
print(moved.int().tolist())
assert moved.tolist() == [True] + [False] * 6

# %% [markdown] id="ask-block"
# ## The residual stream
#
# Now the order in which they work. The token's vector `x` is never replaced: each part reads a normalised **copy** of it, and what
# the part returns is **added**. (Attention is lesson 02's, in the module's clothes.)


# %% id="attention"
class Attention(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.n_head, self.c_attn, self.c_proj = H, Conv1D(C, 3 * C), Conv1D(C, C)

    def forward(self, x):
        B, T, C = x.shape
        # (B, H, T, D) each
        q, k, v = self.c_attn(x).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        z = attend(q, k, v, causal_mask(torch.arange(T), torch.arange(T)))  # (B, H, T, D)
        return self.c_proj(z.transpose(1, 2).reshape(B, T, C))


# %% id="block"
class Block(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(C), Attention(C, H)
        self.ln_2, self.mlp = LayerNorm(C), MLP(C)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))  # what other tokens have to say
        x = x + self.mlp(self.ln_2(x))  # what follows from it
        return x


# %% [markdown] id="ask-zero"
# Suppose that training had left both `c_proj`, the last map of each part, at zero: weights and biases. What would the block return?

# %% id="guess-zero"
guess = None  # zeros, x, the normalised x, or something else?

# %% id="run-zero"
block = Block(128, 4).double()
block.load_state_dict(tiny.transformer.h[0].state_dict())
for part in (block.attn.c_proj, block.mlp.c_proj):
    part.weight.zero_()
    part.bias.zero_()
print("the block returns x, bit for bit:", torch.equal(block(stream), stream))

# %% id="check-zero"
assert torch.equal(block(stream), stream)

# %% [markdown] id="explain-zero"
# `x`, untouched. A block that has nothing to say changes nothing, and what it has to say, it adds. The vectors on their way up
# are called the **residual stream**: all blocks read from it and write to it. So the last vector is a sum, and `trace` has all
# of its terms:

# %% id="sum"
ids = tokenizer.encode("ana is in the garden . where is ana ?")
noted = trace(tiny, ids)
total = noted["embed"] + noted["pos_embed"]
for b in range(tiny.config.n_layer):
    total = total + noted[f"blocks.{b}.attn_out"] + noted[f"blocks.{b}.mlp_out"]
assert torch.allclose(total, noted[f"blocks.{b}.resid_post"], atol=1e-9)
print(f"the last stream is a sum of {2 + 2 * tiny.config.n_layer} terms")

# %% [markdown] id="ask-collapse"
# What would be lost without the `x +`? We take twelve blocks as they are before training, and send eight different tokens through
# them: once as they are, once with the `x +` left out. We look at how different the two least alike of the eight are: 2 is
# opposite, 0 is the same direction.

# %% id="guess-collapse"
guess = None  # after twelve blocks without a stream: as different as before, opposite, or the same?


# %% id="collapse"
def without_stream(block, x):
    return block.mlp(block.ln_2(block.attn(block.ln_1(x))))


def widest(x):
    """The largest distance between two of the tokens' directions."""
    directions = x[0] / x[0].norm(dim=-1, keepdim=True)
    return torch.cdist(directions, directions).max().item()


torch.manual_seed(0)
sizes = {"vocab_size": 148, "context_length": 64, "n_head": 4, "n_embd": 128}
fresh = GPT(GPTConfig(n_layer=12, **sizes)).state_dict()

# %% id="run-collapse"
summed = replaced = torch.randn(1, 8, 128)
print(f"before     {widest(summed):.2f}  {widest(replaced):.2f}")
for b in range(12):
    block = Block(128, 4)
    names = [name for name in fresh if name.startswith(f"transformer.h.{b}.")]
    block.load_state_dict({name.removeprefix(f"transformer.h.{b}."): fresh[name] for name in names})
    summed, replaced = block(summed), without_stream(block, replaced)
    if b % 4 == 3:
        print(f"block {b + 1:2}   {widest(summed):.2f}  {widest(replaced):.2f}")

# %% id="check-collapse"
assert widest(summed) > 1
assert widest(replaced) < 0.05

# %% [markdown] id="explain-collapse"
# Without the stream they become the same: attention averages, again and again, and nothing keeps a token what it was. Eight
# different words are one word, and no later block can tell them apart. With the stream each token carries itself along. (It also
# gives training a straight way back to every block, past all the others.)

# %% [markdown] id="change-collapse"
# **Change one thing.** Leave out one of the two `x +` only: which of them matters more for this number?

# %% [markdown] id="ask-positions"
# ## Where am I?
#
# Nothing so far knows the order of words. `cup with ana is ben` and `ben is with ana cup` are the same tokens to attention: it
# adds up values, and a sum has no order. Take one block, set the position table to zero, and swap earlier words.

# %% id="guess-positions"
guess = None  # does what the last token computes change?

# %% id="run-positions"
one_block = GPT(GPTConfig(n_layer=1, **sizes)).double()
told, swapped = (tokenizer.encode(text) for text in ("ana is with ben ?", "ben is with ana ?"))


def same_at_the_end(model):
    a, b = (model(torch.tensor([text]))[0, -1] for text in (told, swapped))
    return torch.allclose(a, b, atol=1e-9)


print("with positions, the same at the end:   ", same_at_the_end(one_block))
one_block.transformer.wpe.weight.zero_()
print("without positions, the same at the end:", same_at_the_end(one_block))

# %% id="check-positions"
assert same_at_the_end(one_block)

# %% [markdown] id="explain-positions"
# Without positions, who is with whom is lost. (In one block, which we took on purpose. From the second on the causal mask
# lets the order through: a token's vector then depends on which tokens stood before it. Models without any positions do
# train, and learn order from that.)

# %% [markdown] id="learned-positions"
# GPT-2's answer is a second table, `wpe`: row 0 for the first place, row 1 for the second, added to the token's row at the
# entrance. They are **learned** like all weights. So there are as many places as rows, and no more:

# %% id="context-length"
from kvcourse.errors import KVCourseError

print("rows of wpe:", len(tiny.transformer.wpe.weight))
try:
    tiny(torch.zeros(1, 513, dtype=torch.int64))
except KVCourseError as error:
    print(error)

# %% [markdown] id="explain-context"
# That number is the model's **context length**. (Lesson 08's models rotate q and k in place of such a table, which loosens the
# limit.)

# %% [markdown] id="ask-gpt"
# ## All of it
#
# Two tables, the blocks, one last norm, and the token table once more as output head. Guess how many lines the forward pass takes.

# %% id="guess-gpt"
guess = None


# %% id="gpt"
class OurGPT(nn.Module):
    def __init__(self, V, places, L, H, C):
        super().__init__()
        parts = {"wte": nn.Embedding(V, C), "wpe": nn.Embedding(places, C)}
        parts |= {"h": nn.ModuleList(Block(C, H) for _ in range(L)), "ln_f": LayerNorm(C)}
        self.transformer = nn.ModuleDict(parts)  # GPT-2's names, so that its weights fit

    def forward(self, tokens):
        wte, wpe, blocks, ln_f = self.transformer.values()
        x = wte(tokens) + wpe(torch.arange(tokens.shape[1]))  # (B, T, C)
        for block in blocks:
            x = block(x)
        return ln_f(x) @ wte.weight.T  # (B, T, V): logits


# %% [markdown] id="ask-same"
# Five. Is it a GPT, though? We give it `tiny`'s weights, by name, and compare all logits.

# %% id="check-gpt"
c = tiny.config
ours = OurGPT(c.vocab_size, c.context_length, c.n_layer, c.n_head, c.n_embd).double()
weights = dict(tiny.state_dict())
del weights["lm_head.weight"]  # it is wte once more
ours.load_state_dict(weights)

tokens = torch.tensor([ids])
assert torch.allclose(ours(tokens), tiny(tokens), atol=1e-9)
print(f"{len(weights)} tensors copied; the logits of {len(ids)} tokens are the same")

# %% [markdown] id="explain-gpt"
# The same numbers, so the same model. From here on we use the package's, which checks its inputs and can take a cache. You will
# recognise its block (`probe` is what `trace` listens to; `Float[…]` writes shapes down, and `plan` and `cache` wait for
# lesson 06):

# %% id="source"
show_source(type(tiny.transformer.h[0]).forward)

# %% [markdown] id="ask-count"
# ## Where are the parameters?
#
# Count a block with C = 128 numbers a token, on paper: `c_attn` C × 3C, attention's `c_proj` C × C, the MLP twice C × 4C, makes
# 12·C². Their biases and the norms add 13·C. For GPT-2 small (C = 768, 12 blocks, 50,257 tokens, 1,024 places), where do most of its
# parameters sit?

# %% id="guess-count"
guess = None  # token table, positions, attention, or MLP?


# %% id="count"
def count_by_part(model):
    """Numbers in each kind of part; what is one tensor under two names is counted once."""
    kinds = {"wte": "token table", "wpe": "positions"}
    kinds |= {"attn": "attention", "mlp": "MLP", "ln_": "norms"}
    counts = dict.fromkeys(kinds.values(), 0)
    for name, parameter in model.named_parameters():
        kind = next(kind for kind in kinds if f".{kind}" in name)
        counts[kinds[kind]] += parameter.numel()
    return counts


def formula(V, places, L, C):
    return V * C + places * C + L * (12 * C**2 + 13 * C) + 2 * C


with torch.device("meta"):  # shapes without memory
    small = GPT(GPTConfig())  # GPT-2 small's sizes are the default

# %% id="run-count"
print(f"{'':12} {'tiny':>10} {'':5} {'GPT-2 small':>12}")
ours, theirs = count_by_part(tiny), count_by_part(small)
for part in ours:
    shares = ours[part] / sum(ours.values()), theirs[part] / sum(theirs.values())
    print(f"{part:12} {ours[part]:10,} {shares[0]:5.1%} {theirs[part]:12,} {shares[1]:5.1%}")
print(f"{'all':12} {sum(ours.values()):10,} {'':5} {sum(theirs.values()):12,}")

# %% id="check-count"
counted = sum(p.numel() for p in tiny.parameters())
assert formula(c.vocab_size, c.context_length, c.n_layer, c.n_embd) == counted
assert formula(50257, 1024, 12, 768) == sum(theirs.values()) == 124_439_808

# %% [markdown] id="explain-count"
# In the MLPs, twice as many as in attention; the part that this course is about, and that lets tokens see each other, has less
# than a quarter. And a longer context costs hardly any parameters: 768 for each place. What it does cost is the subject from
# lesson 05 on.

# %% [markdown] id="ask-train"
# ## Training
#
# Weights are drawn at random and then moved, again and again, a little way in the direction that makes the text less surprising.
# Our text is a small world, made by rule: somebody says where people and things are, and asks for it later.

# %% id="conversation"
import random

from kvcourse.corpus import make_conversation

one = make_conversation(random.Random(5), n_facts=3)
print(" ".join(one.words).replace("<end> ", "<end>\n"))

# %% [markdown] id="explain-conversation"
# Every place is drawn by chance. Whoever has not read the beginning can only guess, one out of ten places or twelve people. So a right
# answer shows that an earlier token was looked at, and we shall count them: **recall** is the share of questions answered with
# the one right word.

# %% [markdown] id="ask-loss"
# What is made small is the **loss**: the surprise of lesson 01, averaged over the tokens (and in nats: powers of e in place
# of 2). One pass gives a row for each position, so one conversation is some eighty small exams at once. The model below has two
# blocks, C = 128, and has seen nothing. What is its loss over 148 words?

# %% id="guess-loss"
# ln(148) = 5.0 is a blind guess among all words. Is the untrained model better, or worse?
guess = None

# %% id="loss"
from kvcourse.recall import held_out, measure_recall, token_ids
from kvcourse.train import SMALL, draw_model, train

model = draw_model(SMALL)  # GPT-2's names and parts, weights drawn from seed 0


def loss_of(model, conversation):
    tokens = torch.tensor([token_ids(model, conversation)])
    logits = model(tokens[:, :-1])[0]  # at each place but the last ...
    return nn.functional.cross_entropy(logits, tokens[0, 1:])  # ... the surprise of what comes next


print(f"loss before any training: {loss_of(model, one):.1f} nats a token")

# %% id="check-loss"
assert abs(loss_of(model, one) - 5.0) < 0.5

# %% [markdown] id="ask-step"
# A little worse: it guesses as blindly, and its random numbers make it sure of some words. Now sixty steps, all on this one
# conversation. `backward` computes for every parameter which way it would raise the loss, and the optimizer moves it the other
# way. Does the model then know how to answer such questions?

# %% id="guess-step"
guess = None  # its recall on conversations it has not seen: 10% is chance

# %% id="steps"
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
with torch.enable_grad():
    for _ in range(60):
        loss = loss_of(model, one)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

exam = held_out(n_facts=4, count=60)  # conversations that training never uses
learnt = measure_recall(model, exam)

# %% id="check-steps"
assert loss_of(model, one) < 0.2
assert learnt.share < 2 * learnt.chance
print(f"this conversation: loss below 0.2. Others: about chance, {learnt.chance:.0%}")

# %% [markdown] id="explain-steps"
# It has learned the conversation by heart, but it has not learned to read. There is one remedy: a new conversation at every
# step, so that there is nothing to remember but how to look.

# %% [markdown] id="ask-before"
# Before we train on many, one conversation of our own. This is what a model says that has not been trained:

# %% id="before"
from kvcourse import generate

talk = [
    {"role": "user", "content": "ana is in the garden . the key is in the kitchen ."},
    {"role": "assistant", "content": "yes ."},
    {"role": "user", "content": "where is ana ?"},
]


def reply(model):
    ids, stop_ids = tokenizer.encode_chat(talk), tokenizer.stop_ids
    out = generate(model, ids, max_new_tokens=9, cache=None, stop_ids=stop_ids)
    return tokenizer.decode(out.tokens)


untrained = draw_model(SMALL)
said_before = reply(untrained)
print(said_before)

# %% [markdown] id="practice"
# Now the package's `train`: the same loop, on a batch of new conversations at each step. Four things make it fit into a
# minute. Words that only a fact tells count fifty times as much as the others; positions begin as waves; matrices get another
# optimizer, Muon; and practice begins with short sentences. In the first stage every place stands beside its owner, and all
# is said again and again:

# %% id="first-stage"
words = make_conversation(random.Random(1), 3, "retold", link_words=0).words
for start in range(0, len(words), 12):  # twelve words a line
    print(*words[start : start + 12])

# %% [markdown] id="ask-live"
# Stage by stage "the", "in" and "is" come back, then the questions. Below, a figure is drawn while it runs. **Draw the curve of
# recall before you look:** does it rise evenly, from chance to the end?

# %% id="guess-live"
guess = None  # evenly, at the beginning, at the end, or in a jump?

# %% id="live" tags=["volatile"] alt="Two curves over the steps of a training run. Above, the loss falls, and springs up briefly when a new stage begins, at a dotted upright line. Below, recall on unseen conversations rises slowly at first, then steeply within a hundred steps, dips when sentences get longer, and recovers each time."
from kvcourse.viz.training_plot import LiveCurve

with LiveCurve(steps=SMALL.most_steps, chance=learnt.chance) as curve, torch.enable_grad():
    trained = train(SMALL, on_step=curve)

# %% id="check-live"
after = measure_recall(trained, exam)
losses = [loss for _, loss in curve.losses]
assert sum(losses[-10:]) < sum(losses[:10]) / 2
assert after.share > 0.6 > 4 * after.chance
print("the loss fell by more than half; recall on conversations it has never seen is above 60%")

# %% [markdown] id="explain-live"
# Not evenly, and not in one jump: slowly at first, then steeply. First the model learns which words are frequent, and to name
# a place that was told, any place: that alone is right more often than chance. Then, within a hundred steps, it tells them
# apart. Each dip after that is a new stage: one more word between a name and its place. Nobody told it how to read. What has
# changed?

# %% [markdown] id="ask-heads"
# For every question of the exam we look at the token that has to predict the answer, and ask each head how much of its attention
# goes to the one word that tells: the place named in the fact. There are 2 blocks with 4 heads each.

# %% id="guess-heads"
guess = None  # how much attention would that word get by chance, among some fifty?


# %% id="copying"
def attention_to_the_fact(model):
    """(L, H): the mean attention from where an answer is predicted to the word that tells it."""
    rows = []
    for conversation in exam[:20]:
        noted = trace(model, token_ids(model, conversation))
        blocks = range(model.config.n_layer)
        patterns = torch.cat([noted[f"blocks.{b}.attn.pattern"] for b in blocks])  # (L, H, T, T)
        rows += [patterns[:, :, q.answer - 1, q.fact[1] - 2] for q in conversation.questions]
    return torch.stack(rows).mean(dim=0)  # (L, H)


looks = {"before": attention_to_the_fact(untrained), "after": attention_to_the_fact(trained)}

# %% id="run-heads" tags=["volatile"]
for when, heads in looks.items():
    for b, row in enumerate(heads.tolist()):
        print(f"{when:7} block {b}: " + "  ".join(f"{share:4.0%}" for share in row))

# %% id="check-heads"
assert looks["before"].max() < 0.1
assert looks["after"].max() > 0.3

# %% [markdown] id="explain-heads"
# Before, all heads look everywhere alike. After, some look straight at the word that tells the answer, wherever it stands,
# and hand it on: heads that **copy from earlier tokens**. As long as there was none, a right answer was luck. As they form,
# recall climbs. Hence the steep part.

# %% [markdown] id="ask-after"
# The same conversation again. Before training the model said something else. It may be short with us now: the words around a place
# weigh next to nothing in its loss.

# %% id="after" tags=["volatile"]
print("before:", said_before)
print("after: ", reply(trained))

# %% id="check-after"
assert "garden" in reply(trained).split()

# %% [markdown] id="change-after"
# **Change one thing.** Put Ana into the museum and ask again; no weight changes. Then ask for the key. Then tell two things about
# Ana, one after the other: which does it believe?

# %% [markdown] id="explain-reading"
# What it knows about Ana is in no weight. It is in the activations of the tokens that told it, which later tokens look up. The
# weights only know how to look. That difference is the next lesson, and the reason why a KV cache can work at all.

# %% [markdown] id="summary"
# ## In three sentences
#
# A GPT is two tables, a stack of equal blocks and a norm; each block adds to every token's vector what attention found
# elsewhere and what the MLP makes of it. Its parameters sit mostly in MLPs and, where the vocabulary is large for the model,
# in the token table, and a formula of five sizes counts them. Training moves them until the next token surprises less, and
# reading comes late and then fast, as heads form that copy.

# %% [markdown] id="ask-measured"
# Measured on this machine. Yours will take another time; the counts stay.

# %% id="measured" tags=["volatile"]
from kvcourse import timed

n = sum(p.numel() for p in trained.parameters())
took = timed(lambda: loss_of(trained, one), runs=3)
print(f"{'':30} {'untrained':>10} {'trained':>10}")
print(f"{'parameters':30} {n:10,} {n:10,}")
print(f"{'steps of training':30} {0:10} {curve.losses[-1][0]:10,}")
losses = loss_of(untrained, one), loss_of(trained, one)
print(f"{'loss of one conversation':30} {losses[0]:10.2f} {losses[1]:10.2f}")
before = measure_recall(untrained, exam)
print(f"{'recall, new conversations':30} {before.share:10.0%} {after.share:10.0%}")
print(f"one pass over {len(one.words)} tokens: {took}")

# %% [markdown] id="next"
# ## Next
#
# **Your turn:** exercise 03, `03_gpt.ipynb` in your `work/` folder: build the parts as plain functions, let them compute what
# `tiny` computes, and count GPT-2's parameters.
#
# We have said "weights" and "activations" all along. **Which tensors are weights, and which are computed?** That is lesson 04.
