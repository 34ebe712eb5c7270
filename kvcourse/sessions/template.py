"""Lesson 11: does a chat template let a cache live? Knows nothing about caches or models.

A cache is a hit for the next turn only if the next prompt begins with what is in it, token for token. Two things break that.
A template may write an earlier turn differently once the conversation has gone on: some leave out what the model was thinking,
some trim a reply. And text that was decoded and encoded again may be cut into other tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcourse.common_prefix import common_length

_CONTEXT = 20  # characters on either side of a difference that are shown


@dataclass(frozen=True)
class TemplateReport:
    """Whether render(turn n) + reply begins render(turn n + 1), for every turn; if not, the first place where it does not."""

    stable: bool
    turn: int | None = None  # counted from 1
    character: int | None = None  # of the rendered text
    kept: str = ""  # what was in the cache there
    rendered: str = ""  # what the next turn has in its place

    def __str__(self) -> str:
        if self.stable:
            return "Every turn begins with the one before it: what is cached stays valid."
        return (
            f"After turn {self.turn} the template writes the conversation differently from character {self.character} on.\n"
            f"  in the cache: {self.kept!r}\n  next turn:    {self.rendered!r}\n"
            "What such a template rewrites cannot stay cached: use another one,\n"
            "or compute the conversation again from there."
        )


@dataclass(frozen=True)
class Replay:
    """What a client that renders and encodes the conversation again for every turn would find in the cache."""

    cached_tokens: int  # in the cache, that is all ids so far
    shared_tokens: int  # of those, how many the new prompt begins with
    expected: int | None = None  # the first id that differs: in the cache, and
    got: int | None = None  # in the prompt

    @property
    def lost_tokens(self) -> int:
        return self.cached_tokens - self.shared_tokens


def check_template(tokenizer: Any, conversation: Sequence[dict[str, Any]]) -> TemplateReport:
    """Follow a conversation of user and assistant messages (a system message first, perhaps) turn by turn.

    Raises: TokenizerError for a tokenizer without a template, and for messages that it cannot render.
    """
    messages = list(conversation)
    for turn, at in enumerate([i for i, m in enumerate(messages) if m["role"] == "assistant"], start=1):
        if at + 1 >= len(messages):
            break
        kept = tokenizer.render_chat(messages[:at]) + messages[at]["content"]
        rendered = tokenizer.render_chat(messages[: at + 2])
        if not rendered.startswith(kept):
            place = common_length(kept, rendered)
            start, stop = max(0, place - _CONTEXT), place + _CONTEXT
            return TemplateReport(False, turn, place, kept[start:stop], rendered[start:stop])
    return TemplateReport(True)


def replay(tokenizer: Any, messages: Sequence[dict[str, Any]], ids: Sequence[int]) -> Replay:
    """Compare a session's ids with its messages rendered and encoded again.

    ids: of the whole conversation, as `Session.tokens`; a last end-of-turn token that the template adds does no harm.
    """
    if not ids:
        return Replay(0, 0)
    if tokenizer.chat is None:
        again = list(tokenizer.encode("".join(message["content"] for message in messages)))
    else:
        again = list(tokenizer.encode_chat(messages, add_generation_prompt=False))
    shared = common_length(list(ids), again)
    if shared == len(ids):
        return Replay(len(ids), shared)
    return Replay(len(ids), shared, ids[shared], again[shared] if shared < len(again) else None)
