"""The prefix benchmark, on models small enough to test it: exact counts and equal logits, then figures that fit together."""

import json
import sys
import types

import pytest
import torch

from benchmarks import prefix, prefix_keys
from benchmarks.subjects import RANDOM
from kvcourse.config import kv_bytes_per_token

ARGUMENTS = "prefix --shape small-llama --keys 40 300 --others 2 5 --prefix 150 --new 20 --rounds 1 --threads 1"


def test_one_run_finds_every_key_and_computes_only_what_is_new(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", [*ARGUMENTS.split(), "--json"])
    monkeypatch.setattr(prefix_keys, "has_mlx", lambda: False)
    assert prefix.main() == 0
    *rows, memory = json.loads(capsys.readouterr().out)
    keys = [row for row in rows if "index" in row]
    found = [(key["index"], key["key_tokens"], key["others"], key["found_tokens"]) for key in keys]
    assert found == [
        (index, n, others, n - 1 if index == "radix" else (n - 1) // 16 * 16)
        for others in (2, 5)
        for n in (40, 300)
        for index in ("radix", "blocks")
    ]
    assert all(key["match_per_s"] > 0 and key["insert_per_s"] > 0 for key in keys)
    ways = {row["way"]: (row["cached_tokens"], row["computed_tokens"]) for row in rows if "way" in row}
    assert ways == {
        "one pass of 20": (150, 20),
        "kvcourse, radix": (150, 20),
        "kvcourse, radix, cache reused": (150, 20),
        "one pass of 26": (144, 26),
        "kvcourse, blocks": (144, 26),
        "kvcourse, blocks, cache reused": (144, 26),
        "kvcourse, computed anew": (0, 170),
        "transformers, deepcopy": (150, 20),
    }
    assert all(row["largest_difference"] < 1e-3 and row["over_one_pass"] > 0 for row in rows if "way" in row)
    assert all(bytes_ > 8 for bytes_ in memory["python_bytes_per_token"].values())
    assert set(memory["kv_bytes_per_token"].values()) == {kv_bytes_per_token(RANDOM["small-llama"])} == {512}


def test_the_table_names_who_was_not_asked(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ARGUMENTS.replace("40 300", "40").replace("2 5", "2").split())
    monkeypatch.setattr(prefix_keys, "has_mlx", lambda: False)
    monkeypatch.setattr(prefix, "has_mlx", lambda: False)
    assert prefix.main() == 0
    out = capsys.readouterr().out
    assert "kvcourse, radix" in out and "mlx-lm: not asked; it is not installed." in out


def key(found=39, wanted=39):
    return prefix_keys.Key("radix", 40, 10, found, wanted, 0.0, [0.5, 0.25, 0.25], [1.0, 2.0, 0.5])


def ways(off=0.0):
    return [
        prefix.Reuse("one pass of 20", 100, 20, 0.0, None, [1.0, 2.0, 4.0]),
        prefix.Reuse("kvcourse, radix", 100, 20, off, "one pass of 20", [1.1, 3.0, 4.0]),
        prefix.Reuse(prefix.ANEW, 0, 120, 0.0, "one pass of 20", [11.0, 30.0, 44.0]),
    ]


@pytest.mark.parametrize(
    ("keys", "asked", "why"),
    [
        ([key(found=32)], ways(), "radix: 32 of 39 tokens"),
        ([key()], ways(off=0.1), "kvcourse, radix: logits differ by 0.1"),
        ([key()], ways(off=float("nan")), "kvcourse, radix: logits differ by nan"),
    ],
)
def test_nothing_is_timed_unless_what_was_found_is_right(monkeypatch, capsys, keys, asked, why):
    monkeypatch.setattr(prefix, "time_keys", lambda *args: keys)
    monkeypatch.setattr(prefix, "reuse", lambda *args: (asked, {}))
    monkeypatch.setattr("sys.argv", ["prefix"])
    threads = torch.get_num_threads()
    assert prefix.main() == 1
    torch.set_num_threads(threads)
    out, err = capsys.readouterr()
    assert out == "" and why in err


def test_ratios_are_taken_round_by_round():
    one, ours, anew = ways()
    assert prefix.found_wrong([key()], [one, ours, anew]) == []
    assert prefix.ratio([one, ours, anew], ours) == [1.1, 1.5, 1.0] and prefix.ratio([one, ours, anew], one) == [1.0, 1.0, 1.0]
    rows = prefix.way_rows([one, ours, anew])
    assert [row["over_one_pass"] for row in rows] == [1.0, 1.1, 11.0] and rows[1]["spread"] == "1.00-1.50"
    assert rows[1]["anew_over_this"] == pytest.approx(10) and rows[1]["first_token_ms"] == 3000
    (row,) = prefix.key_rows([key()])
    assert (row["match_per_s"], row["insert_per_s"], row["match_us_per_1000_tokens"]) == (4.0, 1.0, 0.25e9 / 40)


def test_mlx_lm_is_asked_as_its_own_interface_wants_it(monkeypatch):
    """Its package is not a dependency, so a stand-in with the same calls takes its place: mlx_lm 0.32, models/cache.py."""

    class LRUPromptCache:
        def __init__(self, max_size=10, max_bytes=1 << 63):
            self.held = []

        def insert_cache(self, model, tokens, prompt_cache, *, cache_type="assistant"):
            assert sum(c.nbytes for c in prompt_cache) > 0 and all(c.is_trimmable() for c in prompt_cache)
            self.held.append((tokens, prompt_cache))

        def fetch_nearest_cache(self, model, tokens):
            best, rows = max(((self.common(held, tokens), rows) for held, rows in self.held), key=lambda found: found[0])
            assert all(c.trim(1) == 1 for c in rows)
            return rows, tokens[best:]

        @staticmethod
        def common(one, other):
            return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))

    cache = types.SimpleNamespace(LRUPromptCache=LRUPromptCache)
    for name, module in (
        ("mlx_lm", types.SimpleNamespace()),
        ("mlx_lm.models", types.SimpleNamespace()),
        ("mlx_lm.models.cache", cache),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(prefix_keys, "has_mlx", lambda: True)
    keys = prefix_keys.time_keys([40], [3], rounds=1)
    assert [(key.index, key.found) for key in keys] == [("radix", 39), ("blocks", 32), ("mlx-lm LRUPromptCache", 39)]
    assert prefix.found_wrong(keys, []) == [] and all(len(key.match_s) == len(key.insert_s) == 1 for key in keys)
