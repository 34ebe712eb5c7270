"""Lesson 04: weights from a file into a model, and back. Knows nothing about what a model computes.

Every name, shape and dtype is compared before a number is used. What is loaded is a copy: the file may change afterwards.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from kvcourse.config import Config, GPTConfig
from kvcourse.errors import CheckpointError, InputError, UnknownName
from kvcourse.fetch import SOURCES, model_folder
from kvcourse.gguf_reader import read_gguf
from kvcourse.hf_config import read_config
from kvcourse.hf_folder import INDEX, WEIGHTS, read_json, refuse_foreign, replacing, write_folder
from kvcourse.models.base import CausalLM
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.models.narrow import narrow, require_format
from kvcourse.tiny import TINY_SHAPE, TINY_WEIGHTS, tiny_tokenizer
from kvcourse.tokenizers import Tokenizer, load_tokenizer

__all__ = ["load_model", "save_model"]

Parts = tuple[Config, dict[str, Tensor], Tokenizer | None]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_HEAD = "lm_head.weight"
_BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")  # older checkpoints keep masks and frequencies
_SHOWN = 8  # names in an error


def load_model(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | None = torch.float32,
    device: str | torch.device = "cpu",
    weights: str | None = None,
) -> CausalLM:
    """A model ready to run, with its tokenizer where the source has one.

    name_or_path: "tiny", "smollm2" (after `kvcourse fetch smollm2`), a Hugging Face folder of a GPT-2 or Llama model with
        safetensors weights, or a .gguf file of a Llama.
    dtype: of the weights; None keeps the file's.
    weights: "float16" or "int8" stores the large matrices in two bytes or one a number and computes in float32 between
        them: faster to read, at the error that kvcourse.models.narrow states. Not for training or saving.
    Raises: UnknownName, NotFetched, CheckpointError; InputError for other `weights`, or with another dtype or device.
    """
    require_format(weights, dtype, torch.device(device))
    path = Path(name_or_path).expanduser()
    if name_or_path == "tiny":
        parts: Parts = TINY_SHAPE, _read_safetensors(TINY_WEIGHTS), tiny_tokenizer()
    elif name_or_path in SOURCES:
        parts = _read_folder(model_folder(str(name_or_path)))
    elif path.is_dir():
        parts = _read_folder(path)
    elif path.is_file():
        parts = _read_file(path)
    else:
        raise UnknownName("There is no such model.", expected=f"tiny, {', '.join(SOURCES)}, a folder or a .gguf file",
                          got=repr(str(name_or_path)), todo="Check the spelling, or the path.")  # fmt: skip
    config, tensors, tokenizer = parts
    model = _fill(config, tensors, dtype, device, weights)
    model.tokenizer = tokenizer
    return model


def save_model(model: CausalLM, folder: str | Path) -> Path:
    """Write a Hugging Face folder that transformers and `load_model` read: whole, or not at all.

    The weights keep their dtype; a tied head is not written twice. An earlier model in `folder` is replaced.
    Raises: InputError for a model with narrow weights.
    """
    if model.weight_format is not None:
        raise InputError("Narrow weights are not written to files.", expected="weights as they were",
                         got=repr(model.weight_format), todo="Load the model without weights=, and save that.")  # fmt: skip
    folder = Path(folder).expanduser()
    refuse_foreign(folder)
    tied = _is_tied(model.config)
    weights = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)  # packed weights are views of one another
        for name, tensor in model.state_dict().items()
        if not (tied and name == _HEAD)
    }
    with replacing(folder) as new:
        write_folder(new, model.config, model.tokenizer, lambda path: save_file(weights, path, metadata={"format": "pt"}),
                     dtype=str(model.dtype).removeprefix("torch."))  # fmt: skip
    return folder


def _fill(
    config: Config,
    weights: Mapping[str, Tensor],
    dtype: torch.dtype | None,
    device: str | torch.device,
    weight_format: str | None = None,
) -> CausalLM:
    """A model of this shape that holds copies of these weights. It is made without memory, so nothing is filled twice."""
    with torch.inference_mode(False), torch.no_grad():
        with torch.device("meta"), _Undrawn():
            model: CausalLM = GPT(config) if isinstance(config, GPTConfig) else Llama(config)
        weights = _match(weights, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}, config)
        kept = {name: nn.Parameter(tensor.to(device, dtype)) for name, tensor in weights.items()}
        if _is_tied(config):
            kept[_HEAD] = kept[_embedding(config)]  # the same object, so the model stays tied
        model.load_state_dict(kept, assign=True)
        if weight_format is not None:
            narrow(model, weight_format)
        model.pack()  # copies most weights, into another layout
        in_file = {tensor.data_ptr() for tensor in weights.values()}
        for parameter in model.parameters():
            if parameter.data_ptr() in in_file:
                parameter.data = parameter.data.clone()
    return model.eval().requires_grad_(False)


class _Undrawn(TorchFunctionMode):
    """No initial weights: drawing them takes time even where there is no memory to draw into (imports, mostly)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", args[0] if args else None)
        return func(*args, **kwargs)


def _match(weights: Mapping[str, Tensor], shapes: dict[str, tuple[int, ...]], config: Config) -> dict[str, Tensor]:
    """The file's tensors under the model's names. Raises CheckpointError with everything that does not fit."""
    prefix = "transformer." if isinstance(config, GPTConfig) else "model."
    found = {
        name if name.startswith((prefix, "lm_head.")) else prefix + name: tensor  # saved without its head, it has no prefix
        for name, tensor in weights.items()
        if not name.endswith(_BUFFERS)
    }
    wanted = dict(shapes)
    if _is_tied(config):
        del wanted[_HEAD]
        head, embedding = found.pop(_HEAD, None), found.get(_embedding(config))
        if head is not None and embedding is not None and not torch.equal(head, embedding):
            raise CheckpointError("The output head is not the embedding table, and this model ties them.",
                                  expected="equal tensors", got=f"another {_HEAD}",
                                  todo="Set tie_word_embeddings to false (Llama only).")  # fmt: skip
    expected = [f"{name} {shape}" for name, shape in wanted.items() if name not in found]
    got = [f"{name} {tuple(tensor.shape)}" for name, tensor in found.items() if name not in wanted]
    for name in wanted.keys() & found.keys():
        tensor = found[name]
        if tuple(tensor.shape) != wanted[name] or tensor.dtype not in _FLOATS:
            expected.append(f"{name} {wanted[name]}")
            got.append(f"{name} {tuple(tensor.shape)}" + ("" if tensor.dtype in _FLOATS else f" of {tensor.dtype}"))
    if expected or got:
        raise CheckpointError(
            "The tensors do not fit the configuration.", expected=_some(expected), got=_some(got),
            todo="Use the config.json that belongs to these weights, in float32, float16, bfloat16 or float64.",
        )  # fmt: skip
    return found


def _read_folder(folder: Path) -> Parts:
    config = read_config(read_json(folder / "config.json"))
    if (folder / INDEX).exists():
        weights = _read_shards(folder)
    elif (folder / WEIGHTS).exists():
        weights = _read_safetensors(folder / WEIGHTS)
    else:
        others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".h5", ".msgpack"))
        todo = "Save it with transformers: model.save_pretrained(folder). Pickle files can run code, so they are not read."
        raise CheckpointError(f"{folder} has no weights that can be read.", expected=f"{WEIGHTS} or {INDEX}",
                              got=", ".join(others) or "neither", todo=todo if others else "Get the folder again.")  # fmt: skip
    return config, weights, load_tokenizer(folder) if (folder / "tokenizer.json").exists() else None


def _read_shards(folder: Path) -> dict[str, Tensor]:
    """Weights split over several files; the index says which tensor is where."""
    places = read_json(folder / INDEX).get("weight_map")
    places = places if isinstance(places, dict) else {}
    shards = sorted({str(place) for place in places.values()})
    strange = [shard for shard in shards if Path(shard).name != shard or not (folder / shard).is_file()]
    if not shards or strange:
        raise CheckpointError(
            f"{INDEX} does not match the folder.", expected="a weight_map of files in it",
            got=f"missing: {_some(strange)}" if strange else "none", todo="Get the missing files.",
        )  # fmt: skip
    found = {shard: _read_safetensors(folder / shard) for shard in shards}
    lost = [name for name, shard in places.items() if name not in found[shard]]
    if lost:
        raise CheckpointError(f"{INDEX} does not match the files.", expected=_some(lost), got="files without them",
                              todo="Get the folder again.")  # fmt: skip
    return {name: tensor for tensors in found.values() for name, tensor in tensors.items()}


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    """The file's tensors, still lying in the file: whoever keeps one copies it."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        with open(path, "rb") as file:
            pointer = file.read(40).startswith(b"version https://git-lfs")
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}).", expected="tensors",
            got="a Git LFS pointer" if pointer else f"{path.stat().st_size} bytes that are none",
            todo="Type: git lfs pull" if pointer else "Save or fetch it again.",
        ) from error  # fmt: skip


def _read_file(path: Path) -> Parts:
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise CheckpointError(
            f"{path} is a single file.", expected="a .gguf file, or the folder that holds config.json and the weights",
            got=f"a file that starts with {magic!r}", todo="Name its folder.",
        )  # fmt: skip
    config, arrays, tokenizer = read_gguf(path)
    return config, {name: torch.from_numpy(array) for name, array in arrays.items()}, tokenizer


def _is_tied(config: Config) -> bool:
    return isinstance(config, GPTConfig) or config.tied


def _embedding(config: Config) -> str:
    return "transformer.wte.weight" if isinstance(config, GPTConfig) else "model.embed_tokens.weight"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more if names else "nothing"
