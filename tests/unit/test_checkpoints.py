"""Weights from files: what fits is loaded as it is, and whatever does not fit is named."""

import hashlib
import json
import shutil
from dataclasses import replace

import pytest
import torch
from fake_gguf import CONFIG, dequantised, make_weights, write_gguf
from safetensors.torch import load_file, save_file

from kvcourse.checkpoints import load_model, save_model
from kvcourse.config import GPTConfig, LlamaConfig, RopeScaling
from kvcourse.errors import CheckpointError, KVCourseError, UnknownName
from kvcourse.hf_config import read_config, write_config
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama

GPT_CONFIG = GPTConfig(vocab_size=50, context_length=32, n_layer=2, n_head=2, n_embd=16)
TIED = LlamaConfig(vocab_size=50, context_length=32, n_layer=2, n_head=4, n_kv_head=2, n_embd=16, n_inner=24)
LLAMA_CONFIG = replace(TIED, tied=False)
SCALING = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=16)
TOKENS = torch.arange(20).view(2, 10)


def make(config):
    return (GPT if isinstance(config, GPTConfig) else Llama)(config).eval().requires_grad_(False)


@pytest.fixture(params=[GPT_CONFIG, LLAMA_CONFIG], ids=["gpt", "llama"])
def model(request):
    return make(request.param)


@pytest.fixture
def folder(model, tmp_path):
    return save_model(model, tmp_path / "model")


def rewrite(folder, change):
    """Change the weights in a saved folder."""
    path = folder / "model.safetensors"
    weights = change(load_file(path))
    save_file(weights, path)


# "tiny"


def test_tiny_is_the_same_on_every_machine():
    model = load_model("tiny")
    total = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        total.update(tensor.contiguous().numpy().tobytes())
    assert total.hexdigest()[:16] == "7d76d4c1eb88af3f"


def test_tiny_has_the_final_shape_and_size(tmp_path):
    model = load_model("tiny")
    config = model.config
    assert (config.n_layer, config.n_embd, config.n_head, config.context_length) == (4, 128, 4, 512)
    assert config.vocab_size == model.tokenizer.vocab_size
    folder = save_model(model, tmp_path / "tiny")
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4_000_000
    assert not model.training and not any(p.requires_grad for p in model.parameters())


def test_tiny_has_all_its_weights_and_they_are_numbers():
    weights = load_model("tiny").state_dict()
    assert all(torch.isfinite(tensor).all() and tensor.std() > 0 for tensor in weights.values())


def test_tiny_speaks_of_its_world():
    model = load_model("tiny")
    ids = model.tokenizer.encode("ana is in the garden . where is ana ?")
    assert model(torch.tensor([ids])).shape == (1, 10, model.config.vocab_size)
    assert model.tokenizer.decode([int(model(torch.tensor([ids + ids[:4]]))[0, -1].argmax())]) == "garden"
    assert model.tokenizer.encode_chat([{"role": "user", "content": "where is ana ?"}])[-1] == (
        model.tokenizer.special_tokens["<assistant>"])  # fmt: skip


# There and back


def test_a_saved_model_comes_back_with_the_same_logits(model, folder):
    again = load_model(folder)
    assert again.config == model.config
    assert again.fingerprint == model.fingerprint
    assert torch.equal(again(TOKENS), model(TOKENS))
    assert again.tokenizer is None


def test_a_saved_file_holds_plain_tensors_once(model, folder):
    weights = load_file(folder / "model.safetensors")
    tied = not hasattr(model.config, "tied") or model.config.tied
    assert ("lm_head.weight" in weights) is not tied
    assert set(weights) == set(model.state_dict()) - ({"lm_head.weight"} if tied else set())
    size = (folder / "model.safetensors").stat().st_size
    assert size < sum(tensor.nbytes for tensor in weights.values()) + 10_000
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_the_tokenizer_is_saved_with_the_model(tmp_path):
    tiny = load_model("tiny")
    again = load_model(save_model(tiny, tmp_path / "tiny"))
    assert again.tokenizer.fingerprint == tiny.tokenizer.fingerprint


def test_the_model_holds_copies_so_a_file_may_change_under_it(model, folder):
    again = load_model(folder)
    before = again(TOKENS)
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(0)  # where pages of the file were mapped, the next read of one would kill the process
    assert torch.equal(again(TOKENS), before)


def test_a_tied_model_is_loaded_tied(tmp_path):
    for config in (GPT_CONFIG, TIED):
        again = load_model(save_model(make(config), tmp_path / type(config).__name__))
        embedding = again.transformer.wte if config is GPT_CONFIG else again.model.embed_tokens
        assert again.lm_head.weight is embedding.weight
        assert "lm_head.weight" not in dict(again.named_parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes_are_kept_or_converted_as_asked(model, tmp_path, dtype):
    folder = save_model(model.to(dtype), tmp_path / "model")
    assert load_model(folder, dtype=None).dtype == dtype
    assert load_model(folder).dtype == torch.float32
    assert torch.equal(load_model(folder, dtype=None)(TOKENS), model(TOKENS))


def test_saving_replaces_an_earlier_model(model, folder):
    with torch.no_grad():
        next(iter(model.parameters())).add_(1)
    assert load_model(folder).fingerprint != model.fingerprint
    assert load_model(save_model(model, folder)).fingerprint == model.fingerprint
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_saving_never_removes_other_peoples_files(model, folder):
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match=r"thesis\.tex"):
        save_model(model, folder)
    with pytest.raises(CheckpointError, match="saved as a folder"):
        save_model(model, folder / "config.json")


def test_a_failed_save_leaves_the_earlier_model(model, folder, monkeypatch):
    def full(weights, path, metadata):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("kvcourse.checkpoints.save_file", full)
    with pytest.raises(OSError, match="No space"):
        save_model(make(model.config), folder)
    assert load_model(folder).fingerprint == model.fingerprint
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


# Other people's files


@pytest.mark.parametrize("prefix", ["transformer.", "model."])
def test_names_without_their_prefix_are_understood(prefix, model, folder):
    rewrite(folder, lambda weights: {name.removeprefix(prefix): tensor for name, tensor in weights.items()})
    assert load_model(folder).fingerprint == model.fingerprint


def test_old_buffers_are_ignored_and_a_tied_head_may_be_written(tmp_path):
    model = make(GPT_CONFIG)
    folder = save_model(model, tmp_path / "model")
    mask = torch.ones(1, 1, 32, 32)
    extra = {"transformer.h.0.attn.bias": mask, "transformer.h.1.attn.masked_bias": torch.tensor(-1e4)}
    rewrite(folder, lambda weights: weights | extra | {"lm_head.weight": weights["transformer.wte.weight"].clone()})
    assert load_model(folder).fingerprint == model.fingerprint
    rewrite(folder, lambda weights: weights | {"lm_head.weight": weights["lm_head.weight"] + 1})
    with pytest.raises(CheckpointError, match="ties them"):
        load_model(folder)


def some(weights, part):
    return next(name for name in weights if part in name)


@pytest.mark.parametrize(
    ("change", "expected", "got"),
    [
        (lambda w: {n: t for n, t in w.items() if ".1." not in n}, "and", "nothing"),
        (lambda w: w | {"model.extra.weight": torch.ones(3)}, "nothing", "extra.weight (3,)"),
        (lambda w: {n.replace("mlp", "ffn"): t for n, t in w.items()}, "mlp", "ffn"),
        (lambda w: w | {some(w, "mlp"): torch.ones(7, 5)}, "mlp", "(7, 5)"),
        (lambda w: w | {some(w, "mlp"): w[some(w, "mlp")].to(torch.int32)}, "mlp", "of torch.int32"),
        (lambda w: w | {some(w, "mlp"): w[some(w, "mlp")].to(torch.float8_e4m3fn)}, "mlp", "of torch.float8_e4m3fn"),
        (lambda w: {n: t for n, t in w.items() if "wte" not in n and "embed" not in n}, "weight (50, 16)", "nothing"),
    ],
)
def test_what_does_not_fit_is_listed(folder, change, expected, got):
    rewrite(folder, change)
    with pytest.raises(CheckpointError) as error:
        load_model(folder)
    assert expected in str(error.value.expected)
    assert got in str(error.value.got)


def test_everything_that_does_not_fit_is_counted_and_shortened(folder):
    rewrite(folder, lambda weights: {f"x{i}": torch.ones(2) for i in range(30)})
    with pytest.raises(CheckpointError) as error:
        load_model(folder)
    assert str(error.value.got).endswith("and 22 more")
    assert len(str(error.value)) < 1200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a whole safetensors file"),
        (b"\x80\x04\x95 a pickle", "not a whole safetensors file"),
        (b"\xff" * 64, "not a whole safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
        (None, "not a whole safetensors file"),
    ],
)
def test_broken_weight_files_are_refused(folder, content, message):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


def test_a_safetensors_file_cut_anywhere_is_refused(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for length in [*range(0, 200, 7), *range(200, len(whole), len(whole) // 20), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_model(folder)


def test_pickle_files_are_named_and_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin.*can run code"):
        load_model(folder)


def test_a_folder_without_weights_or_configuration_is_refused(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights"):
        load_model(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="not a model folder"):
        load_model(tmp_path / "empty")


@pytest.mark.parametrize("content", ["", "{", "[]", '"gpt2"', "\x00"])
def test_broken_configurations_are_refused(folder, content):
    (folder / "config.json").write_text(content)
    with pytest.raises(CheckpointError):
        load_model(folder)


def test_a_single_file_is_refused_with_advice(folder):
    with pytest.raises(CheckpointError, match="Name its folder"):
        load_model(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["gpt5", "no/such/folder", "missing.gguf"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(UnknownName, match="tiny, smollm2"):
        load_model(name)


# Shards


def shard(folder, index=None):
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    halves = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in halves.items():
        save_file({name: weights[name] for name in part}, folder / file)
    (folder / "model.safetensors").unlink()
    places = {name: file for file, part in halves.items() for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places} if index is None else index))
    return places


def test_shards_are_put_together(model, folder):
    shard(folder)
    assert load_model(folder).fingerprint == model.fingerprint


def test_shards_that_are_missing_or_lie_are_named(folder):
    places = shard(folder)
    first = folder / "model-00001-of-00002.safetensors"
    shutil.copy(first, folder / "kept")
    first.unlink()
    with pytest.raises(CheckpointError, match="model-00001-of-00002"):
        load_model(folder)
    shutil.copy(folder / "kept", first)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(places, first.name)}))
    with pytest.raises(CheckpointError, match="does not match the files"):
        load_model(folder)
    for broken in ({}, {"weight_map": []}, {"weight_map": dict.fromkeys(places, "../elsewhere.safetensors")}):
        index.write_text(json.dumps(broken))
        with pytest.raises(CheckpointError, match="does not match the folder"):
            load_model(folder)


# Configurations

LLAMA_CONFIGS = [
    LLAMA_CONFIG,
    LlamaConfig(),
    replace(LLAMA_CONFIG, rope_scaling=SCALING, head_size=8, rope_theta=5e5),
]


@pytest.mark.parametrize("config", [GPT_CONFIG, GPTConfig(n_inner=100, norm_eps=1e-6), *LLAMA_CONFIGS])
def test_configurations_go_there_and_back(config):
    assert read_config(json.loads(json.dumps(write_config(config)))) == config


@pytest.mark.parametrize("config", LLAMA_CONFIGS)
def test_rope_is_read_in_the_forms_of_transformers_4_and_5(config):
    old = write_config(config)
    new = {name: value for name, value in old.items() if name not in ("rope_theta", "rope_scaling")}
    scaling = old["rope_scaling"] or {"rope_type": "default"}
    new["rope_parameters"] = scaling | {"rope_theta": old["rope_theta"]}
    assert read_config(new) == config
    older = old | {"rope_scaling": {("type" if k == "rope_type" else k): v for k, v in scaling.items()}}
    assert read_config(older) == config


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (GPT_CONFIG, "activation_function", "relu"),
        (GPT_CONFIG, "activation_function", "gelu"),
        (GPT_CONFIG, "scale_attn_weights", False),
        (GPT_CONFIG, "scale_attn_by_inverse_layer_idx", True),
        (GPT_CONFIG, "add_cross_attention", True),
        (GPT_CONFIG, "tie_word_embeddings", False),
        (GPT_CONFIG, "quantization_config", {"bits": 4}),
        (LLAMA_CONFIG, "hidden_act", "gelu"),
        (LLAMA_CONFIG, "attention_bias", True),
        (LLAMA_CONFIG, "mlp_bias", True),
        (LLAMA_CONFIG, "pretraining_tp", 2),
        (LLAMA_CONFIG, "partial_rotary_factor", 0.5),
        (LLAMA_CONFIG, "sliding_window", 16),
        (LLAMA_CONFIG, "quantization_config", {"bits": 4}),
    ],
)
def test_fields_that_would_change_results_are_refused_by_name(config, field, value):
    with pytest.raises(CheckpointError, match=field):
        read_config(write_config(config) | {field: value})


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "nonsense"])
@pytest.mark.parametrize("form", ["rope_scaling", "rope_parameters"])
def test_other_rotary_scalings_are_refused_by_name(kind, form):
    with pytest.raises(CheckpointError, match=f"rope_type.*{kind}"):
        read_config(write_config(LLAMA_CONFIG) | {form: {"rope_type": kind, "factor": 2.0}})


@pytest.mark.parametrize("kind", ["mistral", "gpt_neox", "bert", None])
def test_other_kinds_of_model_are_refused_by_name(kind):
    with pytest.raises(CheckpointError, match="gpt2"):
        read_config(write_config(LLAMA_CONFIG) | {"model_type": kind})


@pytest.mark.parametrize("config", [GPT_CONFIG, LLAMA_CONFIG])
def test_configurations_that_lack_or_garble_a_field_are_refused(config):
    settings = write_config(config)
    sizes = [name for name, value in settings.items() if isinstance(value, int) and not isinstance(value, bool)]
    optional = {"n_inner", "num_key_value_heads", "head_dim"}
    for name in set(sizes) - optional:
        with pytest.raises(CheckpointError, match=name):
            read_config({key: value for key, value in settings.items() if key != name})
    for name in sizes:
        for value in (-1, "many", [3]):
            with pytest.raises(KVCourseError):
                read_config(settings | {name: value})


# GGUF


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_is_read_with_its_rows_in_order(tmp_path, tied):
    config = replace(CONFIG, tied=tied)
    weights = make_weights(config)
    model = load_model(write_gguf(tmp_path / "model.gguf", config, weights))
    expected = make(config)
    expected.load_state_dict(dequantised(weights), strict=not tied)
    assert model.config == config
    assert torch.equal(model(TOKENS), expected(TOKENS))
    assert model.tokenizer.decode(model.tokenizer.encode("hello the 12")) == "hello the 12"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"llama__expert_count": 8}, "expert_count"),
        ({"llama__rope__scaling__type": "yarn"}, "rope.scaling.type"),
        ({"llama__attention__sliding_window": 16}, "sliding_window"),
        ({"llama__rope__dimension_count": 4}, "rope.dimension_count"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer.ggml.model"),
        ({"tokenizer__ggml__pre": "qwen2"}, "tokenizer.ggml.pre"),
        ({"llama__block_count": None}, "lacks a field"),
        ({"llama__block_count": 3}, "do not fit"),
    ],
)
def test_a_gguf_file_that_would_compute_something_else_is_refused(tmp_path, changed, message):
    with pytest.raises(CheckpointError, match=message):
        load_model(write_gguf(tmp_path / "model.gguf", **changed))


def test_an_unknown_tensor_in_a_gguf_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"rope_freqs\.weight"):
        load_model(write_gguf(tmp_path / "model.gguf", weights=make_weights() | {"rope_freqs.weight": torch.ones(4)}))


def test_a_gguf_file_cut_anywhere_is_refused(tmp_path):
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    path = tmp_path / "model.gguf"
    for length in [0, 3, 4, 8, 20, *range(30, len(whole), len(whole) // 25), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load_model(path)
