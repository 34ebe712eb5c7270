"""The zoo: each broken cache differs from right ones in exactly the symptoms that its fault should show, and no two alike."""

from functools import cache

import pytest
import torch

from kvcourse.errors import InputError
from kvcourse.zoo import HEALTHY, SPECIMENS, Specimen, symptoms
from kvcourse.zoo.bodies import compared, right_logits, small_model, texts

ONE, SINGLE, FOUR = "one pass", "one token at a time", "4 tokens at a time"
COUNT, PAST, FUTURE = (
    "tokens computed for 12, one at a time",
    "a change of token 0 shows at token 4",
    "a change of token 5 shows at token 4",
)
RESET, CUT, ZERO = "a second text, after reset", "cut back to 5, another end", "cut back to 0, another text"
FORK, PARENT, MOVED = "a fork, another end", "its parent afterwards", "rows read out, put into another"
PADDED = "two texts, one padded"
BYTES, WINDOW = "bytes after one pass and after single steps", "bytes at a window's end, and as many tokens later"
FULL = "one token more than its capacity"
EVERYWHERE = (RESET, CUT, ZERO, FORK, PARENT, MOVED, PADDED)

# What is seen of each fault, and of nothing else anything but what is right.
SHOWN = {
    "reset keeps the length": {RESET: "off from 0"},
    "square mask": {FOUR: "off from 4", PAST: "no", PADDED: "off from 1"},
    "mask at the left": {FOUR: "off from 4"},
    "sees the future": {ONE: "off from 0", FOUR: "off from 0", FUTURE: "yes", RESET: "off from 0"},
    "positions restart": {
        SINGLE: "off from 1", FOUR: "off from 4", CUT: "off from 5", FORK: "off from 5", PARENT: "off from 5",
        MOVED: "off from 7",
    },
    "rows cast": dict.fromkeys((ONE, SINGLE, FOUR, *EVERYWHERE), "nearly equal"),
    "memory grows": {WINDOW: "6144 and 12288"},
    "never used": {COUNT: 78, CUT: "refused", MOVED: "0 rows"},
    "layers scrambled": {
        SINGLE: "off from 4", FOUR: "off from 4", CUT: "off from 5", FORK: "off from 8", PARENT: "off from 8",
        MOVED: "off from 7",
    },
    "padding leaks": {PADDED: "off from 0"},
    "zero keeps all": {ZERO: "off from 0"},
    "no overflow check": {FULL: "stops: RuntimeError"},
    "fork shares rows": {FORK: "off from 8"},
    "rounded per call": {BYTES: "4096 and 6144"},
    "window off by one": {ONE: "off from 11", FOUR: "off from 11", PADDED: "off from 11"},
    "resumed off by one": {MOVED: "off from 7"},
    "namespace ignored": {"another namespace: found": 11},
    "believed by its hash": {"8 texts, one after another": "off from 8", "another namespace: found": 8},
    "hit by reference": {"a second hit, the first one written on": "off from 11"},
    "stale weights": {"after an update of the weights: found": 11},
    "nothing left to compute": {
        "the same text again: found": "stops: InputError",
        "the same text again": "stops: InputError",
        "a second hit, the first one written on": "stops: InputError",
    },
}  # fmt: skip
EVERY_SPECIMEN = pytest.mark.parametrize("one", SPECIMENS, ids=lambda one: one.fault)


observed = cache(symptoms)  # once for each way to make one


def wrong_readings(make) -> dict[str, str | int]:
    return {one.what: one.seen for one in observed(make).observations if not one.is_right}


def test_there_are_at_least_twelve_and_each_has_a_letter_a_key_a_source_and_a_sentence():
    assert len(SPECIMENS) >= 12
    assert [one.name for one in SPECIMENS] == [chr(ord("A") + place) for place in range(len(SPECIMENS))]
    for said in ("name", "fault", "source", "told"):
        assert len({getattr(one, said) for one in SPECIMENS}) == len(SPECIMENS) or said == "source"
        assert all(getattr(one, said) for one in SPECIMENS)
    assert set(SHOWN) == {one.fault for one in SPECIMENS}


@EVERY_SPECIMEN
def test_a_specimen_shows_its_fault_and_nothing_else(one: Specimen):
    assert wrong_readings(one.make) == SHOWN[one.fault]


def test_no_two_specimens_have_the_same_chart():
    shown = [frozenset(wrong_readings(one.make).items()) for one in SPECIMENS]
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_right_cache_of_every_kind_shows_nothing(kind):
    assert wrong_readings(HEALTHY[kind]) == {}


def test_a_chart_is_the_same_each_time():
    for one in SPECIMENS[1:9:2]:
        assert str(symptoms(one.make)) == str(observed(one.make))


@pytest.mark.parametrize("made", [5, None, object], ids=repr)
def test_what_is_no_cache_has_no_chart(made):
    with pytest.raises(InputError, match="no cache to observe") as caught:
        symptoms(lambda model, capacity: made)
    assert caught.value.todo


@EVERY_SPECIMEN
def test_a_chart_marks_what_is_wrong(one: Specimen):
    chart = observed(one.make)
    assert str(chart).count("<-") == len(chart.wrong) == len(SHOWN[one.fault])
    assert len(str(chart).splitlines()) == len(chart.readings) + 1


@EVERY_SPECIMEN
def test_a_specimen_is_of_the_capacity_that_was_asked_for_and_serves_any_model(one: Specimen):
    model = small_model(seed=3)
    for capacity in (16, 32):
        made = one.make(model, capacity)
        if one.kind == "prefix":
            assert made.max_bytes == capacity * made.token_bytes
        else:
            assert made.capacity in (None, capacity) and made.window in (None, capacity)
            logits = model(torch.tensor(texts(1, 8)), cache=made)
            assert logits.shape == (1, 8, model.config.vocab_size)


@EVERY_SPECIMEN
def test_a_specimen_is_one_method_or_two_away_from_a_right_cache(one: Specimen):
    kind = type(one.make(small_model(), 16))
    if one.fault != "layers scrambled":  # no kind of ours grows by resizing, so this one is a kind of its own
        changed = [name for name in vars(kind) if callable(vars(kind)[name])]
        assert kind.__module__.startswith("kvcourse.zoo") and len(changed) <= 2, changed
        assert not kind.__mro__[1].__module__.startswith("kvcourse.zoo")


def test_the_model_that_is_observed_on_is_sensitive_to_every_token():
    model, (ids,) = small_model(), texts(1, 12)
    right = right_logits(model, ids)
    for place in range(12):
        other = [*ids[:place], ids[place] % 40 + 1, *ids[place + 1 :]]
        assert compared(right_logits(model, other), right) == f"off from {place}"


def test_logits_are_compared_by_how_far_they_are_off():
    right = right_logits(small_model(), texts(1, 6)[0])
    for off, said in ((0, "equal"), (1e-13, "equal"), (1e-7, "nearly equal"), (0.05, "off from 3"), (9, "off from 3")):
        got = right.clone()
        got[3] += off * right.std()
        assert compared(got, right) == said
        assert compared(got, right, rounds=True) == ("close" if off == 0.05 else said)
    assert compared(torch.full_like(right, torch.nan), right, first=7) == "off from 7"


def test_a_window_of_n_keys_is_what_the_right_logits_see():
    model, (ids,) = small_model(), texts(1, 10)
    assert torch.equal(right_logits(model, ids, window=10), right_logits(model, ids))
    assert compared(right_logits(model, ids, window=9), right_logits(model, ids)) == "off from 9"
