"""The size of a cache, computed, is the size that caches have; and the command says so without PyTorch."""

import json
import subprocess
import sys

import pytest
import torch

from kvcourse.caches.make import make_cache
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.checkpoints import load_model, save_model
from kvcourse.cli import main
from kvcourse.config import LlamaConfig, kv_bytes_per_token
from kvcourse.errors import CheckpointError, InputError, UnknownName
from kvcourse.hf_config import write_config
from kvcourse.memory import BITS, DTYPES, Memory, format_bytes, in_words, kv_bytes, parse_bytes, price, tokens_that_fit
from kvcourse.model_shapes import SHAPES, Shape, find_shape, shape_of_config
from kvcourse.models.llama import Llama
from kvcourse.tiny import TINY_SHAPE

LLAMA = SHAPES["llama-3.1-8b"]
GIB = 1 << 30
# C, F, V, heads tied to the embedding, biases of q, k and v: with a shape's own numbers, what its parameters follow from.
PARTS = {
    "smollm2-135m": (576, 1536, 49152, True, False),
    "gemma-2b": (2048, 16384, 256000, True, False),
    "gemma-7b": (3072, 24576, 256000, True, False),
    "llama-2-7b": (4096, 11008, 32000, False, False),
    "mistral-7b": (4096, 14336, 32000, False, False),
    "llama-3.1-8b": (4096, 14336, 128256, False, False),
    "llama-3.1-70b": (8192, 28672, 128256, False, False),
    "qwen2.5-7b": (3584, 18944, 152064, False, True),
    "qwen2.5-72b": (8192, 29568, 152064, False, True),
}
PARTS_GPT = {"tiny": (128, 148), "gpt2": (768, 50257), "gpt2-xl": (1600, 50257)}


def run(*arguments: str) -> None:
    with pytest.raises(SystemExit) as end:
        main(["memory", *arguments])
    assert not end.value.code


def rows_of(model, cache, tokens: int) -> int:
    """Bytes of a cache after so many tokens, as torch counts them."""
    with torch.no_grad():
        model(torch.zeros(2, tokens, dtype=torch.int64), cache=cache)
    return cache.nbytes


# The formula.


def test_known_sums():
    assert kv_bytes(LLAMA, 8192) == 2 * 32 * 8 * 128 * 8192 * 2 == GIB
    assert kv_bytes(SHAPES["llama-2-7b"], 4096, dtype="bfloat16") == 2 * GIB
    assert kv_bytes(SHAPES["gpt2"], 1024, dtype="float32", batch=3) == 3 * 72 * (1 << 20)
    assert price(LLAMA, 8192).multi_head_kv_bytes == 4 * GIB
    assert price(LLAMA, 8192, dtype="float32").weight_bytes == 4 * 8_030_261_248


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_factor_counts_once(name, dtype):
    shape = SHAPES[name]
    got = kv_bytes(shape, 100, batch=7, dtype=dtype)
    assert (
        got
        == 2
        * shape.n_layer
        * shape.n_kv_head
        * shape.head_size
        * 100
        * 7
        * torch.zeros(0, dtype=getattr(torch, dtype)).itemsize
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_it_is_what_a_preallocated_cache_takes(dtype):
    model = load_model("tiny", dtype=dtype)
    cache = make_cache("preallocated", model, 2, capacity=77)
    name = str(dtype).removeprefix("torch.")
    assert rows_of(model, cache, 5) == kv_bytes(find_shape("tiny"), 77, batch=2, dtype=name)
    assert kv_bytes(find_shape("tiny"), 1, dtype=name) == kv_bytes_per_token(TINY_SHAPE, dtype.itemsize)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 96, 130])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_it_is_what_a_quantized_cache_takes_scales_and_all(bits, tokens, dtype):
    model = load_model("tiny", dtype=getattr(torch, dtype))
    expected = kv_bytes(find_shape("tiny"), tokens, batch=2, dtype=f"int{bits}", model_dtype=dtype)
    assert rows_of(model, QuantizedCache(bits), tokens) == expected


@pytest.mark.parametrize(("group", "residual"), [(8, 0), (16, 5), (32, 64)])
def test_groups_and_residuals_of_other_sizes_are_counted_too(group, residual):
    model = load_model("tiny")
    cache = QuantizedCache(4, group_tokens=group, residual_tokens=residual)
    options = {"group_tokens": group, "residual_tokens": residual, "model_dtype": "float32"}
    assert rows_of(model, cache, 100) == kv_bytes(find_shape("tiny"), 100, batch=2, dtype="int4", **options)


def test_scales_by_hand():
    # One head of 4, one layer, 32 tokens rounded: 256 codes of a byte; 4 channels and 32 tokens with a pair of float16 each.
    shape = Shape("one", 1, 1, 1, 4, 64, None, "here")
    assert kv_bytes(shape, 32, dtype="int8", residual_tokens=0) == 256 + (4 + 32) * 2 * 2
    assert kv_bytes(shape, 33, dtype="int4", residual_tokens=0) == 128 + (4 + 32) * 2 * 2 + 2 * 4 * 2


def test_a_window_stands_still():
    mistral = SHAPES["mistral-7b"]
    assert price(mistral, 4095).kv_bytes < price(mistral, 4096).kv_bytes == price(mistral, 30_000).kv_bytes
    assert price(mistral, 4096).kv_bytes == 2 * 32 * 8 * 128 * 4096 * 2
    assert price(mistral, 30_000, window_tokens=30_000).kv_bytes == 2 * 32 * 8 * 128 * 30_000 * 2  # nothing is thrown away
    assert price(LLAMA, 30_000, window_tokens=1024).kept_tokens == 1024
    cache = make_cache("sliding", model := load_model("tiny"), 2, window=16)
    assert rows_of(model, cache, 40) == price(find_shape("tiny"), 40, 2, "float32", window_tokens=16).kv_bytes


# What fits.


@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-8b", "gemma-2b"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [1, 5])
def test_so_many_tokens_fit_and_not_one_more(name, dtype, batch):
    shape, options = SHAPES[name], {"batch": batch, "dtype": dtype}
    per_token = kv_bytes(shape, 1, batch=batch, dtype="float16")
    for room in (0, per_token - 1, per_token, 77 * per_token + 5, 3 * GIB):
        fits = tokens_that_fit(shape, room, **options)
        for n in range(max(1, fits - 70), fits + 1):  # on the way there, too
            assert kv_bytes(shape, n, **options) <= room
        assert kv_bytes(shape, fits + 1, **options) > room


def test_what_fits_is_what_the_weights_leave():
    memory = price(LLAMA, budget_bytes=24 * GIB)
    assert memory.fits_tokens == (24 * GIB - 2 * 8_030_261_248) // (2 * 32 * 8 * 128 * 2)
    assert price(SHAPES["llama-3.1-70b"], budget_bytes=24 * GIB).fits_tokens == 0
    assert price(SHAPES["mistral-7b"], budget_bytes=24 * GIB).fits_tokens is None
    assert price(SHAPES["mistral-7b"], budget_bytes=GIB * 139 // 10).fits_tokens is not None  # the window itself does not fit
    assert price(Shape("x", 1, 1, 1, 4, 64, None, "here")).fits_tokens is None


# The table.


@pytest.mark.parametrize("name", PARTS)
def test_parameters_of_the_table_follow_from_the_shape(name):
    C, F, V, tied, biases = PARTS[name]
    shape = SHAPES[name]
    q, kv = shape.n_head * shape.head_size, shape.n_kv_head * shape.head_size
    block = C * (2 * q + 2 * kv) + biases * (q + 2 * kv) + 3 * C * F + 2 * C
    assert shape.parameters == V * C * (1 if tied else 2) + shape.n_layer * block + C


@pytest.mark.parametrize("name", PARTS_GPT)
def test_parameters_of_a_gpt_follow_from_its_shape(name):
    C, V = PARTS_GPT[name]
    shape = SHAPES[name]
    assert shape.n_head * shape.head_size == C and shape.n_kv_head == shape.n_head
    assert shape.parameters == (V + shape.context_tokens + 2) * C + shape.n_layer * (12 * C * C + 13 * C)


def test_the_table_holds_every_shape_once_and_knows_where_it_is_from():
    assert set(SHAPES) == set(PARTS) | set(PARTS_GPT)
    assert all(shape.source and shape.n_head % shape.n_kv_head == 0 for shape in SHAPES.values())
    assert [shape.name for shape in SHAPES.values() if shape.window_tokens] == ["mistral-7b"]


def test_our_own_models_are_what_the_table_says():
    tiny = SHAPES["tiny"]
    assert (tiny.n_layer, tiny.n_head, tiny.head_size) == (TINY_SHAPE.n_layer, TINY_SHAPE.n_head, TINY_SHAPE.head_size)
    assert tiny.context_tokens == TINY_SHAPE.context_length
    assert tiny.parameters == sum(p.numel() for p in load_model("tiny").parameters())
    smol, config = find_shape("smollm2"), LlamaConfig()  # whose defaults it is
    assert smol is SHAPES["smollm2-135m"] is find_shape("SmolLM2-135M")
    assert (smol.n_layer, smol.n_kv_head, smol.context_tokens) == (config.n_layer, config.n_kv_head, config.context_length)
    assert kv_bytes(smol, 1) == kv_bytes_per_token(config, 2)


# A path.


def test_a_folder_is_read_by_its_config_and_its_headers(tmp_path):
    config = LlamaConfig(100, 64, n_layer=2, n_head=6, n_kv_head=2, n_embd=24, n_inner=40, head_size=6, tied=True)
    model = Llama(config)
    folder = save_model(model, tmp_path / "model")
    shape = find_shape(str(folder))
    assert (shape.n_layer, shape.n_head, shape.n_kv_head, shape.head_size, shape.context_tokens) == (2, 6, 2, 6, 64)
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert find_shape(str(folder / "config.json")).parameters == shape.parameters
    (folder / "consolidated.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    assert find_shape(str(folder)).parameters == shape.parameters  # the same weights under a second name
    (folder / "model.safetensors").unlink()
    (folder / "consolidated.safetensors").unlink()
    assert find_shape(str(folder)).parameters is None
    assert "Weights: not there to be counted." in in_words(find_shape(str(folder)), price(find_shape(str(folder))))


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"sliding_window": 4096}, 4096),
        ({"sliding_window": None}, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        ({"sliding_window": 4096, "layer_types": ["full_attention"] * 2}, None),
        ({"sliding_window": 4096, "layer_types": ["sliding_attention"] * 2}, 4096),
    ],
)
def test_a_window_is_taken_from_a_config_where_it_is_in_use(changes, window):
    assert shape_of_config({**write_config(LlamaConfig()), **changes}, "x").window_tokens == window


def test_each_spelling_of_a_config_is_read():
    gpt = shape_of_config(write_config(TINY_SHAPE), "x")
    assert (gpt.n_layer, gpt.n_head, gpt.n_kv_head, gpt.head_size, gpt.context_tokens) == (4, 4, 4, 32, 512)
    old = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "max_position_embeddings": 9}
    assert shape_of_config({"text_config": old}, "x") == Shape("x", 2, 4, 4, 8, 9, None, "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"layer_types": ["linear_attention"]},
        {"kv_lora_rank": 512},
        {"is_encoder_decoder": True},
        {"num_hidden_layers": 0},
        {"num_hidden_layers": None},
        {"num_key_value_heads": "8"},
        {"sliding_window": 0},
    ],
)
def test_a_config_that_cannot_be_priced_is_refused(changes):
    with pytest.raises(CheckpointError):
        shape_of_config({**write_config(LlamaConfig()), **changes}, "x")


def test_an_unknown_name_is_refused_with_its_neighbours():
    with pytest.raises(UnknownName, match=r"llama-3.1-8b.* or a path; got 'llama3-8b'"):
        find_shape("llama3-8b")
    with pytest.raises(UnknownName, match="gpt2, gpt2-xl"):
        find_shape("zzz")


# Words.


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("24GiB", 24 << 30),
        ("1.5 gib", 3 << 29),
        ("16GB", 16 * 10**9),
        ("4096", 4096),
        ("12 KB", 12_000),
        ("7B", 7),
        ("2T", 2 * 10**12),
    ],
)
def test_amounts_of_memory_are_read(text, n_bytes):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "lots", "0", "-1GiB", "GiB", "1 GiBs", "nan", "1e9", "0.2", "9" * 30])
def test_what_is_no_amount_of_memory_is_refused(text):
    with pytest.raises(InputError, match="no amount of memory"):
        parse_bytes(text)


def test_sizes_are_written_in_the_largest_unit():
    sizes = (0, 1023, 1024, 1536, GIB - 1, GIB, 5 << 40, 3 << 50)
    written = ["0 B", "1,023 B", "1.0 KiB", "1.5 KiB", "1,024.0 MiB", "1.0 GiB", "5.0 TiB", "3,072.0 TiB"]
    assert [format_bytes(n) for n in sizes] == written


def test_the_sum_is_written_out():
    lines = in_words(LLAMA, price(LLAMA, 8192))
    assert lines[1].endswith("one text of 8,192 tokens in float16: 1.0 GiB = 2 · 32 · 8 · 128 · 8,192 · 1 · 2 bytes.")
    assert "With K and V for every query head: 4.0 GiB." in lines
    mistral = " ".join(in_words(SHAPES["mistral-7b"], price(SHAPES["mistral-7b"], batch=2, dtype="int4")))
    assert "2 texts of 32,768 tokens (a window: 4,096 are kept) in int4" in mistral and "half a byte, and scales" in mistral
    assert "may grow without end" in mistral
    assert "The weights alone do not fit in 24.0 GiB." in in_words(SHAPES["qwen2.5-72b"], price(SHAPES["qwen2.5-72b"]))
    gpt = in_words(SHAPES["gpt2"], price(SHAPES["gpt2"], 2048))
    assert not any("every query head" in line for line in gpt) and "made for 1,024 tokens; beyond" in gpt[-1]


@pytest.mark.parametrize("bad", [0, -1, True])
@pytest.mark.parametrize("what", ["context_tokens", "batch", "window_tokens", "budget_bytes"])
def test_numbers_below_one_are_refused_by_name(what, bad):
    with pytest.raises(InputError, match=f"{what} cannot be used"):
        price(LLAMA, **{what: bad})


def test_a_dtype_that_is_none_of_ours_is_refused():
    assert set(BITS) == set(DTYPES)
    for compute in (price, kv_bytes):
        with pytest.raises(InputError, match="float32, float16, bfloat16, int8, int4; got 'fp8'"):
            compute(LLAMA, 8, dtype="fp8")


# The command.


def test_the_command_gives_records_of_all_shapes_or_of_one(capsys):
    run("--json", "--context", "8192", "--dtype", "int8", "--budget", "80GB")
    records = json.loads(capsys.readouterr().out)
    assert [record["model"] for record in records] == list(SHAPES)
    for record, shape in zip(records, SHAPES.values(), strict=True):
        memory = price(shape, 8192, dtype="int8", budget_bytes=80 * 10**9)
        assert {name: record[name] for name in Memory.__dataclass_fields__} == memory.as_record()
        assert (record["n_kv_head"], record["source"]) == (shape.n_kv_head, shape.source)
    run("--json", "--model", "smollm2", "--batch", "4", "--window", "100")
    (record,) = json.loads(capsys.readouterr().out)
    assert (record["kv_bytes"], record["window_tokens"]) == (2 * 30 * 3 * 64 * 100 * 4 * 2, 100)


def test_the_command_prints_a_table_whatever_the_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    run("--context", "8192")
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert set(SHAPES) <= set(rows)
    assert "1.0 GiB" in rows["llama-3.1-8b"] and "4.0 GiB" in rows["llama-3.1-8b"] and "15.0 GiB" in rows["llama-3.1-8b"]
    assert "8,192*" in rows["gpt2"] and "* More tokens" in out and "any number" in rows["mistral-7b"]
    run()
    assert "*" not in capsys.readouterr().out


def test_the_command_says_one_model_in_words(capsys):
    run("--model", "llama-3.1-8b", "--context", "8192")
    assert capsys.readouterr().out.splitlines() == in_words(LLAMA, price(LLAMA, 8192))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "lama-2-7b"], "llama-2-7b"),
        (["--model", "no/such/folder"], "got 'no/such/folder'"),
        (["--context", "0"], "context_tokens"),
        (["--batch", "0"], "batch"),
        (["--window", "-3"], "window_tokens"),
        (["--dtype", "fp8"], "got 'fp8'"),
        (["--budget", "much"], "got 'much'"),
        (["--model", "tests"], "config.json"),
    ],
)
def test_a_fault_is_one_line(arguments, words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["memory", *arguments])
    out, err = capsys.readouterr()
    assert end.value.code == 2 and out == "" and words in err and err.count("\n") == 1


def test_the_command_needs_no_heavy_library():
    code = (
        "import sys; from kvcourse.cli import main\n"
        "try: main(['memory', '--model', 'tiny', '--json'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'matplotlib', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)[0]["kv_bytes"] == 2 * 4 * 4 * 32 * 512 * 2
