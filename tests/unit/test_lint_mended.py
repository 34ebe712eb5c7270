"""The linter's claims about the mended log, held against that very log, written out and counted."""

import json
import random

import pytest
from helpers import small_models as small_models
from lint_helpers import BYTES, WORDS, computed_and_cost, in_turn

from kvcourse.cli import main
from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.judge import judge
from kvcourse.prompts.layout import lint_requests
from kvcourse.prompts.lint_page import as_page

pytestmark = pytest.mark.usefixtures("small_models")


def sentence(rng, least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most))).capitalize() + "."


def chat(rng, front, n_requests, keep, every, size):
    """Requests of a conversation that keeps its last messages, cutting at every so many messages; and those that keep all."""
    turns, cut, cropped, whole = [], 0, [], []
    for _ in range(n_requests):
        turns.append({"role": "user", "content": sentence(rng, size // 2, size)})
        if len(turns) - cut > keep + every:
            cut = len(turns) - keep
        cropped.append({"messages": [*front, *turns[cut:]]})
        whole.append({"messages": [*front, *turns]})
        turns.append({"role": "assistant", "content": sentence(rng, size // 2, 2 * size)})
    return list(zip(cropped, whole, strict=True))


def cropped_logs(seed):
    """A log of one to three cropped conversations in turn, and the same with everything kept."""
    rng = random.Random(seed)
    text = " ".join(sentence(rng, 8, 16) for _ in range(rng.choice((0, 5, 40))))
    front = [{"role": "system", "content": text}] if text else []
    size = rng.choice((15, 60))
    chats = [chat(rng, front, rng.randint(4, 12), rng.choice((3, 5, 9)), rng.choice((0, 0, 2, 6)), size)
             for _ in range(rng.randint(1, 3))]  # fmt: skip
    return in_turn(rng, chats)


@pytest.mark.parametrize("provider", ["local", "openai", "openai:tenth", "deepseek", "gemini"])
def test_of_a_cropped_history_that_is_lost_which_the_same_log_saves_with_everything_kept(provider):
    signs = set()
    for seed in range(20):
        now, mended = cropped_logs(seed)
        (computed, cost), (kept_computed, kept_cost) = (computed_and_cost(log, provider) for log in (now, mended))
        report = lint_requests(now, BYTES, provider)
        near = len(now)  # a token each, for first words that a cut brings to the front, and that are some other's, too
        assert report.total("tokens_fewer") == pytest.approx(computed - kept_computed, abs=near)
        assert report.total("cost_lost") == pytest.approx(cost - kept_cost, abs=near)
        signs.add(report.total("cost_lost") > 0)
    assert signs == ({True} if provider in ("local", "deepseek") else {True, False})


@pytest.mark.parametrize(
    ("provider", "each"), [("local", 6), ("deepseek", 20), ("anthropic:512", 1), ("openai:breakpoints", 1)]
)
def test_estimates_of_what_is_lost_are_near_and_claim_no_more(provider, each):
    for seed in range(20):
        now, mended = cropped_logs(seed)
        report, kept = lint_requests(now, provider=provider), lint_requests(mended, provider=provider)
        saved = report.total("cost") - kept.total("cost")
        assert saved - each * len(now) <= report.total("cost_lost") <= saved + len(now)


@pytest.mark.parametrize("provider", ["anthropic:512", "openai:breakpoints"])
def test_where_prefixes_end_at_marks_the_mended_cost_is_right_but_for_the_cut_of_characters_into_tokens(provider):
    for seed in range(20):
        now, mended = cropped_logs(seed)
        report, kept = (lint_requests(log, BYTES, provider) for log in (now, mended))
        near = 0.05 * kept.total("cost") + report.rules.minimum_tokens  # of one prompt, that is just too short, or just not
        assert report.total("cost") - report.total("cost_lost") == pytest.approx(kept.total("cost"), abs=near)


@pytest.mark.parametrize("provider", ["local", "openai:tenth"])
def test_four_cuts_in_one_cost_what_they_are_said_to(provider):
    for seed in range(8):
        rng = random.Random(seed)
        front = [{"role": "system", "content": " ".join(sentence(rng, 8, 16) for _ in range(30))}]
        pairs = chat(rng, front, 14, 3, 0, 40)
        cuts, at, fewer = 0, 0, []
        for now, whole in pairs:
            missing = len(whole["messages"]) - len(now["messages"])
            cuts += missing > 0
            at = missing if cuts and cuts % 4 == 0 else at
            fewer.append({"messages": [*front, *whole["messages"][1 + at :]]})
        group = lint_requests([now for now, _ in pairs], BYTES, provider).groups[0]
        near = 20 * 3  # a word that two messages begin with, at three cuts
        assert group.cost_fewer_cuts == pytest.approx(computed_and_cost(fewer, provider)[1], abs=near)


def test_where_nothing_is_left_out_the_mended_log_is_as_long_as_the_log():
    rules = " ".join(sentence(random.Random(0), 8, 16) for _ in range(30))
    growing = [pair[1]["messages"] for pair in chat(random.Random(1), [], 6, 99, 0, 20)]
    names = "abcd"
    logs = {
        "whitespace": [[rules + "\n" * (n % 2), *turns] for n, turns in enumerate(growing)],
        "template": [[rules + " Answer in English." * (n % 2), *turns] for n, turns in enumerate(growing)],
        "tool_order": [[rules, *turns] for turns in growing],
        "schema": [[rules, *turns] for turns in growing],
    }
    for cause, log in logs.items():
        requests = [{"messages": [{"role": "system", "content": first}, *rest]} for first, *rest in log]
        for n, one in enumerate(requests):
            shown = names[n % 3 :] + names[: n % 3] if cause == "tool_order" else names[: 3 + n % 2]
            one["tools"] = [{"name": name, "description": "x"} for name in shown] if cause in ("tool_order", "schema") else []
        for tokenizer in (None, BYTES):
            group = lint_requests(requests, tokenizer, "openai").groups[0]
            assert group.cause == cause and group.tokens_lost > 0
            assert group.mended_prompt_tokens == group.prompt_tokens
            assert group.cost_lost == pytest.approx(0.5 * group.tokens_lost) and group.price_note is None


def test_a_new_conversation_with_the_same_system_part_has_kept_nothing_of_a_cropped_one():
    rng = random.Random(2)
    front = [{"role": "system", "content": " ".join(sentence(rng, 8, 16) for _ in range(30))}]
    cropped = [now for now, _ in chat(rng, front, 8, 3, 0, 40)]
    fresh = [{"messages": [*front, {"role": "user", "content": sentence(rng, 20, 30)}]} for _ in range(3)]
    alone, both = (lint_requests(log, BYTES, "openai") for log in (cropped, [*cropped, *fresh]))
    grown = [report.total("mended_prompt_tokens") - report.total("prompt_tokens") for report in (alone, both)]
    assert grown[0] == grown[1] > 0


def test_the_mended_request_is_longer_by_what_its_verdict_says_and_by_the_clocks_that_are_left_in_it():
    old = [{"role": "system", "content": "Be brief, it is 9:00."}, *chat(random.Random(3), [], 3, 99, 0, 20)[-1][1]["messages"]]
    asked = [{"role": "assistant", "content": "Gladly."}, {"role": "user", "content": "And now?"}]
    full, cut = ({"messages": [*old, *asked]}, {"messages": [old[0], *old[3:], *asked]})
    verdict = judge(body_of(cut), body_of({"messages": old}))
    assert verdict.mended == body_of(full)
    assert verdict.grown == sum(len(f"<|im_start|>{one['role']}\n{one['content']}<|im_end|>\n") for one in old[1:3])
    later = [{"role": "system", "content": "Be brief, it is 10:00."}, *old[1:], *asked]
    verdict = judge(body_of({"messages": later}), body_of({"messages": old}))
    assert verdict.findings[0].cause.kind == "clock" and (verdict.grown, verdict.moved) == (len("9:00"), 0)
    once = body_of({"messages": [old[0], {"role": "user", "content": "And another thing."}]})
    verdict = judge(once, body_of({"messages": [later[0], {"role": "user", "content": "And one thing."}]}))
    assert verdict.findings[0].cause.kind == "clock" and (verdict.grown, verdict.moved) == (0, len("10:00"))


@pytest.fixture
def dear():
    """A log that costs less as it is: cropped, at a provider where what is found costs half."""
    rng = random.Random(1)
    front = [{"role": "system", "content": " ".join(sentence(rng, 12, 12) for _ in range(40))}]
    return [now for now, _ in chat(rng, front, 8, 3, 0, 150)]


def test_what_keeping_everything_costs_more_is_said_in_text_json_and_html(dear, tmp_path, capsys):
    log, page = tmp_path / "log.jsonl", tmp_path / "page.html"
    log.write_text("\n".join(map(json.dumps, dear)))
    report = lint_requests(dear, provider="openai", base_price=2.0)
    group = report.groups[0]
    assert group.cost_lost < -1000 and group.tokens_lost > 1000
    note = group.price_note
    assert f"{group.tokens_lost:,} tokens fewer, and cost {-group.cost_lost:,.0f} more" in note
    assert "Cut at fixed points, several turns at once" in note and "4 cuts in one would cost" in note
    text = str(report)
    assert f"price      {note}" in text and "worth" not in text.split("\n")[2]
    assert f"; all mended, {-group.cost_lost:,.0f} more at the base price = " in text
    with pytest.raises(SystemExit, match="0"):
        main(["lint", str(log), "--provider", "openai", "--price", "2", "--json", "--html", str(page)])
    record = json.loads(capsys.readouterr().out)
    assert record["cost_lost"] < 0 and record["groups"][0]["price_note"] == note
    html = page.read_text(encoding="utf-8")
    assert note in html and "all mended, more than now, in base-price tokens" in html and "width:-" not in html
    assert as_page(report, "x").count("all mended, more than now, in money") == 1


def test_where_keeping_everything_pays_the_report_says_what_it_is_worth(dear):
    report = lint_requests(dear)
    assert report.groups[0].price_note is None and f"worth {report.total('tokens_lost'):,}" in str(report)
    assert report.groups[0].suggestion.predicted_hit_rate == pytest.approx(
        report.total("mended_cached_tokens") / report.total("mended_prompt_tokens")
    )


def test_a_mend_that_costs_more_for_another_reason_is_not_said_to_be_about_cuts():
    rng = random.Random(4)
    front = [{"role": "system", "content": " ".join(sentence(rng, 12, 12) for _ in range(10))}]
    whole = [kept["messages"] for _, kept in chat(rng, front, 5, 99, 0, 20)]
    whole[2] = whole[2][1:]
    group = lint_requests([{"messages": one} for one in whole], provider="openai").groups[0]
    assert group.cause == "template" and group.cost_lost < 0 == group.tokens_lost
    assert group.price_note.startswith("Mended, the log would compute") and "uts" not in group.price_note


def test_what_a_request_puts_in_is_not_counted_as_saved():
    """A note that one request puts in front of the conversation costs what is behind it; its own tokens are nobody's fault."""
    rng = random.Random(5)
    front = [{"role": "system", "content": " ".join(sentence(rng, 12, 12) for _ in range(10))}]
    whole = [kept["messages"] for _, kept in chat(rng, front, 5, 99, 0, 20)]
    note = {"role": "assistant", "content": sentence(rng, 90, 90)}
    noted = [*whole[:4], [front[0], note, *whole[4][1:]]]
    requests = [{"messages": one} for one in noted]
    body, earlier = (body_of(one) for one in (requests[4], requests[3]))
    assert judge(body, earlier).grown < 0
    group = lint_requests(requests, BYTES).groups[0]
    last = lint_requests(requests, BYTES).counts[-1]
    assert group.cause == "history" and group.mended_prompt_tokens == group.prompt_tokens
    assert last.tokens_lost == len(render(earlier, BYTES).ids) - last.cached_tokens
