"""The books add up, whatever happens: prompt = cached + computed, occupancy within the window, totals the sums of turns."""

from dataclasses import astuple

import numpy as np
import pytest
import torch
from helpers import small_models as small_models
from hypothesis import given, settings
from hypothesis import strategies as st
from session_helpers import QUESTIONS, chatted, refused, small_llama, talkative

from kvcourse.errors import CacheMisuse, InputError
from kvcourse.ledger import Ledger, Prices, Totals, TurnCount
from kvcourse.sampling import Sampler

pytestmark = pytest.mark.usefixtures("small_models")
WINDOW = 1000
counts = st.tuples(st.integers(1, 600), st.integers(0, 600), st.integers(0, 400)).map(
    lambda n: TurnCount(n[0], n[1] % n[0], n[2])
)


@given(st.lists(counts))
def test_totals_are_the_sums_of_all_turns_and_split_without_a_rest(turns):
    ledger = Ledger(WINDOW, turns)
    totals = ledger.totals
    assert totals.turns == len(ledger) == len(turns) and list(ledger) == turns
    assert totals.prompt_tokens == totals.cached_tokens + totals.computed_tokens
    for name in ("prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens"):
        assert getattr(totals, name) == sum(getattr(turn, name) for turn in turns)
    assert all(1 <= turn.computed_tokens <= turn.prompt_tokens <= turn.occupancy <= WINDOW for turn in turns)
    assert all(ledger[i] is turn for i, turn in enumerate(turns))


@given(st.lists(counts), st.lists(counts), counts)
def test_a_copy_goes_its_own_way(first, more, one):
    ledger = Ledger(WINDOW, first)
    copy = ledger.copy()
    for turn in more:
        copy.record(turn)
    ledger.record(one)
    assert list(copy) == [*first, *more] and list(ledger) == [*first, one] and copy.limit == ledger.limit


@given(st.lists(counts, min_size=1), st.data())
def test_two_ledgers_together_have_the_sum_of_their_totals(turns, data):
    at = data.draw(st.integers(0, len(turns)))
    parts, whole = [Ledger(WINDOW, part).totals for part in (turns[:at], turns[at:])], Ledger(WINDOW, turns).totals
    assert whole == Totals(*(sum(getattr(part, name) for part in parts) for name in Totals.__dataclass_fields__))


@given(st.integers(-5, 50), st.integers(-5, 50), st.integers(-5, 50))
def test_counts_that_contradict_each_other_are_refused_and_others_are_not(prompt, cached, completion):
    if prompt >= 1 and 0 <= cached < prompt and completion >= 0:
        assert TurnCount(prompt, cached, completion).occupancy == prompt + completion
    elif (prompt, cached) == (0, 0) and completion >= 0:
        assert TurnCount(0, 0, completion).computed_tokens == 0
    else:
        said = refused(lambda: TurnCount(prompt, cached, completion), InputError)
        assert ("contradict" if min(prompt, cached, completion) >= 0 else "0 or more") in said


def test_more_than_the_window_holds_is_refused_and_not_written_down():
    """claude-code 13783, ccusage 823: a gauge of the window shows cumulative tokens. The last token needs no place any more."""
    ledger = Ledger(10, [TurnCount(8, 2, 3)])
    refused(lambda: ledger.record(TurnCount(8, 2, 4)), InputError)
    for sent in (11, 12):
        refused(lambda sent=sent: Ledger(10, [TurnCount(sent, 0, 0)]), InputError)
    assert ledger.totals == Totals(1, 8, 2, 6, 3)
    assert (ledger.occupancy, ledger.share) == (10, 1.0)
    refused(lambda: ledger.record((8, 2, 3)), InputError)
    for limit in (0, -1, float("nan"), True, "10", None):  # of such a window no share could be in use
        refused(lambda limit=limit: Ledger(limit), InputError)


@pytest.mark.parametrize("wrong", [True, 1.5, float("nan"), float("inf"), "a", None, [1], 10**400 * -1])
def test_what_is_no_count_or_no_price_is_refused(wrong):
    for place in range(3):
        counts = [10, 3, 1]
        counts[place] = wrong
        refused(lambda counts=counts: TurnCount(*counts), InputError)
    if wrong != 1.5:
        refused(lambda: Prices(cached=wrong), InputError)


def test_counts_of_numpy_and_torch_are_counts():
    turn = TurnCount(np.int64(10), torch.tensor(3), np.uint8(1))
    assert turn == TurnCount(10, 3, 1) and {type(n) for n in astuple(turn)} == {int}


@given(st.lists(counts), st.builds(Prices, *[st.integers(0, 100)] * 3))
def test_a_bill_is_the_sum_of_its_turns_bills(turns, prices):
    whole = Ledger(WINDOW, turns).billed(prices)
    bills = [turn.billed(prices) for turn in turns]
    assert astuple(whole) == tuple(sum(getattr(bill, name) for bill in bills) for name in ("computed", "cached", "completion"))
    assert whole.total == sum(bill.total for bill in bills)


@pytest.fixture(scope="module")
def model():
    return small_llama()


steps = st.lists(st.sampled_from(["send", "send", "again", "rewind", "fork", "reset"]), min_size=1, max_size=8)


@pytest.mark.parametrize("kind", ["growing", "preallocated", "paged", None])
@settings(max_examples=15)
@given(steps=steps)
def test_a_session_s_books_are_what_its_turns_have_cost(model, kind, steps):
    """Whatever is taken back, forked or given again: every turn that ran is there, with what went through the model for it."""
    chat, ran, forks = chatted(model, turns=0, cache=kind), [], []
    for number, step in enumerate(steps):
        if len(chat.tokens) > 500:
            break
        if step == "send" or not chat.turns:
            reply = chat.send(QUESTIONS[number % 3], max_new_tokens=2 + number % 3)
            ran.append(reply)
        elif step == "again":
            ran.append(chat.regenerate(max_new_tokens=3, sampler=Sampler(temperature=2.0, seed=number)))
        elif step == "rewind":
            chat.rewind(1 + number % len(chat.turns))
        elif step == "fork":
            forks.append((chat, list(ran)))
            chat = chat.fork()
        else:
            chat.reset()
            ran = []
        assert [(t.prompt_tokens, t.cached_tokens, t.completion_tokens) for t in chat.ledger] == [
            (r.usage.prompt_tokens, r.usage.cached_tokens, r.usage.completion_tokens) for r in ran
        ]
        assert chat.occupancy == len(chat.tokens) <= chat.ledger.limit + 1
        if kind is not None:
            through_the_model = sum(r.cost.tokens for r in ran)
            assert through_the_model == chat.ledger.totals.computed_tokens + chat.ledger.totals.completion_tokens - len(ran)
    for other, before in forks:
        assert len(other.ledger) == len(before), "a fork's turns are in the books of its parent"


def test_a_turn_that_did_not_run_is_not_in_the_books(model):
    chat = chatted(model)
    before = list(chat.ledger)
    refused(lambda: chat.send("a", max_new_tokens=-1), InputError)
    chat.cache.can_fork = False
    refused(lambda: chat.regenerate(max_new_tokens=3), CacheMisuse)
    del chat.cache.can_fork
    assert list(chat.ledger) == before
    chat.regenerate(max_new_tokens=3, sampler=talkative(model))
    assert len(chat.ledger) == 3
