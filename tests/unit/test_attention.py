"""Attention as pure functions: against the formula written out, and against PyTorch's own."""

import math

import pytest
import torch
import torch.nn.functional as F

from kvcourse.attention import attend, attention_pattern, causal_mask
from kvcourse.meter import Meter


def by_hand(q, k, v, mask=None):
    """One query at a time, one head at a time."""
    B, H, T, D = q.shape
    group = H // k.shape[1]
    out = torch.empty(B, H, T, D, dtype=q.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                scores = k[b, h // group] @ q[b, h, t] / math.sqrt(D)
                if mask is not None:
                    allowed = mask[b, 0, t] if mask.dim() == 4 else mask[t]
                    scores[~allowed] = -torch.inf
                odds = torch.exp(scores - scores.max())
                out[b, h, t] = (odds / odds.sum()) @ v[b, h // group]
    return out


def qkv(B=2, H=6, H_kv=2, T=3, S=7, D=4):
    generator = torch.Generator().manual_seed(0)
    return tuple(
        torch.randn(B, heads, n, D, dtype=torch.float64, generator=generator) for heads, n in ((H, T), (H_kv, S), (H_kv, S))
    )


@pytest.mark.parametrize("H_kv", [1, 2, 3, 6])
@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("mask_kind", ["none", "shared", "by row"])
def test_attend_is_the_weighted_sum_of_the_formula(H_kv, T, mask_kind):
    q, k, v = qkv(H_kv=H_kv, T=T)
    shared = causal_mask(torch.arange(7 - T, 7), torch.arange(7))
    mask = {"none": None, "shared": shared, "by row": torch.stack((shared, shared & (torch.arange(7) >= 2)))[:, None]}[
        mask_kind
    ]
    assert torch.allclose(attend(q, k, v, mask), by_hand(q, k, v, mask), rtol=0, atol=1e-14)


def test_attend_equals_pytorch_with_repeated_heads():
    q, k, v = qkv()
    mask = causal_mask(torch.arange(4, 7), torch.arange(7))
    repeated = (k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    assert torch.allclose(
        attend(q, k, v, mask), F.scaled_dot_product_attention(q, *repeated, attn_mask=mask), rtol=0, atol=1e-14
    )


def test_the_mask_is_a_triangle_at_the_right_hand_end():
    assert causal_mask(torch.arange(3, 5), torch.arange(5)).int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert causal_mask(torch.arange(3), torch.arange(3)).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    by_row = causal_mask(torch.tensor([[1, 2], [-1, 0]]), torch.tensor([[0, 1, 2], [-2, -1, 0]]))
    assert by_row.shape == (2, 2, 3)
    assert by_row.int().tolist() == [[[1, 1, 0], [1, 1, 1]], [[1, 1, 0], [1, 1, 1]]]


@pytest.mark.parametrize("H_kv", [1, 2, 6])
def test_the_pattern_leads_to_what_attend_returns(H_kv):
    q, k, v = qkv(H_kv=H_kv)
    mask = causal_mask(torch.arange(4, 7), torch.arange(7))
    scores, weights = attention_pattern(q, k, mask)
    assert torch.equal(scores.isneginf(), ~mask.expand_as(scores))
    assert torch.allclose(weights.sum(-1), torch.ones(2, 6, 3, dtype=torch.float64))
    assert torch.allclose(weights @ v.repeat_interleave(6 // H_kv, 1), attend(q, k, v, mask), rtol=0, atol=1e-14)


def test_attention_counts_two_products_for_every_query_head_whether_masked_or_not():
    q, k, v = qkv(B=2, H=6, H_kv=2, T=3, S=7, D=4)
    for mask in (None, causal_mask(torch.arange(4, 7), torch.arange(7))):
        with Meter() as meter:
            attend(q, k, v, mask)
        assert meter.cost.macs == 2 * (2 * 6 * 3 * 7 * 4)


def test_attention_never_writes_into_what_it_is_given():
    q, k, v = qkv()
    mask = causal_mask(torch.arange(4, 7), torch.arange(7))
    copies = [t.clone() for t in (q, k, v, mask)]
    attend(q, k, v, mask)
    attention_pattern(q, k, mask)
    assert all(torch.equal(a, b) for a, b in zip((q, k, v, mask), copies, strict=True))
