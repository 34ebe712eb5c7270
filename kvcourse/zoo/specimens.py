"""Lesson 14: the zoo: which broken caches there are, under letters that say nothing.

Knows nothing about how they are told apart.
Every one of them runs, gives logits of the right shape, and would look well in a plot of speed.
"""

from collections.abc import Mapping

from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache, PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.config import kv_bytes_per_token
from kvcourse.models.base import CausalLM
from kvcourse.prefix.cache import BlockPrefixCache, PrefixCache, RadixPrefixCache
from kvcourse.zoo import keeping, reading, sharing
from kvcourse.zoo.specimen import Make, Specimen

BLOCK_TOKENS = 4


def rows_of(model: CausalLM, tokens: int) -> int:
    """Bytes of K and V of that many tokens."""
    return tokens * kv_bytes_per_token(model.config, model.dtype.itemsize)


def _rounding(kind: type[QuantizedCache]) -> Make:
    return lambda model, capacity: kind(bits=8, group_tokens=BLOCK_TOKENS, residual_tokens=BLOCK_TOKENS)


def _shared(kind: type[PrefixCache]) -> Make:
    return lambda model, capacity: kind(model, rows_of(model, capacity))  # type: ignore[call-arg, arg-type]


def _hashed(model: CausalLM, capacity: int) -> PrefixCache:
    digest = sharing.weak_digest
    return sharing.BelievesTheHash(model, rows_of(model, capacity), block_tokens=BLOCK_TOKENS, digest=digest)


# Right ones of every kind, made in the same way.
HEALTHY: Mapping[str, Make] = {
    "growing": lambda model, n: GrowingCache(),
    "preallocated": lambda model, n: PreallocatedCache(n),
    "sliding": lambda model, n: SlidingCache(n),
    "quantized": _rounding(QuantizedCache),
    "paged": lambda model, n: PagedCache(PagedPool(model, 3 * -(-n // BLOCK_TOKENS), BLOCK_TOKENS)),  # a fork, and a spare
    "radix": _shared(RadixPrefixCache),
    "hashed blocks": lambda model, n: BlockPrefixCache(
        model, rows_of(model, n), block_tokens=BLOCK_TOKENS, digest=sharing.weak_digest
    ),
}

SPECIMENS: tuple[Specimen, ...] = (
    Specimen("A", lambda model, n: keeping.ResetKeepsLength(n), "reset keeps the length", "LLMs-from-scratch PR 925",
             "A second prompt begins where the first one ended."),
    Specimen("B", lambda model, n: reading.SquareMask(n), "square mask", "LLMs-from-scratch PR 697",
             "Right in the prompt and in single steps; several tokens at once do not see the past."),
    Specimen("C", lambda model, n: reading.CastRows(), "rows cast", "nanochat 795, kvpress 16",
             "Rows are kept in less precision than they were computed in."),
    Specimen("D", _shared(sharing.NamespaceIgnored), "namespace ignored", "vLLM PR 17045 (CVE-2025-46570), sglang 26747",
             "One tenant's prefix is found by another.", "prefix"),
    Specimen("E", lambda model, n: keeping.WindowInTheMask(n), "memory grows", "llm_from_scratch 3, mistral.rs 246",
             "The mask has a window, and every row is kept for ever."),
    Specimen("F", lambda model, n: reading.NeverUsed(), "never used", "LLMs-from-scratch 913",
             "The cache is built, and every token is computed again all the same."),
    Specimen("G", lambda model, n: keeping.GrowsByResize(), "layers scrambled", "nanochat PR 186",
             "Right until the cache grows; then every row lies in another layer or slot."),
    Specimen("H", lambda model, n: reading.PaddingLeaks(n), "padding leaks", "unsloth 3699, transformers 18104",
             "A row that is padded on the left attends to its padding."),
    Specimen("I", _hashed, "believed by its hash", "vLLM PR 12621 (CVE-2025-25183), openvino.genai 3722",
             "A block is taken for another one with the same hash.", "prefix"),
    Specimen("J", lambda model, n: keeping.ZeroKeepsAll(n), "zero keeps all", "transformers 47433, mlx-lm PR 1868",
             "Cut back to 0 tokens, it keeps them all."),
    Specimen("K", lambda model, n: reading.PositionsRestart(), "positions restart", "mlx-lm PR 93, nano-vllm PR 67",
             "Every call counts its positions from 0."),
    Specimen("L", _shared(sharing.HandsOutItsRows), "hit by reference", "exo PR 991",
             "Whoever goes on from a hit writes into the store.", "prefix"),
    Specimen("M", lambda model, n: keeping.NoCheck(n), "no overflow check", "nanochat PR 627",
             "The token after the last slot fails in PyTorch's words."),
    Specimen("N", lambda model, n: keeping.ForkShares(n), "fork shares rows", "lattice PR 516",
             "A fork and its parent write into the same rows."),
    Specimen("O", _rounding(keeping.RoundsPerCall), "rounded per call", "VeloxQuant 86, kvpress 27",
             "Tokens that come one by one are never rounded, so nothing is saved."),
    Specimen("P", _shared(sharing.StaleAfterUpdate), "stale weights", "lmdeploy 4917, sglang 26792",
             "K and V of old weights are found under new ones.", "prefix"),
    Specimen("Q", lambda model, n: reading.MaskAtTheLeft(), "mask at the left", "llama 899, PyTorch 108108",
             "Several tokens at once see the oldest tokens, and not those in front of them."),
    Specimen("R", lambda model, n: keeping.WindowOneShort(n), "window off by one", "transformers 37574, litgpt 2182",
             "In a pass of several tokens the window is one key shorter than in single steps."),
    Specimen("S", _shared(sharing.LeavesNothing), "nothing left to compute", "llama.cpp PR 1609, nano-vllm 144, mlx-lm PR 183",
             "A prompt that is cached as a whole has no logits.", "prefix"),
    Specimen("T", lambda model, n: reading.ReadsOneBefore(n), "resumed off by one", "mlx-examples 977",
             "What is written to a file, or put into another cache, is one row off."),
    Specimen("U", lambda model, n: keeping.SeesTheFuture(n), "sees the future", "nanochat 452",
             "In a pass of several tokens each sees those that come after it."),
)  # fmt: skip
