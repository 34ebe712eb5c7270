"""Lesson 07: several tokens for one pass of the model: a small draft guesses them, the model judges. Knows no concrete cache.

    draft = first_layers(model, 4)                                # no new weights
    speculate(model, ids, draft=draft, max_new_tokens=32).tokens  # what greedy generate gives

One pass over a token and k guesses after it yields k + 1 choices of the model, each made as if the guesses before it were its
own. As many are kept as that is true for, and both caches are cut back to the text. So a wrong guess costs work, never a token.
Source: Leviathan et al. 2023, section 2.3 (greedy case); some of the model's own layers as draft: Zhang et al. 2023.
"""

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from kvcourse.caches.base import KVCache, rewinds, undone_on_error
from kvcourse.errors import CacheMisuse, InputError
from kvcourse.loops import Generation
from kvcourse.meter import Cost, Meter
from kvcourse.models.base import CausalLM
from kvcourse.prompt_ids import as_prompts
from kvcourse.sampling import greedy

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Speculation:
    """What came, and what it took."""

    tokens: list[int]  # new ids only, the stop token included
    drafted: int  # guesses of the draft
    accepted: int  # of those, how many are among the tokens
    passes: int  # of the whole model, the one with the prompt included; `generate` makes one for each token
    cost: Cost  # of model and draft together


def first_layers(model: CausalLM, n_layer: int) -> CausalLM:
    """A model of the first `n_layer` blocks, with the same embedding, last norm and head. Nothing is copied.

    What changes the weights of one changes the other, and `touch` reaches both. n_layer may be all of them.
    Raises: InputError unless 1 <= n_layer <= model.config.n_layer.
    """
    if isinstance(n_layer, bool) or not isinstance(n_layer, int) or not 1 <= n_layer <= model.config.n_layer:
        raise InputError(
            "A draft is made of the model's first blocks.",
            expected=f"n_layer, an int from 1 to {model.config.n_layer}",
            got=repr(n_layer),
            todo="Take fewer than all of them: a draft has to be cheap.",
        )
    draft = _shell(model)
    draft.config = replace(model.config, n_layer=n_layer)
    for name, trunk in model.named_children():
        for blocks_name, blocks in trunk.named_children():
            if isinstance(blocks, nn.ModuleList):
                setattr(draft, name, _shell(trunk))
                setattr(getattr(draft, name), blocks_name, blocks[:n_layer])
    return draft


def speculate(
    model: CausalLM,
    prompt_ids: Sequence[int] | Tensor,
    *,
    draft: CausalLM,
    max_new_tokens: int,
    n_draft: int = 4,
    cache: str | KVCache = "preallocated",
    draft_cache: str | KVCache = "preallocated",
    stop_ids: Collection[int] = (),
) -> Speculation:
    """Continue one prompt greedily. The tokens are those of `generate`, whatever the draft guesses.

    In float32, rows that share a pass are rounded otherwise than a row alone, so that two tokens that are as good as equal
    may change places; the same happens when a prompt is read in chunks.

    draft: any model of the same vocabulary, `first_layers(model, n)` as a rule. n_draft: guesses a pass, at most.
    cache, draft_cache: names, or caches of your own that hold the same text and can be cut to any length. Both then hold all of
        the text but the last id, as after `generate`. stop_ids: ids that end the output.
    Raises: InputError, ContextOverflow, CacheFull, CacheMismatch, CacheMisuse. Whatever is raised, your caches are as before.
    """
    prompt = _one_prompt(prompt_ids, model, draft, n_draft)
    whole = _Reader(model, prompt, cache, max_new_tokens)
    helper = _Reader(draft, prompt, draft_cache, whole.limit)
    _require_pair(whole, helper)
    with undone_on_error(whole.cache), undone_on_error(helper.cache), torch.inference_mode():
        with Meter() as meter:
            found = _run(whole, helper, prompt, n_draft, frozenset(stop_ids))
            if isinstance(draft_cache, KVCache):  # yours goes on from here
                helper.catch_up(prompt + found.tokens[:-1])
    return replace(found, cost=replace(meter.cost, bytes_held=whole.cache.nbytes + helper.cache.nbytes))


class _Reader:
    """A model, and a cache that holds the beginning of the text after what it held before."""

    def __init__(self, model: CausalLM, prompt: list[int], cache: str | KVCache, max_new_tokens: int) -> None:
        run = Generation(model, [prompt], max_new_tokens=max_new_tokens, cache=cache)
        self.model, self.cache = model, _rewinding(run.cache)
        self.limit = run.rows[0].limit  # new tokens at most, by max_new_tokens and by the context
        self.tokens_before = run.rows[0].before
        self._before = self.cache.length

    def read(self, text: list[int], keep: int) -> Float[Tensor, "kept V"]:
        """Process the tokens of the text that the cache does not hold, in one pass; logits after the last `keep` of them."""
        new = text[self.cache.length - self._before :]
        return self.model(torch.tensor([new], device=self.model.device), cache=self.cache, logits_to_keep=keep)[0]

    def catch_up(self, text: list[int]) -> None:
        if self.cache.length - self._before < len(text):
            self.read(text, 1)

    def cut(self, n: int) -> None:
        """Hold no more than the first n tokens of the text."""
        if self.cache.length - self._before > n:
            self.cache.truncate(self._before + n)


def _run(whole: _Reader, draft: _Reader, prompt: list[int], n_draft: int, stop_ids: frozenset[int]) -> Speculation:
    """Guess, judge, keep what agrees; again until a stop id or the limit."""
    text, end = list(prompt), len(prompt) + whole.limit
    drafted = accepted = passes = 0
    while len(text) < end and not (passes and text[-1] in stop_ids):
        known = len(text)
        most = min(n_draft, end - known - 1)  # the pass itself brings one more
        while len(text) < known + most and not (len(text) > known and text[-1] in stop_ids):
            text.append(greedy(draft.read(text, 1)[-1]))
        guesses = text[known:]
        chosen = [greedy(logits) for logits in whole.read(text, len(guesses) + 1)]
        agreed = next((i for i, guess in enumerate(guesses) if guess != chosen[i]), len(guesses))
        new = chosen[: agreed + 1]  # after the last guess that agrees, the model's own next token
        if guesses[:agreed] and guesses[agreed - 1] in stop_ids:
            new.pop()  # nothing follows a stop id
        text[known:] = new
        drafted, accepted, passes = drafted + len(guesses), accepted + agreed, passes + 1
        whole.cut(len(text) - 1)
        draft.cut(len(text) - 1)
    return Speculation(text[len(prompt) :], drafted, accepted, passes, Cost())


def _shell(module: M) -> M:
    """Another module with the same children and weights, and no hooks: giving it another child leaves the first one's alone."""
    shell = copy.copy(module)
    tables = {name: copy.copy(value) for name, value in vars(module).items() if isinstance(value, dict)}
    shell.__dict__ = vars(module) | {name: type(table)() if "_hooks" in name else table for name, table in tables.items()}
    return shell


def _one_prompt(prompt_ids: object, model: CausalLM, draft: CausalLM, n_draft: object) -> list[int]:
    prompts, many = as_prompts(prompt_ids, model.config.vocab_size)
    if many:
        raise InputError("Speculation continues one prompt.", expected="a list of ids", got=f"{len(prompts)} prompts",
                         todo="Call it for each of them.")  # fmt: skip
    if isinstance(n_draft, bool) or not isinstance(n_draft, int) or n_draft < 1:
        raise InputError("The draft has to guess.", expected="n_draft, an int of 1 or more", got=repr(n_draft),
                         todo="Without a draft, call generate.")  # fmt: skip
    if draft.config.vocab_size != model.config.vocab_size:
        raise InputError("The draft has another vocabulary.", expected=f"{model.config.vocab_size} token ids, as the model",
                         got=draft.config.vocab_size, todo="Take first_layers(model, n).")  # fmt: skip
    return prompts[0]


def _rewinding(cache: KVCache | None) -> KVCache:
    if cache is None or not rewinds(cache):
        raise CacheMisuse(
            "Guesses that were wrong have to be cut off again.",
            expected="a cache that truncate can cut to any length, such as 'preallocated'",
            got="none" if cache is None else type(cache).__name__,
            todo="Choose another cache, or call generate.",
        )
    return cache


def _require_pair(whole: _Reader, draft: _Reader) -> None:
    if draft.cache is whole.cache or draft.tokens_before != whole.tokens_before:
        raise InputError(
            "Model and draft each keep the same text, in a cache of its own.",
            expected=f"a second cache that holds {whole.tokens_before} tokens",
            got="one cache for both" if draft.cache is whole.cache else f"{draft.tokens_before} tokens",
            todo="Pass as draft_cache what the same text left in the draft's cache, or start with empty ones.",
        )
    if draft.limit < whole.limit:
        raise InputError(
            "The draft's context ends too soon.",
            expected=f"room for {whole.limit} new tokens",
            got=draft.limit,
            todo="Ask for fewer tokens, or take first_layers(model, n).",
        )
