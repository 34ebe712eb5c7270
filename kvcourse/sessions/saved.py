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
from kvcourse.caches.make import KINDS, make_cache
from kvcourse.errors import CacheMisuse, InputError, SessionFileError, UnknownName
from kvcourse.ledger import Ledger, TurnCount
from kvcourse.models.base import CausalLM
from kvcourse.prefix.store import copied, load
from kvcourse.sessions.file import Rows, SessionFile, broken, read, write
from kvcourse.sessions.session import Session
from kvcourse.sessions.turns import Turn

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
EXACT_KINDS = ("growing", "preallocated", "paged")  # those whose rows can be kept, and that can take them back
LAYOUT = "layer, K or V, KV head, token, dimension"


def save_session(session: Session, path: Path, *, kv: bool = True) -> Path:
    """Write a session. kv: with its K/V, exactly the rows in use; without, the next turn computes everything again.

    Raises: SessionFileError where it cannot be written; CacheMisuse for K/V that is not exact, such as a window's, or was
    computed before the model's weights changed.
    """
    write(path, as_file(session, kv=kv, copy=False))
    return path


def as_file(session: Session, *, kv: bool = True, copy: bool = True) -> SessionFile:
    """What the file of a session holds. The rows are a copy, or, for whoever is done before the session goes on, its own."""
    cache = session.cache if kv and session.cache is not None and session.cache.length else None
    rows = None if cache is None else _rows(session, cache, copy)
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

    probe: also compute the last stored token again and compare its K and V with what is stored: one pass of one token. In every
        layer but the first these depend on the rows of all earlier tokens, in the layers below.
    cache: a kind that keeps exact rows; the one that it was saved from unless given. options: what Session takes besides.
    Raises: SessionFileError for a file that is damaged, newer, of another model or tokenizer, or longer than the context.
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
    kind = cache or (about.get("cache") if about.get("cache") in EXACT_KINDS else "preallocated")
    if kind not in EXACT_KINDS:
        raise UnknownName("A session that was saved goes on in a cache of exact rows.", expected=" or ".join(EXACT_KINDS),
                          got=repr(kind), todo="Choose one of them.")  # fmt: skip
    try:
        turns, ids, n_rows = [Turn(**turn) for turn in about["turns"]], list(about["ids"]), int(about["rows"])
        _require_room(path, len(ids), model)
        ledger = Ledger(model.config.context_length, [TurnCount(*turn) for turn in about["ledger"]])
        _require_consistent(ids, n_rows, turns, content, model)
        namespace = ast.literal_eval(about["namespace"])
    except (LookupError, TypeError, ValueError, ArithmeticError, SyntaxError, RecursionError, MemoryError, InputError) as error:
        raise broken(path, f"contradicts itself ({error}).", "ids, turns and rows that fit together", "others",
                     "Use another copy.") from error  # fmt: skip
    session = Session(model, tokenizer, system=about["system"], cache=kind, **{"namespace": namespace, **options})
    session._ids, session.turns, session.ledger = ids, turns, ledger
    if content.rows is not None and session.cache is not None:
        _fill(session.cache, content.rows, n_rows, model.device)
        if probe:
            _probe(path, session, content.rows, n_rows)
    return session


def _rows(session: Session, cache: KVCache, copy: bool) -> Rows:
    if cache.held != cache.length or not cache.exact or cache.keys != "rotated" or cache.starts is not None:
        raise CacheMisuse("A session file keeps exact rows, and all of them.",
                          expected="a growing, preallocated or paged cache", got=type(cache).__name__,
                          todo="Save without K/V: save(path, kv=False).")  # fmt: skip
    filled_by = getattr(cache, "weights_version", None)
    if filled_by is not None and filled_by != session.model.weights_version:
        raise CacheMisuse("The model's weights changed since this conversation was computed.",
                          expected="K/V of the present weights", got="K/V of earlier ones",
                          todo="Save without K/V: save(path, kv=False).")  # fmt: skip
    config, dtype = session.model.config, session.model.dtype
    shape = (config.n_layer, 2, config.n_kv_head, cache.length, config.head_size)
    if copy:
        tensors = [copied(cache, config.n_layer, 0, cache.length)]  # (L, 2, H_kv, n, D)
    else:
        tensors = [head for layer in range(config.n_layer) for t in cache.read(layer, 0, cache.length) for head in t[0]]
    name = next(name for name, known in DTYPES.items() if known == dtype)
    return Rows(name, shape, tuple(_bytes(tensor) for tensor in tensors))


def _bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's numbers: its own memory, where they lie there in order."""
    return memoryview(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


def _fill(cache: KVCache, rows: Rows, n_rows: int, device: torch.device) -> None:
    """Append the first rows of a file to an empty cache."""
    values = torch.frombuffer(rows.data, dtype=DTYPES[rows.dtype]).view(rows.shape)
    load([(values.to(device), n_rows)], cache)


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


def _require_room(path: Path, n_ids: int, model: CausalLM) -> None:
    limit = model.config.context_length
    if n_ids > limit + 1:  # the last token that is chosen needs no place any more
        raise broken(
            path, "is longer than this model's context.", f"at most {limit} tokens", n_ids, "Start a new conversation."
        )


def _require_consistent(ids: list[int], n_rows: int, turns: list[Turn], content: SessionFile, model: CausalLM) -> None:
    config = model.config
    if not all(type(i) is int and 0 <= i < config.vocab_size for i in ids):
        raise ValueError(f"ids outside a vocabulary of {config.vocab_size}")
    texts = [content.about["namespace"], *(text for turn in turns for text in (turn.user, turn.reply, turn.finish_reason))]
    if not all(type(text) is str for text in texts) or type(content.about["system"]) not in (str, type(None)):
        raise ValueError("texts that are none")
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


def _probe(path: Path, session: Session, rows: Rows, n_rows: int) -> None:
    """Compute the last row that is held once more, from those before it."""
    model, last = session.model, n_rows - 1
    again = make_cache("growing", model)
    if last:
        _fill(again, rows, last, model.device)
    with torch.inference_mode():
        model(torch.tensor([[session.tokens[last]]], device=model.device), cache=again)
    assert session.cache is not None
    tolerance = torch.finfo(model.dtype).eps ** 0.5
    for layer in range(model.config.n_layer):
        kept, computed = session.cache.read(layer, last, n_rows), again.read(layer, last, n_rows)
        for name, stored, new in zip("KV", kept, computed, strict=True):
            off = (stored - new).abs().max().item()
            if not off <= tolerance * (1 + new.abs().max().item()):
                raise SessionFileError(
                    f"{path.name} holds K/V that this model does not compute: {name} of token {last} in layer {layer}.",
                    expected=f"a difference of {tolerance:.1g} or less", got=f"{off:.3g}",
                    todo="Send the text again, in a new session.")  # fmt: skip


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 20 else str(value)
