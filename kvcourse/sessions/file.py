"""Lesson 11: a session as one file, byte by byte. Knows nothing about models or tensors, and imports no PyTorch.

The file is a safetensors file, so any reader of that format can open it: 8 bytes that say how long the header is, the header
(JSON), then the K/V of all rows in one piece. The header's first field is a digest over everything else in the file, header
included, at a fixed place: whatever is flipped, cut off or added is seen before a byte is believed.

The digest is SHA-256 over the SHA-256 of the header, with zeros where the digest stands, and of every 4 MiB of data: pieces
can be hashed on all cores while the file is read or written. It guards against accidents, not against a forger.
"""

import hashlib
import json
import math
import os
import struct
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kvcourse.errors import InputError, SessionFileError

FORMAT, VERSION = "kvcourse session", 1
ITEMSIZE = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_FRONT = b'{"__metadata__":{"digest":"'
_BLANK = b"0" * 64
_DIGEST_AT = 8 + len(_FRONT)
_LONGEST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_PIECE_BYTES = 4 * 2**20
_HASHERS = max(1, (os.cpu_count() or 2) - 1)  # one core reads or writes


@dataclass(frozen=True)
class Rows:
    """K/V as bytes: a dtype as safetensors names it, a shape, and the numbers, in C order, in one part or several."""

    dtype: str
    shape: tuple[int, ...]
    parts: tuple[memoryview, ...]

    @property
    def data(self) -> memoryview:
        """All numbers in one piece: a copy, if they are in several parts."""
        return self.parts[0] if len(self.parts) == 1 else memoryview(bytearray().join(self.parts))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def expected_bytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class SessionFile:
    """What a file holds. about: everything but the rows, as JSON has it. rows: None where no K/V was kept."""

    about: dict[str, Any]
    rows: Rows | None


def write(path: Path, content: SessionFile) -> int:
    """Write a file whole, or not at all; return its size (bytes). What was there before stays until the new one is complete.

    Raises: SessionFileError where it cannot be written: no room, no permission, no such folder; InputError for rows that are
    not as long as their shape says.
    """
    header = _header(content)
    rows = content.rows
    if rows and rows.nbytes != rows.expected_bytes:
        raise InputError("These rows contradict their shape.", expected=f"{rows.expected_bytes} bytes", got=rows.nbytes,
                         todo="Pass as many bytes as dtype and shape say.")  # fmt: skip
    pieces = list(_pieces(rows.parts if rows else ()))
    with _replacing(path) as file, ThreadPoolExecutor(_HASHERS) as workers:
        digests = [workers.submit(_sha256, header), *(workers.submit(_sha256, *piece) for piece in pieces)]
        file.write(header)
        for piece in pieces:
            for part in piece:
                file.write(part)
        _make_last(file)  # the disk works while the rest is hashed; what follows is one block more
        file.seek(_DIGEST_AT)
        file.write(_total(digests))
    return size_bytes(content)


def size_bytes(content: SessionFile) -> int:
    """How large its file will be."""
    return len(_header(content)) + (content.rows.expected_bytes if content.rows else 0)


def read(path: Path) -> SessionFile:
    """Read a file and verify all of it.

    Raises: SessionFileError, naming what is wrong, for a file that is not there, is no session's, is truncated, too long,
    damaged, or of a newer format.
    """
    try:
        with open(path, "rb") as file, ThreadPoolExecutor(_HASHERS) as workers:
            size = os.fstat(file.fileno()).st_size
            header = _read_header(file, path, size)
            data = bytearray(size - len(header))
            view, digests = memoryview(data), [workers.submit(_sha256, _blanked(header))]
            for (piece,) in _pieces((view,)):
                if file.readinto(piece) != len(piece):
                    raise broken(path, "is being changed.", f"{size} bytes", "fewer", "Read it when nobody writes to it.")
                digests.append(workers.submit(_sha256, piece))
            intact = _total(digests) == header[_DIGEST_AT : _DIGEST_AT + len(_BLANK)]
    except (OSError, ValueError) as error:  # ValueError: no name of a file
        why = getattr(error, "strerror", None) or error
        raise broken(path, f"cannot be read ({why}).", "a session file", "none", "Check its name.") from error
    return _parsed(path, header, view, intact)


def broken(path: Path, fault: str, expected: object, got: object, todo: str) -> SessionFileError:
    """The error about this file."""
    return SessionFileError(f"{path.name} {fault}", expected=expected, got=got, todo=todo)


def _header(content: SessionFile) -> bytes:
    """Length and JSON, the digest blank. Padded so that the numbers start at a multiple of 8."""
    metadata = {"digest": _BLANK.decode(), "format": FORMAT, "version": str(VERSION), "about": json.dumps(content.about)}
    whole: dict[str, Any] = {"__metadata__": metadata}
    if content.rows:
        rows = content.rows
        whole["kv"] = {"dtype": rows.dtype, "shape": rows.shape, "data_offsets": [0, rows.expected_bytes]}
    text = json.dumps(whole, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _read_header(file: BinaryIO, path: Path, size: int) -> bytes:
    first = file.read(_DIGEST_AT + len(_BLANK))
    if len(first) < _DIGEST_AT + len(_BLANK):
        raise broken(path, "is truncated.", "a header", f"{size} bytes in all", "Use another copy.")
    (length,) = struct.unpack("<Q", first[:8])
    if first[8:_DIGEST_AT] != _FRONT:
        raise broken(path, "is no session file, or its first bytes are damaged.", _FRONT.decode(), repr(first[8:_DIGEST_AT]),
                     "Name a file that Session.save has written.")  # fmt: skip
    if not len(_FRONT) + len(_BLANK) < length <= _LONGEST_HEADER_BYTES or 8 + length > size:
        raise broken(path, "is truncated, or its length field is damaged.", "a header within the file",
                     f"{length} bytes in a file of {size}", "Use another copy.")  # fmt: skip
    return first + file.read(8 + length - len(first))


def _parsed(path: Path, header: bytes, data: memoryview, intact: bool) -> SessionFile:
    try:
        whole = json.loads(header[8:])
        metadata = whole["__metadata__"]
        version = int(metadata["version"])
        if version > VERSION and metadata["format"] == FORMAT:
            raise broken(path, "has a newer format." if intact else "has a newer format, or is damaged.",
                         f"version {VERSION} or older", version, "Update this package.")  # fmt: skip
        rows = _rows(whole, data)
        about = json.loads(metadata["about"])
        known = metadata["format"] == FORMAT and version == VERSION and isinstance(about, dict)
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError, AttributeError) as error:
        raise broken(path, f"has a damaged header ({type(error).__name__}).", "the JSON that Session.save writes",
                     "something else", "Use another copy.") from error  # fmt: skip
    expected = rows.expected_bytes if rows else 0
    if len(data) != expected:
        fault = "is truncated." if len(data) < expected else "has bytes too many."
        raise broken(path, fault, f"{expected} bytes of K/V", len(data), "Use another copy.")
    if not intact:
        raise broken(
            path, "is damaged: it does not match its digest.", "the bytes that were written", "others", "Use another copy."
        )
    if not known:
        raise broken(path, "is no session file.", f"{FORMAT}, version {VERSION}", f"{metadata['format']}, version {version}",
                     "Name a file that Session.save has written.")  # fmt: skip
    return SessionFile(about, rows)


def _rows(whole: dict[str, Any], data: memoryview) -> Rows | None:
    if set(whole) == {"__metadata__"}:
        return None
    (entry,) = (value for name, value in whole.items() if name == "kv")
    rows = Rows(entry["dtype"], tuple(int(n) for n in entry["shape"]), (data,))
    if min(rows.shape) < 0 or entry["data_offsets"] != [0, rows.expected_bytes] or len(whole) != 2:
        raise ValueError("sizes")
    return rows


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file beside `path`, which takes its place when the block ends, and is removed when it raises."""
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.part"
    try:
        with open(temporary, "xb") as file:
            yield file
            _make_last(file)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, ValueError) as error:  # ValueError: no name of a file
        why = getattr(error, "strerror", None) or error
        raise broken(path, f"cannot be written ({why}).", "a folder with room that may be written to", path.parent,
                     "Make room, or choose another folder; what was there before is untouched.") from error  # fmt: skip
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)


def _make_last(file: BinaryIO) -> None:
    """Return when what was written would outlive a power cut."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename last. Where folders cannot be opened (Windows), renames are the system's own business."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pieces(parts: tuple[memoryview, ...]) -> Iterator[list[memoryview]]:
    """The same bytes, 4 MiB at a time: of one part where that is long enough, else of several."""
    piece, room = [], _PIECE_BYTES
    for part in parts:
        left = part.cast("B")
        while len(left):
            piece.append(left[:room])
            left, room = left[room:], room - len(piece[-1])
            if not room:
                yield piece
                piece, room = [], _PIECE_BYTES
    if piece:
        yield piece


def _sha256(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _total(digests: list["Future[bytes]"]) -> bytes:
    return hashlib.sha256(b"".join(digest.result() for digest in digests)).hexdigest().encode()


def _blanked(header: bytes) -> bytes:
    return header[:_DIGEST_AT] + _BLANK + header[_DIGEST_AT + len(_BLANK) :]
