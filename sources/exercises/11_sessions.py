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
# # Exercise 11 · Keep a conversation
#
# **You will write** the four pieces that let a conversation last: the next turn, a branch at an earlier one, a test of the chat
# template, and the doorkeeper of a session file. About 30 lines.
#
# **You need** Python and lesson 11, or lesson 06 and the next cells. About 45 minutes.

# %% [markdown] id="recap"
# **What you need to know.** A KV cache keeps K and V of every token that went through the model, a **row** for each. A conversation
# is one long list of token ids: what you said, what the model replied, what you said then. If the cache is kept between turns, a
# turn computes only what has no row yet.

# %% [markdown] id="recap-last"
# One token never has its row when a reply ends: the last one. It was chosen from the logits of the token in front of it, and
# nothing has come after it, so it never went through the model. After a reply, `ids` is one longer than the cache.

# %% [markdown] id="how-to-work"
# **How to work.** Replace each `raise NotImplementedError(...)`, run your cell, then the check under it. It tries your function
# on fixed and random inputs, prints one line when all is well, and otherwise says what is wrong.

# %% [markdown] id="when-stuck"
# Stuck? `hint("11.1")` gives a hint, and each further call a plainer one. `reset("11.1")` puts a task's cell back as it is now; your
# text is kept aside. `progress()` shows how far you are. Each answer is tried alone: call none of your other ones in it.

# %% id="imports"
import hashlib
import json

import torch

from kvcourse.checks import check, hint, in_short, progress, reset

# %% [markdown] id="task-send"
# ## 11.1 · The next turn
#
# `ids` is the whole conversation so far, and `cache` holds the rows of its first `cache.length` tokens. That is all but one after a
# reply; all of them after going back to an earlier turn; none after loading a file without K and V.
#
# Now `text` is said. Put its ids behind `ids`, let the model reply with `n` tokens, the likeliest one each time, and put those behind
# `ids`, too. Return the reply as a text.

# %% [markdown] id="task-send-tools"
# `encode(text)` makes a list of ids, `decode(ids)` a text. `model(tokens, cache=cache)` takes an int64 tensor `(1, T)`, returns
# logits `(1, T, V)`, and adds T rows to the cache. Never send a token that already has its row, nor the last token
# of the reply: nothing follows it.
#
# `ids` is the caller's list: it has to grow itself. What is in it already stays as it is. Text that was decoded and is encoded again
# may come out as other ids.

# %% [markdown] id="guess-send-text"
# On paper first: 20 ids after a reply, 6 ids of new text, a reply of 5.

# %% id="guess-send"
guess = {"tokens in the first call": None, "tokens through the model": None}
guess |= {"ids and rows afterwards": None}


# %% id="answer-send" exercise="11.1"
def my_send(model, cache, ids, text, n, encode, decode):
    """One turn. ids grows by the text and by n tokens of reply; the cache by what has no row yet.
    Returns the reply, a text."""
    ### BEGIN SOLUTION
    ids.extend(encode(text))
    for _ in range(n):
        logits = model(torch.tensor([ids[cache.length :]]), cache=cache)
        ids.append(int(logits[0, -1].argmax()))
    return decode(ids[-n:])
    ### END SOLUTION


# %% id="check-send" tags=["check"] exercise="11.1"
check("11.1", my_send)

# %% [markdown] id="task-branch"
# ## 11.2 · Branch at a turn
#
# A conversation as a dict:
#
#     {"ids": [5, 3, 8, 1, 7, 7, 2], "stops": [4, 7], "length": 6, "kv": tensor}
#
# `stops` says how many ids there were at the end of each turn: 4 after the first, 7 after the second. `length` says how many ids, from
# the first on, have their rows. The rows are in `kv`, `(L, 2, H, capacity, D)`: row `i` in slot `i` of axis 3, and behind them free
# slots, with anything in them.

# %% [markdown] id="task-branch-rule"
# Return a second conversation, a new dict with the same four fields: the first `turns` turns of this one, 0 to all of them. No row
# of a turn that is gone, but every row of what stays; and as many slots as before, because it will go on.
#
# Both go on, each for itself: nothing that is done to one may ever be seen in the other. The first one stays as it is.

# %% [markdown] id="guess-branch-text"
# On paper, for the dict above: the ids, and the `length`.

# %% id="guess-branch"
guess = {"2 turns": None, "1 turn": None, "0 turns": None}


# %% id="answer-branch" exercise="11.2"
def my_branch(chat, turns):
    """A new conversation with the first `turns` turns of chat, that shares nothing with it."""
    ### BEGIN SOLUTION
    stop = chat["stops"][turns - 1] if turns else 0
    return {
        "ids": chat["ids"][:stop],
        "stops": chat["stops"][:turns],
        "length": min(chat["length"], stop),
        "kv": chat["kv"].clone(),
    }
    ### END SOLUTION


# %% id="check-branch" tags=["check"] exercise="11.2"
check("11.2", my_branch)

# %% [markdown] id="task-drift"
# ## 11.3 · Is the next turn a hit?
#
# A program that keeps no ids sends all of the conversation at every turn, as messages: dicts with a `"role"` and a `"content"`. A **chat
# template** writes them as one text. `render(messages)` does that, for messages that end with a question; the model's reply
# comes right behind.
#
# After a turn the cache holds that text, and the reply. The next prompt is a hit as far as it begins with what the cache holds.

# %% [markdown] id="task-drift-rule"
# Some templates write an earlier turn differently once a question follows. Find out whether this one does: go through the
# replies after which another question comes. If each prompt begins with all that the cache holds then, return `None`. Otherwise
# return `(turn, place)` for the first turn after which it does not.

# %% [markdown] id="task-drift-counts"
# Turns count from 1, and a turn is a question with its reply. `place` is the number of characters that the two texts have in common
# from the front. Questions (`"user"`) and replies (`"assistant"`) take turns; a `"system"` message may stand in front of them.

# %% [markdown] id="guess-drift-text"
# On paper: a template writes `Q: hi A:` for the question `hi`, and takes the white space off both ends of each message. The reply
# was `" ho"`, and `bye` is asked then.

# %% id="guess-drift"
guess = {"in the cache": None, "the next prompt": None, "(turn, place)": None}


# %% id="answer-drift" exercise="11.3"
def my_drift(render, messages):
    """None if every prompt begins with what the cache holds by then;
    else (turn, place) of the first that does not."""
    ### BEGIN SOLUTION
    turn = 0
    for i, message in enumerate(messages[:-1]):
        if message["role"] == "assistant":
            turn += 1
            held = render(messages[:i]) + message["content"]
            prompt = render(messages[: i + 2])
            for place in range(len(held)):
                if prompt[place : place + 1] != held[place]:
                    return turn, place
    return None
    ### END SOLUTION


# %% id="check-drift" tags=["check"] exercise="11.3"
check("11.3", my_drift)

# %% [markdown] id="task-fault"
# ## 11.4 · Not this file
#
# A session file has a header and the rows. Both may have been damaged on the way, and both may be whole but belong to somebody
# else: other weights of the same shapes load without a word, and the model then talks nonsense.
#
#     {"version": 2, "model": "9c41...", "tokenizer": "e07b...", "ids": [...], ..., "digest": "5d1e..."}

# %% [markdown] id="task-fault-digest"
# `digest(header, rows)` makes a short text of all that is in a dict and in a tensor. Whoever saved the file made it of the rows and of
# the whole header without `"digest"`, and then put it in as `"digest"`. `model` and `tokenizer` are the fingerprints of those that
# are here now.

# %% [markdown] id="task-fault-rule"
# Return `None` if the file may be used, otherwise the first of these words that fits:
#
# - `"damaged"`: the digest is not that of the rest, or there is none.
# - `"newer"`: the version is above 2. Versions 1 and 2 can be read.
# - `"model"`: the file is another model's, or names none.
# - `"tokenizer"`: the file is another tokenizer's, or names none.
#
# Leave `header` as it is.

# %% id="guess-fault"
guess = {"one id of the header is changed": None, "version 7, whole": None}
guess |= {"version 7, one bit flipped": None}


# %% id="answer-fault" exercise="11.4"
def my_fault(header, rows, model, tokenizer, digest):
    """None, or what is wrong with a file: "damaged", "newer", "model" or "tokenizer"."""
    ### BEGIN SOLUTION
    rest = {name: value for name, value in header.items() if name != "digest"}
    if header.get("digest") != digest(rest, rows):
        return "damaged"
    if header["version"] > 2:
        return "newer"
    for name, here in (("model", model), ("tokenizer", tokenizer)):
        if header.get(name) != here:
            return name
    return None
    ### END SOLUTION


# %% id="check-fault" tags=["check"] exercise="11.4"
check("11.4", my_fault)

# %% [markdown] id="together"
# ## Your conversations under a model
#
# The next cells are a session on top of your functions. A conversation is the dict of 11.2; `Rows` is a cache that reads and writes
# in its `kv`. After every turn, each row that it holds is compared with those that a fresh computation of the same ids gives.

# %% id="your-rows"
from kvcourse import load_model
from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache
from kvcourse.meter import Meter


def new_chat(model, room):
    config = model.config
    kv = torch.zeros(config.n_layer, 2, config.n_kv_head, room, config.head_size, dtype=model.dtype)
    return {"ids": [], "stops": [], "length": 0, "kv": kv}


class Rows(GrowingCache):
    def __init__(self, model, chat):
        super().__init__()
        self.bind(model, 1, model.dtype, model.device)
        self.kv, self.length = chat["kv"], chat["length"]

    def _write(self, layer, k, v):
        stop = self.length + k.shape[2]
        self.kv[layer, :, :, self.length : stop] = torch.stack((k[0], v[0]))  # (2, H, T, D)
        return KeysValues(*self.kv[layer, :, None, :, :stop])


# %% id="compare"
def compare(model, chat):
    """Every row that the conversation holds, against a fresh computation of its ids."""
    n, fresh = chat["length"], GrowingCache()
    assert chat["stops"][-1] == len(chat["ids"]) >= n, (
        f"Stops {chat['stops']}, {len(chat['ids'])} ids and {n} rows."
    )
    model(torch.tensor([chat["ids"][:n]]), cache=fresh)
    for layer in range(model.config.n_layer):
        rows = torch.cat(fresh.read(layer, 0, n))  # (2, H, n, D)
        off = (chat["kv"][layer, :, :, :n] - rows).abs().max().item()
        assert off < (1e-9 if rows.dtype == torch.float64 else 1e-2), (
            f"Rows of layer {layer} are {off:.2g} off."
        )


# %% id="say"
def say(model, chat, text, n, encode=None):
    """One turn by my_send. Returns the reply, and how many tokens went through the model."""
    cache, tokenizer = Rows(model, chat), model.tokenizer
    encode = encode or tokenizer.encode
    with Meter() as meter:
        reply = my_send(model, cache, chat["ids"], text, n, encode, tokenizer.decode)
    chat["length"] = cache.length
    chat["stops"].append(len(chat["ids"]))
    assert cache.length == len(chat["ids"]) - 1, (
        f"After a turn, {cache.length} rows for {len(chat['ids'])} ids."
    )
    compare(model, chat)
    return reply, meter.cost.tokens


# %% [markdown] id="proof-text"
# Three turns; then three branches of them, which go on in turn with the first conversation. Each branch is compared at once and
# again at the end, when all the others have written.

# %% id="your-proof" tags=["check"]
tiny = load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake
with in_short():  # an error in here is told in a line
    chat = new_chat(tiny, room=80)
    for text in ("ana is in the garden .", "the key is in the market .", "where is the key ?"):
        _, took = say(tiny, chat, text, n=6)
        turn = f"turn {len(chat['stops'])}: {len(chat['ids'])} ids"
        print(f"{turn}, {took} tokens through the model, the rows of a fresh run")
    branches = [my_branch(chat, turns) for turns in (1, 2, 3)]
    for one in branches:
        compare(tiny, one)
    texts = ("where is ana ?", "ben took the key .", "then what ?", "and the hat ?")
    for number in range(3):
        for place, one in enumerate((*branches, chat)):
            say(tiny, one, texts[(number + place) % 4], n=4)
    for one in (*branches, chat):
        compare(tiny, one)
        print(f"stops {one['stops']}: still its own rows")

# %% [markdown] id="file-text"
# Now a file: header and rows. First the very conversation goes on from it, as if nothing had happened. Then it is damaged, a bit at
# a time, and shown to a model of the same shapes with one weight changed.


# %% id="file"
def digest(header, rows):
    told = json.dumps([header, str(rows.dtype), list(rows.shape)], sort_keys=True).encode()
    return hashlib.sha256(told + rows.contiguous().numpy().tobytes()).hexdigest()


def saved(model, chat):
    """The header and the rows in use."""
    rows = chat["kv"][..., : chat["length"], :].clone()
    header = {"version": 2, "model": model.fingerprint, "tokenizer": model.tokenizer.fingerprint}
    header |= {"ids": list(chat["ids"]), "stops": list(chat["stops"])}
    return {**header, "digest": digest(header, rows)}, rows


def fault(model, header, rows):
    return my_fault(header, rows, model.fingerprint, model.tokenizer.fingerprint, digest)


def loaded(model, header, rows, room):
    wrong = fault(model, header, rows)
    assert wrong is None, f"my_fault says {wrong!r} about the file that was saved."
    chat, length = new_chat(model, room), rows.shape[3]
    chat |= {"ids": list(header["ids"]), "stops": list(header["stops"]), "length": length}
    chat["kv"][..., : rows.shape[3], :] = rows
    return chat


# %% id="file-proof" tags=["check"]
with in_short():
    header, rows = saved(tiny, chat)
    again = loaded(tiny, header, rows, room=80)
    here, there = say(tiny, chat, "and ben ?", n=5), say(tiny, again, "and ben ?", n=5)
    assert here == there, (
        f"The conversation said {here[0]!r}, and the one from the file {there[0]!r}."
    )
    took, n_ids = there[1], len(again["ids"])
    print(f"from the file: the same reply, {took} tokens through the model of {n_ids}")
    for bit in range(0, rows.nbytes * 8, rows.nbytes * 8 // 100):
        spoilt = rows.clone()
        spoilt.view(-1).view(torch.uint8)[bit // 8] ^= 1 << bit % 8
        assert fault(tiny, header, spoilt) == "damaged", (
            f"Bit {bit} of the rows was flipped: {fault(tiny, header, spoilt)!r}"
        )
    for name in header:
        spoilt = {**header, name: "0" if name != "version" else 1}
        assert fault(tiny, spoilt, rows) == "damaged", (
            f"{name!r} was changed: {fault(tiny, spoilt, rows)!r}"
        )
    print(f"100 bits of the rows, {len(header)} fields of the header: damaged, each time")

# %% id="foreign-proof" tags=["check"]
with in_short():
    other = load_model("tiny", dtype=torch.float64)
    with torch.no_grad():
        other.state_dict()["transformer.h.0.attn.c_attn.weight"][0, 0] += 0.001
    assert fault(other, header, rows) == "model", (
        f"One weight is another: {fault(other, header, rows)!r}"
    )
    n = sum(weight.numel() for weight in other.parameters())
    print(f"one weight of {n} changed: another {fault(other, header, rows)}")

# %% [markdown] id="real-task"
# ## Templates, and the real model
#
# Three templates and one conversation, in which the model thought before it replied. The first template is the real model's own.

# %% id="templates"
smollm2 = load_model("smollm2")
render = smollm2.tokenizer.render_chat
thought = "<think>Big, grey.</think>The elephant."
asked = [
    {"role": "user", "content": "Which animal never forgets?"},
    {"role": "assistant", "content": thought},
    {"role": "user", "content": "Which one sleeps all day?"},
]


def without_thoughts(messages):
    said = [message["content"].split("</think>")[-1] for message in messages]
    return render([{**one, "content": text} for one, text in zip(messages, said, strict=True)])


def with_a_count(messages):
    return f"Message {len(messages)}\n" + render(messages)


# %% id="templates-proof" tags=["check"]
with in_short():
    expected = {render: None, without_thoughts: "The elephant", with_a_count: "3\n"}
    for template, right in expected.items():
        found = my_drift(template, asked)
        shown = None if found is None else template(asked)[found[1] :]
        assert (found is None) == (right is None) and str(shown).startswith(str(right)), (
            f"my_drift says {found}."
        )
        name = getattr(template, "__name__", "template")
        print(f"{name}: {found}", "" if shown is None else f"from {shown[:12]!r} on")

# %% [markdown] id="real-text"
# And three turns with the real model. The ids of what was said and replied stay; only what the template puts around the next question is
# encoded. A program that sends everything again would compute all of it each time.


# %% id="real-model" tags=["check"]
def after(chat, said):
    """What the next question adds: the template's end of the turn, and the question."""
    tokenizer, start = smollm2.tokenizer, chat["stops"][-1] - 8 if chat["stops"] else 0

    def encode(text):
        question = [{"role": "user", "content": text}]
        if not said:
            return tokenizer.encode_chat(question)
        return tokenizer.continue_chat(said[:-1], chat["ids"][start:], question)

    return encode


with in_short():
    chat, said, total, replayed = new_chat(smollm2, room=200), [], 0, 0
    for text in ("Tell me about the sea.", "And about rivers?", "Which of them is older?"):
        reply, took = say(smollm2, chat, text, n=8, encode=after(chat, list(said)))
        said += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
        total, replayed = total + took, replayed + len(chat["ids"]) - 1
        print(f"{len(chat['ids'])} ids, {took} tokens through the model, the rows of a fresh run")
    print(f"together {total} tokens; sent again each time, {replayed}")

# %% [markdown] id="closing"
# That is what a session is: ids that are never written twice, rows that belong to them, and a doorkeeper. Two things to try. Leave
# `clone` out of `my_branch`, or what you have in its place, and read what the proof says. And change one number of the rows before a
# conversation goes on from them: how large must the change be until the reply is another one? What a conversation costs, and what
# to do when it no longer fits, is lesson 12.
