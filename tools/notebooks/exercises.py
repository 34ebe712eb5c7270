"""Maintainers only: cuts the solutions out of an exercise. Knows nothing about kernels or files.

A solution stands between nbgrader's two marks, in a code cell whose header names the exercise. In exercises/ the marks and
what is between them become one line, at the first mark's indentation:

    raise NotImplementedError("Exercise 6.2: write this function")
"""

import copy
import html
import re

from nbformat import NotebookNode

from tools.notebooks.outputs import texts
from tools.notebooks.source import BuildError, Source, is_python

_MARK = re.compile(r"^(\s*)### (BEGIN|END) SOLUTION\s*$")
_NEARLY = re.compile(r"(?i)#\s*(begin|end)\s+solution")
_HTML_TAG = re.compile(r"<[^>]+>")
_SHORT = 12  # a shorter line ("return out", "else:") says nothing about a solution


def regions(source: Source, index: int) -> list[tuple[int, int]]:
    """First and last line (0-based, marks included) of each solution in a cell. Raises BuildError on a stray mark."""
    cell = source.cells[index]
    lines, found, begin = cell.source.splitlines(), [], None
    for number, line in enumerate(lines):
        mark = _MARK.match(line)
        if not mark:
            if _NEARLY.search(line):
                raise _error(source, index, number, "write the mark alone on its line, as `### BEGIN SOLUTION`.")
            continue
        if (mark[2] == "BEGIN") != (begin is None):
            fault = "END SOLUTION before BEGIN." if begin is None else "a second BEGIN SOLUTION before END."
            raise _error(source, index, number, fault)
        if begin is None:
            begin = number
        else:
            first = next((inner for inner in lines[begin + 1 : number] if inner.strip()), "")
            if not first or len({_indent(lines[begin]), _indent(first), mark[1]}) > 1:
                raise _error(source, index, begin, "the marks stand at the indentation of the solution between them.")
            found.append((begin, number))
            begin = None
    if begin is not None:
        raise _error(source, index, begin, "BEGIN SOLUTION without END SOLUTION.")
    if found and not (source.is_exercise and cell.cell_type == "code"):
        raise _error(source, index, found[0][0], "a solution outside the code cells of an exercise.")
    if found and "exercise" not in cell.metadata:
        fault = f'a solution in a cell that names no exercise: add `exercise="{source.number}.1"` to its header.'
        raise _error(source, index, found[0][0], fault)
    return found


def stubbed(source: Source, index: int) -> NotebookNode:
    """A copy of the cell with each solution replaced by the line that says what is missing."""
    cell = copy.deepcopy(source.cells[index])
    lines = cell.source.splitlines()
    for begin, end in reversed(regions(source, index)):
        indent = _indent(lines[begin])
        what = "write this function" if indent else "write this code"
        lines[begin : end + 1] = [f'{indent}raise NotImplementedError("Exercise {cell.metadata["exercise"]}: {what}")']
    text = "\n".join(lines)
    if text != cell.source and not (is_python(cell.source) and is_python(text)):
        raise _error(source, index, 0, "without its solution (or with it) this cell is not valid Python.")
    cell.source = text
    return cell


def solution_lines(source: Source) -> set[str]:
    """The lines that only the solutions hold: none may appear in exercises/, outputs included."""
    inside: set[str] = set()
    outside: set[str] = set()
    for index, cell in enumerate(source.cells):
        hidden = {number for begin, end in regions(source, index) for number in range(begin, end + 1)}
        for number, line in enumerate(cell.source.splitlines()):
            (inside if number in hidden else outside).add(line.strip())
    return {line for line in inside - outside if len(line) >= _SHORT and not _MARK.match(line)}


def refuse_leaks(source: Source, notebook: NotebookNode) -> None:
    """Raise BuildError when an output that learners get shows a line of a solution (`show_source(answer)` would)."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = "\n".join(html.unescape(_HTML_TAG.sub("", text)) for cell in code for text in texts(cell))
    for line in sorted(solution_lines(source)):
        if line in shown:
            raise BuildError(f"{source.relative}:1: an output in exercises/ would show a line of the solution: {line!r}.")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _error(source: Source, index: int, line: int, fault: str) -> BuildError:
    first = source.lines[index] + 1 + line  # the line after the header is the cell's first
    cell_id = source.cells[index].id
    return BuildError(f'{source.relative}:{first}: cell "{cell_id}": {fault}')
