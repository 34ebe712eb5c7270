"""Every lesson: standard input by the name of "-", and how a command ends that fails. Knows nothing about what commands do."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kvcourse.errors import InputError, KVCourseError

STDIN = "-"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file's bytes, or what comes in on standard input for "-". Raises: OSError."""
    if str(path) != STDIN:
        with path.open("rb") as file:
            yield file
        return
    if sys.stdin is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    yield sys.stdin.buffer


def called(path: Path) -> str:
    """What a path is called in messages."""
    return "standard input" if str(path) == STDIN else str(path)


@contextlib.contextmanager
def faults_in_one_line(program: str, debug: bool = False) -> Iterator[None]:
    """Run a command: a fault this package names, and a file or an output that fails it, are one line and exit status 2.

    Where nobody reads on (`| head -1`) nothing is said, and the exit status is 1. debug: raise instead, with the traceback.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, since what fails at the interpreter's end can be told no more
    except BrokenPipeError:
        _drop_output()
        sys.exit(1)
    except (KVCourseError, OSError) as error:
        told = _told(error)
        if told is None or debug:
            raise
        _drop_output()
        print(f"{program}: {told}", file=sys.stderr)
        sys.exit(2)


def _told(error: KVCourseError | OSError) -> KVCourseError | None:
    """A fault as this package says it, or None for one that has to be seen whole."""
    if isinstance(error, KVCourseError):
        return error
    reason = error.strerror or "an error"
    if error.filename is not None:
        return InputError(f"{error.filename} cannot be used.", expected="a file that can be read and written", got=reason,
                          todo="Check the path.")  # fmt: skip
    if error.errno in _NO_ROOM:
        return InputError("The output cannot be written.", expected="room for it", got=reason, todo="Send it elsewhere.")
    return None


def _drop_output() -> None:
    """Send what is still to be printed nowhere, if it cannot be printed: else the interpreter tries it once more at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
