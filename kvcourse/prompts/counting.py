"""Lesson 13: how many tokens a request has, and how many a provider's cache would find. Knows nothing about causes."""

from collections.abc import Callable

from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, render
from kvcourse.prompts.families import Loss, Text
from kvcourse.prompts.judge import length
from kvcourse.prompts.logs import Entry
from kvcourse.prompts.mending import Count, Sharing, whole_blocks
from kvcourse.providers.replaying import Block, Breakpoints
from kvcourse.providers.rules import Rules
from kvcourse.providers.tree import Found, PrefixTree, as_text
from kvcourse.tokenizer_base import Tokenizer

CHARACTERS = 4  # to a token, where no tokenizer is at hand: a rule of thumb for English


class Estimate:
    """Tokens as characters / 4."""

    unit = f"tokens, estimated as characters / {CHARACTERS}"

    def read(self, entry: Entry) -> None:
        """Every request can be estimated."""

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """(prompt tokens, those that an earlier request shares and that are still held)."""
        return -(-len(text.text) // CHARACTERS), found.alive // CHARACTERS

    def mended(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> tuple[int, float]:
        """(tokens that are shared with the other request, once all is mended; by how many the request is longer then)."""
        return (loss.shared - loss.verdict.moved) // CHARACTERS, loss.verdict.grown / CHARACTERS


class Exact:
    """Tokens as a model's own tokenizer and chat template cut them."""

    unit = "tokens"

    def __init__(self, tokenizer: Tokenizer, rules: Rules) -> None:
        self.tokenizer = tokenizer
        self._read: tuple[Entry, str] | None = None  # the request that was read last, and its ids
        self._tree = PrefixTree(rules.lifetime_seconds, rules.renewed)

    def read(self, entry: Entry) -> str:
        """A request's ids, as text. Raises: TokenizerError for messages that the template refuses."""
        if self._read is None or self._read[0] is not entry:
            self._read = entry, as_text(render(entry.body, self.tokenizer).ids)
        return self._read[1]

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """As for an estimate. Raises: what `read` raises."""
        ids = self.read(entry)
        return len(ids), self._tree.insert(ids, entry.line, entry.seconds).alive

    def mended(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> tuple[int, float]:
        verdict = loss.verdict
        mended, other = (render(body, self.tokenizer).ids for body in (verdict.mended, theirs()))
        per_character = len(mended) / len(text.text)
        shared = common_length(mended, other) + round((verdict.extra - verdict.moved) * per_character)
        grown = len(mended) - len(render(text.body, self.tokenizer).ids) if verdict.grown else 0
        if length(verdict.mended) - length(text.body) != verdict.grown:  # something else is mended, too
            grown = round(verdict.grown * per_character)
        return shared, grown


class Counter:
    """Counts requests, in their order, under a provider's rules."""

    def __init__(self, rules: Rules, tokenizer: Tokenizer | None) -> None:
        self.rules = rules
        self.measure: Estimate | Exact = Estimate() if tokenizer is None else Exact(tokenizer, rules)
        self._points = Breakpoints(rules)

    def require_countable(self, entry: Entry) -> None:
        """Raise what `count` would, before anybody remembers the request."""
        self.measure.read(entry)
        if self.rules.matching == "breakpoints":
            self._points.require_few(len(set(entry.marks)))

    def count(self, entry: Entry, text: Text, found: Found) -> Count:
        """Raises: InputError for more breakpoints than the provider takes; TokenizerError."""
        prompt, shared = self.measure.count(entry, text, found)
        if self.rules.matching == "breakpoints":
            blocks = self._blocks(entry, text, prompt)
            cached, written = self._points.ask(blocks, entry.seconds)
            last = max((block.end_tokens for block in blocks if block.marked), default=0)
            return Count(prompt, shared, cached, written, last)
        return Count(prompt, shared, self.rules.reusable(min(shared, prompt - 1)), 0)

    def sharing(self, count: Count, text: Text, loss: Loss, theirs: Callable[[], Body]) -> Sharing:
        """What the request shares with the other one, had it not been for the faults."""
        shared, grown = self.measure.mended(text, loss, theirs)
        if grown:
            mended = Text.of(loss.verdict.mended)
            end = whole_blocks(mended.ends, loss.shared - loss.verdict.moved)
            return Sharing(shared, min(shared, self._tokens(end, mended, count.prompt + round(grown))), grown)
        ends = [self._tokens(end, text, count.prompt) for end in text.ends]
        return Sharing(shared, whole_blocks(ends, min(shared, count.prompt - 1)), 0)

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
