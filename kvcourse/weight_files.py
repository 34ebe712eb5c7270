"""Lesson 04: which tensors a file holds, read from its header alone. Knows nothing about models, and imports no torch.

A safetensors file begins with 8 bytes that say how long the header is, then a JSON object: name -> dtype, shape and where its
bytes lie. The numbers come after it, and are not touched here. Source: the format's description by Hugging Face.
"""

import json
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvcourse.errors import CheckpointError

_LONGEST_HEADER_BYTES = 100_000_000  # the format's own limit
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


class Stored(NamedTuple):
    """One tensor of a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # "float32"; GGUF's own names for its packed types, such as "Q4_1"
    n_bytes: int


def stored_tensors(path: Path) -> list[Stored]:
    """Everything in a .safetensors file, a .gguf file, or a folder with .safetensors files, in the file's order.

    Raises: CheckpointError for anything else, and for a header that does not fit its file.
    """
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise _broken(path, "a folder with .safetensors files", "none in it")
        return [tensor for file in files for tensor in stored_tensors(file)]
    if not path.is_file():
        raise _broken(path, "a file or folder with weights", "nothing there")
    with open(path, "rb") as file:
        magic = file.read(4)
    return list(_gguf(path) if magic == b"GGUF" else _safetensors(path))


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header of a safetensors file as it is, `__metadata__` included.

    Raises: CheckpointError if the file has none.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        first = file.read(8)
        (length,) = struct.unpack("<Q", first) if len(first) == 8 else (0,)  # little-endian, unsigned
        if not 2 <= length <= min(size - 8, _LONGEST_HEADER_BYTES):
            raise _broken(path, "a header within the file", f"a length of {length} bytes in a file of {size}")
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise _broken(path, "a JSON header", f"{type(error).__name__}") from None
    if not isinstance(header, dict):
        raise _broken(path, "a JSON object as header", type(header).__name__)
    return header


def _safetensors(path: Path) -> Iterator[Stored]:
    header = read_header(path)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            shape, (start, stop) = tuple(int(n) for n in entry["shape"]), entry["data_offsets"]
            dtype = _DTYPES.get(entry["dtype"], entry["dtype"])
            n_bytes = int(stop) - int(start)
        except (KeyError, TypeError, ValueError):
            raise _broken(path, "dtype, shape and data_offsets of each tensor", f"{name}: {str(entry)[:100]}") from None
        if n_bytes < 0 or min(shape, default=0) < 0:
            raise _broken(path, "sizes of 0 or more", f"{name}: {shape}, {n_bytes} bytes")
        yield Stored(name, shape, dtype, n_bytes)


def _gguf(path: Path) -> Iterator[Stored]:
    import gguf  # slow to import, and only needed here

    try:
        tensors = gguf.GGUFReader(path).tensors
    except Exception as error:  # a broken file makes the library raise whatever its next step raises
        raise _broken(path, "a whole GGUF file", type(error).__name__) from error
    for tensor in tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))  # the format counts the fastest axis first
        kind = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(tensor.tensor_type.name, tensor.tensor_type.name)
        yield Stored(tensor.name, shape, kind, int(tensor.n_bytes))


def n_parameters(shape: tuple[int, ...]) -> int:
    """How many numbers a tensor of this shape has."""
    return math.prod(shape)


def _broken(path: Path, expected: str, got: str) -> CheckpointError:
    return CheckpointError(f"{path.name} has no weights to list.", expected=expected, got=got, todo="Name another file.")
