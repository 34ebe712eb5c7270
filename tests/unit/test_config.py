"""Model shapes: derived numbers, contradictions refused, and the size of K and V."""

import dataclasses

import pytest

from kvcourse.config import GPTConfig, LlamaConfig, kv_bytes_per_token
from kvcourse.errors import ConfigError


def test_the_defaults_are_gpt2_small_and_smollm2():
    gpt, llama = GPTConfig(), LlamaConfig()
    assert (gpt.n_inner, gpt.n_kv_head, gpt.head_size) == (3072, 12, 64)
    assert (llama.head_size, llama.n_kv_head, llama.n_inner) == (64, 3, 1536)


def test_a_token_of_gpt2_small_leaves_72_kib_and_one_of_smollm2_a_good_half_of_that():
    assert kv_bytes_per_token(GPTConfig()) == 2 * 12 * 12 * 64 * 4 == 73728
    assert kv_bytes_per_token(LlamaConfig()) == 2 * 30 * 3 * 64 * 4 == 46080
    assert kv_bytes_per_token(LlamaConfig(), itemsize_bytes=2) == 23040


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: GPTConfig(n_embd=10, n_head=3), "n_head must divide n_embd"),
        (lambda: GPTConfig(n_layer=0), "n_layer must be positive"),
        (lambda: GPTConfig(vocab_size=-1), "vocab_size must be positive"),
        (lambda: GPTConfig(n_inner=0), "n_inner must be positive"),
        (lambda: LlamaConfig(n_head=0), "n_head must be positive"),
        (lambda: LlamaConfig(n_head=9, n_kv_head=2), "n_kv_head must divide n_head"),
        (lambda: LlamaConfig(n_embd=577), "n_head must divide n_embd"),
        (lambda: LlamaConfig(head_size=63), "even head_size"),
        (lambda: LlamaConfig(norm_eps=0.0), "norm_eps must be positive"),
    ],
)
def test_a_shape_that_contradicts_itself_is_refused_by_name(make, names):
    with pytest.raises(ConfigError, match=names) as caught:
        make()
    assert caught.value.todo


def test_a_head_size_may_be_given_that_does_not_follow_from_the_width():
    assert LlamaConfig(n_embd=100, n_head=3, n_kv_head=1, head_size=16).head_size == 16


def test_a_shape_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        GPTConfig().n_layer = 3
    assert dataclasses.replace(GPTConfig(), n_layer=3).n_layer == 3
