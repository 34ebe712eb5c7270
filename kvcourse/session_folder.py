"""Lesson 11: where a user's conversations live, and who has one open. Knows nothing about models, and imports no PyTorch.

KVCOURSE_SESSIONS names another folder than the system's own place for a user's data. A conversation is open in one chat at a
time: two that put their own next turn under one name would each undo the other's. The claim is a lock, which the system gives
back when a process ends, however it ends.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import platformdirs

from kvcourse.errors import InputError, SessionFileError, SessionStoreError, UnknownName
from kvcourse.sessions.file import SessionFile
from kvcourse.sessions.store import Listed, SessionStore

ENVIRONMENT = "KVCOURSE_SESSIONS"
MAX_DISK_BYTES = 8 * 2**30
_INDEX, _FILES = "index.sqlite", "files"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_NAMED = 8  # sessions that a message lists


def sessions_folder(folder: Path | None = None) -> Path:
    """Where sessions live: `folder` if given, else KVCOURSE_SESSIONS, else the user's data folder. Need not exist yet."""
    chosen = folder or os.environ.get(ENVIRONMENT) or platformdirs.user_data_path("kvcourse") / "sessions"
    return Path(chosen).expanduser()


def has_sessions(folder: Path) -> bool:
    """Whether a store has ever been opened there."""
    return (folder / _INDEX).is_file()


def require_place(folder: Path) -> None:
    """Raise InputError where something else is: a file, or a folder of other things."""
    if folder.exists() and not folder.is_dir():
        raise InputError("Sessions live in a folder.", expected="a folder", got=f"{folder}, a file", todo="Choose another.")
    if folder.is_dir() and not has_sessions(folder) and any(_is_foreign(path) for path in folder.iterdir()):
        raise InputError("This folder holds other things than sessions.", expected="a new or empty folder, or one of sessions",
                         got=folder, todo="Choose another.")  # fmt: skip


def open_store(folder: Path, *, ttl: float | None = None) -> SessionStore:
    """The store in this folder, made if need be. It keeps nothing in memory: the chat itself does.

    Raises: InputError where something else is; SessionStoreError where it cannot be opened.
    """
    require_place(folder)
    return SessionStore(folder, max_ram_bytes=0, max_disk_bytes=MAX_DISK_BYTES, ttl=ttl)


def find(store: SessionStore, name: str) -> Listed:
    """What the store knows about a session. Raises: UnknownName, with the names there are."""
    listed = store.list()
    for one in listed:
        if one.name == name:
            return one
    raise unknown(name, [one.name for one in listed])


def read(store: SessionStore, name: str) -> SessionFile:
    """A session as it is on disk, verified, for no model in particular. Raises: UnknownName; SessionFileError."""
    with told_by_name(name):
        content = store.read(name)
    if content is None:
        raise unknown(name, [one.name for one in store.list()])
    return content


@contextmanager
def told_by_name(name: str) -> Iterator[None]:
    """An error about a file says whose file it is: its own name means nothing to a reader."""
    try:
        yield
    except SessionFileError as error:
        fault = error.fault if error.fault.startswith(f"{name} ") else f"{name} cannot be used: {error.fault}"
        raise SessionFileError(fault, expected=error.expected, got=error.got, todo=error.todo) from error


def claim(folder: Path, name: str) -> filelock.BaseFileLock:
    """Open a session for one chat; `release` the claim when done. Raises: SessionStoreError if another chat has it open."""
    lock = filelock.FileLock(folder / "open" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.lock")
    try:
        Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise SessionStoreError(f"{name} is open in another chat.", expected="one chat at a time", got="two",
                                todo="Leave the other one, or take another name.") from error  # fmt: skip
    except OSError as error:
        raise SessionStoreError(f"{name} cannot be opened ({error.strerror}).", expected="a folder one may write to",
                                got=folder, todo="Choose another folder.") from error  # fmt: skip
    return lock


def parse_age(text: str) -> float:
    """ "30d" in seconds: s, m (minutes), h, d or w. Raises: InputError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])\s*", text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < 1e12:
        raise InputError("That is no age.", expected="a number above 0 and s, m, h, d or w, such as 30d", got=repr(text),
                         todo="Write it so.")  # fmt: skip
    return seconds


def format_age(seconds: float) -> str:
    """ "3 days": in the largest unit of which there is at least one, rounded down."""
    for n_seconds, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= n_seconds:
            n = int(seconds // n_seconds)
            return f"{n:,} {unit}{'' if n == 1 else 's'}"
    return "less than a minute"


def unknown(name: str, known: list[str]) -> UnknownName:
    """The error about a name that is none of these."""
    if not known:
        return UnknownName(
            f"There is no session {name}: none has been kept yet.", todo="kvcourse chat --session NAME keeps one."
        )
    names = ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")
    return UnknownName("There is no session of that name.", expected=names, got=name, todo="Take one of those.")


def _is_foreign(path: Path) -> bool:
    """Whether this is none of the folders that a store makes before its index."""
    return path.name not in (_FILES, "locks", "open") or (path.name == _FILES and any(path.iterdir()))
