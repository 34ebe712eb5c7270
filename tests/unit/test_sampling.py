"""Samplers, beside a reference in NumPy that was written from the definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcourse.errors import InputError
from kvcourse.sampling import Sampler, greedy, start


def reference(logits, temperature, top_k, top_p):
    """Sort (smaller id first among equals), keep k, softmax, keep the shortest head that reaches p, renormalise."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    kept = order[: top_k or len(order)]
    odds = np.array([math.exp((logits[i] - logits[kept[0]]) / temperature) for i in kept])
    odds /= odds.sum()
    if top_p is not None:
        size = next((n for n in range(1, len(odds) + 1) if math.fsum(odds[:n]) >= top_p), len(odds))
        kept, odds = kept[:size], odds[:size] / odds[:size].sum()
    out = np.zeros(len(logits))
    out[kept] = odds
    return out


@given(
    logits=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=12),
    temperature=st.floats(0.05, 5),
    top_k=st.none() | st.integers(1, 14),
    top_p=st.none() | st.floats(0.05, 0.999),
)
def test_probabilities_equal_the_reference_for_every_setting(logits, temperature, top_k, top_p):
    got = Sampler(temperature, top_k, top_p).probabilities(torch.tensor(logits, dtype=torch.float64)).numpy()
    expected = reference(logits, temperature, top_k, top_p)
    assert got.sum() == pytest.approx(1, abs=1e-12)
    if (got > 0).sum() != (expected > 0).sum() and top_p is not None:
        # The one place where rounding decides: the head that is kept ends within rounding of p.
        whole = np.sort(reference(logits, temperature, top_k, None))[::-1].cumsum()
        assert np.abs(whole - top_p).min() < 1e-12
    else:
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_a_worked_example():
    logits = torch.log(torch.tensor([1.0, 3.0, 2.0, 1e-30]))
    assert Sampler().probabilities(logits).tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6, 0])
    assert Sampler(temperature=0.5).probabilities(logits).tolist() == pytest.approx([1 / 14, 9 / 14, 4 / 14, 0])
    assert Sampler(top_k=2).probabilities(logits).tolist() == pytest.approx([0, 3 / 5, 2 / 5, 0])
    assert Sampler(top_p=0.5).probabilities(logits).tolist() == pytest.approx([0, 1, 0, 0], abs=1e-7)
    assert Sampler(top_p=0.6).probabilities(logits).tolist() == pytest.approx([0, 3 / 5, 2 / 5, 0])
    assert Sampler(top_k=2, top_p=0.55).probabilities(logits).tolist() == pytest.approx([0, 1, 0, 0])


def test_top_p_stops_as_soon_as_p_is_reached():
    assert Sampler(top_p=0.5).probabilities(torch.zeros(2)).tolist() == [1, 0]
    assert Sampler(top_p=0.5).probabilities(torch.zeros(4)).tolist() == [0.5, 0.5, 0, 0]
    assert Sampler(top_p=0.75).probabilities(torch.zeros(4)).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert Sampler(top_p=1.0).probabilities(torch.zeros(4)).tolist() == [0.25] * 4


def test_of_equals_the_smallest_ids_are_kept():
    for size in (10, 5000):
        kept = Sampler(top_k=3).probabilities(torch.zeros(size)).nonzero().flatten()
        assert kept.tolist() == [0, 1, 2]


def test_greedy_takes_the_likeliest_and_of_equals_the_smallest_id():
    assert greedy(torch.tensor([0.0, 2.0, 1.0, 2.0])) == 1
    assert greedy(torch.zeros(5)) == 0
    assert greedy(torch.tensor([-math.inf, -3.0])) == 1
    assert greedy(torch.tensor([1.0, 1.0078125], dtype=torch.bfloat16)) == 1
    for size in (1, 7, 1000):  # torch's own argmax leaves the choice among equals open
        logits = torch.zeros(size)
        logits[size // 2 :] = 1.0
        assert greedy(logits) == size // 2


def test_temperature_zero_and_one_candidate_are_greedy():
    logits = torch.tensor([0.1, 0.7, 0.7, 0.3])
    for sampler in (
        Sampler(temperature=0),
        Sampler(temperature=0.0),
        Sampler(top_k=1),
        Sampler(top_p=1e-9),
        Sampler(temperature=1e-310),
    ):
        pick = start(sampler)
        choices = {pick(logits) for _ in range(20)}
        assert choices <= {1, 2} and (sampler.temperature == 1e-310 or choices == {1})


def test_a_seed_gives_the_same_choices_every_time_and_another_gives_others():
    rows = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))

    def choices(seed):
        pick = start(Sampler(seed=seed))
        return [pick(row) for row in rows]

    assert choices(3) == choices(3)
    assert choices(3) != choices(4)
    torch.manual_seed(99)  # PyTorch's own generator plays no part
    assert choices(3) == choices(3)
    before = torch.get_rng_state()
    choices(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_two_streams_of_one_sampler_do_not_share_their_draws():
    logits = torch.zeros(1000)
    sampler = Sampler(seed=5)
    one, two = start(sampler), start(sampler)
    together = [(one(logits), two(logits)) for _ in range(5)]
    assert all(a == b for a, b in together)


def test_draws_follow_the_probabilities():
    logits = torch.log(torch.tensor([0.5, 0.25, 0.15, 0.1]))
    pick = start(Sampler(seed=0))
    n = 4000
    counts = np.bincount([pick(logits) for _ in range(n)], minlength=4)
    expected = n * np.array([0.5, 0.25, 0.15, 0.1])
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


def test_what_is_left_out_is_never_drawn():
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0, -math.inf])
    for sampler, allowed in ((Sampler(top_k=2), {0, 1}), (Sampler(top_p=0.5), {0}), (Sampler(temperature=100.0), {0, 1, 2, 3})):
        pick = start(sampler)
        assert {pick(logits) for _ in range(300)} == allowed


@pytest.mark.parametrize(
    "logits",
    [
        torch.tensor([1.0, math.nan]),
        torch.full((3,), math.nan),
        torch.tensor([math.inf, 1.0]),
        torch.full((3,), -math.inf),
        torch.tensor([]),
        torch.zeros(2, 3),
        torch.tensor(1.0),
    ],
    ids=["a NaN", "all NaN", "inf", "nothing allowed", "empty", "two rows", "no row"],
)
def test_logits_that_say_nothing_are_refused(logits, jaxtyping_off):
    for choose in (greedy, start(Sampler()), start(Sampler(temperature=0.0))):
        with pytest.raises(InputError, match="cannot be sampled") as caught:
            choose(logits)
        assert caught.value.expected and caught.value.got and caught.value.todo


@pytest.fixture
def jaxtyping_off():
    """Shape checks would be first to refuse some of these, and a user has none."""
    from helpers import shape_checks

    with shape_checks(False):
        yield


@pytest.mark.parametrize(
    "settings",
    [
        dict(temperature=-0.1), dict(temperature=math.nan), dict(temperature=math.inf),
        dict(top_k=0), dict(top_k=-1), dict(top_p=0.0), dict(top_p=1.1), dict(top_p=math.nan),
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_cannot_be_used_are_refused_by_name(settings):
    with pytest.raises(InputError, match=next(iter(settings))) as caught:
        Sampler(**settings)
    assert caught.value.todo


def test_a_plain_function_is_a_sampler_too():
    assert start(greedy) is greedy
    assert start(len) is len
