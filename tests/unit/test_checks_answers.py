"""The protocol between properties and an answer that runs in this process: copies, callbacks, kept objects, faults."""

import faulthandler
import signal
import sys
import threading
import time
from collections import OrderedDict, namedtuple

import pytest
import torch

from kvcourse.checks import local as local_module
from kvcourse.checks.base import Answer, Broken, Draw, Kept, NotStarted, Opaque, Unknown, describe, expect, judge, raised
from kvcourse.checks.local import LocalAnswer, snapshot

Pair = namedtuple("Pair", "a b")


def local(function) -> LocalAnswer:
    return LocalAnswer(function, "my_answer")


def test_a_local_answer_is_an_answer():
    answer = local(lambda: 1)
    assert isinstance(answer, Answer) and isinstance(answer.keep([]), Kept)


def test_arguments_are_copies_and_kept_objects_are_not():
    def spoil(tensor, items):
        tensor.zero_()
        items.append(1)

    ours, answer = torch.ones(2), local(spoil)
    mine = [ours]
    answer(ours, mine)
    assert ours.sum() == 2 and mine == [ours]
    kept = answer.keep([5])
    answer(ours, kept)
    assert kept.value() == [5, 1]


def test_what_is_returned_is_a_copy_and_the_object_itself_can_be_looked_at_again():
    buffer = torch.zeros(2)

    def fill():
        buffer.add_(1)
        return buffer

    answer = local(fill)
    first, kept = answer(), answer.returned
    answer()
    assert first.tolist() == [1, 1] and kept.value().tolist() == [2, 2]


def test_methods_of_a_returned_object_are_called_there():
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self, by):
            self.n += by
            return self.n

    answer = local(Counter)
    assert answer() == Unknown("Counter")
    counter = answer.returned
    assert [counter.call("add", 2), counter.call("add", by=3)] == [2, 5]
    with pytest.raises(Broken, match=r"my_answer.drop is not there"):
        counter.call("drop")


def test_a_function_handed_over_gets_the_very_opaque_object_back_and_copies_of_all_else():
    secret, seen = object(), []

    def ours(x, it):
        seen.append((x, it))
        return x

    def theirs(function, it, x):
        function(x, it)
        x.zero_()

    local(theirs)(ours, Opaque(secret), torch.ones(2))
    assert seen[0][1] is secret and seen[0][0].sum() == 2


def test_a_function_handed_over_may_give_out_opaque_objects_and_gets_them_back():
    made, seen = [object(), object()], []

    def theirs(new, take):
        take(new(0))
        take(new(1))

    local(theirs)(lambda i: Opaque(made[i]), seen.append)
    assert seen[0] is made[0] and seen[1] is made[1]


def test_a_fault_found_in_our_function_counts_even_if_the_answer_swallows_it():
    def ours():
        raise Broken("found")

    def swallows(function):
        try:
            function()
        except Exception:
            return 1

    with pytest.raises(Broken, match="found"):
        local(swallows)(ours)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Pair(1, [2]), (1, [2])),
        (OrderedDict(a=1), {"a": 1}),
        ({(1, 2): 3, "b": 4}, {"b": 4}),
        (object(), Unknown("object")),
        ({1, 2}, Unknown("set")),
        (torch.zeros(2).to_sparse(), Unknown("sparse, quantized or nested tensor")),
        (torch.zeros(2, device="meta"), Unknown("tensor on the device meta")),
    ],
)
def test_a_value_is_read_as_plain_data(value, plain):
    assert snapshot(value) == plain


def test_a_list_that_holds_itself_is_no_plain_value():
    def endless():
        items = []
        items.append(items)
        return items

    answer = local(endless)
    assert answer() == answer.returned.value() == Unknown("list without an end")


def test_a_subclass_has_no_say_in_what_it_equals():
    class Always(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return torch.ones(1)

    class Liar(list):
        def __eq__(self, other):
            return True

        __hash__ = None

        def __iter__(self):
            return iter([7])

    read = snapshot(torch.zeros(3).as_subclass(Always))
    assert type(read) is torch.Tensor and read.tolist() == [0, 0, 0]
    assert snapshot(Liar([1, 2])) == [1, 2] and type(snapshot(Liar([1]))) is list
    assert snapshot(torch.nn.Parameter(torch.ones(2))).requires_grad is False


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("NotImplementedError", "Exercise 6.2: write this function", NotStarted),
        ("NotImplementedError", "", NotStarted),
        ("NotImplementedError", "Could not run 'aten::x'", Broken),
        ("ValueError", "Exercise 6.2", Broken),
    ],
)
def test_a_stub_is_told_from_a_fault(kind, text, expected):
    assert type(raised("my_answer", kind, text)) is expected


def test_sys_exit_in_an_answer_is_a_fault_and_an_interrupt_is_the_learners():
    def exits():
        raise SystemExit(0)

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(Broken, match=r"my_answer stopped with SystemExit: 0"):
        local(exits)()
    with pytest.raises(KeyboardInterrupt):
        local(interrupted)()


def stubborn():
    while True:
        try:
            while True:
                pass
        except Exception:
            pass


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no timers: a loop without an end is interrupted by hand"
)
def test_a_loop_without_an_end_is_a_fault_that_says_where(monkeypatch):
    monkeypatch.setattr(local_module, "LONGEST_CALL_S", 0.2)
    with pytest.raises(Broken, match=r"my_answer had not returned after .*, at line \d+: .* Does every loop end\?"):
        local(stubborn)()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert local(lambda: 3)() == 3


def bare():
    while True:
        try:
            while True:
                pass
        except:  # noqa: E722
            pass


def bare_around_a_call():
    def waits():
        while True:
            time.sleep(0.01)

    def swallows():
        try:
            waits()
        except BaseException:
            return

    while True:
        swallows()


def swallowed_by_finally():
    while True:
        try:
            while True:
                pass
        finally:
            continue  # noqa: B012


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no timers: a loop without an end is interrupted by hand"
)
@pytest.mark.parametrize("answer", [bare, bare_around_a_call, swallowed_by_finally], ids=lambda answer: answer.__name__)
def test_a_loop_that_catches_everything_ends_all_the_same_and_leaves_no_tracer(monkeypatch, answer):
    monkeypatch.setattr(local_module, "LONGEST_CALL_S", 0.1)
    monkeypatch.setattr(local_module, "AGAIN_S", 0.1)
    faulthandler.dump_traceback_later(60, exit=True)  # it would hang for ever: no test can fail then
    tracer = sys.gettrace()
    try:
        with pytest.raises(Broken, match=r"my_answer had not returned after .*, at line \d+: .* Does every loop end\?"):
            local(answer)()
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert sys.gettrace() is tracer
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert local(lambda: 3)() == 3


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no timers: a loop without an end is interrupted by hand"
)
def test_somebody_else_s_timer_and_other_threads_are_left_alone(monkeypatch):
    monkeypatch.setattr(local_module, "LONGEST_CALL_S", 0.05)
    theirs = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        assert local(lambda: time.sleep(0.2) or 1)() == 1
    finally:
        signal.signal(signal.SIGALRM, theirs)
    found = []
    thread = threading.Thread(target=lambda: found.append(local(lambda: time.sleep(0.2) or 2)()))
    thread.start()
    thread.join()
    assert found == [2]


def test_the_first_property_that_breaks_is_reported_and_the_others_still_count():
    def holds(answer, draw):
        expect(answer() == 1, "never said")

    def breaks(answer, draw):
        expect(answer() == 2, "expected 2")

    def breaks_too(answer, draw):
        expect(False, "not this one")

    verdict = judge("0.1", "one", (holds, breaks, holds, breaks_too), local(lambda: 1), 0)
    assert (verdict.state, verdict.held, verdict.properties) == ("failed", 2, 4)
    assert (verdict.message, verdict.broken) == ("expected 2", "breaks")
    assert str(verdict) == "0.1 one: 2 of 4 properties hold. expected 2"


def test_draws_repeat_with_their_seed_and_differ_between_seeds_and_properties():
    def drawn(seed, salt):
        draw = Draw(seed, salt)
        return draw.integers(5, 0, 1000), draw.tensor(3).tolist()

    assert drawn(0, "6.1/0") == drawn(0, "6.1/0")
    assert len({str(drawn(seed, salt)) for seed in (0, 1) for salt in ("6.1/0", "6.1/1")}) == 4


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), "an int64 tensor (2, 3)"),
        (torch.zeros(2), "a float32 tensor (2,)"),
        ([1, 2], "a list of 2 int"),
        ((1, Unknown("Thing")), "a tuple of 2 int and Thing"),
        ([], "a list"),
        (None, "None"),
        (Unknown("Embedding"), "an Embedding"),
        (Unknown("ndarray"), "an ndarray"),
        (3, "an int"),
        ("", "a str"),
    ],
)
def test_values_are_described_in_words(value, said):
    assert describe(value) == said
