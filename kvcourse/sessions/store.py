"""Lesson 11: many sessions, in memory and on disk, within two budgets. Knows nothing about models or attention.

    store = SessionStore(folder, max_ram_bytes=2**30, max_disk_bytes=8 * 2**30, ttl=7 * 86400)
    store.put("ada", chat)             # returns when it is on disk
    chat = store.get("ada", model)     # from memory if it is there and current, else from disk, verified

What `put` has returned from survives a kill at any moment. Several processes may use one folder.
"""

import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcourse.errors import InputError, SessionFileError, SessionStoreError
from kvcourse.sessions.file import SessionFile, read, size_bytes, write
from kvcourse.sessions.index import Index, Row
from kvcourse.sessions.owners import bury, register
from kvcourse.sessions.ram import Memory

if TYPE_CHECKING:
    from kvcourse.models.base import CausalLM
    from kvcourse.sessions.session import Session

_LONGEST_NAME = 200


class Listed(NamedTuple):
    """One session of a store. Bytes and tokens are those on disk, or in memory if it is only there."""

    name: str
    tokens: int
    bytes: int
    on_disk: bool
    in_ram: bool
    pinned: bool
    used: float  # seconds since 1970


Listing = list[Listed]  # inside the class, `list` is a method
Names = list[str]


class SessionStore:
    """Sessions by name.

    max_ram_bytes: sessions kept ready in this process, no more than rows in use; 0 keeps none. max_disk_bytes: all files of the
    folder, index not counted.
    What was used longest ago goes first, from memory to disk and from disk for good; what is pinned stays.
    ttl: seconds after its last use at which a session is as good as deleted; None: never.
    """

    def __init__(
        self, folder: str | Path, *, max_ram_bytes: int = 2**30, max_disk_bytes: int = 8 * 2**30, ttl: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        for name, value in (("max_ram_bytes", max_ram_bytes), ("max_disk_bytes", max_disk_bytes), ("ttl", ttl)):
            if value is not None and (isinstance(value, bool) or value < 0):
                raise InputError(f"{name} is an amount.", expected="0 or more", got=value, todo="Correct it.")
        self.folder = Path(folder).expanduser().resolve()
        self.max_disk_bytes, self.ttl, self.clock = max_disk_bytes, ttl, clock
        self._ram = Memory(max_ram_bytes)
        try:
            for made in (self._files, self._locks):
                made.mkdir(parents=True, exist_ok=True)
            self._me, self._alive = register(self._locks)
        except OSError as error:
            raise SessionStoreError(f"The store cannot be opened ({error.strerror}).", expected="a folder one may write to",
                                    got=self.folder, todo="Choose another folder.") from error  # fmt: skip
        self._index = Index(self.folder / "index.sqlite")
        self.recover()

    @property
    def _files(self) -> Path:
        return self.folder / "files"

    @property
    def _locks(self) -> Path:
        return self.folder / "locks"

    # Keeping and getting.

    def put(self, name: str, session: "Session | SessionFile", *, durable: bool = True, pinned: bool | None = None) -> Listed:
        """Keep a session under a name; what was there before is replaced when the new one is complete.

        durable: return when it is on disk. Otherwise it stays in memory until room is needed there, `flush`, or `close`.
        A session is kept as it is now: what is said later must be put again. pinned None: as before.
        Raises: SessionStoreError, with nothing changed, if it does not fit max_disk_bytes beside what is pinned and its own
        earlier version; SessionFileError if it cannot be written.
        """
        _require_name(name)
        content = session if isinstance(session, SessionFile) else _as_file(session)
        version = self._write(name, content, pinned).version if durable else None
        self._keep(name, content, version)
        return self._listed(name)

    def get(self, name: str, model: "CausalLM", tokenizer: Any = None, **options: Any) -> "Session | None":
        """A session of your own, equal to what was put; None if there is none (any more).

        options: what Session.load takes. Raises: SessionFileError for a file that is damaged or of another model; it stays
        where it is, and the store goes on.
        """
        from kvcourse.sessions.saved import from_file

        _require_name(name)
        row, now = self._current(name), self.clock()
        with self._ram.lock:
            held = self._ram.current(name, row.version if row else None)
            if held is not None and self._too_old(held.used, row):
                held = None
        content = self._read(name) if held is None else held.content
        if content is None:
            return None
        session = from_file(content, Path(name), model, tokenizer, **options)
        self._ram.touch(name, now)
        self._index.touch(name, now)
        if held is None and row is not None and self._index.version(name) == row.version:
            self._keep(name, content, row.version)
        return session

    def read(self, name: str) -> SessionFile | None:
        """What is on disk under a name, verified, for no model in particular; None if there is nothing."""
        _require_name(name)
        return self._read(name)

    def delete(self, name: str) -> bool:
        """Forget a session, here and on disk; False if there was none."""
        _require_name(name)
        held, known = self._ram.pop(name), self._index.forget(name)
        self._sweep()
        return known or held is not None

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keep a session that is on disk, whatever room is needed and however long ago it was used, or no longer.

        Raises: InputError if there is none.
        """
        _require_name(name)
        if not self._index.pin(name, pinned):
            raise InputError("There is no such session on disk.", expected="one of list()", got=name, todo="Put it first.")

    def list(self) -> Listing:
        """Everything that `get` would find, the one used last first."""
        names = [row.name for row in self._index.all() if not self._is_expired(row)] + self._ram.names()
        listed = [one for name in dict.fromkeys(names) if (one := self._listed_or_none(name)) is not None]
        return sorted(listed, key=lambda one: (-one.used, one.name))

    def __contains__(self, name: str) -> bool:
        return any(one.name == name for one in self.list())

    # Housekeeping.

    def flush(self) -> None:
        """Write what is only in memory."""
        for name, held in self._ram.unsaved():
            self._ram.saved(name, held, self._write(name, held.content, None).version)

    def prune(self) -> Names:
        """Delete what has expired; return the names."""
        names = [row.name for row in self._index.all() if self._is_expired(row)]
        names += [name for name, held in self._ram.unsaved() if self._too_old(held.used)]
        for name in dict.fromkeys(names):
            self.delete(name)
        return sorted(set(names))

    def recover(self) -> None:
        """Remove what processes that died have left: files announced and not committed, files that count no longer."""
        for owner in {*self._index.owners(), *(path.stem for path in self._locks.glob("*.lock"))} - {self._me}:
            if bury(self._locks, owner):
                self._index.give_up(owner=owner)
        self._sweep()
        with self._index.transaction():  # nobody announces in the meantime
            wanted = self._index.files()
            for path in self._files.iterdir():
                if _counts_as(path.name) not in wanted:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Write what is only in memory, and let go of the folder."""
        self.flush()
        self._index.close()
        self._alive.release()
        bury(self._locks, self._me)

    def __enter__(self) -> "SessionStore":
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    # Inside.

    def _write(self, name: str, content: SessionFile, pinned: bool | None) -> Row:
        n_bytes = size_bytes(content)
        file = f"{uuid.uuid4().hex}.session"
        with self._index.transaction():
            self._make_room(name, n_bytes)
            self._index.announce(file, self._me, n_bytes)
        try:
            written = write(self._files / file, content)
            row = self._index.commit(name, file, written, len(content.about.get("ids", [])), self.clock(), pinned)
        except BaseException:
            self._index.give_up(file=file)
            raise
        finally:
            self._sweep()
        return row

    def _make_room(self, name: str, n_bytes: int) -> None:
        """Forget what was used longest ago until `n_bytes` more fit."""
        free = self.max_disk_bytes - self._index.total_bytes()
        victims = []
        for row in reversed(self._index.all()):
            if free >= n_bytes:
                break
            if row.name != name and not row.pinned:
                victims.append(row.name)
                free += row.bytes
        if free < n_bytes:
            raise SessionStoreError("The disk budget is too small for this session.",
                                    expected=f"{n_bytes} bytes beside what is pinned, and beside its earlier version",
                                    got=f"{max(free, 0)} of {self.max_disk_bytes}",
                                    todo="Raise max_disk_bytes, unpin or delete something.")  # fmt: skip
        for victim in victims:
            self._index.forget(victim)
            self._ram.pop(victim)

    def _keep(self, name: str, content: SessionFile, version: int | None) -> None:
        """Hold in memory, and move out what was used longest ago until all fits."""
        self._ram.put(name, content, version, self.clock())
        with self._ram.lock:
            while (oldest := self._ram.oldest()) is not None:
                its_name, held = oldest
                if held.version is None:
                    self._write(its_name, held.content, None)
                self._ram.pop(its_name)

    def _read(self, name: str) -> SessionFile | None:
        while True:
            row = self._current(name)
            if row is None:
                return None
            try:
                return read(self._path(row))
            except SessionFileError:
                if self._index.version(name) == row.version:
                    raise  # it was not merely replaced, or evicted, while it was being read

    def _path(self, row: Row) -> Path:
        path = self._files / row.file
        if path.parent != self._files or not row.file.endswith(".session"):
            raise SessionStoreError("The index names a file outside the store.", expected=self._files, got=row.file,
                                    todo="Do not use this folder: somebody has changed its index.")  # fmt: skip
        return path

    def _current(self, name: str) -> Row | None:
        row = self._index.get(name)
        if row is None or self._is_expired(row):
            return None
        return row

    def _is_expired(self, row: Row) -> bool:
        return self._too_old(row.used, row)

    def _too_old(self, used: float, row: Row | None = None) -> bool:
        pinned = row is not None and row.pinned
        return self.ttl is not None and not pinned and used + self.ttl <= self.clock()

    def _listed(self, name: str) -> Listed:
        listed = self._listed_or_none(name)
        if listed is None:  # evicted already, by another process
            raise SessionStoreError(f"{name} is gone again.", expected="room for it", got="others' puts, just now",
                                    todo="Raise max_disk_bytes.")  # fmt: skip
        return listed

    def _listed_or_none(self, name: str) -> Listed | None:
        row = self._index.get(name)
        with self._ram.lock:
            held = self._ram.current(name, row.version if row else None)
        if held is not None and held.version is None and not self._too_old(held.used, row):
            on_disk, pinned = row is not None, row is not None and row.pinned
            return Listed(name, len(held.content.about.get("ids", [])), held.n_bytes, on_disk, True, pinned, held.used)
        if row is None or self._is_expired(row):
            return None
        return Listed(name, row.tokens, row.bytes, True, held is not None, row.pinned, row.used)

    def _sweep(self) -> None:
        """Delete the files that count no longer. Whoever is reading one goes on, or looks again."""
        for file in self._index.going():
            (self._files / file).unlink(missing_ok=True)
            self._index.gone(file)


def _counts_as(file: str) -> str:
    """The name under which the index knows a file, or the one that a temporary file is about to become."""
    return file.removeprefix(".").partition(".")[0] + ".session"


def _as_file(session: "Session") -> SessionFile:
    from kvcourse.sessions.saved import as_file

    return as_file(session)


def _require_name(name: object) -> None:
    """Raise InputError unless it is a name, and not a path."""
    is_word = isinstance(name, str) and name.strip() and len(name) <= _LONGEST_NAME and name.isprintable()
    if not is_word or set(str(name)) & set("/\\") or name in (".", ".."):
        raise InputError(
            "A session's name is a word, not a path.",
            expected=f"1 to {_LONGEST_NAME} printable characters without / and \\",
            got=repr(name)[:80],
            todo="Choose another name.",
        )
