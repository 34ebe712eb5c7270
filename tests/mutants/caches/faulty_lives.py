"""Caches and prefix caches that are right for a dozen tokens, or until something was done to them before. Each is a factory.

FAULTS: name to (factory, the proof that must fail, among others).
"""

from contextlib import ExitStack
from dataclasses import replace

import torch

from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.certificate.bed import bytes_of
from kvcourse.prefix.cache import RadixPrefixCache

LONG = "a long text equals one pass wherever its cache grows"
CUTS = "cut again and again it goes on"
BRANCHES = "whatever becomes of a branch the other stays"
WALK = "a walk at random equals fresh computation"
NEARER = "its logits are nearer than those of a cache that forgets"
CLEARED = "what is cleared is found no more"
LEASED = "what is leased stays until its block ends and no longer"


class WrongPast(GrowingCache):
    """Past so many rows layer 1 hands out its keys in reverse."""

    def __init__(self, rows, layer=1):
        super().__init__()
        self.rows, self.layer = rows, layer

    def append(self, layer, k, v):
        held = super().append(layer, k, v)
        if layer == self.layer and self.length + k.shape[2] > self.rows:
            return KeysValues(held.keys.flip(2), held.values)
        return held


class PositionsWrap(GrowingCache):
    """A table of 16 positions."""

    def plan(self, T):
        made = super().plan(T)
        return replace(made, query_positions=made.query_positions % 16) if self.length + T > 16 else made


class ShortBuffer(GrowingCache):
    """Casts float32 rows to bfloat16 and back; any other dtype is left as it is."""

    def append(self, layer, k, v):
        if k.dtype == torch.float32:
            k = k.bfloat16().float()
        return super().append(layer, k, v)


class CopiesFirstBlockOnly(PagedCache):
    """Copy on write is left out from the second block on."""

    def _copy_last_block(self, rows):
        if self.length < self.pool.block_tokens:
            super()._copy_last_block(rows)


class ForkSharesAfterACut(PreallocatedCache):
    cut = False

    def truncate(self, length):
        super().truncate(length)
        self.cut = True

    def _copy_rows(self, other):
        super()._copy_rows(other)
        if self.cut:
            other._buffers = dict(self._buffers)


class KnowsItsParent(GrowingCache):
    parent = None

    def fork(self):
        other = super().fork()
        other.parent = self
        return other


class ResetReachesParent(KnowsItsParent):
    def reset(self):
        if self.parent is not None:
            self.parent.reset()
        super().reset()


class CutReachesParent(KnowsItsParent):
    def truncate(self, length):
        if self.parent is not None and self.parent.length >= length:
            self.parent.truncate(length)
        super().truncate(length)


class SecondCutIgnored(GrowingCache):
    cuts = 0

    def truncate(self, length):
        self.cuts += 1
        if self.cuts % 2:
            super().truncate(length)


class CutEmptiesOtherRows(PreallocatedCache):
    """Of a batch only the first row survives a cut."""

    def truncate(self, length):
        super().truncate(length)
        for keys, _ in self._buffers.values():
            keys[1:] = 0


class CutForgetsPadding(GrowingCache):
    def truncate(self, length):
        super().truncate(length)
        if self.starts is not None:
            self.starts = torch.zeros_like(self.starts)


class ReadsZerosAfterACut(PreallocatedCache):
    cut = False

    def truncate(self, length):
        super().truncate(length)
        self.cut = True

    def read(self, layer, start, stop):
        rows = super().read(layer, start, stop)
        return KeysValues(torch.zeros_like(rows.keys), rows.values) if self.cut else rows


class FailedPassClearsARow(PreallocatedCache):
    """An abort, with more than 16 rows held, wipes the first one."""

    def abort(self):
        super().abort()
        if self.length > 16:
            for keys, _ in self._buffers.values():
                keys[:, :, 0] = 0


class HoldsNothing(PreallocatedCache):
    held = 0


class TakesNoBytes(PreallocatedCache):
    nbytes = 0


class EmptyForkIsItself(GrowingCache):
    def fork(self):
        return super().fork() if self.length else self


class Nonsense(GrowingCache):
    """Says that it is not exact, and remembers no value."""

    exact = False

    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        return KeysValues(rows.keys.flip(1), torch.zeros_like(rows.values))


class NonsensePast64(Nonsense):
    """The same, from the 65th row on."""

    def append(self, layer, k, v):
        rows = GrowingCache.append(self, layer, k, v)
        return rows if rows.keys.shape[2] <= 64 else KeysValues(rows.keys.flip(1), torch.zeros_like(rows.values))


class InexactForkShares(ForkSharesAfterACut):
    """Not exact, so that it is compared with others of its kind alone."""

    exact = False


class NotANumber(Nonsense):
    def append(self, layer, k, v):
        rows = super().append(layer, k, v)
        return KeysValues(rows.keys, rows.values * torch.nan)


class NeverClears(RadixPrefixCache):
    def clear(self, namespace=None):
        pass


class ClearsEverybody(RadixPrefixCache):
    """One namespace is cleared, and all are gone."""

    def clear(self, namespace=None):
        super().clear()


class KeepsAPin(RadixPrefixCache):
    """Every lease leaves a second one behind."""

    def lease(self, tokens, namespace=None):
        self.__dict__.setdefault("kept", ExitStack()).enter_context(super().lease(tokens, namespace))
        return super().lease(tokens, namespace)


class PinsNothing(RadixPrefixCache):
    """What is leased may be evicted all the same, and is not found again."""

    def lease(self, tokens, namespace=None):
        lease = super().lease(tokens, namespace)
        enter = lease.__enter__

        class Unpinned:
            def __enter__(inner):
                hit = enter()
                self.index.unpin(self._leases[hit])
                return hit

            def __exit__(inner, *fault):
                for hit in list(self._leases):
                    self.index.pin(self._leases[hit])
                return lease.__exit__(*fault)

        return Unpinned()


def _of(kind):
    return lambda model, n: kind(n) if issubclass(kind, PreallocatedCache) else kind()


def _shared(kind):
    return lambda model, n: kind(model, bytes_of(model, n))


FAULTS = {
    "wrong past 13 rows": (lambda model, n: WrongPast(13), LONG),
    "wrong past 16 rows": (lambda model, n: WrongPast(16), LONG),
    "wrong past 40 rows": (lambda model, n: WrongPast(40, layer=2), LONG),
    "wrong past 64 rows": (lambda model, n: WrongPast(64), WALK),
    "wrong past 100 rows": (lambda model, n: WrongPast(100), WALK),
    "wrong past 256 rows": (lambda model, n: WrongPast(256), LONG),
    "positions wrap at 16": (_of(PositionsWrap), LONG),
    "casts float32 alone": (_of(ShortBuffer), LONG),
    "copies the first block only": (
        lambda model, n: CopiesFirstBlockOnly(PagedPool(model, 4 * -(-n // 16), 16)), BRANCHES,
    ),
    "a fork after a cut shares rows": (_of(ForkSharesAfterACut), BRANCHES),
    "a reset reaches the parent": (_of(ResetReachesParent), BRANCHES),
    "a cut reaches the parent": (_of(CutReachesParent), BRANCHES),
    "every second cut is ignored": (_of(SecondCutIgnored), CUTS),
    "a cut empties the other rows": (_of(CutEmptiesOtherRows), CUTS),
    "a cut forgets the padding": (_of(CutForgetsPadding), "a padded batch equals each text alone"),
    "read gives zeros after a cut": (_of(ReadsZerosAfterACut), CUTS),
    "a failed pass clears a row": (_of(FailedPassClearsARow), WALK),
    "held is 0": (_of(HoldsNothing), LONG),
    "nbytes is 0": (_of(TakesNoBytes), LONG),
    "the fork of an empty cache is itself": (_of(EmptyForkIsItself), BRANCHES),
    "nonsense, and not exact": (_of(Nonsense), NEARER),
    "nonsense past 64 rows, and not exact": (_of(NonsensePast64), NEARER),
    "no numbers, and not exact": (_of(NotANumber), NEARER),
    "a fork after a cut shares rows, and not exact": (_of(InexactForkShares), BRANCHES),
    "clear does nothing": (_shared(NeverClears), CLEARED),
    "clear takes all namespaces": (_shared(ClearsEverybody), CLEARED),
    "a lease leaves a pin": (_shared(KeepsAPin), LEASED),
    "a lease pins nothing": (_shared(PinsNothing), LEASED),
}  # fmt: skip
