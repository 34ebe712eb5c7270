"""Every lesson: a queue of work, threads that take from it, and one grader each. Knows nothing about submissions.

Threads are enough: the work is done in the processes that the graders own, and a thread only waits for one of them.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, runtime_checkable

PATIENCE_S = 20.0  # for a thread whose grader was closed under it


@runtime_checkable
class Closable(Protocol):
    def close(self) -> None: ...


G = TypeVar("G", bound=Closable)
R = TypeVar("R")


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(
    one: Callable[[int, Callable[[], G]], R], count: int, make_grader: Callable[[], G], jobs: int | None = None
) -> Iterator[tuple[int, R]]:
    """Yield (number, one(number, grader)) for the numbers below `count`, as they come.

    However the loop over it ends, Ctrl-C included, every grader is closed and no thread is left when it has ended.
    """
    threads = [_Thread(one, make_grader) for _ in range(max(1, min(jobs or cores(), count)))]
    waiting: SimpleQueue[int] = SimpleQueue()
    results: SimpleQueue[tuple[int, R] | BaseException] = SimpleQueue()
    for number in range(count):
        waiting.put(number)
    try:
        for thread in threads:
            thread.start(waiting, results)
        for _ in range(count):
            result = _next(results)
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        with _undisturbed():
            for thread in threads:
                thread.stop()
            for thread in threads:
                thread.join()


def _next(results: SimpleQueue) -> Any:
    """Waits a little at a time: a signal is only handled between two waits if another thread received it."""
    while True:
        with suppress(Empty):
            return results.get(timeout=0.5)


class _Thread:
    """One thread and the grader that it makes when it needs one."""

    def __init__(self, one: Callable, make_grader: Callable) -> None:
        self._one, self._make = one, make_grader
        self._grader: Closable | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._closer: threading.Thread | None = None

    def start(self, waiting: SimpleQueue, results: SimpleQueue) -> None:
        self._thread = threading.Thread(target=self._work, args=(waiting, results), daemon=True)
        self._thread.start()

    def _work(self, waiting: SimpleQueue, results: SimpleQueue) -> None:
        while not self._stopped.is_set():
            try:
                number = waiting.get_nowait()
            except Empty:
                break
            try:
                results.put((number, self._one(number, self._get)))
            except BaseException as error:  # a fault of the machinery: it ends the batch, and is raised where the batch runs
                results.put(error)
                break
        self._close()

    def _get(self) -> Closable:
        if self._grader is None:
            self._grader = self._make()
        return self._grader

    def stop(self) -> None:
        """Take no more work, and drop the work in hand. Returns at once: a grader may need seconds to end its processes."""
        self._stopped.set()
        self._closer = threading.Thread(target=self._close, daemon=True)
        self._closer.start()

    def join(self) -> None:
        for thread in (self._closer, self._thread):
            if thread is not None:
                thread.join(PATIENCE_S)
        self._close()  # again: it may have been made meanwhile

    def _close(self) -> None:
        if self._grader is not None:
            with suppress(Exception):
                self._grader.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No second Ctrl-C in here: it would leave processes behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
