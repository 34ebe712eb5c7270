"""Prefix caches with one fault each, as real ones had. A fault is a class to put in front of a kind:

    broken(NamespaceLeftOut, RadixPrefixCache)(model, max_bytes)

`caught_by` names the claim of tests/prefix_helpers.py that it breaks, `only` the kinds it can happen to. Where the fault lies
in the index or the store, `index` or `store` is a class to put in front of that. `fails_with`: what the claim raises then.
"""

from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch
from prefix_helpers import FakeModel

from kvcourse.caches.base import KeysValues
from kvcourse.errors import BrokenInvariant
from kvcourse.prefix import cache as cache_module
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
from kvcourse.prefix.hits import Hit
from kvcourse.prefix.index import Match
from kvcourse.prefix.keys import chained, root_key

BOTH = (RadixPrefixCache, BlockPrefixCache)
RADIX, BLOCKS = BOTH[:1], BOTH[1:]


class Fault:
    """No fault, and the base of all: what it names is put in front of that part."""

    index = store = None
    fails_with: tuple[type[Exception], ...] = (AssertionError, BrokenInvariant)

    def __init__(self, *args, **options):
        fronts = {"RadixTree": type(self).index, "HashedBlocks": type(self).index, "KVStore": type(self).store}
        with ExitStack() as stack:
            for name, front in fronts.items():
                if front is not None:
                    part = getattr(cache_module, name)
                    stack.enter_context(patch.object(cache_module, name, type(front.__name__, (front, part), {})))
            super().__init__(*args, **options)


def broken(fault, kind):
    return type(f"{fault.__name__}{kind.__name__}", (fault, kind), {})


class TokensAreNotCompared(Fault):
    """vLLM PR 12621: whoever has the hash has the rows."""

    caught_by, only = "a match is believed by its tokens", BLOCKS

    class index:
        def _walk(self, root, tokens, now):
            path, before = [], root
            for start, stop in self.pieces(0, len(tokens)):
                entry = self._by_digest.get(chained(before.digest, tokens[start:stop], self.digest))
                if entry is None or entry.start != start or self._is_expired(entry, now):
                    break
                path.append(entry)
                before = entry
            return Match(path, before.stop)


class ParentsAreNotCompared(Fault):
    """The block's own tokens are the right ones, and what stands in front of it is another text."""

    caught_by, only = "a match is believed by its tokens", BLOCKS

    class index:
        def _walk(self, root, tokens, now):
            path, before = [], root
            for start, stop in self.pieces(0, len(tokens)):
                block = tuple(tokens[start:stop])
                entry = self._by_digest.get(chained(before.digest, block, self.digest))
                if entry is None or entry.start != start or entry.tokens != block or self._is_expired(entry, now):
                    break
                path.append(entry)
                before = entry
            return Match(path, before.stop)


class WholeEdgesMatch(Fault):
    """The first token of an edge is compared, and the rest believed."""

    caught_by, only = "texts share their equal start and nothing else", RADIX

    class index:
        def _walk(self, root, tokens, now):
            match = super()._walk(root, tokens, now)
            return Match(match.entries, min(len(tokens), match.entries[-1].stop) if match.entries else 0)


class WholeTextMatches(Fault):
    """llama.cpp PR 1609, mlx-lm PR 183: nothing is left to compute."""

    caught_by, only = "all but the last token can be found", BOTH

    def _ids(self, tokens):
        return _Whole(super()._ids(tokens))


class _Whole(list):
    """All but the last is all."""

    def __getitem__(self, key):
        return list(self) if key == slice(None, -1) else super().__getitem__(key)


class FullHitEndsTheChain(Fault):
    """vLLM PR 11186: after a full hit nothing is added any more."""

    caught_by, only = "the chain grows after a full hit", BOTH

    @contextmanager
    def lease(self, tokens, namespace=None):
        with super().lease(tokens, namespace) as hit:
            if hit.length and hit.length >= len(tokens) - self.index.step_tokens:
                self.is_full = True
            yield hit

    def insert(self, tokens, cache, namespace=None):
        return 0 if getattr(self, "is_full", False) else super().insert(tokens, cache, namespace)


class NamespaceLeftOut(Fault):
    """vLLM PR 17045: the salt never arrives."""

    caught_by, only = "namespaces never meet", BOTH

    def _key(self, namespace):
        return super()._key(None)


class NamespaceJoined(Fault):
    """vLLM 44701: fields are joined as text."""

    caught_by, only = "namespaces never meet", BOTH

    def _key(self, namespace):
        parts = namespace if isinstance(namespace, tuple) else (namespace,)
        return root_key(self._weights or "", "", "".join(map(str, parts)))


class WeightsLeftOut(Fault):
    """lmdeploy 4917: keys say nothing of the weights."""

    caught_by, only = "other weights are a miss everywhere", BOTH

    def _require_weights(self):
        self._weights = "weights"

    def _require_unchanged(self, weights=None):
        pass


class WeightsChangeUnderLeases(Fault):
    """The rows of a lease belong to weights that are no more."""

    caught_by, only = "other weights are a miss everywhere", BOTH

    def _require_unchanged(self, weights=None):
        pass


class PinSkipsItsOwnNode(Fault):
    """mini-sglang PR 52: the lock walks up from the parent."""

    caught_by, only = "what is leased stays", BOTH

    class index:
        def pin(self, entry):
            if entry.parent is not None:
                super().pin(entry.parent)

        def unpin(self, entry):
            if entry.parent is not None:
                super().unpin(entry.parent)


class PinsOneEntryOnly(Fault):
    """What stands in front of a leased block may go."""

    caught_by, only = "what is leased stays", BOTH

    class index:
        def pin(self, entry):
            entry.pins += 1
            self._order.discard(entry)

        def unpin(self, entry):
            entry.pins -= 1
            if entry.may_go:
                self._order.add(entry)


class EvictionIgnoresPins(Fault):
    caught_by, only = "what is leased stays", BOTH

    class index:
        def evict(self, n_tokens):
            went = super().evict(n_tokens)
            while went < n_tokens and (leaf := next((e for e in self.entries() if not e.children), None)):
                went += len(leaf.tokens)
                self._remove(leaf, "evicted")
            return went


class SplitForgetsPins(Fault):
    """mini-sglang PR 142: the new front part belongs to nobody, and its count goes below zero."""

    caught_by, only = "a split keeps its leases", RADIX

    class index:
        def _split(self, lower, at, split):
            upper = super()._split(lower, at, split)
            upper.pins = 0
            return upper


class LeaseLeaksOnException(Fault):
    """vLLM PR 11565: who fails never gives back."""

    caught_by, only = "an exception leaves pins as they were", BOTH

    @contextmanager
    def lease(self, tokens, namespace=None):
        inner = super().lease(tokens, namespace)
        self.__dict__.setdefault("begun", []).append(inner)
        yield inner.__enter__()
        inner.__exit__(None, None, None)


class FailedLoadStaysHalf(Fault):
    """A cache that was too small has rows in it afterwards."""

    caught_by, only = "an exception leaves pins as they were", BOTH

    def _load(self, hit, cache):
        try:
            super()._load(hit, cache)
        except Exception:
            cache.length = 1
            raise


class VisibleBeforeItIsThere(Fault):
    """nano-vllm 208, vLLM PR 7822: found first, copied later."""

    caught_by, only = "nothing is found before it is there", BOTH

    def _copy(self, cache, pieces):
        rows = {ends: torch.zeros(2, 2, 1, ends[1] - ends[0], 2, dtype=torch.float64) for ends in pieces}
        if pieces and isinstance(self.model, FakeModel):
            ids = [*self._inserting_ids[: pieces[-1][1]]]
            self.index.add(self.index.root(self._key(None)), ids, lambda *e: self.store.put(rows[e]), self.clock())
            self._reserved_tokens -= sum(b - a for a, b in pieces)
            for ends, right in super()._copy(cache, pieces).items():
                rows[ends].copy_(right)
            self._reserved_tokens += sum(b - a for a, b in pieces)
        return rows

    def insert(self, tokens, cache, namespace=None):
        self._inserting_ids = tokens
        return super().insert(tokens, cache, namespace)


class FailedCopyKeepsItsRoom(Fault):
    """What was reserved for rows that never came is never given back."""

    caught_by, only = "nothing is found before it is there", BOTH

    def _copy(self, cache, pieces):
        try:
            return super()._copy(cache, pieces)
        except Exception:
            self._reserved_tokens += self.max_bytes
            raise


class LoadHandsOutTheStore(Fault):
    """exo PR 991: the stored rows themselves, where one stretch is all there is."""

    caught_by, only = "nobody shares memory with the store", RADIX

    def _load(self, hit, cache):
        super()._load(hit, cache)
        if len(hit._stretches) == 1 and hasattr(cache, "_buffers"):
            rows = hit._stretches[0][0]
            cache._buffers = {layer: KeysValues(rows[layer, :1], rows[layer, 1:]) for layer in range(len(rows))}
            cache._views = {}


class StoreKeepsTheCachesOwnRows(Fault):
    """lattice PR 516: nothing is copied, so whoever goes on with the cache writes into the store."""

    caught_by, only = "nobody shares memory with the store", BOTH

    class store:
        def rows(self, name):
            rows, (cache, start) = self._rows[name], self.sources.get(name, (None, 0))
            if cache is not None and cache.length >= start + rows.shape[3]:
                for layer in range(len(rows)):
                    rows[layer] = torch.cat(list(cache.read(layer, start, start + rows.shape[3])))
            return rows

        def put(self, rows):
            name = super().put(rows)
            self.__dict__.setdefault("sources", {})
            if self.__dict__.get("source") is not None:
                self.sources[name] = self.source, self.start
                self.start += rows.shape[3]
            return name

    def _copy(self, cache, pieces):
        self.store.source, self.store.start = cache, pieces[0][0] if pieces else 0
        return super()._copy(cache, pieces)


class SplitKeepsTheWholeAlive(Fault):
    """Two views of one tensor: freeing one of them frees nothing."""

    caught_by, only = "nobody shares memory with the store", RADIX

    class store:
        def split(self, name, at, parts=None):
            rows = self._rows[name]
            self.free(name)
            front, back = (self.put(half) for half in (rows[:, :, :, :at], rows[:, :, :, at:]))
            return front, back


class EvictsEverything(Fault):
    """sglang 4987."""

    caught_by, only = "eviction frees what is asked and less than an entry more", BOTH

    class index:
        def evict(self, n_tokens):
            return super().evict(n_tokens and 10**9)


class EvictsNewestFirst(Fault):
    caught_by, only = "what was not used for longest goes first and its end before its start", BOTH

    class index:
        def _touch(self, path, now):
            super()._touch(path, now)
            for entry in path:
                entry.score = -entry.used
                self._rescored(entry)


class EvictedStaysInTheMap(Fault):
    """vLLM PR 4764, kvcached 362: the old key finds what has the room now."""

    caught_by, only = "what has gone is no longer found", BLOCKS

    class index:
        def _remove(self, entry, reason):
            super()._remove(entry, reason)
            if reason == "evicted":
                self._by_digest[entry.digest] = entry

        def check(self, leased=()):
            pass


class ExpiredIsFound(Fault):
    caught_by, only = "what has expired is not found", BOTH

    class index:
        def _is_expired(self, entry, now):
            return False


class UseDoesNotCount(Fault):
    """Time runs from when it was stored, whoever used it since."""

    caught_by, only = "what has expired is not found", BOTH

    class index:
        def use(self, match, now):
            pass


class BudgetIsForgotten(Fault):
    caught_by, only = "bytes stay within the budget", BOTH

    def _make_room(self, work, root, ids):
        limit, self.max_bytes = self.max_bytes, 2**40
        try:
            return super()._make_room(work, root, ids)
        finally:
            self.max_bytes = limit


class RoomIsMadeOfItsOwnStart(Fault):
    """What is known of a text is evicted to make room for its rest."""

    caught_by, only = "bytes stay within the budget", BOTH

    def _make_room(self, work, root, ids):
        need = len(self.index.pieces(0, len(ids))) and len(ids) - len(ids) % self.index.step_tokens
        free = self.max_bytes // self.token_bytes - self.index.tokens
        match = super()._make_room(work, root, ids)
        if need > free:
            self.index.unpin(work.held)
            self.index.evict(10**9)
            self.index.pin(work.held)
        return match


class TakesAnyCache(Fault):
    """Approximate rows, or rows that stand elsewhere, are shared as if they were exact."""

    caught_by, only = "what cannot be served is refused before anything changes", BOTH

    def insert(self, tokens, cache, namespace=None):
        if not cache.exact and cache.held == cache.length:
            cache.exact = True
        return super().insert(tokens, cache, namespace)


class LoadsAfterTheLease(Fault):
    """The pins are gone, and the rows perhaps, too."""

    caught_by, only = "what cannot be served is refused before anything changes", BOTH

    def _hit(self, match, ids):
        hit = super()._hit(match, ids)
        hit.__class__, hit.kept = _AlwaysOpen, list(hit._stretches)
        return hit


class _AlwaysOpen(Hit):
    def load_into(self, cache):
        self._open, self._stretches = True, self.kept
        super().load_into(cache)


class ProofIsNotMade(Fault):
    caught_by, only = "wrong rows are found by the proof", BOTH

    def _verify(self, hit, cache):
        self._count(verified=1)


class ProofKeepsWhatIsWrong(Fault):
    """It is counted, and used again by the next request."""

    caught_by, only = "wrong rows are found by the proof", BOTH

    class index:
        def drop(self, entry):
            pass


class RowsOfOtherLayers(Fault):
    """Layer by layer, the other way round."""

    caught_by, only = "all but the last token can be found", BOTH

    def _copy(self, cache, pieces):
        return {ends: rows.flip(0) for ends, rows in super()._copy(cache, pieces).items()}


FAULTS = [fault for fault in Fault.__subclasses__() if hasattr(fault, "caught_by")]
