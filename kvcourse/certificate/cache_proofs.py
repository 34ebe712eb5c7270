"""Lesson 14: what can be asked of any cache, whoever wrote it (lessons 06, 07 and 09). Knows no kind of cache by name.

A cache that says `exact = False` does not promise the logits of a model without one: of it is asked that a reset, a cut, a
fork or a failed pass leaves it as a new one of its kind would be.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from kvcourse.certificate.bed import CHUNKINGS, Bed, Pair, in_chunks, uncached
from kvcourse.certificate.bench import Bench, NotClaimed, rounding
from kvcourse.certificate.branches import Known, OnPurpose, broken, places_to_fail, read_and_compared, rows_of_one_pass
from kvcourse.certificate.entries import Book
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse
from kvcourse.generate import decode_step, generate, prefill
from kvcourse.meter import Meter
from kvcourse.models.base import CausalLM

PROOFS = Book()
proof = PROOFS
N = 13  # tokens of most texts
INEXACT = "it says exact = False: of its logits a loose bound is asked, and that cuts, forks and resets leave no trace"


def _exact_pairs(bed: Bed, bench: Bench) -> Iterator[Pair]:
    for pair in bed.pairs():
        if pair.is_exact:
            yield pair
        else:
            bench.skip(pair.name, INEXACT)


@proof(6, own="kinds")
def cached_logits_equal_uncached_ones_at_every_position(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in _exact_pairs(bed, bench):
        tokens = pair.tokens(N)
        expected = known.logits(pair.model, tokens, N)
        for name, sizes in CHUNKINGS.items():
            with bench.case(pair.name, name):
                cache = pair.cache()
                bench.close(in_chunks(pair.model, tokens, cache, sizes(N)), expected)
                bench.same(cache.length, N, "length")


@proof(6, own="kinds")
def prefill_and_decode_equal_one_pass(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in _exact_pairs(bed, bench):
        tokens = pair.tokens(N, seed=5)
        expected = known.logits(pair.model, tokens, N)
        for chunk in (None, 1, 3):
            with bench.case(pair.name, f"prefill_chunk={chunk}"):
                cache = pair.cache()
                bench.close(prefill(pair.model, tokens[:, :9], cache, chunk), expected[:, 8], "logits after the prompt")
                for place in range(9, N):
                    logits = decode_step(pair.model, int(tokens[0, place]), cache)
                    bench.close(logits, expected[:, place], f"logits of decode at position {place}")


@proof(6, own="kinds")
def only_new_tokens_are_computed(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        with bench.case(pair.name):
            cache = pair.cache()
            for size in (7, 1, 3):
                with Meter() as meter:
                    pair.model(pair.tokens(size), cache=cache)
                bench.same(meter.cost.tokens, size, "tokens through the model")
                bench.same(meter.cost.kv_rows, size * pair.model.config.n_layer, "rows of K/V computed")


@proof(6, own="kinds")
def it_holds_the_keys_and_values_of_one_pass(bed: Bed, bench: Bench) -> None:
    """What a prefix cache or a file is given, is this."""
    for pair in _exact_pairs(bed, bench):
        tokens = pair.tokens(9, seed=3, batch=2)
        rows = rows_of_one_pass(pair.model, tokens)
        for name in ("one pass", "uneven chunks"):
            with bench.case(pair.name, name):
                cache = pair.cache()
                in_chunks(pair.model, tokens, cache, CHUNKINGS[name](9))
                for start, stop in ((0, 9), (3, 7)):
                    read_and_compared(pair, bench, cache, rows, start, stop)
                bench.refuses(CacheMisuse, partial(cache.read, 0, 0, 10), "rows 0 to 9, of which 9 are held")


@proof(6, own="kinds")
def texts_of_a_batch_stay_apart(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        tokens = pair.tokens(N, seed=2, batch=3)
        for name in ("chunks of 1", "uneven chunks"):
            with bench.case(pair.name, name):
                sizes = CHUNKINGS[name](N)
                found = in_chunks(pair.model, tokens, pair.cache(), sizes)
                for row in range(3):
                    bench.close(
                        found[row : row + 1], _expected(pair, known, tokens[row : row + 1], sizes), f"logits of row {row}"
                    )


@proof(6, own="kinds")
def a_padded_batch_equals_each_text_alone(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in _exact_pairs(bed, bench):
        if not hasattr(pair.cache(), "starts"):
            bench.skip(pair.name, "it has no starts, and so takes no padded batch")
            continue
        prompts = [pair.tokens(length, seed=length)[0].tolist() for length in (9, 4, 1)]
        starts = [9 - len(prompt) for prompt in prompts]
        tokens = torch.tensor([[7] * start + prompt for start, prompt in zip(starts, prompts, strict=True)])
        more, end = pair.tokens(4, seed=4, batch=3), pair.tokens(2, seed=9, batch=3)
        for name in ("one pass", "uneven chunks"):
            with bench.case(pair.name, name):
                cache = pair.cache(starts=starts)
                first = in_chunks(pair.model, tokens, cache, CHUNKINGS[name](9))
                family = {"cache": cache, "fork": cache.fork()} if cache.can_fork else {"cache": cache}
                for which, member in family.items():
                    logits = torch.cat((first, in_chunks(pair.model, more, member, CHUNKINGS[name](4))), dim=1)
                    for row, start in enumerate(starts):
                        text = torch.tensor([[*prompts[row], *more[row].tolist()]])
                        alone = known.logits(pair.model, text, text.shape[1])
                        bench.close(
                            logits[row : row + 1, start:], alone, f"logits of the {which}, of the row padded by {start}"
                        )
                cache.truncate(11)
                logits = pair.model(end, cache=cache)
                for row, start in enumerate(starts):
                    text = torch.tensor([[*prompts[row], *more[row, :2].tolist(), *end[row].tolist()]])
                    alone = known.logits(pair.model, text, 2)
                    bench.close(logits[row : row + 1], alone, f"logits after a cut, of the row padded by {start}", 11)


@proof(6, own="kinds")
def after_a_reset_it_is_as_new(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        first, second = pair.tokens(5, seed=6), pair.tokens(N, seed=7)
        for name, sizes in CHUNKINGS.items():
            with bench.case(pair.name, name):
                cache = pair.cache()
                pair.model(first, cache=cache)
                cache.reset()
                bench.same(cache.length, 0, "length")
                bench.close(in_chunks(pair.model, second, cache, sizes(N)), _expected(pair, known, second, sizes(N)))
        if pair.is_exact and hasattr(pair.cache(), "starts"):
            with bench.case(pair.name, "after a padded batch"):
                cache, text = pair.cache(starts=[0, 2]), pair.tokens(5, batch=2)
                pair.model(text, cache=cache)
                cache.reset()
                bench.close(pair.model(text, cache=cache), uncached(pair.model, text))


@proof(6, own="kinds")
def a_failed_pass_changes_nothing(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        tokens = pair.tokens(12, seed=11)
        for held, (place, module) in ((held, place) for held in (0, 5) for place in places_to_fail(pair.model).items()):
            with bench.case(pair.name, f"{held} held", place):
                cache, untouched = pair.cache(), pair.cache()
                for each in (cache, untouched):
                    if held:
                        pair.model(tokens[:, :held], cache=each)
                with broken(module):
                    bench.refuses(OnPurpose, partial(pair.model, tokens[:, held : held + 4], cache=cache), "the pass")
                for what in ("length", "held", "nbytes"):
                    bench.same(getattr(cache, what), getattr(untouched, what), what)
                bench.same(cache.can_truncate(held), untouched.can_truncate(held), f"can_truncate({held})")
                rest = tokens[:, held:]
                bench.close(in_chunks(pair.model, rest, cache, [2, 12]), in_chunks(pair.model, rest, untouched, [2, 12]))


@proof(6, own="kinds")
def two_caches_share_nothing(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        texts = [pair.tokens(10, seed=seed) for seed in (12, 13)]
        with bench.case(pair.name):
            caches, alone = [pair.cache(), pair.cache()], [pair.expected(text, [2]) for text in texts]
            for at in range(0, 10, 2):
                for text, cache, expected in zip(texts, caches, alone, strict=True):
                    bench.close(pair.model(text[:, at : at + 2], cache=cache), expected[:, at : at + 2], "logits", at)
                uncached(pair.model, texts[1][:, :3])


@proof(6, own="kinds")
def another_model_or_batch_is_refused(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        with bench.case(pair.name):
            cache, text = pair.cache(), pair.tokens(4)
            pair.model(text, cache=cache)
            twin = _shell(pair.model)
            bench.refuses(CacheMismatch, partial(twin, text, cache=cache), "another model")
            bench.refuses(CacheMismatch, partial(pair.model, text.expand(2, -1), cache=cache), "two rows")
            bench.same(cache.length, 4, "length")


@proof(6, own="kinds")
def generate_writes_the_same_with_and_without_it(bed: Bed, bench: Bench) -> None:
    for pair in _exact_pairs(bed, bench):
        with bench.case(pair.name):
            prompt, cache = pair.tokens(7, seed=8)[0].tolist(), pair.cache()
            kept = generate(pair.model, prompt, max_new_tokens=6, cache=cache)
            plain = generate(pair.model, prompt, max_new_tokens=6, cache=None)
            same = _until_a_tie(pair.model, prompt, kept.tokens, plain.tokens)
            bench.same(kept.tokens[:same], plain.tokens[:same], "tokens")
            bench.same(cache.length, 7 + 6 - 1, "length: the last token has no row yet")
            bench.same(kept.cost.tokens, 7 + 6 - 1, "tokens through the model")


@proof(7, own="kinds")
def it_is_cut_to_every_length_it_allows_and_goes_on(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        first, second = pair.tokens(8, seed=6), pair.tokens(5, seed=7)
        for length in range(-2, 11):
            with bench.case(pair.name, f"cut to {length}"):
                cache = pair.cache()
                in_chunks(pair.model, first, cache, [3, 5])
                if not cache.can_truncate(length):
                    bench.holds(not (pair.is_exact and 0 <= length <= 8), "an exact cache can be cut to any length it has had")
                    bench.refuses(CacheMisuse, partial(cache.truncate, length), "truncate")
                    bench.same(cache.length, 8, "length")
                    continue
                bench.holds(0 <= length <= 8, f"can_truncate({length}) of 8 tokens is False")
                cache.truncate(length)
                bench.same(cache.length, length, "length")
                if pair.is_exact:
                    expected = known.logits(pair.model, torch.cat((first[:, :length], second), dim=1), 5)
                    bench.close(in_chunks(pair.model, second, cache, [2, 3]), expected, "logits", length)


@proof(7, own="kinds")
def one_token_too_many_is_refused_and_changes_nothing(bed: Bed, bench: Bench) -> None:
    for pair in bed.pairs():
        with bench.case(pair.name):
            cache = pair.cache(9)
            if cache.capacity is None:
                raise NotClaimed("it says that its room has no end")
            most, context = cache.capacity, pair.model.config.context_length  # most: 9, or more where room comes in blocks
            if most + 1 > context:
                raise NotClaimed(f"asked for 9 tokens it has room for {most}, and the model's context ends at {context}")
            bench.holds(most >= 9, f"asked for 9 tokens it has room for {most}")
            text = pair.tokens(most + 1)
            rest = text[:, most - 2 : most]
            untouched = pair.cache(9)  # one after the other: both may take their rows from one pool
            pair.model(text[:, : most - 2], cache=untouched)
            expected = pair.model(rest, cache=untouched)
            untouched.reset()
            pair.model(text[:, : most - 2], cache=cache)
            bench.refuses(CacheFull, partial(pair.model, text[:, most - 2 :], cache=cache), "3 for 2 places")
            bench.same(cache.length, most - 2, "length")
            bench.close(pair.model(rest, cache=cache), expected)
            bench.refuses(CacheFull, partial(pair.model, text[:, :1], cache=cache), "a token for no place")


@proof(9, own="kinds")
def forks_go_their_own_ways(bed: Bed, bench: Bench) -> None:
    known = Known()
    for pair in bed.pairs():
        trunk, ends = pair.tokens(6, seed=8), [pair.tokens(4, seed=20 + n) for n in range(4)]
        for size in (1, 2):
            with bench.case(pair.name, f"steps of {size}"):
                cache = pair.cache()
                if not cache.can_fork:
                    raise NotClaimed("it says that it cannot be forked")
                pair.model(trunk, cache=cache)
                family = [cache, cache.fork(), cache.fork()]
                family.append(family[1].fork())
                found: list[list[Tensor]] = [[] for _ in family]
                for at in range(0, 4, size):  # in turn, so that each would see what the others write
                    for member, end, logits in zip(family, ends, found, strict=True):
                        logits.append(pair.model(end[:, at : at + size], cache=member))
                for n, (end, logits) in enumerate(zip(ends, found, strict=True)):
                    whole = torch.cat((trunk, end), dim=1)
                    expected = _expected(pair, known, whole, [6, *[size] * 4])
                    bench.close(torch.cat(logits, dim=1), expected[:, 6:], f"logits of branch {n}", 6)


# Tools.


def _expected(pair: Pair, known: Known, tokens: Tensor, sizes: Sequence[int]) -> Tensor:
    """`pair.expected`, computed once for all kinds where it is the model's own."""
    return known.logits(pair.model, tokens, tokens.shape[1]) if pair.is_exact else pair.expected(tokens, sizes)


def _until_a_tie(model: CausalLM, prompt: list[int], one: list[int], two: list[int]) -> int:
    """How many tokens must be the same: all, unless the first two that are not are as good as equal, as in float32."""
    at = next((n for n, pair in enumerate(zip(one, two, strict=True)) if len({*pair}) == 2), None)
    if at is None:
        return len(two)
    logits = uncached(model, torch.tensor([prompt + two[:at]]))[0, -1]
    tied = (logits[one[at]] - logits[two[at]]).abs().item() <= 2 * rounding(logits)
    return at if tied else len(two)


def _shell(model: CausalLM) -> CausalLM:
    """Another object with the same weights."""
    import copy

    twin = copy.copy(model)
    twin.__dict__ = dict(model.__dict__)
    return twin
