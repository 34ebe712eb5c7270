"""Every lesson: the commands a learner works with, check, hint, reset and progress. Knows nothing about how they work."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kvcourse.errors import InputError, KVCourseError

if TYPE_CHECKING:
    from kvcourse.grader.nbval_run import Checked
    from kvcourse.grader.results import SubmissionResult

Task = Annotated[str, typer.Argument(metavar="TASK", help="Such as 6.2.")]


def check(
    targets: Annotated[list[str], typer.Argument(metavar="TARGET...", help="A notebook, or an exercise's number or name.")],
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write them as JSON: an object; a list for several targets.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what did not pass.")] = False,
) -> None:
    """Run the checks on your answers. Exit status: 0 all passed, 1 some did not, 2 something could not be checked."""
    records: list[dict[str, Any]] = []
    results: list[SubmissionResult] = []
    status = 0
    for target in targets:
        record, result, one = _check_one(target, quiet)
        records.append(record)
        results.append(result)
        status = max(status, one)
    if as_json is not None:
        whole = records[0] if len(records) == 1 else records
        _write(as_json, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    if junit is not None:
        from kvcourse.grader.report import junit_text

        _write(junit, junit_text(results))
    raise typer.Exit(status)


def hint(task: Task, level: Annotated[int, typer.Option(min=1, help="1 is the vaguest.")] = 1) -> None:
    """Show a hint for a task."""
    from kvcourse.checks.notebook import hint_text
    from kvcourse.checks.registry import find_task, hints_of

    _, found = find_task(task)
    total = len(hints_of(found))
    if level > total:
        raise InputError("There is no such hint.", expected=f"a level from 1 to {total}", got=level, todo="Take a lower one.")
    print(hint_text(found, level))
    if level < total:
        print(f"One more: kvcourse hint {task} --level {level + 1}")


def reset(task: Task) -> None:
    """Put a task's cell back as it was, in your copy. Your text is kept aside."""
    from kvcourse.checks.work import reset_task

    print(reset_task(task))


def progress() -> None:
    """Show how far you are in every exercise."""
    from kvcourse.checks.progress import as_text, progress_table
    from kvcourse.checks.work import work_folder

    print(as_text(progress_table(work_folder())))


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (check, hint, reset, progress):
        app.command()(command)


def _check_one(target: str, quiet: bool) -> tuple[dict[str, Any], "SubmissionResult", int]:
    """Check one notebook and print what came out: its JSON record, its result, its exit status. Bad input is one line."""
    from kvcourse.grader.results import SubmissionResult

    try:
        checked = _checked(target)
    except KVCourseError as error:
        typer.echo(f"kvcourse: {error}", err=True)
        return {"notebook": target, "fault": str(error)}, SubmissionResult(target, fault=str(error)), 2
    _show(checked, quiet)
    _remember(checked)
    path = str(checked.submission.path)
    return _record(checked), SubmissionResult(path, checked.results, checked.notes), 0 if checked.passed else 1


def _checked(target: str) -> "Checked":
    from rich.console import Console

    from kvcourse.checks.registry import find_exercise
    from kvcourse.checks.work import copy_of
    from kvcourse.grader.nbval_run import check_submission
    from kvcourse.grader.submission import read_submission

    if target.endswith(".ipynb") or os.sep in target or "/" in target or Path(target).is_file():
        submission = read_submission(Path(target))
    else:
        exercise = find_exercise(target)
        submission = read_submission(copy_of(exercise), exercise)
    with Console(stderr=True).status(f"Running {submission.exercise.file} from top to bottom ..."):
        return check_submission(submission)


def _show(checked: "Checked", quiet: bool) -> None:
    """One line a task, aligned; then notes and the sum."""
    exercise = checked.submission.exercise
    if not (quiet and checked.passed):
        print(f"{exercise.file} ({checked.submission.path})")
    for result in checked.results:
        if quiet and result.state == "passed":
            continue
        line = (
            f"{result.name} {result.message}" if result.state == "not started" else _titled(result.name, result.title, result)
        )
        print(f"  {result.points}/{result.max_points}  {line}")
    for note in checked.notes:
        print(f"  note: {note}")
    if not (quiet and checked.passed):
        print(f"  {checked.points} of {exercise.points} points. {_cheer(checked)}".rstrip())


def _remember(checked: "Checked") -> None:
    """Let `progress` know, if this is a copy in a work folder and not a file from somewhere."""
    from kvcourse.checks.progress import State, note
    from kvcourse.course import RECORD

    folder = checked.submission.path.parent
    if (folder / RECORD).is_file():
        for result in checked.results:
            held, properties = checked.held.get(result.name, (0, 0))
            if result.state in ("passed", "failed", "not started"):
                note(folder, result.name, cast(State, result.state), held, properties)


def _titled(name: str, title: str, result: Any) -> str:
    from kvcourse.grader.report import clean

    return f"{name} {title}: {clean(result.message)}"


def _cheer(checked: "Checked") -> str:
    states = {result.state for result in checked.results}
    if checked.passed:
        return "All done."
    if states == {"not started"}:
        return "Nothing is filled in yet: start with the first task, and run its check in the notebook."
    first = next(result for result in checked.results if result.state != "passed")
    return f"Next: {first.name}. A hint: kvcourse hint {first.name}"


def _record(checked: "Checked") -> dict[str, Any]:
    """What --json writes about one notebook."""
    from kvcourse.grader.report import clean

    return {
        "notebook": str(checked.submission.path),
        "exercise": checked.submission.exercise.file,
        "points": checked.points,
        "max_points": checked.submission.exercise.points,
        "tasks": [
            {
                "name": result.name,
                "points": result.points,
                "max_points": result.max_points,
                "state": result.state,
                "message": clean(result.message),
            }
            for result in checked.results
        ],
        "notes": [clean(note) for note in checked.notes],
    }


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError("The results cannot be written.", expected="a file", got=got, todo="Name another one.") from error
