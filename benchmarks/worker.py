"""Lesson 07: one engine in a process of its own, so that its peak memory is its own. Knows nothing about how it works.

It answers one JSON object a line, and sits still while another one runs.
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.engines import Answer, Request, engines_for


class Worker:
    """An engine to ask."""

    def __init__(self, engine: str, shape: str, folder: Path, room: int, threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.worker", engine, shape, str(folder), str(room), str(threads)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self._line()  # it is ready

    def ask(self, request: Request) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(request)) + "\n")
        self._process.stdin.flush()
        return Answer(**self._line())

    def close(self) -> int:
        """End the process; return the most memory it held (bytes)."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak = int(self._line()["peak_bytes"])
        with self._process:  # waits, and closes the pipes
            return peak

    def kill(self) -> None:
        """End it in any case; nothing to do where it has ended."""
        self._process.kill()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The worker ended with status {self._process.wait()}; its own message stands above.")
        return json.loads(line)


def forget_peak_memory() -> None:
    """Count from here on (Linux only): building a model takes more memory for a moment than running it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """The most memory this process has held (bytes), since `forget_peak_memory` where that works."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def serve(engine: str, shape: str, folder: Path, room: int, threads: int) -> None:
    """Answer requests until standard input ends."""
    import torch

    torch.set_num_threads(threads)
    answer = engines_for(shape)[engine].build(folder, room)
    forget_peak_memory()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(answer(Request(**json.loads(line))))), flush=True)
    print(json.dumps({"peak_bytes": peak_memory()}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
