"""Every lesson: the commands a learner works with, check, hint, reset and progress. Knows nothing about how they work."""

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvcourse.errors import InputError, KVCourseError, UnknownName
from kvcourse.outputs import refuse_inputs, write_whole

if TYPE_CHECKING:
    from kvcourse.checks.exercise import Exercise
    from kvcourse.grader.nbval_run import Checked
    from kvcourse.grader.results import SubmissionResult

Task = Annotated[str, typer.Argument(metavar="TASK", help="Such as 6.2.")]


def check(
    targets: Annotated[
        list[str], typer.Argument(metavar="TARGET...", help="A notebook, a folder of them, or an exercise's number or name.")
    ],
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write them as JSON: an object; a list for several targets.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only what did not pass.")] = False,
) -> None:
    """Run the checks on your answers. Exit status: 0 all passed, 1 some did not, 2 something could not be checked."""
    notebooks = [notebook for named in targets for notebook in _in_folder(named)]
    for file in (as_json, junit):
        if file is not None:
            _refuse_unwritable(file)
            refuse_inputs(file, _files_of(notebooks))
    records: list[dict[str, Any]] = []
    results: list[SubmissionResult] = []
    status = 0
    for target in notebooks:
        record, result, one = _check_one(target, quiet)
        records.append(record)
        results.append(result)
        status = max(status, one)
    partial = [task for result in results for task in result.exercises if task.state == "failed" and task.broken]
    if any(not task.message.startswith("0 of ") for task in partial):
        print("A task's points need all of its properties.")
    if as_json is not None:
        whole = records[0] if len(records) == 1 else records
        _write(as_json, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    if junit is not None:
        from kvcourse.grader.report import junit_text

        _write(junit, junit_text(results))
    raise typer.Exit(status)


def hint(
    task: Task,
    level: Annotated[int | None, typer.Option(min=1, help="1 is the vaguest. Left out: the next one.")] = None,
) -> None:
    """Show the next hint for a task, or the one of a level."""
    from kvcourse.checks.notebook import hint_text, next_hint
    from kvcourse.checks.progress import hint_given, note_hint
    from kvcourse.checks.registry import find_task, hints_of

    _, found = find_task(task)
    total, folder = len(hints_of(found)), _folder_of_copies()
    if level is None:
        level = 1 if folder is None else next_hint(folder, found)
    if level > total:
        raise InputError("There is no such hint.", expected=f"a level from 1 to {total}", got=level, todo="Take a lower one.")
    print(hint_text(found, level))
    if folder is not None:
        note_hint(folder, found.name, level)
    if level < total:
        remembered = folder is not None and hint_given(folder, found.name) == level
        print(f"One more: kvcourse hint {found.name}{'' if remembered else f' --level {level + 1}'}")


def reset(task: Task) -> None:
    """Put a task's cell back as it was, in your copy. Your text is kept aside."""
    from kvcourse.checks.work import reset_task

    print(reset_task(task))


def progress() -> None:
    """Show how far you are in every exercise."""
    from kvcourse.checks.progress import as_text, progress_table
    from kvcourse.checks.work import work_folder

    print(as_text(progress_table(work_folder())))


def _folder_of_copies() -> Path | None:
    """The work folder, if there is one."""
    from kvcourse.checks.work import work_folder

    try:
        return work_folder()
    except KVCourseError:
        return None


def _in_folder(target: str) -> list[str]:
    """A folder's copies of exercises; any other target, and a folder that has none, as it is."""
    from kvcourse.checks.registry import EXERCISES

    copies = [Path(target) / f"{exercise.file}.ipynb" for exercise in EXERCISES]
    return [str(copy) for copy in copies if copy.is_file()] or [target]


def _files_of(targets: list[str]) -> list[Path]:
    """The files that are read for these targets; none for one that is unknown, which is told when its turn comes."""
    from kvcourse.checks.work import copy_of

    files = []
    for target in targets:
        with contextlib.suppress(KVCourseError):
            files.append(Path(target) if _is_path(target) else copy_of(_exercise(target)))
    return files


def _is_path(target: str) -> bool:
    return target.endswith(".ipynb") or os.sep in target or "/" in target or Path(target).exists()


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

    from kvcourse.checks.work import copy_of
    from kvcourse.grader.nbval_run import check_submission
    from kvcourse.grader.submission import read_submission

    if _is_path(target):
        submission = read_submission(Path(target))
    else:
        exercise = _exercise(target)
        submission = read_submission(copy_of(exercise), exercise)
    with Console(stderr=True).status(f"Running {submission.exercise.file} from top to bottom ..."):
        return check_submission(submission)


def _exercise(target: str) -> "Exercise":
    """An exercise by its number or name. A task's number is a near miss."""
    from kvcourse.checks.registry import find_exercise, find_task

    try:
        return find_exercise(target)
    except UnknownName as unknown:
        try:
            exercise, task = find_task(target)
        except UnknownName:
            raise unknown from None
        number = f"{exercise.number:02d}"
        raise UnknownName(f"{task.name} is a task of exercise {number}.", todo=f"Type: kvcourse check {number}") from None


def _show(checked: "Checked", quiet: bool) -> None:
    """One line a task, aligned; then notes and the sum."""
    exercise = checked.submission.exercise
    if not (quiet and checked.passed):
        print(f"{exercise.file} ({checked.submission.path})")
    for result in checked.results:
        if quiet and result.state == "passed":
            continue
        print(f"  {result.points}/{result.max_points}  {_titled(result.name, result.title, result)}")
    for note in checked.notes:
        print(f"  note: {note}")
    if not (quiet and checked.passed):
        print(f"  {checked.points} of {exercise.points} points. {_cheer(checked)}".rstrip())


def _remember(checked: "Checked") -> None:
    """Let `progress` know, if this is a copy in a work folder and not a file from somewhere."""
    from kvcourse.checks.progress import digest, note
    from kvcourse.course import RECORD

    folder = checked.submission.path.parent
    if (folder / RECORD).is_file():
        for result in checked.results:
            held, properties = checked.held.get(result.name, (0, 0))
            source = checked.submission.answers[result.name]
            answers = next(task.answers for task in checked.submission.exercise.tasks if task.name == result.name)
            known = None if source is None else digest(source, answers)
            note(folder, result.name, checked.outcome(result), held, properties, known)


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


def _refuse_unwritable(path: Path) -> None:
    """Before minutes of checking, not after."""
    folder = path.absolute().parent
    if path.is_dir():
        got = f"{path}: a folder"
    elif not folder.is_dir():
        got = f"{path}: no such folder"
    elif not os.access(path if path.exists() else folder, os.W_OK):
        got = f"{path}: Permission denied"
    else:
        return
    raise InputError("The results cannot be written.", expected="a file", got=got, todo="Name another one.")


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
    except OSError as error:
        got = f"{path}: {error.strerror}"
        raise InputError("The results cannot be written.", expected="a file", got=got, todo="Name another one.") from error
