"""Lesson 04: Hugging Face's config.json and our two configurations, each way. Knows nothing about tensors.

A field that would change results and that our models do not have is refused by its name, never ignored.
"""

from collections.abc import Callable
from typing import Any

from kvcourse.config import Config, GPTConfig, LlamaConfig, RopeScaling
from kvcourse.errors import CheckpointError, ConfigError

Settings = dict[str, Any]

# Fields that change results, with the values we compute. A missing field has transformers' default, which is the first.
_GPT_ONLY = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "quantization_config": (None,),
}
_LLAMA_ONLY = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "pretraining_tp": (1,),
    "partial_rotary_factor": (1.0,),
    "sliding_window": (None,),
    "quantization_config": (None,),
}


def read_config(settings: Settings) -> Config:
    """The configuration that a config.json describes."""
    kind = settings.get("model_type")
    readers: dict[Any, Callable[[Settings], Config]] = {"gpt2": _read_gpt, "llama": _read_llama}
    if kind not in readers:
        raise CheckpointError("This kind of model is not built here.", expected='model_type "gpt2" or "llama" in config.json',
                              got=repr(kind), todo="Use a GPT-2 or Llama checkpoint.")  # fmt: skip
    try:
        return readers[kind](settings)
    except (ConfigError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise CheckpointError(f"config.json does not describe a model ({error})", expected=f"a configuration of {kind}",
                              got="one that contradicts itself", todo="Save the checkpoint again.") from error  # fmt: skip


def write_config(config: Config) -> Settings:
    """The config.json of a configuration; what transformers 4 and 5 both read."""
    if isinstance(config, GPTConfig):
        return {
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "float32", "torch_dtype": "float32",
            "vocab_size": config.vocab_size, "n_positions": config.context_length, "n_layer": config.n_layer,
            "n_head": config.n_head, "n_embd": config.n_embd, "n_inner": config.n_inner,
            "layer_norm_epsilon": config.norm_eps, "activation_function": "gelu_new", "tie_word_embeddings": True,
            "bos_token_id": None, "eos_token_id": None,
        }  # fmt: skip
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32", "torch_dtype": "float32",
        "vocab_size": config.vocab_size, "max_position_embeddings": config.context_length,
        "num_hidden_layers": config.n_layer, "num_attention_heads": config.n_head, "num_key_value_heads": config.n_kv_head,
        "hidden_size": config.n_embd, "intermediate_size": config.n_inner, "head_dim": config.head_size,
        "rms_norm_eps": config.norm_eps, "rope_theta": config.rope_theta, "rope_scaling": _write_scaling(config.rope_scaling),
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": config.tied,
        "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip


def _read_gpt(settings: Settings) -> GPTConfig:
    _refuse_others(settings, _GPT_ONLY)
    n_embd = _need(settings, "n_embd", "hidden_size")
    return GPTConfig(
        vocab_size=_need(settings, "vocab_size"),
        context_length=_need(settings, "n_positions", "max_position_embeddings"),
        n_layer=_need(settings, "n_layer", "num_hidden_layers"),
        n_head=_need(settings, "n_head", "num_attention_heads"),
        n_embd=n_embd,
        n_inner=settings.get("n_inner") or 4 * n_embd,
        norm_eps=float(settings.get("layer_norm_epsilon", 1e-5)),
    )


def _read_llama(settings: Settings) -> LlamaConfig:
    _refuse_others(settings, _LLAMA_ONLY)
    n_head, n_embd = _need(settings, "num_attention_heads"), _need(settings, "hidden_size")
    theta, scaling = _read_rope(settings)
    return LlamaConfig(
        vocab_size=_need(settings, "vocab_size"),
        context_length=_need(settings, "max_position_embeddings"),
        n_layer=_need(settings, "num_hidden_layers"),
        n_head=n_head,
        n_kv_head=settings.get("num_key_value_heads") or n_head,
        n_embd=n_embd,
        n_inner=_need(settings, "intermediate_size"),
        head_size=settings.get("head_dim") or n_embd // n_head,
        norm_eps=float(settings.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_scaling=scaling,
        tied=bool(settings.get("tie_word_embeddings", False)),
    )


def _read_rope(settings: Settings) -> tuple[float, RopeScaling | None]:
    """transformers 5 writes rope_parameters; before, rope_theta and rope_scaling (whose type was once called "type")."""
    rope: Settings = {"rope_theta": settings.get("rope_theta", 10_000.0)}
    rope |= settings.get("rope_scaling") or {}
    rope |= settings.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    _refuse_others({"rope_type": kind, **rope}, {"rope_type": ("default", "llama3"), "partial_rotary_factor": (1.0,)})
    if kind == "default":
        return float(rope["rope_theta"]), None
    return float(rope["rope_theta"]), RopeScaling(
        factor=float(_need(rope, "factor")),
        low_freq_factor=float(_need(rope, "low_freq_factor")),
        high_freq_factor=float(_need(rope, "high_freq_factor")),
        original_context_length=_need(rope, "original_max_position_embeddings"),
    )


def _write_scaling(scaling: RopeScaling | None) -> Settings | None:
    if scaling is None:
        return None
    return {
        "rope_type": "llama3", "factor": scaling.factor, "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor, "original_max_position_embeddings": scaling.original_context_length,
    }  # fmt: skip


def _need(settings: Settings, *names: str) -> Any:
    for name in names:
        if settings.get(name) is not None:
            return settings[name]
    raise CheckpointError("config.json lacks a field.", expected=" or ".join(names), got="neither" if names[1:] else "nothing",
                          todo="Save the checkpoint again.")  # fmt: skip


def _refuse_others(settings: Settings, known: dict[str, tuple[Any, ...]]) -> None:
    for name, values in known.items():
        if settings.get(name, values[0]) not in values and settings[name] is not None:
            raise CheckpointError(
                f"config.json asks for something that is not built here: {name}.",
                expected=" or ".join(repr(value) for value in values), got=repr(settings[name]),
                todo="Use another checkpoint; this one would compute other numbers.",
            )  # fmt: skip
