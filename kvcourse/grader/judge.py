"""Every lesson: the trusted process that judges answers. Knows nothing about notebooks, files or points.

Run as `python -m kvcourse.grader.judge`. JSON lines in, JSON lines out, one a task: {"task", "answer", "support", "seed"} in,
the verdict and its circumstances out. Each task has a fresh worker in the sandbox; properties, expected values and models
stay here. What a library prints goes to standard error, so that it cannot be taken for a verdict.
"""

import contextlib
import functools
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

import torch

from kvcourse.checks import base, registry
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.grader import limits, remote, wire
from kvcourse.grader.zygote import Ending, Zygote, ZygoteGone


class Judge:
    """Judges one task after the other; keeps one sandbox for each set of modules that answers may import."""

    def __init__(self) -> None:
        self._zygotes: dict[tuple[str, ...], Zygote] = {}

    def judge(self, task: Task, exercise: Exercise, answer: str, support: Sequence[str], seed: int) -> dict[str, Any]:
        """One task, judged once. Where the learner's other cells end the worker, the answer's own cell is read in alone: a
        fault in one cell must not cost the others."""
        for cells in (support, ()):
            zygote = self._zygote(exercise.may_import)
            line = remote.Line(zygote.start(), functools.partial(autopsy, zygote))
            held = zygote.walls.held
            try:
                held += line.hello()
                line.support(cells, exercise.preamble, exercise.withheld)
            except (remote.Dead, wire.WireError):  # too much to be sent is no reason to lose the answer either
                line.close()
                continue
            try:
                return {**asdict(_verdict(line, task, answer, seed)), "protections": held}
            finally:
                line.close()
                with contextlib.suppress(ZygoteGone):
                    zygote.stop()
        raise ZygoteGone  # not even an empty worker could be started

    def close(self) -> None:
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes.clear()

    def _zygote(self, may_import: tuple[str, ...]) -> Zygote:
        zygote = self._zygotes.get(may_import)
        if zygote is not None:
            try:
                zygote.stop()
                if zygote.is_running():
                    return zygote
            except ZygoteGone:
                pass
            zygote.close()
        self._zygotes[may_import] = Zygote(may_import)
        return self._zygotes[may_import]


def autopsy(zygote: Zygote, why: str) -> str:
    """End a worker that is lost; a limit that ended it is the better reason."""
    try:
        if why == "the worker stopped":
            zygote.look(limits.END_S / 10)
        ending = zygote.stop()
    except ZygoteGone:
        ending = Ending("killed", 0, 0.0)
    return ending.sentence() or why


def _verdict(line: remote.Line, task: Task, answer: str, seed: int) -> base.Verdict:
    properties = [remote.guarded(prop) for prop in registry.properties_of(task)]
    try:
        fault = line.load(task.answers, answer)
    except remote.Dead as dead:
        fault = f"The cell could not be read in: {dead.why}."
    except wire.WireError:
        fault = "The cell is too long to be read in."
    if fault is not None:
        return base.Verdict(task.name, task.title, "failed", 0, len(properties), fault, None)
    return base.judge(task.name, task.title, properties, remote.RemoteAnswer(line, task.answers), seed)


def serve(requests: TextIO, replies: TextIO) -> None:
    """Until the input ends. A fault of ours costs one task, and is said."""
    judge = Judge()
    try:
        for line in requests:
            request = json.loads(line)
            exercise, task = registry.find_task(request["task"])
            try:
                reply = judge.judge(task, exercise, request["answer"], request["support"], request["seed"])
            except ZygoteGone:
                judge.close()
                reply = {"gone": True}
            except Exception as error:
                judge.close()
                reply = {"error": f"{type(error).__name__}: {error}"}
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
    finally:
        judge.close()


def _own_streams() -> tuple[TextIO, TextIO]:
    """The two streams of the protocol, moved away from where anything else reads or writes."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    return requests, replies


def _end_with(parent: int) -> None:
    """End when the parent was killed, in the middle of a task too; the sandbox and its workers end with us."""
    while os.getppid() == parent:
        time.sleep(limits.PARENT_CHECK_S)
    os._exit(1)


def main() -> None:
    requests, replies = _own_streams()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over, by closing the input
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + limits.JUDGE_MEMORY_BYTES, resource.RLIM_INFINITY))
    replies.write('{"ready": true}\n')
    replies.flush()
    serve(requests, replies)


if __name__ == "__main__":
    main()
