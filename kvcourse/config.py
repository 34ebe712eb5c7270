"""Lesson 01: the shape of a model, as plain numbers. Knows nothing about tensors, files or Hugging Face's names for them.

L n_layer   H n_head   H_kv n_kv_head   C n_embd   D head_size   F n_inner   V vocab_size
"""

from dataclasses import dataclass, fields

from kvcourse.errors import ConfigError


@dataclass(frozen=True)
class GPTConfig:
    """A GPT-2-shaped model. The defaults are GPT-2 small (124 M parameters).

    Source: Radford et al. 2019, table 2.
    """

    vocab_size: int = 50257
    context_length: int = 1024  # tokens: the learned positions there are
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_inner: int = None  # type: ignore[assignment]  # left out: 4 * n_embd
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.n_inner is None:
            object.__setattr__(self, "n_inner", 4 * self.n_embd)
        _require_positive(self)
        _require_divides(self, "n_head", "n_embd")

    @property
    def n_kv_head(self) -> int:
        return self.n_head

    @property
    def head_size(self) -> int:
        return self.n_embd // self.n_head


@dataclass(frozen=True)
class RopeScaling:
    """How Llama 3.1 and later stretch the rotary frequencies for longer contexts (Hugging Face: rope_type "llama3")."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context_length: int


@dataclass(frozen=True)
class LlamaConfig:
    """A Llama-shaped model with grouped-query attention. The defaults are SmolLM2-135M.

    Source: Touvron et al. 2023; grouped-query attention: Ainslie et al. 2023.
    """

    vocab_size: int = 49152
    context_length: int = 8192
    n_layer: int = 30
    n_head: int = 9
    n_kv_head: int = 3
    n_embd: int = 576
    n_inner: int = 1536
    head_size: int = None  # type: ignore[assignment]  # left out: n_embd / n_head
    norm_eps: float = 1e-5
    rope_theta: float = 100_000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = True  # the output head is the embedding table

    def __post_init__(self) -> None:
        if self.head_size is None:
            _require_positive(self)
            _require_divides(self, "n_head", "n_embd")
            object.__setattr__(self, "head_size", self.n_embd // self.n_head)
        _require_positive(self)
        _require_divides(self, "n_kv_head", "n_head")
        if self.head_size % 2:
            raise ConfigError(
                "Rotary positions turn pairs of numbers.",
                expected="an even head_size",
                got=self.head_size,
                todo="Change n_embd, n_head or head_size.",
            )


Config = GPTConfig | LlamaConfig


def kv_bytes_per_token(config: Config, itemsize_bytes: int = 4) -> int:
    """Bytes of K and V that one token leaves in all layers: 2·L·H_kv·D·itemsize. float32 has an itemsize of 4."""
    return 2 * config.n_layer * config.n_kv_head * config.head_size * itemsize_bytes


def _require_positive(config: Config) -> None:
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
            raise ConfigError(
                f"{field.name} must be positive.", expected="a number above 0", got=value, todo="Correct the configuration."
            )


def _require_divides(config: Config, small: str, large: str) -> None:
    if getattr(config, large) % getattr(config, small):
        raise ConfigError(
            f"{small} must divide {large}.",
            expected=f"{large} a multiple of {small}",
            got=f"{large} {getattr(config, large)}, {small} {getattr(config, small)}",
            todo="Correct the configuration.",
        )
