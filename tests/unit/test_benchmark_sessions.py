"""The benchmark of sessions, at a size that a test can afford: equal numbers first, then figures that fit together."""

import json

import pytest

from benchmarks import sessions
from kvcourse.checkpoints import load_model
from kvcourse.config import kv_bytes_per_token
from kvcourse.sessions import saved


def test_one_run_moves_the_same_bytes_three_ways_and_goes_on_two_ways(monkeypatch, capsys, tmp_path):
    arguments = ["sessions", "--model", "tiny", "--tokens", "40", "--rounds", "2", "--threads", "1", "--json"]
    monkeypatch.setattr("sys.argv", [*arguments, "--folder", str(tmp_path)])
    assert sessions.main() == 0
    found = json.loads(capsys.readouterr().out)
    rows = kv_bytes_per_token(load_model("tiny").config) * found["tokens"]
    assert found["tokens"] == 40 and rows < found["bytes"] < rows + 4000
    for name in ("save_over_copy", "load_over_copy", "resume_over_prefill"):
        assert found[f"{name}_spread"][0] <= found[name] <= found[f"{name}_spread"][1]
    assert all(found[f"{way}_gb_per_s"] > 0 for way in ("copy", "save", "load"))
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    monkeypatch.setattr("sys.argv", arguments[:-1])
    assert sessions.main() == 0
    assert "save_over_copy" in capsys.readouterr().out


def test_ratios_are_taken_round_by_round():
    timed = sessions.Timed(10, 4 * 10**9)
    timed.seconds.update(copy=[1.0, 4.0, 2.0], save=[2.0, 4.0, 1.0], load=[1.0] * 3, resume=[1.0] * 3, again=[10.0] * 3)
    assert timed.ratio("save", "copy") == [0.5, 1.0, 2.0]
    assert timed.gigabytes_per_s("copy") == pytest.approx(2.0)
    found = sessions.figures("tiny", timed)
    assert (found["save_over_copy"], found["load_over_copy"], found["resume_over_prefill"]) == (1.0, 2.0, 10.0)
    assert (found["resume_ms"], found["prefill_ms"]) == (1000.0, 10000.0)


def test_numbers_that_do_not_come_back_mean_no_times(monkeypatch, tmp_path):
    chat = sessions.conversation(load_model("tiny"), 20)
    monkeypatch.setattr(saved, "_fill", lambda cache, rows, n, device: None)
    with pytest.raises(SystemExit, match="no time means anything"):
        sessions.measure(chat, tmp_path, 1)


def test_another_next_token_means_no_times(monkeypatch, tmp_path):
    chat = sessions.conversation(load_model("tiny"), 20)
    said = iter(range(99))
    monkeypatch.setattr(sessions, "next_token", lambda chat: next(said))
    with pytest.raises(SystemExit, match="not the same"):
        sessions.measure(chat, tmp_path, 1)


def test_the_plain_copy_is_one(tmp_path):
    (tmp_path / "a").write_bytes(b"numbers" * 1000)
    sessions.copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
