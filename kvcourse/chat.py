"""Lesson 06: a conversation that keeps its K/V between turns. Knows nothing about terminals, or how a cache stores rows.

One rule makes it simple: `ids` is the whole conversation, the cache holds a prefix of it, and each turn computes the rest.
So the last token of an answer, which has no K/V yet, is computed with the next question, and stopping half-way loses
nothing but the half sentence.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kvcourse.caches.make import make_cache
from kvcourse.errors import ContextOverflow, TokenizerError
from kvcourse.generate import Usage, prefill, stream
from kvcourse.sampling import greedy

PREFILL_CHUNK_TOKENS = 128  # how much is computed between two looks at Ctrl-C; larger gains little on a CPU
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    """What one turn gave. `finish_reason` is "interrupted" after Ctrl-C, else generate's own."""

    text: str
    usage: Usage
    finish_reason: str
    first_token_s: float | None
    tokens_per_s: float | None  # after the first token; None where there was no second

    def summary(self) -> str:
        usage = self.usage
        parts = [
            f"prompt {usage.prompt_tokens} = cached {usage.cached_tokens} + computed {usage.computed_tokens}",
            f"completion {usage.completion_tokens} tokens",
        ]
        if self.first_token_s is not None:
            parts.append(f"first token after {self.first_token_s:.2f} s")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.1f} tokens/s")
        return "usage: " + " · ".join(parts)


@dataclass
class _Turn:
    """The clock, the tokens and the text of the answer under way."""

    started_s: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    last_s: float | None = None
    reply: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str = "interrupted"  # until generation says why it ended

    def saw(self, token: int) -> None:
        self.reply.append(token)
        self.last_s = time.perf_counter()
        self.first_s = self.first_s or self.last_s

    def first_token_s(self) -> float | None:
        return self.first_s - self.started_s if self.first_s is not None else None

    def tokens_per_s(self) -> float | None:
        if self.first_s is None or self.last_s is None or len(self.reply) < 2:
            return None
        return (len(self.reply) - 1) / (self.last_s - self.first_s)


@dataclass(frozen=True)
class Watch:
    """What the caller wants to see of a turn while it runs, and the question it is asked between tokens: stop here?"""

    on_text: Callable[[str], None] = lambda text: None
    on_token: Callable[[], None] = lambda: None
    on_prefill: Callable[[int, int], None] = lambda done, total: None  # tokens of the prompt computed, and to compute
    interrupted: Callable[[], bool] = lambda: False


class Conversation:
    """Turns with one model. `cached=False` keeps no K/V: every token of every turn recomputes everything before it."""

    def __init__(self, model: Any, *, system: str | None = None, cached: bool = True, sampler: Any = greedy) -> None:
        if model.tokenizer is None:
            raise TokenizerError(
                "This model has no tokenizer, so it cannot read a question.",
                expected="a model with a tokenizer",
                got="none",
                todo='Use "smollm2", or a folder that holds tokenizer.json.',
            )
        self.model, self.tokenizer, self.sampler = model, model.tokenizer, sampler
        self.system, self.cached = system, cached
        self.reset()

    def reset(self) -> None:
        """Forget every turn."""
        self.messages: Messages = [{"role": "system", "content": self.system}] if self.system else []
        self.ids: list[int] = []
        self.last_reply: list[int] = []
        self.cache = make_cache("preallocated", self.model) if self.cached else None

    def ask(self, question: str, *, max_new_tokens: int, watch: Watch = Watch()) -> Answer:
        """One turn. After any exception, and after an interruption before the first token, the chat is as it was.

        Raises: ContextOverflow if the conversation with this question does not fit the context.
        """
        user = {"role": "user", "content": question}
        prompt = self.ids + self._encode(user)
        self._require_room(prompt)
        start = self.cache.length if self.cache is not None else 0
        turn = _Turn()
        try:
            if self._prefill(prompt, start, watch):
                self._decode(prompt, turn, max_new_tokens, watch)
        except BaseException:
            self._keep(start)
            raise
        self._keep(len(prompt) + len(turn.reply) - 1 if turn.reply else start)
        if turn.reply:
            self.ids, self.last_reply = prompt + turn.reply, turn.reply
            self.messages = [*self.messages, user, {"role": "assistant", "content": turn.text}]
        usage = Usage(len(prompt), start, len(prompt) - start, len(turn.reply))
        return Answer(turn.text, usage, turn.finish_reason, turn.first_token_s(), turn.tokens_per_s())

    def _decode(self, prompt: list[int], turn: _Turn, max_new_tokens: int, watch: Watch) -> None:
        tokens = stream(
            self.model,
            prompt[self.cache.length :] if self.cache is not None else prompt,
            max_new_tokens=max_new_tokens,
            cache=self.cache,
            sampler=self.sampler,
            stop_ids=self.tokenizer.stop_ids,
        )

        def visible() -> Iterator[int]:
            for token in tokens:
                turn.saw(token)
                watch.on_token()
                if token not in self.tokenizer.stop_ids:
                    yield token
                if watch.interrupted():
                    return
            turn.finish_reason = tokens.output.finish_reason or turn.finish_reason

        for piece in self.tokenizer.decode_stream(visible()):
            turn.text += piece
            watch.on_text(piece)

    def _prefill(self, prompt: list[int], start: int, watch: Watch) -> bool:
        """Compute a long prompt in chunks, all but the last one, which generation takes. False if interrupted."""
        if self.cache is None:
            return True
        total, done = len(prompt) - start, 0
        while total - done > PREFILL_CHUNK_TOKENS:
            chunk = prompt[start + done : start + done + PREFILL_CHUNK_TOKENS]
            prefill(self.model, chunk, self.cache)
            done += len(chunk)
            watch.on_prefill(done, total)
            if watch.interrupted():
                return False
        return True

    def _encode(self, user: dict[str, str]) -> list[int]:
        """The ids that this question adds. What is already there is never encoded again: it might come out differently."""
        if self.tokenizer.chat is None:  # a model that only continues text
            return list(self.tokenizer.encode(user["content"]))
        if not self.ids:
            return list(self.tokenizer.encode_chat([*self.messages, user]))
        return list(self.tokenizer.continue_chat(self.messages[:-1], self.last_reply, [user]))

    def _require_room(self, prompt: list[int]) -> None:
        limit = self.model.config.context_length
        if len(prompt) > limit:
            raise ContextOverflow(
                "The conversation no longer fits the model's context.",
                expected=f"at most {limit} tokens",
                got=f"{len(prompt)} with this question",
                todo="Ask something shorter, or start over.",
            )

    def _keep(self, length: int) -> None:
        if self.cache is not None and self.cache.length > length:
            self.cache.truncate(length)
