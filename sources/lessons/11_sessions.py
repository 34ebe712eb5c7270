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
# # 11 · What survives between turns?
#
# **You need** to know what a KV cache and a prefix cache keep, and how a paged cache is forked (lessons 06, 09 and 10). Two
# sittings of about 40 minutes each, half of them yours.
#
# **At the end** you can keep a conversation so that a turn costs what is new in it, branch it, take turns back, put it on disk,
# and go on in another process; and you refuse every file that is not what it was.

# %% id="imports"
import torch

from kvcourse import PagedCache, PagedPool, PreallocatedCache, Sampler, generate, load_model
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
from kvcourse.sessions.session import Session
from kvcourse.viz.session_plots import Arrived, branch_of, plot_branches, plot_turns

_ = torch.set_grad_enabled(False)  # nothing is trained here

smollm2 = load_model("smollm2")
tok = smollm2.tokenizer

# %% [markdown] id="ask"
# ## The third square
#
# Somebody asks ten questions of 10 tokens, and each answer has 10. A model remembers nothing between two calls, so a chat program
# sends the whole conversation along with every question. How many tokens are sent in ten turns, and how many of them had been sent,
# or said, before?

# %% id="guess-toy"
guess = {"sent": None, "of those not new": None}

# %% id="toy"
sent = [10 + 20 * before for before in range(10)]  # a question, and all turns before it
print("sent in each turn:", *sent)
print(f"together {sum(sent)}, of which {sum(sent) - 10 * 10} are not new")
assert sum(sent) == 10 * 10**2

# %% [markdown] id="explain-toy"
# With n turns it is 10·n². The course has met this shape twice: passes of a loop that keeps nothing (lesson 05), bytes of a cache that
# makes itself anew (lesson 07). Now it is turns. A KV cache ends with its answer; what is left of a conversation is its text.
#
# What if nothing is thrown away?

# %% [markdown] id="by-hand"
# ## A session by hand
#
# Keep the ids of everything that was said, by both sides, and keep the cache. For a new question: append its ids, and compute
# whatever the cache does not have. (The control tokens are those of SmolLM2's chat template, lesson 01.)

# %% id="first-session"
SYSTEM = "Answer in one short sentence."


def asked(question):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


class FirstSession:
    def __init__(self, model):
        self.model, self.ids, self.cache = model, [], PreallocatedCache(512)

    def send(self, question, max_new_tokens=12):
        before = "\n" if self.ids else f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        self.ids += tok.encode(before + asked(question), special=True)
        rest = self.ids[self.cache.length :]
        kept = {"cache": self.cache, "stop_ids": tok.stop_ids}
        out = generate(self.model, rest, max_new_tokens=max_new_tokens, **kept)
        self.ids += out.tokens
        return out


# %% [markdown] id="ask-second"
# The first prompt has 27 tokens and its answer 8. The second question brings 14 more, so the prompt of the second turn has 49. How
# many of them are computed?

# %% id="guess-second"
guess = None


# %% id="second"
def counts(usage):
    return f"{usage.cached_tokens} cached + {usage.computed_tokens} computed"


by_hand = FirstSession(smollm2)
for question in ("What is the capital of France?", "And of Italy?"):
    out = by_hand.send(question)
    usage = out.usage
    print(f"{usage.prompt_tokens} = {counts(usage)} · {tok.decode(out.tokens)}")
assert (usage.prompt_tokens, usage.computed_tokens) == (27 + 8 + 14, 14 + 1)

# %% [markdown] id="explain-second"
# Fifteen: the new ones, and one old one. The last token of an answer (here `<|im_end|>`) is chosen, and then nothing follows, so it
# never goes through the model: 35 ids, 34 rows of K/V. Lesson 06 left that token to whoever goes on. That is us.

# %% [markdown] id="ask-forget"
# Does one token matter? A program that forgets it computes the 14 new ones on top of what is cached. Everything fits, nothing
# crashes.

# %% id="forget"
last, new = by_hand.ids[-1], tok.encode("\n" + asked("And of Japan?"), special=True)
whole = smollm2(torch.tensor([by_hand.ids + new]))[0, -1]
for name, rest in {"with the last token": [last, *new], "without it": new}.items():
    logits = smollm2(torch.tensor([rest]), cache=by_hand.cache.fork())[0, -1]
    difference = (logits - whole).abs().max()
    print(f"{name:20} largest difference of a logit: {difference:.1f}")
    assert (difference < 1e-3) == (name == "with the last token")

# %% [markdown] id="explain-forget"
# The answer was never closed, and all that follows stands one place too early. The text still looks reasonable, which is why this
# fault lives long.
#
# The package's `Session` keeps the same rule: *`tokens` is the whole conversation, the cache holds a prefix of it, each turn computes
# the rest.* We hold ours against it.

# %% id="same-as-package"
chat = Session(smollm2, system=SYSTEM)
for question in ("What is the capital of France?", "And of Italy?"):
    reply = chat.send(question, max_new_tokens=12)
assert chat.tokens == by_hand.ids and reply.usage == out.usage
assert chat.cache.length == by_hand.cache.length == len(chat.tokens) - 1
print("the same ids, the same counts:", counts(reply.usage))

# %% [markdown] id="explain-package"
# It also knows its turns, counts, refuses what does not fit the context and is unchanged afterwards. And it encodes what a user types
# as text: by hand, somebody who types `<|im_end|>` has ended the turn and can speak as the assistant.

# %% [markdown] id="three-ways"
# ## Three ways, six turns
#
# **Replay everything**: each question takes the whole conversation through the model. **Prefix cache**: the client still sends
# everything, and the server finds the start that it knows (lesson 10). **Session**: the client sends what is new.
#
# The six prompts have 27, 49, 71, 93, 115 and 136 tokens. How many prompt tokens are computed in each way?

# %% id="guess-ways"
guess = {"replay everything": None, "prefix cache": None, "session": None}

# %% id="client"
QUESTIONS = ["What is the capital of France?"]
QUESTIONS += [f"And of {place}?" for place in ("Italy", "Japan", "Egypt", "Peru")]
QUESTIONS += ["Thank you."]


def ask_all(**options):
    """Six turns of a client that renders, encodes and sends the whole conversation each time."""
    messages, outs = [{"role": "system", "content": SYSTEM}], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        ids = tok.encode_chat(messages)
        outs.append(generate(smollm2, ids, max_new_tokens=12, stop_ids=tok.stop_ids, **options))
        said = tok.decode(outs[-1].tokens, skip_special=True)
        messages.append({"role": "assistant", "content": said})
    return outs


# %% id="ask-three-ways"
chat = Session(smollm2, system=SYSTEM)
turns = {
    "replay everything": ask_all(),
    "prefix cache": ask_all(prefix_cache=RadixPrefixCache(smollm2, max_bytes=2**26)),
    "session": [chat.send(question, max_new_tokens=12) for question in QUESTIONS],
}
for question, *outs in zip(QUESTIONS, *turns.values(), strict=True):
    assert outs[0].tokens == outs[1].tokens == outs[2].tokens
    print(f"{question:30} {outs[2].text}")

# %% [markdown] id="equal-text"
# The same tokens, three times. And the logits: whatever comes next must get what one pass over all ids gives it. We shall ask this of
# every session in this lesson.


# %% id="off"
def off(session):
    """How far logits from what a session kept are from those of one pass over the same ids."""
    ids = session.tokens + tok.encode("\n" + asked("Why?"), special=True)
    cache = session.cache.fork()
    kept = smollm2(torch.tensor([ids[cache.length :]]), cache=cache)[0]
    fresh = smollm2(torch.tensor([ids]), logits_to_keep=len(kept))[0]
    return (kept - fresh).abs().max().item()


assert off(chat) < 1e-3
n_old = len(chat.tokens) - chat.cache.length
print(f"after six turns: equal within 0.001, for the {n_old} old token and the new ones")

# %% [markdown] id="counts-text"
# So they may be compared. Exact counts, and beside them what was copied: rows fetched from the prefix cache and put into it.

# %% id="counts"
ROW = 2 * 30 * 3 * 64 * 4  # bytes of one token: K and V, layers, KV heads, numbers, bytes each


def columns(numbers):
    return "".join(f"{number:9}" for number in numbers)


print(f"{'':12}{'computed':^27}    {'rows copied':^27}")
print("turn  prompt" + "    ".join(2 * [f"{'replay':>9}{'prefix':>9}{'session':>9}"]))
for number, outs in enumerate(zip(*turns.values(), strict=True), start=1):
    computed = columns(out.usage.computed_tokens for out in outs)
    copied = columns(out.cost.bytes_copied // ROW for out in outs)
    print(f"{number:4}{outs[0].usage.prompt_tokens:8}{computed}    {copied}")

# %% id="totals"
total = [sum(out.usage.computed_tokens for out in outs) for outs in turns.values()]
moved = [sum(out.cost.bytes_copied for out in outs) // ROW for outs in turns.values()]
print(f"together    {columns(total)}    {columns(moved)}")
print(f"copied for the prefix cache: {moved[1] * ROW / 1e6:.1f} MB")
assert total == [491, 101, 101] and moved[0] == moved[2] == 0

# %% id="turns-plot"
ways = {"replay everything": [], "prefix cache": [], "session": []}
for name, outs in turns.items():
    for out in outs:
        cached, computed = out.usage.cached_tokens, out.usage.computed_tokens
        past = (0, cached) if name == "prefix cache" else (cached, 0)  # held, copied
        ways[name].append(Arrived(*past, computed))
plot_turns(ways)

# %% [markdown] id="explain-counts"
# To compute, prefix cache and session are equals: either has every row but that of the last token. What differs is how the past gets
# there. A prefix cache hands out copies, all of it again in each turn, so what it moves grows with the square. (The figure shows what was
# fetched; the table also counts rows put in.) A session's rows lie where they were. (Block tables, lesson 09, would fetch without copying.)

# %% [markdown] id="ask-blocks"
# **Change one thing.** Many engines keep prefixes in blocks of 16, and a block that is not full is not kept. How many of the 491 tokens
# are computed then?

# %% id="guess-blocks"
guess = None

# %% id="blocks"
blocks = ask_all(prefix_cache=BlockPrefixCache(smollm2, block_tokens=16, max_bytes=2**26))
computed = [out.usage.computed_tokens for out in blocks]
print("computed in each turn:", *computed, "· together", sum(computed))
assert [out.tokens for out in blocks] == [out.tokens for out in turns["session"]]
exact = [out.usage.cached_tokens for out in turns["session"]]  # what is found to the token
assert [out.usage.cached_tokens for out in blocks] == [n // 16 * 16 for n in exact]

# %% [markdown] id="explain-blocks"
# Up to 15 more in each turn: what stood in the unfinished block is computed again. On a document of 10,000 tokens nobody notices. In a
# chat of short turns it is a good part of the work.

# %% [markdown] id="three-caches"
# Three caches are called "the cache" in conversations about conversations:
#
# | | session cache | prefix cache | provider prompt cache (lesson 13) |
# |---|---|---|---|
# | whose K/V | one conversation's | many requests', each common start once | your organisation's or workspace's requests', at the provider |
# | found by | its name: you come back to it | the longest equal start of the ids | the same, in the provider's steps and above its minimum |
# | you send | what is new | everything | everything, and part of it is billed at another price |
# | ends | when you say so | when room is needed | after minutes or hours; nothing is promised |
# | you see | every row, on disk too | how many tokens were found | a number in the usage fields, and the bill |

# %% [markdown] id="explain-three"
# The price of the first: whoever holds a session must get its next turn. A service with many machines has to route conversations to
# where their K/V is, or move K/V to where they land. With a prefix cache a lost copy costs time; the client still has everything.
# (They combine: a `Session` with `prefix_cache=` asks it for the start of the first turn.)

# %% [markdown] id="not-automatic"
# ## A new turn is not automatically a hit
#
# In these six turns the clients that sent text lost nothing. Nobody had promised that. A cache compares ids, a client sends text, and two
# things stand between them. The first you met in lesson 10, made by hand. Here is a real one: the model is asked for a new word.

# %% id="rain"
pool = PagedPool(smollm2, n_blocks=32, block_tokens=4)  # small blocks, for a picture further down
rain = Session(smollm2, system=SYSTEM, cache=PagedCache(pool))
sampler = Sampler(temperature=0.8, seed=6)
reply = rain.send("Invent a word for the smell of rain.", max_new_tokens=12, sampler=sampler)
print(repr(reply.text), "in", len(reply.tokens), "tokens, the last of which ends the turn")

# %% [markdown] id="ask-again"
# A client keeps this text, and sends it back with the next question. Will the tokenizer cut it where the model did?

# %% id="guess-again"
guess = None

# %% id="again"
again = tok.encode(reply.text)
print("said:         ", " | ".join(tok.token_text(id) for id in reply.tokens[:-1]))
print("encoded again:", " | ".join(tok.token_text(id) for id in again))
assert tok.decode(again) == reply.text and again != reply.tokens[:-1]

# %% [markdown] id="explain-again"
# A tokenizer cuts a text in one way, by its merges. A model says it in whatever pieces it picks; both decode to the same. For common
# words the two agree, which is why six turns above did. Invented words, names, code and numbers are where they part.

# %% [markdown] id="replay-text"
# A session never encodes again what was decoded, so it has nothing to lose. `replay()` says what a client that works with text would:

# %% id="replay"
lost, none_lost = rain.replay(), chat.replay()
same, gone = lost.shared_tokens, lost.lost_tokens
print(f"{lost.cached_tokens} ids; encoded again, the first {same} are the same, {gone} are lost")
ours, theirs = (tok.token_text(id) for id in (lost.expected, lost.got))
print(f"there the session has {ours!r}, and a client {theirs!r}")
print(f"and of the {none_lost.cached_tokens} ids about capitals {none_lost.lost_tokens}")
assert lost.shared_tokens == rain.turns[0].prompt_stop and none_lost.lost_tokens == 0

# %% [markdown] id="explain-replay"
# A turn later the client's own version is cached, and the loss does not come back: each such answer is computed once more, from the first
# piece that differs. Worse than the cost can be that the model now reads what it has not said. Whoever trains on sampled answers has to
# keep the ids; vLLM returns them on request (`return_token_ids`).

# %% [markdown] id="template-text"
# The second thing is the **template**. Nobody promises that it writes an earlier turn as it wrote it when that turn was the last.
# `check_template` follows a conversation: does each rendered prompt, with its reply, begin the next one?

# %% id="template-ours"
from kvcourse.sessions.template import check_template

print(check_template(tok, chat.messages))
assert check_template(tok, chat.messages).stable

# %% [markdown] id="ask-thinking"
# Models that think aloud before they answer come with templates that leave the thinking of earlier turns out, to save room in the
# context: DeepSeek-R1's, Qwen3's. This one does it as they do. Where will the first difference be?

# %% id="thinking-template"
import copy

from kvcourse import ChatTemplate

thinker = copy.copy(tok)
thinker.chat = ChatTemplate("""{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""")

# %% id="thoughts"
thoughts = [
    {"role": "user", "content": "What is 17 plus 25?"},
    {"role": "assistant", "content": "<think>17 plus 20 is 37, and 5 more is 42.</think>It is 42."},
    {"role": "user", "content": "And times two?"},
]
report = check_template(thinker, thoughts)
print(report)
assert not report.stable and report.turn == 1

# %% [markdown] id="template-count"
# And in tokens: how many of what the first turn left in the cache are of use to the second?

# %% id="template-lost"
from kvcourse.errors import TokenizerError
from kvcourse.sessions.template import replay

prompt, said = thinker.encode_chat(thoughts[:1]), thinker.encode(thoughts[1]["content"])
lost = replay(thinker, thoughts[:2], prompt + said)
same, gone = lost.shared_tokens, lost.lost_tokens
print(f"{lost.cached_tokens} ids; {same} begin the next prompt, {gone} are lost")
assert same == len(prompt) and gone == len(said)
try:
    thinker.continue_chat(thoughts[:1], said, thoughts[2:])  # what `Session.send` asks for
except TokenizerError as fault:
    print(fault.fault)

# %% [markdown] id="explain-template"
# A session with this template refuses the second turn and says where. Somebody has to choose: keep the thoughts, and the
# context fills; or leave them out, and all that came after them is computed again. In a chat that is one answer; with an agent
# (a model that calls tools in a loop, lesson 12) it is every tool call since the last question. (Qwen3's does it with thinking
# turned off, too: an empty thought, in front of the newest answer only.)

# %% [markdown] id="change-template"
# **Change one thing.** Write a template that trims what is said (`message.content | trim`); many do. Which reply does
# `check_template` find it out with? And what if a template prints today's date?

# %% [markdown] id="back"
# ## Back, and two ways at once
#
# The word for the smell of rain has 30 tokens of prompt before it. You want another one: the same question, another seed. How many
# tokens of the prompt must be computed?

# %% id="guess-regenerate"
guess = None

# %% id="regenerate"
branches = {"a": rain, "b": rain.fork(), "c": rain.fork()}
for name, seed in {"b": 8, "c": 0}.items():
    sampler = Sampler(temperature=0.8, seed=seed)
    reply = branches[name].regenerate(max_new_tokens=12, sampler=sampler)
    print(f"{name}: {counts(reply.usage)} · {reply.text}")
    assert reply.usage.computed_tokens == 1
print(f"a: {rain.turns[0].reply}")

# %% [markdown] id="explain-regenerate"
# One, never none (lesson 10): the rows of the prompt are there, the logits after its last token were not kept. The cache is cut back to 29
# rows, and the thirtieth is computed for its logits.
#
# Before that, `fork` made two more conversations with the same past: no row was copied. Let c go on.

# %% id="c-goes-on"
sampler = Sampler(temperature=0.8, seed=0)
reply = branches["c"].send("And for the smell of snow?", max_new_tokens=12, sampler=sampler)
print(f"{counts(reply.usage)} · {reply.text}")
assert all(off(branch) < 1e-3 for branch in branches.values())
pool.blocks.check([branch.cache.tables[0] for branch in branches.values()])
print("a, b, c: the logits of a fresh pass over their ids, within 0.001")
print("rows of each:", *(branch.cache.length for branch in branches.values()))

# %% [markdown] id="ask-tree"
# The pool has blocks of 4 tokens, so 34, 32 and 58 rows would be 9, 8 and 15 blocks, if nothing were shared. How many blocks are in use?

# %% id="guess-tree"
guess = None

# %% id="tree"
plot_branches({name: branch_of(branch) for name, branch in branches.items()}, block_tokens=4)

# %% id="tree-bytes"
alone = [len(branch.cache.tables[0]) for branch in branches.values()]
used = pool.blocks.n_used
print(f"alone: {alone} blocks, {sum(alone) * pool.block_bytes:,} bytes")
print(f"as a tree: {used} blocks, {pool.used_bytes:,} bytes")
assert (sum(alone), used) == (9 + 8 + 15, 9 + 8 + 15 - 2 * 7)

# %% [markdown] id="explain-tree"
# Seven full blocks of the prompt stand in three tables. The eighth was half full when the branches began to write, so each has its own
# copy: the two slots marked 3. The last token of each answer is dotted, since it has no row yet.

# %% [markdown] id="ask-rewind"
# Now c takes its last turn back and asks something else. The new question brings as many tokens as the one about snow, for which 18 were
# computed. How many this time?

# %% id="guess-rewind"
guess = None

# %% id="rewind"
branches["c"].rewind()
print(f"after the rewind: {len(branches['c'].tokens)} ids, {branches['c'].cache.length} rows")
sampler = Sampler(temperature=0.8, seed=2)
again = branches["c"].send("And for the smell of hay?", max_new_tokens=12, sampler=sampler)
print(f"{counts(again.usage)} · {again.text}")
assert again.usage.computed_tokens == reply.usage.computed_tokens - 1 and off(branches["c"]) < 1e-3

# %% [markdown] id="explain-rewind"
# Seventeen. The last token of the first answer got its row when the turn about snow began, and that row is right whatever comes
# next. So a rewind computes nothing, and leaves no token without a row. What the lost turn did cost stays in the session's
# `ledger`, three numbers a turn: prompt tokens, cached ones, new ones. It says what was spent, not what was kept.

# %% [markdown] id="change-sliding"
# **Change one thing.** Give a session `cache=SlidingCache(32)` (lesson 08) and talk past 32 tokens. What do `rewind` and `regenerate`
# say, and why can they not help? What would you have had to do before the turn?

# %% [markdown] id="rest"
# A good place to stop: everything from here on can wait for another day.

# %% [markdown] id="disk"
# ## To disk
#
# Tomorrow this process is gone. What has to be in a file for the conversation about capitals to go on exactly where it was? What may be
# there to save work, and what has no business there?

# %% id="guess-file"
guess = {"ids": None, "text": None, "where turns begin": None}  # needed, useful, or neither?
guess |= {"K/V": None, "weights": None, "which weights": None}

# %% id="save"
import json
import tempfile
from pathlib import Path

folder = tempfile.TemporaryDirectory()
path = chat.save(Path(folder.name) / "capitals.session")
data = path.read_bytes()
length = int.from_bytes(data[:8], "little")
print(f"{len(data):,} bytes = 8 + {length:,} of header + {len(data) - 8 - length:,} of numbers")

# %% [markdown] id="header-text"
# A safetensors file, as in lesson 04: the length of the header, the header, the numbers. We read it by hand.

# %% id="header"
header = json.loads(data[8 : 8 + length])
metadata = header.pop("__metadata__")
about = json.loads(metadata.pop("about"))
print(header)
for key, value in (metadata | about).items():
    shown = "64 hex digits" if isinstance(value, str) and len(value) == 64 else str(value)
    print(f"{key:15} {shown if len(shown) < 85 else shown[:82] + '...'}")
assert header["kv"]["shape"] == [30, 2, 3, chat.cache.length, 64] and about["ids"] == chat.tokens

# %% [markdown] id="explain-header"
# Needed: ids, where the turns begin, and the fingerprints of what made them. K/V is there to save work. The texts are for people: nothing
# is encoded from them. The weights stay in their own file, and `model` names them by a digest. Of a buffer with room for 8,192 tokens only
# the 143 rows in use were written.

# %% [markdown] id="ask-size"
# How many times larger than the text of this conversation is its K/V?

# %% id="guess-size"
guess = None

# %% id="size"
text = "".join(message["content"] for message in chat.messages)
without = chat.save(Path(folder.name) / "ids-only.session", kv=False).stat().st_size
print(f"text {len(text.encode())} bytes · ids and turns {without:,} · with K/V {len(data):,}")
kv_bytes = len(data) - 8 - length
print(f"{ROW:,} bytes a token; K/V is {kv_bytes / len(text.encode()):,.0f} times the text")
assert kv_bytes == chat.cache.length * ROW

# %% [markdown] id="size-worth"
# So is it worth writing? K/V can always be computed again, at so many tokens a second. Reading it is the better deal if the disk, or the
# network, delivers that many tokens' K/V in a second:

# %% id="break-even"
from kvcourse.memory import price
from kvcourse.model_shapes import find_shape

large = price(find_shape("llama-3.1-8b"), 1).kv_bytes  # float16
machines = {"SmolLM2, two cores": (ROW, 500), "Llama 3.1 8B, a graphics card": (large, 10_000)}
for name, (row_bytes, rate) in machines.items():
    needed = row_bytes * rate / 1e9
    print(f"{name:30} {row_bytes:7,} bytes a token × {rate:6,} tokens/s = {needed:.2f} GB/s")

# %% [markdown] id="explain-worth"
# (The two rates are round numbers, good for the order of magnitude.) Here any disk wins by far. A card that computes 10,000
# tokens a second needs a fast one, and a slow network loses to it. That product is the one figure to know before K/V is moved anywhere.
# LMCache, which keeps K/V on disk and sends it between machines, lives by it.

# %% [markdown] id="ask-process"
# Now another process: it has the model and the file, and none of our objects. It loads, asks "And of Greece?", and reports. The prompt
# will have 158 tokens. How many does it compute?

# %% id="guess-process"
guess = None

# %% id="other-process"
import subprocess
import sys

program = """
import json, sys
from kvcourse import load_model
from kvcourse.sessions.session import Session

chat = Session.load(sys.argv[1], load_model("smollm2"), probe=True)
reply = chat.send("And of Greece?", max_new_tokens=12)
usage = reply.usage
print(json.dumps([usage.prompt_tokens, usage.computed_tokens, reply.text, reply.tokens]))
"""
command = [sys.executable, "-c", program, str(path)]
there = subprocess.run(command, capture_output=True, text=True, check=True)
prompt_tokens, computed_tokens, said, tokens = json.loads(there.stdout)
print(f"there: {computed_tokens} of {prompt_tokens} computed · {said}")

# %% id="same-here"
here = chat.fork().send("And of Greece?", max_new_tokens=12)
assert tokens == here.tokens
assert (prompt_tokens, computed_tokens) == (here.usage.prompt_tokens, here.usage.computed_tokens)
assert off(Session.load(path, smollm2)) < 1e-3
print("here: the same tokens, the same counts")

# %% [markdown] id="flip"
# ## One bit
#
# Files lie on disks for months. Suppose that one bit of these 53 million flips: the highest of the exponent of one number, in the key of
# the fourth token, layer 23 of 30. First with no check: what was read goes into a session as it is. What will you see?

# %% id="guess-flip"
guess = None  # an error, a wrong answer, nothing

# %% id="flip-unseen"
from kvcourse.sessions.file import read
from kvcourse.sessions.saved import from_file

content = read(path)
numbers = torch.frombuffer(content.rows.data, dtype=torch.float32).view(content.rows.shape)
place = 23, 0, 1, 3, 22  # layer, K, head, token, number
before = numbers[place].item()
numbers.view(torch.int32)[place] ^= 1 << 30
print(f"{before:.2f} became {numbers[place].item():.0e}, and there was no error")

wrong = from_file(content, path, smollm2)  # believes it: made for content that was verified
print(f"logits off by up to {off(wrong):.0f}")
assert off(wrong) > 5

# %% id="flip-answer" tags=["volatile"]
print("And of Greece?", wrong.send("And of Greece?", max_new_tokens=12).text)

# %% [markdown] id="explain-flip"
# A number of the right type in a tensor of the right shape: looking at it tells nothing. So the file has to say what it ought to be. Its
# header begins with a **digest** of everything else, the rest of the header included. Now the file itself: choose a place, and a bit.

# %% id="flip-refused"
from kvcourse.errors import SessionFileError

place, bit = 5_000_000, 3  # yours
damaged = bytearray(data)
damaged[place] ^= 1 << bit
bad = path.with_name("damaged.session")
bad.write_bytes(damaged)
try:
    Session.load(bad, smollm2)
except SessionFileError as fault:
    print(fault)

# %% [markdown] id="flip-everywhere-text"
# Every region, and files that were cut off or grew. Each is refused before anything of it is believed; what the message can say depends on
# what is left to read.

# %% id="flip-everywhere"
flips = (6, 20, 40, 2000, len(data) - 1)
cases = {f"byte {at:,} flipped": data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in flips}
cases |= {"the last byte missing": data[:-1], "half of it": data[: len(data) // 2]}
cases |= {"one byte more": data + b"0", "empty": b""}
for case, written in cases.items():
    bad.write_bytes(written)
    try:
        Session.load(bad, smollm2)
        raise AssertionError(case)
    except SessionFileError as fault:
        print(f"{case:24} {fault.fault}")

# %% [markdown] id="explain-digest"
# The digest guards against accidents. Whoever can write the file can write a digest that fits. And a file of JSON and numbers can be wrong,
# but it cannot *do* anything, which a pickle can.

# %% [markdown] id="other-model"
# ### The right file, the wrong model
#
# The file is intact. But the model was trained for another minute: the shapes are the same, one weight has moved by a thousandth. May the
# file be loaded?

# %% id="guess-other"
guess = None

# %% id="changed-weight"
weight = smollm2.model.layers[3].mlp.down_proj.weight
kept = weight.clone()
weight[0, 0] += 0.001
try:
    Session.load(path, smollm2)
except SessionFileError as fault:
    print(fault.fault)

# %% [markdown] id="explain-other"
# Refused, though one weight would hardly show. So let the difference be larger, a tenth in one matrix of one layer, and go on with the
# session that is still in memory. Its rows were computed by the old weights:

# %% id="two-models"
weight.copy_(kept * 1.1)
print(f"rows of the old weights under the new ones: logits off by up to {off(chat):.1f}")
weight.copy_(kept)
assert off(chat) < 1e-3
loaded = Session.load(path, smollm2).tokens == chat.tokens
print(f"weights as they were: equal within 0.001; loads again: {loaded}")

# %% [markdown] id="explain-two"
# Neither the old model's answer nor the new one's. Shapes say nothing about where numbers come from: fingerprints do, of model and
# tokenizer. `probe=True`, which the other process used, asks one question more: it computes the last row again and compares.

# %% [markdown] id="store"
# ## Many conversations
#
# A service has thousands. A few shall be ready in memory, more on disk, and neither may grow without bound. `SessionStore` keeps sessions by
# name within two budgets: what was used longest ago moves from memory to disk, and from disk it goes for good.
#
# Five small conversations with `tiny`. There is room for two in memory and four on disk; Ana's is pinned.

# %% id="store-setup"
from kvcourse.sessions.store import SessionStore

tiny = load_model("tiny")
sessions = {}
for name in ("ana", "ben", "cleo", "dan", "eve"):
    sessions[name] = Session(tiny)
    sessions[name].send("where is ana ? ana is in the", max_new_tokens=4)
room = sessions["ana"].save(path.with_name("one")).stat().st_size
budgets = {"max_ram_bytes": int(2.5 * room), "max_disk_bytes": int(4.5 * room)}
hours = [0.0]
store = SessionStore(path.with_name("store"), **budgets, ttl=48, clock=lambda: hours[0])

# %% [markdown] id="ask-store"
# They are put in alphabetical order, an hour apart. Each put returns when the session is on disk. Who is where in the end?

# %% id="guess-store"
guess = {"in memory": None, "on disk": None}


# %% id="store-put"
def show(what):
    held = sorted(store.list())
    ready = ", ".join(one.name for one in held if one.in_ram)
    kept = ", ".join(one.name for one in held if one.on_disk)
    print(f"{what:22} in memory: {ready or 'none':12} on disk: {kept or 'none'}")


for name, session in sessions.items():
    hours[0] += 1
    store.put(name, session, pinned=name == "ana")
    show(f"hour {hours[0]:.0f}, put {name}")

# %% [markdown] id="explain-store"
# Ben's went: he was the first after Ana, and hers is pinned. Memory holds copies of the two used last. A session is kept *as it was put*; what
# is said later has to be put again, and the old version stays until the new one is complete.

# %% id="store-get"
hours[0] += 1
back = store.get("cleo", tiny)
show("hour 6, get cleo")
assert back.tokens == sessions["cleo"].tokens and store.get("ben", tiny) is None
hours[0] = 53.5  # dan was put at hour 4, eve at hour 5, cleo was used at hour 6; two days have 48
print("gone after two days without use:", store.prune())
show("hour 53.5")
store.close()

# %% [markdown] id="spill-text"
# Waiting for the disk in every turn may be too slow. With `durable=False` a put returns at once; the session is written when its room in
# memory is needed, or at `flush` or `close`. That is a **spill**. What nobody has written is lost in a crash, so that is what `durable`
# decides.

# %% id="spill"
store = SessionStore(path.with_name("lazy"), **budgets)
for name in ("ana", "ben", "cleo"):
    store.put(name, sessions[name], durable=False)
    show(f"put {name}, not durable")
store.close()
print("after close:", len(list(path.with_name("lazy").glob("files/*"))), "files")

# %% [markdown] id="crash"
# ### What a crash leaves
#
# Ana's session has three ids on disk, and a version with four is being put, by a process that dies at the worst moment. There are three of
# those. The new file has a temporary name still; or it has its own, and is not in the index; or it is, and the old file is still there.
# Which version is found afterwards?

# %% id="guess-crash"
# 3 or 4 ids?
guess = {"temporary name": None, "not in the index": None, "old one still there": None}

# %% id="crash-program"
program = """
import os, sys
from pathlib import Path
from kvcourse.sessions.file import SessionFile
from kvcourse.sessions.store import SessionStore

moment, store = sys.argv[1], SessionStore(sys.argv[2])
store.put("ana", SessionFile({"ids": [1, 2, 3]}, None))
die = lambda *_, **__: os._exit(9)  # no clean-up of any kind, as after kill -9
replace = os.replace
if moment == "temporary name":
    os.fsync = die
elif moment == "not in the index":
    os.replace = lambda *names: (replace(*names), die())
else:
    unlink = Path.unlink
    Path.unlink = lambda path, **how: die() if path.suffix == ".session" else unlink(path, **how)
store.put("ana", SessionFile({"ids": [1, 2, 3, 4]}, None))
"""

# %% id="crashes"
for moment in ("temporary name", "not in the index", "old one still there"):
    place = path.with_name(moment)
    done = subprocess.run([sys.executable, "-c", program, moment, str(place)], capture_output=True)
    left = len(list(place.glob("files/*")))
    with SessionStore(place) as store:
        ids = store.read("ana").about["ids"]
    files = len(list(place.glob("files/*")))
    print(f"{moment:20} {left} files left; reopened: {files} file, {len(ids)} ids")
    assert done.returncode == 9 and left == 2
    assert len(ids) == (4 if moment == "old one still there" else 3)

# %% [markdown] id="explain-crash"
# Never half a session, and no litter. A file is added under a name of its own; a row in the index (SQLite) says which file counts, and that
# row changes in one transaction: before it the old version is found, after it the new one. Whoever opens the store next removes what counts
# no longer, unless the process that announced it is still alive: several may use one folder.

# %% [markdown] id="closing"
# ## What to keep
#
# The ids are the conversation, the cache holds a prefix of them, and a turn computes the rest: what is new, and the one token that the last
# answer left. Text is derived, so rendering and encoding it again may miss what is cached. A file is believed only when its digest, its
# model and its tokenizer are the right ones.
#
# Measured on this machine. Prefix cache and session lie in or near each other's spread: at this length the copies weigh little
# beside the pass.

# %% id="measured" tags=["volatile"]
from kvcourse import prefill, timed

here = Session.load(path, smollm2)
prompt = [*here.tokens, *tok.encode("\n" + asked("And of Greece?"), special=True)]
pc = RadixPrefixCache(smollm2, max_bytes=2**26)
_ = pc.insert(here.tokens, here.cache)


# %% id="measured-ways" tags=["volatile"]
def from_prefix():
    cache = PreallocatedCache(len(prompt))
    with pc.lease(prompt) as hit:
        hit.load_into(cache)
    prefill(smollm2, prompt[cache.length :], cache)


def from_session(session=here):
    n_rows = session.cache.length
    prefill(smollm2, prompt[n_rows:], session.cache)
    session.cache.truncate(n_rows)


ways = {
    "replay everything": lambda: prefill(smollm2, prompt, PreallocatedCache(len(prompt))),
    "prefix cache": from_prefix,
    "session in memory": from_session,
    "session from its file": lambda: from_session(Session.load(path, smollm2)),
}

# %% id="measured-table" tags=["volatile"]
computed = [len(prompt)] + 3 * [len(prompt) - here.cache.length]
moves = {
    "prefix cache": f"{here.cache.length * ROW / 1e6:.1f} MB copied",
    "session from its file": f"{len(data) / 1e6:.1f} MB read",
}
print(f"turn 7 on this machine: {len(prompt)} prompt tokens\n")
print(f"{'':24} {'computed':>8} {'':16} first token after")
for (name, way), n_tokens in zip(ways.items(), computed, strict=True):
    took = timed(way, runs=5)
    first = f"{took.median_s * 1e3:6.0f} ms ({took.min_s * 1e3:.0f} to {took.max_s * 1e3:.0f})"
    print(f"{name:24} {n_tokens:8} {moves.get(name, ''):>16} {first}")
print(f"\nmedian of 5 runs, fastest and slowest; {took.device}")

# %% [markdown] id="next"
# **Your turn:** exercise 11, `11_sessions.ipynb` in your `work/` folder. And `kvcourse chat --session trip` keeps a
# conversation for tomorrow; in it `/fork`, `/rewind` and `/usage` do what this lesson did.
#
# A session makes each turn cheap. It does not make the conversation short: every turn is still in the context, and an agent
# that reads files and calls tools fills it in an hour. **Next:** why do naive agents burn tokens? Lesson 12 counts them.
