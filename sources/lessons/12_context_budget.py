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
# # 12 · Why do naive agents burn tokens?
#
# **You need** to know what a prefix cache finds, and why a changed token costs all that follows it (lessons 10 and 11). About 40 minutes,
# half of it yours.
#
# **At the end** you can say before a task begins what an agent will send, what of it is computed and what it costs; you know what five ways
# to make room do to the cache; and you can read usage figures without believing more than they say.

# %% id="imports"
from itertools import pairwise

import torch

from kvcourse import load_model
from kvcourse.context.agent import replayed_tokens, run_agent, scripted
from kvcourse.context.parts import flat, n_tokens, shared_tokens
from kvcourse.context.policies import ReplayAll
from kvcourse.context.summaries import DigestSummary, ModelSummary
from kvcourse.errors import ContextOverflow, InputError
from kvcourse.ledger import Ledger, Prices, TurnCount
from kvcourse.providers import rules_of
from kvcourse.viz.budget_plots import plot_parts, plot_two_figures, plot_windows, sent_of

_ = torch.set_grad_enabled(False)  # nothing is trained here

# %% [markdown] id="ask"
# ## Three steps by hand
#
# An **agent** is a loop: a model is asked, it names a tool, the tool's result is appended, and the model is asked again. The model
# remembers nothing, so each request carries the whole conversation: that is its **context window**, all the model sees now.
#
# A system prompt of 3 tokens, a task of 2. Each answer has 1 token, each result 2. How many tokens are sent in three steps?

# %% id="guess-toy"
guess = {"in the last request": None, "in all three": None}

# %% id="toy"
window, sent = "SSSTT", []
for _ in range(3):
    sent.append(window)
    window += "a" + "rr"  # what the model said, and what the tool gave back
for number, prompt in enumerate(sent, start=1):
    print(f"request {number}: {prompt:12} {len(prompt):2} tokens")
print("together", sum(map(len, sent)))
assert [len(prompt) for prompt in sent] == [5, 8, 11]

# %% [markdown] id="toy-package"
# The package's agent does the same on token ids, keeps a **ledger**, and knows what a prefix cache would find. Hatched is what that cache
# has, plain is what is computed.

# %% id="toy-run"
toy = run_agent(scripted(3, system=3, task=2, answer=1, result=2), ReplayAll(), limit=20)
assert [turn.prompt_tokens for turn in toy.ledger] == [len(prompt) for prompt in sent]
names = {"assistant": "answer", "tool": "result"}
parts = [[(names.get(p.role, p.role), len(p)) for p in window] for window in toy.windows]
plot_parts(parts, list(toy.ledger))

# %% [markdown] id="derive"
# Count by columns. System and task, 5 tokens, stand in all three requests: $3 \cdot 5$. The 3 tokens of step 1 are sent twice, those of
# step 2 once, those of step 3 never: $3 \cdot (2 + 1 + 0)$. Together 15 + 9 = 24. With $n$ steps, $f$ fixed tokens, and $a + r$ new ones
# in each step:
#
# $$\text{sent}(n) = n f + (a + r)\,\frac{n(n-1)}{2}$$


# %% id="formula"
def by_formula(n, f, a, r):
    return n * f + (a + r) * n * (n - 1) // 2


assert by_formula(3, 5, 1, 2) == 24
for n in range(1, 41):
    script = scripted(n, system=30, task=12, answer=4, result=25)
    run = run_agent(script, ReplayAll(), limit=2000)
    assert run.ledger.totals.prompt_tokens == replayed_tokens(script) == by_formula(n, 42, 4, 25)
print("sent = the formula, for 1 to 40 steps; 40 steps:", run.ledger.totals.prompt_tokens)

# %% [markdown] id="ask-real"
# ## Thirty steps
#
# Now sizes as an agent has them: system prompt and tools 2,250 tokens, task 200, answers 100, results 700. Thirty steps are a small task.
# How many tokens does the last request have, and how many are sent in all? And with 60 steps?

# %% id="guess-real"
guess = {"last request": None, "30 steps": None, "60 steps": None}

# %% id="real"
SIZES = {"system": 2250, "task": 200, "answer": 100, "result": 700}
print("steps   last request        sent")
before = None
for n in (15, 30, 60, 120):
    run = run_agent(scripted(n, **SIZES), ReplayAll(), limit=120_000)
    sent = run.ledger.totals.prompt_tokens
    assert sent == by_formula(n, 2450, 100, 700)
    times = f"   {sent / before:.2f} times" if before else ""
    print(f"{n:5}{run.ledger[-1].prompt_tokens:15,}{sent:12,}{times}")
    before = sent

# %% [markdown] id="explain-square"
# Twice the steps, more and more nearly four times the tokens: the **square law**. It is the course's fourth square (lessons 05, 07, 11),
# and people meet it unprepared: an issue at smolagents (2566, July 2026) describes this very growth, since its agent sends its full memory
# in every step.

# %% id="ratio"
task = scripted(30, **SIZES)
replay = run_agent(task, ReplayAll(), limit=32_000)
totals = replay.ledger.totals
sent, written = totals.prompt_tokens, totals.completion_tokens
print(f"{sent:,} sent for {written:,} written: {sent / written:.0f} to 1")

# %% [markdown] id="explain-ratio"
# The makers of Manus reported about 100 to 1 for their agent in 2025. Ours was made of four round numbers, and lands in the same order of
# magnitude: it is the loop that makes it, not what the agent is about.

# %% [markdown] id="two-figures"
# ## Two figures
#
# Two questions sound alike. How full is the window *now*? That is **context occupancy**: the last prompt and its answer. How much was
# sent *so far*? Those are **cumulative tokens**: the prompts of all requests together. The window takes 32,000. After 9 of the 30 steps:

# %% id="guess-two"
guess = {"in the window, percent": None, "sent so far, in windows": None}

# %% id="two"
nine = Ledger(32_000, list(replay.ledger)[:9])
sent_so_far = nine.totals.prompt_tokens
print(f"occupancy    {nine.occupancy:7,} of {nine.limit:,} tokens: {nine.share:.0%}")
print(f"sent so far  {sent_so_far:7,} tokens: {sent_so_far / nine.limit:.2f} windows")
assert nine.share <= 1 < sent_so_far / nine.limit

# %% id="two-plot"
plot_two_figures({"an agent that sends everything": list(replay.ledger)}, 32_000)

# %% [markdown] id="gauge-fault"
# (On a log scale a square bends down; it does not slow.) A gauge that divides the second by the size of the window says 159% after step 9, while nearly three quarters of the window are empty. This
# happened: Claude Code's status data carried cumulative figures (issue 13783), ccusage drew them as a share of the window (823: "1000%+"),
# OpenClaw showed 228% (83526). Ours cannot: the ledger takes nothing the window could not have held.

# %% id="gauge-refused"
gauge = Ledger(32_000)
try:
    gauge.record(TurnCount(sent_so_far, 0, 100))
except InputError as fault:
    print(fault)

# %% [markdown] id="explain-gauge"
# Cutting it off at 100% hides the fault and keeps the harm: such a gauge cries wolf in step 7, and after a real clean-up it does not fall. What can be
# full gets a percentage. What only grows gets a number, and a price.

# %% [markdown] id="ask-computed"
# ## Sent is not computed
#
# The agent only ever appends, so each request begins with the last one. With a prefix cache: how many of the 421,500 tokens are
# computed?

# %% id="guess-computed"
guess = None

# %% id="computed"
cached, computed = totals.cached_tokens, totals.computed_tokens
print(f"{totals.prompt_tokens:,} sent = {cached:,} cached + {computed:,} computed")
assert totals.computed_tokens == 2450 + 29 * (700 + 1)
cold = run_agent(task, ReplayAll(), limit=32_000, cached=False)
assert cold.ledger.totals.computed_tokens == totals.prompt_tokens

# %% [markdown] id="explain-computed"
# Each token once: the fixed part, then in every step the result, and the one token that the last answer left (lesson 11). The square has not
# gone. It stands in the column *cached*, and whoever rents a model pays for that column too, at another price.

# %% [markdown] id="prices-text"
# Prices come in classes. The package keeps the rules of some providers as data with a date; prices move, so look at the date before you
# believe a figure. Everything below is in units of one plain input token.

# %% id="prices"
rules = rules_of("anthropic")
prices = rules.prices(completion=5.0)  # the rules say nothing about output; 4 to 8 is common
print(f"{rules.title}, as of {rules.as_of}")
print(f"computed (and stored) {prices.computed}, cached {prices.cached}")
print(f"written by the model {prices.completion}")

# %% [markdown] id="ask-bill"
# What does the task cost with a cache, and what without one, where each input token costs 1? And which class is the largest item of the
# first bill?

# %% id="guess-bill"
guess = {"with": None, "without": None, "largest": None}

# %% id="bill"
NO_CACHE = Prices(computed=1.0, cached=1.0, completion=5.0)
with_cache, without = replay.billed(prices), cold.billed(NO_CACHE)
print(f"{'':9}{'cached':>10}{'computed':>10}{'written':>10}{'together':>10}")
for name, bill in {"with": with_cache, "without": without}.items():
    figures = bill.cached, bill.computed, bill.completion, bill.total
    print(f"{name:9}" + "".join(f"{figure:10,.0f}" for figure in figures))
assert with_cache.cached > max(with_cache.computed, with_cache.completion)

# %% [markdown] id="explain-bill"
# A fifth. And after thirty steps, reading the past at a tenth of the price is already the largest item. **Change one thing:** 100 steps,
# with a larger limit. What share is it then?

# %% [markdown] id="room"
# ## Somebody has to make room
#
# Let the window take 16,000 tokens, as it may on a smaller model, or where you stay below half of a larger one on purpose.

# %% id="overflow"
try:
    run_agent(task, ReplayAll(), limit=16_000)
except ContextOverflow as fault:
    print(fault)

# %% [markdown] id="policies-text"
# Who decides what stays is a **context policy**: from the last window, and what came since, it makes the next one. Here are five. What was in front
# of the first place that a policy changes is still found in the cache; what follows is not.


# %% id="policies"
from kvcourse.context.policies import CompactNearLimit, CropOldest, Externalise, Summarise


def reference(handle):
    return tuple(handle.ljust(20).encode())  # 20 ids that stand for a result


runs = {"replay all": replay}  # in its window of 32,000
policies = [CropOldest(), Summarise(DigestSummary(300)), Externalise(reference, longest=256)]
for policy in [*policies, CompactNearLimit(DigestSummary(300), share=0.8)]:
    runs[policy.name] = run_agent(task, policy, limit=16_000)
    print(f"{policy.name:24}breaks the prefix {policy.breaks_prefix}")

# %% [markdown] id="policies-table"
# | policy | what it does |
# |---|---|
# | replay all | everything, always |
# | crop oldest | whole steps go, the oldest first, when there is no more room |
# | summarise | all but the last four steps become one summary of 300 tokens, at every request |
# | externalise | a result of more than 256 tokens never enters: a **handle** does, 20 tokens, by which it can be fetched |
# | compact near the limit | nothing, until the window is 80% full; then all but the last step becomes one summary, behind system and task |

# %% [markdown] id="ask-policies"
# Replacing old turns by something shorter is called **compaction**. All five do the same task. Cropping sends fewer tokens than replaying
# does. Will its bill be smaller? Put the five in order, cheapest first.

# %% id="guess-policies"
guess = []

# %% id="table"
print(f"{'':24}{'occupancy':>17}{'cumulative':>16}{'':>11}{'summaries':>10}")
print(f"{'':24}{'most':>8}{'at the end':>12}{'sent':>10}{'computed':>12}{'read':>11}{'billed':>11}")
for name, run in runs.items():
    ledger, total = run.ledger, run.ledger.totals
    most, end = max(turn.occupancy for turn in ledger), ledger.occupancy
    sent, computed = total.prompt_tokens, total.computed_tokens
    read, bill = sum(turn.prompt_tokens for turn in run.summaries), run.billed(prices).total
    print(f"{name:24}{most:8,}{end:12,}{sent:10,}{computed:12,}{read:11,}{bill:11,.0f}")
    assert total.cached_tokens + computed == sent and most <= ledger.limit

# %% id="windows-plot"
plot_windows({name: sent_of(run, run.ledger.limit) for name, run in runs.items()})

# %% [markdown] id="read-windows"
# A column is a request, its height what the window held, the area of all columns what was sent. Plain green is what was computed. Cropping
# lets the window stay full and moves its beginning in every step: nothing behind the task is ever found again. It sends less than replaying,
# computes eight times as much, and costs three times as much.

# %% [markdown] id="two-again-text"
# And the two figures again, for compaction near the limit. Twice one of them falls to a third, and the other does not notice.

# %% id="two-again"
plot_two_figures({"compact near the limit": list(runs["compact near the limit"].ledger)}, 16_000)

# %% [markdown] id="bills-text"
# What remains is the price of each class.

# %% id="bills-plot"
from kvcourse.viz.budget_plots import plot_bills

bills = {name: run.billed(prices) for name, run in runs.items()}
plot_bills(bills, f"billed, in units of one plain input token, at prices of {rules.as_of}")

# %% id="order"
billed = {name: bill.total for name, bill in bills.items()}
sent = {name: run.ledger.totals.prompt_tokens for name, run in runs.items()}
cheapest, fewest = sorted(billed, key=billed.get), sorted(sent, key=sent.get)
print("cheapest first:", ", ".join(cheapest))
print("fewest sent:   ", ", ".join(fewest))
assert cheapest[0] == "externalise" and cheapest[-1] == "crop oldest"
assert sent["crop oldest"] < sent["replay all"] and billed["crop oldest"] > 3 * billed["replay all"]

# %% [markdown] id="explain-order"
# The two orders differ, so "it sends fewer tokens" is no argument. What counts is how much of it is computed, and that is decided by
# *where* a policy changes something, and how often. Summarising in every step keeps the smallest window but one, and costs more than twice
# what replaying does: it breaks the prefix every time, and pays a summary every time.

# %% [markdown] id="ask-providers"
# **Change one thing:** the price list. Where a cached token costs half, or nothing is cached at all, does the order stay?

# %% id="providers"
providers = ("anthropic", "deepseek", "gemini", "openai:tenth", "openai")
lists = {name: rules_of(name).prices() for name in providers} | {"no cache": NO_CACHE}
factors = (f"{one.cached:>6} / {one.computed:<4}" for one in lists.values())
print(f"{'cached / computed':22}" + "".join(factors))
print(f"{'':22}" + "".join(f"{name:>12} " for name in lists))
for name, run in runs.items():
    print(f"{name:22}" + "".join(f"{run.billed(one).total:12,.0f} " for one in lists.values()))

# %% [markdown] id="explain-providers"
# Without a cache cropping saves, as everybody expects: what is sent is what is paid. The cheaper a cached token is, the more of the bill is what
# was computed, and the order turns: at half the price, cropping has lost to replaying. (These bills take every hit as certain. What a provider does not keep, and for
# how long it keeps the rest, comes in lesson 13.)

# %% [markdown] id="explain-openai"
# (`openai` alone is GPT-4o's price list; `openai:tenth` is GPT-5's, which has Gemini's two figures. From GPT-5.6 on they are
# Anthropic's.)

# %% [markdown] id="compaction"
# ## Where the summary stands
#
# Compaction near the limit computes hardly more than replaying does, in half the window. Look at its picture: after each of two compactions the
# system prompt and the task are still hatched. Suppose that somebody puts the summary first, where a model surely reads it. Same moments, same
# summary. What does it cost?

# %% id="guess-first"
guess = None  # tokens computed in addition


# %% id="summary-first"
class SummaryFirst(CompactNearLimit):
    name, breaks_prefix = "summary first", "once per compaction, at its first token"

    def window(self, kept, new, limit):
        return sorted(super().window(kept, new, limit), key=lambda part: part.role != "summary")


behind = runs["compact near the limit"]
first = run_agent(task, SummaryFirst(DigestSummary(300)), limit=16_000)
for run in (behind, first):
    total = run.ledger.totals
    print(f"{run.policy:24}{total.prompt_tokens:9,} sent {total.computed_tokens:8,} computed")
more = first.ledger.totals.computed_tokens - behind.ledger.totals.computed_tokens
n_compactions, fixed = len(first.summaries), n_tokens(first.windows[0])
print(f"{more:,} more = {n_compactions} compactions × {fixed:,} fixed tokens")
assert more == n_compactions * fixed

# %% [markdown] id="explain-first"
# To the token: each compaction computes the fixed part anew. With large fixed parts this is money: an issue at Claude Code (94197,
# 2026) puts it at 97,000 unchanged tokens per compaction, "because the summary is assembled first". The order of two parts, in one
# line of a program.

# %% [markdown] id="on-model"
# ### On the real model
#
# These were counts of a simulation. Does a real model with a real prefix cache do the same? A task in words: find the service that was restarted
# most often, one log file a step, eight steps, a window of 400. The script says what is written; SmolLM2 computes everything else.

# %% id="text-task"
import textwrap

from kvcourse.context.texts import handle_text, text_script

smollm2 = load_model("smollm2")
tok = smollm2.tokenizer
logs = text_script(tok, n_steps=8, lines=6)
second = tok.decode(flat(run_agent(logs, ReplayAll(), limit=1000).windows[1]))
print(*(textwrap.fill(line, 90) for line in second.splitlines()), sep="\n")

# %% id="model-counts"
for policy in (CompactNearLimit, SummaryFirst):
    counted = run_agent(logs, policy(DigestSummary(30, tok.vocab_size)), limit=400)
    ran = run_agent(logs, policy(DigestSummary(30, tok.vocab_size)), limit=400, model=smollm2)
    assert list(ran.ledger) == list(counted.ledger)
    computed = [turn.computed_tokens for turn in ran.ledger]
    print(f"{policy.name:24}computed:", *computed, "· together", sum(computed))
times, fixed = len(ran.summaries), n_tokens(ran.windows[0])
print(f"the same as counted; the difference is {times} × {fixed} = {times * fixed}")

# %% [markdown] id="ask-summary-price"
# ### Who writes the summary
#
# A summary is a request too, and it is in no window. In the table it was charged as most programs send it: a fresh conversation, "summarise
# this:", and the text. Nothing of that is cached. What if the request is the *last window*, with one more instruction at its end?

# %% id="guess-summary-price"
guess = {"computed, fresh": None, "computed, appended": None}

# %% id="warm"
INSTRUCTION = 20  # tokens of "write down what was done so far"
fresh = list(behind.summaries)
sizes = [n_tokens(window) for window in behind.windows]
before = [a for a, b in pairwise(sizes) if b < a]  # of the windows that were compacted
appended = [TurnCount(size + INSTRUCTION, size, 300) for size in before]
for name, turns in {"fresh": fresh, "appended": appended}.items():
    bill, sums = Ledger(32_000, turns).billed(prices), Ledger(32_000, turns).totals
    cost = bill.cached + bill.computed
    counted_as = f"{sums.prompt_tokens:7,} read, {sums.computed_tokens:6,} computed"
    print(f"{name:10}{counted_as}; reading costs {cost:7,.0f}")

# %% id="warm-bill"
reading = [Ledger(32_000, turns).billed(prices) for turns in (fresh, appended)]
cost = [bill.cached + bill.computed for bill in reading]
print(f"avoidable: {1 - cost[1] / cost[0]:.0%} of what reading for the summaries costs")
as_sent, replayed = billed["compact near the limit"], billed["replay all"]
total = as_sent - cost[0] + cost[1]
print(f"the whole task: {as_sent:,.0f} or {total:,.0f}")
print(f"replaying, in twice the window: {replayed:,.0f}")
assert total < replayed < as_sent

# %% [markdown] id="explain-warm"
# An issue at opencode (25120, April 2026) said of real sessions what this cell says of ours: about 90% of what compaction costs is an avoidable
# miss. The window is warm at that moment, and will never be again. Read it once more, at a tenth of the price, and only then let it go.

# %% [markdown] id="real-summary"
# ### A summary by the model
#
# So far a summary was 300 ids that say nothing. Now SmolLM2 writes one, of the three steps that the first compaction above removes. Both ways to
# ask, counted by the real prefix cache. And then read what it wrote: the question was how often each service was *restarted*.

# %% id="real-warm"
from kvcourse import generate
from kvcourse.context.summaries import INSTRUCTION as ASKED
from kvcourse.prefix.cache import RadixPrefixCache

place = next(i for i, (a, b) in enumerate(pairwise(counted.windows)) if n_tokens(b) < n_tokens(a))
full = counted.windows[place]  # the window that is compacted next
pc = RadixPrefixCache(smollm2, max_bytes=2**28)
generate(smollm2, flat(full), max_new_tokens=1, prefix_cache=pc)  # the agent's own request
asking = tok.encode(f"<|im_start|>user\n{ASKED}<|im_end|>\n<|im_start|>assistant\n", special=True)
usage = generate(smollm2, flat(full) + asking, max_new_tokens=1, prefix_cache=pc).usage
print(f"appended: {usage.prompt_tokens} read, {usage.computed_tokens} computed")
assert usage.cached_tokens == n_tokens(full) and usage.computed_tokens == len(asking)

# %% id="real-cold" tags=["volatile"]
write = ModelSummary(smollm2, tok, max_new_tokens=48)
gone = [part for part in full if part.role not in ("system", "task")]
write(gone)
took, text = write.counts[0], tok.decode(flat(gone))
same = TurnCount(usage.prompt_tokens, usage.cached_tokens, took.completion_tokens)
for name, turn in {"fresh": took, "appended": same}.items():
    price = Ledger(1000, [turn]).billed(prices).total
    read = f"{turn.prompt_tokens:4} read, {turn.computed_tokens:4} computed"
    print(f"{name:9}{read}, {turn.completion_tokens} written: {price:.0f}")
print(write.texts[0])
goes, stays = (said.count("restarted") for said in (text, write.texts[0]))
print(f"\n'restarted': {goes} times in what goes, {stays} times in the summary")

# %% [markdown] id="explain-summary"
# A model of 135 million parameters goes on with the log instead of summing it up. Larger ones write better ones, and the point stays: a summary
# is written before anybody knows what will be asked. What it leaves out is gone, and no figure in any ledger shows it. A policy that loses the
# answer is not cheap at any price.

# %% [markdown] id="handles"
# ## Out of the window, within reach
#
# A handle loses nothing. The result is kept outside, by the program; 20 tokens in the window say where. In the task in words:

# %% id="handle"
shelf = Externalise(lambda handle: handle_text(tok, handle), longest=40)
out = run_agent(logs, shelf, limit=400)
print(tok.decode(flat(out.windows[2])[n_tokens(out.windows[0]) :]))
print("kept outside:", ", ".join(shelf.outside))

# %% [markdown] id="ask-fetch"
# The agent has seen only handles, and now needs the second file. It asks for it by name; the program fetches it and appends it. The
# window has about 300 tokens. Does the prefix break?

# %% id="guess-fetch"
guess = None  # tokens of the next prompt that a cache does not have

# %% id="fetch"
from kvcourse.context.parts import Part

fetched = shelf.fetch("result-2")
window = list(out.windows[-1])
asks = Part("assistant", tuple(tok.encode("result-2<|im_end|>", special=True)), 8)
after = [*window, asks, fetched]
same = shared_tokens(window, after)
print(f"{n_tokens(window)} tokens, then {n_tokens(after)}: the first {same} are the same")
assert fetched.tokens == logs.steps[1].result and same == n_tokens(window)

# %% [markdown] id="explain-fetch"
# It does not: a fetch appends, like every step. So a fetch costs one more step. Back to the large task, where all 29 results went
# outside. How many may be fetched back, one by one, before replaying would have been cheaper?

# %% id="guess-fetches"
guess = None

# %% id="fetches"
bill, occupancy, n = billed["externalise"], runs["externalise"].ledger.occupancy, 0
while bill < billed["replay all"]:
    # The result comes, the answer names the next one
    turn = TurnCount(occupancy + 700, occupancy - 1, 100)
    bill, occupancy, n = bill + Ledger(10**6, [turn]).billed(prices).total, turn.occupancy, n + 1
    if occupancy <= 16_000:
        fits = n
print(f"{n} of 29 fetches, and it is the dearer one; {fits} of them fit into the window of 16,000")

# %% [markdown] id="explain-fetches"
# An agent that needs most of its results in full gains little; one that greps, counts or quotes from them gains nearly everything. Whether it
# *knows* what is behind a handle is another matter. A good handle says it: name, size, first line.

# %% [markdown] id="widget-text"
# ## Both gauges
#
# Above, what can be full; below, what only grows: prompts, answers and summaries together, with a mark where an agent that sends everything
# would be. Move one thing at a time.

# %% id="widget" tags=["volatile"]
from kvcourse.viz import budget_gauges

budget_gauges()

# %% [markdown] id="change-widget"
# Three to try. Tool results of 50 tokens: what do four of the five have in common? One step more and one less, around the moment of a
# compaction: which gauge falls, and which never does? Prices *no cache*: whose bill changes least, and why?

# %% [markdown] id="platforms"
# ## What usage figures tell
#
# Of somebody else's agent you see no windows. You may see its usage: prompt, cached, written, for each request. Here are six requests of three
# agents that you know. Which is which?

# %% id="guess-logs"
guess = {"A": None, "B": None, "C": None}

# %% id="logs"
hidden = {"A": runs["compact near the limit"], "B": runs["externalise"], "C": runs["crop oldest"]}
print("request   " + "".join(f"{name + ': prompt':>14}{'cached':>8}" for name in hidden))
for i in (11, 12, 13, 14, 17, 18):
    shown = (run.ledger[i] for run in hidden.values())
    figures = (f"{turn.prompt_tokens:14,}{turn.cached_tokens:8,}" for turn in shown)
    print(f"{i + 1:7}   " + "".join(figures))

# %% [markdown] id="reading-text"
# Two subtractions read such a log. *Came*: this prompt, less the last prompt and its answer. *Found*: the cached tokens, against all that the
# last request left behind.


# %% id="reading"
def read(before, now):
    came, left = now.prompt_tokens - before.occupancy, before.occupancy - 1
    what = f"{came} came" if came >= 0 else "something left"
    if now.cached_tokens == left:
        return what
    return f"{what}, nothing found from token {now.cached_tokens + 1:,} on"


for name, run in hidden.items():
    said = [read(a, b) for a, b in pairwise(run.ledger)]
    print(f"{name}: " + " · ".join(f"{said.count(one)} × {one}" for one in dict.fromkeys(said)))

# %% [markdown] id="explain-reading"
# A appends, and twice drops back to 2,450: compaction behind a fixed part of that length. B appends very little. C has lost everything behind token
# 2,450 in each request since the 18th. All that from three columns. (The lengths are those of *this* tokenizer, and providers count in steps.)

# %% [markdown] id="ask-twins"
# Now the limits. B appends 20 tokens a step. Is it an agent that keeps its results outside? And suppose that an agent which replays everything
# finds nothing in request 15, and goes on as before: did something at its beginning change?

# %% id="twins"
# An agent whose tools say little:
short = run_agent(scripted(30, **SIZES | {"result": 20}), ReplayAll(), limit=16_000)
print("B, and an agent without handles:", list(short.ledger) == list(runs["externalise"].ledger))


class Restarted(ReplayAll):
    def window(self, kept, new, limit):
        front, *rest = super().window(kept, new, limit)
        if new[0].step == 14:
            front = Part("system", (1, *front.tokens[1:]))
        return [front, *rest]


changed = list(run_agent(task, Restarted(), limit=32_000).ledger)
pause = list(replay.ledger)
pause[14] = TurnCount(pause[14].prompt_tokens, 0, 100)  # request 15
print("a changed beginning, and a coffee break:", changed == pause)
assert list(short.ledger) == list(runs["externalise"].ledger) and changed == pause

# %% [markdown] id="explain-twins"
# Equal, figure for figure. A break longer than the cache waits looks like a changed first token, and tools that say little look like
# tools whose results are kept elsewhere.

# %% [markdown] id="can-cannot"
# | from usage per request you can tell | and you cannot |
# |---|---|
# | occupancy, and when something left the window | what it was, and whether it is kept elsewhere |
# | where at the earliest a prefix broke, or that none did | whether text changed, or the cache forgot |
# | how much came in each step | how much of that is a tool's, a user's or the platform's |
# | what this agent cost | what requests cost that are not in the log: summaries, sub-agents, retries |
# | from totals alone: an average | nearly nothing of the above |

# %% [markdown] id="platform-note"
# So "this platform summarises", "that one has a memory", "the other one caches badly" are guesses until per-request figures, or the requests
# themselves, are on the table. The same prompts in another order, or after a pause, are a cheap experiment. Lesson 13 shows how to find the first
# difference where you do have the requests.

# %% [markdown] id="monday"
# ## Monday
#
# Start with figures of your own: three per request, from the usage field of each answer. Providers name them differently, and some count cached
# tokens within the prompt, others beside it; opencode (4416) added them twice and compacted far too early. `usage_of` knows the names.

# %% id="own-log"
import json

from kvcourse.providers import usage_of

mine = """
{"prompt_tokens": 5200, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens": 310}
{"prompt_tokens": 9100, "prompt_tokens_details": {"cached_tokens": 5120}, "completion_tokens": 150}
{"prompt_tokens": 9900, "prompt_tokens_details": {"cached_tokens": 1024}, "completion_tokens": 200}
"""  # yours
book = Ledger(128_000)
for line in mine.split("\n")[1:-1]:
    seen = usage_of("openai", json.loads(line))
    book.record(TurnCount(seen.prompt_tokens, seen.cached_tokens, seen.completion_tokens))
sent, computed = book.totals.prompt_tokens, book.totals.computed_tokens
print(f"window {book.share:.1%} · sent {sent:,} · computed {computed:,}")
print(*(read(a, b) for a, b in pairwise(book)), sep="\n")

# %% [markdown] id="explain-own-log"
# (OpenAI's models before GPT-5.6 find in steps of 128 tokens, so even the second request, which may only have appended, misses from a round number on. The third is the one to
# look at.)

# %% [markdown] id="monday-list"
# 1. Log these three of every request, summaries and sub-agents included.
# 2. Show two gauges. Only the window gets a percentage.
# 3. Append. What has to change goes to the end, never to the front.
# 4. Keep long tool results out before they were ever in: cut them at the tool, or hand out a handle.
# 5. Compact seldom, behind the fixed part; ask for the summary at the end of the warm window.
# 6. Judge a policy by the bill *and* by whether the task is still solved.

# %% [markdown] id="closing"
# ## What to keep
#
# Occupancy is what the window holds now and can be full; cumulative tokens are the area under it and grow with the square of the steps. A prefix
# cache turns that square into a cheap column as long as the agent only appends. What a policy costs is decided by where it changes the window, and
# how often: sending less can cost three times as much.

# %% id="measured" tags=["volatile"]
from kvcourse import PreallocatedCache, prefill, timed

prompt = flat(run_agent(logs, ReplayAll(), limit=1000).windows[4])
cases = {"appended": len(prompt) - 64, "summary behind the fixed part": fixed}
cases |= {"summary first, or a pause": 0}
print(f"a request of {len(prompt)} tokens on this machine\n")
print(f"{'after':32}{'computed':>9}   first token after")
for name, known in cases.items():
    cache = PreallocatedCache(len(prompt))
    if known:
        prefill(smollm2, prompt[:known], cache)

    def request(cache=cache, known=known):
        prefill(smollm2, prompt[known:], cache)
        cache.truncate(known)

    took = timed(request, runs=3)
    first = f"{took.median_s * 1e3:11.0f} ms ({took.min_s * 1e3:.0f} to {took.max_s * 1e3:.0f})"
    print(f"{name:32}{len(prompt) - known:9}{first}")
print(f"\nmedian of 3 runs, fastest and slowest; {took.device}")

# %% [markdown] id="next"
# **Your turn:** exercise 12, `12_context_budget.ipynb` in your `work/` folder: the ledger, a forecast, and two ways to make room.
#
# An agent that only appends can still miss, because of a clock in its system prompt, tools in another order, a template. Its log shows
# it: figures that say *nothing found from token 9 on*. **Next:** how do I stop paying for misses? Lesson 13 finds the line that did it.
