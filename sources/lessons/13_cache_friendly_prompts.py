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
# # 13 · How do I stop paying for misses?
#
# **You need** to know what a prefix cache finds (lesson 10), why a new turn is not automatically a hit (11), and what is in an agent's
# window (12). About 45 minutes, half of it yours.
#
# **At the end** you can look at a log of requests, say why they miss and what it costs, lay the prompt out so that they hit, and read a
# provider's rules and its bill.

# %% id="imports"
import random

import torch

from kvcourse import generate, load_model
from kvcourse.common_prefix import common_length
from kvcourse.prefix.cache import RadixPrefixCache
from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.layout import lint_requests
from kvcourse.providers import Logged, replay_requests, rules_of, usage_of
from kvcourse.viz import layout_editor
from kvcourse.viz.layout_picture import plot_layouts, requests_of, toggled

_ = torch.set_grad_enabled(False)  # nothing is trained here

smollm2 = load_model("smollm2")
tok = smollm2.tokenizer

# %% [markdown] id="ask"
# ## The same words, in another order
#
# Lesson 12 decided what is in the window. Now the window is given, and the question is in which order it stands.
#
# A toy: each letter is a token. Three requests, each with rules (RRRR), tools (TTT), a clock (a digit) and a question (a small letter). The
# clock stands in front, between rules and tools, or at the end. How many of the 27 tokens does a prefix cache find?

# %% id="guess-toy"
guess = {"in front": None, "in the middle": None, "at the end": None}


# %% id="toy"
def found(requests):
    """How many tokens of each request an earlier one begins with. One token is always computed."""
    known, hits = [], []
    for request in requests:
        shared = max((common_length(one, request) for one in known), default=0)
        hits.append(min(shared, len(request) - 1))
        known.append(request)
    return hits


orders = {
    "in front": ["0RRRRTTTa", "1RRRRTTTb", "2RRRRTTTc"],
    "in the middle": ["RRRR0TTTa", "RRRR1TTTb", "RRRR2TTTc"],
    "at the end": ["RRRRTTTa0", "RRRRTTTb1", "RRRRTTTc2"],
}
for where, requests in orders.items():
    print(f"{where:14} {found(requests)}, together {sum(found(requests))}")

# %% [markdown] id="explain-toy"
# One token of 9 decides about the other 8. A token misses not for what it is, but for what stands *in front* of it. That is lesson
# 10's rule read the other way: K and V of a token depend on all that came before it.
#
# The package counts the same from ids; we hold ours against it and use that one.

# %% id="same-as-package"
for requests in orders.values():
    replayed = replay_requests([[ord(letter) for letter in one] for one in requests], "local")
    assert [one.cached_tokens for one in replayed.counts] == found(requests)
print("the same counts")

# %% [markdown] id="desk"
# ## A help desk
#
# Now real text. A bookshop answers questions, with a system part, a conversation that grows by a turn, and somebody had a good idea: the
# model should know what time it is.

# %% id="desk-texts"
RULES = """You answer customers of Marlow Books, a shop in Lisbon.
Be friendly and brief, and never promise a date that is not in an order.
If a customer is angry, offer to have somebody call back.
Prices are in euros, with tax. Never guess a price."""

SAID = [
    ("Do you have Middlemarch?", "Yes, two copies: one new, one second-hand."),
    ("What is the new one?", "A paperback of 2003, for 12.50."),
    ("Can you put it aside?", "Gladly. For which name?"),
    ("Ada Marsh, until Friday.", "It is at the counter for Ada Marsh, until Friday evening."),
    ("Thank you!", "You are welcome."),
]


# %% id="desk-log"
def turns(k, asked=lambda j, question: question):
    """The conversation up to its k-th question, counted from 0."""
    messages = []
    for j, (question, answer) in enumerate(SAID[: k + 1]):
        messages.append({"role": "user", "content": asked(j, question)})
        messages.append({"role": "assistant", "content": answer})
    return messages[:-1]


def conversation(system, asked=lambda j, question: question, **more):
    """The five requests of one conversation, as a client would log them."""
    log = []
    for k in range(5):
        messages = [{"role": "system", "content": system(k)}, *turns(k, asked)]
        log.append({"messages": messages, **{name: make(k) for name, make in more.items()}})
    return log


plain = conversation(lambda k: RULES)
clocked = conversation(lambda k: f"It is 2026-03-02 10:0{k}:12. {RULES}")
print(clocked[1]["messages"][0]["content"][:60], "...")

# %% [markdown] id="ask-clock"
# The clock costs 23 tokens a request: 824 prompt tokens in five requests, where the plain log has 709. Of those 709, a prefix cache finds
# 510. How many of the 824?

# %% id="guess-clock"
guess = None

# %% id="judged"
logs = {}


def send(log):
    """Send a log to SmolLM2 with a radix prefix cache, empty at first. What the model counts."""
    pc = RadixPrefixCache(smollm2, max_bytes=2**28)
    ids = [render(body_of(body), tok).ids for body in log]
    return [generate(smollm2, one, max_new_tokens=1, prefix_cache=pc).usage for one in ids]


def judged(name, log):
    """Lint a log, send it to the model, and compare what both count."""
    report, usages = lint_requests(log, tok), send(log)
    # Token for token
    assert [one.cached_tokens for one in report.counts] == [one.cached_tokens for one in usages]
    total, hits = sum(one.prompt_tokens for one in usages), sum(one.cached_tokens for one in usages)
    logs[name] = log, total - hits
    cause = report.groups[0].cause.replace("_", " ")
    print(f"{name:26} prompt {total:5}  found {hits:5}  computed {total - hits:5}  {cause}")
    return report


judged("plain", plain)
report = judged("clock in front", clocked)

# %% [markdown] id="explain-clock"
# 84: the 21 tokens in front of the last digit of the minute, four times. `judged` did two things. The **linter** read the log and predicted;
# SmolLM2 ran it and counted. The assertion in between held the one against the other, request by request. It stands in every comparison
# of this lesson.
#
# What does the linter say?

# %% id="clock-report"
print(report)

# %% [markdown] id="explain-report"
# It groups requests that share a start, *or would*. It finds the first text that keeps them apart, gives it a name, writes the request as
# it would be without it, and looks whether more is shared then. That is the proof of the name, and the number of tokens lost.

# %% [markdown] id="ask-places"
# It proposes to move the clock to the end, or to round it. You have four ways out:
#
# - round it to the day, and leave it where it is;
# - behind the last question, and take it away when the next one comes;
# - behind the last question, and leave it there;
# - leave it out.
#
# Which one computes most, which least?

# %% id="guess-places"
guess = {"most": None, "least": None}


# %% id="places"
def stamp(j, question):
    return f"{question}\n[2026-03-02 10:0{j}:12]"


def replaced(k, body):
    """The same request, its last question with a clock."""
    return {"messages": [*body["messages"][:-1], {"role": "user", "content": stamp(k, SAID[k][0])}]}


gone_later = [replaced(k, body) for k, body in enumerate(plain)]
judged("rounded to the day", conversation(lambda k: f"It is 2026-03-02. {RULES}"))
judged("behind, gone later", gone_later)
judged("behind, left there", conversation(lambda k: RULES, stamp))
_ = judged("left out", plain)

# %% [markdown] id="explain-places"
# Each is far from the 740 of a clock in front. A clock that is taken away later was computed for one request, and all that
# stood behind it is computed again. One that is left there costs its own tokens once, and stays in the window. A tool that tells
# the time adds its definition once, in front, and a call only when the time is asked for. Text that has been sent is sent: **append,
# never edit**.

# %% [markdown] id="four-more"
# ## Four more ways to miss
#
# All of these come from public bug reports. Nobody writes "change the prompt each time"; it comes in with a library, a dictionary, a
# helpful default.
#
# **An id.** Somebody wants to find a request again in the provider's logs, and puts a fresh UUID on top.

# %% id="id"
import uuid

rng = random.Random(1)
names = [uuid.UUID(int=rng.getrandbits(128), version=4) for _ in range(5)]
report = judged("id in front", conversation(lambda k: f"Request {names[k]}\n{RULES}"))
judged("id in a header", plain)
first = report.groups[0].first_difference
print(f"line {first.request} against line {first.against}: {first.ours[:36]!r}")
assert report.groups[0].cause == "id" and len(report.faults) == 1

# %% [markdown] id="explain-id"
# An id is for the envelope: an HTTP header, or the metadata field that most APIs have. The model has no use for it.

# %% [markdown] id="tools-text"
# **The order of tools.** They were collected in a `set`, or come from several servers that answer as they like. Providers put tools in
# front of everything (and so does the linter, where a template has no place for them). Four tools, 1,759 prompt tokens in five requests: how
# many are found?


# %% id="guess-tools"
guess = None


# %% id="tools"
def tool(name, what, argument):
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}}
    function = {"name": name, "description": what, "parameters": parameters}
    return {"type": "function", "function": function}


OFFERED = [
    tool("find_book", "Look a title up in the stock.", "title"),
    tool("find_order", "Look an order up by its number.", "number"),
    tool("reserve", "Put a book aside.", "title"),
    tool("call_back", "Ask a colleague to call.", "phone"),
]


def as_they_come(k):
    return random.Random(k).sample(OFFERED, len(OFFERED))


def by_name(k):
    return sorted(as_they_come(k), key=lambda one: one["function"]["name"])


# %% id="tools-judged"
report = judged("tools as they come", conversation(lambda k: RULES, tools=as_they_come))
judged("tools by name", conversation(lambda k: RULES, tools=by_name))
assert report.groups[0].cause == "tool_order" and report.groups[0].tokens_lost == 934

# %% [markdown] id="explain-tools"
# Sort, always. A tool that comes or goes in the middle of a conversation is another matter: everything behind it is computed anew, however
# tidy the list. Offer the same tools throughout, and refuse a call that makes no sense at the moment.

# %% [markdown] id="retrieval-text"
# **The order of documents.** A search engine finds what the model should read. It sorts by score, and the score depends on the question.
# First all five documents in the system part, the best one in front.

# %% id="retrieval"
SHELF = {
    "gifts": "Vouchers are valid for three years and are never paid out.",
    "holds": "A book is put aside for a week, and then goes back to the shelf.",
    "hours": "The shop is open from ten to seven, on Sundays from noon.",
    "post": "Parcels within the country take two days and cost four euros.",
    "returns": "A book may be returned within thirty days if it is as new.",
}


def searched(k, n_documents=5):
    """Names of documents, the best for question k in front."""
    return random.Random(k).sample(sorted(SHELF), n_documents)


def with_documents(names):
    return "\n\n".join([RULES, *(SHELF[name] for name in names)])


# %% id="retrieval-judged"
report = judged("five documents by score", conversation(lambda k: with_documents(searched(k))))
judged("five documents by name", conversation(lambda k: with_documents(sorted(searched(k)))))
assert report.groups[0].cause == "retrieval_order"

# %% [markdown] id="ask-some"
# That was kind: it is the same five each time. Now each question brings its own two. Three layouts: in the system part by score, in the
# system part by name, or in front of the question that they belong to, and left there. The third prompt is longer, since old documents
# stay. Which one computes least?

# %% id="guess-some"
guess = None


# %% id="some"
def beside(j, question):
    return "\n\n".join([*(SHELF[name] for name in searched(j, 2)), question])


judged("two by score, in front", conversation(lambda k: with_documents(searched(k, 2))))
judged("two by name, in front", conversation(lambda k: with_documents(sorted(searched(k, 2)))))
_ = judged("two with their question", conversation(lambda k: RULES, beside))

# %% [markdown] id="explain-some"
# A prompt with more tokens, and fewer of them computed. Sorting helps where sets are the same from their start; here they are not. What
# belongs to one turn goes where that turn is. The price is the window: lesson 12's ledger says when old documents have to go.
#
# (The linter says `template`: to it, this is a system part that is another one each time. That its paragraphs came from a search is not
# written anywhere in the log.)

# %% [markdown] id="template-text"
# **Template drift.** Two versions of the program run side by side, and one of them says a sentence more. A conversation lands on either, in
# turn. What do you expect: no hits at all, or half of them?

# %% id="guess-template"
guess = None

# %% id="template"
drift = conversation(lambda k: RULES + "\nAnswer in English." * (k % 2))
report = judged("two versions", drift)
judged("one version", plain)
print("request by request:", *(one.cached_tokens for one in report.counts))
assert report.groups[0].cause == "template"

# %% [markdown] id="explain-template"
# Neither. Each version keeps its own prefix, so a request finds what the version's *last* request left, two turns ago: a turn is computed
# once for each version. Ten machines that each have their own version of a library compute it up to ten times. Render in one place,
# and test it: `check_template` (lesson 11).

# %% [markdown] id="change-template"
# **Change one thing.** Let three versions take turns (`k % 3`), then put the extra sentence in front of `RULES`. Which of the two costs more?

# %% [markdown] id="checked"
# In all of these logs, what the linter predicted is what the cache reused, token for token. That is no accident: a cache that
# counts in single tokens, and takes a prefix of any length, obeys one rule. Hosted caches obey a few more, and we come to
# those.

# %% id="checked-count"
print(f"{5 * len(logs)} predictions, all of them equal to what was counted")

# %% [markdown] id="rule"
# ## The rule
#
# | | part | changes | so it goes |
# |---|---|---|---|
# | = | tools, system part, examples, fixed documents | with a release | in front |
# | + | the conversation | grows at its end | behind that, and is never edited |
# | ≠ | clock, retrieved documents, the question | with each request | at the end |
#
# Of two fixed parts, the one that more requests share goes first: all tenants' in front of one tenant's.

# %% [markdown] id="editor"
# ### The layout editor
#
# Choose a part in the list (click, or arrow keys), move it with *up* and *down*, mark it as fixed or as changing, and watch
# hits and bill (in dollars, at 3.00 for a million input tokens). It opens with the rules of OpenAI's GPT-4o, in steps of 128
# tokens; under *local* every token counts. Before you move the clock: which single place costs least, and does it matter whether it stands
# in front of the question or behind it?

# %% id="layout-editor" tags=["volatile"]
layout_editor()

# %% [markdown] id="explain-editor"
# Things to try: documents behind the history (fixed, and still not found: the history grows in front of them). The clock behind the
# question (the question then is found again in the next request's history). And a history marked as changing, which is what a window that
# crops its oldest turn is.

# %% id="editor-counts"
from kvcourse.viz.layout_picture import CLOCK, DOCUMENTS, HISTORY, QUESTION, SYSTEM, TOOLS

orders = {
    "clock in front": (CLOCK, TOOLS, SYSTEM, DOCUMENTS, HISTORY, QUESTION),
    "documents behind the history": (TOOLS, SYSTEM, HISTORY, DOCUMENTS, CLOCK, QUESTION),
    "fixed, growing, changing": (TOOLS, SYSTEM, DOCUMENTS, HISTORY, CLOCK, QUESTION),
    "and the question first": (TOOLS, SYSTEM, DOCUMENTS, HISTORY, QUESTION, CLOCK),
}
for name, parts in orders.items():
    counts = replay_requests(requests_of(parts), "local").counts
    print(f"{name:30}", *(f"{one.cached_tokens:6}" for one in counts))
    assert counts[-1].prompt_tokens == 2910

# %% [markdown] id="providers"
# ## Whose cache?
#
# A **provider prompt cache** is a hosted API's prefix cache. You see it through usage fields and prices only. Its rules are data in this
# course, a small file a provider, with sources and dates. They move: look the day up, and the note.

# %% id="rules"
print(f"{'':20}      as of  minimum  step  lifetime   read  write  found by")
names = "local openai openai:tenth openai:breakpoints anthropic anthropic:1h gemini gemini:4096"
for name in [*names.split(), "deepseek"]:
    r = rules_of(name)
    minutes = "-" if r.lifetime_seconds is None else f"{r.lifetime_seconds / 60:,.0f} min"
    steps = f"{r.minimum_tokens:9,}{r.granularity_tokens:6}{minutes:>10}"
    how = r.matching.replace("_", " ")
    print(f"{name:20}{r.as_of!s:>11}{steps}{r.read:7}{r.write:7}  {how}")

# %% [markdown] id="explain-rules"
# **Minimum**: a shorter prefix is not kept, and no error says so. **Step** (granularity): hits are counted in whole ones.
# **Lifetime**: without use, at Gemini since it was made; a dash: none is stated. **Read** and **write** are factors of the
# price of an input token. And two families: found is the *longest prefix* of any earlier request, or only what ended at a
# **breakpoint**, a mark in the request.

# %% [markdown] id="explain-variants"
# What stands behind a colon is a variant of the rules, for other models or settings. `openai` alone is GPT-4o's; `openai:tenth` is
# GPT-5's; from GPT-5.6 on it is `openai:breakpoints`.

# %% [markdown] id="change-rules"
# **Change one thing.** Print `rules_of("openai").note` and its `sources`: which of the figures does the note take back for some model? A
# provider that is missing is one more file like `kvcourse/providers/openai.toml`.

# %% [markdown] id="ask-money"
# The five requests of the editor, a thousand such conversations, at 3.00 dollars for a million input tokens (without a cache
# that is 38.25). One column a set of rules, one row a layout. In which columns does the order matter most? In which cells does
# a cache cost more than none?

# %% id="guess-money"
guess = {"matters most": None, "more than none": None}

# %% id="money"
layouts = {
    "clock in front": orders["clock in front"],
    "tools as they come": (toggled(TOOLS), SYSTEM, DOCUMENTS, HISTORY, CLOCK, QUESTION),
    "documents by score": (TOOLS, SYSTEM, toggled(DOCUMENTS), HISTORY, CLOCK, QUESTION),
    "history cropped": (TOOLS, SYSTEM, DOCUMENTS, toggled(HISTORY), CLOCK, QUESTION),
    "fixed, growing, changing": orders["fixed, growing, changing"],
}
columns = ("openai:breakpoints", "openai:tenth", "openai", "anthropic")
columns += ("gemini", "gemini:4096", "deepseek")
for line in (0, 1):  # the provider, and under it the variant
    print(f"{'':26}" + "".join(f"{[*name.split(':'), ''][line]:>11}" for name in columns))
for layout, parts in layouts.items():
    bills = [replay_requests(requests_of(parts), name).cost * 3.0 / 1000 for name in columns]
    print(f"{layout:26}" + "".join(f"{bill:11.2f}" for bill in bills))

# %% [markdown] id="explain-money"
# One base price for all, so that only rules differ; the real ones are far apart. Where writing costs 1.25 and nothing is read, a cache is a
# surcharge; the span from first row to last is widest there. In Gemini's third row the fixed tokens in front, 1,200, are below its minimum.
# And with a minimum of 4,096 none of these prompts is cached, in whatever order.

# %% [markdown] id="explain-columns"
# (In columns with breakpoints, marks stand behind the fixed parts in front, behind the history and at the end. DeepSeek's step is
# of 2024; see its note.)

# %% id="money-figure"
two = {name: layouts[name] for name in ("documents by score", "fixed, growing, changing")}
plot_layouts(two, "anthropic", base_price=3.0)

# %% [markdown] id="minimum"
# ### Why the rules change the best layout
#
# **The minimum.** A prompt of 900 fixed tokens and a question of 60 is sent a hundred times, at a provider with a minimum of 1,024. A
# colleague proposes 150 tokens of examples, fixed as well. Input is billed by the token. What happens to the bill?

# %% id="guess-minimum"
guess = None


# %% id="minimum-counts"
def asked_often(n_fixed, n=100, n_question=60):
    """The same fixed tokens, and each time another question."""
    starts = range(5000, 5000 + 100 * n, 100)
    return [[*range(n_fixed), *range(start, start + n_question)] for start in starts]


for n_fixed in (900, 1050):
    replayed = replay_requests(asked_often(n_fixed), "openai:tenth")
    rate, sent = replayed.hit_rate, replayed.prompt_tokens
    print(f"{n_fixed} fixed: {sent:7,} sent, hit rate {rate:4.0%}, billed as {replayed.cost:7,.0f}")
assert replayed.cost < 96_000 / 4

# %% [markdown] id="explain-minimum"
# A sixth more text, a fifth of the bill. So below a minimum, what is fixed should be *gathered*: examples and documents that were spread
# over several calls, in front, in one prompt. Above it every token counts as before.
#
# **The step.** With 128, a fixed part of 1,279 tokens gives as much as one of 1,152.

# %% id="step"
rules = {name: rules_of(name) for name in ("local", "openai", "deepseek")}
for n_tokens in (1023, 1024, 1151, 1152, 1279, 1280):
    print(n_tokens, {name: one.reusable(n_tokens) for name, one in rules.items()})

# %% [markdown] id="ask-marks"
# **Breakpoints.** OpenAI from GPT-5.6 on, and Anthropic if asked to, mark the newest message on their own, and let you add marks. A
# fixed part of 2,000 tokens, and ten different questions about it. How many of them hit, with the automatic mark alone? And with
# one behind the fixed part? And under GPT-5's rules, which know no marks?

# %% id="guess-marks"
guess = {"newest message": None, "fixed part, too": None, "GPT-5": None}

# %% id="marks"
questions = asked_often(2000, n=10)
# ends: where a content block of the request (here: fixed part, question) ends;
# marks: which of these are breakpoints
for name in ("openai:tenth", "openai:breakpoints", "anthropic"):
    for where, marks in {"newest message": (2060,), "fixed part, too": (2000, 2060)}.items():
        sent = [Logged(ids, 60.0 * k, (2000, 2060), marks) for k, ids in enumerate(questions)]
        replayed = replay_requests(sent, name)
        hits = sum(one.cached_tokens > 0 for one in replayed.counts)
        paid, whole = replayed.cost, replayed.cost_without_cache
        print(f"{name:19} {where:16} {hits} of 10 hit, billed as {paid:6,.0f} of {whole:6,.0f}")

# %% [markdown] id="explain-marks"
# None, though all ten begin with the same 2,000 tokens: what was stored ended with another question. A mark says *where to store*; a later
# request finds what ends at one of its own marks, or a few blocks in front of one. A chat that only grows needs no more than the
# automatic mark; many questions about one text do. The log that hits nine times at GPT-5 never hits at GPT-5.6, and costs a quarter
# more than without a cache, until somebody adds the mark.

# %% [markdown] id="lookback-text"
# "A few" is the **look-back**: 20 content blocks at Anthropic. An agent whose step has twelve tool calls adds 24 blocks, a call and a result
# each. Marks at the end only:


# %% id="lookback"
def steps(n_blocks, between=()):
    """Four requests of an agent that grows by so many blocks of 100 tokens a step."""
    for k in range(1, 5):
        ends = tuple(range(2000, 2000 + 100 * n_blocks * k + 1, 100))
        extra = {ends[-1] - 100 * back for back in between}
        yield Logged(range(ends[-1]), 60.0 * k, ends, tuple(sorted({ends[-1], *extra})))


for n_blocks, between in ((12, ()), (24, ()), (24, (12,))):
    counts = replay_requests(steps(n_blocks, between), "anthropic").counts
    found_of = (f"{one.cached_tokens:6,} of {one.prompt_tokens:6,}" for one in counts)
    print(f"{n_blocks} blocks a step, {1 + len(between)} marks:", *found_of)

# %% [markdown] id="explain-lookback"
# The text is the same, the order is the same, and nothing is found. The second mark, 12 blocks in front of the end, has the end of the last
# request within its reach. Four marks are allowed: tools, system part, one on the way, the end.

# %% [markdown] id="ask-lifetime"
# **The lifetime.** Someone asks ten questions about 2,000 fixed tokens, every so many minutes. Five minutes of lifetime (a write costs
# 1.25), or an hour (2.0)? Each use starts the time again. From which interval on is the hour cheaper? And when should there be no mark?

# %% id="guess-lifetime"
guess = {"an hour from": None, "none from": None}

# %% id="lifetime"
print("every      none    5 min   1 hour")
for minutes in (1, 4, 6, 30, 59, 90):
    times = [60.0 * minutes * k for k in range(10)]
    log = [Logged(*one, (2000, 2060), (2000,)) for one in zip(questions, times, strict=True)]
    bills = [replay_requests(log, name).cost for name in ("anthropic", "anthropic:1h")]
    print(f"{minutes:3} min {20_600:8,}" + "".join(f"{bill:9,.0f}" for bill in bills))

# %% [markdown] id="explain-lifetime"
# Between 5 and 60 minutes the hour wins; beyond it every write is thrown away, and without a mark it is cheapest. So with breakpoints a
# layout has one more column: *how long is it the same, and how soon is it asked again*. Where both can be mixed, the long-lived marks stand
# in front.

# %% [markdown] id="usage-text"
# ## What did it really find?
#
# All this is what the rules allow. What was found stands in the answer's **usage**. One request of 2,600 tokens, 2,000 of them read from
# the cache, 400 written, in three formats. What is each one's hit rate, if you divide the cached figure by the prompt figure?

# %% id="guess-usage"
guess = {"openai": None, "anthropic": None, "deepseek": None}

# %% id="usage"
details = {"cached_tokens": 2000, "cache_write_tokens": 400}
openai = {"input_tokens": 2600, "input_tokens_details": details}
anthropic = {"input_tokens": 200, "cache_read_input_tokens": 2000}
anthropic |= {"cache_creation_input_tokens": 400}
deepseek = {"prompt_tokens": 2600, "prompt_cache_hit_tokens": 2000}
deepseek |= {"prompt_cache_miss_tokens": 600}
answers = {"openai": openai, "anthropic": anthropic, "deepseek": deepseek}

for name, usage in answers.items():
    prompt, counts = next(iter(usage.values())), usage_of(name, usage)
    read = f"{counts.cached_tokens:,} of {counts.prompt_tokens:,}, {counts.written_tokens} written"
    print(f"{name:10} 2,000 / {prompt:5,} = {2000 / prompt:5.0%}   in truth: {read}")
    assert (counts.prompt_tokens, counts.cached_tokens) == (2600, 2000)

# %% [markdown] id="explain-usage"
# **Included**: OpenAI's, Gemini's and DeepSeek's prompt figure is the whole prompt, and the cached one a part of it. Adding the two counts it
# twice. **Excluded**: Anthropic's `input_tokens` is what was neither read nor written, and the prompt is the sum of three. A hit rate of
# 1,000% in a dashboard, or a prompt that seems to have shrunk, is this mistake.

# %% id="usage-bill"
for name, usage in answers.items():
    counts = usage_of(name, usage)
    rules = rules_of("openai:breakpoints" if name == "openai" else name)
    cost = rules.input_cost(counts.prompt_tokens, counts.cached_tokens, counts.written_tokens)
    print(f"{name:10} billed as {cost:7,.1f} of 2,600 tokens")

# %% [markdown] id="summaries-text"
# ## Summaries that keep the prefix warm
#
# Lesson 12 asked for a summary at the end of the warm window. Here are the two requests as a client writes them: one of its
# own, with a system part that says "You summarise conversations", and one more turn of the conversation. The five requests of
# the desk were sent. How many tokens of each are found?

# %% id="guess-summaries"
guess = {"a request of its own": None, "one more turn": None}

# %% id="summaries"
whole = [*plain[-1]["messages"], {"role": "assistant", "content": SAID[-1][1]}]
transcript = "\n".join(f"{one['role']}: {one['content']}" for one in whole)
own = [{"role": "system", "content": "You summarise conversations."}]
own += [{"role": "user", "content": transcript}]
more = [*whole, {"role": "user", "content": "Summarise this conversation in two sentences."}]
for name, messages in {"a request of its own": own, "one more turn": more}.items():
    count = lint_requests([*plain, {"messages": messages}], tok).counts[-1]
    print(f"{name:22} {count.prompt_tokens} prompt tokens, {count.cached_tokens} found")
assert count.cached_tokens > 0.8 * count.prompt_tokens

# %% [markdown] id="explain-summaries"
# The summary is written from rows that are there already. (Send the same tools and settings with it, or it begins with another
# prefix, and say that no tool is to be called.) What comes then is a new prefix: fixed part, summary, the last turns.
# That is one miss behind the fixed part, and it is paid once, if the summary is left alone afterwards. A summary that is
# rewritten at each turn is a clock, wherever it stands:


# %% id="summaries-twice"
def after_summary(where):
    """Three turns that follow a summary, which is written anew each time, or once."""
    for k in range(3):
        asked = 3 + k if where != "once" else 3
        summary = f"So far: the customer asked {asked} questions about one book."
        system = f"{summary}\n{RULES}" if where == "in front" else f"{RULES}\n{summary}"
        yield {"messages": [{"role": "system", "content": system}, *turns(k)]}


for where in ("in front", "behind, each turn", "once"):
    counts = lint_requests(after_summary(where), tok).counts
    print(f"{where:20}", *(f"{one.cached_tokens:4} of {one.prompt_tokens}" for one in counts))

# %% [markdown] id="cannot"
# ## What no layout mends
#
# Three customers ask about three books, and a translator sends a page at a time. What will the linter say?


# %% id="cannot-judged"
def page(n):
    drawn = [random.Random(10 * n + k).sample(sorted(SHELF), 3) for k in range(4)]
    return " ".join(f"Page {n}, sentence {k}: {words}." for k, words in enumerate(drawn))


def wanted(title):
    question = {"role": "user", "content": f"Do you have {title}?"}
    return {"messages": [{"role": "system", "content": RULES}, question]}


honest = [{"messages": [{"role": "user", "content": page(n)}]} for n in range(3)]
honest += [wanted(title) for title in ("Emma", "Dracula", "Persuasion")]
report = lint_requests(honest, tok)
print(report)
assert report.faults == []

# %% [markdown] id="explain-cannot"
# Nothing, as it should: they say different things. Nor does an order help with
#
# - the first request of its kind, and the first after each release, each pause longer than a lifetime, each change of model;
# - a system part that is *all* about one user (a name alone goes behind what is everybody's);
# - a prompt below the minimum that has nothing to be gathered with;
# - output, which is most of some bills.
#
# A linter that cries in these cases would be switched off within a week.

# %% [markdown] id="command-line"
# ## On your own log
#
# One request body a line, as your client sends it, OpenAI's form or Anthropic's; beside it, if you have them, time and usage. The clocked
# conversation, with what the provider said about it:

# %% id="write-log"
import json
import subprocess
import sys
import tempfile
from pathlib import Path

folder = tempfile.TemporaryDirectory()
log = Path(folder.name) / "desk.jsonl"
long_rules = conversation(lambda k: f"It is 2026-03-02 10:0{k}:12. " + 20 * f"{RULES}\n")
with log.open("w") as file:
    for k, body in enumerate(long_rules):
        usage = {"prompt_tokens": 1430 + 30 * k, "prompt_tokens_details": {"cached_tokens": 0}}
        line = {"timestamp": f"2026-03-02T10:0{k}:12Z", "request": body, "usage": usage}
        print(json.dumps(line), file=file)


# %% id="lint"
def kvcourse(*words):
    """What you would type into a terminal."""
    command = [sys.executable, "-m", "kvcourse", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.name)
    print(f"$ kvcourse {' '.join(words)}\n{done.stdout}{done.stderr}", end="")
    print(f"[exit status {done.returncode}]")
    return done


options = "--provider openai:tenth --price 3 --html desk.html --exit-code"
done = kvcourse("lint", log.name, *options.split())
assert done.returncode == 1  # there is something to mend

# %% [markdown] id="explain-lint"
# No model was loaded: without `--model` a token is four characters. `--json` prints one object, for a dashboard. With `--exit-code` it can
# stand in a test suite: record the requests of your own end-to-end tests, and fail when somebody puts a clock in front. `desk.html` is the
# same as a page that needs nothing else, to be sent around:

# %% id="lint-page"
import re
import textwrap

text = (Path(folder.name) / "desk.html").read_text(encoding="utf-8")
print(f"{len(text):,} characters of HTML")
for part in re.findall(r"<h2>(.*?)</h2>|<mark>(.*?)</mark>|<ol>(.*?)</ol>", text):
    shown = "· " + re.sub(r"<[^>]+>", " ", "".join(part)).strip()
    print(textwrap.fill(shown, 100, subsequent_indent="  "))
assert "<script" not in text  # a log holds what strangers wrote

# %% [markdown] id="change-lint"
# **Change one thing.** Write a bad line into the log, and ask again with and without `--strict`. Then make `long_rules` with `stamp`, the clock
# behind each question, and see the exit status become 0. `kvcourse lint --help` names the rest.

# %% [markdown] id="checklist"
# ## To take to work
#
# 1. Read the usage of a hundred real answers: hit rate = cached / *whole* prompt. (Is cached included?)
# 2. `kvcourse lint` on a day's log. Mend what costs most; then again.
# 3. Clock, ids, user data: out of the front. Tools and documents: one order.
# 4. One place that renders prompts; bytes compared in a test.
# 5. Append only. Compact rarely, behind the fixed part, by one more turn.

# %% [markdown] id="checklist-rules"
# And for the provider that you have:
#
# 6. Which minimum, step, lifetime and look-back are yours, and of what date is your knowledge?
# 7. Marks where stored text is asked for again, none elsewhere. Long-lived ones in front.
# 8. Requests that share a start are sent close together, and the first one is waited for: what two send at the same time is computed twice.
# 9. An alarm on the hit rate, not on the bill: it moves first.

# %% [markdown] id="closing"
# ## What to keep
#
# A prefix ends at the first difference, so whatever changes goes behind whatever does not. Most misses are not meant: a clock, an id, an
# order, a second template, and each is found by comparing two requests. A provider's rules decide what a hit is worth, so a layout is good
# *for* a minimum, a step, a set of marks and an interval.

# %% id="measured" tags=["volatile"]
from kvcourse import timed

pairs = {
    "clock in front": "left out",
    "tools as they come": "tools by name",
    "two by score, in front": "two with their question",
}
print("SmolLM2 on this machine: five prompts, each until its first token\n")
for pair in pairs.items():
    for name in pair:
        log, computed = logs[name]
        took = timed(lambda log=log: send(log), runs=3, warmup=0)
        spread = f"({took.min_s:.2f} to {took.max_s:.2f})"
        print(f"{name:26} {computed:5} computed {took.median_s:6.2f} s {spread}")
    print()
print(f"median of 3 runs, fastest and slowest; {took.device}")

# %% [markdown] id="next"
# **Your turn:** exercise 13, `13_cache_friendly_prompts.ipynb` in your `work/` folder.
#
# You have built every cache of this course, and learnt to keep them warm from outside. One thing is left: a chat that uses all of them at
# once, and the proof that it still computes the same. **Next:** same logits, or it did not happen.
