"""Lesson 04: every weight has a name, a role and a size, whichever file or model it lies in."""

import json
import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from kvcourse.checkpoints import load_model
from kvcourse.config import GPTConfig, LlamaConfig
from kvcourse.errors import CheckpointError, InputError
from kvcourse.fetch import model_folder
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama
from kvcourse.weight_files import read_header
from kvcourse.weight_names import place_of
from kvcourse.weights import inventory, split_qkv

GPT_SHAPE = GPTConfig(vocab_size=11, context_length=16, n_layer=2, n_head=2, n_embd=8)
LLAMA_SHAPE = LlamaConfig(vocab_size=11, context_length=16, n_layer=2, n_head=4, n_kv_head=2, n_embd=16, n_inner=24)


@pytest.mark.parametrize("model", [GPT(GPT_SHAPE), Llama(LLAMA_SHAPE)], ids=["gpt", "llama"])
def test_the_inventory_of_a_model_adds_up_and_names_every_role(model):
    found = inventory(model)
    assert sum(weight.parameters for weight in found) == sum(p.numel() for p in model.parameters())
    assert [weight.name for weight in found] == list(model.state_dict())
    assert all(weight.role != "unknown" for weight in found)
    assert {weight.layer for weight in found} == {None, 0, 1}


def test_a_tied_head_is_listed_and_counted_once():
    head = next(weight for weight in inventory(GPT(GPT_SHAPE)) if weight.name == "lm_head.weight")
    assert (head.role, head.parameters, head.bytes) == ("output head: transformer.wte.weight again", 0, 0)


def test_a_file_a_folder_and_a_state_dict_give_the_same_inventory(tmp_path):
    state = Llama(LLAMA_SHAPE).state_dict()
    weights = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    from_file = inventory(tmp_path / "model.safetensors")
    assert sorted(from_file, key=lambda w: w.name) == sorted(inventory(weights), key=lambda w: w.name)
    assert inventory(tmp_path) == from_file


@pytest.mark.parametrize(
    ("name", "role", "layer"),
    [
        ("transformer.h.3.attn.c_attn.weight", "q, k and v projections", 3),
        ("h.0.mlp.c_fc.bias", "MLP up bias", 0),
        ("model.layers.29.self_attn.k_proj.weight", "k projection", 29),
        ("blk.7.ffn_gate.weight", "MLP gate", 7),
        ("output.weight", "output head", None),
        ("h.0.attn.bias", "constant, not learned", 0),
        ("h.0.attn.c_attn.extra", "unknown", 0),
        ("encoder.weight", "unknown", None),
    ],
)
def test_a_role_is_read_from_each_spelling(name, role, layer):
    assert place_of(name) == (role, layer)


def test_the_real_model_and_its_gguf_file_have_the_same_parts():
    folder = model_folder("smollm2")
    plain, packed = inventory(folder), inventory(next(folder.glob("*.gguf")))
    assert sum(w.parameters for w in plain) == sum(w.parameters for w in packed) == 134_515_008
    assert sorted((w.role, w.layer or 0, w.shape) for w in plain) == sorted((w.role, w.layer or 0, w.shape) for w in packed)
    assert sum(w.bytes for w in packed) < sum(w.bytes for w in plain) / 3


def test_listing_a_safetensors_file_imports_no_torch_and_reads_no_numbers():
    file = model_folder("smollm2") / "model.safetensors"
    code = (
        "import psutil, sys; from kvcourse.weights import inventory\n"
        f"assert len(inventory({str(file)!r})) == 272\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "print(psutil.Process().memory_info().rss // 2**20)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 200  # MiB


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01\x02",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 5) + b"[1,2]",
        struct.pack("<Q", 4) + b"{{{{",
        struct.pack("<Q", 13) + b'{"a":{"x":1}}',
        struct.pack("<Q", 60) + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[4,0]}}     ',
        b"GGUF" + b"\x00" * 20,
    ],
)
def test_a_broken_file_is_refused_with_what_is_wrong(tmp_path, content):
    file = tmp_path / "broken.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"broken\.safetensors has no weights to list"):
        inventory(file)


@pytest.mark.parametrize("source", [{}, 7, None])
def test_what_has_no_weights_is_refused(source):
    with pytest.raises(InputError, match="no weights to list"):
        inventory(source)


def test_a_missing_path_and_an_empty_folder_are_refused(tmp_path):
    for path in (tmp_path / "nothing.gguf", tmp_path):
        with pytest.raises(CheckpointError, match="no weights to list"):
            inventory(path)


def test_the_header_read_by_hand_says_where_each_tensor_lies(tmp_path):
    x = torch.arange(6.0).view(2, 3)
    save_file({"x": x}, tmp_path / "x.safetensors")
    entry = read_header(tmp_path / "x.safetensors")["x"]
    content = (tmp_path / "x.safetensors").read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0] + entry["data_offsets"][0]
    assert struct.unpack("<6f", content[start : start + 24]) == tuple(range(6))


def test_the_split_projection_computes_the_same_keys():
    model = GPT(GPT_SHAPE)
    attn = model.transformer.h[0].attn
    x = torch.randn(1, 3, 8)
    weight, bias = split_qkv(attn.c_attn.weight), split_qkv(attn.c_attn.bias)
    together = attn.c_attn(x).split(8, dim=-1)
    for W, b, expected in zip(weight, bias, together, strict=True):
        assert torch.allclose(x @ W + b, expected, atol=1e-6)
    assert weight.k.data_ptr() != weight.q.data_ptr() and math.prod(weight.k.shape) == 64


@pytest.mark.parametrize("shape", [(8, 8), (7,), (2, 3, 4), (8, 23)])
def test_what_is_no_fused_projection_is_not_split(shape):
    with pytest.raises(InputError, match="fused"):
        split_qkv(torch.zeros(shape))


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    from kvcourse.cli import main

    with pytest.raises(SystemExit) as end:
        main(["weights", "tiny", "--json"])
    assert not end.value.code
    records = json.loads(capsys.readouterr().out)
    assert records == [weight.as_record() for weight in inventory(load_model("tiny"))]
    assert set(records[0]) == {"name", "role", "layer", "shape", "dtype", "parameters", "bytes"}
    with pytest.raises(SystemExit):
        main(["weights", str(Path(model_folder("smollm2")))])
    assert "134,515,008" in capsys.readouterr().out


def test_the_table_cuts_no_name_however_narrow_the_terminal(capsys, monkeypatch):
    from kvcourse.cli import main

    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        main(["weights", "tiny"])
    lines = capsys.readouterr().out.splitlines()
    for weight in inventory(load_model("tiny")):
        (line,) = [line for line in lines if line.split()[:1] == [weight.name]]
        assert f"{weight.bytes:,}" in line and weight.role.replace("  ", " ") in line
