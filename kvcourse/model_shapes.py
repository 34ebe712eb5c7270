"""Lesson 07: the shapes of well-known models, as data, or of a config.json. Knows nothing about bytes, and imports no torch.

Only what the size of a KV cache depends on. Each is written down from the public config.json named in `source`; parameters are
what that configuration builds, tied heads counted once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kvcourse.errors import CheckpointError, UnknownName


@dataclass(frozen=True)
class Shape:
    """L n_layer, H n_head, H_kv n_kv_head, D head_size."""

    name: str
    n_layer: int
    n_head: int
    n_kv_head: int
    head_size: int
    context_tokens: int  # positions it was made for
    parameters: int | None  # None: not known
    source: str
    window_tokens: int | None = None  # keys that a token sees in every layer, if not all

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


_TABLE = (
    # name, L, H, H_kv, D, context, parameters, config.json of, window
    Shape("tiny", 4, 4, 4, 32, 512, 877_824, "kvcourse: TINY_SHAPE"),
    Shape("gpt2", 12, 12, 12, 64, 1024, 124_439_808, "openai-community/gpt2"),
    Shape("gpt2-xl", 48, 25, 25, 64, 1024, 1_557_611_200, "openai-community/gpt2-xl"),
    Shape("smollm2-135m", 30, 9, 3, 64, 8192, 134_515_008, "HuggingFaceTB/SmolLM2-135M-Instruct"),
    Shape("gemma-2b", 18, 8, 1, 256, 8192, 2_506_172_416, "google/gemma-2b"),
    Shape("gemma-7b", 28, 16, 16, 256, 8192, 8_537_680_896, "google/gemma-7b"),
    Shape("llama-2-7b", 32, 32, 32, 128, 4096, 6_738_415_616, "meta-llama/Llama-2-7b-hf"),
    Shape("mistral-7b", 32, 32, 8, 128, 32_768, 7_241_732_096, "mistralai/Mistral-7B-v0.1", 4096),
    Shape("llama-3.1-8b", 32, 32, 8, 128, 131_072, 8_030_261_248, "meta-llama/Llama-3.1-8B"),
    Shape("llama-3.1-70b", 80, 64, 8, 128, 131_072, 70_553_706_496, "meta-llama/Llama-3.1-70B"),
    Shape("qwen2.5-7b", 28, 28, 4, 128, 131_072, 7_615_616_512, "Qwen/Qwen2.5-7B"),
    Shape("qwen2.5-72b", 80, 64, 8, 128, 131_072, 72_706_203_648, "Qwen/Qwen2.5-72B"),
)
SHAPES: Mapping[str, Shape] = {shape.name: shape for shape in _TABLE}
ALIASES = {"smollm2": "smollm2-135m"}


def find_shape(source: str) -> Shape:
    """A model by its name here, or by the path of a Hugging Face folder or config.json.

    Raises: UnknownName, with near names; CheckpointError for a configuration whose cache this cannot price.
    """
    name = ALIASES.get(source.lower(), source.lower())
    if name in SHAPES:
        return SHAPES[name]
    path = Path(source).expanduser()
    if path.exists():
        return _read(path)
    near = get_close_matches(name, [*SHAPES, *ALIASES], n=3, cutoff=0.5)
    raise UnknownName(
        "There is no such model or file.",
        expected=f"{' or '.join(near)}, or a path" if near else f"{', '.join(SHAPES)}, or a path",
        got=repr(source),
        todo="Did you mean one of these?" if near else "Check the spelling.",
    )


def shape_of_config(settings: Mapping[str, Any], name: str, parameters: int | None = None) -> Shape:
    """The shape that a config.json describes, whichever of the usual spellings it has.

    Raises: CheckpointError where layers differ in what they keep, or keep something other than K and V of each head.
    """
    settings = settings.get("text_config") or settings  # of a model that sees images, too
    _require_plain(settings)
    n_layer = _number(settings, "num_hidden_layers", "n_layer")
    n_head = _number(settings, "num_attention_heads", "n_head")
    return Shape(
        name=name,
        n_layer=n_layer,
        n_head=n_head,
        n_kv_head=_number(settings, "num_key_value_heads", default=n_head),
        head_size=_number(settings, "head_dim", default=_number(settings, "hidden_size", "n_embd") // n_head),
        context_tokens=_number(settings, "max_position_embeddings", "n_positions"),
        parameters=parameters,
        source=name,
        window_tokens=_window(settings),
    )


def _read(path: Path) -> Shape:
    from kvcourse.hf_folder import read_json
    from kvcourse.weight_files import n_parameters, stored_tensors

    folder = path if path.is_dir() else path.parent
    # Some folders hold the same weights once more under another name.
    files = list(folder.glob("model*.safetensors")) or list(folder.glob("*.safetensors"))
    parameters = sum(n_parameters(tensor.shape) for file in files for tensor in stored_tensors(file)) if files else None
    return shape_of_config(read_json(path / "config.json" if path.is_dir() else path), str(path), parameters)


def _require_plain(settings: Mapping[str, Any]) -> None:
    kinds = set(settings.get("layer_types") or ())
    mixed = len(kinds) > 1 or not kinds <= {"full_attention", "sliding_attention"}
    if mixed or settings.get("kv_lora_rank") or settings.get("is_encoder_decoder") or settings.get("ssm_cfg"):
        raise CheckpointError(
            "The cache of this kind of model is not K and V of every token in every layer.",
            expected="layers that are all alike, with attention of the usual kind",
            got=", ".join(sorted(map(str, kinds))) if mixed else repr(settings.get("model_type")),
            todo="Add up its layers by hand.",
        )


def _window(settings: Mapping[str, Any]) -> int | None:
    full = set(settings.get("layer_types") or ()) == {"full_attention"} or settings.get("use_sliding_window") is False
    return None if full or settings.get("sliding_window") is None else _number(settings, "sliding_window")


def _number(settings: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    given = next((settings[name] for name in names if settings.get(name) is not None), default)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise CheckpointError(
            f"config.json has no {' or '.join(names)} that can be used.",
            expected="an int of 1 or more",
            got=repr(given),
            todo="Name the config.json of a language model.",
        )
    return given
