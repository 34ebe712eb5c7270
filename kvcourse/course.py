"""Every lesson: the lessons, where they lie, and the learner's own copies. Knows nothing about what is in them.

A learner never edits a tracked file. `prepare_work` copies the exercises into work/, which git ignores, and never
overwrites: it remembers the digest of what it copied, so it can tell when the course has a newer version of an exercise.
The course keeps its exercises with the outputs of finished ones; a copy has none, since nothing in it has been run.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from kvcourse.content import exercises_folder
from kvcourse.errors import SetupError, UnknownName

RECORD = ".kvcourse.json"  # in the work folder: what was copied from where


class Lesson(NamedTuple):
    """One lesson. Its notebook is notebooks/{name}.ipynb; its exercise, if it has one, exercises/{name}.ipynb."""

    name: str
    question: str
    builds: str

    @property
    def number(self) -> int:
        return int(self.name[:2])

    @property
    def has_exercise(self) -> bool:
        return self.number >= 2

    def is_built(self, root: Path) -> bool:
        return (root / "notebooks" / f"{self.name}.ipynb").is_file()


LESSONS = (
    Lesson("01_tokens_to_logits", "What does a language model compute?", "tokens, embedding, logits, the naive loop"),
    Lesson("02_attention", "How does a token look back?", "attention by hand, then with torch"),
    Lesson("03_gpt", "What is a GPT made of?", "a GPT, trained in about a minute"),
    Lesson("04_weights_and_activations", "Which tensors are weights, which are computed?", "inventory and trace of a model"),
    Lesson("05_wasted_work", "Why is plain generation slow?", "the recompute loop under a meter; prefill and decode"),
    Lesson("06_kv_cache", "How does a cache enter attention?", "the growing cache, and the proof that it changes nothing"),
    Lesson("07_fast_cache", "What does the cache itself cost?", "the preallocated cache; memory and speed"),
    Lesson("08_smaller_cache", "How can it be made smaller?", "grouped heads, sliding window, int8 and int4 keys and values"),
    Lesson("09_pages", "How do many sequences share memory?", "the block pool, the paged cache, copy-on-write"),
    Lesson("10_prefix_cache", "How is work reused between requests?", "hash-chained blocks and a radix tree"),
    Lesson("11_sessions", "What survives between turns?", "sessions: fork, rewind, save and resume"),
    Lesson("12_context_budget", "Why do naive agents burn tokens?", "the ledger, an agent simulator, context policies"),
    Lesson("13_cache_friendly_prompts", "How do I stop paying for misses?", "a linter for prompts; provider rules and prices"),
    Lesson("14_capstone", "Same logits, or it did not happen", "everything, on the real model"),
)


def course_root(start: Path | None = None) -> Path:
    """The folder that holds notebooks/ and exercises/: KVCOURSE_COURSE, else above `start` (the current folder), else
    around the package itself (an editable install).

    Raises: SetupError where there is none.
    """
    named = os.environ.get("KVCOURSE_COURSE")
    if named:
        if not _is_course(Path(named)):
            raise SetupError(
                "KVCOURSE_COURSE does not name a copy of the course.",
                expected="a folder with pyproject.toml and notebooks/ or sources/",
                got=named,
                todo="Correct the variable, or unset it.",
            )
        return Path(named).resolve()
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parent.parent):
        if _is_course(folder):
            return folder
    raise SetupError(
        "The course's folder was not found.",
        expected="a clone of the course around the current folder",
        got=here,
        todo="Run this inside your clone, or set KVCOURSE_COURSE to it.",
    )


@dataclass(frozen=True)
class Place:
    """Where a learner works: work/ goes into `root`, and is filled from `exercises`."""

    root: Path
    exercises: Path
    is_clone: bool


def learners_place(start: Path | None = None) -> Place:
    """The clone, where there is one; else the current folder, and the exercises that came with the package.

    Raises: SetupError if KVCOURSE_COURSE names no clone, or if there are no exercises anywhere.
    """
    try:
        root = course_root(start)
    except SetupError:
        if os.environ.get("KVCOURSE_COURSE"):
            raise
        return Place((start or Path.cwd()).resolve(), exercises_folder(), is_clone=False)
    return Place(root, root / "exercises", is_clone=True)


def _is_course(folder: Path) -> bool:
    """A clone of this project. Its pyproject names it, so a neighbour that also has a notebooks/ folder is not taken for it."""
    project = folder / "pyproject.toml"
    if not project.is_file() or not ((folder / "notebooks").is_dir() or (folder / "sources").is_dir()):
        return False
    return 'name = "kvcourse"' in project.read_text(encoding="utf-8", errors="replace")


Action = Literal["copied", "kept", "newer", "unknown"]


@dataclass(frozen=True)
class Prepared:
    """What became of one exercise. `newer`: the course's version changed since; it lies in `offered`."""

    exercise: str
    action: Action
    path: Path
    offered: Path | None = None


def prepare_work(exercises: Path, work: Path) -> list[Prepared]:
    """Copy exercises into `work`, overwriting nothing. A second call changes nothing unless the course has changed."""
    work.mkdir(parents=True, exist_ok=True)
    record = _read_record(work)
    prepared = []
    for source in sorted(exercises.glob("*.ipynb")):
        result, record[source.name] = _prepare_one(source, work / source.name, record.get(source.name, {}))
        prepared.append(result)
        _write_record(work, record)  # after each: an interruption loses nothing
        if result.action == "copied":
            _forget_progress(work, source.stem)
    return prepared


def _forget_progress(work: Path, name: str) -> None:
    """What `progress` knows about an exercise whose copy is new was about another one."""
    from kvcourse.checks.progress import forget
    from kvcourse.checks.registry import EXERCISES

    forget(work, [task.name for exercise in EXERCISES if exercise.file == name for task in exercise.tasks])


def _prepare_one(source: Path, target: Path, known: dict[str, str]) -> tuple[Prepared, dict[str, str]]:
    """`known` holds two digests of the course's file: the version `target` came from ("copied"), and the newer version
    that was put beside it ("offered")."""
    content = source.read_bytes()
    now, fresh = _digest(content), _not_run(content)
    if not target.exists():
        _write_new(target, fresh)
        return Prepared(source.name, "copied", target), {"copied": now}
    if known.get("copied") == now or target.read_bytes() in (fresh, content):
        return Prepared(source.name, "kept", target), {"copied": now}
    if "copied" not in known:  # the learner's own file, or the record was lost: notice changes from here on
        return Prepared(source.name, "unknown", target), {"copied": now}
    offered = target.with_name(f"{target.stem}.new-{now[:8]}.ipynb")
    if not offered.exists():
        if known.get("offered") == now:  # it was put there and the learner took it, or threw it away: settled
            return Prepared(source.name, "kept", target), {"copied": now}
        _write_new(offered, fresh)
    return Prepared(source.name, "newer", target, offered), {**known, "offered": now}


def _not_run(content: bytes) -> bytes:
    """A notebook in which nothing has been run: no outputs, no counts, and every other line as it was. What is no notebook
    is left as it is."""
    try:
        notebook = json.loads(content)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell.update(outputs=[], execution_count=None)
    except (ValueError, KeyError, TypeError):
        return content
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _write_new(target: Path, content: bytes) -> None:
    """Write to a name that must not exist: mode x refuses to open over a file that appeared meanwhile."""
    try:
        with open(target, "xb") as file:
            file.write(content)
    except FileExistsError:
        raise
    except BaseException:
        target.unlink(missing_ok=True)  # half a notebook would be kept for ever
        raise


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read_record(work: Path) -> dict[str, dict[str, str]]:
    try:
        record = json.loads((work / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # none yet, or unreadable: every exercise already there is "unknown" once
    if not isinstance(record, dict):
        return {}
    return {name: entry for name, entry in record.items() if isinstance(entry, dict)}


def _write_record(work: Path, record: dict[str, dict[str, str]]) -> None:
    unfinished = work / f"{RECORD}.part"
    unfinished.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(unfinished, work / RECORD)


def lesson_path(root: Path, number: int) -> str:
    """A lesson's notebook, relative to the course's folder, with forward slashes: part of a JupyterLab address.

    Raises: UnknownName if there is no such lesson; SetupError if it is not written yet.
    """
    found = [lesson for lesson in LESSONS if lesson.number == number]
    if not found:
        raise UnknownName("There is no such lesson.", expected=f"1 to {len(LESSONS)}", got=number, todo="Choose one of these.")
    if not found[0].is_built(root):
        built = [str(lesson.number) for lesson in LESSONS if lesson.is_built(root)]
        todo = f"Open one of these: {', '.join(built)}." if built else "Build the notebooks with `make notebooks`."
        raise SetupError(
            f"Lesson {number} is not here.", expected=f"notebooks/{found[0].name}.ipynb", got="no such file", todo=todo
        )
    return f"notebooks/{found[0].name}.ipynb"
