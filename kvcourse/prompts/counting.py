"""Lesson 13: how many tokens a request has, and how many a provider's cache would find. Knows nothing about causes."""

from collections.abc import Callable
from dataclasses import dataclass

from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, render
from kvcourse.prompts.families import Loss, Text
from kvcourse.prompts.logs import Entry
from kvcourse.providers.replaying import Block, Breakpoints
from kvcourse.providers.rules import Rules
from kvcourse.providers.tree import Found, PrefixTree, as_text
from kvcourse.tokenizer_base import Tokenizer

CHARACTERS = 4  # to a token, where no tokenizer is at hand: a rule of thumb for English


@dataclass(frozen=True)
class Count:
    """One request, in tokens. shared: that an earlier request begins with, and that are still held."""

    prompt: int
    shared: int
    cached: int
    written: int


class Estimate:
    """Tokens as characters / 4."""

    unit = f"tokens, estimated as characters / {CHARACTERS}"

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """(prompt tokens, those that an earlier request shares and that are still held)."""
        return -(-len(text.text) // CHARACTERS), found.alive // CHARACTERS

    def shared(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> int:
        """Tokens that would be shared with the other request, once all is mended."""
        return (loss.shared - loss.verdict.moved) // CHARACTERS


class Exact:
    """Tokens as a model's own tokenizer and chat template cut them."""

    unit = "tokens"

    def __init__(self, tokenizer: Tokenizer, rules: Rules) -> None:
        self.tokenizer = tokenizer
        self._tree = PrefixTree(rules.lifetime_seconds, rules.renewed)

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """As for an estimate. Raises: TokenizerError for messages that the template refuses."""
        ids = as_text(render(entry.body, self.tokenizer).ids)
        return len(ids), self._tree.insert(ids, entry.line, entry.seconds).alive

    def shared(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> int:
        mended, other = (render(body, self.tokenizer).ids for body in (loss.verdict.mended, theirs()))
        per_character = len(mended) / len(text.text)
        return common_length(mended, other) + round((loss.verdict.extra - loss.verdict.moved) * per_character)


class Counter:
    """Counts requests, in their order, under a provider's rules."""

    def __init__(self, rules: Rules, tokenizer: Tokenizer | None) -> None:
        self.rules = rules
        self.measure: Estimate | Exact = Estimate() if tokenizer is None else Exact(tokenizer, rules)
        self._points = Breakpoints(rules)

    def count(self, entry: Entry, text: Text, found: Found) -> Count:
        """Raises: InputError for more breakpoints than the provider takes; TokenizerError."""
        prompt, shared = self.measure.count(entry, text, found)
        if self.rules.matching == "breakpoints":
            cached, written = self._points.ask(self._blocks(entry, text, prompt), entry.seconds)
            return Count(prompt, shared, cached, written)
        return Count(prompt, shared, self.rules.reusable(min(shared, prompt - 1)), 0)

    def lost(self, count: Count, text: Text, loss: Loss, theirs: Callable[[], Body]) -> int:
        """Tokens that would have been found, had it not been for the faults."""
        shared = min(self.measure.shared(text, loss, theirs), count.prompt - 1)
        if self.rules.matching == "breakpoints":  # whole blocks only
            ends = [self._tokens(end, text, count.prompt) for end in text.ends]
            shared = max((end for end in ends if end <= shared), default=0)
        return max(0, self.rules.reusable(shared) - count.cached)

    def _tokens(self, characters: int, text: Text, prompt: int) -> int:
        return characters * prompt // len(text.text)

    def _blocks(self, entry: Entry, text: Text, prompt: int) -> list[Block]:
        """The request's content blocks; without marks of its own, the ends of tools, system part and request are marked."""
        marks = set(entry.marks)
        if not marks:
            fronts = (len(entry.body.tools), len(entry.body.tools) + len(entry.body.system), len(text.items))
            marks = {front - 1 for front in fronts if front}
        blocks: list[Block] = []
        for n, (item, end) in enumerate(zip(text.items, text.ends, strict=True)):
            start = blocks[-1].end_tokens if blocks else 0
            parts = entry.parts[n] if n < len(entry.parts) else 1
            blocks += [Block("", start)] * (parts - 1)
            blocks.append(Block(item, self._tokens(end, text, prompt), n in marks))
        return blocks
