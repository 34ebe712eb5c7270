"""Lesson 10: K/V shared between requests. Knows nothing about how prefixes are found (`radix`, `blocks`) or where rows lie.

    pc = RadixPrefixCache(model, max_bytes=2**30)
    with pc.lease(tokens) as hit:      # what is known of them stays until the block ends
        hit.load_into(cache)           # hit.length tokens; at least one is left to compute
    logits = prefill(model, tokens[cache.length :], cache)
    pc.insert(tokens, cache)           # copies what was not there before

A KV cache saves work inside one generation; this saves work between requests. Equal tokens are not enough: K and V depend on
all tokens in front of them and on every weight, so only an equal start, under an equal key, is worth anything.

Safe under threads: one lock around the bookkeeping, none while rows are copied in, out or apart, none in a forward pass.
Safe under Ctrl-C: the books are changed as a whole or not at all (`interrupts`), whatever a clock or a policy raises.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from kvcourse.amounts import whole
from kvcourse.caches.base import KVCache
from kvcourse.errors import BrokenInvariant, CacheMisuse
from kvcourse.models.base import CausalLM
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.books import Books
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.guards import is_doubted, note_loaded, require_cache, require_exact, require_source
from kvcourse.prefix.hits import Found, Hit
from kvcourse.prefix.index import Match
from kvcourse.prefix.inserts import Insert
from kvcourse.prefix.interrupts import uninterrupted
from kvcourse.prefix.keys import Digest, digest_of, encoded
from kvcourse.prefix.proof import compared
from kvcourse.prefix.radix import RadixTree
from kvcourse.prefix.store import KVStore, copied, load


class PrefixCache(Books):
    """What both kinds share. Not made itself: use RadixPrefixCache or BlockPrefixCache.

    max_bytes: of K/V; never exceeded after any call.
    policy: "lru", "lfu", "slru", "ttl" or "turns" (kvcourse.prefix.policies). ttl: seconds after its last use at which an
        entry is no longer found. clock: seconds, never going back.
    verify: share of hits that `load_into` computes again and compares, logits and rows. A mismatch is counted, and what was
        stored of the text from the first wrong row on is dropped, never to be used again: nor is it stored again from a
        cache that was loaded before; with `strict` it raises.
    """

    # Using.

    def match(self, tokens: Sequence[int], namespace: object = None) -> Found:
        """How much of a text a lease would find now. Pins nothing, counts nothing, changes nothing."""
        ids = self._ids(tokens)
        with self._lock:
            self._require_weights()
            root = self.index.roots.get(self._key(namespace))
            return Found(0 if root is None else self.index.match(root, ids[:-1], self.clock()).length)

    @contextmanager
    def lease(self, tokens: Sequence[int], namespace: object = None) -> Iterator[Hit]:
        """Find the longest known start of a text, all but its last token at most, and pin it while the block lasts."""
        ids, hit = self._ids(tokens), None
        try:
            try:
                with uninterrupted(), self._lock:
                    hit = self._leased(ids, namespace)
                yield hit
            finally:
                self._end_lease(hit)
        except BaseException:  # an interrupt, perhaps, that came just before it could be made to wait
            self._end_lease(hit)
            raise

    def insert(self, tokens: Sequence[int], cache: KVCache, namespace: object = None) -> int:
        """Store the K/V of the first tokens of `cache`, as far as it has computed them; return how many tokens were new.

        Room is made by evicting what is not in use. If that is not enough, as much of the start is stored as fits. Nothing is
        stored from a cache whose rows may be wrong: loaded from a prefix cache that has found something wrong since.
        Raises: InputError for no tokens; CacheMisuse for a cache that is not exact, has forgotten rows, has padding, or was
        filled by other weights than the model's present ones; CacheMismatch for a cache of another model.
        """
        ids, work = self._ids(tokens), Insert()
        require_source(cache, self.model)
        ids = ids[: cache.length]
        with uninterrupted() as block:
            try:
                with self._lock:
                    self._expire()
                    match = self._make_room(work, self._root(namespace), ids)
                    cut = match.cut if work.pieces else None
                    entire = None if cut is None else self.store.rows(cut[0])
                with block.pause():
                    work.rows = self._copy(cache, work.pieces)
                    work.copy(work.pieces, cut, entire)
                return self._store(work, ids[: work.stop], cache, namespace, block)
            finally:
                self._end_insert(work)

    # Room.

    def evict(self, n_bytes: int) -> int:
        """Free at least this many bytes, or all that is not in use; return how many went: less than `n_bytes` and one entry."""
        n_bytes = whole("n_bytes", n_bytes)
        with uninterrupted(), self._lock:
            self._now = self.clock()
            return self.index.evict(-(-n_bytes // self.token_bytes)) * self.token_bytes

    def clear(self, namespace: object = None) -> None:
        """Forget everything, or everything in one namespace: what was stored, and the text of what had gone before.

        Raises: CacheMisuse, with nothing changed, while leases are out or inserts under way.
        """
        with uninterrupted(), self._lock:
            self._now, keys = self.clock(), {*self.index.roots, *self.names}
            if namespace is not None:
                name = encoded(namespace)
                keys = {self._key(namespace)} | {key for key, other in self.names.items() if encoded(other) == name}
            roots = [root for root in self.index.roots.values() if root.key in keys]
            if any(root.pins for root in roots):
                raise self._in_use("K/V is in use.", "Leave the with blocks first, and let inserts in other threads end.")
            self.index.sweep()
            for root in roots:
                self.index.clear(root)
            self._memory.strike_out(keys if namespace is not None else None)

    # Inside.

    def _leased(self, ids: list[int], namespace: object) -> Hit:
        now = self._expire()
        root = self._root(namespace)
        try:
            match = self.index.match(root, ids[:-1], now)
            hit = self._hit(match, ids)
            self.index.use(match, now)
        except BaseException:
            self.index.leave(root)
            raise
        held = match.entries[-1] if match.entries else root
        self.index.pin(held)  # from here on nothing fails
        self._leases[hit] = held
        self._count(lookups=1, hits=int(match.length > 0), lookup_tokens=len(ids), hit_tokens=match.length)
        return hit

    def _end_lease(self, hit: Hit | None) -> None:
        with uninterrupted(), self._lock:
            if hit is not None and hit in self._leases:
                hit._open = False
                hit._stretches.clear()
                self.index.unpin(self._leases.pop(hit))

    def _hit(self, match: Match, ids: list[int]) -> Hit:
        stretches = []
        for entry in match.entries:
            assert entry.rows is not None
            stretches.append((self.store.rows(entry.rows), min(entry.stop, match.length) - entry.start))
        assert self._weights is not None
        return Hit(match.length, self._load, ids, self._weights, match.entries, stretches)

    def _make_room(self, work: Insert, root: Entry, ids: list[int]) -> Match:
        """Pin what is known of a text, evict until the rest fits or nothing more may go; return what is known."""
        match = self.index.match(root, ids, None)
        held = match.entries[-1] if match.entries else root
        self.index.pin(held)
        work.held, work.known = held, match.length
        self._inserting.append(work)
        need = sum(stop - start for start, stop in self.index.pieces(match.length, len(ids)))
        room = self.max_bytes // self.token_bytes - self._reserved_tokens
        if need > room - self.index.tokens:
            self.index.evict(need - room + self.index.tokens)
        work.pieces = self.index.pieces(match.length, min(len(ids), match.length + max(0, room - self.index.tokens)))
        work.reserved = sum(stop - start for start, stop in work.pieces)
        self._reserved_tokens += work.reserved
        return match

    def _store(self, work: Insert, ids: list[int], cache: KVCache, namespace: object, block: uninterrupted) -> int:
        """Store what was copied. Others may have been served meanwhile: then something else may have to be copied first."""
        while True:
            with self._lock:
                self._require_unchanged()
                if is_doubted(cache) or work.held in self.index._detached:
                    self._count(refused=1)
                    return 0
                self._now = self.clock()
                root = self.index.root(self._key(namespace))
                match = self.index.match(root, ids, None)
                pieces = self.index.pieces(match.length, len(ids))
                cut = match.cut if pieces else None
                if work.has(pieces, cut):
                    return self._add(work, root, ids, match)
                entire = None if cut is None else self.store.rows(cut[0])
            with block.pause():
                work.copy(pieces, cut, entire)

    def _add(self, work: Insert, root: Entry, ids: list[int], match: Match) -> int:
        before = self.index.tokens
        try:
            self.index.add(root, ids, lambda *ends: self.store.put(work.rows[ends]), self._now, match,
                           lambda rows, at: self.store.split(rows, at, work.halves.get((rows, at))))  # fmt: skip
            return self.index.tokens - before
        finally:  # of a chain of blocks the first ones may be there, whatever is raised at the next
            self._count(inserted_tokens=self.index.tokens - before)
            self._reserved_tokens, work.reserved = self._reserved_tokens - work.reserved, 0  # no longer to come

    def _end_insert(self, work: Insert) -> None:
        with self._lock:
            if work in self._inserting:
                self._inserting.remove(work)
                self._reserved_tokens -= work.reserved
                assert work.held is not None
                self.index.unpin(work.held)

    def _copy(self, cache: KVCache, pieces: list[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        if not pieces:
            return {}
        first = pieces[0][0]
        rows = copied(cache, self.model.config.n_layer, first, pieces[-1][1])  # (L, 2, H_kv, n, D)
        if len(pieces) == 1:
            return {pieces[0]: rows}
        parts = rows.split([stop - start for start, stop in pieces], dim=3)
        return {ends: part.clone() for ends, part in zip(pieces, parts, strict=True)}

    def _load(self, hit: Hit, cache: KVCache) -> None:
        require_cache(cache)
        if cache.length:
            raise CacheMisuse("A prefix goes to the front.", expected="an empty cache", got=f"length {cache.length}",
                              todo="Reset it, or use a new one.")  # fmt: skip
        require_exact(cache)
        self._require_unchanged(hit._weights)
        with uninterrupted(), self._lock:
            drops = self.drops
            if hit.length and any(e in self.index._detached for e in hit._entries[-1].path if e.start < hit.length):
                self._missed(hit)  # found wrong since it was leased
        if not hit.length:
            return
        cache.bind(self.model, 1, self.model.dtype, self.model.device)
        load(hit._stretches, cache)
        note_loaded(cache, self, drops)
        if self.verify and self.rng.random() < self.verify:
            self._verify(hit, cache)

    def _verify(self, hit: Hit, cache: KVCache) -> None:
        """Compute the text up to one token past the hit again, and compare rows and logits. Nobody's meter counts it."""
        found, known = compared(self.model, hit._tokens[: hit.length + 1], cache), hit.length
        try:
            with uninterrupted(), self._lock:
                self._count(verified=1)
                if found.is_equal:
                    return
                self.drops += 1
                self._count(mismatches=1)
                self._missed(hit)
                self.index.drop(next(e for e in hit._entries[-1].path if e.stop > (found.first_wrong or 0)))
        finally:
            if not hit.length:
                cache.reset()
        if self.strict:
            got = f"{found.off:.2g}" + ("" if found.first_wrong is None else f", other rows from token {found.first_wrong} on")
            raise BrokenInvariant(f"K/V of {known} stored tokens is wrong.", expected=f"logits within {found.bound:.2g}",
                                  got=got, todo="It is dropped; report this, with the tokens.")  # fmt: skip


class RadixPrefixCache(PrefixCache):
    """Shares equal starts of any length, through a radix tree of token ids."""

    def __init__(self, model: CausalLM, max_bytes: int, ttl: float | None = None, policy: str = "lru",
                 clock: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        store = KVStore()
        super().__init__(model, RadixTree(store, policy, ttl, self._remember), store, max_bytes, clock)


class BlockPrefixCache(PrefixCache):
    """Shares equal starts in whole blocks of `block_tokens`, through a chain of hashes.

    digest: from bytes to bytes. A poor one costs hits; answers stay right, because a block is believed by its tokens.
    """

    def __init__(self, model: CausalLM, max_bytes: int, block_tokens: int = 16, ttl: float | None = None, policy: str = "lru",
                 clock: Callable[[], float] = time.monotonic, digest: Digest = digest_of) -> None:  # fmt: skip
        store = KVStore()
        index = HashedBlocks(store, block_tokens, digest, policy=policy, ttl=ttl, gone=self._remember)
        super().__init__(model, index, store, max_bytes, clock)
