"""Lesson 07: kvcourse beside Hugging Face transformers, same weights, same run. Knows nothing about how an engine works.

    python -m benchmarks.decode

Each round asks every engine in turn, so that a machine that slows down slows all of them. Tokens must be the same before any
time is shown. Share of the limit: a decode step reads all weights and the K/V so far; the limit is reading them at the
bandwidth measured between the rounds of this very run.
"""

import argparse
import json
import statistics
import sys
from dataclasses import dataclass, field

import torch
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.bandwidth import read_bandwidth
from benchmarks.engines import ENGINES, SHAPES, Answer, Worker
from kvcourse.config import kv_bytes_per_token
from kvcourse.meter import device_name

BASE = "transformers DynamicCache"


@dataclass
class Result:
    """All rounds of one engine on one prompt length."""

    engine: str
    prompt: int
    new: int
    read_bytes: float  # weights and K/V a decode step reads, on average
    answers: list[Answer] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def tokens_per_s(self) -> float:
        return statistics.median((self.new - 1) / answer.decode_s for answer in self.answers)

    @property
    def first_ms(self) -> float:
        return statistics.median(answer.first_s for answer in self.answers) * 1e3

    def share(self, bandwidth: float) -> float:
        return self.tokens_per_s * self.read_bytes / bandwidth

    def ratio(self, base: "Result") -> list[float]:
        """This engine's decode speed over the base's, round by round."""
        return sorted(b.decode_s / a.decode_s for a, b in zip(self.answers, base.answers, strict=True))


def run(shape: str, prompts: list[int], new: int, rounds: int, threads: int) -> tuple[list[Result], list[float]]:
    """Ask every engine `rounds` times for every prompt length, in turn. Returns results and the bandwidths measured between."""
    torch.set_num_threads(threads)
    config = SHAPES[shape]
    ids = torch.randint(config.vocab_size, (max(prompts),), generator=torch.Generator().manual_seed(1)).tolist()
    workers = {engine: Worker(engine, shape, threads) for engine in ENGINES}
    results, bandwidths = [], []
    for length in prompts:
        kv = kv_bytes_per_token(config) * (length + new / 2)
        group = [Result(engine, length, new, worker.parameters_bytes + kv) for engine, worker in workers.items()]
        for worker in workers.values():
            worker.ask(ids[:length], 2)  # warm up
        for _ in track(range(rounds), description=f"prompt {length}", console=Console(stderr=True), transient=True):
            bandwidths.append(read_bandwidth())
            for result in group:
                result.answers.append(workers[result.engine].ask(ids[:length], new))
        results += group
    for engine, worker in workers.items():
        peak = worker.close()
        for result in results:
            if result.engine == engine:
                result.peak_bytes = peak
    return results, bandwidths


def different_tokens(results: list[Result]) -> list[str]:
    """Engines whose tokens are not the first engine's: no time of theirs means anything."""
    faults = []
    for result in results:
        golden = next(r for r in results if r.prompt == result.prompt).answers[0].tokens
        if any(answer.tokens != golden for answer in result.answers):
            faults.append(f"{result.engine}, prompt {result.prompt}")
    return faults


def table(results: list[Result], bandwidth: float) -> Table:
    """One row an engine and prompt length."""
    made = Table(
        box=box.SIMPLE,
        title=f"{device_name()}, float32, batch 1. Memory is read at {bandwidth / 1e9:.1f} GB/s.",
        caption=f"limit: share of what that bandwidth allows. ratio: decode speed over {BASE}, median and spread.",
    )
    made.add_column("engine", no_wrap=True)
    for name in ("prompt", "tokens/s", "limit", "ratio", "spread", "first ms", "peak MiB"):
        made.add_column(name, justify="right", no_wrap=True)
    for result in results:
        base = next(r for r in results if r.engine == BASE and r.prompt == result.prompt)
        ratios = result.ratio(base)
        made.add_row(
            result.engine,
            str(result.prompt),
            f"{result.tokens_per_s:.1f}",
            f"{result.share(bandwidth):.0%}",
            f"{statistics.median(ratios):.2f}",
            f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
            f"{result.first_ms:.0f}",
            f"{result.peak_bytes / 2**20:.0f}",
        )
    if len({result.prompt for result in results}) > 1:
        made.add_section()
        for engine, ratios in whole(results).items():
            made.add_row(engine, "all", "", "", f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}", "", "")
    return made


def whole(results: list[Result]) -> dict[str, list[float]]:
    """Each engine's speed over the base's for all prompts together: their decode times summed, round by round, sorted."""
    seconds = {
        engine: [sum(r.answers[i].decode_s for r in results if r.engine == engine) for i in range(len(results[0].answers))]
        for engine in dict.fromkeys(result.engine for result in results)
    }
    return {engine: sorted(b / a for a, b in zip(mine, seconds[BASE], strict=True)) for engine, mine in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="gpt2-small")
    parser.add_argument("--prompts", type=int, nargs="+", default=[64, 512], help="prompt lengths (tokens)")
    parser.add_argument("--new", type=int, default=128, help="new tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one object per engine and prompt length")
    options = parser.parse_args()
    results, bandwidths = run(options.shape, options.prompts, options.new, options.rounds, options.threads)
    faults = different_tokens(results)
    if faults:
        print("Different tokens, so no times:", "; ".join(faults), file=sys.stderr)
        return 1
    bandwidth = statistics.median(bandwidths)
    if options.json:
        rows = [
            {
                "engine": r.engine,
                "prompt_tokens": r.prompt,
                "tokens_per_s": round(r.tokens_per_s, 2),
                "first_token_ms": round(r.first_ms, 1),
                "peak_bytes": r.peak_bytes,
                "share_of_limit": round(r.share(bandwidth), 3),
            }
            for r in results
        ]
        print(json.dumps(rows, indent=2))
    else:
        Console(width=110).print(table(results, bandwidth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
