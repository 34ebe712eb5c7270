"""`kvcourse bench`: equal tokens and exact counts come before any time; bad sizes are refused in words."""

import json

import pytest
from helpers import make_model

from kvcourse import bench as module
from kvcourse.bench import WITHOUT, bench
from kvcourse.cli import main
from kvcourse.errors import InputError, KVCourseError


@pytest.fixture(scope="module")
def model():
    return make_model("llama", context_length=64)


def test_counts_are_exact_whatever_the_clock_says(model):
    ways = {way.name: way for way in bench(model, prompt_tokens=20, new_tokens=5, rounds=2)}
    assert ways[WITHOUT].tokens == sum(range(20, 25)) and ways[WITHOUT].bytes_held == 0
    assert ways["growing"].tokens == ways["preallocated"].tokens == ways["paged"].tokens == 20 + 4
    assert ways["prefix cache, warm"].tokens == 1 + 4  # the last token is always computed
    assert all(len(way.seconds) == 2 and min(way.seconds) > 0 for way in ways.values())


def test_a_way_that_chooses_other_tokens_is_never_timed(model, monkeypatch):
    right = module._ways

    def wrong(*args):
        ways = right(*args)
        other = ways["paged"]

        def act():
            output = other()
            output.tokens[0] += 1
            return output

        return {**ways, "paged": act}

    monkeypatch.setattr(module, "_ways", wrong)
    with pytest.raises(KVCourseError, match=r"paged.*nothing is timed"):
        bench(model, prompt_tokens=8, new_tokens=2, rounds=1)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"prompt_tokens": 1}, "prompt_tokens is a number"),
        ({"new_tokens": 0}, "new_tokens"),
        ({"rounds": True}, "rounds"),
        ({"prompt_tokens": 60, "new_tokens": 5}, "at most 64 tokens"),
        ({"prompt_tokens": 8, "new_tokens": 2, "seed": 10**20}, "seed"),
    ],
)
def test_sizes_that_are_none_are_refused(model, sizes, words):
    with pytest.raises(InputError, match=words):
        bench(model, **sizes)


def test_the_command_prints_a_row_a_way_or_one_json_object(capsys):
    for options in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["bench", "tiny", "--prompt", "12", "--new", "3", "--rounds", "1", *options])
        assert ended.value.code == 0
    table, _, record = capsys.readouterr().out.rpartition("\n{")
    assert "prefix cache, warm" in table and "through the model" in table
    found = json.loads("{" + record)
    assert [way["tokens"] for way in found["ways"]] == [12 + 13 + 14, 14, 14, 14, 3]
    with pytest.raises(SystemExit) as ended:
        main(["bench", "tiny", "--new", "0"])
    assert ended.value.code == 2 and "1 or more" in capsys.readouterr().err
