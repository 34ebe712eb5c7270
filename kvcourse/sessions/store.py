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

from kvcourse.errors import InputError, KVCourseError, SessionFileError, SessionStoreError
from kvcourse.sessions.file import SessionFile, read, size_bytes, write
from kvcourse.sessions.folder import Folder
from kvcourse.sessions.index import Row
from kvcourse.sessions.ram import Held, Memory

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
        self._folder = Folder(self.folder)
        self._index = self._folder.index

    # Keeping and getting.

    def put(self, name: str, session: "Session | SessionFile", *, durable: bool = True, pinned: bool | None = None) -> Listed:
        """Keep a session under a name; what was there before is replaced when the new one is complete.

        durable: return when it is on disk. Otherwise it stays in memory until room is needed there, `flush` or `close`, if it
        fits there at all. A session is kept as it is now: what is said later must be put again. pinned None: as before.
        Raises: SessionStoreError, with nothing changed, if it does not fit max_disk_bytes beside what is pinned and its own
        earlier version; SessionFileError if it cannot be written.
        """
        require_name(name)
        content = session if isinstance(session, SessionFile) else _as_file(session, copy=self._ram.max_bytes > 0)
        if not durable and self._ram.fits(content):
            with self._index.transaction():  # a file written in the meantime would count as newer than this
                held, before = self._ram.put(name, content, self._index.latest(), self.clock(), pinned)
            try:
                self._fit()
            except BaseException:
                self._ram.drop(name, held, instead=before)
                raise
            return self._listed(name, self._index.get(name), held)
        row = self._write(name, content, pinned)
        assert row is not None
        copy = self._ram.copy(name, content, row.version, row.used)
        if copy is not None:
            self._fit_copy(name, copy)
        return self._listed(name, row, copy if copy is not None and self._ram.has(name, copy) else None)

    def get(self, name: str, model: "CausalLM", tokenizer: Any = None, **options: Any) -> "Session | None":
        """A session of your own, equal to what was put; None if there is none (any more).

        options: what Session.load takes. Raises: SessionFileError for a file that is damaged or of another model; it stays
        where it is, and the store goes on.
        """
        from kvcourse.sessions.saved import from_file

        require_name(name)
        row, now = self._current(name), self.clock()
        held = self._ram.current(name, row.version if row else None)
        if held is not None and not held.saved and self._is_old(held, row):
            return None
        content = self._read(name) if held is None else held.content
        if content is None:
            return None
        session = from_file(content, Path(name), model, tokenizer, **options)
        self._ram.touch(name, now)
        if row is not None:
            self._index.touch(name, now)
        if held is None and row is not None and self._index.version(name) == row.version:
            copy = self._ram.copy(name, content, row.version, now)
            if copy is not None:
                self._fit_copy(name, copy)
        return session

    def read(self, name: str) -> SessionFile | None:
        """What is on disk under a name, verified, for no model in particular; None if there is nothing."""
        require_name(name)
        return self._read(name)

    def delete(self, name: str) -> bool:
        """Forget a session, here and on disk; False if there was none."""
        require_name(name)
        with self._index.transaction():  # between the two, an earlier version could be read
            held = self._ram.current(name, self._index.version(name))
            self._ram.forget(name)
            known = self._index.forget(name)
        self._folder.sweep()
        return known or held is not None

    def pin(self, name: str, pinned: bool = True) -> None:
        """Keep a session that is on disk, whatever room is needed and however long ago it was used, or no longer.

        Raises: InputError if there is none.
        """
        require_name(name)
        if not self._index.pin(name, pinned):
            raise InputError("There is no such session on disk.", expected="one of list()", got=name, todo="Put it first.")

    def list(self) -> Listing:
        """Everything that `get` would find, the one used last first."""
        with self._index.transaction():  # what moves from memory to disk in the meantime would be in neither
            rows = {row.name: row for row in self._index.all()}
            names = {*rows, *self._ram.names()}
            memory = {name: self._ram.current(name, rows[name].version if name in rows else None) for name in names}
        listed = []
        for name, held in memory.items():
            row = rows.get(name)
            if held is not None and not held.saved:
                is_there = not self._is_old(held, row)
            else:
                is_there = row is not None and not self._is_expired(row)
            if is_there:
                listed.append(self._listed(name, row, held))
        return sorted(listed, key=lambda one: (-one.used, one.name))

    def __contains__(self, name: str) -> bool:
        return any(one.name == name for one in self.list())

    # Housekeeping.

    def flush(self) -> None:
        """Write what is only in memory: all that can be written. Raises: the first fault, then."""
        faults = []
        for name, held in self._ram.unsaved():
            try:
                self._spill(name, held)
            except KVCourseError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]

    def prune(self) -> Names:
        """Delete what has expired; return the names."""
        with self._index.transaction():  # nobody uses one in the meantime
            rows = {row.name: row for row in self._index.all()}
            names = {name for name, row in rows.items() if self._is_expired(row)}
            for name in names:
                self._index.forget(name)
        for name, held in self._ram.unsaved():
            if self._is_old(held, rows.get(name)):
                self._ram.drop(name, held)
                names.add(name)
        self._folder.sweep()
        return sorted(names)

    def recover(self) -> None:
        """Remove what processes that died have left: files announced and not committed, files that count no longer."""
        self._folder.recover()

    def close(self) -> None:
        """Write what is only in memory, and let go of the folder.

        If something cannot be written, that is raised, and the store stays open.
        """
        self.flush()
        self._folder.close()

    def __enter__(self) -> "SessionStore":
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    # Inside.

    def _write(
        self, name: str, content: SessionFile, pinned: bool | None, only_if: Callable[[int | None], bool] = lambda version: True
    ) -> Row | None:
        """A file, and the row that makes it count; None where `only_if`, asked at the last moment, says no."""
        n_bytes = size_bytes(content)
        file = f"{uuid.uuid4().hex}.session"
        with self._index.transaction():
            self._make_room(name, n_bytes)
            self._index.announce(file, self._folder.me, n_bytes)
        row = None
        try:
            self._folder.sweep()  # what had to go goes first: at no moment does the folder hold more than the budget
            written = write(self._folder.path(file), content)
            row = self._index.commit(name, file, written, _n_tokens(content), self.clock(), pinned, only_if)
        finally:
            if row is None:
                self._index.give_up(file=file)
            self._folder.sweep()
        return row

    def _spill(self, name: str, held: Held) -> None:
        """Write what is only in memory, unless it was replaced or deleted while it was being written."""

        def is_wanted(version: int | None) -> bool:
            return held.is_current(version) and self._ram.has(name, held)

        wanted = is_wanted(self._index.version(name))  # else nobody has to make room for it
        row = self._write(name, held.content, held.pinned, is_wanted) if wanted else None
        if row is not None:
            self._ram.written(name, held, row.version)

    def _fit(self) -> None:
        """Move out of memory what was used longest ago until all fits. Holds no lock while it writes."""
        while (oldest := self._ram.oldest()) is not None:
            name, held = oldest
            if not held.saved:
                self._spill(name, held)
            self._ram.drop(name, held)

    def _fit_copy(self, name: str, held: Held) -> None:
        """The same after a session came in that is on disk anyway: where room cannot be made, it goes again."""
        try:
            self._fit()
        except KVCourseError:
            self._ram.drop(name, held)

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

    def _read(self, name: str) -> SessionFile | None:
        while True:
            row = self._current(name)
            if row is None:
                return None
            try:
                return read(self._folder.of(row))
            except SessionFileError:
                if self._index.version(name) == row.version:
                    raise  # it was not merely replaced, or evicted, while it was being read

    def _current(self, name: str) -> Row | None:
        row = self._index.get(name)
        if row is None or self._is_expired(row):
            return None
        return row

    def _is_expired(self, row: Row) -> bool:
        return not row.pinned and self._too_old(row.used)

    def _is_old(self, held: Held, row: Row | None) -> bool:
        """The same of what is in memory. row: what is on disk under that name."""
        return not self._is_pinned(held, row) and self._too_old(held.used)

    def _is_pinned(self, held: Held, row: Row | None) -> bool:
        return held.pinned if held.pinned is not None else row is not None and row.pinned

    def _too_old(self, used: float) -> bool:
        return self.ttl is not None and used + self.ttl <= self.clock()

    def _listed(self, name: str, row: Row | None, held: Held | None) -> Listed:
        if held is not None and not held.saved:
            pinned = self._is_pinned(held, row)
            return Listed(name, _n_tokens(held.content), held.n_bytes, row is not None, True, pinned, held.used)
        assert row is not None
        return Listed(name, row.tokens, row.bytes, True, held is not None, row.pinned, row.used)


def _n_tokens(content: SessionFile) -> int:
    ids = content.about.get("ids")
    return len(ids) if isinstance(ids, list) else 0


def _as_file(session: "Session", copy: bool) -> SessionFile:
    from kvcourse.sessions.saved import as_file

    return as_file(session, copy=copy)


def require_name(name: object) -> None:
    """Raise InputError unless it is a name, and not a path."""
    is_word = isinstance(name, str) and name.strip() and len(name) <= _LONGEST_NAME and name.isprintable()
    if not is_word or set(str(name)) & set("/\\") or name in (".", ".."):
        raise InputError(
            "A session's name is a word, not a path.",
            expected=f"1 to {_LONGEST_NAME} printable characters without / and \\",
            got=repr(name)[:80],
            todo="Choose another name.",
        )
