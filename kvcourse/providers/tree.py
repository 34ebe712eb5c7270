"""Lesson 13: which earlier text begins like this one, and for how long. Knows nothing about what a character stands for.

A radix tree over strings: shared starts are stored once. Token ids go in as characters, `as_text(ids)`, so that one tree serves
both. Texts stand below roots with names, and those below different ones share nothing: requests to two models. It holds no
tensors, and no more than `max_bytes`, of text and of what it takes to hold it; when that is full, what was not seen for longest
is forgotten.
"""

import sys
from collections.abc import Iterable
from typing import NamedTuple

from kvcourse.common_prefix import common_length


def as_text(ids: Iterable[int]) -> str:
    """Token ids as a string with one character for each."""
    return "".join(map(chr, ids))


_NODE_BYTES = 300  # of a stretch, without its text: the object, its place among others, room for its children


class Node:
    """A stretch of text behind another one. seen: number of the last text that went through; seconds: when that was."""

    __slots__ = ("children", "edge", "parent", "seconds", "seen")

    def __init__(self, edge: str, parent: "Node | None", seen: int, seconds: float | None) -> None:
        self.edge, self.parent, self.seen, self.seconds = edge, parent, seen, seconds
        self.children: dict[str, Node] = {}

    @property
    def text(self) -> str:
        """Everything from the start of the text to the end of this stretch."""
        parts, node = [], self
        while node.parent is not None:
            parts.append(node.edge)
            node = node.parent
        return "".join(reversed(parts))


class Found(NamedTuple):
    """What was there before. shared: characters that some earlier text begins with; alive: of these, used recently enough.

    nearest: the number of the last text that shares them, None for none. end: where this text now ends.
    """

    shared: int
    alive: int
    nearest: int | None
    end: Node


class PrefixTree:
    """Texts by their starts.

    lifetime: seconds after which a stretch that nobody used no longer counts as alive; None: it always does.
    renewed: being found counts as use.
    """

    def __init__(self, lifetime: float | None = None, renewed: bool = True, max_bytes: int = 160 * 2**20) -> None:
        self.lifetime, self.renewed, self.max_bytes = lifetime, renewed, max_bytes
        self.roots: dict[str, Node] = {}
        self.bytes = 0
        self.forgotten_up_to: int | None = None  # texts up to this number may be gone

    def insert(self, text: str, number: int, seconds: float | None = None, root: str = "") -> Found:
        """Add a text and say what of it was there. number: grows with each text. seconds: None where no time is known.

        root: a name; texts below different ones share nothing.
        """
        if root not in self.roots:
            self.roots[root] = Node("", None, number, seconds)
            self.bytes += _size(root)
        node, at, alive, nearest, counting = self.roots[root], 0, 0, None, True
        while at < len(text):
            child = node.children.get(text[at])
            if child is None:
                break
            nearest = child.seen
            edge = child.edge
            same = len(edge) if text.startswith(edge, at) else common_length(edge, text[at : at + len(edge)])
            counting = counting and self._is_alive(child, seconds)
            alive += same if counting else 0
            whole = same == len(edge)
            node = child if whole else self._split(child, same)
            self._use(node, number, seconds, counting)
            at += same
            if not whole:
                break
        if at < len(text):
            leaf = Node(text[at:], node, number, seconds)
            node.children[text[at]] = leaf
            self.bytes += _size(leaf.edge)
            node = leaf
        if self.bytes > self.max_bytes:
            self._forget(number)
        return Found(at, alive, nearest, node)

    def _is_alive(self, node: Node, now: float | None) -> bool:
        return self.lifetime is None or now is None or node.seconds is None or now - node.seconds <= self.lifetime

    def _use(self, node: Node, number: int, seconds: float | None, alive: bool) -> None:
        node.seen = number
        if self.renewed or not alive:
            node.seconds = seconds

    def _split(self, child: Node, same: int) -> Node:
        """Cut a stretch in two; the lower part stays the same object, so that ends of texts stay where they are."""
        assert child.parent is not None
        self.bytes -= _size(child.edge)
        upper = Node(child.edge[:same], child.parent, child.seen, child.seconds)
        child.parent.children[child.edge[0]] = upper
        child.edge, child.parent = child.edge[same:], upper
        upper.children[child.edge[0]] = child
        self.bytes += _size(upper.edge) + _size(child.edge)
        return upper

    def _forget(self, number: int) -> None:
        """Drop what was not seen for longest, until half the room is free; the text that came last stays."""
        stretches = self._by_age()
        for node in stretches:
            if self.bytes <= self.max_bytes // 2 or node.seen == number:
                break
            self.forgotten_up_to = max(self.forgotten_up_to or 0, node.seen)
            if node.parent is not None:
                self.bytes -= _size(node.edge)
                del node.parent.children[node.edge[0]]
                node.parent = None
        for name in [name for name, root in self.roots.items() if not root.children]:
            self.bytes -= _size(name)
            del self.roots[name]

    def _by_age(self) -> list[Node]:
        """Every stretch, the oldest first, and of equal age what stands behind before what stands in front."""
        found, waiting = [], [node for root in self.roots.values() for node in root.children.values()]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting.extend(node.children.values())
        found.reverse()  # the sort keeps the order of equals
        return sorted(found, key=lambda node: node.seen)


def _size(text: str) -> int:
    return sys.getsizeof(text) + _NODE_BYTES
