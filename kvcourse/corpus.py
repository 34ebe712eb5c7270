"""Lesson 03: conversations about a small world, made by rule. Knows nothing about models or token ids: it works on words.

People are somewhere, people have things; a user states such facts and asks for them later, and the assistant answers from
what was said. Every fact is drawn for itself, so whoever has not read it can only guess: a place is one of ten, an owner one
of twelve. That makes it a test of reading: an answer is right because an earlier token was looked at.
"""

import random
from dataclasses import dataclass, field

from kvcourse.errors import InputError
from kvcourse.tiny import PEOPLE, PLACES, THINGS

SHORTEST_TOKENS = 48  # room for one fact, one question and its answer, whatever is drawn
_LONGEST_TURN_TOKENS = 26
_SYSTEM = "you remember the story and answer .".split()
_REPLIES = (["yes", "."], ["thanks", "."], ["i", "remember", "."])


@dataclass(frozen=True)
class Question:
    """One answered question of a conversation. Places are indices into its words."""

    answer: int  # where the one word stands that only the fact tells
    fact: tuple[int, int]  # first word of the fact it asks for, and the first word after it
    first: bool  # nobody asked for this fact before, so it stands in the text once
    choices: int  # how many answers would be possible to a reader who missed the fact


@dataclass
class Conversation:
    """Words of a chat in the tiny model's format, and which of them answer questions."""

    words: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


@dataclass
class _Fact:
    """Something that is so from the time it was said: ("ana", "garden") or ("apple", "ben")."""

    about: str
    value: str
    span: tuple[int, int]
    asked: bool = False


def make_conversation(rng: random.Random, n_tokens: int, *, ask: float = 0.6) -> Conversation:
    """A conversation of at most `n_tokens` words (a word is a token), and hardly fewer. The same state of `rng`, the same words.

    ask: share of the turns that are questions, once there is something to ask.
    Raises: InputError if n_tokens is below SHORTEST_TOKENS.
    """
    if n_tokens < SHORTEST_TOKENS:
        raise InputError("Too short for a conversation.", expected=f"{SHORTEST_TOKENS} tokens or more", got=n_tokens,
                         todo="Ask for a longer one.")  # fmt: skip
    made, facts = Conversation(), dict[str, _Fact]()
    if rng.random() < 0.3:
        made.words += ["<system>", *_SYSTEM, "<end>"]
    while len(made.words) <= n_tokens - _LONGEST_TURN_TOKENS or not made.questions:
        untold = [name for name in (*PEOPLE, *THINGS) if name not in facts]
        if facts and (not untold or rng.random() < ask or n_tokens - len(made.words) < 2 * _LONGEST_TURN_TOKENS):
            _ask(rng, made, rng.choice(list(facts.values())))
        else:
            _tell(rng, made, facts, untold)
    return made


def _tell(rng: random.Random, made: Conversation, facts: dict[str, _Fact], untold: list[str]) -> None:
    made.words.append("<user>")
    for name in rng.sample(untold, min(rng.randint(1, 3), len(untold))):
        if name in PEOPLE:
            value = rng.choice(PLACES)
            said = [name, *rng.choice((("is", "in", "the"), ("goes", "to", "the"))), value, "."]
        else:
            value = rng.choice(PEOPLE)
            said = [value, rng.choice(("has", "takes")), "the", name, "."]
        facts[name] = _Fact(name, value, (len(made.words), len(made.words) + len(said)))
        made.words += said
    made.words += ["<end>", "<assistant>", *rng.choice(_REPLIES), "<end>"]


def _ask(rng: random.Random, made: Conversation, fact: _Fact) -> None:
    if fact.about in PEOPLE:
        asked, answer, place = ["where", "is", fact.about, "?"], [fact.about, "is", "in", "the", fact.value, "."], 4
    else:
        asked, answer, place = ["who", "has", "the", fact.about, "?"], [fact.value, "has", "the", fact.about, "."], 0
    made.words += ["<user>", *asked, "<end>", "<assistant>"]
    choices = len(PLACES) if fact.about in PEOPLE else len(PEOPLE)
    made.questions.append(Question(len(made.words) + place, fact.span, not fact.asked, choices))
    made.words += [*answer, "<end>"]
    fact.asked = True
