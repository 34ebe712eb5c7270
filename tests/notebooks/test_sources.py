"""Maintainers only: what a source may say, and the message when it says something else. No kernel is started here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.notebooks.build import templates
from tools.notebooks.exercises import solution_lines
from tools.notebooks.source import BuildError, Source


def test_ids_written_in_the_headers_become_the_cells_ids(lesson: str, tmp_path: Path, write: Callable) -> None:
    (notebook,) = templates(Source(tmp_path, write("lessons/01_a", lesson))).values()
    assert [cell.id for cell in notebook.cells] == ["title", "words", "noise"]
    assert not any("id" in cell.metadata for cell in notebook.cells)


def test_volatile_cells_are_skipped_by_nbval_and_keep_their_tag(lesson: str, tmp_path: Path, write: Callable) -> None:
    (notebook,) = templates(Source(tmp_path, write("lessons/01_a", lesson))).values()
    assert [cell.metadata.get("tags") for cell in notebook.cells] == [None, None, ["volatile", "nbval-ignore-output"]]


def test_the_notebook_names_its_source_and_no_python_version(lesson: str, tmp_path: Path, write: Callable) -> None:
    source = Source(tmp_path, write("lessons/01_a", lesson))
    (notebook,) = templates(source).values()
    assert notebook.metadata.kvcourse == {"source": "sources/lessons/01_a.py", "source_sha256": source.digest}
    assert notebook.metadata.kernelspec.name == "python3"
    assert "version" not in notebook.metadata.language_info
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)


def test_the_digest_follows_text_and_format_but_not_line_endings(
    lesson: str, tmp_path: Path, write: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("lessons/01_a", lesson)
    first = Source(tmp_path, path).digest
    path.write_bytes(lesson.replace("\n", "\r\n").encode())
    assert Source(tmp_path, path).digest == first
    write("lessons/01_a", lesson.replace("two", "three"))
    assert Source(tmp_path, path).digest != first
    write("lessons/01_a", lesson)
    monkeypatch.setattr("tools.notebooks.source.FORMAT_VERSION", 10_000)
    assert Source(tmp_path, path).digest != first


def test_a_header_inside_a_string_is_no_cell(tmp_path: Path, write: Callable) -> None:
    text = '# %% id="a"\ntext = """\n# %% id="inside"\n"""\n\n# %% id="b"\nprint(text)\n'
    source = Source(tmp_path, write("lessons/01_a", text))
    assert [cell.id for cell in source.cells] == ["a", "b"] and source.lines == [1, 6]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('# %% id="a"\n1\n\n# %%\n2\n', 4, "no id"),
        ('# %% id="a"\n1\n\n# %% [markdown] id="a"\n# text\n', 4, "same id as the cell at line 1"),
        ('# %% id="two words"\n1\n', 1, "letters, digits"),
        ('# %% id="a.b"\n1\n', 1, "letters, digits"),
        (f'# %% id="{"x" * 65}"\n1\n', 1, "1 to 64"),
        ("# %% id=7\n1\n", 1, "no id"),
        ('# %% id="a" tags=["voltile"]\n1\n', 1, "unknown tag 'voltile'"),
        ('# %% id="a" tags=["nbval-skip"]\n1\n', 1, "unknown tag"),
        ('# %% [markdown] id="a" tags=["volatile"]\n# text\n', 1, "no tags"),
        ('# %% [raw] id="a"\n# text\n', 1, "raw cell"),
        ('# %% id="a"\n\n# %% id="b"\n1\n', 1, "empty"),
        ('# %% id="a"\n1\n# %%id="b"\n2\n', 1, "space after"),
        ('# %% id="a"\n# NBVAL_SKIP\n1\n', 1, "what nbval compares"),
        ('# %% id="a"\nplot();\n', 1, "hides the value"),
        ('# %% id="a"\nplot();  # quiet\n', 1, "hides the value"),
        ('# %% id="a" tags=["check"]\n1\n', 1, "only an exercise"),
        ('import os\n\n# %% id="a"\n1\n', 1, "before the first cell"),
        ("", 1, "0 cells"),
        ('# %% id="a" exercise="2.1"\n1\n', 1, "must be 1.1"),
        ('# %% id="a" exercise="1.1"\nx = 1\n### BEGIN SOLUTION\ny = 2\n### END SOLUTION\n', 3, "outside the code cells"),
    ],
)
def test_a_wrong_lesson_is_refused_with_file_and_line(tmp_path: Path, write: Callable, text: str, line: int, says: str) -> None:
    with pytest.raises(BuildError) as refused:
        templates(Source(tmp_path, write("lessons/01_a", text)))
    assert str(refused.value).startswith(f"sources/lessons/01_a.py:{line}: ") and says in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (' exercise="6.1"', "", 8, "names no exercise"),
        ('exercise="6.1"', 'exercise="7.1"', 4, "must be 6.1"),
        ("        ### BEGIN SOLUTION\n", "", 10, "END SOLUTION before BEGIN"),
        ("        ### END SOLUTION\n", "", 8, "without END"),
        ("        ### END SOLUTION", "        ### BEGIN SOLUTION", 11, "second BEGIN"),
        ("### BEGIN SOLUTION", "# begin solution", 8, "alone on its line"),
        ("### BEGIN SOLUTION", "### BEGIN SOLUTION now", 8, "alone on its line"),
        ("        ### BEGIN SOLUTION", "    ### BEGIN SOLUTION", 8, "indentation of the solution"),
        ("return both_lists", "return both_lists)", 5, "valid Python"),
        ('tags=["check"]', 'tags=["check", "volatile"]', 17, "always compared"),
    ],
)
def test_a_wrong_exercise_is_refused_with_file_and_line(
    exercise: str, tmp_path: Path, write: Callable, old: str, new: str, line: int, says: str
) -> None:
    assert old in exercise
    with pytest.raises(BuildError) as refused:
        templates(Source(tmp_path, write("exercises/06_a", exercise.replace(old, new))))
    assert str(refused.value).startswith(f"sources/exercises/06_a.py:{line}: ") and says in str(refused.value)


def test_an_exercise_without_a_solution_is_refused(tmp_path: Path, write: Callable) -> None:
    with pytest.raises(BuildError, match="without a solution"):
        templates(Source(tmp_path, write("exercises/06_a", '# %% id="a"\n1\n')))


def test_a_name_without_its_number_is_refused(lesson: str, tmp_path: Path, write: Callable) -> None:
    with pytest.raises(BuildError, match="is named NN_name"):
        templates(Source(tmp_path, write("lessons/first", lesson)))


def test_stubs_raise_the_exercise_number_at_the_solutions_indentation(exercise: str, tmp_path: Path, write: Callable) -> None:
    solution, stubs = templates(Source(tmp_path, write("exercises/06_a", exercise))).values()
    assert [cell.id for cell in stubs.cells] == [cell.id for cell in solution.cells]
    assert stubs.cells[1].source == (
        "class Joiner:\n"
        "    def join(self, a, b):\n"
        '        """Both, one after the other."""\n'
        '        raise NotImplementedError("Exercise 6.1: write this function")'
    )
    assert [i for i in range(4) if stubs.cells[i].source != solution.cells[i].source] == [1]
    assert "### BEGIN SOLUTION" in solution.cells[1].source  # nbgrader reads solutions/ as its source


def test_every_solution_in_a_cell_becomes_a_stub(tmp_path: Path, write: Callable) -> None:
    text = (
        '# %% id="two" exercise="6.2"\ndef f():\n    ### BEGIN SOLUTION\n    return 1234567\n    ### END SOLUTION\n\n\n'
        "def g():\n    ### BEGIN SOLUTION\n    return 7654321\n    ### END SOLUTION\n\n\n"
        "### BEGIN SOLUTION\nanswer = f() + g()\n### END SOLUTION\n"
    )
    source = Source(tmp_path, write("exercises/06_a", text))
    _, stubs = templates(source).values()
    function, code = (f'raise NotImplementedError("Exercise 6.2: write this {what}")' for what in ("function", "code"))
    assert stubs.cells[0].source == f"def f():\n    {function}\n\n\ndef g():\n    {function}\n\n\n{code}"
    assert solution_lines(source) == {"return 1234567", "return 7654321", "answer = f() + g()"}
