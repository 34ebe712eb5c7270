"""Ctrl-C at any moment leaves a prefix cache's books right, and so does whatever a store, a policy or a clock raises."""

import itertools
import os
import random
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import make_empty
from helpers import small_models as small_models
from prefix_helpers import BLOCK, KINDS, Clock, FakeModel, filled, known, maker, text

import kvcourse.prefix
from kvcourse.prefix.interrupts import uninterrupted
from kvcourse.prefix.policies import POLICIES

pytestmark = pytest.mark.usefixtures("small_models", "ctrl_c")
every_kind = pytest.mark.parametrize("kind", KINDS)
PREFIX = str(Path(kvcourse.prefix.__file__).parent)
TRUNK = text(4 * BLOCK)


@pytest.fixture
def ctrl_c():
    """Python's own handler, whatever the test runner does with the signal; it must be there again at the end."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    after = signal.signal(signal.SIGINT, before)
    assert after is signal.default_int_handler, "the handler was not put back"


class Bed:
    """A prefix cache with two texts, one that has expired, and a lease on one that was dropped; room for little more."""

    def __init__(self, kind, policy="lru"):
        self.clock, self.model = Clock(), FakeModel()
        self.pc = pc = maker(KINDS[kind])(self.model, max_tokens=12 * BLOCK, ttl=50.0, clock=self.clock, policy=policy)
        self.store(text(2 * BLOCK, seed=1))  # expires
        self.clock.now = 45.0
        self.store(TRUNK)
        self.store(text(3 * BLOCK, seed=2))
        self.store(text(2 * BLOCK, seed=3), "ann")
        self.wrong = pc.lease([*text(2 * BLOCK, seed=3), 0], "ann")
        pc.index.drop(self.wrong.__enter__()._entries[0])
        self.clock.now = 60.0
        ids = [*TRUNK[: 2 * BLOCK], 41, *text(2 * BLOCK, seed=4)]
        self.request, self.computed = ids, filled(self.model, ids)

    def store(self, ids, namespace=None):
        self.pc.insert(ids, filled(self.model, ids), namespace)

    def insert(self):
        self.pc.insert(self.request, self.computed)

    def lease(self):
        with self.pc.lease(self.request) as hit:
            hit.load_into(make_empty("growing"))

    def evict(self):
        self.pc.evict(3 * BLOCK * self.pc.token_bytes)

    def clear(self):
        self.pc.clear("nobody")
        self.end()
        self.pc.clear()

    def end(self):
        self.wrong.__exit__(None, None, None)

    def change_weights(self):
        self.end()
        self.model.salt += 1
        self.pc.match(self.request)
        self.computed = filled(self.model, self.request)

    def judge(self):
        """The books are right, nothing is pinned for ever, all is usable, all can be freed."""
        pc, s = self.pc, self.pc.stats
        pc.check()
        with suppress(StopIteration, RuntimeError):
            self.end()
        pc.check()
        assert pc.stats.leases == 0 == pc._reserved_tokens and pc._inserting == []
        assert s.lookups >= s.hits >= 0 and s.inserted_tokens >= s.tokens
        if self.computed.weights_version == self.model.weights_version:
            self.insert()
            assert known(pc, self.request) == len(self.request) - len(self.request) % pc.index.step_tokens
        pc.check()
        pc.clear()
        assert (pc.stats.bytes, pc.stats.tokens, pc.index.roots, len(pc.index._order)) == (0, 0, {}, 0)
        pc.check()


ACTS = ("insert", "lease", "evict", "clear", "end", "change_weights")


def ctrl_c_at(step, act):
    """Run `act` with a real SIGINT at the step-th line of kvcourse/prefix; say whether it went so far, and was interrupted."""
    seen = 0

    def look(frame, event, _):
        nonlocal seen
        if not frame.f_code.co_filename.startswith(PREFIX):
            return None
        if event == "line":
            seen += 1
            if seen == step:
                signal.raise_signal(signal.SIGINT)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        act()
    except KeyboardInterrupt:
        return seen >= step, True
    finally:
        sys.settrace(before)
    return seen >= step, False


@every_kind
@pytest.mark.parametrize("act", ACTS)
def test_ctrl_c_at_every_line_in_turn_is_delivered_and_leaves_the_books_right(kind, act):
    step, reached = 1, True
    while reached:
        bed = Bed(kind)
        reached, interrupted = ctrl_c_at(step, getattr(bed, act))
        assert interrupted == reached, f"at line {step} Ctrl-C got lost"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler or interrupted
        with uninterrupted():  # puts back what a signal in the very act of putting back has left
            pass
        bed.judge()
        step += 1
    assert step > 20, "nothing was interrupted"


@every_kind
def test_ctrl_c_at_random_moments_leaves_the_books_right(kind):
    """Texts that split each other are stored, leased and evicted without a pause, until Ctrl-C comes."""
    draw, model = random.Random(0), FakeModel()
    trunk = text(20 * BLOCK)
    texts = [[*trunk[: draw.randrange(len(trunk))], 41, *text(draw.randrange(30), seed=n)] for n in range(24)]
    work = [(ids, filled(model, ids)) for ids in texts]

    def serve(pc):
        for ids, cache in itertools.cycle(work):
            pc.insert(ids, cache)
            with pc.lease([*ids, 0]) as hit:
                hit.load_into(make_empty("growing"))

    for _ in range(150):
        pc, wait = maker(KINDS[kind])(model, max_tokens=60 * BLOCK), draw.uniform(0, 0.01)
        killer = threading.Thread(target=lambda wait=wait: (time.sleep(wait), os.kill(os.getpid(), signal.SIGINT)))
        with suppress(KeyboardInterrupt):
            killer.start()
            serve(pc)
        killer.join()
        pc.check()
        assert pc.stats.leases == 0 == pc._reserved_tokens and pc._inserting == []
        pc.clear()
        assert (pc.stats.bytes, pc.stats.tokens, pc.index.roots) == (0, 0, {})


class Faulty:
    """Raises in place of the n-th call of all that it stands in front of."""

    def __init__(self, n):
        self.n, self.calls = n, 0

    def __call__(self, function):
        def called(*given):
            self.calls += 1
            if self.calls == self.n:
                raise MemoryError("on purpose")
            return function(*given)

        return called


def sabotaged(bed, n):
    """A store, a policy and a clock that fail at the n-th call."""
    fault, pc = Faulty(n), bed.pc
    parts = ((pc.store, "put split free rows"), (pc.index.policy, "score went forget split"), (pc, "clock"))
    for owner, names in parts:
        for name in names.split():
            setattr(owner, name, fault(getattr(owner, name)))
    return fault


@every_kind
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("act", ACTS)
def test_a_store_a_policy_or_a_clock_that_fails_at_any_call_leaves_the_books_right(kind, act, policy):
    n, fault = 0, None
    while fault is None or fault.calls >= n:
        n += 1
        bed = Bed(kind, policy)
        fault = sabotaged(bed, n)
        with suppress(MemoryError):
            getattr(bed, act)()
        fault.n = 0
        bed.judge()
    assert n > 1


def test_a_signal_waits_for_the_end_of_the_outermost_block():
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append(1)
        done.append(2)
    assert done == [1, 2] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_raises_in_a_pause_and_no_second_one_before_the_block_has_ended():
    done = []
    with pytest.raises(KeyboardInterrupt) as raised, uninterrupted() as block:
        try:
            with block.pause():
                with uninterrupted() as inner, inner.pause():
                    pass
                signal.raise_signal(signal.SIGINT)
                done.append("not reached")
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("tidied up")
    assert done == ["tidied up"] and isinstance(raised.value.__context__, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), uninterrupted() as block:  # one that waits comes when the pause begins
        signal.raise_signal(signal.SIGINT)
        with block.pause():
            done.append("not reached")
    assert done == ["tidied up"]


def test_a_handler_that_returns_is_called_once_and_the_block_goes_on():
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    try:
        with uninterrupted() as block:
            signal.raise_signal(signal.SIGTERM)
            assert told == []
            with block.pause():
                assert told == [signal.SIGTERM]
                signal.raise_signal(signal.SIGTERM)
                assert len(told) == 2
            signal.raise_signal(signal.SIGTERM)
            assert len(told) == 2
        assert len(told) == 3 and signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_what_is_no_handler_of_pythons_and_other_threads_are_left_alone():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = []

    def elsewhere():
        with uninterrupted() as block, block.pause():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
    own = lambda number, frame: None  # noqa: E731
    with uninterrupted():  # a handler that is set inside stays
        signal.signal(signal.SIGINT, own)
    assert signal.signal(signal.SIGINT, signal.default_int_handler) is own
