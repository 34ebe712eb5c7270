"""Lesson 11: what must hold of an answer that tests a chat template (11.3). Knows nothing about ids: texts only.

The templates here are ours, good ones and bad ones, as models ship them.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect

Messages = list[dict[str, str]]
Template = Callable[[Messages], str]
Place = tuple[int, int]
LONGEST = 24  # characters of a text in a message


def plain(messages: Messages) -> str:
    """A good one: an earlier turn stays as it was."""
    told = "".join(f"<{message['role']}>{message['content']}<end>" for message in messages)
    return told + "<assistant>" * (messages[-1]["role"] == "user")


def stripped(messages: Messages) -> str:
    """Takes the white space off both ends of every message."""
    return plain([{**message, "content": message["content"].strip()} for message in messages])


def thoughtless(messages: Messages) -> str:
    """Leaves out what was thought in all replies, once a question came after them."""
    return plain([{**message, "content": message["content"].split("</think>")[-1]} for message in messages])


def counting(messages: Messages) -> str:
    """Says at the front how many messages there are."""
    return f"{len(messages)} messages. {plain(messages)}"


def last_marked(messages: Messages) -> str:
    """Marks the question that is to be answered now."""
    asked = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=0)
    return plain([{**message, "role": "now" if i == asked else message["role"]} for i, message in enumerate(messages)])


def cut_off(messages: Messages) -> str:
    """Never longer than 60 characters."""
    return plain(messages)[:60]


def says_none_or_a_pair(answer: Answer, draw: Draw) -> None:
    for render in (plain, counting):
        drifts(answer, render, talk("hi", f"hello {draw.integer(1, 9)}", "bye"))


def finds_nothing_in_a_good_one(answer: Answer, draw: Draw) -> None:
    name = f"n{draw.integer(10, 99)}"
    for messages in (
        talk("hi", "hello", "bye"),
        talk("hi", "hello", "who are you?", f"{name}, at your service ", "bye"),
        talk("hi", "hello", "bye", system="Be brief."),
    ):
        got = drifts(answer, plain, messages)
        told = f"Every prompt begins with the one before it and its reply: None; got {got}"
        first = f"{plain(messages[:-2])}{messages[-2]['content']}"
        expect(got is None, f"{told}. {shown(messages)}. The last one: {plain(messages)!r} begins with {first!r}.")


def finds_a_reply_that_is_written_otherwise(answer: Answer, draw: Draw) -> None:
    thought = "<think>" + "hm " * draw.integer(1, 3) + "</think>"
    judge(answer, stripped, talk("hi", "hello ", "bye"), "the template takes the white space off a reply's end")
    judge(answer, stripped, talk("hi", " hello", "bye"), "the template takes the white space off a reply's front")
    judge(answer, thoughtless, talk("hi", f"{thought}hello", "bye"), "the template leaves out what was thought")


def finds_a_change_in_front_of_the_reply(answer: Answer, draw: Draw) -> None:
    judge(answer, counting, talk("hi", "hello", "bye"), "the template counts the messages at the very front")
    judge(answer, last_marked, talk("hi", "hello", "bye"), "the template marks the question to answer now")
    judge(
        answer,
        last_marked,
        talk(f"hi {draw.integer(1, 9)}", "hello", "bye", system="Be brief."),
        "the template marks the question to answer now",
    )


def names_the_first_turn(answer: Answer, draw: Draw) -> None:
    good = [f"{word} {draw.integer(1, 9)}" for word in ("one", "two", "three", "four", "five")]
    for late, turn in ((talk(*good[:3], "so so ", "bye"), 2), (talk(*good[:5], " yes", "bye", "well ", "oh"), 3)):
        judge(answer, stripped, late, f"the replies before turn {turn} are written as they were")
    judge(answer, stripped, talk("hi", "a ", "you", "b ", "bye"), "the first is meant, though a later one changes, too")
    judge(answer, stripped, talk("hi", "hello", "you", "b ", "bye", system="Be brief."), "the system message is no turn")


def finds_text_that_is_gone(answer: Answer, draw: Draw) -> None:
    long = "so it goes on and on" + " and on" * draw.integer(2, 4)
    judge(answer, cut_off, talk("tell me", long, "bye"), "the template cuts the text off after 60 characters")


def compares_nothing_behind_the_last_reply(answer: Answer, draw: Draw) -> None:
    for messages in (talk("hi", "hello "), talk("hi", "hello", "bye", f"bye {draw.integer(1, 9)} "), talk("hi")):
        got = drifts(answer, stripped, messages)
        why = "no question came after its last reply, so no prompt was made that could differ"
        expect(got is None, f"{shown(messages)}: {why}. Expected None; got {got}.")


def leaves_the_messages_alone(answer: Answer, draw: Draw) -> None:
    messages = talk("hi", f"hello {draw.integer(1, 9)} ", "bye", system="Be brief.")
    kept = answer.keep(messages)
    answer(plain, kept)
    expect(kept.value() == messages, f"messages was {messages} and is {kept.value()} afterwards. Looking changes nothing.")


def holds_for_many_conversations(answer: Answer, draw: Draw) -> None:
    for _ in range(40):
        words = [("a", "bb", "a ")[draw.integer(0, 2)] for _ in range(9)]  # few, so that questions and replies come again
        messages = talk(*words[: draw.integer(4, 9)], system="s" if draw.integer(0, 1) else None)
        render = (plain, stripped, cut_off, last_marked)[draw.integer(0, 3)]
        judge(answer, render, messages, "one of many conversations")


PROPERTIES: tuple[Property, ...] = (
    says_none_or_a_pair,
    finds_nothing_in_a_good_one,
    finds_a_reply_that_is_written_otherwise,
    finds_a_change_in_front_of_the_reply,
    names_the_first_turn,
    finds_text_that_is_gone,
    compares_nothing_behind_the_last_reply,
    leaves_the_messages_alone,
    holds_for_many_conversations,
)


def talk(*texts: str, system: str | None = None) -> Messages:
    """A conversation: question, reply, question, ..."""
    told = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *told] if system else told


def shown(messages: Messages) -> str:
    """Messages for a message: 'hi' / 'hello' / 'bye'."""
    return " / ".join(repr(message["content"]) for message in messages)


def two_texts(render: Template, messages: Messages) -> list[tuple[str, str]]:
    """For each turn but the last: what the cache holds after it, and the next prompt."""
    questions = [i for i, message in enumerate(messages) if message["role"] == "user"]
    replied = [
        (render(messages[: at + 1]) + messages[at + 1]["content"], render(messages[: then + 1]))
        for at, then in pairwise(questions)
    ]
    return replied


def judge(answer: Answer, render: Template, messages: Messages, why: str) -> None:
    got = drifts(answer, render, messages)
    for turn, (held, prompt) in enumerate(two_texts(render, messages), 1):
        place = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(held, prompt, strict=False))))
        if place < len(held):
            told = f"{shown(messages)}: {why}. After turn {turn} the cache holds {ending(held, place)}, and the next prompt "
            told += f"{'ends there' if place == len(prompt) else 'has ' + ending(prompt, place)}, from character {place} on"
            expect(got == (turn, place), f"{told}. Expected ({turn}, {place}); got {got}.")
            return
    expect(got is None, f"{shown(messages)}: {why}. Nothing that the cache holds is written otherwise: None; got {got}.")


def ending(text: str, place: int) -> str:
    """A text from a place on."""
    rest = text[place:]
    return repr(rest if len(rest) <= LONGEST else f"{rest[:LONGEST]}...")


def drifts(answer: Answer, render: Template, messages: Messages) -> Place | None:
    """What the answer says, None or a pair of ints."""

    def rendered(given: Any) -> str:
        good = isinstance(given, Sequence) and all(isinstance(one, dict) and {"role", "content"} <= set(one) for one in given)
        expect(
            good and given, f"render takes a list of messages; yours gave it {describe(given) if given else 'an empty one'}."
        )
        return render(given)

    got = answer(rendered, messages)
    pair = isinstance(got, tuple) and len(got) == 2 and all(type(number) is int for number in got)
    told = f"{shown(messages)}: expected None or a pair of ints (turn, place)"
    expect(got is None or pair, f"{told}; got {describe(got)}.")
    return got
