"""Every lesson: what a batch came to, as files for people and for programs. Knows nothing about how it was graded.

    report.json   one object a submission        report.csv   one row a submission, one column a task
    report.xml    JUnit, as CI systems read it   report.html  one page for the instructor

The same results give the same bytes: no time and no machine's name is in them. Names and messages come from learners, so each
format gets them without what it could take for a command: control characters, formulas, markup.
"""

import csv
import io
import json
import os
import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import kvcourse
from kvcourse.errors import InputError
from kvcourse.grader.page import html_page, task_names
from kvcourse.grader.results import SubmissionResult, TaskResult

LONGEST = 2000  # characters of a message
# Control characters steer terminals and are no XML; lone surrogates are no UTF-8; the others turn the direction of writing.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# What a CI system takes for a command when a report is shown in its log: at the start of a line, and Azure's anywhere.
_COMMAND = re.compile(r"(?m)^([^\S\n]*(?:::|##)[:#]*)|##(?=vso\[|\[)")
_FORMULA = "=+-@\uff1d\uff0b\uff0d\uff20"  # the last four are as wide as an ideograph; spreadsheets take them too


def check_folder(folder: Path, *, force: bool = False) -> None:
    """Try whether a report can be written to a folder, new or not, and leave nothing there. With `force`, over an older report.

    Raises: InputError if not.
    """
    if not force and os.path.lexists(folder / "report.json"):
        seed = _seed_of(folder / "report.json")
        told = "" if seed is None else f" (seed {seed})"
        raise InputError(f"{folder}/ holds a report{told}.", todo="Name another folder, or add --force.")
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    _prepare_folder(folder)
    for path in new:
        path.rmdir()


def _seed_of(report: Path) -> int | None:
    """The seed of an older report, with which it can be had once more."""
    try:
        seed = json.loads(report.read_text(encoding="utf-8"))[0]["seed"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return seed if isinstance(seed, int) else None


def _prepare_folder(folder: Path) -> None:
    """Make the report's folder, and try whether files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            "The report cannot be written.",
            expected="a folder for it, new or not",
            got=f"{folder} ({error.strerror})",
            todo="Name another one.",
        ) from error


def write_reports(results: Sequence[SubmissionResult], folder: Path) -> None:
    """Write all four files into a folder, each whole or not at all."""
    cleaned = [_cleaned(result) for result in results]
    texts = {
        "report.json": json_text(cleaned),
        "report.csv": csv_text(cleaned),
        "report.xml": junit_text(cleaned),
        "report.html": html_page(cleaned),
    }
    _prepare_folder(folder)
    for name, text in texts.items():
        _replace(folder / name, text)


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def clean(text: str) -> str:
    """A learner's text without what is not text, and of a length that a person reads."""
    shown = _COMMAND.sub(lambda found: re.sub(r"([:#])(?=[:#])", r"\1 ", found[0]), _UNFIT.sub("\ufffd", text))
    return shown if len(shown) <= LONGEST else shown[:LONGEST] + " ..."


def _cleaned(result: SubmissionResult) -> SubmissionResult:
    return replace(
        result,
        submission=clean(result.submission),
        exercises=tuple(replace(task, message=clean(task.message)) for task in result.exercises),
        notes=tuple(clean(note) for note in result.notes),
        look=tuple(clean(note) for note in result.look),
        fault=None if result.fault is None else clean(result.fault),
    )


def record(result: SubmissionResult) -> dict[str, Any]:
    """One submission as it stands in report.json."""
    return {
        "submission": result.submission,
        "points": result.points,
        "max_points": result.max_points,
        "exercises": [_task_record(task) for task in result.exercises],
        "seed": result.seed,
        "protections": list(result.protections),
        "fault": result.fault,
        "notes": list(result.notes),
        "version": kvcourse.__version__,
    }


def _task_record(task: TaskResult) -> dict[str, Any]:
    return {
        "name": task.name,
        "title": task.title,
        "points": task.points,
        "max_points": task.max_points,
        "message": task.message,
        "state": task.state,
        "broken": task.broken,
    }


def json_text(results: Sequence[SubmissionResult]) -> str:
    return json.dumps([record(result) for result in results], indent=1, ensure_ascii=False) + "\n"


def csv_text(results: Sequence[SubmissionResult]) -> str:
    """Empty where a submission has no such task, or nothing could be graded: that is not the same as 0."""
    names = task_names(results)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")  # as RFC 4180 and spreadsheets have it
    writer.writerow(["submission", "points", "max_points", *names, "fault", "notes"])
    for result in results:
        points = {task.name: task.points for task in result.exercises}
        row = [points.get(name, "") for name in names]
        total = [result.points, result.max_points] if result.exercises else ["", ""]
        texts = [_cell(result.fault or ""), _cell(" ".join(result.notes))]
        writer.writerow([_cell(result.submission), *total, *row, *texts])
    return file.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet runs what begins like a formula, in a cell that may begin after a semicolon too. The apostrophe in front
    says that it is text."""
    text = re.sub(rf";(\s*)(?=[{re.escape(_FORMULA)}])", r";\1'", text)
    return f"'{text}" if text.startswith(("\t", "\r")) or text.lstrip().startswith(tuple(_FORMULA)) else text


def junit_text(results: Sequence[SubmissionResult]) -> str:
    """A suite for each submission, a case for each task; one more, in error, for what could not be graded."""
    suites = ET.Element("testsuites", name="kvcourse")
    for result in results:
        failed = [task for task in result.exercises if task.points < task.max_points]
        cases = len(result.exercises) + (result.fault is not None)
        suite = ET.SubElement(suites, "testsuite", name=result.submission, tests=str(cases))
        suite.set("failures", str(len(failed)))
        suite.set("errors", str(int(result.fault is not None)))
        properties = ET.SubElement(suite, "properties")
        for name, value in (("seed", result.seed), ("points", result.points), ("max_points", result.max_points)):
            ET.SubElement(properties, "property", name=name, value=str(value))
        for task in result.exercises:
            case = ET.SubElement(suite, "testcase", classname=result.submission, name=f"{task.name} {task.title}")
            if task in failed:
                ET.SubElement(case, "failure", type=task.broken or task.state, message=task.message).text = task.message
        if result.fault is not None:
            case = ET.SubElement(suite, "testcase", classname=result.submission, name="submission")
            ET.SubElement(case, "error", type="not graded", message=result.fault).text = result.fault
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"
