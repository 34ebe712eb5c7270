"""Every lesson: the process inside the sandbox that starts workers. Knows nothing about answers, checks or the package.

The zygote imports torch, computes next to nothing, and forks a worker per task; so a worker starts in milliseconds, and
nothing that an answer does outlives it. A worker gives up what it does not need (`confine`), then does as the judge says
(`serve`). Mounted in the sandbox, without the package.
"""

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
from typing import Any

import torch

from . import confine, limits, serve, wire


def work(end: socket.socket, in_sandbox: bool, own_user: bool, separate: list[str]) -> None:
    """The life of a worker. Returns when the judge hangs up."""
    confine.close_all_but(end.fileno())
    held = [*separate, *confine.limit(own_user)]
    if separate:
        held += confine.hide(own_tmp=in_sandbox)
    if in_sandbox:
        held.append(f"{limits.MEMORY_BYTES >> 30} GiB of memory in all")
        os.chdir("/tmp")
    held += confine.renounce()
    channel = wire.Channel(end)
    with contextlib.suppress(wire.WireClosed):
        channel.send({"kind": "hello", "held": held})
        serve.Server(channel).serve()


def start(end: socket.socket, in_sandbox: bool, own_user: bool) -> int:
    """Fork a worker, in namespaces of its own. Its number.

    The process that makes the new pid namespace stays outside it: only its child is inside, as number 1, and when that ends the
    kernel ends everything in there. So there is one process between, which says the worker's number and ends; the worker
    then becomes this process's child.
    """
    here, there = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            separate = confine.separate(network=not in_sandbox)
            worker = os.fork() if confine.IS_LINUX else 0
            if worker == 0:
                if not confine.IS_LINUX:  # nobody adopts orphans there, and there are no namespaces either
                    os.write(there, str(os.getpid()).encode())
                work(end, in_sandbox, own_user, separate)
            else:
                os.write(there, str(worker).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as told:
        number = told.read().decode()
    if confine.IS_LINUX:
        os.waitpid(between, 0)
    if not number:
        raise OSError(errno.EAGAIN, "no worker could be started")
    return int(number)


class Zygote:
    """Starts workers when the judge asks, watches their memory, ends them, and says how each ended."""

    def __init__(self, control: socket.socket, in_sandbox: bool, own_user: bool) -> None:
        self._control, self._in_sandbox, self._own_user = control, in_sandbox, own_user
        self._worker: int | None = None
        self._why = "ended"
        self._own_bytes = _private_bytes("self")

    def run(self) -> None:
        """Until the judge hangs up."""
        self._tell({"kind": "ready"})
        while True:
            waits = None if self._worker is None else limits.MEMORY_CHECK_S
            if select.select([self._control], [], [], waits)[0]:
                data, ends, _, _ = socket.recv_fds(self._control, 4096, 4)
                if not data:
                    break
                for line in data.splitlines():
                    self._obey(json.loads(line), ends)
            self._look()
        self._end("hung up")

    def _obey(self, message: dict[str, Any], ends: list[int]) -> None:
        if message["do"] == "kill":
            self._end("killed")
            return
        with socket.socket(fileno=ends.pop()) as end:
            try:
                self._worker = start(end, self._in_sandbox, self._own_user)
                self._tell({"kind": "started"})
            except OSError as error:
                self._tell({"kind": "failed", "text": str(error)})

    def _look(self) -> None:
        """Has the worker ended? Does it hold too much memory?"""
        if self._worker is None:
            return
        number, status, usage = os.wait4(self._worker, os.WNOHANG)
        if number:
            self._ended("ended", status, usage)
        elif self._in_sandbox and self._held_bytes() > limits.MEMORY_BYTES:
            self._end("memory")

    def _end(self, why: str) -> None:
        if self._worker is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._worker, signal.SIGKILL)
        _, status, usage = os.wait4(self._worker, 0)
        self._ended(why, status, usage)

    def _ended(self, why: str, status: int, usage: resource.struct_rusage) -> None:
        self._worker = None
        _sweep()
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self._tell({"kind": "ended", "why": why, "signal": signalled, "cpu": round(usage.ru_utime + usage.ru_stime, 3)})

    def _held_bytes(self) -> int:
        """Memory of all processes of the sandbox but its first one and this one. What a fork shares with this process, until it
        writes there, counts as its own, so that is taken off."""
        known = {1, os.getpid()}
        others = [name for name in os.listdir("/proc") if name.isdecimal() and int(name) not in known]
        return sum(max(0, _private_bytes(name) - self._own_bytes) for name in others)

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _sweep() -> None:
    """End what a worker left behind: nothing where it had a pid namespace; elsewhere orphans have become our children."""
    with contextlib.suppress(OSError, ChildProcessError):
        for _ in range(100):
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
                for child in file.read().split():
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)  # raises when there is none


def _private_bytes(process: str) -> int:
    """Memory that is the process's own or shared between processes, files not counted."""
    total = 0
    with contextlib.suppress(OSError), open(f"/proc/{process}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    return total


def main(arguments: list[str]) -> None:
    """worker.py CONTROL IN_SANDBOX UID"""
    control = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    torch.zeros(8, dtype=torch.float16).float()  # torch looks up the processor at its first such conversion; later it cannot
    own_user = confine.become(int(arguments[2]))
    confine.adopt_orphans()
    Zygote(control, in_sandbox=arguments[1] == "1", own_user=own_user).run()
