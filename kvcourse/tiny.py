"""Lesson 01: the course's own small model, before training: a shape, seeded weights and a small world of words.

Knows nothing about how a model computes. The weights are the same on every machine: normal numbers from `torch.normal` are
not (their last bits depend on the processor), so these are sums of uniform ones, which are exact.
"""

import math

import torch
from torch import Tensor

from kvcourse.chat_template import ChatTemplate
from kvcourse.config import GPTConfig
from kvcourse.tokenizers import WordTokenizer

PEOPLE = "ana ben cleo dan eva finn gus hana ivan june kai lena".split()
PLACES = "garden kitchen school market library station forest harbour office museum".split()
THINGS = "apple book cup drum egg flute hat key lamp map rope violin".split()
WORDS = (
    "is are was in the a an at to from of and or not no yes it he she they who where what when which does do did has have had "
    "go goes went take takes took give gives gave put puts drop drops find finds found see sees saw now then before after "
    "first last here there with next same other all every one two three four five six seven eight nine ten red green blue "
    "yellow black white small large old new open closed you i me my your hello thanks please remember know say tell question "
    "answer story system helpful . , ? : - '"
).split()
SPECIAL = ("<text>", "<system>", "<user>", "<assistant>", "<end>")
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('unknown role ' + message['role']) }}{% endif %}"
    "{{ '<' + message['role'] + '> ' + message['content'] + ' <end> ' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant> ' }}{% endif %}"
)


def make_tiny(seed: int = 0) -> tuple[GPTConfig, dict[str, Tensor], WordTokenizer]:
    """Configuration, untrained weights (float32, Hugging Face's GPT-2 names) and tokenizer."""
    tokenizer = tiny_tokenizer()
    config = GPTConfig(vocab_size=tokenizer.vocab_size, context_length=512, n_layer=4, n_head=4, n_embd=128)
    return config, _draw(config, seed), tokenizer


def tiny_tokenizer() -> WordTokenizer:
    """A word for everything in the small world, and a chat format of its own."""
    return WordTokenizer(
        [*PEOPLE, *PLACES, *THINGS, *WORDS],
        special=SPECIAL,
        chat=ChatTemplate(TEMPLATE, bos_token="<text>", eos_token="<end>", pad_token="<end>"),
        stop=("<end>", "<text>"),
    )


def _draw(config: GPTConfig, seed: int) -> dict[str, Tensor]:
    """GPT-2's initialisation: 0.02; what is added to the residual stream is divided by sqrt(2 L).

    Source: Radford et al. 2019, section 2.3.
    """
    C, F = config.n_embd, 4 * config.n_embd
    attention = {"ln_1": (C,), "attn.c_attn": (C, 3 * C), "attn.c_proj": (C, C)}
    block = {**attention, "ln_2": (C,), "mlp.c_fc": (C, F), "mlp.c_proj": (F, C)}
    shapes = {"wte": (config.vocab_size, C), "wpe": (config.context_length, C), "ln_f": (C,)}
    shapes |= {f"h.{layer}.{part}": shape for layer in range(config.n_layer) for part, shape in block.items()}
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        scale = 0.02 / math.sqrt(2 * config.n_layer) if name.endswith("c_proj") else 0.02
        norm = "ln_" in name
        weights[f"transformer.{name}.weight"] = torch.ones(shape) if norm else _normal(shape, generator, scale)
        if name not in ("wte", "wpe"):
            weights[f"transformer.{name}.bias"] = torch.zeros(shape[-1])
    return weights


def _normal(shape: tuple[int, ...], generator: torch.Generator, scale: float) -> Tensor:
    """Nearly normal: the sum of twelve uniform numbers has variance 1. Each is a multiple of 2^-24, so float64 adds exactly."""
    uniform = torch.rand((12, *shape), generator=generator)  # (12, *shape)
    return ((uniform.double().sum(0) - 6) * scale).float()
