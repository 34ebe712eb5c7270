"""Rules of providers: the files, usage fields in one form, and a log replayed under them."""

import datetime

import numpy as np
import pytest
import torch
from helpers import small_models as small_models
from hypothesis import given
from hypothesis import strategies as st

from kvcourse.common_prefix import common_length
from kvcourse.errors import InputError, UnknownName
from kvcourse.ledger import TurnCount
from kvcourse.providers import Logged, known_providers, replay_requests, rules_of, usage_of
from kvcourse.providers.rules import load_rules
from kvcourse.providers.tree import PrefixTree, as_text

pytestmark = pytest.mark.usefixtures("small_models")  # no shape checks: wrong types have to reach the checks at the edge
GOOD = """
title = "T"
as_of = 2026-01-31
matching = "longest_prefix"
minimum_tokens = 0
granularity_tokens = 1
note = "n"
price = {read = 0.5, write = 1.0}
usage = {cached_in_prompt = true, prompt = ["p"], cached = ["c"], completion = ["o"]}
source = [{title = "S", date = 2026-01-30}]
"""


# The files.


def test_every_provider_says_where_its_rules_are_from_and_of_which_day():
    assert known_providers() == ["anthropic", "deepseek", "gemini", "local", "openai"]
    for name in known_providers():
        rules = rules_of(name)
        assert rules.name == name and rules.title and rules.note
        assert rules.as_of >= max(source.date for source in rules.sources) >= datetime.date(2024, 8, 1)
        assert rules.usage.prompt and rules.usage.cached


def test_every_hosted_provider_says_that_prices_move():
    for name in set(known_providers()) - {"local"}:
        assert "Prices move" in rules_of(name).note


def test_variants_are_laid_over_the_file_one_after_the_other():
    plain, both = rules_of("anthropic"), rules_of("anthropic:1h:4096")
    assert (plain.minimum_tokens, plain.lifetime_seconds, plain.read, plain.write) == (1024, 300, 0.1, 1.25)
    assert (both.minimum_tokens, both.lifetime_seconds, both.read, both.write) == (4096, 3600, 0.1, 2.0)
    assert (both.max_breakpoints, both.lookback_blocks, both.name) == (4, 20, "anthropic:1h:4096")


@pytest.mark.parametrize("name", ["acme", "", None, "rules", "../x"])
def test_an_unknown_provider_is_told_which_are_known(name):
    with pytest.raises(UnknownName, match="anthropic, deepseek, gemini, local, openai"):
        rules_of(name)


def test_an_unknown_variant_is_told_which_there_are():
    with pytest.raises(UnknownName, match="1h, 512, 2048, 4096"):
        rules_of("anthropic:2h")


@pytest.mark.parametrize(
    ("line", "instead", "named"),
    [
        ('title = "T"', "title = 3", "title"),
        ("as_of = 2026-01-31", 'as_of = "today"', "as_of"),
        ("as_of = 2026-01-31", "as_of = 2026-01-31T10:00:00", "as_of"),
        ('"longest_prefix"', '"guess"', "matching"),
        ("minimum_tokens = 0", "minimum_tokens = -1", "minimum_tokens"),
        ("granularity_tokens = 1", "granularity_tokens = 0", "granularity_tokens"),
        ("granularity_tokens = 1", "granularity_tokens = true", "granularity_tokens"),
        ("read = 0.5", 'read = "half"', "price.read"),
        ("write = 1.0", "write = -1", "price.write"),
        ("cached_in_prompt = true", "cached_in_prompt = 1", "cached_in_prompt"),
        ('prompt = ["p"]', "prompt = []", "usage.prompt"),
        ('source = [{title = "S", date = 2026-01-30}]', "source = []", "source"),
        ('title = "S"', "name = 3", "title"),
        ('note = "n"', 'note = "n"\nprise = 3', "prise"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_the_name_of_what_is(tmp_path, line, instead, named):
    assert line in GOOD
    path = tmp_path / "acme.toml"
    path.write_text(GOOD)
    assert load_rules(path).name == "acme"
    path.write_text(GOOD.replace(line, instead))
    with pytest.raises(InputError, match=f"acme.toml: .*{named}.*Expected .*; got"):
        load_rules(path)


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    path = tmp_path / "acme.toml"
    path.write_text("= 3")
    with pytest.raises(InputError, match=r"acme\.toml cannot be read"):
        load_rules(path)


# Usage.


@pytest.mark.parametrize(
    ("provider", "usage", "counts"),
    [
        ("openai", {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}},
         (2006, 1920, 86, 300, 0)),
        ("openai", {"input_tokens": 2006, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 1920}},
         (2006, 1920, 86, 3, 0)),
        ("openai", {"prompt_tokens": 9, "prompt_tokens_details": None}, (9, 0, 9, 0, 0)),
        ("openai:breakpoints", {"input_tokens": 2600, "output_tokens": 5, "input_tokens_details": {
            "cached_tokens": 2000, "cache_write_tokens": 400}}, (2600, 2000, 600, 5, 400)),
        ("anthropic", {"input_tokens": 21, "cache_read_input_tokens": 1880, "cache_creation_input_tokens": 100,
                       "output_tokens": 393}, (2001, 1880, 121, 393, 100)),
        ("anthropic", {"input_tokens": 21, "output_tokens": 3}, (21, 0, 21, 3, 0)),
        ("gemini", {"promptTokenCount": 4000, "cachedContentTokenCount": 3000, "candidatesTokenCount": 5},
         (4000, 3000, 1000, 5, 0)),
        ("deepseek", {"prompt_tokens": 700, "prompt_cache_hit_tokens": 640, "prompt_cache_miss_tokens": 60},
         (700, 640, 60, 0, 0)),
        ("local", {"prompt_tokens": 8, "cached_tokens": 7, "computed_tokens": 1, "completion_tokens": 2}, (8, 7, 1, 2, 0)),
    ],
)  # fmt: skip
def test_usage_is_the_same_five_figures_for_every_provider(provider, usage, counts):
    found = usage_of(provider, usage)
    assert counts == (
        found.prompt_tokens, found.cached_tokens, found.computed_tokens, found.completion_tokens, found.written_tokens,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "usage", "match"),
    [
        ("openai", {"total_tokens": 3}, "no prompt figure.*prompt_tokens or input_tokens"),
        ("openai", {}, "no prompt figure"),
        ("openai", {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 6}}, "contradict"),
        ("openai", {"prompt_tokens": "5"}, "prompt_tokens is no count"),
        ("openai", {"prompt_tokens": True}, "is no count"),
        ("anthropic", {"input_tokens": -1}, "is no count"),
        ("anthropic", [3], "no usage object"),
    ],
)
def test_usage_that_cannot_be_read_says_why(provider, usage, match):
    with pytest.raises(InputError, match=match):
        usage_of(provider, usage)


# Costs.


def test_a_prompt_costs_what_each_of_its_tokens_costs():
    rules = rules_of("anthropic")
    assert rules.input_cost(1000, 0) == 1000
    assert rules.input_cost(1000, 600) == 400 + 0.1 * 600
    assert rules.input_cost(1000, 600, 300) == 100 + 0.1 * 600 + 1.25 * 300
    with pytest.raises(InputError, match="contradict"):
        rules.input_cost(1000, 600, 401)


@pytest.mark.parametrize(
    ("provider", "shared", "reusable"),
    [("local", 1, 1), ("openai", 1023, 0), ("openai", 1024, 1024), ("openai", 1151, 1024), ("openai", 1152, 1152),
     ("deepseek", 63, 0), ("deepseek", 130, 128), ("gemini:4096", 4095, 0), ("gemini", 2049, 2049)],
)  # fmt: skip
def test_a_shared_prefix_counts_from_the_minimum_on_in_whole_steps(provider, shared, reusable):
    assert rules_of(provider).reusable(shared) == reusable


# Replaying.

TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)


@given(TEXTS)
def test_locally_the_longest_start_of_any_earlier_request_is_found_but_for_the_last_token(texts):
    found = [one.cached_tokens for one in replay_requests(texts, "local").counts]
    expected = [min(max((common_length(one, other) for other in texts[:n]), default=0), len(one) - 1)
                for n, one in enumerate(texts)]  # fmt: skip
    assert found == expected


def slow_lookup(texts, times, lifetime, renewed):
    """Every token place by itself: when a text that begins so was last used."""
    used, found = {}, []
    for text, now in zip(texts, times, strict=True):
        alive = 0
        while alive < len(text) and tuple(text[: alive + 1]) in used and now - used[tuple(text[: alive + 1])] <= lifetime:
            alive += 1
        found.append(alive)
        for end in range(1, len(text) + 1):
            if renewed or end > alive:
                used[tuple(text[:end])] = now
    return found


@given(TEXTS, st.lists(st.integers(0, 5), min_size=12, max_size=12), st.booleans())
def test_what_nobody_used_for_a_lifetime_is_no_longer_found(texts, gaps, renewed):
    times = [float(sum(gaps[: n + 1])) for n in range(len(texts))]
    tree = PrefixTree(lifetime=4, renewed=renewed)
    found = [tree.insert(as_text(text), n, now) for n, (text, now) in enumerate(zip(texts, times, strict=True))]
    assert [one.alive for one in found] == slow_lookup(texts, times, 4, renewed)
    for n, one in enumerate(found):
        assert one.end.text == as_text(texts[n])
        assert one.shared == max((common_length(texts[n], other) for other in texts[:n]), default=0)
        if one.shared:
            near = [m for m in range(n) if common_length(texts[n], texts[m]) == one.shared]
            assert one.nearest == near[-1]


def test_a_tree_forgets_the_oldest_texts_and_stays_within_its_bytes():
    tree = PrefixTree(max_bytes=20_000)
    texts = [f"{n:04d} " + "x" * 500 for n in range(200)]
    for n, text in enumerate(texts):
        tree.insert(text, n)
        assert tree.bytes <= 20_000
    assert tree.forgotten_up_to is not None and tree.forgotten_up_to > 100
    assert tree.insert(texts[-1] + "y", 200).shared == len(texts[-1]), "the last is still there"
    assert tree.insert(texts[0], 201).shared < len(texts[0]), "the first is gone"


def test_a_request_right_behind_a_long_pause_finds_nothing_at_a_provider_with_a_lifetime():
    text = list(range(2000))
    requests = [Logged(text, 0), Logged(text, 299), Logged(text, 299 + 301)]
    assert [one.cached_tokens for one in replay_requests(requests, "openai").counts] == [0, 1920, 0]
    assert [one.cached_tokens for one in replay_requests(requests, "openai:24h").counts] == [0, 1920, 1920]


def test_the_bill_is_in_base_price_tokens():
    text = list(range(2000))
    replayed = replay_requests([text, text], "openai")
    assert replayed.cost_without_cache == 4000
    assert replayed.cost == 2000 + 80 + 0.5 * 1920
    assert replayed.hit_rate == 1920 / 4000


def chat(turns, blocks=1, tokens=600):
    """Requests of a growing chat: 1,200 tokens of system part, then `blocks` blocks of question a turn; the last is marked."""
    ends = [1200]
    for turn in range(turns):
        ends += [ends[-1] + tokens * (n + 1) // blocks for n in range(blocks)]
        text = list(range(ends[-1]))
        yield Logged(text, 60.0 * turn, tuple(ends), (1200, ends[-1]))


def test_breakpoints_find_what_an_earlier_request_wrote_and_write_the_rest():
    found = replay_requests(chat(4), "anthropic").counts
    assert [one.prompt_tokens for one in found] == [1800, 2400, 3000, 3600]
    assert [one.cached_tokens for one in found] == [0, 1800, 2400, 3000]
    assert [one.written_tokens for one in found] == [1800, 600, 600, 600]


@pytest.mark.parametrize(("blocks", "cached"), [(19, [0, 1800, 2400]), (20, [0, 1200, 1200])])
def test_a_breakpoint_looks_back_twenty_blocks_itself_included_and_no_further(blocks, cached):
    assert [one.cached_tokens for one in replay_requests(chat(3, blocks), "anthropic").counts] == cached


def test_breakpoints_without_a_limit_look_back_over_the_whole_request_and_know_no_steps():
    found = replay_requests(chat(3, blocks=50, tokens=607), "openai:breakpoints")
    assert [one.cached_tokens for one in found.counts] == [0, 1807, 2414]
    assert found.cost == pytest.approx(1.25 * (1807 + 607 + 607) + 0.1 * (1807 + 2414))


def test_below_the_minimum_nothing_is_written_and_nothing_found():
    requests = [Logged(list(range(900)), 0, (900,), (900,))] * 2
    assert [(one.cached_tokens, one.written_tokens) for one in replay_requests(requests, "anthropic").counts] == [(0, 0)] * 2
    assert [(one.cached_tokens, one.written_tokens) for one in replay_requests(requests, "anthropic:512").counts] == [
        (0, 900), (899, 0)]  # fmt: skip


def test_a_start_without_a_mark_is_not_found():
    """The system part is the same, but the only breakpoint stands behind the question."""
    system = list(range(2000))
    requests = [Logged([*system, 5000 + n], 0, (2000, 2001), (2001,)) for n in range(3)]
    assert [one.cached_tokens for one in replay_requests(requests, "anthropic").counts] == [0, 0, 0]
    marked = [Logged(one.tokens, 0, one.ends, (2000, 2001)) for one in requests]
    assert [one.cached_tokens for one in replay_requests(marked, "anthropic").counts] == [0, 2000, 2000]


def test_an_hour_costs_more_to_write_and_lasts_longer():
    text = list(range(2000))
    requests = [Logged(text, 0), Logged(text, 600), Logged(text, 4000)]
    short, long = replay_requests(requests, "anthropic"), replay_requests(requests, "anthropic:1h")
    assert short.cost == 3 * 1.25 * 2000
    assert long.cost == pytest.approx(2 * 2000 + 2 * (0.1 * 1999 + 1))
    late = replay_requests([*requests, Logged(text, 4000 + 3601)], "anthropic:1h").counts
    assert [one.cached_tokens for one in late] == [0, 1999, 1999, 0], "each use renews an hour, and an hour only"


def test_more_breakpoints_than_a_provider_takes_are_refused():
    ends = (100, 200, 300, 400, 500)
    with pytest.raises(InputError, match="at most 4; got 5"):
        replay_requests([Logged(list(range(500)), 0, ends, ends)], "anthropic")


@given(TEXTS, st.sampled_from(["local", "openai", "anthropic", "gemini", "deepseek"]))
def test_counts_add_up_and_no_cache_costs_more_than_its_writes(texts, provider):
    replayed = replay_requests([text * 300 for text in texts], provider)
    for one, text in zip(replayed.counts, texts, strict=True):
        assert one.cached_tokens + one.computed_tokens == one.prompt_tokens == 300 * len(text)
        assert one.written_tokens <= one.computed_tokens
    assert replayed.cost <= replayed.cost_without_cache * replayed.rules.write


@pytest.mark.parametrize(
    ("requests", "match"),
    [([], "nothing to replay"), ([[1], []], "Request 2 holds no token ids"), ([[1], [-1]], "Request 2"), ([["a"]], "Request 1"),
     ([5], "Request 1 .*got 5"), ([[1], [2, True]], "Request 2 .*got True"), (["abc"], "got 'a'"), ([[1.0]], "got 1.0"),
     ([[2**21]], "numbers from 0 to 1,114,111; got 2097152"),
     ([Logged([1, 2], 0, (3,))], "Request 1: the blocks do not fit"), ([Logged([1, 2], 0, (1, 1))], "blocks do not fit"),
     ([Logged([1, 2], 0, (2,), (1,))], "blocks do not fit")],
)  # fmt: skip
def test_what_is_no_request_is_named_by_its_number(requests, match):
    with pytest.raises(InputError, match=match):
        replay_requests(requests, "anthropic")


@pytest.mark.parametrize("provider", ["local", "anthropic"])
def test_ids_are_integers_of_whatever_kind_and_come_in_whatever_holds_them(provider):
    text = list(range(1, 3000))
    plain = replay_requests([text, text], provider).counts
    for same in (np.array(text), torch.tensor(text), tuple(text)):
        assert replay_requests([same, same], provider).counts == plain
    assert replay_requests([iter(text), Logged(range(1, 3000))], provider).counts == plain


@pytest.mark.parametrize("provider", ["local", "openai", "anthropic", "openai:breakpoints", "deepseek", "gemini"])
def test_of_a_prompt_that_was_sent_before_whole_the_last_token_is_computed_all_the_same(provider):
    first, again = replay_requests([list(range(1, 8193))] * 2, provider).counts
    assert first.cached_tokens == 0 < again.cached_tokens < again.prompt_tokens
    assert again.cached_tokens == (8191 if provider not in ("openai", "deepseek") else again.cached_tokens // 64 * 64)
    assert TurnCount(again.prompt_tokens, again.cached_tokens, 0).computed_tokens >= 1 and again.written_tokens == 0
