"""Generated pages are current, and every link between files of the project leads somewhere."""

import re
from pathlib import Path

import pytest

from kvcourse.course import LESSONS
from tools import docs_map

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_generated_pages_are_current():
    assert docs_map.stale(ROOT) == [], "run: python -m tools.docs_map"


def test_the_table_of_lessons_in_the_readme_is_the_course_s():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d\d) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", readme, re.MULTILINE)
    assert [(number, question, builds) for number, question, builds, *_ in rows] == [
        (lesson.name[:2], lesson.question, lesson.builds) for lesson in LESSONS
    ]
    for (_, _, _, notebook, exercise), lesson in zip(rows, LESSONS, strict=True):
        assert notebook.startswith("[open]") == lesson.is_built(ROOT)
        assert exercise.startswith("[open]") == (ROOT / "exercises" / f"{lesson.name}.ipynb").is_file()


def test_a_lesson_that_lands_makes_the_readme_stale(tmp_path):
    for name in ("kvcourse", "docs", "notebooks"):
        (tmp_path / name).mkdir()
    (tmp_path / "README.md").write_text(f"{docs_map.START}\n{docs_map.END}\n", encoding="utf-8")
    for path, text in docs_map.generated(tmp_path).items():
        path.write_text(text, encoding="utf-8")
    assert docs_map.stale(tmp_path) == []
    (tmp_path / "notebooks" / f"{LESSONS[0].name}.ipynb").write_text("{}", encoding="utf-8")
    (tmp_path / "kvcourse" / "new.py").write_text('"""Lesson 01: new."""\n', encoding="utf-8")
    assert docs_map.stale(tmp_path) == ["docs/map.md", "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
