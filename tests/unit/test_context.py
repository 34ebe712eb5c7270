"""Policies and the agent: what stands in the window, what it does to the prefix, and that counts are those of a real model."""

from itertools import pairwise

import pytest
from helpers import make_model
from hypothesis import given
from hypothesis import strategies as st

from kvcourse.context.agent import Script, Step, replayed_tokens, run_agent, scripted
from kvcourse.context.parts import Part, flat, n_tokens, shared_tokens
from kvcourse.context.policies import CompactNearLimit, CropOldest, Externalise, ReplayAll, Summarise
from kvcourse.errors import ContextOverflow, InputError
from kvcourse.ledger import Prices

sizes = st.integers(1, 12)


def summary(parts):
    """Three tokens that depend on what they stand for."""
    return tuple((n_tokens(parts) * k) % 61 for k in (3, 5, 7))


def reference(handle):
    return (60, int(handle.removeprefix("result-")) % 61)


def every_policy():
    return [
        ReplayAll(),
        CropOldest(),
        Summarise(summary, keep=2),
        Externalise(reference, longest=6),
        CompactNearLimit(summary, 0.7),
    ]


def script(n_steps=12, system=20, task=6, answer=4, result=9):
    return scripted(n_steps, system=system, task=task, answer=answer, result=result, vocab_size=61)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=20), sizes, sizes)
def test_cumulative_input_of_replaying_all_is_the_closed_formula(steps, system, task):
    made = Script((1,) * system, (2,) * task, tuple(Step((3,) * a, (4,) * r) for a, r in steps))
    run = run_agent(made, ReplayAll(), limit=10_000)
    assert run.ledger.totals.prompt_tokens == replayed_tokens(made)
    n = len(steps)
    if len(set(steps)) == 1:
        assert replayed_tokens(made) == n * (system + task) + sum(steps[0]) * n * (n - 1) // 2


@given(st.integers(1, 14), sizes, sizes, sizes, sizes, st.integers(45, 200), st.integers(0, 4))
def test_every_policy_keeps_the_window_and_the_books(n_steps, system, task, answer, result, limit, which):
    policy = every_policy()[which]
    try:
        run = run_agent(script(n_steps, system, task, answer, result), policy, limit=limit)
    except ContextOverflow as refused:
        assert policy.name in str(refused)
        return
    for turn, window in zip(run.ledger, run.windows, strict=True):
        assert turn.occupancy <= limit and turn.prompt_tokens == n_tokens(window) == turn.cached_tokens + turn.computed_tokens
        assert [part.role for part in window[:2]] == ["system", "task"]
    totals = run.ledger.totals
    assert (
        totals.computed_tokens + totals.cached_tokens == totals.prompt_tokens == sum(turn.prompt_tokens for turn in run.ledger)
    )
    assert 0 <= run.ledger.share <= 1


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("cached", [True, False])
def test_counts_are_those_of_a_real_model_and_its_prefix_cache(which, cached):
    model = make_model("llama", context_length=300)
    counted, ran = (run_agent(script(6), every_policy()[which], limit=120, model=m, cached=cached) for m in (None, model))
    assert list(counted.ledger) == list(ran.ledger)
    assert cached == any(turn.cached_tokens for turn in ran.ledger)


def test_who_never_breaks_the_prefix_computes_only_what_is_new():
    for policy in (ReplayAll(), Externalise(reference, longest=6)):
        run = run_agent(script(), policy, limit=1000)
        before = ()
        for turn, window in zip(run.ledger, run.windows, strict=True):
            assert shared_tokens(before, window) == n_tokens(before)
            assert turn.computed_tokens <= n_tokens(window) - n_tokens(before) + 1
            before = window
        assert policy.breaks_prefix == "never"


def test_cropping_breaks_the_prefix_at_every_request_and_compaction_once_in_a_while():
    crop, compact = (run_agent(script(20), policy, limit=120) for policy in (CropOldest(), CompactNearLimit(summary, 0.8)))

    def breaks(run):
        pairs = zip(run.windows, run.windows[1:], strict=False)
        return [shared_tokens(a, b) < n_tokens(a) for a, b in pairs]

    first = breaks(crop).index(True)
    assert all(breaks(crop)[first:]) and first > 0
    assert 0 < sum(breaks(compact)) < len(breaks(compact)) / 2
    assert compact.ledger.totals.computed_tokens < crop.ledger.totals.computed_tokens
    fixed = n_tokens(compact.windows[0])
    assert all(shared_tokens(a, b) >= fixed for a, b in zip(compact.windows, compact.windows[1:], strict=False))


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_summaries_break_the_prefix_from_the_request_on_that_the_policy_names(keep):
    policy = Summarise(summary, keep)
    windows = run_agent(script(8), policy, limit=10_000).windows
    broken = [n for n, (a, b) in enumerate(pairwise(windows), start=2) if shared_tokens(a, b) < n_tokens(a)]
    assert policy.breaks_prefix == "at every request, from number `keep` + 2 on"
    assert broken == list(range(keep + 2, 9))


def test_cropping_drops_whole_steps_and_keeps_the_fixed_parts():
    run = run_agent(script(), CropOldest(), limit=80)
    for window in run.windows:
        steps = [part.step for part in window if part.step]
        assert steps == sorted(steps) and all(steps.count(step) == 2 for step in steps)


def test_what_was_put_outside_is_fetched_back_by_its_handle():
    policy = Externalise(reference, longest=6)
    run = run_agent(script(), policy, limit=1000)
    handles = [part.handle for part in run.windows[-1] if part.role == "handle"]
    assert len(handles) == 11 == len(policy.outside)
    assert policy.fetch(handles[3]).tokens == script().steps[3].result
    with pytest.raises(InputError, match="11 handles"):
        policy.fetch("result-99")


def test_without_a_cache_everything_is_computed():
    totals = run_agent(script(), ReplayAll(), limit=1000, cached=False).ledger.totals
    assert totals.cached_tokens == 0 and totals.computed_tokens == replayed_tokens(script())


def test_a_bill_adds_up_and_caching_makes_it_smaller():
    warm, cold = (run_agent(script(), ReplayAll(), limit=1000, cached=cached).ledger for cached in (True, False))
    prices = Prices(computed=1, cached=0.25, completion=4)
    for ledger in (warm, cold):
        bill, sums = ledger.billed(prices), ledger.totals
        assert bill.total == sums.computed_tokens + 0.25 * sums.cached_tokens + 4 * sums.completion_tokens
    assert warm.billed(prices).total < cold.billed(prices).total
    with pytest.raises(InputError):
        Prices(cached=-0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Summarise(summary, keep=0),
        lambda: Externalise(reference, longest=0),
        lambda: CompactNearLimit(summary, 0),
        lambda: CompactNearLimit(summary, 1.5),
        lambda: scripted(0, system=1, task=1, answer=1, result=1),
        lambda: scripted(1, system=1, task=1, answer=1, result=1, vocab_size=0),
    ],
)
def test_settings_that_cannot_be_are_refused(make):
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.todo


@pytest.mark.parametrize("vocab_size", [30, 7919, 2 * 7919, 7907 * 7919])
def test_a_scripts_ids_are_all_different_as_long_as_there_are_enough(vocab_size):
    script = scripted(2, system=5, task=5, answer=5, result=5, vocab_size=vocab_size)
    ids = [*script.system, *script.task, *(one for step in script.steps for one in (*step.answer, *step.result))]
    assert len(ids) == len(set(ids)) == 30 and max(ids) < vocab_size


def test_parts_are_told_apart_by_their_tokens():
    one, other = [Part("system", (1, 2)), Part("task", (3,))], [Part("system", (1, 2)), Part("task", (4,))]
    assert (flat(one), shared_tokens(one, other), shared_tokens(one, [*one, other[1]])) == ([1, 2, 3], 2, 3)
