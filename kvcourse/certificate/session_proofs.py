"""Lesson 14: what a session promises (lesson 11): kept equals computed afresh, from a file too. Knows nothing about files."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from kvcourse.certificate.bed import Bed
from kvcourse.certificate.bench import Bench
from kvcourse.certificate.entries import Book
from kvcourse.checkpoints import load_model
from kvcourse.errors import SessionFileError
from kvcourse.generate import generate
from kvcourse.models.base import CausalLM
from kvcourse.prefix.cache import RadixPrefixCache
from kvcourse.sessions.session import Session

PROOFS = Book()
proof = PROOFS
QUESTIONS = ("where is ana ?", "and ben ?", "who has the blue key ?", "thanks , ana .")
KINDS = ("growing", "preallocated", "paged")
NEW = 5


def chat_model() -> CausalLM:
    """The course's own small model: it has a tokenizer and a chat template. In float64, where no two tokens tie."""
    return load_model("tiny", dtype=torch.float64)


def _talked(model: CausalLM, kind: str = "preallocated", turns: int = 4) -> Session:
    chat = Session(model, system="you are a helpful system .", cache=kind)
    for question in QUESTIONS[:turns]:
        chat.send(question, max_new_tokens=NEW)
    return chat


def _equals_its_ids(bench: Bench, chat: Session, what: str) -> None:
    """Logits of the next token, from what was kept, against one pass over all ids and two more."""
    assert chat.cache is not None
    text = [*chat.tokens, 3, 5]
    start, cache = chat.cache.length, chat.cache.fork()
    with torch.no_grad():
        kept, fresh = chat.model(torch.tensor([text[start:]]), cache=cache), chat.model(torch.tensor([text]))
    bench.close(kept, fresh[:, start:], what, start)


@proof(11)
def a_kept_conversation_equals_its_ids_computed_afresh(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    for kind in KINDS:
        chat = Session(model, cache=kind)
        for turn, question in enumerate(QUESTIONS, start=1):
            with bench.case(kind, f"turn {turn}"):
                before = len(chat.tokens)
                usage = chat.send(question, max_new_tokens=NEW).usage
                _equals_its_ids(bench, chat, "logits")
                bench.same(usage.cached_tokens, max(0, before - 1), "cached tokens: all but the last one of the last turn")


@proof(11, "sent again, found again or kept: the words are the same")
def three_ways_one_answer(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    chat, pc = Session(model), RadixPrefixCache(model, max_bytes=2**26)
    for turn, question in enumerate(QUESTIONS, start=1):
        with bench.case(f"turn {turn}"):
            kept = chat.send(question, max_new_tokens=NEW)
            last = chat.turns[-1]
            prompt = chat.tokens[: last.prompt_stop]
            options = {"max_new_tokens": NEW, "stop_ids": model.tokenizer.stop_ids}
            again, found = generate(model, prompt, **options), generate(model, prompt, prefix_cache=pc, **options)
            bench.same(kept.tokens, again.tokens, "tokens of a session and of a replay")
            bench.same(found.tokens, again.tokens, "tokens with a prefix cache and of a replay")
            bench.same(found.usage, kept.usage, "counts with a prefix cache and of a session")


@proof(11)
def branches_and_rewinds_equal_their_own_ids(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    for kind in KINDS:
        with bench.case(kind):
            trunk = _talked(model, kind, turns=2)
            branch = trunk.fork()
            branch.send(QUESTIONS[2], max_new_tokens=NEW)
            trunk.rewind()
            trunk.send(QUESTIONS[3], max_new_tokens=NEW)
            other = trunk.fork()
            other.regenerate(max_new_tokens=2)
            for name, chat in {"trunk": trunk, "branch": branch, "second branch": other}.items():
                _equals_its_ids(bench, chat, f"logits of the {name}")
            fresh = Session(model, system=trunk.system)
            for question in (QUESTIONS[0], QUESTIONS[3]):
                fresh.send(question, max_new_tokens=NEW)
            bench.same(trunk.tokens, fresh.tokens, "ids after a rewind, and of a chat in which it never was")


@proof(11)
def saved_and_loaded_goes_on_as_kept(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            for with_rows in (True, False):
                with bench.case(kind, "with K/V" if with_rows else "ids alone"):
                    kept = _talked(model, kind, turns=3)
                    path = kept.save(Path(folder) / f"{kind}.session", kv=with_rows)
                    back = Session.load(path, model, probe=with_rows)
                    bench.same(back.tokens, kept.tokens, "ids")
                    bench.same(list(back.ledger), list(kept.ledger), "turns in the ledger")
                    if with_rows:
                        _equals_its_ids(bench, back, "logits")
                    replies = [chat.send(QUESTIONS[3], max_new_tokens=NEW) for chat in (back, kept)]
                    bench.same(replies[0].tokens, replies[1].tokens, "tokens of the next turn")
                    _equals_its_ids(bench, back, "logits a turn later")


@proof(11)
def a_file_that_is_not_what_it_was_is_refused(bed: Bed, bench: Bench) -> None:
    model = chat_model()
    with tempfile.TemporaryDirectory() as folder:
        data = _talked(model, turns=2).save(Path(folder) / "good.session").read_bytes()
        bad = Path(folder) / "bad.session"
        for what, content in _damaged(data):
            with bench.case(what):
                bad.write_bytes(content)
                bench.refuses(SessionFileError, lambda: Session.load(bad, model), "load")
        with bench.case("one weight moved by a millionth"):
            good, other = Path(folder) / "good.session", chat_model()
            with torch.no_grad():
                other.norm_weight[0] += 1e-6
            bench.refuses(SessionFileError, lambda: Session.load(good, other), "load")
            bench.same(Session.load(good, model).turns[0].user, QUESTIONS[0], "the first question in the file as it was")


def _damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    header = int.from_bytes(data[:8], "little")
    for name, at in {"size": 3, "header": 40, "first row": 8 + header, "last row": len(data) - 1}.items():
        yield f"a bit of the {name}", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    yield from {"a byte missing": data[:-1], "a byte more": data + b"0", "nothing in it": b""}.items()
