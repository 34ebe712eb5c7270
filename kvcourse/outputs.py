"""Every lesson: what a command prints and writes. Knows nothing about what commands do.

What is printed may hold any text, and a terminal, or a file on Windows, may have another encoding than UTF-8. What is written
is there whole or not at all, and never in the place of what was read.
"""

import io
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvcourse.errors import InputError
from kvcourse.streams import STDIN


def allow_any_text() -> None:
    """From here on a character that an output has no code for is printed as an escape, and ends nothing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def json_text(value: Any) -> str:
    """A value as JSON for standard output: where that is no UTF-8, with JSON's own escapes."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").replace("_", "")
    return json.dumps(value, indent=1, ensure_ascii=encoding not in ("utf8", "utf8sig"))


def refuse_inputs(out: Path, inputs: Iterable[Path]) -> None:
    """Raise InputError where a file to be written is one of those that are read, under whatever name. "-": standard input."""
    written = _status(out)
    if written is None or not stat.S_ISREG(written.st_mode):
        return
    for path in inputs:
        read = _status(path)
        if read is not None and os.path.samestat(written, read):
            raise InputError(f"{out} is what is read.", expected="another file to write", got=path, todo="Name another one.")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole, or leave it as it was. A link stays, and so does what is no ordinary file. Raises: OSError."""
    target = Path(os.path.realpath(path))
    there = target.exists()
    if there and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_bytes(data)
        return
    unfinished = target.with_name(f".kvcourse-{os.getpid()}.part")
    try:
        unfinished.write_bytes(data)
        if there:
            shutil.copymode(target, unfinished)
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.fstat(sys.stdin.fileno()) if str(path) == STDIN else path.stat()
    except (OSError, ValueError, AttributeError):
        return None
