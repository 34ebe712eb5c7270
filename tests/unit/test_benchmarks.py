"""The benchmarks, on models small enough to test them: equal tokens and exact counts first, then figures that fit together."""

import json
import sys
import types

import numpy as np
import pytest
import torch

from benchmarks import decode, engines, length, results
from benchmarks.bandwidth import read_bandwidth
from benchmarks.engines import Answer, Request
from benchmarks.gguf_files import write_out
from benchmarks.subjects import RANDOM, subject
from kvcourse.checkpoints import load_model
from kvcourse.config import GPTConfig, kv_bytes_per_token
from kvcourse.generate import generate

OURS, DYNAMIC, STATIC = "kvcourse preallocated", "transformers DynamicCache", "transformers StaticCache"


def result(engine: str, seconds: list[float], tokens: list[int], precision: str = "float32") -> results.Result:
    answers = [Answer(tokens, s / 10, s) for s in seconds]
    return results.Result(engine, precision, Request([1, 2, 3, 4], 3), 1e6, engine.startswith("transformers"), answers)


def only(monkeypatch, *names: str) -> None:
    monkeypatch.setattr(
        decode, "engines_for", lambda shape: {n: e for n, e in engines.engines_for(shape).items() if n in names}
    )
    monkeypatch.setattr(decode, "read_bandwidth", lambda: 1e9)


def test_one_run_asks_every_engine_and_finds_the_same_tokens(monkeypatch, capsys):
    only(monkeypatch, OURS, DYNAMIC)
    arguments = "decode --shape small-llama --prompts 9 --new 5 --prefix 30 --rounds 2 --threads 1 --json"
    monkeypatch.setattr("sys.argv", arguments.split())
    assert decode.main() == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["engine"], row["prompt"]) for row in rows] == [(e, p) for p in ("9", "30+20") for e in (OURS, DYNAMIC)]
    assert all(row["as_float32"] == row["new_tokens"] for row in rows)
    assert all(row["prefill_tokens_per_s"] > 0 and row["peak_bytes"] > 50e6 and row["first_token_ms"] > 0 for row in rows)
    assert all((row["tokens_per_s"] is None) == (row["prompt"] == "30+20") for row in rows)
    assert [row["decode_ratio"] for row in rows if row["engine"] == DYNAMIC] == [1.0, None]  # the only peer is the better one


@pytest.mark.parametrize("name", [OURS, "kvcourse growing", DYNAMIC, STATIC])
@pytest.mark.parametrize("shape", ["small", "small-llama"])
def test_an_engine_answers_alike_whether_its_prefix_was_kept_or_not(tmp_path, shape, name):
    model = subject(shape, 40, tmp_path / "model")
    answer = engines.engines_for(shape)[name].build(model.folder, 50)
    golden = generate(load_model(model.folder), model.ids, max_new_tokens=6, cache=None).tokens
    assert answer(Request(model.ids, 6)).tokens == golden
    assert answer(Request(model.ids, 6, kept=30)).tokens == golden


@pytest.mark.parametrize("shape", ["small", "small-llama"])
def test_a_step_reads_the_weights_and_the_keys_and_values(monkeypatch, shape):
    only(monkeypatch, OURS)
    (found,), _ = decode.run(shape, [(0, 8, 4)], rounds=1, threads=1)
    c = RANDOM[shape]
    if isinstance(c, GPTConfig):
        per_block = 2 * 2 * c.n_embd + (3 + 1 + 4 + 4) * c.n_embd**2 + (3 + 1 + 4 + 1) * c.n_embd
        weights = c.vocab_size * c.n_embd + c.n_layer * per_block + 2 * c.n_embd
    else:
        attention = 2 * (c.n_head + c.n_kv_head) * c.head_size * c.n_embd
        weights = c.vocab_size * c.n_embd + c.n_layer * (attention + 3 * c.n_embd * c.n_inner + 2 * c.n_embd) + c.n_embd
    assert found.read_bytes == 4 * weights + kv_bytes_per_token(c) * (8 + 4 / 2)
    assert len(found.answers[0].tokens) == 4


def ran(monkeypatch, capsys, found):
    monkeypatch.setattr(decode, "run", lambda *args: (found, [1e9]))
    monkeypatch.setattr("sys.argv", ["decode", "--shape", "small"])
    return decode.main(), *capsys.readouterr()


def test_different_tokens_of_ours_or_of_transformers_in_float32_mean_no_times(monkeypatch, capsys):
    found = [result(OURS, [1.0], [1, 2, 3]), result(DYNAMIC, [1.0], [1, 2, 4])]
    assert results.different_tokens(found) == found[1:]
    code, out, err = ran(monkeypatch, capsys, found)
    assert (code, out) == (1, "") and f"no times for {DYNAMIC}, prompt 4: 2 of 3 tokens" in err


def test_another_engine_with_different_tokens_in_float32_has_no_times_and_the_rest_has(monkeypatch, capsys):
    found = [result(OURS, [1.0], [1, 2, 3]), result("llama.cpp float32", [1.0], [1, 7, 3]), result(DYNAMIC, [1.0], [1, 2, 3])]
    code, out, err = ran(monkeypatch, capsys, found)
    assert code == 0 and "no times for llama.cpp float32, prompt 4: 1 of 3 tokens" in err
    assert OURS in out and DYNAMIC in out and "llama.cpp float32" not in out


def test_engines_of_fewer_bits_say_how_long_they_agree_with_float32():
    small = result("llama.cpp 4-bit", [1.0, 2.0], [1, 7, 3], "4-bit")
    found = [result(OURS, [1.0, 2.0], [1, 2, 3]), small]
    assert results.different_tokens(found) == []
    assert [results.agreeing(found, r) for r in found] == [3, 1]


def test_ratios_are_taken_round_by_round_over_transformers_better_cache():
    fast, slow, worse = (result(n, s, [1, 2, 3]) for n, s in
                         ((OURS, [1.0, 4.0, 2.0]), (STATIC, [2.0, 4.0, 3.0]), (DYNAMIC, [3.0, 5.0, 3.5])))  # fmt: skip
    assert results.better_peer([fast, slow, worse], "4", "decode_s") is slow
    assert fast.ratio(slow, "decode_s") == [1.0, 1.5, 2.0]
    assert fast.tokens_per_s == pytest.approx(1.0)
    assert fast.share(bandwidth=4e6) == pytest.approx(0.25)
    assert [row["decode_ratio"] for row in results.rows([fast, slow, worse], 1e9)] == [1.5, 1.0, 0.8]


def test_the_bandwidth_is_that_of_a_memory():
    assert 1e8 < read_bandwidth(megabytes=16, runs=2) < 1e13


def test_a_step_grows_by_what_one_more_row_takes(monkeypatch, capsys):
    arguments = "length --shape small-llama --lengths 8 100 255 256 --rounds 1 --steps 1 --threads 1 --json"
    monkeypatch.setattr("sys.argv", arguments.split())
    assert length.main() == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["tokens_before"] for row in rows] == [8, 100, 255]  # 256 is all that the context holds
    c = RANDOM["small-llama"]
    assert [row["kv_read_bytes"] for row in rows] == [kv_bytes_per_token(c) * (n + 1) for n in (8, 100, 255)]
    assert rows[2]["macs"] - rows[0]["macs"] == 2 * c.n_layer * c.n_head * c.head_size * (255 - 8)
    assert all(row["ms"] > 0 and row["bytes_copied"] == 0 for row in rows)


def test_a_step_that_grows_by_more_has_no_times(monkeypatch, capsys):
    c = RANDOM["small-llama"]
    row = 2 * c.n_layer * c.n_head * c.head_size
    steps = [length.Step(n, macs=1000 + row * n + (n == 3), copied_bytes=0, kv_read_bytes=512 * n) for n in (1, 2, 3)]
    assert length.faults(steps, c) == [f"macs at 3: {2 * row + 1} more than at 1"]
    monkeypatch.setattr(length, "measure", lambda *args: steps)
    monkeypatch.setattr("sys.argv", ["length", "--shape", "small-llama", "--lengths", "8"])
    assert length.main() == 1
    out, err = capsys.readouterr()
    assert out == "" and "no times" in err


def test_the_fit_is_a_straight_line():
    steps = [length.Step(n, 0, 0, 0, [0.01 + n / 1e6]) for n in (100, 200, 900)]
    assert length.fit(steps) == (pytest.approx(10), pytest.approx(1))


def gguf_file(path):
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_token_list(["a", "b"])
    matrix = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q4_1
    writer.add_tensor("blk.0.attn_q.weight", gguf.quantize(matrix, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_written_out_file_holds_the_numbers_that_the_four_bits_stand_for(tmp_path, dtype):
    import gguf

    gguf_file(tmp_path / "four.gguf")
    write_out(tmp_path / "four.gguf", tmp_path / "new.gguf", dtype)
    before, after = gguf.GGUFReader(tmp_path / "four.gguf"), gguf.GGUFReader(tmp_path / "new.gguf")
    numbers = {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in before.tensors}
    assert {t.name: t.data.dtype for t in after.tensors} == {"blk.0.attn_q.weight": dtype, "output_norm.weight": np.float32}
    assert all(np.array_equal(t.data, numbers[t.name].astype(t.data.dtype)) for t in after.tensors)
    assert after.fields["tokenizer.ggml.tokens"].contents() == ["a", "b"]
    assert after.fields["llama.context_length"].contents() == 64


def test_llama_cpp_is_asked_as_its_own_interface_wants_it(tmp_path, monkeypatch):
    """Its package is not a dependency, so a stand-in that runs our model takes its place: same calls, same prefix rule."""
    model = subject("small-llama", 40, tmp_path / "model")
    gguf_file(model.folder / "four.gguf")
    made = []

    class Llama:
        def __init__(self, file, **options):
            made.append((file, options))
            self.model, self.held = load_model(model.folder), []

        def reset(self):
            self.held = []

        def eval(self, tokens):
            self.held += tokens

        def generate(self, tokens, temp):
            assert temp == 0.0 and self.held == tokens[: len(self.held)]
            tokens = list(tokens)
            while True:
                tokens.append(int(self.model(torch.tensor([tokens]))[0, -1].argmax()))
                yield tokens[-1]

    monkeypatch.setitem(sys.modules, "llama_cpp", types.SimpleNamespace(Llama=Llama, GGML_TYPE_F32=0, GGML_TYPE_F16=1))
    monkeypatch.setattr(engines, "has_llama_cpp", lambda: True)
    found = engines.engines_for("smollm2")
    names = [name for name in found if name.startswith("llama.cpp")]
    assert len(names) == 6 and not any(name in engines.engines_for("gpt2-small") for name in names)
    answer = found["llama.cpp float32, flash"].build(model.folder, 50)
    golden = generate(load_model(model.folder), model.ids, max_new_tokens=4, cache=None).tokens
    assert answer(Request(model.ids, 4)).tokens == golden
    assert answer(Request(model.ids, 4, kept=30)).tokens == golden
    found["llama.cpp 4-bit"].build(model.folder, 50)
    assert [options["flash_attn"] for _, options in made] == [True, False]
    assert [options["type_k"] for _, options in made] == [0, 1]
    assert made[1][0] == str(model.folder / "four.gguf") and made[0][0].endswith("float32.gguf")
