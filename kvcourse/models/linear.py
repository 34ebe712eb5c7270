"""Lesson 07: linear maps, run at the speed of memory. Knows nothing about attention.

A decode step multiplies one row by every weight there is, so it can go no faster than they are read. PyTorch hands float32
products to MKL, which on many processors reads a matrix for one row with a single core, and falls behind with many rows where
the processor is not Intel's. oneDNN, which is in PyTorch too and which `torch.compile` calls for the same products, uses every
core; it is fastest where the matrix lies (in, out). A transposed view changes where numbers lie and nothing else, so names
and shapes stay those of the checkpoint. Measured: benchmarks/NOTES.md.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from kvcourse.huge_pages import empty_matrix
from kvcourse.meter import count
from kvcourse.models.part import Part

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(
    x: Float[Tensor, "*B i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "*B o"]:
    """x @ weightᵀ + bias, counted: B·T·in·out multiply-adds."""
    count("macs", x.numel() * weight.shape[0])
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
    return F.linear(x, weight, bias) if learns else product(x, weight, bias)


def product(
    x: Float[Tensor, "*B i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "*B o"]:
    """x @ weightᵀ + bias, not counted, through which no gradient passes."""
    if ONEDNN and x.dtype == torch.float32 and x.device.type == "cpu":
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # "none": no activation after it
    return F.linear(x, weight, bias)


def lay_out(parameter: Tensor, *, turned: bool) -> None:
    """Store a weight (in, out), in place: each input's numbers lie together. Its shape and values stay.

    turned: its shape is (out, in), as nn.Linear's, and not (in, out), as GPT-2's.
    """
    if parameter.is_meta:
        return
    rows, columns = reversed(parameter.shape) if turned else parameter.shape
    with torch.inference_mode(False), torch.no_grad():
        stored = empty_matrix(rows, columns, like=parameter)
        parameter.data = (stored.t() if turned else stored).copy_(parameter.data)


class Conv1D(Part):
    """GPT-2's linear map: the weight has shape (in, out). Hugging Face: transformers.pytorch_utils.Conv1D."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out))
        self.bias = nn.Parameter(torch.empty(n_out))

    def forward(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        weight, bias = self._parameters.values()  # past nn.Module's search by name, which costs a step 150 of them
        return linear(x, weight.t(), bias)  # type: ignore[union-attr]


class Linear(Part, nn.Linear):
    """PyTorch's without a bias, counted, and with a product of its own for one row."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, bias=False)

    def forward(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        weight, _ = self._parameters.values()
        return linear(x, weight)  # type: ignore[arg-type]


class LayerNorm(Part, nn.LayerNorm):
    """PyTorch's, with fewer calls in between."""

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        weight, bias = self._parameters.values()
        return torch.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


class Packed:
    """Several linear maps of the same input, stored as one matrix (in, out_1 + out_2 + …) and done in one product.

    Each map's own weight becomes a view into that matrix. The named weights stay the truth: if one of them was replaced (by
    `load_state_dict(assign=True)`, `.to(dtype)`, `deepcopy`), they are packed again before the next product.
    """

    def __init__(self, *maps: nn.Linear) -> None:
        self._maps = maps
        self._matrix: Tensor | None = None  # (in, sum of outs)
        self._places: list[
            tuple[dict[str, nn.Parameter | None], int]
        ] = []  # of each map: its parameters, and the view's address

    def __call__(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        if torch.is_grad_enabled() and any(m.weight.requires_grad for m in self._maps):
            return torch.cat([linear(x, m.weight) for m in self._maps], dim=-1)  # gradients go to the named weights
        return linear(x, self.matrix().t())

    def matrix(self) -> Float[Tensor, "i o"]:
        """The packed weights, current."""
        for parameters, address in self._places:  # past nn.Module's search by name: this runs twice in each layer of a step
            if parameters["weight"].data_ptr() != address:  # type: ignore[union-attr]
                break
        else:
            if self._matrix is not None:
                return self._matrix
        return self._pack()

    def _pack(self) -> Float[Tensor, "i o"]:
        with torch.inference_mode(False), torch.no_grad():
            first = self._maps[0].weight
            outs = [m.weight.shape[0] for m in self._maps]
            matrix = self._matrix = empty_matrix(first.shape[1], sum(outs), like=first)
            torch.cat([m.weight.data.t() for m in self._maps], dim=1, out=matrix)  # (in, sum of outs)
            views = matrix.split(outs, dim=1)
            for m, view in zip(self._maps, views, strict=True):
                m.weight.data = view.t()
            self._places = [(m._parameters, view.data_ptr()) for m, view in zip(self._maps, views, strict=True)]
        return matrix
