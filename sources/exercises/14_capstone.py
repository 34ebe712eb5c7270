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
# # Exercise 14 · Name the fault
#
# **You will write** five diagnoses, and three tests that find broken caches and leave right ones alone. About 45 lines.
#
# **You need** Python, lesson 06 for caches, lesson 09 for forks; lesson 14 shows the zoo. About 50 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A cache keeps K and V of tokens that went through the model, so that they are not computed again. It changes
# the work and nothing else: the logits are those without a cache, up to rounding, at every token, however the text is cut into
# calls.
#
# Every broken cache here was shipped by somebody. Each runs, and each made the plot of speed look good.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on many caches, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("14.1")` gives a hint, and each further call a plainer one. `reset("14.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset
from kvcourse.zoo import HEALTHY, SPECIMENS, symptoms, ward

# %% [markdown] id="task-diagnosis"
# ## 14.1 · Seven rooms, five faults
#
# `symptoms` makes a cache, drives it, and writes down what it saw: a chart. Each line has what a right cache shows, and what this one
# showed. "off from 4" means that the logits are wrong from token 4 on, counted from 0.
#
# Seven caches lie in seven rooms. Five are broken, each in its own way, and two are right.

# %% id="ward"
rooms = ward(seed=3)
rooms["room 1"]

# %% id="guess-room"
# Before you look at the others: a wrong mask, wrong positions, or nothing?
guess = {"room 1": None}

# %% id="first-lines"
for room, chart in rooms.items():
    print(room, list(chart.readings.values())[:4])

# %% [markdown] id="task-diagnosis-keys"
# The faults that occur, by their keys:
#
# - `"mask"`: tokens of one call see the wrong tokens, too many or too few. One token a call is right.
# - `"positions"`: once there are tokens in the cache, new ones are given wrong positions.
# - `"layers"`: when the cache needs more room, sooner or later, rows end up in another layer.
# - `"dtype"`: rows are kept in less precision.
# - `"unused"`: nothing is wrong with the logits, and tokens that were computed are computed again, all or some.

# %% [markdown] id="task-diagnosis-rule"
# A diagnosis is a rule. `charts` is a dict from a room to a chart, a dict from the text of a line to what was seen:
# `{"room 1": {"one pass": "equal", "one token at a time": "off from 1", ...}, ...}`. Return a dict from each room to a key, or to `None`
# where nothing is wrong.
#
# The check brings other rooms, in any number and order: these faults in other kinds of cache, which begin at other tokens, and right
# caches.


# %% id="answer-diagnosis" exercise="14.1"
def my_diagnosis(charts):
    """From each room to "mask", "positions", "layers", "dtype", "unused" or None."""
    ### BEGIN SOLUTION
    keys = {}
    for room, chart in charts.items():
        single, several = chart["one token at a time"], chart["4 tokens at a time"]
        if single == "nearly equal":
            keys[room] = "dtype"
        elif single != "equal":
            keys[room] = "positions" if single == "off from 1" else "layers"
        elif several != "equal":
            keys[room] = "mask"
        else:
            keys[room] = "unused" if chart["tokens computed for 12, one at a time"] > 12 else None
    return keys
    ### END SOLUTION


# %% id="check-diagnosis" tags=["check"] exercise="14.1"
check("14.1", my_diagnosis)

# %% [markdown] id="task-equal"
# ## 14.2 · The same logits
#
# The test that comes before every plot of speed. `new()` makes an empty cache. `model(tokens)` gives logits without a cache,
# `model(tokens, cache=cache)` with one: `tokens` is an int64 tensor `(1, T)`, the logits are `(1, T, V)`, in float64. `ids` is a text,
# a list of 8 ids or so. A cache is to be handed on; of its own it says `cache.length` and nothing else.

# %% [markdown] id="task-equal-rule"
# Cut the text into pieces of 1 token, then of 2, of 3, and so on up to the whole text; the last piece may be shorter. Return `True` if
# each way gives the logits of every token as they are without a cache, otherwise `False`.

# %% [markdown] id="task-equal-rounding"
# A right cache is off by some 1e-14, because sums are added up in another order: that is equal. 1e-9 is not. And broken arithmetic ends in
# NaN, which is certainly not equal.

# %% id="guess-equal"
nan = float("nan")
guess = {"nan > 1e-9": None, "nan < 1e-9": None, "nan == nan": None}


# %% id="answer-equal" exercise="14.2"
def my_equal(model, new, ids):
    """True if a cache changes no logits, whatever size the pieces have that ids is cut into."""
    ### BEGIN SOLUTION
    tokens = torch.tensor([ids])
    right = model(tokens)
    for size in range(1, len(ids) + 1):
        cache = new()
        got = torch.cat([model(piece, cache=cache) for piece in tokens.split(size, dim=1)], dim=1)
        if not (got - right).abs().max() < 1e-9:  # not "> 1e-9": NaN is neither
            return False
    return True
    ### END SOLUTION


# %% id="check-equal" tags=["check"] exercise="14.2"
check("14.2", my_equal)

# %% [markdown] id="task-cut"
# ## 14.3 · As if it had never been
#
# `truncate(cache, n)` keeps the first n tokens of a cache. A rejected guess, a turn that is taken back, an edited question: all end
# with such a cut, and with other tokens behind it.
#
# For every n from 0 to `len(ids)`: a cache that has taken all of `ids` is cut to n, and `others` goes on from there. Return `True` if
# each token of `others` then has the logits that it has without a cache, behind `ids[:n]`.

# %% id="guess-cut"
guess = {"how many cuts, with 8 ids": None, "what stands in front of others after a cut to 0": None}


# %% id="answer-cut" exercise="14.3"
def my_cut(model, new, truncate, ids, others):
    """True if a cache that was cut goes on as if what is gone had never been, for every length."""
    ### BEGIN SOLUTION
    for n in range(len(ids) + 1):
        cache = new()
        model(torch.tensor([ids]), cache=cache)
        truncate(cache, n)
        right = model(torch.tensor([ids[:n] + others]))[:, n:]
        got = model(torch.tensor([others]), cache=cache)
        if not (got - right).abs().max() < 1e-9:
            return False
    return True
    ### END SOLUTION


# %% id="check-cut" tags=["check"] exercise="14.3"
check("14.3", my_cut)

# %% [markdown] id="task-forks"
# ## 14.4 · Two that begin alike
#
# `fork(cache)` makes a second cache with the same rows. From then on both go on, each for itself: nothing that one writes is seen by the
# other.
#
# For every n from 1 to `len(ids)`: a cache takes `ids[:n]` and is forked. Then the cache goes on with `one` and the fork with `two`, two
# lists of the same length. Return `True` if both have the logits that they have without a cache.

# %% [markdown] id="task-forks-turns"
# Before you write: `cache` and its fork hold 5 rows, and write into the same memory. First the cache takes all of `one`, then the fork
# takes all of `two`. Whose logits are wrong?

# %% id="guess-forks"
guess = {"one to its end, then two": None, "a token of one, a token of two, and so on": None}


# %% id="answer-forks" exercise="14.4"
def my_forks(model, new, fork, ids, one, two):
    """True if a cache and its fork go their own ways, wherever they part."""
    ### BEGIN SOLUTION
    for n in range(1, len(ids) + 1):
        cache = new()
        model(torch.tensor([ids[:n]]), cache=cache)
        pair = ((cache, one, []), (fork(cache), two, []))
        for i in range(len(one)):
            for each, text, rows in pair:  # in turns: each reads again after the other has written
                rows.append(model(torch.tensor([[text[i]]]), cache=each))
        for _, text, rows in pair:
            right = model(torch.tensor([ids[:n] + text]))[:, n:]
            if not (torch.cat(rows, dim=1) - right).abs().max() < 1e-9:
                return False
    return True
    ### END SOLUTION


# %% id="check-forks" tags=["check"] exercise="14.4"
check("14.4", my_forks)

# %% [markdown] id="together"
# ## Your tests, on the whole zoo
#
# First your rule, on the seven rooms.

# %% id="rounds" tags=["check"]
with in_short():
    named = my_diagnosis({room: chart.readings for room, chart in rooms.items()})
    keys = sorted(key for key in named.values() if key)
    assert keys == ["dtype", "layers", "mask", "positions", "unused"], (
        f"Five faults in seven rooms, and yours are {keys}."
    )
    print("two rooms are right; in the others:", ", ".join(keys))

# %% [markdown] id="tests-text"
# Then your three tests are given caches that they were not written for: right ones of every kind that keeps exact rows, and every broken
# one of the zoo that does. The model is the course's own, trained, in float64.

# %% id="tests"
from kvcourse import load_model
from kvcourse.errors import KVCourseError

tiny = load_model("tiny", dtype=torch.float64)
said = "the red key is in the library", ". ana took it", "? ben has it"
ids, one, two = map(tiny.tokenizer.encode, said)


def truncate(cache, n):
    cache.truncate(n)


def fork(cache):
    return cache.fork()


def passed(test, arguments, make):
    """What one of the tests says of the caches that make(model, capacity) makes."""
    try:
        return test(tiny, lambda: make(tiny, 24), *arguments)
    except KVCourseError:  # a cache that stops has not passed
        return False


# %% id="tests-proof" tags=["check"]
tests = {
    "logits": (my_equal, (ids,)),
    "cuts": (my_cut, (truncate, ids, one)),
    "forks": (my_forks, (fork, ids, one, two)),
}
with in_short(), torch.no_grad():
    for kind in ("growing", "preallocated", "paged"):
        wrong = [name for name, test in tests.items() if not passed(*test, HEALTHY[kind])]
        assert not wrong, f"A right cache, {kind}, does not pass your test for {wrong[0]}."
    print("three right kinds pass all three tests")
    left = [each for each in SPECIMENS if each.kind == "kv" and each.make(tiny, 24).exact]
    for (name, test), least in zip(tests.items(), ("BK", "J", "N"), strict=True):
        found = "".join(each.name for each in left if not passed(*test, each.make))
        assert set(least) <= set(found), (
            f"Your test for {name} should find {least} at least, and finds {found or 'nothing'}."
        )
        left = [each for each in left if each.name not in found]
        print(f"{name}: {found} found, {len(left)} left")

# %% [markdown] id="closing"
# Six broken caches give other logits in a plain run; one shows when it is cut, one when it is forked. The four that are left pass
# everything here. Print `symptoms(each.make)` for each of `left`: what would a test have to do to see it? Write one. That is how all tests
# of this course began: with a cache that was wrong, and a plot that looked good.
