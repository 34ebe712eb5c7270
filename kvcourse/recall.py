"""Lesson 03: how many answers a model finds in its context, and what it knows once a fact is hidden from it.

    python -m kvcourse.recall

Knows nothing about training. A fact is hidden by leaving its keys and values out for every token from some place on. Since K
and V never change once computed, that is exactly what dropping them from a cache at that place would do.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from kvcourse.attention import causal_mask
from kvcourse.caches.base import Plan
from kvcourse.corpus import LINK_WORDS, Conversation, Order, Question, make_conversation
from kvcourse.errors import InputError
from kvcourse.models.base import CausalLM

Hidden = Literal["from the start", "before the question", "before the answer"]


@dataclass(frozen=True)
class Recall:
    """How many of the questions were answered with the one right word."""

    right: int
    asked: int
    chance: float  # expected share of a reader who missed every fact

    @property
    def share(self) -> float:
        return self.right / self.asked


def held_out(
    n_facts: int, count: int, order: Order = "mixed", *, link_words: int = LINK_WORDS, idle_turns: int = 0
) -> list[Conversation]:
    """Conversations that training, whose seeds are others, never draws but by accident."""
    rng = random.Random(f"held out/{n_facts}")
    return [make_conversation(rng, n_facts, order, link_words=link_words, idle_turns=idle_turns) for _ in range(count)]


def measure_recall(model: CausalLM, conversations: Sequence[Conversation], hide: Hidden | None = None) -> Recall:
    """Share of the answers whose one telling word is the model's first choice, after all the words before it.

    hide: the asked fact's keys and values are kept from every later token: "from the start" (of all that follows the fact),
        from "before the question" on (words in between have read the fact), or from "before the answer" on (the question has).
    Questions whose answer lies past the model's context are not asked.
    Raises: InputError if no question is left, or for an unknown `hide`.
    """
    if hide is not None and hide not in get_args(Hidden):
        raise InputError("No such way to hide a fact.", expected=", ".join(get_args(Hidden)), got=hide,
                         todo="Name one, or None.")  # fmt: skip
    asked = right = 0
    chance = 0.0
    for one in conversations:
        questions = [question for question in one.questions if question.answer <= model.config.context_length]
        if questions:
            ids = token_ids(model, one)
            right += sum(_answers(model, ids, questions, hide))
            asked += len(questions)
            chance += sum(1 / question.choices for question in questions)
    if not asked:
        raise InputError("Nothing to ask.", expected="a conversation with a question in the model's context",
                         got=f"{len(conversations)} conversations", todo="Make shorter conversations.")  # fmt: skip
    return Recall(right, asked, chance / asked)


def token_ids(model: CausalLM, conversation: Conversation) -> list[int]:
    """One id a word, control tokens included."""
    ids: list[int] = model.tokenizer.encode(" ".join(conversation.words), special=True)
    return ids


@torch.no_grad()
def _answers(model: CausalLM, ids: list[int], questions: Sequence[Question], hide: Hidden | None) -> list[bool]:
    """For each question, whether the likeliest word before its answer is the right one."""
    tokens = torch.tensor([ids[: model.config.context_length]])
    if hide is None:
        likeliest = model(tokens)[0].argmax(-1).tolist()
        return [likeliest[q.answer - 1] == ids[q.answer] for q in questions]
    found = []
    for q in questions:
        positions = torch.arange(q.answer)
        plan = Plan(positions, positions, mask_without_fact(positions, q, hide))
        likeliest_now = model.compute(tokens[:, : q.answer], plan, None, logits_to_keep=1)[0, -1].argmax(-1)
        found.append(int(likeliest_now) == ids[q.answer])
    return found


def mask_without_fact(positions: Int[Tensor, " T"], question: Question, hide: Hidden) -> Bool[Tensor, "T T"]:
    """Causal, and from the token that `hide` names on without the columns of the asked fact."""
    start, stop = question.fact
    since = {"from the start": stop, "before the question": question.turn, "before the answer": question.reply}[hide]
    mask = causal_mask(positions, positions)  # (T, T)
    mask[since:, start:stop] = False
    return mask


def main() -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from kvcourse.checkpoints import load_model

    parser = argparse.ArgumentParser(prog="python -m kvcourse.recall", description="Does the tiny model read its context?")
    parser.add_argument("--facts", type=int, default=8, help="facts a conversation")
    parser.add_argument("--conversations", type=int, default=60)
    options = parser.parse_args()
    model, conversations = load_model("tiny"), held_out(options.facts, options.conversations)
    table = Table("the asked fact's K and V", "right", "recall", "chance", box=box.SIMPLE)
    ways: list[tuple[str, Hidden | None]] = [("in the window", None), *((f"hidden {way}", way) for way in get_args(Hidden))]
    for said, hide in ways:
        found = measure_recall(model, conversations, hide)
        table.add_row(said, f"{found.right} of {found.asked}", f"{found.share:.1%}", f"{found.chance:.1%}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
