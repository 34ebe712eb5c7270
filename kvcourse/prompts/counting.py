"""Lesson 13: how many tokens a request has, and how many a provider's cache would find. Knows nothing about causes."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from kvcourse.common_prefix import common_length
from kvcourse.prompts.bodies import Body, render
from kvcourse.prompts.families import Loss, Text
from kvcourse.prompts.findings import length
from kvcourse.prompts.logs import Entry
from kvcourse.prompts.mending import TURN_END, Count, Sharing, whole_blocks
from kvcourse.providers.replaying import Block, Breakpoints
from kvcourse.providers.rules import Rules
from kvcourse.providers.tree import Found, PrefixTree, as_text
from kvcourse.tokenizer_base import Tokenizer

_IDS_BYTES = 80 * 2**20  # remembered as ids: two bytes each, where the text has about four characters

CHARACTERS = 4  # to a token, where no tokenizer is at hand: a rule of thumb for English


class Mended(NamedTuple):
    """A request without its faults, in tokens.

    shared: with the other one. kept: of turns that it has left out; below 0: that it has put in. stamps: of clocks and ids of
    the other request that are left in earlier turns.
    """

    shared: int
    kept: float
    stamps: float


class Estimate:
    """Tokens as characters / 4."""

    unit = f"tokens, estimated as characters / {CHARACTERS}"

    def read(self, entry: Entry) -> None:
        """Every request can be estimated."""

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """(prompt tokens, those that an earlier request shares and that are still held)."""
        return -(-len(text.text) // CHARACTERS), found.alive // CHARACTERS

    def mended(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> Mended:
        """The request as it would be without its faults, beside the other one."""
        verdict = loss.verdict
        stamps = verdict.stamped / CHARACTERS if verdict.goes_on else 0
        return Mended((loss.shared - verdict.moved) // CHARACTERS, verdict.left_out / CHARACTERS, stamps)


class Exact:
    """Tokens as a model's own tokenizer and chat template cut them."""

    unit = "tokens"

    def __init__(self, tokenizer: Tokenizer, rules: Rules) -> None:
        self.tokenizer = tokenizer
        self._read: tuple[Entry, str] | None = None  # the request that was read last, and its ids
        self._tree = PrefixTree(rules.lifetime_seconds, rules.renewed, _IDS_BYTES)

    def read(self, entry: Entry) -> str:
        """A request's ids, as text. Raises: TokenizerError for messages that the template refuses."""
        if self._read is None or self._read[0] is not entry:
            self._read = entry, as_text(render(entry.body, self.tokenizer).ids)
        return self._read[1]

    def count(self, entry: Entry, text: Text, found: Found) -> tuple[int, int]:
        """As for an estimate. Raises: what `read` raises."""
        ids = self.read(entry)
        return len(ids), self._tree.insert(ids, entry.line, entry.seconds, entry.model).alive

    def mended(self, text: Text, loss: Loss, theirs: Callable[[], Body]) -> Mended:
        """As for an estimate."""
        verdict = loss.verdict
        mended, other = (render(body, self.tokenizer).ids for body in (verdict.mended, theirs()))
        per_character = len(mended) / len(text.text)
        stamps = sum(len(self.tokenizer.encode(stamp)) for _, stamp in verdict.stamps)
        shared = common_length(mended, other) + round(verdict.extra * per_character) - (0 if verdict.goes_on else stamps)
        kept = len(mended) - len(render(text.body, self.tokenizer).ids) if verdict.left_out else 0
        if length(verdict.mended) - length(text.body) != verdict.left_out:  # something else is mended, too
            kept = round(verdict.left_out * per_character)
        return Mended(shared, kept, stamps if verdict.goes_on else 0)


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
        shared, kept, stamps = self.measure.mended(text, loss, theirs)
        verdict, mended = loss.verdict, Text.of(loss.verdict.mended)
        moved = [] if verdict.goes_on else verdict.stamps
        ends = [end - sum(len(stamp) for item, stamp in moved if item <= n) for n, end in enumerate(mended.ends)]
        end = self._tokens(whole_blocks(ends, loss.shared - verdict.moved), mended, count.prompt + round(kept))
        return Sharing(shared, min(shared, end), kept + stamps)

    def _tokens(self, characters: int, text: Text, prompt: int) -> int:
        return characters * prompt // len(text.text)

    def _blocks(self, entry: Entry, text: Text, prompt: int) -> list[Block]:
        """The request's content blocks; without marks of its own, the ends of tools, system part and request are marked."""
        marks = set(entry.marks)
        cuts = [entry.blocks[n] if n < len(entry.blocks) else () for n in range(len(text.items))]
        if not marks:
            fronts = (len(entry.body.tools), len(entry.body.tools) + len(entry.body.system), len(text.items))
            marks = {(front - 1, max(0, len(cuts[front - 1]) - 1)) for front in fronts if front}
        blocks = [Block(entry.model, 0)]  # in front of all: another model finds nothing
        at = 0
        for n, (item, lengths) in enumerate(zip(text.items, cuts, strict=True)):
            for k, block in enumerate(_cut(item, lengths)):
                at += len(block)
                blocks.append(Block(block.removesuffix(TURN_END), self._tokens(at, text, prompt), (n, k) in marks))
        return blocks


def _cut(item: str, lengths: Sequence[int]) -> list[str]:
    """An item in its blocks: the header belongs to the first, what ends the turn to the last."""
    header = item.find("\n") + 1
    places = [0, *(header + behind for behind in accumulate(lengths[:-1])), len(item)]
    return [item[start:stop] for start, stop in pairwise(places)]
