"""Paged caches for tests that make a cache before its model: the pool is made for whoever comes first."""

from types import SimpleNamespace

from kvcourse.caches.block_pool import BlockPool
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool


class PoolToCome(PagedPool):
    """Room for `row_tokens` tokens in each row of a batch that is not known yet."""

    def __init__(self, row_tokens, block_tokens, rows):
        self.block_tokens, self.block_bytes = block_tokens, 0
        self._row_blocks = -(-row_tokens // block_tokens)
        self.blocks = BlockPool(self._row_blocks * rows)

    def serve(self, config, rows, dtype, device):
        """Make the tensors, unless blocks of others are in use."""
        if not self.blocks.n_used:
            self.blocks = BlockPool(self._row_blocks * rows)
            self._allocate(config, dtype, device)


class PagedOnDemand(PagedCache):
    """A paged cache whose pool has room for itself: `capacity` tokens per row, in whole blocks."""

    def __init__(self, capacity, starts=None, block_tokens=4):
        super().__init__(PoolToCome(capacity, block_tokens, len(starts or [0])), starts)

    def bind(self, model, batch_size, dtype, device):
        if self._binding is None:
            self.pool.serve(model.config, batch_size, dtype, device)
        super().bind(model, batch_size, dtype, device)

    def append(self, layer, k, v):
        if self._binding is None:
            config = SimpleNamespace(n_layer=3, n_kv_head=k.shape[1], head_size=k.shape[3])
            self.pool.serve(config, k.shape[0], k.dtype, k.device)
        return super().append(layer, k, v)


def check_pool(*caches):
    """The books of the pool are right, and these caches are all that use it."""
    pool = caches[0].pool
    assert all(cache.pool is pool for cache in caches)
    tables = [table for cache in caches for table in (*cache.tables, cache._replaced)]
    pool.blocks.check(tables)
    used = len({block for table in tables for block in table})
    assert (pool.blocks.n_used, pool.blocks.n_free) == (used, pool.blocks.n_blocks - used)
    assert pool.used_bytes == used * pool.block_bytes
