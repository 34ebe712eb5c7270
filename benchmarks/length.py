"""Lesson 07: what a decode step costs as the text grows. Knows nothing about how a model or a cache works: it counts and times.

    python -m benchmarks.length                   SmolLM2 to 4,096 tokens, GPT-2-small's shape to 1,000
    python -m benchmarks.length --shape gpt2-small

With a cache a step reads all weights, and K and V of every token so far. Counts first: multiply-adds and bytes must grow by
the same amount with every further token, which is what attention over one more row takes, or there are no times. Lengths are
timed in turn, round by round, so that a machine that slows down slows all of them.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.subjects import BOTH, SHAPES, subject
from kvcourse.caches.base import KVCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.checkpoints import load_model
from kvcourse.config import Config, kv_bytes_per_token
from kvcourse.meter import Meter, device_name
from kvcourse.models.base import CausalLM
from kvcourse.probe import listening
from kvcourse.steps import decode_step, prefill

LENGTHS = (64, 128, 256, 512, 1000, 2048, 4096)


@dataclass
class Step:
    """One decode step after `length` tokens."""

    length: int
    macs: int  # counted
    copied_bytes: int  # counted
    kv_read_bytes: int  # K and V that the step attends to: those before, and its own
    seconds: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float:
        return statistics.median(self.seconds) * 1e3


def measure(model: CausalLM, ids: list[int], lengths: list[int], rounds: int, steps: int) -> list[Step]:
    """Counts of one step at every length, then `rounds` medians of `steps` steps each."""
    cache = PreallocatedCache(capacity=max(lengths) + 1)
    found = []
    for length in lengths:
        prefill(model, ids[cache.length : length], cache, chunk=512)
        found.append(_counted(model, ids[length], cache))
    for _ in range(rounds):
        for step in found:
            if cache.length > step.length:
                cache.truncate(step.length)
            elif cache.length < step.length:
                prefill(model, ids[cache.length : step.length], cache, chunk=512)
            step.seconds.append(_median_s(model, ids[step.length], cache, steps))
    return found


def _counted(model: CausalLM, token: int, cache: KVCache) -> Step:
    """What one step reports: multiply-adds, bytes copied, and the rows that attention was handed in every layer."""
    length, attended = cache.length, []

    def listen(layer: int | None, name: str, tensor: Tensor) -> None:
        if name == "attn.attended":
            attended.append(2 * tensor.nbytes)  # the keys; the values are as many

    with Meter() as meter, listening(listen):
        decode_step(model, token, cache)
    cache.truncate(length)
    return Step(length, meter.cost.macs, meter.cost.bytes_copied, sum(attended))


def _median_s(model: CausalLM, token: int, cache: KVCache, steps: int) -> float:
    seconds = []
    for _ in range(steps + 1):  # the first one warms up
        start = time.perf_counter()
        decode_step(model, token, cache)
        seconds.append(time.perf_counter() - start)
        cache.truncate(cache.length - 1)
    return statistics.median(seconds[1:])


def faults(steps: list[Step], config: Config) -> list[str]:
    """Where a count is not on one straight line, or its slope is not that of attending to one more row in every layer."""
    a_row = 2 * config.n_layer * config.n_head * config.head_size  # multiply-adds: q·k and weight·v
    wanted = {"macs": a_row, "kv_read_bytes": kv_bytes_per_token(config), "copied_bytes": 0}
    first, found = steps[0], []
    for step in steps:
        for name, slope in wanted.items():
            grown = getattr(step, name) - getattr(first, name)
            if grown != slope * (step.length - first.length):
                found.append(f"{name} at {step.length}: {grown} more than at {first.length}")
    return found


def fit(steps: list[Step]) -> tuple[float, float]:
    """Least squares over the medians: ms of a step at no length, and ms for every thousand tokens before it."""
    if len(steps) == 1:
        return steps[0].ms, 0.0
    slope, start = statistics.linear_regression([step.length for step in steps], [step.ms for step in steps])
    return start, slope * 1000


def table(shape: str, steps: list[Step]) -> Table:
    start, per_thousand = fit(steps)
    first, last = steps[0], steps[-1]
    more = max(1, last.length - first.length)
    made = Table(
        box=box.SIMPLE,
        title=f"{shape}, float32, {device_name()}, one decode step with a cache",
        caption=f"Fitted: {start:.1f} ms, and {per_thousand:.2f} ms for every 1,000 tokens before. Counts grow by the same\n"
        f"amount with every token, {(last.macs - first.macs) // more:,} multiply-adds and "
        f"{(last.kv_read_bytes - first.kv_read_bytes) // more:,} bytes: checked.",
        title_justify="left",
        caption_justify="left",
    )
    for name in ("tokens before", "multiply-adds", "K/V read, bytes", "copied, bytes", "ms", "spread", "fitted ms"):
        made.add_column(name, justify="right", no_wrap=True)
    for step in steps:
        made.add_row(
            f"{step.length:,}", f"{step.macs:,}", f"{step.kv_read_bytes:,}", f"{step.copied_bytes:,}", f"{step.ms:.1f}",
            f"{min(step.seconds) * 1e3:.1f}-{max(step.seconds) * 1e3:.1f}", f"{start + per_thousand * step.length / 1000:.1f}",
        )  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.length", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, help=f"one model; {' and '.join(reversed(BOTH))} unless given")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens before the step, within the context")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=16, help="steps a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one object per model and length")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    objects = []
    for shape in [options.shape] if options.shape else reversed(BOTH):
        with tempfile.TemporaryDirectory() as place:
            chosen = subject(shape, max(options.lengths) + 1, Path(place) / "model")
            model = load_model(chosen.folder)
        lengths = sorted({length for length in options.lengths if length < chosen.config.context_length})
        steps = measure(model, chosen.ids, lengths, options.rounds, options.steps)
        wrong = faults(steps, chosen.config)
        if wrong:
            print(f"{shape}: a step does not grow with the K/V read alone, so no times:", "; ".join(wrong), file=sys.stderr)
            return 1
        if options.json:
            start, per_thousand = fit(steps)
            objects += [{"model": shape, "tokens_before": s.length, "macs": s.macs, "kv_read_bytes": s.kv_read_bytes,
                         "bytes_copied": s.copied_bytes, "ms": s.ms, "fitted_ms": start + per_thousand * s.length / 1000}
                        for s in steps]  # fmt: skip
        else:
            Console(width=110).print(table(shape, steps))
    if options.json:
        print(json.dumps(objects, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
