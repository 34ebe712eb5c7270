"""Every lesson: the command `kvcourse grade`. Knows nothing about grading: it finds, asks, reports and sums up."""

import re
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from kvcourse.grader.find import Found
from kvcourse.grader.results import SubmissionResult


def grade(
    submissions: Annotated[
        list[Path], typer.Argument(help="Notebooks, learners' folders, or folders of these.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for report.html, .json, .csv and .xml.", show_default=False)],
    seed: Annotated[int | None, typer.Option(min=0, help="For the random inputs; a random one unless given.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="How many at once; as many as there are cores unless given.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a Dask cluster to do it; needs kvcourse\\[dask].")
    ] = None,
    require_all: Annotated[bool, typer.Option("--require-all", help="Exit status 1 unless every point was earned.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a report that --out holds.")] = False,
) -> None:
    """Grade submissions in sealed processes. Exit status 2 when some could not be graded.

    A task's points need all of its properties.

    Of several notebooks of one exercise in a learner's folder, the one under
    the exercise's own name counts, then one with the exercise's name or number
    in its name, then the first by name.
    """
    from kvcourse.grader.find import find_submissions
    from kvcourse.grader.report import check_folder, write_reports

    check_folder(out, force=force)  # before any work is done
    found, left_out = find_submissions(submissions, but=out)
    seed = secrets.randbelow(2**31) if seed is None else seed
    _say(f"Seed {seed}: with --seed {seed} every answer gets the same inputs again.")
    if left_out:
        _say(f"Left out, since they are no submissions: {_names([path.name for path in left_out])}.")
    try:
        with _terminated_like_interrupted():
            results = _graded(found, seed, jobs, scheduler)
    except KeyboardInterrupt:
        print("kvcourse: stopped. Nothing was reported.", file=sys.stderr)
        raise typer.Exit(130) from None
    write_reports(results, out)
    raise typer.Exit(_tell(results, out, require_all))


def _graded(found: Sequence[Found], seed: int, jobs: int | None, scheduler: str | None) -> list[SubmissionResult]:
    """Grade with a bar on stderr, where somebody may be looking."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from kvcourse.grader.batch import grade_found

    columns = TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("grading", total=len(found))

        def progress(done: int, total: int, last: SubmissionResult | None) -> None:
            bar.update(task, completed=done)

        return grade_found(found, seed=seed, jobs=jobs, scheduler=scheduler, progress=progress)


def _tell(results: Sequence[SubmissionResult], out: Path, require_all: bool) -> int:
    """The last lines, and the exit status."""
    from kvcourse.grader.page import mean_points

    if len(results) == 1:
        for task in results[0].exercises:
            _say(f"{task.name} {task.title} {task.points}/{task.max_points}: {task.message}")
        for note in results[0].notes:
            _say(f"Note: {note}")
    else:
        for result in results:
            for note in result.look:
                _say(f"Note: {result.submission}: {note}")
    bad = [result for result in results if result.fault is not None]
    for result in bad:
        print(f"kvcourse: {_line(result.submission)}: {_line(result.fault or '')}", file=sys.stderr)
    graded = [result for result in results if result.exercises]
    if graded:
        _say("A task's points need all of its properties.")
    mean = f", mean {mean_points(results):.1f} of {max(one.max_points for one in graded)} points" if graded else ""
    _say(f"{len(graded)} of {len(results)} submissions graded{mean}.")
    _say(f"Report: {out / 'report.html'}")
    if bad:
        return 2
    return int(require_all and any(result.points < result.max_points for result in results))


def _say(text: str) -> None:
    print(_line(text), flush=True)


def _line(text: str) -> str:
    """One line, in which nothing steers the terminal, or a CI system that reads commands from a log (::notice, ##[group])."""
    from kvcourse.grader.report import clean

    return re.sub(r"([:#])(?=\1)", r"\1 ", " ".join(clean(text).split()))


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """A polite end (a CI job that is cancelled) takes the graders' processes down too, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
