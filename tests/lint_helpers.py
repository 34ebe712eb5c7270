"""Conversations of made-up words, and what a log of them costs when it is written out and counted."""

import random
from collections.abc import Sequence
from typing import Any

from kvcourse.prompts.bodies import body_of, render
from kvcourse.providers import replay_requests
from kvcourse.tokenizers import BPETokenizer, ChatTemplate

_TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
_NAMES = [*sorted(BPETokenizer.alphabet()), "<|im_start|>", "<|im_end|>"]
BYTES = BPETokenizer({one: n for n, one in enumerate(_NAMES)}, [], special=_NAMES[-2:], chat=ChatTemplate(_TURNS))
WORDS = "river stone window market copper garden letter winter signal harbor pencil violet".split()

Pair = tuple[dict[str, Any], dict[str, Any]]  # a request as it is sent, and as it would be once all is mended


def in_turn(rng: random.Random, talks: Sequence[Sequence[Pair]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two logs of several conversations at once: as they are sent, and as they would be."""
    several, pairs = [list(talk) for talk in talks], []
    while any(several):
        pairs.append(rng.choice([one for one in several if one]).pop(0))
    return [now for now, _ in pairs], [then for _, then in pairs]


def computed_and_cost(log: Sequence[dict[str, Any]], provider: str) -> tuple[int, float]:
    made = replay_requests([render(body_of(body), BYTES).ids for body in log], provider)
    return made.prompt_tokens - made.cached_tokens, made.cost
