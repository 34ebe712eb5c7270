"""Lesson 07: linear maps, laid out for one row at a time. Knows nothing about attention.

A decode step multiplies one row by every weight there is, so it runs at the speed of reading memory. Which way a matrix
lies decides how fast that goes: with more outputs than inputs it is read 1.2 to 1.4 times faster when stored (in, out), with
more inputs than outputs 1.05 to 1.1 times faster when stored (out, in). A transposed view changes where numbers lie and
nothing else, so names and shapes stay those of the checkpoint.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from kvcourse.meter import count
from kvcourse.models.memory import empty_matrix
from kvcourse.models.part import Part


def linear(
    x: Float[Tensor, "*B i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "*B o"]:
    """x @ weightᵀ + bias, counted: B·T·in·out multiply-adds."""
    count("macs", x.numel() * weight.shape[0])
    if x.numel() > x.shape[-1]:
        return F.linear(x, weight, bias)
    row = x.reshape(-1)  # one token alone: a matrix times a vector
    out = torch.mv(weight, row) if bias is None else torch.addmv(bias, weight, row)
    return out.view(*x.shape[:-1], -1)


def lay_out(parameter: Tensor, *, n_in: int) -> None:
    """Store a weight in the order in which it is read fastest, in place; its shape and values stay.

    n_in: which of its two sizes is the number of inputs. With more outputs than inputs, each input's numbers lie together.
    """
    if parameter.is_meta:
        return
    n_out = parameter.numel() // n_in
    shape = (n_in, n_out) if n_out > n_in else (n_out, n_in)
    with torch.inference_mode(False), torch.no_grad():
        stored = empty_matrix(*shape, like=parameter)
        value = stored if parameter.shape == shape else stored.t()
        parameter.data = value.copy_(parameter.data)


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
