"""What the tests of sessions share: a small chat model, files made by hand, and the claims that sessions and stores keep.

Nothing here imports PyTorch before it is needed: the process that is killed over and over imports this module, too. A claim
takes an empty folder and raises if it does not hold. `CLAIMS` together are the definition of "sessions survive";
tests/mutants/sessions shows that each broken one breaks the claim it should.
"""

import hashlib
import json
import os
import random
import sqlite3
import struct
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from kvcourse.errors import InputError, KVCourseError, SessionFileError, SessionStoreError
from kvcourse.sessions import file
from kvcourse.sessions.file import Rows, SessionFile

QUESTIONS = ["where is the red cup ?", "who took it ?", "tell me now ."]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
KINDS = ("growing", "preallocated", "paged", None)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


# Models and conversations.


def tokenizer(template=TEMPLATE, merges=(("a", "b"),)):
    """Byte pairs, a chat template, and an end of turn."""
    from kvcourse.tokenizers import BPETokenizer, ChatTemplate

    words = [*BPETokenizer.alphabet(), *("".join(pair) for pair in merges)]
    vocab = {word: i for i, word in enumerate(words)}
    special = ["<|im_start|>", "<|im_end|>"]
    return BPETokenizer(vocab, list(merges), special=special, chat=ChatTemplate(template), stop=special[1:])


def small_llama(seed=0, context_length=640, **changes):
    """A few thousand random weights, float64, grouped heads, with a tokenizer that can chat."""
    from helpers import make_model

    model = make_model("llama", seed=seed, vocab_size=259, context_length=context_length, **changes)
    model.tokenizer = tokenizer()
    return model


def talkative(model):
    """Greedy, but for the end of a turn, which never comes: replies have the length that is asked for."""
    import torch

    from kvcourse.sampling import greedy

    def pick(logits):
        logits = logits.clone()
        logits[list(model.tokenizer.stop_ids)] = -torch.inf
        return greedy(logits)

    return pick


def chatted(model, turns=2, cache="preallocated", **options):
    """A conversation of some turns."""
    from kvcourse.sessions.session import Session

    chat = Session(model, cache=cache, sampler=talkative(model), **options)
    for question in (QUESTIONS * turns)[:turns]:
        chat.send(question, max_new_tokens=5)
    return chat


def seen(chat):
    """Everything that can be seen of a session, as plain values."""
    cache = chat.cache
    rows = [] if cache is None else [
        [t.tolist() for t in cache.read(layer, cache.length - min(cache.held, 3), cache.length)]
        for layer in range(chat.model.config.n_layer) if cache.length
    ]  # fmt: skip
    length = None if cache is None else (cache.length, cache.held)
    return chat.tokens, chat.messages, list(chat.turns), list(chat.ledger), length, rows


def assert_as_fresh(chat):
    """The session goes on as a computation of the same ids that has never heard of caches: logits, and K/V of every row."""
    import torch
    from helpers import assert_close, keys_and_values, uncached

    ids = torch.tensor([[*chat.tokens, 7]])
    cache = chat.cache.fork()
    held = cache.length
    assert held in (len(chat.tokens) - 1, len(chat.tokens)), f"{held} rows for {len(chat.tokens)} ids"
    for layer, rows in enumerate(keys_and_values(chat.model, ids[:, :held])) if held else ():
        for name, stored, computed in zip("KV", cache.read(layer, 0, held), rows, strict=True):
            assert_close(stored, computed, f"{name} of layer {layer}")
    assert_close(chat.model(ids[:, held:], cache=cache), uncached(chat.model, ids)[:, held:], "logits of what comes next")


# Files made by hand.


def random_rows(seed, shape=(3, 2, 2, 5, 6), dtype="F64"):
    """K/V of no model at all."""
    size = file.ITEMSIZE[dtype]
    for n in shape:
        size *= n
    return Rows(dtype, shape, (memoryview(bytearray(random.Random(seed).randbytes(size))),))


def random_file(secret, n_bytes=960, **about):
    """A session's file that belongs to no model. Its rows are drawn from its secret, so that another's are noticed."""
    rows = random_rows(secret, (1, 1, 1, n_bytes // 8, 1))
    return SessionFile({"ids": list(secret.encode()), "system": secret, **about}, rows)


def assert_is(content, secret):
    """The file says, in text, ids and numbers, that it is the one of this secret."""
    assert content.about["system"] == secret
    assert bytes(content.about["ids"]).decode() == secret
    assert bytes(content.rows.data) == bytes(random_file(secret, len(content.rows.data)).rows.data)


def session_of(model, secret):
    """The file of a session of this model that says its secret in text, ids and numbers: what nobody else may ever be shown."""
    from kvcourse.sessions.saved import LAYOUT

    ids, config = list(secret.encode()), model.config
    rows = random_rows(secret, (config.n_layer, 2, config.n_kv_head, len(ids), config.head_size))
    turn = {"user": secret, "reply": secret, "start": 0, "prompt_stop": 1, "stop": len(ids), "finish_reason": "stop"}
    about = {
        "ids": ids, "rows": len(ids), "first_position": 0, "turns": [turn], "ledger": [[1, 0, len(ids) - 1]], "system": secret,
        "namespace": repr(secret), "model": model.fingerprint, "tokenizer": model.tokenizer.fingerprint,
        "cache": "preallocated", "dtype": str(model.dtype), "weights": None, "layout": LAYOUT,
    }  # fmt: skip
    return SessionFile(about, rows)


def assert_session_of(chat, secret):
    import torch

    told = chat.system, bytes(chat.tokens).decode(), chat.namespace, chat.turns[0].user, chat.turns[0].reply
    assert told == (secret,) * 5, f"{told} in place of {secret}"
    rows = torch.stack([torch.cat(list(chat.cache.read(i, 0, len(secret)))) for i in range(chat.model.config.n_layer)])
    assert bytes(rows.view(torch.uint8).flatten().numpy()) == bytes(session_of(chat.model, secret).rows.data)


def busy(store, model, who, n_steps, *, may_vanish=False):
    """One of many users of a store: two names of its own and four that all share. Returns what its own names hold at the end.

    may_vanish: the disk's budget is small, so that what was put may have been evicted. It may never be something else.
    """
    rng, mine = random.Random(who), {f"{who}-{number}": None for number in range(2)}
    shared = [f"shared-{number}" for number in range(4)]
    for step in range(n_steps):
        name = rng.choice([*mine, *mine, *shared])
        act = rng.random()
        if act < 0.4:
            secret = f"{name}/{who}/{step}"
            listed = store.put(name, session_of(model, secret), durable=rng.random() < 0.5)
            assert listed.name == name and listed.tokens > 0
            mine.update({name: secret} if name in mine else {})
        elif act < 0.8:
            chat = store.get(name, model)
            if name in mine and chat is None:
                assert mine[name] is None or may_vanish, f"{name} is lost"
            elif chat is not None:
                assert_session_of(chat, mine[name] if name in mine else chat.system)
                assert chat.system.startswith(f"{name}/")
        elif act < 0.88:
            store.delete(name)
            mine.update({name: None} if name in mine else {})
        elif act < 0.92:
            listed = {one.name: one for one in store.list()}
            assert may_vanish or all((other in listed) == (secret is not None) for other, secret in mine.items())
        elif act < 0.97:
            try:
                store.pin(name, not may_vanish and rng.random() < 0.5)
            except InputError:
                assert name not in mine or mine[name] is None or may_vanish or not dict(rows_of(store.folder)).get(name)
        else:
            rng.choice([store.flush, store.prune, store.recover])()
    return mine


def header_of(data):
    """The header of a file's bytes, as JSON, and where its numbers start."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), 8 + length


def sealed(header, numbers):
    """A file's bytes with a right digest, whatever the header says."""
    header = json.loads(json.dumps(header))
    header["__metadata__"]["digest"] = "0" * 64
    text = json.dumps(header, separators=(",", ":")).encode()
    front = struct.pack("<Q", len(text)) + text
    pieces = [numbers[start : start + 4 * 2**20] for start in range(0, len(numbers), 4 * 2**20)]
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in (front, *pieces))).hexdigest()
    return front.replace(b"0" * 64, digest.encode(), 1) + numbers


def altered(path, change):
    """Let `change` alter a file's header (JSON) and its `about` (JSON), then seal it again: only the contents are wrong."""
    data = path.read_bytes()
    header, start = header_of(data)
    about = json.loads(header["__metadata__"]["about"])
    numbers = change(header, about, data[start:])
    header["__metadata__"]["about"] = json.dumps(about)
    path.write_bytes(sealed(header, data[start:] if numbers is None else numbers))


def refused(act, error=SessionFileError):
    """What `act` is refused with: this very error, with a message that says what to do."""
    try:
        act()
    except KVCourseError as fault:
        assert type(fault) is error, f"{type(fault).__name__}: {fault}"
        assert "Expected" in str(fault) and fault.todo
        return str(fault)
    raise AssertionError("not refused")


# What is in a store's folder.


def files_in(folder):
    return sorted((folder / "files").iterdir())


def rows_of(folder):
    """name -> file, as another process sees the index."""
    db = sqlite3.connect(f"file:{folder / 'index.sqlite'}?mode=ro", uri=True, timeout=60)
    try:
        return dict(db.execute("SELECT name, file FROM sessions"))
    finally:
        db.close()


def assert_nothing_left(folder, budget=None):
    """Every file counts, every session has its file, nobody dead has a lock, and all of it fits."""
    files = files_in(folder)
    assert sorted(path.name for path in files) == sorted(rows_of(folder).values())
    assert budget is None or sum(path.stat().st_size for path in files) <= budget


@contextmanager
def at_every_fsync(look):
    """Call `look(fd)` whenever bytes are made to last, before they are: the moments at which a kill leaves most behind."""
    fsync = os.fsync

    def looked(fd):
        look(fd)
        fsync(fd)

    with patch.object(os, "fsync", looked):
        yield


# The claims.


def whatever_byte_is_changed_a_file_is_refused(folder):
    path = folder / "chat.session"
    file.write(path, random_file("a secret", 64))
    whole = path.read_bytes()
    assert_is(file.read(path), "a secret")
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        refused(lambda: file.read(path))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(lambda: file.read(path))
    path.write_bytes(whole + b"\0")
    refused(lambda: file.read(path))


def numbers_in_several_parts_are_one_file(folder):
    """Parts end where they end, pieces of the digest after 4 MiB: the bytes, and the file, are the same for every cut."""
    rows = random_rows(2, (1, 1, 1, 2 * file._PIECE_BYTES // 8 + 3, 1))
    whole = folder / "whole.session"
    file.write(whole, SessionFile({"ids": []}, rows))
    rng, n = random.Random(3), len(rows.data)
    for cuts in ([file._PIECE_BYTES], [1, 2, 3], [0, 0, n], sorted(rng.sample(range(n), 40))):
        parts = tuple(rows.data[a:b] for a, b in zip([0, *cuts], [*cuts, n], strict=True))
        file.write(folder / "parts.session", SessionFile({"ids": []}, Rows(rows.dtype, rows.shape, parts)))
        assert (folder / "parts.session").read_bytes() == whole.read_bytes()
        assert bytes(Rows(rows.dtype, rows.shape, parts).data) == bytes(rows.data)


def what_was_put_is_not_what_goes_on(folder):
    """A session that is kept in memory shares no memory with the one that was put, nor with those that are handed out."""
    from kvcourse.sessions.store import SessionStore

    model = small_llama()
    for kind in KINDS[:3]:
        with SessionStore(folder / str(kind)) as store:
            chat, twin = (chatted(model, turns=1, cache=kind) for _ in range(2))
            store.put("a", chat, durable=False)
            chat.rewind(1)
            chat.send("something else altogether", max_new_tokens=3)
            for _ in range(2):
                got = store.get("a", model, sampler=talkative(model))
                assert got.tokens == twin.tokens
                assert_as_fresh(got)
                got.rewind(1)
                got.send("and something else again", max_new_tokens=3)
            store.flush()
            assert_as_fresh(store.get("a", model))


def a_file_of_other_weights_or_words_is_refused(folder):
    import torch

    from kvcourse.sessions.session import Session

    model = small_llama()
    path = chatted(model).save(folder / "chat.session")
    other = small_llama()
    Session.load(path, other)
    with torch.no_grad():
        next(iter(other.parameters()))[0] += 1e-3
    assert "another model" in refused(lambda: Session.load(path, other))
    words = tokenizer(merges=[("a", "c")])
    assert "another tokenizer" in refused(lambda: Session.load(path, model, words))


def a_conversation_goes_on_where_it_was_saved(folder):
    from kvcourse.sessions.session import Session

    model = small_llama()
    for kind in KINDS:
        chat = chatted(model, cache=kind)
        again = Session.load(chat.save(folder / "chat.session"), model, sampler=talkative(model), probe=True)
        assert (again.tokens, again.messages, again.turns, again.ledger.totals) == (
            chat.tokens, chat.messages, chat.turns, chat.ledger.totals)  # fmt: skip
        one, other = (each.send(QUESTIONS[2], max_new_tokens=4) for each in (chat, again))
        assert other.tokens == one.tokens
        if kind is not None:
            assert type(again.cache) is type(chat.cache)
            assert other.usage == one.usage and other.cost.tokens == one.usage.computed_tokens + 3
            assert_as_fresh(again)


def a_file_holds_the_rows_in_use_and_no_more(folder):
    model = small_llama()
    for kind in KINDS[:3]:
        chat = chatted(model, turns=3, cache=kind)
        chat.rewind(1)
        for one in (chat, chat.fork()):
            path = one.save(folder / "chat.session")
            header, start = header_of(path.read_bytes())
            config = model.config
            row = 2 * config.n_layer * config.n_kv_head * config.head_size * model.dtype.itemsize
            assert path.stat().st_size == start + row * chat.cache.length
            assert header["kv"]["shape"] == [config.n_layer, 2, config.n_kv_head, chat.cache.length, config.head_size]


def changed_rows_are_found_by_computing_one_again(folder):
    from kvcourse.sessions.session import Session

    model = small_llama()
    path = chatted(model).save(folder / "chat.session")
    whole = path.read_bytes()
    Session.load(path, model, probe=True)
    (n_layer, _, heads, n, size) = header_of(whole)[0]["kv"]["shape"]

    def changing(layer, token):
        def change(header, about, numbers):
            at = ((layer * 2 * heads) * n + token) * size * 8
            return numbers[:at] + struct.pack("<d", 3.0) + numbers[at + 8 :]

        return change

    for layer, token in [*((layer, n - 1) for layer in range(n_layer)), (0, 0), (1, n // 2)]:
        path.write_bytes(whole)
        altered(path, changing(layer, token))
        Session.load(path, model)  # the digest is right
        assert "does not compute" in refused(lambda: Session.load(path, model, probe=True))


def forks_go_their_own_ways(folder):
    model = small_llama()
    for kind in KINDS[:3]:
        chat = chatted(model, turns=1, cache=kind)
        family = [chat, chat.fork(), chat.fork()]
        before = seen(chat)
        for number, member in enumerate(family):
            member.send(QUESTIONS[number] * (number + 1), max_new_tokens=3 + number)
            assert all(seen(other) == before for other in family[number + 1 :]), "a fork wrote into another"
        for member in family:
            assert_as_fresh(member)
        family[0].rewind(2)
        family[1].reset()
        assert_as_fresh(family[2])
        assert len(family[2].turns) == len(family[2].ledger) == 2


def what_was_taken_back_leaves_no_trace(folder):
    model = small_llama()
    for kind in KINDS[:3]:
        chat, short = chatted(model, turns=3, cache=kind), chatted(model, turns=1, cache=kind)
        chat.rewind(2)
        assert (chat.tokens, chat.messages, chat.turns) == (short.tokens, short.messages, short.turns)
        assert_as_fresh(chat)
        reply = chat.send(QUESTIONS[2], max_new_tokens=4)
        assert reply.tokens == short.send(QUESTIONS[2], max_new_tokens=4).tokens
        assert reply.cost.tokens == reply.usage.computed_tokens + 3 == len(chat.tokens) - chat.turns[0].stop - 1
        assert_as_fresh(chat)


def what_was_said_keeps_its_ids(folder):
    """mlc-llm 3179, llama.cpp 11970: decoded and encoded again, text is not the same ids."""
    model = small_llama()
    words = model.tokenizer
    said = [words.encode(letter)[0] for letter in "ab"]
    for kind in KINDS:
        chat = chatted(model, turns=0, cache=kind)
        for turn in range(3):
            before, given = chat.tokens, iter([*said, *said, words.stop_ids[0]])
            reply = chat.send("ab", max_new_tokens=9, sampler=lambda logits, given=given: next(given))
            assert (reply.text, chat.tokens[: len(before)]) == ("abab", before)
            assert chat.tokens.count(words.encode("ab")[0]) == turn + 1, "the reply was encoded again"
            assert chat.tokens[-5:-1] == said * 2
        assert chat.replay().shared_tokens == chat.turns[0].prompt_stop


def a_reply_is_given_again_for_one_token(folder):
    from kvcourse.sampling import Sampler

    model = small_llama()
    for kind in KINDS[:3]:
        chat = chatted(model, cache=kind)
        before = chat.tokens
        again = chat.regenerate(max_new_tokens=5)
        assert (chat.tokens, again.usage.computed_tokens, again.cost.tokens) == (before, 1, 1 + 4)
        chat.regenerate(max_new_tokens=8, sampler=Sampler(temperature=5.0, seed=1))
        one = chat.tokens
        chat.regenerate(max_new_tokens=8, sampler=Sampler(temperature=5.0, seed=2))
        assert chat.tokens != one and len(chat.turns) == 2
        chat.regenerate(max_new_tokens=8, sampler=Sampler(temperature=5.0, seed=1))
        assert chat.tokens == one
        assert_as_fresh(chat)


def a_turn_that_fails_leaves_no_trace(folder):
    from helpers import attention, blocks, raising_in

    from kvcourse.sessions.turns import Watch

    model = small_llama()

    class Stopped(Exception):
        pass

    def stop():
        raise Stopped

    def fails(act):
        try:
            act()
        except Stopped:
            return
        raise AssertionError("it did not fail")

    for kind in KINDS:
        chat = chatted(model, cache=kind)
        before = seen(chat)
        fails(lambda chat=chat: chat.send(QUESTIONS[2], max_new_tokens=4, watch=Watch(on_token=stop)))
        with raising_in(attention(blocks(model)[-1]), Stopped()):
            fails(lambda chat=chat: chat.send(QUESTIONS[2], max_new_tokens=4))
        fails(lambda chat=chat: chat.regenerate(max_new_tokens=4, watch=Watch(on_token=stop)))
        assert seen(chat) == before
        if kind is not None:
            assert_as_fresh(chat)


def what_the_index_names_can_be_read_at_every_moment(folder):
    """A kill leaves the folder as it is at some moment: what it names then must be there, whole."""
    from kvcourse.sessions.store import SessionStore

    moments = []

    def look(fd):
        for name, at in rows_of(folder).items():
            assert_is(file.read(folder / "files" / at), file.read(folder / "files" / at).about["system"])
            moments.append(name)

    with SessionStore(folder, max_disk_bytes=6000) as store, at_every_fsync(look):
        for number in range(12):
            store.put("abcd"[number % 4], random_file(f"secret {number}"))
        store.delete("a")
    assert set(moments) == set("abcd")


def what_put_has_returned_from_is_on_disk(folder):
    from kvcourse.sessions.store import SessionStore

    lasting, moved = {}, []
    replace = os.replace

    def look(fd):
        number = os.fstat(fd).st_ino
        lasting[number] = next((p.read_bytes() for p in files_in(folder) if p.stat().st_ino == number), None)

    def moving(source, target):
        assert lasting.get(os.stat(source).st_ino) == Path(source).read_bytes(), "in place before its bytes were sure to last"
        replace(source, target)
        lasting.pop(os.stat(folder / "files").st_ino, None)
        moved.append(target)

    with SessionStore(folder) as store, at_every_fsync(look), patch.object(os, "replace", moving):
        for number in range(3):
            store.put("a", random_file(f"secret {number}"))
            names = rows_of(folder)
            assert_is(file.read(folder / "files" / names["a"]), f"secret {number}")
            assert os.stat(folder / "files").st_ino in lasting, "the folder may forget the name"
    assert len(moved) == 3


def the_newest_is_what_comes_out(folder):
    from kvcourse.sessions.store import SessionStore

    model = small_llama()
    chats = [chatted(model, turns=turns) for turns in (1, 2, 3)]
    with SessionStore(folder) as one, SessionStore(folder) as other:
        for number, chat in enumerate(chats):
            (one, other)[number % 2].put("a", chat)
            for store in (one, other, one):
                assert store.get("a", model).tokens == chat.tokens
        other.delete("a")
        assert one.get("a", model) is None and "a" not in one
        one.put("b", chats[1])
        other.delete("b")
        other.put("b", chats[2])
        assert one.get("b", model).tokens == chats[2].tokens, "another's second is taken for our first"
        one.put("a", chats[0])
        one.put("a", chats[1], durable=False)
        assert one.get("a", model).tokens == chats[1].tokens
        assert other.get("a", model).tokens == chats[0].tokens
        other.put("a", chats[2])
        one.flush()
        assert other.get("a", model).tokens == chats[2].tokens, "what was put before, here, has undone it"
        one.put("a", chats[1], durable=False)
        other.put("a", chats[0])
        assert one.get("a", model).tokens == chats[0].tokens, "what was put later, there, is newer"


def what_is_only_in_memory_is_written_before_it_goes(folder):
    from kvcourse.sessions.store import SessionStore

    size = file.size_bytes(random_file("secret 0"))
    with SessionStore(folder, max_ram_bytes=2 * size + 99) as store:
        for number in range(5):
            store.put(f"{number}", random_file(f"secret {number}"), durable=False)
            assert sum(one.bytes for one in store.list() if one.in_ram) <= 2 * size + 99
        assert {one.name: (one.on_disk, one.in_ram) for one in store.list()} == {
            "0": (True, False), "1": (True, False), "2": (True, False), "3": (False, True), "4": (False, True)}  # fmt: skip
    with SessionStore(folder) as store:
        for number in range(5):
            assert_is(store.read(f"{number}"), f"secret {number}")


def budgets_hold_at_every_moment(folder):
    from kvcourse.sessions.store import SessionStore

    size = file.size_bytes(random_file("secret 00"))
    budget = 3 * size + 99

    def look(fd):
        assert sum(path.stat().st_size for path in files_in(folder)) <= budget, "more than the budget, for a moment"

    with SessionStore(folder, max_disk_bytes=budget, max_ram_bytes=0) as store, at_every_fsync(look):
        for number in range(10, 22):
            store.put(f"{number % 5}", random_file(f"secret {number}"))
            look(0)
        assert 2 <= len(store.list()) <= 3


def what_was_used_longest_ago_goes_first_and_what_is_pinned_stays(folder):
    from kvcourse.sessions.store import SessionStore

    model, clock = small_llama(), Clock()
    chat = chatted(model, turns=1)
    with SessionStore(folder / "measure") as store:
        size = store.put("a", chat).bytes
    with SessionStore(folder, max_disk_bytes=3 * size, clock=clock) as store:

        def put(name, **options):
            clock.now += 1
            store.put(name, chat, **options)
            return "".join(sorted(one.name for one in store.list() if one.on_disk))

        assert [put(name) for name in "abc"] == ["a", "ab", "abc"]
        clock.now += 1
        store.get("a", model)
        assert put("d") == "acd", "b was used longest ago"
        store.pin("c")
        assert put("e") == "cde" and put("f") == "cef"
        assert put("g", pinned=True) == "cfg" and put("h", pinned=True) == "cgh"
        assert "too small" in refused(lambda: put("i"), SessionStoreError)
        assert "".join(sorted(one.name for one in store.list())) == "cgh"
        store.pin("c", False)
        assert put("i") == "ghi"


def what_was_not_used_for_too_long_is_gone(folder):
    from kvcourse.sessions.store import SessionStore

    model, clock = small_llama(), Clock()
    chat = chatted(model, turns=1)
    with SessionStore(folder, ttl=10, clock=clock) as store:
        for name in "abc":
            store.put(name, chat, pinned=name == "c")
        store.put("d", chat, durable=False)
        clock.now += 6
        assert store.get("b", model).tokens == chat.tokens
        clock.now += 6
        assert sorted(one.name for one in store.list()) == ["b", "c"]
        assert store.get("a", model) is None and store.read("a") is None and store.get("d", model) is None
        assert store.get("c", model).tokens == chat.tokens
        assert store.prune() == ["a", "d"] and store.prune() == []
        assert len(files_in(folder)) == 2


def a_write_that_fails_changes_nothing(folder):
    from kvcourse.sessions.store import SessionStore

    with SessionStore(folder / "store") as store:
        store.put("a", random_file("old"))
        path = folder / "chat.session"
        file.write(path, random_file("old"))

        def full(fd):
            raise OSError(28, "No space left on device")

        with at_every_fsync(full):
            assert "No space left" in refused(lambda: file.write(path, random_file("new")))
            assert "No space left" in refused(lambda: store.put("a", random_file("new")))
            assert "No space left" in refused(lambda: store.put("b", random_file("new")))
        assert_is(file.read(path), "old")
        assert_is(store.read("a"), "old")
        assert [one.name for one in store.list()] == ["a"]
        assert sorted(p.name for p in folder.iterdir()) == ["chat.session", "store"]
        assert_nothing_left(folder / "store")
        store.put("b", random_file("new"))
        assert_is(store.read("b"), "new")


def what_the_dead_left_is_removed(folder):
    from kvcourse.sessions.store import SessionStore

    with SessionStore(folder) as store:
        store.put("a", random_file("kept"))
        store.put("b", random_file("kept, too"))
        dead, files = "0123456789abcdef" * 2, folder / "files"
        (folder / "locks" / f"{dead}.lock").touch()
        for owner, announced, there in (
            (dead, "a" * 32, "{}.session"),  # written, not committed
            (dead, "b" * 32, ".{}.session.0123456789ab.part"),  # half written
            (store._folder.me, "c" * 32, ".{}.session.0123456789ab.part"),  # we are at it
            (None, "d" * 32, "{}.session"),  # nobody's
        ):
            if owner is not None:
                store._index.announce(f"{announced}.session", owner, 4)
            (files / there.format(announced)).write_bytes(b"left")
        store._index.forget("b")  # and killed before its file was deleted
        with SessionStore(folder) as second:
            assert [one.name for one in second.list()] == ["a"]
            assert_is(second.read("a"), "kept")
            ours = files / f".{'c' * 32}.session.0123456789ab.part"
            assert sorted(files_in(folder)) == sorted([ours, files / rows_of(folder)["a"]])
            assert store._index.total_bytes() == ours.stat().st_size + (files / rows_of(folder)["a"]).stat().st_size
            assert len(list((folder / "locks").iterdir())) == 2, "one for each of us"
            store._index.give_up(owner=store._folder.me)
            second.recover()
            assert_nothing_left(folder)
    assert list((folder / "locks").iterdir()) == []


def a_store_stays_in_its_folder(folder):
    from kvcourse.sessions.store import SessionStore

    outside = folder / "outside.session"
    file.write(outside, random_file("not yours"))
    inside = folder / "store"
    with SessionStore(inside) as store:
        for bad in ("", " ", ".", "..", "../a", "a/b", "a\\b", "/etc/passwd", "a\0b", "a\nb", "x" * 201, None, 3, b"a"):
            for act in (store.read, store.delete, store.pin, lambda name: store.put(name, random_file("a"))):
                refused(lambda act=act, bad=bad: act(bad), InputError)
        for name in ("a", "ein Gespräch", "..a", "a.b", "-rf *", "'; DROP TABLE sessions; --", "x" * 200):
            store.put(name, random_file(name))
            assert_is(store.read(name), name)
        assert all(path.parent == inside / "files" for path in files_in(inside))
        for place in ("../../outside.session", str(outside), "../../outside"):
            db = sqlite3.connect(inside / "index.sqlite", isolation_level=None)
            db.execute("UPDATE sessions SET file = ? WHERE name = 'a'", (place,))
            db.execute("INSERT INTO going VALUES ('./../../outside.session')")
            db.execute("INSERT INTO coming VALUES ('.././../outside.session', '../../outside', 1)")
            db.close()
            assert "outside the store" in refused(lambda: store.read("a"), SessionStoreError)
            store.recover()
            store.put("b", random_file("b"))
            assert store.delete("a")
            assert_is(file.read(outside), "not yours")
            store.put("a", random_file("a"))
            assert_is(store.read("a"), "a")
            assert_nothing_left(inside)


CLAIMS = (
    whatever_byte_is_changed_a_file_is_refused,
    numbers_in_several_parts_are_one_file,
    what_was_put_is_not_what_goes_on,
    a_file_of_other_weights_or_words_is_refused,
    a_conversation_goes_on_where_it_was_saved,
    a_file_holds_the_rows_in_use_and_no_more,
    changed_rows_are_found_by_computing_one_again,
    forks_go_their_own_ways,
    what_was_taken_back_leaves_no_trace,
    what_was_said_keeps_its_ids,
    a_reply_is_given_again_for_one_token,
    a_turn_that_fails_leaves_no_trace,
    what_the_index_names_can_be_read_at_every_moment,
    what_put_has_returned_from_is_on_disk,
    the_newest_is_what_comes_out,
    what_is_only_in_memory_is_written_before_it_goes,
    budgets_hold_at_every_moment,
    what_was_used_longest_ago_goes_first_and_what_is_pinned_stays,
    what_was_not_used_for_too_long_is_gone,
    a_write_that_fails_changes_nothing,
    what_the_dead_left_is_removed,
    a_store_stays_in_its_folder,
)
