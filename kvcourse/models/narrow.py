"""Lesson 07: weights in two bytes or in one. Knows nothing about attention, caches or files.

A decode step reads every weight once and does little with it, so it can be shortened by storing them in fewer bytes. Only the
large matrices are narrow: norms, biases and positions, the stream between products, K and V stay float32.

    "float16"   11 binary digits of each weight: off by at most 1/2048 of itself, or 3e-8. What enters and leaves a product is
                rounded to float16 too, so nothing there may pass 65,504.
    "int8"      a whole number from -127 to 127 for each weight, and one scale for each output: off by at most half a scale.
                What enters and leaves a product is rounded to bfloat16 (8 binary digits, any size).

Activations are rounded one number at a time, never by the largest of their neighbours, so a token's row is the same whichever
other rows are in the pass: without that, a cache could not be exact. Source: Dettmers et al. 2022, section 2 (scales by row).
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import BFloat16, Float, Int, Int8
from torch import Tensor, nn

from kvcourse.errors import InputError
from kvcourse.huge_pages import empty_matrix
from kvcourse.meter import count
from kvcourse.models.linear import Conv1D, Packed
from kvcourse.models.linear import product as wide_product
from kvcourse.models.part import Part

if TYPE_CHECKING:
    from kvcourse.models.base import CausalLM

FORMATS = ("float16", "int8")
LARGEST = 127  # of an int8 weight; -128 is left out, so that the numbers lie evenly around 0

# One row is multiplied by the narrow weights as they are. For many rows a processor without units for such products is
# several times faster when it widens the weights first. Measured: benchmarks/NOTES.md.
FEW_ROWS = {"float16": 4, "int8": 32}
KERNEL_MULTIPLE = 32  # PyTorch's int8 kernel reads past the end where the inputs are not a multiple of 16
FLOAT16_UNITS = bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def quantize(weight: Float[Tensor, "o i"]) -> tuple[Int8[Tensor, "o i"], BFloat16[Tensor, " o"]]:
    """Whole numbers and a scale for each output, so that |weight - numbers · scale| <= scale / 2."""
    largest = weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny * LARGEST)  # a row of zeros: any scale does
    scale = (largest / LARGEST).to(torch.bfloat16)  # what the product takes; up to 1/256 off, so 127 may become 127.25
    return (weight / scale[:, None].to(weight.dtype)).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scale


def product(x: Float[Tensor, "*B i"], weight: Tensor, scale: Tensor | None = None) -> Float[Tensor, "*B o"]:
    """x @ weightᵀ (times the scale of each output), counted: B·T·in·out multiply-adds.

    weight: (out, in), float16, or int8 with its scales; fastest where it is contiguous. Returns the dtype of x.
    Raises: InputError where a gradient would have to pass.
    """
    if x.requires_grad and torch.is_grad_enabled():
        raise InputError("Narrow weights run a model; they do not train one.", expected="no gradients",
                         got="an activation that requires them",
                         todo="Use torch.no_grad(), or load the model without weights=.")  # fmt: skip
    count("macs", x.numel() * weight.shape[0])
    rows = x.reshape(-1, x.shape[-1])
    out = _times_float16(rows, weight) if scale is None else _times_int8(rows, weight, scale)
    return out.to(x.dtype).view(*x.shape[:-1], -1)


def _times_float16(rows: Tensor, weight: Tensor) -> Tensor:
    half = rows.half()
    if FLOAT16_UNITS or len(rows) <= FEW_ROWS["float16"] or weight.device.type != "cpu":
        return F.linear(half, weight.half())
    return wide_product(half.float(), weight.float()).half()


def _times_int8(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    rounded = rows.bfloat16()
    if len(rows) <= FEW_ROWS["int8"] and rows.shape[1] % KERNEL_MULTIPLE == 0:
        return torch.ops.aten._weight_int8pack_mm(rounded, weight.contiguous(), scale.bfloat16())
    return (wide_product(rounded.float(), weight.float()) * scale.float()).bfloat16()  # rounded where the kernel rounds


def _stored(weight: Float[Tensor, "o i"], form: str) -> tuple[nn.Parameter, nn.Parameter | None]:
    """The matrix in this form, (out, in) in memory: how both kernels read it fastest."""
    numbers, scale = (weight.half(), None) if form == "float16" else quantize(weight)
    matrix = empty_matrix(weight.shape[0], weight.shape[1], like=numbers).copy_(numbers)
    return _frozen(matrix), None if scale is None else _frozen(scale)


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


class NarrowMap(Part):
    """A linear map under the names it had: `weight` in the new dtype and the old shape, `bias` as it was, and for int8
    `weight_scale` (out,). turned: the weight has shape (in, out), as GPT-2's.
    """

    weight: nn.Parameter
    weight_scale: nn.Parameter | None

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, scale: nn.Parameter | None, turned: bool) -> None:
        super().__init__()
        self.turned = turned
        self.register_parameter("weight", _frozen(weight.data.t()) if turned else weight)
        self.register_parameter("bias", bias)
        self.register_parameter("weight_scale", scale)

    def forward(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        weight, bias, scale = self._parameters.values()
        assert weight is not None
        out = product(x, weight.t() if self.turned else weight, scale)
        return out if bias is None else out + bias


class NarrowTable(Part):
    """A token table, whose rows are widened as they are looked up."""

    def __init__(self, weight: nn.Parameter, scale: nn.Parameter | None) -> None:
        super().__init__()
        self.register_parameter("weight", weight)
        self.register_parameter("weight_scale", scale)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        weight, scale = self._parameters.values()
        assert weight is not None
        rows = F.embedding(tokens, weight).float()
        return rows if scale is None else rows * scale[tokens].float().unsqueeze(-1)


class NarrowPacked:
    """`linear.Packed` for narrow maps: one matrix (out_1 + out_2 + …, in), of which the named weights are views."""

    def __init__(self, *maps: NarrowMap) -> None:
        self._maps = maps
        self._whole: list[Tensor | None] = []  # matrix and scales
        self._views: list[Tensor] = []

    def __call__(self, x: Float[Tensor, "B T i"]) -> Float[Tensor, "B T o"]:
        named = self._named()
        if len(named) != len(self._views) or any(n.data_ptr() != v.data_ptr() for n, v in zip(named, self._views, strict=True)):
            self._pack()
        matrix, scale = self._whole
        assert matrix is not None
        return product(x, matrix, scale)

    def _named(self) -> list[Tensor]:
        return [p for m in self._maps for name, p in m._parameters.items() if p is not None and name != "bias"]

    def _pack(self) -> None:
        outs = [m.weight.shape[0] for m in self._maps]
        with torch.inference_mode(False), torch.no_grad():
            matrix = empty_matrix(sum(outs), self._maps[0].weight.shape[1], like=self._maps[0].weight)
            torch.cat([m.weight.data for m in self._maps], out=matrix)
            scales = [m.weight_scale.data for m in self._maps if m.weight_scale is not None]
            scale = torch.cat(scales) if scales else None
            for name, whole in (("weight", matrix), ("weight_scale", scale)):
                for m, view in zip(self._maps, () if whole is None else whole.split(outs), strict=whole is not None):
                    getattr(m, name).data = view
        self._whole, self._views = [matrix, scale], [named.data for named in self._named()]


def narrow(model: "CausalLM", form: str) -> None:
    """Replace the large matrices of a float32 model by narrow ones, in place: linear maps, output head and token table.

    A tied head stays one tensor with the table. Raises: InputError for another form, dtype or device, before any change.
    """
    require_format(form, model.dtype, model.device)
    if model.weight_format is not None:
        raise InputError("This model's weights are narrow already.", expected="float32 weights", got=model.weight_format,
                         todo="Load it again.")  # fmt: skip
    stored: dict[int, tuple[nn.Parameter, nn.Parameter | None]] = {}  # by the id of the wide parameter: tied ones meet here
    maps: dict[nn.Module, NarrowMap] = {}
    with torch.inference_mode(False), torch.no_grad():
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                turned = isinstance(child, Conv1D)
                if name == "wpe" or not (turned or isinstance(child, nn.Linear | nn.Embedding)):
                    continue
                wide: nn.Parameter = child.weight  # type: ignore[assignment]
                if id(wide) not in stored:
                    stored[id(wide)] = _stored(wide.data.t() if turned else wide.data, form)
                weight, scale = stored[id(wide)]
                if isinstance(child, nn.Embedding):
                    setattr(parent, name, NarrowTable(weight, scale))
                else:
                    maps[child] = NarrowMap(weight, child.bias, scale, turned)  # type: ignore[arg-type]
                    setattr(parent, name, maps[child])
            for name, packed in list(vars(parent).items()):
                if isinstance(packed, Packed):
                    setattr(parent, name, NarrowPacked(*(maps[m] for m in packed._maps)))
    model.weight_format = form


def require_format(form: str | None, dtype: torch.dtype | None, device: torch.device) -> None:
    """Raise InputError unless weights of this dtype, on this device, can be stored in this form. None: as they are."""
    if form is None:
        return
    if form not in FORMATS:
        raise InputError("There is no such form of weights.", expected="None, 'float16' or 'int8'", got=repr(form),
                         todo="Leave weights= out for float32.")  # fmt: skip
    if dtype != torch.float32:
        raise InputError("Narrow weights are made from float32 ones.", expected="dtype=torch.float32", got=str(dtype),
                         todo="Leave dtype= out, or weights=.")  # fmt: skip
    if form == "int8" and device.type != "cpu":
        raise InputError("int8 weights run on the CPU.", expected="device='cpu'", got=str(device),
                         todo="Use weights='float16' there.")  # fmt: skip
