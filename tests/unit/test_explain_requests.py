"""`kvcourse explain` on two requests: documents, other people's system parts, a rate that is measured, and hostile JSON."""

import json
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
import torch
from explain_helpers import explainer
from helpers import small_models as small_models

from kvcourse import cli_explain
from kvcourse.cli_explain import Source, compared, find
from kvcourse.errors import InputError
from kvcourse.prompts.bodies import body_of, read_body
from kvcourse.prompts.layout import lint_requests
from kvcourse.prompts.rate import PASSES
from kvcourse.prompts.report import milliseconds, rate_of

pytestmark = pytest.mark.usefixtures("small_models")
CHARACTERS = Source(None, None)
CAT, DOG = "What is a cat?", "And what is a dog?"
CLOCKED = ("Current time: 10:23:45. Be kind to everybody.", "Current time: 10:24:01. Be kind to everybody.")
DOCS = [
    "Oslo is the capital of Norway and a large port town.",
    "Bergen is a town on the west coast, known for rain.",
    "Narvik lies far in the north and has a railway to Sweden.",
]
RULES = "You help with trains. Use only these documents."


def body(*turns, system=None, **more):
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "assistant" if n % 2 else "user", "content": turn} for n, turn in enumerate(turns)]
    return {"messages": messages, **more}


@pytest.fixture
def run(tmp_path, capsys):
    return explainer(tmp_path, capsys)


# Documents.


@pytest.mark.parametrize("order", [(1, 0), (2, 0, 1), (0, 2, 1)])
@pytest.mark.parametrize("asked", [CAT, DOG], ids=["same question", "another question"])
@pytest.mark.parametrize("source", ["smollm2", None], ids=["tokens", "characters"])
def test_documents_that_end_a_message_are_found_in_another_order(order, asked, source):
    docs = DOCS[: len(order)]
    earlier, later = (body(question, system="\n\n".join([RULES, *some])) for question, some in
                      ((CAT, docs), (asked, [docs[n] for n in order])))  # fmt: skip
    known = find(source) if source else CHARACTERS
    report, _ = compared(body_of(earlier), body_of(later), known, None)
    assert report.cause == "retrieval_order"
    if asked == CAT:
        assert lint_requests([earlier, later]).groups[0].cause == report.cause
    moved = sum(len(doc) for n, doc in zip(order, docs, strict=True) if n != docs.index(doc))
    assert report.lost_tokens > (moved if source is None else moved // 6)
    assert report.matched_tokens + report.lost_tokens < report.total_tokens


# Whose conversation it is.


@pytest.mark.parametrize(
    ("cause", "earlier", "later"),
    [
        ("content", body(CAT, system="You talk to Anna. Be brief."), body(CAT, system="You talk to Berta. Be brief.")),
        (
            "content",
            body("Hello there!", "Hello.", CAT, system="You talk to Anna. Be brief."),
            body(CAT, system="You talk to Berta. Be brief."),
        ),
        (
            "content",
            body("I am Anna.", "Hello, Anna.", CAT, system="You talk to Anna. Be brief."),
            body("I am Berta.", "Hello, Berta.", CAT, system="You talk to Berta. Be brief."),
        ),
        (
            "content",
            body("I am Anna.", "Hello, Anna.", CAT, system="You talk to people."),
            body("I am Berta.", "Hello, Berta.", CAT, system="You talk to people. Be brief."),
        ),
        ("clock", body(CAT, system=CLOCKED[0]), body(CAT, system=CLOCKED[1])),
        ("clock", body(CAT, "An animal.", DOG, system=CLOCKED[0]), body(CAT, "An animal.", DOG, system=CLOCKED[1])),
        (
            "template",
            body(CAT, "It is an animal.", DOG, system="Answer in one sentence."),
            body(CAT, "It is an animal.", DOG, "Another.", "So?", system="Think about it, then answer."),
        ),
        (
            "history",
            body(CAT, "It is an animal.", DOG, "Another one.", "What do they eat?", system="Answer in one sentence."),
            body("What do they eat?", system="Answer in one sentence. So far: cats, dogs."),
        ),
        ("history", body(CAT, "An animal.", DOG, system="Be kind."), body("A cat is?", "An animal.", DOG, system="Be kind.")),
    ],
)
def test_the_same_question_behind_another_system_part_is_no_rewritten_history(cause, earlier, later):
    report, _ = compared(body_of(earlier), body_of(later), CHARACTERS, None)
    assert report.cause == cause
    assert (report.advice is None) == (report.lost_tokens == 0) == (cause == "content")


def test_a_reminder_in_the_middle_that_both_have_is_no_turn_that_stayed():
    reminder = {"role": "system", "content": "Remember to be brief and kind."}
    one, other = ({"messages": [*body(*turns)["messages"], reminder]} for turns in ((CAT, "An animal."), (DOG, "Another.")))
    assert compared(body_of(one), body_of(other), CHARACTERS, None)[0].cause == "content"


# Milliseconds.

TIMED = body(CAT, system=CLOCKED[0]), body(CAT, system=CLOCKED[1])


def test_a_rate_is_measured_on_the_model_itself_and_said_to_be(run):
    status, out, err = run(*TIMED, "--measure", "--json")
    report = json.loads(out)
    assert (status, err, report["measured_on_tokens"]) == (1, "", 128) and report["prefill_tokens_per_s"] > 0
    assert report["lost_ms"] == pytest.approx(1000 * report["lost_tokens"] / report["prefill_tokens_per_s"])
    out = run(*TIMED, "--measure")[1]
    line = next(line for line in out.splitlines() if line.startswith("rate "))
    assert f"measured here on 128 tokens, median of {PASSES} passes" in line and "ms of prefill" in out


def test_without_a_rate_one_line_names_the_two_ways_to_have_one(run):
    lines = run(*TIMED)[1].splitlines()
    assert [line for line in lines if "rate" in line] == [
        "time    no prefill rate is known: add --measure, or --prefill-rate N"
    ]
    assert "leave --plain out" in run(*TIMED, "--plain")[1]
    report = json.loads(run(*TIMED, "--json")[1])
    assert (report["lost_ms"], report["prefill_tokens_per_s"], report["measured_on_tokens"]) == (None, None, None)
    assert "no prefill rate" not in run(*TIMED, "--prefill-rate", "500")[1]


def test_where_nothing_is_lost_no_model_is_loaded_and_no_rate_is_missed(run, monkeypatch):
    monkeypatch.setattr(cli_explain, "measured", lambda model: pytest.fail("a model was loaded"))
    status, out, _ = run(body(CAT, system="Be kind."), body(DOG, system="Be kind."), "--measure")
    assert status == 1 and "rate" not in out and "lost    nothing" in out
    assert json.loads(run(body(CAT), body(CAT, "An animal.", DOG), "--json")[1])["lost_ms"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--measure", "--plain"], "--plain"),
        (["--measure", "--prefill-rate", "5"], "--prefill-rate"),
        (["--prefill-rate", "inf"], "A rate is above 0"),
    ],
)
def test_options_that_contradict_each_other_and_rates_that_are_none_are_one_line(run, options, said):
    status, out, err = run(*TIMED, *options)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and said in err


@pytest.mark.parametrize("value", [0, -1, True, False, "x", "5", b"5", float("nan"), float("inf"), 10**400, None, [5]])
def test_what_is_no_rate_is_refused_whatever_it_is(value):
    with pytest.raises(InputError, match=r"A rate is above 0\. Expected tokens a second; got"):
        rate_of(value)


@pytest.mark.parametrize("value", [5, 5.0, np.float32(5), np.int64(5), torch.tensor(5.0), Fraction(5)])
def test_a_rate_may_be_any_number(value):
    rate = rate_of(value)
    assert (type(rate), rate, milliseconds(10, rate)) == (float, 5, 2000)


def test_a_folder_without_weights_cannot_be_measured_and_says_so(run, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    status, out, err = run(*TIMED, "--model", str(folder), "--measure")
    assert (status, out, len(err.splitlines())) == (2, "", 1)


# JSON that nobody means well with.


def deep(n: int, start: str = "[", end: str = "]") -> str:
    return start * n + end * n


NESTED = {
    "tools": '{"messages": [{"role": "user", "content": "cat"}], "tools": [{"name": "a", "x": DEEP}]}',
    "calls": '{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"x": DEEP}]}]}',
    "use": '{"messages": [{"role": "user", "content": [{"type": "tool_use", "name": "a", "input": DEEP}]}]}',
    "results": '{"messages": [{"role": "user", "content": RESULTS}]}',
    "role": '{"messages": [{"role": DEEP, "content": "x"}]}',
    "all of it": "DEEP",
}


def nested(place: str, n: int) -> str:
    results = deep(n // 2, '[{"type": "tool_result", "content": ', "}]")
    return NESTED[place].replace("DEEP", deep(n)).replace("RESULTS", results)


@pytest.mark.parametrize("place", NESTED)
def test_nesting_of_any_depth_is_compared_or_refused(place, tmp_path):
    path = tmp_path / "deep.json"
    plain, ends = body_of(body(CAT, tools=[{"name": "a"}])), set()
    for n in chain(range(100, 900, 100), range(900, 1000), (10_000,)):
        path.write_text(nested(place, n), encoding="utf-8")
        try:
            read = read_body(path)
            compared(plain, read, CHARACTERS, None)
            compared(read, plain, CHARACTERS, None)
            ends.add("compared")
        except InputError as error:
            assert "deep.json" in str(error)
            ends.add("refused")
    assert "refused" in ends


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000, "1e999"])
def test_numbers_of_any_size_are_compared_or_refused(run, digits):
    tools = f'{{"messages":[{{"role":"user","content":"cat"}}],"tools":[{{"name":"a","x":{digits}}}]}}'
    for first, second in ((body(CAT), tools), (tools, body(CAT))):
        status, _, err = run(first, second, "--plain")
        assert (status, len(err.splitlines())) in ((1, 0), (2, 1))
