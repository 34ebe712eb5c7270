"""What the linter says of clocks and ids that are moved, held against the very log that its layout describes, written out."""

import random

import pytest
from helpers import small_models as small_models
from lint_helpers import BYTES, WORDS, computed_and_cost, in_turn

from kvcourse.prompts.bodies import body_of, render
from kvcourse.prompts.judge import judge
from kvcourse.prompts.layout import lint_requests

pytestmark = pytest.mark.usefixtures("small_models")

PROVIDERS = ["local", "deepseek", "openai:tenth", "anthropic:512", "openai:breakpoints"]


def prose(rng, sentences):
    return " ".join(" ".join(rng.choice(WORDS) for _ in range(9)).capitalize() + "." for _ in range(sentences))


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def conversation(rng, rules, stamp, n, branches=False):
    """(a request with its stamp in front, the same with each new stamp behind the message it was sent with)."""
    asked, kept = [], []
    for k in range(n):
        if branches and k == n - 2:  # back to an earlier question, and another way on from there
            asked, kept = asked[: 2 * (n // 2)], kept[: 2 * (n // 2)]
        now, question = stamp(k), prose(rng, 1)
        asked.append(user(question))
        kept.append(user(question + now))
        yield {"messages": [system(f"It is {now}. {rules}"), *asked]}, {"messages": [system(f"It is . {rules}"), *kept]}
        answer = {"role": "assistant", "content": prose(rng, rng.randint(1, 5))}
        asked, kept = [*asked, answer], [*kept, answer]


def clock(k):
    return f"2026-03-02 10:{k:02d}:12"


def talks(seed, branches=False):
    """One to three conversations in turn, as sent and as they would be."""
    rng = random.Random(seed)
    rules = prose(rng, rng.choice((4, 12, 40)))
    several = [list(conversation(rng, rules, lambda k, t=20 * t: clock(k + t), rng.randint(6, 12), branches)) for t in range(
        rng.randint(1, 3))]  # fmt: skip
    return in_turn(rng, several)


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("provider", PROVIDERS[:3])
def test_the_mended_log_computes_and_costs_what_the_log_with_its_clocks_moved_does(provider, branches):
    for seed in range(10):
        now, then = talks(seed, branches)
        (computed, cost), (then_computed, then_cost) = (computed_and_cost(log, provider) for log in (now, then))
        report = lint_requests(now, BYTES, provider)
        assert report.groups[0].cause == "clock"
        assert report.total("mended_prompt_tokens") == sum(len(render(body_of(body), BYTES).ids) for body in then)
        near = 4 * len(now)  # the first characters of a clock are the same, and so are those of many a question
        assert report.total("tokens_fewer") == pytest.approx(computed - then_computed, abs=near)
        assert report.total("cost_lost") == pytest.approx(cost - then_cost, abs=near)


@pytest.mark.parametrize("tokenizer", [None, BYTES], ids=["estimate", "bytes"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_predicted_rate_and_cost_are_those_of_the_layout_as_it_is_printed(provider, tokenizer):
    for seed in range(10):
        now, then = talks(seed)
        report, moved = (lint_requests(log, tokenizer, provider) for log in (now, then))
        assert moved.faults == []
        group = report.groups[0]
        rate = moved.total("cached_tokens") / moved.total("prompt_tokens")
        assert group.suggestion.predicted_hit_rate == pytest.approx(rate, abs=0.02 if provider == "local" else 0.03)
        near = 0.03 * moved.total("cost") + 2 * report.rules.minimum_tokens * (provider != "local")  # prompts just long enough
        assert group.cost - group.cost_lost == pytest.approx(moved.total("cost"), abs=near)


def test_the_layout_says_that_a_clock_is_left_where_it_was_sent():
    report = lint_requests(talks(1)[0], BYTES)
    assert report.groups[0].suggestion.layout[-1] == "each new clock behind the last message, and left there in later turns"


def test_what_is_moved_is_left_in_a_conversation_that_goes_on_and_else_is_not_shared():
    first = [system("It is 9:00. Be kind to all."), user("Who is it?")]
    on = [system("It is 10:00. Be kind to all."), first[1], {"role": "assistant", "content": "Ann."}, user("Why?")]
    verdict = judge(body_of({"messages": on}), body_of({"messages": first}))
    assert (verdict.goes_on, verdict.moved, verdict.grown, verdict.stamps) == (2, 0, 4, ((0, "9:00"),))
    another = [on[0], user("Where was it then?")]
    verdict = judge(body_of({"messages": another}), body_of({"messages": first}))
    assert (verdict.goes_on, verdict.moved, verdict.grown) == (0, 4, 0)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_name_in_front_costs_what_the_log_with_the_name_behind_the_question_saves(provider):
    rng = random.Random(3)
    rules = prose(rng, 40)
    names = ["Ann Lee", "Bob Ray", "Cleo May", "Dan Fox", "Eve Orr", "Finn Ho"]
    questions = [prose(rng, 2) for _ in names]
    now = [
        {"messages": [system(f"You talk to {name}. {rules}"), user(asked)]}
        for name, asked in zip(names, questions, strict=True)
    ]
    then = [
        {"messages": [system(f"You talk to . {rules}"), user(asked + name)]}
        for name, asked in zip(names, questions, strict=True)
    ]
    report, moved = (lint_requests(log, BYTES, provider) for log in (now, then))
    group = report.groups[0]
    assert group.cause == "id" and "6 texts about a request or its user" in group.first_difference.why
    rate = moved.total("cached_tokens") / moved.total("prompt_tokens")
    assert group.suggestion.predicted_hit_rate == pytest.approx(rate, abs=0.01)
    assert group.cost - group.cost_lost == pytest.approx(moved.total("cost"), rel=0.01)
    assert sum(one.tokens_lost for one in report.counts) == group.tokens_lost > 0
