"""What each policy gives up first; and what our own one keeps of a real service's requests."""

import json
import os
import subprocess
import sys
from math import log2

import pytest

from kvcourse.errors import InputError
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.policies import POLICIES, SLRU, Policy, Turns, policy_named
from kvcourse.prefix.replay import FlatCache


def cache(policy: str, capacity: int | None) -> FlatCache:
    return FlatCache(capacity, lambda rescore: policy_named(policy, rescore), 512)


def kept(policy: str, capacity: int, *requests: tuple[int, ...]) -> set[int]:
    """The blocks that are left after these requests."""
    one = cache(policy, capacity)
    for ids in requests:
        one.use(ids)
    return {block for block in range(1000) if one.hits([block])}


def test_lru_gives_up_what_was_not_used_for_longest():
    assert kept("lru", 2, (1,), (2,), (1,), (3,)) == {1, 3}


def test_lfu_keeps_what_was_used_more_often():
    assert kept("lfu", 2, (1,), (1,), (2,), (3,)) == {1, 3}


def test_lfu_lets_an_old_favourite_fade():
    once = [(n,) for n in range(10, 30)]
    assert 1 in kept("lfu", 2, *[(1,)] * 5, *once[:3])
    assert 1 not in kept("lfu", 2, *[(1,)] * 5, *once)


def test_slru_protects_what_was_used_twice_from_a_crowd_that_was_used_once():
    crowd = [(n,) for n in range(10, 30)]
    twice = [(8,), (9,), (1,), (2,), (1,), (2,)]
    assert {1, 2} <= kept("slru", 5, *twice, *crowd)
    assert not {1, 2} & kept("lru", 5, *twice, *crowd)


def test_slru_protects_four_fifths_at_most_and_lets_the_others_go():
    twice = [(n,) for n in range(1, 11) for _ in range(2)]
    one = cache("slru", 10)
    for ids in twice:
        one.use(ids)
    policy = one.policy
    assert isinstance(policy, SLRU) and len(policy._protected) == 8
    assert kept("slru", 10, *twice, (20,)) == {*range(2, 11), 20}, "of those on probation again, the older goes"


def test_ttl_gives_up_what_was_stored_first_however_often_it_is_used():
    assert kept("ttl", 2, (1,), (2,), (1,), (1,), (3,)) == {2, 3}


def test_turns_keeps_a_chat_that_went_on_before_one_that_came_later():
    assert kept("turns", 2, (1,), (1, 2), (3,)) == {1, 2}
    assert kept("lru", 1, (1,), (1,), (3,)) == {3}


def test_turns_counts_for_a_new_block_half_the_turns_its_text_had():
    one = cache("turns", None)
    for ids in ((1,), (1, 2), (1, 2, 3), (7,)):
        one.use(ids)
    turns = [(entry.score - entry.used + 150 * far(entry.start)) / 800 for entry in one._entries.values()]
    assert [round(2**doublings, 6) for doublings in turns] == [3, 2 + 1 / 2, 1 + 2 / 2, 1]


def test_turns_gives_up_what_stands_further_back_of_two_that_are_otherwise_alike():
    assert kept("turns", 3, (1, 2), (3,), (4,)) == {1, 3, 4}


def far(start: int) -> float:
    return log2(1 + start / 512)


def test_turns_goes_by_what_an_index_splits():
    policy = Turns(lambda entry: None)
    root = Entry((), 0, None, None, b"")
    first = Entry((1,) * 512, 0, root, 1, b"", created=1, used=1, uses=1)
    lower = Entry((2,) * 1024, 512, first, 2, b"", created=2, used=2, uses=1)
    for entry in (first, lower):
        entry.score = policy.score(entry)
    upper = Entry((2,) * 512, 512, first, 2, b"", created=2, used=2, uses=1)
    lower.tokens, lower.start, lower.parent = lower.tokens[512:], 1024, upper
    before = lower.score
    policy.split(upper, lower)
    assert upper.score == before > lower.score, "the back part stands further back now"
    sibling = Entry((3,) * 512, 1024, upper, 3, b"", created=3, used=3, uses=1)
    assert policy.score(sibling) - 3 + 150 * far(1024) == pytest.approx(800), "one, and half of two turns"
    for entry in (first, lower, upper, sibling):
        policy.went(entry)
    assert not policy._before, "nothing is remembered of what went"


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_remembers_what_went(name):
    one = cache(name, 3)
    for n in range(50):
        one.use((n % 7, 100 + n, 200 + n))
    for kept in vars(one.policy).values():
        assert not isinstance(kept, dict) or set(kept) <= set(one._entries.values())


def test_an_unknown_policy_is_refused_with_those_there_are():
    assert list(POLICIES) == ["lru", "lfu", "slru", "ttl", "turns"]
    assert type(policy_named("lru", lambda entry: None)) is Policy
    with pytest.raises(InputError, match="lru, lfu, slru, ttl, turns; got 'depth'"):
        policy_named("depth", lambda entry: None)


# On the public trace: what the docstring of Turns says. Measured in a process of its own, where calls are not checked.

CAPACITIES = (1000, 5859, 10000, 30000, 50000)
LRU = [0.0445, 0.1361, 0.2116, 0.3257, 0.3546]  # held by test_replay
MEASURE = """
import json, os, sys
from kvcourse.prefix.policies import Turns
from kvcourse.prefix.replay import curve, read_trace

policy, first, last, allowances, *capacities = json.loads(sys.argv[1])
if allowances:
    Turns.REQUESTS_PER_DOUBLING, Turns.REQUESTS_PER_DISTANCE = allowances
part = read_trace(os.environ["KVCOURSE_TRACE"])[first:last]
print(json.dumps([one.block_hit_rate for one in curve(part, capacities, policy)]))
"""


def measured(policy, capacities, *, first=0, last=None, allowances=None) -> list[float]:
    if not os.environ.get("KVCOURSE_TRACE"):
        pytest.skip("KVCOURSE_TRACE names no trace: set it to mooncake_conversation_trace.jsonl")
    arguments = json.dumps([policy, first, last, allowances, *capacities])
    run = subprocess.run([sys.executable, "-c", MEASURE, arguments], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_turns_is_above_lru_at_every_capacity_on_the_public_trace():
    ours = measured("turns", CAPACITIES)
    assert ours == pytest.approx([0.0768, 0.1691, 0.2247, 0.3297, 0.3551], abs=0.0001)
    assert all(mine > theirs + 0.0003 for mine, theirs in zip(ours, LRU, strict=True))


@pytest.mark.parametrize(
    ("half", "expected"),
    [
        (dict(last=6015), [0.0753, 0.1616, 0.2136, 0.3185, 0.3417]),
        (dict(first=6015), [0.0719, 0.1639, 0.2142, 0.3106, 0.3318]),
    ],
    ids=["first", "second"],
)
def test_on_either_half_of_the_trace_turns_is_above_lru_wherever_there_is_something_to_choose(half, expected):
    ours, lru = (measured(name, CAPACITIES, **half) for name in ("turns", "lru"))
    assert ours == pytest.approx(expected, abs=0.0001)
    assert all(mine > 1.02 * theirs for mine, theirs in zip(ours[:3], lru[:3], strict=True))
    assert all(mine > theirs - 0.0002 for mine, theirs in zip(ours[3:], lru[3:], strict=True))


def test_the_numbers_of_turns_stand_on_a_plateau():
    halved = measured("turns", CAPACITIES, allowances=[400, 75])
    assert halved == pytest.approx([0.0679, 0.1567, 0.2201, 0.3294, 0.3548], abs=0.0001)
