"""Every lesson: many submissions, each graded whatever becomes of the others. Knows nothing about how an answer is judged.

A submission goes through three steps that never raise: its notebooks are read (`prepare`), what they hold is graded as plain
data (`grade`, in a process pool here or on a cluster), and what went wrong on the way is a line in its result.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from kvcourse.checks.registry import EXERCISES
from kvcourse.grader.find import OURS, Found, find_submissions, likeliest_first
from kvcourse.grader.pool import in_threads
from kvcourse.grader.refused import told
from kvcourse.grader.results import SubmissionResult, TaskResult
from kvcourse.grader.submission import Submission, read_submission

Progress = Callable[[int, int, SubmissionResult | None], None]  # how many are done, of how many, the last one


@runtime_checkable
class Grader(Protocol):
    """What grades one exercise of one submission; see `sealed.SealedGrader`."""

    @property
    def protections(self) -> tuple[str, ...]: ...

    def grade(
        self,
        exercise_file: str,
        answers: Mapping[str, str | None],
        extra: Sequence[str],
        again: Mapping[str, Sequence[str]] = ...,
    ) -> list[TaskResult]: ...

    def close(self) -> None: ...


MakeGrader = Callable[[int], Grader]  # from the seed


@dataclass(frozen=True)
class Part:
    """One exercise of a submission: what a grader gets."""

    exercise: str
    answers: dict[str, str | None]
    extra: tuple[str, ...]
    again: dict[str, tuple[str, ...]] = field(default_factory=dict)  # see Submission.again


@dataclass(frozen=True)
class Prepared:
    """One submission as plain data, fit to be sent to another machine."""

    name: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    look: tuple[str, ...]  # those of the notes that say which of two notebooks counted
    faults: tuple[str, ...]


def grade_all(
    paths: Iterable[Path],
    *,
    seed: int,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    make_grader: MakeGrader | None = None,
) -> list[SubmissionResult]:
    """Grade every submission below the paths, in the order of `find_submissions`.

    jobs: how many at once here; None: one for each core. scheduler: address of a Dask cluster to do it instead.
    Raises: InputError if there is nothing to grade, or no cluster at that address.
    """
    found, _ = find_submissions(paths)
    return grade_found(found, seed=seed, jobs=jobs, scheduler=scheduler, progress=progress, make_grader=make_grader)


def grade_found(
    found: Sequence[Found],
    *,
    seed: int,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
    make_grader: MakeGrader | None = None,
) -> list[SubmissionResult]:
    """The same, when the submissions have been found already."""
    results: dict[int, SubmissionResult] = {}
    if progress:
        progress(0, len(found), None)
    for number, result in _graded(found, seed, jobs, scheduler, make_grader or _sealed):
        results[number] = result
        if progress:
            progress(len(results), len(found), result)
    return [results[number] for number in range(len(found))]


def _graded(
    found: Sequence[Found], seed: int, jobs: int | None, scheduler: str | None, make_grader: MakeGrader
) -> Iterator[tuple[int, SubmissionResult]]:
    """Each number with its result, as they come."""
    if scheduler is not None:
        from kvcourse.grader.cluster import on_cluster

        return on_cluster((prepare(one) for one in found), seed, scheduler, make_grader)

    def one(number: int, grader: Callable[[], Grader]) -> SubmissionResult:
        return grade(prepare(found[number]), grader, seed)

    return in_threads(one, len(found), lambda: make_grader(seed), jobs)


def _sealed(seed: int) -> Grader:
    from kvcourse.grader.sealed import SealedGrader

    return SealedGrader(seed)


def prepare(found: Found) -> Prepared:
    """Read a submission's notebooks. Of several of one exercise, one counts: see `find.likeliest_first`."""
    read: list[Submission] = []
    refused: list[tuple[Path, str]] = []
    for file in found.files:
        try:
            read.append(read_submission(file))
        except Exception as error:
            refused.append((file, told(error, file)))
    read.sort(key=lambda one: (one.exercise.file, likeliest_first(one.path, found.path, [one.exercise])))
    counted: dict[str, Submission] = {}
    notes: list[str] = []
    look: list[str] = []
    for submission in read:
        first = counted.setdefault(submission.exercise.file, submission)
        name = f"{_where(submission, found)}: " if len(found.files) > 1 else ""
        if first is submission:
            notes += [f"{name}{note}" for note in submission.notes]
        else:
            look.append(f"{name}{submission.exercise.file} once more, which does not count; {_where(first, found)} does.")
    faults = [fault for file, fault in refused if not (counted and _is_a_stray(file, found))]
    notes += [f"Not graded: {fault}" for file, fault in refused if counted and _is_a_stray(file, found)]
    parts = tuple(Part(one.exercise.file, dict(one.answers), tuple(one.extra), one.again()) for one in counted.values())
    all_faults = (*([found.fault] if found.fault else []), *faults)
    return Prepared(found.name, parts, (*look, *notes), tuple(look), all_faults)


def _where(submission: Submission, found: Found) -> str:
    return submission.path.relative_to(found.path).as_posix()


def _is_a_stray(file: Path, found: Found) -> bool:
    """A scratch notebook, or a lesson, beside what was handed in: no fault of the submission's."""
    inside = file.relative_to(found.path).parts[:-1]
    return file.stem not in {exercise.file for exercise in EXERCISES} or bool(OURS & set(inside))


def grade(prepared: Prepared, grader: Callable[[], Grader], seed: int) -> SubmissionResult:
    """Grade what was read. `grader` gives the one to use: it is made only if there is something to grade."""
    started = time.monotonic()
    tasks: list[TaskResult] = []
    faults = list(prepared.faults)
    protections: tuple[str, ...] = ()
    for part in prepared.parts:
        try:
            it = grader()
            tasks += it.grade(part.exercise, part.answers, part.extra, **({"again": part.again} if part.again else {}))
            protections = tuple(it.protections)
        except Exception as error:
            faults.append(f"{part.exercise} could not be graded: {told(error, Path(part.exercise))}")
    return SubmissionResult(
        submission=prepared.name,
        exercises=tuple(tasks),
        notes=prepared.notes,
        look=prepared.look,
        fault=" ".join(faults) or None,
        protections=protections,
        seed=seed,
        seconds=time.monotonic() - started,
    )
