"""The agent's task in words, summaries by a model, and what both cost: on the real model's tokenizer, and on the model."""

import re

import pytest
from helpers import make_model

from kvcourse import load_model
from kvcourse.context.agent import run_agent, scripted
from kvcourse.context.parts import Part, flat, n_tokens
from kvcourse.context.policies import CompactNearLimit, Externalise, ReplayAll, Summarise
from kvcourse.context.summaries import DigestSummary, ModelSummary
from kvcourse.context.texts import AFTER_A_PART, handle_text, text_script
from kvcourse.errors import InputError
from kvcourse.ledger import Prices, TurnCount
from kvcourse.providers import rules_of


@pytest.fixture(scope="module")
def smollm2():
    return load_model("smollm2")


def test_a_task_in_words_is_a_well_formed_chat_under_every_policy(smollm2):
    tokenizer = smollm2.tokenizer
    script = text_script(tokenizer, n_steps=6, lines=8)
    after = tokenizer.encode(AFTER_A_PART, special=True)

    def summary(parts):
        return (*tokenizer.encode("Notes."), *after)

    for policy in (
        ReplayAll(),
        Summarise(summary, keep=2),
        Externalise(lambda handle: handle_text(tokenizer, handle), longest=40),
        CompactNearLimit(summary, share=0.5),
    ):
        run = run_agent(script, policy, limit=1000)
        for window in run.windows:
            text = tokenizer.decode(flat(window))
            assert text.count("<|im_start|>") == text.count("<|im_end|>") + 1 and text.endswith("<|im_start|>assistant\n")
            assert all(
                piece.split("\n")[0] in ("system", "user", "assistant", "tool") for piece in text.split("<|im_start|>")[1:]
            )


def test_the_last_answer_of_the_task_is_the_right_one(smollm2):
    for seed in range(60):
        script = text_script(smollm2.tokenizer, n_steps=4, lines=6, seed=seed)
        text = smollm2.tokenizer.decode(flat([Part("tool", step.result) for step in script.steps]))
        counts = {name: text.count(f"{name} restarted") for name in ("auth", "billing", "mail", "search")}
        last = smollm2.tokenizer.decode(script.steps[-1].answer, skip_special=True)
        assert counts[last.removeprefix("It is ").removesuffix(".")] == max(counts.values())
        assert list(counts.values()).count(max(counts.values())) == 1
    assert text_script(smollm2.tokenizer, seed=1) == text_script(smollm2.tokenizer, seed=1)
    assert text_script(smollm2.tokenizer, seed=1) != text_script(smollm2.tokenizer, seed=2)


@pytest.mark.parametrize(("lines", "last"), [(1, "08:00"), (12, "10:45"), (64, "23:45"), (65, "23:45"), (200, "23:55")])
def test_a_log_goes_from_eight_to_midnight_however_long_it_is(smollm2, lines, last):
    script = text_script(smollm2.tokenizer, n_steps=2, lines=lines)
    times = re.findall(r"^(\d+:\d+) \w+ \w+$", smollm2.tokenizer.decode(script.steps[0].result, skip_special=True), re.M)
    assert len(times) == lines and times == sorted(times) and times[-1] == last
    assert "The log is in day-1.txt." in smollm2.tokenizer.decode(script.task)


def test_a_model_that_writes_its_own_words_is_counted_like_any_other(smollm2):
    script = text_script(smollm2.tokenizer, n_steps=3, lines=4)
    run = run_agent(script, ReplayAll(), limit=1000, model=smollm2, writes=True, stop_ids=smollm2.tokenizer.stop_ids)
    before = 0
    for turn, window, answer in zip(run.ledger, run.windows, run.answers, strict=True):
        assert turn.completion_tokens == len(answer) > 0 and turn.prompt_tokens == n_tokens(window)
        assert turn.cached_tokens >= max(0, before - 1)  # all that was sent or written before, but for the last token
        before = turn.occupancy
    text = smollm2.tokenizer.decode(flat(run.windows[-1]))
    assert text.count("<|im_start|>") == text.count("<|im_end|>") + 1


def test_a_summary_by_the_model_stands_for_what_left_and_its_request_is_counted(smollm2):
    tokenizer = smollm2.tokenizer
    summary = ModelSummary(smollm2, tokenizer, max_new_tokens=16, after=AFTER_A_PART)
    run = run_agent(text_script(tokenizer, n_steps=6, lines=6), CompactNearLimit(summary, share=0.6), limit=420)
    assert 1 <= len(summary.texts) == len(run.summaries) and all(summary.texts)
    standing = [part for part in run.windows[-1] if part.role == "summary"]
    assert len(standing) == 1 and summary.texts[-1] in tokenizer.decode(standing[0].tokens)
    prices = Prices(1, 0.1, 5)
    extra = sum(count.prompt_tokens + 5 * count.completion_tokens for count in run.summaries)
    assert run.billed(prices).total == pytest.approx(run.ledger.billed(prices).total + extra) and extra > 0


def test_a_digest_is_another_one_for_other_parts_and_costs_what_it_stands_for():
    summary = DigestSummary(8, vocab_size=61)
    one, other = [Part("tool", (1, 2, 3), 1)], [Part("tool", (1, 2, 4), 1)]
    assert summary(one) == DigestSummary(8, vocab_size=61)(one) != summary(other)
    assert len(summary(one)) == 8 and all(0 <= token < 61 for token in summary(one))
    assert summary.counts == [TurnCount(3, 0, 8)] * 4
    run = run_agent(
        scripted(12, system=20, task=6, answer=4, result=9, vocab_size=61), CompactNearLimit(summary, 0.7), limit=120
    )
    assert list(run.summaries) == summary.counts[4:] != []  # only those of this run


@pytest.mark.parametrize("wrong", [{"n_tokens": 0}, {"n_tokens": True}, {"n_tokens": 3, "vocab_size": 0}])
def test_a_digest_of_no_size_is_refused(wrong):
    with pytest.raises(InputError, match="1 or more"):
        DigestSummary(**wrong)


def test_nobody_writes_on_counts_only_and_a_tokenizer_without_chatml_is_refused():
    with pytest.raises(InputError, match="model="):
        run_agent(scripted(2, system=2, task=2, answer=2, result=2), ReplayAll(), limit=100, writes=True)
    with pytest.raises(InputError, match="ChatML"):
        text_script(load_model("tiny").tokenizer)
    for wrong in ({"lines": 0}, {"n_steps": 1}, {"n_steps": True}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            text_script(load_model("tiny").tokenizer, **wrong)


def test_what_a_model_wrote_without_an_end_is_ended_before_the_tool_answers():
    model = make_model("llama", context_length=300)
    stop = 5
    run = run_agent(scripted(4, system=9, task=3, answer=3, result=4, vocab_size=61), ReplayAll(), limit=200, model=model,
                    writes=True, stop_ids=[stop])  # fmt: skip
    for number, answer in enumerate(run.answers[:-1], start=1):
        (tool,) = [part for part in run.windows[-1] if part.role == "tool" and part.step == number]
        assert (answer[-1] == stop) != (tool.tokens[0] == stop)


def test_a_provider_s_rules_price_a_ledger():
    assert rules_of("anthropic").prices() == Prices(computed=1.25, cached=0.1, completion=5.0)
    assert rules_of("anthropic:1h").prices(completion=4).computed == 2.0
