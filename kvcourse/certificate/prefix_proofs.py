"""Lesson 14: what a prefix cache promises (lesson 10): both indexes, one list of claims. Knows nothing about sessions."""

from typing import Any

import torch

from kvcourse.certificate.bed import BLOCK_TOKENS, Bed, bytes_of, ids, in_chunks, small_model, uncached
from kvcourse.certificate.bench import Bench
from kvcourse.certificate.entries import Book
from kvcourse.generate import generate
from kvcourse.meter import Meter
from kvcourse.prefix.cache import BlockPrefixCache
from kvcourse.prefix.keys import digest_of

PROOFS = Book()
proof = PROOFS
N = 17  # tokens of most texts
ROOM = 400  # tokens


def _known(pc: Any, n: int) -> int:
    """Of n tokens that a stored text begins with, those that this index can find."""
    step: int = pc.index.step_tokens if hasattr(pc, "index") else 1
    return n // step * step


def _found(bench: Bench, bed: Bed, pc: Any, found: int, shared: int, what: str) -> None:
    """Ours find all that they can; of anybody else's it is asked that it does not find too much."""
    if bed.asked:
        bench.holds(found <= shared, f"{what}: {found} cannot be, as {shared} are shared")
    else:
        bench.same(found, _known(pc, shared), what)


def _checked(pc: Any) -> None:
    if hasattr(pc, "check"):
        pc.check()


@proof(10, own="indexes")
def a_prefix_hit_equals_computing_it_again(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        text = pair.tokens(N)[0].tolist()
        for index, make in bed.indexes.items():
            pc, filled = make(pair.model, ROOM), pair.cache()
            in_chunks(pair.model, torch.tensor([text]), filled, [6, 1, N])
            pc.insert(text, filled)
            for at in (1, 4, 9, 16):
                with bench.case(pair.name, index, f"texts part at {at}"):
                    other = [*text[:at], (text[at] + 1) % 61, *pair.tokens(4, seed=at)[0].tolist()]
                    cache = pair.cache()
                    with pc.lease(other) as hit:
                        hit.load_into(cache)
                    found = cache.length
                    _found(bench, bed, pc, found, at, "tokens found")
                    with Meter() as meter:
                        logits = in_chunks(pair.model, torch.tensor([other[found:]]), cache, [2, N])
                    bench.close(logits, uncached(pair.model, torch.tensor([other]))[:, found:], "logits", found)
                    bench.same(meter.cost.tokens, len(other) - found, "tokens computed")
            _checked(pc)


@proof(10, own="indexes")
def one_token_at_least_is_computed(bed: Bed, bench: Bench) -> None:
    """Also where all of the prompt is known: its logits are not."""
    model, text = small_model("llama"), ids(N)[0].tolist()
    for index, make in bed.indexes.items():
        with bench.case(index):
            pc = make(model, ROOM)
            cold = generate(model, text, max_new_tokens=3, prefix_cache=pc)
            bench.same(cold.usage.cached_tokens, 0, "cached tokens of the first request")
            for n in (1, BLOCK_TOKENS, 2 * BLOCK_TOKENS, N):
                out = generate(model, text[:n], max_new_tokens=3, prefix_cache=pc)
                _found(bench, bed, pc, out.usage.cached_tokens, n - 1, f"cached tokens of the first {n}")
                bench.same(out.usage.cached_tokens + out.usage.computed_tokens, n, "cached and computed")
                bench.same(out.tokens, generate(model, text[:n], max_new_tokens=3).tokens, "tokens")


@proof(10)
def a_poor_hash_costs_hits_and_never_an_answer(bed: Bed, bench: Bench) -> None:
    model = small_model("llama")

    def poor(data: bytes) -> bytes:
        return bytes([digest_of(data)[0] & 3])  # four names for everything

    with bench.case("4 digests for 30 texts"):
        pc = BlockPrefixCache(model, bytes_of(model, ROOM), BLOCK_TOKENS, digest=poor)
        for seed in range(30):
            text = ids(9, seed=seed)[0].tolist()
            out = generate(model, text, max_new_tokens=3, prefix_cache=pc)
            bench.same(out.tokens, generate(model, text, max_new_tokens=3).tokens, f"tokens of text {seed}")
        pc.check()


@proof(10, own="indexes")
def nobody_finds_the_prefix_of_another_tenant(bed: Bed, bench: Bench) -> None:
    model, text = small_model("gpt"), ids(N)[0].tolist()
    for index, make in bed.indexes.items():
        for mine, other in ((("a", "bc"), ("ab", "c")), (None, ""), (1, "1")):
            with bench.case(index, f"{mine!r} and {other!r}"):
                pc = make(model, ROOM)
                outs = [generate(model, text, max_new_tokens=2, prefix_cache=pc, namespace=who) for who in (mine, other, mine)]
                *cold, warm = (out.usage.cached_tokens for out in outs)
                bench.same(cold, [0, 0], "cached tokens of one, and of the other")
                _found(bench, bed, pc, warm, N - 1, "cached tokens of the first one again")


@proof(10, own="indexes")
def other_weights_are_a_miss(bed: Bed, bench: Bench) -> None:
    for index, make in bed.indexes.items():
        with bench.case(index):
            model, text = small_model("llama"), ids(N)[0].tolist()
            pc = make(model, ROOM)
            generate(model, text, max_new_tokens=2, prefix_cache=pc)
            with torch.no_grad():
                model.norm_weight[0] += 1.0
            out = generate(model, text, max_new_tokens=2, prefix_cache=pc)
            bench.same(out.usage.cached_tokens, 0, "cached tokens after a weight has changed")
            bench.same(out.tokens, generate(model, text, max_new_tokens=2).tokens, "tokens")


@proof(10, own="indexes")
def eviction_changes_costs_and_never_an_answer(bed: Bed, bench: Bench) -> None:
    model, room = small_model("llama"), 40
    for index, make in bed.indexes.items():
        with bench.case(index, f"room for {room} tokens"):
            pc, found = make(model, room), 0
            for seed in range(24):
                text = [*ids(9, seed=seed % 2)[0].tolist(), *ids(2 + seed % 5, seed=50 + seed % 7)[0].tolist()]
                out = generate(model, text, max_new_tokens=4, prefix_cache=pc)
                bench.same(out.tokens, generate(model, text, max_new_tokens=4).tokens, f"tokens of request {seed}")
                found += out.usage.cached_tokens
                _checked(pc)
                if hasattr(pc, "stats"):
                    bench.holds(pc.stats.bytes <= bytes_of(model, room), "bytes stay within the budget")
            bench.holds(found > 0, "something was found")
