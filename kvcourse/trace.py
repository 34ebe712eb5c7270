"""Lesson 04: every named activation of one forward pass. Knows nothing about how a model computes them: it listens.

In the order in which they are computed, tokens (B, T) in:

    embed, pos_embed (learned positions only)                              (B, T, C)
    blocks.0.resid_pre, .ln1                                               (B, T, C)
    blocks.0.attn.q; .k, .v                                                (B, H, T, D); (B, H_kv, T, D)
    blocks.0.attn.scores, .pattern                                         (B, H, T, S)
    blocks.0.attn.z                                                        (B, H, T, D)
    blocks.0.attn_out, .resid_mid, .ln2                                    (B, T, C)
    blocks.0.mlp.pre, .pre_linear (a gated MLP only), .post                (B, T, F)
    blocks.0.mlp_out, .resid_post                                          (B, T, C)
    ln_final, logits                                                       (B, T, C), (B, T, V)

The names are TransformerLens's without "hook_", with three exceptions. What a norm returns goes by the norm's name: ln1, ln2,
ln_final (there ln1.hook_normalized, which for an RMSNorm is taken before its weight is multiplied in). attn.scores is its
attn.hook_attn_scores. And q and k are as attention uses them: where positions are rotary, its hook_rot_q and hook_rot_k.
"""

import difflib
from collections.abc import Sequence

import torch
from torch import Tensor

from kvcourse.attention import attention_pattern
from kvcourse.caches.base import KVCache, plan_without_cache
from kvcourse.errors import InputError, UnknownName
from kvcourse.models.base import CausalLM
from kvcourse.probe import listening


class Trace(dict[str, Tensor]):
    """Activations by name. Printing it shows the names and shapes."""

    def __missing__(self, name: str) -> Tensor:
        near = difflib.get_close_matches(name, self, n=3, cutoff=0.4)
        raise UnknownName(
            "No activation of that name.",
            expected=", ".join(near) or "one of the trace's keys",
            got=repr(name),
            todo="Print the trace to see all names.",
        )

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {tuple(tensor.shape)}" for name, tensor in self.items())


def trace(model: CausalLM, tokens: Tensor | Sequence[int], cache: KVCache | None = None, *, causal: bool = True) -> Trace:
    """Run one pass and keep a copy of everything the model names on the way.

    tokens: int64 (B, T), or a list of ids for B = 1.
    cache: as for model(tokens, cache=cache): it grows by T. New rows only are traced; scores and pattern are (B, H, T, S).
    causal: False lets every token see every other. No language model here was trained so: it is a counter-example.
    Raises: InputError for causal=False with a cache, whose rows could not stay valid.
    """
    ids = tokens if isinstance(tokens, Tensor) else torch.tensor([list(tokens)], device=model.device)
    if cache is not None and not causal:
        raise InputError(
            "Without the causal mask earlier K and V change.",
            expected="no cache",
            got="a cache",
            todo="Leave out one of the two.",
        )
    plan = cache.plan(ids.shape[1]) if cache is not None else plan_without_cache(ids.shape[1], ids.device, causal)
    named = Trace()

    def listen(layer: int | None, name: str, tensor: Tensor) -> None:
        prefix = "" if layer is None else f"blocks.{layer}."
        if name == "attn.attended":  # the keys of past and present: what `attend` multiplies, and never shows
            named[prefix + "attn.scores"], named[prefix + "attn.pattern"] = attention_pattern(
                named[prefix + "attn.q"], tensor, plan.mask
            )
        else:
            named[prefix + name] = tensor.detach().clone(memory_format=torch.contiguous_format)

    with torch.no_grad(), listening(listen):
        named["logits"] = model(ids, cache=cache) if causal else model.compute(ids, plan, None)
    return named
