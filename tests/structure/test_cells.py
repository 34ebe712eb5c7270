"""What a reader sees of a cell: text that can be taken in at once, code and printed lines that JupyterLab does not cut off.

In a window of 1280 px, with the list of files beside the notebook, JupyterLab shows 106 characters of a line of code, and
breaks a printed line after 104. `sources/ruff.toml` keeps the formatter to the same width.
"""

import re
import textwrap
import tomllib
from pathlib import Path

import nbformat
import pytest

from tools.notebooks.source import Source, find

ROOT = Path(__file__).resolve().parents[2]
SOURCES = find(ROOT)
TEXT_WORDS = 90
CODE_CHARACTERS = 100
CODE_LINES = 25
PRINTED_CHARACTERS = 104
NOTEBOOKS = [path for folder in ("notebooks", "exercises", "solutions") for path in sorted((ROOT / folder).glob("*.ipynb"))]
HEADER = '# %% [markdown] id="long"\n'


def words(text: str) -> int:
    """Words of a text cell, rows of tables apart: a table is looked up, not read through. Marks alone are no words."""
    prose = [line for line in text.splitlines() if not line.lstrip().startswith("|")]
    return len(re.findall(r"\S*\w\S*", "\n".join(prose)))


def long_texts(source: Source) -> list[str]:
    return [
        f"{source.where(index)} has {words(cell.source)} words, and {TEXT_WORDS} are the most. Split it, or say it shorter."
        for index, cell in enumerate(source.cells)
        if cell.cell_type == "markdown" and words(cell.source) > TEXT_WORDS
    ]


def wide_lines(source: Source) -> list[str]:
    return [
        f"{source.where(index)} has a line of {len(line)} characters, and {CODE_CHARACTERS} are the most. Break it: {line}"
        for index, cell in enumerate(source.cells)
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if len(line) > CODE_CHARACTERS
    ]


def long_cells(source: Source) -> list[str]:
    return [
        f"{source.where(index)} has {n_lines} lines, and {CODE_LINES} are the most. Split it, or say it shorter."
        for index, cell in enumerate(source.cells)
        if cell.cell_type == "code" and (n_lines := len(cell.source.splitlines())) > CODE_LINES
    ]


def wide_prints(path: Path) -> list[str]:
    """Lines of the kept standard output that are too wide. What is shown as HTML, a picture or a source, is no print. An
    error is one line everywhere; the page breaks it between words (tests/browser/test_long_lines.py).
    """
    cells = nbformat.read(path, as_version=4).cells
    prints = [(cell.id, one.text) for cell in cells for one in cell.get("outputs", []) if one.get("name") == "stdout"]
    where = f"{path.parent.name}/{path.name}"
    return [
        f'{where}: cell "{id}" prints {len(line)} characters in a line, and {PRINTED_CHARACTERS} are the most. Break it: {line}'
        for id, text in prints
        for line in text.splitlines()
        if len(line) > PRINTED_CHARACTERS and not re.search(r" Expected .+; got .+\.", line)
    ]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative)
def test_a_text_cell_is_read_in_half_a_minute(source):
    assert not (long := long_texts(source)), "\n".join(long)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative)
def test_no_line_of_code_is_cut_off_in_a_narrow_window(source):
    assert not (wide := wide_lines(source)), "\n".join(wide)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative)
def test_a_code_cell_fits_on_the_screen(source):
    assert not (long := long_cells(source)), "\n".join(long)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_printed_line_is_broken_in_a_narrow_window(path):
    assert not (wide := wide_prints(path)), "\n".join(wide)


def test_the_formatter_breaks_code_cells_at_the_same_width():
    options = tomllib.loads((ROOT / "sources" / "ruff.toml").read_text(encoding="utf-8"))
    assert options["line-length"] == CODE_CHARACTERS


def written(folder: Path, text: str) -> Source:
    path = folder / "sources" / "lessons" / "01_a.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return Source(folder, path)


@pytest.mark.parametrize(
    ("text", "n_words"),
    [("word " * 91, 91), ("word " * 90, None), ("- a **bold** `x = 1` and\n" * 19, 95), ("| cell | of a table |\n" * 40, None)],
)
def test_the_search_for_long_texts_finds_them_and_names_the_cell(tmp_path, text, n_words):
    found = long_texts(written(tmp_path, HEADER + textwrap.indent(text, "# ") + "\n"))
    told = f'sources/lessons/01_a.py:1: cell "long" has {n_words} words, and 90 are the most. Split it, or say it shorter.'
    assert found == ([] if n_words is None else [told])


@pytest.mark.parametrize(("line", "is_wide"), [("x = " + "1" * 97, True), ("x = " + "1" * 96, False), ("# " + "é" * 99, True)])
def test_the_search_for_wide_lines_finds_them_and_names_the_cell(tmp_path, line, is_wide):
    found = wide_lines(written(tmp_path, f'{HEADER}# {"wide " * 80}\n\n# %% id="code"\ny = 1\n{line}\n'))
    told = f'sources/lessons/01_a.py:4: cell "code" has a line of 101 characters, and 100 are the most. Break it: {line}'
    assert found == ([told] if is_wide else [])


@pytest.mark.parametrize(("n_lines", "is_long"), [(26, True), (25, False)])
def test_the_search_for_long_cells_finds_them_and_names_the_cell(tmp_path, n_lines, is_long):
    found = long_cells(written(tmp_path, f'{HEADER}# {"long " * 30}\n\n# %% id="code"\n' + "x = 1\n" * n_lines))
    told = 'sources/lessons/01_a.py:4: cell "code" has 26 lines, and 25 are the most. Split it, or say it shorter.'
    assert found == ([told] if is_long else [])


@pytest.mark.parametrize(
    ("stream", "width", "is_wide"), [("stdout", 105, True), ("stdout", 104, False), ("stderr", 105, False)]
)
def test_the_search_for_wide_prints_finds_them_and_names_the_cell(tmp_path, stream, width, is_wide):
    outputs = [nbformat.v4.new_output("stream", name=stream, text=f"short\n{'é' * width}\n")]
    cell = nbformat.v4.new_code_cell("print(...)", id="loud", outputs=outputs)
    path = tmp_path / "notebooks" / "01_a.ipynb"
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text"), cell]), path)
    told = 'notebooks/01_a.ipynb: cell "loud" prints 105 characters in a line, and 104 are the most. Break it: ' + "é" * 105
    assert wide_prints(path) == ([told] if is_wide else [])
