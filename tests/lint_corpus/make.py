"""Writes the logs whose names begin with `made-`: seeded, so that the same files come out each time.

    python -m tests.lint_corpus.make

A file is called CAUSE--what-is-planted.jsonl; `none` has nothing to mend. Those not named `made-` are written by hand.
"""

import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

LOGS = Path(__file__).parent / "logs"
PLANTED: list[tuple[str, str, Callable]] = []
SYSTEM = (
    "You are the support assistant of a small bicycle shop. Answer in two sentences at most. Name a price only if it is in the "
    "price list. If you are not sure, say so and offer to ask a mechanic. Never promise a date on which a repair will be done."
)
QUESTIONS = [
    "My rear derailleur skips under load, what should I look at first?", "Which tyre fits a 622 by 19 rim?",
    "Can I ride with a chain that has 0.75 percent wear?", "How do I store a bike with hydraulic brakes upside down?",
    "What does a full service include, and how long does it take?", "Is it safe to shorten an aluminium steerer by 10 mm?",
    "Do you have winter gloves in size 9?", "My dynamo light flickers at low speed, is that the lamp or the hub?",
]  # fmt: skip
ANSWERS = [
    "Check the cable tension first, then whether the hanger is bent. If both are fine, the cassette may be worn.",
    "A width between 28 and 44 mm is usual on such a rim. Tell me your frame and I can be more exact.",
    "At that wear the cassette suffers soon, so change the chain now. The cassette can stay if it does not skip.",
    "Better not: air can move to the piston. Store it on its wheels, or pump the lever before you ride.",
    "It covers brakes, gears, bearings and a wash. I will ask a mechanic how long it would take for yours.",
    "Yes, if a compression plug fits and two spacers stay. Let a mechanic cut it if you have no guide.",
    "I am not sure what is in the shop today. I can ask a colleague to look for you.",
    "Usually it is the lamp's capacitor, which ages. A hub that is worn makes a noise when you turn it by hand.",
]  # fmt: skip
DOCS = [
    "Returns policy. Goods can be returned within 30 days if they are unused and the box is there.",
    "Brake pads. Organic pads are quiet and wear fast, sintered pads are loud and last longer.",
    "Opening hours. The shop opens on weekdays from nine to six and on Saturdays until two.",
    "Chain care. Wipe the chain after each ride in the rain and oil it when it begins to sound dry.",
    "Tubeless. Fresh sealant is needed twice a year, and after every puncture that took a while to close.",
]  # fmt: skip
TOOLS = [
    ("find_part", "Find a spare part by its name and the size of the bike.", {"name": "string", "size": "string"}),
    ("price_of", "Look up the price of a part in the list.", {"part_number": "string"}),
    ("book_service", "Book a service appointment for a customer.", {"customer": "string", "day": "string"}),
    ("ask_mechanic", "Send a question to a mechanic and wait for the answer.", {"question": "string"}),
]  # fmt: skip


def planted(cause: str, name: str) -> Callable:
    def keep(make: Callable) -> Callable:
        PLANTED.append((cause, f"made-{name}", make))
        return make

    return keep


def system(content: str) -> dict:
    return {"role": "system", "content": content}


def user(content: str) -> dict:
    return {"role": "user", "content": content}


def turns(rng: random.Random, n: int) -> list[dict]:
    """n questions, each but the last with its answer."""
    order = rng.sample(range(len(QUESTIONS)), n)
    both = [({"role": "user", "content": QUESTIONS[k]}, {"role": "assistant", "content": ANSWERS[k]}) for k in order]
    return [one for pair in both for one in pair][:-1]


def growing(rng: random.Random, n: int = 4) -> Iterator[list[dict]]:
    """The messages of each request of a conversation, without its system part."""
    whole = turns(rng, n)
    for k in range(n):
        yield whole[: 2 * k + 1]


def tools(order: list[int] | None = None, shape: str = "openai") -> list[dict]:
    made = []
    for k in order or range(len(TOOLS)):
        name, description, fields = TOOLS[k]
        schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in fields.items()}}
        if shape == "anthropic":
            made.append({"name": name, "description": description, "input_schema": schema})
        else:
            made.append({"type": "function", "function": {"name": name, "description": description, "parameters": schema}})
    return made


def moments(rng: random.Random) -> Iterator[datetime]:
    now = datetime(2026, 3, 29, 8, 14, 5, 123456)
    while True:
        yield now
        now += timedelta(seconds=rng.randint(20, 4000))


# Clocks.

_CLOCKS = {
    "iso-at-the-start": ("Current time: {}\n\n" + SYSTEM, lambda t: t.isoformat()),
    "iso-in-the-middle": (SYSTEM[:66] + " It is now {}. " + SYSTEM[67:], lambda t: t.strftime("%Y-%m-%d %H:%M:%S")),
    "epoch-seconds": ("ts={}\n" + SYSTEM, lambda t: str(int(t.timestamp()))),
    "epoch-milliseconds": ("session started at {} ms\n" + SYSTEM, lambda t: str(int(t.timestamp() * 1000))),
    "american-date": ("Today is {}. " + SYSTEM, lambda t: f"{t + timedelta(days=t.minute):%B} {t.day}, {t:%Y}, {t:%I:%M %p}"),
    "german-date": ("Heute ist der {} Uhr.\n" + SYSTEM, lambda t: t.strftime("%d.%m.%Y um %H:%M")),
    "rfc-2822": ("Date: {}\n" + SYSTEM, lambda t: t.strftime("%a, %d %b %Y %H:%M:%S +0000")),
    "time-of-day-only": ("The local time is {}. " + SYSTEM, lambda t: t.strftime("%H:%M:%S")),
}  # fmt: skip


def _clock(form: str, write: Callable) -> Callable:
    def make(rng: random.Random) -> Iterator[dict]:
        for now, messages in zip(moments(rng), growing(rng, 5), strict=False):
            yield {"model": "m", "messages": [system(form.format(write(now))), *messages]}

    return make


for _name, (_form, _write) in _CLOCKS.items():
    planted("clock", _name)(_clock(_form, _write))


@planted("clock", "anthropic-system-field")
def _(rng):
    for now, messages in zip(moments(rng), growing(rng), strict=False):
        parts = [{"type": "text", "text": f"[{now:%Y-%m-%d %H:%M}] You help customers."}, {"type": "text", "text": SYSTEM}]
        yield {"model": "m", "max_tokens": 200, "system": parts, "messages": messages}


@planted("clock", "in-a-tool-description")
def _(rng):
    for now, messages in zip(moments(rng), growing(rng), strict=False):
        offered = tools()
        offered[1]["function"]["description"] += f" Prices as of {now:%Y-%m-%d %H:%M:%S}."
        yield {"messages": [system(SYSTEM), *messages], "tools": offered}


@planted("clock", "one-shot-questions")
def _(rng):
    for now, question in zip(moments(rng), QUESTIONS, strict=False):
        yield {"messages": [system(f"Now: {now:%Y-%m-%dT%H:%M:%SZ}\n{SYSTEM}"), user(question)]}


# Ids.

_IDS = {
    "uuid": ("Request {}\n\n" + SYSTEM, lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4))),
    "request-id": (SYSTEM + "\nrequest_id: {}\nBe brief.", lambda rng: f"req_{rng.getrandbits(60):015x}x{rng.randint(0, 9)}"),
    "nonce": ("nonce={}\n" + SYSTEM, lambda rng: f"{rng.getrandbits(96):024x}"),
    "session-id": ("Session ID: {}. " + SYSTEM, lambda rng: f"S-{rng.randint(10000, 99999)}-{rng.randint(100, 999)}"),
    "trace-id": ("trace_id={} sampled\n" + SYSTEM, lambda rng: f"{rng.getrandbits(128):032x}"),
}  # fmt: skip


def _id(form: str, write: Callable) -> Callable:
    def make(rng: random.Random) -> Iterator[dict]:
        for messages in growing(rng, 5):
            yield {"messages": [system(form.format(write(rng))), *messages]}

    return make


for _name, (_form, _write_id) in _IDS.items():
    planted("id", _name)(_id(_form, _write_id))


@planted("id", "anthropic-wrapped")
def _(rng):
    for n, messages in enumerate(growing(rng)):
        name = uuid.UUID(int=rng.getrandbits(128), version=4)
        body = {"model": "m", "max_tokens": 9, "system": f"conversation {name}\n{SYSTEM}", "messages": messages}
        yield {"timestamp": 1770000000 + 60 * n, "request": body}


# Tools.


@planted("tool_order", "shuffled")
def _(rng):
    for messages in growing(rng, 5):
        yield {"messages": [system(SYSTEM), *messages], "tools": tools(rng.sample(range(4), 4))}


@planted("tool_order", "anthropic-two-swapped")
def _(rng):
    for n, messages in enumerate(growing(rng)):
        order = [0, 1, 2, 3] if n % 2 else [0, 2, 1, 3]
        yield {"system": SYSTEM, "messages": messages, "tools": tools(order, "anthropic"), "max_tokens": 9}


@planted("tool_order", "one-shot")
def _(rng):
    for n, question in enumerate(QUESTIONS):
        yield {"messages": [system(SYSTEM), user(question)], "tools": tools([n % 4, *(k for k in range(4) if k != n % 4)])}


@planted("schema", "one-tool-changed")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        offered = tools()
        if n >= 2:
            offered[2]["function"]["parameters"]["properties"]["note"] = {"type": "string"}
        yield {"messages": [system(SYSTEM), *messages], "tools": offered}


@planted("schema", "a-tool-comes-and-goes")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        yield {"messages": [system(SYSTEM), *messages], "tools": tools([0, 1, 2, 3] if n % 2 else [0, 1, 2])}


@planted("schema", "anthropic-enum-grows")
def _(rng):
    for n, messages in enumerate(growing(rng, 4)):
        offered = tools(shape="anthropic")
        offered[0]["input_schema"]["properties"]["size"]["enum"] = ["small", "medium", "large", "extra large"][: n + 1]
        yield {"system": SYSTEM, "messages": messages, "tools": offered, "max_tokens": 9}


@planted("schema", "keys-in-another-order")
def _(rng):
    for n, messages in enumerate(growing(rng, 4)):
        offered = tools()
        if n % 2:
            offered = [{"function": dict(reversed(one["function"].items())), "type": "function"} for one in offered]
        yield {"messages": [system(SYSTEM), *messages], "tools": offered}


# Retrieved documents.


@planted("retrieval_order", "in-the-system-part")
def _(rng):
    for messages in growing(rng, 5):
        listed = "\n\n".join(rng.sample(DOCS, 5))
        yield {"messages": [system(f"{SYSTEM}\n\n{listed}"), *messages]}


@planted("retrieval_order", "numbered")
def _(rng):
    for question in QUESTIONS[:6]:
        listed = "\n\n".join(f"[{n}] {doc}" for n, doc in enumerate(rng.sample(DOCS, 5), start=1))
        yield {"messages": [system(f"{SYSTEM} Use these documents.\n\n{listed}"), user(question)]}


@planted("retrieval_order", "move-with-the-last-message")
def _(rng):
    listed = "\n\n".join(DOCS)
    for messages in growing(rng, 5):
        yield {"messages": [system(SYSTEM), *messages[:-1], user(f"{listed}\n\nQuestion: {messages[-1]['content']}")]}


@planted("retrieval_order", "anthropic-first-message")
def _(rng):
    for messages in growing(rng, 4):
        first = {"role": "user", "content": [{"type": "text", "text": "\n\n".join(rng.sample(DOCS, 5))}]}
        ready = {"role": "assistant", "content": "I have read the documents and am ready for questions about them."}
        yield {"system": SYSTEM, "messages": [first, ready, *messages], "max_tokens": 9}


# Templates and spaces.


@planted("template", "system-or-developer")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        yield {"messages": [{"role": "developer" if n % 2 else "system", "content": SYSTEM}, *messages]}


@planted("template", "control-token-in-the-text")
def _(rng):
    for n, messages in enumerate(growing(rng, 4)):
        yield {"messages": [system(("<s>" if n % 2 else "") + SYSTEM), *messages]}


@planted("template", "system-part-left-out")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        yield {"messages": [*([] if n == 2 else [system(SYSTEM)]), *messages]}


@planted("whitespace", "trailing-newline")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        yield {"messages": [system(SYSTEM + "\n" * (n % 2)), *messages]}


@planted("whitespace", "indented")
def _(rng):
    lines = SYSTEM.replace(". ", ".\n").split("\n")
    for n, messages in enumerate(growing(rng, 4)):
        yield {"messages": [system(("\n    " if n % 2 else "\n").join(lines)), *messages]}


@planted("whitespace", "windows-line-ends")
def _(rng):
    text = SYSTEM.replace(". ", ".\n")
    for n, messages in enumerate(growing(rng, 4)):
        yield {"system": text.replace("\n", "\r\n") if n % 2 else text, "messages": messages, "max_tokens": 9}


# History.


@planted("history", "cut-from-the-front")
def _(rng):
    for messages in growing(rng, 7):
        yield {"messages": [system(SYSTEM), *messages[-5:]]}


@planted("history", "cut-without-a-system-part")
def _(rng):
    for messages in growing(rng, 7):
        yield {"messages": messages[-5:]}


@planted("history", "summarised")
def _(rng):
    for n, messages in enumerate(growing(rng, 6)):
        if n >= 3:
            told = user(f"Summary of what was said before: the customer asked {n - 2} questions and was answered politely.")
            messages = [told, *messages[2 * (n - 2) :]]
        yield {"messages": [system(SYSTEM), *messages]}


@planted("history", "an-answer-is-shortened")
def _(rng):
    for n, messages in enumerate(growing(rng, 5)):
        kept = [dict(one) for one in messages]
        if n >= 3:
            kept[1]["content"] = "[shortened]"
        yield {"messages": [system(SYSTEM), *kept]}


@planted("history", "anthropic-tool-result-cleared")
def _(rng):
    use = {"type": "tool_use", "id": "toolu_1", "name": "price_of", "input": {"part_number": "BX-7"}}
    call = {"role": "assistant", "content": [use]}
    for n, messages in enumerate(growing(rng, 4)):
        result = "old result cleared" if n >= 2 else "\n".join(f"BX-{k}: {7 + 3 * k} euros, in stock" for k in range(12))
        answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}]}
        said = {"role": "assistant", "content": "The part costs 28 euros and is in stock, shall I put one aside for you?"}
        yield {"system": SYSTEM, "messages": [user("What is BX-7?"), call, answer, said, *messages], "max_tokens": 9}


# Nothing to mend.


@planted("none", "growing-chat")
def _(rng):
    for messages in growing(rng, 7):
        yield {"messages": [system(SYSTEM), *messages]}


@planted("none", "two-chats-in-turn")
def _(rng):
    for pair in zip(growing(rng, 6), growing(rng, 6), strict=True):
        for messages in pair:
            yield {"messages": [system(SYSTEM), *messages]}


@planted("none", "one-shot-questions")
def _(rng):
    for question in QUESTIONS:
        yield {"messages": [system(SYSTEM), user(question)]}


@planted("none", "users-with-names-and-numbers")
def _(rng):
    for question in QUESTIONS:
        about = f"I am customer {rng.randint(1000, 9999)}, order {rng.randint(10**6, 10**7)}. "
        yield {"messages": [system(SYSTEM), user(about + question)]}


@planted("none", "stable-tools")
def _(rng):
    for messages in growing(rng, 6):
        yield {"messages": [system(SYSTEM), *messages], "tools": tools()}


@planted("none", "anthropic-growing")
def _(rng):
    for messages in growing(rng, 6):
        yield {"system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}], "messages": messages,
               "tools": tools(shape="anthropic"), "max_tokens": 9}  # fmt: skip


@planted("none", "clock-behind-everything")
def _(rng):
    kept = []
    for now, messages in zip(moments(rng), growing(rng, 6), strict=False):
        kept += [*messages[len(kept) : -1], user(f"{messages[-1]['content']}\n[sent {now:%Y-%m-%d %H:%M:%S}]")]
        yield {"messages": [system(SYSTEM), *kept]}


@planted("none", "times-in-questions")
def _(rng):
    for hour in range(8, 14):
        when = f"on 2026-04-{hour + 2:02d} at {hour}:30"
        yield {"messages": [system(SYSTEM), user(f"Can I come {when} with my {hour} speed bike?")]}


@planted("none", "a-question-is-asked-again")
def _(rng):
    for whole in (turns(rng, 3), turns(rng, 4), turns(rng, 2)):
        for end in (*range(1, len(whole), 2), len(whole)):
            yield {"messages": [system(SYSTEM), *whole[:end]]}


@planted("none", "last-question-edited")
def _(rng):
    whole = turns(rng, 4)
    for end in (1, 3, 5):
        yield {"messages": [system(SYSTEM), *whole[:end]]}
    for more in (" I ride it every day.", " It is a steel frame."):
        yield {"messages": [system(SYSTEM), *whole[:4], user(whole[4]["content"] + more)]}


@planted("none", "thanks-in-every-chat")
def _(rng):
    for k in rng.sample(range(8), 4):
        whole = [user(QUESTIONS[k]), {"role": "assistant", "content": ANSWERS[k]}, user("Thank you very much!"),
                 {"role": "assistant", "content": "You are welcome. Ride safely!"}, user("Bye, until next time!")]  # fmt: skip
        for end in (1, 3, 5):
            yield {"messages": [system(SYSTEM), *whole[:end]]}


def main() -> None:
    from tests.lint_corpus import make_varied

    LOGS.mkdir(exist_ok=True)
    for path in LOGS.glob("*--made-*.jsonl"):
        path.unlink()
    for cause, name, make in [*PLANTED, *make_varied.PLANTED]:
        lines = [json.dumps(one, ensure_ascii=False) for one in make(random.Random(name))]
        (LOGS / f"{cause}--{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
