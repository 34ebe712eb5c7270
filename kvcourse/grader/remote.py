"""Every lesson: an answer that runs in a sandbox, for the properties to call. Knows nothing about any property or exercise.

The same contract as `kvcourse.checks.local`, over a socket. The process at the other end runs a stranger's code, so whatever it
sends is taken as data and checked; anything that no honest worker would send ends it, and the property is Broken.
"""

import inspect
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvcourse.checks.base import Broken, Kept, NotStarted, Opaque, Unknown, raised
from kvcourse.grader import limits, wire

READABLE = (bool, int, float, str, type(None))  # what an attribute of an Opaque may be


class Dead(Exception):
    """The worker is gone, silent, or has sent what no honest worker sends. `why` is for the learner."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class RemoteKept:
    """An object that lives in the worker, by its number there."""

    def __init__(self, line: "Line", number: int | None, name: str) -> None:
        self._line, self.number, self._name = line, number, name

    def value(self) -> Any:
        if self.number is None:
            return None  # nothing was called yet
        return self._line.ask(self._name, {"kind": "value", "id": self.number})

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._line.call(f"{self._name}.{method}", self.number, method, args, kwargs)[0]


class RemoteAnswer:
    """The learner's function or class in a worker."""

    def __init__(self, line: "Line", name: str) -> None:
        self._line, self._name = line, name
        self.returned: Kept = RemoteKept(line, None, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value, number = self._line.call(self._name, None, None, args, kwargs)
        self.returned = RemoteKept(self._line, number, self._name)
        return value

    def keep(self, value: Any) -> RemoteKept:
        number = self._line.new_number()
        self._line.ask(self._name, {"kind": "keep", "as": number, "value": value})
        return RemoteKept(self._line, number, self._name)


class Line:
    """The line to one worker. `autopsy(why)` is asked once, when it is lost: it ends the worker and says why."""

    def __init__(self, end: socket.socket, autopsy: Callable[[str], str]) -> None:
        self._channel = wire.Channel(end)
        self._autopsy = autopsy
        self._numbers = 0
        self._lent: dict[int, Any] = {}  # functions and opaques that the worker knows by number
        self._known: dict[int, int] = {}  # id of the object: its number; the object is in _lent, so the id is not reused
        self._callbacks = 0
        self._faults: list[Broken] = []
        self.dead: str | None = None

    def hello(self) -> tuple[str, ...]:
        """What the worker is held by. It has not seen the learner's code yet, so this is believed."""
        self._wait_up_to(limits.LOAD_WALL_S)
        try:
            message = self._channel.receive(self._resolve)
        except (wire.WireError, wire.WireClosed, wire.WireTimeout):
            raise Dead(self._lost("the worker did not start")) from None
        return tuple(message["held"])

    def support(self, cells: Sequence[str], preamble: str, withheld: Sequence[str]) -> None:
        """Have the learner's other cells read in, after the preamble. Raises: Dead."""
        self._load({"kind": "support", "cells": list(cells), "preamble": preamble, "withheld": list(withheld)})

    def load(self, name: str, source: str) -> str | None:
        """Have the answer's own cell read in; then the task's time runs. What is wrong with it, or None. Raises: Dead."""
        fault = self._load({"kind": "load", "name": name, "source": source})
        self._wait_up_to(limits.TASK_WALL_S)
        return shown(fault) if fault else None

    def _load(self, message: dict[str, Any]) -> str | None:
        self._wait_up_to(limits.LOAD_WALL_S)
        reply = self._talk(message)
        fault = reply.get("value")
        if reply["kind"] != "done" or not (fault is None or type(fault) is str):
            raise Dead(self._forged())
        return fault

    def _wait_up_to(self, seconds: float) -> None:
        self._patience_s, self._channel.deadline = seconds, time.monotonic() + seconds

    def close(self) -> None:
        self._channel.close()

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def call(
        self, name: str, target: int | None, method: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, int]:
        """Call the answer, or a method of a kept object: the result's value, and the number it is kept under."""
        number = self.new_number()
        message = {"kind": "call", "id": target, "method": method, "args": args, "kwargs": kwargs, "as": number}
        return self.ask(name, message), number

    def ask(self, name: str, message: dict[str, Any]) -> Any:
        """Raises: NotStarted, Broken."""
        before, deadline = len(self._faults), self._channel.deadline
        try:
            reply = self._talk(message)
        except Dead as fault:
            if len(self._faults) > before:
                raise self._faults[before] from None
            raise Broken(f"{name} gave no result: {fault.why}.") from None
        self._channel.deadline = deadline
        if len(self._faults) > before:
            raise self._faults[before]
        if reply["kind"] == "done":
            if self._channel.received_bytes > limits.REPLY_BYTES:
                raise Broken(f"{name} returned too much: {self._received()}.")
            return reply["value"]
        if reply["kind"] == "too large":
            raise Broken(f"{name} returned more than can be compared: {shown(reply['text'])}.")
        raise raised(name, shown(reply["type"]), shown(reply["text"]))

    def _talk(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a request and serve the worker's own ones until its reply comes. Raises: Dead."""
        if self.dead is not None:
            raise Dead(self.dead)
        frame = wire.encode(message, self._refer)  # what cannot be sent is the property's fault, not the worker's
        try:
            while True:
                self._channel.send_frame(frame)
                reply: dict[str, Any] = self._channel.receive(self._resolve)
                kind = _kind_of(reply)
                if kind not in ("callback", "read"):
                    return reply
                frame = self._encoded(self._serve(kind, reply))
        except wire.WireTimeout:
            raise Dead(self._lost(f"it took longer than {self._patience_s:g} s")) from None
        except wire.WireClosed:
            raise Dead(self._lost("the worker stopped")) from None
        except wire.WireError:
            raise Dead(self._forged()) from None

    def _encoded(self, reply: dict[str, Any]) -> bytes:
        try:
            return wire.encode(reply, self._refer)
        except wire.WireError as error:  # our function made something too large of what it was given
            return wire.encode({"kind": "raise", "type": "ValueError", "text": str(error)})

    def _serve(self, kind: str, request: dict[str, Any]) -> dict[str, Any]:
        """Run a function of ours for the worker, or read an attribute it was promised."""
        lent = self._lent.get(request["id"])
        if kind == "read":
            if not isinstance(lent, Opaque) or request["name"] not in lent.attributes:
                raise wire.WireError("an attribute that was not promised")
            value = getattr(lent.it, request["name"], None)
            return {"kind": "reply", "value": value if type(value) in READABLE else None}
        if lent is None or isinstance(lent, Opaque):
            raise wire.WireError("a function that was not handed over")
        self._callbacks += 1
        if self._callbacks > limits.CALLBACKS:
            raise Dead(self._lost(f"it called our functions more than {limits.CALLBACKS} times"))
        try:
            if self._channel.received_bytes > limits.REPLY_BYTES:
                raise Broken(f"A call handed over too much: {self._received()}.")
            return {"kind": "reply", "value": lent(*request["args"], **request["kwargs"])}
        except Broken as fault:
            self._faults.append(fault)  # kept, whatever the learner's code makes of it; the call is to end soon
            soon = time.monotonic() + limits.LAST_WORDS_S
            self._channel.deadline = min(soon, self._channel.deadline or soon)
            return {"kind": "stop", "text": str(fault)}
        except Dead:
            raise
        except Exception as error:  # the learner's arguments made our function stop; as in the notebook, it hears of it
            return {"kind": "raise", "type": type(error).__name__, "text": shown(str(error))}

    def _lost(self, why: str) -> str:
        if self.dead is None:
            self.dead = self._autopsy(why)
            self._channel.close()
        return self.dead

    def _received(self) -> str:
        return f"{-(-self._channel.received_bytes >> 20)} MiB, the limit is {limits.REPLY_BYTES >> 20}"

    def _forged(self) -> str:
        return self._lost("the worker sent what no answer returns, so it was ended")

    def _refer(self, value: Any) -> wire.Reference:
        if isinstance(value, RemoteKept) and value.number is not None:
            return wire.Reference("kept", value.number)
        opaque = isinstance(value, Opaque)
        if not opaque and not callable(value):
            raise TypeError(f"a property handed over a {type(value).__name__}, which cannot be sent")
        number = self._known.get(id(value))
        if number is None:
            number = self._known[id(value)] = self.new_number()
            self._lent[number] = value
        return wire.Reference("opaque", number, tuple(value.attributes)) if opaque else wire.Reference("callback", number)

    def _resolve(self, reference: wire.Reference) -> Any:
        if reference.kind == "unknown":
            return Unknown(shown(str(reference.id)))
        lent = self._lent.get(int(reference.id)) if reference.kind == "opaque" else None
        if not isinstance(lent, Opaque):
            raise wire.WireError("a reference to what was not handed over")
        return lent.it


def _kind_of(reply: Any) -> str:
    """A message of the worker's has exactly the fields of its kind, of the right types.

    Raises: wire.WireError.
    """
    kind = reply.get("kind") if type(reply) is dict else None
    fields = FIELDS.get(kind) if type(kind) is str else None
    if fields is None or set(reply) != {"kind", *fields}:
        raise wire.WireError("no message")
    if not all(wanted is object or type(reply[name]) is wanted for name, wanted in fields.items()):
        raise wire.WireError("a message with fields of other types")
    if kind == "callback" and not all(type(name) is str for name in reply["kwargs"]):
        raise wire.WireError("keywords that are no text")
    return str(kind)


FIELDS: dict[str, dict[str, type]] = {
    "done": {"value": object},
    "raised": {"type": str, "text": str},
    "too large": {"text": str},
    "callback": {"id": int, "args": tuple, "kwargs": dict},
    "read": {"id": int, "name": str},
}


def shown(text: str) -> str:
    """A stranger's text, fit to stand in a message: one line, printable, short."""
    first = text.strip().split("\n")[0]
    return "".join(letter if letter.isprintable() else "?" for letter in first)[: limits.TEXT_CHARACTERS]


def guarded(prop: Callable[..., None]) -> Callable[..., None]:
    """A property that is Broken, and does not stop the judge, where a result is so odd that comparing it fails."""

    def check(answer: Any, draw: Any) -> None:
        try:
            prop(answer, draw)
        except (Broken, NotStarted):
            raise
        except Exception as error:
            raise Broken(f"What it returned cannot be compared with what was expected ({type(error).__name__}).") from error

    check.__name__ = prop.__name__
    check.__doc__ = inspect.getdoc(prop)
    return check
