"""Every lesson: the judge's hold on the sandbox: starts a worker for each task, ends it, and knows why it ended. Knows nothing
about answers, checks or messages between judge and worker.
"""

import contextlib
import json
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcourse.errors import SetupError
from kvcourse.grader import limits, sandbox


class ZygoteGone(Exception):
    """The process that starts workers is not there any more; a new one has to be started."""


@dataclass(frozen=True)
class Ending:
    """How a worker ended."""

    why: str  # "ended" by itself, "killed" by us, "memory"
    signal: int
    cpu_s: float

    def sentence(self) -> str | None:
        """The limit that ended it, for a learner; None if it was no limit, or we ended it."""
        if self.why == "memory":
            return f"it took more than {limits.MEMORY_BYTES >> 30} GiB of memory"
        # The kernel's clock for the limit and the one it reports differ, by a fifth on a busy virtual machine.
        if self.why == "ended" and self.signal == signal.SIGKILL and self.cpu_s > limits.TASK_CPU_S / 2:
            return f"it took more than {limits.TASK_CPU_S} s of processor time"
        if self.why == "ended" and self.signal:
            return f"it was ended by signal {self.signal}"
        return None


class Zygote:
    """One sandbox. `start` gives a socket to a new worker; there is one worker at a time."""

    def __init__(self, may_import: Sequence[str], walls: sandbox.Walls | None = None) -> None:
        self.walls = walls or sandbox.build(may_import)
        self._control, theirs = socket.socketpair()
        self._waiting = b""
        self.ending: Ending | None = None
        self._running = False
        self.said = tempfile.TemporaryFile()
        with theirs:
            command = [part.replace("{control}", str(theirs.fileno())) for part in self.walls.command]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self.said,
                stderr=self.said,
                pass_fds=(theirs.fileno(),),
                env=self.walls.environment,
                cwd="/",
                start_new_session=True,
            )
        try:
            self._hear(limits.START_S)
        except ZygoteGone:
            said = self._last_words()
            self.close()
            raise SetupError(
                "The sandbox for answers did not start.",
                expected="Python and torch to start inside it",
                got=said or "nothing",
                todo="Run `kvcourse doctor`; if it finds nothing, report this line.",
            ) from None

    def start(self) -> socket.socket:
        """A new worker's socket. Raises ZygoteGone."""
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b'{"do": "start"}\n'], [theirs.fileno()])
                answer = self._hear(limits.END_S)
            except (OSError, ZygoteGone):
                ours.close()
                raise ZygoteGone from None
        if answer["kind"] != "started":
            ours.close()
            raise ZygoteGone
        self.ending, self._running = None, True
        return ours

    def stop(self) -> Ending:
        """End the worker, if it has not ended by itself, with all that it started; return how it ended."""
        if self._running:
            self._running = False
            with contextlib.suppress(OSError):
                self._control.sendall(b'{"do": "kill"}\n')
            self._note_ending()
        return self.ending or Ending("killed", 0, 0.0)

    def look(self, seconds: float) -> None:
        """Wait up to so long for the worker to end by itself."""
        if self._running:
            with contextlib.suppress(ZygoteGone):
                self._note_ending(seconds)
                self._running = False

    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._control.close()
        try:
            self._process.wait(limits.END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.said.close()
        if self.walls.folder is not None:
            self.walls.folder.cleanup()

    def _note_ending(self, seconds: float = limits.END_S) -> None:
        message = self._hear(seconds)
        if message["kind"] != "ended":
            raise ZygoteGone
        self.ending = Ending(message["why"], message["signal"], message["cpu"])

    def _hear(self, seconds: float) -> dict[str, Any]:
        """The next message. Raises ZygoteGone at its end, or after so many seconds."""
        until = time.monotonic() + seconds
        while b"\n" not in self._waiting:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._control], [], [], left)[0]:
                raise ZygoteGone
            try:
                data = self._control.recv(4096)
            except OSError:
                data = b""
            if not data:
                raise ZygoteGone
            self._waiting += data
        line, _, self._waiting = self._waiting.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _last_words(self) -> str:
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else ""
