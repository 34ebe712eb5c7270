"""Lesson 03: conversations about a small world, made by rule. Knows nothing about models or token ids: it works on words.

A user says where people and things are, and asks for it later; the assistant answers from what was said. Every fact is drawn
for itself and asked for once, so whoever has not read it can only guess: a place is one of ten, an owner one of twelve. That
makes it a test of reading: an answer can be right only because an earlier token was looked at.
"""

import random
from dataclasses import dataclass
from typing import Literal

from kvcourse.errors import InputError
from kvcourse.tiny import PEOPLE, PLACES, THINGS

Order = Literal["mixed", "told first", "recap", "retold"]

LINK_WORDS = 3  # "is in the"
FACT_WORDS = 22  # a fact, its question and its answer take so many words, or a few less
IDLE_WORDS = 8  # and so does a turn about nothing
MOST_FACTS = len(PEOPLE) + len(THINGS)
_REPLIES = (("yes", "."), ("thanks", "."), ("i", "remember", "."))
_IDLE = (
    "<user> hello to you . <end> <assistant> hello . <end>".split(),
    "<user> thanks . <end> <assistant> yes thanks . <end>".split(),
    "<user> please remember . <end> <assistant> yes . <end>".split(),
)
_SYSTEM = ("<system>", "please", "remember", "all", ".", "<end>")


@dataclass(frozen=True)
class Question:
    """One answered question of a conversation. Numbers are places in its words."""

    answer: int  # where the word stands that only the fact tells
    fact: tuple[int, int]  # first word of that fact, and the first word after it
    choices: int  # how many answers there would be for a reader who missed the fact
    turn: int  # first word of the turn that asks, "<user>"
    reply: int  # first word of the assistant's answer


@dataclass(frozen=True)
class Conversation:
    """Words of a chat in the tiny model's format (a word is a token), and which of them answer questions."""

    words: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class _Fact:
    """Something that is so: ana is in the garden, the cup is now with ben."""

    about: tuple[str, ...]
    link: tuple[str, ...]
    value: str
    choices: int
    question: tuple[str, ...]

    @property
    def sentence(self) -> tuple[str, ...]:
        return (*self.about, *self.link, self.value, ".")


def make_conversation(
    rng: random.Random, n_facts: int, order: Order = "mixed", *, link_words: int = LINK_WORDS, idle_turns: int = 0
) -> Conversation:
    """A conversation in which `n_facts` facts are stated and each is asked for once, later.

    order: "mixed" goes on telling between questions; "told first" has all questions at the end; in a "recap" the user asks for
        the whole story, and the assistant says it in another order; "retold" is no conversation but practice: the user alone
        says the same things again and again.
    idle_turns: so many turns about nothing in between; none in a recap.
    link_words: how many of "is in the" are said. With 0, "ana garden ." says where ana is: practice, too.
    The same state of `rng` gives the same words.
    Raises: InputError unless n_facts is 1 to MOST_FACTS and link_words 0 to LINK_WORDS.
    """
    if not 1 <= n_facts <= MOST_FACTS or not 0 <= link_words <= LINK_WORDS:
        raise InputError("A conversation needs facts, and sentences to say them in.",
                         expected=f"n_facts of 1 to {MOST_FACTS}, link_words of 0 to {LINK_WORDS}",
                         got=f"{n_facts} and {link_words}", todo="Ask for another number.")  # fmt: skip
    facts = [_draw_fact(rng, name, link_words) for name in rng.sample((*PEOPLE, *THINGS), n_facts)]
    made = _Writer(rng)
    if order == "retold":
        made.tell_again_and_again(facts)
        return made.conversation()
    if rng.random() < 0.3:
        made.words += _SYSTEM
    if order == "recap":
        made.tell(facts)
        made.say_again()
        return made.conversation()
    while facts or made.told:
        if idle_turns and rng.random() < idle_turns / (idle_turns + len(facts) + len(made.told)):
            idle_turns -= 1
            made.words += rng.choice(_IDLE)
        elif facts and (not made.told or order == "told first" or rng.random() < 0.5):
            now = rng.randint(1, 3)
            made.tell(facts[:now])
            facts = facts[now:]
            made.words += ("<end>", "<assistant>", *rng.choice(_REPLIES), "<end>")
        else:
            made.ask()
    return made.conversation()


def _draw_fact(rng: random.Random, name: str, link_words: int) -> _Fact:
    about = (name,) if name in PEOPLE else ("the", name)
    left_out = LINK_WORDS - link_words
    if name in THINGS and rng.random() < 0.5:
        return _Fact(about, ("is", "now", "with")[left_out:], rng.choice(PEOPLE), len(PEOPLE), ("who", "has", *about))
    return _Fact(about, ("is", "in", "the")[left_out:], rng.choice(PLACES), len(PLACES), ("where", "is", *about))


class _Writer:
    """A conversation in the making: its words so far, and the facts told and not yet asked for, with where they stand."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.words: list[str] = []
        self.questions: list[Question] = []
        self.told: list[tuple[_Fact, tuple[int, int]]] = []

    def tell(self, facts: list[_Fact]) -> None:
        self.words.append("<user>")
        for fact in facts:
            self.told.append((fact, (len(self.words), len(self.words) + len(fact.sentence))))
            self.words += fact.sentence

    def ask(self) -> None:
        fact, span = self.told.pop(self.rng.randrange(len(self.told)))
        turn = len(self.words)
        self.words += ("<user>", *fact.question, "?", "<end>", "<assistant>")
        self._answer(fact, span, turn)
        self.words.append("<end>")

    def say_again(self) -> None:
        turn = len(self.words)
        self.words += ("tell", "the", "story", ".", "<end>", "<assistant>")
        while self.told:
            fact, span = self.told.pop(self.rng.randrange(len(self.told)))
            self._answer(fact, span, turn)
        self.words.append("<end>")

    def tell_again_and_again(self, facts: list[_Fact]) -> None:
        self.words.append("<user>")
        spans: dict[tuple[str, ...], tuple[int, int]] = {}
        for _ in range(3 * len(facts)):
            fact = self.rng.choice(facts)
            start = len(self.words)
            self.words += fact.sentence
            if fact.about in spans:
                self.questions.append(Question(len(self.words) - 2, spans[fact.about], fact.choices, start, start))
            else:
                spans[fact.about] = (start, len(self.words))
        self.words.append("<end>")

    def _answer(self, fact: _Fact, span: tuple[int, int], turn: int) -> None:
        reply = len(self.words)
        self.words += fact.sentence
        self.questions.append(Question(len(self.words) - 2, span, fact.choices, turn, reply))

    def conversation(self) -> Conversation:
        return Conversation(tuple(self.words), tuple(self.questions))
