"""Lesson 14: what the kinds of lessons 07 to 09 promise, each in its own way. Knows nothing about requests or sessions."""

import torch
from torch import Tensor

from kvcourse.attention import attend, causal_mask
from kvcourse.caches.base import KeysValues, Plan
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.paged import PagedCache
from kvcourse.caches.paged_pool import PagedPool
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.certificate.bed import CHUNKINGS, Bed, Pair, banded, bytes_of, ids, in_chunks, small_model, uncached, unsteadiness
from kvcourse.certificate.bench import Bench, NotClaimed, rounding, rounding_of_an_unsteady_model
from kvcourse.certificate.entries import Book
from kvcourse.generate import generate
from kvcourse.meter import Meter
from kvcourse.speculative import first_layers, speculate

PROOFS = Book()
proof = PROOFS
N = 22
LONG = 100  # tokens, for a window of 30


@proof(7, "a preallocated cache copies nothing and takes its formula's bytes")
def preallocated_bytes(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        with bench.case(name):
            cache = PreallocatedCache(40)
            with Meter() as meter:
                in_chunks(model, ids(N), cache, CHUNKINGS["uneven chunks"](N))
            bench.same(meter.cost.bytes_copied, 0, "bytes copied")
            bench.same(cache.nbytes, bytes_of(model, 40), "bytes")


@proof(7)
def speculation_writes_what_plain_generation_writes(bed: Bed, bench: Bench) -> None:
    for kind in ("gpt", "llama"):
        model = small_model(kind)
        for layers, n_draft in ((1, 1), (1, 4), (2, 3), (3, 4)):
            with bench.case(kind, f"{layers} of 3 blocks guess {n_draft}"):
                for seed in (1, 2):
                    prompt = ids(6, seed=seed)[0].tolist()
                    plain = generate(model, prompt, max_new_tokens=12)
                    guessed = speculate(model, prompt, draft=first_layers(model, layers), max_new_tokens=12, n_draft=n_draft)
                    bench.same(guessed.tokens, plain.tokens, "tokens")
                    bench.same(guessed.passes + guessed.accepted, 12, "passes and accepted guesses, one token each")


@proof(8)
def shared_heads_equal_repeated_ones(bed: Bed, bench: Bench) -> None:
    q, (k, v) = torch.randn(2, 6, 5, 4, dtype=torch.float64, generator=_seeded(0)), _kv(2, 2, 9, 4)
    mask = causal_mask(torch.arange(4, 9), torch.arange(9))
    with bench.case("attention"):
        all_k, all_v = (t.repeat_interleave(3, dim=1) for t in (k, v))
        bench.close(attend(q, k, v, mask), attend(q, all_k, all_v, mask), "attention")
    few, many = small_model("llama"), small_model("llama", n_kv_head=6)
    weights = few.state_dict()
    for name in [name for name in weights if "k_proj" in name or "v_proj" in name]:
        weights[name] = weights[name].unflatten(0, (2, 6)).repeat_interleave(3, dim=0).flatten(0, 1)
    many.load_state_dict(weights)
    for name, sizes in CHUNKINGS.items():
        with bench.case("a Llama with 2 of 6 heads", name):
            bench.close(in_chunks(few, ids(N), GrowingCache(), sizes(N)), uncached(many, ids(N)))


@proof(8, own="windows")
def a_window_equals_full_attention_under_a_band(bed: Bed, bench: Bench) -> None:
    """How far rounding may lead is measured. A trained model rests on its first token (lesson 08's sink: a vector some hundred
    times the others' size). Where a window has left that behind, other tokens swell in its place, and which of them is a matter
    of a hair. In SmolLM2 one ε moves such logits some forty times as far as with the first token in sight.
    """
    for pair in bed.pairs("windows"):
        if getattr(pair.cache(), "sinks", 0):
            bench.skip(pair.name, "it has sinks, so that a band is not what its logits are of")
            continue
        long = [(LONG, window) for window in _windows(pair, 30) if pair.is_small]
        for n, window in [*((N, window) for window in _windows(pair, 1, 5, N - 1, N, N + 1)), *long]:
            tokens = pair.tokens(n, batch=2 if n == N else 1)
            expected = banded(pair.model, tokens, window)
            bound = rounding_of_an_unsteady_model(expected, unsteadiness(pair.model, tokens, window))
            for name in CHUNKINGS if n == N else ["uneven chunks"]:
                with bench.case(pair.name, f"window {window}", name):
                    cache = pair.cache(window)
                    bench.close(in_chunks(pair.model, tokens, cache, CHUNKINGS[name](n)), expected, bound=bound)
                    bench.same((cache.length, cache.held), (n, min(n, window)), "length and rows held")


@proof(8)
def a_window_with_sinks_equals_a_cache_that_forgets_nothing(bed: Bed, bench: Bench) -> None:
    model, tokens = small_model("llama"), ids(N)
    for sinks, window in ((1, 2), (1, 6), (3, 4), (4, 11), (2, N)):
        expected = in_chunks(model, tokens, _EveryRawKey(window, sinks), [1])
        for name, sizes in CHUNKINGS.items():
            with bench.case(f"window {window}, {sinks} sinks", name):
                bench.close(in_chunks(model, tokens, SlidingCache(window, sinks), sizes(N)), expected)


@proof(8, own="windows")
def the_memory_of_a_window_never_grows(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs("windows"):
        with bench.case(pair.name):
            cache, bytes_seen = pair.cache(5), list[int]()
            if 2 * cache.window + 40 > pair.model.config.context_length:
                raise NotClaimed(f"its window of {cache.window} is too long to go round within the model's context")
            for size in (5, 1, 9, 1, 2, cache.window + 9, 1, cache.window + 9, 1):
                pair.model(pair.tokens(size), cache=cache)
                bytes_seen.append(cache.nbytes)
            if bed.asked:  # how much a full window takes is its maker's affair: blocks, say
                bench.same(bytes_seen[-1], bytes_seen[-3], "bytes after two windows more, and after one")
                bench.holds(bytes_seen[-1] > 0, "a window takes more than 0 bytes")
            else:
                bench.same({*bytes_seen}, {bytes_of(pair.model, 5)}, "bytes")


@proof(8)
def rounded_numbers_stay_within_half_a_step(bed: Bed, bench: Bench) -> None:
    k, v = _kv(2, 3, 26, 6)
    for bits, group, residual in ((8, 4, 4), (4, 4, 4), (4, 3, 5), (8, 8, 0)):
        with bench.case(f"{bits} bits, groups of {group}, the last {residual} kept"):
            cache = QuantizedCache(bits, group, residual)
            cache.append(0, k, v)
            cache.advance(26)
            bench.same(cache.packed, (26 - residual) // group * group, "rows rounded")
            for held, given, half in zip(cache.read(0, 0, 26), (k, v), cache.half_step(0), strict=True):
                off = (held - given).abs()
                within = off[:, :, : cache.packed] <= half + rounding(given)
                bench.numbers += within.numel()
                bench.holds(bool(within.all()), "no number is off by more than half its step")
                bench.close(held[:, :, cache.packed :], given[:, :, cache.packed :], "the last rows")


@proof(8, own="rounded")
def what_is_kept_depends_on_the_text_and_not_on_the_passes(bed: Bed, bench: Bench) -> None:
    """Of the first block, whose rows see tokens alone."""
    for pair in bed.pairs("rounded"):
        tokens, seen = pair.tokens(26), []
        for name, sizes in CHUNKINGS.items():
            with bench.case(pair.name, name):
                cache = pair.cache()
                in_chunks(pair.model, tokens, cache, sizes(26))
                seen.append((cache.nbytes, cache.read(0, 0, 26)))
                bench.same(seen[-1][0], seen[0][0], "bytes, and in one pass")
                for what, rows, others in zip("KV", seen[-1][1], seen[0][1], strict=True):
                    bench.close(rows, others, f"{what} of block 0, and in one pass")


@proof(9)
def blocks_of_any_size_and_order_equal_one_pass(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        tokens = ids(N, batch=2)
        expected = uncached(model, tokens)
        for block_tokens in (1, 4, 16):
            for layout in ("in a row", "scattered"):
                with bench.case(name, f"blocks of {block_tokens}", layout):
                    pool = PagedPool(model, 4 * (N // block_tokens + 2), block_tokens)
                    if layout == "scattered":
                        pool.blocks.release(pool.blocks.allocate(pool.blocks.n_blocks)[::2])
                    bench.close(in_chunks(model, tokens, PagedCache(pool), CHUNKINGS["uneven chunks"](N)), expected)


@proof(9)
def branches_share_blocks_until_they_write(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        with bench.case(name):
            pool, trunk = PagedPool(model, 20, 4), ids(10)
            caches = [PagedCache(pool)]
            model(trunk, cache=caches[0])
            caches += [caches[0].fork() for _ in range(3)]
            bench.same(pool.blocks.n_used, 3, "blocks for four branches before anybody writes")
            for n, cache in enumerate(caches):
                end = ids(3, seed=n)
                whole = uncached(model, torch.cat((trunk, end), dim=1))
                bench.close(model(end, cache=cache), whole[:, 10:], f"logits of branch {n}", 10)
            bench.same(pool.blocks.n_used, 2 + 4 * 2, "blocks afterwards: two full ones shared, two of each one's own")
            pool.blocks.check([cache.tables[0] for cache in caches])


@proof(9)
def every_block_comes_back(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        with bench.case(name):
            pool = PagedPool(model, 20, 4)
            caches = [PagedCache(pool) for _ in range(2)]
            for cache in caches:
                model(ids(11), cache=cache)
            caches.append(caches[0].fork())
            model(ids(2), cache=caches[2])
            caches[0].truncate(5)
            for cache in caches:
                cache.reset()
                pool.blocks.check([one.tables[0] for one in caches if one.tables])
            bench.same((pool.blocks.n_used, pool.used_bytes), (0, 0), "blocks and bytes in use")


# Tools.


def _windows(pair: Pair, *wanted: int) -> list[int]:
    """Which windows to try: those that a factory makes when it is asked for these."""
    return sorted({pair.cache(window).window for window in wanted})


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _kv(*shape: int) -> tuple[Tensor, Tensor]:
    k, v = (torch.randn(shape, dtype=torch.float64, generator=_seeded(seed)) for seed in (1, 2))
    return k, v


class _EveryRawKey(GrowingCache):
    """The slow reference of lesson 08: keeps every raw key, and picks sinks and last rows by plain lists.

    One token a pass. The picked rows stand at places 0, 1, 2 …, whatever their places in the text are.
    """

    keys = "raw"

    def __init__(self, window: int, sinks: int) -> None:
        super().__init__()
        self._window, self._sinks = window, sinks

    def _picked(self) -> list[int]:
        every = list(range(self.length + 1))
        return every if len(every) <= self._window else every[: self._sinks] + every[self._sinks - self._window :]

    def plan(self, T: int) -> Plan:
        n = len(self._picked())
        return Plan(torch.tensor([n - 1]), torch.arange(n), None)

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        rows = super().append(layer, k, v)
        return KeysValues(*(t[:, :, self._picked()] for t in rows))
