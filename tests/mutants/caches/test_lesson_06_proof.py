"""Lesson 06's proof must fail when the cache is wrong: the notebook's own cells are run against faulty caches."""

from pathlib import Path

import pytest
from faulty_caches import (
    LengthOffByOne,
    NoMaskWithPast,
    PositionsOffByOne,
    PositionsRestart,
    ResetKeepsLength,
    SquareMask,
    TopLeftMask,
    ValuesNotAppended,
    ValuesNotWritten,
    broken,
)

from kvcourse.caches.growing import GrowingCache
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "lessons" / "06_kv_cache.py").cells}

ONE, ONES, FOURS, UNEVEN = "proof-one-pass", "proof-ones", "proof-fours", "proof-uneven"
REAL, RESET = "proof-real", "proof-reset"
PROOF = (ONE, ONES, FOURS, UNEVEN, REAL, RESET)
SEVERAL_ON_A_PAST = {FOURS, UNEVEN, REAL, RESET}  # the reset cell goes on with 3 and 4 tokens
CUT = {ONES} | SEVERAL_ON_A_PAST


@pytest.fixture(scope="module")
def lesson():
    """The lesson's names as they are when its proof begins."""
    names: dict = {}
    for cell in ("imports", "untouched", "largest-difference", "proof-text"):
        exec(CELLS[cell], names)
    return names


def failing(lesson: dict, kind: type) -> set[str]:
    """Which proof cells fail when `kind` stands where the package's GrowingCache was."""
    names, failed = {**lesson, "GrowingCache": kind}, set()
    for cell in PROOF:
        try:
            exec(CELLS[cell], names)
        except Exception:
            failed.add(cell)
    return failed


def test_the_package_passes_every_proof_cell(lesson):
    assert failing(lesson, GrowingCache) == set()


@pytest.mark.parametrize(
    ("fault", "cells"),
    [
        (PositionsRestart, CUT),
        (PositionsOffByOne, CUT),
        (SquareMask, SEVERAL_ON_A_PAST),
        (TopLeftMask, SEVERAL_ON_A_PAST),
        (NoMaskWithPast, SEVERAL_ON_A_PAST),
        (ValuesNotAppended, {ONE} | CUT),
        (ValuesNotWritten, {ONE} | CUT),
        (LengthOffByOne, CUT),
        (ResetKeepsLength, {RESET}),
    ],
)
def test_a_fault_fails_exactly_the_cells_that_can_see_it(lesson, fault, cells):
    assert failing(lesson, broken(fault, GrowingCache)) == cells
