"""Speculation changes how many passes there are, never which tokens come; and both caches end up as `generate` leaves one."""

import copy
from collections import Counter

import pytest
import torch
from helpers import MODELS, assert_close, blocks, last_norm, make_model, random_ids, snapshot, uncached
from helpers import small_models as small_models
from torch import Tensor

from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.make import make_cache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.caches.sliding import SlidingCache
from kvcourse.checkpoints import load_model, save_model
from kvcourse.config import kv_bytes_per_token
from kvcourse.errors import CacheFull, CacheMismatch, CacheMisuse, ContextOverflow, InputError
from kvcourse.generate import generate
from kvcourse.meter import Cost
from kvcourse.models.base import CausalLM
from kvcourse.models.linear import Packed
from kvcourse.speculative import Speculation, first_layers, speculate

pytestmark = pytest.mark.usefixtures("small_models")
PROMPT = [3, 14, 15, 9, 26]


def always_wrong(model: CausalLM) -> CausalLM:
    """Guesses the id after the one that the model would choose."""
    wrong = copy.deepcopy(model)
    right = wrong.head
    wrong.head = lambda x: right(x).roll(1, dims=-1)
    return wrong


class Watched:
    """Counts a model's passes and what each of them read."""

    def __init__(self, model: CausalLM) -> None:
        self.read: list[int] = []
        model.register_forward_pre_hook(lambda _, inputs: self.read.append(inputs[0].shape[1]))


def check_rows(model: CausalLM, cache: object, text: list[int]) -> None:
    """The cache holds exactly this text's rows: another token after them gets the logits of one pass over it all."""
    assert cache.length == cache.held == len(text)
    more = torch.tensor([[8, 1]])
    whole = uncached(model, torch.tensor([[*text, 8, 1]]))
    assert_close(model(more, cache=cache), whole[:, -2:], "after what the cache holds")


# The draft.


@pytest.mark.parametrize("kind", MODELS)
def test_a_draft_is_the_first_blocks_and_shares_every_weight(kind):
    model = make_model(kind)
    names, before = set(model.state_dict()), model.fingerprint
    places = {name: (id(p), p.data_ptr(), p.stride()) for name, p in model.named_parameters()}
    draft = first_layers(model, 2)
    assert draft.config.n_layer == 2 == len(blocks(draft)) and model.config.n_layer == 3 == len(blocks(model))
    assert all(one is other for one, other in zip(blocks(draft), blocks(model), strict=False))
    draft(random_ids(1, 7))
    model(random_ids(1, 7))
    mine = {name: (id(p), p.data_ptr(), p.stride()) for name, p in draft.named_parameters()}
    assert mine.items() < places.items()
    assert set(model.state_dict()) == names and model.fingerprint == before != draft.fingerprint
    assert draft.tokenizer is model.tokenizer and draft.training == model.training


@pytest.mark.parametrize("kind", MODELS)
def test_a_draft_computes_what_a_saved_model_of_its_blocks_computes(kind, tmp_path):
    model, tokens = make_model(kind), random_ids(2, 9)
    for n_layer in (1, 2, 3):
        draft = first_layers(model, n_layer)
        alone = load_model(save_model(draft, tmp_path / f"{n_layer}"), dtype=torch.float64)
        assert alone.config == draft.config and alone.fingerprint == draft.fingerprint
        assert_close(uncached(draft, tokens), uncached(alone, tokens), f"{n_layer} blocks")
    assert_close(uncached(draft, tokens), uncached(model, tokens), "all blocks")


@pytest.mark.parametrize("kind", MODELS)
def test_a_draft_takes_no_memory_and_packs_nothing_again(kind, monkeypatch):
    model = make_model(kind)
    uncached(model, random_ids(1, 3))  # packs what `.to(float64)` has replaced
    packed = []
    monkeypatch.setattr(Packed, "_pack", lambda self: packed.append(self))
    draft = first_layers(model, 2)
    uncached(draft, random_ids(1, 3))
    uncached(model, random_ids(1, 3))
    assert packed == []
    storages = [{p.untyped_storage().data_ptr() for p in m.parameters()} for m in (draft, model)]
    assert storages[0] < storages[1]


@pytest.mark.parametrize("kind", MODELS)
def test_what_changes_the_weights_of_one_changes_the_other(kind):
    model = make_model(kind)
    draft = first_layers(model, 2)
    model.load_state_dict(make_model(kind, seed=5).state_dict(), assign=True)
    other = first_layers(make_model(kind, seed=5), 2)
    assert_close(uncached(draft, random_ids(1, 6)), uncached(other, random_ids(1, 6)), "after new weights")
    assert draft.fingerprint == other.fingerprint != model.fingerprint
    next(model.parameters()).data.mul_(2)  # as a version counter does not see it
    model.touch()
    assert draft.fingerprint != other.fingerprint


def test_a_draft_inherits_no_hooks():
    model = make_model("gpt")
    watched = Watched(model)
    uncached(first_layers(model, 2), random_ids(1, 6))
    assert watched.read == []
    uncached(model, random_ids(1, 6))
    assert watched.read == [6]


@pytest.mark.parametrize("n_layer", [0, 4, -1, True, 1.0, None])
def test_a_draft_of_no_or_too_many_blocks_is_refused(n_layer):
    with pytest.raises(InputError, match="from 1 to 3"):
        first_layers(make_model("gpt"), n_layer)


# The same tokens.


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("n_draft", range(1, 7))
def test_tokens_are_those_of_greedy_generate(kind, n_draft):
    outcomes: Counter[bool] = Counter()
    for seed in range(8):
        model = make_model(kind, seed=seed)
        prompt = random_ids(1 + seed, seed=seed).tolist()
        for max_new_tokens in (1, 2, n_draft + 1, 15):
            expected = generate(model, prompt, max_new_tokens=max_new_tokens).tokens
            for n_layer in (1, 2):
                draft = first_layers(model, n_layer)
                got = speculate(model, prompt, draft=draft, max_new_tokens=max_new_tokens, n_draft=n_draft)
                assert got.tokens == expected, f"seed {seed}, {max_new_tokens} tokens, {n_layer} blocks"
                assert got.passes + got.accepted == len(expected)  # each pass brings one token, each guess kept another
                outcomes[got.accepted > 0] += 1
                outcomes[got.accepted < got.drafted] += 1
    assert outcomes[True] > 20  # guesses were kept, and guesses were thrown away


@pytest.mark.parametrize("cache", ["growing", "preallocated"])
@pytest.mark.parametrize("draft_cache", ["growing", "preallocated"])
def test_tokens_are_the_same_with_any_two_caches(cache, draft_cache):
    model = make_model("llama")
    expected = generate(model, PROMPT, max_new_tokens=12).tokens
    for n_layer in (1, 2, 3):
        draft = first_layers(model, n_layer)
        got = speculate(model, PROMPT, draft=draft, max_new_tokens=12, cache=cache, draft_cache=draft_cache)
        assert got.tokens == expected


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("n_draft", [1, 3, 6])
def test_a_stop_id_ends_the_output_wherever_it_comes(kind, n_draft):
    model = make_model(kind)
    free = generate(model, PROMPT, max_new_tokens=14).tokens
    never = next(token for token in range(61) if token not in free)
    for draft in (model, first_layers(model, 2), always_wrong(model)):
        for place, stop in enumerate(free):
            expected = free[: free.index(stop) + 1]
            cache = make_cache("preallocated", model)
            got = speculate(model, PROMPT, draft=draft, max_new_tokens=14, n_draft=n_draft, cache=cache, stop_ids=[stop, never])
            assert got.tokens == expected, f"stop at {place}"
            assert got.accepted <= min(got.drafted, len(expected))
            check_rows(model, cache, [*PROMPT, *expected[:-1]])


def test_a_stop_id_at_the_end_of_the_prompt_stops_nothing():
    model = make_model("gpt")
    expected = generate(model, PROMPT, max_new_tokens=6, stop_ids=[PROMPT[-1]]).tokens
    assert speculate(model, PROMPT, draft=model, max_new_tokens=6, stop_ids=[PROMPT[-1]]).tokens == expected
    assert expected[0] != PROMPT[-1] and len(expected) > 1


@pytest.mark.parametrize("kind", MODELS)
def test_it_goes_to_the_end_of_the_context_and_no_further(kind):
    model = make_model(kind)  # 32 positions
    for length in (1, 20, 29, 30, 31, 32):
        prompt = random_ids(length, seed=length).tolist()
        expected = generate(model, prompt, max_new_tokens=50)
        assert expected.finish_reason == "context"
        for draft in (model, first_layers(model, 1)):
            for n_draft in (1, 4, 40):
                got = speculate(model, prompt, draft=draft, max_new_tokens=50, n_draft=n_draft)
                assert got.tokens == expected.tokens, f"{length} tokens, {n_draft} guesses"
    with pytest.raises(ContextOverflow, match="at most 32"):
        speculate(model, random_ids(33).tolist(), draft=model, max_new_tokens=1)


def test_tensor_and_list_prompts_agree():
    model = make_model("gpt")
    draft = first_layers(model, 1)
    one, two = (speculate(model, ids, draft=draft, max_new_tokens=5) for ids in (PROMPT, torch.tensor(PROMPT)))
    assert one == two


# Exact counts.


@pytest.mark.parametrize("n_draft", range(1, 7))
def test_a_draft_that_is_always_right_saves_all_but_one_pass_in_n_draft_plus_one(n_draft):
    model = make_model("llama")
    for n_new in range(1, 16):
        watched = Watched(model)
        got = speculate(model, PROMPT, draft=first_layers(model, 3), max_new_tokens=n_new, n_draft=n_draft)
        passes = -(-n_new // (n_draft + 1))
        assert (got.passes, got.drafted, got.accepted) == (passes, n_new - passes, n_new - passes)
        sizes = [min(n_draft + 1, n_new - done) for done in range(0, n_new, n_draft + 1)]
        assert watched.read == [len(PROMPT) + sizes[0] - 1, *sizes[1:]]  # one pass each, over a token and its guesses


@pytest.mark.parametrize("n_draft", [1, 2, 5])
def test_a_draft_that_is_always_wrong_saves_nothing_and_changes_nothing(n_draft):
    model = make_model("gpt")
    got = speculate(model, PROMPT, draft=always_wrong(model), max_new_tokens=9, n_draft=n_draft)
    assert got.tokens == generate(model, PROMPT, max_new_tokens=9).tokens
    assert (got.passes, got.accepted) == (9, 0)
    assert got.drafted == sum(min(n_draft, 9 - done - 1) for done in range(9))


def test_the_draft_stops_guessing_after_a_stop_id():
    model = make_model("llama")
    free = generate(model, PROMPT, max_new_tokens=6).tokens
    assert free[2] not in free[:2]
    got = speculate(model, PROMPT, draft=first_layers(model, 3), max_new_tokens=6, n_draft=5, stop_ids=[free[2]])
    assert (got.tokens, got.drafted, got.accepted, got.passes) == (free[:3], 3, 3, 1)


@pytest.mark.parametrize("kind", MODELS)
def test_the_cost_is_that_of_both_models_pass_by_pass(kind):
    model = make_model(kind)
    for draft in (first_layers(model, 1), always_wrong(first_layers(model, 2))):
        mine, its = Watched(model), Watched(draft)
        caches = make_cache("preallocated", model, capacity=20), make_cache("preallocated", draft, capacity=20)
        got = speculate(model, PROMPT, draft=draft, max_new_tokens=9, n_draft=3, cache=caches[0], draft_cache=caches[1])
        assert len(mine.read) == got.passes
        assert sum(its.read) >= got.drafted and max(its.read[1:]) <= 2  # after the prompt, one token, or two that were kept
        rows = sum(mine.read) * 3 + sum(its.read) * draft.config.n_layer
        held = 20 * (kv_bytes_per_token(model.config, 8) + kv_bytes_per_token(draft.config, 8))
        assert got.cost == Cost(sum(mine.read) + sum(its.read), rows, got.cost.macs, 0, held)
        assert got.cost.macs > 0
        mine.read.clear()


def test_nothing_is_drafted_for_a_single_token():
    model = make_model("gpt")
    draft = first_layers(model, 1)
    watched = Watched(draft)
    got = speculate(model, PROMPT, draft=draft, max_new_tokens=1)
    assert (got.passes, got.drafted, got.accepted, watched.read) == (1, 0, 0, [])
    assert got.cost == generate(model, PROMPT, max_new_tokens=1).cost


# What the caches hold.


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("make", [GrowingCache, lambda: PreallocatedCache(40)], ids=["growing", "preallocated"])
def test_both_caches_hold_all_of_the_text_but_the_last_token(kind, make):
    model = make_model(kind)
    for n_layer in (1, 2, 3):
        for n_new in (1, 2, 5, 7):
            draft = first_layers(model, n_layer)
            cache, draft_cache = make(), make()
            got = speculate(model, PROMPT, draft=draft, max_new_tokens=n_new, n_draft=3, cache=cache, draft_cache=draft_cache)
            text = [*PROMPT, *got.tokens[:-1]]
            check_rows(model, cache, text)
            check_rows(draft, draft_cache, text)


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_goes_on_from_its_caches(kind):
    model = make_model(kind)
    draft = first_layers(model, 2)
    cache, draft_cache = make_cache("growing", model), make_cache("growing", draft)
    text: list[int] = []
    for turn in (PROMPT, [7, 7], [50]):
        new = [*text[cache.length :], *turn]  # the last token of the turn before has no row yet
        text += turn
        expected = generate(model, text, max_new_tokens=4).tokens
        got = speculate(model, new, draft=draft, max_new_tokens=4, cache=cache, draft_cache=draft_cache)
        assert got.tokens == expected
        text += got.tokens
    check_rows(model, cache, text[:-1])
    check_rows(draft, draft_cache, text[:-1])


def test_padding_in_front_of_a_text_counts_for_nothing():
    model = make_model("llama")
    draft = first_layers(model, 2)
    caches = [GrowingCache(starts=[3]), GrowingCache(starts=[1])]
    for one, cache in zip((model, draft), caches, strict=True):
        one(torch.tensor([[0] * int(cache.starts[0]) + PROMPT]), cache=cache)
    expected = generate(model, [*PROMPT, 5], max_new_tokens=40).tokens  # to the end of the context
    got = speculate(model, [5], draft=draft, max_new_tokens=40, cache=caches[0], draft_cache=caches[1])
    assert got.tokens == expected


# What is refused, and what an error leaves behind.


def failing(model: CausalLM, after: int, fault: BaseException) -> None:
    """The model's last norm raises at its call number `after` from now on."""
    calls = []

    def count(*_: object) -> None:
        calls.append(None)
        if len(calls) > after:
            raise fault

    last_norm(model).register_forward_pre_hook(count)


@pytest.mark.parametrize("fault", [RuntimeError("on purpose"), KeyboardInterrupt()])
@pytest.mark.parametrize("who", ["draft", "whole"])
def test_whatever_is_raised_both_caches_are_as_they_were(who, fault):
    for held in (0, 4):
        for after in (0, 1, 3):
            model = make_model("gpt")
            draft = make_model("gpt", seed=1)
            caches = make_cache("preallocated", model), make_cache("preallocated", draft)
            if held:
                for one, cache in zip((model, draft), caches, strict=True):
                    one(random_ids(1, held), cache=cache)
            before = [(c.length, [r.keys.tolist() for r in (c.read(0, 0, held),)] if held else None) for c in caches]
            failing(model if who == "whole" else draft, after, fault)
            with pytest.raises(type(fault)):
                speculate(model, PROMPT, draft=draft, max_new_tokens=12, cache=caches[0], draft_cache=caches[1])
            after_it = [(c.length, [r.keys.tolist() for r in (c.read(0, 0, held),)] if held else None) for c in caches]
            assert after_it == before


@pytest.mark.parametrize("name", ["cache", "draft_cache"])
@pytest.mark.parametrize("bad", ["quantized", SlidingCache(8), SlidingCache(8, sinks=2), None])
def test_a_cache_that_cannot_be_cut_back_is_refused_before_anything_is_computed(name, bad):
    model = make_model("llama")
    watched = Watched(model)
    with pytest.raises(CacheMisuse, match=r"truncate can cut to any length.*got " + ("none" if bad is None else ".*Cache")):
        speculate(model, PROMPT, draft=model, max_new_tokens=4, **{name: bad})
    assert watched.read == []


def test_a_cache_that_claims_to_rewind_is_believed_and_one_that_does_not_is_not():
    class Held(GrowingCache):
        rewinds = False

    model = make_model("gpt")
    cache = Held()
    model(random_ids(1, 3), cache=cache)
    before = snapshot(cache, 3)
    with pytest.raises(CacheMisuse, match="Held"):
        speculate(model, PROMPT, draft=model, max_new_tokens=4, cache=cache)
    assert snapshot(cache, 3) == before


def bad_calls() -> dict[str, tuple[dict, type, str]]:
    model = make_model("gpt")
    held = make_cache("growing", model)
    model(random_ids(1, 3), cache=held)
    one = GrowingCache()
    small = make_model("gpt", context_length=8)
    return {
        "no guesses": ({"n_draft": 0}, InputError, "1 or more"),
        "True guesses": ({"n_draft": True}, InputError, "1 or more"),
        "half a guess": ({"n_draft": 1.5}, InputError, "1 or more"),
        "no new tokens": ({"max_new_tokens": 0}, InputError, "Nothing to generate"),
        "two prompts": ({"prompt_ids": [PROMPT, PROMPT]}, InputError, "one prompt"),
        "empty prompt": ({"prompt_ids": []}, InputError, "empty"),
        "foreign id": ({"prompt_ids": [61]}, InputError, "0 to 60"),
        "another vocabulary": ({"draft": make_model("gpt", vocab_size=60)}, InputError, "61 token ids"),
        "one cache for both": ({"cache": one, "draft_cache": one}, InputError, "one cache for both"),
        "one cache holds more": ({"cache": held}, InputError, "holds 3 tokens"),
        "too small": ({"cache": PreallocatedCache(7)}, CacheFull, "capacity of 10"),
        "draft's too small": ({"draft_cache": PreallocatedCache(7)}, CacheFull, "capacity of 10"),
        "draft's context ends": ({"draft": small}, InputError, "ends too soon"),
        "prompt longer than the draft's context": (
            {"draft": small, "prompt_ids": list(range(9))},
            ContextOverflow,
            "at most 8",
        ),
    }


@pytest.mark.parametrize("case", bad_calls())
def test_what_cannot_be_done_is_refused_before_anything_is_computed(case):
    changes, error, words = bad_calls()[case]
    model = make_model("gpt")
    watched = Watched(model)
    arguments = {"prompt_ids": PROMPT, "draft": first_layers(model, 1), "max_new_tokens": 6} | changes
    with pytest.raises(error, match=words):
        speculate(model, arguments.pop("prompt_ids"), **arguments)
    assert watched.read == []


def test_a_cache_of_another_model_or_batch_is_refused_and_left_as_it_was():
    model = make_model("gpt")
    draft = first_layers(model, 1)
    other, wide = make_cache("growing", make_model("gpt")), make_cache("growing", model, batch_size=2)
    drafts = make_cache("growing", model)  # bound to the model, not to its draft
    for caches in ({"cache": other}, {"cache": wide}, {"draft_cache": drafts}):
        with pytest.raises(CacheMismatch):
            speculate(model, PROMPT, draft=draft, max_new_tokens=6, **caches)
        assert next(iter(caches.values())).length == 0


def test_logits_that_are_no_numbers_are_refused():
    model = make_model("gpt")
    draft = copy.deepcopy(model)
    draft.head = lambda x: torch.full((*x.shape[:-1], 61), torch.nan, dtype=x.dtype)
    cache = make_cache("growing", model)
    with pytest.raises(InputError, match="cannot be sampled"):
        speculate(model, PROMPT, draft=draft, max_new_tokens=6, cache=cache)
    assert cache.length == 0


# The judge is judged.


def test_a_decoder_that_believes_its_draft_is_seen():
    model = make_model("gpt")
    draft = first_layers(model, 1)
    believed = generate(draft, PROMPT, max_new_tokens=12).tokens
    assert believed != generate(model, PROMPT, max_new_tokens=12).tokens


def test_a_cache_with_one_row_of_a_rejected_guess_is_seen():
    model = make_model("gpt")
    cache = make_cache("growing", model)
    got = speculate(model, PROMPT, draft=first_layers(model, 1), max_new_tokens=6, cache=cache)
    text = [*PROMPT, *got.tokens[:-1]]
    cache.truncate(len(text) - 1)
    model(torch.tensor([[(text[-1] + 1) % 61]]), cache=cache)
    with pytest.raises(AssertionError, match="differs by"):
        check_rows(model, cache, text)


def test_the_result_is_plain_data():
    got = speculate(make_model("gpt"), PROMPT, draft=make_model("gpt"), max_new_tokens=3)
    assert isinstance(got, Speculation) and all(type(i) is int for i in got.tokens)
    assert not isinstance(got.tokens, Tensor)
