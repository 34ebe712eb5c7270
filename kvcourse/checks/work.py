"""Every lesson: the learner's own copies, and putting one cell of them back. Knows nothing about checks and grading.

`reset_task` writes into a notebook that may be open in a browser, so it is careful: the old text is kept aside under a name of
its own, everything but one cell stays as it was, byte for byte, and the file is replaced in one step.
"""

import copy
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from kvcourse.checks.cells import canonical_notebook, cells_of, defines, is_old_format, read_notebook
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.progress import forget
from kvcourse.checks.registry import EXERCISES, find_task
from kvcourse.course import RECORD, learners_place
from kvcourse.errors import SetupError, SubmissionError

ASIDE = ".kvcourse-aside"  # in the work folder: texts that reset took out
REPORT = "KVCOURSE_CHECK_REPORT"  # set while a notebook is being checked
_COURSES_OWN = ("exercises", "solutions", "notebooks")


def work_folder() -> Path:
    """The folder with the learner's copies: the current one if it holds some, else work/ in it, else the course's work/.

    Raises: SetupError if there is none, or if KVCOURSE_COURSE is wrong.
    """
    here = Path.cwd().resolve()
    root = learners_place().root
    own = {root / name for name in _COURSES_OWN}
    for folder in (here, here / "work", root / "work"):
        if folder not in own and any((folder / name).is_file() for name in (RECORD, *_names())):
            return folder
    raise SetupError(
        "Your copies of the exercises were not found.",
        expected="exercise notebooks in work/",
        got=f"none in or around {here}",
        todo="Make them with `kvcourse start`.",
    )


def copy_of(exercise: Exercise, work: Path | None = None) -> Path:
    """The learner's copy of an exercise. `work`: the folder it is in, found if left out.

    Raises: SetupError if there is none.
    """
    folder = work_folder() if work is None else work
    path = folder / f"{exercise.file}.ipynb"
    if not path.is_file():
        todo = "Make it with `kvcourse start`."
        raise SetupError("Your copy of this exercise is not there.", expected=path.name, got=f"none in {folder}", todo=todo)
    return path


def reset_task(name: str, work: Path | None = None) -> str:
    """Put a task's cell back as it was in the learner's copy; return what was done, in one or two sentences.

    name: such as "6.2". work: the folder with the copies, found if left out.
    Raises: UnknownName, SetupError, or SubmissionError if the copy is no notebook that can be written.
    """
    exercise, task = find_task(name)
    name = task.name
    if os.environ.get(REPORT):
        return f"{name} was not reset: this notebook is being checked."
    path = copy_of(exercise, work)
    notebook = read_notebook(path)
    if is_old_format(notebook):
        raise SubmissionError(
            f"{path.name} is of nbformat 3.", expected="nbformat 4", got="3", todo="Save it from Jupyter first."
        )
    text = path.read_bytes().decode("utf-8-sig")
    fresh = _fresh_cell(exercise, task, notebook)
    index = _find(notebook, task)
    if index is None:
        where = _put_back(notebook, task, fresh)
        done = f"{name} had no cell any more, so a new one stands {where}."
    else:
        old = notebook["cells"][index]
        new = fresh | {"metadata": old.get("metadata", {})}
        if old == new:
            forget(path.parent, [name])
            return f"{name} is as it was in the beginning: nothing to reset."
        kept = _keep_aside(path, exercise, task, cells_of({"cells": [old]})[0].source)
        notebook["cells"][index] = new
        done = f"{name} is as it was in the beginning. Your text is in {_from_here(kept)}."
        if old.get("id") != task.cell:
            done += f" (Its cell's id was lost; {task.answers} was found by its name.)"
    _write(path, notebook, text)
    forget(path.parent, [name])
    return f"{done} If the notebook is open, choose File, Reload Notebook from Disk."


def _from_here(path: Path) -> str:
    """A path that can be typed where the learner is."""
    try:
        return Path(os.path.relpath(path)).as_posix()
    except ValueError:  # another drive
        return path.as_posix()


def _names() -> list[str]:
    return [f"{exercise.file}.ipynb" for exercise in EXERCISES]


def _fresh_cell(exercise: Exercise, task: Task, notebook: dict[str, Any]) -> dict[str, Any]:
    """The course's cell, fit for this notebook: cells have ids since nbformat 4.5."""
    given = canonical_notebook(exercise)["cells"]
    fresh = copy.deepcopy(next(cell for cell in given if cell.get("id") == task.cell))
    fresh |= {"outputs": [], "execution_count": None}
    minor = notebook.get("nbformat_minor")
    if notebook.get("nbformat") == 4 and isinstance(minor, int) and minor < 5:
        del fresh["id"]
    return fresh


def _find(notebook: dict[str, Any], task: Task) -> int | None:
    """The answer's cell: by its id, the one that defines the answer if the id is there twice, else by the answer's name."""
    places = [index for index, cell in enumerate(notebook["cells"]) if isinstance(cell, dict)]
    cells = dict(zip(places, cells_of(notebook), strict=True))
    with_id = [index for index, cell in cells.items() if cell.id == task.cell]
    named = [index for index, cell in cells.items() if cell.kind == "code" and defines(cell.source, task.answers)]
    for found in ([index for index in with_id if index in named], with_id, named):
        if found:
            return found[-1]
    return None


def _put_back(notebook: dict[str, Any], task: Task, fresh: dict[str, Any]) -> str:
    """Insert the cell above its check, or at the end where there is none."""
    for index, cell in enumerate(notebook["cells"]):
        if isinstance(cell, dict) and cell.get("id") == task.check_cell:
            notebook["cells"].insert(index, fresh)
            return "above its check"
    notebook["cells"].append(fresh)
    return "at the end of the notebook"


def _keep_aside(path: Path, exercise: Exercise, task: Task, text: str) -> Path:
    """Write the old text to a new file. Mode x: an older one is never overwritten."""
    folder = path.parent / ASIDE / exercise.file
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        target = folder / (f"{task.name}-{stamp}.py" if number == 1 else f"{task.name}-{stamp}-{number}.py")
        try:
            with open(target, "x", encoding="utf-8", errors="replace", newline="") as file:
                file.write(text if text.endswith("\n") else text + "\n")
        except FileExistsError:
            continue
        return target
    raise SetupError("Your text could not be kept aside.", expected="a free name", got=str(folder), todo="Empty that folder.")


def _write(path: Path, notebook: dict[str, Any], before: str) -> None:
    """Replace the file in one step, formatted as it was: Jupyter's way, or another editor's where that reproduces it."""
    parsed = json.loads(before)
    indent = next((indent for indent in (1, 2, 4, None) if _dumps(parsed, indent, before) == before), 1)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(unfinished, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:  # \ud83d alone: JSON's way
            file.write(_dumps(notebook, indent, before))
        shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _dumps(notebook: dict[str, Any], indent: int | None, before: str) -> str:
    """Notebook to text, with the line ends that the text `before` has."""
    escaped = before.isascii() and "\\u" in before
    text = json.dumps(notebook, indent=indent, ensure_ascii=escaped) + before[len(before.rstrip()) :]
    return text.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in before else text
