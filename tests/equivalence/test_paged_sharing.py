"""Paged caches in one pool, whatever its blocks, pass the proof of tests/helpers.py and the claims of tests/paged_proof.py."""

import gc

import paged_proof
import pytest
import torch
from helpers import MODELS, assert_cache_is_exact, make_model

from kvcourse.caches.paged import PagedCache, PagedPool


@pytest.mark.parametrize("model_kind", MODELS)
@pytest.mark.parametrize("claim", paged_proof.CLAIMS, ids=lambda claim: claim.__name__)
def test_sequences_that_share_a_pool_keep_out_of_each_others_way(claim, model_kind):
    claim(PagedCache, PagedPool, make_model(model_kind))


def scattered(pool):
    """Leave every second block to somebody else, so that no two that are free are neighbours."""
    pool.blocks.release(pool.blocks.allocate(pool.blocks.n_blocks)[::2])
    return pool


CASES = [
    *((P, "scattered", kind, dtype) for P in (1, 16) for kind in MODELS for dtype in (torch.float64, torch.float32)),
    *((4, "scattered", kind, torch.float64) for kind in MODELS),
    (16, "in runs", "llama", torch.float64),
]


@pytest.mark.parametrize(
    ("block_tokens", "layout", "model_kind", "dtype"),
    CASES,
    ids=["-".join(map(str, case)) for case in CASES],
)
def test_every_cache_of_one_pool_passes_the_whole_proof(block_tokens, layout, model_kind, dtype):
    model = make_model(model_kind, dtype)
    shape = scattered if layout == "scattered" else lambda pool: pool
    shared = shape(PagedPool(model, 2 * (512 // block_tokens + 64), block_tokens))
    taken = shared.blocks.n_used

    def make(starts=None, capacity=None):
        if capacity is None:
            return PagedCache(shared, starts)
        n_blocks = -(-capacity // block_tokens)
        return PagedCache(shape(PagedPool(model, n_blocks if layout == "in runs" else 2 * n_blocks, block_tokens)), starts)

    assert_cache_is_exact(make, model)
    gc.collect()
    shared.blocks.check()
    assert shared.blocks.n_used == taken, "all of them are gone, and have left no block behind"
