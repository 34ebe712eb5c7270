"""The record of how far a learner is: written in one step, and read whatever became of it."""

import json
import os
import subprocess
import sys
import time

import pytest

from kvcourse.checks.progress import RECORD, ProgressRow, as_text, digest, forget, hint_given, note, note_hint, progress_table
from kvcourse.checks.registry import EXERCISES

TASKS = [task for exercise in EXERCISES for task in exercise.tasks]


def row(folder, task) -> ProgressRow:
    return next(row for row in progress_table(folder) if row.task == task)


def test_an_empty_folder_has_a_row_for_every_task(tmp_path):
    rows = progress_table(tmp_path)
    assert [one.task for one in rows] == [task.name for task in TASKS]
    assert {one.state for one in rows} == {"not checked"} and sum(one.points for one in rows) == 0
    assert sum(one.max_points for one in rows) == sum(exercise.points for exercise in EXERCISES)


def test_the_last_check_of_a_task_counts_and_leaves_the_others_alone(tmp_path):
    note(tmp_path, "6.1", "passed", 8, 8)
    note(tmp_path, "6.2", "failed", 3, 7)
    assert (row(tmp_path, "6.1").points, row(tmp_path, "6.2").says) == (3, "3 of 7 hold")
    note(tmp_path, "6.1", "not started", 0, 8)
    assert row(tmp_path, "6.1").state == "not started" and row(tmp_path, "6.1").points == 0
    assert row(tmp_path, "6.2").state == "failed"


@pytest.mark.parametrize(
    ("state", "says"), [("missing", "no answer"), ("did not run", "did not run"), ("took too long", "took too long")]
)
def test_an_answer_that_is_gone_or_does_not_run_no_longer_counts(tmp_path, state, says):
    note(tmp_path, "6.1", "passed", 8, 8)
    note(tmp_path, "6.1", state, 0, 0)
    assert (row(tmp_path, "6.1").points, row(tmp_path, "6.1").says) == (0, says)


MASK = "def my_mask(past, T):\n    return 1\n"


@pytest.mark.parametrize(
    ("now", "later", "changed"),
    [
        (MASK, 60, False),
        ("import torch\n\n" + MASK.replace("1", "1  # one"), 60, False),
        (MASK.replace("1", "2"), 60, True),
        ("", 60, True),
        (MASK.replace("1", "2"), -60, False),  # the notebook is open and was not saved since
        (None, 60, False),
    ],
)
def test_an_answer_that_changed_after_it_passed_is_told(tmp_path, now, later, changed):
    note(tmp_path, "6.2", "passed", 7, 7, digest(MASK, "my_mask"))
    file = tmp_path / "06_kv_cache.ipynb"
    cells = [{"cell_type": "code", "id": "answer-mask", "source": now}]
    file.write_text("no notebook" if now is None else json.dumps({"cells": cells}), encoding="utf-8")
    os.utime(file, (time.time() + later,) * 2)
    assert row(tmp_path, "6.2").says == ("passed, changed since" if changed else "passed")
    assert len({line.rindex(" of ") for line in as_text(progress_table(tmp_path)).split("\n") if line.startswith("  6.")}) == 1


def test_a_source_without_the_answer_has_no_digest():
    assert digest(MASK, "my_mask") and digest("x = 1", "my_mask") is None and digest("def my_mask(", "my_mask") is None


def test_what_is_forgotten_is_gone_and_all_else_stays(tmp_path):
    forget(tmp_path, ["6.1"])
    assert list(tmp_path.iterdir()) == []
    note_hint(tmp_path, "6.1", 2)
    note(tmp_path, "6.1", "passed", 8, 8)
    note(tmp_path, "6.2", "passed", 7, 7)
    note_hint(tmp_path, "6.2", 1)
    forget(tmp_path, ["6.1"])
    assert (row(tmp_path, "6.1").state, hint_given(tmp_path, "6.1")) == ("not checked", 0)
    assert (row(tmp_path, "6.2").state, hint_given(tmp_path, "6.2")) == ("passed", 1)


@pytest.mark.parametrize("hints", [3, {"6.1": "2"}, {"6.1": -1}, [1]])
def test_hints_of_another_kind_are_none(tmp_path, hints):
    (tmp_path / RECORD).write_text(json.dumps({"tasks": {}, "hints": hints}), encoding="utf-8")
    assert hint_given(tmp_path, "6.1") == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"tasks": 3}', '{"tasks": {"6.1": 7}}', '{"tasks": {"6.1": {"state": "passed"}}}',
     '{"tasks": {"6.1": {"state": "done", "held": 1, "properties": 1}}}',
     '{"tasks": {"6.1": {"state": ["passed"], "held": 1, "properties": 1}}}',
     '{"tasks": {"6.1": {"state": "passed", "held": "8", "properties": 8}}}',
     '{"tasks": {"6.1": {"state": "passed", "held": 8, "properties": 8, "answer": "ab"}}}', "[" * 100_000],
)  # fmt: skip
def test_a_record_that_was_torn_or_edited_is_read_as_far_as_it_makes_sense(tmp_path, text):
    (tmp_path / RECORD).write_text(text, encoding="utf-8")
    assert row(tmp_path, "6.1").state == "not checked"
    note(tmp_path, "6.2", "passed", 7, 7)
    assert row(tmp_path, "6.2").state == "passed"
    assert json.loads((tmp_path / RECORD).read_text(encoding="utf-8"))["tasks"].keys() == {"6.2"}


def test_a_record_of_bytes_that_are_no_text_is_read_as_none(tmp_path):
    (tmp_path / RECORD).write_bytes(b"\xff\xfe{}")
    assert row(tmp_path, "6.1").state == "not checked"


def test_every_cut_of_a_record_leaves_it_readable(tmp_path):
    for task in ("6.1", "6.2", "6.3"):
        note(tmp_path, task, "passed", 5, 5)
    whole = (tmp_path / RECORD).read_bytes()
    for length in range(len(whole) - 1):
        (tmp_path / RECORD).write_bytes(whole[:length])
        assert {one.state for one in progress_table(tmp_path)} <= {"passed", "not checked"}


def test_a_record_is_replaced_in_one_step_and_leaves_nothing_else_behind(tmp_path, monkeypatch):
    note(tmp_path, "6.1", "passed", 8, 8)
    before = (tmp_path / RECORD).read_bytes()

    def interrupted(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", interrupted)
    note(tmp_path, "6.1", "failed", 1, 8)
    assert (tmp_path / RECORD).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [RECORD]


def test_a_folder_that_cannot_be_written_to_costs_no_check(tmp_path):
    note(tmp_path / "missing", "6.1", "passed", 8, 8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("folder", "kept"), [("exercises", False), ("solutions", False), ("work", True)])
def test_nothing_is_kept_in_the_tracked_folders_of_a_clone(tmp_path, folder, kept):
    (tmp_path / "sources").mkdir()
    (tmp_path / folder).mkdir()
    note(tmp_path / folder, "6.1", "passed", 8, 8)
    assert (tmp_path / folder / RECORD).exists() is kept


def test_the_table_is_plain_and_aligned(tmp_path):
    note(tmp_path, "6.1", "failed", 3, 8)
    lines = as_text(progress_table(tmp_path)).split("\n")
    start = lines.index("06_kv_cache")
    assert lines[0] == EXERCISES[0].file and lines[start + 1].split() == [
        "6.1",
        "append",
        "3",
        "of",
        "8",
        "hold",
        "0",
        "of",
        "3",
    ]
    assert len({line.rindex(" of ") for line in lines if line.startswith("  6.")}) == 1


@pytest.mark.parametrize("module", ["registry", "exercise", "progress", "notebook", "ex06.hints"])
def test_what_the_command_line_needs_of_the_checks_loads_no_torch(module):
    code = f"import sys, kvcourse.checks, kvcourse.checks.{module}; print({{'torch', 'nbformat'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


def test_progress_is_the_function_whatever_was_imported_before():
    code = (
        "import kvcourse.checks.progress\nfrom kvcourse.checks import progress\nfrom kvcourse.checks.progress import note\n"
        "print(callable(progress), callable(note))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "True True\n"
