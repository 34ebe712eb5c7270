"""Lesson 03: exercise 03, the parts of a GPT. Knows nothing about checks and hints, which lie beside it."""

from kvcourse.checks.exercise import Exercise, Task

_FUNCTIONS = ("layer_norm", "group_norm", "instance_norm", "batch_norm")
_NATIVE = ("native_layer_norm", "native_group_norm", "native_batch_norm")
_LAYERS = ("LayerNorm", "GroupNorm", "InstanceNorm1d", "BatchNorm1d", "TransformerEncoderLayer")
# The finished layer norm, and relatives that can be talked into doing the same. torch._VF and torch._C._VariableFunctions have
# them too and can lose none (they are read-only): whoever knows those has met the subject of this lesson.
WITHHELD = (
    *(f"{place}.{name}" for place in ("torch.nn.functional", "torch") for name in _FUNCTIONS),
    *(f"{place}.{name}" for place in ("torch", "torch._refs", "torch._decomp.decompositions") for name in _NATIVE),
    *(f"torch._refs.nn.functional.{name}" for name in _FUNCTIONS),
    *(f"{place}.{name}" for place in ("torch.nn", "torch.nn.modules") for name in _LAYERS),
    "torch.nn.modules.normalization.LayerNorm",
    "torch.nn.modules.normalization.GroupNorm",
    "torch._transformer_encoder_layer_fwd",
    "torch._C._jit_get_operation",  # by which torch.ops.aten finds an operator for the first time
    *(f"torch.ops.aten.{name}" for name in (*_FUNCTIONS, *_NATIVE)),  # found before
)

EXERCISE = Exercise(
    "03_gpt",
    (
        Task("3.1", "layer norm", "my_layer_norm", "answer-layer-norm", "check-layer-norm", points=2),
        Task("3.2", "MLP", "my_mlp", "answer-mlp", "check-mlp", points=2),
        Task("3.3", "block", "my_block", "answer-block", "check-block", points=2),
        Task("3.4", "GPT", "my_gpt", "answer-gpt", "check-gpt", points=2),
        Task("3.5", "parameter count", "my_parameter_count", "answer-count", "check-count", points=2),
    ),
    withheld=WITHHELD,
)
