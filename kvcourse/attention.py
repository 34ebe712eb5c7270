"""Lesson 02: attention as pure functions. Knows nothing about modules, caches or positions: only who may look at whom.

    attend(q, k, v, mask) = softmax(q kᵀ / √D + mask) v

Source: Vaswani et al. 2017, equation 1, Q = q, K = k, V = v, d_k = D; grouped queries: Ainslie et al. 2023, section 2.2.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kvcourse.meter import count


def causal_mask(query_positions: Int[Tensor, "*B T"], key_positions: Int[Tensor, "*B S"]) -> Bool[Tensor, "*B T S"]:
    """True where the query may look at the key: at its own position and before.

    With S - T tokens already cached the mask is a wide rectangle: its triangle sits at the right-hand end. A square one, or
    one aligned top left, is the most common fault in teaching code.
    """
    return key_positions[..., None, :] <= query_positions[..., :, None]


def attend(
    q: Float[Tensor, "B H T D"],
    k: Float[Tensor, "B H_kv S D"],
    v: Float[Tensor, "B H_kv S D"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "B H T D"]:
    """Each query's weighted sum of the values. `mask`: True where it may look, (T, S) or (B, 1, T, S); None: everywhere.

    With fewer K/V heads than query heads, H / H_kv queries share a head. They are laid side by side as extra rows, so that K
    and V are read where they are and never repeated.

    Cost: 2·B·H·T·S·D multiply-adds, masked or not.
    """
    (B, H, T, D), (_, H_kv, S, _) = q.shape, k.shape
    count("macs", 2 * B * H * T * S * D)
    if H == H_kv:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    group = H // H_kv
    if mask is not None and T > 1:
        mask = mask.repeat(*[1] * (mask.dim() - 2), group, 1)  # (..., group * T, S)
    out = F.scaled_dot_product_attention(q.reshape(B, H_kv, group * T, D), k, v, attn_mask=mask)  # (B, H_kv, group * T, D)
    return out.view(B, H, T, D)


def split_heads(x: Float[Tensor, "B T HD"], n_head: int) -> Float[Tensor, "B H T D"]:
    """Each token's numbers, cut into n_head heads: a view. Of one token nothing moves, so one view will do."""
    B, T, HD = x.shape
    if T == 1:
        return x.view(B, n_head, 1, HD // n_head)
    return x.view(B, T, n_head, HD // n_head).transpose(1, 2)


def join_heads(z: Float[Tensor, "B H T D"]) -> Float[Tensor, "B T HD"]:
    """The heads of each token side by side again."""
    B, _, T, _ = z.shape
    return z.reshape(B, 1, -1) if T == 1 else z.transpose(1, 2).reshape(B, T, -1)


def attention_pattern(
    q: Float[Tensor, "B H T D"], k: Float[Tensor, "B H_kv S D"], mask: Bool[Tensor, "..."] | None = None
) -> tuple[Float[Tensor, "B H T S"], Float[Tensor, "B H T S"]]:
    """The two matrices that `attend` never shows: scores q kᵀ / √D, masked with -inf, and their softmax."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)  # (B, H, S, D)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores, scores.softmax(dim=-1)
