"""Two who use a store at the same moment see what they would see one after the other, whichever goes first.

Chance finds such faults once in a hundred runs; here one act is held up at each of its steps in turn, while the other happens.
"""

import itertools
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from session_helpers import random_file
from thread_helpers import LONGEST_WAIT_S

from kvcourse.errors import InputError
from kvcourse.sessions import file
from kvcourse.sessions.store import SessionStore

SIZE = file.size_bytes(random_file("secret 0"))

ACTS: dict[str, Callable[[SessionStore, str], Any]] = {
    "put on disk": lambda store, me: store.put("a", random_file(f"secret {me}")).name,
    "put in memory": lambda store, me: store.put("a", random_file(f"secret {me}"), durable=False).name,
    "put another, for which it makes room": lambda store, me: store.put(me, random_file("another ")).name,
    "get": lambda store, me: said(store),
    "delete": lambda store, me: store.delete("a"),
    "list": lambda store, me: {one.name for one in store.list()},
    "flush": lambda store, me: store.flush(),
    "pin": lambda store, me: pinned(store),
}
WRITES = ["put on disk", "put in memory", "delete", "flush"]
READS = {"get", "list", "pin"}
BEFORE: dict[str, Callable[[SessionStore], Any]] = {
    "nothing": lambda store: None,
    "on disk and in memory": lambda store: store.put("a", random_file("secret 0")),
    "in memory only": lambda store: store.put("a", random_file("secret 0"), durable=False),
    "an older one on disk": lambda store: [store.put("a", random_file(f"secret {n}"), durable=n == 8) for n in (8, 9)],
    "on disk only": lambda store: put_by_another(store.folder),
}


def put_by_another(folder):
    with SessionStore(folder) as store:
        store.put("a", random_file("secret 0"))


def said(store):
    session = store.get("a", None)
    return None if session is None else session.about["system"]


def pinned(store):
    try:
        return store.pin("a")
    except InputError:
        return "there is none"


class Watched:
    """A part of a store that calls `step` after each call from outside."""

    def __init__(self, part, step):
        self._part, self._step = part, step

    def __getattr__(self, name):
        inner = getattr(self._part, name)
        if not callable(inner):
            return inner

        def outer(*args, **options):
            try:
                return inner(*args, **options)
            finally:
                self._step()

        return outer


class Meanwhile:
    """Runs `other` in a thread of its own at the `at`-th step of the thread that made this. A transaction is one step."""

    def __init__(self, store, other, at):
        self.other, self.at, self.steps, self.answer = other, at, 0, None
        self.index, self.thread, self.owner = store._index, None, threading.get_ident()
        for part in ("_ram", "_index"):
            setattr(store, part, Watched(getattr(store, part), self.step))
        store._folder.index = Watched(store._folder.index, self.step)

    def step(self):
        if threading.get_ident() != self.owner or self.index._db.in_transaction:
            return
        if self.steps == self.at:
            self.run()
        self.steps += 1

    def end(self):
        """What is called from now on is no step of the act; the other is over, too."""
        self.owner = None
        self.run()

    def run(self):
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, daemon=True)
            self.thread.start()
            self.thread.join(LONGEST_WAIT_S)
            assert not self.thread.is_alive(), "they wait for each other"

    def _run(self):
        try:
            self.answer = self.other()
        except BaseException as fault:
            self.answer = fault


@pytest.fixture
def quick(monkeypatch):
    """No bytes have to outlive a power cut here, and what comes from a file need not become a Session."""
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr("kvcourse.sessions.saved.from_file", lambda content, *rest, **options: content)


class Users:
    """One store that both use, or two on one folder; then nothing has to move to disk but by what they do."""

    def __init__(self, folder, before, shared):
        self.folder = folder
        self.stores = [SessionStore(folder, max_ram_bytes=SIZE * 3 // 2 if shared else 9 * SIZE) for _ in range(2 - shared)]
        for store in self.stores:
            store._index._db.execute("PRAGMA synchronous=OFF")
        self.one, self.other = self.stores[0], self.stores[-1]
        BEFORE[before](self.one)

    def found(self):
        """What everybody sees in the end, and what is there when all have gone."""
        seen = tuple(said(store) for store in reversed(self.stores))
        for store in reversed(self.stores):
            store.close()
        with SessionStore(self.folder) as store:
            return seen, said(store), {one.name for one in store.list()}


def in_turn(users, act, other, other_first):
    """What both were told, and what is found: one after the other."""
    early = other(users.other) if other_first else None
    told = act(users.one)
    return told, early if other_first else other(users.other), users.found()


def at_once(users, act, other, at):
    """The same, the other at the `at`-th step of the one; and how many steps there were."""
    meanwhile = Meanwhile(users.one, lambda: other(users.other), at)
    told = act(users.one)
    meanwhile.end()
    return (told, meanwhile.answer, users.found()), meanwhile.steps


@pytest.mark.parametrize("shared", [True, False], ids=["one store", "two stores on one folder"])
@pytest.mark.parametrize("before", BEFORE)
def test_two_at_once_see_what_they_would_see_one_after_the_other(before, shared, tmp_path, quick, full_counts):
    numbers, wrong, n_steps = itertools.count(), [], 0

    def users():
        return Users(tmp_path / f"{next(numbers)}", before, shared)

    pairs = product(ACTS, ACTS) if shared or full_counts else product(WRITES, WRITES)
    for x, y in pairs if full_counts else [pair for pair in pairs if not {*pair} <= READS]:
        act, other = (lambda store, x=x: ACTS[x](store, "1")), (lambda store, y=y: ACTS[y](store, "2"))
        allowed = [in_turn(users(), act, other, other_first) for other_first in (False, True)]
        at, steps = 0, 1
        while at < steps:
            got, steps = at_once(users(), act, other, at)
            if got not in allowed:
                wrong.append(f"{x}, and at its step {at} {y}: {got}, and neither of {allowed}")
            at += 1
        n_steps += steps
    assert not wrong, "\n".join(wrong)
    assert n_steps > 50
