"""Maintainers only: which notebooks there must be, writing them, and checking them. Knows nothing about kernels.

A notebook is written only after every cell of its source ran, through a temporary file beside it: a build that fails leaves
the committed notebook as it was.
"""

import copy
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from packaging.version import InvalidVersion, Version

from kvcourse import __version__
from tools.notebooks.execute import TIMEOUT_S, execute
from tools.notebooks.exercises import refuse_leaks, regions, stubbed
from tools.notebooks.grading import for_graders, refuse_leaks_from_checks
from tools.notebooks.outputs import faults
from tools.notebooks.source import BuildError, Source, find

FOLDERS = ("notebooks", "exercises", "solutions")
REBUILD = "run `make notebooks`."


def templates(source: Source) -> dict[Path, NotebookNode]:
    """The notebooks of a source, without outputs; the first is the one that is executed."""
    source.check_name()
    indices = range(len(source.cells))
    solutions = [regions(source, index) for index in indices]
    if not source.is_exercise:
        full = source.notebook(copy.deepcopy(source.cells))
        return {source.root / "notebooks" / f"{source.name}.ipynb": full}
    if not any(solutions):
        raise BuildError(f"{source.relative}:1: an exercise without a solution between the marks.")
    refuse_leaks_from_checks(source)
    full = source.notebook(for_graders(source, copy.deepcopy(source.cells)))
    stubs = source.notebook(for_graders(source, [stubbed(source, index) for index in indices]))
    return {
        source.root / "solutions" / f"{source.name}.ipynb": full,
        source.root / "exercises" / f"{source.name}.ipynb": stubs,
    }


def select(root: Path, names: Sequence[str]) -> list[Source]:
    """All sources, or those named: a number ("6", "06"), a name, a path. Raises BuildError for a name that fits none."""
    sources = find(root)
    if not names:
        return sources
    for name in names:
        if not any(source.is_called(name) for source in sources):
            raise BuildError(f"no source fits {name!r}. There are: {', '.join(sorted({s.name for s in sources})) or 'none'}.")
    return [source for source in sources if any(source.is_called(name) for name in names)]


def build(
    root: Path,
    names: Sequence[str] = (),
    *,
    force: bool = False,
    timeout_s: int = TIMEOUT_S,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Execute and write what is not up to date; return the notebooks written. Raises BuildError at the first fault."""
    written: list[Path] = []
    for source in select(root, names):
        if not force and not problems(source):
            say(f"unchanged {source.relative}")
            continue
        started = time.monotonic()
        targets = templates(source)
        executed_path, executed = next(iter(targets.items()))
        executed_path.parent.mkdir(parents=True, exist_ok=True)
        done = {executed_path: execute(source, executed, executed_path.parent, timeout_s)}
        for path, stubs in list(targets.items())[1:]:
            done[path] = _with_reference(source, stubs, done[executed_path])
        _write(done)
        written += done
        say(f"executed  {source.relative} in {time.monotonic() - started:.1f} s")
    return written


def check(root: Path, names: Sequence[str] = ()) -> list[str]:
    """Everything that is wrong with the committed notebooks; executes nothing. Empty: they match their sources."""
    found = [problem for source in select(root, names) for problem in problems(source)]
    if not names:
        kinds = {(source.is_exercise, source.name) for source in find(root)}
        for path in sorted(path for folder in FOLDERS for path in (root / folder).glob("*.ipynb")):
            if (path.parent.name != "notebooks", path.stem) not in kinds:
                found.append(f"{path.parent.name}/{path.name}: no source; delete it.")
    return found


def problems(source: Source) -> list[str]:
    """How the committed notebooks of one source differ from what it must give, outputs apart."""
    try:
        targets = templates(source)
    except BuildError as error:
        return [str(error)]
    found, committed = [], {}
    for path, template in targets.items():
        name = path.relative_to(source.root).as_posix()
        try:
            committed[path] = _read(path)
        except (OSError, ValueError, nbformat.ValidationError) as error:
            found.append(f"{name}: {'missing' if not path.exists() else f'unreadable ({error})'}; {REBUILD}")
            continue
        fault = (
            _version_fault(template, committed[path])
            or _difference(template, committed[path])
            or _output_fault(source, path, committed[path])
        )
        if fault:
            found.append(f"{name}: {fault}")
    if source.is_exercise and not found:
        (solution, exercise), (_, stubs) = committed.values(), targets.values()
        try:
            if _with_reference(source, stubs, solution) != exercise:
                found.append(f"exercises/{source.name}.ipynb: its reference outputs are not the solution's; {REBUILD}")
        except BuildError as error:
            found.append(str(error))
    return found


def canonical(notebook: NotebookNode) -> str:
    """The one way to write a notebook: sorted keys, one space, a newline at the end."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def _with_reference(source: Source, stubs: NotebookNode, solution: NotebookNode) -> NotebookNode:
    """The stubs with the outputs of the solution's check cells. The other cells are left as not run, so that nothing which
    depends on an answer is shown, and nbval compares the check cells alone."""
    for cell, ran in zip(stubs.cells, solution.cells, strict=True):
        if "check" in cell.metadata.get("tags", []):
            cell.execution_count, cell.outputs = ran.execution_count, copy.deepcopy(ran.outputs)
    refuse_leaks(source, stubs)
    return stubs


def _read(path: Path) -> NotebookNode:
    text = path.read_text(encoding="utf-8")
    raw = json.loads(text)
    if not isinstance(raw, dict) or (raw.get("nbformat"), raw.get("nbformat_minor")) != (4, 5):
        raise ValueError("not a notebook of format 4.5")
    nbformat.validate(raw)
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    if canonical(notebook) != text:
        raise ValueError("edited by hand or by a notebook editor")
    return notebook


def _version_fault(template: NotebookNode, committed: NotebookNode) -> str | None:
    """An exercise names the version of the course that built it, and a new version leaves the unchanged ones as they are:
    learners would be told of a newer exercise that is the same. So the template takes over an older version."""
    if "version" not in template.metadata.kvcourse:
        return None
    version = committed.metadata.get("kvcourse", {}).get("version")
    try:
        if Version(str(version)) > Version(__version__):
            return f"built by version {version}, which is newer than this one, {__version__}; {REBUILD}"
    except InvalidVersion:
        return f"no version of the course that built it; {REBUILD}"
    template.metadata.kvcourse.version = version
    return None


def _difference(template: NotebookNode, committed: NotebookNode) -> str | None:
    want, got = template.metadata.get("kvcourse"), committed.metadata.get("kvcourse")
    if want != got:
        return f"built from another state of {want.source}; {REBUILD}"
    if template.metadata != committed.metadata:
        return f"its metadata differs; {REBUILD}"
    ids = [[cell.id for cell in notebook.cells] for notebook in (template, committed)]
    if ids[0] != ids[1]:
        return f"its cells are not those of the source; {REBUILD}"
    for want, got in zip(template.cells, committed.cells, strict=True):
        for part in ("cell_type", "source", "metadata"):
            if want[part] != got[part]:
                return f'the {part} of cell "{want.id}" differs; {REBUILD}'
    return None


def _output_fault(source: Source, path: Path, notebook: NotebookNode) -> str | None:
    executed = path.parent.name != "exercises"
    count = 0
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        count += 1
        kept = executed or "check" in cell.metadata.get("tags", [])
        if cell.execution_count != (count if kept else None) or (cell.outputs and not kept):
            return f'the execution count or the outputs of cell "{cell.id}" are not as built; {REBUILD}'
        fault = next(faults(cell, source.root), None)
        if fault:
            return f'cell "{cell.id}": {fault}'
    return None


def _write(notebooks: dict[Path, NotebookNode]) -> None:
    """All of them, or none: every text is on disk before the first notebook is replaced."""
    texts = {path: canonical(notebook) for path, notebook in notebooks.items()}
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in texts}
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary[path].write_text(text, encoding="utf-8", newline="\n")
        for path in texts:
            os.replace(temporary[path], path)
    finally:
        for leftover in temporary.values():
            leftover.unlink(missing_ok=True)
