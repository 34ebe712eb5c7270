"""Lesson 14: what lessons 02 to 05 rest on: attention, weights, and a past that stays. Knows nothing about caches."""

import math
import tempfile
from pathlib import Path

import torch

from kvcourse.attention import attend, causal_mask
from kvcourse.certificate.bed import Bed, ids, small_model, uncached
from kvcourse.certificate.bench import Bench
from kvcourse.certificate.entries import Book
from kvcourse.checkpoints import load_model, save_model
from kvcourse.generate import generate
from kvcourse.trace import trace
from kvcourse.weights import split_qkv

PROOFS = Book()
proof = PROOFS


def _drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@proof(2)
def attention_equals_its_formula_in_loops(bed: Bed, bench: Bench) -> None:
    B, H, T, D = 2, 3, 5, 4
    q, k, v = (_drawn(B, H, T, D, seed=seed) for seed in range(3))
    positions = torch.arange(T)
    found = attend(q, k, v, causal_mask(positions, positions))
    expected = torch.zeros_like(found)
    for b, h, t in ((b, h, t) for b in range(B) for h in range(H) for t in range(T)):
        odds = [math.exp(sum((q[b, h, t] * k[b, h, s]).tolist()) / math.sqrt(D)) for s in range(t + 1)]
        for s, odd in enumerate(odds):
            expected[b, h, t] += odd / sum(odds) * v[b, h, s]
    bench.close(found, expected, "attention")


@proof(2)
def queries_after_a_past_get_what_one_pass_gives_them(bed: Bed, bench: Bench) -> None:
    q, k, v = (_drawn(1, 2, 8, 4, seed=seed) for seed in range(3))
    places = torch.arange(8)
    whole = attend(q, k, v, causal_mask(places, places))
    for cached in range(1, 8):
        with bench.case(f"{cached} cached, {8 - cached} new"):
            found = attend(q[:, :, cached:], k, v, causal_mask(places[cached:], places))
            bench.close(found, whole[:, :, cached:], "attention", cached)


@proof(3)
def texts_of_a_batch_do_not_see_each_other(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        tokens = ids(9, batch=3)
        together = uncached(model, tokens)
        for row in range(3):
            with bench.case(name, f"row {row}"):
                bench.close(together[row : row + 1], uncached(model, tokens[row : row + 1]))


@proof(4)
def a_key_is_its_input_times_the_key_weights(bed: Bed, bench: Bench) -> None:
    model = small_model("gpt")
    named = trace(model, ids(7))
    weights = model.state_dict()
    for layer in range(model.config.n_layer):
        fused = f"transformer.h.{layer}.attn.c_attn"
        parts = zip("qkv", split_qkv(weights[f"{fused}.weight"]), split_qkv(weights[f"{fused}.bias"]), strict=True)
        for name, weight, bias in parts:
            with bench.case(f"block {layer}, {name}"):
                computed = named[f"blocks.{layer}.ln1"] @ weight + bias  # (B, T, C)
                heads = computed.unflatten(-1, (model.config.n_head, -1)).transpose(1, 2)  # (B, H, T, D)
                bench.close(named[f"blocks.{layer}.attn.{name}"], heads, name)


@proof(4)
def saved_weights_are_the_same_model(bed: Bed, bench: Bench) -> None:
    for kind in ("gpt", "llama"):
        with bench.case(kind), tempfile.TemporaryDirectory() as folder:
            model, tokens = small_model(kind, seed=3), ids(9)
            back = load_model(save_model(model, Path(folder) / "model"), dtype=None)
            bench.close(uncached(back, tokens), uncached(model, tokens))
            bench.same(back.fingerprint, model.fingerprint, "fingerprint")


@proof(5)
def a_later_token_never_changes_earlier_keys_and_values(bed: Bed, bench: Bench) -> None:
    for name, model in bed.models.items():
        one = ids(8)
        before = trace(model, one)
        for changed in (3, 7):
            other = one.clone()
            other[0, changed:] = (other[0, changed:] + 1) % 61
            after = trace(model, other)
            with bench.case(name, f"from token {changed} on"):
                for layer in range(model.config.n_layer):
                    for part in ("k", "v"):
                        key = f"blocks.{layer}.attn.{part}"
                        bench.close(after[key][:, :, :changed], before[key][:, :, :changed], f"{part} of block {layer}")
                bench.close(after["logits"][:, :changed], before["logits"][:, :changed])


@proof(5)
def without_the_causal_mask_it_does(bed: Bed, bench: Bench) -> None:
    """The counter-example: the proof before this one has to fail on a model that looks ahead, in every block but the first."""
    for name, model in bed.models.items():
        one, other = ids(8), ids(8)
        other[0, 7] = (other[0, 7] + 1) % 61
        before, after = trace(model, one, causal=False), trace(model, other, causal=False)
        for layer in range(model.config.n_layer):
            key = f"blocks.{layer}.attn.k"
            with bench.case(name, f"block {layer}"):
                compare = bench.differ if layer else bench.close
                compare(after[key][:, :, :7], before[key][:, :, :7], f"k of block {layer}")


@proof(5)
def recomputing_everything_writes_the_same_and_costs_the_formula(bed: Bed, bench: Bench) -> None:
    for kind in ("gpt", "llama"):
        model, prompt, new = small_model(kind), ids(9, seed=4)[0].tolist(), 6
        with bench.case(kind):
            kept, plain = (generate(model, prompt, max_new_tokens=new, cache=cache) for cache in ("preallocated", None))
            bench.same(kept.tokens, plain.tokens, "tokens")
            bench.same(kept.cost.tokens, 9 + new - 1, "tokens through the model, with a cache")
            bench.same(plain.cost.tokens, sum(range(9, 9 + new)), "tokens through the model, without")
