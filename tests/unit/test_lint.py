"""The linter: causes in short logs, tokens and money, bad input, the command, predictions that come true on a real cache."""

import io
import json
import random
import re
import subprocess
import sys
import tracemalloc
import uuid
from pathlib import Path

import pytest
from helpers import make_model
from helpers import small_models as small_models

from kvcourse.cli import main
from kvcourse.errors import InputError, UnknownName
from kvcourse.fetch import model_folder
from kvcourse.generate import generate
from kvcourse.prefix.cache import RadixPrefixCache
from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.layout import Linter, lint_log, lint_requests
from kvcourse.prompts.lint_page import as_page
from kvcourse.prompts.logs import BadLine, Entry, read_log
from kvcourse.tokenizers import BPETokenizer, ChatTemplate, load_tokenizer

pytestmark = pytest.mark.usefixtures("small_models")
S = "You are a helpful assistant."
LONG = " ".join(f"Rule {n}: be kind to whoever asks, and say what you do not know." for n in range(40))

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
NAMES = [*sorted(BPETokenizer.alphabet()), "<|im_start|>", "<|im_end|>"]
BYTES = BPETokenizer({one: n for n, one in enumerate(NAMES)}, [], special=NAMES[-2:], chat=ChatTemplate(TURNS))


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def turns(n, answer="answer {}"):
    both = [(user(f"question {k}"), {"role": "assistant", "content": answer.format(k)}) for k in range(n)]
    return [one for pair in both for one in pair][: 2 * n - 1]


def tool(name, **more):
    schema = {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": schema}, **more}


def clocked(n, text=S, **more):
    return [{"messages": [system(f"Now: 2026-01-01 10:{k:02d}:00. {text}"), *turns(k + 1)], **more} for k in range(n)]


def name(seed):
    return uuid.UUID(int=random.Random(seed).getrandbits(128))


DOCS = [f"Document {k}: some facts about animal number {k}, told at length." for k in range(5)]
SHORT = {
    "clock in front": ("clock", clocked(5)),
    "clock behind": ("clock", [{"messages": [system(f"{S} The time is 10:0{k}:22."), *turns(k + 1)]} for k in range(5)]),
    "day": ("clock", [{"messages": [system(f"{S} Today is 2026-01-0{k + 1}."), *turns(k + 1)]} for k in range(5)]),
    "one-shot": ("clock", [{"messages": [system(f"It is 2026-01-01 10:0{k}. {S}"), user("Hello")]} for k in range(5)]),
    "am": ("clock", [{"system": f"Time: {k + 8}:15 AM\n{S}", "messages": turns(k + 1)} for k in range(4)]),
    "uuid": ("id", [{"messages": [system(f"{S} Request id: {name(k)}"), *turns(k + 1)]} for k in range(5)]),
    "counter": ("id", [{"messages": [system(f"Request ID: {1000 + k}\n{S}"), *turns(k + 1)]} for k in range(5)]),
    "tools": ("tool_order", [{"messages": [system(S), user("hi")], "tools": [tool("ab"[k % 2]), tool("ba"[k % 2])]}
                             for k in range(5)]),
    "schema": ("schema", [{"messages": [system(S), *turns(k + 1)], "tools": [tool("a", strict=bool(k % 2))]}
                          for k in range(4)]),
    "more tools": ("schema", [{"messages": [system(S), *turns(k + 1)], "tools": [tool(x) for x in "abcdef"[: k + 1]]}
                              for k in range(4)]),
    "documents": ("retrieval_order", [{"messages": [system("\n\n".join([S, *random.Random(k).sample(DOCS, 5)])), user("hi")]}
                                      for k in range(5)]),
    "some documents": ("retrieval_order", [{"messages": [system("\n\n".join([S, *random.Random(k).sample(DOCS, 4)])),
                                                         user("hi")]} for k in range(5)]),
    "documents move": ("retrieval_order", [
        {"messages": [system(S), *turns(k + 1)[:-1], user("\n\n".join([*DOCS, f"question {k}"]))]} for k in range(5)]),
    "spaces": ("whitespace", [{"messages": [system(S + " " * (k % 2)), *turns(k + 1)]} for k in range(6)]),
    "role": ("template", [{"messages": [{"role": ("system", "developer")[k % 2], "content": S}, *turns(k + 1)]}
                          for k in range(6)]),
    "token": ("template", [{"messages": [system("<|begin_of_text|>" * (k % 2) + S), *turns(k + 1)]} for k in range(6)]),
    "no system": ("template", [{"messages": [*[system(S)] * (k % 2), *turns(k + 1)]} for k in range(6)]),
    "system edited": ("template", [{"messages": [system(S + " Be brief." * (k % 2)), *turns(k + 1)]} for k in range(6)]),
    "cut": ("history", [{"messages": [system(S), *turns(k + 1)[-3:]]} for k in range(6)]),
    "edited": ("history", [
        {"messages": [system(S), *turns(k + 1, "edited {}" if k > 3 else "answer {}")[:3], *turns(k + 1)[3:]]}
        for k in range(6)]),
    "growing": ("none", [{"messages": [system(S), *turns(k + 1)]} for k in range(6)]),
    "growing, no system part": ("none", [{"messages": turns(k + 1)} for k in range(6)]),
    "users": ("none", [{"messages": [system(LONG), user(f"I am user {k}, what about topic {7 * k}?")]} for k in range(6)]),
    "epochs in questions": ("none", [{"messages": [system(S), user(f"Convert {1700000000 + 977 * k} to a date.")]}
                                     for k in range(6)]),
    "regenerated": ("none", [{"messages": [system(S), *turns(3)]} for _ in range(4)]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHORT)
def test_causes_are_named_in_logs_of_a_few_words_too(case):
    wanted, requests = SHORT[case]
    report = lint_requests(requests)
    assert {group.cause for group in report.faults} == {wanted} - {"none"}
    assert (report.total("tokens_lost") > 0) == (wanted != "none")


def test_the_first_difference_is_where_it_is_and_shows_both_texts():
    record = lint_requests(clocked(3)).as_record()["groups"][0]
    first = record["first_difference"]
    assert (first["request"], first["against"], first["message"], first["character"]) == (2, 1, 0, len("Now: "))
    assert first["ours"].startswith("2026-01-01 10:01:00") and first["theirs"].startswith("2026-01-01 10:00:00")
    assert first["before"].endswith("Now: ")
    assert {"requests", "cause", "first_difference", "tokens_lost", "suggestion"} <= set(record) and record["requests"] == 3


def test_a_system_part_in_a_field_of_its_own_is_named_so_and_does_not_shift_the_messages():
    requests = [{"system": f"Now: 10:0{k}:22\n{S}", "messages": turns(k + 1)} for k in range(3)]
    assert lint_requests(requests).groups[0].first_difference.message == "system"
    longer = [*turns(3), user("And now something else, at length.")]
    requests = [{"system": S, "messages": longer[:5]}, {"system": S, "messages": [*longer[:1], *longer[2:], *turns(1)]}]
    requests[1]["messages"][1:1] = [{"role": "assistant", "content": "[shortened]"}]
    assert lint_requests(requests).groups[0].first_difference.message == 1


def test_a_difference_in_the_tools_is_counted_from_their_start():
    requests = [{"messages": [system(S), *turns(k + 1)], "tools": [tool("a"), tool("b", strict=bool(k % 2))]} for k in range(2)]
    first = lint_requests(requests).groups[0].first_difference
    text = "".join(json.dumps(one) + "\n" for one in requests[1]["tools"])
    assert first.message == "tools" and text[first.character :].startswith(first.ours)
    assert first.ours != first.theirs


def test_two_faults_in_one_place_are_both_in_the_suggestion():
    requests = [{"messages": [system(f"Now: 10:0{k}:22, request {name(k)}. {S}"), *turns(k + 1)]} for k in range(5)]
    group = lint_requests(requests).groups[0]
    assert group.cause == "clock" and len(group.suggestion.changes) == 2
    assert (
        group.suggestion.layout[-1] == "each new clock and each new id behind the last message, and left there in later turns"
    )


def test_families_are_told_apart():
    pirate = system("A pirate answers in rhymes, and in rhymes only, whatever it is asked.")
    others = [{"messages": [pirate, *turns(k + 2, "ahoy {}")[2:]]} for k in range(4)]
    mixed = [one for pair in zip(clocked(4, LONG), others, strict=True) for one in pair]
    report = lint_requests(mixed)
    assert [(group.requests, group.cause) for group in report.groups] == [(4, "clock"), (4, "none")]


# What it costs.


def moved(requests):
    """A conversation's, or single, requests with each clock behind the last message, and left there, as suggested."""
    behind = {}
    for first, *rest in (body["messages"] for body in requests):
        clock, text = re.fullmatch(r"Now: (.*?)[.] (.*)", first["content"]).groups()
        behind[len(rest) - 1] = rest[-1]["content"] + clock
        said = [{**turn, "content": behind.get(n, turn["content"])} for n, turn in enumerate(rest)]
        yield {"messages": [system(f"Now: . {text}"), *said]}


@pytest.mark.parametrize("tokenizer", [None, BYTES], ids=["estimate", "bytes"])
@pytest.mark.parametrize("shots", [True, False])
def test_the_predicted_hit_rate_is_what_the_suggested_layout_gets(tokenizer, shots):
    requests = clocked(8, LONG)
    if shots:  # each its own question
        requests = [{"messages": [one["messages"][0], user(f"And what about {n}?")]} for n, one in enumerate(requests)]
    before = lint_requests(requests, tokenizer).groups[0]
    after = lint_requests(moved(requests), tokenizer)
    predicted = before.suggestion.predicted_hit_rate
    assert before.suggestion.hit_rate < 0.1 < predicted
    assert after.faults == []
    assert after.groups[0].cached_tokens / after.groups[0].prompt_tokens == pytest.approx(predicted, abs=0.001)


def test_nothing_is_lost_to_a_clock_where_the_entry_would_have_expired_anyway():
    bodies = clocked(4, LONG)
    fast, slow = ([{"timestamp": 1.77e9 + gap * n, "body": body} for n, body in enumerate(bodies)] for gap in (60, 4000))
    assert lint_requests(fast, provider="openai:24h").total("tokens_lost") == lint_requests(
        slow, provider="openai:24h").total("tokens_lost")  # fmt: skip
    assert lint_requests(slow, provider="openai").faults == []
    assert lint_requests(fast, provider="deepseek").total("tokens_lost") > 0


def test_below_a_providers_minimum_the_cause_is_named_and_costs_nothing():
    report = lint_requests(clocked(4), provider="openai")
    assert [(group.cause, group.tokens_lost) for group in report.groups] == [("clock", 0)]
    assert any("shorter than the 1,024 tokens" in note for note in report.notes)


def test_money_is_what_the_lost_tokens_cost_more():
    single = [{"messages": [one["messages"][0], user(f"And {n}?")]} for n, one in enumerate(clocked(8, 3 * LONG))]
    local, openai, anthropic = (lint_requests(single, provider=one, base_price=2.0) for one in ("local", "openai", "anthropic"))
    assert local.total("cost_lost") == local.total("tokens_lost")
    assert openai.total("cost_lost") == pytest.approx(0.5 * openai.total("tokens_lost")) and openai.total("tokens_lost") > 0
    assert openai.total("tokens_lost") % 128 == 0
    assert anthropic.total("cost_lost") == pytest.approx((1.25 - 0.1) * anthropic.total("tokens_lost"))
    assert openai.money(openai.total("cost_lost")) == pytest.approx(openai.total("cost_lost") * 2e-6)
    assert openai.as_record()["money_lost"] > 0 and lint_requests(clocked(2)).as_record()["money_lost"] is None


def test_a_price_that_no_sum_could_hold_is_refused(log, capsys):
    for price in (1e308, float("nan"), -1.0):
        with pytest.raises(InputError, match="no price"):
            Linter(base_price=price)
    main_ends(["lint", str(log), "--json", "--price", "1e308"], 2)
    assert capsys.readouterr().out == ""
    main_ends(["lint", str(log), "--json", "--price", "1e12"], 0)
    assert "Infinity" not in capsys.readouterr().out


def test_one_is_said_as_one():
    usage = {"prompt_tokens": 9}
    text = str(lint_requests([{"request": clocked(1)[0], "usage": usage, "timestamp": 5}], provider="openai"))
    assert "1 of 1 prompt is shorter" in text and "the log's own usage, 1 request:" in text
    two = [{**one, "timestamp": 5} if n else one for n, one in enumerate(clocked(2, LONG))]
    assert "1 request has no time: for it nothing expires" in str(lint_requests(two, provider="openai"))


def test_what_the_log_says_was_cached_stands_beside_what_the_rules_allow():
    usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 64}}
    requests = [{"request": body, "usage": usage} for body in clocked(2)]
    report = lint_requests(requests, provider="openai").as_record()
    assert report["reported_usage"] == {"requests": 2, "prompt_tokens": 200, "cached_tokens": 128}
    strange = lint_requests([{"request": clocked(1)[0], "usage": {"words": 3}}], provider="openai")
    assert any("1 usage object is not openai's" in note for note in strange.notes)


def test_marks_in_the_request_decide_what_anthropic_finds():
    def requests(mark):
        text = {"type": "text", "text": 4 * LONG, **({"cache_control": {"type": "ephemeral"}} if mark == "system" else {})}
        last = {"cache_control": {"type": "ephemeral"}} if mark == "question" else {}
        asked = [user([{"type": "text", "text": f"What is {k}?", **last}]) for k in range(3)]
        return [{"system": [text], "messages": [one]} for one in asked]

    cached = {}
    for mark in ("system", "question", ""):
        cached[mark] = lint_requests(requests(mark), provider="anthropic").total("cached_tokens")
    assert cached["system"] == cached[""] > 0 and cached["question"] == 0


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_openai_s_marks_are_read_and_the_one_it_sets_unasked_unless_that_is_switched_off(mode):
    def request(k, marked):
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if marked else {}
        first = {"role": "system", "content": [{"type": "text", "text": 8 * LONG, **mark}]}
        return {"messages": [first, *turns(k)], "prompt_cache_options": {"mode": mode}}

    def cached(marked):
        return lint_requests([request(k, marked) for k in (1, 2)], provider="openai:breakpoints").total("cached_tokens")

    grown = cached(True)  # the second request goes on from the first, whose end was marked, or not
    assert grown > 0
    assert (grown > count_of_system()) == (mode == "implicit")


def count_of_system():
    """Tokens up to the mark behind the system part."""
    return lint_requests(
        [{"messages": [{"role": "system", "content": [{"type": "text", "text": 8 * LONG}]}, user(text)]} for text in "ab"],
    ).total("cached_tokens")


# Predictions come true.


def conversations():
    """Three users on one system part, two agents with tools, a clock, an edited history: text only, in a mixed order."""
    chats = [[{"messages": [system(S), *turns(k + 1, f"answer {{}} for user {u}")]} for k in range(4)] for u in range(3)]
    agents = [{"messages": [system("Use tools."), *turns(k + 1)], "tools": [tool("a"), tool("b")][:: -1 if k == 2 else 1]}
              for k in range(4)]  # fmt: skip
    requests = [one for kind in (*chats, agents, clocked(4), SHORT["edited"][1]) for one in kind]
    return random.Random(1).sample(requests, len(requests))


@pytest.mark.parametrize("which", ["bytes", "smollm2"])
def test_predicted_hits_are_what_a_radix_prefix_cache_reuses_token_for_token(which):
    tokenizer = BYTES if which == "bytes" else load_tokenizer(model_folder("smollm2"))
    model = make_model("llama", vocab_size=tokenizer.vocab_size, context_length=4096, n_layer=1)
    pc = RadixPrefixCache(model, max_bytes=2**30)
    requests = conversations()
    reused = []
    for body in requests:
        ids = render(body_of(body), tokenizer).ids
        reused.append(generate(model, ids, max_new_tokens=1, prefix_cache=pc).usage)
    report = lint_requests(requests, tokenizer)
    assert [one.cached_tokens for one in report.counts] == [one.cached_tokens for one in reused]
    assert [one.prompt_tokens for one in report.counts] == [one.prompt_tokens for one in reused]
    assert sum(one.cached_tokens for one in reused) > 900


# Bad input.

GOOD = json.dumps({"messages": [system(S), user("hi")]})
BAD = {
    "no json": ("{", "not JSON"),
    "a list": ("[1]", "cannot be compared"),
    "a role of two lines": ('{"messages": [{"role": "user\\nsystem", "content": "x"}]}', "a role without line breaks"),
    "no messages": ('{"prompt": "hi"}', "with one message at least"),
    "empty messages": ('{"messages": []}', "with one message at least"),
    "messages of another kind": ('{"messages": "hi"}', "with one message at least"),
    "an image": (
        '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}',
        "image_url",
    ),
    "an unknown part": ('{"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}', "hologram"),
    "content of another kind": ('{"messages": [{"role": "user", "content": 3}]}', "a int"),
    "no role": ('{"messages": [{"content": "x"}]}', "role"),
    "tools of another kind": ('{"messages": [{"role": "user", "content": "x"}], "tools": {"a": 1}}', "tools in a list"),
    "half a surrogate pair": ('{"messages": [{"role": "user", "content": "\\ud83d"}]}', "surrogate"),
    "half a surrogate pair in a tool": (
        '{"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "f", "description": "\\ud83d"}]}',
        "surrogate",
    ),
    "nesting": ("[" * 100_000, "not JSON"),
    "a number": ("17", "cannot be compared"),
    "null": ("null", "cannot be compared"),
    "a wrapped string that is no request": ('{"body": "hello"}', "cannot be compared"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_line_that_cannot_be_read_is_named_by_its_number_and_counted(case, tmp_path):
    line, match = BAD[case]
    path = tmp_path / "log.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    report = lint_log(path)
    assert (report.requests, report.skipped_lines) == (2, 1)
    assert report.skipped[0].line == 3 and report.skipped[0].reason.startswith("Line 3: ") and match in report.skipped[0].reason
    with pytest.raises(BadLine, match="Line 3"):
        lint_log(path, strict=True)


def test_bytes_that_are_no_text_a_mark_at_the_front_and_windows_line_ends_are_no_surprise(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n\xff\xfe\r\n" + GOOD.encode())
    report = lint_log(path)
    assert report.requests == 2 and [one.line for one in report.skipped] == [2]


def test_a_megabyte_in_one_message_is_a_request_like_others():
    big = " ".join(f"Fact {n} is that {n} follows {n - 1}." for n in range(30_000))
    assert len(big) > 2**20 - 2**17
    requests = [{"messages": [system(f"Now: 10:0{k}:05. {S}"), user(big), *turns(k + 1)]} for k in range(3)]
    report = lint_requests(requests)
    assert report.groups[0].cause == "clock" and report.total("tokens_lost") > len(big) // 4


def test_a_line_without_end_is_passed_over_and_never_held(tmp_path, monkeypatch):
    monkeypatch.setattr("kvcourse.prompts.logs._LINE_BYTES", 1000)
    path = tmp_path / "log.jsonl"
    path.write_text(f'{GOOD}\n{{"messages": "{"x" * 5000}"}}\n{GOOD}\n')
    sizes = []
    found = list(read_log(path, sizes.append))
    assert [type(one) for one in found] == [Entry, BadLine, Entry] and found[2].line == 3
    assert sum(sizes) == path.stat().st_size


def test_one_request_has_nothing_to_be_compared_with():
    report = lint_requests([json.loads(GOOD)])
    assert report.groups[0].cause == "none" and report.notes == ["One request: there is nothing to compare it with."]


@pytest.mark.parametrize("lines", [[], ["{"], [""]])
def test_a_log_without_any_request_is_refused(lines, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="no request in this log"):
        lint_log(path)


def test_an_unknown_provider_is_refused_before_anything_is_read():
    with pytest.raises(UnknownName, match="anthropic, deepseek, gemini, local, openai"):
        lint_requests(iter(lambda: 1 / 0, None), provider="acme")


@pytest.mark.parametrize(
    ("wrapped", "seconds"),
    [({"timestamp": 1770000000}, 1770000000.0), ({"ts": 1770000000123}, 1770000000.123),
     ({"time": "2026-02-02T02:40:00Z"}, 1770000000.0), ({"created_at": "2026-02-02 02:40:00"}, 1770000000.0),
     ({"timestamp": "yesterday"}, None), ({"timestamp": True}, None), ({"timestamp": 10**400}, None), ({}, None)],
)  # fmt: skip
def test_times_are_read_in_seconds_and_their_parts_and_as_iso(wrapped, seconds, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({**wrapped, "request": json.loads(GOOD)}) + "\n" + json.dumps({**wrapped, "body": GOOD}))
    assert [one.seconds for one in read_log(path)] == [pytest.approx(seconds)] * 2


def test_a_conversation_is_read_as_it_is_from_the_tree_it_was_put_in():
    """What is compared with later requests is rebuilt from the tree; nothing of a message may get lost there."""
    odd = "line\n<|im_start|>user\nforged<|im_end|>\n\ttail "
    body = {
        "messages": [system(odd), user(""), {"role": "assistant", "content": odd}, user("ü🙂")],
        "tools": [tool("a"), tool("b")],
    }
    linter = Linter()
    for one in (body, {"messages": [system(odd + "x"), user("y")]}, body):
        linter.add(Entry(linter._report.requests + 1, body_of(one)))
    assert linter._families.body(1) == linter._families.body(3) == body_of(body)


def test_memory_is_bounded_whatever_the_length_of_the_log(monkeypatch):
    monkeypatch.setattr("kvcourse.prompts.families._SENTENCES", 2_000)
    monkeypatch.setattr("kvcourse.prompts.families._REQUESTS", 100)
    linter = Linter()
    linter._families.tree.max_bytes = 300_000

    def feed(numbers):
        for n in numbers:
            rng = random.Random(n)
            text = " ".join(f"{''.join(rng.choices('abcdefgh', k=12))} words follow here." for _ in range(50))
            linter.add(Entry(n + 1, body_of({"messages": [user(text)]})))

    feed(range(400))
    tracemalloc.start()
    feed(range(400, 1600))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(linter._families._seen) <= 100 and len(linter._families._sentences) <= 1_000
    assert linter._families.tree.bytes <= 300_000
    assert grown < 2_500_000, "1,200 requests of 1.3 kB were added, and their families"
    assert any("larger than what is remembered" in note for note in linter.report().notes)


def test_a_request_that_is_passed_over_is_not_what_a_later_one_is_compared_with():
    mark = {"cache_control": {"type": "ephemeral"}}
    marked = [{"role": "user", "content": [{"type": "text", "text": f"turn {n}", **mark}]} for n in range(5)]
    too_many = {"messages": [system(f"It is 10:00:01 now. {LONG}"), *marked]}
    unreadable = {"messages": [system(f"It is 10:00:01 now. {LONG}"), {"role": "tool", "content": "x"}]}
    fine = {"messages": [system(f"It is 10:00:02 now. {LONG}"), user("hello")]}
    strict = ChatTemplate("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
                          "{{ m.content }}{% endfor %}")  # fmt: skip
    picky = BPETokenizer({one: n for n, one in enumerate(NAMES)}, [], special=NAMES[-2:], chat=strict)
    for refused, tokenizer, provider in ((too_many, None, "anthropic"), (unreadable, picky, "local")):
        report = lint_requests([refused, fine], tokenizer, provider)
        assert (report.skipped_lines, report.requests, report.faults) == (1, 1, [])


@pytest.mark.parametrize("bound", ["texts", "requests"])
def test_a_request_that_was_just_forgotten_is_compared_with_nothing(bound, monkeypatch):
    """Its sentences are remembered a little longer than its text, of which nothing is left to rebuild it from."""
    linter = Linter(BYTES if bound == "requests" else None)
    if bound == "texts":
        linter._families.tree.max_bytes = 60_000
    else:
        monkeypatch.setattr("kvcourse.prompts.families._REQUESTS", 4)
    rng = random.Random(0)
    shared = [" ".join(f"{''.join(rng.choices('abcdefgh', k=12))} words follow here." for _ in range(20)) for _ in range(40)]
    for n in range(400 if bound == "texts" else 8):
        text = f"It is 10:{n // 60 % 60:02}:{n % 60:02} now. {shared[n % 4 if bound == 'requests' else rng.randrange(40)]}"
        tools = [{"name": "f", "description": rng.choice(shared)}]
        linter.add(Entry(n + 1, body_of({"messages": [system(text), user(f"question {n}")], "tools": tools})), strict=True)
    assert linter.report().requests == n + 1


# The command.


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, clocked(4, LONG))) + "\n")
    return path


def test_the_command_prints_the_cause_the_place_and_the_layout(log, capsys):
    main_ends(["lint", str(log)], 0)
    out = capsys.readouterr().out
    for said in ("4 requests in 1 group", "clock: a date and time", "line 2 against line 1, message 0, character 5",
                 "each new clock behind the last message, and left there in later turns", "hit rate"):  # fmt: skip
        assert said in out


def main_ends(arguments, status):
    try:
        main(arguments)
    except SystemExit as end:
        assert (end.code or 0) == status
    else:
        assert status == 0


def test_json_is_one_object_and_nothing_else_is_on_stdout(log, capsys):
    log.write_text(log.read_text() + "{\n")
    main_ends(["lint", str(log), "--json", "--provider", "openai:tenth", "--price", "2"], 0)
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert record["groups"][0]["cause"] == "clock" and record["skipped"] == 1 and record["provider"] == "openai:tenth"
    assert record["skipped_lines"][0]["line"] == 5 and "Line 5: it is not JSON" in captured.err
    assert "1 line skipped" in captured.err


def test_where_colours_are_forced_a_pipe_still_gets_no_bar(log, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a notebook's kernel sets it
    main_ends(["lint", str(log)], 0)
    assert capsys.readouterr().err == ""


def test_strict_stops_at_the_first_bad_line(log, capsys):
    log.write_text("{\n" + log.read_text())
    main_ends(["lint", str(log), "--strict"], 2)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("kvcourse: Line 1: it is not JSON") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "match"),
    [(["--provider", "acme"], "no such provider"), (["--model", "nowhere"], "no such tokenizer"),
     (["--html", "no/such/x.html"], "folder")],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_status_2(log, capsys, arguments, match):
    main_ends(["lint", str(log), *arguments], 2)
    captured = capsys.readouterr()
    assert captured.out == "" and match in captured.err and captured.err.count("\n") == 1


def test_a_missing_file_is_one_line_and_status_2(tmp_path, capsys):
    main_ends(["lint", str(tmp_path / "none.jsonl")], 2)
    assert "cannot be read" in capsys.readouterr().err
    main_ends(["lint", str(tmp_path)], 2)
    assert "cannot be read" in capsys.readouterr().err


def test_the_exit_code_tells_on_request_that_there_is_something_to_mend(log, tmp_path):
    main_ends(["lint", str(log), "--exit-code"], 1)
    clean = tmp_path / "clean.jsonl"
    clean.write_text("\n".join(json.dumps({"messages": [system(S), *turns(k + 1)]}) for k in range(4)))
    main_ends(["lint", str(clean), "--exit-code"], 0)


def test_standard_input_is_a_log_too(log, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.read_bytes())))
    main_ends(["lint", "-", "--json"], 0)
    assert json.loads(capsys.readouterr().out)["requests"] == 4


def test_a_page_shows_the_same_and_runs_nothing_from_the_log(log, tmp_path, capsys):
    page = tmp_path / "page.html"
    requests = clocked(3, "<script>alert(1)</script> " + LONG)
    for body in requests:
        body["messages"][0]["content"] = "<script>alert(0)</script> " + body["messages"][0]["content"]
    log.write_text("\n".join(map(json.dumps, requests)))
    main_ends(["lint", str(log), "--html", str(page)], 0)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text and "alert(0)" in text and "alert(1)" in text
    assert (
        "clock" in text
        and "each new clock behind the last message, and left there in later turns" in text
        and "http" not in text
    )
    assert as_page(lint_requests([json.loads(GOOD)]), "a.jsonl").count("Nothing to mend") == 1


def test_the_command_imports_neither_torch_nor_numpy(log):
    code = (
        f"import sys; from kvcourse.cli import main\nmain(['lint', {str(log)!r}, '--json', '--html', {str(log) + '.html'!r}])"
    )
    check = "\nfinally:\n  assert not {'torch', 'numpy'} & set(sys.modules), 'heavy'"
    lines = code.splitlines()
    code = f"{lines[0]}\ntry:\n  {lines[1]}\nexcept SystemExit as end:\n  assert not end.code{check}"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)
