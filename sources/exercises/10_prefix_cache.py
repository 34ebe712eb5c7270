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
# # Exercise 10 · Reuse work between requests
#
# **You will write** the four decisions of a prefix cache: how much of a text can be taken over, under which name a block is found,
# whether what was found may be believed, and what goes when room is needed. About 30 lines, and no tensor in them.
#
# **You need** Python and lesson 10, or lesson 06 and the next cells. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** K and V of a token depend on that token and on all tokens in front of it, and on nothing behind it. So
# two texts that begin alike have the same K and V as far as they are alike, whoever wrote them.

# %% [markdown] id="recap-cache"
# A **prefix cache** keeps the K and V of texts that were computed, and looks them up when another text comes. What is known of it
# is loaded; the model computes the rest. A text is a list of token ids here.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("10.1")` gives a hint, and each further call a plainer one. `reset("10.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
import hashlib

import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-match"
# ## 10.1 · The longest match
#
# `texts` is a list of texts whose K and V are stored. How many tokens of the new text `tokens`, from its first on, can be taken over
# from one of them?
#
# Never all of them. What comes next is read off the logits of the last token, and those nobody has stored: at least one token is
# left to compute.

# %% [markdown] id="guess-match-text"
# On paper first. Stored is `[5, 3, 8, 1]`.

# %% id="guess-match"
guess = {"[5, 3, 8, 9, 9]": None, "[5, 3, 8, 1]": None, "[4, 3, 8, 1, 9]": None}


# %% id="answer-match" exercise="10.1"
def my_match(texts, tokens):
    """How many tokens, from the first on, need not be computed:
    those that one of the texts begins with, but never all."""
    ### BEGIN SOLUTION
    best = 0
    for text in texts:
        n = 0
        while n < min(len(text), len(tokens)) and text[n] == tokens[n]:
            n += 1
        best = max(best, n)
    return min(best, len(tokens) - 1)
    ### END SOLUTION


# %% id="check-match" tags=["check"] exercise="10.1"
check("10.1", my_match)

# %% [markdown] id="task-chain"
# ## 10.2 · A chain of keys
#
# Comparing with every stored text takes longer with each one. So texts are cut into blocks of `block_tokens` tokens, and each full
# block gets a **key**, a short name under which it is found. (It has nothing to do with the K of attention.) What is left over at
# the end fills no block and gets none.

# %% [markdown] id="about-digest"
# `digest(text)` makes a key of any text, the same one on every machine. Two different texts get different keys, almost certainly.
# But if you write two different things as the same text (1, 23 and 12, 3 both as `123`), they get the same key.


# %% id="digest"
def digest(text):
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


print(digest("5, 3"), digest("5, 4"), sep="\n")

# %% [markdown] id="task-chain-front"
# A key stands for a block's tokens **and for everything in front of them**. Rather than all of that again, give `digest` a text with
# two things in it: the key of the block before, and the tokens of this one.
#
# In front of the first block stands the `namespace`, which says whose text it is: nobody may ever find a block of somebody
# else's.

# %% [markdown] id="task-chain-types"
# A namespace is `None`, an int, a str, or a tuple of these. Any two that differ must lead to different keys: `1` and `"1"`, `None`
# and `"None"`, `("a", "bc")` and `("ab", "c")`.

# %% id="guess-chain"
guess = {"keys of 11 tokens, blocks of 4": None, "keys that change when token 5 changes": None}


# %% id="answer-chain" exercise="10.2"
def my_chain(tokens, block_tokens, namespace, digest):
    """The keys of all full blocks, a list in their order.
    Every key is what digest(text) returned for a text of yours."""
    ### BEGIN SOLUTION
    keys, before = [], repr(namespace)
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        before = digest(f"{before} {tokens[start : start + block_tokens]}")
        keys.append(before)
    return keys
    ### END SOLUTION


# %% id="check-chain" tags=["check"] exercise="10.2"
check("10.2", my_chain)

# %% [markdown] id="task-lookup"
# ## 10.3 · Look up and compare
#
# Blocks are stored in a dict: `stored[key]` is a pair `(before, block)`, the key of the block in front of it and the list of its
# tokens. For a first block, `before` is `root`, a name for the namespace.
#
# Of a new text you get its `tokens` and the `keys` of its full blocks, in order. How many of these blocks, from the first on, are
# stored?

# %% [markdown] id="task-lookup-claim"
# A key is a claim. Somebody may find two blocks with one key, and a cheap digest will do so by itself; then another text's K and V
# would be loaded, and nobody would notice. Believe a block only if its pair says what it should: these tokens, behind that key.
#
# Stop at the first block that is not there, or not believed.

# %% [markdown] id="guess-lookup-text"
# On paper: `stored = {"x": ("root", [5, 3]), "y": ("x", [8, 1]), "z": ("q", [7, 7])}`, blocks of 2.

# %% id="guess-lookup"
guess = {
    'keys ["x", "y"], tokens [5, 3, 8, 1, 9]': None,
    'keys ["x", "y"], tokens [5, 3, 8, 2]': None,
    'keys ["x", "y", "z"], tokens [5, 3, 8, 1, 7, 7]': None,
}


# %% id="answer-lookup" exercise="10.3"
def my_lookup(stored, root, keys, tokens, block_tokens):
    """How many blocks, from the first on,
    are stored under their keys with the right tokens and the right key in front."""
    ### BEGIN SOLUTION
    before = root
    for number, key in enumerate(keys):
        block = tokens[number * block_tokens : (number + 1) * block_tokens]
        if stored.get(key) != (before, block):
            return number
        before = key
    return len(keys)
    ### END SOLUTION


# %% id="check-lookup" tags=["check"] exercise="10.3"
check("10.3", my_lookup)

# %% [markdown] id="task-evict"
# ## 10.4 · Make room
#
# Memory is full, and `n` tokens more are wanted. `entries` is a dict of what is stored:
#
#     {1: {"parent": None, "tokens": 4, "used": 7, "pins": 0},
#      2: {"parent": 1,    "tokens": 4, "used": 7, "pins": 0}, ...}
#
# Entry 2 stands behind entry 1; `used` is the number of the last request that used it; with `pins` above 0 somebody is
# using it now.

# %% [markdown] id="task-evict-rule"
# An entry may go if it is not pinned and nothing stands behind it: K and V without those in front of them are worth nothing.
# Of those that may go, the one not used for longest goes. An entry whose last child has gone may go itself, and takes its turn
# by its own `used`.

# %% [markdown] id="task-evict-end"
# Go on until at least `n` tokens are free, and then stop. If that many cannot be freed, free what can be: whoever asked will store
# less. Take what goes out of `entries` itself, and return a list of the ids in the order in which they went.
#
# Using an entry uses all in front of it, so nothing is used later than what it stands behind; no two that may go are equally old.

# %% [markdown] id="guess-evict-text"
# On paper: 1 (used 3), 2 behind 1 (used 3), 3 (used 5), 4 behind 3 (used 4, pinned); 4 tokens each.

# %% id="guess-evict"
guess = {"4 tokens wanted": None, "5 tokens wanted": None, "12 tokens wanted": None}


# %% id="answer-evict" exercise="10.4"
def my_evict(entries, n):
    """Take entries out until at least n tokens are free, or no more may go.
    Return their ids, the first to go first."""
    ### BEGIN SOLUTION
    gone, freed = [], 0
    while freed < n:
        parents = {entry["parent"] for entry in entries.values()}
        leaves = [
            name for name, entry in entries.items() if name not in parents and entry["pins"] == 0
        ]
        if not leaves:
            break
        gone.append(min(leaves, key=lambda name: entries[name]["used"]))
        freed += entries.pop(gone[-1])["tokens"]
    return gone
    ### END SOLUTION


# %% id="check-evict" tags=["check"] exercise="10.4"
check("10.4", my_evict)

# %% [markdown] id="together"
# ## Your decisions under a model
#
# The next two cells are a prefix cache on top of your functions. A request asks `my_chain` for its keys and `my_lookup` how many
# are known, loads those blocks, and lets the model compute the rest. Afterwards `keep` stores the new blocks; where there is no
# room, `my_evict` says what goes.

# %% id="your-prefixes"
from kvcourse import load_model
from kvcourse.caches.growing import GrowingCache
from kvcourse.prefix.store import copied, load


class YourPrefixes:
    def __init__(self, model, capacity, block_tokens=4, digest=digest):
        self.model, self.P, self.digest = model, block_tokens, digest
        self.capacity, self.request = capacity, 0  # in blocks
        # By key: the pair; what eviction looks at; K and V
        self.stored, self.entries, self.rows = {}, {}, {}

    def logits(self, tokens, namespace=None):
        """Logits of the last token, and how many tokens were not computed."""
        self.request += 1
        keys, root = my_chain(tokens, self.P, namespace, self.digest), repr(namespace)
        n = my_lookup(self.stored, root, keys[: (len(tokens) - 1) // self.P], tokens, self.P)
        cache = GrowingCache()
        if n:
            cache.bind(self.model, 1, self.model.dtype, self.model.device)
            load([(self.rows[key], self.P) for key in keys[:n]], cache)
        logits = self.model(torch.tensor([tokens[n * self.P :]]), cache=cache)[0, -1]
        keep(self, tokens, [root, *keys], n, cache)
        return logits, n * self.P


# %% id="your-keep"
def keep(prefixes, tokens, chain, n, cache):
    """Store the blocks after the first n. chain: the root, then the keys."""
    P, held = prefixes.P, prefixes.entries
    for key in chain[1 : n + 1]:
        held[key].update(used=prefixes.request, pins=1)
    missing = len(chain) - 1 - n
    room = prefixes.capacity - len(held)
    for key in my_evict(held, max(0, missing - room) * P):
        del prefixes.stored[key], prefixes.rows[key]
    for number in range(n, min(len(chain) - 1, n + prefixes.capacity - len(held))):
        before, key = chain[number : number + 2]
        # This very block, or another one with its key: then what follows stays out
        if key in prefixes.stored:
            break
        prefixes.stored[key] = (before, tokens[number * P : (number + 1) * P])
        parent = before if number else None
        held[key] = {"parent": parent, "tokens": P, "used": prefixes.request, "pins": 0}
        prefixes.rows[key] = copied(
            cache, prefixes.model.config.n_layer, number * P, (number + 1) * P
        )
    for key in chain[1 : n + 1]:
        held[key]["pins"] = 0


# %% [markdown] id="proof-text"
# Eight requests, blocks of 4. For each: how many tokens your index found, whether these are the whole blocks of what `my_match`
# says, and whether the logits are those of the model without any cache.

# %% id="requests"
tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
ids = tiny.tokenizer.encode
story = " is in the garden . the key is in the market . where is "
requests = [
    (None, "ana" + story + "ana ?"),
    (None, "ana" + story + "the key ?"),
    (None, "ana" + story + "the key ?"),  # the same again
    (None, "ben" + story + "ana ?"),  # another first word
    (None, "ben" + story + "ana ?"),
    (None, "the key is in the market . where is the key ?"),
    ("somebody else", "ana" + story + "ana ?"),
    ("somebody else", "ana" + story + "ana ?"),
]


# %% id="ask"
def ask(prefixes, tokens, namespace=None):
    """How many tokens were found. The logits are compared with those without a cache."""
    logits, found = prefixes.logits(tokens, namespace)
    difference = (logits - prefixes.model(torch.tensor([tokens]))[0, -1]).abs().max().item()
    bound = 1e-9 if logits.dtype == torch.float64 else 1e-2
    assert difference < bound, (
        f"{found} tokens were found for {tokens}, and the logits differ by {difference:.3g}."
    )
    held = [set(books) for books in (prefixes.stored, prefixes.entries, prefixes.rows)]
    assert held[0] == held[1] == held[2] and len(held[0]) <= prefixes.capacity, (
        f"{len(held[0])} blocks are held."
    )
    entries, known = prefixes.entries.values(), (None, *held[0])
    orphans = [entry for entry in entries if entry["parent"] not in known]
    assert not orphans, f"What stood in front of an entry has gone: {orphans[0]}"
    return found


# %% id="your-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    prefixes, seen = YourPrefixes(tiny, capacity=100), {}
    for namespace, text in requests:
        tokens = ids(text)
        known = my_match(seen.setdefault(namespace, []), tokens)
        found = ask(prefixes, tokens, namespace)
        assert known < len(tokens), (
            f"All {known} tokens are known, says my_match. One is left to compute."
        )
        assert found == known // 4 * 4, (
            f"my_match knows {known} tokens: {known // 4} blocks of 4. "
            f"Found in blocks were {found}."
        )
        counts = f"{known} known, {found} found in blocks, {len(tokens) - found} computed"
        print(f"{len(tokens)} tokens: {counts}, the same logits")
        seen[namespace].append(tokens)

# %% [markdown] id="worst-text"
# Now the worst that can happen. There is room for three blocks only, so something goes at almost every request; and the digest
# knows four keys and no more, so almost every block meets a stranger. What is found gets less. What comes out must not change.


# %% id="worst"
def poor(text):
    return str(hashlib.sha256(text.encode()).digest()[0] % 4)


def fifty(digest, capacity):
    """Tokens found in fifty requests of a few texts, in an order that mixes them."""
    prefixes = YourPrefixes(tiny, capacity, digest=digest)
    texts = [ids(text) for _, text in requests]
    return sum(ask(prefixes, texts[i * 3 % 8][: 8 + i * 7 % 13]) for i in range(50))


# %% id="worst-proof" tags=["check"]
with in_short():
    for capacity in (100, 3):
        found = fifty(digest, capacity)
        print(f"room for {capacity}: {found} tokens found, the same logits fifty times")
    fifty(poor, 100)
    fifty(poor, 3)
    print("and with a digest of four keys: the same logits fifty times, twice")

# %% [markdown] id="real-task"
# ## Two questions to the real model
#
# Both conversations begin with the same system message. The second one should not pay for it again.

# %% id="real-model" tags=["check"]
smollm2 = load_model("smollm2")
system = {
    "role": "system",
    "content": "You are the librarian of a small town. "
    "You know every book by heart and answer briefly.",
}
with in_short():
    prefixes = YourPrefixes(smollm2, capacity=50, block_tokens=8)
    for question in ("Who wrote Moby-Dick?", "Which book should I read to a child of four?"):
        messages = [system, {"role": "user", "content": question}]
        tokens = list(smollm2.tokenizer.encode_chat(messages))
        found = ask(prefixes, tokens, namespace="the library")
        print(f"{len(tokens)} tokens, {found} found, {len(tokens) - found} computed: {question}")
    assert found > 0, "Nothing was found of a text that begins alike."

# %% [markdown] id="closing"
# That is what a serving engine decides before the model runs. Two things to try. Let `my_lookup` believe every key, and run the
# proof with the poor digest. And put the time of day in front of the system message: what is left of what was found? Which texts
# deserve a place at the front is lesson 13; what a conversation keeps from turn to turn is lesson 11.
