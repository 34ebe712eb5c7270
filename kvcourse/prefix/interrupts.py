"""Lesson 10: Ctrl-C waits until books are right again. Knows nothing about what is written in them.

    with uninterrupted() as block:
        ...  # short, and wrong if only half of it is done
        with block.pause():
            ...  # long, and as good as not begun until the rest of the block is done

Python runs a signal's handler between any two steps of the main thread, and Ctrl-C's handler raises there. In such a block it
runs at the end instead: for Ctrl-C, Jupyter's stop button, a timeout by SIGALRM, a server's SIGTERM. Handlers that are not
Python's end the process, or do nothing, and stay; other threads are never interrupted.
"""

import inspect
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self

SIGNALS = tuple(int(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM") if hasattr(signal, name))
handler_of, handle_by = inspect.unwrap(signal.getsignal), inspect.unwrap(signal.signal)  # without enums: 50 times as fast


class _Door:
    """In front of the handlers that were there. Touched by the main thread alone."""

    def __init__(self) -> None:
        self.depth = 0  # blocks around what runs now; above 0: signals wait
        self.outside: list[int] = []  # the depth around each pause
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._waiting: list[tuple[int, FrameType | None]] = []
        self._knock = self._knocked  # one object, by which it is known again

    def _knocked(self, number: int, frame: FrameType | None) -> None:
        if self.depth:
            self._waiting.append((number, frame))
            return
        before = self.outside[:]
        if before:  # what is raised in a pause ends it
            self.depth = self.outside.pop()
        self._handlers[number](number, frame)
        self.depth, self.outside = 0, before

    def close(self) -> None:
        if not self.depth and not self.outside:
            for number in SIGNALS:
                handler = handler_of(number)
                if handler is self._knock:  # a signal kept the block before from putting back what was there
                    continue
                if callable(handler):
                    self._handlers[number] = handler
                    handle_by(number, self._knock)
                else:
                    self._handlers.pop(number, None)
        self.depth += 1  # last, so that whatever is raised before leaves the door open

    def open(self) -> None:
        if self.depth > 1:
            self.depth -= 1
            return
        try:
            self.depth = 0  # from here on a signal raises at once
            if not self.outside:
                for number, handler in self._handlers.items():
                    if handler_of(number) is self._knock:
                        handle_by(number, handler)
        finally:
            self.let_in()

    def let_in(self) -> None:
        while self._waiting:
            self._knocked(*self._waiting.pop(0))


_DOOR = _Door()


class uninterrupted:
    """A block in which no signal raises. One that comes meanwhile is delivered at the end. Blocks may be nested."""

    def __enter__(self) -> Self:
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            _DOOR.close()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            _DOOR.open()

    def pause(self) -> "_Pause":
        """A stretch of the block in which a signal raises as ever. What it raises ends the stretch, not the block."""
        return _Pause(self._is_main)


class _Pause:
    def __init__(self, is_main: bool) -> None:
        self._is_main = is_main

    def __enter__(self) -> None:
        if self._is_main:
            self._place = len(_DOOR.outside)
            _DOOR.outside.append(_DOOR.depth)
            _DOOR.depth = 0
            _DOOR.let_in()

    def __exit__(self, *_: object) -> None:
        if self._is_main and len(_DOOR.outside) > self._place:
            _DOOR.depth = _DOOR.outside[self._place]
            del _DOOR.outside[self._place :]
