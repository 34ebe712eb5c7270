"""Lesson 11: the folder of a store: which files are whose, and what a crash leaves of them. Knows nothing about sessions.

index.sqlite   what counts
files/         one file a session, under a name that is never used again
locks/         one for every process that has the store open
"""

import re
from contextlib import suppress
from pathlib import Path

from kvcourse.errors import SessionStoreError
from kvcourse.sessions.index import Index, Row
from kvcourse.sessions.owners import bury, register

_OWNER = re.compile(r"[0-9a-f]{32}")
_OURS = re.compile(r"[0-9a-f]{32}\.session|\.[0-9a-f]{32}\.session\.[0-9a-f]{12}\.part")  # what this package writes


class Folder:
    """An open store's folder, with its index, and a lock that says that this process is alive.

    Raises: SessionStoreError where it cannot be made, or may not be written to.
    """

    def __init__(self, path: Path) -> None:
        self._files, self._locks = path / "files", path / "locks"
        try:
            for made in (self._files, self._locks):
                made.mkdir(parents=True, exist_ok=True)
            self.me, self._alive = register(self._locks)
        except OSError as error:
            raise SessionStoreError(f"The store cannot be opened ({error.strerror}).", expected="a folder one may write to",
                                    got=path, todo="Choose another folder.") from error  # fmt: skip
        try:
            self.index = Index(path / "index.sqlite")
            self.recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
        self._alive.release()
        bury(self._locks, self.me)

    def path(self, file: str) -> Path:
        """Where a file of the index is. Raises: SessionStoreError for one that is none of this folder's."""
        if not self._is_inside(file):
            raise SessionStoreError("The index names a file outside the store.", expected=self._files, got=file,
                                    todo="Do not use this folder: somebody has changed its index.")  # fmt: skip
        return self._files / file

    def of(self, row: Row) -> Path:
        """Where the file of a session is. Raises: as `path`."""
        return self.path(row.file)

    def sweep(self) -> None:
        """Delete the files that count no longer. Whoever is reading one goes on, or looks again."""
        for file in self.index.going():
            if self._is_inside(file):
                try:
                    (self._files / file).unlink(missing_ok=True)
                except OSError:  # Windows keeps an open file, and a folder may be read-only: another time
                    continue
            self.index.gone(file)

    def recover(self) -> None:
        """Remove what processes that died have left: files announced and not committed, files that count no longer."""
        owners = {path.stem for path in self._locks.glob("*.lock") if _OWNER.fullmatch(path.stem)}
        for owner in {*self.index.owners(), *owners} - {self.me}:
            if not _OWNER.fullmatch(owner) or bury(self._locks, owner):
                self.index.give_up(owner=owner)
        self.sweep()
        with self.index.transaction():  # nobody announces in the meantime
            wanted = self.index.files()
            for path in self._files.iterdir():
                if _OURS.fullmatch(path.name) and _counts_as(path.name) not in wanted:
                    with suppress(OSError):  # it may not be removed, or is a folder: nobody wants it all the same
                        path.unlink(missing_ok=True)

    def _is_inside(self, file: str) -> bool:
        """Whether the index may be believed: a file that a store could have written."""
        return (self._files / file).parent == self._files and file.endswith(".session")


def _counts_as(file: str) -> str:
    """The name under which the index knows a file, or the one that a temporary file is about to become."""
    return file.removeprefix(".").partition(".")[0] + ".session"
