"""Lesson 04: an inventory of named weights. Knows nothing about activations: what is listed here is the same for every prompt.

for weight in inventory("model.safetensors"):
    print(weight.name, weight.role, weight.shape)
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcourse.errors import InputError
from kvcourse.weight_files import Stored, n_parameters, stored_tensors
from kvcourse.weight_names import place_of

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Weight:
    """One named tensor of a model."""

    name: str
    role: str  # "q, k and v projections", "MLP up bias" …; "unknown" for a name of no known spelling
    layer: int | None  # None outside the blocks
    shape: tuple[int, ...]
    dtype: str
    parameters: int  # 0 for a second name of a tensor listed before (a tied head)
    bytes: int

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "shape": list(self.shape)}


def inventory(source: "nn.Module | Mapping[str, Tensor] | str | Path") -> list[Weight]:
    """Every named weight of a model, a state dict, a .safetensors or .gguf file, or a folder with .safetensors files.

    Files are read by their headers: no numbers are loaded, and torch is not imported for them.
    Raises: CheckpointError for a file without weights; InputError for anything else.
    """
    if isinstance(source, str | Path):
        return [_weight(tensor) for tensor in stored_tensors(Path(source).expanduser())]
    tensors = source if isinstance(source, Mapping) else getattr(source, "state_dict", dict)()
    if not tensors:
        raise InputError(
            "There are no weights to list.",
            expected="a model, a state dict with tensors, or the path of a file",
            got=type(source).__name__,
            todo="Pass one of these.",
        )
    return list(_of_tensors(tensors))


def _of_tensors(tensors: "Mapping[str, Tensor]") -> Iterable[Weight]:
    seen: dict[tuple[int, int], str] = {}
    for name, tensor in tensors.items():
        stored = Stored(
            name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.numel() * tensor.element_size()
        )
        first = seen.setdefault((tensor.data_ptr(), tensor.numel()), name) if tensor.numel() and tensor.data_ptr() else name
        yield _weight(stored, tied_to=None if first == name else first)


def _weight(tensor: Stored, tied_to: str | None = None) -> Weight:
    role, layer = place_of(tensor.name)
    if tied_to is not None:
        return Weight(tensor.name, f"{role}: {tied_to} again", layer, tensor.shape, tensor.dtype, 0, 0)
    return Weight(tensor.name, role, layer, tensor.shape, tensor.dtype, n_parameters(tensor.shape), tensor.n_bytes)


class QKV(NamedTuple):
    """The three parts of a fused projection."""

    q: "Tensor"
    k: "Tensor"
    v: "Tensor"


def split_qkv(fused: "Tensor") -> QKV:
    """Cut GPT-2's fused c_attn apart: the weight (C, 3C) into three (C, C), the bias (3C,) into three (C,). Views, no copies.

    `x @ Wk + bk` is the K of the fused projection. Source: Hugging Face's GPT2Attention, which splits c_attn's output.
    Raises: InputError if the last axis is not three times the first (or, for a bias, no multiple of three).
    """
    size = fused.shape[-1] if fused.dim() in (1, 2) else 0
    if size % 3 or size == 0 or (fused.dim() == 2 and size != 3 * fused.shape[0]):
        raise InputError(
            "This is no fused q, k, v projection.",
            expected="c_attn.weight (C, 3C) or c_attn.bias (3C,)",
            got=tuple(fused.shape),
            todo="Pass h.N.attn.c_attn.weight or .bias.",
        )
    return QKV(*fused.split(size // 3, dim=-1))
