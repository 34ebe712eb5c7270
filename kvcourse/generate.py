"""Lesson 05: from a prompt to new tokens. Knows nothing about the loops: it checks what it is given and hands over the result.

generate     a prompt, or several: until a stop token, a limit, or the end of the context
stream       the same for one prompt, token by token
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, overload

from torch import Tensor

from kvcourse.caches.base import undone_on_error
from kvcourse.errors import InputError
from kvcourse.loops import FinishReason, Generation, Output, Usage
from kvcourse.models.base import CausalLM
from kvcourse.prompt_ids import as_prompts
from kvcourse.steps import decode_step, prefill

__all__ = ["FinishReason", "Output", "Stream", "Usage", "decode_step", "generate", "prefill", "stream"]


@overload
def generate(model: CausalLM, prompt_ids: Sequence[int], **options: Any) -> Output: ...
@overload
def generate(model: CausalLM, prompt_ids: Sequence[Sequence[int]], **options: Any) -> list[Output]: ...
@overload
def generate(model: CausalLM, prompt_ids: Tensor, **options: Any) -> Any: ...


def generate(
    model: CausalLM, prompt_ids: Any, *, on_token: Callable[..., object] | None = None, **options: Any
) -> Output | list[Output]:
    """Continue a prompt, or several prompts of any lengths at once.

    prompt_ids: the ids after what `cache` holds (all of them when it is empty); a list of prompts gives a list of outputs, each
        equal to running its prompt alone.
    max_new_tokens: at least 1. Fewer come when a stop id or the end of the context is reached first.
    cache: "preallocated" (default), "growing", a cache of your own, which is continued, or None for the recompute loop.
    sampler: `greedy` (default), `Sampler(...)`, or any function from logits (V,) to an id.
    prefix_cache: asked for the longest known prefix of the prompt; told prompt and answer at the end. Several prompts run one
        after another with it, so that each may use what those before it have computed. namespace: whose prefixes those are.
    prefill_chunk: tokens a pass while the prompt is read; None: all in one.
    stop_ids: ids that end the output; the one that came is its last token.
    on_token: called with each new id (with several prompts: id, index of the prompt).
    overflow: what to do with a prompt longer than the context: "error", or "truncate" (keeps its last tokens, with room for
        max_new_tokens).

    Raises: InputError, ContextOverflow, CacheFull, CacheMismatch. Whatever is raised, a cache of yours is as it was.
    """
    prompts, many = as_prompts(prompt_ids, model.config.vocab_size)
    if many and options.get("prefix_cache") is not None:
        return _one_after_another(model, prompts, on_token, options)
    run = Generation(model, prompts, **options)
    with undone_on_error(run.cache), closing(run.steps()) as steps:
        for index, token in steps:
            if on_token is not None:
                on_token(token, index) if many else on_token(token)
    return run.outputs() if many else run.outputs()[0]


def _one_after_another(
    model: CausalLM, prompts: list[list[int]], on_token: Callable[..., object] | None, options: dict[str, Any]
) -> list[Output]:
    if not isinstance(options.get("cache", "preallocated"), str):
        raise InputError(
            "Several prompts with a prefix cache need a cache each.",
            expected="cache=, a name such as 'preallocated'",
            got=type(options["cache"]).__name__,
            todo="Pass a name, or one prompt at a time.",
        )
    outputs = []
    for index, ids in enumerate(prompts):
        said = None if on_token is None else functools.partial(_told, on_token, index)
        outputs.append(generate(model, ids, on_token=said, **options))
    return outputs


def _told(on_token: Callable[..., object], index: int, token: int) -> None:
    on_token(token, index)


class Stream:
    """New ids of one prompt, as they are chosen. Leave the loop at any time: the cache holds all but the last id."""

    def __init__(self, run: Generation) -> None:
        self._run, self._steps = run, run.steps()

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        return next(self._steps)[1]

    @property
    def output(self) -> Output:
        """What has come so far; `finish_reason` is None until the end."""
        return self._run.outputs()[0]


def stream(model: CausalLM, prompt_ids: Sequence[int] | Tensor, **options: Any) -> Stream:
    """Continue one prompt and hand over each id as it is chosen. Arguments as for `generate`, without `on_token`."""
    prompts, many = as_prompts(prompt_ids, model.config.vocab_size)
    if many:
        raise InputError(
            "A stream continues one prompt.",
            expected="a list of ids",
            got=f"{len(prompts)} prompts",
            todo="Use generate with on_token.",
        )
    return Stream(Generation(model, prompts, **options))
