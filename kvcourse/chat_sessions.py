"""Lesson 11: a chat whose session may have a name, under which it is put back after every turn. Knows nothing about terminals.

with open_chat("smollm2", folder, name="ada") as kept:     # goes on where "ada" was, or begins it
    kept.session.send(...)
    kept.keep()                                            # on disk when this returns
"""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kvcourse.errors import CacheMisuse, InputError, SessionFileError
from kvcourse.sampling import Pick, Sampler, greedy
from kvcourse.session_folder import claim, find, open_store, told_by_name, unknown
from kvcourse.sessions.file import SessionFile
from kvcourse.sessions.saved import as_file
from kvcourse.sessions.session import Session
from kvcourse.sessions.store import Listed, SessionStore, require_name

if TYPE_CHECKING:
    import filelock

UNNAMED = "chat"  # what a conversation without a name is called when it is forked


class KeptChat:
    """A session, the folder where named ones live, and the name it has there; None: it is kept nowhere.

    The folder is opened when it is first needed: a chat that nobody names leaves no trace.
    model_name: what the model was called, for people: it is written beside the fingerprint, which decides.
    """

    def __init__(self, session: Session, folder: Path, model_name: str | None = None) -> None:
        self.session, self.folder, self.model_name = session, folder, model_name
        self.name: str | None = None
        self._claim: filelock.BaseFileLock | None = None
        self._opened: SessionStore | None = None

    @property
    def store(self) -> SessionStore:
        if self._opened is None:
            self._opened = open_store(self.folder)
        return self._opened

    @property
    def is_at_risk(self) -> bool:
        """Whether what was said would be lost if another session took this one's place."""
        return self.name is None and bool(self.session.turns)

    def resume(self, name: str) -> None:
        """Go on with a session that was kept, with the K/V that was kept.

        Raises, with nothing changed: UnknownName; SessionFileError for a file that is damaged or another model's;
        SessionStoreError if another chat has it open; CacheMisuse in a chat that keeps no K/V.
        """
        _require_kv(self.session.cache)
        find(self.store, name)
        lock = None if name == self.name else claim(self.store.folder, name)
        try:
            session = self._get(name)
        except BaseException:
            _release(lock)
            raise
        if lock is not None:
            self._take(name, lock)
        self.session = session

    def begin(self, name: str) -> None:
        """Keep this session under a new name from now on. One without turns is written with its first.

        Raises, with nothing changed: InputError for no name, or one that is taken; what `keep` raises.
        """
        if name == self.name:
            self.keep()
            return
        self._require_new(name)
        lock, before = claim(self.store.folder, name), self.name
        try:
            self.name = name
            if self.session.turns:
                self.keep()
        except BaseException:
            self.name = before
            _release(lock)
            raise
        self._take(name, lock)

    def fork(self, name: str | None = None) -> str:
        """Go on in a copy under another name; return the name under which the conversation so far stays.

        One without a name gets one first. name None: the first that is free.
        """
        _require_kv(self.session.cache)
        if not self.session.turns:
            raise InputError("There is nothing to fork yet.", expected="a turn or more", got="none", todo="Say something.")
        if name is not None:
            self._require_new(name)
        if self.name is None:
            self.begin(self._free(UNNAMED))
        trunk = str(self.name)
        self.begin(self._free(trunk) if name is None else name)
        return trunk

    def keep(self) -> list[str]:
        """Write the session under its name, if it has one. Returns what had to go to make room, by name.

        Raises: SessionFileError, SessionStoreError where it cannot be kept; what was kept before stays.
        """
        if self.name is None:
            return []
        content = as_file(self.session)
        before = {one.name for one in self.store.list()}
        for_people = {"model_name": self.model_name, "window_tokens": self.session.ledger.limit}
        self.store.put(self.name, SessionFile(content.about | for_people, content.rows))
        return sorted(before - {one.name for one in self.store.list()})

    def reset(self) -> str | None:
        """A new conversation, without a name; what was kept stays as it was, under the name that is returned."""
        name = self.name
        self.session.reset()
        self._take(None, None)
        return name

    def listed(self) -> list[Listed]:
        """What there is in the folder, the one used last first."""
        return self.store.list()

    def close(self) -> None:
        """Let go of the name and of the folder."""
        self._take(None, None)
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __enter__(self) -> "KeptChat":
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    # Inside.

    def _get(self, name: str) -> Session:
        now = self.session
        try:
            with told_by_name(name):
                session = self.store.get(name, now.model, now.tokenizer, sampler=now.sampler)
        except SessionFileError as error:
            raise self._with_the_way_out(name, error) from error
        if session is None:  # evicted or deleted by another process, just now
            raise unknown(name, [one.name for one in self.listed()])
        return session

    def _with_the_way_out(self, name: str, error: SessionFileError) -> SessionFileError:
        """Fingerprints decide, but tell a reader nothing: where the model is another one, say what it was called."""
        about = {}
        if "belongs to another" in error.fault and (content := self.store.read(name)) is not None:
            about = content.about
        if not about.get("model_name"):
            return error
        weights = f" --weights {about['weights']}" if about.get("weights") else ""
        todo = f"It was kept by a chat with --model {about['model_name']}{weights}."
        return SessionFileError(error.fault, expected=error.expected, got=error.got, todo=todo)

    def _require_new(self, name: str) -> None:
        _require_kv(self.session.cache)
        require_name(name)
        if any(one.name == name for one in self.listed()) or name == self.name:
            raise InputError(f"There is already a session {name}.", expected="a new name", got=name,
                             todo=f"Choose another, or delete it first: kvcourse sessions delete {name}.")  # fmt: skip

    def _free(self, stem: str) -> str:
        """stem, or stem-2, stem-3 and so on: the first that is not taken."""
        taken = {one.name for one in self.listed()} | {self.name}
        names = [stem, *(f"{stem}-{n}" for n in range(2, len(taken) + 3))]
        return next(name for name in names if name not in taken)

    def _take(self, name: str | None, lock: "filelock.BaseFileLock | None") -> None:
        _release(self._claim)
        self.name, self._claim = name, lock


def open_chat(
    model_name: str, folder: Path, *, name: str | None = None, system: str | None = None, weights: str | None = None,
    cache: str | None = "preallocated", sampler: Sampler | Pick = greedy,
) -> KeptChat:  # fmt: skip
    """A chat with a model; with a name, the session that was kept under it, or a new one that will be.

    Raises: what KeptChat.resume raises; InputError for a system message where
    the session that goes on has another.
    """
    from kvcourse.checkpoints import load_model

    if name is not None:
        require_name(name)
        _require_kv(cache)
    session = Session(load_model(model_name, weights=weights), system=system, cache=cache, sampler=sampler)
    kept = KeptChat(session, folder, Path(model_name).name)
    try:
        if name is not None and any(one.name == name for one in kept.listed()):
            kept.resume(name)
            _require_system(kept.session, name, system)
        elif name is not None:
            kept.begin(name)
            _ = session.model.fingerprint  # reads all weights once: now, rather than after the first answer
    except BaseException:
        kept.close()
        raise
    return kept


def _require_kv(cache: object) -> None:
    if cache is None:
        raise CacheMisuse("A chat with --no-cache has no K/V to keep.", expected="a chat with a cache", got="--no-cache",
                          todo="Leave --no-cache out.")  # fmt: skip


def _require_system(session: Session, name: str, system: str | None) -> None:
    if system is not None and system != session.system:
        raise InputError(
            f"{name} began with another system message.",
            expected=repr(session.system) if session.system else "none",
            got=repr(system),
            todo="Leave --system out, or begin another session.",
        )


def _release(lock: "filelock.BaseFileLock | None") -> None:
    if lock is not None:
        with suppress(OSError):
            lock.release()
