"""The trace of a cached step is the last rows of the trace without a cache, name by name; and the names are TransformerLens's.

One logit compared says that something is wrong. A trace says where: the first name that differs.
"""

from collections.abc import Iterable

import pytest
import torch
from helpers import CACHES, MODELS, assert_close, cut, make_empty, make_model, padded, random_ids
from mutants.caches.faulty_caches import PositionsRestart, TopLeftMask, ValuesNotWritten, broken
from torch import Tensor

from kvcourse.caches.growing import GrowingCache
from kvcourse.checkpoints import load_model
from kvcourse.trace import Trace, trace

TOKEN_AXIS = {3: 1, 4: 2}  # of (B, T, ...); of (B, H, T, D) and (B, H, T, S)
PARTS = ("attn.scores", "attn.pattern")  # a column for each key: fewer in earlier calls

# What HookedTransformer.run_with_cache lists for GPT-2 (TransformerLens 2), without the hook_scale of each norm:
# that is one number per token, which the norm divides by.
THEIRS = {
    "embed": "hook_embed",
    "pos_embed": "hook_pos_embed",
    "resid_pre": "hook_resid_pre",
    "ln1": "ln1.hook_normalized",
    "attn.q": "attn.hook_q",
    "attn.k": "attn.hook_k",
    "attn.v": "attn.hook_v",
    "attn.scores": "attn.hook_attn_scores",
    "attn.pattern": "attn.hook_pattern",
    "attn.z": "attn.hook_z",
    "attn_out": "hook_attn_out",
    "resid_mid": "hook_resid_mid",
    "ln2": "ln2.hook_normalized",
    "mlp.pre": "mlp.hook_pre",
    "mlp.post": "mlp.hook_post",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
    "ln_final": "ln_final.hook_normalized",
}
ONLY_GPT = {"pos_embed"}
ONLY_LLAMA = {"mlp.pre_linear"}  # mlp.hook_pre_linear; and attn.q and .k are its hook_rot_q and hook_rot_k


def steps(model: object, tokens: Tensor, cache: object, sizes: Iterable[int]) -> list[Trace]:
    return [trace(model, part, cache) for part in tokens.split(list(sizes), dim=1)]


def rows(name: str, tensor: Tensor, start: int, stop: int) -> Tensor:
    """The rows of tokens start to stop - 1 of a whole trace, as a call that ended at `stop` would have them."""
    part = tensor.narrow(TOKEN_AXIS[tensor.dim()], start, stop - start)
    return part[..., :stop] if name.endswith(PARTS) else part


def first_difference(model: object, tokens: Tensor, cache: object, sizes: Iterable[int]) -> str | None:
    """The first name, in the order of computing, whose rows are not those of the trace without a cache."""
    whole, start = trace(model, tokens), 0
    for step in steps(model, tokens, cache, sizes):
        stop = start + step["embed"].shape[1]
        for name, tensor in step.items():
            if not torch.allclose(tensor, rows(name, whole[name], start, stop), atol=1e-9):
                return name
        start = stop
    return None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
def test_a_decode_step_traces_the_last_row_of_the_uncached_trace_for_every_name(kind, cache_kind):
    model, tokens, cache = make_model(kind), random_ids(2, 12), make_empty(cache_kind)
    assert model.config.n_kv_head < model.config.n_head or kind == "gpt"  # the Llama's queries share keys
    whole = trace(model, tokens)
    _, step = steps(model, tokens, cache, [11, 1])
    assert list(step) == list(whole)
    for name in whole:
        assert step[name].dtype == torch.float64
        assert_close(step[name], rows(name, whole[name], 11, 12), name)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
@pytest.mark.parametrize("sizes", [[1], [4], [3, 1, 5, 2]], ids=str)
def test_every_call_of_every_chunking_traces_its_rows_of_the_uncached_trace(kind, cache_kind, sizes):
    model, tokens = make_model(kind), random_ids(2, 12)
    whole, start = trace(model, tokens), 0
    for step in steps(model, tokens, make_empty(cache_kind), cut(12, sizes)):
        stop = start + step["embed"].shape[1]
        for name, tensor in step.items():
            expected = rows(name, whole[name], start, stop)
            if name.endswith("attn.scores"):  # no difference can be taken of two infinities
                assert torch.equal(tensor.isinf(), expected.isinf()), f"mask of tokens {start} to {stop - 1}"
                tensor, expected = tensor.nan_to_num(neginf=0.0), expected.nan_to_num(neginf=0.0)
            assert_close(tensor, expected, f"{name} of tokens {start} to {stop - 1}")
        start = stop
    assert start == 12


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("cache_kind", CACHES)
def test_a_decode_step_of_a_padded_batch_traces_each_row_as_if_it_were_alone(kind, cache_kind):
    model, prompts = make_model(kind), [[5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15], [16, 17]]
    tokens, starts = padded(prompts)
    _, step = steps(model, tokens, make_empty(cache_kind, starts), [6, 1])
    for row, (prompt, start) in enumerate(zip(prompts, starts, strict=True)):
        alone = trace(model, prompt)
        for name, tensor in step.items():
            mine = tensor[row : row + 1]
            if name.endswith(PARTS):
                hidden = -torch.inf if name.endswith("scores") else 0.0
                assert (mine[..., :start] == hidden).all(), f"{name}: padding is seen"
                mine = mine[..., start:]
            assert_close(mine, rows(name, alone[name], len(prompt) - 1, len(prompt)), f"{name} of row {row}")


@pytest.mark.parametrize(("name", "tolerance"), [("tiny", 1e-4), ("smollm2", 5e-4)])
def test_a_decode_step_of_the_courses_own_models_agrees_for_every_name(name, tolerance):
    """In float32, against each tensor's largest number: some of the real model's are above a thousand."""
    model = load_model(name)
    ids = model.tokenizer.encode("ana is in the garden . where is ana ?")
    whole = trace(model, ids)
    _, step = steps(model, torch.tensor([ids]), make_empty("preallocated"), [len(ids) - 1, 1])
    assert list(step) == list(whole)
    for key in whole:
        expected = rows(key, whole[key], len(ids) - 1, len(ids))
        scale = expected[expected.isfinite()].abs().max().item()
        assert (step[key] - expected).abs().max().item() <= tolerance * scale, key


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(
    ("fault", "seen_first"),
    [
        (PositionsRestart, {"gpt": "pos_embed", "llama": "blocks.0.attn.q"}),  # rotary positions enter where q is rotated
        (TopLeftMask, {"gpt": "blocks.0.attn.scores", "llama": "blocks.0.attn.scores"}),
        (ValuesNotWritten, {"gpt": "blocks.0.attn.z", "llama": "blocks.0.attn.z"}),
    ],
    ids=["positions restart", "top left mask", "values not written"],
)
def test_the_first_name_that_differs_says_what_a_broken_cache_broke(kind, fault, seen_first):
    model, tokens = make_model(kind), random_ids(1, 9)
    assert first_difference(model, tokens, GrowingCache(), [5, 4]) is None
    assert first_difference(model, tokens, broken(fault, GrowingCache)(), [5, 4]) == seen_first[kind]


@pytest.mark.parametrize("kind", MODELS)
def test_the_names_are_transformer_lenss_and_none_is_missing(kind):
    model = make_model(kind)
    named = list(trace(model, [1, 2, 3]))
    whole_model = [name for name in named if not name.startswith("blocks.")]
    blocks = [[name.removeprefix(f"blocks.{b}.") for name in named if name.startswith(f"blocks.{b}.")] for b in range(3)]
    assert len(named) == len(whole_model) + sum(map(len, blocks))
    assert blocks[0] == blocks[1] == blocks[2]
    ours = {*whole_model, *blocks[0]} - {"logits"}  # there, what the model returns
    assert ours == set(THEIRS) - (ONLY_GPT if kind == "llama" else set()) | (ONLY_LLAMA if kind == "llama" else set())
    in_order = [name for name in (*whole_model[:-2], *blocks[0], *whole_model[-2:]) if name in THEIRS]
    assert in_order == [name for name in THEIRS if name in ours]


def test_a_name_is_transformer_lenss_without_hook_but_for_the_exceptions_that_trace_documents():
    plain = {name for name, theirs in THEIRS.items() if theirs.replace("hook_", "") == name}
    assert set(THEIRS) - plain == {"ln1", "ln2", "ln_final", "attn.scores"}


@pytest.mark.parametrize("kind", MODELS)
def test_each_new_name_is_what_it_says(kind):
    """A norm's output is what attention or the MLP reads; mlp.post is what the last map of the MLP multiplies."""
    model, tokens = make_model(kind), random_ids(1, 6)
    named = trace(model, tokens)
    block = (model.transformer.h if kind == "gpt" else model.model.layers)[1]
    norms = (block.ln_1, block.ln_2) if kind == "gpt" else (block.input_layernorm, block.post_attention_layernorm)
    pre, post = named["blocks.1.mlp.pre"], named["blocks.1.mlp.post"]
    with torch.no_grad():
        assert_close(named["blocks.1.ln1"], norms[0](named["blocks.1.resid_pre"]), "ln1")
        assert_close(named["blocks.1.ln2"], norms[1](named["blocks.1.resid_mid"]), "ln2")
        x, mlp = named["blocks.1.ln2"], block.mlp
        if kind == "gpt":
            assert_close(pre, x @ mlp.c_fc.weight + mlp.c_fc.bias, "pre")
            assert_close(post, torch.nn.functional.gelu(pre, approximate="tanh"), "post")
            assert_close(named["blocks.1.mlp_out"], post @ mlp.c_proj.weight + mlp.c_proj.bias, "mlp_out")
        else:
            assert_close(pre, x @ mlp.gate_proj.weight.T, "pre")
            assert_close(named["blocks.1.mlp.pre_linear"], x @ mlp.up_proj.weight.T, "pre_linear")
            assert_close(post, torch.nn.functional.silu(pre) * named["blocks.1.mlp.pre_linear"], "post")
            assert_close(named["blocks.1.mlp_out"], post @ mlp.down_proj.weight.T, "mlp_out")
