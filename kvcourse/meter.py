"""Lesson 05: exact cost counters, and honest timing. Knows nothing about models: they report, this file adds up.

    with Meter() as meter:
        model(tokens)
    meter.cost          # the same on every machine

Whoever does the work counts it, where it is done: the model its tokens, a linear map its multiply-adds, a cache the bytes
it moves. Nothing here is derived from what should have happened.
"""

import platform
import statistics
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass, fields, replace
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Cost:
    """What a piece of work took. Exact, so that two costs can be compared with ==."""

    tokens: int = 0  # through the model; padding is not counted
    kv_rows: int = 0  # one row: the K and V of one token in one layer
    macs: int = 0  # multiply-adds: B·T·in·out a linear map, 2·B·H·T·S·D attention as executed (the mask is not subtracted)
    bytes_copied: int = 0  # cached K/V moved from one place in memory to another
    bytes_held: int = 0  # K/V in memory at the end

    def __add__(self, other: "Cost") -> "Cost":
        """Two pieces of work, one after the other: everything adds up, except what is held at the end."""
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return Cost(**{**sums, "bytes_held": other.bytes_held})


class Meter:
    """Counts what happens inside its `with` block, in this thread. Meters nest: the outer one sees it all."""

    def __init__(self) -> None:
        self.cost = Cost()
        self._parent: Meter | None = None
        self._token: Token[Meter | None] | None = None
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._counts = {"tokens": 0, "kv_rows": 0, "macs": 0, "bytes_copied": 0}
        self._parent = _active.get()
        self._token = _active.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        assert self._token is not None
        _active.reset(self._token)
        self.cost = replace(self.cost, **self._counts)
        if self._parent is not None:
            for name, amount in self._counts.items():
                self._parent._counts[name] += amount


_active: ContextVar[Meter | None] = ContextVar("active_meter", default=None)


def count(name: str, amount: int) -> None:
    """Add `amount` to one counter ("tokens", "kv_rows", "macs", "bytes_copied") of the meter in force, if there is one."""
    meter = _active.get()
    if meter is not None:
        meter._counts[name] += amount


@dataclass(frozen=True)
class Timing:
    """Wall-clock seconds of several runs, with the spread that the median hides."""

    median_s: float
    min_s: float
    max_s: float
    runs: int
    device: str

    def __str__(self) -> str:
        scale, unit = (1, "s") if self.median_s >= 1 else (1e3, "ms")
        spread = f"{self.min_s * scale:.2f} to {self.max_s * scale:.2f}"
        return f"{self.median_s * scale:.2f} {unit} (median of {self.runs}, {spread}; {self.device})"


def timed(fn: Callable[[], object], runs: int = 5, warmup: int = 1) -> Timing:
    """Call `fn` `warmup` times uncounted, then `runs` times. Compare timings of one session only, never of two machines."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        fn()
        seconds.append(time.perf_counter() - start)
    return Timing(statistics.median(seconds), min(seconds), max(seconds), runs, device_name())


def device_name() -> str:
    """What the timing was taken on: processor type and the number of threads PyTorch uses."""
    import torch

    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' * (threads != 1)}"
