"""Every lesson: an exercise notebook as plain JSON, the learner's or the course's own. Knows nothing about grading.

A learner's file may hold anything, so nothing in it is taken for granted: what is no notebook is refused in one line, what is
no cell is passed over. nbformat is not imported: it takes longer to load than a notebook takes to read, and refuses what a
person would still understand.
"""

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvcourse.checks.exercise import Exercise
from kvcourse.content import exercises_folder
from kvcourse.errors import SubmissionError

LIMIT_BYTES = 100 * 2**20  # a larger file is a run-away output, and would not fit in memory twice
LIMIT_VALUES = 5_000_000  # as Python objects they would take some hundred MB
FEW_BYTES = 20 * 2**20  # cannot hold so many that it matters
_TEXTS = re.compile(r'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"?')  # JSON's strings; never tries twice, so its time is linear


@dataclass(frozen=True)
class Cell:
    """One cell, whatever version of the format it came in."""

    id: str | None
    kind: str  # "code" | "markdown" | "raw" | "heading" ...
    source: str


def read_notebook(path: Path) -> dict[str, Any]:
    """A notebook's JSON.

    Raises: SubmissionError if there is no such file, or it is no notebook.
    """
    text = _read_text(path)
    _refuse_too_many_values(path, text)
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        got = f"line {error.lineno} is no JSON" if isinstance(error, json.JSONDecodeError) else "no JSON"
        raise _no_notebook(path, got) from None
    if not isinstance(notebook, dict):
        raise _no_notebook(path, "JSON of another kind")
    if not isinstance(notebook.get("cells"), list) and not isinstance(notebook.get("worksheets"), list):
        raise _no_notebook(path, "JSON without cells")
    return notebook


def cells_of(notebook: dict[str, Any]) -> list[Cell]:
    """The cells of a notebook of format 4, or 3, where they lay in worksheets and a code cell's text was its `input`."""
    found = notebook.get("cells")
    if not isinstance(found, list):
        sheets = [sheet for sheet in notebook.get("worksheets", []) if isinstance(sheet, dict)]
        found = [cell for sheet in sheets if isinstance(sheet.get("cells"), list) for cell in sheet["cells"]]
    return [_cell(cell) for cell in found if isinstance(cell, dict)]


def is_old_format(notebook: dict[str, Any]) -> bool:
    """True for nbformat 3."""
    return not isinstance(notebook.get("cells"), list)


def canonical_notebook(exercise: Exercise) -> dict[str, Any]:
    """The course's own copy of an exercise.

    Raises: SubmissionError if this installation has none.
    """
    return read_notebook(exercises_folder() / f"{exercise.file}.ipynb")


def defines(source: str, name: str) -> bool:
    """True if running the source gives this name to a function, a class or a value. Reads it, never runs it."""
    tree = parse(source)
    if tree is None:  # a mistake in the syntax somewhere: the text must do
        return bool(re.search(rf"^(async\s+)?(def|class)\s+{re.escape(name)}\b", source, re.MULTILINE))
    try:
        return name in top_level_names(tree.body)
    except RecursionError:  # a thousand `elif`s
        return False


def top_level_names(body: list[ast.stmt]) -> set[str]:
    """The names that these statements bind in their own scope, inside `if`, `try`, `with` and loops too."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            names |= {part.id for part in parts if isinstance(part.ctx, ast.Store)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        for part in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = getattr(node, part, [])
                blocks = [item.body if isinstance(item, ast.ExceptHandler) else [item] for item in inner]
                names |= top_level_names([statement for block in blocks for statement in block])
    return names


def parse(source: str) -> ast.Module | None:
    """The source's tree, IPython's magics left out; None if it is not Python."""
    try:
        return ast.parse(without_magics(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def without_magics(source: str) -> str:
    """The source with IPython's own lines (%time, !ls, f?) doing nothing, so that plain Python can read it. A text that is
    Python already comes back as it is: there a line may begin with % in the middle of a sum."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(_without_magic(line) for line in source.split("\n"))
    return source


def _without_magic(line: str) -> str:
    """No regular expression: on a long line of spaces a careless one takes minutes, and this runs beside every submission."""
    magic = line.lstrip()
    asks = magic.rstrip().endswith("?") and not any(mark in magic for mark in "#'\"")
    if not (asks or magic.startswith(("%", "!", "?"))):
        return line
    return f"{line[: len(line) - len(magic)]}pass  # {magic}"


def _cell(cell: dict[str, Any]) -> Cell:
    cell_id, kind = cell.get("id"), cell.get("cell_type")
    source = cell.get("source", cell.get("input"))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return Cell(
        cell_id if isinstance(cell_id, str) else None,
        kind if isinstance(kind, str) else "",
        source.encode("utf-8", "replace").decode("utf-8") if isinstance(source, str) else "",  # half a surrogate pair
    )


def _read_text(path: Path) -> str:
    if path.is_symlink():  # its target may be anything on this machine, the solution included
        raise _no_notebook(path, "a link", "Put the notebook itself there.")
    if not path.exists():
        raise SubmissionError(f"{path.name} is not there.", expected="a notebook", got="no such file", todo="Check the path.")
    if not path.is_file():
        raise _no_notebook(path, "a folder" if path.is_dir() else "no ordinary file", "Name the notebook itself.")
    try:
        size = path.stat().st_size
        if size > LIMIT_BYTES:
            got, todo = f"{size / 2**20:.0f} MB", "Clear its outputs and save it again."
            raise SubmissionError(f"{path.name} is too large.", expected=f"at most {LIMIT_BYTES >> 20} MB", got=got, todo=todo)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _no_notebook(path, "bytes that are no text") from None
    except OSError as error:
        raise _no_notebook(path, error.strerror or "an unreadable file") from None


def _refuse_too_many_values(path: Path, text: str) -> None:
    """Long outputs are texts, and take what they take in the file; a hundred MB of "[],[],[]" would take twenty times that."""
    if len(text) <= FEW_BYTES:
        return
    structure = _TEXTS.sub("", text)
    values = sum(structure.count(mark) for mark in ",[{")
    if values > LIMIT_VALUES:
        got, todo = f"{values:,} values", "Clear its outputs and save it again."
        raise SubmissionError(f"{path.name} is too large.", expected=f"at most {LIMIT_VALUES:,} values", got=got, todo=todo)


def _no_notebook(path: Path, got: str, todo: str = "Save it again from Jupyter.") -> SubmissionError:
    return SubmissionError(f"{path.name} is not a notebook.", expected="an .ipynb file", got=got, todo=todo)
