"""The models: against a slow reference of another hand, at their edges, and in training."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import CACHES, MODELS, make_empty, make_model, random_ids, snapshot, uncached
from helpers import small_models as small_models
from reference import gpt_logits, llama_logits, weights_of

from kvcourse.caches.base import Plan, plan_without_cache
from kvcourse.config import GPTConfig, LlamaConfig, RopeScaling
from kvcourse.errors import InputError
from kvcourse.generate import generate
from kvcourse.models.gpt import GPT
from kvcourse.models.llama import Llama

pytestmark = pytest.mark.usefixtures("small_models")
every_model = pytest.mark.parametrize("kind", MODELS)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gpt", {}),
        ("gpt", dict(n_head=1, n_layer=1)),
        ("llama", {}),
        ("llama", dict(tied=True)),
        ("llama", dict(n_kv_head=6)),
        ("llama", dict(n_kv_head=1)),
        ("llama", dict(n_embd=20, n_head=4, n_kv_head=2, head_size=8)),
    ],
    ids=str,
)
def test_logits_equal_those_of_an_independent_model_written_token_by_token(kind, changes):
    model = make_model(kind, **changes)
    ids = random_ids(1, 14)
    expected = (gpt_logits if kind == "gpt" else llama_logits)(weights_of(model), model.config, ids[0].tolist())
    # Rotary angles are float32 in both, but PyTorch and NumPy round their cosines and powers differently.
    tolerance = 1e-11 if kind == "gpt" else 5e-5
    np.testing.assert_allclose(uncached(model, ids)[0].numpy(), expected, rtol=0, atol=tolerance)


@every_model
def test_a_later_token_never_changes_an_earlier_logit(kind):
    model = make_model(kind)
    one, two = random_ids(1, 10), random_ids(1, 10)
    two[0, 6:] = (two[0, 6:] + 1) % 61
    assert torch.equal(uncached(model, one)[:, :6], uncached(model, two)[:, :6])
    assert (uncached(model, one)[:, 6:] - uncached(model, two)[:, 6:]).abs().amax(-1).min() > 1e-3


@every_model
def test_logits_to_keep_are_the_last_ones(kind):
    model = make_model(kind)
    tokens = random_ids(2, 7)
    for keep in (1, 3, 7):
        assert (model(tokens, logits_to_keep=keep) - uncached(model, tokens)[:, -keep:]).abs().max() < 1e-13
    for keep in (0, -1, 8):
        with pytest.raises(InputError, match="1 to 7"):
            model(tokens, logits_to_keep=keep)


WRONG_TOKENS = {
    "a list": [1, 2],
    "one axis": torch.tensor([1, 2]),
    "three axes": torch.zeros(1, 2, 3, dtype=torch.int64),
    "floats": torch.zeros(1, 2),
    "int32": torch.zeros(1, 2, dtype=torch.int32),
    "no token": torch.zeros(1, 0, dtype=torch.int64),
    "no row": torch.zeros(0, 3, dtype=torch.int64),
    "past the vocabulary": torch.tensor([[1, 61]]),
    "below 0": torch.tensor([[-1, 3]]),
}


@every_model
@pytest.mark.parametrize("cache_kind", [None, *CACHES])
@pytest.mark.parametrize("name", WRONG_TOKENS)
def test_what_is_no_batch_of_token_ids_is_refused_and_the_cache_is_as_it_was(name, cache_kind, kind):
    model = make_model(kind)
    cache = None if cache_kind is None else make_empty(cache_kind)
    if cache is not None:
        model(random_ids(1, 3), cache=cache)
        before = snapshot(cache, 3)
    with pytest.raises(InputError) as caught:
        model(WRONG_TOKENS[name], cache=cache)
    assert caught.value.expected and caught.value.got is not None and caught.value.todo
    if cache is not None:
        assert snapshot(cache, 3) == before


@every_model
def test_a_pass_with_a_cache_keeps_no_gradients_and_one_without_does(kind):
    model = make_model(kind)
    assert not model(random_ids(1, 3), cache=make_empty("growing")).requires_grad
    assert model(random_ids(1, 3)).requires_grad
    with torch.no_grad():
        assert not model(random_ids(1, 3)).requires_grad


@pytest.mark.parametrize("starts", [None, [2, 0]], ids=["even", "ragged"])
def test_a_llama_turns_raw_keys_itself_at_the_positions_of_the_plan(starts):
    model, tokens = make_model("llama"), random_ids(2, 9)
    raw, rotated = make_empty("growing", starts), make_empty("growing", starts)
    raw.keys = "raw"
    for part in tokens.split([4, 1, 3, 1], dim=1):
        assert (model(part, cache=raw) - model(part, cache=rotated)).abs().max() < 1e-12
    assert not torch.equal(raw.read(0, 0, 9).keys, rotated.read(0, 0, 9).keys)


@every_model
@pytest.mark.parametrize("inference_first", [False, True], ids=["fresh", "after inference mode"])
def test_a_few_steps_of_adamw_lower_the_loss_and_every_weight_takes_part(kind, inference_first):
    model = make_model(kind, torch.float32).train()
    if inference_first:
        generate(model, [1, 2, 3], max_new_tokens=4)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    tokens = random_ids(4, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(4):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    cache = make_empty("preallocated")  # what was learned is what runs
    with_cache = model.eval()(tokens, cache=cache)
    assert (with_cache - uncached(model, tokens)).abs().max() < 2e-5
    twin = type(model)(model.config).eval()
    twin.load_state_dict(model.state_dict())
    assert (uncached(twin, tokens) - uncached(model, tokens)).abs().max() < 2e-5


@every_model
def test_gradients_equal_numerical_ones(kind):
    model = make_model(kind, n_layer=1)
    tokens = random_ids(1, 5)

    def loss():
        return F.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:])

    loss().backward()
    for name, weight in model.named_parameters():
        index = (
            tuple(size // 2 for size in weight.shape) if "wte" not in name and "embed" not in name else (int(tokens[0, 1]), 3)
        )
        index = (2, 3) if "wpe" in name else index
        with torch.no_grad():
            weight[index] += 1e-6
            up = loss().item()
            weight[index] -= 2e-6
            down = loss().item()
            weight[index] += 1e-6
        assert weight.grad[index].item() == pytest.approx((up - down) / 2e-6, abs=1e-7), name


@every_model
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save", "state dict", "assign"])
def test_a_copy_has_the_logits_of_the_original_and_a_life_of_its_own(kind, way):
    model = make_model(kind)
    tokens = random_ids(1, 8)
    expected = uncached(model, tokens)
    file = io.BytesIO()
    if way == "deepcopy":
        other = copy.deepcopy(model)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(model))
    elif way == "torch.save":
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    else:
        other = type(model)(model.config).double().eval()
        uncached(other, tokens)  # has packed its own weights already
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        other.load_state_dict(state, assign=way == "assign")
    assert torch.equal(uncached(other, tokens), expected)
    assert other.fingerprint == model.fingerprint
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(0.5)
    assert torch.equal(uncached(model, tokens), expected)
    assert not torch.allclose(uncached(other, tokens), expected)
    assert other.fingerprint != model.fingerprint


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_a_tied_model_stays_tied_through_every_way_of_loading(kind):
    model = make_model(kind, **({} if kind == "gpt" else {"tied": True}))
    for assign in (False, True):
        model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=assign)
        embedding = model.transformer.wte if kind == "gpt" else model.model.embed_tokens
        assert model.lm_head.weight is embedding.weight
    assert copy.deepcopy(model).double().lm_head.weight is not model.lm_head.weight
    assert len(list(model.parameters())) == len(model.state_dict()) - 1


def test_an_untied_llama_has_a_head_of_its_own():
    model = make_model("llama")
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert "lm_head.weight" in dict(model.named_parameters())


@every_model
def test_a_model_is_built_without_memory_and_filled_later(kind):
    model = make_model(kind)
    with torch.device("meta"):
        empty = type(model)(model.config)
    assert {tensor.device.type for tensor in empty.state_dict().values()} == {"meta"}
    empty.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)
    tokens = random_ids(2, 6)
    assert torch.equal(uncached(empty, tokens), uncached(model, tokens))
    empty.pack()
    assert torch.equal(uncached(empty, tokens), uncached(model, tokens))
    assert empty.fingerprint == model.fingerprint


@every_model
def test_a_model_made_in_inference_mode_can_be_trained_and_recognised_all_the_same(kind):
    with torch.inference_mode():
        model = (GPT if kind == "gpt" else Llama)(make_model(kind).config)
    assert not any(weight.is_inference() for weight in model.parameters())
    model(random_ids(1, 4)).sum().backward()
    assert model.fingerprint


@every_model
def test_new_weights_follow_the_seed(kind):
    config = make_model(kind).config
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append((GPT if kind == "gpt" else Llama)(config).fingerprint)
    assert made[0] == made[1] != made[2]


def test_gpts_weights_are_drawn_as_gpt2s_were():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=500, context_length=100, n_layer=8, n_head=4, n_embd=64))
    weights = dict(model.named_parameters())
    assert weights["transformer.wte.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    assert weights["transformer.h.3.attn.c_attn.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    assert weights["transformer.h.3.mlp.c_proj.weight"].std().item() == pytest.approx(0.02 / 4, rel=0.05)  # √(2·8 additions)
    assert weights["transformer.h.3.attn.c_attn.bias"].abs().max() == 0
    assert torch.equal(weights["transformer.h.3.ln_1.weight"], torch.ones(64))


@pytest.mark.parametrize("scaling", [None, RopeScaling(8.0, 1.0, 4.0, 16)], ids=["plain", "llama3"])
def test_rotary_products_depend_on_the_distance_alone(scaling):
    model = Llama(
        LlamaConfig(vocab_size=11, context_length=40, n_layer=1, n_head=1, n_kv_head=1, n_embd=8, rope_scaling=scaling)
    )
    from kvcourse.models.rope import rotate

    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def product(query_place, key_place):
        turned = [rotate(x, *model.rope.at(torch.tensor([p]), like=x)) for x, p in ((q, query_place), (k, key_place))]
        return (turned[0] * turned[1]).sum().item()

    assert product(7, 4) == pytest.approx(product(39, 36), abs=1e-5)
    assert abs(product(7, 4) - product(7, 5)) > 1e-4
    assert product(0, 0) == pytest.approx((q * k).sum().item(), abs=1e-12)


@every_model
def test_a_pass_that_sees_everything_is_what_compute_with_such_a_plan_gives(kind):
    model = make_model(kind)
    tokens = random_ids(1, 6)
    with torch.no_grad():
        both_ways = model.compute(tokens, plan_without_cache(6, causal=False), None)
    assert (
        both_ways[:, -1] - uncached(model, tokens)[:, -1]
    ).abs().max() > 1e-3  # earlier K and V have changed, in deeper layers
    assert isinstance(plan_without_cache(6, causal=False), Plan)
