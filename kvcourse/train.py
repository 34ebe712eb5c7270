"""Lesson 03: trains the course's own models on conversations made by rule. Knows nothing about caches or generation.

    python -m kvcourse.train                  the model that `load_model("tiny")` loads, in eight minutes on two cores
    python -m kvcourse.train --small          lesson 03's, in about a minute on two cores

Reading is harder to learn than speaking, and four things make it possible within minutes. Nearly all of the loss lies on the
words that only a fact tells: the others are learned within a few steps, and drown the few that matter. The first stage says
"ana garden ." again and again, so that a name and its place stand side by side and half of all words can be predicted; each
later stage moves them one word apart, and then come more facts and real questions. Positions begin as waves, so that "one
token ago" looks alike everywhere. And matrices are updated by Muon, with which copying heads form several times sooner.
"""

import argparse
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from kvcourse.attention import causal_mask
from kvcourse.caches.base import Plan
from kvcourse.config import GPTConfig
from kvcourse.corpus import FACT_WORDS, IDLE_WORDS, LINK_WORDS, Conversation, Order, make_conversation
from kvcourse.errors import CheckpointError
from kvcourse.models.gpt import GPT
from kvcourse.recall import held_out, measure_recall
from kvcourse.tiny import TINY_SHAPE, tiny_tokenizer

OTHER_WORDS = 0.02  # their weight in the loss, where a word that only a fact tells weighs 1
LOOK_QUESTIONS = 240  # asked at each look at recall
ORDERS: tuple[Order, ...] = ("retold", "recap", "told first", "mixed")
TOKENIZER = tiny_tokenizer()
SHORT_TOKENS = 128  # where training starts: no idle talk, few positions
MUON_RATE = 0.02  # learning rate of matrices; everything else has the recipe's, with AdamW


class Stage(NamedTuple):
    """What is practised for a while: conversations of at most n_facts facts, in sentences with so many link words."""

    n_facts: int
    link_words: int
    reach: int  # positions in use (tokens): a short text begins anywhere below, so that all of them are trained
    orders: tuple[int, ...] = (2, 1, 1, 1)  # how often each of ORDERS, in proportion
    filled: float = 0.5  # share of batches in which idle talk fills half of `reach`, up to all of it


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what comes out of a training run."""

    config: GPTConfig
    stages: tuple[Stage, ...]
    steps: int  # at most so many in each stage
    last_steps: int  # and so many in the last one, in which the learning rates fall to zero
    enough: float = 0.85  # recall at which a stage ends early
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    seed: int = 0
    look_every: int = 50  # steps between two looks at recall

    def steps_of(self, stage: int) -> int:
        return self.last_steps if stage == len(self.stages) - 1 else self.steps

    @property
    def most_steps(self) -> int:
        return sum(self.steps_of(stage) for stage in range(len(self.stages)))


_LONGER = tuple(Stage(6, link_words, SHORT_TOKENS) for link_words in range(LINK_WORDS + 1))
_FARTHER = Stage(9, 3, 256), Stage(12, 3, 384), Stage(9, 3, 512)
_CHAT = Stage(10, 3, 512, orders=(0, 0, 1, 2), filled=0.75)  # as the model will be used
TINY = Recipe(TINY_SHAPE, (*_LONGER, *_FARTHER, _CHAT), 500, 800, enough=0.8)
SMALL = Recipe(replace(TINY_SHAPE, n_layer=2, context_length=128), _LONGER, 250, 150, batch_tokens=2500, look_every=20)


@dataclass
class Progress:
    """What a run has reached. `recall` and `chance` are of the last look, on conversations that training never uses."""

    step: int = 0
    stage: int = 0
    steps_in_stage: int = 0
    loss: float = math.nan
    recall: float = 0.0
    chance: float = 0.0
    done: bool = False
    losses: list[float] = field(default_factory=list)
    recalls: list[tuple[int, float]] = field(default_factory=list)  # (step, recall)


@dataclass
class Batch:
    """Conversations side by side, padded on the right; `weights` says how much each next token counts."""

    tokens: Int[Tensor, "B T"]
    weights: Float[Tensor, "B T-1"]


def draw_model(recipe: Recipe) -> GPT:
    """A new model, seeded. Token vectors are larger than GPT-2's, as there are few; positions begin as waves of all lengths
    from 2 tokens up, so that a step back is one rotation wherever it is taken. Training changes all of them.

    Source: Vaswani et al. 2017, section 3.5; there lengths grow geometrically, and few are short enough to tell neighbours.
    """
    torch.manual_seed(recipe.seed)
    model = GPT(recipe.config)
    C, length = recipe.config.n_embd, recipe.config.context_length
    angles = torch.arange(length)[:, None] * torch.linspace(0.02, 3.1, C // 2)  # (S, C / 2)
    with torch.no_grad():
        model.transformer.wpe.weight.copy_(0.084 * torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))
        model.transformer.wte.weight.mul_(3)
        for matrix in _matrices(model.transformer.h):
            matrix.mul_(2)  # GPT-2's 0.02 is meant for 768 numbers a token
    model.tokenizer = TOKENIZER
    return model


def make_batch(rng: random.Random, recipe: Recipe, stage: int) -> Batch:
    """Conversations about as many facts and of one order, `batch_tokens` in all, more or less."""
    most_facts, link_words, reach, orders, filled = recipe.stages[stage]
    n_facts = rng.randint(3, most_facts)
    if 0 < link_words < LINK_WORDS and rng.random() < 0.4:
        link_words = rng.randint(0, link_words - 1)  # what came before is not forgotten
    order = rng.choices(ORDERS, weights=orders)[0] if stage else "retold"
    room = max(0, reach - FACT_WORDS * n_facts) // IDLE_WORDS  # turns about nothing that would fill the context
    idle_turns = rng.randint(room // 2, room) if reach > SHORT_TOKENS and rng.random() < filled else 0

    def one() -> Conversation:
        return make_conversation(rng, n_facts, order, link_words=link_words, idle_turns=idle_turns)

    first = one()
    rows = max(4, recipe.batch_tokens // len(first.words))
    return pad([first, *(one() for _ in range(rows - 1))], recipe.config.context_length)


def _matrices(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.dim() == 2]


def pad(conversations: list[Conversation], most_tokens: int) -> Batch:
    """The first `most_tokens` tokens of each conversation, one row each."""
    T = min(max(len(one.words) for one in conversations), most_tokens)
    tokens = torch.zeros(len(conversations), T, dtype=torch.int64)
    weights = torch.zeros(len(conversations), T)
    for row, one in enumerate(conversations):
        n = min(len(one.words), T)
        tokens[row, :n] = torch.tensor(TOKENIZER.encode(" ".join(one.words[:n]), special=True))
        weights[row, :n] = OTHER_WORDS
        weights[row, [question.answer for question in one.questions if question.answer < T]] = 1.0
    return Batch(tokens, weights[:, 1:])


def weighted_loss(model: GPT, batch: Batch, first_position: int = 0) -> Float[Tensor, ""]:
    """Cross entropy of the next tokens (nats), averaged with the batch's weights. Positions begin at `first_position`."""
    inputs, targets = batch.tokens[:, :-1], batch.tokens[:, 1:]
    positions = first_position + torch.arange(inputs.shape[1])
    logits = model.compute(inputs, Plan(positions, positions, causal_mask(positions, positions)), None)  # (B, T - 1, V)
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")  # (B·(T - 1),)
    return (losses * batch.weights.flatten()).sum() / batch.weights.sum()


class Run:
    """One training run: a model, its optimizers, and how far they are. `step()` until `progress.done`."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.progress = recipe, Progress()
        self.model = draw_model(recipe)
        matrices = _matrices(self.model.transformer.h)
        others = [p for p in self.model.parameters() if all(p is not matrix for matrix in matrices)]
        self.optimizers: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0, momentum=0.95),
            torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01),
        )

    def step(self) -> Progress:
        """One batch, one update; now and then a look at recall, which may end a stage."""
        recipe, progress = self.recipe, self.progress
        progress.step += 1
        progress.steps_in_stage += 1
        rng = random.Random(f"{recipe.seed}/{progress.step}")  # one a step: a resumed run goes on as the whole one would
        batch = make_batch(rng, recipe, progress.stage)
        room = max(1, recipe.stages[progress.stage].reach - batch.tokens.shape[1] + 1)
        loss = weighted_loss(self.model, batch, rng.randrange(room))
        self.model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, (MUON_RATE, recipe.learning_rate), strict=True):
            optimizer.param_groups[0]["lr"] = rate * self._warmth()
            optimizer.step()
        progress.loss = loss.item()
        progress.losses.append(progress.loss)
        if progress.step % recipe.look_every == 0 or self._stage_is_over():
            self._look()
        return progress

    def _last(self) -> bool:
        return self.progress.stage == len(self.recipe.stages) - 1

    def _warmth(self) -> float:
        """The learning rates' factor: up in 50 steps, level, and down along half a cosine in the last stage."""
        up = min(1.0, self.progress.step / 50)
        if not self._last():
            return up
        return up * (0.51 + 0.49 * math.cos(math.pi * self.progress.steps_in_stage / self.recipe.last_steps))

    def _stage_is_over(self) -> bool:
        return self.progress.steps_in_stage >= self.recipe.steps_of(self.progress.stage)

    def _look(self) -> None:
        progress = self.progress
        n_facts, link_words, *_ = self.recipe.stages[progress.stage]
        n_facts = min(n_facts, self.recipe.config.context_length // FACT_WORDS)
        order: Order = "told first" if progress.stage else "retold"
        exam = held_out(n_facts, max(8, LOOK_QUESTIONS // n_facts), order, link_words=link_words)
        found = measure_recall(self.model, exam)
        progress.recall, progress.chance = found.share, found.chance
        progress.recalls.append((progress.step, found.share))
        if self._stage_is_over() or (found.share >= self.recipe.enough and not self._last()):
            progress.done = self._last()
            if not progress.done:
                progress.stage, progress.steps_in_stage = progress.stage + 1, 0


def train(recipe: Recipe, *, on_step: Callable[[Progress], None] | None = None, checkpoint: Path | None = None) -> GPT:
    """Train to the end of the recipe; the model comes back ready to run, with its tokenizer.

    on_step: called after every step, for a progress bar or a curve.
    checkpoint: a file to continue from if it is there, written at every look. A resumed run ends where a whole one ends.
    Raises: CheckpointError for a checkpoint of another recipe.
    """
    run = Run(recipe)
    if checkpoint is not None and checkpoint.exists():
        resume(run, checkpoint)
    run.model.train()
    while not run.progress.done:
        run.step()
        if checkpoint is not None and run.progress.recalls and run.progress.recalls[-1][0] == run.progress.step:
            save(run, checkpoint)
        if on_step is not None:
            on_step(run.progress)
    return run.model.eval().requires_grad_(False)


def save(run: Run, path: Path) -> None:
    """Everything a run needs to go on, whole or not at all."""
    new = path.with_suffix(path.suffix + ".new")
    state = {"model": run.model.state_dict(), "optimizers": [optimizer.state_dict() for optimizer in run.optimizers]}
    torch.save({**state, "progress": vars(run.progress), "recipe": repr(run.recipe)}, new)
    new.replace(path)


def resume(run: Run, path: Path) -> None:
    """Put a run where the one that wrote `path` was."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises many kinds for a file that is none
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}).", expected="a checkpoint of this script",
                              got="something else", todo="Delete it, or name another.") from error  # fmt: skip
    if state.get("recipe") != repr(run.recipe):
        raise CheckpointError(f"{path} is of another run.", expected=repr(run.recipe), got=state.get("recipe"),
                              todo="Delete it, or name another.")  # fmt: skip
    run.model.load_state_dict(state["model"])
    for optimizer, saved in zip(run.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    run.progress = Progress(**state["progress"])


def main() -> int:
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn
    from safetensors.torch import save_file

    parser = argparse.ArgumentParser(prog="python -m kvcourse.train", description="Train the course's own model.")
    parser.add_argument("--small", action="store_true", help="lesson 03's: about a minute")
    parser.add_argument("--out", type=Path, default=Path("tiny.safetensors"), help="where the trained weights go")
    parser.add_argument("--checkpoint", type=Path, default=Path("tiny.checkpoint"), help="continued from, if it exists")
    options = parser.parse_args()
    recipe = SMALL if options.small else TINY
    with Bar(*Bar.get_default_columns()[:2], TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=len(recipe.stages))

        def show(progress: Progress) -> None:
            facts, share = recipe.stages[progress.stage].n_facts, progress.steps_in_stage / recipe.steps_of(progress.stage)
            said = f"{facts:2} facts, loss {progress.loss:.3f}, recall {progress.recall:.0%}"
            bar.update(task, completed=progress.stage + share, description=said)

        try:
            model = train(recipe, on_step=show, checkpoint=options.checkpoint)
        except CheckpointError as error:
            bar.stop()
            print(error, file=sys.stderr)
            return 2
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, options.out, metadata={"format": "pt"})
    options.checkpoint.unlink()
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
