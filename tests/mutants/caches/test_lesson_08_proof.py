"""Lesson 08's proofs must fail when the cache is wrong: the notebook's own cells are run against faulty caches."""

from pathlib import Path

import pytest
import torch

from kvcourse.caches.base import KeysValues
from kvcourse.caches.quantized import QuantizedCache
from kvcourse.caches.sliding import SlidingCache
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "lessons" / "08_smaller_cache.py").cells}
BAND, MEMORY, RING, SINKS = OF_WINDOWS = "proof-window", "constant", "ring-package", "proof-sinks"
CODES, BOUND = OF_ROUNDING = "same-codes", "bound"


class OneTooMany(SlidingCache):
    """A query sees a key more, where it is still there."""

    def _sees(self, queries, keys):
        return super()._sees(queries - 1, keys) | (keys == queries)


class OneTooFew(SlidingCache):
    def _sees(self, queries, keys):
        return super()._sees(queries, keys) & ((keys > queries - self.window + 1) | (keys == queries))


class NoWindowInAPass(SlidingCache):
    """Tokens of one pass see all of it."""

    def _sees(self, queries, keys):
        return (keys >= 0) & (keys <= queries)


class SlotsInTheOrderOfTheText(SlidingCache):
    """The plan says that slots are in order, and rows are where the ring puts them."""

    def _tokens_in_slots(self, n_slots, length):
        return super()._tokens_in_slots(n_slots, length).sort().values


class PlacesInTheText(SlidingCache):
    """Kept tokens stand where they stood in the text, not among those kept."""

    def _place(self, tokens, last):
        return tokens


class MasksAndKeepsAll(SlidingCache):
    """A window in the mask, and every row kept: memory grows for ever."""

    @property
    def nbytes(self):
        return super().nbytes * max(1, self.length // self.window)


class JudgedPerPass(QuantizedCache):
    """Rounds what a pass brings, or not, by the size of the pass: tokens one by one are never rounded."""

    def _commit(self, T):
        if T >= self.group_tokens:
            super()._commit(T)


class BoastsOfFinerSteps(QuantizedCache):
    """States half the error that it has."""

    def half_step(self, layer):
        keys, values = super().half_step(layer)
        return KeysValues(keys / 2, values / 2)


class RoundsAtOnce(QuantizedCache):
    """Leaves no residual."""

    def __init__(self, bits=8, group_tokens=4, residual_tokens=0, starts=None):
        super().__init__(bits, group_tokens, residual_tokens, starts)


@pytest.fixture(scope="module")
def lesson():
    """The lesson's names as they are when its proofs begin. The real model is not needed."""
    before, names = torch.is_grad_enabled(), {}
    exec(CELLS["imports"].replace('smollm2 = load_model("smollm2")', "").replace("config = smollm2.config", ""), names)
    for cell in ("ring", "band-mask", "small"):
        exec(CELLS[cell], names)
    yield names
    torch.set_grad_enabled(before)


def failing(lesson: dict, sliding: type = SlidingCache, quantized: type = QuantizedCache) -> set[str]:
    """Which proof cells fail when these stand where the package's caches were."""
    names, failed = {**lesson, "SlidingCache": sliding, "QuantizedCache": quantized}, set()
    exec(CELLS["from-scratch"], names)  # its functions shall find these caches
    for cell in OF_WINDOWS * (quantized is QuantizedCache) + OF_ROUNDING * (sliding is SlidingCache):
        try:
            exec(CELLS[cell], names)
        except Exception:
            failed.add(cell)
    return failed


def test_the_package_passes_every_proof_cell(lesson):
    assert failing(lesson) == set()


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (OneTooMany, {BAND}),
        (OneTooFew, {BAND, SINKS}),
        (NoWindowInAPass, {BAND}),
        (SlotsInTheOrderOfTheText, {BAND, SINKS}),
        (PlacesInTheText, {SINKS}),
        (MasksAndKeepsAll, {MEMORY}),
    ],
    ids=lambda it: it.__name__ if isinstance(it, type) else "",
)
def test_a_faulty_window_fails_exactly_the_cells_that_can_see_it(lesson, kind, cells):
    assert failing(lesson, sliding=kind) == cells


@pytest.mark.parametrize(
    ("kind", "cells"),
    [(JudgedPerPass, {CODES}), (BoastsOfFinerSteps, {BOUND}), (RoundsAtOnce, {CODES, BOUND})],
    ids=lambda it: it.__name__ if isinstance(it, type) else "",
)
def test_a_faulty_rounding_fails_exactly_the_cells_that_can_see_it(lesson, kind, cells):
    assert failing(lesson, quantized=kind) == cells
