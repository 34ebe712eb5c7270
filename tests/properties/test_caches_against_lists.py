"""Hypothesis drives each cache through append, advance, abort, truncate, fork, reset and read, beside plain Python lists."""

import copy
from dataclasses import dataclass, field

import pytest
import torch
from helpers import CACHES, make_empty
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pools import check_pool

from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse, InputError

B, H_KV, D, L = 2, 2, 2, 2
CAPACITY = 12


class Model:
    """All that a cache wants of one."""

    class config:
        n_layer, n_kv_head, head_size = L, H_KV, D


@dataclass
class Plain:
    """The same cache as lists of numbers: one number per token and layer, from which a row is made."""

    cache: object
    rows: list[list[int]] = field(default_factory=lambda: [[] for _ in range(L)])
    pending: list[list[int]] = field(default_factory=list)  # by layer, so far
    starts: list[int] | None = None

    @property
    def length(self) -> int:
        return len(self.rows[0])


def row_tensors(numbers):
    """Keys and values of these tokens: different for every batch row, head and element."""
    base = torch.tensor(numbers, dtype=torch.float64)[None, None, :, None]
    spread = torch.arange(B * H_KV * D, dtype=torch.float64).view(B, H_KV, 1, D) / 100
    return base + spread, -(base + spread)


def assert_rows(rows, numbers):
    keys, values = row_tensors(numbers)
    assert torch.equal(rows.keys, keys) and torch.equal(rows.values, values)


class CacheMachine(RuleBasedStateMachine):
    kind = ""

    @initialize(starts=st.none() | st.lists(st.integers(0, 3), min_size=B, max_size=B))
    def make(self, starts):
        self.model, self.next_number = Model(), 1
        cache = make_empty(self.kind, starts, CAPACITY)
        for _ in range(2):  # whoever makes a cache binds it, and so does every pass
            cache.bind(self.model, B, torch.float64, torch.device("cpu"))
        self.family = [Plain(cache, starts=starts)]

    def pick(self, which):
        return self.family[which % len(self.family)]

    @rule(which=st.integers(0, 3), T=st.integers(0, 5), layers=st.sampled_from([0, 1, L, L, L, L]))
    def append(self, which, T, layers):
        plain = self.pick(which)
        if plain.pending:
            return
        if T == 0:
            with pytest.raises(InputError):
                plain.cache.plan(0)
            return
        if plain.cache.capacity is not None and plain.length + T > plain.cache.capacity:
            for act in (lambda: plain.cache.plan(T), lambda: plain.cache.append(0, *row_tensors([0] * T))):
                with pytest.raises(CacheFull):
                    act()
            return
        plan = plain.cache.plan(T)
        starts = torch.tensor(plain.starts or [0] * B)[:, None]
        assert torch.equal(plan.query_positions.expand(B, T), torch.arange(plain.length, plain.length + T) - starts)
        assert torch.equal(plan.key_positions.expand(B, plain.length + T), torch.arange(plain.length + T) - starts)
        for layer in range(layers):
            numbers = list(range(self.next_number, self.next_number + T))
            self.next_number += T
            assert_rows(plain.cache.append(layer, *row_tensors(numbers)), plain.rows[layer] + numbers)
            plain.pending.append(numbers)

    @rule(which=st.integers(0, 3), commit=st.booleans())
    def advance_or_abort(self, which, commit):
        plain = self.pick(which)
        if commit and len(plain.pending) == L:
            plain.cache.advance(len(plain.pending[0]))
            for rows, numbers in zip(plain.rows, plain.pending, strict=True):
                rows.extend(numbers)
            plain.pending = []
            return
        if commit:  # nothing, or not every layer: refused, and still open
            with pytest.raises(CacheMisuse):
                plain.cache.advance(1)
        plain.cache.abort()
        plain.pending = []

    @rule(which=st.integers(0, 3), T=st.integers(1, 5))
    def whole_pass(self, which, T):
        """Chance alone puts these together too rarely to reach what lies beyond."""
        self.append(which=which, T=T, layers=L)
        self.advance_or_abort(which=which, commit=True)

    @rule(which=st.integers(0, 3), length=st.integers(-2, CAPACITY + 2))
    def truncate(self, which, length):
        plain = self.pick(which)
        possible = not plain.pending and 0 <= length <= plain.length
        assert plain.cache.can_truncate(length) == possible
        if not possible:
            with pytest.raises(CacheMisuse):
                plain.cache.truncate(length)
            return
        plain.cache.truncate(length)
        plain.rows = [rows[:length] for rows in plain.rows]

    @rule(which=st.integers(0, 3))
    def fork(self, which):
        plain = self.pick(which)
        if plain.pending:
            with pytest.raises(CacheMisuse):
                plain.cache.fork()
        elif len(self.family) < 4:
            self.family.append(Plain(plain.cache.fork(), copy.deepcopy(plain.rows), starts=plain.starts))

    @rule(which=st.integers(0, 3))
    def reset(self, which):
        plain = self.pick(which)
        plain.cache.reset()
        plain.rows, plain.pending, plain.starts = [[] for _ in range(L)], [], None

    @rule(
        which=st.integers(0, 3),
        layer=st.integers(0, L - 1),
        start=st.integers(-1, CAPACITY),
        stop=st.integers(-1, CAPACITY + 1),
    )
    def read(self, which, layer, start, stop):
        plain = self.pick(which)
        if 0 <= start <= stop <= plain.length and plain.length:
            assert_rows(plain.cache.read(layer, start, stop), plain.rows[layer][start:stop])
        elif not 0 <= start <= stop <= plain.length:
            with pytest.raises(CacheMisuse):
                plain.cache.read(layer, start, stop)

    @rule(which=st.integers(0, 3), wrong=st.sampled_from(["model", "batch", "dtype", "heads", "values"]))
    def use_wrongly(self, which, wrong):
        plain = self.pick(which)
        if plain.cache.capacity is not None and plain.length + 1 > plain.cache.capacity:
            return
        keys, values = row_tensors([0])
        acts = {
            "model": lambda: plain.cache.bind(Model(), B, torch.float64, torch.device("cpu")),
            "batch": lambda: plain.cache.append(0, keys[:1], values[:1]),
            "dtype": lambda: plain.cache.append(0, keys.float(), values.float()),
            "heads": lambda: plain.cache.append(0, keys[:, : 1 if plain.length else 0], values),
            "values": lambda: plain.cache.append(0, keys, values[..., :1]),
        }
        with pytest.raises(CacheMismatch):
            acts[wrong]()

    @invariant()
    def every_cache_is_what_its_lists_say(self):
        for plain in getattr(self, "family", []):
            cache = plain.cache
            assert (cache.length, cache.held) == (plain.length, plain.length)
            assert (None if cache.starts is None else cache.starts.tolist()) == plain.starts
            for layer in range(L):
                if plain.length:
                    assert_rows(cache.read(layer, 0, plain.length), plain.rows[layer])
            self.memory_is_exact(plain)

    def memory_is_exact(self, plain):
        token_bytes = 2 * B * H_KV * D * 8
        if self.kind == "growing" and not plain.pending:
            assert plain.cache.nbytes == L * plain.length * token_bytes
        if self.kind == "preallocated" and not plain.pending:
            layers = {L} if plain.length else set(range(L + 1))  # buffers are made by the first pass, and outlive a reset
            assert plain.cache.nbytes in {n * CAPACITY * token_bytes for n in layers}
        if self.kind == "paged":
            check_pool(*(member.cache for member in self.family))
            if not plain.pending:
                P = plain.cache.pool.block_tokens
                assert plain.cache.nbytes == L * -(-plain.length // P) * P * token_bytes


@pytest.mark.parametrize("kind", CACHES)
def test_any_sequence_of_operations_leaves_a_cache_equal_to_plain_lists(kind):
    run_state_machine_as_test(type(f"{kind.title()}Machine", (CacheMachine,), {"kind": kind}))


class ForgetsOneRow(CacheMachine):
    """To show that the machine looks: a cache whose second fork lost a row."""

    kind = "preallocated"

    @rule(which=st.integers(0, 3))
    def spoil(self, which):
        plain = self.pick(which)
        if plain.length > 2 and not plain.pending:
            plain.cache._rows(1).values[:, :, 1] = 0


def test_the_machine_notices_a_spoiled_row():
    with pytest.raises(AssertionError):
        run_state_machine_as_test(ForgetsOneRow, settings=settings(phases=[Phase.generate], database=None, print_blob=False))
