"""Lesson 11: sessions that are ready in memory. Knows nothing about disks, budgets of disks or other processes."""

import threading
from collections import OrderedDict
from typing import NamedTuple

from kvcourse.sessions.file import SessionFile, size_bytes


class Held(NamedTuple):
    """A session in memory, no more than its rows in use. version: of the file that it equals; None: it is nowhere else."""

    content: SessionFile
    version: int | None
    n_bytes: int
    used: float


class Memory:
    """Sessions by name, the one used last at the end. Whoever uses it holds `lock` around several calls."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.lock = threading.RLock()
        self._held: OrderedDict[str, Held] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def __getitem__(self, name: str) -> Held:
        return self._held[name]

    def names(self) -> list[str]:
        with self.lock:
            return list(self._held)

    def put(self, name: str, content: SessionFile, version: int | None, now: float) -> None:
        with self.lock:
            self._held[name] = Held(content, version, size_bytes(content), now)
            self._held.move_to_end(name)

    def current(self, name: str, version: int | None) -> Held | None:
        """What is held under a name, unless something else is on disk by now: that is then forgotten here."""
        with self.lock:
            held = self._held.get(name)
            if held is not None and held.version is not None and held.version != version:
                del self._held[name]
                return None
            return held

    def touch(self, name: str, now: float) -> None:
        with self.lock:
            if name in self._held:
                self._held[name] = self._held[name]._replace(used=now)
                self._held.move_to_end(name)

    def saved(self, name: str, held: Held, version: int) -> None:
        """What was nowhere else is on disk now, unless it was replaced meanwhile."""
        with self.lock:
            now = self._held.get(name)
            if now is not None and now.content is held.content:
                self._held[name] = now._replace(version=version)

    def pop(self, name: str) -> Held | None:
        with self.lock:
            return self._held.pop(name, None)

    @property
    def nbytes(self) -> int:
        with self.lock:
            return sum(held.n_bytes for held in self._held.values())

    def oldest(self) -> tuple[str, Held] | None:
        """What goes next, while there is more than fits; None if all fits."""
        with self.lock:
            return next(iter(self._held.items())) if self.nbytes > self.max_bytes else None

    def unsaved(self) -> list[tuple[str, Held]]:
        with self.lock:
            return [(name, held) for name, held in self._held.items() if held.version is None]
