"""Lesson 08: a Llama-shaped model. Knows nothing about tokenization, sampling, or any concrete cache.

RMSNorm, rotary positions, SwiGLU, grouped-query attention. Names and shapes are those of Hugging Face's LlamaForCausalLM.
Source: Touvron et al. 2023; Zhang & Sennrich 2019 (RMSNorm); Shazeer 2020 (SwiGLU); Ainslie et al. 2023 (grouped queries).
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from kvcourse.attention import attend, join_heads, split_heads
from kvcourse.caches.base import KVCache, Plan
from kvcourse.config import LlamaConfig
from kvcourse.models.base import CausalLM
from kvcourse.models.linear import Linear, Packed, lay_out
from kvcourse.models.part import Part
from kvcourse.models.rope import Rope, rotate
from kvcourse.probe import probe

Turns = tuple[Tensor, Tensor]  # cos and sin at some positions


class Angles(NamedTuple):
    """This pass's rotations. `keys`: of every key that is attended to, where the cache keeps raw ones, else None."""

    queries: Turns
    keys: Turns | None


class RMSNorm(Part, nn.RMSNorm):
    """x / √(mean(x²) + ε) · weight, as PyTorch's, which takes ten operators for it: a tenth of a decode step here."""

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        (weight,) = self._parameters.values()
        one_row = x.numel() == x.shape[-1] and x.dtype in (torch.float32, torch.float64)  # squares of smaller ones overflow
        if torch.is_grad_enabled() or not one_row:
            return torch.rms_norm(x, self.normalized_shape, weight, self.eps)
        row = x.reshape(-1)
        assert weight is not None and self.eps is not None
        return (x * weight).mul_((torch.dot(row, row).item() / len(row) + self.eps) ** -0.5)


class Attention(Part):
    """Causal self-attention in which H / H_kv query heads share a K/V head. q, k and v are one product."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.H, self.H_kv, self.D = layer, config.n_head, config.n_kv_head, config.head_size
        self.q_proj = nn.Linear(config.n_embd, self.H * self.D, bias=False)
        self.k_proj = nn.Linear(config.n_embd, self.H_kv * self.D, bias=False)
        self.v_proj = nn.Linear(config.n_embd, self.H_kv * self.D, bias=False)
        self.o_proj = Linear(self.H * self.D, config.n_embd)
        self.qkv = Packed(self.q_proj, self.k_proj, self.v_proj)

    def forward(self, x: Float[Tensor, "B T C"], angles: Angles, plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        qkv = split_heads(self.qkv(x), self.H + 2 * self.H_kv)  # (B, H + 2 H_kv, T, D)
        qk, v = qkv.split((self.H + self.H_kv, self.H_kv), dim=1)
        q, k = rotate(qk, *angles.queries).split((self.H, self.H_kv), dim=1)  # (B, H, T, D), (B, H_kv, T, D)
        probe(self.layer, "attn.q", q)
        probe(self.layer, "attn.k", k)
        probe(self.layer, "attn.v", v)
        if angles.keys is not None and cache is not None:  # kept as they were before rotation, and turned at every use
            k, v = cache.append(self.layer, qk[:, self.H :], v)
            k = rotate(k, *angles.keys)
        elif cache is not None:
            k, v = cache.append(self.layer, k, v)  # (B, H_kv, S, D): the past and these
        probe(self.layer, "attn.attended", k)
        z = attend(q, k, v, plan.mask)  # (B, H, T, D)
        probe(self.layer, "attn.z", z)
        return self.o_proj(join_heads(z))


class MLP(Part):
    """SwiGLU: one half of the hidden units decides how much of the other half passes. Gate and up are one product."""

    def __init__(self, config: LlamaConfig, layer: int | None = None) -> None:
        super().__init__()
        self.layer = layer  # None: on its own, in no block
        self.gate_proj = nn.Linear(config.n_embd, config.n_inner, bias=False)
        self.up_proj = nn.Linear(config.n_embd, config.n_inner, bias=False)
        self.down_proj = Linear(config.n_inner, config.n_embd)
        self.gate_up = Packed(self.gate_proj, self.up_proj)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        gate, up = self.gate_up(x).chunk(2, dim=-1)  # (B, T, F) each
        probe(self.layer, "mlp.pre", gate)
        probe(self.layer, "mlp.pre_linear", up)
        hidden = F.silu(gate) * up
        probe(self.layer, "mlp.post", hidden)
        return self.down_proj(hidden)


class Block(Part):
    """Attention, then MLP; each reads a normalised copy of the stream and adds its result to it."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.input_layernorm = RMSNorm(config.n_embd, eps=config.norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RMSNorm(config.n_embd, eps=config.norm_eps)
        self.mlp = MLP(config, layer)

    def forward(self, x: Float[Tensor, "B T C"], angles: Angles, plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        probe(self.layer, "resid_pre", x)
        normed = self.input_layernorm(x)
        probe(self.layer, "ln1", normed)
        attn_out = self.self_attn(normed, angles, plan, cache)
        probe(self.layer, "attn_out", attn_out)
        x = x + attn_out
        probe(self.layer, "resid_mid", x)
        normed = self.post_attention_layernorm(x)
        probe(self.layer, "ln2", normed)
        mlp_out = self.mlp(normed)
        probe(self.layer, "mlp_out", mlp_out)
        x = x + mlp_out
        probe(self.layer, "resid_post", x)
        return x


class Decoder(Part):
    """The parts of a Llama, under Hugging Face's names: token table, blocks, last norm."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.norm = RMSNorm(config.n_embd, eps=config.norm_eps)


class Llama(CausalLM):
    """Embedding, blocks, a last norm, and an output head (the embedding table again where `config.tied`).

        logits = Llama(config)(tokens)                  # (B, T) -> (B, T, V)
        logits = Llama(config)(tokens, cache=cache)     # positions start at cache.length

    New weights are normal, 0.02; seed them with torch.manual_seed.
    """

    config: LlamaConfig
    rotary = True

    @torch.inference_mode(False)  # tensors made in that mode cannot be trained, nor be seen to change
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size)
        self.tie()
        self.rope = Rope(config)
        for name, parameter in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(parameter, std=0.02)
        self.pack()

    def run_blocks(self, tokens: Int[Tensor, "B T"], plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        x = self.model.embed_tokens(tokens)
        probe(None, "embed", x)
        raw = cache is not None and cache.keys == "raw"
        stop = tokens.shape[1] if cache is None else cache.length + tokens.shape[1]
        angles = Angles(
            self._turns(plan.query_positions, stop, plan.padding > 0, x),
            self._turns(plan.key_positions, stop, cache.starts is not None, x) if cache is not None and raw else None,
        )
        for block in self.model.layers:
            x = block(x, angles, plan, cache)
        return x

    def _turns(self, positions: Tensor, stop: int, padded: bool, like: Tensor) -> Turns:
        """cos and sin at these positions, all below `stop`; padding stands before position 0 and takes its angle."""
        cos, sin = self.rope.at(positions.clamp(min=0) if padded else positions, like, stop)  # (T, D) each
        return (cos, sin) if positions.dim() == 1 else (cos[:, None], sin[:, None])  # (B, 1, T, D)

    def room(self, cache: KVCache | None = None) -> float:
        """As for any model; but what stands further back than a window is never compared, so a text may go on for ever."""
        window = getattr(cache, "window", None)
        return self.config.context_length if window is None or window > self.config.context_length else math.inf

    def head(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        x = self.model.norm(x)
        probe(None, "ln_final", x)
        return self.lm_head(x)

    def tie(self) -> None:
        if self.config.tied:
            for name, parameter in self.model.embed_tokens._parameters.items():  # one tensor, two names
                setattr(self.lm_head, name, parameter)

    @property
    def norm_weight(self) -> Tensor:
        return self.model.norm.weight

    def pack(self) -> None:
        if self.device.type == "meta":  # nothing is there yet, and concatenating there costs a second of imports
            return
        if self.weight_format is not None:  # narrow weights lie as they should from the start
            return
        lay_out(self.lm_head.weight, turned=True)
        for module in self.modules():
            if isinstance(module, Attention):
                module.qkv.matrix()
                lay_out(module.o_proj.weight, turned=True)
            elif isinstance(module, MLP):
                module.gate_up.matrix()
                lay_out(module.down_proj.weight, turned=True)
