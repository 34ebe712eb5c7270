"""Lesson 11: which sessions are on disk, in SQLite. Knows nothing about models, tensors or what is in a file.

Several processes share one folder, and any of them may be killed at any moment. So a file is only ever added under a name of
its own, and a row of this index says which file counts. The order is always the same: announce, write the file, commit the row;
and the other way round when something goes: delete the row, then the file. Whatever a crash leaves behind is either
announced or on the list of what is to be deleted, and the next process to open the store removes it.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kvcourse.errors import SessionStoreError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    name TEXT PRIMARY KEY, file TEXT NOT NULL UNIQUE, version INTEGER NOT NULL, bytes INTEGER NOT NULL, tokens INTEGER NOT NULL,
    created REAL NOT NULL, used REAL NOT NULL, pinned INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS coming (file TEXT PRIMARY KEY, owner TEXT NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS going (file TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS latest (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), version INTEGER NOT NULL);
INSERT OR IGNORE INTO latest VALUES (1, 0);
CREATE INDEX IF NOT EXISTS by_use ON sessions (used);
"""
_WAIT_S = 60  # for other processes
_COLUMNS = "name, file, version, bytes, tokens, created, used, pinned"


class Row(NamedTuple):
    """One session on disk. version: its file's; no two files ever share one, and later ones have larger ones.

    Times are seconds since 1970.
    """

    name: str
    file: str
    version: int
    bytes: int
    tokens: int
    created: float
    used: float
    pinned: bool


class Index:
    """The table of sessions. Every method is one transaction, safe between threads and processes."""

    def __init__(self, path: Path) -> None:
        self._lock, self._path = threading.RLock(), path
        try:
            self._db = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _failed(path, error) from error
        try:
            self._set_up(time.monotonic() + _WAIT_S)
        except sqlite3.Error as error:
            self._db.close()
            raise _failed(path, error) from error

    def _set_up(self, deadline: float) -> None:
        """Once more while another process is at the very same step: SQLite's own waiting leaves out the change to WAL."""
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=FULL")  # what is committed outlives a power cut, too
                self._db.executescript(_SCHEMA)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it or nothing, alone among all processes. Transactions nest."""
        with self._lock:
            if self._nested():
                yield self._db
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise _failed(self._path, error) from error

    def _nested(self) -> bool:
        try:
            return self._db.in_transaction
        except sqlite3.Error as error:  # it is closed
            raise _failed(self._path, error) from error

    # Looking.

    def get(self, name: str) -> Row | None:
        found = self._rows("WHERE name = ?", name)
        return found[0] if found else None

    def version(self, name: str) -> int | None:
        """Of what is on disk under a name now."""
        row = self.get(name)
        return None if row is None else row.version

    def all(self) -> list[Row]:
        """Every session, the one used last first."""
        return self._rows("ORDER BY used DESC, name")

    def total_bytes(self) -> int:
        """Of all files that count, and of those announced."""
        with self.transaction() as db:
            (known,), (coming,) = (
                db.execute(f"SELECT COALESCE(SUM(bytes), 0) FROM {table}").fetchone() for table in ("sessions", "coming")
            )
            return int(known) + int(coming)

    def files(self) -> set[str]:
        """Every file that somebody may still want."""
        with self.transaction() as db:
            return {file for table in ("sessions", "coming") for (file,) in db.execute(f"SELECT file FROM {table}")}

    # Coming.

    def announce(self, file: str, owner: str, n_bytes: int) -> None:
        """A file of this size is about to be written."""
        with self.transaction() as db:
            db.execute("INSERT INTO coming VALUES (?, ?, ?)", (file, owner, n_bytes))

    def commit(
        self, name: str, file: str, n_bytes: int, tokens: int, now: float, pinned: bool | None = None,
        only_if: Callable[[int | None], bool] = lambda version: True,
    ) -> Row | None:  # fmt: skip
        """The announced file counts from now on; the one before it, under that name, goes. pinned None: as before.

        only_if: asked with the version of the one before it. None, and nothing changed, if it says no.
        """
        with self.transaction() as db:
            before = self.get(name)
            if not only_if(None if before is None else before.version):
                return None
            if before is not None:
                self.forget(name)
            keep = pinned if pinned is not None else before is not None and before.pinned
            db.execute("UPDATE latest SET version = version + 1")
            row = Row(name, file, self.latest(), n_bytes, tokens, before.created if before else now, now, keep)
            db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM coming WHERE file = ?", (file,))
            return row

    def latest(self) -> int:
        """The version of the newest file; 0 before the first."""
        with self.transaction() as db:
            return int(db.execute("SELECT version FROM latest").fetchone()[0])

    def owners(self) -> list[str]:
        """Everybody who has announced a file and not committed it."""
        with self.transaction() as db:
            return [owner for (owner,) in db.execute("SELECT DISTINCT owner FROM coming")]

    # Using and going.

    def touch(self, name: str, now: float) -> None:
        with self.transaction() as db:
            db.execute("UPDATE sessions SET used = MAX(used, ?) WHERE name = ?", (now, name))

    def pin(self, name: str, pinned: bool) -> bool:
        """Say whether it may be evicted; False if there is no such session."""
        with self.transaction() as db:
            return db.execute("UPDATE sessions SET pinned = ? WHERE name = ?", (pinned, name)).rowcount > 0

    def forget(self, name: str) -> bool:
        """It counts no longer; its file is to be deleted. False if there is no such session."""
        with self.transaction() as db:
            row = self.get(name)
            if row is None:
                return False
            db.execute("INSERT OR IGNORE INTO going VALUES (?)", (row.file,))
            db.execute("DELETE FROM sessions WHERE name = ?", (name,))
            return True

    def give_up(self, *, file: str | None = None, owner: str | None = None) -> None:
        """What was announced, by a file or by an owner, will not come."""
        with self.transaction() as db:
            column, value = ("file", file) if file is not None else ("owner", owner)
            db.execute(f"INSERT OR IGNORE INTO going SELECT file FROM coming WHERE {column} = ?", (value,))
            db.execute(f"DELETE FROM coming WHERE {column} = ?", (value,))

    def going(self) -> list[str]:
        """Files to be deleted."""
        with self.transaction() as db:
            return [file for (file,) in db.execute("SELECT file FROM going")]

    def gone(self, file: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM going WHERE file = ?", (file,))

    def _rows(self, condition: str, *values: object) -> list[Row]:
        with self._lock:
            try:
                found = self._db.execute(f"SELECT {_COLUMNS} FROM sessions {condition}", values).fetchall()
            except sqlite3.Error as error:
                raise _failed(self._path, error) from error
        return [Row._make((*row[:-1], bool(row[-1]))) for row in found]


def _failed(path: Path, error: sqlite3.Error) -> SessionStoreError:
    return SessionStoreError(
        f"The store's index fails ({error}).",
        expected="an SQLite file that may be written to",
        got=path,
        todo="Check the folder's permissions and room.",
    )
