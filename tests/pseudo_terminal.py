"""A command in a pseudo-terminal, used as a person would: read until the prompt is there, type a line."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ESCAPES = re.compile(r"\x1b\[[?\d;]*[a-zA-Z]|\x1b[=>]")
PATIENCE_S = 120  # never waited for but when something hangs


class Terminal:
    """A Python command that believes it talks to a person. folder: where it keeps its sessions."""

    def __init__(self, arguments: list[str], folder: Path, columns: int = 100) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = os.environ | {"KVCOURSE_SESSIONS": str(folder), "TERM": "xterm"}
        environment.pop("COLUMNS", None)
        self._process = subprocess.Popen(
            [sys.executable, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)

    def until(self, prompt: str) -> str:
        """Everything that is shown up to the next prompt, which it ends with, without colours."""
        shown, deadline = "", time.monotonic() + PATIENCE_S
        while not plain(shown).endswith(prompt):
            piece = self._read(deadline)
            assert piece is not None, f"the command ended, or hangs, after {plain(shown)!r}"
            shown += piece
        return plain(shown)

    def type(self, line: str) -> None:
        os.write(self._ours, line.encode() if line == "\x04" else line.encode() + b"\n")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def rest(self) -> str:
        """Everything that is shown until it ends by itself, without colours."""
        shown, deadline = "", time.monotonic() + PATIENCE_S
        while (piece := self._read(deadline)) is not None:
            shown += piece
        return plain(shown)

    def ended(self) -> int:
        """Its exit status, once it has ended by itself."""
        self.rest()
        return self._process.wait(timeout=PATIENCE_S)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *fault: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _read(self, deadline: float) -> str | None:
        """The next piece; None at the end, or when patience is."""
        if not select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        try:
            return os.read(self._ours, 4096).decode(errors="replace") or None
        except OSError:  # how Linux says that the other side is closed
            return None


def plain(text: str) -> str:
    return ESCAPES.sub("", text).replace("\r\n", "\n")
