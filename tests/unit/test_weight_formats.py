"""Weights in two bytes or in one: the stated errors hold, a row never depends on its neighbours, and a cache stays exact."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from helpers import CHUNKINGS, MODELS, in_chunks, make_empty, make_model, padded, random_ids, uncached
from helpers import small_models as small_models

from kvcourse import generate, load_model, save_model
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.errors import InputError
from kvcourse.meter import Meter
from kvcourse.models import narrow as module
from kvcourse.models.narrow import FORMATS, narrow, product, quantize
from kvcourse.weights import inventory

pytestmark = pytest.mark.usefixtures("small_models")
every_form = pytest.mark.parametrize("form", FORMATS)
every_model = pytest.mark.parametrize("kind", MODELS)

# Sizes that PyTorch's int8 kernel takes; the helpers' own (24 and 40 inputs) are those it does not.
FITTING = {
    "gpt": dict(n_embd=32, n_inner=64),
    "llama": dict(n_embd=32, n_inner=64, n_head=4, n_kv_head=2, head_size=8),
}
ERROR = {"float16": 0.08, "int8": 0.7}  # largest of logits whose size is about 5, at these random weights
CACHED = {"float16": 0.03, "int8": 0.1}  # with a cache and without: sums in another order round some numbers the other way
ROUNDING = {"float16": 2**-10, "int8": 2**-7}  # of one product, relative: once on the way in, once on the way out


def make_narrow(kind, form, **changes):
    model = make_model(kind, torch.float32, **changes)
    narrow(model, form)
    return model.requires_grad_(False)


def stored(weight, form):
    return (weight.half(), None) if form == "float16" else quantize(weight)


def widened(numbers, scale):
    return numbers.double() if scale is None else numbers.double() * scale.double()[:, None]


def test_an_int8_weight_is_off_by_half_a_scale_at_most():
    weight = torch.randn(50, 96) * torch.logspace(-6, 4, 50)[:, None]
    weight[7] = 0
    weight[8, 1:] = 0
    numbers, scale = quantize(weight)
    assert (numbers.dtype, numbers.shape, scale.shape) == (torch.int8, (50, 96), (50,))
    assert numbers.abs().max() == 127
    wrong = (weight.double() - widened(numbers, scale)).abs()
    assert bool((wrong <= scale.double()[:, None] / 2).all())
    assert bool((scale.double() <= weight.double().abs().amax(dim=1).clamp_min(1e-30) / 127 * (1 + 2**-8)).all()), "no larger"
    assert not numbers[7].any() and bool(torch.isfinite(scale).all())


def test_a_float16_weight_is_off_by_a_2048th_of_itself_at_most():
    weight = torch.randn(50, 96) * torch.logspace(-8, 3, 50)[:, None]
    wrong = (weight.double() - weight.half().double()).abs()
    assert bool((wrong <= (weight.double().abs() / 2048).clamp_min(2**-25)).all())


PATHS = [(units, n_in) for units in (True, False) for n_in in (64, 40)]


@every_form
@pytest.mark.parametrize(("units", "n_in"), PATHS, ids=str)
def test_every_path_of_a_product_is_the_product_with_the_stored_weights(form, units, n_in, monkeypatch):
    monkeypatch.setattr(module, "FLOAT16_UNITS", units)
    numbers, scale = stored(torch.randn(33, n_in), form)
    for rows in (1, 2, 4, 5, 16, 17, 40):
        x = torch.randn(1, rows, n_in)
        got = product(x, numbers, scale)
        terms = x.double().abs() @ widened(numbers, scale).abs().t()  # rounding is in proportion to what is added up
        assert (got.dtype, got.shape) == (torch.float32, (1, rows, 33))
        assert bool(((got - x.double() @ widened(numbers, scale).t()).abs() <= ROUNDING[form] * terms).all())


@every_form
@pytest.mark.parametrize(("units", "n_in"), PATHS, ids=str)
def test_a_row_is_the_same_whatever_stands_beside_it(form, units, n_in, monkeypatch):
    monkeypatch.setattr(module, "FLOAT16_UNITS", units)
    numbers, scale = stored(torch.randn(33, n_in), form)
    row = torch.randn(1, n_in)
    one_step = 2**-10 if form == "float16" else 2**-7
    alone = product(row, numbers, scale)
    for others in (1, 3, 4, 15, 16, 39):
        among = [product(torch.cat([row, size * torch.randn(others, n_in)]), numbers, scale)[:1] for size in (1e-3, 1, 1e3)]
        for got in among:  # sums in another order: a rounding may fall the other way, by one step
            assert bool(((got - alone).abs() <= one_step * alone.abs() + 1e-4).all())
        assert torch.equal(among[0], among[1]) and torch.equal(among[1], among[2]), "the others' size changes nothing at all"


@every_form
@every_model
@pytest.mark.parametrize("fitting", [True, False])
def test_logits_are_within_the_stated_error_of_float32(kind, form, fitting):
    changes = FITTING[kind] if fitting else {}
    tokens = random_ids(2, 20)
    wrong = (
        uncached(make_narrow(kind, form, **changes), tokens) - uncached(make_model(kind, torch.float32, **changes), tokens)
    ).abs()
    assert 0 < wrong.max() <= ERROR[form]
    assert wrong.mean() <= ERROR[form] / 5


@every_form
@every_model
@pytest.mark.parametrize("fitting", [True, False])
@pytest.mark.parametrize("cache_kind", ["growing", "preallocated"])
def test_with_a_cache_or_without_whatever_the_chunks_the_logits_are_the_same(cache_kind, kind, form, fitting):
    model = make_narrow(kind, form, **(FITTING[kind] if fitting else {}))
    tokens = random_ids(2, 20)
    expected = uncached(model, tokens)
    for sizes in CHUNKINGS.values():
        cache = make_empty(cache_kind)
        got = in_chunks(model, tokens, cache, sizes(20))
        assert (got - expected).abs().max() <= CACHED[form]
        assert cache.read(1, 0, 20).keys.dtype == cache.read(1, 0, 20).values.dtype == got.dtype == torch.float32


@every_form
@every_model
def test_a_padded_batch_is_each_row_alone(kind, form):
    model = make_narrow(kind, form, **FITTING[kind])
    prompts = [random_ids(n, seed=n).tolist() for n in (3, 9, 6)]
    tokens, starts = padded(prompts)
    together = model(tokens, cache=make_empty("preallocated", starts))
    for row, prompt in enumerate(prompts):
        alone = uncached(model, torch.tensor([prompt]))[0]
        assert (together[row, starts[row] :] - alone).abs().max() <= CACHED[form]
    generate(model, prompts, max_new_tokens=3)


@every_form
@every_model
def test_names_shapes_and_costs_are_those_of_the_float32_model(kind, form):
    wide, model = make_model(kind, torch.float32), make_narrow(kind, form)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    kept = {name: shape for name, shape in shapes.items() if not name.endswith("weight_scale")}
    assert kept == {name: tuple(tensor.shape) for name, tensor in wide.state_dict().items()}
    assert (form == "int8") == (len(kept) < len(shapes))
    dtypes = {t.dtype for name, t in model.state_dict().items() if t.dim() == 2 and "wpe" not in name}
    assert dtypes == {getattr(torch, form)}
    assert model.dtype == torch.float32 and model.weight_format == form
    costs = []
    for one in (wide, model):
        with Meter() as meter:
            uncached(one, random_ids(1, 6))
        costs.append(meter.cost)
    assert costs[0] == costs[1]
    assert not [weight.name for weight in inventory(model) if weight.role == "unknown"]


@every_form
@every_model
def test_the_weights_take_half_or_a_quarter_of_the_bytes_and_a_tied_head_none(kind, form):
    changes = FITTING[kind] | dict(vocab_size=500) | ({} if kind == "gpt" else dict(tied=True))
    model, wide = make_narrow(kind, form, **changes), make_model(kind, torch.float32, **changes)
    uncached(model, random_ids(1, 3))
    where = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.state_dict().values()}
    large = sum(p.numel() for name, p in wide.named_parameters() if p.dim() == 2 and "wpe" not in name)
    small = sum(p.numel() for name, p in wide.named_parameters() if p.dim() == 1 or "wpe" in name)
    scales = sum(p.nbytes for name, p in model.named_parameters() if name.endswith("weight_scale"))
    assert sum(where.values()) == large * {"float16": 2, "int8": 1}[form] + 4 * small + scales
    table = model.transformer.wte if kind == "gpt" else model.model.embed_tokens
    for _ in range(2):
        assert model.lm_head.weight is table.weight and model.lm_head.weight_scale is table.weight_scale
        model.load_state_dict({name: t.clone() for name, t in model.state_dict().items()}, assign=True)


def a_map(model):
    return model.transformer.h[1].attn.c_attn if hasattr(model, "transformer") else model.model.layers[1].self_attn.k_proj


CHANGES = {
    "in place": lambda m: a_map(m).weight.mul_(0),
    "through .data": lambda m: setattr(a_map(m).weight, "data", torch.zeros_like(a_map(m).weight)),
    "load_state_dict": lambda m: m.load_state_dict({n: t * 0 for n, t in m.state_dict().items()}),
    "load_state_dict(assign)": lambda m: m.load_state_dict({n: t * 0 for n, t in m.state_dict().items()}, assign=True),
    "scales": lambda m: (a_map(m).weight_scale if a_map(m).weight_scale is not None else a_map(m).weight).mul_(0),
}


@every_form
@every_model
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_named_weight_is_followed_and_fingerprinted(change, kind, form):
    model = make_narrow(kind, form)
    before, digest = uncached(model, random_ids(1, 5)), model.fingerprint
    with torch.no_grad():
        CHANGES[change](model)
    assert model.fingerprint != digest
    assert not torch.equal(uncached(model, random_ids(1, 5)), before)


@every_model
def test_fingerprints_of_the_formats_differ_and_repeat(kind):
    digests = [make_model(kind, torch.float32).fingerprint, *(make_narrow(kind, form).fingerprint for form in FORMATS)]
    assert len(set(digests)) == 3
    assert digests[1:] == [make_narrow(kind, form).fingerprint for form in FORMATS]


@every_form
@every_model
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_a_copy_has_its_own_weights(duplicate, kind, form):
    model = make_narrow(kind, form, **FITTING[kind])
    before = uncached(model, random_ids(1, 5))
    other = duplicate(model)
    assert torch.equal(uncached(other, random_ids(1, 5)), before) and other.fingerprint == model.fingerprint
    with torch.no_grad():
        a_map(other).weight.mul_(0)
    assert torch.equal(uncached(model, random_ids(1, 5)), before)
    assert not torch.equal(uncached(other, random_ids(1, 5)), before)


@every_form
def test_inference_mode_and_packing_again_change_nothing(form):
    model = make_narrow("llama", form, **FITTING["llama"])
    with torch.inference_mode():
        first = model(random_ids(1, 5)).clone()
    model.pack()
    assert torch.equal(uncached(model, random_ids(1, 5)), first)
    assert not any(p.is_inference() for p in model.parameters())


@every_form
@every_model
def test_gradients_are_refused(kind, form):
    model = make_narrow(kind, form)
    model.norm_weight.requires_grad_(True)
    with pytest.raises(InputError, match="do not train"):
        model(random_ids(1, 3))
    uncached(model, random_ids(1, 3))


@every_form
def test_loading_with_narrow_weights_is_narrowing_what_was_loaded(form):
    model, wide = load_model("tiny", weights=form), load_model("tiny")
    assert (model.weight_format, model.dtype) == (form, torch.float32)
    narrow(wide, form)
    assert wide.fingerprint == model.fingerprint
    assert load_model("tiny").weight_format is None


@every_form
@pytest.mark.parametrize("question", ["where is ana ?", "what did ben take ?"])
def test_the_tiny_model_says_the_same_until_two_words_are_nearly_as_likely(form, question):
    assert_same_until_a_near_tie(load_model("tiny"), load_model("tiny", weights=form), question, NEAR[form])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (dict(weights="int4"), "None, 'float16' or 'int8'"),
        (dict(weights=torch.float16), "None, 'float16' or 'int8'"),
        (dict(weights="int8", dtype=torch.float64), "dtype=torch.float32"),
        (dict(weights="float16", dtype=None), "dtype=torch.float32"),
        (dict(weights="int8", device="meta"), "device='cpu'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_read(arguments, says):
    with pytest.raises(InputError, match=says):
        load_model("tiny", **arguments)


@every_form
def test_a_narrow_model_is_neither_narrowed_again_nor_saved(form, tmp_path):
    model = make_narrow("gpt", form)
    digest = model.fingerprint
    with pytest.raises(InputError, match="already"):
        narrow(model, form)
    with pytest.raises(InputError, match="not written"):
        save_model(model, tmp_path / "folder")
    assert model.fingerprint == digest and not (tmp_path / "folder").exists()
    with pytest.raises(InputError, match=r"torch\.float64"):
        narrow(make_model("gpt"), form)


TEXT = (
    "The harbour wakes before the town does. At four the first boats come in, low in the water, and the women who mend nets "
    "are already sitting along the wall. By six the ice has been carried up from the cellar, the crates are counted, and a man "
    "with a pencil behind his ear writes every weight into a book that his father kept before him. The book matters more than "
    "the scales, he says, because a scale forgets."
)
PROMPTS = ("The capital of France is", "Once upon a time there was a", "Water boils at")
REAL = {"float16": (0.15, 0.02, 1.001), "int8": (2.5, 0.5, 1.03)}  # logit error, largest and mean; perplexity, ratio
NEAR = {"float16": 0.1, "int8": 1.0}  # a token may differ where float32 itself has a second one this near


@every_form
def test_the_real_model_keeps_its_stated_error(form):
    wide, model = load_model("smollm2"), load_model("smollm2", weights=form)
    tokens = torch.tensor([wide.tokenizer.encode(TEXT)])
    expected, got = uncached(wide, tokens)[0], uncached(model, tokens)[0]
    largest, mean, ratio = REAL[form]
    wrong = (got - expected).abs()
    assert wrong.max() <= largest and wrong.mean() <= mean
    perplexity = [math.exp(F.cross_entropy(logits[:-1], tokens[0, 1:])) for logits in (expected, got)]
    assert perplexity[0] / ratio <= perplexity[1] <= perplexity[0] * ratio
    cache = PreallocatedCache(tokens.shape[1])
    stepwise = in_chunks(model, tokens, cache, [tokens.shape[1] - 12, *[1] * 12])[0]
    assert (stepwise - got).abs().max() <= largest / 2
    if form == "float16":
        for prompt in PROMPTS:
            assert_same_until_a_near_tie(wide, model, prompt, NEAR[form])


def assert_same_until_a_near_tie(wide, model, prompt, near):
    ids = wide.tokenizer.encode(prompt)
    said = [generate(one, ids, max_new_tokens=16).tokens for one in (wide, model)]
    if said[0] != said[1]:
        n = next(i for i, (a, b) in enumerate(zip(*said, strict=False)) if a != b)
        first, second = uncached(wide, torch.tensor([ids + said[0][:n]]))[0, -1].topk(2).values
        assert first - second <= near
