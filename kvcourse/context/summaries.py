"""Lesson 12: who writes the summary that stands for what left the window. Knows nothing about policies.

A summary is a request of its own: it reads what goes, and writes what stays. Whoever counts an agent's tokens and leaves these
out counts too few, so both summarisers keep a list of what theirs took.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from kvcourse.amounts import whole
from kvcourse.context.parts import Part, flat, n_tokens
from kvcourse.ledger import TurnCount

INSTRUCTION = "Write down in a few words what was done and found, for whoever goes on with it:"


class DigestSummary:
    """`n_tokens` ids below `vocab_size` that depend on all that they stand for. They say nothing, but cost what one costs.

    counts: what each request took, in order. Its prompt is what goes, and nothing of that is in a cache.
    """

    def __init__(self, n_tokens: int, vocab_size: int = 2**31) -> None:
        self.n_tokens, self.vocab_size = whole("n_tokens", n_tokens, least=1), whole("vocab_size", vocab_size, least=1)
        self.counts: list[TurnCount] = []

    def __call__(self, parts: Sequence[Part]) -> tuple[int, ...]:
        self.counts.append(TurnCount(n_tokens(parts), 0, self.n_tokens))
        all_parts = blake2b(repr(flat(parts)).encode()).digest()
        digests = (blake2b(all_parts, digest_size=8, salt=place.to_bytes(8, "big")).digest() for place in range(self.n_tokens))
        return tuple(int.from_bytes(digest, "big") % self.vocab_size for digest in digests)


class ModelSummary:
    """A summary that the model writes: it reads what goes as text, in a conversation of its own, and answers greedily.

    before, after: text around what it wrote, where it stands in a window: `texts.AFTER_A_PART`, say. texts: what it wrote.
    counts: what each request took. A text longer than the model's context is refused by the model (ContextOverflow).
    """

    def __init__(
        self, model: Any, tokenizer: Any, max_new_tokens: int = 48, before: str = "Notes so far: ", after: str = ""
    ) -> None:
        self.model, self.tokenizer, self.max_new_tokens = model, tokenizer, max_new_tokens
        self.before, self.after = before, after
        self.counts: list[TurnCount] = []
        self.texts: list[str] = []

    def __call__(self, parts: Sequence[Part]) -> tuple[int, ...]:
        from kvcourse.generate import generate

        read = self.tokenizer.decode(flat(parts), skip_special=True).strip()
        prompt = self.tokenizer.encode_chat([{"role": "user", "content": f"{read}\n\n{INSTRUCTION}"}])
        written = generate(self.model, prompt, max_new_tokens=self.max_new_tokens, stop_ids=self.tokenizer.stop_ids)
        self.counts.append(TurnCount(len(prompt), 0, len(written.tokens)))
        self.texts.append(self.tokenizer.decode(written.tokens, skip_special=True).strip())
        said = self.tokenizer.encode(self.before + self.texts[-1])
        return (*said, *self.tokenizer.encode(self.after, special=True))
