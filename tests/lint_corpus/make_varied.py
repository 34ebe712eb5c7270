"""More logs for `make`: what stands in front of a shared system part, documents in lists, and what is no fault of the kind."""

import json
import random
from collections.abc import Callable, Iterator

from tests.lint_corpus.make import ANSWERS, DOCS, QUESTIONS, SYSTEM, growing, moments, system, user

PLANTED: list[tuple[str, str, Callable]] = []
NAMES = ["Ann Lee", "Bob Ray", "Cleo May", "Dan Ho", "Eve Fox", "Finn Orr"]
WORDS = "river stone window market copper garden letter winter signal harbor pencil violet table engine forest mirror".split()


def planted(cause: str, name: str) -> Callable:
    def keep(make: Callable) -> Callable:
        PLANTED.append((cause, f"made-{name}", make))
        return make

    return keep


def prose(rng: random.Random, sentences: int) -> str:
    """Text that nobody else says."""
    return " ".join(" ".join(rng.choice(WORDS) for _ in range(rng.randint(6, 11))).capitalize() + "." for _ in range(sentences))


def one_shot(texts: Iterator[str] | list[str]) -> Iterator[dict]:
    """Each system part with its own question."""
    for text, question in zip(texts, QUESTIONS, strict=False):
        yield {"messages": [system(text), user(question)]}


def _in_front(cause: str, name: str, write: Callable[[random.Random, int], str], n: int = 6) -> None:
    @planted(cause, name)
    def _(rng):
        yield from one_shot([write(rng, k) + SYSTEM for k in range(n)])


# Clocks that are neither ISO nor in words.

for _name, _form in {
    "am-on-a-weekday": "It is now %I:%M %p on %A.\n", "two-digit-year": "%m/%d/%y %H:%M\n", "fourteen-digits": "%Y%m%d%H%M%S\n",
    "web-server-log": "[%d/%b/%Y:%H:%M:%S +0000]\n", "weekday-and-hour": "Today is %A, 9am.\n", "six-digits": "Date: %y%m%d\n",
    "french": "Nous sommes le %d mars 2026, il est %Hh%M.\n",
}.items():  # fmt: skip

    def _clock(rng, form=_form):
        days = list(zip(moments(rng), range(120), strict=False))[::20]
        yield from one_shot([now.strftime(form) + SYSTEM for now, _ in days])

    planted("clock", _name)(_clock)


@planted("clock", "a-weekday-on-a-line-of-its-own")
def _(rng):
    yield from one_shot([f"You help customers.\n{day}\n{SYSTEM}" for day in ("Monday", "Tuesday", "Friday", "Sunday")])


# What is new in each request, or for each user.

for _name, _write in {
    "session-number": lambda rng, k: f"Session: {rng.randint(10000, 99999)}\n",
    "user-id": lambda rng, k: f"user_id: {rng.randint(10000, 99999)}\n",
    "tenant-id": lambda rng, k: f"tenant-id: t{rng.randint(10000, 99999)}\n",
    "ticket": lambda rng, k: f"Ticket #{rng.randint(10000, 99999)}\n",
    "customer-number": lambda rng, k: f"Customer {rng.randint(10000, 99999)}. ",
    "commit": lambda rng, k: f"commit {rng.getrandbits(24) | 1 << 27:07x}\n",
    "request-id-in-letters": lambda rng, k: f"Request ID: {''.join(rng.choice('abcdefghkmnp') for _ in range(6))}\n",
    "ten-digits": lambda rng, k: f"Request {rng.randint(10**9, 10**10)}\n",
    "request-counter": lambda rng, k: f"[request {k + 1}] ",
    "random-number": lambda rng, k: f"{rng.random():.12f}\n",
    "address": lambda rng, k: f"client ip 10.0.{rng.randint(0, 255)}.{rng.randint(0, 255)}\n",
    "e-mail": lambda rng, k: f"You talk to {NAMES[k].split()[0].lower()}@example.com. ",
    "name-of-the-user": lambda rng, k: f"You are talking to {NAMES[k]}. ",
    "language-of-the-user": lambda rng, k: f"Language: {['en', 'de', 'fr', 'it', 'nl', 'cs'][k]}\n",
    "memory-of-the-user": lambda rng, k: f"<memory>\nThe user likes {WORDS[k]}s.\n</memory>\n",
}.items():
    _in_front("id", _name, _write)


@planted("id", "sessions-of-users")
def _(rng):
    for name in NAMES[:4]:
        for messages in growing(rng, 2):
            yield {"messages": [system(f"You are talking to {name}. {SYSTEM}"), *messages]}


# A few wordings in turn.

for _name, _pair in {
    "helpful-or-friendly": ("You are helpful. ", "You are friendly. "), "headings": ("# Instructions\n", "## Rules\n"),
    "quotes": ("You're an assistant. ", "You’re an assistant. "), "bold": ("**Rules**: ", "Rules: "),
    "version-line": ("# System prompt version A\n", "# System prompt version B\n"), "a-sentence-more": ("", "You are kind. "),
}.items():  # fmt: skip
    _in_front("template", f"one-shot-{_name}", lambda rng, k, pair=_pair: pair[k % 2])


@planted("template", "one-shot-wrapped-in-tags")
def _(rng):
    yield from one_shot([f"<rules>{SYSTEM}</rules>" if k % 2 else SYSTEM for k in range(6)])


# Documents in other forms.


def listed(rng: random.Random) -> str:
    return json.dumps([{"id": DOCS.index(doc), "text": doc} for doc in rng.sample(DOCS, 5)])


@planted("retrieval_order", "json-list-in-the-system-part")
def _(rng):
    yield from one_shot([f"{SYSTEM}\nContext: {listed(rng)}" for _ in range(6)])


@planted("retrieval_order", "json-list-in-front-of-the-question")
def _(rng):
    for question in QUESTIONS[:6]:
        yield {"messages": [system(SYSTEM), user(f"Context: {listed(rng)}\n{question}")]}


@planted("retrieval_order", "a-message-each")
def _(rng):
    for question in QUESTIONS[:6]:
        yield {"messages": [system(SYSTEM), *map(user, rng.sample(DOCS, 5)), user(question)]}


@planted("retrieval_order", "with-scores")
def _(rng):
    docs = [[f"[{n}] (score {rng.random():.2f}) {doc}" for n, doc in enumerate(rng.sample(DOCS, 5), 1)] for _ in range(6)]
    yield from one_shot([f"{SYSTEM}\n\n" + "\n\n".join(some) for some in docs])


# Nothing to mend.


@planted("none", "users-with-long-own-texts")
def _(rng):
    yield from one_shot([f"{prose(rng, 8)}\n\n{SYSTEM}" for _ in range(6)])


@planted("none", "users-with-long-own-texts-behind")
def _(rng):
    yield from one_shot([f"{SYSTEM}\n\nAbout the user: {prose(rng, 8)}" for _ in range(6)])


@planted("none", "long-own-memory-in-the-middle")
def _(rng):
    yield from one_shot([f"{SYSTEM[:150]}\n{prose(rng, 6)}\n{SYSTEM[150:]}" for _ in range(6)])


@planted("none", "classification-text-last")
def _(rng):
    for _ in range(8):
        yield {"messages": [user(f"Is the sentence kind, rude or neither?\n\n{SYSTEM}\n\nSentence: {prose(rng, 1)}")]}


@planted("none", "classification-then-a-word")
def _(rng):
    for _ in range(8):
        yield {"messages": [system(f"{SYSTEM}\nThe text: {prose(rng, 1)}\nAnswer in one word."), user("Go.")]}


@planted("none", "tenants-with-a-small-shared-front")
def _(rng):
    own = [prose(rng, 8) for _ in range(3)]
    yield from one_shot([f"You are the assistant of shop {k}. {own[k]} Be brief and polite." for k in (0, 1, 2, 0, 1, 2, 0, 1)])


@planted("none", "tenants-in-a-table-of-facts")
def _(rng):
    fields = ("Name", "City", "Owner", "Street", "Hours", "Phone", "Mail", "Note")
    rows = ["\n".join(f"{one}: {rng.choice(WORDS)} {rng.choice(WORDS)}" for one in fields) for _ in range(6)]
    yield from one_shot([f"Facts of the shop\n{table}\nAnswer from the facts." for table in rows])


@planted("none", "system-part-edited-once")
def _(rng):
    yield from one_shot([SYSTEM if k < 4 else SYSTEM.replace("small", "large") for k in range(8)])


@planted("none", "system-part-edited-and-taken-back")
def _(rng):
    yield from one_shot([SYSTEM.replace("small", "large") if k in (3, 4) else SYSTEM for k in range(8)])


@planted("none", "a-number-is-tuned")
def _(rng):
    yield from one_shot([f"Name {3 + k // 3} reasons at most. {SYSTEM}" for k in range(8)])


@planted("none", "version-goes-up-with-each-release")
def _(rng):
    for k, question in enumerate([*QUESTIONS, *QUESTIONS[:4]]):
        yield {"messages": [system(f"Prompt version 1.{k // 5}.\n{SYSTEM}"), user(f"{question} {prose(rng, 1)}")]}


@planted("none", "name-behind-the-system-part")
def _(rng):
    yield from one_shot([f"{SYSTEM} You are talking to {name}." for name in NAMES])


@planted("none", "sessions-with-a-name-behind-the-system-part")
def _(rng):
    for name in NAMES[:4]:
        for messages in growing(rng, 3):
            yield {"messages": [system(f"{SYSTEM} The user is {name}."), *messages]}


@planted("none", "id-behind-the-question")
def _(rng):
    for question in QUESTIONS[:6]:
        yield {"messages": [system(SYSTEM), user(f"{question}\nRequest ID: {rng.randint(10**6, 10**7)}")]}


@planted("none", "planner-and-critic")
def _(rng):
    texts = [f"You are the {role}. {prose(rng, 6)} Be brief." for role in ("planner", "critic")]
    yield from one_shot([texts[k % 2] for k in range(8)])


@planted("none", "few-shot-turns-and-a-question")
def _(rng):
    shots = [one for k in range(3) for one in (user(QUESTIONS[k]), {"role": "assistant", "content": ANSWERS[k]})]
    for _ in range(6):
        yield {"messages": [system(SYSTEM), *shots, user(prose(rng, 1))]}


@planted("none", "weekdays-in-questions")
def _(rng):
    for day in ("Monday", "Tuesday", "Friday", "Saturday"):
        yield {"messages": [system(SYSTEM), user(f"Are you open on {day}, at 9am or later?")]}


@planted("none", "other-documents-each-time-a-message-each")
def _(rng):
    for question in QUESTIONS[:6]:
        yield {"messages": [system(SYSTEM), *(user(prose(rng, 2)) for _ in range(3)), user(question)]}


@planted("none", "other-json-documents-each-time")
def _(rng):
    for question in QUESTIONS[:6]:
        found = json.dumps([{"id": rng.randint(100, 999), "text": prose(rng, 2)} for _ in range(3)])
        yield {"messages": [system(SYSTEM), user(f"Context: {found}\n{question}")]}
