"""What the shipped model reads: facts in its window are answered, and without them it can only guess."""

import subprocess
import sys

import pytest
import torch
from helpers import shape_checks

from kvcourse import GrowingCache, load_model
from kvcourse.caches.base import Plan
from kvcourse.corpus import Conversation
from kvcourse.errors import InputError
from kvcourse.recall import held_out, mask_without_fact, measure_recall, token_ids
from kvcourse.tiny import TINY_WEIGHTS


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny")


def test_at_least_95_percent_of_held_out_questions_are_answered(tiny, full_counts):
    count = 200 if full_counts else 20
    found = measure_recall(
        tiny, [one for n in range(3, 10) for order in ("mixed", "told first") for one in held_out(n, count, order)]
    )
    assert found.asked == 84 * count and found.share >= 0.95, found


def test_the_whole_context_is_read(tiny, full_counts):
    """Conversations with so much idle talk that they fill the window: answers in its last quarter, facts half a window away."""
    long = held_out(4, 300 if full_counts else 60, idle_turns=44)
    late = [Conversation(one.words, tuple(q for q in one.questions if 384 <= q.answer <= 512)) for one in long]
    far = [Conversation(one.words, tuple(q for q in one.questions if 256 <= q.answer - q.fact[0] <= 512)) for one in long]
    for name, some, least in (("everything", long, 0.95), ("late", late, 0.9), ("far", far, 0.9)):
        found = measure_recall(tiny, [one for one in some if one.questions])
        assert found.asked > 50 and found.share >= least, (name, found)


def test_with_a_fact_hidden_from_the_start_recall_falls_to_chance(tiny, full_counts):
    found = measure_recall(tiny, held_out(8, 250 if full_counts else 60), "from the start")
    assert abs(found.share - found.chance) <= 0.05, found


def test_hiding_a_fact_is_what_leaving_its_rows_out_of_a_cache_does(tiny):
    """The mask of `measure_recall` against a cache from which the fact's rows were cut."""
    model = load_model("tiny", dtype=torch.float64)
    for one in held_out(2, 6):
        q = one.questions[0]
        ids = torch.tensor([token_ids(model, one)])
        positions = torch.arange(q.answer)
        for hide, since in (("before the question", q.turn), ("before the answer", q.reply)):
            cache = GrowingCache()
            model(ids[:, :since], cache=cache)
            logits = _continue_without(model, ids[:, since : q.answer], cache, q.fact)
            plan = Plan(positions, positions, mask_without_fact(positions, q, hide))
            assert torch.allclose(logits, model.compute(ids[:, : q.answer], plan, None)[0, -1], atol=1e-9)


def _continue_without(model, tokens, cache, fact):
    """Logits after `tokens`, on a cache whose rows of the fact have been overwritten with what no query looks at."""
    keep = [slot for slot in range(cache.length) if not fact[0] <= slot < fact[1]]
    plan = cache.plan(tokens.shape[1])
    rest = [*keep, *range(cache.length, cache.length + tokens.shape[1])]
    mask = plan.mask if plan.mask is not None else torch.ones(1, cache.length + 1, dtype=torch.bool)
    cut = GrowingCache()
    cut.bind(model, 1, model.dtype, model.device)
    for layer in range(model.config.n_layer):
        rows = cache.read(layer, 0, cache.length)
        cut.append(layer, rows.keys[:, :, keep], rows.values[:, :, keep])
    cut.advance(len(keep))
    shorter = type(plan)(plan.query_positions, plan.key_positions[rest], mask[:, rest])
    return model.compute(tokens, shorter, cut)[0, -1]


def test_a_question_past_the_context_is_not_asked_and_nothing_to_ask_is_an_error(tiny):
    with shape_checks(False), pytest.raises(InputError, match=r"Expected from the start, .*; got sometimes"):
        measure_recall(tiny, held_out(2, 1), "sometimes")
    with pytest.raises(InputError, match="Nothing to ask"):
        measure_recall(tiny, [Conversation(("<user>", "yes", "<end>"), ())])
    one = held_out(8, 1, idle_turns=60)[0]
    inside = [q for q in one.questions if q.answer <= tiny.config.context_length]
    assert len(inside) < len(one.questions)
    for hide in (None, "from the start"):
        assert measure_recall(tiny, [one], hide).asked == len(inside)


def test_the_weights_are_small_and_are_what_the_command_measures():
    assert TINY_WEIGHTS.stat().st_size <= 4e6
    done = subprocess.run(
        [sys.executable, "-m", "kvcourse.recall", "--conversations", "6"], capture_output=True, text=True, check=True
    )
    for said in ("in the window", "from the start", "before the question", "before the answer", "chance"):
        assert said in done.stdout
