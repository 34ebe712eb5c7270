"""Lesson 10: a radix tree on words, and a picture of it after every step. Knows nothing about buttons, or how a tree is drawn.

The tree is the package's own; nothing but the K/V is missing. What is done to it is what a prefix cache does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcourse.errors import InputError
from kvcourse.prefix.entries import Entry
from kvcourse.prefix.index import Match, Reason
from kvcourse.prefix.keys import encoded
from kvcourse.prefix.radix import RadixTree
from kvcourse.viz.prefix_tree import Panel, Request, pieces_of

ROOM, LONGEST = 12, 9  # words that all texts together, and one text, may have
TENANTS = ("ana", "ben")


class NoRows:
    """In the place of K/V: ids, and nothing behind them."""

    def split(self, rows: int, at: int) -> tuple[int, int]:
        return rows, rows

    def free(self, rows: int) -> None:
        pass


@dataclass(frozen=True)
class Step:
    """What was done, what came of it in a sentence, and how the tree looks then."""

    title: str
    words: str
    panel: Panel

    @property
    def spoken(self) -> str:
        return f"{self.title}. {self.words}"


class Story:
    """Every call does something to the tree and adds a step. Texts are words with spaces between them."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self.tree = RadixTree(NoRows(), gone=self._went)
        self.steps: list[Step] = []
        self._ids: dict[str, int] = {}
        self._words: list[str] = []
        self._leases: list[Entry] = []
        self._gone: list[Entry] = []
        self._shown = [TENANTS[0]]
        self._add("empty", f"Nothing is stored. There is room for {room} words.")

    def match(self, text: str, tenant: str = TENANTS[0]) -> Step:
        """Look, and change nothing."""
        ids, found = self._find(text, tenant)
        known = found.length
        words = f"{known} of its {_n(len(ids))} known, {len(ids) - known} to compute."
        if known == len(ids) - 1 and self._whole(ids, tenant):
            words += " All are stored, but the last one is computed in any case: the answer begins with its logits."
        elif found.entries and known < found.entries[-1].stop:
            words += f" It parts from a stored text in the middle of a stretch, behind “{self._words[ids[known - 1]]}”."
        return self._add(f"match: {text}", words, tenant, Request(ids, known, root=encoded(tenant)))

    def insert(self, text: str, tenant: str = TENANTS[0]) -> Step:
        """Store what is not known yet, after evicting as much as that needs."""
        ids, _ = self._find(text, tenant)
        root = self.tree.root(encoded(tenant))
        held = self._deepest(root, self.tree.match(root, ids, None))
        self.tree.pin(held)
        known = self.tree.match(root, ids, None).length
        self.tree.evict(max(0, self.tree.tokens + len(ids) - known - self.room))
        fits = known + min(len(ids) - known, self.room - self.tree.tokens)
        before = len(list(self.tree.entries()))
        self.tree.add(root, ids[:fits], lambda start, stop: 0, self._now)
        self.tree.unpin(held)
        was_split = len(list(self.tree.entries())) == before + 2
        words = f"{known} of its {_n(len(ids))} there already, {fits - known} written."
        if was_split:
            words += f" The stretch in which it parts was split behind “{self._words[ids[known - 1]]}”."
        words += self._told_gone() + ("" if fits == len(ids) else f" There is no room for {_n(len(ids) - fits)}.")
        return self._add(f"insert: {text}", words, tenant, Request(ids, known, fits, encoded(tenant)))

    def lease(self, text: str, tenant: str = TENANTS[0]) -> Step:
        """Pin what is known of a text: a request is using it."""
        ids, found = self._find(text, tenant)
        root = self.tree.root(encoded(tenant))
        self.tree.use(found, self._now)
        held = self._deepest(root, found)
        self.tree.pin(held)
        self._leases.append(held)
        words = f"{found.length} of its {_n(len(ids))} known: pinned, stretch by stretch, until the lease ends."
        if not found.length:
            words = "Nothing of it is known, so nothing is pinned."
        elif found.length < held.stop:
            words += " Of the last stretch only a part is used; all of it is pinned."
        return self._add(f"lease: {text}", words, tenant, Request(ids, found.length, root=encoded(tenant)))

    def release(self) -> Step:
        """End the lease that has been out for longest."""
        if not self._leases:
            return self._add("release", "There is no lease out.")
        held = self._leases.pop(0)
        self.tree.unpin(held)
        return self._add("release", f"The lease ended. Leases that are still out: {len(self._leases)}.")

    def evict(self, n: int = 1) -> Step:
        """Make room for so many words."""
        self.tree.evict(n)
        words = self._told_gone().strip() or "Nothing may go: every leaf is pinned, or there is none."
        return self._add(f"evict {_n(n)}", words)

    # Inside.

    @property
    def _now(self) -> float:
        return float(len(self.steps))

    def _find(self, text: str, tenant: str) -> tuple[tuple[int, ...], Match]:
        words = text.split()
        if not 1 <= len(words) <= LONGEST or any(len(word) > 12 for word in words):
            raise InputError("The picture has room for a few words.", expected=f"1 to {LONGEST} words of 12 letters at most",
                             got=f"{len(words)} words", todo="Type such words, with spaces between them.")  # fmt: skip
        for word in words:
            if word not in self._ids:
                self._ids[word] = len(self._words)
                self._words.append(word)
        ids = tuple(self._ids[word] for word in words)
        root = self.tree.roots.get(encoded(tenant))
        return ids, Match([], 0) if root is None else self.tree.match(root, ids[:-1], self._now)

    def _whole(self, ids: tuple[int, ...], tenant: str) -> bool:
        root = self.tree.roots.get(encoded(tenant))
        return root is not None and self.tree.match(root, ids, self._now).length == len(ids)

    @staticmethod
    def _deepest(root: Entry, found: Match) -> Entry:
        return found.entries[-1] if found.entries else root

    def _went(self, entry: Entry, reason: Reason) -> None:
        self._gone.append(entry)

    def _told_gone(self) -> str:
        texts = [f"“{' '.join(self._words[token] for token in entry.tokens)}”" for entry in self._gone]
        return f" Evicted: {', then '.join(texts)}." if texts else ""

    def _add(self, title: str, words: str, tenant: str | None = None, request: Request | None = None) -> Step:
        if tenant is not None and tenant not in self._shown:
            self._shown.append(tenant)
        names = {encoded(one): one for one in TENANTS}
        pieces = pieces_of(self.tree, self._words.__getitem__, name=names.__getitem__, request=request, gone=self._gone)
        self._gone = []
        whose = "" if tenant in (None, TENANTS[0]) else f"{tenant}, "
        words += f" Held: {self.tree.tokens}\u00a0of\u00a0{self.room}."
        step = Step(whose + title, words, Panel(pieces, words, tuple(self._shown)))
        self.steps.append(step)
        return step


def first_story() -> Story:
    """The steps that `prefix_explorer` starts with: each thing that a prefix cache does, once."""
    story = Story()
    story.match("in short what is rain ?")
    story.insert("in short what is rain ?")
    story.match("in short what is snow ?")
    story.insert("in short what is snow ?")
    story.match("please in short what is rain ?")
    story.lease("in short what is snow made of ?")
    story.insert("in short who was ada ?")
    story.insert("in short who was bach ?")
    story.release()
    story.evict(3)
    story.match("in short who was bach ?", TENANTS[1])
    story.insert("in short who was bach ?", TENANTS[1])
    return story


def _n(count: int) -> str:
    return "1 word" if count == 1 else f"{count} words"


def told(steps: Sequence[Step]) -> str:
    """All steps in words, for those who cannot see the picture."""
    return " ".join(f"Step {number}, {step.spoken}" for number, step in enumerate(steps))
