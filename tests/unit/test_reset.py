"""`reset` puts one cell back, loses no text, and touches nothing else in the learner's file."""

import json
import os
import stat
from pathlib import Path

import pytest

from kvcourse.checks import work as module
from kvcourse.checks.progress import note, progress_table
from kvcourse.checks.registry import find_exercise
from kvcourse.checks.work import ASIDE, copy_of, reset_task, work_folder
from kvcourse.content import exercises_folder
from kvcourse.course import prepare_work
from kvcourse.errors import SetupError, SubmissionError, UnknownName

NAME = "06_kv_cache.ipynb"
GIVEN = json.loads((exercises_folder() / NAME).read_text(encoding="utf-8"))
ANSWER = 'def my_mask(past, T):\n    return "mine, with ümlauts"\n'


def cell(notebook: dict, cell_id: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell.get("id") == cell_id)


STUB = "".join(cell(GIVEN, "answer-mask")["source"])


@pytest.fixture(autouse=True)
def no_report(monkeypatch):
    monkeypatch.delenv(module.REPORT, raising=False)


@pytest.fixture
def work(tmp_path):
    """A work folder with an answered copy, as Jupyter saves it."""
    folder = tmp_path / "work"
    folder.mkdir()
    notebook = json.loads(json.dumps(GIVEN))
    cell(notebook, "answer-mask").update(
        source=ANSWER.splitlines(keepends=True),
        execution_count=7,
        outputs=[{"name": "stdout", "output_type": "stream", "text": ["1e-05 and ünïcode\n"]}],
    )
    cell(notebook, "answer-append")["metadata"]["scale"] = 1e-05
    save(folder, notebook)
    return folder


def save(folder: Path, notebook: dict, indent: int | None = 1, ends: str = "\n") -> bytes:
    text = json.dumps(notebook, indent=indent, ensure_ascii=False) + "\n"
    (folder / NAME).write_bytes(text.replace("\n", ends).encode())
    return (folder / NAME).read_bytes()


def load(folder: Path) -> dict:
    return json.loads((folder / NAME).read_text(encoding="utf-8"))


def aside(folder: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8") for path in (folder / ASIDE / "06_kv_cache").glob("6.2-*.py"))


@pytest.mark.parametrize("indent", [1, 2, None])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_reset_restores_one_cell_and_no_other_byte_changes(work, indent, ends):
    notebook = load(work)
    save(work, notebook, indent, ends)
    said = reset_task("6.2", work)
    cell(notebook, "answer-mask").update(source=cell(GIVEN, "answer-mask")["source"], execution_count=None, outputs=[])
    after = (work / NAME).read_bytes()
    assert after == save(work, notebook, indent, ends)
    assert "6.2 is as it was in the beginning." in said and "Reload Notebook from Disk" in said
    assert aside(work) == [ANSWER]


def test_texts_that_were_taken_out_are_never_overwritten(work):
    before = load(work)
    for _ in range(3):
        save(work, before)
        reset_task("6.2", work)
    assert aside(work) == [ANSWER] * 3


def states(folder: Path) -> list[str]:
    return [row.state for row in progress_table(folder) if row.task.startswith("6.")]


@pytest.mark.parametrize("times", [1, 2])
def test_a_task_that_was_reset_is_not_checked_yet(work, times):
    for _ in range(times):
        for task in ("6.2", "6.3"):
            note(work, task, "passed", 7, 7)
        reset_task("06.2", work)
    assert states(work) == ["not checked", "not checked", "passed", "not checked"]


def test_a_copy_that_is_made_anew_has_no_progress(tmp_path):
    prepare_work(exercises_folder(), tmp_path)
    note(tmp_path, "6.2", "passed", 7, 7)
    prepare_work(exercises_folder(), tmp_path)
    assert states(tmp_path)[1] == "passed"
    (tmp_path / NAME).unlink()
    prepare_work(exercises_folder(), tmp_path)
    assert set(states(tmp_path)) == {"not checked"}


@pytest.mark.parametrize("here", [".", "work", "elsewhere/deep"])
def test_where_the_text_was_kept_is_told_as_seen_from_here(work, tmp_path, monkeypatch, here):
    (tmp_path / here).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / here)
    said = reset_task("6.2", work)
    assert Path(said.split("Your text is in ")[1].split(".py")[0] + ".py").read_text(encoding="utf-8") == ANSWER


def test_an_untouched_cell_is_left_alone(work):
    reset_task("6.2", work)
    before = (work / NAME).stat().st_mtime_ns
    assert "nothing to reset" in reset_task("6.2", work)
    assert (work / NAME).stat().st_mtime_ns == before and len(aside(work)) == 1


def test_a_lost_id_is_found_by_the_answer_s_name_and_given_back(work):
    notebook = load(work)
    cell(notebook, "answer-mask")["id"] = "abc123"
    save(work, notebook)
    assert "found by its name" in reset_task("6.2", work)
    assert "".join(cell(load(work), "answer-mask")["source"]) == STUB and aside(work) == [ANSWER]


def test_of_two_cells_with_one_id_the_answer_is_reset(work):
    notebook = load(work)
    notebook["cells"].insert(0, {**cell(notebook, "answer-mask"), "source": ["my_mask(1, 2)"]})
    save(work, notebook)
    reset_task("6.2", work)
    assert load(work)["cells"][0]["source"] == ["my_mask(1, 2)"] and aside(work) == [ANSWER]


def test_an_answer_turned_into_text_becomes_code_again(work):
    notebook = load(work)
    mask = cell(notebook, "answer-mask")
    mask["cell_type"] = "markdown"
    del mask["outputs"], mask["execution_count"]
    save(work, notebook)
    reset_task("6.2", work)
    assert cell(load(work), "answer-mask") == cell(GIVEN, "answer-mask") and aside(work) == [ANSWER]


@pytest.mark.parametrize(
    ("gone", "place"), [(("answer-mask",), "above its check"), (("answer-mask", "check-mask"), "at the end")]
)
def test_a_deleted_cell_is_put_back(work, gone, place):
    notebook = load(work)
    notebook["cells"] = [one for one in notebook["cells"] if one["id"] not in gone]
    save(work, notebook)
    said = reset_task("6.2", work)
    ids = [one["id"] for one in load(work)["cells"]]
    expected = ids.index("check-mask") - 1 if "check-mask" in ids else len(ids) - 1
    assert ids.index("answer-mask") == expected and place in said
    assert len(ids) == len(notebook["cells"]) + 1


def test_a_notebook_of_before_cell_ids_gets_none(work):
    notebook = load(work)
    notebook["nbformat_minor"] = 4
    for one in notebook["cells"]:
        del one["id"]
    save(work, notebook)
    reset_task("6.2", work)
    assert not any("id" in one for one in load(work)["cells"]) and STUB in [
        "".join(one["source"]) for one in load(work)["cells"]
    ]


def test_cells_that_are_none_and_half_characters_stay_as_they_are(work):
    notebook = load(work)
    text = (work / NAME).read_text(encoding="utf-8")
    notebook["cells"].insert(0, 7)
    text = json.dumps(notebook, indent=1, ensure_ascii=False).replace("ünïcode", "\\ud83d") + "\n"
    (work / NAME).write_text(text, encoding="utf-8")
    reset_task("6.2", work)
    assert load(work)["cells"][0] == 7 and STUB in ["".join(one["source"]) for one in load(work)["cells"][1:]]


@pytest.mark.parametrize("content", ["{", '{"cells": 3}', '{"worksheets": [], "nbformat": 3}'])
def test_what_cannot_be_written_back_is_left_as_it_is(work, content):
    (work / NAME).write_text(content, encoding="utf-8")
    with pytest.raises(SubmissionError):
        reset_task("6.2", work)
    assert (work / NAME).read_text(encoding="utf-8") == content and aside(work) == []


def test_a_failed_write_leaves_the_notebook_and_no_leftovers(work, monkeypatch):
    def no_space(*_):
        raise OSError("no space left")

    before = (work / NAME).read_bytes()
    monkeypatch.setattr(module.os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        reset_task("6.2", work)
    assert (work / NAME).read_bytes() == before
    assert sorted(path.name for path in work.iterdir()) == [ASIDE, NAME]


def test_permissions_are_kept(work):
    (work / NAME).chmod(0o640)
    reset_task("6.2", work)
    assert stat.S_IMODE((work / NAME).stat().st_mode) == 0o640


def test_nothing_is_reset_while_a_notebook_is_being_checked(work, monkeypatch):
    before = (work / NAME).read_bytes()
    monkeypatch.setenv(module.REPORT, "somewhere")
    assert "was not reset" in reset_task("6.2", work)
    assert (work / NAME).read_bytes() == before


def test_an_unknown_task_and_a_missing_copy_are_errors(work, tmp_path):
    with pytest.raises(UnknownName, match=r"6\.1, 6\.2"):
        reset_task("6.9", work)
    with pytest.raises(UnknownName, match=r"Name one task, such as 6\.1"):
        reset_task("06", work)
    with pytest.raises(SetupError, match="kvcourse start"):
        reset_task("6.2", tmp_path)


def test_the_copies_are_found_from_their_folder_from_beside_it_and_from_anywhere_in_the_course(tmp_path, monkeypatch):
    root = tmp_path / "course"
    for name in ("notebooks", "exercises", "solutions"):
        (root / name).mkdir(parents=True)
        (root / name / NAME).write_text("{}", encoding="utf-8")
    (root / "pyproject.toml").write_text('name = "kvcourse"', encoding="utf-8")
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)
    monkeypatch.chdir(root)
    with pytest.raises(SetupError, match="kvcourse start"):
        work_folder()
    prepare_work(root / "exercises", root / "work")
    for folder in ("work", ".", "notebooks", "exercises", "solutions"):  # never one of the course's own notebooks
        monkeypatch.chdir(root / folder)
        assert work_folder() == (root / "work").resolve()
        assert copy_of(find_exercise("6")) == (root / "work" / NAME).resolve()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "work").mkdir(parents=True)
    os.replace(root / "work" / NAME, elsewhere / "work" / NAME)
    monkeypatch.chdir(elsewhere)
    assert work_folder() == (elsewhere / "work").resolve()
