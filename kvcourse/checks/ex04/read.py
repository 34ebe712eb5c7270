"""Lesson 04: what must hold of an answer that reads one tensor from a safetensors file (4.4). Knows nothing about models."""

import json
import struct
from collections.abc import Mapping

import torch
from torch import Tensor

from kvcourse.checks.base import Answer, Broken, Draw, Property, describe, expect

TYPES = {torch.float32: "F32", torch.float16: "F16"}


def returns_a_tensor_of_the_shape_in_the_header(answer: Answer, draw: Draw) -> None:
    for shape in ((2, 3), (draw.integer(3, 5), draw.integer(6, 8))):
        name, tensor = "wte.weight", draw.tensor(*shape).float()
        right_shape(answer(list(file_of({name: tensor})), name), tensor)


def reads_the_only_tensor(answer: Answer, draw: Draw) -> None:
    for shape in ((4,), (draw.integer(2, 5), 3)):
        compare(answer, {"ln_f.bias": draw.tensor(*shape).float()}, "ln_f.bias", "The file has one tensor")


def finds_a_tensor_among_others(answer: Answer, draw: Draw) -> None:
    tensors = {f"h.{layer}.ln_1.weight": draw.tensor(draw.integer(3, 9)).float() for layer in range(4)}
    for name in tensors:
        compare(answer, tensors, name, "The file has four tensors")


def goes_by_the_offsets(answer: Answer, draw: Draw) -> None:
    """The header's order need not be the order of the bytes. All of one size, so that a wrong place is found by its numbers."""
    size = draw.integer(3, 9)
    tensors = {f"h.{layer}.ln_1.weight": draw.tensor(size).float() for layer in range(4)}
    for name in tensors:
        compare(answer, tensors, name, "The header lists its four tensors in another order than the bytes'", shuffled=True)


def reads_half_precision(answer: Answer, draw: Draw) -> None:
    tensors = {"a": draw.tensor(2, 3).half(), "b": draw.tensor(draw.integer(2, 5), 2).float(), "c": draw.tensor(4).half()}
    for name in tensors:
        compare(answer, tensors, name, "The file mixes F16 (2 bytes a number) and F32 (4 bytes)")


def takes_no_metadata_for_a_tensor(answer: Answer, draw: Draw) -> None:
    tensors = {"a": draw.tensor(draw.integer(2, 5)).float(), "b": draw.tensor(2, 2).float()}
    for name in tensors:
        compare(answer, tensors, name, "The header also has the entry __metadata__", metadata={"format": "pt"})


def reads_any_number_of_axes(answer: Answer, draw: Draw) -> None:
    tensors = {"none": draw.tensor(1)[0].float(), "three": draw.tensor(2, 1, 3).float(), "four": draw.tensor(1, 2, 2, 2).half()}
    for name in tensors:
        compare(answer, tensors, name, f"The tensor has the shape {tuple(tensors[name].shape)}")


PROPERTIES: tuple[Property, ...] = (
    returns_a_tensor_of_the_shape_in_the_header,
    reads_the_only_tensor,
    finds_a_tensor_among_others,
    goes_by_the_offsets,
    reads_half_precision,
    takes_no_metadata_for_a_tensor,
    reads_any_number_of_axes,
)


def bits(tensor: Tensor) -> bytes:
    """The tensor's numbers as a file holds them: a NaN that was read by mistake is compared as well."""
    return tensor.contiguous().numpy().tobytes()


def file_of(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None, shuffled: bool = False) -> bytes:
    """A safetensors file, padded as the library pads it. shuffled: the header lists the tensors from the last to the first."""
    entries: dict[str, object] = {}
    place = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [place, place + size]}
        place += size
    listed = dict(reversed(entries.items())) if shuffled else entries
    header = json.dumps({"__metadata__": metadata, **listed} if metadata else listed).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + b"".join(bits(tensor) for tensor in tensors.values())


def right_shape(got: object, right: Tensor) -> Tensor:
    expect(isinstance(got, Tensor), f"Expected a tensor; got {describe(got)}.")
    assert isinstance(got, Tensor)
    flat = got.dim() == 1 and got.numel() == right.numel() > 1 and right.dim() != 1
    expect(not flat, f"All {got.numel()} numbers in one row. The header says {list(right.shape)}.")
    shape = tuple(got.shape) == tuple(right.shape)
    expect(shape, f"The header says {list(right.shape)}; your tensor has the shape {tuple(got.shape)}.")
    return got


def compare(
    answer: Answer,
    tensors: Mapping[str, Tensor],
    name: str,
    where: str,
    metadata: dict[str, str] | None = None,
    shuffled: bool = False,
) -> None:
    raw, right = file_of(tensors, metadata, shuffled), tensors[name]
    got = answer(list(raw), name)
    expect(isinstance(got, Tensor), f"{where}. Expected a tensor; got {describe(got)}.")
    names = [str(kind).removeprefix("torch.") for kind in (right.dtype, got.dtype)]
    expect(got.dtype == right.dtype, f"{where}. {name} is {TYPES[right.dtype]}, {names[0]}; yours is {names[1]}.")
    right_shape(got, right)
    if bits(got) != bits(right):
        raise Broken(f"{where}. {explain(raw, bits(got), tensors, name)}")


def explain(raw: bytes, got: bytes, tensors: Mapping[str, Tensor], name: str) -> str:
    """Where in the file the wrong numbers come from."""
    length = int.from_bytes(raw[:8], "little")
    start = sum(t.numel() * t.element_size() for t in list(tensors.values())[: list(tensors).index(name)])
    for base, message in (
        (0, "Those bytes were counted from the start of the file. data_offsets count from the end of the header."),
        (length, "Those bytes lie 8 too early: the 8 bytes of the length come before the header, and count too."),
        (8, "Those bytes lie inside the header. The numbers begin where it ends."),
    ):
        if raw[base + start : base + start + len(got)] == got:
            return message
    for other, tensor in tensors.items():
        if other != name and bits(tensor)[: len(got)] == got[: len(bits(tensor))]:
            return f"For {name} you read the numbers of {other}."
    if got[::-1] == bits(tensors[name]) or any(byte_order(got, size) == bits(tensors[name]) for size in (2, 4)):
        return "The bytes of each number are in the wrong order: the least significant comes first."
    if sorted(got) == sorted(bits(tensors[name])):
        return "The right numbers, in another order: a row after the other, as they lie in the file."
    return f"These are not the numbers of {name}."


def byte_order(data: bytes, size: int) -> bytes:
    """Each number's bytes turned round."""
    return b"".join(data[i : i + size][::-1] for i in range(0, len(data), size))
