"""Lesson 05: prompts, checked before anything is computed. Knows nothing about models: ids are integers below a bound."""

import operator
from collections.abc import Sequence
from typing import Any

from kvcourse.errors import ContextOverflow, InputError


def as_prompts(prompt_ids: Any, vocab_size: int) -> tuple[list[list[int]], bool]:
    """A list of prompts, and whether there were several. Refuses what is not ids before anything is computed."""
    raw = prompt_ids.tolist() if hasattr(prompt_ids, "tolist") else prompt_ids
    if isinstance(raw, str | bytes) or not isinstance(raw, Sequence):
        raise InputError(
            "A prompt is a list of token ids.",
            expected="ids",
            got=type(raw).__name__,
            todo="Encode the text first: model.tokenizer.encode(text).",
        )
    many = len(raw) > 0 and (isinstance(raw[0], Sequence) or (hasattr(raw[0], "tolist") and raw[0].ndim > 0))
    prompts = []
    for number, prompt in enumerate(raw if many else [raw]):
        try:
            ids = [operator.index(token) for token in prompt]
        except TypeError:
            raise InputError(
                f"Prompt {number} holds something that is no token id.",
                expected="integers",
                got=prompt,
                todo="Encode the text first.",
            ) from None
        if not ids:
            raise InputError(
                f"Prompt {number} is empty.",
                expected="at least one token",
                got="none",
                todo="Start with the tokenizer's first special token, if there is no text.",
            )
        wrong = next((token for token in ids if not 0 <= token < vocab_size), None)
        if wrong is not None:
            raise InputError(
                "A token id outside the vocabulary.",
                expected=f"ids from 0 to {vocab_size - 1}",
                got=wrong,
                todo="Encode the text with this model's own tokenizer.",
            )
        prompts.append(ids)
    return prompts, many


def fitted(ids: list[int], before: int, max_new_tokens: int, context: float, overflow: str) -> list[int]:
    """The prompt, or as much of its end as the context takes."""
    if overflow not in ("error", "truncate"):
        raise InputError("overflow has two settings.", expected='"error" or "truncate"', got=repr(overflow), todo="Choose one.")
    if before + len(ids) <= context:
        return ids
    if overflow == "truncate" and before == 0:
        return ids[-max(1, int(context) - max_new_tokens + 1) :]
    raise ContextOverflow(
        "The prompt is longer than the model's context.",
        expected=f"at most {context} tokens",
        got=f"{before} in the cache and {len(ids)} in the prompt",
        todo='Shorten it, or, with an empty cache, pass overflow="truncate" to keep its end.',
    )
