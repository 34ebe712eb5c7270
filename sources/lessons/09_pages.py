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
# # 09 · How do many sequences share memory?
#
# **You need** to know what a KV cache keeps, and that one of a fixed size copies nothing (lessons 06 and 07). About 40
# minutes, half of it yours.
#
# **At the end** you can give many sequences one memory in blocks, let them share what they have in common, and say to the
# byte what that saves and what it costs.

# %% id="imports"
import torch

from kvcourse import BlockPool, Meter, PagedCache, PagedPool, generate, load_model
from kvcourse.viz.block_plots import Slot, plot_block_sizes, plot_memory, slots_of

tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: rounding cannot hide a fault
smollm2 = load_model("smollm2")  # the real one

# %% [markdown] id="ask"
# ## How long will the answer be?
#
# Nobody knows before it ends. The preallocated cache of lesson 07 wants to know: it takes its memory once, so it takes the
# maximum. Here are six requests, a maximum of 16 tokens each, and memory for 48. Suppose we could see the future:

# %% id="wanted"
wanted = {"A": 5, "B": 16, "C": 3, "D": 7, "E": 6, "F": 2}  # tokens, once they have ended
n_slots, longest = 48, 16
print(f"{sum(wanted.values())} tokens wanted, {n_slots} slots there")

# %% [markdown] id="ask-running"
# All would fit together. How many of the six can run at the same time, if each is given a buffer of 16? And how many of the
# slots will be written to?

# %% id="guess-running"
guess = {"running": None, "slots written": None}

# %% id="buffers"
running = list(wanted)[: n_slots // longest]
buffers = [
    Slot(name, "held" if slot < wanted[name] else "empty")
    for name in running
    for slot in range(longest)
]
written = sum(wanted[name] for name in running)
print(f"running: {running}, waiting: {list(wanted)[len(running) :]}")
print(f"written: {written} of {n_slots} slots; reserved and never used: {n_slots - written}")
assert (len(running), written) == (3, 24)

# %% [markdown] id="explain-buffers"
# Half of the memory is promised to tokens that never come, while three requests wait. Waste inside of what somebody has
# reserved is called **internal fragmentation**.
#
# Buffers of different sizes, made to measure, would not help: when a short one is given back, it leaves a hole that no long
# one fits into. That is **external fragmentation**.

# %% [markdown] id="blocks-idea"
# So: cut the memory into **blocks** of one small size, here P = 4 slots. A request takes a block when its last one is full,
# whichever is free. What it has to remember is which blocks are its own, in order: its **block table**. All six start now, and
# each writes one token a step.

# %% id="blocks"
P = 4
free = list(range(n_slots // P))
tables = {name: [] for name in wanted}
for step in range(longest):
    for name, table in tables.items():
        if step < wanted[name] and step % P == 0:  # one more token, and its blocks are full
            table.append(free.pop(0))
print(tables)
print("free at the end:", free)

# %% [markdown] id="blocks-guess"
# All six ran. Where is B's memory? Before you look at the picture: how many slots can one request waste at most?

# %% id="guess-waste"
guess = None  # slots

# %% id="picture"
blocks = slots_of(tables, wanted, n_blocks=n_slots // P, block_tokens=P)
plot_memory({"Buffers of 16: three run": (buffers, longest), "Blocks of 4: six run": (blocks, P)})

# %% [markdown] id="explain-picture"
# Green is held, dotted is reserved and empty. Each letter says whose the slot is. B's four blocks
# lie wherever one was free.

# %% id="waste"
wasted = {name: len(table) * P - wanted[name] for name, table in tables.items()}
print("wasted slots:", wasted, "· together", sum(wasted.values()))
assert max(wasted.values()) < P
assert sum(wasted.values()) == n_slots - sum(wanted.values()) == 9

# %% [markdown] id="explain-waste"
# Only the last block of a request is not full: less than one block is wasted, however long the request. And there are no
# holes: any free block is as good as any other.
#
# Your computer does the same for its programs: pages of memory, and a page table for each. Kwon et al. (2023) brought it to
# the KV cache, in vLLM, and called it PagedAttention.

# %% [markdown] id="change-leave"
# **Change one thing.** D and F have ended, and G comes, with 9 tokens. No three blocks side by side are free. Does it matter?

# %% id="leave"
free += sorted(tables.pop("D") + tables.pop("F"))
tables["G"] = [free.pop(0) for _ in range(3)]  # room for 12
print("G:", tables["G"])
now = {**wanted, "G": 9}
plot_memory({"D and F gave back, G took": (slots_of(tables, now, n_blocks=12, block_tokens=P), P)})

# %% [markdown] id="lookup"
# ## Where is slot 9?
#
# Slot 9 is a request's tenth token, wherever that lies. With blocks of 4 it is in the third block of the request, at its
# second place. G's third block is the one that the table names last. So, in the memory of 48: which place?

# %% id="guess-place"
guess = None  # a place from 0 to 47


# %% id="find"
def find(table, slot):
    """(block, offset): which block a slot is in, and at which place of it."""
    return table[slot // P], slot % P


block, offset = find(tables["G"], 9)
print(f"block {block}, offset {offset}: place {block * P + offset}")

# %% [markdown] id="toy-text"
# A division and a look into a list. Write two sentences into a memory of 24 places, one word each in turn, and see what the
# memory holds.

# %% id="toy-write"
sentences = {
    "one": "ana is in the garden with the key".split(),
    "two": "ben and his dog are at the market".split(),
}
memory, free = ["."] * 24, list(range(6))
books = {name: [] for name in sentences}
for slot in range(8):
    for name, words in sentences.items():
        if slot % P == 0:
            books[name].append(free.pop(0))
        block, offset = find(books[name], slot)
        memory[block * P + offset] = words[slot]

# %% id="toy-read"
for block in range(6):
    words = memory[block * P : (block + 1) * P]
    print(f"block {block}:  " + " ".join(f"{word:7}" for word in words))
for name, table in books.items():
    places = [table[slot // P] * P + slot % P for slot in range(8)]
    print(f"{name}: table {table} ->", " ".join(memory[place] for place in places))
    assert [memory[place] for place in places] == sentences[name]

# %% [markdown] id="pool"
# ## Who owns a block?
#
# So far each block stood in one table. Soon several tables will name the same block, and then "free it" cannot be left to one
# of them. The remedy is old: **count**. A block's count says in how many tables it stands. Whoever takes or shares it adds
# one, whoever is done with it subtracts one, and at 0 it is free.


# %% id="first-pool"
class FirstPool:
    def __init__(self, n_blocks):
        self.counts = [0] * n_blocks

    def allocate(self, n):
        free = [block for block, count in enumerate(self.counts) if count == 0]
        if len(free) < n:
            raise MemoryError(f"{n - len(free)} blocks are missing")  # before anything has changed
        for block in free[:n]:
            self.counts[block] = 1
        return free[:n]

    def share(self, blocks):
        for block in blocks:
            self.counts[block] += 1

    def release(self, blocks):
        assert all(self.counts[block] > 0 for block in blocks), "a block that is free already"
        for block in blocks:
            self.counts[block] -= 1


# %% [markdown] id="pool-steps"
# Plain ints, no tensor anywhere. Step by step: what will the counts be after each line? The second table shares both blocks
# of the first.

# %% id="guess-counts"
guess = [[1, 1, 0, 0], None, None, None, None]

# %% id="steps"
pool = FirstPool(4)


def show(what):
    free = [block for block, count in enumerate(pool.counts) if count == 0]
    print(f"{what:32} counts {pool.counts}   free {free}")


x = pool.allocate(2)
show(f"x takes two: {x}")
y = list(x)
pool.share(y)
show(f"y shares them: {y}")
y += pool.allocate(1)
show(f"y takes one more: {y}")
pool.release(x)
show("x is done")
pool.release(y)
show("y is done")

# %% [markdown] id="explain-steps"
# When x was done, nothing became free: y still read both. No table had to know of any other.
#
# The package's `BlockPool` keeps the same books, and more (it refuses bad input with a sentence, prefers neighbours, and can
# check itself). We let both do the same 1,000 random things.

# %% id="same-pool"
import random

rng, pool, package, held = random.Random(9), FirstPool(8), BlockPool(8), []
for _ in range(1000):
    if held and rng.random() < 0.5:
        block = held.pop(rng.randrange(len(held)))
        pool.release([block]), package.release([block])
    elif held and rng.random() < 0.5:
        held.append(rng.choice(held))
        pool.share(held[-1:]), package.share(held[-1:])
    elif 0 in pool.counts:
        held += pool.allocate(1)
        assert package.allocate(1) == held[-1:]
    assert pool.counts == [package.count(block) for block in range(8)]
package.check([[block] for block in held])
print("after each of 1,000 steps: the same counts")

# %% [markdown] id="real-pool"
# ## A cache on top
#
# `PagedPool(model, n_blocks, block_tokens)` is the memory: for each layer, K and V of all blocks. `PagedCache(pool)` is one
# sequence in it, with its table. The model sees what it always saw: `plan`, `append`, `advance`. Only the place of the rows
# has changed.

# %% id="interleaved"
pool = PagedPool(tiny, n_blocks=16, block_tokens=4)
told = [
    "ana is in the garden . the key is in the kitchen . where is ana ?",
    "the key is in the garden . ana is in the kitchen . where is the key ?",
]
texts = [tiny.tokenizer.encode(text)[:12] for text in told]

# %% id="in-turns"
caches = [PagedCache(pool), PagedCache(pool)]
for slot in range(12):
    for cache, ids in zip(caches, texts, strict=True):
        tiny(torch.tensor([ids[slot : slot + 1]]), cache=cache)
print("tables:", [cache.tables[0] for cache in caches])

# %% [markdown] id="proof-text"
# Two texts, a token each in turn, so every second block is the other's. Equality comes first, as always: all logits, every
# position, against the model without a cache, for every cut. To make it hard, in a pool where somebody else holds every second
# block: then not even a text that arrives in one call gets neighbours.


# %% id="largest-difference"
def largest_difference(model, texts, cuts, pool):
    """Feed texts in turns, in calls of the given sizes, from one pool. How far all logits are from
    those without a cache, and the tables."""
    caches = [PagedCache(pool) for _ in texts]
    parts = [torch.tensor([ids]).split(cuts, dim=1) for ids in texts]
    logits = [[] for _ in texts]
    with torch.no_grad():
        for turn in zip(*parts, strict=True):
            for cache, part, got in zip(caches, turn, logits, strict=True):
                got.append(model(part, cache=cache))
        whole = [model(torch.tensor([ids])) for ids in texts]
    pairs = zip(logits, whole, strict=True)
    largest = max((torch.cat(got, dim=1) - right).abs().max().item() for got, right in pairs)
    return largest, [cache.tables[0] for cache in caches]


# %% id="used-pool"
def used_pool(model, n_blocks, block_tokens):
    """A pool in which somebody else holds every second block."""
    pool = PagedPool(model, n_blocks, block_tokens)
    blocks = pool.blocks.allocate(n_blocks)
    pool.blocks.release(blocks[1::2])
    return pool


# %% id="proof-tiny"
ways = {"one call": [12], "ones": [1] * 12, "fours": [4] * 3, "uneven": [5, 1, 3, 3]}
for name, cuts in ways.items():
    difference, tables = largest_difference(tiny, texts, cuts, used_pool(tiny, 16, 4))
    print(f"{name:9} tables {tables}")
    assert difference < 1e-9
print("the same logits, at every position, for every cut")

# %% [markdown] id="proof-real-text"
# And the real model, with its rotated keys and thirty layers, in 32 bits: within a thousandth of a logit.

# %% id="proof-real"
facts = (
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Water boils at one hundred degrees, and it freezes at zero degrees.",
)
real = [smollm2.tokenizer.encode(text)[:12] for text in facts]
for name in ("one call", "ones", "fours"):
    difference, _ = largest_difference(smollm2, real, ways[name], used_pool(smollm2, 16, 4))
    assert difference < 1e-3
    print(f"SmolLM2, {name}: equal within 0.001")

# %% [markdown] id="break-table"
# **Change one thing.** Exchange what two blocks hold, behind the back of the tables, and ask for the next token of the first text:
# once two blocks of its own, then one of its own with one of the other text. Nothing will crash. Which of the two shows in the
# logits?

# %% id="guess-exchange"
guess = {"two of its own": None, "one of the other text": None}  # True: the logits change

# %% id="exchanged"
pool, own, other = caches[0].pool, *(cache.tables[0] for cache in caches)
right = tiny(torch.tensor([[*texts[0], 5]]))[:, -1]
differences = {}
for what, pair in {"two of its own": own[:2], "one of the other text": [own[0], other[0]]}.items():
    for rows in (*pool.keys, *pool.values):
        rows[pair] = rows[pair[::-1]]
    logits = tiny(torch.tensor([[5]]), cache=caches[0])[:, -1]
    caches[0].truncate(12)
    differences[what] = (logits - right).abs().max().item()
    print(f"{what:22} largest difference {differences[what]:.2f}")
assert differences["two of its own"] < 1e-9 < 0.1 < differences["one of the other text"]

# %% [markdown] id="explain-exchange"
# The first is no fault at all. A key carries its position inside, and attention adds up over all past rows: in which order they
# lie is nothing to it. Only *which* rows they are counts. The table keeps them in order all the same: a mask inside one call, a
# truncate and the next free slot all go by it.
#
# The second is somebody else's text in your answer.

# %% [markdown] id="bytes"
# ## The bytes, on real answers
#
# Four questions for SmolLM2. A serving engine would allow each conversation, say, 256 tokens. How many will they have?

# %% id="guess-bytes"
guess = None  # share of the reserved memory that buffers of 256 would use

# %% id="answers"
questions = [
    "What is the capital of France?",
    "What is 2 plus 3?",
    "Write a sentence about snow.",
    "What is the opposite of cold?",
]
chats = [[{"role": "user", "content": question}] for question in questions]
prompts = [smollm2.tokenizer.encode_chat(chat) for chat in chats]
pool = PagedPool(smollm2, n_blocks=64)  # blocks of 16 tokens
chats, stop = [PagedCache(pool) for _ in prompts], smollm2.tokenizer.stop_ids

# %% id="lengths"
for question, prompt, cache in zip(questions, prompts, chats, strict=True):
    out = generate(smollm2, prompt, max_new_tokens=60, cache=cache, stop_ids=stop)
    answer = smollm2.tokenizer.decode(out.tokens[:-1])
    shown = answer if len(answer) < 55 else answer[:52] + "..."
    print(f"{cache.length:3} tokens · {question} · {shown}")

# %% [markdown] id="buffer-text"
# One of them once more with a buffer of 256, for the answer and for the bytes: counted, not computed.

# %% id="one-buffer"
from kvcourse import PreallocatedCache

buffer = PreallocatedCache(256)
same = generate(smollm2, prompts[-1], max_new_tokens=60, cache=buffer, stop_ids=stop)
assert same.tokens == out.tokens
token_bytes = pool.block_bytes // pool.block_tokens
assert token_bytes == 2 * 30 * 3 * 64 * 4  # K and V, layers, heads, numbers in each, bytes of each
assert buffer.nbytes == 256 * token_bytes
print(f"a token: {token_bytes:,} bytes")
print(f"a block of 16: {pool.block_bytes:,} · a buffer of 256: {buffer.nbytes:,}")

# %% id="bytes-table"
used = sum(cache.length for cache in chats) * token_bytes
reserved = {"buffers": 4 * buffer.nbytes, "blocks": pool.used_bytes}
print(f"{'':8} {'reserved':>12} {'used':>12} {'wasted':>12}   bytes")
for name, total in reserved.items():
    wasted = total - used
    print(f"{name:8} {total:12,} {used:12,} {wasted:12,}   {wasted / total:.0%} wasted")
assert pool.blocks.n_used == sum(-(-cache.length // 16) for cache in chats) == 14 == 64 * 4 // 18
for cache in chats:
    assert cache.nbytes - cache.length * token_bytes < pool.block_bytes  # below one block each

# %% [markdown] id="explain-bytes"
# The memory of four buffers is that of 64 blocks. These four conversations needed 14; eighteen like them would fit. Nothing about
# a single one became smaller: the same rows, the same bytes a token. What went away is the promise.

# %% [markdown] id="full"
# But now the memory can run out in the middle of an answer. A pool of 3 blocks of 4, and a text of 9 tokens in it; six more
# come. How many blocks are missing, and what is left of the nine?

# %% id="guess-full"
guess = None  # blocks missing

# %% id="exhausted"
from kvcourse.errors import CacheFull

small = PagedPool(tiny, n_blocks=3, block_tokens=4)
cache = PagedCache(small)
tiny(torch.tensor([texts[0][:9]]), cache=cache)
before = cache.length, list(cache.tables[0]), small.blocks.n_free
try:
    tiny(torch.tensor([texts[1][:6]]), cache=cache)
except CacheFull as fault:
    print(fault)
assert (cache.length, cache.tables[0], small.blocks.n_free) == before

# %% id="still-good"
last = tiny(torch.tensor([texts[0][9:12]]), cache=cache)  # three more still fit
assert (last - tiny(torch.tensor([texts[0]]))[:, 9:]).abs().max() < 1e-9
print("refused with nothing changed: the text goes on where it was")

# %% [markdown] id="explain-full"
# 15 tokens need four blocks, so one is missing. It is asked for before the first row is written. What an engine does then is
# its own policy: let the newcomer wait, or take the blocks of the youngest request and compute that one again later.

# %% [markdown] id="fork"
# ## One prompt, several answers
#
# Show three drafts of a reply, and the prompt is the same for all. Its rows are the same too: no later token changes them. A
# **fork** of a paged cache copies the table, adds one to each count, and touches no row. Here with ten tokens in blocks of four:

# %% id="forks"
pool = PagedPool(tiny, n_blocks=6, block_tokens=4)
prompt = texts[0][:10]
first = PagedCache(pool)
tiny(torch.tensor([prompt]), cache=first)
before = pool.used_bytes

# %% id="branches"
branches = {"a": first, "b": first.fork(), "c": first.fork()}
assert pool.used_bytes == before == 3 * pool.block_bytes
print("tables", {name: cache.tables[0] for name, cache in branches.items()})
print("counts", [pool.blocks.count(b) for b in range(6)])

# %% [markdown] id="ask-write"
# Now each writes a token of its own into slot 10, and slot 10 is in block 2, which all three share. If they all wrote there,
# the last one would win, and the others would read a token that they never said. So whoever writes into a shared block first
# makes a copy of it: **copy-on-write**. How many blocks will be copied, and which?

# %% id="guess-copies"
guess = {"blocks copied": None, "blocks in use afterwards": None}


# %% id="draw-branches"
def drawn(title):
    tables = {name: cache.tables[0] for name, cache in branches.items()}
    lengths = {name: cache.length for name, cache in branches.items()}
    return {title: (slots_of(tables, lengths, n_blocks=6, block_tokens=4), 4)}


pictures = drawn("Three branches, before they write")

# %% id="write"
row_bytes, said = pool.block_bytes // 4, {"c": 7, "b": 8, "a": 9}
for name, token in said.items():
    table = list(branches[name].tables[0])
    with Meter() as meter:
        tiny(torch.tensor([[token]]), cache=branches[name])
    after = branches[name].tables[0]
    gathered = 0 if after == [0, 1, 2] else 3 * pool.block_bytes  # below: what that is
    copied = meter.cost.bytes_copied - gathered
    moved = f"{copied / row_bytes:g} rows copied, {copied:,} bytes"
    print(f"{name} writes: {table} -> {after}   {moved}")
    assert copied == (2 * row_bytes if name in "cb" else 0)

# %% id="fork-picture"
plot_memory(pictures | drawn("After each wrote one token"), row_slots=24)

# %% [markdown] id="explain-fork"
# Hatched is shared, ×3 by three. c and b copied the two rows of the one block that was not full. When a wrote, nobody else
# stood in block 2 any more: its count was 1, and it wrote in place. Blocks 0 and 1 are full. Nobody will ever write there, so
# nobody will ever copy them.

# %% id="fork-proof"
for name, token in said.items():
    more = tiny(torch.tensor([[11]]), cache=branches[name])
    whole = tiny(torch.tensor([[*prompt, token, 11]]))
    assert (more - whole[:, -1:]).abs().max() < 1e-9, name
pool.blocks.check([cache.tables[0] for cache in branches.values()])
print("each branch has read its own tokens only")
print(pool.blocks.n_used, "blocks in use, where three copies would use 9")
assert pool.blocks.n_used == 2 + 3

# %% [markdown] id="samples"
# ### On the real model
#
# Four sampled continuations of one story. The prompt, but for its last token, goes through the model once; each branch then has a
# seed of its own.

# %% id="sampled"
story = (
    "It had rained all week. Now it was the first day of the holidays, the sun was shining, "
    "the lake was quiet, and Ana had packed bread and cheese. "
    "She took her little boat, rowed out to the island, and there she saw"
)
ids = smollm2.tokenizer.encode(story)
pool = PagedPool(smollm2, n_blocks=64)
prompt_cache = PagedCache(pool)

# %% id="continued"
from kvcourse import Sampler

with Meter() as meter, torch.no_grad():
    smollm2(torch.tensor([ids[:-1]]), cache=prompt_cache)
    forks = [prompt_cache.fork() for _ in range(4)]
    prompt_bytes = pool.used_bytes
    outs = []
    for seed, fork in enumerate(forks):
        # top_p: only the likeliest tokens that make up 90%
        sampler = Sampler(temperature=0.8, top_p=0.9, seed=seed)
        outs.append(generate(smollm2, ids[-1:], max_new_tokens=12, cache=fork, sampler=sampler))
        print(seed, repr(smollm2.tokenizer.decode(outs[-1].tokens)))

# %% id="sampled-same"
samplers = [Sampler(temperature=0.8, top_p=0.9, seed=seed) for seed in range(4)]
alone = [generate(smollm2, ids, max_new_tokens=12, sampler=sampler) for sampler in samplers]
assert [out.tokens for out in outs] == [out.tokens for out in alone]
forked_tokens, alone_tokens = meter.cost.tokens, sum(out.cost.tokens for out in alone)
print("the same four continuations")
print(f"tokens through the model: {forked_tokens} and, each alone, {alone_tokens}")
assert forked_tokens == len(ids) - 1 + 4 * 12 and alone_tokens == 4 * (len(ids) + 11)

# %% id="sampled-bytes"
full = (len(ids) - 1) // 16  # blocks of the prompt that are full
each = -(-forks[0].length // 16)  # blocks that one branch needs
shared_by_all = [pool.blocks.count(block) for block in prompt_cache.tables[0]]
forked_bytes, alone_bytes = pool.used_bytes, 4 * each * pool.block_bytes
print(f"counts of the prompt's blocks: {shared_by_all}")
print(f"prompt {prompt_bytes:,} bytes; with four continuations {forked_bytes:,}")
print(f"four caches of their own {alone_bytes:,}")
assert shared_by_all == [5] * full + [1]  # prompt and four forks; the last: the prompt's alone
assert forked_bytes == prompt_bytes + 4 * (each - full) * pool.block_bytes

# %% [markdown] id="explain-sampled"
# Full blocks stand in five tables, and once in memory. Four branches cost one short tail each. Beam search (go on with the
# few likeliest texts at once) lives from this: it forks and drops branches at every step, and a drop is a subtraction.

# %% [markdown] id="gather"
# ## What it costs
#
# Attention here wants the rows side by side, `(B, H_kv, S, D)`. If a table's blocks happen to follow each other in memory, they are:
# a view will do. If not, the rows have to be fetched, block by block, into one tensor: a **gather**, for each layer, at each step.
# Count what it moves, for a text of 100 tokens.

# %% id="guess-gather"
guess = None  # bytes copied for one new token, where the blocks are scattered

# %% id="gathered"
hundred = smollm2.tokenizer.encode("A model reads. " * 40)[:100]
pools = {"neighbours": PagedPool(smollm2, 16), "scattered": used_pool(smollm2, 16, 16)}
steps, held = {}, {}
for name, pool in pools.items():
    cache = held[name] = PagedCache(pool)
    smollm2(torch.tensor([hundred]), cache=cache)
    with Meter() as steps[name]:
        smollm2(torch.tensor([hundred[:1]]), cache=cache)
    copied = steps[name].cost.bytes_copied
    print(f"{name:10} table {cache.tables[0]}: {copied:,} bytes copied for one token")
assert steps["neighbours"].cost.bytes_copied == 0
# All seven blocks, in all layers
assert steps["scattered"].cost.bytes_copied == 7 * pools["scattered"].block_bytes

# %% [markdown] id="explain-gather"
# Every row, for every token: what `GrowingCache` did, back again. Rows are read, written side by side, and read once more by
# attention: three times the traffic. After 100 tokens that is nothing beside the weights, which each step reads too; it grows with
# the text, and they do not. The package's pool hands out neighbours while it can, to keep the view.

# %% [markdown] id="kernel"
# Engines pay nothing of the kind. Their attention is a program of its own for the GPU, a **kernel**, that is given the table and
# reads each block where it lies; the sums do not care where a row came from. This is the *Attention* in PagedAttention. The
# attention call that we use has none (PyTorch's FlexAttention can be given a table, once it is compiled): here the saving in bytes
# is real, and the speed is not the engines'.

# %% [markdown] id="size"
# ## How large should a block be?
#
# Small blocks waste little, and make long tables, which somebody has to keep, read and grow. Two hundred requests with a mean of
# about 90 tokens and a maximum of 256. At which size would you stop?

# %% id="guess-size"
guess = None  # 1, 4, 16, 64 or 256

# %% id="sizes"
rng = random.Random(9)
lengths = [min(256, 10 + int(rng.expovariate(1 / 80))) for _ in range(200)]
sizes, wasted, entries = [1, 4, 16, 64, 256], [], []
for size in sizes:
    blocks = sum(-(-length // size) for length in lengths)
    entries.append(blocks)
    wasted.append(blocks * size - sum(lengths))
    share = wasted[-1] / (blocks * size)
    waste = f"{wasted[-1]:6,} slots wasted, {share:4.0%} of the reserved"
    print(f"P = {size:3}: {blocks:6,} table entries, {waste}")

# %% id="sizes-picture"
plot_block_sizes(sizes, wasted, entries)

# %% [markdown] id="explain-size"
# About half a block a request is wasted, (P - 1) / 2 on average, while tables shrink as 1 / P. P = 256 is one buffer of the maximum each;
# P = 1 wastes nothing and keeps a number for every token. Sixteen, vLLM's default, is where both curves are low. What sharing can
# save is a reason for small blocks, too: only full ones are shared for good.

# %% id="sizes-check"
assert wasted == sorted(wasted) and entries == sorted(entries, reverse=True)
assert wasted[0] == 0 and entries[0] == sum(lengths) and entries[-1] == len(lengths)
assert all(waste <= (size - 1) * len(lengths) for size, waste in zip(sizes, wasted, strict=True))

# %% [markdown] id="change-size"
# **Change one thing.** Make all requests long: `250` in place of `10`. Does the best size move?

# %% [markdown] id="closing"
# ## What to keep
#
# In blocks, taken when they are needed, a sequence wastes less than one block, and any free block will do. Counts let tables
# share blocks: a fork copies no row, and the first write into a shared block copies that block. The price is a table to look
# into, and, without a kernel that reads through it, a gather.

# %% id="measured"
row = "{:27} {:>10} {:12,}   {:>10} {:12,}  bytes".format
print(row("four answers, reserved", "buffers", reserved["buffers"], "blocks", reserved["blocks"]))
print(row("four drafts of one prompt", "alone", alone_bytes, "forked", forked_bytes))
copies = [steps[name].cost.bytes_copied for name in held]
print(row("a token after 100: copied", "scattered", copies[1], "neighbours", copies[0]))

# %% [markdown] id="measured-text"
# And the time of that gather? After 100 tokens it is smaller than what one step differs from the next. So after 2,000, the two
# caches in turn:

# %% id="measured-steps" tags=["volatile"]
import statistics
import time

from kvcourse import prefill
from kvcourse.meter import device_name

long = smollm2.tokenizer.encode("A model reads. " * 700)[:2001]
pools = {"neighbours": PagedPool(smollm2, 126), "scattered": used_pool(smollm2, 252, 16)}
caches = {name: PagedCache(pool) for name, pool in pools.items()}
seconds = {name: [] for name in caches}
for cache in caches.values():
    prefill(smollm2, long[:-1], cache)
for _ in range(9):
    for name, cache in caches.items():
        start = time.perf_counter()
        prefill(smollm2, long[-1:], cache)
        seconds[name].append((time.perf_counter() - start) * 1e3)
        cache.truncate(2000)
for name, (_, *ms) in seconds.items():  # without the first
    print(f"{name:10} {statistics.median(ms):6.1f} ms a token ({min(ms):.1f} to {max(ms):.1f})")
print(f"after 2,000 tokens; median of 8, fastest and slowest; {device_name()}")

# %% [markdown] id="next"
# **Your turn:** exercise 09, `09_pages.ipynb` in your `work/` folder: the counts, the table, and the copy before the write.
#
# Here, sequences shared because one was forked from another. Two strangers who send the same long instructions do not know of
# each other, and each computes them anew. **Next:** how is work reused *between* requests? Lesson 10 finds what begins alike: a
# prefix cache.
