"""The two indices alone: integers in, ids of rows out. Splits, pins, the order in which things go, and what is told of it."""

import random

import pytest

from kvcourse.common_prefix import common_length
from kvcourse.errors import BrokenInvariant, CacheMisuse
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.entries import Entry, EvictionOrder
from kvcourse.prefix.policies import POLICIES
from kvcourse.prefix.radix import RadixTree

P = 3


class Lengths:
    """Rows that are nothing but their number of tokens, each id freed once."""

    def __init__(self):
        self.held, self.given = {}, 0

    def put(self, n):
        self.given += 1
        self.held[self.given] = n
        return self.given

    def split(self, rows, at):
        n = self.held.pop(rows)
        assert 0 < at < n
        return self.put(at), self.put(n - at)

    def free(self, rows):
        del self.held[rows]


class Both:
    """An index, its rows, and the one root that these tests need."""

    def __init__(self, kind, **options):
        self.rows, self.gone = Lengths(), []
        options["gone"] = lambda entry, reason: self.gone.append((entry.start, entry.stop, reason))
        self.index = RadixTree(self.rows, **options) if kind == "radix" else HashedBlocks(self.rows, P, **options)
        self.time = 0.0

    def add(self, ids, name=b"root"):
        self.time += 1
        return self.index.add(self.index.root(name), ids, lambda start, stop: self.rows.put(stop - start), self.time)

    def match(self, ids, name=b"root", now=None):
        return self.index.match(self.index.root(name), ids, now)

    def use(self, ids):
        self.time += 1
        self.index.use(self.match(ids), self.time)

    def check(self, *leased):
        self.index.check(leased)
        held = sorted(self.rows.held.values())
        everything = [*self.index.entries(), *self.index._detached]
        assert held == sorted(len(entry.tokens) for entry in everything) and sum(held) == self.index.tokens


kinds = pytest.mark.parametrize("kind", ["radix", "blocks"])


@kinds
def test_a_text_is_found_as_far_as_it_is_stored(kind):
    both = Both(kind)
    assert both.add(list(range(10))) == (10 if kind == "radix" else 9)
    for n in range(12):
        length = both.match([*range(n), 99]).length
        assert length == (min(n, 10) if kind == "radix" else min(n, 9) // P * P)
    assert both.match([5]).entries == [] and both.match([]).length == 0
    assert both.add(list(range(10))) == 0
    both.check()


@kinds
def test_looking_changes_nothing(kind):
    both = Both(kind, ttl=5.0)
    both.add([1, 2, 3, 4, 5, 6])
    before = [(e.digest, e.used, e.uses, e.seconds, e.score, e.pins) for e in both.index.entries()], both.index.request
    both.match([1, 2, 3, 9], now=1.0)
    both.match([1, 2, 3, 9], now=1e9)
    after = [(e.digest, e.used, e.uses, e.seconds, e.score, e.pins) for e in both.index.entries()], both.index.request
    assert before == after


def test_an_edge_is_split_at_the_very_token_where_texts_part():
    both = Both("radix")
    both.add([1, 2, 3, 4, 5])
    both.add([1, 2, 3, 7])
    assert sorted(entry.tokens for entry in both.index.entries()) == [(1, 2, 3), (4, 5), (7,)]
    both.add([1, 2])  # ends inside an edge: nothing is new, nothing is split
    assert len(list(both.index.entries())) == 3
    others = ((1, 2, 3, 4), (1, 2), (1, 9, 3), (), (9, 2, 3), (1, 2, 9))
    assert [common_length((1, 2, 3), other) for other in others] == [3, 2, 1, 0, 0, 2]
    both.check()


def test_what_does_not_fill_a_block_is_not_shared():
    both = Both("blocks")
    assert (both.add([1, 2]), both.index.tokens, both.match([1, 2, 3, 4]).length) == (0, 0, 0)
    assert (both.add([1, 2, 3, 4, 5]), both.match([1, 2, 3, 4, 5, 6]).length) == (3, 3)
    assert both.index.pieces(0, 8) == both.index.pieces(2, 8) == [(0, 3), (3, 6)] and both.index.pieces(3, 5) == []


@kinds
def test_a_pin_holds_everything_in_front_and_nothing_beside(kind):
    both = Both(kind)
    both.add([1] * 9)
    both.add([1] * 6 + [2] * 3)
    entry = both.match([1] * 9).entries[-1]
    both.index.pin(entry)
    both.check(entry)
    assert both.index.evict(100) == 3 and both.match([1] * 9).length == 9
    with pytest.raises(CacheMisuse, match="no leases out"):
        both.index.clear(both.index.root(b"root"))
    both.check(entry)
    with pytest.raises(BrokenInvariant, match="is pinned"):
        both.index.check()
    both.index.unpin(entry)
    assert both.index.evict(100) == 9 and both.index.roots == {} and both.rows.held == {}


@kinds
def test_a_pinned_entry_that_is_split_stays_pinned_in_both_parts(kind):
    both = Both(kind)
    both.add([1] * 9)
    pinned = [both.match([1] * 9).entries[-1] for _ in range(2)]
    for entry in pinned:
        both.index.pin(entry)
    both.add([1] * 6 + [2] * 3)
    both.add([1] * 3 + [3] * 3)
    both.check(*pinned)
    both.index.unpin(pinned.pop())
    assert both.index.evict(100) == 6
    both.check(*pinned)
    both.index.unpin(pinned.pop())
    both.check()
    assert both.index.evict(100) == 9


@kinds
def test_what_is_dropped_is_never_found_again_and_freed_with_its_last_lease(kind):
    both = Both(kind)
    both.add([1] * 9)
    both.add([1] * 6 + [2] * 3)
    leased = both.match([1] * 9).entries[-1]
    both.index.pin(leased)
    both.index.drop(leased.path[0])
    both.index.drop(leased.path[0])  # by a second lease that finds the same
    assert both.match([1] * 9).length == 0 and both.index.tokens == 9
    both.check(leased)
    assert both.add([1] * 9) == 9, "stored anew while the old one is still in use"
    both.check(leased)
    both.index.unpin(leased)
    both.check()
    assert (both.index.tokens, both.match([1] * 9).length) == (9, 9)
    assert {reason for *_, reason in both.gone} == {"mismatch"} and sum(stop - start for start, stop, _ in both.gone) == 12


@kinds
def test_a_drop_in_the_middle_keeps_what_stands_in_front(kind):
    both = Both(kind)
    both.add([1] * 6)
    both.add([1] * 3 + [2] * 3)
    both.index.drop(both.match([1] * 6).entries[-1])
    both.check()
    assert (both.match([1] * 6).length, both.match([1] * 3 + [2] * 3).length) == (3, 6)
    both.index.evict(3)
    assert both.index.evict(1) == 3 and both.index.roots == {}


@kinds
def test_the_end_goes_before_the_start_and_the_oldest_end_first(kind):
    both = Both(kind)
    for first in (1, 2, 3):
        both.add([first] * 3)
        both.add([first] * 3 + [9] * 3)
    both.use([1] * 3 + [9] * 3)
    for expected in ((2, 3), (2, 0), (3, 3), (3, 0), (1, 3), (1, 0)):
        left = [both.match([first] * 3 + [9] * 3).length for first in (1, 2, 3)]
        assert both.index.evict(1) == 3
        now = [both.match([first] * 3 + [9] * 3).length for first in (1, 2, 3)]
        assert [n - m for n, m in zip(left, now, strict=True)] == [3 * (first == expected[0]) for first in (1, 2, 3)]
        assert now[expected[0] - 1] == expected[1]
        both.check()


@kinds
def test_expiry_takes_what_was_not_used_in_time_and_keeps_what_is_pinned(kind):
    both = Both(kind, ttl=10.0)
    both.add([1] * 6)  # at 1
    both.add([2] * 6)  # at 2
    pinned = both.match([1] * 6).entries[-1]
    both.index.pin(pinned)
    assert both.match([1] * 6, now=10.9).length == 6
    assert both.match([1] * 6, now=11.0).length == 0, "ten seconds are over"
    assert both.index.expire(11.5) == 0 and both.index.expire(12.0) == 6
    both.check(pinned)
    both.index.unpin(pinned)
    assert both.index.expire(12.0) == 6 and both.index.roots == {}
    assert {reason for *_, reason in both.gone} == {"expired"}


@kinds
@pytest.mark.parametrize("policy", POLICIES)
def test_any_policy_keeps_the_books(kind, policy):
    both, rng, pinned = Both(kind, policy=policy, ttl=40.0), random.Random(policy), []
    for _ in range(400):
        ids = [rng.randrange(2) for _ in range(rng.randint(1, 14))]
        match rng.randrange(7):
            case 0 | 1:
                both.add(ids)
            case 2:
                both.use(ids)
            case 3 if entries := both.match(ids).entries:
                pinned.append(entries[-1])
                both.index.pin(entries[-1])
            case 4 if pinned:
                both.index.unpin(pinned.pop(rng.randrange(len(pinned))))
            case 5:
                both.index.evict(rng.randint(1, 6))
            case 6 if rng.random() < 0.2:
                both.index.expire(both.time)
            case 6 if (entries := both.match(ids).entries) and rng.random() < 0.3:
                both.index.drop(entries[0])
        both.check(*pinned)
    for entry in pinned:
        both.index.unpin(entry)
    both.index.evict(10**6)
    assert both.index.tokens == 0 and both.rows.held == {} and both.index.roots == {}


def test_a_place_in_the_order_is_given_up_at_once_and_the_heap_does_not_grow_with_changes():
    order, entries = EvictionOrder(), [Entry((1,), n, None, n, b"") for n in range(20)]
    for turn in range(200):
        for entry in entries:
            entry.score = (turn * 7 + entry.start) % 13
            order.add(entry)
    assert len(order) == 20 and len(order._heap) <= 64 + 4 * 20 + 20
    order.discard(entries[3])
    order.discard(entries[3])
    assert entries[3] not in order and entries[4] in order
    out = [order.pop() for _ in range(19)]
    assert [(entry.score, -entry.start) for entry in out] == sorted((entry.score, -entry.start) for entry in out)
    assert order.pop() is None and len(order) == 0
