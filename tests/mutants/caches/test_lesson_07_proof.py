"""Lesson 07's proofs must fail when the cache is wrong: the notebook's own cells are run against faulty caches."""

from pathlib import Path

import pytest
import torch
from faulty_caches import (
    NegativeTruncates,
    NoMaskWithPast,
    PositionsRestart,
    TopLeftMask,
    ValuesNotAppended,
    ZeroKeepsAll,
    broken,
)

from kvcourse.caches.preallocated import PreallocatedCache
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "lessons" / "07_fast_cache.py").cells}
PROOF, EVERYWHERE, TABLE = "proof", "truncate-everywhere", "truncate-table"


class WholeBuffer(PreallocatedCache):
    """Hands out every slot."""

    def _write(self, layer, k, v):
        super()._write(layer, k, v)
        return self._buffers[layer]


class HighWater(PreallocatedCache):
    """Hands out every slot that has ever been written."""

    top = 0

    def _write(self, layer, k, v):
        super()._write(layer, k, v)
        self.top = max(self.top, self.length + k.shape[2])
        return type(self._buffers[layer])(*(rows[:, :, : self.top] for rows in self._buffers[layer]))


class Truncates(PreallocatedCache):
    """Takes any length for a length."""

    def truncate(self, length):
        self.length = length


@pytest.fixture(scope="module")
def lesson():
    """The lesson's names as they are when its proof begins. The real model is not needed."""
    before, names = torch.is_grad_enabled(), {}
    exec(CELLS["imports"].replace('smollm2 = load_model("smollm2")', ""), names)
    for cell in ("fixed-cache", "logits-in-calls"):
        exec(CELLS[cell], names)
    yield names
    torch.set_grad_enabled(before)


def failing(lesson: dict, kind: type) -> set[str]:
    """Which proof cells fail when `kind` stands where the package's PreallocatedCache was."""
    names, failed = {**lesson, "PreallocatedCache": kind}, set()
    for cell in (PROOF, EVERYWHERE, TABLE):
        try:
            exec(CELLS[cell], names)
        except Exception:
            failed.add(cell)
    return failed


def test_the_package_passes_every_proof_cell(lesson):
    assert failing(lesson, PreallocatedCache) == set()


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (broken(PositionsRestart, PreallocatedCache), {PROOF, EVERYWHERE}),
        (broken(TopLeftMask, PreallocatedCache), {PROOF, EVERYWHERE}),
        (broken(NoMaskWithPast, PreallocatedCache), {PROOF, EVERYWHERE}),
        (broken(ValuesNotAppended, PreallocatedCache), {PROOF, EVERYWHERE, TABLE}),
        (broken(ZeroKeepsAll, PreallocatedCache), {EVERYWHERE, TABLE}),
        (broken(NegativeTruncates, PreallocatedCache), {TABLE}),
        (WholeBuffer, {PROOF, EVERYWHERE, TABLE}),
        (HighWater, {EVERYWHERE}),
        (Truncates, {TABLE}),
    ],
    ids=lambda it: it.__name__ if isinstance(it, type) else "",
)
def test_a_fault_fails_exactly_the_cells_that_can_see_it(lesson, kind, cells):
    assert failing(lesson, kind) == cells
