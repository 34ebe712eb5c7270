"""The block pool by hand: which blocks it hands out, what it refuses, and that its own check sees every kind of wrong books."""

import subprocess
import sys

import pytest
from helpers import small_models as small_models

from kvcourse.caches.block_pool import BlockPool
from kvcourse.errors import CacheFull, CacheMisuse, InputError, KVCourseError

pytestmark = pytest.mark.usefixtures("small_models")  # the pool itself refuses, not the checker of its signatures


def counts(pool):
    return [pool.count(block) for block in range(pool.n_blocks)]


def test_a_new_pool_is_all_free_and_hands_out_ascending_runs():
    pool = BlockPool(6)
    assert (pool.n_blocks, pool.n_free, pool.n_used) == (6, 6, 0)
    assert (pool.allocate(3), pool.allocate(0), pool.allocate(2)) == ([0, 1, 2], [], [3, 4])
    assert (pool.n_free, pool.n_used) == (1, 5)
    assert counts(pool) == [1, 1, 1, 1, 1, 0]


def test_freed_blocks_are_used_again_and_a_run_is_preferred():
    pool = BlockPool(10)
    pool.allocate(10)
    pool.release([7, 1, 3, 4, 8, 9])
    assert pool.allocate(3) == [7, 8, 9], "the first three in a row"
    assert pool.allocate(1) == [1]
    pool.release([8])
    assert pool.allocate(3) == [3, 4, 8], "no three in a row are left"


def test_a_sequence_goes_on_where_it_is_if_there_is_room():
    pool = BlockPool(10)
    pool.allocate(6)
    pool.release([0, 1, 2])
    assert pool.allocate(2, after=5) == [6, 7]
    assert pool.allocate(3, after=7) == [0, 1, 2], "only two would follow, so that no run could go on there"
    assert pool.allocate(1, after=7) == [8]
    assert pool.allocate(1, after=4) == [9], "the next one is taken"


def test_a_block_is_free_when_its_last_holder_lets_go():
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    pool.share(blocks)
    pool.share(blocks[:1])
    assert counts(pool) == [3, 2, 0]
    pool.release(blocks)
    pool.release(blocks)
    assert (counts(pool), pool.n_free) == ([1, 0, 0], 2)
    pool.release([0])
    assert (pool.n_free, pool.n_used) == (3, 0)


@pytest.mark.parametrize(("n", "message"), [(4, "1 block is missing"), (9, "6 blocks are missing"), (3, None)])
def test_an_exhausted_pool_says_how_many_blocks_are_missing_and_changes_nothing(n, message):
    pool = BlockPool(5)
    pool.allocate(2)
    if message is None:
        assert pool.allocate(n) == [2, 3, 4]
        return
    for act in (pool.allocate, pool.require):
        with pytest.raises(CacheFull, match=message) as caught:
            act(n)
        assert f"one of {n + 2} blocks" in caught.value.todo
        assert (counts(pool), pool.n_free) == ([1, 1, 0, 0, 0], 3)
        pool.check([[0], [1]])


@pytest.mark.parametrize(
    ("act", "blocks"),
    [
        ("release", [0, 2]),  # free
        ("release", [0, 1, 0]),  # counted once, released twice
        ("release", [1, 1, 1]),  # counted twice
        ("share", [0, 4]),  # free: nobody has written into it
    ],
)
def test_what_is_not_held_cannot_be_released_or_shared_and_nothing_changes(act, blocks):
    pool = BlockPool(5)
    pool.share(pool.allocate(2)[1:])
    with pytest.raises(CacheMisuse, match="free, or will be") as caught:
        getattr(pool, act)(blocks)
    assert caught.value.todo
    assert (counts(pool), pool.n_free) == ([1, 2, 0, 0, 0], 3)


@pytest.mark.parametrize("block", [-1, 5, True, 1.0, "0", None], ids=repr)
def test_what_is_no_block_of_the_pool_is_refused(block):
    pool = BlockPool(5)
    pool.allocate(5)
    for act in (pool.count, lambda block: pool.share([0, block]), lambda block: pool.release([0, block])):
        with pytest.raises(InputError, match="0 to 4") as caught:
            act(block)
        assert caught.value.todo
    assert counts(pool) == [1] * 5


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "8", None], ids=repr)
def test_a_number_of_blocks_is_a_whole_one(n):
    with pytest.raises(KVCourseError, match="1 or more"):
        BlockPool(n)
    if n != 0:
        with pytest.raises(InputError, match="0 or more"):
            BlockPool(3).allocate(n)


def test_what_was_abandoned_is_released_at_the_next_call():
    pool = BlockPool(3)
    pool.share(pool.allocate(3))
    pool.abandon([0, 1])
    pool.abandon([1])
    assert pool._counts == [2, 2, 2], "not in the middle of whatever is going on"
    assert (pool.n_free, counts(pool)) == (1, [1, 0, 2])
    pool.abandon([2, 2])
    assert pool.allocate(2) == [1, 2]
    pool.check([[0], [1, 2]])


@pytest.mark.parametrize(
    ("spoil", "tables", "named"),
    [
        (lambda pool: pool._counts.__setitem__(3, -1), None, "block 3 is counted"),
        (lambda pool: pool._free.append(0), None, "list of free blocks"),
        (lambda pool: pool._free.remove(4), None, "list of free blocks"),
        (lambda pool: pool._free.append(4), None, "list of free blocks"),
        (lambda pool: pool._free.reverse(), None, "list of free blocks"),
        (lambda pool: pool._counts.__setitem__(0, 0), None, "list of free blocks"),
        (lambda pool: None, [[0, 1], [1, 2], [2]], "block 2 is counted"),  # in two tables, and not shared
        (lambda pool: None, [[0, 1], [2]], "block 1 is counted"),  # counted, and in no table: leaked
        (lambda pool: None, [[0, 1], [1, 2, 3]], "block 3 is counted"),  # free, and in a table
        (lambda pool: None, [[0, 1, 1], [2]], "a table"),  # twice in one
    ],
)
def test_the_check_names_what_is_wrong_with_the_books(spoil, tables, named):
    pool = BlockPool(5)
    pool.share(pool.allocate(3)[1:2])
    pool.check()
    pool.check([[0, 1], [1, 2]])
    spoil(pool)
    with pytest.raises(CacheMisuse, match=named):
        pool.check(tables)


def test_a_table_of_another_pool_is_no_table_of_this_one():
    with pytest.raises(InputError, match="0 to 4"):
        BlockPool(5).check([[7]])


def test_the_books_are_kept_without_torch():
    code = "import sys, kvcourse.caches.block_pool; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
