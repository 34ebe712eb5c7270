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
# # Exercise 09 · Share memory in blocks
#
# **You will write** the four pieces that let many texts share one memory: taking blocks, giving them back, finding a slot, and
# the copy before a write. About 20 lines, and no tensor in them.
#
# **You need** Python and lesson 09, or lesson 06 and the next cells. About 40 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A KV cache keeps the key and the value of every token, one token a **slot**. Nobody knows how many
# slots a text will need, so the memory is cut into **blocks** of a few slots each, `block_tokens` of them, numbered from 0. A text
# takes a block when all of its own are full, whichever is free.

# %% [markdown] id="recap-table"
# Each text has a **table**: the numbers of its blocks, in order. Its first `block_tokens` slots are in the block that the table
# names first, the next ones in the block that it names second. A block may stand in several tables: texts that begin alike
# share what they have in common.

# %% [markdown] id="recap-counts"
# So that everybody knows what is free, there is a list `counts`. `counts[b]` says in how many tables block `b` stands; 0 means
# that it is free. With `counts = [2, 1, 0]`, block 0 is shared by two texts, block 1 belongs to one, and block 2 is free.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("9.1")` gives a hint, and each further call a plainer one. `reset("9.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-take"
# ## 9.1 · Take
#
# Take `n` free blocks, the smallest numbers first. Each of them stands in one table from now on: change `counts` itself
# accordingly, and return their numbers as a list.
#
# If fewer than `n` are free, return `None`, and leave `counts` exactly as it was.

# %% [markdown] id="guess-take-text"
# On paper first: `counts = [1, 0, 2, 0, 0]`.

# %% id="guess-take"
guess = {"take 2": None, "counts afterwards": None, "then take 2 more": None}


# %% id="answer-take" exercise="9.1"
def my_take(counts, n):
    """Count n free blocks once each; return their numbers, smallest first.
    None, with nothing changed, if there are fewer."""
    ### BEGIN SOLUTION
    free = [block for block, count in enumerate(counts) if count == 0]
    if len(free) < n:
        return None
    for block in free[:n]:
        counts[block] = 1
    return free[:n]
    ### END SOLUTION


# %% id="check-take" tags=["check"] exercise="9.1"
check("9.1", my_take)

# %% [markdown] id="task-give-back"
# ## 9.2 · Give back
#
# A text has ended, and its blocks stand in one table less. Some become free by that, others are still in another table. Return
# a list of those that become free, each once, the smallest number first.
#
# `blocks` may name a block twice, if two tables are given back together. Leave `blocks` itself as it is.

# %% [markdown] id="task-give-back-refuse"
# A block that would be given back more often than it is counted is a fault of the caller, and a dangerous one: the block would be
# given to somebody new while another still reads it. Then return `None`, and leave `counts` exactly as it was.

# %% id="guess-give-back"
guess = {"counts [2, 1, 1], give back [0, 2]": None, "then [0, 2] once more": None}


# %% id="answer-give-back" exercise="9.2"
def my_give_back(counts, blocks):
    """Count each block once less; return those that became free, smallest first.
    None, with nothing changed, if one cannot."""
    ### BEGIN SOLUTION
    if any(blocks.count(block) > counts[block] for block in blocks):
        return None
    for block in blocks:
        counts[block] -= 1
    return sorted({block for block in blocks if counts[block] == 0})
    ### END SOLUTION


# %% id="check-give-back" tags=["check"] exercise="9.2"
check("9.2", my_give_back)

# %% [markdown] id="task-places"
# ## 9.3 · Places
#
# Slots of a text count from 0, however its blocks lie in memory. Say where slots `start` to `start + T - 1` are: for each of them a
# pair `(block, offset)`, the number of its block and its place inside that block, from 0 to `block_tokens - 1`.

# %% [markdown] id="guess-places-text"
# On paper: the table is `[5, 2, 7]`, and blocks have 4 slots.

# %% id="guess-places"
guess = {"slot 3": None, "slot 4": None, "slot 9": None}  # (block, offset)


# %% id="answer-places" exercise="9.3"
def my_places(table, start, T, block_tokens):
    """A list of T pairs (block, offset): where slots start to start + T - 1 are.
    The table has blocks enough."""
    ### BEGIN SOLUTION
    return [(table[slot // block_tokens], slot % block_tokens) for slot in range(start, start + T)]
    ### END SOLUTION


# %% id="check-places" tags=["check"] exercise="9.3"
check("9.3", my_places)

# %% [markdown] id="task-write"
# ## 9.4 · Copy on write
#
# `tables` is a list of tables, one for each text. The text of `tables[row]` has `length` tokens and is about to write one more.
# Make room for it. There are three cases:
#
# - All its blocks are full (or it has none): its table needs one more block.
# - Its last block has room and stands in no other table: nothing to do.
# - Its last block has room, and stands elsewhere too: nobody may write there. It needs a copy.

# %% [markdown] id="task-write-copy"
# In the third case, put a free block in the place of the old one, in this one table, keep the counts right, and return the pair
# `(old, new)`: the caller will copy the rows. In the other cases return `None`.
#
# Take the smallest free block; there is always one. What is shared is told by `counts`: somebody who is not in `tables` may hold a
# block, too.

# %% id="guess-write"
# Tables and counts afterwards
guess = {"tables [[0, 1], [0, 1]], counts [2, 2, 0], row 0, 6 tokens, blocks of 4": None}


# %% id="answer-write" exercise="9.4"
def my_write_shared(tables, counts, row, length, block_tokens):
    """Make room for token number `length` (from 0) of tables[row].
    Return (old, new) if a block is to be copied, else None."""
    ### BEGIN SOLUTION
    table = tables[row]
    if length % block_tokens == 0:
        table.append(counts.index(0))
        counts[table[-1]] = 1
    elif counts[table[-1]] > 1:
        old, new = table[-1], counts.index(0)
        counts[old] -= 1
        counts[new] = 1
        table[-1] = new
        return old, new
    return None
    ### END SOLUTION


# %% id="check-write" tags=["check"] exercise="9.4"
check("9.4", my_write_shared)

# %% [markdown] id="together"
# ## Your blocks under a model
#
# The cell after the next is a KV cache on top of your functions. All texts write their K and V into one tensor, `memory`. Before the first
# layer, `my_write_shared` makes room for each new token; each layer then puts its rows where `my_places` says, and reads all of
# the text from there.

# %% id="memory"
from kvcourse import load_model
from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache

tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
N, P, L, H, D = 12, 4, tiny.config.n_layer, tiny.config.n_head, tiny.config.head_size
memory = torch.zeros(L, 2, N, P, H, D, dtype=torch.float64)
counts, tables = [0] * N, []


# %% id="your-cache"
class YourCache(GrowingCache):
    def __init__(self, table=()):
        super().__init__()
        self.row = len(tables)
        tables.append(list(table))

    def _write(self, layer, k, v):
        T = k.shape[2]
        for slot in range(self.length, self.length + T) if layer == 0 else ():
            copy = my_write_shared(tables, counts, self.row, slot, P)
            if copy is not None:
                memory[:, :, copy[1]] = memory[:, :, copy[0]]
        places = my_places(tables[self.row], 0, self.length + T, P)
        blocks, offsets = (torch.tensor(numbers) for numbers in zip(*places, strict=True))
        # (2, T, H, D)
        memory[layer, :, blocks[-T:], offsets[-T:]] = torch.stack((k[0], v[0])).transpose(1, 2)
        rows = memory[layer, :, blocks, offsets].transpose(1, 2)  # (2, H, length + T, D)
        self._stored[layer] = KeysValues(rows[:1], rows[1:])
        return self._stored[layer]


# %% id="branch"
def branch(cache):
    """A second cache with the same blocks, each counted once more."""
    other = YourCache(tables[cache.row])
    other.length, other._stored = cache.length, dict(cache._stored)
    for block in tables[cache.row]:
        counts[block] += 1
    return other


# %% [markdown] id="proof-text"
# Two texts first, a token each in turn. Then the first one is forked: a second table with the same blocks, each counted once more.
# Both branches write on. All logits are compared with those of the model without a cache.

# %% id="texts"
told = "ana is in the garden . where", "the key is in the market ."
texts = [tiny.tokenizer.encode(text)[:6] for text in told]


def difference(cache, ids, new):
    """Feed the last `new` of ids, and compare with one call without a cache."""
    logits = tiny(torch.tensor([ids[-new:]]), cache=cache)
    return (logits - tiny(torch.tensor([ids]))[:, -new:]).abs().max().item()


# %% id="your-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    counts[:], tables[:] = [0] * N, []
    one, two = YourCache(), YourCache()
    for slot in range(6):
        for cache, ids in zip((one, two), texts, strict=True):
            assert difference(cache, ids[: slot + 1], 1) < 1e-9, (
                f"Slot {slot} of tables {tables} differs."
            )
    print(f"two texts in turn: the same logits\n  tables {tables}\n  counts {counts}")
    fork, first, second = branch(one), [*texts[0], 8, 10, 11], [*texts[0], 7, 9, 12]
    for length in (7, 8, 9):
        for cache, ids in ((fork, second), (one, first)):
            assert difference(cache, ids[:length], 1) < 1e-9, (
                f"A branch reads what is not its own: tables {tables}."
            )
    print(f"two branches of the first: the same logits\n  tables {tables}\n  counts {counts}")
    assert counts == [sum(block in table for table in tables) for block in range(N)], (
        f"counts {counts}, tables {tables}"
    )

# %% [markdown] id="real-task"
# And all is given back. The two branches have one block in common: look at which blocks become free with which table, and what
# the next text would take.

# %% id="give-all-back" tags=["check"]
with in_short():
    for name, table in zip(("the first", "the second", "the fork"), tables, strict=True):
        print(f"{name} ends, {table}: free now are", my_give_back(counts, table))
    assert counts == [0] * N, f"Nobody is left, and counts is {counts}."
    again = my_give_back(counts, tables[0])
    assert again is None and counts == [0] * N, (
        f"The same table once more is refused; yours returned {again}."
    )
    assert my_take(counts, N + 1) is None and my_take(counts, N) == list(range(N)), (
        "All blocks, and not one more."
    )
    print("all twelve blocks are there again")

# %% [markdown] id="closing"
# That is the bookkeeping of every serving engine: plain numbers, and no row moves but the few that must. Two things to try. Let
# `my_write_shared` return `None` in its third case without a copy, and read what the proof says. And ask yourself how two strangers,
# whose texts begin alike and who were never forked, could find each other's blocks. That is lesson 10.
