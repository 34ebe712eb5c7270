"""Many sessions, two budgets, any number of threads and processes, and a kill at any moment: nothing is lost or mixed up.

What every store keeps is claimed in session_helpers.CLAIMS, which tests/mutants/sessions runs; here it is in company.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import small_models as small_models
from session_helpers import (
    Clock,
    assert_is,
    assert_nothing_left,
    assert_session_of,
    busy,
    chatted,
    files_in,
    random_file,
    refused,
    rows_of,
    session_of,
    small_llama,
    talkative,
)
from thread_helpers import LONGEST_WAIT_S, in_threads

from kvcourse.errors import InputError, SessionStoreError
from kvcourse.sessions import file
from kvcourse.sessions import store as store_module
from kvcourse.sessions.index import Index
from kvcourse.sessions.store import SessionStore

pytestmark = pytest.mark.usefixtures("small_models")
TESTS = Path(__file__).parents[1]
SIZE = file.size_bytes(random_file("secret 00"))


@pytest.fixture(scope="module")
def model():
    return small_llama()


def names(store):
    return "".join(sorted(one.name for one in store.list()))


# Alone.


def test_a_session_comes_back_from_memory_and_from_disk_as_it_was_put(model, tmp_path):
    chat = chatted(model)
    with SessionStore(tmp_path) as store, SessionStore(tmp_path, max_ram_bytes=0) as other:
        listed = store.put("a", chat)
        assert listed == store.list()[0] and (listed.tokens, listed.on_disk, listed.in_ram) == (len(chat.tokens), True, True)
        assert other.list()[0] == listed._replace(in_ram=False)
        assert "a" in store and "b" not in store and store.get("b", model) is None
        for one in (store, other):
            got, twin = (one.get("a", model, sampler=talkative(model)) for _ in range(2))
            assert (got.tokens, got.turns) == (chat.tokens, chat.turns)
            got.send("more", max_new_tokens=3)
            twin.rewind(2)
            assert one.get("a", model).tokens == chat.tokens, "what comes out is the caller's own"
        chat.send("later", max_new_tokens=3)
        assert store.get("a", model).tokens == chat.tokens[: listed.tokens], "what was said later was not put"
    with SessionStore(tmp_path) as store:
        assert store.get("a", model).tokens == chat.tokens[: listed.tokens]


@pytest.mark.parametrize("option", ["max_ram_bytes", "max_disk_bytes", "ttl"])
@pytest.mark.parametrize("value", [-1, True])
def test_amounts_that_are_none_are_refused(tmp_path, option, value):
    refused(lambda: SessionStore(tmp_path / "a", **{option: value}), InputError)
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_does_not_fit_is_refused_and_everything_stays(tmp_path):
    with SessionStore(tmp_path, max_disk_bytes=3 * SIZE, max_ram_bytes=2 * SIZE) as store:
        for name in "ab":
            store.put(name, random_file("secret 00"))
        large = random_file("large", 4 * SIZE)
        for durable in (True, False):
            for name in "ac":
                assert "too small" in refused(lambda d=durable, n=name: store.put(n, large, durable=d), SessionStoreError)
        assert names(store) == "ab" and store.delete("c") is False
        store.pin("a")
        store.pin("b")
        assert "beside what is pinned" in refused(lambda: store.put("c", random_file("c", 2000)), SessionStoreError)
        assert "beside its earlier version" in refused(lambda: store.put("a", random_file("a", 2000)), SessionStoreError)
        for name in "ab":
            assert_is(store.read(name), "secret 00")
        refused(lambda: store.pin("no such"), InputError)
        assert_nothing_left(tmp_path, 3 * SIZE)


def test_what_was_only_in_memory_is_restored_when_its_successor_finds_no_room(tmp_path, model):
    size = file.size_bytes(session_of(model, "secret"))
    with SessionStore(tmp_path, max_disk_bytes=size + 9, max_ram_bytes=3 * size) as store:
        store.put("pinned", session_of(model, "pinned"), pinned=True)
        for name in "abc":
            store.put(name, session_of(model, "secret"), durable=False)
        for name in "bcd":  # of these two would fit, and a has to go
            longer = session_of(model, "secret" * 2)
            assert "too small" in refused(lambda n=name, s=longer: store.put(n, s, durable=False), SessionStoreError)
        for name in "ad":  # not even alone
            large = session_of(model, "secret" * 4)
            assert "too small" in refused(lambda n=name, s=large: store.put(n, s, durable=False), SessionStoreError)
        assert names(store) == "abcpinned" and [one.in_ram for one in store.list()].count(True) == 3
        for name in "abc":
            assert_session_of(store.get(name, model), "secret")
        assert_session_of(store.get("pinned", model), "pinned")
        for name in "abc":
            store.delete(name)


def test_what_has_no_room_in_memory_goes_to_disk_and_moves_nobody(tmp_path):
    with SessionStore(tmp_path, max_ram_bytes=2 * SIZE) as store:
        store.put("a", random_file("a", 800), durable=False)
        for durable in (True, False):
            store.put("large", random_file("large", 4000), durable=durable)
            assert {one.name: (one.on_disk, one.in_ram) for one in store.list()} == {"a": (False, True), "large": (True, False)}
        store.put("large", random_file("small", 80), durable=False)
        store.put("large", random_file("large", 4000))
        assert_is(store.read("large"), "large")


def test_a_copy_in_memory_never_costs_an_error(tmp_path, model):
    """Memory is full of what fits nowhere else; a durable put, and a get, do without a copy there."""
    chat = chatted(model, turns=1)
    with SessionStore(tmp_path / "measure") as store:
        size = store.put("a", chat).bytes
    with SessionStore(tmp_path / "store", max_disk_bytes=2 * size, max_ram_bytes=size) as store:
        store.put("pinned", chat, pinned=True)
        store.put("a", chat, pinned=True)
        store.put("only here", random_file("only here", size - 400), durable=False)
        assert store.get("a", model).tokens == chat.tokens
        assert {one.name: one.in_ram for one in store.list()} == {"pinned": False, "a": False, "only here": True}
        refused(store.flush, SessionStoreError)
        refused(store.close, SessionStoreError)
        store.pin("a", False)
        store.flush()
        assert [one.on_disk for one in store.list()] == [True, True]
        assert_is(store.read("only here"), "only here")


def test_a_flush_writes_all_that_can_be_written(tmp_path):
    with SessionStore(tmp_path, max_disk_bytes=3 * SIZE) as store:
        for name in ("large", "small", "little"):
            store.put(name, random_file(name, 4 * SIZE if name == "large" else 900), durable=False)
        assert "too small" in refused(store.flush, SessionStoreError)
        assert sorted(rows_of(tmp_path)) == ["little", "small"]
        store.delete("large")


def test_evicting_an_old_file_keeps_what_is_newer_in_memory(tmp_path):
    """The disk's version of a goes; the one that is only in memory is another."""
    with SessionStore(tmp_path, max_disk_bytes=2 * SIZE) as store:
        store.put("a", random_file("secret 01"))
        store.put("a", random_file("secret 02"), durable=False)
        for name in "bcd":
            store.put(name, random_file("secret 03"))
        assert names(store) == "acd" and sorted(rows_of(tmp_path)) == ["c", "d"]
        store.flush()
        assert_is(store.read("a"), "secret 02")


def test_a_pin_given_in_memory_reaches_the_disk(tmp_path):
    clock = Clock()
    with SessionStore(tmp_path, ttl=10, clock=clock) as store:
        store.put("a", random_file("a"), durable=False, pinned=True)
        store.put("b", random_file("b"), durable=False)
        assert [one.pinned for one in store.list()] == [True, False]
        clock.now += 20
        assert names(store) == "a"
        assert store.prune() == ["b"]
        store.flush()
        store.put("a", random_file("again"))
        assert store.list()[0].pinned, "as before"
        store.put("a", random_file("again"), pinned=False)
        clock.now += 20
        assert names(store) == "" and store.prune() == ["a"]
        assert_nothing_left(tmp_path, 0)


def test_what_expired_in_memory_does_not_uncover_what_it_replaced(tmp_path, model):
    clock, chat = Clock(), chatted(model, turns=1)
    with SessionStore(tmp_path, ttl=10, clock=clock) as store, SessionStore(tmp_path, ttl=10, clock=clock) as other:
        store.put("a", chat)
        store.put("a", chatted(model, turns=2), durable=False)
        clock.now += 9
        assert other.get("a", model).tokens == chat.tokens
        clock.now += 2
        assert store.get("a", model) is None
        store.delete("a")


def test_a_prune_never_takes_what_was_used_meanwhile(tmp_path, monkeypatch):
    """Between looking and deleting another process may use it: the two are one transaction."""
    clock = Clock()
    with SessionStore(tmp_path, ttl=10, clock=clock) as store, SessionStore(tmp_path, ttl=10, clock=clock) as other:
        store.put("a", random_file("a"))
        clock.now += 11
        looked = Index.all

        def looks_and_is_overtaken(index):
            rows = looked(index)
            done = threading.Event()
            threading.Thread(target=lambda: (other.put("a", random_file("new")), done.set()), daemon=True).start()
            assert not done.wait(0.3), "nobody else gets in between"
            overtaking.append(done)
            return rows

        overtaking = []
        monkeypatch.setattr(Index, "all", looks_and_is_overtaken)
        pruned = store.prune()
        monkeypatch.setattr(Index, "all", looked)
        assert overtaking[0].wait(LONGEST_WAIT_S) and pruned == ["a"]
        assert_is(other.read("a"), "new")


def test_a_damaged_file_is_told_and_the_store_goes_on(tmp_path, model):
    chat = chatted(model, turns=1)
    with SessionStore(tmp_path, max_ram_bytes=0) as store:
        for name in "ab":
            store.put(name, chat)
        damaged = tmp_path / "files" / rows_of(tmp_path)["a"]
        damaged.write_bytes(damaged.read_bytes()[:-1])
        for act in (lambda: store.get("a", model), lambda: store.read("a")):
            assert "truncated" in refused(act)
        damaged.unlink()
        assert "cannot be read" in refused(lambda: store.get("a", model))
        assert names(store) == "ab", "it stays where it is: somebody may have another copy"
        assert store.get("b", model).tokens == chat.tokens
        store.put("a", chat)
        assert store.get("a", model).tokens == chat.tokens
        assert_nothing_left(tmp_path)


def test_a_model_that_a_session_is_not_of_is_refused_from_memory_too(tmp_path, model):
    chat = chatted(model, turns=1)
    with SessionStore(tmp_path) as store:
        store.put("a", chat)
        store.put("b", chat, durable=False)
        for name in "ab":
            assert "another model" in refused(lambda name=name: store.get(name, small_llama(seed=1)))
            assert store.get(name, model).tokens == chat.tokens


def test_a_folder_that_is_none_and_an_index_that_is_none_are_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "cannot be opened" in refused(lambda place=place: SessionStore(place), SessionStoreError)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "index.sqlite").write_bytes(b"no database at all" * 99)
    assert "index fails" in refused(lambda: SessionStore(broken), SessionStoreError)
    assert list((broken / "locks").iterdir()) == [], "and no lock is left behind"
    (broken / "index.sqlite").unlink()
    with SessionStore(broken) as store:
        store.put("a", random_file("a"))
        (broken / "files" / "somebody's.txt").write_text("x")
        (broken / "files" / f"{'e' * 32}.session").mkdir()
        store.recover()
        assert len(files_in(broken)) == 3, "what this package has not written, or cannot delete, stays"
    assert "index fails" in refused(lambda: store.list(), SessionStoreError)
    with SessionStore(broken) as store:
        assert names(store) == "a"


def test_a_read_only_folder_is_refused(tmp_path, monkeypatch):
    """Root may write everywhere, so the refusal is made here: first for the whole folder, then for its files."""
    with SessionStore(tmp_path / "store") as store:
        store.put("a", random_file("a"))

        def refuses(*args, **options):
            raise PermissionError(13, "Permission denied")

        with monkeypatch.context() as closed:
            closed.setattr(file, "open", refuses, raising=False)
            assert "Permission denied" in refused(lambda: store.put("b", random_file("b")))
        with monkeypatch.context() as closed:
            closed.setattr(Path, "mkdir", refuses)
            assert "Permission denied" in refused(lambda: SessionStore(tmp_path / "other"), SessionStoreError)
        with monkeypatch.context() as closed:
            closed.setattr(Path, "unlink", refuses)
            assert store.delete("a"), "its file stays on the list of what is to be deleted"
        assert names(store) == "" and len(files_in(tmp_path / "store")) == 1
        store.put("c", random_file("c"))
        assert_nothing_left(tmp_path / "store")


def test_a_store_can_be_closed_by_another_thread_than_the_one_that_opened_it(tmp_path):
    store = SessionStore(tmp_path)
    store.put("a", random_file("a"), durable=False)
    thread = threading.Thread(target=store.close)
    thread.start()
    thread.join(LONGEST_WAIT_S)
    assert list((tmp_path / "locks").iterdir()) == []
    opened = []
    thread = threading.Thread(target=lambda: opened.append(SessionStore(tmp_path)))
    thread.start()
    thread.join(LONGEST_WAIT_S)
    with SessionStore(tmp_path) as second:
        assert len(list((tmp_path / "locks").iterdir())) == 2, "the thread is gone, its store is not"
        assert_is(second.read("a"), "a")
    opened[0].close()
    assert list((tmp_path / "locks").iterdir()) == []


def test_what_another_store_has_deleted_was_not_there_any_more(tmp_path):
    """A copy in memory is no session: its file is gone."""
    with SessionStore(tmp_path) as store, SessionStore(tmp_path) as other:
        store.put("a", random_file("secret 0"))
        assert other.delete("a") and not store.delete("a")


# Two at once, in an order that is forced.


def paused(monkeypatch, at, during):
    """Run `during` once, to its end, in a thread of its own, at the moment when `at` is called."""
    original, done = getattr(*at), []

    def overtaken(*args, **options):
        if not done:
            done.append(True)
            in_threads(1, lambda _: during())
        return original(*args, **options)

    monkeypatch.setattr(*at, overtaken)
    return done


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_put_while_an_older_one_is_moved_to_disk_wins(tmp_path, monkeypatch, durable):
    with SessionStore(tmp_path) as store:
        store.put("a", random_file("old"), durable=False)
        done = paused(monkeypatch, (Index, "commit"), lambda: store.put("a", random_file("new"), durable=durable))
        store.flush()
        assert done
        store.flush()
        assert_is(store.read("a"), "new")
        assert_nothing_left(tmp_path)


def test_what_is_deleted_while_it_is_moved_to_disk_stays_deleted(tmp_path, monkeypatch):
    with SessionStore(tmp_path) as store:
        store.put("a", random_file("old"), durable=False)
        done = paused(monkeypatch, (Index, "commit"), lambda: store.delete("a"))
        store.flush()
        assert done and names(store) == "" and store.read("a") is None
        assert_nothing_left(tmp_path, 0)


def test_what_is_put_while_an_older_one_is_read_is_not_covered_by_it(tmp_path, monkeypatch, model):
    chat, longer = chatted(model, turns=1), chatted(model, turns=2)
    with SessionStore(tmp_path) as other:
        other.put("a", chat)
    with SessionStore(tmp_path) as store:
        done = paused(monkeypatch, (Index, "version"), lambda: store.put("a", longer, durable=False))
        assert store.get("a", model).tokens == chat.tokens
        assert done and store.get("a", model).tokens == longer.tokens


def test_what_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    with SessionStore(tmp_path) as store:
        store.put("a", random_file("old"))
        done = paused(monkeypatch, (store._folder, "of"), lambda: None)
        looked = Index.get

        def overtaken(index, name):
            row = looked(index, name)
            monkeypatch.setattr(Index, "get", looked)
            store.put("a", random_file("new"))
            return row

        monkeypatch.setattr(Index, "get", overtaken)
        assert_is(store.read("a"), "new")
        assert done


def test_files_are_evicted_and_memory_is_used_while_a_session_is_moved_to_disk(tmp_path, monkeypatch):
    """Whoever writes a file holds up nobody."""
    store = SessionStore(tmp_path, max_ram_bytes=2 * SIZE, max_disk_bytes=7 * SIZE)
    for name in "tuvwxyz":
        store.put(name, random_file("secret 00"))

    def meanwhile():
        store.put("n", random_file("secret 01"))
        assert "n" in names(store) and "t" not in names(store) and store.delete("z")
        store.put("m", random_file("secret 02"), durable=False)

    for name in "ab":
        store.put(name, random_file("secret 03"), durable=False)
    done = paused(monkeypatch, (store_module, "write"), meanwhile)
    store.put("c", random_file("secret 04"), durable=False)
    assert done
    store.close()
    with SessionStore(tmp_path) as store:
        assert_is(store.read("n"), "secret 01")
        assert_is(store.read("c"), "secret 04")


def test_memory_and_index_never_wait_for_each_other(tmp_path):
    """One moves sessions out of memory while the other evicts files: each needs what the other may be holding."""
    store = SessionStore(tmp_path, max_ram_bytes=2 * SIZE, max_disk_bytes=4 * SIZE)

    def work(thread):
        for number in range(60):
            store.put(f"{thread}{number % 4}", random_file(f"secret {thread}{number % 10}"), durable=thread == 0)

    in_threads(2, work)
    store.close()  # only now: threads that wait for each other would have this one wait, too
    assert_nothing_left(tmp_path, 4 * SIZE)


# A kill at any moment.


WRITER = """
import os, random, sys
sys.path.insert(0, {tests!r})
from session_helpers import random_file
from kvcourse.sessions.store import SessionStore
assert "torch" not in sys.modules and "numpy" not in sys.modules, "the writer is to be light"
rng = random.Random({seed})
store = SessionStore({folder!r}, max_disk_bytes={budget}, max_ram_bytes=20_000)
def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())
say("ready")
for number in range(10**9):
    name = rng.choice({names!r})
    if rng.random() < 0.15:
        say("deleting", name, "-")
        store.delete(name)
        say("deleted", name, "-")
    else:
        secret = f"{{name}}/{seed}/{{number}}"
        durable = rng.random() < 0.85
        say("putting" if durable else "keeping", name, secret)
        store.put(name, random_file(secret, rng.randrange(8, 40_000) // 8 * 8), durable=durable)
        say("put" if durable else "kept", name, secret)
"""
NAMES = ("ab", "cd", "ef", "gh")
ROOMY, TIGHT = 400_000, 100_000  # room for all four and the next; for two of the largest


def killed_writer(folder, seed, budget, wait_s):
    """Run the writer, kill it after a while, and return what it has reported."""
    code = WRITER.format(tests=str(TESTS), folder=str(folder), seed=seed, budget=budget, names=NAMES)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # Unbuffered: readline would take lines behind the first one with it, and communicate reads behind its back.
    with subprocess.Popen([sys.executable, "-c", code], bufsize=0, **pipes) as writer:
        assert writer.stdout.readline() == b"ready\n", writer.stderr.read().decode()
        time.sleep(wait_s)
        writer.send_signal(signal.SIGKILL)
        out, err = writer.communicate(timeout=LONGEST_WAIT_S)
    assert writer.returncode == -signal.SIGKILL, err.decode()
    return [line.split(" ") for line in out.decode().splitlines()]


def may_be_there(before, lines):
    """name -> the secrets of which one must be on disk, None among them if nothing may be. before: what was there at first."""
    allowed = {name: {secret} for name, secret in before.items()}
    for said, name, secret in lines:
        if said in ("putting", "keeping"):  # it may count by now; what is only in memory may be moved to disk at any time
            allowed[name].add(secret)
        elif said == "put":
            allowed[name] = {secret}
        elif said == "deleting":
            allowed[name].add(None)
        elif said == "deleted":
            allowed[name] = {None}
    return allowed


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_writer_killed_at_any_moment_loses_nothing_that_it_has_reported(tmp_path, full_counts):
    rng, reports, half_done, folder = random.Random(11), 0, 0, tmp_path / "store"
    found = dict.fromkeys(NAMES)
    for kill in range(200 if full_counts else 20):
        budget = TIGHT if kill % 4 == 3 else ROOMY
        lines = killed_writer(folder, kill, budget, rng.uniform(0, 0.25))
        reports += len(lines)
        half_done += bool(lines) and lines[-1][0] in ("putting", "deleting")
        allowed = may_be_there(found, lines)
        if budget == TIGHT:
            allowed = {name: secrets | {None} for name, secrets in allowed.items()}  # others may have had the room since
        with SessionStore(folder, max_disk_bytes=budget) as store:
            for name in NAMES:
                content = store.read(name)
                found[name] = None if content is None else content.about["system"]
                assert content is None or assert_is(content, found[name]) is None
            assert all(found[name] in allowed[name] for name in NAMES), f"kill {kill}: {found}, and not one of {allowed}"
            assert [one.name for one in sorted(store.list())] == [name for name in NAMES if found[name]]
            shrunk = budget == ROOMY or any(said == "put" for said, _, _ in lines)  # room is made by whoever needs it
            assert_nothing_left(folder, budget if shrunk else ROOMY)
            assert len(list((folder / "locks").iterdir())) == 1, "locks of the dead"
    assert reports > 20 and half_done > 2, "the kills have to come in the middle"


def test_what_may_be_there_after_a_kill_is_told_from_what_may_not():
    """The judge is judged."""
    lines = [line.split(" ") for line in ("putting a 1", "put a 1", "keeping a 2", "kept a 2", "deleting b -", "putting c 3")]
    assert may_be_there({"a": None, "b": "0", "c": None, "d": "9"}, lines) == {
        "a": {"1", "2"}, "b": {"0", None}, "c": {None, "3"}, "d": {"9"}}  # fmt: skip
    lines += [line.split(" ") for line in ("put a 4", "deleted b -")]
    assert may_be_there({"a": None, "b": "0", "c": None}, lines) == {"a": {"4"}, "b": {None}, "c": {None, "3"}}


# Many threads, many processes.


@pytest.fixture
def many_switches():
    """Threads take turns a thousand times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("budget", ["roomy", "tight"])
def test_eight_threads_on_one_store_lose_nothing_and_show_nobody_another_s(tmp_path, model, many_switches, budget):
    size = file.size_bytes(session_of(model, "shared-0/thread-0/000"))
    max_disk_bytes = 2**30 if budget == "roomy" else 12 * size
    store = SessionStore(tmp_path, max_disk_bytes=max_disk_bytes, max_ram_bytes=6 * size)
    held = {}
    in_threads(
        8,
        lambda n: held.update(
            busy(store, model, f"thread-{n}", 2000 // 8 if budget == "roomy" else 60, may_vanish=budget == "tight")
        ),
    )
    assert sum(one.bytes for one in store.list() if one.in_ram) <= 6 * size
    store.close()
    require_kept(tmp_path, model, held, max_disk_bytes, may_vanish=budget == "tight")


def require_kept(folder, model, held, max_disk_bytes, may_vanish=False):
    """Everybody's last word is there, and nothing else."""
    assert list((folder / "locks").iterdir()) == []
    assert_nothing_left(folder, max_disk_bytes)
    with SessionStore(folder, max_disk_bytes=max_disk_bytes, max_ram_bytes=0) as store:
        there = {one.name for one in store.list()}
        for name, secret in held.items():
            chat = store.get(name, model)
            assert (chat is None) == (name not in there)
            if chat is None:
                assert secret is None or may_vanish, f"{name} is lost"
            else:
                assert_session_of(chat, secret)
        for name in there - set(held):
            chat = store.get(name, model)
            assert_session_of(chat, chat.system)
            assert chat.system.startswith(f"{name}/") and name.startswith("shared-")


USER = """
import json, sys
sys.path.insert(0, {tests!r})
from concurrent.futures import ThreadPoolExecutor
import torch
from helpers import make_model
from session_helpers import busy, small_llama
from kvcourse.sessions.store import SessionStore
torch.set_num_threads(1)
model, held = small_llama(), {{}}
print("ready", flush=True)
sys.stdin.readline()
store = SessionStore({folder!r}, max_disk_bytes={max_disk_bytes}, max_ram_bytes={max_ram_bytes})
with ThreadPoolExecutor(8) as threads:
    users = [threads.submit(busy, store, model, f"{who}-{{n}}", {n_steps}, may_vanish={may_vanish}) for n in range(8)]
    for user in users:
        held.update(user.result())
store.close()
print(json.dumps(held))
"""


@pytest.mark.parametrize("budget", ["roomy", "tight"])
def test_four_processes_of_eight_threads_lose_nothing_and_show_nobody_another_s(tmp_path, model, budget):
    """2,000 operations, all of them at once: four processes open the folder, which is not there yet, at the same moment."""
    size, folder, held = file.size_bytes(session_of(model, "shared-0/process-0-0/000")), tmp_path / "store", {}
    max_disk_bytes = 2**30 if budget == "roomy" else 50 * size  # 32 may be on their way at the same time
    users = []
    for number in range(4):
        code = USER.format(tests=str(TESTS), folder=str(folder), max_disk_bytes=max_disk_bytes, max_ram_bytes=4 * size,
                           who=f"process-{number}", n_steps=2000 // 32 if budget == "roomy" else 30,
                           may_vanish=budget == "tight")  # fmt: skip
        users.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for user in users:
            assert user.stdout.readline() == "ready\n"
        for user in users:
            user.stdin.write("go\n")
            user.stdin.flush()
        for user in users:
            out, _ = user.communicate(timeout=LONGEST_WAIT_S)
            assert user.returncode == 0, "its own message stands above"
            held.update(json.loads(out))
    finally:
        for user in users:
            user.kill()
            user.communicate()
    assert len(held) == 4 * 8 * 2
    require_kept(folder, model, held, max_disk_bytes, may_vanish=budget == "tight")


def test_stores_opened_at_once_in_a_new_folder_all_open(tmp_path):
    """SQLite refuses at once, without waiting, where two change a new file's mode."""
    for attempt in range(10):
        stores = {}

        def opened(n, attempt=attempt, stores=stores):
            stores[n] = SessionStore(tmp_path / f"{attempt}")
            stores[n].put(f"{n}", random_file(f"secret {n}"))

        in_threads(8, opened)
        assert names(stores[0]) == "01234567"
        for store in stores.values():
            store.close()
        assert_nothing_left(tmp_path / f"{attempt}")
