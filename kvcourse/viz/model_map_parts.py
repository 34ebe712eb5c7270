"""Lesson 04: what a model map shows of a pass: every tensor, its role, its real name, and what it was made from.

Knows nothing about drawing or notebooks. Names of parameters are those of `model.state_dict()`, names of activations those of
`trace`; an aggregate has no name of its own, so it goes by the expression that makes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import InputError
from kvcourse.models.base import CausalLM
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.trace import Trace, trace
from kvcourse.viz import style
from kvcourse.viz.model_map_tables import GPT_PARTS, LLAMA_PARTS, Part


@dataclass(frozen=True)
class Box:
    """One tensor on the map."""

    part: Part
    name: str  # real: of the state dict, of the trace, or the expression that sums one
    cut: str  # "[:, 128:256]" where only these columns are meant
    made: str  # one line: "k = ln1 @ Wk + bk, cut into 4 heads of 32"
    value: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def full_name(self) -> str:
        return self.name + self.cut

    @property
    def kept(self) -> bool:
        """Whether a KV cache holds it when the pass is over."""
        return self.part.gone is None


@dataclass(frozen=True)
class MapData:
    """One block of a model, with what stands before and after the blocks, for one prompt."""

    texts: tuple[str, ...]
    ids: tuple[int, ...]
    layer: int
    n_layer: int
    block: str  # what all parameters of this block begin with: "transformer.h.0"
    heads: int
    kv_bytes: int  # that a cache would hold for this prompt, in all blocks
    boxes: dict[str, Box]  # by part key, in reading order

    @property
    def traced(self) -> str:
        """What all activations of this block begin with."""
        return f"blocks.{self.layer}"

    def short(self, box: Box) -> str:
        """The name without what the whole block has in common."""
        return box.full_name.removeprefix(f"{self.block}.").removeprefix(f"{self.traced}.")

    def shapes(self, box: Box) -> list[str]:
        """Where the box's numbers come from, a line each: `Wk: transformer.h.0.attn.c_attn.weight[:, 128:256] (128, 128)`."""
        return [f"{source.part.symbol}: {source.full_name} {source.shape}" for source in self.sources(box)]

    def sources(self, box: Box) -> list[Box]:
        return [self.boxes[key] for key in box.part.sources if key in self.boxes]

    def used_for(self, box: Box) -> list[Box]:
        return [other for other in self.boxes.values() if box.part.key in other.part.sources]


class Recording:
    """One traced pass of a model; `at(layer)` is the map of one of its blocks."""

    def __init__(self, model: CausalLM, prompt: str | Sequence[int] | Tensor) -> None:
        self.ids = prompt_ids(model, prompt)
        self.texts = tuple(str(i) if model.tokenizer is None else model.tokenizer.token_text(i) for i in self.ids)
        self.config = model.config
        self.parts, self.prefix = _table(model)
        self.weights = model.state_dict()
        self.named: Trace = trace(model, self.ids)
        self.itemsize = self.named["embed"].element_size()

    def at(self, layer: int) -> MapData:
        """Raises: InputError for a layer that does not exist."""
        n_layer = self.config.n_layer
        if not 0 <= layer < n_layer:
            raise InputError("No such layer.", expected=f"0 to {n_layer - 1}", got=layer, todo="Choose one that there is.")
        block = f"{self.prefix}.{layer}"
        boxes = {part.key: self._box(part, layer, block) for part in self.parts}
        kv_bytes = kv_bytes_per_token(self.config, self.itemsize) * len(self.ids)
        return MapData(self.texts, tuple(self.ids), layer, n_layer, block, self.config.n_head, kv_bytes, boxes)

    def _box(self, part: Part, layer: int, block: str) -> Box:
        c, cut = self.config, ""
        if part.role is style.PARAMETER:
            name = part.name.replace("{block}", block)
            value = self.weights[name]
            if part.third is not None:  # GPT-2 keeps Wq, Wk and Wv side by side in one tensor
                first, last = part.third * c.n_embd, (part.third + 1) * c.n_embd
                value = value[..., first:last]
                cut = f"[:, {first}:{last}]" if value.dim() == 2 else f"[{first}:{last}]"
        else:
            name = part.name.replace("{block}", f"blocks.{layer}")
            value = self.named[name] if part.role is style.ACTIVATION else self._aggregate(part, layer)
        first_made = part.made_in_first if layer == 0 and part.made_in_first else part.made
        made = first_made.format(H=c.n_head, H_kv=c.n_kv_head, D=c.head_size, group=c.n_head // c.n_kv_head, before=layer - 1)
        if part.key == "head" and value.data_ptr() == self.weights[self.parts[0].name].data_ptr():
            made = f"the same tensor as {self.parts[0].name}, under a second name"
        return Box(part, name, cut, made, value)

    def _aggregate(self, part: Part, layer: int) -> Tensor:
        source = next(other for other in self.parts if other.key == part.sources[0])
        x = self.named[source.name.replace("{block}", f"blocks.{layer}")]
        if part.key == "totals":  # the largest score is taken off first, as softmax itself does: exp of a large one overflows
            return (x - x.amax(-1, keepdim=True)).exp().sum(-1)
        eps = self.config.norm_eps
        if part.key.startswith("rms"):
            return (x.square().mean(-1) + eps).sqrt()
        return torch.stack([x.mean(-1), (x.var(-1, unbiased=False) + eps).sqrt()], dim=-1)


def prompt_ids(model: CausalLM, prompt: str | Sequence[int] | Tensor) -> list[int]:
    """A text's ids by the model's own tokenizer, or the ids themselves.

    Raises: InputError for a text without a tokenizer, and for an empty prompt.
    """
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise InputError(
                "This model has no tokenizer.",
                expected="token ids",
                got=repr(prompt),
                todo="Pass a list of ids instead of a text.",
            )
        ids = [int(i) for i in model.tokenizer.encode(prompt)]
    else:
        ids = [int(i) for i in (prompt.flatten() if isinstance(prompt, Tensor) else prompt)]
    if not ids:
        raise InputError("There is no token to draw.", expected="at least one token", got=0, todo="Give a longer prompt.")
    return ids


def _table(model: CausalLM) -> tuple[tuple[Part, ...], str]:
    if isinstance(model, GPT):
        return GPT_PARTS, "transformer.h"
    if isinstance(model, Llama):
        return LLAMA_PARTS, "model.layers"
    raise InputError(
        "There is no map for this kind of model.",
        expected="a GPT or a Llama of this package",
        got=type(model).__name__,
        todo='Load one: load_model("tiny").',
    )
