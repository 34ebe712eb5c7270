"""Every lesson: how judge and worker talk, as data. Knows nothing about exercises, processes or the rest of the package.

A message is one value: None, bool, int, float, str, list, tuple, dict, tensor, dtype, or a Reference to something that stays
on the other side. On the socket it is a frame: two lengths, a JSON header, and the bytes of its tensors one after another.
A subclass of a list, tuple, dict or tensor is read as its base; anything else is a Reference made by `refer`, never an
object rebuilt on the other side. Nothing is unpickled, ever. Whoever decodes believes nothing: sizes, depth, counts, shapes
against bytes, types.

This file is also mounted in the sandbox, next to the worker, without the package.
"""

import functools
import json
import math
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import limits

LENGTHS = struct.Struct(">II")
PIECE_BYTES = 1 << 20
KINDS = ("kept", "callback", "opaque", "unknown")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (*FLOATS, *INTEGERS)}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
KEYS = (str, int, bool, type(None))


class WireError(Exception):
    """Bytes that are no message, or a value that cannot be sent."""


class WireClosed(Exception):
    """The other side is gone."""


class WireTimeout(Exception):
    """The other side said nothing before the deadline."""


class Reference(NamedTuple):
    """Something that stays where it is: its number there, or only its type's name when it is "unknown"."""

    kind: str
    id: int | str
    names: tuple[str, ...] = ()  # of an opaque: what may be read on it


Refer = Callable[[Any], Reference]
Resolve = Callable[[Reference], Any]


def only_type(value: Any) -> Reference:
    """The reference to what has no other: its type's name."""
    return Reference("unknown", str(type.__getattribute__(type(value), "__name__"))[:80])


class _Encoder:
    def __init__(self, refer: Refer) -> None:
        self._refer, self._nodes, self._bytes = refer, 0, 0
        self.blobs: list[bytes] = []

    def encode(self, value: Any, depth: int = 0) -> Any:
        self._nodes += 1
        if self._nodes > limits.NODES or depth > limits.DEPTH:
            raise WireError(f"more than {limits.NODES} values, or more than {limits.DEPTH} lists in each other")
        kind = type(value)
        if value is None or kind in (bool, float, str):
            return value
        if kind is int and value.bit_length() <= limits.INTEGER_BITS:
            return value
        if issubclass(kind, list):  # a subclass is read as its base, as a snapshot in the notebook is: it may lie
            return ["list", [self.encode(item, depth + 1) for item in list.__iter__(value)]]
        if issubclass(kind, tuple):
            return ["tuple", [self.encode(item, depth + 1) for item in tuple.__iter__(value)]]
        if issubclass(kind, dict):
            kept = [(key, item) for key, item in list(dict.items(value)) if type(key) in KEYS]
            return ["dict", [[self.encode(key), self.encode(item, depth + 1)] for key, item in kept]]
        if kind is torch.dtype and value in NAMES:
            return ["dtype", NAMES[value]]
        if issubclass(kind, torch.Tensor):
            with torch._C.DisableTorchFunctionSubclass():  # what a subclass says of itself is not asked for
                if value.layout is torch.strided and value.dtype in NAMES and not (value.is_meta or value.is_nested):
                    return self._tensor(value.detach().as_subclass(torch.Tensor))
        return list(self._refer(value))

    def _tensor(self, value: torch.Tensor) -> Any:
        self._bytes += value.numel() * value.element_size()
        if self._bytes > limits.FRAME_BYTES:
            raise WireError(f"more than {limits.FRAME_BYTES >> 20} MiB of tensors")
        flat = value.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self.blobs.append(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return ["tensor", NAMES[value.dtype], list(value.shape)]


def encode(value: Any, refer: Refer = only_type) -> bytes:
    """A value as one frame.

    Raises: WireError if it is too large or too deep.
    """
    encoder = _Encoder(refer)
    try:
        header = json.dumps(encoder.encode(value), separators=(",", ":")).encode("ascii")
    except (RecursionError, ValueError, TypeError) as error:
        raise WireError(f"cannot be sent: {error}") from None
    if len(header) > limits.HEADER_BYTES:
        raise WireError(f"more than {limits.HEADER_BYTES >> 20} MiB of numbers and text")
    blob = b"".join(encoder.blobs)
    return LENGTHS.pack(len(header), len(blob)) + header + blob


class _Decoder:
    def __init__(self, blob: bytes, resolve: Resolve) -> None:
        self._blob, self._resolve, self._at, self._nodes = blob, resolve, 0, 0

    def decode(self, coded: Any, depth: int = 0) -> Any:
        self._nodes += 1
        if self._nodes > limits.NODES or depth > limits.DEPTH:
            raise WireError("too many values, or too deep")
        if coded is None or type(coded) in (bool, float, str):
            return coded
        if type(coded) is int:
            if coded.bit_length() > limits.INTEGER_BITS:
                raise WireError("an int that is too large")
            return coded
        if type(coded) is not list or not coded or type(coded[0]) is not str:
            raise WireError("neither a value nor a coded one")
        tag, *parts = coded
        if tag in ("list", "tuple") and len(parts) == 1 and type(parts[0]) is list:
            items = [self.decode(item, depth + 1) for item in parts[0]]
            return items if tag == "list" else tuple(items)
        if tag == "dict" and len(parts) == 1 and type(parts[0]) is list:
            return self._dict(parts[0], depth)
        if tag == "dtype" and len(parts) == 1 and type(parts[0]) is str and parts[0] in DTYPES:
            return DTYPES[parts[0]]
        if tag == "tensor" and len(parts) == 2:
            return self._tensor(*parts)
        if tag in KINDS and len(parts) == 2:
            return self._reference(tag, *parts)
        raise WireError(f"unknown or malformed: {tag[:20]!r}")

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for pair in pairs:
            if type(pair) is not list or len(pair) != 2:
                raise WireError("a dict's entry is not a pair")
            key = self.decode(pair[0], depth + 1)
            if type(key) not in KEYS or key in result:
                raise WireError("a dict's key is of no known type, or there twice")
            result[key] = self.decode(pair[1], depth + 1)
        return result

    def _tensor(self, name: Any, shape: Any) -> torch.Tensor:
        if type(name) is not str or name not in DTYPES or type(shape) is not list or len(shape) > limits.AXES:
            raise WireError("a tensor of no known dtype or shape")
        if not all(type(axis) is int and 0 <= axis <= limits.AXIS for axis in shape):
            raise WireError("a tensor with an impossible shape")
        dtype = DTYPES[name]
        size = math.prod(shape) * dtype.itemsize
        if size > len(self._blob) - self._at:
            raise WireError("a tensor's shape does not fit its bytes")
        data = self._blob[self._at : self._at + size]
        self._at += size
        if dtype == torch.bool and data.translate(None, b"\0\1"):
            raise WireError("a bool that is neither true nor false")
        if not size:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)

    def _reference(self, tag: str, number: Any, names: Any) -> Any:
        if type(number) is not (str if tag == "unknown" else int) or len(str(number)) > 80:
            raise WireError("a reference without a number or name")
        if type(names) is not list or len(names) > 20 or not all(type(name) is str for name in names):
            raise WireError("a reference with odd names")
        return self._resolve(Reference(tag, number, tuple(names)))

    def is_used_up(self) -> bool:
        return self._at == len(self._blob)


def decode(header: bytes, blob: bytes, resolve: Resolve) -> Any:
    """The value of a frame. `resolve` turns a Reference into what stands for it here, or raises WireError.

    Raises: WireError for anything that `encode` would not have written.
    """
    try:
        coded = json.loads(header.decode("ascii"))
    except (ValueError, RecursionError):
        raise WireError("the header is not JSON") from None
    decoder = _Decoder(blob, resolve)
    value = decoder.decode(coded)
    if not decoder.is_used_up():
        raise WireError("more bytes than its tensors need")
    return value


class Channel:
    """One end of a socket that carries frames. `deadline`: a time.monotonic() after which waiting is over."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.deadline: float | None = None
        self.received_bytes = 0  # tensors of the last message

    def send(self, value: Any, refer: Refer = only_type) -> None:
        """Raises: WireError (nothing was sent), WireClosed, WireTimeout."""
        self.send_frame(encode(value, refer))

    def send_frame(self, frame: bytes) -> None:
        """Raises: WireClosed, WireTimeout."""
        sent = 0
        while sent < len(frame):
            piece = memoryview(frame)[sent : sent + PIECE_BYTES]
            sent += self._patiently(functools.partial(self._end.send, piece))

    def receive(self, resolve: Resolve) -> Any:
        """Raises: WireError, WireClosed, WireTimeout."""
        header_bytes, blob_bytes = LENGTHS.unpack(self._exactly(LENGTHS.size))
        if header_bytes > limits.HEADER_BYTES or blob_bytes > limits.FRAME_BYTES:
            raise WireError("a frame that is too large")
        self.received_bytes = blob_bytes
        return decode(self._exactly(header_bytes), self._exactly(blob_bytes), resolve)

    def close(self) -> None:
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()  # grows with what arrives: an announced size alone takes no memory
        while len(data) < size:
            piece = self._patiently(functools.partial(self._end.recv, min(size - len(data), PIECE_BYTES)))
            if not piece:
                raise WireClosed
            data += piece
        return bytes(data)

    def _patiently(self, action: Callable[[], Any]) -> Any:
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise WireTimeout
        try:
            self._end.settimeout(left)
            return action()
        except TimeoutError:
            raise WireTimeout from None
        except OSError:
            raise WireClosed from None
