"""Lesson 14: what can be asked of any cache over a long text and many a turn. Knows no kind of cache by name.

A cache that grows does so at 16, 64, 100 or 256 rows, so that a text of a dozen never sees it; and a cut, a fork or a reset is
mostly wrong for what was done before it.
"""

import random

import torch
from torch import Tensor

from kvcourse.caches.base import KeysValues
from kvcourse.caches.growing import GrowingCache
from kvcourse.certificate.bed import Bed, Pair, banded, in_chunks, uncached
from kvcourse.certificate.bench import Bench, NotClaimed
from kvcourse.certificate.branches import Branch, Known
from kvcourse.certificate.cache_proofs import INEXACT, N
from kvcourse.certificate.entries import Book

PROOFS = Book()
proof = PROOFS
LONG = 300  # tokens: past the first 256 rows
STEPS, MOST = 100, 110  # of a walk at random: how many, and the most tokens of a text; 24 and 40 on a large model


@proof(6, own="kinds")
def a_long_text_equals_one_pass_wherever_its_cache_grows(bed: Bed, bench: Bench) -> None:
    """Also in float32: a cache that casts its rows may do so to that dtype alone."""
    for pair in bed.pairs(narrow=True):
        if not pair.is_exact:
            bench.skip(pair.name.replace(" in float32", ""), INEXACT)
            continue
        n = min(LONG, pair.model.config.context_length)
        with bench.case(pair.name, f"{n} tokens"):
            cache = pair.cache(n)
            if cache.capacity is not None and cache.capacity < n:
                bench.skip(pair.name, f"it says that it has room for {cache.capacity} tokens, and not for {n}")
                n = cache.capacity
            tokens = pair.tokens(n, seed=13)
            sizes = [5, 1, 1, 1, 8, 1, 1, 1, 13, 1] if pair.is_small else [70, 1, 1, 60]
            bench.close(in_chunks(pair.model, tokens, cache, sizes), uncached(pair.model, tokens))
            bench.same((cache.length, cache.held, cache.nbytes > 0), (n, n, True), "length, rows held, and some bytes")


@proof(7, own="kinds")
def cut_again_and_again_it_goes_on(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        with bench.case(pair.name):
            batch = 2
            one = Branch(pair, bench, known, room=60 * batch, batch=batch)
            one.add(pair.tokens(40, seed=14, batch=batch))
            for n, (lengths, more) in enumerate(
                (((37, 33), 3), ((20,), 3), ((17, 17), 1), ((16,), 1), ((5, 0), 20), ((15,), 2))
            ):
                if [one.cut(length) for length in lengths][-1]:
                    one.read()
                    one.add(pair.tokens(more, seed=15 + n, batch=batch))
            one.reset()
            one.add(pair.tokens(18, seed=30, batch=batch))
            one.read()


@proof(9, own="kinds")
def whatever_becomes_of_a_branch_the_other_stays(bed: Bed, bench: Bench) -> None:
    """One is cut, reset and filled anew; after each of these the other goes on, and then both."""
    known = Known()
    for pair in bed.pairs():
        batch, trunks = (2, ((), (5,), (20,), (37,), (40, 21))) if pair.is_small else (1, ((24, 18),))
        for trunk in trunks:
            for actor in ("fork", "parent"):
                with bench.case(pair.name, f"{_trunk_told(trunk)}, then the {actor} changes"):
                    parent = Branch(pair, bench, known, room=60 * 2 * batch, batch=batch)
                    if trunk:
                        parent.add(pair.tokens(trunk[0], seed=31, batch=batch))
                    if trunk and not parent.cut(trunk[-1]):
                        raise NotClaimed(f"it says that it cannot be cut to {trunk[-1]} of {trunk[0]} tokens")
                    fork = parent.fork()
                    one, other = (fork, parent) if actor == "fork" else (parent, fork)
                    for turn in range(2):
                        one.add(pair.tokens(3, seed=32 + turn, batch=batch))
                        other.add(pair.tokens(2, seed=34 + turn, batch=batch))
                    for n in range(2):
                        if n == 0:
                            one.cut(len(one) // 2)
                        else:
                            one.reset()
                        other.add(pair.tokens(2, seed=36 + n, batch=batch))
                        one.add(pair.tokens(5, seed=38 + n, batch=batch))
                    other.read()


def _trunk_told(trunk: tuple[int, ...]) -> str:
    told = [f"{trunk[0]} tokens" if trunk else "nothing held", *(f"cut to {length}" for length in trunk[1:]), "a fork"]
    return ", ".join(told)


@proof(9, own="kinds")
def a_walk_at_random_equals_fresh_computation(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        steps, most, batch = (STEPS, MOST, 2) if pair.is_small else (24, 40, 1)
        with bench.case(pair.name, f"{steps} steps"):
            _walk(pair, Branch(pair, bench, known, room=3 * batch * (most + 16), batch=batch), steps, most)


def _walk(pair: Pair, first: Branch, steps: int, most: int) -> None:
    """Up to three branches. What is done next is drawn; the draws are the same everywhere and for every kind."""
    draw = random.Random(32)  # with it, texts pass 16, 32, 64 and 100 rows and are cut back below them
    family = [first]

    def tokens(seed: int, n: int) -> Tensor:
        return pair.tokens(n, seed=100 + seed, batch=first.batch)

    first.add(tokens(0, min(14, first.free(most))))
    for step in range(1, steps):
        act, which, size = (draw.random() for _ in range(3))
        one = family[int(which * len(family))]
        if act < 0.08 and len(family) < 3 and one.cache.can_fork:
            family.append(one.fork())
        elif act < 0.11 and len(family) > 1:
            family.remove(one)
        elif act < 0.12:
            one.reset()
        elif act < 0.24:
            one.cut(len(one) - int(size**3 * (len(one) + 1)))
        elif act < 0.34:
            one.read(int(size * len(one)))
        elif act < 0.39 and one.free(most) >= 3:
            one.fail(tokens(step, 3))
        elif one.free(most) > 0:
            one.add(tokens(step, min(one.free(most), (1, 1, 2, 3, 5, 9, 17)[int(size * 7)])))
        elif not one.cut(len(one) * 3 // 4):
            one.reset()
        for each in family:
            each.check()
    for n, one in enumerate(family):
        if one.free(most + 8) > 0:
            one.add(tokens(steps + n, min(one.free(most + 8), 3)))


class _Zeros(GrowingCache):
    """Remembers no value."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        keys, values = super().append(layer, k, v)
        return KeysValues(keys, torch.zeros_like(values))


@proof(8, own="kinds")
def its_logits_are_nearer_than_those_of_a_cache_that_forgets(bed: Bed, bench: Bench) -> None:
    """A bound that any cache keeps which is of use, however it rounds: on average at most 0.95 of how far off logits are where
    every token sees itself alone, or every value is 0. Ours with 4 bits keep a tenth of it. Asked while no row is dropped.
    """
    fields = ("kinds",) if bed.asked else ("rounded", "windows")
    for pair in (pair for name in fields for pair in bed.pairs(name)):
        for n in (N, MOST) if pair.is_small else (N,):
            with bench.case(pair.name, f"{n} tokens"):
                cache = pair.cache(n)
                n = min(n, *(one for one in (getattr(cache, "window", None), cache.capacity) if one is not None), n)
                tokens = pair.tokens(n, seed=16)
                expected = uncached(pair.model, tokens)
                found = in_chunks(pair.model, tokens, cache, [7, 1, 3, 1, 20])
                if cache.held < n:
                    raise NotClaimed(f"it holds {cache.held} rows of {n} tokens")
                forgotten = (banded(pair.model, tokens, 1), in_chunks(pair.model, tokens, _Zeros(), [n]))
                for start in {0, n - n // 4} if n > N else {0}:  # of a long text, the last quarter by itself, too
                    off, *others = (_off(one, expected, start) for one in (found, *forgotten))
                    bench.numbers += expected[:, start:].numel()
                    bound = 0.95 * min(others)
                    bench.holds(
                        off <= bound, f"logits from position {start} on are off by {off:.2g} on average, at most {bound:.2g}"
                    )


def _off(found: Tensor, expected: Tensor, start: int) -> float:
    return (found - expected)[:, start:].abs().mean().item()
