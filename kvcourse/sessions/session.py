"""Lesson 11: a conversation that keeps its K/V between turns. Knows nothing about files, terminals, or how rows are stored.

    chat = Session(model, system="Answer in one sentence.")
    reply = chat.send("What is a token?", max_new_tokens=40)
    branch = chat.fork()               # both go on, each for itself
    chat.rewind(turns=1)               # as if the last turn had never been

One rule makes it simple: `tokens` is the whole conversation, the cache holds a prefix of it, and each turn computes the rest.
Ids are the truth and text is derived from them: what was decoded is never encoded again, because it may come out differently,
and a conversation that comes out differently is not in the cache. The last token of a reply, which has no K/V yet, is computed
with the next turn.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from kvcourse.caches.base import KVCache, undone_on_error
from kvcourse.caches.make import make_cache
from kvcourse.errors import CacheMisuse, ContextOverflow, InputError, TokenizerError
from kvcourse.generate import Usage, prefill, stream
from kvcourse.ledger import Ledger, TurnCount
from kvcourse.meter import Meter
from kvcourse.models.base import CausalLM
from kvcourse.sampling import Pick, Sampler, greedy
from kvcourse.sessions.template import Replay, replay
from kvcourse.sessions.turns import UNWATCHED, Clock, Reply, Turn, Watch

PREFILL_CHUNK_TOKENS = 128  # how much is computed between two looks at Ctrl-C; larger gains little on a CPU
Messages = list[dict[str, str]]


class _Stopped(Exception):
    """The watcher said stop before the first token of a reply."""


class Session:
    """Turns with one model.

    tokenizer: the model's own unless given. system: the first message. cache: a kind ("preallocated", "growing", "paged", …),
    an empty cache of your own, or None, which keeps no K/V: every token of every turn recomputes everything before it.
    prefix_cache: asked for the start of the first turn, told everything that was computed; namespace: whose that is.
    """

    def __init__(
        self, model: CausalLM, tokenizer: Any = None, *, system: str | None = None, prefix_cache: Any = None,
        cache: str | KVCache | None = "preallocated", sampler: Sampler | Pick = greedy, namespace: Any = None,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer = model, tokenizer or model.tokenizer
        if self.tokenizer is None:
            raise TokenizerError(
                "This model has no tokenizer, so it cannot read a question.",
                expected="a model with a tokenizer",
                got="none",
                todo='Use "smollm2", or a folder that holds tokenizer.json.',
            )
        self.system, self.sampler = system, sampler
        self.prefix_cache, self.namespace = prefix_cache, namespace
        self.turns: list[Turn] = []
        self._ids: list[int] = []
        self.cache = make_cache(cache, model) if isinstance(cache, str) else cache
        self.ledger = Ledger(model.room(self.cache))
        if self.cache is not None and self.cache.length:
            raise CacheMisuse("A session starts with an empty cache.", expected="length 0", got=self.cache.length,
                              todo="Reset it, or leave cache out.")  # fmt: skip

    # What is known.

    @property
    def tokens(self) -> list[int]:
        """All ids of the conversation, templates and replies. A copy."""
        return list(self._ids)

    @property
    def messages(self) -> Messages:
        """The conversation as chat messages. Derived: rendering and encoding them may give other ids than `tokens`."""
        told: Messages = [{"role": "system", "content": self.system}] if self.system else []
        for turn in self.turns:
            told += [{"role": "user", "content": turn.user}, {"role": "assistant", "content": turn.reply}]
        return told

    @property
    def occupancy(self) -> int:
        """Tokens in the window now."""
        return len(self._ids)

    def replay(self) -> Replay:
        """What a client that renders and encodes this conversation again would lose of what is cached."""
        return replay(self.tokenizer, self.messages, self._ids)

    @property
    def nbytes(self) -> int:
        """K/V in memory."""
        return 0 if self.cache is None else self.cache.nbytes

    # Talking.

    def send(self, text: str, *, max_new_tokens: int, sampler: Sampler | Pick | None = None, watch: Watch = UNWATCHED) -> Reply:
        """One turn. After any exception, and after an interruption before the first token, all is as it was.

        Raises: ContextOverflow if the conversation with this text does not fit the context; what generation raises.
        """
        return self._turn(text, self._ids + self._encode(text), max_new_tokens, sampler or self.sampler, watch)

    def regenerate(self, *, max_new_tokens: int, sampler: Sampler | Pick | None = None, watch: Watch = UNWATCHED) -> Reply:
        """The last turn once more, with another sampler as a rule: one token is computed, and then the new reply.

        Raises: InputError before the first turn; CacheMisuse for a cache that cannot go back. After any exception the last
        turn is as it was.
        """
        if not self.turns:
            raise InputError("There is no reply to give again.", expected="a turn or more", got="none", todo="Send something.")
        last = self.turns[-1]
        prompt = self._ids[: last.prompt_stop]
        branch = self.fork()
        branch._cut(last.start, last.prompt_stop - 1, self.turns[:-1])
        reply = branch._turn(last.user, prompt, max_new_tokens, sampler or self.sampler, watch)
        if reply.tokens:
            self._become(branch)
        return reply

    # Going back, and two ways at once.

    def rewind(self, turns: int = 1) -> None:
        """Take back the last turns. The ledger keeps them: they were computed.

        Raises: InputError for more turns than there are; CacheMisuse, with nothing changed, where the cache cannot go back.
        """
        if isinstance(turns, bool) or not isinstance(turns, int) or not 0 <= turns <= len(self.turns):
            raise InputError("That many turns cannot be taken back.", expected=f"0 to {len(self.turns)}", got=turns,
                             todo="Count the turns: len(chat.turns).")  # fmt: skip
        if turns:
            kept = self.turns[:-turns]
            self._cut(kept[-1].stop if kept else 0, kept[-1].stop if kept else 0, kept)

    def fork(self) -> Self:
        """A second conversation with the same past, independent from here on. Where the cache can, they share its blocks.

        Raises: CacheMisuse for a cache that cannot fork.
        """
        if self.cache is not None and not self.cache.can_fork:
            raise CacheMisuse("This cache cannot be forked.", expected="a cache with can_fork", got=type(self.cache).__name__,
                              todo="Make the session with another cache.")  # fmt: skip
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._ids, other.turns, other.ledger = list(self._ids), list(self.turns), self.ledger.copy()
        other.cache = None if self.cache is None else self.cache.fork()
        return other

    def reset(self) -> None:
        """Forget every turn, and what they cost."""
        if self.cache is not None:
            self.cache.reset()
        self._ids, self.turns = [], []
        self.ledger = Ledger(self.model.room(self.cache))

    # Staying.

    def save(self, path: str | Path, *, kv: bool = True) -> Path:
        """Write this conversation to one file, whole or not at all. See kvcourse.sessions.saved."""
        from kvcourse.sessions.saved import save_session

        return save_session(self, Path(path), kv=kv)

    @classmethod
    def load(cls, path: str | Path, model: CausalLM, tokenizer: Any = None, **options: Any) -> "Session":
        """A conversation from its file, verified before a byte of it is used. See kvcourse.sessions.saved."""
        from kvcourse.sessions.saved import load_session

        return load_session(Path(path), model, tokenizer, **options)

    # Inside.

    def _turn(self, text: str, prompt: list[int], max_new_tokens: int, sampler: Any, watch: Watch) -> Reply:
        self._require_room(prompt)
        clock, start = Clock(), 0
        with Meter() as meter:
            try:
                with undone_on_error(self.cache):
                    start = self._load_prefix(prompt)
                    self._prefill(prompt, start, watch)
                    self._decode(prompt, clock, max_new_tokens, sampler, watch)
                    if clock.reply:
                        self._note(text, prompt, start, clock)
            except _Stopped:
                pass
        usage = Usage(len(prompt), start, len(prompt) - start, len(clock.reply))
        return Reply(
            clock.text, clock.reply, usage, meter.cost, clock.finish_reason, clock.first_token_s(), clock.tokens_per_s()
        )

    def _note(self, text: str, prompt: list[int], start: int, clock: Clock) -> None:
        """Take the turn in: whatever can fail comes first."""
        ids = prompt + clock.reply
        turn = Turn(text, clock.text, len(self._ids), len(prompt), len(ids), clock.finish_reason)
        if self.prefix_cache is not None and self.cache is not None:
            self.prefix_cache.insert(ids[: self.cache.length], self.cache, namespace=self.namespace)
        self.ledger.record(TurnCount(len(prompt), start, len(clock.reply)))
        self.turns.append(turn)
        self._ids = ids

    def _load_prefix(self, prompt: list[int]) -> int:
        """How many prompt tokens need not be computed."""
        if self.cache is None:
            return 0
        if self.prefix_cache is not None and not self.cache.length:
            with self.prefix_cache.lease(prompt, namespace=self.namespace) as hit:
                if hit.length:
                    hit.load_into(self.cache)
        return self.cache.length

    def _prefill(self, prompt: list[int], start: int, watch: Watch) -> None:
        """Compute a long prompt in chunks, all but the last one, which generation takes."""
        if self.cache is None:
            return
        total, done = len(prompt) - start, 0
        while total - done > PREFILL_CHUNK_TOKENS:
            chunk = prompt[start + done : start + done + PREFILL_CHUNK_TOKENS]
            prefill(self.model, chunk, self.cache)
            done += len(chunk)
            watch.on_prefill(done, total)
            if watch.interrupted():
                raise _Stopped

    def _decode(self, prompt: list[int], clock: Clock, max_new_tokens: int, sampler: Any, watch: Watch) -> None:
        tokens = stream(
            self.model,
            prompt[self.cache.length :] if self.cache is not None else prompt,
            max_new_tokens=max_new_tokens,
            cache=self.cache,
            sampler=sampler,
            stop_ids=self.tokenizer.stop_ids,
        )

        def visible() -> Iterator[int]:
            for token in tokens:
                clock.saw(token)
                watch.on_token()
                if token not in self.tokenizer.stop_ids:
                    yield token
                if watch.interrupted():
                    return
            clock.finish_reason = tokens.output.finish_reason or clock.finish_reason

        for piece in self.tokenizer.decode_stream(visible()):
            clock.text += piece
            watch.on_text(piece)

    def _encode(self, text: str) -> list[int]:
        """The ids that this text adds. What is already there is never encoded again."""
        user = {"role": "user", "content": text}
        if self.tokenizer.chat is None:  # a model that only continues text
            return list(self.tokenizer.encode(text))
        if not self.turns:
            return list(self.tokenizer.encode_chat([*self.messages, user]))
        last = self.turns[-1]
        return list(self.tokenizer.continue_chat(self.messages[:-1], self._ids[last.prompt_stop : last.stop], [user]))

    def _require_room(self, prompt: list[int]) -> None:
        limit = self.model.room(self.cache)
        if len(prompt) > limit:
            raise ContextOverflow(
                "The conversation no longer fits the model's context.",
                expected=f"at most {limit} tokens",
                got=f"{len(prompt)} with this question",
                todo="Ask something shorter, or start over.",
            )

    def _cut(self, n_ids: int, n_rows: int, turns: list[Turn]) -> None:
        """Keep so many ids, at most so many rows, and these turns."""
        if self.cache is not None and self.cache.length > n_rows:
            if not self.cache.can_truncate(n_rows):
                raise CacheMisuse("This cache cannot go back that far.", expected="a cache that keeps every row",
                                  got=f"{type(self.cache).__name__}, from {self.cache.length} to {n_rows} tokens",
                                  todo="Fork before a turn that you may want to take back.")  # fmt: skip
            self.cache.truncate(n_rows)
        self._ids, self.turns = self._ids[:n_ids], list(turns)

    def _become(self, other: Self) -> None:
        self._ids, self.turns, self.ledger, self.cache = other._ids, other.turns, other.ledger, other.cache
