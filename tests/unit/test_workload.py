"""The made-up log looks like the real one where it says so, and is the same each time."""

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from statistics import mean, median

import pytest

from kvcourse.errors import InputError
from kvcourse.prefix.trace_files import Request, read_trace
from kvcourse.prefix.workload import chat_workload, main

# Measured on the Mooncake conversation trace.
INPUT, OUTPUT, SPAN_MS, SEEN_BEFORE, TURNS = 12035, 343, 3_537_000, 0.3664, 1.63


@pytest.fixture(scope="module", params=[0, 1])
def log(request) -> list[Request]:
    return chat_workload(seed=request.param)


def hits(log: list[Request]) -> list[int]:
    """Of each request, the blocks in front that were seen before."""
    seen: set[int] = set()
    found = []
    for one in log:
        found.append(next((n for n, block in enumerate(one.hash_ids) if block not in seen), len(one.hash_ids)))
        seen.update(one.hash_ids)
    return found


def test_the_averages_are_those_of_the_trace(log):
    assert len(log) == 12031
    assert mean(one.input_length for one in log) == pytest.approx(INPUT, rel=0.04)
    assert mean(one.output_length for one in log) == pytest.approx(OUTPUT, rel=0.04)
    assert log[-1].timestamp == pytest.approx(SPAN_MS, rel=0.05)
    chats = sum(n <= 1 for n in hits(log))
    assert len(log) / chats == pytest.approx(TURNS, rel=0.05)


def test_as_many_blocks_were_seen_before_as_in_the_trace(log):
    assert sum(hits(log)) / sum(len(one.hash_ids) for one in log) == pytest.approx(SEEN_BEFORE, abs=0.02)


def test_a_chat_comes_back_after_two_minutes_or_so(log):
    last: dict[int, float] = {}
    pauses = []
    for one, n in zip(log, hits(log), strict=True):
        if n > 1:
            pauses.append(one.timestamp - last[one.hash_ids[n - 1]])
        last.update(dict.fromkeys(one.hash_ids, one.timestamp))
    assert median(pauses) == pytest.approx(123_000, rel=0.1)


def test_every_chat_begins_with_the_same_prompt_and_chats_share_nothing_else(log):
    assert {one.hash_ids[0] for one in log} == {0}
    fronts: dict[int, int] = {}
    for one in log:
        for front, block in pairwise(one.hash_ids):
            assert fronts.setdefault(block, front) == front, "an id names its whole prefix"


def test_most_chats_that_come_back_have_grown_and_some_went_back_first(log):
    length: dict[int, int] = {}  # of the text that had this block
    grown = []
    for one, n in zip(log, hits(log), strict=True):
        if n > 1:
            grown.append(one.input_length - length[one.hash_ids[n - 1]])
        length.update(dict.fromkeys(one.hash_ids, one.input_length))
    assert 0.8 < mean(more > 0 for more in grown) < 0.98


def test_a_part_filled_block_is_never_seen_again(log):
    times = Counter(block for one in log for block in one.hash_ids)
    assert all(times[one.hash_ids[-1]] == 1 for one in log if one.input_length % 512)


def test_timestamps_rise(log):
    assert all(one.timestamp <= other.timestamp for one, other in pairwise(log))


def test_the_same_seed_gives_the_same_log_and_another_seed_another():
    assert chat_workload(300, seed=3) == chat_workload(400, seed=3)[:300]
    assert chat_workload(300, seed=3) != chat_workload(300, seed=4)


@pytest.mark.parametrize("n", [0, -1, True])
def test_a_number_of_requests_that_makes_no_log_is_refused(n):
    with pytest.raises(InputError, match="n_requests"):
        chat_workload(n)


def test_the_module_prints_a_log_that_can_be_read(tmp_path, capsys):
    main(["--requests", "20", "--seed", "5"])
    path = tmp_path / "log.jsonl"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert read_trace(path) == chat_workload(20, seed=5)
    assert set(json.loads(path.read_text().splitlines()[0])) == {"timestamp", "input_length", "output_length", "hash_ids"}
    run = subprocess.run(
        [sys.executable, "-m", "kvcourse.prefix.workload", "--requests", "20", "--seed", "5"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == (path.read_text(), "")
