"""Lesson 07: what is benchmarked: a folder of weights that every engine reads, and prompts. Knows nothing about engines.

gpt2-small   GPT-2's shape with random weights: speed does not depend on their values
smollm2      the real model, as fetched
"""

import random
from dataclasses import dataclass
from pathlib import Path

import torch

from kvcourse.checkpoints import load_model, save_model
from kvcourse.config import Config, GPTConfig, LlamaConfig
from kvcourse.corpus import make_conversation
from kvcourse.fetch import model_folder
from kvcourse.models.base import CausalLM
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama

RANDOM: dict[str, Config] = {
    "gpt2-small": GPTConfig(),
    # two to try the benchmark itself
    "small": GPTConfig(vocab_size=997, context_length=128, n_layer=2, n_head=2, n_embd=64),
    "small-llama": LlamaConfig(
        vocab_size=997, context_length=256, n_layer=2, n_head=4, n_kv_head=2, n_embd=64, n_inner=128, head_size=16
    ),
}
SHAPES = ("gpt2-small", "smollm2", "small", "small-llama")
BOTH = ("gpt2-small", "smollm2")


@dataclass(frozen=True)
class Subject:
    """A model's folder, and what a decode step of it reads."""

    shape: str
    folder: Path
    config: Config
    ids: list[int]  # prompts are cut from these

    @property
    def weights_read(self) -> int:
        """Weights that one decode step reads: all but the position table, and the token table once, as output head."""
        c = self.config
        with torch.device("meta"):
            parameters = dict((GPT(c) if isinstance(c, GPTConfig) else Llama(c)).named_parameters())  # a tied head once
        left_out = {"transformer.wpe.weight"} | ({"model.embed_tokens.weight"} if "lm_head.weight" in parameters else set())
        return sum(parameter.numel() for name, parameter in parameters.items() if name not in left_out)


def subject(shape: str, n_ids: int, folder: Path) -> Subject:
    """The model of that name, and n_ids token ids. folder: an empty one, for weights that are drawn here.

    Raises: NotFetched for "smollm2" before `kvcourse fetch smollm2`.
    """
    if shape in RANDOM:
        config = RANDOM[shape]
        save_model(random_model(config), folder)
        ids = torch.randint(config.vocab_size, (n_ids,), generator=torch.Generator().manual_seed(1)).tolist()
        return Subject(shape, folder, config, ids)
    model = load_model(shape)
    return Subject(shape, model_folder(shape), model.config, text_ids(model, n_ids))


def random_model(config: Config) -> CausalLM:
    """Every weight is drawn, those of norms around 1, so that every part counts for something."""
    model: CausalLM = GPT(config) if isinstance(config, GPTConfig) else Llama(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_scale = ("ln_" in name or "norm" in name) and name.endswith("weight")
            parameter.normal_(1.0 if is_scale else 0.0, 0.02, generator=generator)
    return model.eval().requires_grad_(False)


def text_ids(model: CausalLM, n_ids: int) -> list[int]:
    """Made-up conversations, in this model's tokens: text on which it is rarely undecided between two tokens."""
    rng = random.Random(1)
    ids: list[int] = []
    while len(ids) < n_ids:
        ids += model.tokenizer.encode(" ".join(make_conversation(rng, n_facts=12).words) + "\n")
    return ids[:n_ids]
