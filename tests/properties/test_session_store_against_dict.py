"""Hypothesis drives a store beside two plain dicts, one for the disk and one for memory, with small budgets and a clock.

The dicts say what is where after every step, in which order things go, and when nothing fits; a second store on the same
folder, which keeps nothing in memory, stands for another process. Every session carries a secret of its own, so that one that
is shown under another's name, or after its time, is seen at once.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from session_helpers import Clock, assert_nothing_left, assert_session_of, files_in, session_of, small_llama

from kvcourse.errors import InputError, SessionStoreError
from kvcourse.sessions import file
from kvcourse.sessions.ram import Held, Memory
from kvcourse.sessions.store import SessionStore

EXAMPLES = 1000 if os.environ.get("KVCOURSE_FULL") == "1" else 60
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # nothing here has to outlive a power cut
MODEL = small_llama()
UNIT = file.size_bytes(session_of(MODEL, "x" * 8))  # the smallest; two more sizes take about two and three of these
TTL = 20
names = st.sampled_from("abc")
sizes = st.integers(1, 3)


class TooSmall(Exception):
    pass


class Plain:
    """What a store is: sessions as [secret, used, pinned, bytes, version], the one that goes first first."""

    def __init__(self, disk_bytes, ram_bytes, ttl, clock):
        self.disk, self.ram, self.versions = {}, {}, 0
        self.disk_bytes, self.ram_bytes, self.ttl, self.clock = disk_bytes, ram_bytes, ttl, clock

    def old(self, used, pinned):
        return self.ttl is not None and not pinned and used + self.ttl <= self.clock.now

    def on_disk(self, name):
        row = self.disk.get(name)
        return None if row is None or self.old(row["used"], row["pinned"]) else row

    def pinned(self, name, held):
        return held["pinned"] if held["pinned"] is not None else self.disk.get(name, {"pinned": False})["pinned"]

    def write(self, name, secret, size, pinned):
        free = self.disk_bytes - sum(row["bytes"] for row in self.disk.values())
        victims = []
        for other, row in sorted(self.disk.items(), key=lambda item: (item[1]["used"], [-ord(c) for c in item[0]])):
            if free < size and other != name and not row["pinned"]:
                victims.append(other)
                free += row["bytes"]
        if free < size:
            raise TooSmall
        for other in victims:
            del self.disk[other]
        keep = pinned if pinned is not None else self.disk.get(name, {"pinned": False})["pinned"]
        self.versions += 1
        self.disk[name] = dict(secret=secret, used=self.clock.now, pinned=keep, bytes=size, version=self.versions)

    def hold(self, name, secret, size, pinned, saved):
        self.ram.pop(name, None)
        version = self.disk[name]["version"] if saved else self.versions
        self.ram[name] = dict(secret=secret, used=self.clock.now, pinned=pinned, bytes=size, version=version, saved=saved)

    def forget_what_is_not_current(self):
        for name, held in list(self.ram.items()):
            version = None if name not in self.disk else self.disk[name]["version"]
            if held["version"] != version if held["saved"] else version is not None and version > held["version"]:
                del self.ram[name]

    def spill(self, name):
        held, row = self.ram[name], self.disk.get(name)
        if row is None or row["version"] <= held["version"]:
            self.write(name, held["secret"], held["bytes"], held["pinned"])
            held.update(saved=True, version=self.versions)

    def fit(self):
        while sum(held["bytes"] for held in self.ram.values()) > self.ram_bytes:
            name = next(iter(self.ram))
            if not self.ram[name]["saved"]:
                self.spill(name)
            del self.ram[name]

    def fit_copy(self, name):
        try:
            self.fit()
        except TooSmall:
            self.ram.pop(name, None)

    def put(self, name, secret, size, durable, pinned):
        if not durable and size <= self.ram_bytes:
            before = self.ram.get(name)
            self.hold(name, secret, size, pinned, False)
            try:
                self.fit()
            except TooSmall:
                self.ram.pop(name) if before is None else self.ram.update({name: before})
                raise
            return
        self.write(name, secret, size, pinned)
        self.ram.pop(name, None)
        if size <= self.ram_bytes:
            self.hold(name, secret, size, None, True)
            self.fit_copy(name)

    def get(self, name):
        row, held = self.on_disk(name), self.ram.get(name)
        if row is None and held is not None and held["saved"]:
            held = self.ram.pop(name) and None
        if held is not None and not held["saved"] and self.old(held["used"], self.pinned(name, held)):
            return None
        if held is None and row is None:
            return None
        if held is not None:
            self.ram[name] = self.ram.pop(name) | {"used": self.clock.now}
        if row is not None:
            row["used"] = self.clock.now
        if held is None and row["bytes"] <= self.ram_bytes:
            self.hold(name, row["secret"], row["bytes"], None, True)
            self.fit_copy(name)
        return (held or row)["secret"]

    def prune(self):
        gone = {name for name, row in self.disk.items() if self.old(row["used"], row["pinned"])}
        late = {
            name for name, held in self.ram.items() if not held["saved"] and self.old(held["used"], self.pinned(name, held))
        }
        for name in gone:
            del self.disk[name]
        for name in late:
            del self.ram[name]
        return sorted(gone | late)

    def listed(self):
        """name -> bytes, on disk, in memory, pinned, used."""
        found = {}
        for name in {*self.disk, *self.ram}:
            row, held = self.disk.get(name), self.ram.get(name)
            if held is not None and not held["saved"]:
                pinned = self.pinned(name, held)
                if not self.old(held["used"], pinned):
                    found[name] = held["bytes"], row is not None, True, pinned, held["used"]
            elif self.on_disk(name) is not None:
                found[name] = row["bytes"], True, held is not None, row["pinned"], row["used"]
        return found


class StoreMachine(RuleBasedStateMachine):
    @initialize(disk=st.sampled_from([2, 4, 9]), ram=st.sampled_from([0, 3, 4]), ttl=st.none() | st.just(TTL))
    def make(self, disk, ram, ttl):
        self.folder, self.clock, self.secrets = Path(tempfile.mkdtemp(dir=IN_MEMORY)), Clock(), 0
        self.options = dict(max_disk_bytes=disk * UNIT, ttl=ttl, clock=self.clock)
        self.ram_bytes = ram * UNIT
        self.store = SessionStore(self.folder, max_ram_bytes=self.ram_bytes, **self.options)
        self.elsewhere = SessionStore(self.folder, max_ram_bytes=0, **self.options)
        self.plain = Plain(disk * UNIT, self.ram_bytes, ttl, self.clock)

    def session(self, name, size):
        self.secrets += 1
        content = session_of(MODEL, f"{name}{self.secrets:06}".ljust(8 * size, "x"))
        return content.about["system"], content, file.size_bytes(content)

    def both(self, act, plain):
        """Do it in the store and in the dicts: both must agree on whether there is room."""
        self.clock.now += 1
        try:
            expected, fault = plain(), None
        except TooSmall:
            expected, fault = None, TooSmall
        if fault is None:
            got = act()
            assert expected is None or got == expected
            return
        with pytest.raises(SessionStoreError, match="too small"):
            act()

    @rule(name=names, size=sizes, durable=st.booleans(), pinned=st.none() | st.booleans())
    def put(self, name, size, durable, pinned):
        secret, content, n_bytes = self.session(name, size)
        self.both(
            lambda: self.store.put(name, content, durable=durable, pinned=pinned) and None,
            lambda: self.plain.put(name, secret, n_bytes, durable, pinned),
        )

    @rule(name=names, size=sizes)
    def put_elsewhere(self, name, size):
        secret, content, n_bytes = self.session(name, size)
        self.both(lambda: self.elsewhere.put(name, content) and None, lambda: self.plain.write(name, secret, n_bytes, None))

    @rule(name=names)
    def get(self, name):
        self.clock.now += 1
        chat, secret = self.store.get(name, MODEL), self.plain.get(name)
        assert (chat is None) == (secret is None), f"{name} is {'not there' if chat is None else chat.system}, not {secret}"
        if chat is not None:
            assert_session_of(chat, secret)

    @rule(name=names)
    def get_elsewhere(self, name):
        self.clock.now += 1
        chat, row = self.elsewhere.get(name, MODEL), self.plain.on_disk(name)
        assert (chat is None) == (row is None)
        if chat is not None:
            assert_session_of(chat, row["secret"])
            row["used"] = self.clock.now

    @rule(name=names)
    def read(self, name):
        content, row = self.store.read(name), self.plain.on_disk(name)
        assert (None if content is None else content.about["system"]) == (None if row is None else row["secret"])

    @rule(name=names)
    def delete(self, name):
        known = self.plain.disk.pop(name, None) is not None
        known |= self.plain.ram.pop(name, None) is not None
        assert self.store.delete(name) == known

    @rule(name=names)
    def delete_elsewhere(self, name):
        assert self.elsewhere.delete(name) == (self.plain.disk.pop(name, None) is not None)

    @rule(name=names, pinned=st.booleans())
    def pin(self, name, pinned):
        if name in self.plain.disk:
            self.store.pin(name, pinned)
            self.plain.disk[name]["pinned"] = pinned
        else:
            with pytest.raises(InputError):
                self.store.pin(name, pinned)

    @rule()
    def flush(self):
        def plain():
            faults = []
            for name in [name for name, held in self.plain.ram.items() if not held["saved"]]:
                try:
                    self.plain.spill(name)
                except TooSmall as fault:
                    faults.append(fault)
            if faults:
                raise faults[0]

        self.both(self.store.flush, plain)

    @rule()
    def prune(self):
        self.both(self.store.prune, self.plain.prune)

    @rule()
    def recover(self):
        self.elsewhere.recover()

    @precondition(lambda self: hasattr(self, "plain") and all(held["saved"] for held in self.plain.ram.values()))
    @rule()
    def close_and_open(self):
        self.store.close()
        self.store = SessionStore(self.folder, max_ram_bytes=self.ram_bytes, **self.options)
        self.plain.ram.clear()

    @rule(seconds=st.sampled_from([1, 7, TTL]))
    def wait(self, seconds):
        self.clock.now += seconds

    @invariant()
    def everything_is_where_the_dicts_say(self):
        if not hasattr(self, "store"):
            return
        self.plain.forget_what_is_not_current()
        listed = {one.name: (one.bytes, one.on_disk, one.in_ram, one.pinned, one.used) for one in self.store.list()}
        assert listed == self.plain.listed()
        assert sum(one.bytes for one in self.store.list() if one.in_ram) <= self.ram_bytes
        assert_nothing_left(self.folder, self.plain.disk_bytes)
        assert sum(path.stat().st_size for path in files_in(self.folder)) == sum(r["bytes"] for r in self.plain.disk.values())

    def teardown(self):
        if hasattr(self, "store"):
            for name in list(self.plain.ram):
                self.store.delete(name)
            self.store.close()
            self.elsewhere.close()
            assert list((self.folder / "locks").iterdir()) == []
            shutil.rmtree(self.folder)


def test_any_sequence_of_operations_leaves_a_store_equal_to_two_dicts():
    run_state_machine_as_test(StoreMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=40))


def served_stale(patch):
    patch.setattr(Held, "is_current", lambda held, version: True)


def oldest_stays(patch):
    patch.setattr(Memory, "touch", lambda memory, name, now: None)


def pins_are_forgotten(patch):
    def write(store, name, content, pinned, *rest, _write=SessionStore._write):
        return _write(store, name, content, bool(pinned), *rest)

    patch.setattr(SessionStore, "_write", write)


def what_has_no_room_in_memory_is_lost(patch):
    patch.setattr(SessionStore, "_spill", lambda store, name, held: None)


def one_session_too_many_is_evicted(patch):
    def make_room(store, name, n_bytes, _make_room=SessionStore._make_room):
        _make_room(store, name, n_bytes)
        for row in [row for row in store._index.all() if row.name != name and not row.pinned][-1:]:
            store._index.forget(row.name)

    patch.setattr(SessionStore, "_make_room", make_room)


def what_expired_is_found(patch):
    patch.setattr(SessionStore, "_is_old", lambda store, held, row: False)


FAULTS = [
    served_stale, oldest_stays, pins_are_forgotten, what_has_no_room_in_memory_is_lost, one_session_too_many_is_evicted,
    what_expired_is_found,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_machine_notices_a_broken_store(fault, monkeypatch):
    fault(monkeypatch)
    search = settings(phases=[Phase.generate], database=None, print_blob=False, max_examples=400, stateful_step_count=40,
                      derandomize=True)  # fmt: skip
    with pytest.raises((Exception, pytest.fail.Exception)):  # whatever a broken store does first
        run_state_machine_as_test(StoreMachine, settings=search)
