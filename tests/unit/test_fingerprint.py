"""A model's fingerprint: the same weights, the same digest; any change, another; and no half gigabyte hashed twice."""

import copy
import hashlib
import pickle

import pytest
import torch
from helpers import MODELS, make_model, random_ids, uncached
from helpers import small_models as small_models

pytestmark = pytest.mark.usefixtures("small_models")
every_model = pytest.mark.parametrize("kind", MODELS)


def a_weight(model):
    return (
        model.transformer.h[1].attn.c_attn.weight
        if hasattr(model, "transformer")
        else model.model.layers[1].self_attn.k_proj.weight
    )


@every_model
def test_equal_weights_have_equal_fingerprints_however_they_lie_in_memory(kind):
    model = make_model(kind)
    digest = model.fingerprint
    assert digest == model.fingerprint == make_model(kind).fingerprint
    assert len(digest) == 64
    uncached(model, random_ids(1, 3))
    model.pack()
    assert model.fingerprint == digest
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.fingerprint == digest
    plain = type(model)(model.config).double()
    plain.load_state_dict({name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}, assign=True)
    assert plain.fingerprint == digest


CHANGES = {
    "one element in place": lambda m: a_weight(m)[0, 0].add_(1e-9),
    "the smallest weight vector": lambda m: next(p for p in m.parameters() if p.dim() == 1)[0].add_(1e-9),
    "copy_": lambda m: a_weight(m).copy_(a_weight(m) * 2),
    "load_state_dict": lambda m: m.load_state_dict({n: t + 1 for n, t in m.state_dict().items()}),
    "load_state_dict(assign)": lambda m: m.load_state_dict({n: t + 1 for n, t in m.state_dict().items()}, assign=True),
    "a replaced tensor": lambda m: setattr(a_weight(m), "data", a_weight(m).data + 1),
    "float32": lambda m: m.float(),
}


@every_model
@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_follows_every_change_that_pytorch_sees(change, kind):
    model = make_model(kind)
    seen = {model.fingerprint}
    for _ in range(2):
        with torch.no_grad():
            CHANGES[change](model)
        if change == "float32" and len(seen) == 2:
            break
        digest = model.fingerprint
        assert digest not in seen
        model.touch()
        assert model.fingerprint == digest  # computed afresh, the same
        seen.add(digest)


@every_model
def test_the_fingerprint_follows_a_training_step(kind):
    model = make_model(kind, torch.float32)
    before = model.fingerprint
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(random_ids(1, 5)).sum().backward()
    assert model.fingerprint == before
    optimizer.step()
    assert model.fingerprint != before


# A freed tensor's address is used again: a digest kept by address alone would be that of other numbers.
@every_model
def test_a_round_trip_through_a_lower_precision_is_seen_even_where_memory_is_reused(kind):
    for seed in range(20):
        model = make_model(kind, torch.float32, seed=seed)
        before = model.fingerprint
        model.bfloat16()
        model.float()
        kept = model.fingerprint
        assert kept != before
        model.touch()
        assert model.fingerprint == kept


def test_names_shapes_and_configuration_are_part_of_it():
    assert make_model("gpt", context_length=32).fingerprint != make_model("gpt", norm_eps=1e-6).fingerprint
    one, two = make_model("llama"), make_model("llama", rope_theta=51.0)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert one.fingerprint != two.fingerprint


def test_writes_that_go_round_pytorch_need_touch():
    model = make_model("gpt")
    before = model.fingerprint
    a_weight(model).detach().numpy()[0, 0] += 1
    model.touch()
    assert model.fingerprint != before


def test_only_what_changed_is_hashed_again(monkeypatch):
    model = make_model("gpt")
    model.fingerprint  # noqa: B018 (computed for the first time)
    sizes = []
    sha256 = hashlib.sha256

    def counted(data=b""):
        sizes.append(len(memoryview(data).cast("B")) if len(data) else 0)
        return sha256(data)

    monkeypatch.setattr("kvcourse.models.fingerprint.hashlib.sha256", counted)
    model.fingerprint  # noqa: B018
    assert sizes == []
    with torch.no_grad():
        a_weight(model)[0, 0] = 3
    sizes.clear()
    model.fingerprint  # noqa: B018
    assert sorted(sizes)[-1] == a_weight(model).nbytes and len(sizes) == 2


@every_model
def test_running_a_model_does_not_change_it(kind):
    model = make_model(kind)
    before = model.fingerprint
    with torch.inference_mode():
        model(random_ids(1, 4))
        assert model.fingerprint == before
    model(random_ids(1, 4)).sum().backward()
    assert model.fingerprint == before
