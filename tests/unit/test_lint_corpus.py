"""The corpus: every planted cause is named, and a clean log is passed over in silence."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers import small_models as small_models

from tests.lint_corpus import LOGS, make, named, planted, rates

pytestmark = pytest.mark.usefixtures("small_models")
CAUSES = {"clock", "id", "tool_order", "schema", "retrieval_order", "template", "history", "whitespace"}


def test_the_corpus_is_large_enough_and_plants_every_cause():
    truths = list(planted().values())
    assert sum(truth != "none" for truth in truths) >= 30 and truths.count("none") >= 10
    assert set(truths) == CAUSES | {"none"}
    assert min(truths.count(cause) for cause in CAUSES) >= 4, "each cause in several forms"
    assert all(path.stat().st_size < 20_000 for path in planted())


def test_both_shapes_of_request_are_in_it_and_wrapped_ones():
    texts = [path.read_text(encoding="utf-8") for path in planted()]
    assert sum('"input_schema"' in text or '"system": ' in text for text in texts) >= 8
    assert any('"request": {' in text for text in texts) and any('"body": {' in text for text in texts)


@pytest.mark.parametrize(("path", "truth"), planted().items(), ids=lambda one: one.stem if isinstance(one, Path) else "")
def test_what_was_planted_is_named_and_nothing_else(path, truth):
    assert named(path) == truth


def test_precision_and_recall_are_one():
    assert rates([(truth, named(path)) for path, truth in planted().items()]) == (1.0, 1.0)


def test_rates_count_a_false_alarm_and_a_miss():
    assert rates([("clock", "clock"), ("none", "id"), ("id", "none"), ("id", "clock")]) == (1 / 3, 1 / 3)


def test_the_generator_writes_the_very_files_that_are_here(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "LOGS", tmp_path)
    make.main()
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in LOGS.glob("*--made-*.jsonl")}


def test_one_command_prints_precision_and_recall():
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-m", "tests.lint_corpus"], capture_output=True, text=True, cwd=root, check=True)
    assert "precision 1.000, recall 1.000" in run.stdout
