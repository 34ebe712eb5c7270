"""Lesson 10: what every index of prefixes does: who is pinned, what was used when, what goes. Knows nothing about tensors.

An index is a forest of entries on integers: token ids, and ids of rows that somebody else keeps. A root stands for a model, a
dtype and a namespace. How tokens lead to entries is each kind's own: hashed blocks, or a radix tree.

Whoever uses an index holds a lock around every call, and keeps interrupts out. The keeper of rows and the policy may fail: they
are asked before anything changes, or after everything has, so that the forest is right whatever they raise.
"""

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from kvcourse.errors import BrokenInvariant, CacheMisuse
from kvcourse.prefix.entries import Entry, EvictionOrder
from kvcourse.prefix.policies import policy_named

RowsOf = Callable[[int, int], int]  # from the first and the last-but-one token of a new entry to the id of its rows
Split = Callable[[int, int], tuple[int, int]]  # as Rows.split
Reason = Literal["evicted", "expired", "cleared", "other weights", "mismatch"]


@runtime_checkable
class Rows(Protocol):
    """Whoever keeps the K/V of entries, by ids of its own."""

    def split(self, rows: int, at: int) -> tuple[int, int]: ...  # the first `at` tokens, and the rest
    def free(self, rows: int) -> None: ...


class Match(NamedTuple):
    """How far a text is known. The last entry may be used in part only."""

    entries: list[Entry]
    length: int  # tokens

    @property
    def cut(self) -> tuple[int, int] | None:
        """Rows to be split, and where, if another text goes on behind the match. None: it ends where an entry does."""
        if not self.entries or self.length == self.entries[-1].stop:
            return None
        last = self.entries[-1]
        assert last.rows is not None
        return last.rows, self.length - last.start


class PrefixIndex(ABC):
    """A forest of entries. Lengths are tokens, `now` is seconds.

    ttl: seconds after its last use at which an entry is no longer found; None: never.
    gone: told of every entry that is removed, and why, while its parents are still known.
    """

    step_tokens = 1  # what is found and stored is a multiple of this

    def __init__(
        self, rows: Rows, policy: str = "lru", ttl: float | None = None, gone: Callable[[Entry, Reason], None] | None = None
    ) -> None:
        self.rows, self.ttl = rows, ttl
        self.roots: dict[bytes, Entry] = {}
        self.tokens = 0  # stored
        self.request, self._now = 0, 0.0
        self.policy = policy_named(policy, self._rescored)
        self._gone = gone or (lambda entry, reason: None)
        self._order = EvictionOrder()
        self._recent: OrderedDict[Entry, None] = OrderedDict()  # all entries; those used last at the end, what is in front last
        self._detached: set[Entry] = set()  # no longer found, but still pinned

    # What a kind of index brings.

    @abstractmethod
    def _walk(self, root: Entry, tokens: Sequence[int], now: float | None) -> Match:
        """The entries that hold the start of `tokens`. Changes nothing. None: as if nothing ever expired."""

    @abstractmethod
    def _attach(self, root: Entry, tokens: tuple[int, ...], match: Match, rows_of: RowsOf, split: Split) -> list[Entry]:
        """Make entries for what `match` leaves over; return the whole path, the new ones included."""

    @abstractmethod
    def pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The stretches in which tokens start to stop - 1 would be stored, as far as they can be."""

    def _unlinked(self, entry: Entry) -> None:  # noqa: B027 (a tree has nothing more to do)
        """An entry is found no longer."""

    # Finding.

    def root(self, key: bytes) -> Entry:
        """The root of this name, made if need be."""
        if key not in self.roots:
            self.roots[key] = Entry((), 0, None, key, digest=key, root=key)
        return self.roots[key]

    def match(self, root: Entry, tokens: Sequence[int], now: float | None) -> Match:
        """The longest known start of `tokens`. Changes nothing. now None: what has expired and is still there counts, too."""
        return self._walk(root, tokens, now)

    def use(self, match: Match, now: float) -> None:
        """Count a request that uses these entries."""
        self.request += 1
        for entry in match.entries:
            entry.uses += 1
        self._touch(match.entries, now)

    # Storing.

    def add(
        self, root: Entry, tokens: Sequence[int], rows_of: RowsOf, now: float,
        match: Match | None = None, split: Split | None = None,
    ) -> int:  # fmt: skip
        """Store `tokens`; return how many were not there before.

        match: what is known of them, whatever has expired, where that was asked just before.
        split: who splits rows, where that is not the keeper of the rows alone.
        """
        self.request, self._now = self.request + 1, now
        tokens = tuple(tokens)
        before = self.tokens
        path = self._attach(root, tokens, match or self._walk(root, tokens, None), rows_of, split or self.rows.split)
        self._touch(path, now)
        return self.tokens - before

    def _new(self, entry: Entry, rows_of: RowsOf) -> Entry:
        """Give an entry its rows, and hang it under its parent."""
        parent = entry.parent
        assert parent is not None
        entry.root = parent.root
        entry.created = entry.used = self.request
        entry.uses, entry.seconds = 1, self._now
        entry.rows = rows_of(entry.start, entry.stop)
        try:
            entry.score = self.policy.score(entry)
        except BaseException:
            self.rows.free(entry.rows)
            raise
        parent.children[entry.key] = entry
        self._order.discard(parent)
        self._order.add(entry)
        self._recent[entry] = None
        self.tokens += len(entry.tokens)
        return entry

    def _touch(self, path: list[Entry], now: float) -> None:
        self._mark(path, now)
        for entry in reversed(path):
            entry.score = self.policy.score(entry)
            if entry.may_go:
                self._order.add(entry)

    def _mark(self, path: Sequence[Entry], now: float) -> None:
        for entry in reversed(path):  # what stands in front is never older than what is behind it
            entry.used, entry.seconds = self.request, now
            self._recent.move_to_end(entry)

    def _rescored(self, entry: Entry) -> None:
        if entry in self._order:
            self._order.add(entry)

    # Pinning.

    def pin(self, entry: Entry) -> None:
        """Keep this entry, and everything in front of it, until `unpin`."""
        for one in [*entry.path, self._root_of(entry)]:
            one.pins += 1
            self._order.discard(one)

    def unpin(self, entry: Entry) -> None:
        whole = [*reversed(entry.path), self._root_of(entry)]
        for one in whole:
            one.pins -= 1
            if one.may_go and one not in self._detached:
                self._order.add(one)
            elif one.parent is None:
                self.leave(one)
        self.sweep()

    def leave(self, root: Entry) -> None:
        """A root under which there is nothing is no longer needed: anybody may ask for any namespace."""
        if not root.children and not root.pins:
            self.roots.pop(root.key, None)

    @staticmethod
    def _root_of(entry: Entry) -> Entry:
        while entry.parent is not None:
            entry = entry.parent
        return entry

    # Going.

    def evict(self, n_tokens: int) -> int:
        """Free at least this many tokens, leaf by leaf, or as many as may go; return how many went."""
        before = self.tokens
        self.sweep()  # as a rule there is nothing: only if freeing has failed before
        while before - self.tokens < n_tokens and (entry := self._order.first()) is not None:
            self._remove(entry, "evicted")
        return before - self.tokens

    def expire(self, now: float) -> int:
        """Free what has not been used for `ttl` seconds; return how many tokens went. What is pinned stays for now."""
        before = self.tokens
        for entry in list(takewhile(lambda entry: self._is_expired(entry, now), self._recent)):
            if entry.may_go:
                self._remove(entry, "expired")
        return before - self.tokens

    def _is_expired(self, entry: Entry, now: float | None) -> bool:
        return self.ttl is not None and now is not None and entry.seconds + self.ttl <= now

    def clear(self, root: Entry, reason: Reason = "cleared") -> None:
        """Forget everything under a root, and the root. Raises: CacheMisuse, with nothing changed, while anything is pinned."""
        if root.pins:
            raise CacheMisuse("Something under there is in use.", expected="no leases out", got=f"{root.pins}",
                              todo="Leave their with blocks first.")  # fmt: skip
        for entry in reversed(list(self._below(root))):  # what is behind goes before what is in front
            self._remove(entry, reason)
        self.roots.pop(root.key, None)

    def drop(self, entry: Entry) -> None:
        """Never find this entry, nor anything behind it, again. What is pinned is freed with its last lease."""
        assert entry.parent is not None
        if entry in self._detached or entry.parent.children.get(entry.key) is not entry:
            return  # already
        whole = [entry, *self._below(entry)]
        entry.parent.children.pop(entry.key, None)
        for one in whole:
            self._unlinked(one)
            self._order.discard(one)
        self._detached.update(whole)
        if entry.parent.may_go:
            self._order.add(entry.parent)
        self.sweep()

    def sweep(self) -> None:
        """Free what is found no longer, as far as nobody uses it."""
        for entry in sorted(self._detached, key=lambda one: -one.start):  # what is behind goes before what is in front
            if entry.may_go:
                self._remove(entry, "mismatch")

    def _remove(self, entry: Entry, reason: Reason) -> None:
        parent = entry.parent
        assert parent is not None and entry.rows is not None
        self.rows.free(entry.rows)  # it may fail: nothing has changed yet
        if parent.children.get(entry.key) is entry:
            del parent.children[entry.key]
        self._unlinked(entry)
        self._order.discard(entry)
        del self._recent[entry]
        self._detached.discard(entry)
        self.tokens -= len(entry.tokens)
        if parent.may_go and parent not in self._detached:
            self._order.add(parent)
        elif parent.parent is None:
            self.leave(parent)
        self._gone(entry, reason)
        (self.policy.went if reason == "evicted" else self.policy.forget)(entry)

    # Looking.

    def _below(self, entry: Entry) -> Iterator[Entry]:
        """Everything behind an entry, each after what stands in front of it."""
        waiting = list(entry.children.values())
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(one.children.values())

    def entries(self) -> Iterator[Entry]:
        """All entries that can be found."""
        for root in self.roots.values():
            yield from self._below(root)

    def check(self, leased: Iterable[Entry] = ()) -> None:
        """Raise BrokenInvariant unless everything that must be true of a forest is. leased: what every lease out there pins."""
        found = set(self.entries())
        everything = found | self._detached
        pins = Counter(one for entry in leased for one in [*entry.path, self._root_of(entry)])
        for entry in [*everything, *self.roots.values()]:
            must(entry.pins == pins[entry], entry, "is pinned", f"{pins[entry]} times", entry.pins)
            placed = entry.may_go and entry not in self._detached
            must((entry in self._order) == placed, entry, "waits to be evicted", placed, entry in self._order)
        for entry in everything:
            parent = entry.parent
            must(parent is not None and parent.stop == entry.start, entry, "starts", "where its parent ends", entry.start)
            must(len(entry.tokens) > 0, entry, "holds", "tokens", "none")
        for entry in found:
            assert entry.parent is not None
            must(entry.parent.children.get(entry.key) is entry, entry, "hangs", "under its parent", "elsewhere")
            must(
                entry.seconds <= entry.parent.seconds or entry.parent.parent is None,
                entry,
                "was used",
                "with its parent",
                "later",
            )
        stored = sum(len(entry.tokens) for entry in everything)
        if stored != self.tokens or set(self._recent) != everything or len(self._order) > len(found):
            raise BrokenInvariant(
                "The index has lost count.", expected=f"{self.tokens} tokens", got=stored, todo="Report this."
            )


def must(holds: bool, entry: Entry, what: str, expected: object, got: object) -> None:
    """Raise BrokenInvariant, naming the entry, unless it holds."""
    if not holds:
        raise BrokenInvariant(
            f"The entry of tokens {entry.start} to {entry.stop - 1} {what}:", expected=expected, got=got, todo="Report this."
        )
