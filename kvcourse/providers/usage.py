"""Lesson 13: a provider's usage object, in one form for all. Knows nothing about prices or requests.

Providers count differently. Where the prompt figure includes what was read from the cache, adding both counts it twice; where
it does not, the prompt figure alone looks like a bargain. Here `prompt_tokens` is always the whole prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcourse.amounts import whole
from kvcourse.errors import InputError
from kvcourse.providers.rules import Rules, rules_of

_MOST = 1 << 63  # so that no sum of a log's figures is more than can be written down


@dataclass(frozen=True)
class UsageCounts:
    """One request, in tokens: prompt = cached + computed. written: of those computed, what was stored on request."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int = 0
    written_tokens: int = 0

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


def usage_of(provider: str | Rules, usage: Mapping[str, Any]) -> UsageCounts:
    """The counts in a provider's usage object. A figure about the cache that is not there is 0; the prompt's has to be there.

    Raises: InputError for an object without a prompt figure, for figures that are no counts, and for those that contradict
    each other; UnknownName for the provider.
    """
    rules = provider if isinstance(provider, Rules) else rules_of(provider)
    if not isinstance(usage, Mapping):
        raise InputError("This is no usage object.", expected="an object with counts", got=type(usage).__name__,
                         todo="Give the answer's usage field.")  # fmt: skip
    fields = rules.usage
    prompt = _count(usage, fields.prompt)
    if prompt is None:
        got = ", ".join(map(repr, usage)) or "nothing"
        raise InputError(f"{rules.name}: usage has no prompt figure.", expected=" or ".join(fields.prompt), got=got,
                         todo="Give the answer's usage, or another provider.")  # fmt: skip
    cached, written = _count(usage, fields.cached) or 0, _count(usage, fields.written) or 0
    whole = prompt if fields.cached_in_prompt else prompt + cached + written
    if cached + written > whole:
        got = f"prompt {whole}, cached {cached}, written {written}"
        raise InputError("These figures contradict each other.", expected="no more cached than there are", got=got,
                         todo="Look whether this provider counts cached tokens as part of the prompt.")  # fmt: skip
    return UsageCounts(whole, cached, _count(usage, fields.completion) or 0, written)


def _count(usage: Mapping[str, Any], paths: tuple[str, ...]) -> int | None:
    """The first of these fields that is there."""
    for path in paths:
        value: Any = usage
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is None:
            continue
        got: object = "more"
        try:
            count = whole(path, value)
        except InputError as error:
            count, got = _MOST, error.got
        if count >= _MOST:
            raise InputError(f"{path} is no count.", expected="tokens, from 0 to 2**63", got=got, todo="Mend the log.")
        return count
    return None
