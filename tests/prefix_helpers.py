"""What the tests of prefix caches share: a model that is none, rows that name their text, and the claims that every kind keeps.

A claim takes make(model=None, **options) -> an empty prefix cache, and raises if it does not hold. `CLAIMS` together are the
definition of "this prefix cache works"; tests/mutants/prefix shows that each broken one breaks the claim it should.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from helpers import make_empty, make_model, uncached

from kvcourse.config import GPTConfig
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse, InputError, KVCourseError
from kvcourse.generate import generate
from kvcourse.meter import Meter
from kvcourse.prefix.cache import BlockPrefixCache, PrefixCache, RadixPrefixCache

BLOCK = 4
KINDS = {"radix": RadixPrefixCache, "blocks": BlockPrefixCache}
SHAPE = GPTConfig(vocab_size=50, context_length=128, n_layer=2, n_head=1, n_embd=2, n_inner=2)
TOKEN_BYTES = 2 * 2 * 2 * 8  # layers, K and V, numbers, bytes of one
Make = Callable[..., PrefixCache]


class FakeModel:
    """All that a prefix cache asks of a model. Another `salt` is other weights, and so is another dtype."""

    config, device, weight_format = SHAPE, torch.device("cpu"), None

    def __init__(self, salt=0, dtype=torch.float64):
        self.salt, self.dtype = salt, dtype

    @property
    def fingerprint(self):
        return f"weights {self.salt}"

    @property
    def weights_version(self):
        return self.salt, self.dtype


def fake_rows(tokens, salt=0):
    """K and V (L, 2, H_kv, n, D) of a text: every row depends on all tokens up to its own, on the layer and on the weights."""
    state, states = 1 + salt, []
    for token in tokens:
        state = (state * 1_000_003 + token + 1) % 2_147_483_647
        states.append(state)
    row = torch.tensor(states, dtype=torch.float64)[:, None]  # (n, 1)
    spread = torch.arange(SHAPE.n_layer * 2 * 2, dtype=torch.float64).view(SHAPE.n_layer, 2, 1, 1, 2) / 16
    return row + spread


def write(model, cache, tokens):
    """Let a cache take `tokens` after what it holds, whose text is `cache.text`."""
    text = [*getattr(cache, "text", []), *tokens]
    rows = fake_rows(text, model.salt)[:, :, :, len(text) - len(tokens) :].to(model.dtype)
    cache.bind(model, 1, model.dtype, model.device)
    for layer, (k, v) in enumerate(rows):
        cache.append(layer, k[None], v[None])
    cache.advance(len(tokens))
    cache.text = text


def filled(model, tokens, kind="growing", capacity=None):
    """A cache that holds the rows of a text."""
    cache = make_empty(kind, capacity=capacity or SHAPE.context_length)
    write(model, cache, list(tokens))
    return cache


def read(cache):
    """All rows that a cache holds, (L, 2, H_kv, n, D)."""
    return torch.stack([torch.cat(list(cache.read(layer, 0, cache.length))) for layer in range(SHAPE.n_layer)])


def assert_holds(cache, tokens, salt=0):
    assert cache.length == len(tokens), f"{cache.length} rows in place of {len(tokens)}"
    rows = read(cache) if tokens else None
    assert rows is None or torch.equal(rows, fake_rows(tokens, salt).to(rows.dtype)), "other rows than the text's"


def loaded(pc, tokens, namespace=None, kind="growing", model=None):
    """Lease, load, and compare what came with the text; return the cache."""
    cache = make_empty(kind, capacity=SHAPE.context_length)
    with pc.lease(tokens, namespace=namespace) as hit:
        hit.load_into(cache)
        assert cache.length == hit.length <= len(tokens) - 1, f"{cache.length} loaded, {hit.length} known of {len(tokens)}"
    cache.text = list(tokens[: cache.length])
    assert_holds(cache, cache.text, (model or pc.model).salt)
    return cache


def known(pc, tokens, namespace=None):
    """Tokens of a text that are stored: one more token behind it, so that the whole of it can be found."""
    return pc.match([*tokens, SHAPE.vocab_size - 1], namespace=namespace).length


def down(pc, n):
    """n in whole steps of what this kind stores."""
    return n - n % pc.index.step_tokens


def put(pc, tokens, namespace=None):
    """Insert a text; the books must be right afterwards."""
    new = pc.insert(tokens, filled(pc.model, tokens), namespace=namespace)
    pc.check()
    assert pc.stats.bytes <= pc.max_bytes
    return new


def text(n, seed=0, first=None):
    ids = random.Random(seed).choices(range(40), k=n)
    return ids if first is None else [*first, *ids[len(first) :]]


def maker(kind: type[PrefixCache]) -> Make:
    """How to make one of this class, with room for a thousand tokens and small blocks."""

    def make(model=None, max_tokens=1000, **options):
        model = model or FakeModel()
        if issubclass(kind, BlockPrefixCache):
            options.setdefault("block_tokens", BLOCK)
        else:
            options.pop("digest", None)
        max_bytes = options.pop("max_bytes", None)
        if max_bytes is None:
            max_bytes = max_tokens * kind(model, 2**30, **options).token_bytes
        return kind(model, max_bytes, **options)

    return make


def refuses(error, act):
    """`act` must raise `error`: nothing else, and not nothing."""
    try:
        act()
    except error as fault:
        return str(fault)
    raise AssertionError(f"no {error.__name__}")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


# The claims.


def all_but_the_last_token_can_be_found(make):
    """llama.cpp PR 1609, nano-vllm 144, mlx-lm PR 183: the whole prompt is known, and nothing is left to compute."""
    for n in (1, BLOCK, 2 * BLOCK, 5 * BLOCK):
        pc = make()
        for attempt in range(3):
            assert loaded(pc, text(n)).length == (down(pc, n - 1) if attempt else 0), f"{n} tokens, attempt {attempt}"
            assert put(pc, text(n)) == (0 if attempt else down(pc, n))


def texts_share_their_equal_start_and_nothing_else(make):
    pc, trunk = make(), text(13)
    put(pc, trunk)
    for n in range(1, 13):
        other = [*trunk[:n], 41, *text(6, seed=n)]
        assert loaded(pc, other).length == down(pc, n), f"{n} equal tokens"
        before = pc.stats.tokens
        put(pc, other)
        assert pc.stats.tokens - before == down(pc, len(other)) - down(pc, n)
        assert loaded(pc, [*other, 0]).length == down(pc, len(other))
    assert loaded(pc, [*trunk, 0]).length == down(pc, 13)
    assert loaded(pc, trunk[1:]).length == 0, "the same tokens after others are another text"


def the_chain_grows_after_a_full_hit(make):
    """vLLM PR 11186: once everything was known, nothing was ever added."""
    pc, whole = make(), text(6 * BLOCK + 1)
    for n in range(BLOCK, len(whole), BLOCK):
        put(pc, whole[:n])
        assert loaded(pc, whole).length == n
        assert loaded(pc, whole[:n]).length == down(pc, n - 1), "a full hit in between"
    assert pc.stats.inserted_tokens == pc.stats.tokens == 6 * BLOCK


def a_match_is_believed_by_its_tokens(make):
    """vLLM PR 12621 (CVE-2025-25183): a hash that collides, by chance or on purpose, hands out another text's rows."""
    eight_bits, nothing, what_came_first, own_tokens_only = (
        lambda data: bytes([sum(data) % 256]),
        lambda data: b"",
        lambda data: data[:8],
        lambda data: data[-8 * BLOCK :],
    )
    for digest in (eight_bits, nothing, what_came_first, own_tokens_only):
        pc, rng = make(digest=digest), random.Random(3)
        for n in range(120):
            ids = rng.choices(range(2), k=rng.randint(1, 24))
            cache = loaded(pc, ids, namespace=n % 2)
            write(pc.model, cache, ids[cache.length :])
            pc.insert(ids, cache, namespace=n % 2)
            pc.check()
            loaded(pc, ids, namespace=n % 2)


def namespaces_never_meet(make):
    """vLLM 44701: untyped fields collide. vLLM PR 17045 (CVE-2025-46570): one tenant's prefix is seen by another."""
    names = [None, "", "a", 1, "1", True, False, 0, b"a", b"", (), ("a", "bc"), ("ab", "c"), ("abc",), (("a",), "bc"), -1, -2]
    pc, ids = make(max_tokens=len(names) * 20), text(9)
    for number, name in enumerate(names):
        assert [known(pc, ids, other) for other in names[number:]] == [0] * (len(names) - number), f"before {name!r} came"
        put(pc, ids, name)
    for name in names:
        assert loaded(pc, ids, name).length == down(pc, 8), repr(name)
    pc.clear(namespace=("a", "bc"))
    assert [known(pc, ids, name) > 0 for name in names] == [name != ("a", "bc") for name in names]
    for bad in (1.0, ["a"], {"a"}, object()):
        refuses(InputError, lambda bad=bad: pc.match(ids, namespace=bad))


def other_weights_are_a_miss_everywhere(make):
    """lmdeploy 4917, sglang 26792: stale K/V after the weights were updated."""
    model, ids = FakeModel(), text(9)
    pc = make(model)
    for name in (None, "a"):
        put(pc, ids, name)
    old = filled(model, ids)
    with pc.lease(ids) as hit:
        model.salt += 1
        for act in (
            lambda: pc.match(ids),
            lambda: pc.insert(ids, filled(model, ids)),
            lambda: pc.lease(ids).__enter__(),
            lambda: hit.load_into(make_empty("growing")),
        ):
            refuses(CacheMisuse, act)
        assert pc.stats.leases == 1
        pc.check()
    refuses(CacheMisuse, lambda: pc.insert(ids, old))
    for name in (None, "a"):
        assert (known(pc, ids, name), loaded(pc, ids, name).length) == (0, 0)
    assert pc.stats.bytes == 0
    pc.check()
    put(pc, ids)
    assert loaded(pc, ids).length == down(pc, 8)


def what_is_leased_stays(make):
    """vLLM 37076: stolen between lookup and pin. mini-sglang PR 52: the lock skips its own node."""
    ids = text(4 * BLOCK)
    pc = make(max_tokens=6 * BLOCK)
    for end in (4 * BLOCK, 2 * BLOCK):
        put(pc, ids[:end])
    before = pc.match([*ids, 0]).length
    put(pc, text(6 * BLOCK, seed=1))  # pressure between looking and leasing
    assert loaded(pc, [*ids, 0]).length < before
    pc.clear()
    put(pc, ids)
    for n in range(BLOCK + 1, len(ids) + 1):
        with pc.lease(ids[:n]) as hit:
            pc.evict(2**30)
            put(pc, text(6 * BLOCK, seed=n))
            pc.check()
            assert hit.length == down(pc, n - 1) and known(pc, ids) >= hit.length
            cache = make_empty("growing")
            hit.load_into(cache)
            assert_holds(cache, ids[: hit.length])
        pc.evict(2**30)
        assert pc.stats.tokens == 0, "nothing stays pinned once all leases have ended"
        pc.check()
        put(pc, ids)


def a_split_keeps_its_leases(make):
    """sglang 35270, mllm PR 656: counts drift, or go negative, when what is leased is split."""
    ids = text(4 * BLOCK)
    for cuts in ((2,), (3, 1), (1, 2, 3)):
        pc = make()
        put(pc, ids)
        with contextlib.ExitStack() as leases:
            hits = [leases.enter_context(pc.lease([*ids[:n], 41])) for n in (4 * BLOCK, 3 * BLOCK, BLOCK, 4 * BLOCK)]
            for n in cuts:
                put(pc, [*ids[: n * BLOCK], 42, *text(BLOCK, seed=n)])
                pc.evict(2**30)
                pc.check()
                assert known(pc, ids) == 4 * BLOCK and pc.stats.tokens == 4 * BLOCK
            for hit in hits:
                cache = make_empty("growing")
                hit.load_into(cache)
                assert_holds(cache, ids[: hit.length])
        pc.check()
        pc.evict(2**30)
        assert pc.stats.tokens == 0
        pc.check()


def an_exception_leaves_pins_as_they_were(make):
    """vLLM PR 11565: pins leak when something fails inside."""
    pc, ids = make(), text(9)
    put(pc, ids)
    pins = Counter({entry.digest: entry.pins for entry in pc.index.entries()})
    for fault in (RuntimeError, KeyboardInterrupt, GeneratorExit):
        for name in (None, "unknown"):
            with contextlib.suppress(fault), pc.lease(ids, namespace=name):
                raise fault
            assert Counter({entry.digest: entry.pins for entry in pc.index.entries()}) == pins and pc.stats.leases == 0
            pc.check()
            assert len(pc.index.roots) == 1, "a root nobody needs is gone"
    small = make_empty("preallocated", capacity=2)
    with pc.lease(ids) as hit:
        refuses(CacheFull, lambda: hit.load_into(small))
    assert small.length == 0 and pc.stats.leases == 0
    pc.check()
    pc.clear()
    assert pc.stats.tokens == 0


class Watched:
    """A cache that calls `look` whenever rows are read from it."""

    def __init__(self, cache, look):
        self.__dict__.update(cache=cache, look=look)

    def __getattr__(self, name):
        return getattr(self.cache, name)

    def read(self, *where):
        self.look()
        return self.cache.read(*where)


def nothing_is_found_before_it_is_there(make):
    """nano-vllm 208, vLLM PR 7822: visible before its K/V exists."""
    pc, ids, seen = make(), text(9), []
    put(pc, ids[:BLOCK])

    def look():
        cache = loaded(pc, [*ids, 0])
        seen.append(cache.length)
        pc.check()

    pc.insert(ids, Watched(filled(pc.model, ids), look))
    assert seen == [BLOCK] * len(seen) != [], "found while it was being copied"
    assert loaded(pc, [*ids, 0]).length == down(pc, 9)
    before, other = pc.stats, text(9, seed=5)

    def fail():
        raise RuntimeError("on purpose")

    refuses(RuntimeError, lambda: pc.insert(other, Watched(filled(pc.model, other), fail)))
    assert pc.stats == before
    pc.check()
    with_itself = text(2 * BLOCK + 1, seed=6)  # the same text comes from elsewhere, half of it, while it is being copied
    pc.insert(with_itself, Watched(filled(pc.model, with_itself), lambda: put(pc, with_itself[: BLOCK + 1])))
    assert loaded(pc, [*with_itself, 0]).length == down(pc, len(with_itself))
    pc.check()


def nobody_shares_memory_with_the_store(make):
    """exo PR 991, lattice PR 516: a hit handed out by reference."""
    ids, others = text(12), text(12, seed=1)
    for kind in ("growing", "preallocated", "paged"):
        pc = make()
        room = 24 if kind == "paged" else 12  # no more than what comes in, where a fork needs no room of its own
        source = make_empty(kind, capacity=room)
        write(pc.model, source, ids)
        pc.insert(ids, source)
        for start in (2, BLOCK, 8):
            source.truncate(start)
            source.text = ids[:start]
            write(pc.model, source, others[start:])
            assert loaded(pc, [*ids, 0]).length == 12, "written into the cache that was inserted"
            with pc.lease([*ids, 0]) as hit:
                target = make_empty(kind, capacity=room)
                hit.load_into(target)
                again = target.fork()
                target.truncate(start)
                target.text = ids[:start]
                write(pc.model, target, others[start:])
                again.truncate(start)
            assert loaded(pc, [*ids, 0]).length == 12, "written into a cache that was loaded"
            assert_holds(target, [*ids[:start], *others[start:]])
    pc.insert([*ids[:6], 41, 41], filled(pc.model, [*ids[:6], 41, 41]))  # a tree cuts its rows in two
    memory = sum(rows.untyped_storage().nbytes() for rows in pc.store._rows.values())
    assert memory == pc.stats.bytes, "bytes in memory that nobody counts"


def eviction_frees_what_is_asked_and_less_than_an_entry_more(make):
    """sglang 4987: evict(n) evicts everything."""
    for n_tokens in (0, 1, 3, BLOCK, 9, 17, 1000):
        pc = make()
        for seed in range(6):
            put(pc, text(5 + 2 * seed, seed=seed))
        before = pc.stats
        freed = pc.evict(n_tokens * pc.token_bytes)
        after = pc.stats
        assert freed == before.bytes - after.bytes == (after.evicted_tokens - before.evicted_tokens) * pc.token_bytes
        if n_tokens == 0:
            assert freed == 0
        elif n_tokens == 1000:
            assert after.bytes == 0
        else:
            last = list(pc.gone.values())[-1]
            assert n_tokens <= freed // pc.token_bytes < n_tokens + len(last.tokens)
        pc.check()


def what_was_not_used_for_longest_goes_first_and_its_end_before_its_start(make):
    pc = make()
    texts = [text(2 * BLOCK, seed=seed) for seed in range(4)]
    for ids in texts:
        put(pc, ids)
    loaded(pc, [*texts[0], 0])
    for gone in (1, 2, 3, 0):
        pc.evict(1)
        left = [known(pc, ids) for ids in texts]
        assert left[gone] < 2 * BLOCK, f"text {gone} goes next: {left}"
        pc.evict(left[gone] * pc.token_bytes)
        assert known(pc, texts[gone]) == 0
    assert pc.stats.tokens == 0


def what_has_gone_is_no_longer_found(make):
    """vLLM PR 4764, kvcached 362: an evicted block is still in the map."""
    pc, texts = make(max_tokens=3 * BLOCK), [text(3 * BLOCK, first=[first]) for first in range(8)]
    for number, ids in enumerate([*texts, texts[0]]):
        put(pc, ids)  # takes the room of the one before
        assert [known(pc, other) for other in texts if other is not ids] == [0] * 7, f"text {number}"
        assert loaded(pc, [*ids, 0]).length == 3 * BLOCK
    pc.clear()
    assert known(pc, texts[0]) == 0 == pc.stats.bytes
    pc.check()


def what_has_expired_is_not_found(make):
    clock = Clock()
    pc, ids = make(ttl=10.0, clock=clock), text(3 * BLOCK)
    put(pc, ids)
    clock.now = 9.0
    assert loaded(pc, [*ids[:BLOCK], 41]).length == BLOCK  # used: the first block, at least, lives on to 19
    put(pc, text(9, seed=1))
    clock.now = 18.5
    assert known(pc, ids[:BLOCK]) == BLOCK
    with pc.lease([*ids[:BLOCK], 41]) as hit:
        clock.now = 30.0
        assert known(pc, ids) == 0 and known(pc, text(9, seed=1)) == 0, "expired"
        put(pc, text(9, seed=2))
        cache = make_empty("growing")
        hit.load_into(cache)  # it was leased in time
        assert_holds(cache, ids[:BLOCK])
        pc.check()
    assert known(pc, ids) == 0
    put(pc, text(9, seed=3))
    assert known(pc, text(9, seed=2)) == down(pc, 9)
    assert pc.stats.tokens == 2 * down(pc, 9), "what expired has been freed"
    assert pc.stats.expired_tokens == 3 * BLOCK + down(pc, 9)
    clock.now = 40.0
    assert loaded(pc, [*text(9, seed=3), 0]).length == 0
    pc.check()


def bytes_stay_within_the_budget(make):
    for max_tokens in (BLOCK, BLOCK + 1, 3 * BLOCK - 1, 30):
        pc, rng = make(max_tokens=max_tokens), random.Random(max_tokens)
        for _ in range(60):
            ids = rng.choices(range(2), k=rng.randint(1, 20))
            put(pc, ids)
            with pc.lease(ids) as hit:
                put(pc, rng.choices(range(2), k=rng.randint(1, 20)))
                cache = make_empty("growing")
                hit.load_into(cache)
                assert_holds(cache, ids[: hit.length])
    refuses(InputError, lambda: make(max_tokens=0))
    step = pc.index.step_tokens
    refuses(InputError, lambda: make(max_bytes=step * TOKEN_BYTES - 1))
    assert put(make(max_bytes=step * TOKEN_BYTES), text(9)) == step


def what_cannot_be_served_is_refused_before_anything_changes(make):
    model, ids = FakeModel(), text(9)
    pc = make(model)
    put(pc, ids)
    before = pc.stats

    def lease_into(cache):
        with pc.lease(ids) as hit:
            length = cache.length
            error = refuses(KVCourseError, lambda: hit.load_into(cache))
            assert cache.length == length and cache.held == length
        return error

    for bad in ([], [[1], [2]], "text", [1.5], [50], [-1], None):
        for act in (pc.match, lambda bad: pc.insert(bad, filled(model, ids)), lambda bad: pc.lease(bad).__enter__()):
            refuses(InputError, lambda act=act, bad=bad: act(bad))
    foreign = filled(FakeModel(), ids)
    refuses(CacheMismatch, lambda: pc.insert(ids, foreign))
    foreign.reset()
    assert "another model" in lease_into(foreign)
    assert "empty cache" in lease_into(filled(model, ids[:3]))
    assert "padding" in lease_into(make_empty("growing", starts=[2]))
    refuses(CacheMisuse, lambda: pc.insert(ids, make_empty("growing")))  # nothing computed
    for kind, options in (("sliding", {"window": 4}), ("sliding", {"window": 4, "sinks": 1}), ("quantized", {"bits": 8})):
        lease_into(limited(kind, **options))
        cache = limited(kind, **options)
        for token in range(9):
            write(model, cache, [token])
        refuses(CacheMisuse, lambda cache=cache: pc.insert(cache.text, cache))
    padded = make_empty("growing", starts=[2])
    write(model, padded, ids)
    refuses(CacheMisuse, lambda: pc.insert(ids, padded))
    with pc.lease(ids) as hit:
        refuses(CacheMisuse, pc.clear)
        refuses(CacheMisuse, lambda: pc.clear(None))
        pc.clear("somebody else")
        empty = make_empty("growing")
    refuses(CacheMisuse, lambda: hit.load_into(empty))
    refuses(InputError, lambda: pc.evict(-1))
    assert (pc.stats.tokens, pc.stats.leases, empty.length) == (before.tokens, 0, 0)
    pc.check()
    assert loaded(pc, [*ids, 0]).length == down(pc, 9)


def limited(kind, **options):
    from kvcourse.caches.quantized import QuantizedCache
    from kvcourse.caches.sliding import SlidingCache

    return {"sliding": SlidingCache, "quantized": QuantizedCache}[kind](**options)


def cached_tokens_are_those_that_were_not_computed(make):
    """vLLM PR 25787: cached tokens are over-counted."""
    for kind in ("gpt", "llama"):
        model = make_model(kind)
        pc = make(model)
        for n in (1, BLOCK, 2 * BLOCK, 5 * BLOCK):
            ids = [n + 7, *text(n - 1, seed=n)]
            plain = generate(model, ids, max_new_tokens=3)
            for attempt in range(3):
                out = generate(model, ids, max_new_tokens=3, prefix_cache=pc)
                cached = down(pc, n - 1) if attempt else 0
                assert (out.usage.cached_tokens, out.usage.computed_tokens) == (cached, n - cached), f"{n}, attempt {attempt}"
                assert out.cost.tokens == n - cached + 2, "what went through the model"
                assert out.tokens == plain.tokens and out.usage.prompt_tokens == n
                pc.check()


def wrong_rows_are_found_by_the_proof(make):
    """Proof mode. One number of one stored row is changed: strict raises; else it is counted, dropped and not used."""
    model, ids = make_model("llama"), text(3 * BLOCK)
    plain = generate(model, ids, max_new_tokens=3)
    for strict in (False, True):
        pc = make(model)
        generate(model, ids, max_new_tokens=3, prefix_cache=pc)
        unverified = generate(model, ids, max_new_tokens=3, prefix_cache=pc)
        pc.verify, pc.strict = 1.0, strict
        assert generate(model, ids, max_new_tokens=3, prefix_cache=pc).cost == unverified.cost, "nobody pays for the proof"
        assert (pc.stats.verified, pc.stats.mismatches) == (1, 0)
        for rows in pc.store._rows.values():
            rows[1, 0, 0, 2] += 1.0
        hits = pc.stats.hit_tokens
        if strict:
            with pytest.raises(KVCourseError, match="stored tokens is wrong"):
                generate(model, ids, max_new_tokens=3, prefix_cache=pc)
            assert pc.stats.tokens == 0
        out = generate(model, ids, max_new_tokens=3, prefix_cache=pc)
        assert out.tokens == plain.tokens and out.usage.cached_tokens == 0, "what is wrong is not used"
        assert (pc.stats.mismatches, pc.stats.hit_tokens) == (1, hits)
        pc.check()
        assert generate(model, ids, max_new_tokens=3, prefix_cache=pc).usage.cached_tokens == down(pc, len(ids) - 1)


def logits_after_a_load_are_those_of_one_pass(make):
    model, ids = make_model("gpt"), text(15)
    expected = uncached(model, torch.tensor([ids]))
    pc = make(model)
    cache = make_empty("growing")
    model(torch.tensor([ids]), cache=cache)
    pc.insert(ids, cache)
    for n in range(1, 15):
        rest, cache = ids[:n], make_empty("preallocated")
        with pc.lease([*rest, ids[n]]) as hit:
            hit.load_into(cache)
        with Meter() as meter:
            logits = model(torch.tensor([ids[cache.length :]]), cache=cache)
        assert meter.cost.tokens == 15 - down(pc, n)
        assert (logits - expected[:, down(pc, n) :]).abs().max() < 1e-12, f"cut at {n}"


CLAIMS: tuple[Callable[[Make], None], ...] = (
    all_but_the_last_token_can_be_found,
    texts_share_their_equal_start_and_nothing_else,
    the_chain_grows_after_a_full_hit,
    a_match_is_believed_by_its_tokens,
    namespaces_never_meet,
    other_weights_are_a_miss_everywhere,
    what_is_leased_stays,
    a_split_keeps_its_leases,
    an_exception_leaves_pins_as_they_were,
    nothing_is_found_before_it_is_there,
    nobody_shares_memory_with_the_store,
    eviction_frees_what_is_asked_and_less_than_an_entry_more,
    what_was_not_used_for_longest_goes_first_and_its_end_before_its_start,
    what_has_gone_is_no_longer_found,
    what_has_expired_is_not_found,
    bytes_stay_within_the_budget,
    what_cannot_be_served_is_refused_before_anything_changes,
    cached_tokens_are_those_that_were_not_computed,
    wrong_rows_are_found_by_the_proof,
    logits_after_a_load_are_those_of_one_pass,
)
