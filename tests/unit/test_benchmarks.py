"""The decode benchmark, on a model small enough to test it: equal tokens first, then figures that fit together."""

import json

import pytest

from benchmarks import decode
from benchmarks.bandwidth import read_bandwidth
from benchmarks.engines import ENGINES, SHAPES, Answer
from kvcourse.config import kv_bytes_per_token

PAIR = ("kvcourse preallocated", "transformers DynamicCache")


def result(engine: str, seconds: list[float], tokens: list[int]) -> decode.Result:
    return decode.Result(engine, 4, 3, read_bytes=1e6, answers=[Answer(tokens, 0.1, s) for s in seconds])


def test_one_run_asks_every_engine_and_finds_the_same_tokens(monkeypatch, capsys):
    monkeypatch.setattr(decode, "ENGINES", {name: ENGINES[name] for name in PAIR})
    monkeypatch.setattr(decode, "read_bandwidth", lambda: 1e9)
    monkeypatch.setattr("sys.argv", ["decode", "--shape", "small", "--prompts", "9", "--new", "5", "--rounds", "2", "--json"])
    assert decode.main() == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["engine"] for row in rows] == list(PAIR)
    assert all(row["tokens_per_s"] > 0 and row["peak_bytes"] > 50e6 and row["first_token_ms"] > 0 for row in rows)


def test_a_step_reads_the_weights_and_the_keys_and_values(monkeypatch):
    monkeypatch.setattr(decode, "ENGINES", {PAIR[0]: ENGINES[PAIR[0]]})
    monkeypatch.setattr(decode, "read_bandwidth", lambda: 1e9)
    (only,), _ = decode.run("small", [8], new=4, rounds=1, threads=1)
    c = SHAPES["small"]
    per_block = 2 * 2 * c.n_embd + (3 + 1 + 4 + 4) * c.n_embd**2 + (3 + 1 + 4 + 1) * c.n_embd
    weights = 4 * (c.vocab_size * c.n_embd + c.n_layer * per_block + 2 * c.n_embd)
    assert only.read_bytes == weights + kv_bytes_per_token(c) * (8 + 4 / 2)
    assert len(only.answers[0].tokens) == 4


def test_different_tokens_mean_no_times(monkeypatch, capsys):
    results = [result(PAIR[0], [1.0], [1, 2, 3]), result(PAIR[1], [1.0], [1, 2, 4])]
    assert decode.different_tokens(results) == ["transformers DynamicCache, prompt 4"]
    monkeypatch.setattr(decode, "run", lambda *args: (results, [1e9]))
    monkeypatch.setattr("sys.argv", ["decode"])
    assert decode.main() == 1
    out, err = capsys.readouterr()
    assert out == "" and "Different tokens" in err


def test_ratios_are_taken_round_by_round():
    fast, slow = result(PAIR[0], [1.0, 4.0, 2.0], [1, 2, 3]), result(PAIR[1], [2.0, 4.0, 3.0], [1, 2, 3])
    assert fast.ratio(slow) == [1.0, 1.5, 2.0]
    assert fast.tokens_per_s == pytest.approx(1.0)
    assert fast.share(bandwidth=4e6) == pytest.approx(0.25)


def test_the_bandwidth_is_that_of_a_memory():
    assert 1e8 < read_bandwidth(megabytes=16, runs=2) < 1e13


def test_all_prompts_together_are_compared_by_the_sum_of_their_times():
    slow, fast = decode.BASE, "other"
    seconds = ((slow, [3.0, 4.0]), (slow, [1.0, 2.0]), (fast, [1.0, 1.0]), (fast, [1.0, 2.0]))
    results = [result(engine, taken, [1]) for engine, taken in seconds]
    assert decode.whole(results) == {slow: [1.0, 1.0], fast: [2.0, 2.0]}
