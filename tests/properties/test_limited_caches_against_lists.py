"""Hypothesis drives caches that forget or round rows through the whole contract, beside plain Python lists of numbers."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.errors import CacheMisuse

B, H_KV, D, L = 2, 2, 2, 2
SPREAD = torch.arange(B * H_KV * D, dtype=torch.float64).view(B, H_KV, 1, D) / 100


class Model:
    class config:
        n_layer = L


def rows_of(numbers):
    """Keys and values of these tokens: different for every batch row, head and element."""
    base = torch.tensor(numbers, dtype=torch.float64)[None, None, :, None] + SPREAD
    return base, -base


@dataclass
class Plain:
    """The same cache as lists: every number ever appended and not cut off, by layer."""

    cache: object
    rows: list[list[int]] = field(default_factory=lambda: [[] for _ in range(L)])
    pending: list[list[int]] = field(default_factory=list)
    packed: int = 0  # rows that are rounded

    @property
    def length(self):
        return len(self.rows[0])


class Machine(RuleBasedStateMachine):
    @initialize()
    def make(self):
        self.model, self.next_number = Model(), 1
        cache = self.make_cache()
        cache.bind(self.model, B, torch.float64, torch.device("cpu"))
        self.family = [Plain(cache)]

    def pick(self, which):
        return self.family[which % len(self.family)]

    @rule(which=st.integers(0, 3), T=st.integers(1, 7), layers=st.sampled_from([1, L, L, L]))
    def append(self, which, T, layers):
        plain = self.pick(which)
        if plain.pending:
            return
        T = plain.cache.passes(T)[0]
        plan = plain.cache.plan(T)
        for layer in range(layers):
            numbers = list(range(self.next_number, self.next_number + T))
            self.next_number += T
            self.check_attended(plain, layer, numbers, plan, plain.cache.append(layer, *rows_of(numbers)))
            plain.pending.append(numbers)

    @rule(which=st.integers(0, 3), commit=st.booleans())
    def advance_or_abort(self, which, commit):
        plain = self.pick(which)
        if commit and len(plain.pending) == L:
            plain.cache.advance(len(plain.pending[0]))
            for rows, numbers in zip(plain.rows, plain.pending, strict=True):
                rows.extend(numbers)
        else:
            plain.cache.abort()
        plain.pending = []

    @rule(which=st.integers(0, 3), length=st.integers(-2, 24))
    def truncate(self, which, length):
        plain = self.pick(which)
        possible = not plain.pending and self.can_be_cut(plain, length)
        assert plain.cache.can_truncate(length) == possible
        if possible:
            plain.cache.truncate(length)
            plain.rows = [rows[:length] for rows in plain.rows]
            self.was_cut(plain, length)
        else:
            with pytest.raises(CacheMisuse):
                plain.cache.truncate(length)

    @rule(which=st.integers(0, 3))
    def fork(self, which):
        plain = self.pick(which)
        if plain.pending:
            with pytest.raises(CacheMisuse):
                plain.cache.fork()
        elif len(self.family) < 4:
            self.family.append(Plain(plain.cache.fork(), copy.deepcopy(plain.rows), packed=plain.packed))

    @rule(which=st.integers(0, 3), T=st.integers(1, 3))
    def go_on_and_be_restored(self, which, T):
        plain = self.pick(which)
        if plain.pending:
            return
        saved = plain.cache.fork()
        for _ in range(T):
            for layer in range(L):
                plain.cache.append(layer, *rows_of([-1]))
            plain.cache.advance(1)
        plain.cache.restore(saved)

    @rule(which=st.integers(0, 3))
    def reset(self, which):
        plain = self.pick(which)
        plain.cache.reset()
        plain.rows, plain.pending = [[] for _ in range(L)], []
        self.was_cut(plain, 0)

    def was_cut(self, plain, length):
        pass


class SlidingMachine(Machine):
    window, sinks = 5, 0

    def make_cache(self):
        return SlidingCache(self.window, self.sinks)

    def can_be_cut(self, plain, length):
        return 0 <= length <= plain.length and (plain.length <= self.window or length == plain.length)

    def kept(self, n):
        every = list(range(n))
        return every if n <= self.window else every[: self.sinks] + every[n - (self.window - self.sinks) :]

    def check_attended(self, plain, layer, numbers, plan, attended):
        """What each query may look at, whichever order the rows came in: the window that ends with it."""
        every, T = plain.rows[layer] + numbers, len(numbers)
        S = attended.keys.shape[2]
        mask = torch.ones(T, S, dtype=torch.bool) if plan.mask is None else plan.mask
        for t in range(T):
            seen = attended.keys[0, 0, mask[t], 0].tolist()
            kept = self.kept(plain.length + t + 1)
            assert sorted(seen) == sorted(float(every[token]) for token in kept)
            places = plan.key_positions[mask[t]].tolist()
            places_by_row = dict(zip(seen, places, strict=True))
            shown = kept if not self.sinks else range(len(kept))
            assert [places_by_row[float(every[token])] for token in kept] == list(shown)
            assert plan.query_positions[t] == shown[-1]
        assert torch.equal(attended.values, -attended.keys)

    @invariant()
    def it_holds_what_its_window_says(self):
        for plain in getattr(self, "family", []):
            cache, n = plain.cache, plain.length
            assert (cache.length, cache.held) == (n, min(n, self.window))
            if plain.pending or not n:
                continue
            for layer in range(L):
                oldest = 0 if n <= self.window else n - (self.window - self.sinks)
                keys, values = rows_of(plain.rows[layer][oldest:])
                held = cache.read(layer, oldest, n)
                assert torch.equal(held.keys, keys) and torch.equal(held.values, values)
                if self.sinks:
                    first = min(self.sinks, n)
                    assert torch.equal(cache.read(layer, 0, first).keys, rows_of(plain.rows[layer][:first])[0])
            assert cache.nbytes == L * self.window * 2 * B * H_KV * D * 8


class SinksMachine(SlidingMachine):
    window, sinks = 6, 2


class QuantizedMachine(Machine):
    group, residual = 3, 2

    def make_cache(self):
        return QuantizedCache(8, self.group, self.residual)

    def can_be_cut(self, plain, length):
        return 0 <= length <= plain.length and (length >= plain.packed or length % self.group == 0)

    def was_cut(self, plain, length):
        plain.packed = min(plain.packed, length)

    def advance_or_abort_done(self, plain):
        plain.packed = max(plain.packed, max(0, plain.length - self.residual) // self.group * self.group)

    def check_attended(self, plain, layer, numbers, plan, attended):
        self.compare(plain, plain.rows[layer] + numbers, attended)

    def compare(self, plain, numbers, rows):
        """Rounded rows are within a step of the largest spread of a group; the others are what they were."""
        packed, exact = plain.packed, rows_of(numbers)
        for got, expected in zip(rows, exact, strict=True):
            assert got.shape == expected.shape
            assert torch.equal(got[:, :, packed:], expected[:, :, packed:])
            for start in range(0, packed, self.group):
                group = slice(start, start + self.group)
                spread = max(numbers[group]) - min(numbers[group]) + 1
                assert (got[:, :, group] - expected[:, :, group]).abs().max() <= spread / 255 / 2 + 1e-9

    @invariant()
    def it_holds_every_row_and_rounds_by_length(self):
        for plain in getattr(self, "family", []):
            cache = plain.cache
            if not plain.pending:
                self.advance_or_abort_done(plain)
            assert (cache.length, cache.held, cache.packed) == (plain.length, plain.length, plain.packed)
            if plain.length and not plain.pending:
                for layer in range(L):
                    self.compare(plain, plain.rows[layer], cache.read(layer, 0, plain.length))


@pytest.mark.parametrize("machine", [SlidingMachine, SinksMachine, QuantizedMachine], ids=lambda machine: machine.__name__)
def test_any_sequence_of_operations_leaves_a_cache_equal_to_plain_lists(machine):
    run_state_machine_as_test(machine)
