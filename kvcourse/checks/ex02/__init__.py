"""Lesson 02: exercise 02, attention. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

_LAYERS = ("Transformer", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder", "TransformerDecoderLayer")
_PRIVATE = (
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_flash_attention_forward_no_dropout_inplace",
    "_native_multi_head_attention",
    "_triton_multi_head_attention",
    "_triton_scaled_dot_attention",
    "_transformer_encoder_layer_fwd",
)
# Finished attention, wherever torch keeps it under a name that can be taken out. torch._VF and torch._C._VariableFunctions have
# the private ones too and can lose none (they are read-only): whoever knows those has met the subject of this lesson.
WITHHELD = (
    "torch.nn.functional.scaled_dot_product_attention",
    "torch._C._nn.scaled_dot_product_attention",
    "torch.nn.functional.multi_head_attention_forward",
    *(f"torch.{name}" for name in _PRIVATE),
    *(f"{place}.MultiheadAttention" for place in ("torch.nn", "torch.nn.modules", "torch.nn.modules.activation")),
    "torch.nn.modules.transformer.MultiheadAttention",
    *(f"{place}.{name}" for place in ("torch.nn", "torch.nn.modules", "torch.nn.modules.transformer") for name in _LAYERS),
    "torch._higher_order_ops.flex_attention.flex_attention",  # without it torch.nn.attention.flex_attention cannot be imported
    "torch._decomp.decompositions.scaled_dot_product_flash_attention_for_cpu",
    "torch._C._jit_get_operation",  # by which torch.ops.aten finds an operator for the first time
    *(f"torch.ops.aten.{name}" for name in ("scaled_dot_product_attention", *_PRIVATE)),  # found before
)

EXERCISE = Exercise(
    "02_attention",
    (
        Task("2.1", "scores", "my_scores", "answer-scores", "check-scores", points=2),
        Task("2.2", "mask", "my_masked", "answer-mask", "check-mask", points=2),
        Task("2.3", "weighted sum", "my_weighted_sum", "answer-weighted-sum", "check-weighted-sum", points=2),
        Task("2.4", "heads", "my_heads", "answer-heads", "check-heads", points=4),
    ),
    withheld=WITHHELD,
)
