"""Lesson 13: how fast a log is linted, and in how much memory. Knows nothing about what is found; a wrong count stops it.

    python -m benchmarks.lint                     a log of 100 MB
    python -m benchmarks.lint --megabytes 20 --family clock

A log is generated line by line, the same each time, then `kvcourse lint --json` reads it in a process of its own, whose peak
memory is asked of the system. Busy: processor time, which other work on the machine does not lengthen by much. Families:
"chats" that grow, "clock" (chats with a clock in front of everything), "tools" (in another order each time), "documents" (in
another order), "questions" (one each), "long" (100 kB of new text each), "short" (a few words each, as many groups as
requests), and "mixed", of all but the last.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

_WORDS = [
    f"{a}{b}{c}" for a in ("ka", "lo", "mi", "ne", "ru") for b in ("ta", "ven", "sor", "dil") for c in ("", "s", "ing", "er")
]
LIMIT_MB = 500
Body = dict[str, Any]


def sentence(rng: random.Random, words: int = 14) -> str:
    return " ".join(rng.choices(_WORDS, k=words)).capitalize() + "."


def text(rng: random.Random, sentences: int) -> str:
    return " ".join(sentence(rng) for _ in range(sentences))


def chats(rng: random.Random, front: Callable[[int], str], turns: int = 20) -> Iterator[Body]:
    """Conversations without end, one after another; front(n): what stands in front of the n-th request's system part."""
    system, n = text(rng, 30), 0
    while True:
        history: list[Body] = []
        for _ in range(turns):
            history.append({"role": "user", "content": text(rng, 2)})
            yield {"messages": [{"role": "system", "content": front(n) + system}, *history]}
            history.append({"role": "assistant", "content": text(rng, 5)})
            n += 1


def clock(rng: random.Random) -> Iterator[Body]:
    return chats(rng, lambda n: f"Current time: {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(1_770_000_000 + 61 * n))}\n")


def tools(rng: random.Random) -> Iterator[Body]:
    offered = [{"name": f"tool_{n}", "description": text(rng, 3), "input_schema": {"type": "object"}} for n in range(20)]
    for body in chats(rng, lambda n: ""):
        yield {**body, "tools": rng.sample(offered, len(offered))}


def documents(rng: random.Random) -> Iterator[Body]:
    listed = [text(rng, 6) for _ in range(12)]
    for body in chats(rng, lambda n: ""):
        system, *rest = body["messages"]
        content = "\n\n".join([system["content"], *rng.sample(listed, len(listed))])
        yield {"messages": [{"role": "system", "content": content}, *rest]}


def questions(rng: random.Random) -> Iterator[Body]:
    system = {"role": "system", "content": text(rng, 60)}
    while True:
        yield {"messages": [system, {"role": "user", "content": text(rng, 20)}]}


def long(rng: random.Random) -> Iterator[Body]:
    while True:
        yield {"messages": [{"role": "user", "content": text(rng, 1200)}]}


def short(rng: random.Random) -> Iterator[Body]:
    while True:
        yield {"messages": [{"role": "user", "content": " ".join(f"{rng.getrandbits(40):x}" for _ in range(5))}]}


FAMILIES: dict[str, tuple[Callable[[random.Random], Iterator[Body]], str]] = {
    "chats": (lambda rng: chats(rng, lambda n: ""), "none"), "clock": (clock, "clock"), "tools": (tools, "tool_order"),
    "documents": (documents, "retrieval_order"), "questions": (questions, "none"), "long": (long, "none"),
    "short": (short, "none"),
}  # fmt: skip
MIXED = [family for family in FAMILIES if family != "short"]


def write_log(path: Path, n_bytes: int, family: str) -> int:
    """Write a log of about so many bytes; return how many requests it has."""
    rng = random.Random(13)
    sources = [FAMILIES[one][0](random.Random(one)) for one in (MIXED if family == "mixed" else [family])]
    written = requests = 0
    with path.open("w", encoding="utf-8") as file:
        while written < n_bytes:
            written += file.write(json.dumps(next(rng.choice(sources))) + "\n")
            requests += 1
    return requests


def measure(path: Path) -> tuple[dict[str, Any], float, float, float]:
    """(what the linter printed, seconds, seconds of processor time, peak memory in MB)."""
    with tempfile.TemporaryFile("w+") as out:
        start = time.perf_counter()
        command = [sys.executable, "-m", "kvcourse", "lint", str(path), "--json"]
        process = psutil.Popen(command, stdout=out)
        peak, busy = 0, 0.0
        while process.poll() is None:
            try:
                memory, times = process.memory_info(), process.cpu_times()
                busy = times.user + times.system or busy
                peak = max(peak, getattr(memory, "peak_wset", memory.rss))
            except psutil.NoSuchProcess:
                break
            time.sleep(0.01)
        seconds = time.perf_counter() - start
        if process.wait():
            raise SystemExit(f"kvcourse lint ended with {process.returncode}")
        out.seek(0)
        return json.load(out), seconds, busy, peak / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lint", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--family", choices=[*FAMILIES, "mixed"], nargs="+", default=["mixed"])
    parser.add_argument("--json", action="store_true", help="one object a log")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for family in options.family:
            path = Path(place) / "log.jsonl"
            requests = write_log(path, int(options.megabytes * 1e6), family)
            found, seconds, busy, peak = measure(path)
            causes = {group["cause"] for group in found["groups"]} - {"none"}
            wanted = {FAMILIES[one][1] for one in (FAMILIES if family == "mixed" else [family])} - {"none"}
            if found["requests"] != requests or causes != wanted:
                print(f"Not right, so no times: {found['requests']} of {requests} requests, {causes}", file=sys.stderr)
                return 1
            rows.append({"family": family, "megabytes": path.stat().st_size / 1e6, "requests": requests, "seconds": seconds,
                         "busy_s": busy, "requests_per_s": requests / seconds, "requests_per_busy_s": requests / busy,
                         "peak_mb": peak})  # fmt: skip
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        table = Table(box=box.SIMPLE, title="kvcourse lint, in a process of its own", title_justify="left")
        table.add_column("family")
        for name in ("MB", "requests", "s", "busy s", "requests/s", "requests/busy s", "peak MB"):
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(
                row["family"], *(f"{value:,.1f}" if value < 100 else f"{value:,.0f}" for value in [*row.values()][1:])
            )
        Console(width=128).print(table)
    if any(row["peak_mb"] > LIMIT_MB for row in rows):
        print(f"More than {LIMIT_MB} MB.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
