"""The learner's copies: made once, never overwritten, and told about newer versions."""

import hashlib
import json

import pytest

from kvcourse.content import exercises_folder
from kvcourse.course import LESSONS, RECORD, Place, Prepared, course_root, learners_place, lesson_path, prepare_work
from kvcourse.errors import SetupError, UnknownName

NAME = "06_kv_cache.ipynb"


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)
    root = tmp_path / "course"
    for folder in ("notebooks", "exercises"):
        (root / folder).mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "kvcourse"\n', encoding="utf-8")
    (root / "exercises" / NAME).write_text("version 1", encoding="utf-8")
    return root


def prepare(root) -> dict[str, Prepared]:
    return {one.exercise: one for one in prepare_work(root / "exercises", root / "work")}


def snapshot(folder) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def release(root, text: str) -> None:
    (root / "exercises" / NAME).write_text(text, encoding="utf-8")


def test_the_first_start_copies_and_the_second_changes_nothing(course):
    assert prepare(course)[NAME].action == "copied"
    before = snapshot(course / "work")
    assert before[NAME] == "version 1"
    assert prepare(course)[NAME].action == "kept"
    assert snapshot(course / "work") == before


def test_an_answer_is_never_overwritten_and_a_newer_version_is_put_beside_it(course):
    prepare(course)
    (course / "work" / NAME).write_text("my answer", encoding="utf-8")
    assert prepare(course)[NAME].action == "kept"
    release(course, "version 2")
    told = prepare(course)[NAME]
    assert told.action == "newer"
    assert told.offered.read_text(encoding="utf-8") == "version 2"
    assert (course / "work" / NAME).read_text(encoding="utf-8") == "my answer"
    assert prepare(course)[NAME] == told, "it is still there, so it is still told"


def test_an_untouched_copy_is_not_overwritten_either(course):
    prepare(course)
    release(course, "version 2")
    assert prepare(course)[NAME].action == "newer"
    assert (course / "work" / NAME).read_text(encoding="utf-8") == "version 1"


def test_notes_in_the_offered_copy_are_not_overwritten(course):
    prepare(course)
    release(course, "version 2")
    offered = prepare(course)[NAME].offered
    offered.write_text("version 2 with my notes", encoding="utf-8")
    prepare(course)
    assert offered.read_text(encoding="utf-8") == "version 2 with my notes"


@pytest.mark.parametrize("edited", [False, True])
def test_taking_the_newer_version_settles_it(course, edited):
    prepare(course)
    release(course, "version 2")
    mine = course / "work" / NAME
    prepare(course)[NAME].offered.replace(mine)
    if edited:
        mine.write_text("version 2, solved", encoding="utf-8")
    assert prepare(course)[NAME].action == "kept"
    release(course, "version 3")
    assert prepare(course)[NAME].offered.read_text(encoding="utf-8") == "version 3"


def test_throwing_the_newer_version_away_settles_it_until_the_next(course):
    prepare(course)
    release(course, "version 2")
    prepare(course)[NAME].offered.unlink()
    assert prepare(course)[NAME].action == "kept"
    release(course, "version 3")
    assert prepare(course)[NAME].action == "newer"


def test_a_deleted_copy_is_made_again(course):
    prepare(course)
    (course / "work" / NAME).unlink()
    assert prepare(course)[NAME].action == "copied"


def notebook(outputs: list, count: int | None, text: str = "# ünïcode") -> str:
    """An exercise as the course keeps it: a text, and a cell."""
    code = {"cell_type": "code", "execution_count": count, "id": "b", "metadata": {}, "outputs": outputs, "source": ["f()"]}
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": [text]}, code]
    made = {"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


SOLVED = [{"name": "stdout", "output_type": "stream", "text": ["6.1 append: 8/8\n"]}]


def test_a_copy_looks_like_what_it_is_not_solved_and_not_run(course):
    release(course, notebook(SOLVED, 3))
    assert prepare(course)[NAME].action == "copied"
    assert (course / "work" / NAME).read_text(encoding="utf-8") == notebook([], None)
    before = snapshot(course / "work")
    assert prepare(course)[NAME].action == "kept"
    (course / "work" / RECORD).unlink()
    assert prepare(course)[NAME].action == "kept", "it is known to be untouched without a record, too"
    assert snapshot(course / "work") == before


def test_the_record_names_the_course_s_own_file_as_it_always_did(course):
    release(course, notebook(SOLVED, 3))
    prepare(course)
    record = json.loads((course / "work" / RECORD).read_text(encoding="utf-8"))
    assert record == {NAME: {"copied": hashlib.sha256((course / "exercises" / NAME).read_bytes()).hexdigest()}}


def test_a_copy_that_an_earlier_version_made_with_outputs_is_known(course):
    release(course, notebook(SOLVED, 3))
    (course / "work").mkdir()
    (course / "work" / NAME).write_text(notebook(SOLVED, 3), encoding="utf-8")
    assert prepare(course)[NAME].action == "kept"
    assert (course / "work" / NAME).read_text(encoding="utf-8") == notebook(SOLVED, 3)


def test_a_newer_version_is_not_solved_either_and_taking_it_settles_it(course):
    release(course, notebook(SOLVED, 3))
    prepare(course)
    release(course, notebook(SOLVED, 3, "# two"))
    told = prepare(course)[NAME]
    assert told.action == "newer" and told.offered.read_text(encoding="utf-8") == notebook([], None, "# two")
    told.offered.replace(course / "work" / NAME)
    assert prepare(course)[NAME].action == "kept"


@pytest.mark.parametrize("path", sorted(exercises_folder().glob("*.ipynb")), ids=lambda path: path.stem)
def test_copies_of_the_course_s_exercises_lose_outputs_and_counts_and_no_other_line(tmp_path, path):
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / path.name).write_bytes(path.read_bytes())
    prepare_work(tmp_path / "exercises", tmp_path / "work")
    given, copy = (one.read_text(encoding="utf-8") for one in (path, tmp_path / "work" / path.name))
    cells = [cell for cell in json.loads(copy)["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    assert any(cell.get("outputs") for cell in json.loads(given)["cells"]), "there was something to take away"
    lines = iter(given.splitlines())
    emptied = {'   "outputs": [],', '   "execution_count": null,'}
    assert all(line in emptied or line in lines for line in copy.splitlines()), "line by line, in the same order"


@pytest.mark.parametrize("record", [None, "{", "[]", '{"06_kv_cache.ipynb": 3}', "\x00"])
def test_a_lost_or_damaged_record_costs_no_answer(course, record):
    prepare(course)
    (course / "work" / NAME).write_text("my answer", encoding="utf-8")
    if record is None:
        (course / "work" / RECORD).unlink()
    else:
        (course / "work" / RECORD).write_text(record, encoding="utf-8")
    assert prepare(course)[NAME].action == "unknown"
    assert (course / "work" / NAME).read_text(encoding="utf-8") == "my answer"
    release(course, "version 2")
    assert prepare(course)[NAME].action == "newer", "changes are noticed again from then on"


def test_a_copy_that_breaks_off_leaves_nothing_behind(course, monkeypatch):
    from pathlib import Path

    def no_space(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "read_bytes", no_space)
    with pytest.raises(OSError, match="no space"):
        prepare(course)
    assert not (course / "work" / NAME).exists()


def test_the_record_is_plain_json(course):
    prepare(course)
    assert set(json.loads((course / "work" / RECORD).read_text(encoding="utf-8"))) == {NAME}


def test_the_course_is_found_from_any_folder_inside_it(course):
    deep = course / "work" / "deeper"
    deep.mkdir(parents=True)
    assert course_root(deep) == course_root(course) == course.resolve()


def test_the_course_is_found_by_its_variable(course, tmp_path, monkeypatch):
    monkeypatch.setenv("KVCOURSE_COURSE", str(course))
    assert course_root(tmp_path) == course.resolve()


def test_a_wrong_variable_is_an_error_and_not_a_reason_to_look_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("KVCOURSE_COURSE", str(tmp_path / "nowhere"))
    with pytest.raises(SetupError, match="KVCOURSE_COURSE"):
        course_root()


def test_another_project_with_notebooks_is_not_the_course(tmp_path, monkeypatch):
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n', encoding="utf-8")
    assert course_root(tmp_path) != tmp_path  # the package's own clone


def test_without_a_course_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)
    monkeypatch.setattr("kvcourse.course.__file__", str(tmp_path / "site-packages" / "kvcourse" / "course.py"))
    with pytest.raises(SetupError, match="Run this inside your clone"):
        course_root(tmp_path)


def test_a_learner_in_a_clone_works_in_the_clone(course):
    place = learners_place(course / "notebooks")
    assert place == Place(course.resolve(), course.resolve() / "exercises", is_clone=True)


def test_a_learner_without_a_clone_works_in_the_current_folder_with_the_package_s_exercises(tmp_path, monkeypatch):
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)
    package = tmp_path / "site-packages" / "kvcourse"
    (package / "content" / "exercises").mkdir(parents=True)
    monkeypatch.setattr("kvcourse.course.__file__", str(package / "course.py"))
    monkeypatch.setattr("kvcourse.content.PACKAGE", package)
    here = tmp_path / "here"
    here.mkdir()
    assert learners_place(here) == Place(here.resolve(), package / "content" / "exercises", is_clone=False)
    monkeypatch.setenv("KVCOURSE_COURSE", str(here))
    with pytest.raises(SetupError, match="KVCOURSE_COURSE"):
        learners_place(here)


def test_lessons_are_numbered_in_order_and_have_distinct_names():
    assert [lesson.number for lesson in LESSONS] == list(range(1, 15))
    assert len({lesson.name for lesson in LESSONS}) == len(LESSONS)
    assert not LESSONS[0].has_exercise and all(lesson.has_exercise for lesson in LESSONS[1:])


def test_a_lesson_s_path_is_given_only_for_a_lesson_that_is_there(course):
    with pytest.raises(SetupError, match="Lesson 1 is not here"):
        lesson_path(course, 1)
    (course / "notebooks" / "01_tokens_to_logits.ipynb").write_text("{}", encoding="utf-8")
    assert lesson_path(course, 1) == "notebooks/01_tokens_to_logits.ipynb"
    with pytest.raises(SetupError, match="Open one of these: 1"):
        lesson_path(course, 6)
    with pytest.raises(UnknownName, match="1 to 14"):
        lesson_path(course, 15)
