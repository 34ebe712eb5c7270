"""Lesson 04: what a weight is for, read from its name. Knows nothing about tensors or files.

Three spellings of the same parts: Hugging Face's GPT-2, Hugging Face's Llama, and GGUF.
"""

import re
from typing import NamedTuple

_PARTS: tuple[tuple[str, str], ...] = (  # (pattern of a whole name without its ending, role)
    (r"(transformer\.)?wte|model\.embed_tokens|token_embd", "token embedding"),
    (r"(transformer\.)?wpe|position_embd", "position embedding"),
    (r"(transformer\.)?ln_f|model\.norm|output_norm", "last norm"),
    (r"lm_head|output", "output head"),
    (r"ln_1|input_layernorm|attn_norm", "norm before attention"),
    (r"ln_2|post_attention_layernorm|ffn_norm", "norm before MLP"),
    (r"attn\.c_attn|attn_qkv", "q, k and v projections"),
    (r"self_attn\.q_proj|attn_q", "q projection"),
    (r"self_attn\.k_proj|attn_k", "k projection"),
    (r"self_attn\.v_proj|attn_v", "v projection"),
    (r"attn\.c_proj|self_attn\.o_proj|attn_output", "attention output"),
    (r"mlp\.c_fc|mlp\.up_proj|ffn_up", "MLP up"),
    (r"mlp\.gate_proj|ffn_gate", "MLP gate"),
    (r"mlp\.c_proj|mlp\.down_proj|ffn_down", "MLP down"),
    (r"attn\.(masked_)?bias|self_attn\.rotary_emb\.inv_freq", "constant, not learned"),
)
_LAYER = re.compile(r"(?:(?:transformer\.)?h|model\.layers|blk)\.(\d+)\.(.+)")
_ENDING = re.compile(r"(.+)\.(weight|bias|weight_scale)")


class Place(NamedTuple):
    """Where a weight belongs."""

    role: str  # "k projection", "MLP up bias" …, "unknown"
    layer: int | None  # the block; None outside the blocks


def place_of(name: str) -> Place:
    """A tensor's role and layer, by its name; role "unknown" for a name of none of the three spellings."""
    inside = _LAYER.fullmatch(name)
    layer, rest = (int(inside[1]), inside[2]) if inside else (None, name)
    ending = _ENDING.fullmatch(rest)
    for pattern, role in _PARTS:
        if re.fullmatch(pattern, rest):  # a buffer, named without an ending
            return Place(role, layer)
        if ending and re.fullmatch(pattern, ending[1]):
            return Place(role + {"bias": " bias", "weight_scale": " scales"}.get(ending[2], ""), layer)
    return Place("unknown", layer)
