"""Every lesson: how an answer is judged. Knows nothing about any exercise, nor about where the answer runs.

A task has properties: functions `(answer, draw) -> None` that call the answer and raise Broken, with one sentence, when it
does not do what it should. They run here, in the notebook's process or in the grader's; the answer may run elsewhere (see
`Answer`). So a property never hands its own tensors to be changed and never asks an answer's result what it equals: it
compares values.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

LONGEST_MESSAGE = 600
LONGEST_TEXT = 160  # of somebody else's exception in a message


class Broken(Exception):
    """A property that an answer does not have: what was seen and the likely cause, in a sentence or two, never the answer."""


class NotStarted(Exception):
    """The answer is still the stub."""


@runtime_checkable
class Kept(Protocol):
    """An object that lives where the answer runs: made from a value, or returned by the answer."""

    def value(self) -> Any:
        """What it is now, as values of our own: tensors are copies, tuples, lists and dicts hold copies. Whatever is none of
        these, a number, text or None comes as an `Unknown`."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method; return the result's value. Raises as an Answer's call does."""


@runtime_checkable
class Answer(Protocol):
    """The learner's function or class, wherever it runs.

    Arguments: numbers, text, None, bool, tensors, torch dtypes, tuples, lists and dicts of these (handed over as copies);
    Kept objects (the object itself); plain Python functions, which the answer can call and which run here; `Opaque`s.
    """

    returned: Kept  # what the last call returned

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; return the result's value, as `Kept.value` does.

        Raises: NotStarted if it is the stub; Broken if it raised, took too long, or a function handed to it raised Broken.
        """

    def keep(self, value: Any) -> Kept:
        """Make an object there, to be passed to several calls and looked at in between."""


@dataclass(frozen=True)
class Unknown:
    """A result that is no plain value: only its type's name is known here."""

    type_name: str


class Opaque:
    """Something that an answer is given and hands on to a function of ours, which gets `it` back, the very object.

    attributes: names that an answer may read on it (numbers, text), such as ("length",).
    """

    def __init__(self, it: Any, attributes: tuple[str, ...] = ()) -> None:
        self.it, self.attributes = it, attributes


class Draw:
    """Seeded random inputs: the same seed and task, the same inputs on every machine."""

    def __init__(self, seed: int, salt: str) -> None:
        self._random = random.Random(f"{seed}/{salt}")
        self._torch = torch.Generator().manual_seed(self._random.getrandbits(60))

    def integer(self, low: int, high: int) -> int:
        """An int from low to high, both included."""
        return self._random.randint(low, high)

    def integers(self, n: int, low: int, high: int) -> list[int]:
        return [self.integer(low, high) for _ in range(n)]

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        """Normally distributed numbers."""
        return torch.randn(*shape, generator=self._torch, dtype=dtype)


Property = Callable[[Answer, Draw], None]


@dataclass(frozen=True)
class Verdict:
    """What became of one task."""

    task: str
    title: str
    state: Literal["passed", "failed", "not started"]
    held: int  # properties that hold
    properties: int
    message: str | None = None  # of the first property that does not hold
    broken: str | None = None  # that property's name

    def __str__(self) -> str:
        """One line when all is well; otherwise what is wrong."""
        if self.state == "not started":
            return f"{self.task} not started"
        if self.state == "passed":
            return f"{self.task} {self.title}: {self.held}/{self.properties}"
        return f"{self.task} {self.title}: {self.held} of {self.properties} properties hold. {self.message}"


def judge(name: str, title: str, properties: Sequence[Property], answer: Answer, seed: int) -> Verdict:
    """Try every property, each with inputs of its own; report the first that does not hold."""
    held, first, broken = 0, None, None
    for number, prop in enumerate(properties):
        try:
            prop(answer, Draw(seed, f"{name}/{number}"))
            held += 1
        except NotStarted:
            return Verdict(name, title, "not started", 0, len(properties))
        except Broken as fault:
            if first is None:
                first, broken = str(fault), prop.__name__
                first = first if len(first) <= LONGEST_MESSAGE else f"{first[: LONGEST_MESSAGE - 4].rstrip()} ..."
    return Verdict(name, title, "failed" if first else "passed", held, len(properties), first, broken)


def raised(name: str, kind: str, text: str = "", where: str = "") -> NotStarted | Broken:
    """What it means that the answer `name` raised an exception of that kind: a stub, or a fault in one sentence.

    where: the line that raised it, if it is known.
    A bare NotImplementedError is what nbgrader leaves in place of a solution; torch raises some of its own, with a text.
    """
    line = text.strip().split("\n")[0]
    if kind == "NotImplementedError" and (not line or line.startswith("Exercise ")):
        return NotStarted()
    line = line if len(line) <= LONGEST_TEXT else line[:LONGEST_TEXT].rstrip() + " ..."
    place = f" ({where})" if where else ""
    return Broken(f"{name} stopped with {kind}{': ' + line if line else ''}{place}{'' if line and not place else '.'}")


def expect(holds: Any, message: str) -> None:
    """Raise Broken with the message unless the condition holds."""
    if not bool(holds):
        raise Broken(message)


def describe(value: Any) -> str:
    """What a result looks like, for a message: "an int64 tensor (2, 3)", "a list of 3 int", "None"."""
    if isinstance(value, Unknown):
        what = value.type_name
    elif isinstance(value, Tensor):
        what = f"{str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    elif isinstance(value, list | tuple) and value:
        kinds = dict.fromkeys(item.type_name if isinstance(item, Unknown) else type(item).__name__ for item in value)
        what = f"{type(value).__name__} of {len(value)} {' and '.join(kinds)}"
    elif value is None:
        return "None"
    else:
        what = type(value).__name__
    return f"{'an' if what[:1].lower() in tuple('aeio') or what.startswith('nd') else 'a'} {what}"
