"""Generation: the loops, their bookkeeping, and that nothing which goes wrong leaves a trace in a cache."""

import gc
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import CACHES, MODELS, last_norm, make_empty, make_model, raising_in, random_ids, snapshot, uncached
from helpers import small_models as small_models

from kvcourse.caches.make import make_cache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.errors import CacheFull, CacheMismatch, ContextOverflow, InputError, KVCourseError, UnknownName
from kvcourse.generate import Usage, decode_step, generate, prefill, stream
from kvcourse.meter import Meter
from kvcourse.sampling import Sampler, greedy

pytestmark = pytest.mark.usefixtures("small_models")
every_model = pytest.mark.parametrize("kind", MODELS)
every_cache = pytest.mark.parametrize("cache_kind", CACHES)
with_and_without = pytest.mark.parametrize("cache_kind", [None, *CACHES])
PROMPT = random_ids(9, seed=3).tolist()
RAGGED = [random_ids(n, seed=50 + n).tolist() for n in (7, 2, 11, 1)]


def by_hand(model, prompt, n, pick=greedy):
    """The definition: the whole text through the model for every new token."""
    tokens = list(prompt)
    for _ in range(n):
        tokens.append(pick(uncached(model, torch.tensor([tokens]))[0, -1]))
    return tokens[len(prompt) :]


# What comes out.


@every_model
@with_and_without
def test_greedy_generation_is_the_definition_written_out(kind, cache_kind):
    model = make_model(kind)
    out = generate(model, PROMPT, max_new_tokens=12, cache=cache_kind)
    assert out.tokens == by_hand(model, PROMPT, 12)
    assert out.finish_reason == "length"


@every_model
@with_and_without
def test_sampling_draws_what_the_definition_draws(kind, cache_kind):
    model = make_model(kind)
    sampler = Sampler(temperature=1.3, top_k=20, top_p=0.95, seed=11)
    out = generate(model, PROMPT, max_new_tokens=12, cache=cache_kind, sampler=sampler)
    assert out.tokens == by_hand(model, PROMPT, 12, sampler.start())
    assert out.tokens == generate(model, PROMPT, max_new_tokens=12, cache=cache_kind, sampler=sampler).tokens
    assert out.tokens != generate(model, PROMPT, max_new_tokens=12, sampler=Sampler(temperature=1.3, seed=12)).tokens


@every_model
@every_cache
@pytest.mark.parametrize("chunk", [1, 2, 4, 8, 9, 100])
def test_the_prompt_may_be_read_in_chunks_of_any_size(kind, cache_kind, chunk):
    model = make_model(kind)
    with Meter() as meter:
        out = generate(model, PROMPT, max_new_tokens=5, cache=cache_kind, prefill_chunk=chunk)
    assert out.tokens == by_hand(model, PROMPT, 5)
    assert out.cost.tokens == meter.cost.tokens == 9 + 4


@with_and_without
@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        torch.tensor,
        np.array,
        lambda ids: torch.tensor(ids, dtype=torch.int32),
        lambda ids: [np.int64(i) for i in ids],
    ],
)
def test_a_prompt_may_be_any_sequence_of_integers(cache_kind, form):
    model = make_model("gpt")
    assert generate(model, form(PROMPT), max_new_tokens=4, cache=cache_kind).tokens == by_hand(model, PROMPT, 4)


def test_a_sampler_of_ones_own_may_return_a_tensor_and_stop_ids_still_work():
    model = make_model("gpt")
    tokens = by_hand(model, PROMPT, 6)
    out = generate(model, PROMPT, max_new_tokens=20, sampler=lambda logits: logits.argmax(), stop_ids=[tokens[3]])
    assert out.tokens == tokens[: tokens.index(tokens[3]) + 1]
    assert all(type(token) is int for token in out.tokens)
    assert out.finish_reason == "stop"


# When it ends.


@every_model
@with_and_without
def test_a_stop_id_is_the_last_token_and_the_reason(kind, cache_kind):
    model = make_model(kind)
    tokens = by_hand(model, PROMPT, 10)
    for stop in (tokens[0], tokens[4], tokens[9]):
        end = tokens.index(stop) + 1
        out = generate(model, PROMPT, max_new_tokens=10, cache=cache_kind, stop_ids=(stop, 60 if stop != 60 else 59))
        first = next(i for i, token in enumerate(tokens) if token in {stop, 60 if stop != 60 else 59}) + 1
        assert first <= end
        assert (out.tokens, out.finish_reason) == (tokens[:first], "stop")
        assert out.usage.completion_tokens == first
    assert generate(model, PROMPT, max_new_tokens=4, cache=cache_kind, stop_ids=[]).finish_reason == "length"


@every_model
@with_and_without
def test_a_prompt_of_the_whole_context_gets_one_token_and_one_more_token_is_refused(kind, cache_kind):
    model = make_model(kind)
    full = random_ids(32).tolist()
    out = generate(model, full, max_new_tokens=5, cache=cache_kind)
    assert (len(out.tokens), out.finish_reason) == (1, "context")
    assert out.tokens == by_hand(model, full, 1)
    assert generate(model, full, max_new_tokens=1, cache=cache_kind).finish_reason == "length"
    out = generate(model, full[:30], max_new_tokens=5, cache=cache_kind)
    assert (out.tokens, out.finish_reason) == (by_hand(model, full[:30], 3), "context")
    assert generate(model, full[:30], max_new_tokens=3, cache=cache_kind).finish_reason == "length"
    with pytest.raises(ContextOverflow, match="at most 32 tokens"):
        generate(model, [*full, 1], max_new_tokens=1, cache=cache_kind)


@with_and_without
def test_truncating_keeps_the_end_of_the_prompt_with_room_for_the_answer(cache_kind):
    model = make_model("gpt")
    long = random_ids(50).tolist()
    out = generate(model, long, max_new_tokens=6, cache=cache_kind, overflow="truncate")
    kept = long[-(32 - 6 + 1) :]
    assert out.tokens == by_hand(model, kept, 6)
    assert (out.finish_reason, out.usage.prompt_tokens) == ("length", len(kept))
    assert generate(model, long, max_new_tokens=99, cache=cache_kind, overflow="truncate").usage.prompt_tokens == 1
    short = generate(model, PROMPT, max_new_tokens=3, cache=cache_kind, overflow="truncate")
    assert short.usage.prompt_tokens == len(PROMPT)  # nothing to truncate


@every_cache
def test_what_a_cache_holds_cannot_be_truncated_away(cache_kind):
    model = make_model("gpt")
    cache = make_empty(cache_kind)
    prefill(model, PROMPT, cache)
    before = snapshot(cache, 3)
    for overflow in ("error", "truncate"):
        with pytest.raises(ContextOverflow, match="9 in the cache and 24 in the prompt"):
            generate(model, random_ids(24).tolist(), max_new_tokens=2, cache=cache, overflow=overflow)
    assert snapshot(cache, 3) == before


# What is kept.


@every_model
@every_cache
def test_the_last_token_is_never_stored_and_a_conversation_goes_on_from_there(kind, cache_kind):
    model = make_model(kind)
    cache = make_empty(cache_kind)
    first = generate(model, PROMPT, max_new_tokens=5, cache=cache)
    assert cache.length == 9 + 5 - 1
    assert first.usage == Usage(prompt_tokens=9, cached_tokens=0, computed_tokens=9, completion_tokens=5)
    follow_up = [first.tokens[-1], 4, 5]
    second = generate(model, follow_up, max_new_tokens=4, cache=cache)
    assert cache.length == 13 + 3 + 4 - 1
    assert second.usage == Usage(prompt_tokens=16, cached_tokens=13, computed_tokens=3, completion_tokens=4)
    assert second.cost.tokens == 3 + 3
    assert second.tokens == by_hand(model, PROMPT + first.tokens + [4, 5], 4)
    whole = [*PROMPT, *first.tokens, 4, 5, *second.tokens]
    held = torch.tensor([whole[: cache.length]])
    fresh = make_empty("growing")
    model(held, cache=fresh)
    for layer in range(3):
        assert (cache.read(layer, 0, 19).values - fresh.read(layer, 0, 19).values).abs().max() < 1e-12


@every_cache
def test_a_stop_leaves_the_cache_at_the_token_before_it(cache_kind):
    model = make_model("llama")
    tokens = by_hand(model, PROMPT, 8)
    cache = make_empty(cache_kind)
    out = generate(model, PROMPT, max_new_tokens=8, cache=cache, stop_ids=[tokens[4]])
    assert cache.length == 9 + len(out.tokens) - 1


@every_model
@with_and_without
def test_usage_adds_up_and_counts_no_cached_token_when_cold(kind, cache_kind):
    out = generate(make_model(kind), PROMPT, max_new_tokens=5, cache=cache_kind)
    assert out.usage == Usage(9, 0, 9, 5)
    assert out.usage.prompt_tokens == out.usage.cached_tokens + out.usage.computed_tokens


@every_cache
@pytest.mark.parametrize("inside", [True, False])
def test_a_cache_filled_by_generate_goes_on_outside_and_the_other_way_round(cache_kind, inside):
    model = make_model("llama")
    tokens = torch.tensor([[*PROMPT, 1, 2, 3]])
    cache = make_empty(cache_kind)
    if inside:
        first = generate(model, PROMPT, max_new_tokens=1, cache=cache).tokens  # inference mode
        logits = model(tokens[:, 9:], cache=cache)
    else:
        model(tokens[:, :4], cache=cache)
        first = generate(model, PROMPT[4:], max_new_tokens=1, cache=cache).tokens
        logits = model(tokens[:, 9:], cache=cache)
    assert first == by_hand(model, PROMPT, 1)
    assert (logits - uncached(model, tokens)[:, 9:]).abs().max() < 1e-12


@every_cache
def test_capacity_is_enough_to_the_slot_and_checked_before_anything_is_computed(cache_kind):
    model = make_model("gpt")
    if cache_kind == "growing":
        assert generate(model, PROMPT, max_new_tokens=4, cache="growing").cost.bytes_held == 2 * 3 * 24 * 8 * 12
        return
    cache = make_empty("preallocated", capacity=9 + 4 - 1)
    assert generate(model, PROMPT, max_new_tokens=4, cache=cache).tokens == by_hand(model, PROMPT, 4)
    cache = make_empty("preallocated", capacity=9 + 4 - 2)
    with Meter() as meter, pytest.raises(CacheFull, match=r"a capacity of 12 tokens; got 11.*max_new_tokens by 1"):
        generate(model, PROMPT, max_new_tokens=4, cache=cache)
    assert (cache.length, meter.cost.tokens) == (0, 0)
    assert generate(model, PROMPT, max_new_tokens=3, cache=cache).tokens == by_hand(model, PROMPT, 3)
    # A cache made here is no larger than needed.
    assert generate(model, PROMPT, max_new_tokens=4).cost.bytes_held == 2 * 3 * 24 * 8 * 12


# Several prompts.


@every_model
@with_and_without
@pytest.mark.parametrize("sampler", [greedy, Sampler(temperature=1.2, top_k=30, seed=4)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("chunk", [None, 3])
def test_several_prompts_are_answered_as_each_alone(kind, cache_kind, sampler, chunk):
    model = make_model(kind)
    alone = [generate(model, prompt, max_new_tokens=9, cache=cache_kind, sampler=sampler) for prompt in RAGGED]
    stops = [alone[0].tokens[2], alone[2].tokens[5]]
    for stop_ids in ((), stops):
        alone = [generate(model, p, max_new_tokens=9, cache=cache_kind, sampler=sampler, stop_ids=stop_ids) for p in RAGGED]
        together = generate(
            model, RAGGED, max_new_tokens=9, cache=cache_kind, sampler=sampler, stop_ids=stop_ids, prefill_chunk=chunk
        )
        for one, other in zip(together, alone, strict=True):
            assert (one.tokens, one.usage, one.finish_reason) == (other.tokens, other.usage, other.finish_reason)
            assert (one.cost.tokens, one.cost.kv_rows) == (other.cost.tokens, other.cost.kv_rows)
        assert len({len(out.tokens) for out in together}) > (1 if stop_ids else 0)


@every_model
@every_cache
def test_each_of_several_prompts_may_reach_the_end_of_its_own_context(kind, cache_kind):
    model = make_model(kind)
    prompts = [random_ids(32, seed=1).tolist(), random_ids(20, seed=2).tolist(), random_ids(31, seed=3).tolist()]
    together = generate(model, prompts, max_new_tokens=30, cache=cache_kind)
    for prompt, out in zip(prompts, together, strict=True):
        assert out.tokens == by_hand(model, prompt, 33 - len(prompt))
        assert out.finish_reason == "context"


@every_model
@every_cache
def test_a_finished_row_is_not_counted(kind, cache_kind):
    model = make_model(kind)
    first = generate(model, RAGGED[0], max_new_tokens=9)
    with Meter() as meter:
        together = generate(model, RAGGED, max_new_tokens=9, cache=cache_kind, stop_ids=[first.tokens[1]])
    assert meter.cost.tokens == sum(out.cost.tokens for out in together)
    for prompt, out in zip(RAGGED, together, strict=True):
        assert out.cost.tokens == len(prompt) + len(out.tokens) - 1
    first_row, n = min(enumerate(len(out.tokens) for out in together), key=lambda pair: pair[1])
    assert n < 9
    until_then = generate(model, RAGGED, max_new_tokens=n, cache=cache_kind)[first_row].cost
    assert replace(together[first_row].cost, bytes_held=0) == replace(
        until_then, bytes_held=0
    )  # steps after its end cost it nothing


@every_model
@every_cache
def test_a_batch_cache_of_ones_own_is_left_where_every_row_can_go_on(kind, cache_kind):
    model = make_model(kind)
    stop = generate(model, RAGGED[2], max_new_tokens=9).tokens[3]
    cache = make_empty(cache_kind)
    together = generate(model, RAGGED, max_new_tokens=7, cache=cache, stop_ids=[stop])
    shortest = min(len(out.tokens) for out in together)
    assert shortest < 7
    assert cache.starts.tolist() == [4, 9, 0, 10]
    assert cache.length == 11 + shortest - 1
    # Every row goes on from its own tokens, up to where the shortest ended.
    texts = [prompt + out.tokens[: shortest - 1] for prompt, out in zip(RAGGED, together, strict=True)]
    more = [[5, 6]] * 4
    again = generate(model, more, max_new_tokens=3, cache=cache)
    for text, out in zip(texts, again, strict=True):
        assert out.tokens == by_hand(model, [*text, 5, 6], 3)
        assert out.usage == Usage(len(text) + 2, len(text), 2, 3)
    assert cache.length == 11 + shortest - 1 + 2 + 3 - 1


@every_cache
def test_prompts_of_one_length_need_no_padding(cache_kind):
    model = make_model("llama")
    cache = make_empty(cache_kind)
    prompts = random_ids(3, 6).tolist()
    together = generate(model, torch.tensor(prompts), max_new_tokens=4, cache=cache)
    assert [out.tokens for out in together] == [by_hand(model, prompt, 4) for prompt in prompts]
    assert (cache.starts, cache.length) == (None, 9)
    again = generate(model, [[1], [2], [3]], max_new_tokens=2, cache=cache)
    assert [out.tokens for out in again] == [
        by_hand(model, prompt + out.tokens[:-1] + [n], 2) for prompt, out, n in zip(prompts, together, (1, 2, 3), strict=True)
    ]
    with pytest.raises(InputError, match="need an empty cache"):
        generate(model, [[1], [2, 3], [4]], max_new_tokens=1, cache=cache)


def test_one_prompt_in_a_list_gives_a_list_of_one():
    model = make_model("gpt")
    (out,) = generate(model, [PROMPT], max_new_tokens=3)
    assert out == generate(model, PROMPT, max_new_tokens=3)


# Token by token.


@every_model
@with_and_without
def test_a_stream_is_generate_in_small_portions(kind, cache_kind):
    model = make_model(kind)
    whole = generate(model, PROMPT, max_new_tokens=8, cache=cache_kind, sampler=Sampler(seed=2))
    running = stream(model, PROMPT, max_new_tokens=8, cache=cache_kind, sampler=Sampler(seed=2))
    assert running.output.tokens == [] and running.output.finish_reason is None
    seen = []
    for token in running:
        seen.append(token)
        assert running.output.tokens == seen
    assert seen == whole.tokens
    assert running.output == whole


@every_model
@every_cache
def test_leaving_a_stream_early_leaves_a_cache_that_can_be_used(kind, cache_kind):
    model = make_model(kind)
    cache = make_empty(cache_kind)
    seen = []
    running = stream(model, PROMPT, max_new_tokens=8, cache=cache)
    for token in running:
        seen.append(token)
        if len(seen) == 3:
            break
    assert cache.length == 9 + 3 - 1
    assert running.output.finish_reason is None
    more = generate(model, [seen[-1], 7], max_new_tokens=4, cache=cache)
    assert more.tokens == by_hand(model, [*PROMPT, *seen, 7], 4)
    # The stream is cleared away only now, or much later. That must not reach back into the cache.
    before = snapshot(cache, 3)
    del running
    gc.collect()
    assert snapshot(cache, 3) == before


@every_cache
def test_on_token_sees_every_token_and_with_several_prompts_whose_it_is(cache_kind):
    model = make_model("gpt")
    seen = []
    out = generate(model, PROMPT, max_new_tokens=4, cache=cache_kind, on_token=seen.append)
    assert seen == out.tokens
    pairs = []
    together = generate(model, RAGGED, max_new_tokens=4, cache=cache_kind, on_token=lambda *pair: pairs.append(pair))
    for row, output in enumerate(together):
        assert [token for token, index in pairs if index == row] == output.tokens
    assert [index for _, index in pairs[:4]] == [0, 1, 2, 3]


# When something is raised.


@every_model
@every_cache
@pytest.mark.parametrize("fault", [ValueError("mine"), KeyboardInterrupt()], ids=["error", "interrupt"])
@pytest.mark.parametrize("held", [0, 4])
@pytest.mark.parametrize("when", [1, 3])
def test_an_error_in_on_token_leaves_the_cache_as_it_was(kind, cache_kind, fault, held, when):
    model = make_model(kind)
    cache = make_cache(cache_kind, model, capacity=32) if cache_kind == "preallocated" else make_cache(cache_kind, model)
    prefill(model, PROMPT, cache)
    cache.truncate(held)
    before = snapshot(cache, 3)
    calls = []

    def fail(token):
        calls.append(token)
        if len(calls) == when:
            raise fault

    with pytest.raises(type(fault)):
        generate(model, PROMPT[held:], max_new_tokens=5, cache=cache, on_token=fail)
    assert snapshot(cache, 3) == before
    assert generate(model, PROMPT[held:], max_new_tokens=5, cache=cache).tokens == by_hand(model, PROMPT, 5)


@every_cache
@pytest.mark.parametrize("way", ["on_token", "prefill", "decode", "capacity", "chunk"])
def test_an_error_with_several_prompts_leaves_no_padding_behind(cache_kind, way):
    model = make_model("gpt")
    cache = make_empty(cache_kind, capacity=8 if way == "capacity" else 48)
    calls = []

    def fail(*_):
        calls.append(1)
        if way == "on_token" or (way == "decode" and len(calls) > 4):
            raise ZeroDivisionError

    with raising_in(last_norm(model) if way == "prefill" else torch.nn.Identity(), ZeroDivisionError()):
        options = {"prefill_chunk": 0} if way == "chunk" else {}
        if way == "capacity" and cache_kind == "growing":
            generate(model, [[1, 2, 3], [4]], max_new_tokens=2, cache=cache)
            cache.reset()
        else:
            with pytest.raises((ZeroDivisionError, KVCourseError)):
                generate(model, RAGGED, max_new_tokens=9, cache=cache, on_token=fail, **options)
    assert (cache.length, cache.starts) == (0, None)
    prompts = [[1, 2, 3], [4, 5, 6]] if way == "capacity" else random_ids(4, 3).tolist()
    together = generate(model, prompts, max_new_tokens=3, cache=cache if way != "capacity" else make_empty(cache_kind))
    assert [out.tokens for out in together] == [by_hand(model, prompt, 3) for prompt in prompts]


@every_model
@every_cache
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_prefill_that_fails_in_any_chunk_leaves_the_cache_as_it_was(kind, cache_kind, chunk):
    model = make_model(kind)
    for passes in range(1 if chunk is None else 3):
        cache = make_empty(cache_kind)
        prefill(model, PROMPT[:3], cache)
        before = snapshot(cache, 3)
        seen = []

        def fail(*_, passes=passes, seen=seen):
            seen.append(1)
            if len(seen) > passes:
                raise KeyboardInterrupt

        handle = last_norm(model).register_forward_pre_hook(fail)
        with pytest.raises(KeyboardInterrupt):
            prefill(model, PROMPT[3:], cache, chunk)
        handle.remove()
        assert snapshot(cache, 3) == before
        assert int(prefill(model, PROMPT[3:], cache, chunk).argmax()) == by_hand(model, PROMPT, 1)[0]


@every_cache
def test_an_error_in_a_stream_leaves_all_but_the_last_token_that_came(cache_kind):
    model = make_model("gpt")
    for good in (0, 1, 3):
        cache = make_empty(cache_kind)
        prefill(model, PROMPT[:2], cache)
        calls = []

        def pick(logits, calls=calls, good=good):
            calls.append(1)
            return greedy(logits if len(calls) <= good else logits * torch.nan)

        running = stream(model, PROMPT[2:], max_new_tokens=6, cache=cache, sampler=pick)
        seen = []
        with pytest.raises(InputError, match="cannot be sampled"):
            for token in running:
                seen.append(token)
        assert seen == by_hand(model, PROMPT, good)
        assert cache.length == (2 if good == 0 else 9 + good - 1)
        rest = seen[-1:] if good else PROMPT[2:]
        assert generate(model, rest, max_new_tokens=2, cache=cache).tokens == by_hand(model, PROMPT, good + 2)[good:]


@with_and_without
@pytest.mark.parametrize("sampler", [greedy, Sampler()], ids=["greedy", "sampled"])
def test_logits_that_are_no_numbers_are_refused(cache_kind, sampler):
    model = make_model("gpt")
    with torch.no_grad():
        model.transformer.ln_f.weight[0] = torch.nan
    with pytest.raises(InputError, match="cannot be sampled"):
        generate(model, PROMPT, max_new_tokens=3, cache=cache_kind, sampler=sampler)


# Bad input. Each is refused with expected, got and what to do, before anything is computed.

BAD_INPUT = {
    "empty prompt": (dict(prompt_ids=[]), InputError),
    "an empty tensor": (dict(prompt_ids=torch.tensor([], dtype=torch.int64)), InputError),
    "one of several is empty": (dict(prompt_ids=[[1, 2], []]), InputError),
    "text": (dict(prompt_ids="hello"), InputError),
    "texts": (dict(prompt_ids=["hello", "you"]), InputError),
    "bytes": (dict(prompt_ids=b"hello"), InputError),
    "a number": (dict(prompt_ids=5), InputError),
    "None": (dict(prompt_ids=None), InputError),
    "floats": (dict(prompt_ids=[1.0, 2.0]), InputError),
    "a float tensor": (dict(prompt_ids=torch.tensor([1.0])), InputError),
    "ids and lists mixed": (dict(prompt_ids=[1, [2]]), InputError),
    "lists and ids mixed": (dict(prompt_ids=[[1], 2]), InputError),
    "three axes": (dict(prompt_ids=torch.zeros(1, 1, 1, dtype=torch.int64)), InputError),
    "an id past the vocabulary": (dict(prompt_ids=[1, 61]), InputError),
    "a negative id": (dict(prompt_ids=[-1]), InputError),
    "an id past the vocabulary in the second prompt": (dict(prompt_ids=[[1], [99]]), InputError),
    "longer than the context": (dict(prompt_ids=[1] * 33), ContextOverflow),
    "no new tokens": (dict(max_new_tokens=0), InputError),
    "a negative number of new tokens": (dict(max_new_tokens=-3), InputError),
    "a chunk of none": (dict(prefill_chunk=0), InputError),
    "an unknown overflow": (dict(overflow="wrap"), InputError),
    "an unknown cache": (dict(cache="paged?"), UnknownName),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_refused_with_expected_got_and_what_to_do(name):
    changes, fault = BAD_INPUT[name]
    model = make_model("gpt")
    options = dict(prompt_ids=[1, 2], max_new_tokens=2) | changes
    with Meter() as meter, pytest.raises(fault) as caught:
        generate(model, options.pop("prompt_ids"), **options)
    assert caught.value.expected is not None and caught.value.todo
    assert f"Expected {caught.value.expected}; got {caught.value.got}." in str(caught.value)
    assert meter.cost.tokens == 0


@every_cache
@pytest.mark.parametrize("name", [name for name in BAD_INPUT if "cache" not in name])
def test_bad_input_leaves_a_cache_as_it_was(name, cache_kind):
    changes, _ = BAD_INPUT[name]
    model = make_model("llama")
    cache = make_empty(cache_kind)
    prefill(model, PROMPT, cache)
    before = snapshot(cache, 3)
    options = dict(prompt_ids=[1, 2], max_new_tokens=2) | changes
    prompt_ids = options.pop("prompt_ids")
    with pytest.raises(KVCourseError):
        generate(model, prompt_ids, cache=cache, **options)
    with pytest.raises(KVCourseError):
        for _ in stream(model, prompt_ids, cache=cache, **options):
            pass
    assert snapshot(cache, 3) == before
    assert generate(model, [3], max_new_tokens=2, cache=cache).tokens == by_hand(model, [*PROMPT, 3], 2)


@every_cache
def test_a_cache_of_another_model_batch_size_or_precision_is_refused_as_it_was(cache_kind):
    model = make_model("gpt")
    cache = make_empty(cache_kind)
    prefill(model, PROMPT, cache)
    before = snapshot(cache, 3)
    for other, prompts in (
        (make_model("gpt"), [1]),
        (make_model("llama"), [1]),
        (model, [[1], [2]]),
        (make_model("gpt", torch.float32), [1]),
    ):
        with pytest.raises(CacheMismatch) as caught:
            generate(other, prompts, max_new_tokens=2, cache=cache)
        assert caught.value.expected and caught.value.got and caught.value.todo
    assert snapshot(cache, 3) == before
    bound = make_cache(cache_kind, model, batch_size=3)
    with pytest.raises(CacheMismatch, match="batch size"):
        generate(model, [[1, 2], [3]], max_new_tokens=2, cache=bound)
    assert (bound.starts, bound.length) == (None, 0)


def test_a_stream_of_several_prompts_and_a_stream_of_nothing_are_refused():
    model = make_model("gpt")
    with pytest.raises(InputError, match="continues one prompt"):
        stream(model, RAGGED, max_new_tokens=2)
    with pytest.raises(InputError, match="empty"):
        stream(model, [], max_new_tokens=2)


def test_a_prefill_of_nothing_is_refused():
    model, cache = make_model("gpt"), make_empty("growing")
    for ids in ([], torch.zeros(1, 0, dtype=torch.int64)):
        with pytest.raises(InputError):
            prefill(model, ids, cache)
    assert cache.length == 0


@every_cache
def test_prefill_and_decode_step_take_one_row_or_many(cache_kind):
    model = make_model("llama")
    tokens = random_ids(2, 7)
    cache = make_empty(cache_kind)
    expected = uncached(model, tokens)
    assert (prefill(model, tokens[:, :5], cache) - expected[:, 4]).abs().max() < 1e-12
    assert (decode_step(model, tokens[:, 5].tolist(), cache) - expected[:, 5]).abs().max() < 1e-12
    assert (decode_step(model, tokens[:, 6], cache) - expected[:, 6]).abs().max() < 1e-12
    single = make_empty(cache_kind)
    assert (prefill(model, tokens[0, :5].tolist(), single) - expected[:1, 4]).abs().max() < 1e-12
    assert (decode_step(model, int(tokens[0, 5]), single) - expected[:1, 5]).abs().max() < 1e-12


# Prefix caches, through their contract alone.


class Lease:
    def __init__(self, rows):
        self.rows = rows
        self.length = 0 if not rows else rows[0].keys.shape[2]

    def load_into(self, cache):
        assert cache.length == 0 and self.length
        for layer, (keys, values) in enumerate(self.rows):
            cache.append(layer, keys, values)
        cache.advance(self.length)


class DictPrefixCache:
    """The contract and nothing else: exact token prefixes in a dict, copies of rows, at most len(tokens) - 1 handed out."""

    def __init__(self):
        self.known, self.out, self.inserts = {}, 0, []

    @contextmanager
    def lease(self, tokens, namespace=None):
        best = max((n for n in range(len(tokens)) if tuple(tokens[:n]) in self.known), default=0)
        self.out += 1
        try:
            yield Lease(self.known.get(tuple(tokens[:best]), []))
        finally:
            self.out -= 1

    def insert(self, tokens, cache, namespace=None):
        assert len(tokens) == cache.length and cache.starts is None and cache.exact
        self.inserts.append(list(tokens))
        for n in range(1, len(tokens) + 1):
            rows = [cache.read(layer, 0, n) for layer in range(3)]
            self.known[tuple(tokens[:n])] = [type(r)(r.keys.clone(), r.values.clone()) for r in rows]


@every_model
@every_cache
def test_a_prefix_cache_saves_all_but_one_token_of_a_prompt_it_knows(kind, cache_kind):
    model, known = make_model(kind), DictPrefixCache()
    expected = by_hand(model, PROMPT, 4)
    cold = generate(model, PROMPT, max_new_tokens=4, cache=cache_kind, prefix_cache=known)
    assert (cold.tokens, cold.usage) == (expected, Usage(9, 0, 9, 4))
    assert known.inserts == [PROMPT + expected[:3]]  # what has been computed, and no more
    for _ in range(2):
        warm = generate(model, PROMPT, max_new_tokens=4, cache=cache_kind, prefix_cache=known)
        assert (warm.tokens, warm.usage) == (expected, Usage(9, 8, 1, 4))
        assert warm.cost.tokens == 1 + 3
    longer = PROMPT + expected[:3] + [5, 6]
    out = generate(model, longer, max_new_tokens=2, cache=cache_kind, prefix_cache=known, prefill_chunk=1)
    assert (out.tokens, out.usage) == (by_hand(model, longer, 2), Usage(14, 12, 2, 2))
    other = [60 - PROMPT[0], *PROMPT[1:]]
    assert generate(model, other, max_new_tokens=2, cache=cache_kind, prefix_cache=known).usage.cached_tokens == 0
    assert generate(model, PROMPT[:1], max_new_tokens=2, cache=cache_kind, prefix_cache=known).usage == Usage(1, 0, 1, 2)
    assert known.out == 0


@every_cache
def test_a_prefix_cache_fills_an_empty_cache_of_ones_own_and_is_told_nothing_when_something_fails(cache_kind):
    model, known = make_model("llama"), DictPrefixCache()
    generate(model, PROMPT, max_new_tokens=1, prefix_cache=known)
    cache = make_empty(cache_kind)
    out = generate(model, [*PROMPT, 1], max_new_tokens=3, cache=cache, prefix_cache=known)
    assert out.usage.cached_tokens == 9 and cache.length == 12
    before, inserts = snapshot(cache, 3), len(known.inserts)
    with pytest.raises(InputError, match="fills an empty cache"):
        generate(model, [1], max_new_tokens=1, cache=cache, prefix_cache=known)
    assert snapshot(cache, 3) == before
    for unfit in (None, SlidingCache(window=8), "quantized"):
        with pytest.raises(InputError, match="empty cache with exact rows"):
            generate(model, PROMPT, max_new_tokens=1, prefix_cache=known, cache=unfit)
    cache.reset()
    with raising_in(last_norm(model), KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        generate(model, PROMPT, max_new_tokens=2, cache=cache, prefix_cache=known)
    assert (cache.length, known.out, len(known.inserts)) == (0, 0, inserts)


@every_cache
def test_several_prompts_with_a_prefix_cache_run_one_after_another_and_use_what_those_before_have_computed(cache_kind):
    model, known, told = make_model("llama"), DictPrefixCache(), []
    prompts = [PROMPT, [1, 2], PROMPT]
    out = generate(
        model,
        prompts,
        max_new_tokens=3,
        cache=cache_kind,
        prefix_cache=known,
        on_token=lambda token, row: told.append((row, token)),
    )
    assert [one.tokens for one in out] == [by_hand(model, ids, 3) for ids in prompts]
    assert [one.usage.cached_tokens for one in out] == [0, 0, 8]
    assert told == [(row, token) for row, one in enumerate(out) for token in one.tokens]
    with pytest.raises(InputError, match="a cache each"):
        generate(model, prompts, max_new_tokens=3, cache=make_empty(cache_kind), prefix_cache=known)


@every_cache
def test_a_stream_tells_the_prefix_cache_when_it_ended_and_not_when_it_was_left(cache_kind):
    model, known = make_model("llama"), DictPrefixCache()
    for _ in stream(model, PROMPT, max_new_tokens=3, cache=cache_kind, prefix_cache=known):
        break
    gc.collect()
    assert known.inserts == []
    list(stream(model, PROMPT, max_new_tokens=3, cache=cache_kind, prefix_cache=known))
    assert len(known.inserts) == 1


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "8", None])
def test_the_number_of_new_tokens_is_an_int_of_one_or_more(count):
    cache = make_empty("growing")
    with pytest.raises(InputError, match="max_new_tokens"):
        generate(make_model("gpt"), PROMPT, max_new_tokens=count, cache=cache)
    assert cache.length == 0


@pytest.mark.parametrize("cache", [{}, 7, object(), ["growing"]])
def test_what_is_no_cache_is_named(cache):
    with pytest.raises(InputError, match=f"no cache.*{type(cache).__name__}"):
        generate(make_model("gpt"), PROMPT, max_new_tokens=2, cache=cache)
