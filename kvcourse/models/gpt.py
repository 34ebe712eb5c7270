"""Lesson 03: a GPT-2-shaped model. Knows nothing about tokenization, sampling, or any concrete cache.

Names and shapes are those of Hugging Face's GPT2LMHeadModel, so its checkpoints load here and ours load there.
Source: Radford et al. 2019; attention: Vaswani et al. 2017.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from kvcourse.attention import attend, join_heads, split_heads
from kvcourse.caches.base import KVCache, Plan
from kvcourse.config import GPTConfig
from kvcourse.models.base import CausalLM
from kvcourse.models.linear import Conv1D, LayerNorm, Linear, lay_out
from kvcourse.models.part import Part
from kvcourse.probe import probe


class Attention(Part):
    """Causal self-attention: the one place in the model where tokens see each other."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.n_head = layer, config.n_head
        self.c_attn = Conv1D(config.n_embd, 3 * config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)

    def forward(self, x: Float[Tensor, "B T C"], plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        q, k, v = split_heads(self.c_attn(x), 3 * self.n_head).chunk(3, dim=1)  # (B, H, T, D) each
        probe(self.layer, "attn.q", q)
        probe(self.layer, "attn.k", k)
        probe(self.layer, "attn.v", v)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)  # (B, H, S, D): the past and these
        probe(self.layer, "attn.attended", k)
        z = attend(q, k, v, plan.mask)  # (B, H, T, D)
        probe(self.layer, "attn.z", z)
        return self.c_proj(join_heads(z))


class MLP(Part):
    """Two linear maps with a bend between them, for each token on its own."""

    def __init__(self, config: GPTConfig, layer: int | None = None) -> None:
        super().__init__()
        self.layer = layer  # None: on its own, in no block
        self.c_fc = Conv1D(config.n_embd, config.n_inner)
        self.c_proj = Conv1D(config.n_inner, config.n_embd)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        hidden = self.c_fc(x)  # (B, T, F)
        probe(self.layer, "mlp.pre", hidden)
        hidden = F.gelu(hidden, approximate="tanh")
        probe(self.layer, "mlp.post", hidden)
        return self.c_proj(hidden)


class Block(Part):
    """Attention, then MLP; each reads a normalised copy of the stream and adds its result to it."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.ln_1 = LayerNorm(config.n_embd, eps=config.norm_eps)
        self.attn = Attention(config, layer)
        self.ln_2 = LayerNorm(config.n_embd, eps=config.norm_eps)
        self.mlp = MLP(config, layer)

    def forward(self, x: Float[Tensor, "B T C"], plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        probe(self.layer, "resid_pre", x)
        normed = self.ln_1(x)
        probe(self.layer, "ln1", normed)
        attn_out = self.attn(normed, plan, cache)
        probe(self.layer, "attn_out", attn_out)
        x = x + attn_out
        probe(self.layer, "resid_mid", x)
        normed = self.ln_2(x)
        probe(self.layer, "ln2", normed)
        mlp_out = self.mlp(normed)
        probe(self.layer, "mlp_out", mlp_out)
        x = x + mlp_out
        probe(self.layer, "resid_post", x)
        return x


class Transformer(Part):
    """The parts of a GPT, under Hugging Face's names: token and position tables, blocks, last norm."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.context_length, config.n_embd)
        self.h = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.ln_f = LayerNorm(config.n_embd, eps=config.norm_eps)


class GPT(CausalLM):
    """Embeddings, blocks, a last norm, and the embedding table again as output head.

        logits = GPT(config)(tokens)                  # (B, T) -> (B, T, V)
        logits = GPT(config)(tokens, cache=cache)     # positions start at cache.length

    New weights are drawn as GPT-2's were; seed them with torch.manual_seed.
    """

    config: GPTConfig

    @torch.inference_mode(False)  # tensors made in that mode cannot be trained, nor be seen to change
    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.transformer = Transformer(config)
        self.lm_head = Linear(config.n_embd, config.vocab_size)
        self.tie()
        self._draw_weights()
        self.pack()

    def run_blocks(self, tokens: Int[Tensor, "B T"], plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        # Padding stands before position 0. It takes position 0's vector, which nobody reads.
        positions = plan.query_positions.clamp(min=0) if plan.padding else plan.query_positions
        embedded, placed = self.transformer.wte(tokens), self.transformer.wpe(positions)  # (B, T, C), (T, C)
        probe(None, "embed", embedded)
        probe(None, "pos_embed", placed.expand_as(embedded))
        x = embedded + placed
        for block in self.transformer.h:
            x = block(x, plan, cache)
        return x

    def head(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        x = self.transformer.ln_f(x)
        probe(None, "ln_final", x)
        return self.lm_head(x)

    def tie(self) -> None:
        for name, parameter in self.transformer.wte._parameters.items():  # one tensor, two names
            setattr(self.lm_head, name, parameter)

    @property
    def norm_weight(self) -> Tensor:
        return self.transformer.ln_f.weight

    def pack(self) -> None:
        if self.weight_format is not None:  # narrow weights lie as they should from the start
            return
        lay_out(self.lm_head.weight, turned=True)
        for module in self.modules():
            if isinstance(module, Conv1D):
                lay_out(module.weight, turned=False)

    def _draw_weights(self) -> None:
        """Radford et al. 2019, section 2.3: normal, 0.02; what adds to the stream is scaled by 1/√(number of additions)."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "ln_" in name:
                nn.init.ones_(parameter)
            else:
                additions = 2 * self.config.n_layer if name.endswith("c_proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / math.sqrt(additions))
