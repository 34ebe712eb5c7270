"""Training: seeded, resumable, and it learns. What the shipped model knows is in test_recall.py."""

import random
from dataclasses import replace

import pytest
import torch

from kvcourse.corpus import LINK_WORDS
from kvcourse.errors import CheckpointError
from kvcourse.recall import held_out
from kvcourse.tiny import TINY_SHAPE
from kvcourse.train import (
    OTHER_WORDS,
    SMALL,
    TINY,
    Batch,
    Run,
    Stage,
    draw_model,
    make_batch,
    pad,
    resume,
    save,
    train,
    weighted_loss,
)

LITTLE = replace(
    SMALL,
    config=replace(TINY_SHAPE, n_layer=1, n_embd=16, context_length=96),
    stages=(Stage(3, 0, 96), Stage(3, 3, 96)),
    steps=4,
    last_steps=4,
    batch_tokens=256,
    look_every=2,
)


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_same_recipe_trains_the_same_model_and_another_seed_another():
    one, again, other = (weights_of(train(recipe)) for recipe in (LITTLE, LITTLE, replace(LITTLE, seed=1)))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["transformer.wte.weight"], other["transformer.wte.weight"])


def test_a_run_that_was_interrupted_ends_where_a_whole_one_ends(tmp_path):
    whole = weights_of(train(LITTLE))
    seen = []

    def interrupt(progress):
        seen.append(progress.step)
        if progress.step == 5:
            raise KeyboardInterrupt

    path = tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        train(LITTLE, on_step=interrupt, checkpoint=path)
    resumed = weights_of(train(LITTLE, on_step=lambda progress: seen.append(progress.step), checkpoint=path))
    assert seen == [1, 2, 3, 4, 5, 5, 6, 7, 8]  # step 5 was after the last checkpoint, and is done again
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_a_checkpoint_of_another_recipe_or_of_nothing_is_refused_and_nothing_changes(tmp_path):
    run, path = Run(LITTLE), tmp_path / "run.checkpoint"
    save(run, path)
    other = Run(replace(LITTLE, seed=7))
    before = weights_of(other.model)
    with pytest.raises(CheckpointError, match="another run"):
        resume(other, path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read"):
        resume(other, path)
    assert all(torch.equal(before[name], tensor) for name, tensor in other.model.state_dict().items())


def test_the_loss_lies_on_the_words_that_only_a_fact_tells():
    conversations = held_out(3, 4)
    batch = pad(conversations, 512)
    for row, one in enumerate(conversations):
        heavy = [q.answer - 1 for q in one.questions]
        assert torch.nonzero(batch.weights[row] == 1).flatten().tolist() == sorted(heavy)
        n = len(one.words) - 1
        assert sorted({round(weight, 6) for weight in batch.weights[row, :n].tolist()}) == [OTHER_WORDS, 1.0]
        assert not batch.weights[row, n:].any()  # padding


def test_padding_does_not_change_a_loss():
    batch = pad(held_out(3, 8), 128)
    model = draw_model(SMALL)
    loss = weighted_loss(model, batch)
    padding = batch.tokens == 0  # token 0, "<text>", is in no conversation
    assert padding.any()
    batch.tokens[padding] = 3
    assert torch.allclose(weighted_loss(model, batch), loss)


def test_a_text_that_begins_at_position_20_reads_the_vectors_from_position_20_on():
    batch = make_batch(random.Random(0), LITTLE, 0)
    model = draw_model(LITTLE)
    shifted = draw_model(LITTLE)
    with torch.no_grad():
        shifted.transformer.wpe.weight.copy_(model.transformer.wpe.weight.roll(-20, dims=0))
    length = 96 - 20
    batch = Batch(batch.tokens[:, :length], batch.weights[:, : length - 1])
    assert torch.allclose(weighted_loss(model, batch, first_position=20), weighted_loss(shifted, batch))
    assert not torch.allclose(weighted_loss(model, batch, first_position=20), weighted_loss(model, batch))


def test_recipes_go_from_short_sentences_to_questions_and_to_the_whole_context():
    assert TINY.config == TINY_SHAPE
    for recipe in (TINY, SMALL):
        assert recipe.stages[0].link_words == 0 and recipe.stages[-1].link_words == LINK_WORDS
        assert recipe.stages[-1].reach == recipe.config.context_length
        rng = random.Random(0)
        longest = max(make_batch(rng, recipe, len(recipe.stages) - 1).tokens.shape[1] for _ in range(20))
        assert longest >= 0.9 * recipe.config.context_length


def test_a_few_steps_lower_the_loss():
    run = Run(replace(LITTLE, stages=(Stage(3, 0, 96),), last_steps=60, learning_rate=0.02, look_every=60))
    losses = [run.step().loss for _ in range(60)]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
