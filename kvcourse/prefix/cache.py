"""Lesson 10: K/V shared between requests. Knows nothing about how prefixes are found (`radix`, `blocks`) or where rows lie.

    pc = RadixPrefixCache(model, max_bytes=2**30)
    with pc.lease(tokens) as hit:      # what is known of them stays until the block ends
        hit.load_into(cache)           # hit.length tokens; at least one is left to compute
    logits = prefill(model, tokens[cache.length :], cache)
    pc.insert(tokens, cache)           # copies what was not there before

A KV cache saves work inside one generation; this saves work between requests. Equal tokens are not enough: K and V depend on
all tokens in front of them and on every weight, so only an equal start, under an equal key, is worth anything.

Safe under threads: one lock around the bookkeeping, none while rows are copied in or out and none during a forward pass.
"""

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from kvcourse.caches.base import KVCache
from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import BrokenInvariant, CacheMisuse, InputError
from kvcourse.models.base import CausalLM
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.guards import require_exact, require_source
from kvcourse.prefix.hits import Found, Gone, Hit, Stats
from kvcourse.prefix.index import Match, PrefixIndex, Reason
from kvcourse.prefix.keys import Digest, digest_of, root_key
from kvcourse.prefix.proof import compared
from kvcourse.prefix.radix import RadixTree
from kvcourse.prefix.store import KVStore, copied, load
from kvcourse.prompt_ids import as_prompts

REMEMBERED = 10_000  # stretches that are gone, kept as ids, so that a miss can be explained
REMEMBERED_TOKENS = 2**20  # of theirs, at most: some 40 MB


class PrefixCache:
    """What both kinds share. Not made itself: use RadixPrefixCache or BlockPrefixCache.

    max_bytes: of K/V; never exceeded after any call.
    policy: "lru", "lfu", "slru", "ttl" or "turns" (kvcourse.prefix.policies). ttl: seconds after its last use at which an
        entry is no longer found. clock: seconds, never going back.
    verify: share of hits that `load_into` computes again and compares. A mismatch is counted, and what was found is dropped,
        never to be used again; with `strict` it raises.
    """

    def __init__(self, model: CausalLM, index: PrefixIndex, store: KVStore, max_bytes: int, clock: Callable[[], float]) -> None:
        self.model, self.max_bytes, self.clock = model, max_bytes, clock
        self.verify, self.strict, self.rng = 0.0, False, random.Random()
        self.token_bytes = kv_bytes_per_token(model.config, torch.finfo(model.dtype).bits // 8)
        self.index, self.store = index, store
        self.names: OrderedDict[bytes, object] = OrderedDict()  # the namespace of each root there was
        self.gone: OrderedDict[tuple[bytes, bytes], Gone] = OrderedDict()  # by the digests in front of it and at its end
        self._gone_tokens = 0
        self._stats = Stats()
        self._lock = threading.RLock()
        self._weights: str | None = None  # the fingerprint that everything stored was computed with
        self._leases: dict[Hit, Entry] = {}
        self._inserting: list[Entry] = []  # pinned by inserts under way
        self._reserved_tokens = 0  # on their way in
        least = self.token_bytes * index.step_tokens
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < least:
            raise InputError("A prefix cache needs room.", expected=f"max_bytes of {least} or more, {index.step_tokens} tokens",
                             got=max_bytes, todo="Give it the bytes of a few prompts.")  # fmt: skip
        if index.ttl is not None and not index.ttl > 0:
            raise InputError("Nothing would ever be found.", expected="ttl above 0 (seconds), or None", got=index.ttl,
                             todo="Leave ttl out to keep entries until room is needed.")  # fmt: skip

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
        ids = self._ids(tokens)
        with self._lock:
            now = self._expire()
            root = self._root(namespace)
            match = self.index.match(root, ids[:-1], now)
            self.index.use(match, now)
            hit = self._hit(match, ids)
            held = match.entries[-1] if match.entries else root
            self.index.pin(held)
            self._leases[hit] = held
            self._count(lookups=1, hits=int(match.length > 0), lookup_tokens=len(ids), hit_tokens=match.length)
        try:
            yield hit
        finally:
            with self._lock:
                hit._open = False
                hit._stretches.clear()
                self.index.unpin(self._leases.pop(hit))

    def insert(self, tokens: Sequence[int], cache: KVCache, namespace: object = None) -> int:
        """Store the K/V of the first tokens of `cache`, as far as it has computed them; return how many tokens were new.

        Room is made by evicting what is not in use. If that is not enough, as much of the start is stored as fits.
        Raises: InputError for no tokens; CacheMisuse for a cache that is not exact, has forgotten rows, has padding, or was
        filled by other weights than the model's present ones; CacheMismatch for a cache of another model.
        """
        ids = self._ids(tokens)
        require_source(cache, self.model)
        ids = ids[: cache.length]
        with self._lock:
            self._expire()
            held, known, pieces = self._make_room(self._root(namespace), ids)
        reserved = sum(stop - start for start, stop in pieces)
        try:
            rows = self._copy(cache, pieces)
            with self._lock:
                self._require_unchanged()
                if held in self.index._detached:  # found wrong by somebody else in the meantime, and dropped
                    return 0
                ids = ids[: pieces[-1][1] if pieces else known]
                root, now = self.index.root(self._key(namespace)), self.clock()  # others may have been served meanwhile
                new = self.index.add(root, ids, lambda *ends: self.store.put(_part(rows, *ends)), now)
                self._reserved_tokens, reserved = self._reserved_tokens - reserved, 0  # stored, so it is no longer to come
                self._count(inserted_tokens=new)
                return new
        finally:
            with self._lock:
                self._reserved_tokens -= reserved
                self._inserting.remove(held)
                self.index.unpin(held)

    # Room.

    def evict(self, n_bytes: int) -> int:
        """Free at least this many bytes, or all that is not in use; return how many went: less than `n_bytes` and one entry."""
        if isinstance(n_bytes, bool) or not isinstance(n_bytes, int) or n_bytes < 0:
            raise InputError("A number of bytes.", expected="0 or more", got=n_bytes, todo="To forget everything call clear().")
        with self._lock:
            went = self.index.evict(-(-n_bytes // self.token_bytes))
            self._count(evicted_tokens=went)
            return went * self.token_bytes

    def clear(self, namespace: object = None) -> None:
        """Forget everything, or everything in one namespace.

        Raises: CacheMisuse, with nothing changed, while leases are out.
        """
        with self._lock:
            roots = list(self.index.roots.values())
            if namespace is not None:
                roots = [root for root in roots if root.key == self._key(namespace)]
            if any(root.pins for root in roots):
                raise CacheMisuse("K/V is in use.", expected="no leases out", got=f"{len(self._leases)}",
                                  todo="Leave their with blocks first.")  # fmt: skip
            for root in roots:
                self.index.clear(root)

    # Looking.

    @property
    def stats(self) -> Stats:
        """A snapshot."""
        with self._lock:
            return replace(self._stats, leases=len(self._leases), tokens=self.index.tokens, bytes=self.store.nbytes)

    @contextmanager
    def standing_still(self, namespace: object = None) -> Iterator[bytes]:
        """Hold the lock while somebody reads `index`, `gone` and `names`; yields the key of a namespace's root."""
        with self._lock:
            self._require_weights()
            yield self._key(namespace)

    def check(self) -> None:
        """Raises: BrokenInvariant, unless all books agree: the index, the pins, the rows, the bytes, the budget."""
        with self._lock:
            self.index.check([*self._leases.values(), *self._inserting])
            held = sorted(entry.rows for entry in [*self.index.entries(), *self.index._detached] if entry.rows is not None)
            sums = (self.store.nbytes, self.store.check(), self.index.tokens * self.token_bytes)
            if len(set(sums)) != 1 or held != sorted(self.store._rows):
                raise BrokenInvariant("Bytes and tokens disagree.", expected="one sum, counted three ways", got=sums,
                                      todo="Report this.")  # fmt: skip
            if self.store.nbytes + self._reserved_tokens * self.token_bytes > self.max_bytes:
                raise BrokenInvariant(
                    "Over budget.", expected=f"{self.max_bytes} bytes", got=self.store.nbytes, todo="Report this."
                )

    # Inside.

    def _ids(self, tokens: Any) -> list[int]:
        prompts, many = as_prompts(tokens, self.model.config.vocab_size)
        if many:
            raise InputError(
                "One text at a time.", expected="a list of ids", got=f"{len(prompts)} lists", todo="Loop over them."
            )
        return prompts[0]

    def _key(self, namespace: object) -> bytes:
        return root_key(self._weights or "", f"{self.model.dtype} {self.model.weight_format}", namespace)

    def _require_weights(self) -> None:
        """Forget what weights other than the model's present ones have computed."""
        now = self.model.fingerprint
        if self._weights is not None and now != self._weights:
            if self._leases or self._inserting:
                raise CacheMisuse("The model's weights changed while its K/V is in use.", expected="no leases out",
                                  got=len(self._leases), todo="Change weights between requests.")  # fmt: skip
            for root in list(self.index.roots.values()):
                self.index.clear(root, "other weights")
        self._weights = now

    def _root(self, namespace: object) -> Entry:
        """The root of this namespace, under the model's present weights."""
        self._require_weights()
        key = self._key(namespace)
        self.names[key] = namespace
        self.names.move_to_end(key)
        if len(self.names) > REMEMBERED:
            self.names.popitem(last=False)
        return self.index.root(key)

    def _hit(self, match: Match, ids: list[int]) -> Hit:
        stretches = []
        for entry in match.entries:
            assert entry.rows is not None
            stretches.append((self.store.rows(entry.rows), min(entry.stop, match.length) - entry.start))
        assert self._weights is not None
        return Hit(match.length, self._load, ids, self._weights, match.entries, stretches)

    def _expire(self) -> float:
        now = self.clock()
        self._count(expired_tokens=self.index.expire(now))
        return now

    def _make_room(self, root: Entry, ids: list[int]) -> tuple[Entry, int, list[tuple[int, int]]]:
        """Pin what is known of a text, evict until the rest fits or nothing more may go.

        Returns the pin, how many tokens are known, and what to copy.
        """
        match = self.index.match(root, ids, None)
        held = match.entries[-1] if match.entries else root
        self.index.pin(held)
        self._inserting.append(held)
        need = sum(stop - start for start, stop in self.index.pieces(match.length, len(ids)))
        free = self.max_bytes // self.token_bytes - self.index.tokens - self._reserved_tokens
        if need > free:
            went = self.index.evict(need - free)
            self._count(evicted_tokens=went)
            free += went
        pieces = self.index.pieces(match.length, min(len(ids), match.length + max(0, free)))
        self._reserved_tokens += sum(stop - start for start, stop in pieces)
        return held, match.length, pieces

    def _copy(self, cache: KVCache, pieces: list[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
        if not pieces:
            return {}
        first = pieces[0][0]
        whole = copied(cache, self.model.config.n_layer, first, pieces[-1][1])  # (L, 2, H_kv, n, D)
        if len(pieces) == 1:
            return {pieces[0]: whole}
        parts = whole.split([stop - start for start, stop in pieces], dim=3)
        return {ends: part.clone() for ends, part in zip(pieces, parts, strict=True)}

    def _require_unchanged(self, weights: str | None = None) -> None:
        if self.model.fingerprint != (weights or self._weights):
            raise CacheMisuse("The model's weights changed in between.", expected="one set of weights", got="another",
                              todo="Change weights between requests.")  # fmt: skip

    def _load(self, hit: Hit, cache: KVCache) -> None:
        if cache.length:
            raise CacheMisuse("A prefix goes to the front.", expected="an empty cache", got=f"length {cache.length}",
                              todo="Reset it, or use a new one.")  # fmt: skip
        require_exact(cache)
        self._require_unchanged(hit._weights)
        if not hit.length:
            return
        cache.bind(self.model, 1, self.model.dtype, self.model.device)
        load(hit._stretches, cache)
        if self.verify and self.rng.random() < self.verify:
            self._verify(hit, cache)

    def _verify(self, hit: Hit, cache: KVCache) -> None:
        """Compute the text up to one token past the hit again, and compare the logits there. Nobody's meter counts it."""
        found = compared(self.model, hit._tokens[: hit.length + 1], cache)
        with self._lock:
            self._count(verified=1)
            if found.is_equal:
                return
            self._count(mismatches=1, hit_tokens=-hit.length, hits=-1)
            self.index.drop(hit._entries[-1].path[0])
        cache.reset()
        wrong, hit.length = hit.length, 0
        if self.strict:
            raise BrokenInvariant(f"K/V of {wrong} stored tokens is wrong.", expected=f"logits within {found.bound:.2g}",
                                  got=f"{found.off:.2g}", todo="It is dropped; report this, with the tokens.")  # fmt: skip

    def _remember(self, entry: Entry, reason: Reason) -> None:
        assert entry.parent is not None
        name = entry.parent.digest, entry.digest
        if name in self.gone:
            self._gone_tokens -= len(self.gone.pop(name).tokens)
        self.gone[name] = Gone(entry.tokens, entry.start, reason, self.clock())
        self._gone_tokens += len(entry.tokens)
        while len(self.gone) > REMEMBERED or self._gone_tokens > REMEMBERED_TOKENS:
            self._gone_tokens -= len(self.gone.popitem(last=False)[1].tokens)

    def _count(self, **more: int) -> None:
        self._stats = replace(self._stats, **{name: getattr(self._stats, name) + n for name, n in more.items()})


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


def _part(rows: dict[tuple[int, int], Tensor], start: int, stop: int) -> Tensor:
    """Tokens start to stop - 1 of what was copied. Somebody else may have stored the first of them in the meantime."""
    if (start, stop) in rows:
        return rows[start, stop]
    (first, whole), *_ = ((a, tensor) for (a, b), tensor in rows.items() if a <= start and stop <= b)
    return whole[:, :, :, start - first : stop - first].contiguous().clone()
