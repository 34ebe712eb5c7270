"""The codec between judge and worker: what goes in comes out, and what no encoder would write is refused."""

import json
import math
import pickle
import socket
import threading
import time
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcourse.grader import limits, wire

SHAPES = st.lists(st.integers(0, 3), max_size=4)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(list(wire.NAMES))
    | st.builds(
        lambda dtype, shape, seed: (
            torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
            * (1 if dtype == torch.bool else 3)
        ).to(dtype),
        st.sampled_from(list(wire.NAMES)),
        SHAPES,
        st.integers(0, 99),
    )
)
KEYS = st.text(max_size=5) | st.integers(-9, 9) | st.none()
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple) | st.dictionaries(KEYS, inner, max_size=4)
    ),
)


def refuse(reference):
    raise wire.WireError("no references here")


def parts(frame: bytes) -> tuple[bytes, bytes]:
    header, blob = wire.LENGTHS.unpack(frame[: wire.LENGTHS.size])
    assert len(frame) == wire.LENGTHS.size + header + blob
    return frame[wire.LENGTHS.size :][:header], frame[wire.LENGTHS.size + header :]


def there_and_back(value, resolve=refuse):
    return wire.decode(*parts(wire.encode(value)), resolve)


def same(a, b) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        bits_a, bits_b = (t.contiguous().reshape(-1).view(torch.uint8) if t.numel() else t for t in (a, b))
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits_a, bits_b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


@given(VALUES)
def test_every_value_comes_back_as_it_was(value):
    assert same(there_and_back(value), value)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(9)[::2],
        torch.zeros(1).expand(3, 3),
        torch.tensor(5),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([1.0], requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor([float("nan"), float("inf"), -0.0]),
    ],
)
def test_a_tensor_comes_back_dense_and_plain(tensor):
    back = there_and_back(tensor)
    assert type(back) is torch.Tensor and not back.requires_grad and back.is_contiguous()
    assert torch.equal(back.isnan(), tensor.isnan())
    assert torch.equal(back.nan_to_num(), tensor.detach().resolve_conj().nan_to_num())


def test_what_comes_back_shares_nothing_with_what_went():
    tensor = torch.zeros(3)
    frame = parts(wire.encode(tensor))
    first, second = wire.decode(*frame, refuse), wire.decode(*frame, refuse)
    first += 1
    assert torch.equal(second, tensor)


class Liar(list):
    def __iter__(self):
        return iter([1, 2, 3])

    def __len__(self):
        return 3


class LyingDict(dict):
    def items(self):
        return [("right", True)]


class Pair(NamedTuple):
    keys: int
    values: int


@pytest.mark.parametrize(
    ("value", "read"), [(Liar([9]), [9]), (LyingDict(a=1), {"a": 1}), (Pair(1, 2), (1, 2)), ({1.5: 0, "a": 1}, {"a": 1})]
)
def test_a_subclass_is_read_as_its_base_and_not_asked(value, read):
    assert same(there_and_back(value), read)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "object"),
        (b"bytes", "bytes"),
        ({1, 2}, "set"),
        (lambda: 1, "function"),
        (type("int", (int,), {})(3), "int"),
        (2**300, "int"),
        (torch.eye(2).to_sparse(), "Tensor"),
        (torch.empty(2, device="meta"), "Tensor"),
    ],
)
def test_anything_else_is_only_a_type_s_name(value, name):
    assert there_and_back([value], lambda reference: reference) == [wire.Reference("unknown", name)]


def test_a_reference_goes_over_as_a_number():
    thing = object()
    frame = wire.encode({"it": (thing,)}, lambda value: wire.Reference("opaque", 7, ("length",)))
    assert wire.decode(*parts(frame), lambda reference: reference) == {"it": (wire.Reference("opaque", 7, ("length",)),)}


def deep(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


def endless() -> list:
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        deep(limits.DEPTH + 1),
        deep(100_000),
        endless(),
        [0] * (limits.NODES + 1),
        "a" * (limits.HEADER_BYTES + 1),
        torch.zeros(1, dtype=torch.uint8).expand(limits.FRAME_BYTES + 1),
        [torch.zeros(limits.FRAME_BYTES // 2 + 1, dtype=torch.uint8).expand(2, -1)],
    ],
    ids=["deep", "deeper", "endless", "many", "long", "large", "large together"],
)
def test_what_is_too_large_or_too_deep_is_not_sent(value):
    with pytest.raises(wire.WireError):
        wire.encode(value)


@pytest.mark.parametrize(
    ("coded", "blob"),
    [
        ([], b""),
        (["list"], b""),
        (["list", 3], b""),
        (["list", [], []], b""),
        (["set", [1]], b""),
        ([["list", []]], b""),
        ({"a": 1}, b""),
        (2**300, b""),
        (["dict", [[1]]], b""),
        (["dict", [["a", 1], ["a", 2]]], b""),
        (["dict", [[1, 1], [True, 2]]], b""),
        (["dict", [[1.5, 1]]], b""),
        (["dict", [[["list", []], 1]]], b""),
        (["dtype", "float"], b""),
        (["dtype", ["float32"]], b""),
        (["tensor", "float32", [2]], b"\0" * 7),
        (["tensor", "float32", [2]], b"\0" * 9),
        (["tensor", "float32", [-2, -1]], b"\0" * 8),
        (["tensor", "float32", [2.0]], b"\0" * 8),
        (["tensor", "float32", [True, 2]], b"\0" * 8),
        (["tensor", "float32", [2**40]], b""),
        (["tensor", "float32", [0, 2**40]], b""),
        (["tensor", "float32", [2**31] * 16], b""),
        (["tensor", "float32", [1] * 17], b"\0" * 4),
        (["tensor", "object", [1]], b"\0" * 8),
        (["tensor", "bool", [2]], b"\1\2"),
        (["tensor", ["bool"], [1]], b"\1"),
        (["unknown", 3, []], b""),
        (["unknown", "a" * 81, []], b""),
        (["opaque", "3", []], b""),
        (["opaque", True, []], b""),
        (["opaque", 3, [1]], b""),
        (["callback", 3], b""),
        (None, b"\0"),
    ],
    ids=str,
)
def test_malformed_values_are_refused(coded, blob):
    with pytest.raises(wire.WireError):
        wire.decode(json.dumps(coded).encode(), blob, lambda reference: reference)


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"\xff", b"[" * 500_000, b"9" * 10_000, pickle.dumps([1]), '"é"'.encode(), b"[" + b"0," * 300_000 + b"0]"],
    ids=["empty", "cut", "no text", "deep", "long number", "pickle", "not ascii", "many"],
)
def test_malformed_headers_are_refused(header):
    with pytest.raises(wire.WireError):
        wire.decode(header, b"", refuse)


@given(st.binary(max_size=200), st.binary(max_size=20))
def test_random_bytes_are_a_value_or_refused_and_nothing_else(header, blob):
    try:
        wire.decode(header, blob, lambda reference: reference)
    except wire.WireError:
        pass


@given(VALUES, st.data())
def test_a_frame_with_one_byte_changed_is_a_value_or_refused_and_nothing_else(value, data):
    frame = bytearray(wire.encode(value))
    place = data.draw(st.integers(wire.LENGTHS.size, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    try:
        wire.decode(*parts(bytes(frame)), lambda reference: reference)
    except wire.WireError:
        pass


@pytest.fixture
def ends():
    a, b = socket.socketpair()
    yield wire.Channel(a), b
    a.close()
    b.close()


def test_a_channel_carries_messages_larger_than_the_socket_holds(ends):
    channel, other = ends
    tensor = torch.arange(3_000_000)
    sender = threading.Thread(target=wire.Channel(other).send, args=({"x": tensor},))
    sender.start()
    assert torch.equal(channel.receive(refuse)["x"], tensor)
    sender.join()


@pytest.mark.parametrize("lengths", [(limits.HEADER_BYTES + 1, 0), (2, limits.FRAME_BYTES + 1), (2**32 - 1, 2**32 - 1)])
def test_a_frame_that_announces_too_much_is_refused_before_it_is_read(ends, lengths):
    channel, other = ends
    other.sendall(wire.LENGTHS.pack(*lengths))
    with pytest.raises(wire.WireError):
        channel.receive(refuse)


def test_a_frame_that_ends_early_is_a_closed_line(ends):
    channel, other = ends
    other.sendall(wire.encode([1, 2, 3])[:-1])
    other.close()
    with pytest.raises(wire.WireClosed):
        channel.receive(refuse)


def test_waiting_ends_at_the_deadline_however_slowly_bytes_drip(ends):
    channel, other = ends
    channel.deadline = time.monotonic() + 0.3
    stop = threading.Event()

    def drip():
        other.sendall(wire.LENGTHS.pack(1000, 0))
        while not stop.wait(0.02):
            other.sendall(b" ")

    dripping = threading.Thread(target=drip)
    dripping.start()
    with pytest.raises(wire.WireTimeout):
        channel.receive(refuse)
    stop.set()
    dripping.join()


def test_sending_to_someone_who_does_not_read_ends_at_the_deadline(ends):
    channel, _ = ends
    channel.deadline = time.monotonic() + 0.2
    with pytest.raises(wire.WireTimeout):
        channel.send(torch.zeros(4_000_000))
