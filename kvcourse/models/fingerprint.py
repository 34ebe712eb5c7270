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
    looks: tuple[torch.Size, torch.dtype]
    digest: bytes

    def is_still(self, tensor: Tensor) -> bool:
        same = self.tensor() is tensor and self.data_ptr == tensor.data_ptr() and self.version == tensor._version
        return same and self.looks == (tensor.shape, tensor.dtype) and self.storage() is tensor.untyped_storage()


class Fingerprint:
    """Digests of a module's parameters, kept between calls.

    In-place changes are seen by the tensor's version counter. Writes that go round it (through `.data` or a NumPy view) are
    not: call `touch()` after those.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._touched = 0
        self._total: tuple[str, list[_Known], str] | None = None  # shape, all tensors in order, and the digest of all that

    def __reduce__(self) -> tuple[type["Fingerprint"], tuple[()]]:
        return Fingerprint, ()  # a copy or a pickled model starts without digests: weak references do not travel

    def touch(self) -> None:
        """Forget all digests: the next one is computed from the numbers as they are."""
        self._known.clear()
        self._total = None
        self._touched += 1

    def version(self, module: nn.Module) -> tuple[object, ...]:
        """Other than before wherever the digest may be; found without reading a weight. Means nothing to another process."""
        return self._touched, *((id(p), p.data_ptr(), p._version) for p in _parameters(module))

    def of(self, module: nn.Module, shape: str) -> str:
        """Hexadecimal digest of `shape` (the configuration, as text) and all named parameters: name, dtype, shape, bytes."""
        if self._total is not None:
            before, tensors, digest = self._total
            now = _parameters(module)
            if before == shape and len(tensors) == len(now) and all(map(_Known.is_still, tensors, now)):
                return digest
        total, everything = hashlib.sha256(shape.encode()), {}
        for name, parameter in module.named_parameters():
            total.update(f"{name} {parameter.dtype} {tuple(parameter.shape)} ".encode())
            total.update(self._digest(name, parameter))
            everything[id(parameter)] = self._known[name]
        self._total = shape, [everything[id(parameter)] for parameter in _parameters(module)], total.hexdigest()
        return self._total[2]

    def _digest(self, name: str, tensor: Tensor) -> bytes:
        known = self._known.get(name)
        if known is None or not known.is_still(tensor):
            storage, here = tensor.untyped_storage(), (tensor.data_ptr(), tensor._version)
            flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
            known = _Known(
                weakref.ref(tensor),
                weakref.ref(storage),
                *here,
                (tensor.shape, tensor.dtype),
                hashlib.sha256(flat.numpy().data).digest(),
            )
            self._known[name] = known
        return known.digest


def _parameters(module: nn.Module) -> list[nn.Parameter]:
    """Every parameter, once for each name that it has, in an order that depends on the modules alone.

    Names are not built, which takes two thirds of the time of `module.parameters()`: every request of a prefix cache asks.
    """
    found: list[nn.Parameter] = []
    waiting = [module]
    while waiting:
        one = waiting.pop()
        found += [parameter for parameter in one._parameters.values() if parameter is not None]
        waiting += [child for child in one._modules.values() if child is not None]
    return found
