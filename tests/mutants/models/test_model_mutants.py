"""Broken models are caught: by the proof with a true cache, or, when both ways of running are wrong alike, by the reference."""

from functools import partial

import numpy as np
import pytest
from helpers import CLAIMS, MODELS, NotExact, assert_cache_is_exact, make_empty, make_model, random_ids, uncached
from mutants.models.faulty_models import FAULTS, faulty
from reference import gpt_logits, llama_logits, weights_of

PAIRS = [(fault, kind) for fault in FAULTS for kind in fault.only]
IDS = [f"{fault.__name__}-{kind}" for fault, kind in PAIRS]


def largest_error(model, kind):
    ids = random_ids(1, 9)
    logits = gpt_logits if kind == "gpt" else llama_logits
    return np.abs(uncached(model, ids)[0].numpy() - logits(weights_of(model), model.config, ids[0].tolist())).max()


@pytest.mark.parametrize(("fault", "kind"), PAIRS, ids=IDS)
def test_a_broken_model_is_caught_by_the_claim_it_breaks(fault, kind):
    model = faulty(fault, make_model(kind))
    if fault.caught_by == "the reference":
        assert largest_error(model, kind) > 1e-2
        return
    with pytest.raises(NotExact) as caught:
        assert_cache_is_exact(partial(make_empty, "preallocated"), model)
    assert caught.value.claim == fault.caught_by, str(caught.value)


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_is_only_renamed_is_not_caught(kind):
    nothing = type("Nothing", (), {"where": "model"})
    model = faulty(nothing, make_model(kind))
    assert largest_error(model, kind) < 1e-6  # rotary angles are float32 on both sides, and their cosines rounded differently
    assert_cache_is_exact(partial(make_empty, "preallocated"), model)


def test_some_faults_need_the_reference_since_cached_and_fresh_logits_agree():
    unseen = [
        (fault, kind) for fault, kind in PAIRS if fault.caught_by == "the reference" and fault.__name__ != "SeesTheNextToken"
    ]
    assert len(unseen) >= 3
    for fault, kind in unseen:
        if fault.__name__ != "CountsFromOne":  # runs out of positions at the end of the context
            CLAIMS[0](partial(make_empty, "growing"), faulty(fault, make_model(kind)))
