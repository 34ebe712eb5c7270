"""Every lesson: what to tell an instructor of a notebook that was refused: what it is, and what to ask for. Knows nothing
about why it was refused: the fault says that, in words for the learner, who can open and save the notebook.
"""

from pathlib import Path

from kvcourse.checks.registry import EXERCISES
from kvcourse.errors import KVCourseError, SubmissionError

LONGEST = 500
MUCH = 1 << 16  # bytes; a file of only spaces that is longer than this is called unreadable, not empty
FOR_INSTRUCTORS = ("Update kvcourse",)  # what only they can do


def told(error: Exception, file: Path) -> str:
    """One line. Faults of ours are one line already; another's type says more than its text alone."""
    if isinstance(error, SubmissionError):
        return _one_line(_handed_in(error, file))
    text = _one_line(str(error))
    return text if isinstance(error, KVCourseError) else f"{type(error).__name__}: {text}" if text else type(error).__name__


def _handed_in(error: SubmissionError, file: Path) -> str:
    got, todo = str(error.got), error.todo or ""
    if got.startswith("sources/lessons/"):
        exercise = _exercise_of_lesson(Path(got).stem)
        return f"{file.name} is a lesson, not the exercise {exercise}. Ask for the learner's copy, work/{exercise}.ipynb."
    if _is_blank(file):
        return f"{file.name} is empty. Ask for the notebook again."
    if "is not a notebook" in error.fault:
        return f"{file.name} is no readable notebook ({got}). Ask for the notebook as Jupyter saved it."
    if todo.startswith(FOR_INSTRUCTORS):
        return str(error)
    if "is not there" in error.fault:
        return error.fault
    what = "a copy with its outputs cleared" if "too large" in error.fault else "a copy of the exercise"
    return f"{error.fault} Expected {error.expected}; got {got}. Ask for {what}."


def _exercise_of_lesson(lesson: str) -> str:
    """The exercise of the same number, if there is one."""
    same = [exercise.file for exercise in EXERCISES if lesson.startswith(f"{exercise.number:02d}")]
    return (same or [EXERCISES[0].file])[0]


def _is_blank(file: Path) -> bool:
    """A link is not followed, and a pipe is not opened."""
    try:
        return file.is_file() and not file.is_symlink() and file.stat().st_size < MUCH and not file.read_bytes().strip()
    except OSError:
        return False


def _one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST]
