"""The proof of tests/helpers.py rejects each broken cache, and for the right reason."""

import pytest
import torch
from helpers import CAPACITY, CLAIMS, NotExact, assert_cache_is_exact, make_model
from mutants.caches.faulty_caches import FAULTS, PaddingCounted, broken

from kvcourse.caches.growing import GrowingCache

PAIRS = [(fault, kind) for fault in FAULTS for kind in fault.only]


def maker(cache_class):
    def make(starts=None, capacity=CAPACITY):
        return cache_class(starts) if issubclass(cache_class, GrowingCache) else cache_class(capacity, starts)

    return make


@pytest.mark.parametrize(("fault", "kind"), PAIRS, ids=[f"{fault.__name__}-{kind.__name__}" for fault, kind in PAIRS])
def test_a_broken_cache_is_caught_by_the_claim_it_breaks(fault, kind):
    with pytest.raises(NotExact) as caught:
        assert_cache_is_exact(maker(broken(fault, kind)), make_model("gpt"))
    assert caught.value.claim == fault.caught_by, str(caught.value)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_llama_in_float32_catches_it_too(fault):
    # Rotary positions are relative: a Llama does not notice that all of a row stand too far to the right.
    model = make_model("gpt" if fault is PaddingCounted else "llama", torch.float32)
    with pytest.raises(NotExact) as caught:
        assert_cache_is_exact(maker(broken(fault, fault.only[-1])), model)
    assert caught.value.claim == fault.caught_by, str(caught.value)


@pytest.mark.parametrize(
    "kind", list(dict.fromkeys(kind for fault in FAULTS for kind in fault.only)), ids=lambda kind: kind.__name__
)
def test_a_cache_that_is_only_renamed_is_not_caught(kind):
    assert_cache_is_exact(maker(broken(type("Nothing", (), {}), kind)), make_model("llama"))


def test_every_claim_catches_a_cache_that_no_other_claim_catches_first():
    needed = {claim.__name__.replace("_", " ") for claim in CLAIMS}
    # Broken by models only: see tests/mutants/models.
    assert needed - {fault.caught_by for fault in FAULTS} == {
        "prefill in chunks and decode equal one pass",
        "only new tokens are computed",
    }
