"""Lesson 14: what a prefix cache promises (lesson 10): both indexes, one list of claims. Knows nothing about sessions."""

from typing import Any

import torch

from kvcourse.caches.growing import GrowingCache
from kvcourse.certificate.bed import BLOCK_TOKENS, Bed, Make, bytes_of, ids, in_chunks, small_model, uncached
from kvcourse.certificate.bench import Bench, NotClaimed
from kvcourse.certificate.entries import Book
from kvcourse.errors import CacheMisuse
from kvcourse.generate import generate
from kvcourse.meter import Meter
from kvcourse.models.base import CausalLM
from kvcourse.prefix.cache import BlockPrefixCache
from kvcourse.prefix.keys import digest_of

PROOFS = Book()
proof = PROOFS
N = 17  # tokens of most texts, at least
ROOM = 400  # tokens
EVERYTHING = 2**40  # bytes


def _step(make: Make, model: CausalLM) -> int:
    """How many tokens an index finds at a time: as it says, or the fewest of which it finds any."""
    pc = make(model, ROOM)
    if hasattr(pc, "index"):
        return int(pc.index.step_tokens)
    text, cache = ids(257)[0].tolist(), GrowingCache()
    model(torch.tensor([text]), cache=cache)
    pc.insert(text, cache)
    for power in range(9):
        with pc.lease(text[: 2**power + 1]) as hit:
            if hit.length:
                return int(hit.length)
    return 1


def _known(pc: Any, n: int) -> int:
    """Of n tokens that a stored text begins with, those that this index can find."""
    step: int = pc.index.step_tokens
    return n // step * step


def _found_now(pc: Any, text: list[int], namespace: object = None) -> int:
    with pc.lease(text, namespace=namespace) as hit:
        return int(hit.length)


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
        for index, make in bed.indexes.items():
            n = max(41 if pair.is_small else N, _step(make, pair.model) + 1)
            text = pair.tokens(n)[0].tolist()
            pc, filled = make(pair.model, ROOM), pair.cache(n)
            in_chunks(pair.model, torch.tensor([text]), filled, [6, 1, N])
            pc.insert(text, filled)
            for at in sorted({1, 4, 9, 16, min(33, n - 1), n - 1}):
                with bench.case(pair.name, index, f"texts part at {at}"):
                    other = [*text[:at], (text[at] + 1) % 61, *pair.tokens(4, seed=at)[0].tolist()]
                    cache = pair.cache(len(other))
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
    model = small_model("llama")
    for index, make in bed.indexes.items():
        with bench.case(index):
            pc, text = make(model, ROOM), ids(max(N, _step(make, model) + 1))[0].tolist()
            cold = generate(model, text, max_new_tokens=3, prefix_cache=pc)
            bench.same(cold.usage.cached_tokens, 0, "cached tokens of the first request")
            for n in (1, BLOCK_TOKENS, 2 * BLOCK_TOKENS, len(text) - 1, len(text)):
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
    model = small_model("gpt")
    for index, make in bed.indexes.items():
        text = ids(max(N, _step(make, model) + 1))[0].tolist()
        for mine, other in ((("a", "bc"), ("ab", "c")), (None, ""), (1, "1")):
            with bench.case(index, f"{mine!r} and {other!r}"):
                pc = make(model, ROOM)
                outs = [generate(model, text, max_new_tokens=2, prefix_cache=pc, namespace=who) for who in (mine, other, mine)]
                *cold, warm = (out.usage.cached_tokens for out in outs)
                bench.same(cold, [0, 0], "cached tokens of one, and of the other")
                _found(bench, bed, pc, warm, len(text) - 1, "cached tokens of the first one again")


@proof(10, own="indexes")
def other_weights_are_a_miss(bed: Bed, bench: Bench) -> None:
    for index, make in bed.indexes.items():
        with bench.case(index):
            model = small_model("llama")
            pc, text = make(model, ROOM), ids(max(N, _step(make, model) + 1))[0].tolist()
            generate(model, text, max_new_tokens=2, prefix_cache=pc)
            with torch.no_grad():
                model.norm_weight[0] += 1.0
            out = generate(model, text, max_new_tokens=2, prefix_cache=pc)
            bench.same(out.usage.cached_tokens, 0, "cached tokens after a weight has changed")
            bench.same(out.tokens, generate(model, text, max_new_tokens=2).tokens, "tokens")


@proof(10, own="indexes")
def eviction_changes_costs_and_never_an_answer(bed: Bed, bench: Bench) -> None:
    """Two starts, each longer than what an index finds at a time, and ends that push each other out."""
    model = small_model("llama")
    for index, make in bed.indexes.items():
        step = _step(make, model)
        shared = max(9, step + 1)
        room = 4 * (shared + 1)
        with bench.case(index, f"room for {room} tokens"):
            pc, found = make(model, room), 0
            budget = getattr(pc, "max_bytes", bytes_of(model, room)) if bed.asked else bytes_of(model, room)
            for seed in range(24):
                end = ids(step + 1 + seed % 5, seed=50 + seed % 7)[0].tolist()
                text = [*ids(shared, seed=seed % 2)[0].tolist(), *end]
                out = generate(model, text, max_new_tokens=4, prefix_cache=pc)
                bench.same(out.tokens, generate(model, text, max_new_tokens=4).tokens, f"tokens of request {seed}")
                found += out.usage.cached_tokens
                _checked(pc)
                if hasattr(pc, "stats"):
                    bench.holds(pc.stats.bytes <= budget, "bytes stay within the budget")
            bench.holds(found > 0, f"something was found of starts of {shared} tokens that were asked before")
            bench.holds(bool(bed.asked) or pc.stats.evicted_tokens > 0, "something was evicted")
            if budget > bytes_of(model, room):
                bench.skip(index, f"asked for room for {room} tokens, {bytes_of(model, room)} bytes, it takes {budget}")


@proof(10, own="indexes")
def what_is_cleared_is_found_no_more(bed: Bed, bench: Bench) -> None:
    model = small_model("llama")
    for index, make in bed.indexes.items():
        pc, text = make(model, ROOM), ids(max(N, _step(make, model) + 1))[0].tolist()
        if not hasattr(pc, "clear"):
            bench.skip(index, "it has no clear")
            continue
        with bench.case(index):
            for who in ("one", "two"):
                generate(model, text, max_new_tokens=2, prefix_cache=pc, namespace=who)
            others = _found_now(pc, text, "two")
            _found(bench, bed, pc, others, len(text) - 1, "tokens found of a namespace")
            pc.clear(namespace="one")
            bench.same(_found_now(pc, text, "one"), 0, "tokens found of a namespace that was cleared")
            bench.same(_found_now(pc, text, "two"), others, "tokens found of the other one")
            pc.clear()
            bench.same(_found_now(pc, text, "two"), 0, "tokens found after everything was cleared")
            _empty(bench, pc)
            out = generate(model, text, max_new_tokens=2, prefix_cache=pc)
            bench.same(out.tokens, generate(model, text, max_new_tokens=2).tokens, "tokens of the next request")
        with bench.case(index, "while a lease is out"):
            with pc.lease(text):
                bench.refuses(Exception if bed.asked else CacheMisuse, pc.clear, "clear")
            pc.clear()
            _empty(bench, pc)


@proof(10, own="indexes")
def what_is_leased_stays_until_its_block_ends_and_no_longer(bed: Bed, bench: Bench) -> None:
    model = small_model("llama")
    for index, make in bed.indexes.items():
        with bench.case(index):
            pc, text = make(model, ROOM), ids(max(N, _step(make, model) + 1))[0].tolist()
            if not hasattr(pc, "evict"):
                raise NotClaimed("it has no evict")
            generate(model, text, max_new_tokens=2, prefix_cache=pc)
            with pc.lease(text) as hit:
                with pc.lease(text):
                    pc.evict(EVERYTHING)
                pc.evict(EVERYTHING)
                cache = GrowingCache()
                hit.load_into(cache)
                _found(bench, bed, pc, hit.length, len(text) - 1, "tokens of a lease")
                bench.same(cache.length, hit.length, "tokens loaded from a lease, all else evicted")
                logits = model(torch.tensor([text[cache.length :]]), cache=cache)
                bench.close(logits, uncached(model, torch.tensor([text]))[:, hit.length :], "logits", hit.length)
            bench.same(_found_now(pc, text), hit.length, "tokens found after the lease")
            pc.evict(EVERYTHING)
            bench.same(_found_now(pc, text), 0, "tokens found after everything that is not in use was evicted")
            _empty(bench, pc)


def _empty(bench: Bench, pc: Any) -> None:
    """Nothing is stored, nothing is pinned."""
    _checked(pc)
    if hasattr(pc, "stats"):
        bench.same((pc.stats.bytes, pc.stats.leases), (0, 0), "bytes stored and leases out")
