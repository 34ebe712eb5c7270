"""A learner who saves a lesson must not make the next pull a conflict."""

import asyncio
import json
import platform
from pathlib import Path

import pytest
from tornado.web import HTTPError

from kvcourse.lesson_files import LessonFiles, is_tracked

EMPTY = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture
def files(tmp_path: Path) -> LessonFiles:
    for folder in ("notebooks", "work"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "01_a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    return LessonFiles(root_dir=str(tmp_path))


def test_a_lesson_opens_read_only_and_work_does_not(files):
    assert asyncio.run(files.get("notebooks/01_a.ipynb"))["writable"] is False
    assert asyncio.run(files.get("work/01_a.ipynb"))["writable"] is True
    (listed,) = asyncio.run(files.get("notebooks"))["content"]
    assert listed["writable"] is False


def test_saving_a_lesson_is_refused_and_changes_nothing(files, tmp_path):
    before = (tmp_path / "notebooks" / "01_a.ipynb").read_bytes()
    model = {"type": "notebook", "format": "json", "content": {**EMPTY, "metadata": {"mine": 1}}}
    with pytest.raises(HTTPError, match="below work/"):
        asyncio.run(files.save(model, "notebooks/01_a.ipynb"))
    assert (tmp_path / "notebooks" / "01_a.ipynb").read_bytes() == before


def test_work_is_saved_as_ever(files, tmp_path):
    model = {"type": "notebook", "format": "json", "content": {**EMPTY, "metadata": {"mine": 1}}}
    asyncio.run(files.save(model, "work/01_a.ipynb"))
    assert '"mine": 1' in (tmp_path / "work" / "01_a.ipynb").read_text()


def language_of(files, path):
    return asyncio.run(files.get(path))["content"]["metadata"].get("language_info")


def test_a_notebook_comes_with_the_version_that_the_kernel_would_add_and_its_file_stays_as_it_is(files, tmp_path):
    for path in ("notebooks/01_a.ipynb", "work/01_a.ipynb"):
        text = json.dumps({**EMPTY, "metadata": {"language_info": {"name": "python"}}})
        (tmp_path / path).write_text(text, encoding="utf-8")
        assert language_of(files, path) == {"name": "python", "version": platform.python_version()}
        assert (tmp_path / path).read_text(encoding="utf-8") == text
        assert asyncio.run(files.get(path, content=False))["content"] is None


@pytest.mark.parametrize("language", [None, {"name": "R"}, {"name": "python", "version": "3.11.2"}])
def test_another_language_and_a_version_that_is_there_are_left_alone(files, tmp_path, language):
    metadata = {"language_info": language} if language else {}
    (tmp_path / "work" / "01_a.ipynb").write_text(json.dumps({**EMPTY, "metadata": metadata}), encoding="utf-8")
    assert language_of(files, "work/01_a.ipynb") == language


@pytest.mark.parametrize(
    ("path", "tracked"),
    [
        ("/notebooks/01_a.ipynb", True),
        ("notebooks", False),
        ("work/notebooks/a.ipynb", False),
        ("", False),
        ("notebooks2/a", False),
    ],
)
def test_only_the_courses_own_folders_are_tracked(path, tracked):
    assert is_tracked(path) is tracked
