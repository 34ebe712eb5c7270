"""The claims of tests/paged_proof.py reject each broken paged cache, and each broken pool, by the claim that it breaks."""

import paged_proof
import pytest
from helpers import make_model
from mutants.caches.faulty_paged import FAULTS

from kvcourse.caches.block_pool import BlockPool
from kvcourse.caches.paged import PagedCache, PagedPool

CLAIMS = {claim.__name__.replace("_", " "): claim for claim in paged_proof.CLAIMS}


def kinds_of(fault):
    """The cache and the pool to try: a fault sits in one of them."""
    pool = getattr(fault, "pool", PagedPool)
    return (fault, PagedPool) if pool is PagedPool else (PagedCache, pool)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_broken_paged_cache_is_caught_by_the_claim_it_breaks(fault):
    with pytest.raises((Exception, pytest.fail.Exception)):  # what is raised depends on the fault: that this claim fails counts
        CLAIMS[fault.caught_by](*kinds_of(fault), make_model("llama"))


def test_every_claim_catches_some_fault():
    assert {fault.caught_by for fault in FAULTS} == set(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=list(CLAIMS))
def test_classes_that_are_only_renamed_are_not_caught(claim):
    blocks = type("Blocks", (BlockPool,), {})

    class Pool(PagedPool):
        def __init__(self, model, n_blocks, block_tokens=16):
            super().__init__(model, n_blocks, block_tokens)
            self.blocks = blocks(n_blocks)

    claim(type("Renamed", (PagedCache,), {}), Pool, make_model("llama"))
