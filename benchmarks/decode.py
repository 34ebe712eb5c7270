"""Lesson 07: kvcourse beside transformers and llama.cpp, same weights, same run. Knows nothing about how engines work.

    python -m benchmarks.decode                       both models
    python -m benchmarks.decode --shape smollm2       after `kvcourse fetch smollm2`

Each round asks every engine in turn, so that a machine that slows down slows all of them. All float32 engines must give the
same tokens before any time is shown. Share of the limit: a decode step reads all weights and the K/V so far; the limit is
reading them at the bandwidth measured between the rounds of this very run.
"""

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from benchmarks.bandwidth import read_bandwidth
from benchmarks.engines import BYTES_PER_WEIGHT, Engine, Request, engines_for, has_llama_cpp
from benchmarks.results import Result, agreeing, different_tokens, rows, table
from benchmarks.subjects import BOTH, SHAPES, Subject, subject
from benchmarks.worker import Worker
from kvcourse.config import kv_bytes_per_token
from kvcourse.meter import device_name


def run(
    shape: str, requests: list[tuple[int, int, int]], rounds: int, threads: int, skip: str | None = None
) -> tuple[list[Result], list[float]]:
    """Ask every engine `rounds` times for every request, in turn. Returns results, and the bandwidths measured in between.

    requests: tokens kept, tokens more, new tokens. skip: leave out engines with this in their name.
    """
    torch.set_num_threads(threads)
    room = max(kept + more + new for kept, more, new in requests)
    results, bandwidths = [], []
    with tempfile.TemporaryDirectory() as place, ExitStack() as open_workers:
        model = subject(shape, room, Path(place) / "model")
        engines = {name: engine for name, engine in engines_for(shape).items() if skip is None or skip not in name}
        workers = {engine: Worker(engine, shape, model.folder, room, threads) for engine in engines}
        for worker in workers.values():
            open_workers.callback(worker.kill)
        for kept, more, new in requests:
            request = Request(model.ids[: kept + more], new, kept)
            group = [_result(name, engine, request, model) for name, engine in engines.items()]
            for worker in workers.values():
                worker.ask(Request(request.prompt, 2, kept))  # warm up
            for turn in track(range(rounds), f"{shape}, {group[0].case}", console=Console(stderr=True), transient=True):
                bandwidths.append(read_bandwidth())
                first = turn % len(group)  # another one each time: whoever follows the measurement finds the memory disturbed
                for result in group[first:] + group[:first]:
                    result.answers.append(workers[result.engine].ask(request))
            results += group
        peaks = {engine: worker.close() for engine, worker in workers.items()}
    for result in results:
        result.peak_bytes = peaks[result.engine]
    return results, bandwidths


def _result(name: str, engine: Engine, request: Request, model: Subject) -> Result:
    if engine.precision in BYTES_PER_WEIGHT:
        weights_bytes = model.weights_read * BYTES_PER_WEIGHT[engine.precision]
    else:
        weights_bytes = sum(file.stat().st_size for file in model.folder.glob("*.gguf"))
    halved = 2 if engine.precision != "float32" and not name.startswith("kvcourse") else 1  # theirs keep K/V in float16
    kv_bytes = kv_bytes_per_token(model.config) / halved * (len(request.prompt) + request.new / 2)
    return Result(name, engine.precision, request, weights_bytes + kv_bytes, engine.is_transformers)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decode", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, help=f"one model; {' and '.join(BOTH)} unless given")
    parser.add_argument("--prompts", type=int, nargs="*", default=[64, 512], help="prompt lengths (tokens)")
    parser.add_argument("--new", type=int, default=128, help="new tokens")
    parser.add_argument("--prefix", type=int, default=1000, help="tokens kept before 20 more; 0 leaves that out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--skip", help='leave out engines with this in their name, such as "float16"')
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one object per model, engine and prompt")
    options = parser.parse_args()
    requests = [(0, length, options.new) for length in options.prompts]
    requests += [(options.prefix, 20, 4)] if options.prefix else []
    objects = []
    for shape in [options.shape] if options.shape else BOTH:
        results, bandwidths = run(shape, requests, options.rounds, options.threads, options.skip)
        others = different_tokens(results)
        for result in others:
            agreed = f"{agreeing(results, result)} of {result.request.new} tokens are float32's"
            print(f"{shape}: no times for {result.engine}, prompt {result.case}: {agreed}", file=sys.stderr)
        if any(result.is_ours or result.is_transformers for result in others):
            return 1  # those two must agree; an engine that adds in another order may meet a near tie
        results = [result for result in results if result not in others]
        bandwidth = statistics.median(bandwidths)
        if options.json:
            objects += [{"model": shape, "read_bytes_per_s": bandwidth} | row for row in rows(results, bandwidth)]
            continue
        Console(width=128).print(table(shape, device_name(), results, bandwidth))
        if shape == "smollm2" and not has_llama_cpp():
            print("llama.cpp: not asked; llama-cpp-python is not installed.")
    if options.json:
        print(json.dumps(objects, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
