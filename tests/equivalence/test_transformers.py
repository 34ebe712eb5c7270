"""Checkpoints go from transformers to us and back, and compute the same there and here; the real model included."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaForCausalLM
from transformers import LlamaConfig as HFLlamaConfig

from kvcourse.caches.make import make_cache
from kvcourse.checkpoints import load_model, save_model
from kvcourse.config import GPTConfig, LlamaConfig, RopeScaling
from kvcourse.fetch import fetch
from kvcourse.generate import generate
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama

GOLDEN = json.loads(Path(__file__).parents[1].joinpath("golden", "smollm2_greedy.json").read_text(encoding="utf-8"))
TOLERANCE = 1e-4  # float32
ENOUGH = 8  # tokens with a wide margin that every prompt has
TOKENS = torch.arange(1, 41).view(2, 20)

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip
SMALL = {
    "vocab_size": 97, "max_position_embeddings": 64, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
    "hidden_size": 48, "intermediate_size": 80, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
LLAMAS = {
    "tied": HFLlamaConfig(**SMALL, tie_word_embeddings=True),
    "untied": HFLlamaConfig(**SMALL, tie_word_embeddings=False),
    "wide heads": HFLlamaConfig(**SMALL, head_dim=16, rms_norm_eps=1e-3),
    "llama 3 positions": HFLlamaConfig(**SMALL, rope_parameters=LLAMA3 | {"rope_theta": 5e5}),
}
GPT2 = GPT2Config(
    vocab_size=97, n_positions=64, n_layer=3, n_head=4, n_embd=48, n_inner=100, bos_token_id=None, eos_token_id=None
)


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """New models have zero biases and norms of one, which would hide a tensor that is not used."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def theirs(model: torch.nn.Module, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.no_grad():
        return model(tokens).logits


def same(ours: torch.Tensor, other: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(ours, other, atol=tolerance, rtol=0)


def in_steps(model: torch.nn.Module) -> torch.Tensor:
    cache = make_cache("preallocated", model, batch_size=TOKENS.shape[0])
    return torch.cat([model(part, cache=cache) for part in TOKENS.split([7, 1, 1, 11], dim=1)], dim=1)


@pytest.mark.parametrize("shard_size", ["1GB", "40KB"])
@pytest.mark.parametrize("config", LLAMAS.values(), ids=LLAMAS)
def test_a_llama_of_transformers_computes_the_same_here(config, shard_size, tmp_path):
    model = randomised(LlamaForCausalLM(config))
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() is (shard_size == "40KB")
    ours = load_model(tmp_path)
    assert isinstance(ours, Llama)
    assert ours.config.tied is config.tie_word_embeddings
    same(ours(TOKENS), theirs(model))
    same(in_steps(ours), theirs(model))


@pytest.mark.parametrize("shard_size", ["1GB", "40KB"])
def test_a_gpt2_of_transformers_computes_the_same_here(shard_size, tmp_path):
    model = randomised(GPT2LMHeadModel(GPT2))
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    ours = load_model(tmp_path)
    assert isinstance(ours, GPT)
    same(ours(TOKENS), theirs(model))
    same(in_steps(ours), theirs(model))


def test_a_gpt2_saved_without_its_head_computes_the_same_here(tmp_path):
    model = randomised(GPT2LMHeadModel(GPT2))
    body = GPT2Model(GPT2)
    body.load_state_dict(model.transformer.state_dict())
    body.save_pretrained(tmp_path)
    same(load_model(tmp_path)(TOKENS), theirs(model))


@pytest.mark.parametrize(
    "config",
    [
        GPTConfig(vocab_size=97, context_length=64, n_layer=2, n_head=4, n_embd=48, n_inner=100, norm_eps=1e-3),
        LlamaConfig(vocab_size=97, context_length=64, n_layer=2, n_head=6, n_kv_head=2, n_embd=48, n_inner=80, tied=True),
        LlamaConfig(vocab_size=97, context_length=64, n_layer=2, n_head=6, n_kv_head=3, n_embd=48, n_inner=80, tied=False,
                    head_size=16, rope_theta=5e5, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 16)),
    ],
    ids=["gpt", "llama tied", "llama untied, llama 3 positions"],
)  # fmt: skip
def test_what_we_save_computes_the_same_in_transformers(config, tmp_path):
    ours = randomised(GPT(config) if isinstance(config, GPTConfig) else Llama(config))
    model, report = AutoModelForCausalLM.from_pretrained(save_model(ours, tmp_path / "model"), output_loading_info=True)
    assert not any(report.values()), report  # nothing missing, unexpected or of another shape
    with torch.no_grad():
        same(ours(TOKENS), theirs(model.eval()))


def test_tiny_goes_to_transformers_with_its_tokenizer(tmp_path):
    tiny = load_model("tiny")
    folder = save_model(tiny, tmp_path / "tiny")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    text = "ana is in the garden. where is ana?"
    ids = tiny.tokenizer.encode(text)
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer.eos_token_id == model.config.eos_token_id == tiny.tokenizer.stop_ids[0]
    same(tiny(torch.tensor([ids])), theirs(model.eval(), torch.tensor([ids])))


# The real model


@pytest.fixture(scope="module")
def folder():
    return fetch("smollm2", progress=False)


@pytest.fixture(scope="module")
def smollm2(folder):
    return load_model("smollm2")


def test_the_golden_ids_are_for_the_model_that_is_here(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"] == GOLDEN["gguf_sha256"]
    assert len(GOLDEN["cases"]) >= 8


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_the_real_models_tokenizer_gives_transformers_ids(smollm2, case):
    prompt = case["prompt"]
    encode = smollm2.tokenizer.encode if isinstance(prompt, str) else smollm2.tokenizer.encode_chat
    assert encode(prompt) == case["ids"]
    assert smollm2.tokenizer.decode(case["continuation"]) == case["text"]


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["name"])
def test_the_real_model_continues_as_in_transformers(smollm2, case):
    """Up to the first near tie, where rounding may decide."""
    wide = case["wide"]
    assert wide >= ENOUGH
    assert generate(smollm2, case["ids"], max_new_tokens=wide).tokens == case["continuation"][:wide]


def test_the_real_model_computes_what_transformers_does(smollm2, folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([GOLDEN["cases"][0]["ids"] + GOLDEN["cases"][-1]["ids"]])
    with torch.no_grad():
        same(smollm2(ids), theirs(model, ids), tolerance=1e-3)


def test_the_real_tokenizer_is_transformers_on_all_kinds_of_text(smollm2, folder):
    theirs, ours = AutoTokenizer.from_pretrained(folder), smollm2.tokenizer
    texts = [
        "Hello, world! It's 2024-11-29; π ≈ 3.14159, 1,000,000 and ½ or Ⅷ.", "def f(x):\n\treturn x ** 2  # comment\n\n\n",
        "中国的首都是北京。日本語も少し。한국어", "😀🎉 👩\u200d👩\u200d👧 🇫🇷 e\u0301 naïve",
        "   leading and trailing   \r\n\t\n ", "", " ", "\x00\x7f\ufffd",
        "<|im_start|>user\nhi<|im_end|>\n<|endoftext|><repo_name>", "<|im_start", "ßẞİıſ Ǆ ﬀ", "עברית العربية ไทย हिन्दी",
    ]  # fmt: skip
    for text in texts:
        assert ours.encode(text, special=True) == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text)) == text
        assert "".join(ours.decode_stream(ours.encode(text))) == text
    assert ours.encode(texts[-4]) != ours.encode(texts[-4], special=True)
    assert (ours.vocab_size, ours.stop_ids) == (len(theirs), (2, 0))


def test_the_real_template_renders_as_in_transformers_and_is_continued(smollm2, folder):
    theirs, ours = AutoTokenizer.from_pretrained(folder), smollm2.tokenizer
    turns = [("user", "Hi!"), ("assistant", "Hello. How are you?"), ("user", "Fine 😀\n\n1 + 1?"), ("assistant", "2")]
    messages = [{"role": role, "content": content} for role, content in turns]
    for start in ([], [{"role": "system", "content": "Be brief."}]):
        for length in range(1, len(turns) + 1):
            chat = start + messages[:length]
            assert (
                ours.encode_chat(chat)
                == theirs.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
            )
    asked = messages[:1]
    reply = [*ours.encode(messages[1]["content"]), ours.stop_ids[0]]
    assert ours.encode_chat(asked) + reply + ours.continue_chat(asked, reply, messages[2:3]) == ours.encode_chat(messages[:3])
