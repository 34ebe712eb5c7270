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
# # 07 · What does the cache itself cost?
#
# **You need** to know what a K/V row is and how a cache is proved right (lessons 05 and 06). About 40 minutes, half of it yours.
#
# **At the end** you can build a cache that moves nothing, say to the byte what any model's cache takes, tell how near to the
# machine's limit a decode step runs, and take tokens back.

# %% id="imports"
import statistics
import time

import torch

from kvcourse import GrowingCache, Meter, PreallocatedCache, generate, load_model
from kvcourse.caches.base import KeysValues
from kvcourse.caches.full import FullCache
from kvcourse.config import kv_bytes_per_token
from kvcourse.meter import Timing, device_name
from kvcourse.viz import plot_copied, plot_speed, show_diff

_ = torch.set_grad_enabled(False)  # nothing is trained here

tiny = load_model("tiny", dtype=torch.float64)  # four layers, 64 bits: rounding cannot hide a fault
smollm2 = load_model("smollm2")  # the real one: thirty layers, 32 bits

# %% [markdown] id="ask-copies"
# ## Rows that move
#
# `GrowingCache` joins old rows and new ones at every step, and joining makes a new tensor: every old row is copied into it.
# Five tokens, one by one, in one layer. How many rows are copied at each step?

# %% id="guess-copies"
guess = [None, None, None, None, None]


# %% id="fill"
def fill(cache, tokens, H_kv=3, D=64):
    """Append random rows of SmolLM2's shape to one layer, token by token: bytes copied by each."""
    copied = []
    for _ in range(tokens):
        with Meter() as meter:
            cache.append(0, torch.randn(1, H_kv, 1, D), torch.randn(1, H_kv, 1, D))
            cache.advance(1)
        copied.append(meter.cost.bytes_copied)
    return copied


row_bytes = 2 * 3 * 64 * 4  # K and V, three heads, 64 numbers of 4 bytes: one row of one layer
steps = [n // row_bytes for n in fill(GrowingCache(), 5)]
print("rows copied by each step:", steps, "· together", sum(steps))

# %% [markdown] id="ask-thousand"
# 0 + 1 + 2 + 3 + 4. In general n tokens copy n(n − 1)/2 rows to end up with n. Now a thousand of them, and all thirty layers of
# SmolLM2. The cache will hold 46 MB. How much is copied on the way?

# %% id="guess-thousand"
guess = None  # MB

# %% id="thousand"
cache = GrowingCache()
growing = fill(cache, 1000)
rows, held = sum(growing) // row_bytes, cache.nbytes / 1e6
print(f"one layer: {rows:,} rows copied, {sum(growing) / 1e6:,.0f} MB, to hold {held:.1f} MB")
print(f"thirty layers: {30 * sum(growing) / 1e9:.1f} GB, to hold {30 * cache.nbytes / 1e6:.0f} MB")
assert sum(growing) == row_bytes * 1000 * 999 // 2
assert cache.nbytes == row_bytes * 1000

# %% [markdown] id="explain-thousand"
# Five hundred times what it holds, and it grows with the square: the recompute loop's disease, one level down. What was
# quadratic in passes through the model is now quadratic in bytes moved.
#
# A bookshelf that is replaced by a longer one for each new book would cost the same. We know how to shelve books better.

# %% [markdown] id="toy"
# ## Slots
#
# Take a shelf that is long enough, once. Eight slots, and numbers for rows:

# %% id="toy-slots"
buffer = torch.zeros(8)
buffer[0:3] = torch.tensor([1.0, 2.0, 3.0])  # three rows come
buffer[3:5] = torch.tensor([4.0, 5.0])  # two more; nothing moves
view = buffer[:5]  # what attention gets: the rows in use
print("buffer", buffer.tolist(), "\nview  ", view.tolist())

# %% [markdown] id="ask-view"
# Is `view` a copy of the five rows? Change the buffer, and look at the view.

# %% id="guess-view"
guess = None  # what will view[0] say?

# %% id="toy-view"
buffer[0] = 99
print("view now", view.tolist())
assert view.data_ptr() == buffer.data_ptr()  # the same place in memory

# %% [markdown] id="explain-view"
# A **view** is a description (where it starts, how long, which steps) of memory that belongs to somebody else. It costs nothing,
# whatever its length. So an append writes the new rows into their slots, hands out a view of slots 0 to length, and is done.
#
# Slot and position are two words: the slot says where in storage, the position where in the text.

# %% [markdown] id="build"
# ## The cache
#
# `FullCache` is the package's base for caches that keep every row: it counts tokens in, makes plans, and refuses a pass that
# goes beyond `capacity`. We bring the storage.


# %% id="fixed-cache"
class FixedCache(FullCache):
    def __init__(self, capacity):
        super().__init__()
        self.room, self.buffers = capacity, {}

    capacity = property(lambda self: self.room)
    nbytes = property(lambda self: sum(x.nbytes for pair in self.buffers.values() for x in pair))

    def _write(self, layer, k, v):
        if layer not in self.buffers:  # (B, H_kv, capacity, D), once
            shape = *k.shape[:2], self.room, k.shape[3]
            self.buffers[layer] = [torch.zeros(shape, dtype=k.dtype) for _ in "kv"]
        start, stop = self.length, self.length + k.shape[2]
        for buffer, new in zip(self.buffers[layer], (k, v), strict=True):
            buffer[:, :, start:stop] = new
        return KeysValues(*(buffer[:, :, :stop] for buffer in self.buffers[layer]))

    def _rows(self, layer):
        return KeysValues(*self.buffers[layer]) if layer in self.buffers else None

    def _copy_rows(self, other):  # a fork gets shelves of its own
        other.buffers = {n: [x.clone() for x in pair] for n, pair in self.buffers.items()}

    def _forget_after(self, length):
        pass  # see below


# %% id="diff"
show_diff(GrowingCache._write, FixedCache._write)

# %% [markdown] id="ask-equal"
# Now lesson 06's proof: the logits of every position, for several cuts, against the model without a cache. And against
# `PreallocatedCache`, the package's version of the same thing, down to the last bit.


# %% id="logits-in-calls"
def in_calls(model, ids, cuts, cache):
    """Logits of all positions, fed in calls of the given sizes."""
    parts = torch.tensor([ids]).split(cuts, dim=1)
    return torch.cat([model(part, cache=cache) for part in parts], dim=1)


def largest_difference(model, ids, cuts, cache):
    return (in_calls(model, ids, cuts, cache) - model(torch.tensor([ids]))).abs().max().item()


text = tiny.tokenizer.encode("ana is in the garden . the key is in the kitchen . where is ana ?")
n = len(text)
CUTS = {"ones": [1] * n, "fours": [4] * (n // 4) + [n % 4] * (n % 4 > 0), "one pass": [n]}

# %% id="proof"
for name, cuts in CUTS.items():
    assert largest_difference(tiny, text, cuts, FixedCache(n)) < 1e-9
    ours = in_calls(tiny, text, cuts, FixedCache(n))
    theirs = in_calls(tiny, text, cuts, PreallocatedCache(n))
    assert torch.equal(ours, theirs)
    print(f"{name:8} equal to the model without a cache, and bit for bit to PreallocatedCache")

# %% id="proof-real"
real = smollm2.tokenizer.encode("The capital of France is Paris, and the capital of Italy is")
for name, cuts in {"ones": [1] * 13, "fours": [4, 4, 4, 1], "one pass": [13]}.items():
    assert largest_difference(smollm2, real, cuts, PreallocatedCache(64)) < 1e-3
    print(f"SmolLM2, {name}: equal within 0.001")

# %% [markdown] id="ask-none-copied"
# Proved, so it may be measured. Bytes first. A thousand tokens again:

# %% id="guess-none-copied"
guess = None  # bytes copied

# %% id="none-copied"
fixed = fill(PreallocatedCache(1000), 1000)
print(f"copied: growing {sum(growing):,} bytes, preallocated {sum(fixed):,}")
assert sum(fixed) == 0

# %% id="copied-plot"
at = list(range(0, 1001, 100))
plot_copied(
    at,
    {
        "growing copies": [sum(growing[:m]) for m in at],
        "either holds": [row_bytes * m for m in at],
        "preallocated copies": [sum(fixed[:m]) for m in at],
    },
)

# %% [markdown] id="explain-copied"
# One layer of thirty. "Either holds" is the second line, and looks like the axis. The meter does not derive its zero: it counts
# where rows are copied, and this cache has no such place.
#
# The price: the whole buffer is there from the first token on.

# %% [markdown] id="traps"
# ## Four ways to get it wrong
#
# A buffer that is longer than what it holds invites faults that a growing cache cannot have. Each of these has been shipped by
# somebody. First: hand out the buffer, all of it.

# %% id="guess-whole"
# Which cut notices, when the buffer is exactly as long as the text?
guess = {"ones": None, "one pass": None}


# %% id="whole-buffer"
class WholeBuffer(FixedCache):
    def _write(self, layer, k, v):
        super()._write(layer, k, v)
        return KeysValues(*self.buffers[layer])


for name in ("one pass", "ones"):
    difference = largest_difference(tiny, text, CUTS[name], WholeBuffer(n))
    print(f"{name:8} largest difference {difference:.1f}")

# %% [markdown] id="explain-whole"
# One pass leaves no slot empty here. In passes of four the mask is narrower than the buffer, and torch complains. One token
# alone has no mask: it attends to empty slots as if they were tokens. A key of zeros is not ignored: its score is 0, and
# softmax gives exp(0) its share. No error, only worse answers.

# %% [markdown] id="ask-ninth"
# Second: no limit. The buffer has eight slots, and a ninth row comes. What does torch say?

# %% id="guess-ninth"
guess = None

# %% id="ninth-toy"
buffer = torch.zeros(1, 8)
buffer[:, 8:9] = torch.ones(1, 1)  # slot number 8: the ninth
print("no error;", buffer.tolist())

# %% [markdown] id="explain-ninth"
# Nothing. The slice 8:9 of eight slots is empty, and one row is "broadcast" into zero slots. A cache without a check decodes on,
# one token at a time, and forgets every new one. Ours asks before anything is written:


# %% id="ninth"
class NoLimit(FixedCache):
    capacity = None


difference = largest_difference(tiny, text[:12], [1] * 12, NoLimit(8))
print(f"without a check: largest difference {difference:.1f}, no error")
cache = FixedCache(8)
in_calls(tiny, text[:8], [8], cache)
before = cache.buffers[0][0].clone()
try:
    tiny(torch.tensor([text[8:9]]), cache=cache)
except Exception as error:
    print(f"{type(error).__name__}: {error}")
assert cache.length == 8 and torch.equal(cache.buffers[0][0], before)

# %% [markdown] id="rewind"
# Third and fourth are about going back. To take the last tokens back is to lower the length: `truncate(n)` keeps the first n.
# `_forget_after` does nothing at all. The rows are still in their slots:

# %% id="stale-rows"
cache = FixedCache(n)
in_calls(tiny, text, [n], cache)
cache.truncate(3)
written = (cache.buffers[0][0] != 0).any(dim=-1)[0, 0].sum()
print(f"length {cache.length} · slots that hold something: {written} of {n}")

# %% [markdown] id="ask-stale"
# Is that right? Then for every length: whatever comes next must get the logits that it would get in a new text.

# %% id="truncate-everywhere"
other = tiny.tokenizer.encode("where is the key ?")[:3]
for keep in range(n + 1):
    for kind in (FixedCache, PreallocatedCache, GrowingCache):
        cache = kind() if kind is GrowingCache else kind(n + 3)
        in_calls(tiny, text, [n], cache)
        cache.truncate(keep)
        after = in_calls(tiny, other, [1, 2], cache)
        fresh = tiny(torch.tensor([text[:keep] + other]))[:, keep:]
        assert (after - fresh).abs().max() < 1e-9, (kind, keep)
print(f"cut to 0, 1, ... {n}, then three other tokens: as in a new text, with three kinds of cache")

# %% [markdown] id="explain-stale"
# Nobody looks past the length, and the next append overwrites. **Stale rows** do harm only if somebody else believes in them. The
# next cache remembers how far it has ever been written, and hands out that much:


# %% id="high-water"
class HighWater(FixedCache):
    top = 0

    def _write(self, layer, k, v):
        super()._write(layer, k, v)
        self.top = max(self.top, self.length + k.shape[2])
        return KeysValues(*(buffer[:, :, : self.top] for buffer in self.buffers[layer]))


for keep in (n, 3):
    cache = HighWater(n + 3)
    in_calls(tiny, text, [n], cache)
    cache.truncate(keep)
    after = in_calls(tiny, other, [1] * 3, cache)
    fresh = tiny(torch.tensor([text[:keep] + other]))[:, keep:]
    print(f"kept {keep:2} of {n}: largest difference {(after - fresh).abs().max():.1f}")

# %% [markdown] id="crop"
# It passes every test without a truncation. The last trap lies in the numbers. A library's `crop(n)`, up to the summer of 2026,
# took an n above zero for "keep n" and all others for "this many fewer". Five rows; what remains?

# %% id="guess-crop"
guess = {2: None, -1: None, 0: None, -7: None}


# %% id="crop-run"
def crop(rows, n):
    if n <= 0:
        n = len(rows) - abs(n)
    return rows[:n]


for keep in (2, -1, 0, -7):
    print(f"crop({keep:2}) of five rows: {crop([1, 2, 3, 4, 5], keep)}")

# %% [markdown] id="explain-crop"
# crop(0), "start afresh", keeps everything; crop(−7) makes −2 of itself, and Python's slice understands that as "all but two"
# (transformers, issue 47433). One meaning, and a refusal for everything else, is shorter. From −2 to length + 2:

# %% id="truncate-table"
for keep in range(-2, 8):
    cache = PreallocatedCache(8)
    in_calls(tiny, text[:5], [5], cache)
    try:
        cache.truncate(keep)
        print(f"truncate({keep:2}) of 5: length {cache.length}")
    except Exception as error:
        print(f"truncate({keep:2}) of 5: {type(error).__name__}, length still {cache.length}")
    assert cache.length == (keep if 0 <= keep <= 5 else 5)

# %% [markdown] id="memory"
# ## What it holds
#
# Every token leaves a K and a V, of D numbers, for each of H_kv heads in each of L layers. For S tokens of one text:
#
# $$2 \cdot L \cdot H_{kv} \cdot D \cdot S \cdot \text{bytes}$$
#
# SmolLM2 has L = 30, H_kv = 3, D = 64, and computes with 4 bytes. Before you run: how many KiB (of 1,024 bytes) for each token?

# %% id="guess-memory"
guess = None  # KiB a token

# %% id="formula"
print(f"SmolLM2: {kv_bytes_per_token(smollm2.config) / 1024:.0f} KiB a token")
for model, name, B, S in (
    (tiny, "tiny", 1, 17),
    (tiny, "tiny", 5, 9),
    (smollm2, "SmolLM2", 1, 40),
    (smollm2, "SmolLM2", 2, 21),
):
    c, size = model.config, next(model.parameters()).element_size()
    growing, fixed = GrowingCache(), PreallocatedCache(64)
    for cache in (growing, fixed):
        model(torch.zeros(B, S, dtype=torch.int64), cache=cache)
    formula = 2 * c.n_layer * c.n_kv_head * c.head_size * size * B  # a slot in each of the B texts
    assert growing.nbytes == formula * S and fixed.nbytes == formula * 64
    sizes = f"{growing.nbytes:11,} bytes growing, {fixed.nbytes:11,} preallocated for 64"
    print(f"{name:8} B {B}  S {S}  {sizes}")

# %% [markdown] id="explain-formula"
# The formula and what the caches really hold agree to the byte; the preallocated one takes S for its capacity. Its unused slots
# are the price of never moving, and lesson 09 is about getting them back.
#
# Now the sizes that people run. A line for each model; the dashed one is a graphics card of 24 GiB. Both axes are
# logarithmic: each tick is a multiple of the one before.

# %% id="memory-plot"
from kvcourse.viz import memory_plot

memory_plot()

# %% [markdown] id="explain-plot"
# Twice the tokens, twice the bytes. Llama 2 7B needs 2 GiB for 4,096 tokens: its 32 heads all have K and V. Llama 3.1 8B, as
# wide and as deep, needs a quarter, since four query heads share one. The first Mistral 7B keeps the last 4,096 tokens only
# (later ones dropped the window): there its line stops rising. Both tricks are lesson 08's.

# %% [markdown] id="calculator-text"
# Choose your own. The same on the command line: `kvcourse memory --model llama-3.1-8b --context 8192 --batch 4 --dtype int8`.

# %% id="calculator" tags=["volatile"]
from kvcourse.viz import memory_calculator

memory_calculator()

# %% [markdown] id="ask-calculator"
# **Change one thing.** Eight texts at once, 8,192 tokens each, Llama 3.1 8B, float16. Are K and V larger than the weights by
# then? At which number of texts are they?

# %% id="check-calculator"
from kvcourse.memory import price
from kvcourse.model_shapes import find_shape

for texts in (8, 14, 15, 16):
    memory = price(find_shape("llama-3.1-8b"), 8192, texts, "float16")
    kv, weights = memory.kv_bytes / 2**30, memory.weight_bytes / 2**30
    print(f"{texts:2} texts: K and V {kv:5.2f} GiB, weights {weights:.2f} GiB")
assert price(find_shape("llama-3.1-8b"), 8192).kv_bytes == 2 * 32 * 8 * 128 * 8192 * 2 == 2**30

# %% [markdown] id="speed"
# ## What a step has to read
#
# Now time. One new token at batch 1 needs every weight once, and every K and V held. Nothing else is large. So a step cannot
# take less than those bytes divided by how fast this machine reads memory.

# %% id="bytes-a-step"
weight_bytes = sum(weight.nbytes for weight in smollm2.parameters())
row = kv_bytes_per_token(smollm2.config)
print(f"weights {weight_bytes / 1e6:.0f} MB, K and V {row / 1e3:.0f} kB for each token held")
for held in (32, 512, 8192):
    kv_bytes = row * held
    reads, on_top = (weight_bytes + kv_bytes) / 1e6, kv_bytes / weight_bytes
    print(f"a step after {held:5,} tokens reads {reads:5.0f} MB, {on_top:4.0%} on top")

# %% [markdown] id="ask-intensity"
# Lesson 05 left a question: a pass over 128 tokens takes nowhere near 128 times as long as a pass over one. Both read the same
# weights. What does differ?

# %% id="intensity"
for tokens in (1, 128):
    with Meter() as meter:
        smollm2(torch.zeros(1, tokens, dtype=torch.int64), cache=PreallocatedCache(128))
    macs = meter.cost.macs
    a_byte = macs / weight_bytes
    print(f"{tokens:3} tokens: {macs / 1e6:7,.0f} million multiply-adds, {a_byte:5.2f} a byte read")
    assert (a_byte < 1) == (tokens == 1)

# %% [markdown] id="explain-intensity"
# Every weight is fetched once a pass, whatever its width, and used once for each token. With one token, a byte that arrives
# gives a quarter of a multiply-add: the processor waits for memory. With 128, each byte feeds 33 (32 from the weights, the
# rest is attention), and the processor is the one that is waited for. Decode is limited by **bandwidth**, prefill by
# arithmetic.

# %% [markdown] id="bandwidth-text"
# How fast does this machine read? Sum a large array, and multiply it by a row, as a step does; the faster way counts.


# %% id="bandwidth" tags=["volatile"]
def read_seconds(read, runs=5):
    """Seconds of each run, after one that is not counted."""
    seconds = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


# 256 MiB: more than a processor keeps at hand
array, one = torch.ones(1024, 64 * 1024), torch.ones(1, 1024)
best = min((read_seconds(read) for read in (array.sum, lambda: one @ array)), key=statistics.median)
bandwidth = [array.nbytes / seconds for seconds in (max(best), statistics.median(best), min(best))]
low, middle, high = (speed / 1e9 for speed in bandwidth)
print(f"memory was read at {middle:.1f} GB/s (from {low:.1f} to {high:.1f})")

# %% [markdown] id="equal-first"
# Equality before speed, at every length that will be timed. One long prompt goes through once. Then the cache is cut back, to 256
# tokens, to 128, and so on: that is what `truncate` is for. The next token must get the logits that it gets in one pass without
# a cache.

# %% id="equal-at-lengths"
from kvcourse import decode_step, prefill

LENGTHS = [32, 64, 128, 256, 512]
notes = "A model reads everything again for every new word, unless somebody keeps notes. "
long = smollm2.tokenizer.encode(notes * 40)[:513]
whole = smollm2(torch.tensor([long]))[0]
caches = {"GrowingCache": GrowingCache(), "PreallocatedCache": PreallocatedCache(600)}
costs = {name: {} for name in caches}
for name, cache in caches.items():
    prefill(smollm2, long[:-1], cache)
    for length in reversed(LENGTHS):
        cache.truncate(length)
        with Meter() as meter:
            logits = decode_step(smollm2, long[length], cache)[0]
        costs[name][length] = meter.cost
        assert (logits - whole[length]).abs().max() < 1e-3 and cache.length == length + 1
    print(f"{name}: a step after 512, 256, 128, 64 and 32 tokens gives what one pass gives")

# %% [markdown] id="ask-counts"
# Both are right. What did the steps do? The claims about speed rest on these counts, which are the same on every machine.

# %% id="counts"
for length in LENGTHS:
    grown, fixed = (costs[name][length] for name in caches)
    assert grown.tokens == fixed.tokens == 1  # without a cache it would be length + 1
    assert grown.bytes_copied == row * length and fixed.bytes_copied == 0
    copied = f"{grown.bytes_copied / 1e6:4.1f} MB copied growing, 0 preallocated"
    print(f"after {length:3} tokens: 1 goes through, not {length + 1:3}; {copied}")

# %% [markdown] id="ask-speed"
# And now the clock. For each length, one new token without a cache (the whole text goes through), and with both caches in turn. How
# much slower is a cached step after 512 tokens than after 32? And one without a cache?

# %% id="guess-speed"
guess = {"cached": None, "without": None}  # times slower


# %% id="steps-in-turn"
def steps_in_turn(length, runs=7):
    """Times of one step after `length` tokens, the two caches in turn."""
    seconds = {name: [] for name in caches}
    for cache in caches.values():
        cache.truncate(length)
    for _ in range(runs + 1):
        for name, cache in caches.items():
            start = time.perf_counter()
            decode_step(smollm2, long[length], cache)
            seconds[name].append(time.perf_counter() - start)
    timings = {}
    for name, (_, *s) in seconds.items():  # without the first
        timings[name] = Timing(statistics.median(s), min(s), max(s), runs, device_name())
    return timings


# %% id="time" tags=["volatile"]
from kvcourse import timed

for cache in caches.values():
    prefill(smollm2, long[cache.length : -1], cache)  # 512 tokens again
both = [steps_in_turn(length) for length in reversed(LENGTHS)][::-1]
starts = [torch.tensor([long[:length]]) for length in LENGTHS]
alone = [timed(lambda ids=ids: smollm2(ids, logits_to_keep=1), 2, 0) for ids in starts]
times = {"without a cache": alone}
times |= {name: [taken[name] for taken in both] for name in caches}

# %% id="times-table" tags=["volatile"]
print("tokens", *(f"{name:>20}" for name in times), "   (milliseconds a new token)")
for i, length in enumerate(LENGTHS):
    print(f"{length:6}", *(f"{taken[i].median_s * 1e3:20.0f}" for taken in times.values()))

# %% id="speed-plot" tags=["volatile"]
reads = [weight_bytes + row * length for length in LENGTHS]
limits = [[speed / read for read in reads] for speed in (bandwidth[0], bandwidth[2])]
plot_speed(
    LENGTHS,
    times,
    (limits[0], limits[1]),
    title=f"SmolLM2, float32; bars: slowest to fastest run; {device_name()}",
)

# %% [markdown] id="explain-speed"
# Without a cache the speed falls with every token. With one it hardly moves, because nearly all that a step reads is weights. The
# band is where a step would be if it did nothing but read; the gap below it is thirty layers of small products, norms and Python.

# %% [markdown] id="explain-copies"
# And the two caches? At these lengths they are hard to tell apart: 24 MB copied, beside 538 MB of weights. The copy grows with the
# text and the weights do not. After 8,192 tokens it would be 377 MB, read and written again for every token, and on a machine that
# serves many texts at once the K and V are most of what is read.

# %% [markdown] id="guessing"
# ## Going back, to go faster
#
# A pass over five tokens reads the weights once, as a pass over one does. If somebody guessed the next four tokens, one pass
# could check them all: its five rows of logits say what the model itself would have chosen at each place. Wrong guesses are taken
# back with `truncate`. This is **speculative decoding**.

# %% [markdown] id="guessing-draft"
# Who guesses? Something cheaper that reads the same text, a **draft**. Here: the model's own first layers, with its own head on
# top. It needs no other weights. One round, by hand:

# %% id="one-round"
from kvcourse.speculative import first_layers, speculate

fox = smollm2.tokenizer.encode("The quick brown fox jumps over the lazy dog. The quick brown fox")
cache = PreallocatedCache(64)
prefill(smollm2, fox[:-1], cache)  # the last token is in no cache yet

guesses = generate(first_layers(smollm2, 28), fox, max_new_tokens=4).tokens  # 28 of 30 layers
logits = smollm2(torch.tensor([fox[-1:] + guesses]), cache=cache)[0]
chosen = logits.argmax(-1).tolist()  # one pass, five choices
for guessed, own in zip([*guesses, None], chosen, strict=True):
    said = "(no guess)" if guessed is None else repr(smollm2.tokenizer.decode([guessed]))
    print(f"guessed {said:14} the model's own choice {smollm2.tokenizer.decode([own])!r}")

# %% [markdown] id="ask-agree"
# Which of the model's five choices may be kept? Each was made as if the guesses before it were true.

# %% id="guess-agree"
guess = None  # how many

# %% id="agree"
agreed = next((i for i, guessed in enumerate(guesses) if guessed != chosen[i]), len(guesses))
new = chosen[: agreed + 1]
cache.truncate(len(fox) + agreed)  # wrong guesses go; the last new token has no row yet
said = smollm2.tokenizer.decode(new)
print(f"{agreed} guesses agree, so one pass gives {len(new)} tokens: {said!r}")
assert new == generate(smollm2, fox, max_new_tokens=len(new)).tokens

# %% [markdown] id="explain-agree"
# All up to the first disagreement, and the choice made there: it followed true tokens only. So a pass always gives at least one
# token, the one that plain greedy decoding would have given, and wrong guesses can cost time, never change the text. That is a
# claim; here is its test, with drafts from good to useless.

# %% id="speculate"
plain = generate(smollm2, fox, max_new_tokens=16)
print("layers  guessed  accepted  passes  blocks computed")
print(f"{'none':>6}  {0:7}  {0:8}  {16:6}  {16 * 30:15}")
for layers in (4, 20, 28, 30):
    out = speculate(smollm2, fox, draft=first_layers(smollm2, layers), max_new_tokens=16)
    assert out.tokens == plain.tokens  # token for token
    assert len(out.tokens) == out.accepted + out.passes  # every pass adds one of its own
    blocks = out.passes * 30 + out.drafted * layers
    print(f"{layers:6}  {out.drafted:7}  {out.accepted:8}  {out.passes:6}  {blocks:15}")

# %% [markdown] id="explain-speculate"
# The same sixteen tokens each time. Fewer passes, as hoped. But count the blocks (a pass of the whole model is thirty): no
# draft here computes fewer than the 480 without one. SmolLM2's middle layers were never trained to name the next word, and a
# draft of 28 layers costs nearly as much as the model. Whoever wins by this has a draft made for it, a small sister model or
# an extra head.

# %% [markdown] id="ask-tiny"
# `tiny` has only four layers and a simple world. Its answers are easier to foresee:

# %% id="speculate-tiny"
plain = generate(tiny, text, max_new_tokens=24)
print(f"no draft: 24 passes, {24 * 4} blocks")
for layers in (1, 2, 3):
    out = speculate(tiny, text, draft=first_layers(tiny, layers), max_new_tokens=24)
    assert out.tokens == plain.tokens
    blocks = out.passes * 4 + out.drafted * layers
    accepted = f"{out.accepted} of {out.drafted} guesses accepted"
    print(f"{layers} of 4 layers: {accepted}, {out.passes} passes, {blocks} blocks")

# %% [markdown] id="explain-tiny"
# Three layers of four save 6 of 96 blocks. Even a good draft pays little when it is nearly as large as the model.

# %% [markdown] id="change-draft"
# **Change one thing.** Pass `n_draft=1`, then 8. Which of the numbers of guesses is better for a poor draft, and which for a good
# one?

# %% [markdown] id="closing"
# ## What to keep
#
# A cache that takes its memory once copies nothing, if it hands out only the rows in use and refuses the row too many. It holds
# 2·L·H_kv·D·S numbers, and going back is to lower its length. A decode step reads all weights once, so bandwidth is its limit,
# and a cache is what brings it there.

# %% id="measured" tags=["volatile"]
print(f"SmolLM2 on this machine (memory {bandwidth[1] / 1e9:.1f} GB/s), after 512 tokens\n")
print(f"{'':20} {'tokens/s':>8} {'of the limit':>12} {'computed':>9} {'copied a step':>14}")
for name, taken in times.items():
    speed, computed = 1 / taken[-1].median_s, costs[name][512].tokens if name in costs else 512
    share = speed * (weight_bytes + row * 512) / bandwidth[1]
    copied = costs[name][512].bytes_copied if name in costs else 0
    print(f"{name:20} {speed:8.1f} {share:12.0%} {computed:9} {copied / 1e6:11.1f} MB")

# %% [markdown] id="next"
# **Your turn:** exercise 07, `07_fast_cache.ipynb` in your `work/` folder: the write into slots, the way back, the formula, and the
# judge of guesses.
#
# The formula has five factors, and three of them are choices: heads, tokens kept, bytes. **Next:** how can a cache be made smaller,
# and what does that cost? That is lesson 08.
