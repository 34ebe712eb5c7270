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
# # 10 · How is work reused between requests?
#
# **You need** to know what a KV cache keeps, and how one is proved right (lesson 06). Two sittings of about 40 minutes
# each, half of them yours.
#
# **At the end** you can let strangers share what their texts have in common, prove that nothing but the work has changed, and
# say of any request why it found less than you hoped.

# %% id="imports"
import torch

from kvcourse import GrowingCache, Meter, PreallocatedCache, generate, load_model, prefill
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
from kvcourse.viz import show_source
from kvcourse.viz.prefix_tree import Panel, pieces_of, plot_trees

_ = torch.set_grad_enabled(False)  # nothing is trained here

tiny = load_model("tiny", dtype=torch.float64)  # four layers, 64 bits: rounding cannot hide a fault
smollm2 = load_model("smollm2")  # the real one: thirty layers, 32 bits

# %% [markdown] id="ask"
# ## A B C, and then A B C D E
#
# Somebody's text was `A B C`. It has been computed, and its K and V were kept. Now other people's requests come. For each: how
# many of its tokens have to go through the model?

# %% id="guess-toy"
guess = {"A B C D E": None, "A B X D E": None, "X A B C": None}  # tokens to compute

# %% id="toy"
stored = ["A B C".split()]


def known(request):
    """How many tokens, counted from the start, a request has in common with a stored text."""
    lengths = []
    for text in stored:
        pairs = enumerate(zip(text, request, strict=False))
        parted = (i for i, (one, other) in pairs if one != other)
        lengths.append(next(parted, min(len(text), len(request))))
    return max(lengths)


for text in ("A B C D E", "A B X D E", "X A B C"):
    request = text.split()
    print(f"{text:10} {known(request)} known, {len(request) - known(request)} to compute")
assert [known(text.split()) for text in ("A B C D E", "A B X D E", "X A B C")] == [3, 2, 0]

# %% [markdown] id="ask-strict"
# Three, two, and nothing. The last one contains A B C, whole, and may use none of it. Is that not too strict? We ask the model,
# with words for letters, and compare rows of K and V: those that it computed for A B C, with those of the same words elsewhere.

# %% id="words"
A, B, C, D, E, X = (tiny.tokenizer.encode(word)[0] for word in "ana is in the garden ben".split())


def rows(ids):
    """K and V of every layer: (layer, K or V, head, token, number)."""
    cache = GrowingCache()
    tiny(torch.tensor([ids]), cache=cache)
    layers = range(tiny.config.n_layer)
    return torch.stack([torch.cat(cache.read(layer, 0, len(ids))) for layer in layers])


# %% [markdown] id="ask-layers"
# In `X B C`, B and C even stand at the same places as in `A B C`; one word in front of them is another. In which of the four
# layers are their rows the same?

# %% id="guess-layers"
# Layer by layer; True: the same rows
guess = {"A B C D E": [None] * 4, "X A B C": [None] * 4, "X B C": [None] * 4}

# %% id="compare-rows"
abc = rows([A, B, C])
right = {"A B C D E": [True] * 4, "X A B C": [False] * 4, "X B C": [True] + [False] * 3}
pairs = {
    "A B C D E": (rows([A, B, C, D, E])[:, :, :, :3], abc),  # its A B C
    "X A B C": (rows([X, A, B, C])[:, :, :, 1:], abc),  # its A B C, one place further back
    "X B C": (rows([X, B, C])[:, :, :, 1:], abc[:, :, :, 1:]),  # its B C, at their old places
}
for text, (there, here) in pairs.items():
    off = [(there[layer] - here[layer]).abs().max().item() for layer in range(4)]
    print(f"{text:10} largest difference in layers 0 to 3: " + "  ".join(f"{x:.2f}" for x in off))
    assert [x < 1e-9 for x in off] == right[text]

# %% [markdown] id="explain-rows"
# Layer 0 makes k and v of a word and its place: another place in `X A B C`, the same in `X B C`. Then attention mixes into B what
# stands in front of it, and from layer 1 on its k and v say "B, after X". A row is right behind the past that it was computed with,
# and behind no other.
#
# So the strict rule is the true one: **equal from the very first token on**. Such a common start is called a **prefix**.

# %% [markdown] id="experts-position"
# (Some engines bend it. A Llama's keys can be turned to another place, which mends the position and not the mixing; CacheBlend,
# Yao et al. 2024, computes again those tokens that the mixing changes most. Both give other logits than the model. This lesson
# keeps to the same ones.)

# %% [markdown] id="by-hand"
# Now A B C + DE with tensors. Yesterday's rows, and a pass over the two new tokens only:

# %% id="abc-de"
yesterday = GrowingCache()
tiny(torch.tensor([[A, B, C]]), cache=yesterday)

today = yesterday.fork()
with Meter() as meter:
    logits = tiny(torch.tensor([[D, E]]), cache=today)
whole = tiny(torch.tensor([[A, B, C, D, E]]))
assert (logits - whole[:, 3:]).abs().max() < 1e-9
assert meter.cost.tokens == 2
print("A B C reused, D E computed: 2 tokens through the model, the same logits for D and E")

# %% [markdown] id="ask-same"
# And if the new request is `A B C`, exactly what is stored? How many tokens must be computed then?

# %% id="guess-same"
guess = None  # tokens of three

# %% id="same-again"
try:
    tiny(torch.empty(1, 0, dtype=torch.int64), cache=yesterday.fork())
except Exception as fault:
    print(f"{type(fault).__name__}: {fault}")
again = yesterday.fork()
again.truncate(2)
logits = tiny(torch.tensor([[C]]), cache=again)
assert (logits - tiny(torch.tensor([[A, B, C]]))[:, 2:]).abs().max() < 1e-9
print("one token back, and computed again: the logits from which an answer begins")

# %% [markdown] id="explain-same"
# One. K and V are there for all three, but nobody stored the logits after C, and the answer begins with those. A prompt that is
# known to the last token crashed several engines in their time; the right number is never 0.

# %% [markdown] id="two-caches"
# ## Two caches, two kinds of waste
#
# | | KV cache (lesson 06) | prefix cache |
# |---|---|---|
# | saves work | inside one generation: at each new token | between requests: at their beginnings |
# | holds | the rows of one text | the rows of many texts, each common start once |
# | is asked by | the model, in every layer | whoever runs the model, once a request |
# | is asked for | everything so far, and it is there | a text's longest known start, and it may be gone |
# | ends | with the answer | when the room is needed for something better |

# %% [markdown] id="ask-counts"
# Neither replaces the other. A request of 100 tokens, of which the first 90 are those of somebody's earlier request, and 16 new
# tokens for each. Count the tokens that go through the model for the second request, three ways.

# %% id="guess-counts"
guess = {"no cache": None, "a KV cache": None, "a KV cache and a prefix cache": None}

# %% id="counts"
story = "ana is in the garden . ben took the key from the kitchen . " * 7
story = tiny.tokenizer.encode(story)[:90]
one = story + tiny.tokenizer.encode("where is ana ? yes , and where is ben ?")[:10]
two = story + tiny.tokenizer.encode("who has the key ? and who has the lamp ?")[:10]
pc = RadixPrefixCache(tiny, max_bytes=2**24)
generate(tiny, one, max_new_tokens=16, prefix_cache=pc)

ways = {"no cache": {"cache": None}, "a KV cache": {}}
ways |= {"a KV cache and a prefix cache": {"prefix_cache": pc}}
outs = {name: generate(tiny, two, max_new_tokens=16, **options) for name, options in ways.items()}
for name, out in outs.items():
    hits = f"{out.usage.cached_tokens:2} of the prompt's 100 cached"
    print(f"{name:30} {out.cost.tokens:5,} tokens through the model; {hits}")
    assert out.tokens == outs["no cache"].tokens
assert [out.cost.tokens for out in outs.values()] == [sum(range(100, 116)), 100 + 15, 10 + 15]

# %% [markdown] id="explain-counts"
# The KV cache removes what grows with the answer, the prefix cache what repeats in prompts. The second needs the first: what it
# hands out is rows, and somebody has to go on from them.

# %% [markdown] id="contract"
# ## The contract, and its proof
#
# Two implementations, which the rest of this lesson builds up, share one contract: **lease** the longest known start of a text
# (it stays while the `with` block lasts), load its rows into an empty cache, compute the rest, **insert**.
#
# The proof is lesson 06's, once more: all logits of the rest, for every length of the common start, for several cuts.


# %% id="reused-logits"
def reused_logits(model, pc, ids, cut=None):
    """Lease, load, compute the rest, `cut` tokens a call. How many were known, and the logits."""
    cache = PreallocatedCache(len(ids))
    with pc.lease(ids) as hit:
        hit.load_into(cache)
    parts = torch.tensor([ids[hit.length :]]).split(cut or len(ids), dim=1)
    return hit.length, torch.cat([model(part, cache=cache) for part in parts], dim=1)


def stored_in(kind, model, ids, **options):
    """A new prefix cache with one text in it."""
    pc, cache = kind(model, max_bytes=2**26, **options), PreallocatedCache(len(ids))
    prefill(model, ids, cache)
    pc.insert(ids, cache)
    return pc


# %% id="proof"
n, whole = 24, tiny(torch.tensor([one[:24]]))
for kind, options in ((RadixPrefixCache, {}), (BlockPrefixCache, {"block_tokens": 4})):
    lengths = []
    for common in range(1, n + 1):
        pc = stored_in(kind, tiny, one[:common] + two[90:93], **options)
        for cut in (1, 4, None):
            length, logits = reused_logits(tiny, pc, one[:n], cut)
            assert (logits - whole[:, length:]).abs().max() < 1e-9
        lengths.append(length)
    print(f"{kind.__name__:16} tokens reused:", *lengths)

# %% [markdown] id="explain-proof"
# 24 common lengths, three cuts, two kinds: the same logits. How much was reused differs between the two; why, we shall see. At
# 24, where all is known, neither reuses more than 23.
#
# Now the real model.

# %% [markdown] id="real"
# ## The second question
#
# A library's assistant has a long list of instructions, the same for every visitor. One visitor asks, then another.

# %% id="guide"
subjects = """whales volcanoes bread trains moss clocks kites deserts bridges owls coral violins
snow maps bees castles comets tea ropes islands chess lamps rivers wool lightning salt ships gardens
dice caves drums foxes ice wheels honey masks tides ferns glass rockets tunnels soup windmills
otters paper storms pearls ladders silk magnets pumpkins beetles""".split()
guide = "You work in a library and help its visitors. Answer in one short sentence."
for n, subject in enumerate(subjects, 1):
    guide += f" Shelf {n} has books about {subject}, to read here or to take home."


def asked(question, system=guide):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return smollm2.tokenizer.encode_chat(messages)


first = asked("Which shelf has books about whales?")
second = asked("What is the capital of France?")
both = zip(first, second, strict=False)
common = next(i for i, (here, there) in enumerate(both) if here != there)
print(f"{len(first)} and {len(second)} tokens; the first {common} are the same")

# %% [markdown] id="ask-real"
# How many of the second visitor's tokens have to be computed, and how many were computed a moment ago for somebody else?

# %% id="guess-real"
guess = {"cached": None, "computed": None}

# %% id="real-equal"
library = stored_in(RadixPrefixCache, smollm2, first)
length, logits = reused_logits(smollm2, library, second)
whole = smollm2(torch.tensor([second]), logits_to_keep=len(second) - length)
assert (logits - whole).abs().max() < 1e-3
print(f"{length} cached, {logits.shape[1]} computed")
print(f"logits equal within 0.001 (the largest is {whole.max().item():.0f})")
assert (length, logits.shape[1]) == (common, len(second) - common)

# %% [markdown] id="explain-bits"
# Within 0.001, and not bit for bit: a pass over a dozen tokens adds up in another order than one over a thousand, as in
# lesson 06. An engine that promises "the same bits, cached or not" has to arrange for it.
#
# `generate` does all of this when it is given a `prefix_cache`, and stores the answer too.

# %% id="real-generate"
stop, answers = smollm2.tokenizer.stop_ids, []
for visitor, ids in {"the first, once more": first, "the second": second}.items():
    out = generate(smollm2, ids, max_new_tokens=11, stop_ids=stop, prefix_cache=library)
    said, usage = smollm2.tokenizer.decode(out.tokens, skip_special=True), out.usage
    answers.append(out)
    print(f"{visitor}: {usage.cached_tokens} cached + {usage.computed_tokens} computed · {said}")
assert [out.usage.computed_tokens for out in answers] == [1, len(second) - common]
assert answers[1].tokens[0] == whole[0, -1].argmax()

# %% [markdown] id="ask-time"
# Right, and counted. Now the clock: from the question to the first new token. How much does it save to compute a dozen
# tokens in place of a thousand, and what does it cost to fetch the rows? Two more lines, for scale: the dozen over rows that are
# there already, and the fetching alone. These three take turns, so that whatever else the machine does meets all of them.

# %% id="guess-time"
guess = None  # times faster

# %% id="time"
import statistics
import time

from kvcourse import timed

ready, fresh = PreallocatedCache(len(second)), RadixPrefixCache(smollm2, max_bytes=2**28)
with library.lease(second[: common + 1]) as hit:
    hit.load_into(ready)
fresh.insert(second[:common], ready)  # what the two visitors have in common, and nothing else


# %% id="time-ways"
def all_computed():
    prefill(smollm2, second, PreallocatedCache(len(second)))


def fetch():
    cache = PreallocatedCache(len(second))
    with fresh.lease(second) as hit:
        hit.load_into(cache)
    return cache


def after_a_hit():
    prefill(smollm2, second[common:], fetch())


def over_ready():
    prefill(smollm2, second[common:], ready)
    ready.truncate(common)


# %% id="times" tags=["volatile"]
anew = timed(all_computed, runs=2, warmup=0)
ways = {"with the prefix cache": after_a_hit, "rows there already": over_ready}
ways["fetching alone"] = fetch
taken = {name: [] for name in ways}  # milliseconds, turn by turn
for _ in range(10):
    for name, way in ways.items():
        start = time.perf_counter()
        way()
        taken[name].append((time.perf_counter() - start) * 1e3)
taken = {name: ms[1:] for name, ms in taken.items()}  # without the first

print(f"{'all computed':22} {anew}")
for name, ms in taken.items():
    spread = f"median of {len(ms)}, {min(ms):.1f} to {max(ms):.1f}"
    print(f"{name:22} {statistics.median(ms):.1f} ms ({spread})")

# %% [markdown] id="bytes"
# Fetching is a copy: 46 kB for every token reused (K and V, thirty layers), so that whoever goes on writing in the loaded cache
# writes in nobody else's rows. The meter counts it.

# %% id="fetched"
cache = PreallocatedCache(len(second))
with Meter() as meter, library.lease(second[: common + 1]) as hit:
    hit.load_into(cache)
cost = meter.cost
print(f"{cost.bytes_copied:,} bytes copied")
print(f"{cost.tokens} tokens through the model, {cost.macs} multiply-adds")
assert cost.bytes_copied == common * 2 * 30 * 3 * 64 * 4

# %% [markdown] id="experts-copy"
# An engine whose caches are all block tables (lesson 09) does not even copy: a hit is some numbers more in a table, and some counts
# raised by one. vLLM works like that. Everything else of this lesson stays the same.

# %% [markdown] id="blocks"
# ## Finding the longest start
#
# Our `known` compared the request with every stored text. With a million of them that takes longer than computing anew. So how do
# you find the longest known start without looking at each? One way: look it up in a dict. But under which key, if nobody knows yet
# how long it will be?

# %% [markdown] id="chain-idea"
# Cut texts into **blocks** of P tokens, and look up block after block. Here are two texts in blocks of four. They share their second
# block. Must its key be the same in both?
#
#     A B C D | E F G H
#     X B C D | E F G H

# %% id="guess-chain"
guess = None  # the same key, or two

# %% [markdown] id="chain-rule"
# Two keys: rows of E behind D behind A are of no use behind X. So a block's key must name what stands in front of it as well. It
# would be long, were it not for a **digest**: 16 bytes computed from any number of bytes, which nobody finds twice. Each key is the
# digest of *the key before it* and the block's tokens: a **hash chain**.

# %% id="chain-imports"
import hashlib
from array import array


# %% id="first-blocks"
class FirstBlocks:
    def __init__(self, P=4, root=b"root"):
        self.P, self.root, self.blocks = P, root, {}

    def keys(self, tokens):
        """One key for each whole block: it names the block and everything in front of it."""
        keys = [self.root]
        for start in range(0, len(tokens) - self.P + 1, self.P):
            block = array("q", tokens[start : start + self.P]).tobytes()  # 1, 23 is not 12, 3
            keys.append(hashlib.blake2b(keys[-1] + block, digest_size=16).digest())
        return keys[1:]

    def insert(self, tokens):
        for i, key in enumerate(self.keys(tokens)):
            self.blocks[key] = tokens[i * self.P : (i + 1) * self.P]  # a real one keeps rows here

    def match(self, tokens):
        length = 0
        for key in self.keys(tokens):
            if self.blocks.get(key) != list(tokens[length : length + self.P]):
                break
            length += self.P
        return length


# %% id="chain-toy"
toy = FirstBlocks()
for text in ([1, 2, 3, 4, 5, 6, 7, 8], [24, 2, 3, 4, 5, 6, 7, 8]):  # A is 1, X is 24
    print(text, " keys:", *(key.hex()[:6] for key in toy.keys(text)))
toy.insert([1, 2, 3, 4, 5, 6, 7, 8])
asked_for = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [24, 2, 3, 4, 5, 6, 7, 8]]
asked_for += [[1, 2, 3, 4, 5, 6, 7, 9], [5, 6, 7, 8]]
for text in asked_for:
    print(text, " known:", toy.match(text))
assert toy.keys([1, 2, 3, 4, 5, 6, 7, 8])[1] != toy.keys([24, 2, 3, 4, 5, 6, 7, 8])[1]

# %% [markdown] id="same-as-package"
# The package's `HashedBlocks` keeps the same chain, and more: who is using a block, what was used when, what goes first. We give both
# 400 random texts over three letters, so that many begin alike, and compare keys and matches. (`NoRows` stands in for the tensors:
# all this bookkeeping is done on integers.)

# %% id="package-blocks"
import random

from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.viz.prefix_story import NoRows

rng, ours, package = random.Random(10), FirstBlocks(), HashedBlocks(NoRows(), block_tokens=4)
root = package.root(b"root")
for _ in range(400):
    text = rng.choices([1, 2, 3], k=rng.randint(1, 16))
    assert ours.match(text) == package.match(root, text, None).length
    ours.insert(text)
    package.add(root, text, rows_of=lambda start, stop: 0, now=0.0)
    assert set(ours.blocks) == {entry.digest for entry in package.entries()}
print(f"400 texts: the same matches, and the same {len(ours.blocks)} keys")

# %% [markdown] id="ask-many"
# A look-up costs one digest for each block of the request. How many, if ten times as many texts are stored?

# %% id="guess-many"
guess = None  # times as many

# %% id="many"
digests = []


def counting(data):
    digests.append(data)
    return hashlib.blake2b(data, digest_size=16).digest()


for n_texts in (100, 1000, 10_000):
    index = HashedBlocks(NoRows(), 4, counting)
    for name in range(n_texts):
        text = [1, 2, 3, 4, 5, 6, 7, 8, name, name, name, name]
        index.add(index.root(b"root"), text, lambda start, stop: 0, 0.0)
    digests.clear()
    found = index.match(index.root(b"root"), [1, 2, 3, 4, 5, 6, 7, 8, 77, 77, 77, 77], None).length
    print(f"{n_texts:6,} texts stored: {found} tokens found with {len(digests)} digests")
    assert (found, len(digests)) == (12, 3)

# %% [markdown] id="change-chain"
# **Change one thing.** Take `keys[-1] +` out of `FirstBlocks.keys` and run `chain-toy` again. What is found for the text that begins
# with 24, and for `[5, 6, 7, 8]`? Which rows would they be given?

# %% [markdown] id="rest"
# A good place to stop: everything from here on can wait for another day.

# %% [markdown] id="claim"
# ## A digest is a claim
#
# There are more texts than digests, so somewhere two texts have the same one. With 16 bytes nobody will meet them by chance. With a
# poor digest, anybody does. Take one of a single byte, and believe it: how many of 200 requests get tokens that are not theirs?

# %% id="guess-believed"
guess = None  # requests of 200


# %% id="believed"
def one_byte(data):
    return hashlib.blake2b(data, digest_size=1).digest()


def first_key(text):
    return one_byte(b"root" + array("q", text[:4]).tobytes())


texts = [[rng.randrange(148) for _ in range(12)] for _ in range(400)]
stored_texts, requests = texts[:200], texts[200:]
claimed = {first_key(text): text for text in stored_texts}
fooled = [text for text in requests if first_key(text) in claimed]
true = [text for text in requests if text[:4] in [other[:4] for other in stored_texts]]
print(f"of {len(requests)} requests {len(fooled)} find a block by its digest")
print(f"it is theirs in {len(true)} cases")
assert len(fooled) > 80 and not true

# %% [markdown] id="ask-wrong"
# What would such a request get? The rows of the other text: no error, and these logits:

# %% id="wrong-rows"
request = fooled[0]
cache = PreallocatedCache(12)
believed = claimed[first_key(request)][:4]  # what a cache that believes the digest hands out
prefill(tiny, believed, cache)
right = tiny(torch.tensor([request]))[:, 4:]
off = (tiny(torch.tensor([request[4:]]), cache=cache) - right).abs().max().item()
print(f"logits off by up to {off:.1f}")
assert off > 1

# %% [markdown] id="ask-compared"
# Now `BlockPrefixCache` with the same poor digest. It keeps the tokens beside the rows and compares them: the digest finds a block,
# the tokens prove it. Below, 100 texts are stored, then they and the fooled ones ask.

# %% id="compared"
poor = BlockPrefixCache(tiny, max_bytes=2**26, block_tokens=4, digest=one_byte)
for text in stored_texts[:100]:
    cache = PreallocatedCache(12)
    prefill(tiny, text, cache)
    poor.insert(text, cache)
reused = 0
for text in stored_texts[:100] + fooled:
    length, logits = reused_logits(tiny, poor, text)
    assert (logits - tiny(torch.tensor([text]))[:, length:]).abs().max() < 1e-9
    reused += length
poor.check()
print(f"every request got its own logits; {reused} tokens reused, {100 * 8} with a good digest")

# %% [markdown] id="explain-claim"
# A poor digest costs hits (a block whose digest is taken stays out), never an answer. The other way is a digest that nobody can
# collide, and no comparison; vLLM goes that way, with SHA-256. Its first keys were Python's `hash()`, made for dicts and easy to
# collide on purpose (`hash(-1) == hash(-2)`): CVE-2025-25183, one user's text in another's answer.

# %% [markdown] id="radix"
# ## A tree, exact to the token
#
# Blocks find whole blocks. Two prompts have 37 tokens in common, and P is 16. How many are reused? And how many of a prompt of
# exactly 16 tokens, or 32, that comes twice?

# %% id="guess-granularity"
guess = {"37 in common": None, "16 twice": None, "32 twice": None}

# %% id="granularity"
base = tiny.tokenizer.encode("the key is in the garden . ana is in the kitchen . " * 4)
for what, earlier, later in (
    ("37 in common", [*base[:37], 7], [*base[:37], 8]),
    ("16 twice", base[:16], base[:16]),
    ("17 twice", base[:17], base[:17]),
    ("32 twice", base[:32], base[:32]),
):
    stores = [stored_in(kind, tiny, earlier) for kind in (BlockPrefixCache, RadixPrefixCache)]
    found = [pc.match(later).length for pc in stores]
    blocks, walked = (f"{n:2} reused, {len(later) - n:2} computed" for n in found)
    print(f"{what:12}  blocks of 16: {blocks}   tree: {walked}")
    assert found[1] == min(len(later) - 1, 37) and found[0] == found[1] // 16 * 16

# %% [markdown] id="explain-granularity"
# 32, 0, and 16. One token has to be computed anyway, so a block that holds the last token is never used whole: in an engine with
# blocks, a prompt of 16 tokens that comes a million times is computed a million times.
#
# A **radix tree** does not cut at multiples of anything. Its edges are stretches of tokens, as long as nobody parts there. When a
# text parts in the middle of a stretch, the stretch is **split**.

# %% id="split"
from kvcourse.prefix.radix import RadixTree

tree, names = RadixTree(NoRows()), "in short what is rain snow ?".split()
ids = {word: id for id, word in enumerate(names)}
pictures = {}
for text in ("in short what is rain ?", "in short what is snow ?"):
    tokens = [ids[word] for word in text.split()]
    tree.add(tree.root(b"root"), tokens, rows_of=lambda start, stop: 0, now=0.0)
    title = f"then stored, too: {text}" if pictures else f"stored: {text}"
    pictures[title] = Panel(pieces_of(tree, names.__getitem__))
plot_trees(pictures)

# %% [markdown] id="explain-split"
# Before and after: now the tree holds both texts. A column is a place in the text. The front stays one stretch with one owner; rows are split where tokens are.
# Looking up needs no digest, only a walk: at each stretch the child that begins with the next token, and then as far as the two
# agree. `_walk` is all of it:

# %% id="walk"
show_source(RadixTree._walk)

# %% [markdown] id="explorer-text"
# Step through a tree's life: match, insert, split, lease, evict (give up, to make room), and a second tenant: Ben, who shares
# nothing with Ana. What happens is the package's tree; only the tensors are missing. Before step 8 decide which stretch will
# go. Then try texts of your own.

# %% id="explorer" tags=["volatile"]
from kvcourse.viz import prefix_explorer

prefix_explorer()

# %% [markdown] id="blocks-or-tree"
# The same three texts in both:

# %% id="side-by-side"
words = "in short what is rain snow ? who was ada".split()
ids = {word: id for id, word in enumerate(words)}
both = {"blocks of 4": HashedBlocks(NoRows(), block_tokens=4), "tree": RadixTree(NoRows())}
for index in both.values():
    for text in ("in short what is rain ?", "in short what is snow ?", "in short who was ada ?"):
        tokens = [ids[word] for word in text.split()]
        index.add(index.root(b"root"), tokens, rows_of=lambda start, stop: 0, now=0.0)
titles = [f"{name}: {index.tokens} tokens held" for name, index in both.items()]
pieces = [pieces_of(index, words.__getitem__) for index in both.values()]
pictures = dict(zip(titles, pieces, strict=True))
plot_trees(pictures, columns=2)

# %% [markdown] id="explain-both"
# Blocks share less: `in short` twice, since one block holds both it and what follows, and what fills no block is not kept at all. In
# return they are all of one size: any free place will do (lesson 09), nothing is ever split, and a block is found without a walk. vLLM
# hashes blocks of 16; SGLang walks a radix tree. Both are right, and on long prompts the difference is a few tokens.

# %% [markdown] id="room"
# ## When the room is full
#
# A KV cache ends with its answer. A prefix cache keeps everything until it needs the room, and then it has to choose. The usual rule,
# **LRU**, gives up what has not been used for longest. A text of four blocks has just been used, block by block from the front. One
# has to go. Which one would plain LRU take, and how many tokens of the text can still be found then?

# %% id="guess-tail"
guess = {"plain LRU takes block": None, "tokens found afterwards": None}

# %% id="tail-first"
text = list(range(16))
for what, gone in (("the first, the one touched longest ago", 0), ("the last", 3)):
    toy = FirstBlocks()
    toy.insert(text)
    del toy.blocks[toy.keys(text)[gone]]
    print(f"without {what}: {len(toy.blocks)} blocks held, {toy.match(text)} tokens found")

# %% [markdown] id="explain-tail"
# Three blocks that nobody can reach: a match goes from the front. So the order in time is not enough, and two rules come on top.
# **Only leaves go**: what something else stands on must stay. And what stands in front is never older than what is behind it, so that
# texts are given up from their **tail**. A tree shows both at a glance; a dict of blocks has to be told.

# %% [markdown] id="ask-evict"
# A cache with room for 18 tokens of `tiny` (a token is 8 kB here). Three texts are stored, then the first is leased by a request that
# is still running, and a fourth text comes. Which stretches go?


# %% id="evict-setup"
def put(pc, text, namespace=None):
    """Compute a text and store it; how many of its tokens were new."""
    ids = pc.model.tokenizer.encode(text)
    cache = PreallocatedCache(len(ids))
    prefill(pc.model, ids, cache)
    return pc.insert(ids, cache, namespace)


pc = RadixPrefixCache(tiny, max_bytes=18 * 8192)
texts = ["the key is in the garden", "the key is in the kitchen", "ana is at the old station now"]
for text in texts:
    print(f"{put(pc, text)} tokens were new: {text}")

# %% id="guess-evict"
guess = None  # of "garden", "kitchen", "the key is in the" and "ana is at the old station now"

# %% id="evict"
from kvcourse.viz.prefix_tree import Request


def picture(text, known, stored=0, gone=()):
    request = Request(tiny.tokenizer.encode(text), known, stored)
    word = {"word": lambda token: tiny.tokenizer.decode([token])}
    return Panel(pieces_of(pc.index, request=request, gone=gone, **word), text)


asks, comes = "the key is in the garden , and the lamp ?", "ben has a new red hat and a lamp"
with pc.lease(tiny.tokenizer.encode(asks)) as hit:
    pictures = {"One request holds a lease": picture(asks, hit.length)}
    before = list(pc.index.entries())
    new = put(pc, comes)
    gone = [entry for entry in before if entry not in list(pc.index.entries())]
    pictures["A fourth text is stored meanwhile"] = picture(comes, 0, new, gone)
    pc.check()
    assert pc.stats.bytes <= pc.max_bytes
    assert pc.match(tiny.tokenizer.encode(asks)).length == hit.length == 6
plot_trees(pictures)

# %% [markdown] id="explain-evict"
# `garden` was the oldest leaf, and in use: a lease **pins** a stretch and all in front of it. So `kitchen` went, one token, and then the
# next leaf, as a whole, seven tokens where four were needed. When the lease ends, everything may go again.
#
# Without pins, rows would vanish between the moment they are found and the moment they are copied. That is a fault which shows under
# load only, and has been shipped.

# %% [markdown] id="namespaces"
# ## Whose prefix is it?
#
# Ana's assistant was told something. Ben uses the same service, and guesses. What does he need, to learn whether his guess is right?
# Not her rows, and no answer of hers: only how *long* his own request took, or how many of its tokens were called cached.

# %% [markdown] id="ask-leak"
# With a tree that is exact to the token he need not even guess the whole. `tiny` has 148 words; Ana's sentence has seven. How many
# requests does he send at most, until he has read all of it?

# %% id="guess-leak"
guess = None  # requests


# %% id="leak"
def read_by_guessing(pc, namespace=None):
    """Extend a text by whatever word makes one more token cached."""
    found, asked_for = [], 0
    while True:
        for word in range(tiny.config.vocab_size):
            asked_for += 1
            # 0 stands for a last token: that one is never cached
            if pc.match([*found, word, 0], namespace).length > len(found):
                found.append(word)
                break
        else:
            return tiny.tokenizer.decode(found), asked_for


shared = RadixPrefixCache(tiny, max_bytes=2**20)
put(shared, "remember the key is in the museum")
read, sent = read_by_guessing(shared)
print(f"read by a stranger: {read!r}, in {sent} requests")
print(f"there are {148**7:.0e} sentences of seven words")
assert read == "remember the key is in the museum" and sent <= 8 * 148

# %% [markdown] id="explain-leak"
# A **side channel**: what is told by the clock and not by the answer. You have seen how far a hit and a miss are apart.
# It was found in hosted APIs, in vLLM (CVE-2025-46570), and in SGLang's tree just so, token by token (Wu et al. 2025). Blocks make it
# harder: 16 tokens have to be right at once.
#
# What ends it is a **namespace**: it is part of the root's key, and nobody finds what stands under another root.

# %% id="tenants"
pc = RadixPrefixCache(tiny, max_bytes=2**20)
put(pc, "remember the key is in the museum", namespace="ana")
ids = tiny.tokenizer.encode("remember the key is in the museum .")
for who in ("ana", "ben", None, "", ("ana",), b"ana"):
    found, (guessed, _) = pc.match(ids, who).length, read_by_guessing(pc, who)
    print(f"namespace {who!r:8} {found} tokens found; by guessing: {guessed!r}")
    assert found == (7 if who == "ana" else 0)

# %% [markdown] id="explain-namespace"
# Typed, so that nothing runs together: `("a", "bc")` is not `("ab", "c")`, and None is not `""`. The price is the sharing: each tenant
# computes the common instructions once. Hosted APIs pay it and keep caches apart by organisation or workspace; vLLM
# calls the field `cache_salt`.
#
# In the explorer's last step Ben's text pushed out one of Ana's. Whoever shares the *room* can still tell that she was busy.

# %% [markdown] id="weights"
# ## What else is in the key
#
# K and V come from tokens and from weights. Change one of the model's weights by a thousandth, and ask for what was stored. What may be found?

# %% id="guess-weights"
guess = None  # tokens of seven

# %% id="changed"
weight = tiny.transformer.h[0].attn.c_attn.weight
old, before = weight[0, 200].item(), pc.match(ids, "ana").length
weight[0, 200] = old + 0.001
after = pc.match(ids, "ana").length
print(f"found before: {before}; after: {after}; stored now: {pc.stats.tokens} tokens")
assert (before, after, pc.stats.tokens) == (7, 0, 0)
weight[0, 200] = old

# %% [markdown] id="explain-weights"
# The model's **fingerprint** is in every key, and so are the dtype and the form of the weights. A server that loads a new
# **checkpoint** (a file of weights) or an adapter (a few weights on top of them), and keeps its prefix cache, would mix two
# models in one answer, and nothing would crash. What was computed with other weights is forgotten at the next look.

# %% [markdown] id="verify-text"
# And if a stored row is wrong all the same: a bit that flipped, a fault in the engine? Then nothing would show it, so there is a proof
# mode. `verify = 0.1` computes one hit in ten again and compares the logits. Here it looks at every hit, after somebody has changed
# a single number.

# %% id="verify"
from kvcourse.errors import BrokenInvariant

put(pc, "remember the key is in the museum")
(entry,) = pc.index.entries()
kept = pc.store.rows(entry.rows)
kept[2, 1, 0, 3, 5] += 0.5  # layer 2, V, head 0, token 3, number 5
print(f"one of {kept.numel():,} stored numbers is another one")
# strict: raise; otherwise it is counted, dropped, and computed anew
pc.verify, pc.strict = 1.0, True
try:
    reused_logits(tiny, pc, ids)
except BrokenInvariant as fault:
    print(fault.fault)
print(f"found afterwards: {pc.match(ids).length} tokens; {pc.stats.mismatches} mismatch counted")
assert pc.match(ids).length == 0

# %% [markdown] id="explain-title"
# ## Why did this request miss?
#
# The library's assistant is improved: it now knows the time. The first line of its instructions says so.

# %% id="clock"
from kvcourse.prompts.explain import explain

pc = RadixPrefixCache(smollm2, max_bytes=2**28)
clock = ("09:41:07", "09:41:52")
whales = "Which shelf has books about whales?"
at_nine, later = (asked(whales, f"It is Monday, {time}. {guide}") for time in clock)
_ = generate(smollm2, at_nine, max_new_tokens=1, prefix_cache=pc)

# %% [markdown] id="ask-clock"
# The same question 45 seconds later. About 1,000 tokens, of which a few differ. How many are reused?

# %% id="guess-clock"
guess = None  # tokens

# %% id="explained"
speed = {"prefill_tokens_per_s": 500}  # a round number; leave it out, and yours is measured
report = explain(pc, later, **speed)
print(report)
assert report.cause == "clock" and report.matched_tokens < 20

# %% [markdown] id="explain-clock"
# One digit, and everything behind it is computed again. Hosted APIs bill it so. The report names what differs and what it cost,
# in tokens, time and bytes. Of what is gone it says why: evicted, expired, another namespace, other weights. Two requests
# in files are compared by `kvcourse explain A.json B.json`.
#
# The remedy is an order: first what never changes, last what always does.

# %% id="clock-last"
at_nine, later = (asked(f"{whales} (It is Monday, {time}.)") for time in clock)
# library: the guide is in there from before
out = generate(smollm2, at_nine, max_new_tokens=1, prefix_cache=library)
report = explain(library, later, **speed)
print(report)
assert out.usage.cached_tokens >= common and len(later) - report.matched_tokens < 20

# %% [markdown] id="change-explain"
# **Change one thing.** Ask `explain` about `later` under `namespace="ben"`. Then make `pc` with room for 500 tokens, and ask about a text
# that was pushed out.

# %% [markdown] id="turns"
# And a conversation's next turn: is it a hit, all of it? It begins with everything so far. But who writes that down? Here the model said
# *whales* in two tokens, ` wh` and `ales`. The next request is built in two ways: from the ids that were there, and from the text.

# %% id="guess-turn"
guess = {"from ids": None, "from text": None}  # tokens to compute, of about 1,000

# %% id="next-turn"
encode = smollm2.tokenizer.encode
said = encode("Books about") + encode(" wh") + encode("ales")
said += encode(" are on the first shelf. It is the one next to the door.")
cache = PreallocatedCache(len(first) + len(said))
with library.lease(first + said) as hit:
    hit.load_into(cache)
prefill(smollm2, (first + said)[cache.length :], cache)
library.insert(first + said, cache)

end = "<|im_end|>\n<|im_start|>user\nAnd about bread?<|im_end|>\n<|im_start|>assistant\n"
from_ids = first + said + encode(end, special=True)
from_text = encode(smollm2.tokenizer.decode(from_ids), special=True)
for name, prompt in (("from ids", from_ids), ("from text", from_text)):
    rest = len(prompt) - library.match(prompt).length
    print(f"{name}: {rest} of {len(prompt)} tokens to compute")
print(explain(library, from_text, **speed))

# %% [markdown] id="explain-turn"
# The same text, and another token where the tokenizer prefers ` whales` in one piece: from there on, a miss. A new turn is **not
# automatically a hit**. Lesson 11 keeps ids, and shows what else comes between two turns.

# %% [markdown] id="rates"
# ## How large should it be?
#
# First: what is a hit rate? Two requests come. One has 10,000 tokens, of which 9,000 are found; the other 100, of which none is.

# %% id="guess-rate"
guess = None  # the hit rate

# %% id="two-rates"
found, asked_for = [9000, 0], [10_000, 100]
print(f"of all tokens: {sum(found) / sum(asked_for):.2f}")
print(f"mean over requests: {sum(f / n for f, n in zip(found, asked_for, strict=True)) / 2:.2f}")

# %% [markdown] id="explain-rates"
# 0.89 or 0.45. The first says how much work was saved, the second what a user meets, and both are called "hit rate". A third counts
# blocks. When you read of one, ask which.
#
# Now a log: 3,000 requests of many chats, made up, with the shape of a real service's (Mooncake's, Qin et al. 2025): 12,000 tokens a
# request, and chats that come back after two minutes. `replay` runs the bookkeeping alone, in blocks of 512.

# %% id="workload"
from kvcourse.prefix.replay import curve, replay
from kvcourse.prefix.workload import chat_workload

log = chat_workload(3000, seed=0)
unlimited = replay(log, None)
print(f"{unlimited.requests:,} requests, {unlimited.blocks:,} blocks; with room for all of them:")
print(f"of all blocks {unlimited.block_hit_rate:.3f}, of all tokens {unlimited.token_hit_rate:.3f}")
print(f"mean over requests {unlimited.request_mean_hit_rate:.3f}")

# %% [markdown] id="ask-capacity"
# That is the most that anything can find in this log: what was never there before cannot be. Room for a thousand blocks holds
# forty requests. Which block hit rate does LRU reach there? And a cache that sees the future, and gives up what will be
# needed last (Belady 1966; here `opt`)? A third rule in the plot, `turns`, prefers what belongs to chats that have gone on
# before.

# %% id="guess-capacity"
guess = {"lru": None, "opt": None}  # block hit rates at 1,000 blocks

# %% id="curves"
from kvcourse.viz.replay_plot import plot_hit_rates

capacities = [300, 1000, 3000, 10_000, 30_000]
rates = [rate for policy in ("lru", "turns", "opt") for rate in curve(log, capacities, policy)]
plot_hit_rates([*rates, unlimited], title="Made-up chat log: share of blocks found, by cache size")

# %% id="curves-table"
table = {(rate.policy, rate.capacity_blocks): rate.block_hit_rate for rate in rates}
print("blocks  ", *(f"{size:>7,}" for size in capacities))
for policy in ("lru", "turns", "opt"):
    print(f"{policy:8}", *(f"{table[policy, size]:7.3f}" for size in capacities))
for size in capacities:
    assert table["opt", size] >= max(table["lru", size], table["turns", size])
assert table["turns", 1000] > 1.2 * table["lru", 1000]

# %% [markdown] id="explain-curves"
# LRU's curve has a cliff. Below it, a chat's blocks are gone before it comes back; above it, they are there. Where it lies can be worked
# out without any replay: how many blocks are written while one chat pauses?

# %% id="little"
from kvcourse.memory import price
from kvcourse.model_shapes import find_shape

seconds = (log[-1].timestamp - log[0].timestamp) / 1000
new_blocks = unlimited.blocks * (1 - unlimited.block_hit_rate) / seconds
in_a_pause = 120 * new_blocks  # of two minutes
print(f"{new_blocks:.0f} new blocks a second; in a pause of two minutes: {in_a_pause:,.0f} blocks")
block_bytes = price(find_shape("llama-3.1-8b"), 512).kv_bytes
each, together = block_bytes / 2**20, in_a_pause * block_bytes / 2**30
print(f"with Llama 3.1 8B, float16: {each:.0f} MiB each, {together:.0f} GiB together")
assert 3000 < in_a_pause < 10_000

# %% [markdown] id="explain-little"
# Two minutes are the median: half of the chats that return come sooner. Reuse after a pause needs room for everything that comes in
# between, and until there is that much, more room does little. Few graphics cards have it, and the model's weights want their share, which is
# why engines keep prefix caches in main memory too, and on disk.

# %% [markdown] id="explain-policies"
# `opt` is far above, since it gives up at once what nobody will ask for again. `turns` guesses at that without seeing the
# future: who has come back is likelier to come back, and a chat's front is worth more than its tail.

# %% [markdown] id="trace-text"
# Your own log, or Mooncake's public one: the same on the command line is `kvcourse replay TRACE.jsonl --policy lru --capacity 10000`.

# %% id="trace" tags=["volatile"]
import os

from kvcourse.prefix.replay import read_trace

trace = os.environ.get("KVCOURSE_TRACE")  # or write the path of a .jsonl file here
if trace:
    requests = read_trace(trace)
    for policy in ("lru", "turns", "opt"):
        found = curve(requests, [1000, 10_000, 50_000], policy)
        rates = (f"{rate.block_hit_rate:7.3f} at {rate.capacity_blocks:,}" for rate in found)
        print(f"{policy:8}", *rates)
else:
    print("No trace here. Name one in KVCOURSE_TRACE, or in this cell.")

# %% [markdown] id="change-policy"
# **Change one thing.** Add `"lfu"` (what was used least often goes) and `"slru"` (what was used only once goes first) to the
# policies of the plot. On a log of chats, why does it help so little to count how often something was used?

# %% [markdown] id="closing"
# ## What to keep
#
# A row of K and V is right behind the text, and under the weights, that it was computed with: so requests share equal beginnings, and
# nothing else. A prefix cache finds the longest one (by a chain of digests, or by a walk through a tree), keeps it while it is in use,
# and gives up tails first. It saves prefill and never changes an answer; it can tell strangers about each other, unless its keys say
# whose text it is.

# %% id="measured" tags=["volatile"]
alone = anew.median_s * 1e3
hit, ready_rows, fetching = (statistics.median(ms) for ms in taken.values())
pairs = zip(taken["with the prefix cache"], taken["rows there already"], strict=True)
ratios = [one / other for one, other in pairs]  # turn by turn
print(f"SmolLM2 on this machine, {len(second)} prompt tokens, {common} of them known\n")
print(f"{'':24} {'computed':>9} {'copied':>9} {'first token after':>18}")
print(f"{'without':24} {len(second):9} {0:6.1f} MB {alone:15.0f} ms")
copied = cost.bytes_copied / 1e6
print(f"{'with the prefix cache':24} {len(second) - common:9} {copied:6.1f} MB {hit:15.0f} ms")
print(f"{'rows there already':24} {len(second) - common:9} {0:6.1f} MB {ready_rows:15.0f} ms")
print(f"{'fetching alone':24} {0:9} {copied:6.1f} MB {fetching:15.0f} ms")
print(f"\n{alone / hit:.0f} times sooner; over what the new tokens alone take:")
spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
print(f"{statistics.median(ratios):.2f} times, turn by turn (median of {len(ratios)}, {spread})")

# %% [markdown] id="next"
# **Your turn:** exercise 10, `10_prefix_cache.ipynb` in your `work/` folder: the longest match, the hash chain, and eviction
# that respects leases.
#
# A prefix cache forgets when it must, and ends with its process. A conversation is to be there tomorrow. **Next:** what
# survives between turns? Lesson 11 gives a conversation a state of its own, that can be saved, resumed, rewound and branched.
