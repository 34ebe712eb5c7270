"""Lesson 03: what every decoder-only model does around its blocks. Knows nothing about what is inside a block.

A forward pass is a function of tokens and weights. With a cache it is told where the tokens stand and what came before them,
and the cache grows by what was computed: after the last layer, or not at all.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from kvcourse.caches.base import KVCache, Plan, plan_without_cache, undone_on_error
from kvcourse.config import Config
from kvcourse.errors import ContextOverflow, InputError
from kvcourse.meter import count
from kvcourse.models.fingerprint import Fingerprint


class CausalLM(nn.Module):
    """A language model: token ids in, one row of logits per position out."""

    config: Config
    rotary = False  # positions turn keys, rather than being added to the stream

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokenizer: Any = None  # set by whoever loads the model
        self.weight_format: str | None = None  # "float16" or "int8" where models.narrow has stored the large matrices so
        self._fingerprint = Fingerprint()

    def forward(
        self, tokens: Int[Tensor, "B T"], cache: KVCache | None = None, *, logits_to_keep: int | None = None
    ) -> Float[Tensor, "B kept V"]:
        """Logits of every position, or of the last `logits_to_keep` only.

        tokens: int64. Positions start at `cache.length` (0 without a cache), and the cache grows by T.
        With a cache no gradients are kept, and whatever is raised leaves the cache as it was.

        Raises: InputError for tokens that are none; ContextOverflow past config.context_length (tokens); what the cache raises.
        """
        T = self._check(tokens, logits_to_keep)
        if cache is None:
            self._require_positions(0, T)
            return self.compute(tokens, plan_without_cache(T, tokens.device), None, logits_to_keep)
        with torch.no_grad():
            padding = 0 if cache.starts is None else int(cache.starts.min())  # slots that are padding in every row
            self._require_positions(cache.length - padding, T, cache)
            parts = [T] if T == 1 else getattr(cache, "passes", lambda T: [T])(T)
            if len(parts) == 1:
                return self._pass(tokens, cache, logits_to_keep)
            keep = T if logits_to_keep is None else logits_to_keep
            with undone_on_error(cache):
                logits, done = [], 0
                for size in parts:
                    done += size
                    kept = min(size, max(0, keep - (T - done)))
                    logits.append(self._pass(tokens[:, done - size : done], cache, kept))
                return torch.cat(logits, dim=1)

    def _pass(self, tokens: Tensor, cache: KVCache, logits_to_keep: int | None) -> Tensor:
        """One pass, committed or undone."""
        weight = self.norm_weight
        cache.bind(self, tokens.shape[0], weight.dtype, weight.device)
        try:
            logits = self.compute(tokens, cache.plan(tokens.shape[1]), cache, logits_to_keep)
            cache.advance(tokens.shape[1])
        except BaseException:  # an interrupt in the middle of a layer, too
            cache.abort()
            raise
        return logits

    def compute(
        self, tokens: Int[Tensor, "B T"], plan: Plan, cache: KVCache | None, logits_to_keep: int | None = None
    ) -> Float[Tensor, "B kept V"]:
        """The pass itself, with positions and mask from `plan`. Appends to `cache` but does not advance it."""
        real = tokens.numel() - plan.padding
        count("tokens", real)
        count("kv_rows", real * self.config.n_layer)
        x = self.run_blocks(tokens, plan, cache)  # (B, T, C)
        if logits_to_keep == 0:  # a part of a split pass that nobody asks about
            return x.new_empty(x.shape[0], 0, self.config.vocab_size)
        return self.head(x if logits_to_keep is None else x[:, -logits_to_keep:])

    @abstractmethod
    def run_blocks(self, tokens: Int[Tensor, "B T"], plan: Plan, cache: KVCache | None) -> Float[Tensor, "B T C"]:
        """Embedding and blocks."""

    @abstractmethod
    def head(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T V"]:
        """Last norm and output projection."""

    def tie(self) -> None:
        """Make the output head the embedding table itself, where the configuration says so."""

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As PyTorch's, which with `assign` would leave a tied model with two tensors where it had one."""
        result = super().load_state_dict(state_dict, strict, assign)
        self.tie()
        return result

    def pack(self) -> None:
        """Lay the weights out for speed, now rather than at the first pass. Changes no value, name or shape."""

    @property
    @abstractmethod
    def norm_weight(self) -> Float[Tensor, " C"]:
        """The last norm's weights, which no format narrows: they say in what dtype, and where, the model computes."""

    @property
    def dtype(self) -> torch.dtype:
        """Of activations, keys and values. Narrow weights have another."""
        return self.norm_weight.dtype

    @property
    def device(self) -> torch.device:
        return self.norm_weight.device

    @property
    def fingerprint(self) -> str:
        """Digest of configuration and weights. Follows in-place changes; after writes through `.data` or NumPy call `touch`."""
        return self._fingerprint.of(self, repr(self.config))

    @property
    def weights_version(self) -> tuple[object, ...]:
        """Which state of the weights this is, in this process: cheap, where the fingerprint may have to read them all."""
        return self._fingerprint.version(self)

    def touch(self) -> None:
        """Say that weights were written to in a way PyTorch does not count (through `.data` or a NumPy view)."""
        self._fingerprint.touch()

    def _check(self, tokens: Tensor, logits_to_keep: int | None) -> int:
        if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype != torch.int64 or tokens.numel() == 0:
            got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
            raise InputError(
                "The model takes token ids.",
                expected="an int64 tensor (B, T) with at least one token",
                got=got,
                todo="For a list of ids: torch.tensor([ids]).",
            )
        low, high = _extremes(tokens)
        if low < 0 or high >= self.config.vocab_size:
            raise InputError(
                "A token id outside the vocabulary.",
                expected=f"ids from 0 to {self.config.vocab_size - 1}",
                got=low if low < 0 else high,
                todo="Encode the text with this model's own tokenizer.",
            )
        if logits_to_keep is not None and not 1 <= logits_to_keep <= tokens.shape[1]:
            raise InputError(
                "logits_to_keep counts positions from the end.",
                expected=f"1 to {tokens.shape[1]}",
                got=logits_to_keep,
                todo="Leave it out for all.",
            )
        return tokens.shape[1]

    def room(self, cache: KVCache | None = None) -> float:
        """Tokens that a text may have with this cache: the context length; with a window that ends sooner, any number where
        positions have no end (math.inf).
        """
        return self.config.context_length

    def _require_positions(self, length: int, T: int, cache: KVCache | None = None) -> None:
        if length + T > self.config.context_length and length + T > self.room(cache):
            raise ContextOverflow(
                "Past the model's context.",
                expected=f"at most {self.room(cache)} tokens",
                got=f"{length} before and {T} now",
                todo="Shorten the prompt, or keep fewer earlier tokens.",
            )


def _extremes(tokens: Tensor) -> tuple[int, int]:
    """Smallest and largest id. Of a few tokens, as in a decode step, Python finds them sooner than two operators do."""
    if tokens.numel() <= 8:
        ids = tokens.flatten().tolist()
        return min(ids), max(ids)
    low, high = tokens.aminmax()
    return int(low), int(high)
