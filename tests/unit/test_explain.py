"""Why a request missed: every cause, on both kinds of prefix cache, and as a command on two request bodies."""

import json
import random
import subprocess
import sys

import pytest
import torch
from explain_helpers import explainer
from helpers import make_model
from helpers import small_models as small_models
from prefix_helpers import BLOCK, KINDS, TOKEN_BYTES, FakeModel, filled

from kvcourse.cli import main
from kvcourse.cli_explain import Source, compared
from kvcourse.common_prefix import common_length
from kvcourse.errors import InputError
from kvcourse.meter import Meter
from kvcourse.prefix.keys import digest_of, running, token_bytes
from kvcourse.prompts import rate
from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.differ import compare
from kvcourse.prompts.explain import explain
from kvcourse.tiny import tiny_tokenizer
from kvcourse.tokenizers import CharTokenizer, ChatTemplate

pytestmark = pytest.mark.usefixtures("small_models")  # no shape checks: FakeModel has none
EVERYTHING = 2**30
RATE = dict(prefill_tokens_per_s=100.0)


class Letters:
    """A tokenizer of 50 characters: what FakeModel has ids for."""

    LETTERS = "abcdefghijklmnopqrstuvwxyzNT0123456789 .:-_/<>|\n?!"

    def encode(self, text):
        return [self.LETTERS.index(letter) for letter in text]

    def decode(self, ids):
        return "".join(self.LETTERS[id] for id in ids)


class TalkingModel(FakeModel):
    tokenizer = Letters()


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(kind, clock):
    def make(model=None, **options):
        blocks = {"block_tokens": BLOCK} if kind == "blocks" else {}
        return KINDS[kind](model or TalkingModel(), max_bytes=EVERYTHING, clock=clock, **blocks, **options)

    return make


@pytest.fixture
def floor(kind):
    """What of a number of tokens can be shared."""
    return (lambda n: n // BLOCK * BLOCK) if kind == "blocks" else (lambda n: n)


def ids(text):
    return Letters().encode(text)


def store(pc, tokens, namespace=None):
    pc.insert(tokens, filled(pc.model, tokens), namespace=namespace)


def test_a_cold_cache_says_so(make):
    report = explain(make(), ids("hello there"), **RATE)
    assert (report.cause, report.matched_tokens, report.total_tokens, report.lost_tokens) == ("cold", 0, 11, 0)
    assert (report.lost_ms, report.lost_bytes, report.at) == (0, 0, None)


def test_a_text_that_begins_like_nothing_stored_is_cold(make):
    pc = make()
    store(pc, ids("what is a cat?"))
    report = explain(pc, ids("how old are you?"), **RATE)
    assert (report.cause, report.at, report.lost_tokens) == ("cold", 0, 0)


@pytest.mark.parametrize("more", ["", " and more"])
def test_when_everything_stored_is_reused_nothing_is_lost(make, floor, more):
    pc = make()
    text = "a text of the length 24."
    store(pc, ids(text))
    report = explain(pc, ids(text + more), **RATE)
    expected = floor(24 if more else 23)
    assert (report.cause, report.matched_tokens, report.lost_tokens) == ("none", expected, 0)


def test_a_clock_is_named_and_what_follows_it_counts_as_lost(make, floor):
    pc = make()
    store(pc, ids("Now: 10:23 be kind to all. what is a cat?"))
    ours = ids("Now: 10:24 be kind to all. who was a dog?")
    report = explain(pc, ours, **RATE)
    assert (report.cause, report.at) == ("clock", 9)
    assert report.ours.startswith("10:24 be kind") and report.theirs.startswith("10:23 be kind") and report.before == "Now: "
    shared = len("Now: 10:24 be kind to all. wh")
    assert report.matched_tokens == floor(9) and report.lost_tokens == floor(shared) - floor(9)
    assert report.lost_bytes == report.lost_tokens * TOKEN_BYTES
    assert report.lost_ms == pytest.approx(report.lost_tokens * 10)


@pytest.mark.parametrize(
    ("cause", "ours", "theirs"),
    [
        ("id", "req_8f3k2a9 be kind to all. a question?", "req_1b7c4d2 be kind to all. a question?"),
        ("whitespace", "be  kind to all people. a question?", "be kind to all people. a question?"),
        ("template", "<|im_start|>user\nsay hi", "<|im_start|>system\nsay hi"),
        ("retrieval_order", "use\nthe cat sat down\nwhales swim far\nq?", "use\nwhales swim far\nthe cat sat down\nq?"),
    ],
)
def test_faults_of_the_text_are_named_with_what_they_cost(make, floor, cause, ours, theirs):
    pc = make()
    store(pc, ids(theirs))
    report = explain(pc, ids(ours), **RATE)
    assert report.cause == cause and report.advice
    assert report.at == common_length(ours, theirs) and report.matched_tokens == floor(report.at)
    total = min(len(ours) - 1, len(theirs))
    assert floor(total) - floor(report.at) - 2 * BLOCK < report.lost_tokens <= floor(len(ours) - 1) - floor(report.at)
    assert report.lost_tokens > 0


def test_another_question_is_content_and_costs_nothing(make, floor):
    pc = make()
    store(pc, ids("be kind to all. what is a cat?"))
    report = explain(pc, ids("be kind to all. what is a dog?"), **RATE)
    assert (report.cause, report.at, report.lost_tokens, report.advice) == ("content", 26, 0, None)
    assert report.matched_tokens == floor(26) and report.ours == "dog?" and report.theirs.startswith("ca")


def test_of_several_stored_texts_the_one_that_goes_on_longest_is_the_other_side(make):
    pc = make()
    for end in ("a cat?", "a cat and a very old dog?", "one?"):
        store(pc, ids(f"be kind. what is {end}"))
    report = explain(pc, ids("be kind. what is 12 and 34?"), **RATE)
    assert (report.cause, report.theirs[:9]) == ("content", "a cat and")


@pytest.mark.parametrize("reason", ["evicted", "expired", "cleared", "other_weights", "mismatch"])
def test_what_is_gone_is_named_by_why_it_went(make, clock, floor, reason):
    pc = make(ttl=60.0)
    text = ids("a text that was stored once, in whole.".replace(",", ""))
    store(pc, text)
    clock.now += 5
    if reason == "evicted":
        pc.evict(EVERYTHING)
    elif reason == "expired":
        clock.now += 60
    elif reason == "cleared":
        pc.clear()
    elif reason == "mismatch":
        root = next(iter(pc.index.roots.values()))
        pc.index.drop(next(iter(root.children.values())))
    else:
        pc.model.salt = 1
    expected = floor(len(text) - 1)
    for _ in range(2):  # expired texts are still there the first time, and gone after a lease
        report = explain(pc, text, **RATE)
        assert (report.cause, report.matched_tokens, report.lost_tokens, report.at) == (reason, 0, expected, 0)
        assert report.theirs is None and report.ours.startswith("a text that")
        with pc.lease(ids("zzz")):
            pass


def test_an_evicted_chain_is_followed_to_its_end(make, floor):
    pc = make()
    ends = [ids(f"be kind to all. what is {end}") for end in ("a cat?", "a cow and a calf?", "this?")]
    for text in ends:
        store(pc, text)
    pc.evict(EVERYTHING)
    for text in ends:
        assert explain(pc, text, **RATE).lost_tokens == floor(len(text) - 1)


def test_only_the_evicted_end_is_lost_where_the_start_is_still_there(make, floor):
    pc = make()
    old, new = ids("be kind to all. what is a cat?"), ids("be kind to all. who are you?")
    store(pc, old)
    store(pc, new)
    pc.evict(TOKEN_BYTES * floor(8))
    report = explain(pc, old, **RATE)
    assert report.cause == "evicted" and report.matched_tokens >= floor(16)
    assert report.matched_tokens + report.lost_tokens == floor(len(old) - 1)


def test_of_a_chain_that_went_for_several_reasons_the_one_at_the_break_is_named(make, clock, floor):
    pc = make(ttl=60.0)
    start, whole = ids("be kind to all. "), ids("be kind to all. and to cats")
    store(pc, start)
    store(pc, whole)
    pc.evict(TOKEN_BYTES * floor(len(whole) - len(start)))
    clock.now += 100
    with pc.lease(ids("zzz")):
        report = explain(pc, whole, **RATE)
    assert (report.cause, report.lost_tokens) == ("expired", floor(len(whole) - 1))


def test_another_namespace_is_told_without_a_word_of_it(make, floor):
    pc = make()
    secret = "my pin is 90210 and my name is bob"
    store(pc, ids(secret), namespace="tenant-red")
    report = explain(pc, ids("my pin is 12345 and my name is ann"), namespace="tenant-blue", **RATE)
    assert report.cause == "other_namespace" and report.lost_tokens == floor(10)
    for shown in (str(report), repr(report), json.dumps(report.as_record())):
        assert "90210" not in shown and "bob" not in shown and "red" not in shown.replace("stored", "").replace("share", "")
    assert report.theirs is None


def test_namespaces_are_told_apart_by_type(make):
    pc = make()
    store(pc, ids("a text of some length."), namespace=("a", "bc"))
    pc.model.salt = 1
    assert explain(pc, ids("a text of some length."), namespace=("ab", "c"), **RATE).cause == "cold"
    assert explain(pc, ids("a text of some length."), namespace=("a", "bc"), **RATE).cause == "other_weights"


def test_the_larger_of_two_losses_is_the_cause(make):
    pc = make()
    store(pc, ids("Now: 10:23 be kind to all. what is a cat?"))
    store(pc, ids("Now: 10:24 be"), namespace="somebody")
    assert explain(pc, ids("Now: 10:24 be kind to all. what is a cat?"), **RATE).cause == "clock"
    store(pc, ids("Now: 10:24 be kind to all. what is a cat?"), namespace="somebody")
    assert explain(pc, ids("Now: 10:24 be kind to all. what is a cat?"), **RATE).cause == "other_namespace"


def test_a_text_shorter_than_a_block_is_below_the_minimum():
    pc = KINDS["blocks"](TalkingModel(), max_bytes=EVERYTHING, block_tokens=BLOCK)
    store(pc, ids("abcdefgh"))
    for n in (1, BLOCK):
        report = explain(pc, ids("abcdefgh")[:n], **RATE)
        assert (report.cause, report.lost_tokens) == ("below_minimum", 0)
    assert explain(pc, ids("abcdefgh")[: BLOCK + 1], **RATE).cause == "none"


def test_blocks_of_one_token_are_followed_as_well():
    pc = KINDS["blocks"](TalkingModel(), max_bytes=EVERYTHING, block_tokens=1)
    store(pc, ids("abcdefgh"))
    pc.evict(EVERYTHING)
    assert explain(pc, ids("abcdefgh"), **RATE).lost_tokens == 7


def test_a_poor_digest_misleads_nobody():
    pc = KINDS["blocks"](TalkingModel(), max_bytes=EVERYTHING, block_tokens=2, digest=lambda data: digest_of(data)[:1])
    draw = random.Random(0)
    texts = [[draw.randrange(3) for _ in range(12)] for _ in range(60)]
    for text in texts[:40]:
        store(pc, text)
    pc.evict(EVERYTHING)
    for text in texts:
        ever = max(common_length(text[:-1], known) for known in texts[:40])
        assert explain(pc, text, **RATE).lost_tokens <= ever


def test_without_a_tokenizer_ids_are_shown(make):
    model = FakeModel()
    model.tokenizer = None
    pc = make(model)
    store(pc, [1, 2, 3, 4, 5, 6, 7, 8])
    report = explain(pc, [1, 2, 3, 4, 5, 9, 9, 9, 9], **RATE)
    assert (report.cause, report.at, report.before) == ("content", 5, "1 2 3 4 5")
    assert (report.ours, report.theirs) == ("9 9 9 9", "6 7 8")


def test_the_same_text_in_other_tokens_is_called_so():
    words = {1: "Once ", 2: "up", 3: "on", 4: "upon", 5: " a", 6: " time", 7: " ago"}
    found = compare([1, 4, 5, 6], [1, 2, 3, 5, 6], 1, lambda some: "".join(words[id] for id in some))
    assert (found.cause.kind, found.ours, found.theirs, found.lost_tokens) == ("re_encoded", "upon", "up|on", 4)
    assert compare([1, 4, 6], [1, 2, 3, 7], 1, lambda some: "".join(words[id] for id in some)).cause.kind == "re_encoded"


def test_tokens_that_are_cut_otherwise_because_the_text_differs_are_content():
    words = {1: "a", 2: "bc", 3: " x", 4: "ab", 5: "cd"}
    found = compare([1, 2, 3], [4, 5], 0, lambda some: "".join(words[id] for id in some))
    assert found.cause.kind == "content" and found.ours.startswith("abc x")


def test_half_a_character_is_never_shown():
    parts = {1: b"so ", 2: b"\xf0\x9f", 3: b"\x98\x80", 4: b"\x98\x81", 5: b" it is"}
    found = compare([1, 2, 3, 5], [1, 2, 4, 5], 2, lambda some: b"".join(parts[id] for id in some).decode(errors="replace"))
    assert (found.before, found.ours[0], found.theirs[0]) == ("so ", "\U0001f600", "\U0001f601")


def test_bytes_that_never_become_characters_are_not_taken_for_the_same_text():
    parts = {1: b"so ", 2: b"\xf0\x9f", 3: b"\x98", 4: b"\x99", 5: b" it is"}
    found = compare([1, 2, 3, 5], [1, 2, 4, 5], 2, lambda some: b"".join(parts[id] for id in some).decode(errors="replace"))
    assert found.cause.kind == "content"


def test_explaining_changes_nothing(make, clock):
    pc = make(ttl=60.0)
    store(pc, ids("be kind to all. what is a cat?"))
    clock.now = 100.0
    before, roots, gone = pc.stats, dict(pc.index.roots), dict(pc.gone)
    for text, namespace in (("be kind to all. what is a cat?", None), ("hello", "somebody"), ("be kind", None)):
        explain(pc, ids(text), namespace, **RATE)
    assert (pc.stats, dict(pc.index.roots), dict(pc.gone)) == (before, roots, gone)
    pc.check()


@pytest.mark.parametrize(
    ("tokens", "options"), [([], {}), ([99], {}), ("text", {}), ([[1], [2]], {}), ([1], {"prefill_tokens_per_s": 0})]
)
def test_what_is_no_request_is_refused(make, tokens, options):
    with pytest.raises(InputError):
        explain(make(), tokens, **options)


def test_a_tensor_is_a_text_too(make):
    assert explain(make(), torch.tensor([1, 2, 3]), **RATE).total_tokens == 3


def test_matched_and_lost_add_up_to_what_was_ever_stored(make, clock, floor):
    pc, draw = make(ttl=40.0), random.Random(7)
    ever: dict[object, list[list[int]]] = {None: [], "other": []}
    causes = set()
    for _ in range(400):
        clock.now += draw.random() * 4
        text = [draw.randrange(2) for _ in range(draw.randrange(1, 20))]
        namespace = draw.choice([None, None, None, "other"])
        if draw.random() < 0.4:
            store(pc, text, namespace)
            ever[namespace].append(text)
        elif draw.random() < 0.3:
            pc.evict(draw.randrange(20) * TOKEN_BYTES)
        report = explain(pc, text, namespace, **RATE)
        most = floor(len(text) - 1)
        known = max((min(most, floor(common_length(text, one))) for one in ever[namespace]), default=0)
        elsewhere = max((min(most, floor(common_length(text, one))) for some in ever.values() for one in some), default=0)
        assert report.matched_tokens == pc.match(text, namespace=namespace).length
        assert known <= report.matched_tokens + report.lost_tokens <= max(known, elsewhere)
        assert (report.lost_tokens > 0) == (report.cause in ("evicted", "expired", "other_namespace"))
        causes.add(report.cause)
    assert {"evicted", "expired", "other_namespace", "none"} <= causes


def test_the_running_digest_is_the_digest_of_each_start():
    tokens = [5, 1, 4, 300]
    assert list(running(b"root", tokens)) == [digest_of(b"root" + token_bytes(tokens[:n])) for n in (1, 2, 3, 4)]


def test_the_rate_is_measured_once_and_nobody_is_charged_for_it():

    model = make_model("llama")
    with Meter() as meter:
        first, second = rate.prefill_rate(model), rate.prefill_rate(model)
    assert first == second > 0 and meter.cost.tokens == 0
    pc = KINDS["radix"](model, max_bytes=EVERYTHING)
    from kvcourse.generate import generate

    generate(model, list(range(1, 20)), max_new_tokens=1, prefix_cache=pc)
    pc.evict(EVERYTHING)
    report = explain(pc, list(range(1, 20)))
    assert report.lost_ms == pytest.approx(1000 * report.lost_tokens / first) and report.lost_tokens == 18


def test_a_report_is_short_aligned_and_shows_every_space(make):
    pc = make()
    store(pc, ids("be  kind\nto all people. a question?"))
    lines = str(explain(pc, ids("be kind\nto all people. a question?"), **RATE)).splitlines()
    assert 5 <= len(lines) <= 8 and all(line[11] == " " and line[12] != " " for line in lines)
    assert any(r"kind\nto" in line for line in lines) and max(map(len, lines)) < 120


# The command.


def body(*turns, system=None, **more):
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "assistant" if n % 2 else "user", "content": turn} for n, turn in enumerate(turns)]
    return {"messages": messages, **more}


CLOCKED = ("Current time: 10:23:45. Be kind to everybody.", "Current time: 10:24:01. Be kind to everybody.")
CAT, DOG, BOTH = "What is a cat?", "And what is a dog?", "What do both of them eat?"
TOOLS = [{"name": "add", "input_schema": {}}, {"name": "cut", "input_schema": {}}]


@pytest.fixture
def run(tmp_path, capsys):
    return explainer(tmp_path, capsys, "--plain")


@pytest.mark.parametrize(
    ("cause", "first", "second"),
    [
        ("clock", body(CAT, system=CLOCKED[0]), body(CAT, system=CLOCKED[1])),
        ("clock", body(CAT, system=CLOCKED[0]), {**body(CAT), "system": [{"type": "text", "text": CLOCKED[1]}]}),
        ("template", body(CAT), body(CAT, system="Be kind.")),
        ("tool_order", body(CAT, tools=TOOLS), body(CAT, tools=TOOLS[::-1])),
        ("schema", body(CAT, tools=TOOLS), body(CAT, tools=TOOLS[:1])),
        ("schema", body(CAT, tools=TOOLS), body(CAT, tools=[{**TOOLS[0], "input_schema": {"x": 1}}, TOOLS[1]])),
        ("history", body(CAT, "An animal.", DOG, "Another.", BOTH), body(DOG, "Another.", BOTH, "Meat.", "So?")),
        ("history", body(CAT, "An animal.", DOG), body("What's a cat, now?", "An animal.", DOG, "Another.", BOTH)),
        ("history", body(CAT, "An animal.", DOG), body("Remember: I am Ann", "Yes, Ann.", CAT, "An animal.", DOG)),
        (
            "whitespace",
            body(CAT, "An  animal, and a very old friend.", DOG),
            body(CAT, "An animal, and a very old friend.", DOG),
        ),
        ("content", body(CAT, system="Be kind."), body(DOG, system="Be kind.")),
    ],
)
def test_the_command_names_what_two_requests_do_not_share(run, cause, first, second):
    status, out, _ = run(first, second, "--json")
    report = json.loads(out)
    assert (status, report["cause"]) == (1, cause)
    assert (report["lost_tokens"] > 0) == (cause != "content") == (report["advice"] is not None)
    assert report["matched_tokens"] + report["lost_tokens"] < report["total_tokens"] and report["unit"] == "characters"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (body(CAT), body(CAT, "An animal.", DOG)),
        (body(CAT), body(CAT)),
        (body(CAT, "An animal.", DOG), body(CAT)),
        (body(CAT, system="Be kind."), {**body(CAT), "system": "Be kind."}),
        (body(CAT), {"messages": [{"role": "user", "content": [{"type": "text", "text": CAT, "cache_control": {}}]}]}),
    ],
)
def test_a_request_that_goes_on_from_the_other_is_warm(run, first, second):
    status, out, _ = run(first, second, "--json")
    report = json.loads(out)
    assert (status, report["cause"], report["lost_tokens"], report["at"]) == (0, "none", 0, None)
    assert report["matched_tokens"] < report["total_tokens"]


def test_the_command_prints_one_place_as_a_diff_does(run):
    status, out, _ = run(body(CAT, system=CLOCKED[0]), body(CAT, system=CLOCKED[1]))
    lines = out.splitlines()
    assert status == 1 and lines[0].startswith("--- A.json") and lines[1].startswith("+++ B.json") and lines[2].startswith("@@")
    assert lines[4].startswith("- '10:23:45. Be") and lines[5].startswith("+ '10:24:01. Be")
    assert lines[6].startswith("cause") and "clock" in lines[6]


def test_milliseconds_need_a_rate(run):
    pair = body(CAT, system=CLOCKED[0]), body(CAT, system=CLOCKED[1])
    assert json.loads(run(*pair, "--json")[1])["lost_ms"] is None
    report = json.loads(run(*pair, "--json", "--prefill-rate", "500")[1])
    assert report["lost_ms"] == pytest.approx(2 * report["lost_tokens"])


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("no JSON", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[]", "messages"),
        ("{}", "messages"),
        ('{"messages": []}', "messages"),
        ('{"messages": "hi"}', "messages"),
        ('{"messages": ["hi"]}', "message 0"),
        ('{"messages": [{"content": "hi"}]}', "message 0"),
        ('{"messages": [{"role": "user"}]}', "message 0"),
        ('{"messages": [{"role": "user", "content": 7}]}', "message 0"),
        ('{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}]}', "part 1"),
        ('{"messages": [{"role": "user", "content": [7]}]}', "part 0"),
        ('{"messages": [{"role": "user", "content": "x"}], "tools": 7}', "tools"),
        ('{"system": {"a": 1}, "messages": [{"role": "user", "content": "x"}]}', "system"),
    ],
)
def test_what_is_no_request_is_one_clear_line(run, broken, said):
    status, out, err = run(body(CAT), broken)
    assert (status, out) == (2, "") and len(err.strip().splitlines()) == 1
    assert "B.json" in err and said in err


def test_a_file_that_is_missing_or_a_model_that_is_none_is_one_line(tmp_path, capsys):
    (tmp_path / "A.json").write_text(json.dumps(body(CAT)))
    for arguments in ([tmp_path / "A.json", tmp_path / "none.json"], [tmp_path / "A.json"] * 2 + ["--model", "no-such"]):
        with pytest.raises(SystemExit) as end:
            main(["explain", *map(str, arguments)])
        assert end.value.code == 2 and len(capsys.readouterr().err.strip().splitlines()) == 1


def test_tool_calls_and_results_are_text():
    calls = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": {"name": "add"}}]}
    parts = [{"type": "tool_use", "name": "add", "input": {"a": 1}}, {"type": "tool_result", "content": "42"}]
    read = body_of({"messages": [calls, {"role": "user", "content": parts}]})
    assert '"add"' in read.messages[0]["content"] and read.messages[1]["content"] == '{"name": "add", "input": {"a": 1}}\n42'


def test_a_template_s_tokens_are_used_where_there_is_a_tokenizer():
    rendered = render(body_of(body("where is ana ?")), tiny_tokenizer())
    assert rendered.unit == "tokens" and rendered.ids == tiny_tokenizer().encode_chat(
        [{"role": "user", "content": "where is ana ?"}]
    )
    assert rendered.text_of(rendered.ids).startswith("<user> where is ana")


def test_other_tools_are_the_cause_only_if_the_texts_part_there():
    text = "".join(map(chr, range(32, 127))) + "\n"
    tokenizer = CharTokenizer(text)
    tokenizer.chat = ChatTemplate("{{ messages[0].content }}|{{ tools }}|{{ messages[1].content }}")
    times = [
        body_of(body(CAT, system=system, tools=tools)) for system, tools in zip(CLOCKED, (TOOLS, TOOLS[::-1]), strict=True)
    ]
    report, length = compared(*times, Source(tokenizer, None), None)
    assert (report.cause, report.unit) == ("clock", "tokens") and 0 < report.lost_tokens < length
    same = [body_of(body(CAT, system=CLOCKED[0], tools=tools)) for tools in (TOOLS, TOOLS[::-1])]
    assert compared(*same, Source(tokenizer, None), None)[0].cause == "tool_order"


def test_the_command_needs_no_torch(tmp_path):
    for name, time in (("A.json", CLOCKED[0]), ("B.json", CLOCKED[1])):
        (tmp_path / name).write_text(json.dumps(body("where is ana ?", system=None, note=time)))
    code = (
        "import sys; from kvcourse.cli import main\n"
        f"try: main(['explain', {str(tmp_path / 'A.json')!r}, {str(tmp_path / 'B.json')!r}, '--model', 'tiny'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
