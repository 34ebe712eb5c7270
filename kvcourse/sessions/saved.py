"""Lesson 11: a session to a file and back. Knows nothing about bytes on disk (`file`) or how turns come about (`session`).

What is written is what makes a conversation go on exactly where it was: ids, turns, the K/V of the rows in use, and the names
of everything that K/V depends on. Same shapes are not the same weights: the fingerprints decide.
"""

import ast
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kvcourse.caches.base import KVCache
from kvcourse.caches.make import KINDS
from kvcourse.errors import CacheMisuse, InputError, SessionFileError
from kvcourse.ledger import Ledger, TurnCount
from kvcourse.models.base import CausalLM
from kvcourse.prefix.guards import require_exact
from kvcourse.prefix.store import copied, load
from kvcourse.sessions.file import Rows, SessionFile, broken, read, write
from kvcourse.sessions.session import Session
from kvcourse.sessions.turns import Turn

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LAYOUT = "layer, K or V, KV head, token, dimension"


def save_session(session: Session, path: Path, *, kv: bool = True) -> Path:
    """Write a session. kv: with its K/V, exactly the rows in use; without, the next turn computes everything again.

    Raises: SessionFileError where it cannot be written; CacheMisuse for K/V that is not exact, such as a window's.
    """
    write(path, as_file(session, kv=kv))
    return path


def as_file(session: Session, *, kv: bool = True) -> SessionFile:
    """What the file of a session holds. The rows are a copy."""
    cache = session.cache if kv and session.cache is not None and session.cache.length else None
    rows = None if cache is None else _rows(session, cache)
    about = {
        "ids": session.tokens,
        "rows": 0 if cache is None else cache.length,
        "first_position": 0,
        "turns": [asdict(turn) for turn in session.turns],
        "ledger": [[turn.prompt_tokens, turn.cached_tokens, turn.completion_tokens] for turn in session.ledger],
        "system": session.system,
        "namespace": repr(session.namespace),
        "model": session.model.fingerprint,
        "tokenizer": session.tokenizer.fingerprint,
        "cache": next((kind for kind, made in KINDS.items() if type(session.cache) is made), None),
        "dtype": str(session.model.dtype),
        "weights": session.model.weight_format,
        "layout": LAYOUT,
    }
    return SessionFile(about, rows)


def load_session(
    path: Path, model: CausalLM, tokenizer: Any = None, *, probe: bool = False, cache: str | None = None, **options: Any
) -> Session:
    """A session from its file, ready for the next turn. Everything is verified before it is used.

    probe: also compute the last stored token again and compare its K and V with what is stored: one pass of one token.
    cache: a kind; the one that it was saved from unless given. options: what Session takes besides.
    Raises: SessionFileError for a file that is damaged, newer, or of another model or tokenizer.
    """
    return from_file(read(path), path, model, tokenizer, probe=probe, cache=cache, **options)


def from_file(
    content: SessionFile, path: Path, model: CausalLM, tokenizer: Any = None, *, probe: bool = False, cache: str | None = None,
    **options: Any,
) -> Session:  # fmt: skip
    """The same from a file that was read. path: for messages."""
    about = content.about
    tokenizer = tokenizer or model.tokenizer
    _require_same(path, about, model, tokenizer)
    try:
        turns = [Turn(**turn) for turn in about["turns"]]
        ledger = Ledger(model.config.context_length, [TurnCount(*turn) for turn in about["ledger"]])
        ids, n_rows, kind = list(about["ids"]), int(about["rows"]), cache or about["cache"] or "preallocated"
        _require_consistent(ids, n_rows, turns, content, model)
        options.setdefault("namespace", ast.literal_eval(about["namespace"]))
        if kind not in ("growing", "preallocated", "paged"):  # a file without K/V; the next turn computes it all
            kind = "preallocated"
        session = Session(model, tokenizer, system=about["system"], cache=kind, **options)
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise broken(path, f"contradicts itself ({error}).", "ids, turns and rows that fit together", "others",
                     "Use another copy.") from error  # fmt: skip
    session._ids, session.turns, session.ledger = ids, turns, ledger
    if content.rows is not None and session.cache is not None:
        _fill(session.cache, content.rows, n_rows)
        if probe:
            _probe(path, session, session.cache)
    return session


def _rows(session: Session, cache: KVCache) -> Rows:
    require_exact(cache)
    if cache.held != cache.length:
        raise CacheMisuse("This cache has forgotten rows.", expected=f"{cache.length} rows", got=cache.held,
                          todo="Save without K/V: save(path, kv=False).")  # fmt: skip
    rows = copied(cache, session.model.config.n_layer, 0, cache.length)  # (L, 2, H_kv, n, D)
    name = next(name for name, dtype in DTYPES.items() if dtype == rows.dtype)
    flat = rows.cpu().view(-1).view(torch.uint8)
    return Rows(name, tuple(rows.shape), memoryview(flat.numpy().data))


def _fill(cache: KVCache, rows: Rows, n_rows: int) -> None:
    values = torch.frombuffer(rows.data, dtype=DTYPES[rows.dtype]).view(rows.shape)
    load([(values, n_rows)], cache)


def _require_same(path: Path, about: dict[str, Any], model: CausalLM, tokenizer: Any) -> None:
    """Everything that the stored numbers depend on is what it was."""
    for what, got in (
        ("model", model.fingerprint),
        ("tokenizer", None if tokenizer is None else tokenizer.fingerprint),
        ("dtype", str(model.dtype)),
        ("weights", model.weight_format),
    ):
        if what not in about or about[what] != got:
            raise broken(path, f"belongs to another {what}, even if its shapes are the same." if what == "model"
                         else f"belongs to another {what}.", _short(about.get(what)), _short(got),
                         f"Load it with the {what} it was saved with.")  # fmt: skip


def _require_consistent(ids: list[int], n_rows: int, turns: list[Turn], content: SessionFile, model: CausalLM) -> None:
    config = model.config
    if not all(type(i) is int and 0 <= i < config.vocab_size for i in ids) or len(ids) > config.context_length + 1:
        raise ValueError(f"{len(ids)} ids, of a vocabulary of {config.vocab_size} and a context of {config.context_length}")
    stops = [0, *(edge for turn in turns for edge in (turn.prompt_stop, turn.stop))]
    starts = [turn.start for turn in turns]
    if stops != sorted(stops) or stops[-1] != len(ids) or starts != [0, *(turn.stop for turn in turns)][: len(turns)]:
        raise ValueError("turns do not cover the ids")
    if content.rows is None:
        if n_rows:
            raise ValueError(f"{n_rows} rows announced, none there")
        return
    shape = (config.n_layer, 2, config.n_kv_head, n_rows, config.head_size)
    if content.rows.shape != shape or DTYPES[content.rows.dtype] != model.dtype or not 0 < n_rows <= len(ids):
        raise ValueError(f"rows of shape {content.rows.shape} for {len(ids)} ids, not {shape}")


def _probe(path: Path, session: Session, cache: KVCache) -> None:
    """Compute the last row that is held once more, from those before it."""
    last = cache.length - 1
    again = cache.fork()
    again.truncate(last)
    with torch.inference_mode():
        session.model(torch.tensor([[session.tokens[last]]], device=session.model.device), cache=again)
    tolerance = torch.finfo(session.model.dtype).eps ** 0.5
    for layer in range(session.model.config.n_layer):
        for name, stored, computed in zip(
            "KV", cache.read(layer, last, last + 1), again.read(layer, last, last + 1), strict=True
        ):
            off = (stored - computed).abs().max().item()
            if not off <= tolerance * (1 + computed.abs().max().item()):
                raise SessionFileError(
                    f"{path.name} holds K/V that this model does not compute: {name} of token {last} in layer {layer}.",
                    expected=f"a difference of {tolerance:.1g} or less", got=f"{off:.3g}",
                    todo="Load it without K/V in mind: send the text again.")  # fmt: skip


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 20 else str(value)
