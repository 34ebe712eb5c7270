"""Lesson 11: what it costs to keep a conversation, and to go on with it. Knows nothing about how a file or a session works.

    python -m benchmarks.sessions                 SmolLM2, 1,000 tokens
    python -m benchmarks.sessions --rounds 21 --json

Three ways of moving the same bytes, in turn, round by round, so that a machine that slows down slows all of them: a plain copy
of the file (read, write, fsync), `Session.save` and `Session.load`. Then two ways of going on: load the session and take its
next turn, or compute the conversation again. Equality first: the session that was loaded must hold the very numbers that were
saved, and both ways must give the same next token, or there are no times.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kvcourse.checkpoints import load_model
from kvcourse.corpus import make_conversation
from kvcourse.meter import device_name
from kvcourse.models.base import CausalLM
from kvcourse.sessions.session import Session

QUESTION = "where is it now ?"
WAYS = ("copy", "save", "load", "resume", "again")


@dataclass
class Timed:
    """Seconds of every round, by what was done, and how many bytes a file has."""

    n_tokens: int
    n_bytes: int
    seconds: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in WAYS})

    def gigabytes_per_s(self, way: str) -> float:
        return self.n_bytes / statistics.median(self.seconds[way]) / 1e9

    def ratio(self, way: str, base: str) -> list[float]:
        """How many times the base's speed, round by round, sorted."""
        return sorted(b / a for a, b in zip(self.seconds[way], self.seconds[base], strict=True))


def conversation(model: CausalLM, n_tokens: int) -> Session:
    """A session whose cache holds about n_tokens: one long question, and a reply of two tokens."""
    words = model.tokenizer
    around = len(words.encode_chat([{"role": "user", "content": ""}]))
    rng, said = random.Random(1), []
    while len(said) < n_tokens:  # a word is a token or more
        said += [word for word in make_conversation(rng, n_facts=12).words if not word.startswith("<")]
    text = words.decode(words.encode(" ".join(said))[: n_tokens - around - 1])
    chat = Session(model)
    chat.send(text, max_new_tokens=2, sampler=_never(model.tokenizer.stop_ids))
    return chat


def measure(chat: Session, folder: Path, rounds: int) -> Timed:
    """Every way once a round; the first round is not counted."""
    path, twin = folder / "chat.session", folder / "copy.session"
    chat.save(path)
    require_equal(chat, Session.load(path, chat.model))
    timed = Timed(chat.cache.length if chat.cache else 0, path.stat().st_size)
    acts: dict[str, Callable[[], object]] = {
        "copy": lambda: copy(path, twin),
        "save": lambda: chat.save(path),
        "load": lambda: Session.load(path, chat.model),
        "resume": lambda: next_token(Session.load(path, chat.model)),
        "again": lambda: next_token(without_rows(chat)),
    }
    said = set()
    for number in range(rounds + 1):
        for way, act in acts.items():
            start = time.perf_counter()
            done = act()
            elapsed = time.perf_counter() - start
            if way in ("resume", "again"):
                said.add(done)
            if number:
                timed.seconds[way].append(elapsed)
    if len(said) != 1:
        raise SystemExit(f"Loaded and computed again, the next token is not the same ({said}): no time means anything.")
    return timed


def copy(source: Path, target: Path) -> None:
    """What `cp` and `sync` do, in pieces that a processor's caches hold."""
    with open(source, "rb") as read, open(target, "wb") as written:
        shutil.copyfileobj(read, written, 2**20)
        written.flush()
        os.fsync(written.fileno())


def without_rows(chat: Session) -> Session:
    """The same conversation in a session that has computed nothing yet."""
    other = chat.fork()
    if other.cache is not None:
        other.cache.reset()
    return other


def next_token(chat: Session) -> int:
    return chat.send(QUESTION, max_new_tokens=1).tokens[0]


def require_equal(chat: Session, again: Session) -> None:
    """Exit unless both hold the same ids and the very same K and V."""
    assert chat.cache is not None and again.cache is not None
    n = chat.cache.length
    same = again.tokens == chat.tokens and again.cache.length == n
    for layer in range(chat.model.config.n_layer):
        rows = zip(chat.cache.read(layer, 0, n), again.cache.read(layer, 0, n), strict=True) if same else ()
        same = same and all(torch.equal(a, b) for a, b in rows)
    if not same:
        raise SystemExit("What was loaded is not what was saved: no time means anything.")


def _never(stop_ids: tuple[int, ...]) -> Callable[[torch.Tensor], int]:
    def pick(logits: torch.Tensor) -> int:
        logits = logits.clone()
        logits[list(stop_ids)] = -torch.inf
        return int(logits.argmax())

    return pick


def figures(model: str, timed: Timed) -> dict[str, object]:
    """What is shown: medians, and ratios with their spread over the rounds."""
    found: dict[str, object] = {"device": device_name(), "model": model, "tokens": timed.n_tokens, "bytes": timed.n_bytes}
    for way in ("copy", "save", "load"):
        found[f"{way}_gb_per_s"] = round(timed.gigabytes_per_s(way), 3)
    for name, way, base in (
        ("save_over_copy", "save", "copy"), ("load_over_copy", "load", "copy"), ("resume_over_prefill", "resume", "again")
    ):  # fmt: skip
        ratios = timed.ratio(way, base)
        found[name] = round(statistics.median(ratios), 2)
        found[f"{name}_spread"] = [round(ratios[0], 2), round(ratios[-1], 2)]
    found["resume_ms"] = round(statistics.median(timed.seconds["resume"]) * 1e3, 1)
    found["prefill_ms"] = round(statistics.median(timed.seconds["again"]) * 1e3, 1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parser.add_argument("--model", default="smollm2", help="smollm2, tiny, or a folder")
    parser.add_argument("--tokens", type=int, default=1000, help="that the session's cache holds")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; the system's temporary folder unless given")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    chat = conversation(load_model(options.model), options.tokens)
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        timed = measure(chat, Path(place), options.rounds)
    found = figures(options.model, timed)
    if options.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:28} {value}" for name, value in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
