"""Logs that nobody means well with: numbers and nesting of any size cost a line, never the whole log."""

import json

import pytest

from kvcourse.errors import InputError
from kvcourse.prompts.layout import lint_log
from kvcourse.providers.usage import usage_of

BODY = {"messages": [{"role": "user", "content": "What is a cat, tell me please?"}]}
PROVIDERS = ("local", "openai", "anthropic", "gemini", "deepseek")
FIGURES = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_cache_miss_tokens")


def linted(tmp_path, lines, provider="local"):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = lint_log(path, provider=provider, base_price=1.0)
    assert str(report) and json.dumps(report.as_record(), indent=1)
    return report


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("digits", ["9" * 400, "9" * 4300, "-" + "9" * 4300, "1e999", "NaN"])
def test_a_usage_figure_of_any_size_is_counted_or_told_as_unread(tmp_path, provider, digits):
    usage = ", ".join(f'"{name}": {digits}' for name in FIGURES)
    line = f'{{"request": {json.dumps(BODY)}, "timestamp": {digits}, "usage": {{{usage}}}}}'
    report = linted(tmp_path, [line] * 3, provider)
    assert (report.requests, report.unread_usage, report.reported_requests) == (3, 3, 0)


@pytest.mark.parametrize(
    "value", [10**400, 10**5000, -(10**5000), 2**63, True, 1.5, "5", float("inf")], ids=lambda value: type(value).__name__
)
def test_a_figure_that_is_no_count_is_refused_in_few_words(value):
    for usage in ({"prompt_tokens": value}, {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": value}}):
        with pytest.raises(InputError, match="is no count") as refused:
            usage_of("openai", usage)
        assert len(str(refused.value)) < 200


@pytest.mark.parametrize("place", ["tools", "calls", "results"])
def test_a_line_of_any_depth_is_judged_or_skipped(tmp_path, place):
    counts = set()
    for n in (*range(100, 900, 200), *range(880, 1000, 3), 10_000):
        deep = "[" * n + "]" * n
        message = {"role": "assistant", "content": None, "tool_calls": [{"x": "DEEP"}]}
        if place == "results":
            message, deep = {"role": "user", "content": "DEEP"}, "[" * n + '"x"' + "]" * n
        body = (
            {"messages": [*BODY["messages"], message]} if place != "tools" else {**BODY, "tools": [{"name": "a", "x": "DEEP"}]}
        )
        line = json.dumps(body).replace('"DEEP"', deep)
        report = linted(tmp_path, [json.dumps(BODY), line, line.replace("cat", "dog"), json.dumps(BODY)])
        assert report.requests + report.skipped_lines == 4 and report.skipped_lines in (0, 2)
        counts.add(report.skipped_lines)
    assert 2 in counts
