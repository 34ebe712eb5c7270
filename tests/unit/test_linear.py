"""Packed and laid-out weights: the named parameters stay the truth, whatever is done to them."""

import copy
import gc
import pickle

import pytest
import torch
from helpers import make_model, random_ids, uncached
from helpers import small_models as small_models
from torch import nn

from kvcourse.huge_pages import empty_matrix
from kvcourse.meter import Meter
from kvcourse.models import linear as linear_module
from kvcourse.models.linear import Conv1D, Packed, lay_out, linear

pytestmark = pytest.mark.usefixtures("small_models")

OUTS = (6, 4, 2)


def three_maps(dtype=torch.float64):
    torch.manual_seed(0)
    maps = [nn.Linear(5, out, bias=False, dtype=dtype) for out in OUTS]
    return maps, Packed(*maps)


def x_of(dtype=torch.float64):
    return torch.randn(2, 3, 5, dtype=dtype, generator=torch.Generator().manual_seed(1))


def each_alone(maps, x):
    with torch.no_grad():
        return torch.cat([x @ m.weight.t() for m in maps], dim=-1)


def assert_true(maps, packed, x, tolerance=1e-14):
    with torch.no_grad():
        assert (packed(x) - each_alone(maps, x)).abs().max() <= tolerance


def test_packed_maps_give_what_each_gives_alone():
    maps, packed = three_maps()
    assert_true(maps, packed, x_of())
    assert packed.matrix().shape == (5, 12)


def test_the_named_weights_are_views_of_one_matrix_and_no_bytes_are_spent_twice():
    maps, packed = three_maps()
    storage = packed.matrix().untyped_storage()
    assert storage.nbytes() == 5 * 12 * 8
    for m, out in zip(maps, OUTS, strict=True):
        assert m.weight.untyped_storage().data_ptr() == storage.data_ptr()
        assert m.weight.shape == (out, 5) and isinstance(m.weight, nn.Parameter)


CHANGES = {
    "in place": lambda m: m.weight.mul_(2),
    "one element": lambda m: m.weight[1].fill_(3.0),
    "copy_": lambda m: m.weight.copy_(torch.ones_like(m.weight)),
    "load_state_dict": lambda m: m.load_state_dict({"weight": torch.full_like(m.weight, 0.5)}),
    "load_state_dict(assign)": lambda m: m.load_state_dict({"weight": torch.full_like(m.weight, 0.5)}, assign=True),
    "a new parameter": lambda m: setattr(m, "weight", nn.Parameter(torch.randn_like(m.weight))),
    "through .data": lambda m: setattr(m.weight, "data", torch.randn_like(m.weight)),
    "written through .data": lambda m: m.weight.data.add_(1),
    "through NumPy": lambda m: m.weight.detach().numpy().__setitem__(slice(0, 1), 7.0),
}


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_named_weight_is_followed(change, which):
    maps, packed = three_maps()
    x = x_of()
    with torch.no_grad():
        before = packed(x)
        CHANGES[change](maps[which])
        after = packed(x)
    assert not torch.equal(before, after)
    assert_true(maps, packed, x)
    for m in maps:  # and they are views again
        assert m.weight.untyped_storage().data_ptr() == packed.matrix().untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_another_precision_is_followed(dtype):
    maps, packed = three_maps()
    with torch.no_grad():
        packed(x_of())
    holder = nn.ModuleList(maps).to(dtype)
    with torch.no_grad():
        assert packed(x_of(dtype)).dtype == dtype
    assert_true(maps, packed, x_of(dtype), tolerance=0.05 if dtype != torch.float32 else 1e-6)
    holder.to(torch.float64)
    assert_true(maps, packed, x_of())


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))], ids=["deepcopy", "pickle"]
)
def test_a_copy_has_its_own_weights(duplicate):
    maps, packed = three_maps()
    with torch.no_grad():
        before = packed(x_of())
    other_maps, other = duplicate((maps, packed))
    with torch.no_grad():
        other_maps[1].weight.zero_()
        assert torch.equal(packed(x_of()), before)
        assert other(x_of())[..., 6:10].abs().max() == 0
    assert_true(other_maps, other, x_of())


def test_gradients_arrive_at_the_named_weights_and_equal_those_of_separate_maps():
    maps, packed = three_maps()
    with torch.no_grad():
        packed(x_of())  # packed before training starts
    packed(x_of()).pow(2).sum().backward()
    got = [m.weight.grad.clone() for m in maps]
    for m in maps:
        m.weight.grad = None
    torch.cat([m(x_of()) for m in maps], dim=-1).pow(2).sum().backward()
    for m, gradient in zip(maps, got, strict=True):
        assert torch.allclose(m.weight.grad, gradient, rtol=0, atol=1e-12)


def test_gradients_pass_through_frozen_packed_maps_to_their_input():
    maps, packed = three_maps()
    for m in maps:
        m.weight.requires_grad_(False)
    x = x_of().requires_grad_()
    packed(x).sum().backward()
    expected = torch.cat([m.weight for m in maps]).sum(0).expand(2, 3, 5)
    assert torch.allclose(x.grad, expected, rtol=0, atol=1e-14)


def test_an_optimizer_step_after_packing_changes_what_runs():
    maps, packed = three_maps()
    optimizer = torch.optim.SGD([m.weight for m in maps], lr=0.1)
    for _ in range(2):
        packed(x_of()).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert_true(maps, packed, x_of())


def test_packing_inside_inference_mode_leaves_ordinary_weights():
    maps, packed = three_maps()
    with torch.inference_mode():
        packed(x_of())
    assert not any(m.weight.is_inference() for m in maps)
    packed(x_of()).sum().backward()


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_laying_out_changes_neither_names_nor_shapes_nor_values(kind):
    model = make_model(kind)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    logits = uncached(model, random_ids(1, 5))
    model.pack()
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(before[name].shape == after[name].shape and torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(uncached(model, random_ids(1, 5)), logits)


@pytest.mark.parametrize(
    ("shape", "turned", "stride"),
    [
        ((7, 4), True, (1, 7)),
        ((4, 7), False, (7, 1)),
        ((5, 5), True, (1, 5)),
        ((5, 5), False, (5, 1)),
        ((900, 700), True, (1, 900)),
    ],
)
def test_a_weight_is_stored_so_that_what_one_input_is_multiplied_by_lies_together(shape, turned, stride):
    weight = nn.Parameter(torch.randn(shape))
    values = weight.detach().clone()
    for _ in range(2):
        lay_out(weight, turned=turned)
        assert (weight.shape, weight.stride()) == (shape, stride)
        assert torch.equal(weight, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [3, 2**10])
def test_memory_for_a_matrix_is_ordinary_memory_to_its_user(dtype, rows):
    matrix = empty_matrix(rows, 700, like=torch.empty(0, dtype=dtype))
    assert (matrix.shape, matrix.dtype, matrix.is_contiguous()) == ((rows, 700), dtype, True)
    matrix.fill_(2)
    version = matrix._version
    matrix.mul_(3)
    assert matrix._version > version  # a change is seen, so fingerprints follow it
    gc.collect()
    assert bool((matrix == 6).all())


def the_fast_product():
    if not linear_module.ONEDNN:
        pytest.skip("this PyTorch was built without oneDNN, so there is one product only")


@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-14)])
def test_one_row_and_many_rows_give_the_same_product(dtype, tolerance, onednn, monkeypatch):
    if onednn:
        the_fast_product()
    monkeypatch.setattr(linear_module, "ONEDNN", onednn)
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(shape, dtype=torch.float64) for shape in ((1, 5, 80), (30, 80), (30,)))
    given = x.to(dtype)
    for stored in (weight, weight.t().contiguous().t()):
        for b in (None, bias):
            expected = x @ weight.t() + (0 if b is None else b)
            narrow = stored.to(dtype), None if b is None else b.to(dtype)
            whole = linear(given, *narrow)
            assert (whole.shape, whole.dtype) == (expected.shape, dtype)
            assert (whole - expected).abs().max() <= 10 * tolerance
            rows = torch.cat([linear(given[:, i : i + 1], *narrow) for i in range(5)], dim=1)
            assert torch.allclose(rows, whole, rtol=0, atol=10 * tolerance)
            strided = linear(given.transpose(1, 2).contiguous().transpose(1, 2)[:, :1], *narrow)
            assert torch.allclose(strided, whole[:, :1], rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("which", ["x", "weight", "bias"])
def test_a_float32_product_passes_gradients_to_whatever_asks_for_them(which):
    the_fast_product()
    torch.manual_seed(0)
    tensors = {"x": torch.randn(1, 2, 8), "weight": torch.randn(3, 8), "bias": torch.randn(3)}
    tensors[which].requires_grad_()
    out = linear(**tensors)
    out.sum().backward()
    ones = torch.ones_like(out).view(2, 3)
    expected = {"x": ones @ tensors["weight"], "weight": ones.t() @ tensors["x"].view(2, 8), "bias": ones.sum(0)}[which]
    assert torch.allclose(tensors[which].grad.view_as(expected), expected)
    with torch.no_grad():
        assert torch.allclose(linear(**tensors), out)


def test_conv1d_has_its_weight_the_other_way_round():
    layer = Conv1D(3, 5).double()
    with torch.no_grad():
        layer.weight.normal_()
        layer.bias.normal_()
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    assert layer.weight.shape == (3, 5)
    assert torch.allclose(layer(x), x @ layer.weight + layer.bias, rtol=0, atol=1e-14)


def test_every_linear_map_counts_its_multiply_adds():
    maps, packed = three_maps()
    for act, macs in (
        (lambda: linear(x_of(), maps[0].weight), 2 * 3 * 5 * 6),
        (lambda: packed(x_of()), 2 * 3 * 5 * 12),
        (lambda: Conv1D(5, 7).double()(x_of()), 2 * 3 * 5 * 7),
    ):
        with Meter() as trained:
            act()
        with Meter() as frozen, torch.no_grad():
            act()
        assert trained.cost.macs == frozen.cost.macs == macs
