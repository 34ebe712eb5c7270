"""Very many families: a bounded number of groups, sums that stay the same, and memory that does not grow with the log."""

import json
import random
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from helpers import small_models as small_models

from kvcourse.cli import main
from kvcourse.prompts import families, groups
from kvcourse.prompts.bodies import body_of
from kvcourse.prompts.groups import Difference, Group, Groups
from kvcourse.prompts.layout import Linter, lint_requests
from kvcourse.prompts.lint_page import as_page
from kvcourse.prompts.logs import Entry
from kvcourse.providers.tree import PrefixTree

pytestmark = pytest.mark.usefixtures("small_models")
SUMS = ("requests", "prompt_tokens", "cached_tokens", "tokens_lost", "cost", "cost_lost")


def words(rng, n):
    return " ".join("".join(rng.choices("abcdefghijklmnop", k=8)) for _ in range(n))


def single(n):
    return {"messages": [{"role": "user", "content": words(random.Random(n), 8)}]}


def clocked(n, k):
    """The k-th request of the n-th family: a clock in front of its own text."""
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=61 * k)
    text = f"It is {now:%Y-%m-%d %H:%M:%S}. {words(random.Random(f'family {n}'), 40)}"
    return {"messages": [{"role": "system", "content": text}, {"role": "user", "content": words(random.Random(f"{n} {k}"), 4)}]}


def many():
    """Families without a fault, with one, and with a large one, in turn."""
    log = [one for n in range(40) for one in (single(n), clocked(n, 0), clocked(n, 1))]
    return [*log, *(clocked(7, k) for k in range(2, 9))]


@pytest.fixture
def listed(monkeypatch):
    monkeypatch.setattr(groups, "LISTED", 10)
    monkeypatch.setattr("kvcourse.prompts.lint_report.LISTED", 10)


def sums(record):
    return {name: pytest.approx(sum(group[name] for group in record["groups"])) for name in SUMS}


@pytest.mark.parametrize("provider", ["local", "openai", "anthropic"])
def test_what_is_counted_together_changes_no_sum_and_is_said(provider, monkeypatch):
    whole = lint_requests(many(), provider=provider).as_record()
    monkeypatch.setattr(groups, "LISTED", 10)
    report = lint_requests(many(), provider=provider)
    record = report.as_record()
    assert sums(record) == sums(whole) == {name: whole[name] for name in SUMS} == {name: record[name] for name in SUMS}
    assert sum(group["families"] for group in record["groups"]) == len(whole["groups"]) == 80
    assert [group["families"] for group in record["groups"][:10]] == [1] * 10
    together = {group["cause"]: group["families"] for group in record["groups"][10:]}
    assert together == {"none": 40, "clock": 30}
    assert any("70 of 80 groups are counted together" in note for note in record["notes"])
    assert not any("together" in note for note in whole["notes"])


def test_those_that_lost_most_stay_on_their_own_and_the_rest_keeps_an_example(listed):
    record = lint_requests(many()).as_record()
    first, rest = record["groups"][0], [group for group in record["groups"] if group["families"] > 1]
    assert first["requests"] == 9 and first["cause"] == "clock", "the large one"
    assert [group["cause"] for group in rest] == ["clock", "none"]
    clocks = rest[0]["first_difference"]
    assert clocks["request"] - clocks["against"] == 1 and clocks["ours"].startswith("2026-01-01 00:01:01")
    assert rest[0]["suggestion"]["predicted_hit_rate"] > rest[0]["suggestion"]["hit_rate"]
    assert set(record["groups"][0]) == set(rest[0]) == set(rest[1])


def test_people_are_told_how_many_there_are(listed):
    report = lint_requests(many())
    assert str(report).startswith("127 requests in 80 groups, ")
    assert "60 requests in 30 groups of this cause, the first from line " in str(report)
    assert "in 60 requests of 30 groups" in as_page(report, "log.jsonl")


def test_while_a_log_is_read_only_families_that_can_still_grow_are_held(listed, monkeypatch):
    monkeypatch.setattr(families, "_REQUESTS", 20)
    monkeypatch.setattr(groups, "_ROOM", 45)
    log = [one for n in range(300) for one in (single(n), clocked(n, 0), clocked(n, 1))]
    linter = Linter(each=False)
    held = 0
    for n, body in enumerate(log):
        linter.add(Entry(n + 1, body_of(body)))
        held = max(held, len(linter._report._groups._single))
    record = linter.report().as_record()
    assert held <= 46 and len(record["groups"]) == 12
    assert sum(group["families"] for group in record["groups"]) == 600
    assert sums(record) == {name: record[name] for name in SUMS} and record["requests"] == 900
    assert next(group for group in record["groups"] if group["cause"] == "none")["requests"] == 300


def test_a_sum_of_losses_is_no_loss_of_sums():
    """Of two families, one saves nothing when mended: what the other one saves is not set off against it."""
    both = Groups()
    for number, mended in ((1, 50), (2, 150)):
        group = both.of(number, number)
        group.requests, group.prompt_tokens, group.mended_prompt_tokens = 2, 100, mended
        group.fault("history").first = Difference(number, 1, 0, 0, "", "", "", "")
    together = Group(0, 1, families=0)
    for group in both:
        together.take(group)
    assert (together.families, together.tokens_lost, together.requests, together.cause) == (2, 50, 4, "history")


def test_memory_does_not_grow_with_requests_that_share_nothing(monkeypatch):
    monkeypatch.setattr(families, "_SENTENCES", 500)
    monkeypatch.setattr(families, "_REQUESTS", 100)
    monkeypatch.setattr(groups, "LISTED", 100)
    monkeypatch.setattr(groups, "_ROOM", 300)
    linter = Linter(each=False)
    linter._families.tree.max_bytes = 200_000

    def feed(numbers):
        for n in numbers:
            linter.add(Entry(n + 1, body_of(single(n)), model=f"model {n}"))

    feed(range(1500))
    tracemalloc.start()
    feed(range(1500, 6000))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 700_000, "what is held has been replaced, and no more: 4,500 groups and nodes would be 4 MB"
    assert linter.report().requests == 6000 and len(linter.report()._groups) == 6000


def test_a_tree_counts_what_it_takes_to_hold_short_texts():
    tracemalloc.start()
    tree = PrefixTree(max_bytes=2_000_000)
    rng = random.Random(0)
    for n in range(20_000):
        tree.insert("".join(rng.choices("abcdefghij", k=12)), n)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert tree.bytes <= 2_000_000 and held < 1.3 * 2_000_000


def test_roots_with_nothing_below_them_are_forgotten_too():
    tree = PrefixTree(max_bytes=50_000)
    for n in range(1000):
        tree.insert("a text", n, root=f"model {n}")
    assert len(tree.roots) < 100 and tree.bytes <= 50_000 and tree.insert("a text", 1000, root="model 999").shared == 6


def test_long_conversations_take_no_more_room_than_short_ones(monkeypatch):
    monkeypatch.setattr(families, "_ITEMS", 1000)
    linter = Linter()
    turns = [{"role": "user", "content": str(n)} for n in range(90)]
    for n in range(30):
        linter.add(Entry(n + 1, body_of({"messages": [*turns, {"role": "user", "content": f"end {n}"}]})))
    assert len(linter._families._seen) == 1000 // 91 + 1 and linter._families._items <= 1100
    assert any("larger than what is remembered" in note for note in linter.report().notes)


def test_the_command_keeps_no_figures_of_single_requests(tmp_path, monkeypatch, capsys):
    log, told = tmp_path / "log.jsonl", []
    log.write_text("\n".join(json.dumps(one) for one in many()))
    report = Linter.report
    monkeypatch.setattr(Linter, "report", lambda linter: told.append(report(linter)) or told[-1])
    with pytest.raises(SystemExit):
        main(["lint", str(log), "--json"])
    assert json.loads(capsys.readouterr().out)["requests"] == len(many())
    assert told[0].counts == [] and len(lint_requests(many()).counts) == len(many())
