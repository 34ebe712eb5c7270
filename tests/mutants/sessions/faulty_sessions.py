"""Sessions, files and stores with one fault each, as real ones had. `break_it(patch)` puts the fault in place, by pytest's
monkeypatch; `caught_by` names the claim of tests/session_helpers.py that it breaks.
"""

import hashlib
import os
from contextlib import contextmanager, nullcontext

from kvcourse.errors import SessionFileError
from kvcourse.sessions import file, folder, saved, session
from kvcourse.sessions.folder import Folder
from kvcourse.sessions.index import Index
from kvcourse.sessions.ram import Held, Memory
from kvcourse.sessions.session import Session
from kvcourse.sessions.store import SessionStore

FAULTS = []


def fault(caught_by):
    def note(break_it):
        break_it.caught_by = caught_by
        FAULTS.append(break_it)
        return break_it

    return note


def wrapped(patch, owner, name, around):
    """Put `around(original, *arguments)` in place of a function."""
    original = getattr(owner, name)
    patch.setattr(owner, name, lambda *args, **options: around(original, *args, **options))


# Files.


@fault("whatever byte is changed a file is refused")
def the_digest_leaves_the_header_out(patch):
    def around(digest, *parts):
        return b"" if bytes(parts[0][8 : 8 + len(file._FRONT)]) == file._FRONT else digest(*parts)

    wrapped(patch, file, "_sha256", around)


@fault("whatever byte is changed a file is refused")
def the_digest_leaves_the_numbers_out(patch):
    wrapped(patch, file, "_sha256", lambda digest, *parts: digest(*parts) if isinstance(parts[0], bytes) else b"")


@fault("numbers in several parts are one file")
def the_digest_is_of_the_first_part_of_a_piece(patch):
    wrapped(patch, file, "_sha256", lambda digest, *parts: digest(parts[0]))


@fault("whatever byte is changed a file is refused")
def the_digest_is_not_compared(patch):
    wrapped(patch, file, "_parsed", lambda parsed, path, header, data, intact: parsed(path, header, data, True))


@fault("whatever byte is changed a file is refused")
def what_follows_the_last_number_is_not_looked_at(patch):
    def around(parsed, path, header, data, intact):
        whole = file.json.loads(header[8:])
        size = whole["kv"]["data_offsets"][1]
        kept = data[:size] if len(data) > size else data
        digests = [file._sha256(*part) for part in ([file._blanked(header)], *file._pieces((kept,)))]
        there = header[file._DIGEST_AT : file._DIGEST_AT + 64] == hashlib.sha256(b"".join(digests)).hexdigest().encode()
        return parsed(path, header, kept, there)

    wrapped(patch, file, "_parsed", around)


@fault("a file of other weights or words is refused")
def the_model_is_not_compared(patch):
    """MemOS 2300, ds4 805: same shapes, other weights."""

    def around(require, path, about, model, tokenizer):
        require(path, {**about, "model": model.fingerprint}, model, tokenizer)

    wrapped(patch, saved, "_require_same", around)


@fault("a file of other weights or words is refused")
def the_tokenizer_is_not_compared(patch):
    def around(require, path, about, model, tokenizer):
        require(path, {**about, "tokenizer": tokenizer.fingerprint}, model, tokenizer)

    wrapped(patch, saved, "_require_same", around)


@fault("a conversation goes on where it was saved")
def the_rows_are_not_taken_back(patch):
    """llama.cpp 9173: it loads, and everything is computed again."""
    patch.setattr(saved, "_fill", lambda *args: None)
    patch.setattr(saved, "_probe", lambda *args: None)


@fault("a conversation goes on where it was saved")
def the_last_row_is_left_out(patch):
    wrapped(patch, saved, "_fill", lambda fill, cache, rows, n, device: fill(cache, rows, max(1, n - 1), device))


@fault("a conversation goes on where it was saved")
def keys_and_values_change_places(patch):
    def around(rows, chat, cache, copy):
        kept = rows(chat, cache, copy)
        heads = chat.model.config.n_kv_head
        parts = [kept.parts[at : at + heads] for at in range(0, len(kept.parts), heads)]
        turned = [part for at in range(0, len(parts), 2) for part in (*parts[at + 1], *parts[at])]
        return type(kept)(kept.dtype, kept.shape, tuple(turned))

    wrapped(patch, saved, "_rows", around)


@fault("a file holds the rows in use and no more")
def the_whole_buffer_is_saved(patch):
    """mlx-examples 977."""

    def around(rows, chat, cache, copy):
        kept = rows(chat, cache, copy)
        room = (cache.capacity or 99) - cache.length
        padding = memoryview(bytes(room * kept.shape[4] * chat.model.dtype.itemsize))
        shape = (*kept.shape[:3], cache.length + room, kept.shape[4])
        return type(kept)(kept.dtype, shape, tuple(part for own in kept.parts for part in (own, padding)))

    wrapped(patch, saved, "_rows", around)


@fault("changed rows are found by computing one again")
def the_probe_looks_at_nothing(patch):
    patch.setattr(saved, "_probe", lambda *args: None)


@fault("changed rows are found by computing one again")
def the_probe_looks_at_the_first_layer_only(patch):
    """Where K and V depend on the token alone."""

    def around(probe, *args):
        try:
            probe(*args)
        except SessionFileError as found:
            if "layer 0" in str(found):
                raise

    wrapped(patch, saved, "_probe", around)


@fault("a write that fails changes nothing")
def a_file_is_written_in_place(patch):
    @contextmanager
    def in_place(path):
        with open(path, "wb") as opened:
            yield opened
            opened.flush()
            try:
                os.fsync(opened.fileno())
            except OSError as error:
                raise file.broken(path, f"cannot be written ({error.strerror}).", "room", "none", "Make room.") from error

    patch.setattr(file, "_replacing", in_place)


@fault("a write that fails changes nothing")
def a_failed_write_leaves_its_temporary_file(patch):
    patch.setattr(file.Path, "unlink", lambda path, missing_ok=False: None if path.suffix == ".part" else os.unlink(path))


@fault("what put has returned from is on disk")
def the_file_is_not_made_to_last(patch):
    wrapped(patch, file, "_replacing", lambda replacing, path: _without_fsync(path))


@contextmanager
def _without_fsync(path):
    with open(f"{path}.part", "wb") as opened:
        yield opened
    os.replace(f"{path}.part", path)
    file.sync_folder(path.parent)


@fault("what put has returned from is on disk")
def the_folder_is_not_made_to_last(patch):
    patch.setattr(file, "sync_folder", lambda path: None)


@fault("what was put is not what goes on")
def what_is_kept_in_memory_is_the_session_s_own(patch):
    def around(as_file, chat, kv=True, copy=True):
        return as_file(chat, kv=kv, copy=False)

    wrapped(patch, saved, "as_file", around)


# Conversations.


@fault("forks go their own ways")
def a_fork_shares_the_cache(patch):
    """exo PR 991, lattice PR 516."""

    def around(fork, chat):
        other = fork(chat)
        other.cache = chat.cache
        return other

    wrapped(patch, Session, "fork", around)


@fault("forks go their own ways")
def a_fork_shares_the_turns(patch):
    def around(fork, chat):
        other = fork(chat)
        other.turns = chat.turns
        return other

    wrapped(patch, Session, "fork", around)


@fault("forks go their own ways")
def a_fork_shares_the_ledger(patch):
    def around(fork, chat):
        other = fork(chat)
        other.ledger = chat.ledger
        return other

    wrapped(patch, Session, "fork", around)


@fault("what was taken back leaves no trace")
def a_rewind_forgets_the_cache(patch):
    """The turns go, the rows stay, and the next prompt is taken to be in them."""

    def around(cut, chat, n_ids, n_rows, turns):
        chat._ids, chat.turns = chat._ids[:n_ids], list(turns)

    wrapped(patch, Session, "_cut", around)


@fault("what was taken back leaves no trace")
def a_rewind_keeps_a_row_too_many(patch):
    wrapped(patch, Session, "_cut", lambda cut, chat, ids, rows, turns: cut(chat, ids, min(rows + 1, chat.cache.length), turns))


@fault("what was taken back leaves no trace")
def a_rewind_starts_over(patch):
    """Right, and everything is computed again."""
    wrapped(patch, Session, "_cut", lambda cut, chat, n_ids, n_rows, turns: cut(chat, n_ids, 0, turns))


@fault("a reply is given again for one token")
def a_reply_again_computes_its_question_again(patch):
    def around(cut, chat, n_ids, n_rows, turns):
        return cut(chat, n_ids, n_ids if n_rows > n_ids else n_rows, turns)

    wrapped(patch, Session, "_cut", around)


@fault("a reply is given again for one token")
def a_reply_again_has_the_old_seed(patch):
    def again(chat, *, max_new_tokens, sampler=None, watch=session.UNWATCHED, _again=Session.regenerate):
        return _again(chat, max_new_tokens=max_new_tokens, watch=watch)

    patch.setattr(Session, "regenerate", again)


@fault("what was said keeps its ids")
def replies_are_encoded_again(patch):
    """Every turn renders the conversation and encodes it: what comes out is not what is cached."""

    def turn(chat, text, prompt, *args, _turn=Session._turn):
        if chat.turns:
            ids = chat.tokenizer.encode_chat([*chat.messages, {"role": "user", "content": text}])
            if chat.cache is not None:
                shared = next((i for i, (a, b) in enumerate(zip(ids, chat._ids, strict=False)) if a != b), len(chat._ids))
                chat.cache.truncate(min(shared, chat.cache.length))
            prompt = ids
        return _turn(chat, text, prompt, *args)

    patch.setattr(Session, "_turn", turn)


@fault("a turn that fails leaves no trace")
def a_failed_turn_keeps_its_rows(patch):
    patch.setattr(session, "undone_on_error", lambda cache: nullcontext())


@fault("a turn that fails leaves no trace")
def a_turn_is_noted_before_it_is_complete(patch):
    def turn(chat, text, prompt, *args, _turn=Session._turn):
        chat._require_room(prompt)
        chat._ids = prompt
        return _turn(chat, text, prompt, *args)

    patch.setattr(Session, "_turn", turn)


# Stores.


@fault("what the index names can be read at every moment")
def a_row_is_committed_before_its_file_is_written(patch):
    def write(store, name, content, pinned, only_if=lambda version: True):
        n_bytes, at = file.size_bytes(content), f"{os.urandom(16).hex()}.session"
        store._make_room(name, n_bytes)
        store._index.announce(at, store._folder.me, n_bytes)
        row = store._index.commit(name, at, n_bytes, 0, store.clock(), pinned, only_if)
        file.write(store._folder.path(at), content)
        store._folder.sweep()
        return row

    patch.setattr(SessionStore, "_write", write)


@fault("what the index names can be read at every moment")
def the_old_file_is_deleted_before_the_new_one_counts(patch):
    def around(write, store, name, *args):
        row = store._index.get(name)
        if row is not None:
            store._folder.of(row).unlink()
        return write(store, name, *args)

    wrapped(patch, SessionStore, "_write", around)


@fault("what put has returned from is on disk")
def put_returns_before_anything_is_written(patch):
    def put(store, name, content, *, durable=True, pinned=None, _put=SessionStore.put):
        return _put(store, name, content, durable=False, pinned=pinned)

    patch.setattr(SessionStore, "put", put)


@fault("the newest is what comes out")
def memory_serves_an_old_version(patch):
    patch.setattr(Held, "is_current", lambda held, version: True)


@fault("the newest is what comes out")
def versions_start_again_when_a_name_was_deleted(patch):
    """The second session of a name has the number that the first one had, and memory takes one for the other."""

    def around(commit, index, name, at, *args):
        with index.transaction() as db:
            before = index.version(name) or 0
            row = commit(index, name, at, *args)
            db.execute("UPDATE sessions SET version = ? WHERE name = ?", (before + 1, name))
            return row._replace(version=before + 1)

    wrapped(patch, Index, "commit", around)


@fault("the newest is what comes out")
def what_was_only_in_memory_overwrites_what_is_newer(patch):
    patch.setattr(Held, "is_current", lambda held, version: not held.saved or held.version == version)


@fault("what is only in memory is written before it goes")
def what_has_no_room_in_memory_is_lost(patch):
    patch.setattr(SessionStore, "_spill", lambda store, name, held: None)


@fault("what is only in memory is written before it goes")
def memory_has_no_budget(patch):
    patch.setattr(Memory, "oldest", lambda memory: None)


@fault("what is only in memory is written before it goes")
def what_came_last_goes_first(patch):
    def oldest(memory):
        return list(memory._held.items())[-1] if memory.nbytes > memory.max_bytes else None

    patch.setattr(Memory, "oldest", oldest)


@fault("budgets hold at every moment")
def room_is_made_after_the_file_came(patch):
    """Evicted ones are on the list of what goes while the new one is written."""

    def write(store, name, content, pinned, only_if=lambda version: True, _write=SessionStore._write):
        sweep, Folder.sweep = Folder.sweep, lambda folder: None
        try:
            return _write(store, name, content, pinned, only_if)
        finally:
            Folder.sweep = sweep
            store._folder.sweep()

    patch.setattr(SessionStore, "_write", write)


@fault("budgets hold at every moment")
def nothing_is_evicted(patch):
    patch.setattr(SessionStore, "_make_room", lambda store, name, n_bytes: None)


@fault("what was used longest ago goes first and what is pinned stays")
def eviction_ignores_pins(patch):
    def make_room(store, name, n_bytes, _make_room=SessionStore._make_room):
        rows = Index.all
        Index.all = lambda index: [row._replace(pinned=False) for row in rows(index)]
        try:
            return _make_room(store, name, n_bytes)
        finally:
            Index.all = rows

    patch.setattr(SessionStore, "_make_room", make_room)


@fault("what was used longest ago goes first and what is pinned stays")
def to_get_is_not_to_use(patch):
    patch.setattr(Index, "touch", lambda index, name, now: None)


@fault("what was used longest ago goes first and what is pinned stays")
def everything_is_evicted(patch):
    """sglang 4987."""

    def make_room(store, name, n_bytes, _make_room=SessionStore._make_room):
        _make_room(store, name, n_bytes)
        if n_bytes > store.max_disk_bytes - store._index.total_bytes() - n_bytes:
            for row in store._index.all():
                if not row.pinned:
                    store._index.forget(row.name)

    patch.setattr(SessionStore, "_make_room", make_room)


@fault("what was not used for too long is gone")
def what_has_expired_is_served(patch):
    patch.setattr(SessionStore, "_current", lambda store, name: store._index.get(name))


@fault("what was not used for too long is gone")
def time_runs_from_when_it_was_put(patch):
    patch.setattr(SessionStore, "_is_expired", lambda store, row: not row.pinned and store._too_old(row.created))


@fault("what was not used for too long is gone")
def pins_do_not_last(patch):
    patch.setattr(SessionStore, "_is_expired", lambda store, row: store._too_old(row.used))


@fault("what the dead left is removed")
def the_living_are_taken_for_dead(patch):
    patch.setattr(folder, "bury", lambda locks, owner: True)


@fault("what the dead left is removed")
def the_dead_are_taken_for_living(patch):
    patch.setattr(folder, "bury", lambda locks, owner: False)


@fault("what the dead left is removed")
def files_that_nobody_knows_are_kept(patch):
    wrapped(patch, Index, "files", lambda files, index: {*files(index), f"{'d' * 32}.session"})


@fault("a store stays in its folder")
def any_name_will_do(patch):
    patch.setattr("kvcourse.sessions.store.require_name", lambda name: None)


@fault("a store stays in its folder")
def the_index_is_believed(patch):
    patch.setattr(Folder, "_is_inside", lambda folder, file: True)
