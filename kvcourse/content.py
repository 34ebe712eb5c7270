"""Every lesson: where the course's own exercise notebooks lie. Knows nothing about what is in them, nor about learners' copies.

Graders and `reset` read these, never a copy that a learner could have changed: in a wheel they are part of the package, in a
clone they are the clone's.
"""

from pathlib import Path

from kvcourse.errors import SetupError

PACKAGE = Path(__file__).resolve().parent


def exercises_folder() -> Path:
    """The folder with the canonical NN_name.ipynb exercises.

    Raises: SetupError if this installation has none.
    """
    for folder in (PACKAGE / "content" / "exercises", PACKAGE.parent / "exercises"):
        if folder.is_dir():
            return folder
    raise SetupError(
        "This installation has no exercises.",
        expected="kvcourse/content/exercises, as in the wheel, or a clone's exercises/",
        got=str(PACKAGE),
        todo="Install the wheel again, or run from a clone.",
    )
