"""The proof of tests/window_proof.py rejects each broken sliding cache, by the claim that it breaks."""

import pytest
import window_proof
from mutants.caches.faulty_windows import FAULTS

from kvcourse.caches.sliding import SlidingCache

CLAIMS = {claim.__name__.replace("_", " "): claim for claim in window_proof.CLAIMS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_window_is_caught_by_the_claim_it_breaks(fault):
    with pytest.raises(Exception):  # noqa: B017 (what is raised depends on the fault; that this claim fails is the point)
        CLAIMS[fault.caught_by](fault)


def test_every_claim_catches_some_fault():
    assert {fault.caught_by for fault in FAULTS} == set(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=list(CLAIMS))
def test_a_window_that_is_only_renamed_is_not_caught(claim):
    claim(type("Renamed", (SlidingCache,), {}))
