"""Maintainers only: building, skipping, failing and checking, on tiny sources in a temporary repository."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.notebooks.__main__ import main
from tools.notebooks.build import build, check
from tools.notebooks.source import BuildError

STEADY = '# %% id="words"\nprint("one")\nprint("two")\n\n# %% id="value"\n{"b": 1, "a": [2, 3]}\n'


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory, exercise: str) -> Path:
    root = tmp_path_factory.mktemp("built")
    for name, text in [("lessons/01_a", STEADY), ("exercises/06_a", exercise)]:
        path = root / "sources" / f"{name}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    assert [path.relative_to(root).as_posix() for path in build(root, say=lambda _: None)] == [
        "notebooks/01_a.ipynb",
        "solutions/06_a.ipynb",
        "exercises/06_a.ipynb",
    ]
    return root


@pytest.fixture
def built(built_once: Path, tmp_path: Path) -> Path:
    """A repository with one lesson and one exercise, built: notebooks do not depend on where they were built."""
    return Path(shutil.copytree(built_once, tmp_path, dirs_exist_ok=True))


def test_what_is_built_passes_the_check_is_skipped_next_time_and_comes_out_the_same_when_forced(built: Path) -> None:
    paths = sorted(built.glob("*/*.ipynb"))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    assert len(paths) == 3 and check(built) == []
    assert build(built, say=lambda _: None) == []
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths} == before
    assert len(build(built, ["1"], force=True, say=lambda _: None)) == 1
    lesson = built / "notebooks" / "01_a.ipynb"
    assert lesson.read_bytes() == before[lesson][0] and lesson.stat().st_mtime_ns != before[lesson][1]

    assert lesson.read_bytes().endswith(b"}\n") and b"\r" not in lesson.read_bytes()
    cells = read(lesson)["cells"]
    assert [cell["execution_count"] for cell in cells] == [1, 2]
    assert [cell["metadata"] for cell in cells] == [{}, {}]  # no times
    assert cells[0]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": ["one\n", "two\n"]}]
    assert set(read(lesson)["metadata"]) == {"kernelspec", "kvcourse", "language_info"}

    stubs = read(built / "exercises" / "06_a.ipynb")["cells"]
    solved = read(built / "solutions" / "06_a.ipynb")["cells"]
    assert [cell["id"] for cell in stubs] == [cell["id"] for cell in solved] == ["title", "join", "look", "check-join"]
    assert [cell.get("execution_count") for cell in stubs] == [None, None, None, 3]
    assert [cell.get("outputs", []) for cell in stubs[:3]] == [[], [], []]
    assert stubs[3] == solved[3] and stubs[3]["outputs"][0]["text"] == ["6.1: [1, 2]\n"]
    assert "both_lists" in json.dumps(solved) and "both_lists" not in json.dumps(stubs)


def test_the_check_names_every_way_in_which_a_notebook_can_differ_from_its_source(
    built: Path, write: Callable, exercise: str
) -> None:
    lesson, stubs = built / "notebooks" / "01_a.ipynb", built / "exercises" / "06_a.ipynb"

    def edit(path: Path, change: Callable[[dict], object]) -> list[str]:
        text = path.read_text(encoding="utf-8")
        notebook = json.loads(text)
        change(notebook)
        path.write_text(json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        try:
            return check(built)
        finally:
            path.write_text(text, encoding="utf-8")

    def one(found: list[str], path: str, says: str) -> None:
        assert len(found) == 1 and found[0].startswith(path) and says in found[0], found

    name = "notebooks/01_a.ipynb"
    one(edit(lesson, lambda n: n["cells"][0].update(source=["1"])), name, 'source of cell "words"')
    one(edit(lesson, lambda n: n["cells"][0].update(id="other")), name, "cells are not those")
    one(edit(lesson, lambda n: n["cells"].pop()), name, "cells are not those")
    one(edit(lesson, lambda n: n["cells"][1]["metadata"].update(tags=["x"])), name, 'metadata of cell "value"')
    one(edit(lesson, lambda n: n["metadata"].update(x=1)), name, "metadata differs")
    one(edit(lesson, lambda n: n["cells"][0].update(execution_count=7)), name, "not as built")
    one(edit(lesson, lambda n: n["cells"][0]["outputs"][0].update(text=["at " + "/home" + "/ada/x"])), name, "a path")
    one(edit(lesson, lambda n: n.update(nbformat_minor=4)), name, "not a notebook of format 4.5")
    name = "exercises/06_a.ipynb"
    one(edit(stubs, lambda n: n["cells"][3]["outputs"][0].update(text=["6.1: [3]"])), name, "reference outputs")
    one(edit(stubs, lambda n: n["cells"][2].update(execution_count=2)), name, "not as built")

    text = lesson.read_text(encoding="utf-8")
    for changed, says in [(text.replace("\n ", "\n  ", 1), "edited by hand"), (text[:50], "unreadable")]:
        lesson.write_text(changed, encoding="utf-8")
        one(check(built), "notebooks/01_a.ipynb", says)
    lesson.unlink()
    one(check(built), "notebooks/01_a.ipynb", "missing")
    lesson.write_text(text, encoding="utf-8")

    orphan = built / "solutions" / "01_a.ipynb"
    orphan.write_text(text, encoding="utf-8")
    one(check(built), "solutions/01_a.ipynb", "no source")
    orphan.unlink()

    write("lessons/01_a", STEADY.replace("two", "three"))
    one(check(built), "notebooks/01_a.ipynb", "another state of sources/lessons/01_a.py")
    write("exercises/06_a", exercise.replace(' id="look"', ""))
    assert len(check(built)) == 2 and check(built, ["06"])[0].startswith("sources/exercises/06_a.py:14: cell: no id")


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("def f():\n    return 1 / 0\n\n\nf()", "ZeroDivisionError"),
        ("print(object())", "a memory address"),
        ("import os\n\nprint(os.getcwd())", "a path of this machine"),
        ("import os\n\nos._exit(3)", "the kernel died"),
    ],
)
def test_a_build_that_fails_names_the_cell_and_leaves_the_notebook_as_it_was(
    tmp_path: Path, write: Callable, capsys: pytest.CaptureFixture, cell: str, says: str
) -> None:
    committed = tmp_path / "notebooks" / "01_a.ipynb"
    committed.parent.mkdir()
    committed.write_text("as it was", encoding="utf-8")
    write("lessons/01_a", f'# %% id="good"\nprint(1)\n\n# %% id="bad"\n{cell}\n')
    assert main(["build", "01_a"], root=tmp_path) == 1
    said = capsys.readouterr().err
    assert said.startswith('sources/lessons/01_a.py:4: cell "bad": ') and says in said
    assert "\x1b" not in said
    if says == "ZeroDivisionError":
        assert "return 1 / 0" in said  # the traceback
    assert committed.read_text(encoding="utf-8") == "as it was"
    assert [path.name for path in committed.parent.iterdir()] == ["01_a.ipynb"]  # and no temporary file


def test_a_new_version_of_the_course_leaves_unchanged_exercises_as_they_are(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each release would tell every learner of a newer exercise that is the same."""
    paths = sorted(built.glob("*/06_a.ipynb"))
    before = [path.read_bytes() for path in paths]
    modules = [sys.modules[f"tools.notebooks.{name}"] for name in ("build", "source")]
    for module in modules:
        monkeypatch.setattr(module, "__version__", "9.0")
    assert check(built) == [] and build(built, say=lambda _: None) == []
    assert [path.read_bytes() for path in paths] == before
    build(built, ["06"], force=True, say=lambda _: None)
    assert {read(path)["metadata"]["kvcourse"]["version"] for path in paths} == {"9.0"} and check(built) == []
    for module in modules:
        monkeypatch.setattr(module, "__version__", "8.9")
    assert len(check(built)) == 2 and "built by version 9.0, which is newer" in check(built)[0]
    for path in paths:
        path.write_text(path.read_text(encoding="utf-8").replace('"9.0"', '"nine"'), encoding="utf-8")
    assert "no version of the course" in check(built)[0]


def test_a_cell_that_hangs_is_stopped(tmp_path: Path, write: Callable) -> None:
    write("lessons/01_a", '# %% id="slow"\nimport time\n\ntime.sleep(60)\n')
    with pytest.raises(BuildError, match=r'cell "slow": still running after 1 s'):
        build(tmp_path, timeout_s=1, say=lambda _: None)


def test_an_expected_error_is_kept_without_this_machines_frames_and_an_absent_one_is_refused(
    tmp_path: Path, write: Callable
) -> None:
    write("lessons/01_a", '# %% id="a" tags=["raises-exception"]\nimport json\n\njson.loads("{")\n')
    build(tmp_path, say=lambda _: None)
    (output,) = read(tmp_path / "notebooks" / "01_a.ipynb")["cells"][0]["outputs"]
    assert output["ename"] == "JSONDecodeError" and output["traceback"] == [f"JSONDecodeError: {output['evalue']}"]
    write("lessons/01_a", '# %% id="a" tags=["raises-exception"]\n1\n')
    with pytest.raises(BuildError, match="raised none"):
        build(tmp_path, say=lambda _: None)


def test_an_exercise_whose_check_shows_the_solution_is_refused(tmp_path: Path, write: Callable, exercise: str) -> None:
    telling = exercise.replace('print("6.1:"', 'print("Write both_lists = [*a, *b]"')
    write("exercises/06_a", telling)
    with pytest.raises(BuildError, match="would show a line of the solution"):
        build(tmp_path, say=lambda _: None)
    assert not list(tmp_path.glob("*/*.ipynb"))


def test_a_check_that_prints_nothing_is_refused(tmp_path: Path, write: Callable, exercise: str) -> None:
    write("exercises/06_a", exercise.replace('print("6.1:", ', "_ = ("))
    with pytest.raises(BuildError, match="no reference output"):
        build(tmp_path, say=lambda _: None)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path, write: Callable, capsys: pytest.CaptureFixture) -> None:
    write("lessons/01_a", STEADY)
    assert main(["build", "2"], root=tmp_path) == 1
    assert "no source fits '2'. There are: 01_a." in capsys.readouterr().err


def test_the_command_line_checks_without_building(tmp_path: Path, write: Callable, capsys: pytest.CaptureFixture) -> None:
    write("lessons/01_a", STEADY)
    assert main(["build", "--check"], root=tmp_path) == 1
    assert "notebooks/01_a.ipynb: missing" in capsys.readouterr().out
    assert not (tmp_path / "notebooks").exists()
