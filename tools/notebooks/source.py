"""Maintainers only: reads a percent-format source. Knows nothing about kernels or outputs.

A cell header carries what the notebook needs, and the id comes first:

    # %% [markdown] id="intro"
    # %% id="restart" tags=["volatile"]
    # %% id="append" exercise="6.2"
    # %% id="check-append" tags=["check"] exercise="6.2"

A plain conversion invents a new id at every run; here a person writes it, it is checked, and it becomes `cell.id`.
"""

import ast
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jupytext
import nbformat
from jupytext.stringparser import StringParser
from nbformat import NotebookNode

from kvcourse import __version__

# Raise it when the same source must give another notebook: every committed notebook is then out of date, and is rebuilt.
FORMAT_VERSION = 1

TAGS = {
    "volatile": "the output differs from run to run: kept, never compared",
    "check": "an exercise's check: exercises/ keeps its reference output",
    "raises-exception": "the cell ends in an error, on purpose",
}
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {  # without "version", which differs from machine to machine
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}
_NAME = re.compile(r"(\d\d)_[a-z0-9_]+")
_HEADER = re.compile(r"# %%(?:\s|$)")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # nbformat's rule
_NBVAL_COMMENT = re.compile(r"^\s*#+\s*(?:NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.MULTILINE)
_SEMICOLON = re.compile(r";[ \t]*(?:#[^\n]*)?\s*\Z")
_EXERCISE = re.compile(r"(\d+)\.\d+")


class BuildError(Exception):
    """A source, a cell or an output that cannot become a notebook. The message starts with file and line."""


@dataclass(frozen=True)
class Source:
    """One file below sources/, and where it stands in the repository at `root`."""

    root: Path
    path: Path

    @property
    def relative(self) -> str:
        return self.path.relative_to(self.root).as_posix()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def number(self) -> int | None:
        found = _NAME.fullmatch(self.name)
        return int(found[1]) if found else None

    def is_called(self, name: str) -> bool:
        """True for this source's number ("6", "06"), name or path."""
        stem = Path(name).stem
        return stem == self.name or (stem.isdecimal() and int(stem) == self.number)

    def check_name(self) -> None:
        if self.number is None:
            raise BuildError(f"{self.relative}:1: a source is named NN_name.py, in small letters, digits and underscores.")

    @property
    def is_exercise(self) -> bool:
        return self.path.parent.name == "exercises"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")  # universal newlines: a checkout on Windows has the same digest

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"format {FORMAT_VERSION}\n{self.text}".encode()).hexdigest()

    @cached_property
    def cells(self) -> list[NotebookNode]:
        """The notebook's cells, solutions included, each with its id, and nbval's tag beside `volatile`."""
        return [self._cell(index, parsed) for index, parsed in enumerate(self._parsed)]

    @cached_property
    def lines(self) -> list[int]:
        """The line (counted from 1) of each cell's header."""
        parser, lines = StringParser("python"), []
        for number, line in enumerate(self.text.splitlines(), 1):
            if not parser.is_quoted() and _HEADER.match(line):
                lines.append(number)
            parser.read_line(line)
        return lines

    @cached_property
    def _parsed(self) -> list[NotebookNode]:
        try:
            cells = jupytext.reads(self.text, fmt="py:percent").cells
        except Exception as error:  # jupytext and nbformat raise many kinds
            raise BuildError(f"{self.relative}:1: jupytext cannot read this source: {error}") from error
        if len(cells) == len(self.lines) + 1:
            if cells[0].source.strip():
                raise BuildError(f'{self.relative}:1: text before the first cell. Begin with `# %% [markdown] id="title"`.')
            cells = cells[1:]
        if not cells or len(cells) != len(self.lines):
            raise BuildError(f"{self.relative}:1: jupytext sees {len(cells)} cells, and there are {len(self.lines)} headers.")
        return cells

    def where(self, index: int) -> str:
        """`file:line: cell "id"`, the beginning of every message about a cell."""
        cell_id = self._parsed[index].metadata.get("id")
        return f"{self.relative}:{self.lines[index]}: cell" + (f' "{cell_id}"' if cell_id else "")

    def _cell(self, index: int, parsed: NotebookNode) -> NotebookNode:
        metadata = {key: value for key, value in parsed.metadata.items() if key not in ("lines_to_next_cell", "cell_marker")}
        fault = self._fault(parsed, metadata)
        if fault:
            raise BuildError(f"{self.where(index)}: {fault}")
        cell_id = metadata.pop("id")
        first = next(i for i, cell in enumerate(self._parsed) if cell.metadata.get("id") == cell_id)
        if first != index:
            raise BuildError(f"{self.where(index)}: the same id as the cell at line {self.lines[first]}.")
        if "volatile" in metadata.get("tags", []):
            metadata["tags"] = [*metadata["tags"], "nbval-ignore-output"]
        make = nbformat.v4.new_code_cell if parsed.cell_type == "code" else nbformat.v4.new_markdown_cell
        return make(parsed.source, id=cell_id, metadata=metadata)

    def _fault(self, cell: NotebookNode, metadata: dict) -> str | None:
        cell_id, tags, exercise = metadata.get("id"), metadata.get("tags", []), metadata.get("exercise")
        unknown = sorted(set(tags) - set(TAGS))
        if not isinstance(cell_id, str):
            return 'no id. Write one in the header: `# %% id="short-name"`.'
        if not _ID.fullmatch(cell_id):
            return "an id is 1 to 64 letters, digits, hyphens and underscores."
        if unknown:
            return f"unknown tag {unknown[0]!r}. Known: {', '.join(TAGS)}."
        if cell.cell_type not in ("code", "markdown"):
            return f"a {cell.cell_type} cell. Use code or [markdown]."
        if not cell.source.strip():
            return "the cell is empty."
        if cell.cell_type == "markdown":
            return "a text cell has no tags." if tags else None
        if any(re.match(r"%%\S", line) for line in cell.source.splitlines()[1:]):
            return "a cell magic after the first line, or a header without a space after `# %%`."
        if _SEMICOLON.search(cell.source):  # nbval runs cells without history, and there IPython does not see it
            return "a `;` at the end hides the value in JupyterLab, and not under nbval. Write `_ = ...`."
        if _NBVAL_COMMENT.search(cell.source):
            return "a comment that changes what nbval compares. Use the tag volatile."
        if "check" in tags and not self.is_exercise:
            return "only an exercise has check cells."
        if "check" in tags and len(tags) > 1:
            return "a check is always compared: it cannot be volatile or end in an error."
        found = _EXERCISE.fullmatch(str(exercise)) if exercise is not None else None
        if exercise is not None and (not found or int(found[1]) != self.number):
            return f"exercise={exercise!r} must be {self.number}.1, {self.number}.2 and so on, in quotes, in this file."
        return None

    def notebook(self, cells: list[NotebookNode]) -> NotebookNode:
        """A notebook of these cells, without outputs, that names its source."""
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=nbformat.from_dict(KERNEL))
        notebook.nbformat_minor = 5  # the first with cell ids
        notebook.metadata["kvcourse"] = NotebookNode(source=self.relative, source_sha256=self.digest)
        if self.is_exercise:  # what a grader has to know of a learner's copy; `build` leaves the version of what did not change
            notebook.metadata["kvcourse"].update(exercise=self.name, version=__version__)
        return notebook


def find(root: Path) -> list[Source]:
    """Every source of the repository, lessons first."""
    return [Source(root, path) for kind in ("lessons", "exercises") for path in sorted((root / "sources" / kind).glob("*.py"))]


def is_python(text: str) -> bool:
    """False when the text cannot be parsed."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
