"""Every lesson: which files were handed in, and by whom. Knows nothing about what is in them.

A path is a notebook, a learner's folder of notebooks, or a class: a folder of learners' folders and notebooks, as a learning
platform, nbgrader (`submitted/`) or GitHub Classroom leaves it. One learner is one submission, whatever number of exercises.
In doubt it is a class: a submission too many is seen at once, one that is missing is not. A file is opened only to tell a
learner's second notebook from a second learner's, and what is in it is not understood here.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvcourse.checks.exercise import Exercise
from kvcourse.checks.registry import EXERCISES
from kvcourse.errors import InputError

NOT_HANDED_IN = {"__pycache__", "node_modules", "site-packages"}
# Folders of a course's own, in a learner's clone of it. A copy elsewhere counts before theirs, a stub before a solution.
OUR_STUBS, OUR_SOLUTIONS = {"exercises", "release"}, {"solutions", "sources", "source", "notebooks"}
OURS = OUR_STUBS | OUR_SOLUTIONS
NBGRADERS = {"autograded", "feedback", "downloaded"}  # beside its submitted/; never a learner's name
COPY = r"[ _-]*(copy *\d*|Copy *\d*|\(\d+\)|\d+)"  # what Jupyter, a browser or a person adds to a copy's name
LOOK_BYTES = 32 << 20  # of a notebook that lies beside another
DEEPEST = 6  # folders below a learner's


@dataclass(frozen=True)
class Found:
    """One submission: its name, and its notebooks, the likeliest first."""

    name: str
    path: Path
    files: tuple[Path, ...]
    fault: str | None = None  # there is nothing to grade


def find_submissions(paths: Iterable[Path], *, but: Path | None = None) -> tuple[list[Found], list[Path]]:
    """All submissions below the paths, in the order of the paths and of their names; and what was left out: what is no
    notebook, and what lies beside submitted/. `but`: a folder that is no submission, such as the report's.

    Raises: InputError if there is nothing at all.
    """
    found: list[Found] = []
    left_out: list[Path] = []
    paths = [Path(path) for path in paths]
    for path in paths:
        _look(path, but.resolve() if but else None, found, left_out)
    if not any(os.path.lexists(one.path) for one in found):
        what = [f"{path} {'holds no notebook' if os.path.lexists(path) else 'is not there'}" for path in paths]
        raise InputError(f"There is nothing to grade: {', '.join(what) or 'no path was given'}.", todo="Check the path.")
    once = {one.path.parent.resolve() / one.path.name: one for one in found}  # a path may be named twice
    return _distinct(list(once.values())), left_out


def _look(path: Path, but: Path | None, found: list[Found], left_out: list[Path]) -> None:
    """One path from the command line: what is it?"""
    if not path.is_dir():
        found.append(Found(path.stem, path, (path,)))
    elif _is_learners(path):
        found.append(_learner(path, but))
    else:
        handed_in = path / "submitted"  # an nbgrader course, or its export
        is_layout = handed_in.is_dir() and not _other_learners(path, handed_in.name)
        if is_layout:
            left_out += [entry for entry in _entries(path) if entry.suffix == ".ipynb"]
        for entry in _entries(handed_in if is_layout else path):
            if entry.is_symlink():
                found.append(Found(entry.stem, entry, (), f"{entry.name} is a link, which could lead anywhere."))
            elif entry.resolve() == but:
                continue
            elif entry.is_dir():
                found.append(_learner(entry, but))
            elif entry.suffix == ".ipynb":
                found.append(Found(entry.stem, entry, (entry,)))
            else:
                left_out.append(entry)


def _is_learners(folder: Path) -> bool:
    """Does this folder belong to one learner? It does if it is a repository, or if an exercise lies in it or in its work/ under
    its own name; unless several folders in it hold one, or notebooks of other names have the same exercise: then it is a
    class."""
    if not (folder / ".git").exists():
        if _holds_exercise(folder):
            if any(_is_another_s(entry) for entry in _entries(folder)):
                return False
        elif not _holds_exercise(folder / "work") or _other_learners(folder, "work"):
            return False
    others = [entry for entry in _entries(folder) if entry.is_dir() and entry.name not in OURS | {"work"}]
    return sum(map(_holds_exercise, others)) < 2


def _other_learners(folder: Path, layout: str) -> list[Path]:
    """The folders with notebooks beside one that has a name of our own or of nbgrader's."""
    beside = [entry for entry in _entries(folder) if entry.is_dir() and not entry.is_symlink()]
    names = OURS | NBGRADERS | {layout}
    return [entry for entry in beside if entry.name not in names and any(_notebooks(entry, None, DEEPEST))]


def _is_another_s(file: Path) -> bool:
    """Does a notebook beside an exercise hold the same exercise, and not under the name that a copy of it gets?"""
    if file.suffix != ".ipynb" or file.is_symlink() or not file.is_file():
        return False
    if any(file.stem == one.file or re.fullmatch(COPY, file.stem.removeprefix(one.file)) for one in EXERCISES):
        return False
    try:
        with file.open("rb") as opened:
            text = opened.read(LOOK_BYTES)
    except OSError:
        return False
    return any(f"def {task.answers}".encode() in text for exercise in EXERCISES for task in exercise.tasks)


def _holds_exercise(folder: Path) -> bool:
    return any(os.path.lexists(folder / f"{exercise.file}.ipynb") for exercise in EXERCISES)


def _learner(folder: Path, but: Path | None) -> Found:
    files = sorted(_notebooks(folder, but, DEEPEST), key=lambda file: likeliest_first(file, folder, EXERCISES))
    fault = None if files else f"There is no notebook in {folder.name}."
    return Found(folder.resolve().name, folder, tuple(files), fault)


def _notebooks(folder: Path, but: Path | None, depth: int) -> Iterator[Path]:
    """Links to folders are not followed; a link to a notebook is refused when it is read."""
    for entry in _entries(folder):
        if entry.is_dir() and not entry.is_symlink():
            if depth and entry.resolve() != but:
                yield from _notebooks(entry, but, depth - 1)
        elif entry.suffix == ".ipynb":
            yield entry


def likeliest_first(file: Path, folder: Path, exercises: Sequence[Exercise]) -> tuple[int, bool, bool, int, str]:
    """Which of two notebooks of these exercises counts: not the course's own copy, then the one under its own name, then one
    with the exercise's name or number in its name, then the one less deep, then by name. Never by time: copies lose that."""
    inside = file.relative_to(folder).parts[:-1]
    own = 2 if not OURS & set(inside) else 1 if not OUR_SOLUTIONS & set(inside) else 0
    expected = file.stem in {exercise.file for exercise in exercises}
    named = any(_is_named_after(file.stem, exercise) for exercise in exercises)
    return (-own, not expected, not named, len(inside), file.relative_to(folder).as_posix())


def _is_named_after(stem: str, exercise: Exercise) -> bool:
    """Is it named like "My KV-cache" or "exercise 6, final"? Not if it is like "16"."""
    words = re.sub(r"[\W_]+", "_", stem.casefold())
    name = exercise.file.partition("_")[2].casefold()
    return name in words or re.search(rf"(?<!\d)0*{exercise.number}(?!\d)", words) is not None


def _entries(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []  # unreadable: as if empty, which is told
    return [folder / name for name in names if not name.startswith(".") and name not in NOT_HANDED_IN]


def _distinct(found: Sequence[Found]) -> list[Found]:
    """Names that occur twice get the folder above in front, if that tells them apart; then what they are; then a number."""
    above: dict[str, set[Path]] = {}
    for one in found:
        above.setdefault(one.name, set()).add(one.path.resolve().parent)
    longer = [
        replace(one, name=f"{one.path.resolve().parent.name}/{one.name}") if len(above[one.name]) > 1 else one for one in found
    ]
    counts = Counter(one.name for one in longer)
    told = [
        replace(one, name=f"{one.name} ({'folder' if one.path.is_dir() else one.path.name})") if counts[one.name] > 1 else one
        for one in longer
    ]
    seen: Counter[str] = Counter()
    distinct = []
    for one in told:
        seen[one.name] += 1
        distinct.append(replace(one, name=f"{one.name} ({seen[one.name]})") if seen[one.name] > 1 else one)
    return distinct
