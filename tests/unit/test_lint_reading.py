"""What the linter reads of a request: every field by its kind, blocks, marks, schemas, models, batches."""

import json
import random

import pytest
from helpers import small_models as small_models

from kvcourse.cli import main
from kvcourse.errors import InputError
from kvcourse.prompts.bodies import body_of, read_body
from kvcourse.prompts.layout import lint_requests
from kvcourse.prompts.logs import Entry, entries_of

pytestmark = pytest.mark.usefixtures("small_models")
LONG = " ".join(f"Rule {n}: be kind to whoever asks, and say what you do not know." for n in range(120))
QUESTIONS = ["Do you sell hammers?", "How much is red paint?", "My drill is broken.", "Where is my order?"]
DOCS = [f"Facts about part {k}: " + f"it is told at length what part {k} is good for. " * 6 for k in range(5)]
MARK = {"cache_control": {"type": "ephemeral"}}


def asked(question, text=LONG, **more):
    return {"messages": [{"role": "system", "content": text}, {"role": "user", "content": question}], **more}


def tool(name, **more):
    return {"name": name, "description": f"Calls {name} and returns what it says.", "input_schema": {"type": "object"}, **more}


def marked_last(tools):
    return [*tools[:-1], {**tools[-1], **MARK}]


def causes(requests, **options):
    return [group.cause for group in lint_requests(requests, **options).groups]


# Fields of another kind.

ODD = [5, 0, True, False, 1.5, "x", "", {}, {"a": 1}, [], [5], [None], ["x"], [[]], None]
PLACES = {
    "system": lambda odd: {"system": odd, "messages": [{"role": "user", "content": "x"}]},
    "tools": lambda odd: {"messages": [{"role": "user", "content": "x"}], "tools": odd},
    "functions": lambda odd: {"messages": [{"role": "user", "content": "x"}], "functions": odd},
    "a function": lambda odd: {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": odd, **MARK}]},
    "messages": lambda odd: {"messages": odd},
    "role": lambda odd: {"messages": [{"role": odd, "content": "x"}]},
    "content": lambda odd: {"messages": [{"role": "user", "content": odd}]},
    "a part": lambda odd: {"messages": [{"role": "user", "content": [odd, {"type": "text", "text": "y"}]}]},
    "a part's type": lambda odd: {"messages": [{"role": "user", "content": [{"type": odd, "text": "x"}]}]},
    "a part's text": lambda odd: {"messages": [{"role": "user", "content": [{"type": "text", "text": odd}]}]},
    "a thought": lambda odd: {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": odd}]}]},
    "a result": lambda odd: {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": odd}]}]},
    "tool_calls": lambda odd: {"messages": [{"role": "user", "content": "x", "tool_calls": odd}]},
    "a call": lambda odd: {"messages": [{"role": "user", "content": "x", "tool_calls": [odd]}]},
    "a called function": lambda odd: {"messages": [{"role": "user", "content": "x", "tool_calls": [{"function": odd}]}]},
    "function_call": lambda odd: {"messages": [{"role": "user", "content": "x", "function_call": odd}]},
    "refusal": lambda odd: {"messages": [{"role": "assistant", "content": None, "refusal": odd}]},
    "response_format": lambda odd: {**asked("x"), "response_format": odd},
    "a schema": lambda odd: {**asked("x"), "response_format": {"type": "json_schema", "json_schema": odd}},
    "output_config": lambda odd: {**asked("x"), "output_config": odd},
    "prompt_cache_options": lambda odd: {**asked("x"), "prompt_cache_options": odd},
    "cache_control": lambda odd: {**asked("x"), "cache_control": odd},
    "model": lambda odd: {**asked("x"), "model": odd},
    "body": lambda odd: {"body": odd},
    "request": lambda odd: {"request": odd, "model": odd},
    "params": lambda odd: {"params": {"body": odd}},
    "usage": lambda odd: {"request": asked("x"), "usage": odd},
    "response": lambda odd: {"request": asked("x"), "response": odd, "timestamp": odd},
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_whatever_kind_a_field_is_of_the_rest_of_the_log_is_read(place, tmp_path):
    for odd in ODD:
        line = PLACES[place](odd)
        for provider in ("local", "anthropic", "openai:breakpoints"):
            report = lint_requests([asked("a"), line, asked("b")], provider=provider)
            assert report.requests + report.skipped_lines == 3 and report.skipped_lines <= 1
        path = tmp_path / "body.json"
        path.write_text(json.dumps(line))
        try:
            read_body(path)
        except InputError:
            continue


@pytest.mark.parametrize("field", ["tool_calls", "tools", "functions"])
@pytest.mark.parametrize("odd", [5, True, 1.5, False, 0, "ab", "", {"name": "f"}, {}, [5], ["ab"], [None]], ids=repr)
def test_a_list_of_objects_that_is_none_is_refused_and_neither_read_by_its_letters_nor_passed_over(field, odd):
    message = {"role": "assistant", "content": "x"}
    body = {"messages": [{**message, field: odd}]} if field == "tool_calls" else {"messages": [message], field: odd}
    with pytest.raises(InputError, match="cannot be compared"):
        body_of(body)


def test_such_a_line_is_named_by_both_commands(tmp_path, capsys):
    bad, good, log = tmp_path / "bad.json", tmp_path / "good.json", tmp_path / "log.jsonl"
    bad.write_text('{"messages": [{"role": "user", "content": "x", "tool_calls": 5}]}')
    good.write_text(json.dumps(asked("x")))
    log.write_text(bad.read_text() + "\n" + good.read_text() + "\n")
    for arguments, status in ((["explain", str(bad), str(good), "--plain"], 2), (["lint", str(log)], 0)):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        err = capsys.readouterr().err
        assert (end.value.code or 0) == status and "tool_calls in a list" in err and "Traceback" not in err


# Tools, schemas and calls.


@pytest.mark.parametrize("provider", ["local", "anthropic:512"])
def test_a_mark_on_a_tool_is_no_part_of_its_text(provider):
    tools = [tool(name) for name in ("stock", "price", "order")]
    orders = [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]]
    moved = [asked(q, tools=marked_last([tools[k] for k in order])) for q, order in zip(QUESTIONS, orders, strict=True)]
    assert causes(moved, provider=provider) == ["tool_order"]
    on_and_off = [asked(q, tools=marked_last(tools) if n % 2 else tools) for n, q in enumerate(QUESTIONS)]
    on_another = [asked(q, tools=[*marked_last(tools[: n % 3 + 1]), *tools[n % 3 + 1 :]]) for n, q in enumerate(QUESTIONS)]
    inside = [asked(q, tools=[{"type": "function", "function": {**tool("f"), **(MARK if n % 2 else {})}}])
              for n, q in enumerate(QUESTIONS)]  # fmt: skip
    for same in (on_and_off, on_another, inside):
        report = lint_requests(same, provider=provider)
        assert report.faults == [] and report.total("tokens_lost") == 0
        if provider == "local":
            assert report.total("cached_tokens") > 3 * len(LONG) // 4


def test_a_mark_on_a_tool_still_says_what_anthropic_stores():
    long = [tool(name, note=LONG) for name in ("stock", "price")]
    requests = [{"system": f"{n}{n}{n} {LONG}", "tools": marked_last(long), "messages": [{"role": "user", "content": "x"}]}
                for n in "abcd"]  # fmt: skip
    unmarked = [{**one, "tools": [*marked_last(long[:1]), long[1]]} for one in requests]
    both, first = (lint_requests(one, provider="anthropic").total("cached_tokens") for one in (requests, unmarked))
    assert both == pytest.approx(2 * first, rel=0.01) and first > 3 * len(LONG) // 4


def test_functions_as_they_were_named_before_are_tools():
    listed = [
        {"name": name, "description": f"Calls {name}.", "parameters": {"type": "object"}}
        for name in ("stock", "price", "order")
    ]
    assert causes([asked(q, functions=random.Random(n).sample(listed, 3)) for n, q in enumerate(QUESTIONS)]) == ["tool_order"]
    changed = [{**listed[0], "description": "Calls stock, and says so."}, *listed[1:]]
    assert causes([asked(q, functions=changed if n % 2 else listed) for n, q in enumerate(QUESTIONS)]) == ["schema"]
    counted = [
        lint_requests([asked("x", **more)]).total("prompt_tokens") for more in ({}, {"functions": listed}, {"tools": listed})
    ]
    assert counted[0] < counted[1] == counted[2]
    called = {"role": "assistant", "content": None, "function_call": {"name": "stock", "arguments": "{}"}}
    assert '"stock"' in body_of({"messages": [called]}).messages[0]["content"]


@pytest.mark.parametrize("form", ["response_format", "output_format", "output_config"])
@pytest.mark.parametrize("provider", ["local", "openai", "anthropic"])
def test_another_schema_for_the_answer_is_a_miss_in_front_of_the_system_part(form, provider):
    def request(question, fields):
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in fields}}
        inner = (
            {"json_schema": {"name": f"s{len(fields)}", "schema": schema}} if form == "response_format" else {"schema": schema}
        )
        asked_for = {"type": "json_schema", **inner}
        return asked(question, **{form: {"format": asked_for} if form == "output_config" else asked_for})

    same = lint_requests([request(q, "ab") for q in QUESTIONS], provider=provider)
    new = lint_requests([request(q, "abcdefgh"[: n + 1]) for n, q in enumerate(QUESTIONS)], provider=provider)
    assert same.faults == [] and same.total("cached_tokens") > 3 * 1024
    assert [group.cause for group in new.groups] == ["schema"] and new.total("cached_tokens") < 300
    assert new.groups[0].first_difference.message == "tools"


def test_an_answer_of_any_json_has_no_schema():
    requests = [asked(q, response_format={"type": ("text", "json_object")[n % 2]}) for n, q in enumerate(QUESTIONS)]
    assert causes(requests) == ["none"] and body_of(requests[0]).tools == ()


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_a_call_that_is_named_anew_each_time_is_seen_in_both_forms(form):
    def request(n):
        name = f"call_{random.Random(n).getrandbits(60):015x}"
        if form == "openai":
            call = {"id": name, "type": "function", "function": {"name": "stock", "arguments": '{"q": "h"}'}}
            turns = [{"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": name, "content": LONG}]  # fmt: skip
        else:
            turns = [{"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": "stock", "input": {"q": "h"}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": LONG}]}]  # fmt: skip
        behind = [
            one
            for k in range(n)
            for one in ({"role": "assistant", "content": f"Answer {k}"}, {"role": "user", "content": f"And {k}?"})
        ]
        return {"messages": [{"role": "user", "content": "Do you have hammers?"}, *turns, *behind]}

    report = lint_requests([request(n) for n in range(4)])
    assert [group.cause for group in report.groups] == ["id"] and report.total("tokens_lost") > 2 * len(LONG) // 4


def test_what_a_model_thought_is_text_of_its_turn():
    thought = [{"type": "thinking", "thinking": LONG, "signature": "x"}, {"type": "redacted_thinking", "data": "YQ=="}]
    turn = {"role": "assistant", "content": [*thought, {"type": "text", "text": "ok"}]}
    request = {"messages": [{"role": "user", "content": "hi"}, turn, {"role": "user", "content": "more"}]}
    report = lint_requests([request, request])
    assert report.skipped_lines == 0 and report.total("cached_tokens") > len(LONG) // 4
    assert body_of(request).messages[1]["content"] == f"{LONG}\nYQ==\nok"


# Blocks.


def test_blocks_are_told_apart_and_a_single_one_reads_as_the_text_alone():
    def said(*texts):
        return body_of({"messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in texts]}]})

    assert said("one text") == body_of({"messages": [{"role": "user", "content": "one text"}]})
    contents = [
        said(*texts).messages[0]["content"] for texts in (("a", "b"), ("a\n", "b"), ("a", "", "b"), ("", "a"), ("a", ""))
    ]
    assert contents == ["a\nb", "a\nb", "a\nb", "a", "a"]


@pytest.mark.parametrize("end", ["", "\n", " "])
@pytest.mark.parametrize("where", ["system", "user", "openai"])
def test_documents_in_blocks_of_their_own_that_change_places_are_found(where, end):
    def request(n):
        parts = [{"type": "text", "text": text + end} for text in random.Random(n).sample(DOCS, len(DOCS))]
        question = {"type": "text", "text": QUESTIONS[n]}
        if where == "system":
            return {"system": [*parts, {"type": "text", "text": LONG}], "messages": [{"role": "user", "content": [question]}]}
        front = {"system": LONG} if where == "user" else {}
        system = [] if front else [{"role": "system", "content": [{"type": "text", "text": LONG}]}]
        return {**front, "messages": [*system, {"role": "user", "content": [*parts, question]}]}

    assert causes([request(n) for n in range(4)]) == ["retrieval_order"]


def test_a_mark_inside_a_message_is_where_it_stands():
    def request(n, marked):
        parts = [{"type": "text", "text": text, **(MARK if k == marked else {})} for k, text in enumerate((LONG, DOCS[0]))]
        return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": f"{QUESTIONS[n]} {n}"}]}]}

    cached = [lint_requests([request(n, k) for n in range(4)], provider="anthropic").total("cached_tokens") for k in (0, 1, 2)]
    assert 3 * len(LONG) // 4 <= cached[0] < cached[1] - 200, "what stands behind the mark is another text each time"
    assert cached[2] == 0, "there is nothing marked but the end, and that is never the same"


def test_a_marked_block_is_found_whatever_follows_on_it():
    alone = {"system": [{"type": "text", "text": LONG, **MARK}], "messages": [{"role": "user", "content": "x"}]}
    followed = {
        "system": [*alone["system"], {"type": "text", "text": "Today it rains."}],
        "messages": [{"role": "user", "content": "y"}],
    }
    for pair in ((alone, followed), (followed, alone)):
        assert lint_requests(pair, provider="anthropic").total("cached_tokens") >= len(LONG) // 4


# Models.


@pytest.mark.parametrize("provider", ["local", "openai", "deepseek", "anthropic"])
def test_models_share_nothing(provider):
    models = ["gpt-5", "gpt-5-mini", None, "o3"]
    each = [asked(q, model=model) if model else asked(q) for q, model in zip(QUESTIONS, models, strict=True)]
    report = lint_requests(each, provider=provider)
    assert report.total("cached_tokens") == report.total("tokens_lost") == 0 and len(report.groups) == 4
    again = lint_requests([*each, *each], provider=provider)
    assert again.total("cached_tokens") > 4 * 1024 and [group.requests for group in again.groups] == [2] * 4


def test_a_clock_is_a_fault_among_requests_to_the_same_model_only():
    requests = [asked(q, f"It is 10:0{n}:22. {LONG}", model="ab"[n % 2]) for n, q in enumerate(QUESTIONS)]
    report = lint_requests(requests)
    assert [(group.cause, group.requests) for group in report.groups] == [("clock", 2)] * 2
    assert {group.first_difference.request - group.first_difference.against for group in report.groups} == {2}


def test_a_model_that_is_named_beside_the_body_counts_too():
    wrapped = [{"model": model, "request": asked(q)} for q, model in zip(QUESTIONS, "abab", strict=True)]
    assert [entry.model for entry in entries_of(wrapped)] == ["a", "b", "a", "b"]
    assert len(lint_requests(wrapped).groups) == 2


# Batches.


def test_lines_of_batches_are_read_in_both_forms():
    theirs = {
        "custom_id": "a",
        "params": {"model": "m", "max_tokens": 9, "system": LONG, "messages": [{"role": "user", "content": "x"}]},
    }
    ours = {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": asked("x", model="m")}
    read = list(entries_of([theirs, ours, json.dumps(theirs)]))
    assert all(isinstance(one, Entry) for one in read) and [one.model for one in read] == ["m"] * 3
    assert read[0].body == read[1].body == read[2].body
