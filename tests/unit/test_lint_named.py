"""What the linter names, and what it says where it names nothing: short texts in front, documents in lists, many turns."""

import json
import random
from itertools import chain

import pytest
from helpers import small_models as small_models

from kvcourse.causes import bare_parts
from kvcourse.prompts import judge as judging
from kvcourse.prompts.bodies import Body, body_of
from kvcourse.prompts.findings import item_texts, shared_characters
from kvcourse.prompts.judge import judge, pieces
from kvcourse.prompts.layout import lint_requests
from kvcourse.prompts.lint_page import as_page
from kvcourse.prompts.places import Place
from kvcourse.prompts.rewritten import rewritten

pytestmark = pytest.mark.usefixtures("small_models")

RULES = (
    "You are the assistant of a hardware shop. Answer briefly, be polite, and never promise a delivery date. Name a price only "
    "in euros. If a customer is angry, apologise first and help then. Always look at the stock before you answer a question. "
)
QUESTIONS = [
    "Do you sell hammers?",
    "How much is red paint?",
    "My drill is broken.",
    "Where is my order?",
    "Are you open?",
    "Why?",
]
DOCS = [f"Of {name} there are {n} kinds in the shop, and the {name} that cost most are in aisle {n}." for n, name in
        enumerate(("hammers", "paints", "drills", "nails", "glues"), start=3)]  # fmt: skip


def asked(texts, questions=QUESTIONS):
    """A request for each system part, with its own question."""
    turns = ({"role": "user", "content": one} for one in questions)
    return [{"messages": [{"role": "system", "content": text}, turn]} for text, turn in zip(texts, turns, strict=False)]


def causes(requests):
    return {group.cause for group in lint_requests(requests).faults} or {"none"}


# A short text in front of a long one.


@pytest.mark.parametrize(
    ("cause", "texts"),
    [
        ("id", ["Ann Lee", "Bob Ray", "Cleo May", "Dan Ho"]),
        ("id", ["Ann", "Bob", "Ann", "Bob"]),
        ("id", ["saws", "oil", "nails", "glue"]),
        ("id", ["0.73451", "0.18337", "0.99381"]),
        ("template", ["a helper", "a friend", "a helper", "a friend"]),
        ("template", ["", "so very ", "", "so very "]),
        ("none", ["a helper", "a friend"]),
        ("none", ["a helper", "a helper", "a friend", "a friend"]),
        ("none", ["a helper", "a friend", "a friend", "a helper"]),
        ("none", ["3", "3", "4", "4", "5", "5"]),
    ],
)
def test_a_family_tells_what_is_new_each_time_from_what_comes_again_and_from_what_was_edited(cause, texts):
    assert causes(asked([f"You talk to {text}. {RULES}" for text in texts])) == {cause}


def test_two_requests_are_no_family_unless_a_label_says_what_it_is():
    assert causes(asked([f"You talk to {name}. {RULES}" for name in ("Ann", "Bob")])) == {"none"}
    for label in ("Session: ", "user_id: ", "chat_id=", "tenant-id: t", "Ticket #", "Customer ", "Request "):
        assert causes(asked([f"{label}{n}\n{RULES}" for n in (48213, 99120)])) == {"id"}, label


@pytest.mark.parametrize("behind", [RULES[:150], ""])
def test_what_little_would_be_shared_is_no_fault(behind):
    rng = random.Random(1)
    own = [" ".join(rng.sample(RULES.split(), 20)) for _ in range(6)]
    names = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn"]
    assert causes(asked([f"You talk to {name}. {behind} {text}" for name, text in zip(names, own, strict=True)])) == {"none"}


def test_wordings_that_come_again_in_a_long_log_lose_too_little_to_be_named():
    many = [f"{word} number {n}?" for n in range(60) for word in ("Nail", "Screw")]
    assert causes(asked([f"You are {'a' if n % 2 else 'one'} helper. {RULES}" for n in range(120)], many)) == {"none"}


def test_the_first_difference_of_what_a_family_told_is_that_of_the_first_two():
    report = lint_requests(asked([f"You talk to {name}. {RULES}" for name in ("Ann", "Bob", "Cleo")]))
    first = report.groups[0].first_difference
    assert (first.request, first.against, first.message, first.character) == (2, 1, 0, len("You talk to "))
    assert (
        first.ours.startswith("Bob. You are") and first.theirs.startswith("Ann. You are") and first.before.endswith("talk to ")
    )
    assert first.why == "3 texts about a request or its user, in front of what is the same for all"
    assert [one.tokens_lost > 40 for one in report.counts] == [False, True, True]


def test_every_request_shares_what_it_can_is_said_only_where_it_is_so():
    shares, meant = "every request shares what it can", "stands in front of it is another text, and looks meant"
    clean = lint_requests(asked([RULES] * 6))
    assert shares in str(clean) and shares in as_page(clean, "a") and meant not in str(clean)
    for again in (
        asked([f"{RULES} You talk to {name}." for name in ("Ann", "Bob", "Cleo")], ["Where is my order, please?"] * 3),
        asked([f"You talk to {name}. {RULES}" for name in ("Ann", "Bob")]),
    ):
        report = lint_requests(again)
        assert report.faults == [] and shares not in str(report) and shares not in as_page(report, "a")
        assert f"{report.repeats} request" in str(report) and meant in str(report) and meant in as_page(report, "a")


def test_a_place_knows_few_of_many_texts():
    place = Place("name: ", ". Be", None)
    for n in range(1000):
        place.saw(f"name: user {n}. Be brief")
    place.saw("nothing of it")
    assert len(place.texts) <= 16 and place.different == place.requests == 1000 and place.cause.kind == "id"


# Documents.


def listed(docs):
    return json.dumps([{"id": n, "text": doc} for n, doc in docs])


def shuffled(seed):
    return random.Random(seed).sample(list(enumerate(DOCS)), 5)


WRITTEN = {
    "json in the system part": lambda docs, asked: [("system", f"{RULES}\nContext: {listed(docs)}"), ("user", asked)],
    "json and the question": lambda docs, asked: [("system", RULES), ("user", f"Context: {listed(docs)}\n{asked}")],
    "a message each": lambda docs, asked: [("system", RULES), *(("user", doc) for _, doc in docs), ("user", asked)],
    "scores": lambda docs, asked: [
        (
            "system",
            RULES + "\n" + "\n".join(f"[{k}] (score 0.{90 - 7 * k - len(asked)}) {doc}" for k, (_, doc) in enumerate(docs)),
        ),
        ("user", asked),
    ],
}


@pytest.mark.parametrize("form", WRITTEN)
def test_documents_in_another_order_are_found_and_mended_in_every_form(form):
    def log(order):
        return [{"messages": [{"role": role, "content": text} for role, text in WRITTEN[form](order(n), question)]}
                for n, question in enumerate(QUESTIONS)]  # fmt: skip

    report = lint_requests(log(shuffled))
    assert [group.cause for group in report.groups] == ["retrieval_order"]
    if form != "scores":  # these are new each time
        sorted_ones = lint_requests(log(lambda n: list(enumerate(DOCS))))
        rate = sorted_ones.total("cached_tokens") / sorted_ones.total("prompt_tokens")
        assert report.groups[0].suggestion.predicted_hit_rate == pytest.approx(rate, abs=0.06)


def test_the_objects_of_a_list_are_parts_and_what_is_around_it_is_none_of_them():
    text = 'Use [{"a": "one thing"}, {"a": "another"}] and answer: why?'
    assert list(bare_parts(text))[-1] == ["Use", 'a": "one thing"', 'a": "another"', "and answer: why?"]
    assert list(bare_parts("no list, one line")) == [["no list, one line"]] * 3


def test_turns_of_two_people_are_no_documents():
    said = [
        {"role": "user", "content": "Where is the red paint, please?"},
        {"role": "user", "content": "And where are the nails?"},
    ]
    answer = {"role": "assistant", "content": "In aisle four, behind the ladders."}
    one, other = ([first, answer, second] for first, second in (said, said[::-1]))
    found = judge(body_of({"messages": one}), body_of({"messages": other})).findings
    assert "retrieval_order" not in {finding.cause.kind for finding in found}


# Where it is.


@pytest.mark.parametrize("spaces", ["  ", "\n\n", "\t"])
def test_spaces_at_the_start_of_a_message_are_shown_without_what_opens_the_message(spaces):
    first = lint_requests(asked([RULES, spaces + RULES])).groups[0].first_difference
    assert (first.message, first.character) == (0, 0) and first.before.endswith("<|im_start|>system\n")
    assert first.ours.startswith(spaces + "You are") and first.theirs.startswith("You are")


@pytest.mark.parametrize("seed", range(30))
def test_a_difference_stands_in_the_message_at_the_character_that_is_named(seed):
    rng = random.Random(seed)
    spoil = [
        lambda text: "\n " + text,
        lambda text: text.replace(" ", "  ", 1),
        lambda text: f"10:{rng.randint(10, 59)} {text}",
        lambda text: f"Request ID: {rng.randint(1000, 9999)}\n{text}",
    ]
    requests = asked([spoil[n](RULES) if rng.random() < 0.6 else RULES for n in (rng.randrange(4) for _ in range(6))])
    for group in lint_requests(requests).faults:
        first = group.first_difference
        here, there = (requests[line - 1]["messages"][0]["content"] for line in (first.request, first.against))
        behind = "\n\n<|im_end|>"
        assert (here + behind)[first.character :].startswith(first.ours.split(behind)[0])
        assert (there + behind)[first.character :].startswith(first.theirs.split(behind)[0])


# Long texts and many turns.


def test_a_word_without_a_digit_is_read_once_and_not_again_from_each_of_its_letters():
    pattern = judging._WITH_DIGIT
    text = "file 1: " + 50 * "https://x.y/abc/" + " end 2x"
    assert pattern.match("ab1", 0) and not pattern.match("ab1", 1), "tried at the first letter of a word only"
    assert pattern.sub("", text).split() == ["file", 50 * "https://x.y/abc/", "end"]
    assert dict(pieces(text)) == dict(pieces(text.replace("1", "77")))


class Turn(dict):
    """A message that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Turn.compared += 1
        return dict.__eq__(self, other)

    __hash__ = None


def work(n, text):
    def body(k):
        said = ({"role": "user", "content": text(j)} for j in range(n))
        return Body(tuple(map(Turn, chain([{"role": "user", "content": f"start {k} of the work"}], said))))

    Turn.compared = 0
    rewritten(body(1), body(2), 0)
    return Turn.compared


@pytest.mark.parametrize("text", [lambda j: "ok", lambda j: "ok" if j % 7 else "no"])
def test_equal_turns_are_compared_a_few_times_each_however_many_there_are(text):
    assert work(800, text) <= 3 * max(work(400, text), 800)


@pytest.mark.parametrize("seed", range(60))
def test_of_turns_cut_or_replaced_the_ones_are_found_from_which_on_all_is_as_it_was(seed):
    """The mended request begins with all of the earlier one, and ends as it was."""
    rng = random.Random(seed)
    turns = [{"role": ("user", "assistant")[n % 2], "content": rng.choice(["yes please", "no thanks", "tell me more of it"])}
             for n in range(rng.randint(5, 12))]  # fmt: skip
    gone = rng.randint(1, 3)
    later = [*turns[gone:], {"role": "user", "content": "and now something else"}]
    ours, theirs = (body_of({"messages": one}) for one in (later, turns))
    first = next((n for n, (a, b) in enumerate(zip(later, turns, strict=False)) if a != b), None)
    found = rewritten(ours, theirs, first) if first is not None else None
    if found is None:
        return
    mended = found[1].messages
    assert mended[: len(turns)] == tuple(turns) and mended[-1] == later[-1]
    assert shared_characters(found[1], theirs) == sum(map(len, item_texts(theirs)))
