"""Hypothesis drives both prefix caches beside a plain dict: from a namespace to the set of all starts of texts that are known.

Rows are made from the text, so a row that belongs to another text, or to other weights, is seen at once. What goes first is
the policy's business, so after pressure the dict is asked only for what must hold: nothing new is known, nothing leased is
gone, nothing goes while there is room.
"""

import os
from contextlib import ExitStack, contextmanager

import pytest
import torch
from helpers import CACHES, make_empty
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from prefix_helpers import TOKEN_BYTES, Clock, FakeModel, assert_holds, fake_rows, filled, maker, write

from kvcourse.errors import BrokenInvariant, CacheMismatch, CacheMisuse, InputError
from kvcourse.prefix.cache import BlockPrefixCache, PrefixCache, RadixPrefixCache
from kvcourse.prefix.policies import POLICIES

EXAMPLES = 2000 if os.environ.get("KVCOURSE_FULL") == "1" else 200
NAMES = (None, "a", ("a",))
TTL = 5.0
texts = st.lists(st.integers(0, 1), min_size=1, max_size=9)
names = st.sampled_from(NAMES)
which = st.integers(0, 9)


class PrefixMachine(RuleBasedStateMachine):
    """The same cache as a dict of sets of token tuples, closed under "start of"."""

    kind: type[PrefixCache] = PrefixCache

    @initialize(
        policy=st.sampled_from(list(POLICIES)),
        ttl=st.none() | st.just(TTL),
        room=st.sampled_from([3, 7, 12, 1000]),
        block_tokens=st.integers(1, 3),
        is_weak=st.booleans(),
        dtype=st.sampled_from([torch.float64, torch.float32]),
    )
    def make(self, policy, ttl, room, block_tokens, is_weak, dtype):
        self.model, self.clock, self.room, self.ttl = FakeModel(dtype=dtype), Clock(), room, ttl
        options = dict(policy=policy, ttl=ttl, max_tokens=room, clock=self.clock)
        self.is_weak = is_weak and issubclass(self.kind, BlockPrefixCache)
        if self.is_weak:
            options["digest"] = lambda data: bytes([sum(data) % 7])  # three bits: blocks fall together all the time
        if issubclass(self.kind, BlockPrefixCache):
            options["block_tokens"] = block_tokens
        self.pc = maker(self.kind)(self.model, **options)
        self.step = self.pc.index.step_tokens
        self.held = {name: set() for name in NAMES}
        self.ever = {name: set() for name in NAMES}
        self.used = {name: {} for name in NAMES}  # start of a text -> when it was stored or leased last
        self.leases, self.caches = [], []

    # The plain side.

    def starts(self, ids):
        return {tuple(ids[:n]) for n in range(self.step, len(ids) + 1, self.step)}

    def length(self, ids, name):
        """The longest start that is held, of all but the last token."""
        return max((len(start) for start in self.starts(ids[:-1]) if start in self.held[name]), default=0)

    def observed(self):
        """What is found now of all that was ever stored."""
        found = {name: set() for name in NAMES}
        for name in NAMES:
            for ids in self.ever[name]:
                found[name] |= self.starts(ids[: self.pc.match([*ids, 40], namespace=name).length])
        return found

    def pinned(self, name):
        return set().union(*(self.starts(ids) for _, _, ids, of in self.leases if of == name))

    def now_used(self, ids, name):
        self.used[name].update(dict.fromkeys(self.starts(ids), self.clock.now))

    def settle(self, before, pressure=False):
        """Take over what is found, after checking it against what may, and what must, be there."""
        found = self.observed()
        for name in NAMES:
            assert found[name] <= before[name] if self.ttl is None else found[name] <= self.ever[name], "found from nowhere"
            if self.ttl is None:
                assert self.pinned(name) <= found[name], "leased, and gone"
                assert pressure or found[name] == before[name], "gone, or missing, without need"
                continue
            now, ages = self.clock.now, self.used[name]
            alive = {start for start in before[name] if ages[start] + self.ttl > now}
            assert pressure or alive <= found[name], "gone before its time"
            for start in found[name]:  # an edge of a tree is used as a whole, so whoever shares the first tokens counts
                family = [ages[other] for other in ages if other[: self.step] == start[: self.step]]
                assert max(family) + self.ttl > now, "found after its time"
        self.held = found

    # The rules.

    @rule(ids=texts, name=names)
    def match(self, ids, name):
        assert self.pc.match(ids, namespace=name).length == self.length(ids, name)

    @rule(ids=texts, name=names)
    def lease(self, ids, name):
        if len(self.leases) < 5:
            stack = ExitStack()
            hit = stack.enter_context(self.pc.lease(ids, namespace=name))
            assert hit.length == self.length(ids, name) <= len(ids) - 1
            self.leases.append((stack, hit, ids[: hit.length], name))
            self.now_used(ids[: hit.length], name)
            self.settle(self.held)

    @precondition(lambda self: self.leases)
    @rule(number=which, fault=st.booleans())
    def release(self, number, fault):
        stack, hit, _, _ = self.leases.pop(number % len(self.leases))
        if fault:
            with pytest.raises(ZeroDivisionError), stack:
                raise ZeroDivisionError
        stack.close()
        with pytest.raises(CacheMisuse, match="has ended"):
            hit.load_into(make_empty("growing"))

    @precondition(lambda self: self.leases)
    @rule(number=which, cache_kind=st.sampled_from(CACHES))
    def load(self, number, cache_kind):
        _, hit, ids, name = self.leases[number % len(self.leases)]
        cache = make_empty(cache_kind, capacity=40)
        hit.load_into(cache)
        assert_holds(cache, ids, self.model.salt)
        cache.text = list(ids)
        self.caches = [*self.caches[-4:], (cache, name)]

    @rule(ids=texts, name=names, cache_kind=st.sampled_from(CACHES), more=st.integers(0, 2))
    def insert(self, ids, name, cache_kind, more):
        """The cache holds somewhat more, or less, than the text that is named."""
        cache = filled(self.model, [*ids, *[1] * more][: 8 + more], cache_kind, capacity=40)
        self.store(ids, cache, name)
        self.caches = [*self.caches[-4:], (cache, name)]

    @precondition(lambda self: self.caches)
    @rule(number=which)
    def insert_again(self, number):
        cache, name = self.caches[number % len(self.caches)]
        if cache.length:
            self.store(cache.text, cache, name)

    def store(self, ids, cache, name):
        before = self.pc.stats
        known = self.held[name] & self.starts(ids)
        new = self.pc.insert(ids, cache, namespace=name)
        after = self.pc.stats
        ids = ids[: cache.length]
        evicted, expired = after.evicted_tokens - before.evicted_tokens, after.expired_tokens - before.expired_tokens
        assert after.tokens == before.tokens + new - evicted - expired and new == after.inserted_tokens - before.inserted_tokens
        self.ever[name] |= self.starts(ids)
        asked = {other: self.held[other] | (self.starts(ids) if other == name else set()) for other in NAMES}
        need = self.step * len(self.starts(ids) - known)
        if need + before.tokens <= self.room:
            assert evicted == 0, "evicted although there was room"
        self.now_used(ids, name)
        full = evicted > 0 or after.tokens + self.step > self.room
        self.settle(asked, pressure=full or self.is_weak)
        assert known <= self.held[name], "what was known of a text made room for its rest"
        if not self.is_weak:
            assert self.starts(ids) <= self.held[name] or after.tokens + self.step > self.room, "there was room for more"
        for start in self.starts(ids) - self.held[name]:
            self.used[name].pop(start, None)

    @precondition(lambda self: self.caches)
    @rule(number=which, cut=st.integers(0, 8), ids=texts)
    def write_on(self, number, cut, ids):
        """Into a cache that was inserted or loaded. The invariants look at the stored rows."""
        cache, _ = self.caches[number % len(self.caches)]
        cut = min(cut, cache.length)
        cache.truncate(cut)
        cache.text = cache.text[:cut]
        write(self.model, cache, ids)

    @rule(n=st.integers(0, 12))
    def evict(self, n):
        before = self.pc.stats.tokens
        freed = self.pc.evict(n * self.pc.token_bytes) // self.pc.token_bytes
        assert freed == before - self.pc.stats.tokens
        if freed < n:
            assert self.leases or self.pc.stats.tokens == 0, "less than was asked, and something left that nobody uses"
        elif n:
            assert freed < n + len(list(self.pc.gone.values())[-1].tokens), "an entry too many"
        self.settle(self.held, pressure=freed > 0)

    @rule(name=names)
    def clear(self, name):
        touched = [other for other in NAMES if name is None or other == name]
        if any(of in touched for *_, of in self.leases):
            with pytest.raises(CacheMisuse, match="in use"):
                self.pc.clear(name)
        else:
            self.pc.clear(name)
            for other in touched:
                self.held[other], self.ever[other], self.used[other] = set(), set(), {}
        self.settle(self.held)

    @rule(seconds=st.sampled_from([0.5, 2.0, TTL]))
    def expire(self, seconds):
        self.clock.now += seconds
        self.settle(self.held)

    @rule(ids=texts, name=names)
    def change_weights(self, ids, name):
        self.model.salt += 1
        if self.leases:
            self.is_refused(ids)
            self.model.salt -= 1
            return
        self.all_is_forgotten(ids, name, "weights changed")

    @rule(ids=texts, name=names)
    def change_dtype(self, ids, name):
        """Of the wider numbers fewer tokens fit, or not even one step."""
        before, self.model.dtype = self.model.dtype, {64: torch.float32, 32: torch.float64}[torch.finfo(self.model.dtype).bits]
        token_bytes = TOKEN_BYTES * torch.finfo(self.model.dtype).bits // 64
        if self.leases or self.pc.max_bytes < token_bytes * self.step:
            self.is_refused(ids, CacheMisuse if self.leases else InputError)
            self.model.dtype = before
            return
        self.room = self.pc.max_bytes // token_bytes
        self.all_is_forgotten(ids, name, "another dtype")
        assert self.pc.token_bytes == token_bytes

    def is_refused(self, ids, error=CacheMisuse):
        acts = [lambda: self.pc.insert(ids, filled(self.model, ids)), lambda: self.pc.lease(ids).__enter__()]
        acts += [lambda: self.leases[0][1].load_into(make_empty("growing"))] if self.leases else []
        for act in [lambda: self.pc.match(ids), *acts]:
            with pytest.raises(error):
                act()

    def all_is_forgotten(self, ids, name, refusal):
        self.held, self.ever, self.used = ({n: t() for n in NAMES} for t in (set, set, dict))
        self.match(ids, name)
        for cache in [cache for cache, _ in self.caches if cache.length]:
            with pytest.raises((CacheMisuse, CacheMismatch), match=refusal):
                self.pc.insert(cache.text, cache)
        self.caches = []

    # What always holds.

    @invariant()
    def the_books_are_right(self):
        if hasattr(self, "pc"):
            self.pc.check()
            stats = self.pc.stats
            assert stats.bytes == stats.tokens * self.pc.token_bytes <= self.pc.max_bytes
            assert self.room == self.pc.max_bytes // self.pc.token_bytes
            assert stats.leases == len(self.leases)
            known = self.step * sum(map(len, self.held.values()))
            assert stats.tokens == known if self.ttl is None else stats.tokens >= known

    @invariant()
    def stored_rows_are_those_of_their_text(self):
        if hasattr(self, "pc"):
            for entry in self.pc.index.entries():
                ids = [token for one in entry.path for token in one.tokens]
                assert torch.equal(self.pc.store.rows(entry.rows), self.rows(ids)[:, :, :, entry.start :])

    def rows(self, ids):
        return fake_rows(ids, self.model.salt).to(self.model.dtype)

    def teardown(self):
        while getattr(self, "leases", []):
            self.leases.pop()[0].close()
        if hasattr(self, "pc"):
            self.pc.check()
            self.pc.evict(2**40)
            assert self.pc.stats.tokens == 0 and self.pc.index.roots == {}


class RadixMachine(PrefixMachine):
    kind = RadixPrefixCache


class BlockMachine(PrefixMachine):
    kind = BlockPrefixCache


MACHINES = {"radix": RadixMachine, "blocks": BlockMachine}


@pytest.mark.parametrize("kind", MACHINES)
def test_any_sequence_of_operations_leaves_a_prefix_cache_equal_to_a_dict_of_token_tuples(kind):
    run_state_machine_as_test(MACHINES[kind], settings=settings(max_examples=EXAMPLES))


class OneTooFewPinned:
    """The lease pins all but the last entry."""

    @contextmanager
    def lease(self, tokens, namespace=None):
        with super().lease(tokens, namespace) as hit:
            if hit._entries:
                hit._entries[-1].pins -= 1
            try:
                yield hit
            finally:
                if hit._entries:
                    hit._entries[-1].pins += 1


class RowsFromTheFront:
    """What is new is taken from the front of the cache, wherever it stands in the text."""

    def _copy(self, cache, pieces):
        first = pieces[0][0] if pieces else 0
        return {(a, b): super(RowsFromTheFront, self)._copy(cache, [(a - first, b - first)])[a - first, b - first]
                for a, b in pieces}  # fmt: skip


class OneTokenTooMany:
    def match(self, tokens, namespace=None):
        found = super().match(tokens, namespace)
        return found if len(tokens) % 6 else found._replace(length=len(tokens))


class EvictsTooMuch:
    def evict(self, n_bytes):
        return super().evict(n_bytes + self.store.nbytes // 2)


class OneNamespaceForAll:
    def _key(self, namespace):
        return super()._key(None)


FAULTS = [OneTooFewPinned, RowsFromTheFront, OneTokenTooMany, EvictsTooMuch, OneNamespaceForAll]


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda kind: kind.__name__)
def test_the_machine_notices_a_broken_prefix_cache(fault, kind):
    broken = type(fault.__name__, (fault, MACHINES[kind].kind), {})
    machine = type(f"{fault.__name__}Machine", (MACHINES[kind],), {"kind": broken})
    search = settings(phases=[Phase.generate], database=None, print_blob=False, max_examples=1000, derandomize=True)
    with pytest.raises((AssertionError, BrokenInvariant, CacheMisuse, pytest.fail.Exception)):
        run_state_machine_as_test(machine, settings=search)
