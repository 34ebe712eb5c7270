"""A replay finds what a cache of that size would have found: counted by hand, by brute force, and as published."""

import json
import os
import random
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvcourse.cli import main
from kvcourse.cli_replay import as_object, spread
from kvcourse.errors import InputError
from kvcourse.prefix.blocks import HashedBlocks
from kvcourse.prefix.policies import POLICIES
from kvcourse.prefix.replay import REPLAYED, Rates, Request, curve, read_trace, replay
from kvcourse.prefix.trace_files import BrokenLine
from kvcourse.prefix.workload import chat_workload

P = 4  # tokens in a block, where a test makes its own
LINE = {"timestamp": 27482, "input_length": 700, "output_length": 52, "hash_ids": [46, 47]}


def request(*ids: int, last: int = P) -> Request:
    """A request with these blocks, the last of which holds so many tokens."""
    return Request(0, (len(ids) - 1) * P + last, 1, ids)


def of_texts(texts: list[tuple[int, ...]]) -> list[Request]:
    """One block a symbol, named by all symbols up to it. A text that is the start of no other has a last block part filled."""
    ids: dict[tuple[int, ...], int] = {}
    starts = {text[:n] for text in texts for n in range(1, len(text))}
    return [
        request(
            *(ids.setdefault(text[: n + 1], len(ids)) for n in range(len(text))),
            last=P if text in starts else 1 + len(text) % P,
        )
        for text in texts
    ]


def of_ids(ids: list[list[int]]) -> list[Request]:
    """Requests whose ids need not name their prefixes."""
    return [request(*one) for one in ids]


def texts(symbols: int, length: int, most: int):
    one = st.lists(st.integers(0, symbols - 1), min_size=1, max_size=length).map(tuple)
    return st.lists(one, min_size=1, max_size=most)


LOGS = texts(3, 5, 25)  # the requests are made in the tests: beartype rolls dice, which hypothesis forbids in a strategy
LAWLESS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True), min_size=1, max_size=25)


# Against brute force: no heap, no classes, each policy written down a second time from its description.


class Brute:
    """Blocks as dicts in a list that is searched from end to end."""

    def __init__(self, log: list[Request], policy: str) -> None:
        self.log, self.policy = log, policy
        self.blocks: dict[int, dict] = {}
        self.now = self.age = self.added = 0
        self.protected: list[int] = []  # slru

    def score(self, one: int) -> object:
        block = self.blocks[one]
        if self.policy == "lru":
            return self.now
        if self.policy == "lfu":
            return self.age + block["uses"], self.now
        if self.policy == "ttl":
            return block["created"]
        if self.policy == "opt":
            later = [n for n in range(self.now, len(self.log)) if one in self.log[n].hash_ids]
            return -min(later, default=10**9)
        if self.policy == "turns":
            from math import log2

            return self.now + 800 * log2(block["uses"] + block["before"] / 2) - 150 * log2(1 + block["place"] * P / 512)
        return self.segment(one)

    def segment(self, one: int) -> tuple[int, int]:
        if self.blocks[one]["uses"] < 2:
            return 0, self.now
        self.protected = [*(other for other in self.protected if other != one), one]
        while len(self.protected) > 0.8 * len(self.blocks) and len(self.protected) > 1:
            oldest = self.protected.pop(0)
            self.blocks[oldest]["score"] = 0, self.now
            self.place_in_line(oldest, new=False)
        return 1, self.now

    def place_in_line(self, one: int, new: bool = True) -> None:
        if new or "turn" in self.blocks[one]:
            self.added += 1
            self.blocks[one]["turn"] = self.added

    def run(self, capacity: int | None) -> list[int]:
        """Hits of each request."""
        hits = []
        for now, one_request in enumerate(self.log, start=1):
            self.now = now
            ids = one_request.hash_ids
            hits.append(next((n for n, one in enumerate(ids) if one not in self.blocks), len(ids)))
            for place, one in enumerate(ids):
                front = self.blocks[ids[place - 1]] if place else None
                if one in self.blocks:
                    self.blocks[one]["uses"] += 1
                else:
                    before = front["before"] + (front["created"] != now) if front else 0
                    self.blocks[one] = dict(uses=1, created=now, place=place, before=before)
            for one in reversed(ids):
                self.blocks[one]["score"] = self.score(one)
                self.place_in_line(one)
            while capacity is not None and len(self.blocks) > capacity:
                self.evict()
        return hits

    def evict(self) -> None:
        one = min(
            self.blocks, key=lambda one: (self.blocks[one]["score"], -self.blocks[one]["place"], self.blocks[one]["turn"])
        )
        if self.policy == "lfu":
            self.age = max(self.age, self.blocks[one]["score"][0])
        self.protected = [other for other in self.protected if other != one]
        del self.blocks[one]


@pytest.mark.parametrize("policy", REPLAYED)
@given(
    log=LOGS.map(lambda log: (of_texts, log)) | LAWLESS.map(lambda log: (of_ids, log)), capacity=st.none() | st.integers(1, 12)
)
def test_a_replay_equals_brute_force(policy, log, capacity):
    make, lines = log
    log = make(lines)
    hits = Brute(log, policy).run(capacity)
    rates = replay(log, capacity, policy, block_tokens=P)
    blocks = [len(one.hash_ids) for one in log]
    tokens = [min(n * P, one.input_length) for n, one in zip(hits, log, strict=True)]
    assert (rates.policy, rates.capacity_blocks, rates.requests, rates.blocks) == (policy, capacity, len(log), sum(blocks))
    assert rates.block_hit_rate == sum(hits) / sum(blocks)
    assert rates.token_hit_rate == sum(tokens) / sum(one.input_length for one in log)
    assert rates.request_mean_hit_rate == pytest.approx(sum(n / of for n, of in zip(hits, blocks, strict=True)) / len(log))


def test_three_hit_rates_by_hand():
    log = [request(0, 1, last=2), request(0), request(0, 1, last=2), request(0, 2, 3, last=1)]
    rates = replay(log, None, block_tokens=P)
    assert rates.block_hit_rate == (0 + 1 + 2 + 1) / 8
    assert rates.token_hit_rate == (0 + 4 + 6 + 4) / (6 + 4 + 6 + 9)
    assert rates.request_mean_hit_rate == (0 + 1 + 1 + 1 / 3) / 4


def test_a_hit_ends_at_the_first_block_that_is_missing():
    log = [request(5), request(6, 5), request(5, 6)]  # 5 is there for the second, but behind 6, which is not
    assert replay(log, None, block_tokens=P).block_hit_rate == 2 / 5


def test_of_one_request_the_tail_goes_first():
    log = [request(0, 1, 2), request(0, 1, 2)]
    assert [replay(log, n, block_tokens=P).block_hit_rate for n in (1, 2, 3)] == [1 / 6, 2 / 6, 3 / 6]


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@given(texts=texts(3, 5, 25), capacity=st.integers(1, 12))
def test_where_a_front_never_goes_before_its_tail_the_flat_cache_finds_what_an_index_finds(policy, texts, capacity):
    class Rows:
        def split(self, rows, at):
            raise AssertionError("blocks are never split")

        def free(self, rows):
            pass

    index, hits = HashedBlocks(Rows(), block_tokens=1, policy=policy), 0
    for text in texts:
        root = index.root(b"root")
        match = index.match(root, text, 0.0)
        hits += match.length
        index.use(match, 0.0)
        index.add(root, text, lambda start, stop: start, 0.0)
        index.evict(max(0, index.tokens - capacity))
        index.check()
    assert replay(of_texts(texts), capacity, policy, block_tokens=P).block_hit_rate == hits / sum(map(len, texts))


# The ceiling.


def most_hits(log: list[Request], capacity: int) -> int:
    """The most hits that any choice of what to keep can give, by trying them all."""
    best = {frozenset(): 0}
    for one in log:
        after: dict[frozenset[int], int] = {}
        for kept, hits in best.items():
            found = next((n for n, block in enumerate(one.hash_ids) if block not in kept), len(one.hash_ids))
            there = kept | set(one.hash_ids)
            for chosen in combinations(sorted(there), min(capacity, len(there))):
                after[frozenset(chosen)] = max(after.get(frozenset(chosen), 0), hits + found)
        best = after
    return max(best.values())


@given(texts=texts(2, 3, 7), capacity=st.integers(1, 5))
def test_opt_has_the_most_block_hits_that_any_choice_can_have(texts, capacity):
    log = of_texts(texts)
    blocks = sum(len(one.hash_ids) for one in log)
    assert replay(log, capacity, "opt", block_tokens=P).block_hit_rate == most_hits(log, capacity) / blocks


@given(texts=LOGS, capacity=st.none() | st.integers(1, 12))
def test_no_policy_hits_more_blocks_than_opt(texts, capacity):
    log = of_texts(texts)
    ceiling = replay(log, capacity, "opt", block_tokens=P).block_hit_rate
    assert all(replay(log, capacity, policy, block_tokens=P).block_hit_rate <= ceiling for policy in POLICIES)


@pytest.mark.parametrize(
    ("log", "policy", "rate"),
    [
        ([request(1), request(1, 3), request(3, 1)], "ttl", "block_hit_rate"),  # 1 in front of 3, and behind it
        ([request(0), request(0), request(1, last=1), request(1, last=1), request(0, 2, last=1)], "slru", "token_hit_rate"),
        (
            [request(0, last=3), request(0, last=3), request(1), request(1, 2), request(0, last=3)],
            "slru",
            "request_mean_hit_rate",
        ),
    ],
)
def test_opt_is_no_ceiling_where_its_docstring_says_so(log, policy, rate):
    assert getattr(replay(log, 1, policy, block_tokens=P), rate) > getattr(replay(log, 1, "opt", block_tokens=P), rate)


# On the public trace. The command runs on its own: here, every call in it would be checked, and take ten times as long.

LRU = {1000: 0.0445, 5859: 0.1361, 10000: 0.2116, 30000: 0.3257, 50000: 0.3546}
OPT = {1000: 0.1907, 5859: 0.3532, 10000: 0.3664}


@pytest.fixture(scope="module")
def trace() -> str:
    path = os.environ.get("KVCOURSE_TRACE")
    if not path:
        pytest.skip("KVCOURSE_TRACE names no trace: set it to mooncake_conversation_trace.jsonl")
    return path


def on_its_own(*arguments: str) -> dict:
    command = [sys.executable, "-m", "kvcourse", "replay", "--json", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_the_ids_of_the_public_trace_name_their_prefixes(trace):
    fronts: dict[int, int | None] = {}
    for one in read_trace(trace):
        for front, block in zip([None, *one.hash_ids], one.hash_ids, strict=False):
            assert fronts.setdefault(block, front) == front


@pytest.mark.parametrize(("policy", "published"), [("lru", LRU), ("opt", OPT)])
def test_block_hit_rates_on_the_public_trace(trace, policy, published):
    found = on_its_own(trace, "--policy", policy, "--capacity", *map(str, published))
    assert (found["requests"], found["blocks"], found["capacity_blocks"]) == (12031, 288500, list(published))
    assert found["block_hit_rate"] == pytest.approx(list(published.values()), abs=0.0001)


def test_hit_rates_without_a_limit_on_the_public_trace(trace):
    found = on_its_own(trace)
    rates = {name: round(found[f"{name}_hit_rate"], 4) for name in ("block", "token", "request_mean")}
    assert rates == {"block": 0.3664, "token": 0.3736, "request_mean": 0.3843}


# Reading.


def written(tmp_path: Path, *lines: object) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
    return path


def test_a_mooncake_line_is_read_as_it_is(tmp_path):
    path = written(tmp_path, LINE, b"", LINE | {"timestamp": 3.5, "new": "field"})
    assert read_trace(path) == [Request(27482, 700, 52, (46, 47)), Request(3.5, 700, 52, (46, 47))]
    assert read_trace(path)[0].as_record() == LINE


def test_tokens_are_cut_into_blocks_that_name_their_prefixes(tmp_path):
    path = written(
        tmp_path, *({"tokens": tokens} for tokens in ([1, 2, 3, 4, 5], [1, 2, 3, 4], [9, 2, 3, 4], [1, 2, 3, 4, 5, 6]))
    )
    first, second, third, longer = read_trace(path, block_tokens=2)
    assert [len(one.hash_ids) for one in (first, second, third, longer)] == [3, 2, 2, 3]
    assert first.hash_ids[:2] == second.hash_ids == longer.hash_ids[:2]
    assert not set(first.hash_ids) & set(third.hash_ids), "3, 4 behind something else is another block"
    assert first.hash_ids[2] != longer.hash_ids[2], "a part filled block is another one than when it is full"
    assert (first.input_length, first.output_length, first.timestamp) == (5, 0, 0)
    assert replay([first, second, third, longer], None, block_tokens=2).token_hit_rate == (4 + 4) / 19


def test_names_of_blocks_are_the_same_in_every_process(tmp_path):
    path = written(tmp_path, {"tokens": [1, 2, 3]})
    code = f"from kvcourse.prefix.trace_files import read_trace; print(read_trace({str(path)!r})[0].hash_ids)"
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                       env=os.environ | {"PYTHONHASHSEED": seed}).stdout
        for seed in "12"
    }  # fmt: skip
    assert runs == {f"{read_trace(path)[0].hash_ids}\n"}


BROKEN = [
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    [1],
    {},
    {"messages": []},
    LINE | {"hash_ids": []},
    LINE | {"hash_ids": [46]},
    LINE | {"hash_ids": [46, 46]},
    LINE | {"hash_ids": [46, "47"]},
    LINE | {"hash_ids": [46, True]},
    LINE | {"hash_ids": None},
    LINE | {"input_length": 0},
    LINE | {"input_length": 700.0},
    LINE | {"output_length": -1},
    LINE | {"timestamp": "now"},
    LINE | {"timestamp": float("nan")},
    LINE | {"timestamp": 10**399},
    LINE | {"timestamp": -(10**399)},
    json.dumps(LINE).replace("27482", "9" * 5000).encode(),
    json.dumps(LINE).replace("27482", "1e999").encode(),
    LINE | {"input_length": 10**399},
    LINE | {"output_length": 10**399},
    {"tokens": [10**399]},
    {"tokens": [1], "timestamp": 10**399},
    {name: value for name, value in LINE.items() if name != "timestamp"},
    {"tokens": []},
    {"tokens": "words"},
    {"tokens": [-1]},
    {"tokens": [1 << 63]},
    {"tokens": [1], "output_length": -1},
]


@pytest.mark.parametrize("line", BROKEN, ids=lambda line: str(line)[:60])
def test_a_broken_line_is_refused_by_its_number_or_skipped_and_named(tmp_path, capsys, line):
    path = written(tmp_path, LINE, b"", line, LINE)
    with pytest.raises(BrokenLine, match=r"^Line 3: .* Expected .*; got .*skip") as refused:
        read_trace(path)
    assert refused.value.number == 3 and len(str(refused.value)) < 400
    skipped: list[BrokenLine] = []
    assert len(read_trace(path, skip_bad=True, skipped=skipped)) == 2
    assert [one.number for one in skipped] == [3]
    assert len(read_trace(path, skip_bad=True)) == 2, "without a list to fill"
    assert capsys.readouterr().err.startswith("Skipped: Line 3: ")


def test_a_line_nested_to_any_depth_is_refused_by_its_number(tmp_path):
    for n in (*range(100, 900, 100), *range(900, 1000), 100_000):
        for line in (b"[" * n + b"]" * n, b'{"hash_ids": ' + b"[" * n + b"]" * n + b"}"):
            with pytest.raises(BrokenLine, match=r"^Line 1: "):
                read_trace(written(tmp_path, line))


def test_where_every_line_is_broken_it_is_said_how_many_there_were(tmp_path, capsys):
    path = written(tmp_path, b"{", [1])
    with pytest.raises(InputError, match=r"holds no request\. .* got 2 broken lines"):
        read_trace(path, skip_bad=True, skipped=[])
    code, out, err = run(capsys, str(path), "--skip-bad")
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 4) and "holds no request" in lines[-1] and "got 2 broken lines" in lines[-1]
    assert "Line 1: " in lines[0] and "Line 2: " in lines[1] and lines[2] == "kvcourse: 2 broken lines skipped: 1, 2"


def test_a_log_without_requests_is_refused(tmp_path):
    for path in (written(tmp_path, b""), tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InputError, match=r"no request|cannot be read"):
            read_trace(path)
    with pytest.raises(InputError, match="no request"):
        read_trace(written(tmp_path, b"{"), skip_bad=True)


@pytest.mark.parametrize(
    "call",
    [
        lambda: replay([], 1),
        lambda: replay([request(0)], 0),
        lambda: replay([request(0)], True),
        lambda: replay([request(0)], 1, "mru"),
        lambda: replay([request(0)], 1, block_tokens=0),
        lambda: curve([request(0)], [1, -1]),
        lambda: replay(iter([]), 1),
        lambda: replay([Request(0, 0, 0, ())], 100),
        lambda: replay([request(0), Request(0, 5, 0, ())], 100),
        lambda: replay([Request(0, 0, 0, (1,))], 100),
        lambda: read_trace("-", block_tokens=True),
    ],
)
def test_what_cannot_be_replayed_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_arguments_of_another_type_are_refused_as_others_are():
    """In a process of its own, where nothing checks types before the package does."""
    code = (
        "import numpy as np\n"
        "from kvcourse.errors import InputError\n"
        "from kvcourse.prefix.replay import Request, curve, replay\n"
        "from kvcourse.prefix.workload import chat_workload\n"
        "log = [Request(0, 4, 1, (0,))]\n"
        "for call in (lambda: replay(log, 1.0), lambda: replay(log, '1'), lambda: replay(log, np.bool_(True)),\n"
        "             lambda: replay(7, 1), lambda: replay([7], 1),\n"
        "             lambda: replay('text', 1), lambda: replay(log, 1, None), lambda: curve(log, 1),\n"
        "             lambda: replay(log, 1, block_tokens=None), lambda: chat_workload(2.0), lambda: chat_workload(2, 'x')):\n"
        "    try: call()\n"
        "    except InputError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(told) == 11 and all("Expected" in line for line in told)


def test_a_curve_is_one_replay_a_capacity_and_none_sees_the_one_before():
    log = [request(0, 1), request(2, 3), request(0, 1)]
    ticks: list[None] = []
    rates = curve(log, [4, 2, None], block_tokens=P, tick=lambda: ticks.append(None))
    assert rates == [replay(log, size, block_tokens=P) for size in (4, 2, None)] and len(ticks) == 9


def test_whole_numbers_of_any_type_are_whole_numbers(tmp_path):
    log = [request(0, 1), request(2, 3), request(0, 1)]
    expected = replay(log, 2, block_tokens=P)
    for kind in (np.int64, np.uint8, torch.tensor):
        found = replay(log, kind(2), block_tokens=kind(P))
        assert found == expected and json.loads(json.dumps(found.as_record())) == expected.as_record()
        assert curve(log, [kind(2)], block_tokens=kind(P)) == [expected]
    path = written(tmp_path, {"tokens": [1, 2, 3]})
    assert read_trace(path, block_tokens=np.int64(2)) == read_trace(path, block_tokens=2)
    assert chat_workload(np.int64(20), seed=np.int64(5)) == chat_workload(20, seed=5)


@pytest.mark.parametrize("policy", REPLAYED)
def test_requests_may_come_from_anything_that_can_be_gone_through(policy):
    log = [request(0, 1), request(2, 3), request(0, 1)]
    for some in (tuple, iter, lambda log: (one for one in log)):
        assert replay(some(log), 3, policy, block_tokens=P) == replay(log, 3, policy, block_tokens=P)
        assert curve(some(log), [2, 3], policy, block_tokens=P) == curve(log, [2, 3], policy, block_tokens=P)


# The command.


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["replay", *arguments])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


@pytest.fixture
def log(tmp_path) -> Path:
    rng = random.Random(0)
    chats = [{"tokens": [0, chat, *range(rng.randrange(1, 12))]} for chat in rng.choices(range(9), k=60)]
    return written(tmp_path, *chats)


def test_json_of_one_capacity_is_one_object_with_single_values(capsys, log):
    for arguments, capacity in (([], None), (["--capacity", "20"], 20)):
        code, out, err = run(capsys, str(log), "--json", "--block-tokens", "2", *arguments)
        expected = replay(read_trace(log, block_tokens=2), capacity, block_tokens=2)
        assert (code, json.loads(out), err) == (0, expected.as_record(), "")
        assert {"policy", "capacity_blocks", "block_hit_rate", "token_hit_rate", "request_mean_hit_rate"} < set(json.loads(out))


@pytest.mark.parametrize(
    "capacities",
    [
        ["--capacity", "8", "20", "40"],
        ["--capacity", "8", "--capacity=20", "--capacity", "40"],
        ["--capacity=8", "20", "40"],
        ["--capacity=8", "--capacity", "20", "40"],
    ],
)
def test_json_of_several_capacities_is_one_object_with_lists(capsys, log, capacities):
    for arguments in ([str(log), *capacities], [*capacities, str(log)]):
        code, out, _ = run(capsys, *arguments, "--policy", "opt", "--json", "--block-tokens", "2")
        rates = curve(read_trace(log, block_tokens=2), [8, 20, 40], "opt", block_tokens=2)
        found = json.loads(out)
        assert code == 0 and found == as_object(rates)
        assert (found["policy"], found["requests"], found["capacity_blocks"]) == ("opt", 60, [8, 20, 40])
        assert found["token_hit_rate"] == [one.token_hit_rate for one in rates]


def test_only_numbers_behind_a_capacity_are_capacities():
    assert spread(["--capacity", "1", "2", "3", "4"]) == [word for n in "1234" for word in ("--capacity", n)]
    assert spread(["1", "--policy", "2", "3", "--capacity", "--json", "4"]) == [
        "1",
        "--policy",
        "2",
        "3",
        "--capacity",
        "--json",
        "4",
    ]
    assert spread(["--capacity", "1", "log", "2"]) == ["--capacity", "1", "log", "2"]
    assert spread(["--capacity=1", "2", "--capacity=x", "3"]) == ["--capacity", "1", "--capacity", "2", "--capacity", "x", "3"]
    assert spread(["--capacity=1", "--", "2", "--capacity=3"]) == ["--capacity", "1", "--", "2", "--capacity=3"]


def test_people_get_a_table_with_what_its_columns_mean(capsys, log):
    code, out, err = run(capsys, str(log), "--capacity", "8", "1000", "--block-tokens", "2")
    small, large = curve(read_trace(log, block_tokens=2), [8, 1000], block_tokens=2)
    assert code == 0 and err == ""
    for one, size in ((small, "8"), (large, "1,000")):
        row = next(line for line in out.splitlines() if line.split()[:1] == [size])
        rates = (one.block_hit_rate, one.token_hit_rate, one.request_mean_hit_rate)
        assert row.split()[1:] == [f"{rate:.4f}" for rate in rates]
    assert "60 requests" in out and "hit blocks / blocks" in out
    assert "no limit" in run(capsys, str(log))[1]


def test_the_table_loses_no_rate_however_narrow_the_terminal(capsys, monkeypatch, log):
    wide = run(capsys, str(log), "--capacity", "8", "1000")[1]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run(capsys, str(log), "--capacity", "8", "1000")[1]
    assert [line.split() for line in narrow.splitlines()] == [line.split() for line in wide.splitlines()]


def test_the_command_refuses_a_broken_line_or_skips_it_and_says_so(capsys, tmp_path):
    path = written(tmp_path, LINE, b"{", LINE, *[[1]] * 12)
    code, out, err = run(capsys, str(path), "--json")
    assert (
        (code, out) == (2, "") and err.startswith("kvcourse: Line 2: ") and "--skip-bad" in err and len(err.splitlines()) == 1
    )
    code, out, err = run(capsys, str(path), "--json", "--skip-bad")
    assert code == 0 and json.loads(out)["requests"] == 2 and json.loads(out)["block_hit_rate"] == 0.5
    assert err.splitlines()[-1] == f"kvcourse: 13 broken lines skipped: 2, {', '.join(map(str, range(4, 16)))}"
    assert len(err.splitlines()) == 11 and "Line 2: it is no JSON" in err.splitlines()[0]


def test_a_plot_shows_lru_and_opt_beside_the_policy(capsys, log, tmp_path, monkeypatch):
    drawn: list[list[Rates]] = []
    from kvcourse.viz import replay_plot

    real = replay_plot.plot_hit_rates
    monkeypatch.setattr(replay_plot, "plot_hit_rates", lambda rates, **rest: drawn.append(rates) or real(rates, **rest))
    for name, magic in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        arguments = [str(log), "--capacity", "2", "9", "--policy", "turns", "--plot", str(tmp_path / name), "--json"]
        code, out, _ = run(capsys, *arguments)
        assert code == 0 and json.loads(out)["policy"] == "turns"
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert {one.policy for one in drawn[0]} == {"turns", "lru", "opt"} and len(drawn[0]) == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--capacity", "0"], "1 or more; got 0"),
        (["--policy", "mru"], "lru, lfu, slru, ttl, turns, opt; got 'mru'"),
        (["--block-tokens", "0"], "1 or more; got 0"),
        (["--plot", "a.png"], "two capacities"),
        (["--plot", "a.png", "--capacity", "5", "5"], "two capacities"),
        (["--plot", "a.txt", "--capacity", "5", "6"], "Expected .png, .svg, .pdf; got a.txt"),
        (["--plot", "missing/a.png", "--capacity", "5", "6"], "folder"),
    ],
)
def test_what_the_command_cannot_do_it_says_in_one_line(capsys, log, arguments, says):
    code, out, err = run(capsys, str(log), *arguments)
    assert (code, out) == (2, "") and says in err and len(err.splitlines()) == 1


def test_the_command_needs_no_torch_and_without_a_plot_no_matplotlib(log):
    code = (
        "import sys; from kvcourse.cli import main\n"
        f"try: main(['replay', {str(log)!r}, '--capacity', '5'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
