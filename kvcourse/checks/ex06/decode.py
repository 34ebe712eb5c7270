"""Lesson 06: what must hold of an answer that generates with a cache (6.4). Knows nothing about how a cache stores rows.

The model runs on our side, on a cache of our own that the answer only hands on. So every call is seen, and the ids can be
compared with those of the model without a cache.
"""

from functools import cache as once
from typing import Any

import torch
from torch import Tensor

from kvcourse.caches.growing import GrowingCache
from kvcourse.checkpoints import load_model
from kvcourse.checks.base import Answer, Broken, Draw, Opaque, Property, describe, expect
from kvcourse.errors import KVCourseError

SPARE_CALLS = 4  # after that many more than one a token, a loop is taken for endless


def hands_over_the_cache(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    expect(run.calls, "The model was never called.")
    expect(run.cache.length > 0, "The cache is still empty at the end. Hand it over at every call.")


def starts_afresh(answer: Answer, draw: Draw) -> None:
    first = Run(answer, draw)
    Run(answer, draw)
    again = Run(answer, draw, prompt=first.prompt, n=first.n)
    equal = first.calls == again.calls and is_ids(first.got) == is_ids(again.got) and str(first.got) == str(again.got)
    expect(equal, "The same prompt with a new cache gave something else the second time: something is kept between calls.")


def leaves_the_prompt_alone(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw)
    expect(run.prompt_after == run.prompt, "prompt_ids was changed. It belongs to the caller: work on a list of your own.")


def returns_n_new_ids(answer: Answer, draw: Draw) -> None:
    for n in (8, draw.integer(2, 5), 1):
        Run(answer, draw, n=n).ids()


def takes_the_prompt_at_once(answer: Answer, draw: Draw) -> None:
    for size in (10, draw.integer(2, 6), 1):
        run = Run(answer, draw, prompt=draw.integers(size, 0, words() - 1))
        expect(run.calls, "The model was never called.")
        took = len(run.calls[0])
        expect(took == size, f"The first call should take the prompt, {size} tokens, at once; it took {took}.")
        expect(run.calls[0] == run.prompt, "The first call should take the prompt's tokens, in their order; it took others.")


def passes_only_what_is_new(answer: Answer, draw: Draw) -> None:
    run = Run(answer, draw, n=draw.integer(4, 6))
    given = [len(tokens) for tokens in run.calls]
    expect(len(given) > 1, f"{run.n} ids need more than {len(given)} calls: each new one decides about the next.")
    expect(max(given[1:]) == 1, f"The calls took {given} tokens. The cache has the earlier ones: pass what is new.")
    twice = run.calls[1] == run.prompt[-1:]
    expect(not twice, "The prompt's last token went in twice. Its logits were in the first call's last row.")


def takes_the_likeliest_first_id(answer: Answer, draw: Draw) -> None:
    for _ in range(2):
        run = Run(answer, draw, n=draw.integer(2, 3))
        right = run.ids()[:1] == likeliest(run.prompt, run.ids())[:1]
        expect(right, "The first new id is wrong. It comes from the logits after the prompt's last token.")


def follows_its_own_ids(answer: Answer, draw: Draw) -> None:
    for n in (8, draw.integer(3, 6)):
        run = Run(answer, draw, n=n)
        got, fed = run.ids(), [token for tokens in run.calls[1:n] for token in tokens]
        fed_right = len(fed) == n - 1 and fed == likeliest(run.prompt, fed)
        expect(fed_right, f"After the prompt, the calls took {run.calls[1:]}, not each new id once.")
        right = likeliest(run.prompt, [*fed, 0])
        expect(got == right, f"The tokens passed are right, the ids returned are not: {got} for {right}.")


def makes_no_call_too_many(answer: Answer, draw: Draw) -> None:
    for n in (draw.integer(3, 6), 1):
        run = Run(answer, draw, n=n)
        more = len(run.calls) - n
        calls = "one call" if more == 1 else f"{more} calls"
        expect(more <= 0, f"All right, but for {calls} too many: nothing follows the last new id.")
        expect(more == 0, f"{n} ids took {len(run.calls)} calls: one was not asked for.")


PROPERTIES: tuple[Property, ...] = (
    hands_over_the_cache,
    starts_afresh,
    leaves_the_prompt_alone,
    returns_n_new_ids,
    takes_the_prompt_at_once,
    passes_only_what_is_new,
    takes_the_likeliest_first_id,
    follows_its_own_ids,
    makes_no_call_too_many,
)


class Run:
    """One run of the answer with a new cache: what the model was given, and what came back."""

    def __init__(self, answer: Answer, draw: Draw, prompt: list[int] | None = None, n: int | None = None) -> None:
        self.prompt = prompt or draw.integers(draw.integer(3, 9), 0, words() - 1)
        self.n = n or draw.integer(3, 5)
        self.cache, self.calls = GrowingCache(), list[list[int]]()
        kept = answer.keep(self.prompt)
        self.got = answer(self.model, kept, self.n, Opaque(self.cache, attributes=("length",)))
        self.prompt_after = kept.value()

    def model(self, tokens: Any, cache: Any = None) -> Tensor:
        """The answer's model. It runs here, and notes what it is given."""
        expect(cache is not None, "A call left out cache=cache, so what it computed was not kept.")
        expect(cache is self.cache, f"A call was given {describe(cache)} for a cache. Hand on the one that you were given.")
        good = isinstance(tokens, Tensor) and tokens.dtype == torch.int64 and tokens.dim() == 2 and tokens.shape[0] == 1
        expect(good, f"The model takes an int64 tensor (1, T); it was given {describe(tokens)}.")
        ids = tokens[0].tolist()
        expect(ids, "A call gave the model no token at all.")
        expect(0 <= min(ids) <= max(ids) < words(), f"A call gave the model an id that is none of its {words()}.")
        limit = len(self.prompt) + self.n + SPARE_CALLS
        expect(len(self.calls) < limit, f"More than {limit} calls for {self.n} ids: the loop does not end where it should.")
        self.calls.append(ids)
        try:
            return no_repeats(tokens, self.cache)
        except KVCourseError as error:
            raise Broken(str(error)) from None

    def ids(self) -> list[int]:
        """What was returned, if it is a list of n ids."""
        expect(is_ids(self.got), f"Expected a list of ints; got {describe(self.got)}.")
        expect(len(self.got) == self.n, f"Expected {self.n} new ids, without the prompt; got {len(self.got)}.")
        return self.got


def is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


@once
def tiny() -> Any:
    return load_model("tiny", dtype=torch.float64)  # 64 bits: no rounding error can hide a mistake


def words() -> int:
    return tiny().config.vocab_size


def no_repeats(tokens: Tensor, cache: GrowingCache | None = None) -> Tensor:
    """`tiny`, kept from saying a token twice in a row: ids that repeat could not tell which of them was passed."""
    with torch.no_grad():
        return tiny()(tokens, cache=cache).scatter(-1, tokens[..., None], -torch.inf)


def likeliest(prompt: list[int], new: list[int]) -> list[int]:
    """For each of `new`, what the model without a cache says in its place, after the prompt and those before it."""
    if not new:
        return []
    following = [id if 0 <= id < words() else 0 for id in new[:-1]]
    return no_repeats(torch.tensor([prompt + following]))[0, len(prompt) - 1 :].argmax(-1).tolist()
