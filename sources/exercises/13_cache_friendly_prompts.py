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
# # Exercise 13 · Prompts that hit
#
# **You will write** four pieces of a tool that says why requests miss the cache: where two part, which order of parts shares most,
# what a provider finds, and what it costs. About 35 lines.
#
# **You need** Python and lesson 13, or the next cell. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A provider keeps the work that was done on earlier prompts, and takes it up again for a new one that
# **begins** in the same way. Up to the first difference all is found, and cheap; from there on nothing is, however equal it may be.
#
# Tokens that were taken up are **cached** tokens. The provider counts them in the `usage` of its answer.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("13.1")` gives a hint, and each further call a plainer one. `reset("13.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
from itertools import permutations

import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="common-text"
# One function you have written before, in 10.1 and in 11.3. Here it is, for all four tasks. And `permutations(names)` of Python's own
# goes through all orders of some things, each a tuple.


# %% id="common"
def common(one, other):
    """How many characters two texts, or tokens two lists, begin with in common."""
    n = min(len(one), len(other))
    return next((i for i in range(n) if one[i] != other[i]), n)


# %% [markdown] id="task-difference"
# ## 13.1 · Find the first difference
#
# Two requests were sent, `one` and then `other`:
#
#     {"messages": [{"role": "system", "content": "Be brief."}, ...], "tools": [{"name": "search", ...}, ...]}
#
# A model reads the tools first, all of them, wherever they stand in the body; then message after message. So a request has **parts**:
# part 0 is the list of tools, `[]` where the body has no `"tools"`, and parts 1, 2, ... are the messages.

# %% [markdown] id="task-difference-text"
# `text(part)` is what the model reads of a part: of the list of tools, or of one message. What is read decides. Dicts may be equal
# and read otherwise, and the other way round.
#
# Go through the parts that both have. If all of them read the same, return `None`: the longer request goes on where the shorter one
# ended, and that is how it should be.

# %% [markdown] id="task-difference-rule"
# Otherwise return a tuple `(part, character, a, b)` for the first part that does not: its number; how many characters its two texts
# have in common from the front; and of each text what is around that place: 8 characters in front of it, or fewer if there are no
# more, and 12 from there on.

# %% [markdown] id="guess-difference-text"
# On paper, for the texts `<system>It is 9:00.` and `<system>It is 9:41.` of part 1:

# %% id="guess-difference"
guess = {"character": None, "around it, of the first": None, "around it, of the second": None}


# %% id="answer-difference" exercise="13.1"
def my_difference(one, other, text):
    """None, or (part, character, a, b) for the first part that reads otherwise.
    a, b: what is around that character."""
    ### BEGIN SOLUTION
    sides = [[body.get("tools", []), *body["messages"]] for body in (one, other)]
    for part, pair in enumerate(zip(*sides, strict=False)):
        a, b = map(text, pair)
        if a != b:
            place = common(a, b)
            start, stop = max(0, place - 8), place + 12
            return part, place, a[start:stop], b[start:stop]
    return None
    ### END SOLUTION


# %% id="check-difference" tags=["check"] exercise="13.1"
check("13.1", my_difference)

# %% [markdown] id="task-layout"
# ## 13.2 · Put the parts in order
#
# A prompt is put together from parts with names. `log` says what each of them was, request by request:
#
#     [{"clock": "It is 9:00. ", "rules": "Be brief. ", "question": "Who is in?"},
#      {"clock": "It is 9:05. ", "rules": "Be brief. ", "question": "Who is out?"}, ...]
#
# An **order** is a list of the names; the prompt is the texts in that order, one right behind another, and all requests use the same
# order.

# %% [markdown] id="task-layout-worth"
# What is an order worth? Each request finds the longest start that its prompt has in common with **any** prompt before it, counted
# in characters here. An order is worth what all requests find with it, together.
#
# Not every order makes sense: for each pair `(a, b)` in `before`, part `a` has to stand somewhere in front of part `b`.

# %% [markdown] id="task-layout-rule"
# Return the best order that is allowed, a list of names. If several are equally good, any of them. There is always one that is
# allowed, and there are never more than six parts, so that all orders can be tried.

# %% [markdown] id="guess-layout-text"
# On paper, for the two requests above: what does the second one find?

# %% id="guess-layout"
guess = {"clock, rules, question": None, "rules, clock, question": None}
guess |= {"rules, question, clock": None}


# %% id="answer-layout" exercise="13.2"
def my_layout(log, before):
    """The order of the parts, a list of names, with which most is found,
    of those that before allows."""

    ### BEGIN SOLUTION
    def worth(order):
        prompts = ["".join(request[name] for name in order) for request in log]
        each = [
            max((common(prompt, earlier) for earlier in prompts[:i]), default=0)
            for i, prompt in enumerate(prompts)
        ]
        return sum(each)

    orders = permutations(log[0])
    allowed = [order for order in orders if all(order.index(a) < order.index(b) for a, b in before)]
    return list(max(allowed, key=worth))
    ### END SOLUTION


# %% id="check-layout" tags=["check"] exercise="13.2"
check("13.2", my_layout)

# %% [markdown] id="task-cached"
# ## 13.3 · What a provider finds
#
# `log` is a list of requests in the order in which they were sent, each a pair: when, in seconds, and the token ids of its prompt.
#
#     [(0, [5, 3, 8, 1, 7]), (40, [5, 3, 8, 2]), ...]
#
# Return a list with one number for each request: its cached tokens. The first one finds nothing: 0.

# %% [markdown] id="task-cached-life"
# `rules` is a dict with three numbers. The first is about age: a request can be found for `rules["lifetime"]` seconds, and still is
# when exactly so many have passed. Whoever uses a start that is there renews it, by being a request itself.
#
# Of all that is there, the longest common start counts.

# %% [markdown] id="task-cached-rules"
# But not all of it. One token at least is always computed, the prompt's last: the answer begins with its logits. Then, if what is left
# is below `rules["minimum"]`, nothing is found at all. And otherwise only whole steps of `rules["step"]` tokens are, from the front.

# %% [markdown] id="guess-cached-text"
# On paper: a prompt of 1,200 tokens, twice within a minute, with a minimum of 1,024.

# %% id="guess-cached"
guess = {"step 1": None, "step 128": None, "step 128, only the first 1,000 are the same": None}


# %% id="answer-cached" exercise="13.3"
def my_cached(log, rules):
    """Cached tokens of each request, a list of ints. log: pairs (seconds, token ids).
    rules: lifetime, minimum, step."""
    ### BEGIN SOLUTION
    each_found = []
    for i, (now, tokens) in enumerate(log):
        alive = [earlier for then, earlier in log[:i] if now - then <= rules["lifetime"]]
        found = max((common(tokens, earlier) for earlier in alive), default=0)
        found = min(found, len(tokens) - 1)
        steps = found // rules["step"] if found >= rules["minimum"] else 0
        each_found.append(steps * rules["step"])
    return each_found
    ### END SOLUTION


# %% id="check-cached" tags=["check"] exercise="13.3"
check("13.3", my_cached)

# %% [markdown] id="task-bill"
# ## 13.4 · The bill
#
# After each request the provider said what it had counted. `log` is a list of these, in tokens:
#
#     {"prompt": 2000, "cached": 1500, "written": 300, "completion": 80}
#
# Cached tokens were found. Written ones were computed and then stored, where a provider asks a price for that; the rest of the prompt
# was computed and that is all. A figure that is missing, or `None`, is 0; `"prompt"` and `"completion"` are always there.

# %% [markdown] id="task-bill-included"
# `prices` has what a **million** tokens cost: `"plain"` for prompt tokens that were computed, `"read"` for cached ones, `"write"` for
# written ones, in place of the plain price, and `"completion"` for those of the answer.
#
# And it says how this provider counts. With `prices["included"]` true, `"prompt"` is the whole prompt: above, 200 of its tokens are
# plain. With false, cached and written tokens are not in it: there are 2,000 plain ones, and the prompt had 3,800.

# %% [markdown] id="task-bill-rule"
# Return a pair: what all requests cost together, and what they would have cost without any cache, when every token of the prompt has
# the plain price. The first is not always the smaller one.

# %% [markdown] id="guess-bill-text"
# On paper, for the request above at 4.00 plain, 0.50 read and 5.00 write: what does its prompt cost, in units of a millionth?

# %% id="guess-bill"
guess = {"included": None, "not included": None}


# %% id="answer-bill" exercise="13.4"
def my_bill(log, prices):
    """(paid, without): what the log's requests cost, and would have cost without a cache.
    log: usage figures in tokens."""
    ### BEGIN SOLUTION
    paid = without = 0
    for usage in log:
        cached, written = usage.get("cached") or 0, usage.get("written") or 0
        whole = usage["prompt"] if prices["included"] else usage["prompt"] + cached + written
        answer = usage["completion"] * prices["completion"]
        plain = whole - cached - written
        paid += (
            plain * prices["plain"] + cached * prices["read"] + written * prices["write"] + answer
        )
        without += whole * prices["plain"] + answer
    return paid / 1_000_000, without / 1_000_000
    ### END SOLUTION


# %% id="check-bill" tags=["check"] exercise="13.4"
check("13.4", my_bill)

# %% [markdown] id="together"
# ## Your functions at work
#
# Six pairs of requests first. Four of them have a mistake that real programs made, and two are as they should be. Your function says
# where the two part; the place is compared with that of the whole texts, and the course's linter adds what it takes the difference
# for: `none` where nothing is wrong.

# %% id="bodies"
import json

from kvcourse.prompts.layout import lint_requests


def text(part):
    """What a model reads: a line of JSON for each tool; a message between marks."""
    if isinstance(part, list):
        return "".join(json.dumps(tool) + "\n" for tool in part)
    return f"<|im_start|>{part['role']}\n{part['content']}<|im_end|>\n"


def parts(body):
    return [body["tools"], *body["messages"]]


def body(*texts, tools):
    roles = ("system", "user", "assistant", "user")
    said = zip(roles, texts, strict=False)
    return {"messages": [{"role": r, "content": text} for r, text in said], "tools": tools}


# %% id="pairs"
search, lend = (
    {"name": name, "description": f"Can {name} a book of the library."}
    for name in ("search", "lend")
)
house_rules = "You are the help desk of a town library. "
house_rules += "Answer in two sentences, and name the shelf."
page = "The moon pulls at the sea twice a day. Where the coast is narrow, the water rises most."
asked = "Do you have a book on tides?"
talk = asked, "Yes, two. Both stand on shelf 7.", "May I keep one over the summer?"
first = body(f"It is 9:00. {house_rules}", asked, tools=[search, lend])
found = body(house_rules, f"{page} {asked}", tools=[search])
pairs = [
    (first, body(f"It is 9:00. {house_rules}", *talk, tools=[search, lend])),
    (first, body(f"It is 9:07. {house_rules}", talk[2], tools=[search, lend])),
    (first, body(f"It is 9:00. {house_rules}", *talk, tools=[lend, search])),
    (first, body(f"It is 9:00.  {house_rules}", *talk, tools=[search, lend])),
    (found, body(house_rules, *talk, tools=[search])),
    (body(house_rules, asked, tools=[search]), body(house_rules, talk[2], tools=[search])),
]

# %% id="pairs-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    for one, other in pairs:
        place, sides = my_difference(one, other, text), [parts(one), parts(other)]
        whole = ["".join(map(text, side)) for side in sides]
        shared = common(*whole)
        goes_on = shared == min(map(len, whole))
        assert (place is None) == goes_on, (
            f"{place}, and all that both have {'reads the same' if goes_on else 'does not'}."
        )
        if place is not None:
            behind = sum(len(text(part)) for part in sides[0][: place[0]]) + place[1]
            assert behind == shared, (
                f"{place} is character {behind} of all, and the texts share {shared}."
            )
            shows = place[2] in whole[0] and place[3] in whole[1]
            assert shows, f"{place}: the texts that it shows stand nowhere in the requests."
        cause = lint_requests([one, other]).groups[0].cause
        print(f"{place}\n    the linter says: {cause}")

# %% [markdown] id="layout-text"
# Now eight requests of that help desk, put together from six parts, and what they share, in characters. All orders that are allowed
# are tried, and what each finds is counted by the course's own replay of a log.

# %% id="help-desk"
from kvcourse.providers import Logged, replay_requests, rules_of

readers = ["Ann", "Ann", "Ben", "Ann", "Cy", "Ben", "Ann", "Cy"]
questions = ["a book on tides", "one on whales", "a map", "the first one again"]
questions += ["a novel", "an atlas", "a film", "a poem"]
loans = {
    "Ann": "Two books, both on the sea, due in May.",
    "Ben": "Nothing yet.",
    "Cy": "A guide to mills, overdue.",
}


# %% id="asked-by"
def asked_by(readers, shelves):
    """Requests of these readers, a dict of parts each."""
    kinds = ("seas", "mills", "tales", "birds")
    shelved = [(n, kinds[n % 4]) for n in range(shelves)]
    stock = " ".join(f"Shelf {n}: {kind}, and {kind} for children." for n, kind in shelved)
    return [
        {
            "clock": f"It is {9 + n}:0{n}. ",
            "question": f"Please find {questions[n]}. ",
            "reader": f"{reader} asks. ",
            "loans": f"On loan: {loans[reader]} ",
            "house": f"You are in the {('Harbour', 'Mill')[n // 2 % 2]} house. ",
            "rules": f"{house_rules} {stock} ",
        }
        for n, reader in enumerate(readers)
    ]


# %% id="help-desk-log"
def prompts(log, order):
    return ["".join(request[name] for name in order) for request in log]


def characters_found(order):
    return replay_requests([list(map(ord, prompt)) for prompt in prompts(log, order)]).cached_tokens


log = asked_by(readers, shelves=180)
before = [("reader", "loans"), ("loans", "question"), ("house", "reader"), ("clock", "question")]

# %% id="layout-proof" tags=["check"]
with in_short():
    orders = permutations(log[0])
    allowed = [one for one in orders if all(one.index(a) < one.index(b) for a, b in before)]
    found = {one: characters_found(one) for one in allowed}
    order = tuple(my_layout(log, before))
    assert order in found, f"{order} is no order that is allowed."
    assert found[order] == max(found.values()), (
        f"{order} finds {found[order]}, and another one {max(found.values())}."
    )
    total, least, most = (
        sum(map(len, prompts(log, order))),
        min(found.values()),
        max(found.values()),
    )
    print(f"{len(allowed)} orders are allowed. They find from {least:,} to {most:,} of {total:,}.")
    print(f"your order: {', '.join(order)}")
    worst = min(found, key=found.get)

# %% [markdown] id="found-text"
# The worst order and yours in tokens of the real model, sent 60, 299 and 301 seconds apart, under the rules of four providers that
# look for the longest start, as of the dates in their files. Your counts against the replay, request for request.

# %% id="sent"
from kvcourse import load_model

smollm2 = load_model("smollm2")


def encoded(log, order):
    return [smollm2.tokenizer.encode(prompt) for prompt in prompts(log, order)]


def sent(ids, seconds=60):
    """Prompts so many seconds apart."""
    return [(n * seconds, one) for n, one in enumerate(ids)]


def three_rules(name):
    rules = rules_of(name)
    lifetime = rules.lifetime_seconds or 10**9  # None: no end is stated
    return {"minimum": rules.minimum_tokens, "step": rules.granularity_tokens, "lifetime": lifetime}


# %% id="found-proof" tags=["check"]
with in_short():
    layouts = encoded(log, worst), encoded(log, order)
    for name in ("local", "openai", "deepseek", "gemini"):
        shares = []
        for ids in layouts:
            for seconds in (60, 299, 301):
                requests = sent(ids, seconds)
                counts = my_cached(requests, three_rules(name))
                replayed = replay_requests([Logged(one, then) for then, one in requests], name)
                right = [one.cached_tokens for one in replayed.counts]
                assert counts == right, (
                    f"{name}, {seconds} s apart: the replay finds {right}, my_cached says {counts}."
                )
                shares.append(f"{replayed.hit_rate:4.0%}")
        bad, good = ", ".join(shares[:3]), ", ".join(shares[3:])
        print(f"{name:9}: found in the worst order {bad}, in yours {good}")

# %% [markdown] id="bill-text"
# And the bill of the worst order and yours. The prices are made up, but their factors are the providers'. Each log of figures is
# billed twice: as a provider writes them that includes cached tokens in the prompt's figure, and as one that does not.


# %% id="usages"
def usages(counts, included):
    """Usage figures as a provider writes them, 50 tokens of answer each."""
    return [
        {
            "prompt": one.prompt_tokens if included else one.computed_tokens - one.written_tokens,
            "cached": one.cached_tokens or None,
            **({"written": one.written_tokens} if one.written_tokens else {}),
            "completion": 50,
        }
        for one in counts
    ]


# %% id="bill-proof" tags=["check"]
with in_short():
    for name in ("openai", "deepseek", "gemini", "anthropic"):
        rules, bills = rules_of(name), []
        for ids in layouts:
            replayed = replay_requests([Logged(one, then) for then, one in sent(ids)], rules)
            prices = {"plain": 3.0, "completion": 15.0}
            prices |= {"read": 3.0 * rules.read, "write": 3.0 * rules.write}
            costs = replayed.cost, replayed.cost_without_cache
            right = tuple((3.0 * cost + 15.0 * 400) / 1e6 for cost in costs)
            both = []
            for flag in (True, False):
                log_of = usages(replayed.counts, flag)
                both.append(my_bill(log_of, {**prices, "included": flag}))
            for paid in both:
                off = max(abs(a - b) for a, b in zip(paid, right, strict=True))
                assert off < 1e-9, f"{name}: (paid, without) is {right}; my_bill says {paid}."
            bills.append(f"{both[0][0]:.4f}")
        orders = f"{bills[0]} for the worst order, {bills[1]} for yours"
        print(f"{name:9}: {orders}, {both[0][1]:.4f} without a cache")

# %% [markdown] id="bill-why"
# Look at the last line. There each prompt has one mark, at its end: it is stored whole, at the price of writing, and found again
# only whole. The order changes nothing, and the cache costs more than it saves. (Without any mark nothing is stored, and the price
# is the plain one.) Lesson 13 says where such marks belong.

# %% [markdown] id="real-task"
# ## The real model
#
# No rule book now: the same requests go to SmolLM2 with lesson 10's prefix cache in front of it. It says after each request how many
# tokens it took up. Those have to be the ones that you predicted.

# %% id="real-model" tags=["check"]
from kvcourse import RadixPrefixCache, generate

with in_short():
    short_log = asked_by(readers[:5], shelves=2)
    for name, layout in (("the worst order", worst), ("yours", order)):
        cache = RadixPrefixCache(smollm2, max_bytes=2**28)
        requests = sent(encoded(short_log, layout))
        outs = [generate(smollm2, ids, max_new_tokens=1, prefix_cache=cache) for _, ids in requests]
        runs = [out.usage for out in outs]
        took = [run.cached_tokens for run in runs]
        predicted = my_cached(requests, three_rules("local"))
        assert predicted == took, f"The model took up {took} tokens; my_cached says {predicted}."
        print(f"{name}: {took} taken up, {sum(run.computed_tokens for run in runs)} computed")

# %% [markdown] id="closing"
# That is a linter: where, in which order, how much, for how much. Three things to try. Give the clock seconds, and see what
# `my_difference` shows. Take a pair out of `before`, and see whether it buys anything. And run `kvcourse lint` on a log of your own,
# if you have one. What all these caches are worth together, and which of them are broken, is lesson 14.
