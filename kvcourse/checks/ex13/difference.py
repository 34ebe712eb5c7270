"""Lesson 13: what must hold of an answer that finds where two requests part (13.1). Knows nothing about tokens or prices: its
bodies are as chat interfaces take them, its templates as models have them.
"""

import json
from collections.abc import Callable
from typing import Any

from kvcourse.checks.base import Answer, Draw, Property, describe, expect
from kvcourse.common_prefix import common_length

Body = dict[str, Any]
Place = tuple[int, int, str, str]
Template = Callable[[Any], str]
BEFORE, BEHIND = 8, 12  # characters of each text that are shown


def marked(part: Any) -> str:
    """The usual: each message between marks, each tool as JSON on a line."""
    if isinstance(part, list):
        return "".join(f"{json.dumps(tool)}\n" for tool in part)
    return f"<{part['role']}>{part['content']}<end>"


def unmarked(part: Any) -> str:
    """A poor one, in which nothing says where a message ends."""
    return " ".join(tool["name"] for tool in part) if isinstance(part, list) else f"{part['role']}: {part['content']}"


def says_none_or_a_place(answer: Answer, draw: Draw) -> None:
    now = f"It is 9:{draw.integer(10, 59)}."
    found(answer, body("Be brief.", "hi"), body("Be brief.", "hi", "hello", "bye"))
    found(answer, body("It is 8:00.", "hi"), body(now, "hi"))


def finds_nothing_where_one_goes_on(answer: Answer, draw: Draw) -> None:
    long = ["Be brief.", "hi", f"hello {draw.integer(1, 9)}", "bye", "see you", "well?"]
    tools = [tool("search"), tool("clock")]
    for one, other in (
        (body(*long[:2]), body(*long[:4])),
        (body(*long[:4], tools=tools), body(*long, tools=tools)),
        (body(*long[:2]), body(*long[:2])),
        (body(*long[:4]), body(*long[:2])),
    ):
        got, told = found(answer, one, other)
        n, m = (len(one_body["messages"]) for one_body in (one, other))
        why = f"the first {min(n, m)} messages of both read the same, and one of the two has no more"
        expect(got is None, f"{told}: {why}. Nothing differs: None; got {got}.")


def names_the_part(answer: Answer, draw: Draw) -> None:
    texts = ["Be brief.", "hi", "hello", "bye", "see you"]
    for part in (1, 3, draw.integer(2, 5)):
        other = [*texts[: part - 1], f"x{texts[part - 1]}", *texts[part:]]
        got, told = differing(answer, body(*texts), body(*other))
        why = f"message number {part} of both, counted from 1, is the first that differs (the tools are part 0)"
        expect(got[0] == part, f"{told}: {why}. Yours says part {got[0]}.")
    early, late = body("Be brief.", "hi", "hello", "bye"), body("Be brief.", "ho", "hello", "by now")
    got, told = differing(answer, early, late)
    expect(got[0] == 2, f"{told}: parts 2 and 4 differ. The first counts, as nothing behind it is found; yours says {got[0]}.")


def names_the_character(answer: Answer, draw: Draw) -> None:
    word = "abcdefgh"[: draw.integer(1, 8)]
    for one, other in (
        (body("It is 9:00 on Monday."), body("It is 9:41 on Monday.")),
        (body("Be brief.", f"{word}x, then"), body("Be brief.", f"{word}y, then")),
        (body("x", "hi"), body("y", "hi")),
        (body("It is 9:00, it is", "hi"), body("It is 9:00, it it", "hi")),
    ):
        judge(answer, one, other, marked, 2, "characters are counted in what text makes of this part, from 0 on")


def sees_a_text_that_ends(answer: Answer, draw: Draw) -> None:
    more = " there" * draw.integer(1, 3)
    for short, long in ((body("Be brief.", "hi", "so"), body("Be brief.", f"hi{more}", "so")), (body("B"), body("Be brief."))):
        for one, other in ((short, long), (long, short)):
            told = "one text is the beginning of the other and ends where that one goes on"
            judge(answer, one, other, unmarked, 2, told)


def reads_the_tools_first(answer: Answer, draw: Draw) -> None:
    a, b, c = tool("search"), tool("clock"), tool(f"t{draw.integer(10, 99)}")
    for mine, theirs, why in (
        ([a, b], [b, a], "the same tools in another order"),
        ([a, b, c], [a, c, b], "the same tools in another order"),
        ([a, b], [a, b, c], "one tool more"),
        (None, [a], "the first has no tools, which reads as an empty list of them"),
        ([a], None, "the second has no tools, which reads as an empty list of them"),
    ):
        one, other = body("Be brief.", "hi", tools=mine), body("Be brief.", "ho", tools=theirs)
        told = f"Tools {names(one)} and {names(other)}: {why}, and a model reads them in front of all messages"
        judge(answer, one, other, marked, 2, told, shown=False)
    for mine, theirs in ((None, []), ([], None)):
        got, told = found(answer, body("Be brief.", tools=mine), body("Be brief.", tools=theirs))
        expect(got is None, f"{told}. No tools, and an empty list of tools, read the same: None; got {got}.")


def compares_what_a_model_reads(answer: Answer, draw: Draw) -> None:
    a = tool("search")
    turned = {name: a[name] for name in reversed(a)}
    told = "The same tool with its fields in another order: equal as a dict, and another text for the model"
    judge(answer, body("hi", tools=[a]), body("hi", tools=[turned]), marked, 2, told, shown=False)
    roles = body("Be brief.", "hi")
    roles["messages"][0]["role"] = "developer"
    judge(answer, body("Be brief.", "hi"), roles, marked, 2, "The role of message 1 is another one, and is read", shown=False)
    ids = body("Be brief.", "hi")
    ids["messages"][1]["id"] = f"m{draw.integer(100, 999)}"
    got, _ = found(answer, body("Be brief.", "hi"), ids)
    told = f"Message 2 of the second has a field that text does not write, 'id': {ids['messages'][1]['id']!r}"
    expect(got is None, f"{told}. A model reads the same in both: None; got {got}.")


def shows_what_is_around_it(answer: Answer, draw: Draw) -> None:
    start = f"so it goes on{' and on' * draw.integer(0, 2)}, "
    for one, other in (
        (body(f"{start}and then it ends"), body(f"{start}until it does not end")),
        (body("hi, it is 9:00 sharp"), body("ho, it is 9:41")),
        (body("Be brief.", "bye"), body("Be brief.", "bye.")),
        (body("hi", tools=[tool("search")]), body("hi")),
    ):
        told = f"of each text, {BEFORE} characters before the difference, or what there is, and {BEHIND} from it on"
        judge(answer, one, other, marked, 4, told)


def leaves_the_bodies_alone(answer: Answer, draw: Draw) -> None:
    last = f"bye {draw.integer(1, 9)}"
    one, other = body("Be brief.", "hi", tools=[tool("b"), tool("a")]), body("Be brief.", "hi", "hello", last)
    kept = answer.keep(one), answer.keep(other)
    answer(*kept, marked)
    for was, now in zip((one, other), kept, strict=True):
        expect(now.value() == was, f"A body was {was} and is {now.value()} afterwards. Looking changes nothing.")


def holds_for_many_requests(answer: Answer, draw: Draw) -> None:
    words = ("a", "b", "ab", "abc", "a" * 15 + "b", "a" * 15 + "c")
    for _ in range(100):
        n, sides = draw.integer(1, 9), []
        for _ in range(2):
            texts = [words[draw.integer(0, 5)] if draw.integer(0, 9) == 0 else "ab" for _ in range(n + draw.integer(0, 1))]
            tools = [[tool("a")], [tool("a"), tool("b")], None][max(0, draw.integer(-9, 2))]
            sides.append(body(*texts, tools=tools))
        judge(answer, sides[0], sides[1], (marked, unmarked)[draw.integer(0, 1)], 4, "one of many pairs")


PROPERTIES: tuple[Property, ...] = (
    says_none_or_a_place,
    finds_nothing_where_one_goes_on,
    names_the_part,
    names_the_character,
    sees_a_text_that_ends,
    reads_the_tools_first,
    compares_what_a_model_reads,
    shows_what_is_around_it,
    leaves_the_bodies_alone,
    holds_for_many_requests,
)


def body(*texts: str, tools: list[Any] | None = None) -> Body:
    """A request: a system message, then a question, a reply, a question, ... tools None: it has no such field."""
    roles = ("system", *("user", "assistant") * len(texts))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return {"messages": messages} if tools is None else {"messages": messages, "tools": tools}


def tool(name: str) -> dict[str, str]:
    return {"name": name, "about": f"a {name}"}


def names(one: Body) -> str:
    return str([each["name"] for each in one.get("tools", [])])


def shown_body(one: Body) -> str:
    """A body for a message: 'Be brief.' / 'hi'."""
    return " / ".join(repr(message["content"]) for message in one["messages"])


def read_in_order(one: Body, text: Template) -> list[str]:
    """What a model reads of it, part by part."""
    return [text(one.get("tools", [])), *map(text, one["messages"])]


def right_place(one: Body, other: Body, text: Template) -> Place | None:
    """Where they part, by the check."""
    ours, theirs = read_in_order(one, text), read_in_order(other, text)
    part = common_length(ours, theirs)
    if part == min(len(ours), len(theirs)):
        return None
    at = common_length(ours[part], theirs[part])
    window = slice(max(0, at - BEFORE), at + BEHIND)
    return part, at, ours[part][window], theirs[part][window]


def judge(answer: Answer, one: Body, other: Body, text: Template, fields: int, why: str, shown: bool = True) -> None:
    """The first so many fields of the answer are right. shown: put the bodies in front of the reason."""
    got, told = found(answer, one, other, text)
    told = f"{told}: {why}" if shown else why
    right = right_place(one, other, text)
    if right is None or got is None:
        expect(got == right, f"{told}. Expected {right}; got {got}.")
        return
    expect(got[0] == right[0], f"{told}. Expected part {right[0]}; got part {got[0]}.")
    sides = [read_in_order(body, text)[right[0]] for body in (one, other)]
    place = f"part {right[0]} reads {brief(sides[0])} and {brief(sides[1])}"
    expect(got[1] == right[1], f"{told}; {place}. They part at character {right[1]}; yours says {got[1]}.")
    if fields == 4:
        expect(got[2:] == right[2:], f"{told}; {place}, from character {right[1]} on. Expected {right[2:]}; got {got[2:]}.")


def brief(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def differing(answer: Answer, one: Body, other: Body) -> tuple[Place, str]:
    """What the answer says of two bodies that differ."""
    got, told = found(answer, one, other)
    expect(got is not None, f"{told}: these two part; got None.")
    assert got is not None
    return got, told


def found(answer: Answer, one: Body, other: Body, text: Template = marked) -> tuple[Place | None, str]:
    """What the answer says, None or a place, and what it was asked."""

    def written(part: Any) -> str:
        good = isinstance(part, list) or (isinstance(part, dict) and {"role", "content"} <= set(part))
        what = "a dict without them" if isinstance(part, dict) else describe(part)
        expect(good, f"text takes the list of tools, or one message with role and content; yours gave it {what}.")
        tools = not isinstance(part, list) or all(isinstance(each, dict) and {"name", "about"} <= set(each) for each in part)
        expect(tools, "text takes one message at a time, or the list of all tools; yours gave it a list of something else.")
        return text(part)

    got = answer(one, other, written)
    told = f"{shown_body(one)} and then {shown_body(other)}"
    kinds = (int, int, str, str)
    good = isinstance(got, tuple) and tuple(map(type, got)) == kinds
    expect(got is None or good, f"{told}: expected None, or a tuple of two ints and two texts; got {describe(got)}.")
    return got, told
