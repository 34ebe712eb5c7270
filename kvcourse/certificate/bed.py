"""Lesson 14: what the proofs are tried on: two small models, every kind of cache, ways to cut a text. Knows no proof.

The models have a few thousand weights, large enough in value that a wrong mask, position or row shows in the logits, and
compute in float64, where rounding is a million times smaller than what a fault changes.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kvcourse.caches.base import KVCache, Plan
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.config import GPTConfig, LlamaConfig, kv_bytes_per_token
from kvcourse.errors import CacheMismatch, InputError
from kvcourse.models.base import CausalLM
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.prefix.cache import BlockPrefixCache, RadixPrefixCache
from kvcourse.probe import listening

GPT_SHAPE = GPTConfig(vocab_size=61, context_length=512, n_layer=3, n_head=4, n_embd=24, n_inner=40)
LLAMA_SHAPE = LlamaConfig(
    vocab_size=61, context_length=512, n_layer=3, n_head=6, n_kv_head=2, n_embd=24, n_inner=40, head_size=6, rope_theta=50.0,
    tied=False,
)  # fmt: skip
CAPACITY = 32  # tokens: more than most texts of the proofs about caches
SMALL = 100  # a model of fewer channels is computed in a millisecond
BLOCK_TOKENS = 4
Make = Callable[..., Any]  # make(model, capacity in tokens) -> an empty cache, or prefix cache

CHUNKINGS: dict[str, Callable[[int], list[int]]] = {
    "one pass": lambda n: [n],
    "chunks of 1": lambda n: cut(n, [1]),
    "chunks of 4": lambda n: cut(n, [4]),
    "uneven chunks": lambda n: cut(n, [3, 1, 5, 2]),
    "all but one, then one": lambda n: [n - 1, 1],
}


def small_model(kind: str, seed: int = 0, **changes: Any) -> CausalLM:
    """A GPT or a Llama with random weights, float64. changes: of the shape."""
    shape = GPT_SHAPE if kind == "gpt" else LLAMA_SHAPE
    config: Any = type(shape)(**{**shape.__dict__, **changes})
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.no_grad():
        model: CausalLM = GPT(config) if kind == "gpt" else Llama(config)
        for name, weight in model.named_parameters():
            table = "wte" in name or "wpe" in name or "embed" in name
            scale = 0.2 if weight.dim() == 1 else 1.0 if table else 1.5 / weight.shape[-1] ** 0.5
            mean = 1.0 if weight.dim() == 1 and not name.endswith("bias") else 0.0
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale + mean)
        return model.to(torch.float64).eval()


def _small_models(suffix: str = "", dtype: torch.dtype = torch.float64) -> dict[str, CausalLM]:
    return {f"{kind}{suffix}": small_model(kind).to(dtype) for kind in ("gpt", "llama")}


def ids(n: int, seed: int = 1, batch: int = 1, vocab_size: int = 61) -> Tensor:
    """Random tokens, (batch, n)."""
    return torch.randint(vocab_size, (batch, n), generator=torch.Generator().manual_seed(seed))


def cut(n: int, sizes: Sequence[int]) -> list[int]:
    """`sizes` again and again until they add up to n."""
    parts: list[int] = []
    while sum(parts) < n:
        parts.append(min(sizes[len(parts) % len(sizes)], n - sum(parts)))
    return parts


def in_chunks(model: CausalLM, tokens: Tensor, cache: Any, sizes: Sequence[int]) -> Tensor:
    """Logits of every position, computed chunk by chunk, `sizes` again and again: (B, T, V)."""
    parts = tokens.split(cut(tokens.shape[1], sizes), dim=1)
    return torch.cat([model(part, cache=cache) for part in parts], dim=1)


def uncached(model: CausalLM, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(tokens)


def banded(model: CausalLM, tokens: Tensor, window: int) -> Tensor:
    """Logits of the model itself, without a cache, where every query sees the last `window` keys, its own included."""
    places = torch.arange(tokens.shape[1])
    band = (places[None] <= places[:, None]) & (places[None] > places[:, None] - window)
    with torch.no_grad():
        return model.compute(tokens, Plan(places, places, band), None)


def unsteadiness(model: CausalLM, tokens: Tensor, window: int) -> float:
    """How far these logits of `banded` move when every number that enters a block is off by one ε, the dtype's: the largest of
    three draws of signs. That is what rounding may do to them here, whoever computes them.
    """
    steady, largest = banded(model, tokens, window), 0.0
    for seed in range(3):
        signs = torch.Generator().manual_seed(seed)

        def nudge(layer: int | None, name: str, x: Tensor, signs: torch.Generator = signs) -> None:
            if name == "resid_pre":
                x += x * torch.randint(2, x.shape, generator=signs).to(x).mul(2).sub(1) * torch.finfo(x.dtype).eps

        with listening(nudge):
            largest = max(largest, (banded(model, tokens, window) - steady).abs().max().item())
    return largest


def bytes_of(model: CausalLM, tokens: int) -> int:
    """Of K and V in all layers."""
    return tokens * kv_bytes_per_token(model.config, model.dtype.itemsize)


def growing(model: CausalLM, capacity: int, starts: Sequence[int] | None = None) -> KVCache:
    return GrowingCache(starts)


def preallocated(model: CausalLM, capacity: int, starts: Sequence[int] | None = None) -> KVCache:
    return PreallocatedCache(capacity, starts)


def paged(model: CausalLM, capacity: int, starts: Sequence[int] | None = None) -> KVCache:
    """With a pool of its own: `capacity` for each of up to four rows, in blocks of 4."""
    return PagedCache(PagedPool(model, 4 * -(-capacity // BLOCK_TOKENS), BLOCK_TOKENS), starts)


KINDS: dict[str, Make] = {"growing": growing, "preallocated": preallocated, "paged": paged}
WINDOWS: dict[str, Make] = {"sliding": lambda model, window: SlidingCache(window)}
ROUNDED: dict[str, Make] = {f"{bits} bits": lambda model, n, bits=bits: QuantizedCache(bits, 4, 3) for bits in (8, 4)}
INDEXES: dict[str, Make] = {
    "radix tree": lambda model, n: RadixPrefixCache(model, bytes_of(model, n)),
    "hashed blocks": lambda model, n: BlockPrefixCache(model, bytes_of(model, n), BLOCK_TOKENS),
}


class Pair(NamedTuple):
    """A model, and a kind of cache for it."""

    name: str
    model: CausalLM
    make: Make

    @property
    def is_small(self) -> bool:
        """Whether a proof may ask for hundreds of passes."""
        return self.model.config.n_embd < SMALL

    def cache(self, capacity: int = CAPACITY, starts: list[int] | None = None) -> Any:
        """An empty one. starts: given to a factory that takes them, or set afterwards, as the contract allows."""
        if starts is not None and "starts" in inspect.signature(self.make).parameters:
            return self.make(self.model, capacity, starts=starts)
        made = self.make(self.model, capacity)
        if starts is not None:
            made.starts = torch.tensor(starts)
        return made

    @property
    def is_exact(self) -> bool:
        """Whether it promises the logits of a model without a cache. One that does not say, promises."""
        return bool(getattr(self.cache(), "exact", True))

    def tokens(self, n: int, seed: int = 1, batch: int = 1) -> Tensor:
        return ids(n, seed, batch, min(61, self.model.config.vocab_size))

    def expected(self, tokens: Tensor, sizes: Sequence[int]) -> Tensor:
        """What these tokens must give: without a cache, or, for one that is not exact, with a new one of its kind."""
        return uncached(self.model, tokens) if self.is_exact else in_chunks(self.model, tokens, self.cache(), sizes)


@dataclass
class Bed:
    """Models, and what is tried on them, by name.

    kinds: KV caches. windows: make(model, window). rounded: those that are not exact, whatever the text's length. indexes:
    prefix caches. narrow: the small models in float32, for the proof that asks what a cache does to that dtype. asked: which of
    these fields are somebody's own, and nothing else is in question; empty: the whole course. refused: models that somebody's
    own cache does not serve, and its words.
    """

    models: dict[str, CausalLM] = field(default_factory=_small_models)
    kinds: dict[str, Make] = field(default_factory=lambda: dict(KINDS))
    windows: dict[str, Make] = field(default_factory=lambda: dict(WINDOWS))
    rounded: dict[str, Make] = field(default_factory=lambda: dict(ROUNDED))
    indexes: dict[str, Make] = field(default_factory=lambda: dict(INDEXES))
    narrow: dict[str, CausalLM] = field(default_factory=lambda: _small_models(" in float32", torch.float32))
    asked: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)

    def pairs(self, field_name: str = "kinds", narrow: bool = False) -> Iterator[Pair]:
        """Every model with every kind. narrow: those in float32, too."""
        for model_name, model in (self.models | self.narrow if narrow else self.models).items():
            for kind, make in getattr(self, field_name).items():
                if model_name not in self.refused:
                    yield Pair(f"{model_name}, {kind}", model, make)

    def own(self, make: Make) -> "Bed":
        """The same models, and one factory in question. Raises: InputError if it makes no cache."""
        mine = {"yours": make}
        try:
            one, refused = _served(make, self.models | self.narrow)
        except (Exception, SystemExit) as fault:
            got = f"{type(fault).__name__}: {fault}"
            raise InputError("This factory fails.", expected="a function of (model, capacity in tokens)", got=got,
                             todo="Call it yourself with a small model.") from fault  # fmt: skip
        if hasattr(one, "lease"):
            return replace(self, indexes=mine, asked=frozenset({"indexes"}))
        if not all(hasattr(one, name) for name in ("plan", "append", "advance")):
            raise InputError("This factory makes no cache.", expected="a KVCache, or a prefix cache with lease and insert",
                             got=type(one).__name__, todo="See kvcourse.caches.base for what it has to bring.")  # fmt: skip
        bed = replace(self, kinds=mine, refused=refused, asked=frozenset({"kinds"}))
        if getattr(one, "window", None) is not None:
            return replace(bed, windows=mine, asked=bed.asked | {"windows"})
        if not getattr(one, "exact", True):
            return replace(bed, rounded=mine, asked=bed.asked | {"rounded"})
        return bed


def _served(make: Make, models: dict[str, CausalLM]) -> tuple[Any, dict[str, str]]:
    """A cache for the first of these models that gets one, and whom it refuses, in which words. Raises: what `make` does."""
    made: list[Any] = []
    refused = {}
    for name, model in [*models.items(), *list(models.items())[:1]]:  # the first one twice
        try:
            made.append(make(model, CAPACITY))
            model(ids(2, vocab_size=min(61, model.config.vocab_size)), cache=made[-1])
        except CacheMismatch as fault:
            refused[name] = f"it does not serve this model: {' '.join(str(fault).split())}"
        except (Exception, SystemExit):  # of what is not the factory's, the proofs will tell
            if not made:
                raise
        if len({id(one) for one in made}) < len(made):
            raise TypeError("it hands out one and the same object again")
    if not made:
        raise CacheMismatch(next(iter(refused.values())), todo="Make one for a model that it serves.")
    return made[0], refused
