"""Lesson 10: what a prefix cache holds, or has held, of a text. Knows nothing about text, tensors or time: ids and digests.

A digest names all tokens in front of a place. So when something was stored right behind a place whose digest is this text's,
everything in front of it was stored, too, and what follows is compared token by token.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kvcourse.causes import Kind, common_length
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import Match
from kvcourse.prefix.keys import chained, encoded, running

_KIND_OF: dict[str, Kind] = {
    "evicted": "evicted", "expired": "expired", "cleared": "cleared", "mismatch": "mismatch", "other weights": "other_weights",
}  # fmt: skip


class Loss(NamedTuple):
    """How many tokens of a text could have been reused, why they cannot, and since when (seconds), where that is known."""

    reach: int
    kind: Kind
    seconds: float | None = None


class Stored(NamedTuple):
    """What is known about a text. rest: how the stored text that agrees with it longest goes on, from `matched` on."""

    matched: int
    losses: list[Loss]
    rest: list[int] | None


def look_up(pc: Any, key: bytes, namespace: object, ids: Sequence[int], reusable: int) -> Stored:
    """Everything a prefix cache can say about the first `reusable` tokens of a text, under the root `key`.

    pc: a prefix cache that is standing still.
    """
    now, known = pc.clock(), ids[:reusable]
    root = pc.index.roots.get(key)
    match = Match([], 0) if root is None else pc.index.match(root, known, now)
    losses = []
    if root is not None:
        losses.append(Loss(pc.index.match(root, known, None).length, "expired"))
    losses += _gone(pc, key, ids, reusable, match.length)
    for other, name in pc.names.items():  # the same namespace under other weights
        if other != key and encoded(name) == encoded(namespace):
            losses += [
                Loss(loss.reach, "other_weights", loss.seconds) for loss in _gone(pc, other, ids, reusable, match.length)
            ]
    others = [pc.index.match(other, known, now).length for name, other in pc.index.roots.items() if name != key]
    losses.append(Loss(max(others, default=0), "other_namespace"))
    rest = None if root is None else _rest(root, match, ids)
    return Stored(match.length, [loss for loss in losses if loss.reach > match.length], rest)


def _gone(pc: Any, key: bytes, ids: Sequence[int], reusable: int, matched: int) -> list[Loss]:
    """What was stored of a text and is not any more, as one loss at most: as far as any reached, why the first one went."""
    all_of_it = ((start, min(stop, reusable), gone) for start, stop, gone in _stretches(pc, key, ids))
    found = [(start, stop, gone) for start, stop, gone in all_of_it if stop > matched and start < reusable]
    if not found:
        return []
    _, _, gone = max(found, key=lambda one: (one[0] <= matched, one[1], one[2].seconds))
    return [Loss(max(stop for _, stop, _ in found), _KIND_OF[gone.reason], gone.seconds)]


def _stretches(pc: Any, key: bytes, ids: Sequence[int]) -> Iterator[tuple[int, int, Any]]:
    """(start, stop, gone) of everything that is gone and agrees with the text, of whatever it had in front.

    What was cleared has no tokens any more: it agrees if the digest at its end does, as a whole or not at all.
    """
    behind = defaultdict(list)
    for (digest, end), gone in pc.gone.items():
        behind[digest].append((end, gone))
    if not behind:
        return
    if isinstance(pc.index, HashedBlocks):
        yield from _blocks(pc, key, ids, behind)
        return
    digests = [key, *running(key, ids)]
    for start, digest in enumerate(digests[:-1]):
        for end, gone in behind.get(digest, ()):
            same = common_length(gone.tokens, tuple(ids[start : start + len(gone.tokens)]))
            if not gone.tokens and digests[start : start + gone.length + 1][-1] == end:
                same = gone.length
            if same:
                yield start, start + same, gone


def _blocks(
    pc: Any, key: bytes, ids: Sequence[int], behind: dict[bytes, list[tuple[bytes, Any]]]
) -> Iterator[tuple[int, int, Any]]:
    """The same along a chain of blocks. Each is believed by its tokens, so a poor digest misleads nobody."""
    before, P = key, pc.index.step_tokens
    stored = 0 if key not in pc.index.roots else pc.index.match(pc.index.roots[key], ids, None).length
    for start in range(0, len(ids) - P + 1, P):
        block = tuple(ids[start : start + P])
        after = chained(before, block, pc.index.digest)
        agree = (gone for end, gone in behind.get(before, ()) if gone.tokens == block or (not gone.tokens and end == after))
        gone = next(agree, None)
        if gone is not None:
            yield start, start + P, gone
        elif start >= stored:
            return
        before = after


def _rest(root: Entry, match: Match, ids: Sequence[int]) -> list[int] | None:
    """How the longest stored text among those that agree longest goes on behind the match; None: none does."""
    node = match.entries[-1] if match.entries else root
    if match.length < node.stop:
        return [*node.tokens[match.length - node.start :], *_tokens(_deepest(node), node)]
    ours = tuple(ids[match.length :])
    ends = [_deepest(child) for child in node.children.values()]
    rests = [_tokens(end, node) for end in ends]
    return max(rests, key=lambda rest: (common_length(tuple(rest), ours[: len(rest)]), len(rest)), default=None)


def _deepest(entry: Entry) -> Entry:
    best, waiting = entry, [entry]
    while waiting:
        one = waiting.pop()
        best = one if one.stop > best.stop else best
        waiting.extend(one.children.values())
    return best


def _tokens(end: Entry, node: Entry) -> list[int]:
    """The tokens behind `node`, up to the end of an entry below it."""
    return [token for entry in end.path if entry.start >= node.stop for token in entry.tokens]
