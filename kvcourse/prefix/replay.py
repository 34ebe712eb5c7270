"""Lesson 10: what a prefix cache of some size would have saved on a log of requests. Knows nothing about tensors or time.

The cache that is replayed is flat: blocks by id, each on its own. A request hits its blocks from the first one on until the
first that is missing. Then all its blocks are stored, or used once more, and blocks go, lowest score first and of equal ones
the one furthest back, until no more than the capacity are left. Scores come from the very classes of `policies`, and the order
from `EvictionOrder`, that the real caches run. Two things differ there: a real cache evicts leaves only, so a policy that would
take a front before what stands behind it cannot; and it computes at least one token of every request.

Of a replay there are three hit rates, and they answer three questions:

    block_hit_rate          hit blocks / blocks, over all requests: how much of the pool's work was saved
    token_hit_rate          tokens in hit blocks / input tokens, over all requests: how much of the prefill was saved. A
                            request's last block counts the tokens that are in it, not those that would fit
    request_mean_hit_rate   the mean, over requests, of a request's hit blocks / its blocks: what a user sees; a short request
                            counts as much as a long one
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, SupportsIndex

from kvcourse.errors import InputError
from kvcourse.prefix.entries import Entry, EvictionOrder
from kvcourse.prefix.optimal import FarthestNextUse
from kvcourse.prefix.policies import POLICIES, Policy, policy_named
from kvcourse.prefix.trace_files import BLOCK_TOKENS, Request, read_trace, require_whole

__all__ = ["REPLAYED", "Rates", "Request", "curve", "read_trace", "replay"]
REPLAYED = (*POLICIES, FarthestNextUse.name)  # names of what can be replayed


@dataclass(frozen=True)
class Rates:
    """What one replay gave. capacity_blocks None: unlimited. requests, blocks: how many there were, each time counted."""

    policy: str
    capacity_blocks: int | None
    requests: int
    blocks: int
    block_hit_rate: float
    token_hit_rate: float
    request_mean_hit_rate: float

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


class FlatCache:
    """Blocks by id. policy: from a function that is told of changed scores to a policy."""

    def __init__(
        self, capacity_blocks: int | None, policy: Callable[[Callable[[Entry], None]], Policy], block_tokens: int
    ) -> None:
        self.capacity_blocks, self.block_tokens = capacity_blocks, block_tokens
        self.policy = policy(self._rescored)
        self.request = 0
        self._entries: dict[int, Entry] = {}
        self._order = EvictionOrder()
        self._root = Entry((), 0, None, None, b"")
        self._tokens = (0,) * block_tokens  # policies count them; nobody reads them

    def __len__(self) -> int:
        return len(self._entries)

    def hits(self, ids: Iterable[int]) -> int:
        """How many of the first blocks are there. Changes nothing."""
        n = 0
        for one in ids:
            if one not in self._entries:
                break
            n += 1
        return n

    def use(self, ids: Sequence[int]) -> None:
        """Store or use all blocks of a request, then make room."""
        self.request += 1
        path = [self._root]
        for place, one in enumerate(ids):
            path.append(self._used(one, path[-1], place * self.block_tokens))
        for entry in reversed(path[1:]):  # what stands in front is never older than what is behind it
            entry.used = self.request
            entry.score = self.policy.score(entry)
            self._order.add(entry)
        while self.capacity_blocks is not None and len(self._entries) > self.capacity_blocks:
            first = self._order.pop()
            assert first is not None
            del self._entries[first.key]
            self.policy.went(first)

    def _used(self, one: int, front: Entry, start: int) -> Entry:
        entry = self._entries.get(one)
        if entry is not None:
            entry.uses += 1
            return entry
        entry = self._entries[one] = Entry(self._tokens, start, front, one, b"")
        entry.created = entry.used = self.request
        entry.uses = 1
        entry.score = self.policy.score(entry)  # as an index does, front first
        return entry

    def _rescored(self, entry: Entry) -> None:
        if entry in self._order:
            self._order.add(entry)


def replay(
    requests: Iterable[Request],
    capacity_blocks: SupportsIndex | None,
    policy: str = "lru",
    *,
    block_tokens: SupportsIndex = BLOCK_TOKENS,
    tick: Callable[[], None] = lambda: None,
) -> Rates:
    """Replay requests, in their order, on a cache of so many blocks; None: unlimited.

    policy: a name from `policies`, or "opt", the farthest next use (`optimal`). tick: called after each request.
    Raises: InputError for no requests, one without a block, a capacity below 1, or a policy that does not exist.
    """
    log = _log(requests)
    capacity = None
    if capacity_blocks is not None:
        capacity = require_whole("capacity_blocks", capacity_blocks, "Leave it out for a cache without a limit.")
    block = require_whole("block_tokens", block_tokens, "512 is what Mooncake's traces have.")
    cache = FlatCache(capacity, _policy(policy, log), block)
    hit_blocks = hit_tokens = 0
    shares = 0.0
    for request in log:
        hits = cache.hits(request.hash_ids)
        hit_blocks += hits
        hit_tokens += min(hits * block, request.input_length)
        shares += hits / len(request.hash_ids)
        cache.use(request.hash_ids)
        tick()
    blocks = sum(len(request.hash_ids) for request in log)
    tokens = sum(request.input_length for request in log)
    n = len(log)
    return Rates(policy, capacity, n, blocks, hit_blocks / blocks, hit_tokens / tokens, shares / n)


def curve(
    requests: Iterable[Request],
    capacities: Iterable[SupportsIndex | None],
    policy: str = "lru",
    *,
    block_tokens: SupportsIndex = BLOCK_TOKENS,
    tick: Callable[[], None] = lambda: None,
) -> list[Rates]:
    """`replay` at each capacity, each time from an empty cache. Raises: what `replay` does."""
    log = _log(requests)
    if not isinstance(capacities, Iterable):
        raise InputError(
            "A curve needs capacities.", expected="a list of them", got=repr(capacities), todo="Call replay for one."
        )
    return [replay(log, capacity, policy, block_tokens=block_tokens, tick=tick) for capacity in capacities]


def require_known(policy: str) -> None:
    """Raise InputError unless a policy of this name can be replayed."""
    if policy not in REPLAYED:
        raise InputError(
            "There is no such policy.", expected=", ".join(REPLAYED), got=repr(policy), todo="Choose one of these."
        )


def _log(requests: Iterable[Request]) -> list[Request]:
    """The requests, however they come, each of which holds something."""
    if not isinstance(requests, Iterable):
        raise InputError(
            "That is no log.", expected="requests", got=type(requests).__name__, todo="Read one: read_trace(path)."
        )
    log = list(requests)
    if not log:
        raise InputError("There is nothing to replay.", expected="one request or more", got="none", todo="Read a log first.")
    for n, one in enumerate(log):
        if not isinstance(one, Request):
            raise InputError(f"Number {n} of the log cannot be replayed.", expected="a Request", got=type(one).__name__,
                             todo="Read the log with read_trace.")  # fmt: skip
        if not one.hash_ids or one.input_length < 1:
            got = f"{len(one.hash_ids)} blocks, input_length {one.input_length}"
            raise InputError(f"Number {n} of the log is empty.", expected="one block or more, and its tokens", got=got,
                             todo="Leave it out.")  # fmt: skip
    return log


def _policy(name: str, requests: Sequence[Request]) -> Callable[[Callable[[Entry], None]], Policy]:
    require_known(name)
    if name == FarthestNextUse.name:
        return lambda rescore: FarthestNextUse(rescore, (request.hash_ids for request in requests))
    return lambda rescore: policy_named(name, rescore)
