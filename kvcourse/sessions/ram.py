"""Lesson 11: sessions that are ready in memory. Knows nothing about disks, budgets of disks or other processes.

A session in memory is a copy of a file, or it is nowhere else. A version says which: versions only grow, over all names and
processes, so a copy is current while its file has that version, and what is nowhere else while nobody has put anything newer.
"""

import threading
from collections import OrderedDict
from typing import NamedTuple

from kvcourse.sessions.file import SessionFile, size_bytes


class Held(NamedTuple):
    """A session in memory, no more than its rows in use."""

    content: SessionFile
    version: int  # of the file that it equals; of the newest file of all when it was put, if it is nowhere else
    saved: bool  # False: it is nowhere else
    pinned: bool | None  # what its file shall be; None: as the one before it
    n_bytes: int
    used: float

    def is_current(self, version: int | None) -> bool:
        """version: of what is on disk under this name now."""
        return self.version == version if self.saved else version is None or version <= self.version

    def is_newer_than(self, version: int) -> bool:
        """Whether this was put after the file of that version was written."""
        return self.version > version if self.saved else self.version >= version


class Memory:
    """Sessions by name, the one used last at the end. Its lock is never held while somebody else's is waited for."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.RLock()
        self._held: OrderedDict[str, Held] = OrderedDict()

    def fits(self, content: SessionFile) -> bool:
        """Whether there is room for a session if all others go."""
        return size_bytes(content) <= self.max_bytes

    def names(self) -> list[str]:
        with self._lock:
            return list(self._held)

    def put(self, name: str, content: SessionFile, version: int, now: float, pinned: bool | None) -> tuple[Held, Held | None]:
        """Hold what is nowhere else; return what is held now, and what was before.

        version: of the newest file of all. Nobody may write one in the meantime: it would count as newer than this.
        """
        held = Held(content, version, False, pinned, size_bytes(content), now)
        with self._lock:
            before = self._held.get(name)
            self._hold(name, held)
        return held, before

    def copy(self, name: str, content: SessionFile, version: int, now: float) -> Held | None:
        """Hold a copy of what is on disk, if it fits. What was held before goes, unless it was put since: None, then."""
        with self._lock:
            before = self._held.get(name)
            if before is not None:
                if before.is_newer_than(version):
                    return None
                del self._held[name]
            if not self.fits(content):
                return None
            held = Held(content, version, True, None, size_bytes(content), now)
            self._hold(name, held)
            return held

    def _hold(self, name: str, held: Held) -> None:
        self._held[name] = held
        self._held.move_to_end(name)

    def current(self, name: str, version: int | None) -> Held | None:
        """What is held under a name, unless it is no longer current: that is forgotten. version: of what is on disk now."""
        with self._lock:
            held = self._held.get(name)
            if held is not None and not held.is_current(version):
                del self._held[name]
                return None
            return held

    def has(self, name: str, held: Held) -> bool:
        """Whether this very content is still what is held under a name."""
        with self._lock:
            now = self._held.get(name)
            return now is not None and now.content is held.content

    def touch(self, name: str, now: float) -> None:
        with self._lock:
            if name in self._held:
                self._held[name] = self._held[name]._replace(used=now)
                self._held.move_to_end(name)

    def written(self, name: str, held: Held, version: int) -> None:
        """What was nowhere else is a file now, unless it was replaced meanwhile."""
        with self._lock:
            if self.has(name, held):
                self._held[name] = self._held[name]._replace(version=version, saved=True)

    def forget(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)

    def drop(self, name: str, held: Held, *, instead: Held | None = None) -> None:
        """Forget this very content, or hold another in its place; nothing happens if it was replaced meanwhile."""
        with self._lock:
            if not self.has(name, held):
                return
            if instead is None:
                del self._held[name]
            else:
                self._held[name] = instead

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(held.n_bytes for held in self._held.values())

    def oldest(self) -> tuple[str, Held] | None:
        """What goes next, while there is more than fits; None if all fits."""
        with self._lock:
            return next(iter(self._held.items())) if self.nbytes > self.max_bytes else None

    def unsaved(self) -> list[tuple[str, Held]]:
        """What is nowhere else."""
        with self._lock:
            return [(name, held) for name, held in self._held.items() if not held.saved]
