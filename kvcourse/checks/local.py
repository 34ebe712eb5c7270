"""Every lesson: an answer that runs in this very process, as in a notebook. Knows nothing about properties or exercises."""

import copy
import linecache
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Broken, Kept, Opaque, Unknown, raised

LONGEST_LINE = 80  # of the learner's own source in a message
LONGEST_CALL_S = 30.0  # a call of an answer takes milliseconds; one that has not returned by then has a loop without an end
AGAIN_S = 1.0  # and where it has caught what ends it, it is told again
PLAIN = (bool, int, float, str, type(None), torch.dtype)


class LocalKept:
    """An object of the learner's in this process."""

    def __init__(self, it: Any, name: str) -> None:
        self.it, self._name = it, name

    def value(self) -> Any:
        return _whole(self.it)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _whole(run(f"{self._name}.{method}", getattr(self.it, method, None), args, kwargs))


class LocalAnswer:
    """The learner's function or class in this process."""

    def __init__(self, answer: Callable[..., Any], name: str) -> None:
        self._answer, self._name = answer, name
        self.returned: Kept = LocalKept(None, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.returned = LocalKept(run(self._name, self._answer, args, kwargs), self._name)
        return self.returned.value()

    def keep(self, value: Any) -> LocalKept:
        return LocalKept(snapshot(value), self._name)


def snapshot(value: Any) -> Any:
    """A copy made of plain values only. What a subclass claims about itself is not believed: it is read as its base."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if issubclass(kind, Tensor):
        return plain_tensor(value)
    if issubclass(kind, list):
        return [snapshot(item) for item in list.__iter__(value)]
    if issubclass(kind, tuple):  # a named tuple is a tuple
        return tuple(snapshot(item) for item in tuple.__iter__(value))
    if issubclass(kind, dict):
        return {key: snapshot(item) for key, item in dict.items(value) if type(key) in PLAIN}
    return Unknown(kind.__name__)


def _whole(value: Any) -> Any:
    """A snapshot; of a list that holds itself, only its type."""
    try:
        return snapshot(value)
    except RecursionError:
        return Unknown(f"{type(value).__name__} without an end")


def plain_tensor(tensor: Tensor) -> Any:
    """A copy that can be compared: dense, in this machine's memory, no subclass, no graph."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            return Unknown("sparse, quantized or nested tensor")
        if tensor.device.type != "cpu":
            return Unknown(f"tensor on the device {tensor.device.type}")
        return tensor.detach().as_subclass(Tensor).resolve_conj().resolve_neg().clone()


def run(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the learner's code with copies; what it raises becomes one sentence."""
    if not callable(function):
        raise Broken(f"{name} is not there, or is no function.")
    call = _Call()
    try:
        with ended_after(LONGEST_CALL_S):
            result = function(*call.handed(args), **call.handed(kwargs))
    except _TooLong as late:
        place = _line(function, late)
        where = f", at {place}" if place else ""
        raise Broken(f"{name} had not returned after {LONGEST_CALL_S:.0f} seconds{where}. Does every loop end?") from None
    except (Exception, SystemExit) as error:
        if call.faults:
            raise call.faults[0] from None
        raise raised(name, type(error).__name__, str(error), _line(function, error)) from None
    if call.faults:
        raise call.faults[0]
    return result


class _TooLong(BaseException):
    """No Exception, so that an answer which catches those does not go on for ever."""


@contextmanager
def ended_after(seconds: float) -> Iterator[None]:
    """Raise _TooLong inside the block when time is up: in the main thread of a system with timers, and where none is set.

    An `except:` that catches even this is told again each second, and then where it stands: on the line after the catch, which
    its own `try` no longer covers. Left for the kernel's restart: several of them around each other, in one loop.
    """
    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:  # a call within a call: the outer one's counts
        yield
        return
    raised, tracer = 0, sys.gettrace()

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if raised:
            _end_at_the_next_line(frame)
        raised += 1
        raise _TooLong

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if raised > 1:
            sys.settrace(tracer)


def _end_at_the_next_line(frame: FrameType | None) -> None:
    """Raise _TooLong once more as soon as one of the answer's own frames comes to another line."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            raise _TooLong  # Python stops tracing when a tracer raises
        return trace

    while frame is not None and frame.f_code is not run.__code__:
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(lambda *_: None)  # what is called from now on is not traced


def _line(function: Any, error: BaseException) -> str:
    """The line of the learner's cell that raised it, or that called what did, "line 2: ..."; "" where that is not known."""
    code = getattr(function, "__code__", None)
    if code is None:  # a class, or something that was made by other code
        return ""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == code.co_filename]
    text = linecache.getline(code.co_filename, lines[-1]).strip() if lines else ""
    if len(text) > LONGEST_LINE:
        text = text[:LONGEST_LINE].rstrip() + " ..."
    return f"line {lines[-1]}: {text}" if text else ""


class _Call:
    """One call: what went over to the learner's code, and what our own functions found wrong meanwhile."""

    def __init__(self) -> None:
        self.faults: list[Broken] = []  # kept, in case the learner's code catches them
        self._opaque: list[Any] = []

    def handed(self, value: Any) -> Any:
        """An argument as the learner's code gets it: a copy; an object that is kept; a function of ours."""
        if isinstance(value, LocalKept):
            return value.it
        if isinstance(value, Opaque):
            self._opaque.append(value.it)
            return value.it
        if isinstance(value, list | tuple):
            return type(value)(self.handed(item) for item in value)
        if isinstance(value, dict):
            return {key: self.handed(item) for key, item in value.items()}
        if callable(value) and not isinstance(value, torch.dtype):
            return self._noted(value)
        return copy.deepcopy(value)

    def _noted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; it gets values of our own, and a Broken that it raises is noted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                got = function(*map(self._back, args), **{key: self._back(value) for key, value in kwargs.items()})
            except Broken as fault:
                self.faults.append(fault)
                raise
            return self.handed(got) if isinstance(got, Opaque) else got

        return call

    def _back(self, value: Any) -> Any:
        return value if any(value is it for it in self._opaque) else snapshot(value)
