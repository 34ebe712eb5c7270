"""Lesson 10: the books of a prefix cache: what it was made for, what is out, what is counted. Knows nothing about copying rows.

One lock guards all of it. Whoever changes anything holds the lock, and keeps interrupts out (`interrupts`).
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from kvcourse.amounts import amount, whole
from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import BrokenInvariant, CacheMisuse, InputError
from kvcourse.models.base import CausalLM
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.gone import Memory
from kvcourse.prefix.hits import Hit, Stats
from kvcourse.prefix.index import PrefixIndex, Reason
from kvcourse.prefix.inserts import Insert
from kvcourse.prefix.interrupts import uninterrupted
from kvcourse.prefix.keys import root_key
from kvcourse.prefix.store import KVStore
from kvcourse.prompt_ids import as_prompts


class Books:
    """What both kinds of prefix cache know of themselves, and how it is looked at."""

    def __init__(self, model: CausalLM, index: PrefixIndex, store: KVStore, max_bytes: int, clock: Callable[[], float]) -> None:
        self.model, self.max_bytes, self.clock = model, whole("max_bytes", max_bytes), clock
        self.verify, self.strict, self.rng = 0.0, False, random.Random()
        self.index, self.store = index, store
        self.drops = 0  # times that something stored was found to be wrong
        self._memory = Memory()
        self.names, self.gone = self._memory.names, self._memory.gone
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._weights: str | None = None  # the fingerprint that everything stored was computed with
        self._form, self.token_bytes = self._form_now()
        self._now = 0.0  # when the last operation began
        self._leases: dict[Hit, Entry] = {}
        self._inserting: list[Insert] = []
        self._reserved_tokens = 0  # on their way in
        if index.ttl is not None and amount("ttl", index.ttl, finite=False) == 0:
            raise InputError("Nothing would ever be found.", expected="ttl above 0 (seconds), or None", got=index.ttl,
                             todo="Leave ttl out to keep entries until room is needed.")  # fmt: skip
        if not callable(clock):
            raise InputError("A clock is a function.", expected="clock() -> seconds", got=f"{clock!r:.80}",
                             todo="Leave it out for time.monotonic.")  # fmt: skip

    # Looking.

    @property
    def stats(self) -> Stats:
        """A snapshot."""
        with self._lock:
            return Stats(**self._counts, leases=len(self._leases), tokens=self.index.tokens, bytes=self.store.nbytes)

    @contextmanager
    def standing_still(self, namespace: object = None) -> Iterator[bytes]:
        """Hold the lock while somebody reads `index`, `gone` and `names`; yields the key of a namespace's root."""
        with self._lock:
            self._require_weights()
            yield self._key(namespace)

    def check(self) -> None:
        """Raises: BrokenInvariant, unless all books agree: the index, the pins, the rows, the bytes, the budget."""
        with self._lock:
            self.index.check([*self._leases.values(), *(work.held for work in self._inserting if work.held)])
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
        return root_key(self._weights or "", self._form, namespace)

    def _form_now(self) -> tuple[str, int]:
        """What K/V depends on besides weights and tokens, and the bytes of one token's."""
        dtype = self.model.dtype
        token_bytes, step = kv_bytes_per_token(self.model.config, torch.finfo(dtype).bits // 8), self.index.step_tokens
        if self.max_bytes < token_bytes * step:
            raise InputError("A prefix cache needs room.", got=self.max_bytes, todo="Give it the bytes of a few prompts.",
                             expected=f"max_bytes of {token_bytes * step} or more, {step} tokens of {dtype}")  # fmt: skip
        return f"{dtype} {self.model.weight_format}", token_bytes

    def _in_use(self, fault: str, todo: str) -> CacheMisuse:
        got = f"{len(self._leases)} leases and {len(self._inserting)} inserts"
        return CacheMisuse(fault, expected="no leases out and no inserts under way", got=got, todo=todo)

    def _require_weights(self) -> None:
        """Forget what weights other than the model's present ones, or those in another dtype, have computed."""
        now = self.model.fingerprint
        if now == self._weights and self._form == f"{self.model.dtype} {self.model.weight_format}":
            return
        if self._leases or self._inserting:
            raise self._in_use("The model's weights changed while its K/V is in use.", "Change weights between requests.")
        form, token_bytes = self._form_now()  # refuses a dtype of which there is no room for one step
        with uninterrupted():
            self._now = self.clock()
            self.index.sweep()
            for root in list(self.index.roots.values()):
                self.index.clear(root, "other weights")
            self._weights, self._form, self.token_bytes = now, form, token_bytes

    def _require_unchanged(self, weights: str | None = None) -> None:
        now = self.model.fingerprint, f"{self.model.dtype} {self.model.weight_format}"
        if now != (weights or self._weights, self._form):
            raise CacheMisuse("The model's weights changed in between.", expected="one set of weights", got="another",
                              todo="Change weights between requests.")  # fmt: skip

    def _root(self, namespace: object) -> Entry:
        """The root of this namespace, under the model's present weights."""
        self._require_weights()
        key = self._key(namespace)
        self._memory.name(key, namespace)
        return self.index.root(key)

    def _expire(self) -> float:
        self._now = self.clock()
        self.index.expire(self._now)
        return self._now

    def _missed(self, hit: Hit) -> None:
        """What was found counts no longer."""
        self._count(hits=-1, hit_tokens=-hit.length)
        hit.length = 0

    def _remember(self, entry: Entry, reason: Reason) -> None:
        if reason in ("evicted", "expired"):
            self._counts[f"{reason}_tokens"] += len(entry.tokens)
        self._memory.keep(entry, reason, self._now)

    def _count(self, **more: int) -> None:
        for name, n in more.items():
            self._counts[name] += n
