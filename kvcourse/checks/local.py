"""Every lesson: an answer that runs in this very process, as in a notebook. Knows nothing about properties or exercises."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kvcourse.checks.base import Broken, NotStarted, Opaque, Unknown

PLAIN = (bool, int, float, str, type(None), torch.dtype)


class LocalKept:
    """An object of the learner's in this process."""

    def __init__(self, it: Any, name: str) -> None:
        self.it, self._name = it, name

    def value(self) -> Any:
        return snapshot(self.it)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return snapshot(run(f"{self._name}.{method}", getattr(self.it, method, None), args, kwargs))


class LocalAnswer:
    """The learner's function or class in this process."""

    def __init__(self, answer: Callable[..., Any], name: str) -> None:
        self._answer, self._name = answer, name
        self.returned = LocalKept(None, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.returned = LocalKept(run(self._name, self._answer, args, kwargs), self._name)
        return self.returned.value()

    def keep(self, value: Any) -> LocalKept:
        return LocalKept(snapshot(value), self._name)


def snapshot(value: Any) -> Any:
    """A copy made of plain values only. Exact types: what a subclass claims about itself is not believed."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, Tensor):
        return torch.Tensor.as_subclass(value.detach(), Tensor).clone()
    if type(value) in (list, tuple):
        return type(value)(snapshot(item) for item in value)
    if isinstance(value, dict):
        return {key: snapshot(item) for key, item in value.items() if type(key) in PLAIN}
    return Unknown(type(value).__name__)


def run(name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the learner's code with copies; what it raises becomes one sentence."""
    if not callable(function):
        raise Broken(f"{name} is not there, or is no function.")
    faults: list[Broken] = []

    def handed(value: Any) -> Any:
        if isinstance(value, LocalKept):
            return value.it
        if isinstance(value, Opaque):
            return value.it
        if isinstance(value, list | tuple):
            return type(value)(handed(item) for item in value)
        if isinstance(value, dict):
            return {key: handed(item) for key, item in value.items()}
        if callable(value) and not isinstance(value, torch.dtype):
            return noted(value)
        return copy.deepcopy(value)

    def noted(callback: Callable[..., Any]) -> Callable[..., Any]:
        def call(*inner: Any, **named: Any) -> Any:
            try:
                return callback(*inner, **named)
            except Broken as fault:
                faults.append(fault)  # kept, in case the learner's code catches it
                raise

        return call

    try:
        result = function(*handed(args), **handed(kwargs))
    except NotImplementedError:
        raise NotStarted from None
    except Exception as error:
        if faults:
            raise faults[0] from None
        text = str(error).split("\n")[0][:200]
        raise Broken(f"{name} stopped with {type(error).__name__}{': ' + text if text else '.'}") from None
    if faults:
        raise faults[0]
    return result
