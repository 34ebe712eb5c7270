"""What a file does not say truly is refused, by name, and whoever asked goes on: faults.md, "Sessions and files"."""

import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import small_models as small_models
from safetensors import safe_open
from session_helpers import (
    KINDS,
    QUESTIONS,
    altered,
    assert_as_fresh,
    assert_is,
    chatted,
    header_of,
    random_file,
    random_rows,
    refused,
    sealed,
    seen,
    small_llama,
    talkative,
    tokenizer,
)

from kvcourse.checkpoints import load_model
from kvcourse.errors import CacheMisuse, InputError, KVCourseError, SessionFileError, UnknownName
from kvcourse.sessions import file
from kvcourse.sessions.file import Rows, SessionFile
from kvcourse.sessions.session import Session
from kvcourse.sessions.store import SessionStore

pytestmark = pytest.mark.usefixtures("small_models")
PIECE = 4 * 2**20


@pytest.fixture(scope="module")
def model():
    return small_llama()


@pytest.fixture(scope="module")
def chat(model):
    return chatted(model)


@pytest.fixture
def path(chat, tmp_path):
    return chat.save(tmp_path / "chat.session")


def assert_usable(chat, path, model):
    """Session and file still work after all that was refused."""
    again = Session.load(path, model, sampler=talkative(model))
    assert again.tokens == chat.tokens
    assert_as_fresh(again)


# Damage.


def test_every_flipped_byte_of_the_header_and_a_sample_of_the_data_are_refused(chat, model, path, full_counts):
    whole = path.read_bytes()
    _, start = header_of(whole)
    rng = random.Random(0)
    sample = rng.sample(range(start, len(whole)), 2000 if full_counts else 300)
    damaged = path.with_name("damaged.session")
    faults = set()
    for at in [*range(start), *sample]:
        flipped = bytearray(whole)
        flipped[at] ^= rng.randrange(1, 256)
        damaged.write_bytes(flipped)
        message = refused(lambda: file.read(damaged))
        assert message.startswith("damaged.session "), "it says which file"
        faults.add(message.removeprefix("damaged.session ").split(" Expected")[0])
    assert "is damaged: it does not match its digest." in faults and len(faults) > 4
    assert_usable(chat, path, model)


def test_a_file_cut_off_anywhere_is_refused(chat, model, path, full_counts):
    whole = path.read_bytes()
    _, start = header_of(whole)
    step = 1 if full_counts else 7
    edges = {0, 1, 7, 8, 9, 33, 34, 97, 98, 99, start - 1, start, start + 1, len(whole) // 2, len(whole) - 8, len(whole) - 1}
    cut = path.with_name("cut.session")
    for length in sorted(edges | set(range(0, start, step)) | set(range(start, len(whole), 1 + (len(whole) - start) // 300))):
        cut.write_bytes(whole[:length])
        assert "truncated" in refused(lambda: Session.load(cut, model))
    for more in (b"\0", b"\0" * 8, whole):
        cut.write_bytes(whole + more)
        assert "bytes too many" in refused(lambda: file.read(cut))
    assert_usable(chat, path, model)


def test_pieces_that_changed_places_are_refused(tmp_path):
    """Larger than one piece of the digest: each piece is as it was, and the whole is not."""
    path = tmp_path / "large.session"
    rows = random_rows(1, (1, 1, 1, 3 * PIECE // 8 + 5, 1))
    file.write(path, SessionFile({"ids": []}, rows))
    assert bytes(file.read(path).rows.data) == bytes(rows.data)
    whole = path.read_bytes()
    start = len(whole) - len(rows.data)
    pieces = [whole[start + i * PIECE : start + (i + 1) * PIECE] for i in range(4)]
    for order in ((1, 0, 2, 3), (0, 2, 1, 3)):
        path.write_bytes(whole[:start] + b"".join(pieces[i] for i in order))
        assert "does not match its digest" in refused(lambda: file.read(path))
    path.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    assert "does not match its digest" in refused(lambda: file.read(path))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 200, b"{}" * 99, b"GGUF" + b"\0" * 500, struct.pack("<Q", 2**63) + b'{"__metadata__":{"digest":"' * 9],
)
def test_what_is_no_session_at_all_is_refused(tmp_path, content, model):
    path = tmp_path / "foreign.session"
    path.write_bytes(content)
    assert "foreign.session" in refused(lambda: Session.load(path, model))


def test_another_safetensors_file_is_refused(tmp_path, model):
    from safetensors.torch import save_file

    save_file({"kv": torch.zeros(3)}, tmp_path / "weights.safetensors", metadata={"format": "pt"})
    assert "no session file" in refused(lambda: Session.load(tmp_path / "weights.safetensors", model))


@pytest.mark.parametrize("name", ["not there", ".", "", "a/b", "a\0b"])
def test_names_that_are_no_files_are_refused_for_reading_and_writing(tmp_path, chat, model, name):
    place = tmp_path / name if name else Path("")
    assert "cannot be read" in refused(lambda: Session.load(place, model))
    if name != "not there":
        assert "cannot be written" in refused(lambda: chat.save(place))
    assert list(tmp_path.iterdir()) == []


# Right digests, wrong contents.


def test_a_newer_format_is_refused_and_says_so(chat, model, path):
    whole = path.read_bytes()

    def bump(header, about, numbers):
        header["__metadata__"]["version"] = "2"

    altered(path, bump)
    message = refused(lambda: Session.load(path, model))
    assert "has a newer format." in message and "version 1 or older" in message and "Update" in message
    header, start = header_of(whole)
    damaged = whole.replace(b'"version":"1"', b'"version":"7"')
    path.write_bytes(damaged)
    assert "newer format, or is damaged" in refused(lambda: Session.load(path, model))
    for version in ("0", "-1", "1e9", "", "one", "9" * 5000):
        path.write_bytes(sealed({**header, "__metadata__": {**header["__metadata__"], "version": version}}, whole[start:]))
        refused(lambda: Session.load(path, model))
    path.write_bytes(whole)
    assert_usable(chat, path, model)


HEADERS = {
    "a row more in the shape": lambda h: h["kv"]["shape"].__setitem__(3, h["kv"]["shape"][3] + 1),
    "a row fewer in the shape": lambda h: h["kv"]["shape"].__setitem__(3, h["kv"]["shape"][3] - 1),
    "another dtype": lambda h: h["kv"].__setitem__("dtype", "F32"),
    "a dtype that is none": lambda h: h["kv"].__setitem__("dtype", "X9"),
    "a dtype that is a list": lambda h: h["kv"].__setitem__("dtype", []),
    "a negative size": lambda h: h["kv"]["shape"].__setitem__(0, -3),
    "two negative sizes": lambda h: h["kv"].__setitem__("shape", [-3, -2, *h["kv"]["shape"][2:]]),
    "an endless size": lambda h: h["kv"]["shape"].__setitem__(0, float("inf")),
    "a size that is no number": lambda h: h["kv"]["shape"].__setitem__(0, "x"),
    "no sizes": lambda h: h["kv"].__setitem__("shape", []),
    "a huge size": lambda h: h["kv"].__setitem__("shape", [10**9] * 5),
    "offsets that start later": lambda h: h["kv"]["data_offsets"].__setitem__(0, 8),
    "offsets that end later": lambda h: h["kv"]["data_offsets"].__setitem__(1, h["kv"]["data_offsets"][1] + 8),
    "no offsets": lambda h: h["kv"].pop("data_offsets"),
    "a second tensor": lambda h: h.__setitem__("more", dict(h["kv"])),
    "another tensor in its place": lambda h: h.__setitem__("more", h.pop("kv")),
    "no tensor": lambda h: h.pop("kv"),
    "a tensor that is a number": lambda h: h.__setitem__("kv", 3),
    "another kind of file": lambda h: h["__metadata__"].__setitem__("format", "pt"),
    "no version": lambda h: h["__metadata__"].pop("version"),
}


@pytest.mark.parametrize("change", HEADERS.values(), ids=HEADERS)
def test_sizes_that_contradict_the_bytes_are_refused_whatever_the_digest_says(chat, model, path, change):
    whole = path.read_bytes()
    altered(path, lambda header, about, numbers: change(header) and None)
    refused(lambda: Session.load(path, model))
    path.write_bytes(whole)
    assert_usable(chat, path, model)


ABOUTS = {
    "an id outside the vocabulary": (lambda a: a["ids"].__setitem__(3, 10**6), "vocabulary"),
    "a negative id": (lambda a: a["ids"].__setitem__(0, -1), "vocabulary"),
    "an id that is no number": (lambda a: a["ids"].__setitem__(0, "3"), "vocabulary"),
    "an id that is a fraction": (lambda a: a["ids"].__setitem__(0, 3.0), "vocabulary"),
    "an id fewer": (lambda a: a["ids"].pop(), "cover"),
    "an id more": (lambda a: a["ids"].append(1), "cover"),
    "ids that are a number": (lambda a: a.__setitem__("ids", 3), "contradicts"),
    "no ids": (lambda a: a.pop("ids"), "contradicts"),
    "a row more": (lambda a: a.__setitem__("rows", a["rows"] + 1), "shape"),
    "a row fewer": (lambda a: a.__setitem__("rows", a["rows"] - 1), "shape"),
    "no row": (lambda a: a.__setitem__("rows", 0), "shape"),
    "endless rows": (lambda a: a.__setitem__("rows", float("inf")), "contradicts"),
    "rows that are text": (lambda a: a.__setitem__("rows", "x"), "contradicts"),
    "a turn fewer": (lambda a: a["turns"].pop(), "cover"),
    "a turn twice": (lambda a: a["turns"].append(a["turns"][-1]), "cover"),
    "turns that overlap": (lambda a: a["turns"][1].__setitem__("start", 0), "cover"),
    "a prompt after its reply": (lambda a: a["turns"][0].__setitem__("prompt_stop", 10**6), "cover"),
    "a turn without a reply": (lambda a: a["turns"][0].pop("reply"), "contradicts"),
    "a turn with more": (lambda a: a["turns"][0].__setitem__("more", 1), "contradicts"),
    "a reply that is a number": (lambda a: a["turns"][0].__setitem__("reply", 5), "texts"),
    "a question that is a list": (lambda a: a["turns"][1].__setitem__("user", []), "texts"),
    "turns that are a number": (lambda a: a.__setitem__("turns", 3), "contradicts"),
    "a system message that is a number": (lambda a: a.__setitem__("system", 5), "texts"),
    "a ledger that does not add up": (lambda a: a["ledger"][0].__setitem__(1, 10**6), "contradict"),
    "a ledger past the window": (lambda a: a["ledger"][0].__setitem__(0, 10**6), "window"),
    "a ledger of text": (lambda a: a["ledger"][0].__setitem__(0, "x"), "contradicts"),
    "a namespace that is code": (lambda a: a.__setitem__("namespace", "__import__('os').getcwd()"), "contradicts"),
    "a namespace that is nothing": (lambda a: a.__setitem__("namespace", "(((("), "contradicts"),
    "a namespace without end": (lambda a: a.__setitem__("namespace", "-" * 10**5), "contradicts"),
    "another model": (lambda a: a.__setitem__("model", "f" * 64), "another model"),
    "another tokenizer": (lambda a: a.__setitem__("tokenizer", "f" * 64), "another tokenizer"),
    "another dtype": (lambda a: a.__setitem__("dtype", "torch.float32"), "another dtype"),
    "other weights": (lambda a: a.__setitem__("weights", "int8"), "another weights"),
    "no model": (lambda a: a.pop("model"), "another model"),
}


@pytest.mark.parametrize(("change", "word"), ABOUTS.values(), ids=ABOUTS)
def test_contents_that_contradict_each_other_are_refused_whatever_the_digest_says(chat, model, path, change, word):
    whole = path.read_bytes()
    altered(path, lambda header, about, numbers: change(about) and None)
    assert word in refused(lambda: Session.load(path, model))
    with SessionStore(path.parent / "store") as store:
        store.put("a", file.read(path))
        assert word in refused(lambda: store.get("a", model))
        store.put("b", chat)
        assert store.get("b", model).tokens == chat.tokens
    path.write_bytes(whole)
    assert_usable(chat, path, model)


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "{", "[" * 10**5, '{"ids": NaN'])
def test_an_about_that_is_no_object_is_refused(path, model, text):
    header, start = header_of(path.read_bytes())
    header["__metadata__"]["about"] = text
    path.write_bytes(sealed(header, path.read_bytes()[start:]))
    refused(lambda: Session.load(path, model))


def test_a_conversation_longer_than_the_context_is_refused(chat, tmp_path):
    """With a right digest, and even for the very same weights."""
    short = small_llama(context_length=48)
    path = chat.save(tmp_path / "long.session")
    altered(path, lambda header, about, numbers: about.__setitem__("model", short.fingerprint))
    message = refused(lambda: Session.load(path, short))
    assert "longer than this model's context" in message and "at most 48 tokens" in message
    sliding = chatted(short, turns=3, cache=forgetting(short))
    assert len(sliding.tokens) > 49
    sliding.save(path, kv=False)
    assert "longer than this model's context" in refused(lambda: Session.load(path, short))


def forgetting(model):
    from kvcourse.caches.make import make_cache

    return make_cache("sliding", model, window=16)


def test_rows_that_do_not_fit_their_shape_are_not_even_written(tmp_path):
    rows = random_rows(1)
    for wrong in (Rows(rows.dtype, (3, 2, 2, 6, 6), rows.parts), Rows("F32", rows.shape, rows.parts), Rows("F64", (3,), ())):
        assert "contradict their shape" in refused(
            lambda wrong=wrong: file.write(tmp_path / "a", SessionFile({}, wrong)), InputError
        )
    assert list(tmp_path.iterdir()) == []


# MemOS 2300, ds4 805: same shapes, other weights: loads silently
def test_the_same_shapes_with_one_weight_changed_are_refused(chat, path):
    other = small_llama()
    assert other.fingerprint == chat.model.fingerprint
    Session.load(path, other)
    for name, weight in other.named_parameters():
        before = weight.detach().clone()
        with torch.no_grad():
            weight[(-1,) * weight.dim()] += 1e-6
        assert "another model, even if its shapes are the same" in refused(lambda: Session.load(path, other)), name
        with torch.no_grad():
            weight.copy_(before)
    assert_usable(chat, path, other)


def test_weights_of_another_precision_and_another_tokenizer_are_refused(chat, model, path):
    for other in (small_llama().float(), small_llama(seed=1), load_model("tiny", dtype=torch.float64)):
        assert "another model" in refused(lambda other=other: Session.load(path, other))
    assert "another tokenizer" in refused(lambda: Session.load(path, model, tokenizer(merges=[("a", "c")])))
    silent = small_llama()
    silent.tokenizer = None
    assert "another tokenizer" in refused(lambda: Session.load(path, silent))
    assert Session.load(path, silent, model.tokenizer).tokens == chat.tokens
    assert_usable(chat, path, model)


def test_rows_of_earlier_weights_are_not_saved_under_the_new_ones(tmp_path):
    model = small_llama()
    chat = chatted(model)
    with torch.no_grad():
        next(iter(model.parameters()))[0] += 1e-3
    assert "weights changed" in refused(lambda: chat.save(tmp_path / "a.session"), CacheMisuse)
    chat.save(tmp_path / "a.session", kv=False)
    assert Session.load(tmp_path / "a.session", model).cache.length == 0


# What a file holds.


# mlx-examples 977: the whole padded buffer is saved
@pytest.mark.parametrize("kind", KINDS[:3])
def test_the_file_holds_exactly_the_rows_in_use_and_a_fork_saves_none_of_its_parents(tmp_path, kind):
    model = small_llama()
    chat = chatted(model, turns=3, cache=kind)
    config = model.config
    row_bytes = config.n_layer * 2 * config.n_kv_head * config.head_size * 8

    def data_bytes(one):
        path = one.save(tmp_path / "a.session")
        assert path.stat().st_size == file.size_bytes(file.read(path))
        return path.stat().st_size - header_of(path.read_bytes())[1]

    assert data_bytes(chat) == row_bytes * chat.cache.length == row_bytes * (len(chat.tokens) - 1)
    fork = chat.fork()
    fork.rewind(2)
    assert data_bytes(fork) == row_bytes * len(fork.tokens) < data_bytes(chat)
    path = fork.save(tmp_path / "fork.session")
    chat.send(QUESTIONS[0], max_new_tokens=3)
    again = fork.save(tmp_path / "again.session")
    assert path.read_bytes() == again.read_bytes(), "the parent's turns change nothing in its fork"
    lost = QUESTIONS[1].encode()
    assert lost in chat.save(tmp_path / "chat.session").read_bytes() and lost not in path.read_bytes()
    chat.save(tmp_path / "a.session", kv=False)
    assert (tmp_path / "a.session").stat().st_size == header_of((tmp_path / "a.session").read_bytes())[1]


def test_safetensors_own_reader_opens_it(chat, path):
    with safe_open(path, framework="pt") as opened:
        assert list(opened.keys()) == ["kv"]
        rows, about = opened.get_tensor("kv"), json.loads(opened.metadata()["about"])
    assert about["ids"] == chat.tokens and about["system"] is None
    for layer in range(chat.model.config.n_layer):
        for which, stored in enumerate(chat.cache.read(layer, 0, chat.cache.length)):
            assert torch.equal(rows[layer, which], stored[0])
    chat.save(path, kv=False)
    with safe_open(path, framework="pt") as opened:
        assert list(opened.keys()) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_precision_comes_back_bit_for_bit(tmp_path, dtype):
    model = small_llama(dtype=dtype)
    chat = chatted(model)
    again = Session.load(chat.save(tmp_path / "a.session"), model, sampler=talkative(model))
    assert seen(again) == seen(chat)
    assert chat.send(QUESTIONS[2], max_new_tokens=4).tokens == again.send(QUESTIONS[2], max_new_tokens=4).tokens


def test_whatever_was_said_comes_back(tmp_path, model):
    """Texts that JSON, or a header, could trip over; a namespace is typed."""
    texts = ["", "\0", '"', "\\", "ä 😀", "\u2028", "}" * 9, "digest", "0" * 64]
    chat = Session(model, system='"},{"digest":"', sampler=talkative(model), namespace=("a", 1, b"c", None))
    for text in texts:
        chat.send(text, max_new_tokens=2)
    path = chat.save(tmp_path / "a.session")
    again = Session.load(path, model)
    assert seen(again) == seen(chat)
    assert (again.system, again.namespace) == (chat.system, chat.namespace)
    assert Session.load(path, model, namespace="mine").namespace == "mine"
    assert "ä" not in header_of(path.read_bytes())[0]["__metadata__"]["about"], "a header is ASCII, whoever reads it"


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_session_can_go_on_in_another_kind_of_cache(chat, model, path, kind):
    again = Session.load(path, model, cache=kind, sampler=talkative(model))
    assert_as_fresh(again)
    for bad in ("sliding", "quantized", "no such"):
        assert "exact rows" in refused(lambda bad=bad: Session.load(path, model, cache=bad), UnknownName)
    with pytest.raises(TypeError, match="colour"):
        Session.load(path, model, colour="red")


def test_an_empty_conversation_is_kept_too(tmp_path, model):
    chat = Session(model, system="you are helpful .")
    again = Session.load(chat.save(tmp_path / "a.session"), model, sampler=talkative(model))
    assert (again.tokens, again.turns, again.system, again.cache.length) == ([], [], chat.system, 0)
    assert again.send(QUESTIONS[0], max_new_tokens=3).usage.cached_tokens == 0


# The probe.


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_probe_of_one_token_finds_rows_that_belong_to_another_text(tmp_path, kind):
    model = small_llama(context_length=64)
    chat, other = chatted(model, turns=1, cache=kind), chatted(model, turns=0, cache=kind)
    other.send(QUESTIONS[0].replace("red", "big"), max_new_tokens=5)
    assert len(other.tokens) == len(chat.tokens)
    path, foreign = chat.save(tmp_path / "a.session"), other.save(tmp_path / "b.session").read_bytes()
    Session.load(path, model, probe=True)
    altered(path, lambda header, about, numbers: foreign[-len(numbers) :])
    Session.load(path, model)
    assert "does not compute" in refused(lambda: Session.load(path, model, probe=True))


def test_a_probe_passes_for_a_session_that_fills_its_context(tmp_path):
    """Nothing is left of a paged cache's pool, and a single row has nothing before it."""
    model = small_llama(context_length=64)
    for kind in KINDS[:3]:
        chat = Session(model, cache=kind, sampler=talkative(model))
        chat.send(QUESTIONS[0], max_new_tokens=60)
        assert chat.cache.length == 64 and chat.turns[0].finish_reason == "context"
        assert seen(Session.load(chat.save(tmp_path / "a.session"), model, probe=True)) == seen(chat)
    words = small_llama()
    words.tokenizer.chat = None
    one = Session(words, sampler=talkative(words))
    one.send("a", max_new_tokens=1)
    assert one.cache.length == 1
    Session.load(one.save(tmp_path / "one.session"), words, probe=True)


# Disks that are full, folders that may not be written to.


def test_a_folder_that_may_not_be_written_to_is_refused_and_the_session_goes_on(tmp_path, chat, model, monkeypatch):
    """Root may write everywhere, so the refusal is made here."""
    import builtins

    path = chat.save(tmp_path / "a.session")
    before = path.read_bytes()
    opened = builtins.open

    def refuses_writing(file, mode="r", *args, **options):
        if set(mode) & set("wxa+"):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, mode, *args, **options)

    monkeypatch.setattr(builtins, "open", refuses_writing)
    message = refused(lambda: chat.save(path))
    assert "Permission denied" in message and str(tmp_path) in message
    monkeypatch.undo()
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    assert_usable(chat, path, model)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into a folder that is read-only")
def test_a_folder_that_is_read_only_is_refused(tmp_path, chat):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    assert "Permission denied" in refused(lambda: chat.save(folder / "a.session"))
    assert list(folder.iterdir()) == []


FULL_DISK = """
import resource, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from session_helpers import assert_is, assert_nothing_left, random_file, refused
from kvcourse.errors import KVCourseError, SessionFileError
from kvcourse.sessions import file
from kvcourse.sessions.store import SessionStore
folder = Path({folder!r})
file.write(folder / "chat.session", random_file("old", 2000))
store = SessionStore(folder / "store")
store.put("a", random_file("old", 2000))
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
for act in (
    lambda: file.write(folder / "chat.session", random_file("new", 400_000)),
    lambda: store.put("a", random_file("new", 400_000)),
    lambda: store.put("b", random_file("new", 400_000)),
):
    print(refused(act))
assert_is(file.read(folder / "chat.session"), "old")
assert_is(store.read("a"), "old")
assert [one.name for one in store.list()] == ["a"]
assert sorted(path.name for path in folder.iterdir()) == ["chat.session", "store"]
assert_nothing_left(folder / "store")
store.put("b", random_file("small", 2000))
assert_is(store.read("b"), "small")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put("a", random_file("new", 400_000))
assert_is(store.read("a"), "new")
store.close()
assert "torch" not in sys.modules
"""


def test_a_full_disk_is_told_and_the_old_file_stays(tmp_path):
    """A limit on the size of files stands for it, in a process of its own."""
    code = FULL_DISK.format(tests=str(Path(__file__).parents[1]), folder=str(tmp_path), limit=300_000)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 3 and run.stdout.count("File too large") == 3
    assert "what was there before is untouched" in run.stdout
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY, "and not in this one"


def test_whatever_the_fault_is_it_is_one_that_the_course_names(chat, path, model):
    """Nothing but KVCourseError leaves `load`, whatever is thrown at it: random bytes, in random places, of random lengths."""
    whole, rng = path.read_bytes(), random.Random(5)
    damaged = path.with_name("damaged.session")
    for _ in range(300):
        at, n = rng.randrange(len(whole)), rng.choice([0, 1, 8, 100, 5000])
        damaged.write_bytes(whole[:at] + rng.randbytes(n) + whole[at + rng.choice([0, 1, n, 1000]) :])
        if damaged.read_bytes() == whole:
            continue
        with pytest.raises(KVCourseError) as fault:
            Session.load(damaged, model)
        assert type(fault.value) is SessionFileError
    shutil.copy(path, damaged)
    assert_usable(chat, damaged, model)


def test_a_file_is_the_same_whoever_writes_it_and_says_what_it_holds(tmp_path):
    content = random_file("one", 960)
    sizes = [file.write(tmp_path / name, content) for name in "ab"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sizes == [file.size_bytes(content)] * 2 == [(tmp_path / "a").stat().st_size] * 2
    assert (header_of((tmp_path / "a").read_bytes())[1]) % 8 == 0, "the numbers start at a multiple of their size"
    assert_is(file.read(tmp_path / "a"), "one")
