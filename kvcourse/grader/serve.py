"""Every lesson: what a worker does for the judge, message by message. Knows nothing about processes, checks or expected values.

Load the learner's cells, call the answer, keep an object, say what it is now. From the moment a cell has been read in, nothing
that comes from here can be believed: the learner's code runs in this very process. Seeing to that is the judge's part.
Mounted in the sandbox, without the package.
"""

import builtins
from collections.abc import Callable
from typing import Any

import torch

from . import cells, limits, wire


class Stopped(BaseException):
    """A function handed to the answer found a fault: the call is over. Not an Exception, so that the answer cannot go on."""


class Opaque:
    """Something of the judge's that an answer may hand on, and read a few attributes of."""

    __slots__ = ("_id", "_names", "_server")

    def __init__(self, server: "Server", number: int, names: tuple[str, ...]) -> None:
        self._server, self._id, self._names = server, number, names

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(f"this object has no attribute {name!r} here; it is there to be handed on")
        return self._server.ask({"kind": "read", "id": self._id, "name": name})


class Server:
    """Does what the judge asks for, one message after the other; a call may ask back while it runs."""

    def __init__(self, channel: wire.Channel) -> None:
        self._channel = channel
        self._kept: dict[int, Any] = {}
        self._namespace: dict[str, Any] = {}
        self._preamble = ""
        self._answer: Any = None

    def serve(self) -> None:
        while True:
            self._handle(self._receive())

    def ask(self, message: dict[str, Any]) -> Any:
        """A question to the judge; until its reply comes, its own requests are served."""
        self._channel.send(message, self._refer)
        while (reply := self._receive())["kind"] not in ("reply", "raise", "stop"):
            self._handle(reply)
        if reply["kind"] == "stop":
            raise Stopped(reply["text"])
        if reply["kind"] == "raise":
            raise _exception(reply["type"])(reply["text"])
        return reply["value"]

    def _receive(self) -> dict[str, Any]:
        return self._channel.receive(self._resolve)

    def _handle(self, message: dict[str, Any]) -> None:
        try:
            reply = {"kind": "done", "value": self._do(message)}
        except BaseException as error:
            reply = {"kind": "raised", "type": type(error).__name__, "text": _text(error)}
        try:
            self._channel.send(reply, self._refer)
        except wire.WireError as error:
            self._channel.send({"kind": "too large", "text": str(error)})

    def _do(self, message: dict[str, Any]) -> Any:
        kind = message["kind"]
        if kind == "support":
            return self._support(message)
        if kind == "load":
            return self._load(message["name"], message["source"])
        if kind == "keep":
            self._kept[message["as"]] = message["value"]
            return None
        if kind == "value":
            return self._kept[message["id"]]
        target = self._answer if message["id"] is None else self._kept[message["id"]]
        function = target if message["method"] is None else getattr(target, message["method"])
        result = function(*message["args"], **message["kwargs"])
        self._kept[message["as"]] = result
        return result

    def _support(self, message: dict[str, Any]) -> None:
        """What the answer finds there: the preamble, and what the learner's other cells define."""
        torch.manual_seed(0)
        cells.withhold(message["withheld"])
        self._preamble = message["preamble"]
        self._namespace = cells.new_namespace(self._preamble)
        cells.define(message["cells"], self._namespace)

    def _load(self, name: str, source: str) -> str | None:
        """Run the answer's own cell. None, or what is wrong with it."""
        cells.run_preamble(self._preamble, self._namespace)  # again: `torch = 3` in another cell is not this one's fault
        try:
            fault = cells.answer(source, name, self._namespace)
        except cells.CannotRead as error:
            return f"The cell cannot be read: {error}."
        self._answer = self._namespace.get(name)
        if fault is None and not callable(self._answer):
            return f"{name} is no function."
        return fault

    def _refer(self, value: Any) -> wire.Reference:
        if type(value) is Opaque:
            return wire.Reference("opaque", object.__getattribute__(value, "_id"))
        return wire.only_type(value)

    def _resolve(self, reference: wire.Reference) -> Any:
        number = int(reference.id)
        if reference.kind == "kept":
            return self._kept[number]
        if reference.kind == "opaque":
            return Opaque(self, number, reference.names)
        return self._callback(number)

    def _callback(self, number: int) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.ask({"kind": "callback", "id": number, "args": args, "kwargs": kwargs})

        return call


def _exception(name: str) -> type[BaseException]:
    """The built-in exception of that name, so that an answer can catch what a function of ours raises."""
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError


def _text(error: BaseException) -> str:
    try:
        return str.__getitem__(str(error), slice(limits.TEXT_CHARACTERS * 4))  # a str, whatever __str__ returned
    except BaseException:
        return ""
