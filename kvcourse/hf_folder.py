"""Lesson 04: a model as an ordinary Hugging Face folder, written whole or not at all. Knows nothing about models.

A reader never sees half a folder: everything is written beside it, flushed to the disk, and takes its place by renaming.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvcourse.config import Config
from kvcourse.errors import CheckpointError
from kvcourse.hf_config import write_config
from kvcourse.tokenizer_base import Tokenizer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_OURS_TO_REPLACE = (
    "config.json", "generation_config.json", WEIGHTS, INDEX, "model-*-of-*.safetensors", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
)  # fmt: skip


def write_folder(
    folder: Path, config: Config, tokenizer: Tokenizer | None, write_weights: Callable[[Path], None], dtype: str = "float32"
) -> None:
    """Fill a folder with what transformers' AutoModelForCausalLM and AutoTokenizer read.

    write_weights: writes the safetensors file at the path it is given. This module never touches a tensor.
    """
    settings = write_config(config) | {"dtype": dtype, "torch_dtype": dtype}
    if tokenizer is not None:
        tokenizer.save(folder)
        settings |= tokenizer.named_ids
        stops = {"eos_token_id": list(tokenizer.stop_ids)} if tokenizer.stop_ids else {}
        write_json(folder / "generation_config.json", tokenizer.named_ids | stops)
    write_json(folder / "config.json", settings)
    write_weights(folder / WEIGHTS)
    shutil.copymode(folder / "config.json", folder / WEIGHTS)  # the library makes files that only their owner may read


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to fill, which takes `folder`'s place when the block ends, and is removed when it raises."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:12]
    new, old = (folder.parent / f".{folder.name}-{tag}.{state}" for state in ("new", "old"))
    new.mkdir()
    try:
        yield new
        for path in [*(p for p in new.rglob("*") if p.is_file()), new]:
            flush(path)
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        flush(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def refuse_foreign(folder: Path) -> None:
    """Raise unless `folder` is new, empty, or holds a model only: what is there would be lost."""
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(
            "A model is saved as a folder.", expected="a folder", got=f"the file {folder}", todo="Choose another name."
        )
    inside = sorted(folder.iterdir()) if folder.exists() else []
    foreign = [path.name for path in inside if path.is_dir() or not any(path.match(name) for name in _OURS_TO_REPLACE)]
    if foreign:
        raise CheckpointError(
            f"{folder} holds other things, which saving would remove.", expected="a new folder, or one with a saved model only",
            got=", ".join(foreign[:8]), todo="Choose a new folder.",
        )  # fmt: skip


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a checkpoint."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path.parent} is not a model folder.", expected=path.name, got="no such file",
                              todo="Name a folder with config.json and model.safetensors.") from None  # fmt: skip
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}).", expected="a JSON object", got="something else",
                              todo="Save or fetch the folder again.") from error  # fmt: skip
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} cannot be used.", expected="a JSON object", got=type(value).__name__,
                              todo="Save or fetch the folder again.")  # fmt: skip
    return value


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def flush(path: Path) -> None:
    """Make sure that a file, or a folder's list of names, is on the disk. Windows has no such call for folders."""
    if path.is_dir() and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
