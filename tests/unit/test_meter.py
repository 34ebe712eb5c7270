"""Exact costs: every number here is written out by hand or from a formula of its own, never from the code that counts."""

import threading
import time

import pytest
import torch
from helpers import CACHES, MODELS, make_empty, make_model, random_ids
from helpers import small_models as small_models

from kvcourse.caches.make import make_cache
from kvcourse.config import GPTConfig
from kvcourse.generate import decode_step, generate, prefill
from kvcourse.meter import Cost, Meter, count, device_name, timed

pytestmark = pytest.mark.usefixtures("small_models")


def macs_of_a_pass(config, T, S, kept, B=1):
    """Multiply-adds of T new tokens that attend to S: linear maps, attention's two products, the head where it is computed."""
    C, F, H, H_kv, D, V = config.n_embd, config.n_inner, config.n_head, config.n_kv_head, config.head_size, config.vocab_size
    if isinstance(config, GPTConfig):
        linear = C * 3 * C + C * C + C * F + F * C
    else:
        linear = C * H * D + 2 * C * H_kv * D + H * D * C + 3 * C * F
    return B * (config.n_layer * (T * linear + 2 * H * T * S * D) + kept * C * V)


def kv_bytes(config, tokens, itemsize=8):
    return 2 * config.n_layer * config.n_kv_head * config.head_size * tokens * itemsize


@pytest.mark.parametrize("cache", [None, *CACHES])
@pytest.mark.parametrize("kind", MODELS)
def test_16_tokens_after_64_put_64_to_79_tokens_through_the_model_without_a_cache_and_64_and_15_with_one(kind, cache):
    model = make_model(kind, context_length=96)
    with Meter() as meter:
        out = generate(model, random_ids(64).tolist(), max_new_tokens=16, cache=cache)
    passes = [(T, T) for T in range(64, 80)] if cache is None else [(64, 64)] + [(1, S) for S in range(65, 80)]
    tokens = 64 + 15 if cache else sum(range(64, 80))
    assert tokens == (79 if cache else 1144)
    assert out.cost.tokens == tokens
    assert out.cost.kv_rows == tokens * 3
    assert out.cost.macs == sum(macs_of_a_pass(model.config, T, S, kept=1) for T, S in passes)
    copied = {None: 0, "preallocated": 0, "paged": 0, "growing": sum(kv_bytes(model.config, S) for S in range(64, 79))}[cache]
    assert out.cost.bytes_copied == copied
    held = {None: 0, "paged": 5 * 16}.get(cache, 79)  # whole blocks
    assert out.cost.bytes_held == kv_bytes(model.config, held)
    assert meter.cost == Cost(out.cost.tokens, out.cost.kv_rows, out.cost.macs, out.cost.bytes_copied, 0)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("keep", [None, 1, 4])
def test_a_pass_costs_its_linear_maps_its_attention_as_executed_and_the_head_where_it_is_computed(kind, B, keep):
    model = make_model(kind)
    cache = make_empty("preallocated")
    for T, S in ((5, 5), (4, 9)):
        with Meter() as meter:
            model(random_ids(B, T), cache=cache, logits_to_keep=keep)
        assert meter.cost == Cost(B * T, B * T * 3, macs_of_a_pass(model.config, T, S, keep or T, B), 0, 0)
    with Meter() as meter:  # gradients change the way of packed maps, not their number
        model(random_ids(B, 5), logits_to_keep=keep)
    assert meter.cost.macs == macs_of_a_pass(model.config, 5, 5, keep or 5, B)


@pytest.mark.parametrize("kind", MODELS)
def test_a_growing_cache_copies_a_quadratic_number_of_bytes_and_a_preallocated_one_none(kind):
    model = make_model(kind)
    for n in (1, 2, 10, 20, 32):
        growing, preallocated = make_empty("growing"), make_empty("preallocated")
        with Meter() as meter:
            for token in random_ids(n).tolist():
                decode_step(model, token, growing)
        assert meter.cost.bytes_copied == n * (n - 1) // 2 * kv_bytes(model.config, 1)
        with Meter() as meter:
            for token in random_ids(n).tolist():
                decode_step(model, token, preallocated)
        assert meter.cost.bytes_copied == 0
    with Meter() as meter:  # in chunks of 4: what is held before each
        prefill(model, random_ids(14).tolist(), make_empty("growing"), chunk=4)
    assert meter.cost.bytes_copied == (4 + 8 + 12) * kv_bytes(model.config, 1)


def test_bytes_held_are_rows_times_their_size_or_the_whole_buffer():
    for dtype, itemsize in ((torch.float64, 8), (torch.float32, 4), (torch.bfloat16, 2)):
        for kind in MODELS:
            model = make_model(kind, dtype)
            growing, preallocated = make_empty("growing"), make_empty("preallocated", capacity=20)
            for cache in (growing, preallocated):
                assert cache.nbytes == 0
                model(random_ids(2, 7), cache=cache)
            assert growing.nbytes == 2 * kv_bytes(model.config, 7, itemsize)
            assert preallocated.nbytes == 2 * kv_bytes(model.config, 20, itemsize)
            growing.truncate(3)
            assert growing.nbytes == 2 * kv_bytes(model.config, 3, itemsize)
            stored = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in
                      (t for layer in range(3) for t in growing.read(layer, 0, 3))}  # fmt: skip
            assert sum(stored.values()) == growing.nbytes, "what was cut away is really gone"
            growing.reset()
            assert growing.nbytes == 0


def test_a_fork_of_a_growing_cache_copies_nothing_and_one_of_a_preallocated_cache_copies_what_is_held():
    model = make_model("llama")
    for kind, rows in (("growing", 0), ("preallocated", 7)):
        cache = make_empty(kind)
        model(random_ids(1, 7), cache=cache)
        with Meter() as meter:
            cache.fork()
        assert meter.cost.bytes_copied == kv_bytes(model.config, rows)


@pytest.mark.parametrize("kind", MODELS)
def test_padding_is_not_counted_as_tokens_or_rows(kind):
    model = make_model(kind)
    with Meter() as meter:
        model(random_ids(3, 6), cache=make_empty("preallocated", starts=[0, 5, 2]))
    assert (meter.cost.tokens, meter.cost.kv_rows) == (6 + 1 + 4, 3 * 11)
    assert meter.cost.macs == macs_of_a_pass(model.config, 6, 6, kept=6, B=3)  # which are executed, padding or not


def test_meters_nest_and_the_outer_one_sees_it_all():
    with Meter() as outer:
        count("tokens", 1)
        with Meter() as inner:
            count("tokens", 10)
            with Meter() as innermost:
                count("macs", 100)
        count("tokens", 1000)
    assert (innermost.cost, inner.cost) == (Cost(macs=100), Cost(tokens=10, macs=100))
    assert outer.cost == Cost(tokens=1011, macs=100)


def test_nothing_is_counted_outside_a_meter_and_an_error_inside_one_loses_nothing():
    count("tokens", 5)
    with Meter() as outer:
        with pytest.raises(ZeroDivisionError), Meter() as inner:
            count("tokens", 3)
            1 / 0  # noqa: B018
        count("tokens", 4)
    count("tokens", 5)
    assert (inner.cost.tokens, outer.cost.tokens) == (3, 7)


def test_a_meter_used_twice_counts_the_second_block_alone():
    with Meter() as outer:
        meter = Meter()
        with meter:
            count("tokens", 3)
        with meter:
            count("tokens", 4)
    assert (meter.cost.tokens, outer.cost.tokens) == (4, 7)


def test_threads_do_not_see_each_others_meters():
    barrier = threading.Barrier(3)
    costs = {}

    def work(number):
        with Meter() as meter:
            barrier.wait()
            for _ in range(50):
                count("tokens", number)
            barrier.wait()
        costs[number] = meter.cost.tokens

    def unmetered():
        barrier.wait()
        count("tokens", 10**6)
        barrier.wait()

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)] + [threading.Thread(target=unmetered)]
    with Meter() as main:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert costs == {1: 50, 2: 100}
    assert main.cost == Cost()


def test_costs_add_up_except_what_is_held_at_the_end():
    assert Cost(1, 2, 3, 4, 5) + Cost(10, 20, 30, 40, 50) == Cost(11, 22, 33, 44, 50)


@pytest.mark.parametrize(("n", "named"), [(1, "CPU, 1 thread"), (2, "CPU, 2 threads")])
def test_the_device_is_named_with_its_threads_counted_as_one_counts(monkeypatch, n, named):
    monkeypatch.setattr(torch, "get_num_threads", lambda: n)
    assert device_name().endswith(named)


def test_timed_reports_the_median_and_the_spread_of_the_runs_it_counted():
    calls = []

    def work():
        calls.append(1)
        time.sleep(0.02 if len(calls) == 3 else 0.001)

    timing = timed(work, runs=5, warmup=2)
    assert len(calls) == 7
    assert (timing.runs, timing.min_s <= timing.median_s <= timing.max_s) == (5, True)
    assert timing.max_s >= 0.02
    assert f"median of {timing.runs}" in str(timing) and timing.device in str(timing)


@pytest.mark.parametrize("kind", CACHES)
def test_a_pass_that_failed_is_still_paid_for(kind):
    model = make_model("gpt")
    cache = make_cache(kind, model)
    with Meter() as meter, pytest.raises(KeyboardInterrupt):
        generate(
            model, [1, 2, 3], max_new_tokens=3, cache=cache, on_token=lambda token: (_ for _ in ()).throw(KeyboardInterrupt)
        )
    assert (cache.length, meter.cost.tokens) == (0, 3)
