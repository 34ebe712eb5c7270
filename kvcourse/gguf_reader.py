"""Lesson 08: a Llama out of a GGUF file: names, shapes and tokenizer as Hugging Face has them. Knows nothing about torch.

The `gguf` library reads and dequantises. What is left is what that format does differently: its tensor names, the rows of
the query and key projections in another order, and no output head where it is the embedding table.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvcourse.chat_template import ChatTemplate
from kvcourse.config import LlamaConfig
from kvcourse.errors import CheckpointError, KVCourseError
from kvcourse.tokenizers import BPETokenizer

Weights = dict[str, npt.NDArray[np.float32]]

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SINGLE_DIGITS = {"smollm": True, "gpt-2": False}  # how text is cut before merging, by the format's name for it
_CONTROL, _USER_DEFINED = 3, 4  # the format's token types


class Contents(NamedTuple):
    config: LlamaConfig
    weights: Weights
    tokenizer: BPETokenizer


def read_gguf(path: Path) -> Contents:
    """Everything in the file, float32. Reading takes seconds: the library walks a vocabulary of 50,000 word by word."""
    import gguf  # slow to import, and only needed here

    try:
        reader = gguf.GGUFReader(path)
        meta = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(meta, {tensor.name for tensor in reader.tensors})
        return Contents(config, dict(_weights(reader.tensors, config)), _tokenizer(meta))
    except KVCourseError:
        raise
    except Exception as error:  # a broken file makes the library raise whatever its next step raises
        raise CheckpointError(f"{path} is not a whole GGUF file ({type(error).__name__}: {error}).", expected="a Llama in GGUF",
                              got="a truncated or foreign file", todo="Get the file again.") from error  # fmt: skip


def _config(meta: dict[str, Any], names: set[str]) -> LlamaConfig:
    _refuse("general.architecture", meta.get("general.architecture"), "llama")
    own = {name.removeprefix("llama."): value for name, value in meta.items() if name.startswith("llama.")}
    n_head, n_embd = _need(own, "attention.head_count"), _need(own, "embedding_length")
    head_size = own.get("attention.key_length", n_embd // n_head)
    _refuse("llama.rope.scaling.type", own.get("rope.scaling.type", "none"), "none")
    _refuse("llama.expert_count", own.get("expert_count", 0), 0)
    _refuse("llama.attention.sliding_window", own.get("attention.sliding_window", 0), 0)
    _refuse("llama.attention.value_length", own.get("attention.value_length", head_size), head_size)
    _refuse("llama.rope.dimension_count", own.get("rope.dimension_count", head_size), head_size)
    return LlamaConfig(
        vocab_size=len(_need(meta, "tokenizer.ggml.tokens")),
        context_length=_need(own, "context_length"),
        n_layer=_need(own, "block_count"),
        n_head=n_head,
        n_kv_head=own.get("attention.head_count_kv", n_head),
        n_embd=n_embd,
        n_inner=_need(own, "feed_forward_length"),
        head_size=head_size,
        norm_eps=_shortest(_need(own, "attention.layer_norm_rms_epsilon")),
        rope_theta=_shortest(own.get("rope.freq_base", 10_000.0)),
        tied="output.weight" not in names,
    )


def _weights(tensors: list[Any], config: LlamaConfig) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    import gguf

    for tensor in tensors:
        shape = tuple(int(n) for n in reversed(tensor.shape))  # the format writes the fastest axis first
        values = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32).reshape(shape)
        if tensor.name.endswith("attn_q.weight"):
            values = _unpermute(values, config.n_head)
        elif tensor.name.endswith("attn_k.weight"):
            values = _unpermute(values, config.n_kv_head)
        yield _hf_name(tensor.name), values


def _unpermute(rows: npt.NDArray[np.float32], n_head: int) -> npt.NDArray[np.float32]:
    """Rotary pairs are rows 2i and 2i + 1 in GGUF, i and i + D/2 here.

    Source: `permute` in llama.cpp's convert_hf_to_gguf.py, which this undoes.
    """
    pairs = rows.reshape(n_head, -1, 2, rows.shape[-1])  # (H, D/2, 2, C)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _hf_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    block, _, part = stem.removeprefix("blk.").partition(".")
    if not stem.startswith("blk.") or part not in _IN_LAYER:
        raise CheckpointError("The GGUF file holds a tensor that a Llama here does not have.", expected="Llama's tensors",
                              got=name, todo="Use another file; this one would compute other numbers.")  # fmt: skip
    return f"model.layers.{block}.{_IN_LAYER[part]}.{kind}"


def _tokenizer(meta: dict[str, Any]) -> BPETokenizer:
    _refuse("tokenizer.ggml.model", meta.get("tokenizer.ggml.model"), "gpt2")
    cut = str(meta.get("tokenizer.ggml.pre"))
    _refuse("tokenizer.ggml.pre", cut, *_SINGLE_DIGITS)
    tokens, types = _need(meta, "tokenizer.ggml.tokens"), _need(meta, "tokenizer.ggml.token_type")
    _refuse("the number of user-defined tokens", types.count(_USER_DEFINED), 0)
    ids = {f"{name}_token": meta.get(f"tokenizer.ggml.{key}_token_id")
           for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))}  # fmt: skip
    named = {name: tokens[i] for name, i in ids.items() if i is not None}
    source = meta.get("tokenizer.chat_template")
    end_of_text = [token for token in ("<|endoftext|>",) if token in tokens]
    return BPETokenizer(
        {token: i for i, token in enumerate(tokens)},
        [tuple(merge.split(" ")) for merge in _need(meta, "tokenizer.ggml.merges")],
        special=[token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL],
        single_digits=_SINGLE_DIGITS[cut],
        chat=ChatTemplate(source, **named) if source else None,
        stop=list(dict.fromkeys([named[name] for name in ("eos_token",) if name in named] + end_of_text)),
    )


def _shortest(value: float) -> float:
    """0.00001 is stored as a float32, and read back as 0.000009999999747378752; this is what was meant."""
    return float(str(np.float32(value)))


def _need(meta: dict[str, Any], name: str) -> Any:
    if name not in meta:
        raise CheckpointError("The GGUF file lacks a field.", expected=name, got="nothing", todo="Get the file again.")
    return meta[name]


def _refuse(name: str, got: object, *known: object) -> None:
    if got not in known:
        raise CheckpointError(f"The GGUF file has something that is not built here: {name}.",
                              expected=" or ".join(repr(value) for value in known), got=repr(got),
                              todo="Use another file; this one would compute other numbers.")  # fmt: skip
