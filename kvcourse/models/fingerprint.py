"""Lesson 10: which weights are these? A digest of a model's shape and numbers. Knows nothing about what they mean.

K and V of the same text differ as soon as one weight differs, so a cache key or a session file names the weights it was
computed with. Hashing half a gigabyte takes about half a second: each tensor's digest is kept until the tensor changes.
"""

import hashlib
import weakref
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class _Known:
    """A tensor's digest, and how to tell that it is still the same tensor, at the same place, unwritten since."""

    tensor: "weakref.ref[Tensor]"
    storage: "weakref.ref[torch.UntypedStorage]"  # not only its address, which is used again when it is freed
    data_ptr: int
    version: int
    digest: bytes


class Fingerprint:
    """Digests of a module's parameters, kept between calls.

    In-place changes are seen by the tensor's version counter. Writes that go round it (through `.data` or a NumPy view) are
    not: call `touch()` after those.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._touched = 0

    def __reduce__(self) -> tuple[type["Fingerprint"], tuple[()]]:
        return Fingerprint, ()  # a copy or a pickled model starts without digests: weak references do not travel

    def touch(self) -> None:
        """Forget all digests: the next one is computed from the numbers as they are."""
        self._known.clear()
        self._touched += 1

    def version(self, module: nn.Module) -> tuple[object, ...]:
        """Other than before wherever the digest may be; found without reading a weight. Means nothing to another process."""
        return self._touched, *((id(p), p.data_ptr(), p._version) for p in module.parameters())

    def of(self, module: nn.Module, shape: str) -> str:
        """Hexadecimal digest of `shape` (the configuration, as text) and all named parameters: name, dtype, shape, bytes."""
        total = hashlib.sha256(shape.encode())
        for name, parameter in module.named_parameters():
            total.update(f"{name} {parameter.dtype} {tuple(parameter.shape)} ".encode())
            total.update(self._digest(name, parameter))
        return total.hexdigest()

    def _digest(self, name: str, tensor: Tensor) -> bytes:
        known = self._known.get(name)
        storage, here = tensor.untyped_storage(), (tensor.data_ptr(), tensor._version)
        same = known is not None and known.tensor() is tensor and known.storage() is storage
        if known is None or not same or (known.data_ptr, known.version) != here:
            flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            known = _Known(weakref.ref(tensor), weakref.ref(storage), *here, hashlib.sha256(flat.numpy().data).digest())
            self._known[name] = known
        return known.digest
