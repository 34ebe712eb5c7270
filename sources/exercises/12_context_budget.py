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
# # Exercise 12 · A budget for the window
#
# **You will write** an agent's books: a ledger, a forecast, and two ways to make room in its window, of which one stays warm. About 35
# lines.
#
# **You need** Python and lesson 12, or lesson 06 and the next cells. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** An **agent** asks a model in a loop. At each **step** it sends the window, all that the model is to see;
# the model answers, usually with a call of a tool; call and result stand in the next window. Tokens in the window now are its
# **occupancy**. All that were sent on the way there are **cumulative tokens**.

# %% [markdown] id="recap-cached"
# A KV cache keeps a **row**, K and V, of each token that went through the model. A prompt that begins as an earlier request did finds
# the rows of that beginning: these tokens are **cached**, or warm. The rest of the prompt is **computed**. From the first token that
# differs on, nothing is warm: every row depends on all text in front of it.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("12.1")` gives a hint, and each further call a plainer one. `reset("12.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-ledger"
# ## 12.1 · The ledger
#
# `requests` is what an agent sent and got, in order: pairs `(prompt, answer)`, two lists of ids. The cache holds the rows of the last
# request only: of its prompt, and of its answer but for the last token, which never went through the model.
#
# Return `(turns, totals)`. `turns` has a dict for every request, with five ints:
#
#     {"prompt": 9, "cached": 6, "computed": 3, "completion": 2, "occupancy": 11}

# %% [markdown] id="task-ledger-fields"
# - `prompt` and `completion`: tokens of the prompt, and of the answer.
# - `cached`: prompt tokens whose rows the cache holds. Not the last one, even if it does: the answer begins with its logits.
# - `computed`: the other prompt tokens.
# - `occupancy`: tokens in the window as the request leaves it, the answer with them.

# %% [markdown] id="task-ledger-totals"
# `totals` is a dict with the same five. The first four are those of all requests together. `occupancy` is what the window holds
# now. Before the first request, each of them is 0.

# %% [markdown] id="guess-ledger-text"
# On paper: the prompt `[5, 3, 8]` with the answer `[1, 7]`, then the prompt `[5, 3, 8, 1, 7, 2]` with the answer `[4]`.

# %% id="guess-ledger"
guess = {"cached in the second": None, "computed in the second": None}
guess |= {"prompt, in total": None, "occupancy, in total": None}


# %% id="answer-ledger" exercise="12.1"
def my_ledger(requests):
    """(turns, totals): what each request took, and all of them together, in tokens."""
    ### BEGIN SOLUTION
    turns, held = [], []
    for prompt, answer in requests:
        cached = 0
        while cached < len(prompt) - 1 and held[cached : cached + 1] == [prompt[cached]]:
            cached += 1
        turn = {"prompt": len(prompt), "cached": cached, "computed": len(prompt) - cached}
        turns.append({**turn, "completion": len(answer), "occupancy": len(prompt) + len(answer)})
        held = [*prompt, *answer[:-1]]
    totals = {
        name: sum(turn[name] for turn in turns)
        for name in ("prompt", "cached", "computed", "completion")
    }
    totals["occupancy"] = turns[-1]["occupancy"] if turns else 0
    return turns, totals
    ### END SOLUTION


# %% id="check-ledger" tags=["check"] exercise="12.1"
check("12.1", my_ledger)

# %% [markdown] id="task-forecast"
# ## 12.2 · The square law
#
# An agent that drops nothing. Its first prompt is the fixed part, `fixed` tokens. Each answer has `answer` tokens, each tool result
# `result`; both are in every later prompt. After `n` steps it is done; nobody is told the result of the last step.
#
# Say in advance, as three ints `(occupancy, sent, computed)`, what this will take. A loop is fine, a formula shows more.

# %% [markdown] id="task-forecast-fields"
# - `occupancy`: tokens in the window at the end, the last answer with them.
# - `sent`: tokens of all prompts together.
# - `computed`: those of them that are not cached, when everything stays warm: the cache holds each prompt, and each answer but for its
#   last token.

# %% [markdown] id="guess-forecast-text"
# On paper: a fixed part of 20, answers of 4, results of 9, and 3 steps. Then twice as many steps: which number doubles?

# %% id="guess-forecast"
guess = {"occupancy": None, "sent": None, "computed": None, "grows with the square": None}


# %% id="answer-forecast" exercise="12.2"
def my_forecast(fixed, answer, result, n):
    """(occupancy, sent, computed): tokens in the window after n steps, in all prompts,
    and computed of these."""
    ### BEGIN SOLUTION
    occupancy = fixed + (n - 1) * (answer + result) + answer
    sent = n * fixed + (answer + result) * n * (n - 1) // 2
    computed = fixed + (n - 1) * (1 + result)
    return occupancy, sent, computed
    ### END SOLUTION


# %% id="check-forecast" tags=["check"] exercise="12.2"
check("12.2", my_forecast)

# %% [markdown] id="task-crop"
# ## 12.3 · Crop whole steps
#
# From here on a window is a list of **parts**, each a tuple `(role, step, ids)`:
#
#     [("system", 0, [...]), ("task", 0, [...]), ("assistant", 1, [...]), ("tool", 1, [...]), ("assistant", 2, [...]), ...]
#
# The steps are numbered as they happened; earlier ones may be gone. A step has one answer and one result, or several in turn. Not
# all that the user wants is said at the start: a task can also stand between two steps.

# %% [markdown] id="task-crop-rule"
# Return the parts that may be sent: no more than `limit` tokens, in their order. Where there are more, whole steps go, the oldest
# first, and no step too many. What is `system` or `task` stays. So does the latest step: it is what the model has to go on
# from. If these alone are too large, return `None`.
#
# `parts` itself stays as it is.

# %% [markdown] id="guess-crop-text"
# On paper: a system part of 5, a task of 2, and steps of 10, 14, 10 and 10 tokens, numbered 3 to 6. Which steps are left?

# %% id="guess-crop"
guess = {"limit 51": None, "limit 50": None, "limit 26": None, "limit 16": None}


# %% id="answer-crop" exercise="12.3"
def my_crop(parts, limit):
    """The parts without the oldest steps, so that they have at most limit tokens;
    None where that cannot be."""
    ### BEGIN SOLUTION
    steps = sorted({step for role, step, _ in parts if role not in ("system", "task")})
    while sum(len(ids) for _, _, ids in parts) > limit:
        if len(steps) < 2:
            return None
        oldest = steps.pop(0)
        parts = [part for part in parts if part[0] in ("system", "task") or part[1] != oldest]
    return parts
    ### END SOLUTION


# %% id="check-crop" tags=["check"] exercise="12.3"
check("12.3", my_crop)

# %% [markdown] id="task-compact"
# ## 12.4 · Compact, and stay warm
#
# Once a cropped window is full, every step moves all that stands behind its fixed parts: it has to be computed again, each time. So wait as
# long as there is room, and then make room for many steps at once.
#
# `summarise(parts)` has a model write down what some parts say, and returns ids, a short list of ints. Each call of it costs. Here `system`
# and tasks, the **front**, stand before everything else.

# %% [markdown] id="task-compact-rule"
# With at most `limit` tokens, the parts are returned as they are. With more, three things are: the front; then one part
# `("summary", 0, ids)`; then the latest step, the one with the highest number, all of it. What stood between front and latest step
# is summarised: all of it at once, in its order, an older summary with it. That holds even where the three have more than `limit`.
#
# Where nothing stands between them, the parts are returned as they are. `parts` itself stays as it is.

# %% [markdown] id="guess-compact-text"
# On paper: a front of 9 tokens, steps of 10, a summary of 3, a limit of 40.

# %% id="guess-compact"
guess = {"the first step that is one too many": None, "tokens afterwards": None}
guess |= {"warm ones among them": None}


# %% id="answer-compact" exercise="12.4"
def my_compact(parts, limit, summarise):
    """The parts if they have at most limit tokens;
    otherwise the front, one summary, and the latest step."""
    ### BEGIN SOLUTION
    latest = max(step for _, step, _ in parts)
    front = [part for part in parts if part[0] in ("system", "task")]
    stay = [part for part in parts if part not in front and part[1] == latest]
    going = [part for part in parts if part not in front and part[1] != latest]
    if sum(len(ids) for _, _, ids in parts) <= limit or not going:
        return parts
    return [*front, ("summary", 0, summarise(going)), *stay]
    ### END SOLUTION


# %% id="check-compact" tags=["check"] exercise="12.4"
check("12.4", my_compact)

# %% [markdown] id="together"
# ## An agent on your functions
#
# The agent of lesson 12, here on a model with one cache for the last request. Each of its windows is made by one of your functions. What goes
# through the model is counted, and the logits are compared with those of a fresh computation.

# %% id="ask"
from itertools import pairwise

from kvcourse import load_model
from kvcourse.caches.growing import GrowingCache
from kvcourse.common_prefix import common_length
from kvcourse.context.agent import scripted
from kvcourse.ledger import Ledger, Prices, TurnCount
from kvcourse.meter import Meter


def ask(model, cache, held, prompt, answer):
    """One request; held: the ids whose rows the cache has.
    Returns how many prompt tokens were computed."""
    cache.truncate(min(common_length(held, prompt), len(prompt) - 1))
    # The script says what is answered, so it can go through at once
    new = prompt[cache.length :] + answer[:-1]
    with Meter() as meter:
        logits = model(torch.tensor([new]), cache=cache)[0, -len(answer)]
    off = (logits - model(torch.tensor([prompt]))[0, -1]).abs().max().item()
    assert off < (1e-9 if logits.dtype == torch.float64 else 1e-2), (
        f"The logits are {off:.2g} off a fresh computation's."
    )
    return meter.cost.tokens - len(answer[:-1])


# %% id="run-agent"
def run_agent(model, script, make_room, limit):
    """All steps. Returns the requests, the windows, and how many prompt tokens were computed."""
    requests, windows, computed, held, cache = [], [[]], 0, [], GrowingCache()
    came = [("system", 0, list(script.system)), ("task", 0, list(script.task))]
    for number, step in enumerate(script.steps, start=1):
        parts = make_room([*windows[-1], *came])
        judge(parts, windows[-1], came, limit)
        prompt, answer = [id for _, _, ids in parts for id in ids], list(step.answer)
        computed += ask(model, cache, held, prompt, answer)
        held = prompt + answer[:-1]
        requests.append((prompt, answer))
        windows.append(parts)
        came = [("assistant", number, answer), ("tool", number, list(step.result))]
    return requests, windows[1:], computed


# %% id="judge"
def judge(parts, before, came, limit):
    """A window that a model takes, and that fits."""
    assert parts is not None, (
        "No window was made, though "
        f"{sum(len(ids) for _, _, ids in came)} tokens came and {limit} fit."
    )
    assert parts[:2] == [*before, *came][:2], (
        "The window no longer begins with the system part and the task."
    )
    assert parts[-len(came) :] == came, "The window does not end with what came last."
    for role, step, _ in parts:
        whole = step == 0 or {one[0] for one in parts if one[1] == step} == {"assistant", "tool"}
        assert whole, f"The window has the {role!r} part of step {step}, and not the other one."
    held = sum(len(ids) for _, _, ids in parts)
    assert held <= limit, f"The window takes {limit} tokens, and it was sent {held}."


# %% [markdown] id="proof-text"
# Twelve steps, three ways to make room: none, yours of 12.3, yours of 12.4. The window takes 84 tokens, 4 of them for the answer. Your
# ledger is held against what the model computed, and against the package's own; your forecast against the ledger.

# %% id="ways"
tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
script = scripted(12, system=12, task=6, answer=4, result=9, vocab_size=148)


def short(parts):
    # Three ids for all that goes
    return [len(parts), sum(sum(ids) for _, _, ids in parts) % 148, 147]


ways = {
    "replay all": (lambda parts: parts, 200),
    "crop": (lambda parts: my_crop(parts, 80), 84),
    "compact": (lambda parts: my_compact(parts, 80, short), 84),
}

# %% id="your-proof" tags=["check"]
with in_short():  # an error in here is told in a line
    done = {name: run_agent(tiny, script, *way) for name, way in ways.items()}
    for name, (requests, _, computed) in done.items():
        turns, totals = my_ledger(requests)
        counts = [TurnCount(one["prompt"], one["cached"], one["completion"]) for one in turns]
        package = Ledger(ways[name][1], counts)
        assert totals["computed"] == computed, (
            f"{name}: {computed} were computed, and your ledger says {totals['computed']}."
        )
        for field in ("prompt", "cached", "computed", "completion"):
            right = getattr(package.totals, f"{field}_tokens")
            assert totals[field] == right, (
                f"{name}: {field} {totals[field]} in your totals, {right} in the package's."
            )
        right, got = package.occupancy, totals["occupancy"]
        assert got == right, f"{name}: the window holds {right}, and your totals say {got}."
        sent = f"sent {totals['prompt']}, computed {totals['computed']}"
        print(f"{name}: window {totals['occupancy']}, {sent}")

# %% id="forecast-proof" tags=["check"]
with in_short():
    turns, totals = my_ledger(done["replay all"][0])
    for n, turn in enumerate(turns, 1):
        right = (
            turn["occupancy"],
            *(sum(one[name] for one in turns[:n]) for name in ("prompt", "computed")),
        )
        assert my_forecast(18, 4, 9, n) == right, (
            f"After step {n}: {my_forecast(18, 4, 9, n)} was forecast, {right} it was."
        )
    print("12 steps, as forecast:", my_forecast(18, 4, 9, 12))
    print("and 1,000 would be:", my_forecast(18, 4, 9, 1000))

# %% [markdown] id="warm-text"
# How warm each window was, step by step. Cropping and compacting lose tokens behind the front; how often is the difference.

# %% id="warm-proof" tags=["check"]
with in_short():
    for name, (_, windows, _) in done.items():
        flat = [[id for _, _, ids in parts for id in ids] for parts in windows]
        lost = [len(before) - common_length(before, after) for before, after in pairwise(flat)]
        print(f"{name}: lost at each step {lost}")
        if name == "replay all":
            assert not any(lost), "Nothing was dropped, and something is gone."
        else:
            assert max(lost) > 0, f"{name} never made room."
            assert all(common_length(flat[0], one) == 18 for one in flat), (
                f"{name} lost a token of the front."
            )
        full = next((i for i, number in enumerate(lost) if number), 0)
        assert name != "crop" or all(lost[full:]), (
            "A cropped window was warm again: something stayed that should go."
        )
        assert name != "compact" or 0 < sum(number > 0 for number in lost[full:]) <= 3, (
            "Compaction happens once in a while."
        )

# %% [markdown] id="real-task"
# ## In words, on the real model
#
# The agent now reads one log file a step, and has to say which service was restarted most often. Summaries are made by a program that
# counts, so that the notes are right, and the same each time.

# %% id="real-agent"
import re
from collections import Counter

from kvcourse.context.texts import AFTER_A_PART, text_script

smollm2 = load_model("smollm2")
encode, decode = smollm2.tokenizer.encode, smollm2.tokenizer.decode
task = text_script(smollm2.tokenizer, n_steps=8, lines=4)


def counted(parts):
    """How often which service was restarted, as far as these parts say."""
    text = decode([id for _, _, ids in parts for id in ids])
    noted = {name: int(number) for name, number in re.findall(r"(\w+) (\d+) times", text)}
    return Counter(re.findall(r"\d (\w+) restarted", text)) + Counter(noted)


def notes(parts):
    told = ", ".join(f"{name} {number} times" for name, number in sorted(counted(parts).items()))
    return encode(f"Restarts so far: {told}.{AFTER_A_PART}", special=True)


# %% [markdown] id="real-text"
# Money is in units of one computed prompt token; a cached one costs a tenth of it, a token of an answer five. The last numbers say
# how much of what was asked for can still be read in the last window.

# %% id="real-model" tags=["check"]
results = [("tool", number, list(step.result)) for number, step in enumerate(task.steps)]
everything = counted(results)
ways = {
    "replay all": (lambda parts: parts, 1000),
    "crop": (lambda parts: my_crop(parts, 180), 200),
    "compact": (lambda parts: my_compact(parts, 180, notes), 200),
}
with in_short():
    for name, (make_room, limit) in ways.items():
        requests, windows, computed = run_agent(smollm2, task, make_room, limit)
        turns, totals = my_ledger(requests)
        assert totals["computed"] == computed, (
            f"{name}: {computed} were computed, and your ledger says {totals['computed']}."
        )
        counts = [TurnCount(one["prompt"], one["cached"], one["completion"]) for one in turns]
        money = Ledger(limit, counts).billed(Prices())
        seen = counted(windows[-1])
        bill = f"window {totals['occupancy']}, sent {totals['prompt']}, computed {computed}"
        restarts = f"{sum(seen.values())} of {sum(everything.values())} restarts known"
        print(f"{name}: {bill}, {money.total:.1f} units; {restarts}")
        assert (seen == everything) == (name != "crop"), (
            f"{name}: {dict(seen)} of {dict(everything)}."
        )

# %% [markdown] id="closing"
# Two gauges and two ways to turn them. Two things to try. Give `my_compact` a summariser that is a model: what it reads and writes is a
# request of its own, so who enters it in the ledger? And put the summary in front of the system part, or a counter into it: which
# line of the proof changes first? How a provider's cache sees all this, and what it charges, is lesson 13.
