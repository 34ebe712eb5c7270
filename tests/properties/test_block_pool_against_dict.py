"""Hypothesis drives a block pool beside a plain dict of counts, and paged caches of many shapes beside plain lists."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pools import PagedOnDemand, check_pool
from properties.test_caches_against_lists import CAPACITY, B, CacheMachine, Model, Plain, assert_rows, row_tensors
from torch import device, float64

from kvcourse.caches.block_pool import BlockPool
from kvcourse.errors import CacheFull, CacheMisuse


class PoolMachine(RuleBasedStateMachine):
    """The same pool as a list of tables and a dict from block to count."""

    kind: type[BlockPool] = BlockPool

    @initialize(taken=st.lists(st.booleans(), min_size=6, max_size=8) | st.lists(st.booleans(), min_size=1, max_size=3))
    def make(self, taken):
        """Some blocks are somebody's from the start, so that what is free lies scattered."""
        self.pool = self.kind(len(taken))
        self.pool.allocate(len(taken))
        self.pool.release(block for block, is_taken in enumerate(taken) if not is_taken)
        self.counts = {block: int(is_taken) for block, is_taken in enumerate(taken)}
        self.tables = [[block] for block, is_taken in enumerate(taken) if is_taken]

    def free(self):
        return [block for block, count in self.counts.items() if count == 0]

    @rule(n=st.integers(0, 4), follow=st.booleans())
    def allocate(self, n, follow):
        after = self.tables[-1][-1] if follow and self.tables and self.tables[-1] else None
        free = self.free()
        if n > len(free):
            with pytest.raises(CacheFull, match=f"{n - len(free)} block"):
                self.pool.allocate(n, after)
            return
        blocks = self.pool.allocate(n, after)
        assert len(blocks) == n and set(blocks) <= set(free) and blocks == sorted(set(blocks))
        runs = [list(range(start, start + n)) for start in free if set(range(start, start + n)) <= set(free)]
        if runs:
            assert blocks in runs, "a run, where there is one"
        if after is not None and n and list(range(after + 1, after + 1 + n)) in runs:
            assert blocks[0] == after + 1, "which goes on where the last one ended"
        self.tables.append(blocks)
        self.counts.update(dict.fromkeys(blocks, 1))

    @rule(which=st.integers(0, 9))
    def share(self, which):
        if self.tables:
            table = list(self.tables[which % len(self.tables)])
            self.pool.share(table)
            self.tables.append(table)
            for block in table:
                self.counts[block] += 1

    @rule(which=st.integers(0, 9), keep=st.integers(0, 4), later=st.booleans())
    def release(self, which, keep, later):
        if self.tables:
            table = self.tables[which % len(self.tables)]
            given = table[keep:]
            self.pool.abandon(given) if later else self.pool.release(given)
            del table[keep:]
            for block in given:
                self.counts[block] -= 1

    @rule(block=st.integers(0, 7), more=st.integers(1, 3), act=st.sampled_from(["share", "release"]))
    def misuse(self, block, more, act):
        """Of a block that is free, or more often than it is counted; beside one where it would be right."""
        if block not in self.counts:
            return
        held = [other for other, count in self.counts.items() if count][:1]
        wrong = [block] * (self.counts[block] + more)
        if act == "share" and self.counts[block]:
            return
        with pytest.raises(CacheMisuse):
            getattr(self.pool, act)(held + wrong)

    @invariant()
    def the_books_are_right(self):
        if hasattr(self, "pool"):
            self.pool.check(self.tables)
            assert {block: self.pool.count(block) for block in self.counts} == self.counts
            assert (self.pool.n_free, self.pool.n_used) == (len(self.free()), len(self.counts) - len(self.free()))


class PagedMachine(CacheMachine):
    """Blocks of several sizes, in pools that are roomy or soon exhausted."""

    kind = "paged"

    @initialize(
        starts=st.none() | st.lists(st.integers(0, 3), min_size=B, max_size=B),
        block_tokens=st.sampled_from([1, 2, 3, 5, 16]),
        room=st.sampled_from([CAPACITY, 4 * CAPACITY]),
    )
    def make(self, starts, block_tokens, room):
        self.model, self.next_number = Model(), 1
        cache = PagedOnDemand(room, starts, block_tokens)
        for _ in range(2):
            cache.bind(self.model, B, float64, device("cpu"))
        self.family = [Plain(cache, starts=starts)]

    @rule(which=st.integers(0, 3))
    def drop(self, which):
        plain = self.pick(which)
        if len(self.family) > 1:
            self.family = [member for member in self.family if member is not plain]

    @rule(which=st.integers(0, 3), T=st.integers(1, 5))
    def try_and_return(self, which, T):
        """As `undone_on_error` does with a cache that cannot be cut back."""
        plain = self.pick(which)
        if plain.pending or plain.length + T > plain.cache.capacity:
            return
        saved = plain.cache.fork()
        if plain.length + T <= plain.cache.capacity:  # the fork may have made the last block a shared one
            for layer in range(2):
                assert_rows(plain.cache.append(layer, *row_tensors([-1] * T)), plain.rows[layer] + [-1] * T)
            plain.cache.advance(T)
        plain.cache.restore(saved)
        check_pool(*(member.cache for member in self.family))


def test_any_sequence_of_operations_leaves_a_pool_equal_to_a_plain_dict():
    run_state_machine_as_test(PoolMachine)


def test_any_sequence_of_operations_leaves_paged_caches_of_any_block_size_equal_to_plain_lists():
    run_state_machine_as_test(PagedMachine)


class CountsOneTooFew(BlockPool):
    def share(self, blocks):
        super().share(list(blocks)[1:])


class IgnoresRuns(BlockPool):
    def _run_of(self, n, after):
        return 0


class ReleasesHalfBeforeItRefuses(BlockPool):
    def _release(self, blocks):
        for block in blocks:
            super()._release([block])


@pytest.mark.parametrize("broken", [CountsOneTooFew, IgnoresRuns, ReleasesHalfBeforeItRefuses], ids=lambda kind: kind.__name__)
def test_the_machine_notices_a_broken_pool(broken):
    machine = type(f"{broken.__name__}Machine", (PoolMachine,), {"kind": broken})
    search = settings(phases=[Phase.generate], database=None, print_blob=False, max_examples=2000, derandomize=True)
    with pytest.raises((AssertionError, CacheMisuse, pytest.fail.Exception)):
        run_state_machine_as_test(machine, settings=search)
