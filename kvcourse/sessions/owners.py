"""Lesson 11: who is alive. Knows nothing about sessions.

Every process that opens a store holds a lock on a file of its own for as long as it lives. The system gives a lock back when
its process ends, however it ends: so whoever can take the lock knows that its owner is gone.
"""

import contextlib
import uuid
from pathlib import Path

import filelock


def register(folder: Path) -> tuple[str, filelock.BaseFileLock]:
    """A new owner's name, and the lock that proves it alive."""
    while True:
        owner = uuid.uuid4().hex
        path = folder / f"{owner}.lock"
        lock = filelock.FileLock(path, thread_local=False)  # the process's, whichever of its threads closes the store
        lock.acquire()
        if path.exists():  # else somebody took us for dead between making the file and locking it
            return owner, lock
        lock.release()


def bury(folder: Path, owner: str) -> bool:
    """True if this owner is gone; its lock is then removed, under the lock, so that nobody else takes it meanwhile."""
    path = folder / f"{owner}.lock"
    if not path.exists():
        return True
    try:
        with filelock.FileLock(path, timeout=0):
            with contextlib.suppress(PermissionError):  # Windows keeps an open file
                path.unlink(missing_ok=True)
            return True
    except filelock.Timeout:
        return False
