"""Lesson 10: what a prefix cache costs to ask, and what its answer saves. Knows nothing about how one is built.

    python -m benchmarks.prefix                        keys of 1k to 64k tokens, then a second question on SmolLM2
    python -m benchmarks.prefix --shape small-llama --prefix 150

Keys (benchmarks/prefix_keys.py): time should grow with the key and not with the texts that are stored. Reuse: another question
after a shared start. First token: from the question to its first new token, over one pass of the same new tokens with a cache
that is ready. Nothing is timed before what was found, and the logits, are right.
"""

import argparse
import copy
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.prefix_keys import KINDS, Key, bookkeeping, has_mlx, time_keys
from benchmarks.subjects import SHAPES, subject
from kvcourse.caches.growing import GrowingCache
from kvcourse.caches.preallocated import PreallocatedCache
from kvcourse.checkpoints import load_model
from kvcourse.generate import stream
from kvcourse.meter import device_name
from kvcourse.models.base import CausalLM
from kvcourse.prefix.cache import PrefixCache
from kvcourse.steps import prefill

ANEW = "kvcourse, computed anew"
TOLERANCE = 2e-3  # of float32 logits, whose size is about 20


@dataclass
class Reuse:
    """One way to the first new token."""

    name: str
    cached: int
    computed: int
    off: float  # from the logits without any cache, at most
    over: str | None  # what its time is divided by
    seconds: list[float] = field(default_factory=list)


def found_wrong(keys: list[Key], ways: list[Reuse]) -> list[str]:
    """What was not found as it should be, and logits that are not those of the model without a cache."""
    wrong = [f"{k.index}: {k.found} of {k.wanted} tokens, {k.others} others" for k in keys if k.found != k.wanted]
    return wrong + [f"{way.name}: logits differ by {way.off:.2g}" for way in ways if not way.off <= TOLERANCE]


# Reuse.


Asked = tuple[Tensor, float, int]  # logits (V,), seconds, tokens that were computed


def ask(model: CausalLM, ids: list[int], pc: PrefixCache | None, own: PreallocatedCache | None = None) -> Asked:
    """From a prompt to its first new token, as a user gets it. Nothing is stored.

    own: a cache that earlier questions have used. A new one takes fresh memory, which the system hands over page by page.
    """
    seen: list[Tensor] = []

    def pick(logits: Tensor) -> int:
        seen.append(logits)
        return int(logits.argmax())

    start = time.perf_counter()
    if own is not None:
        own.reset()
    run = stream(model, ids, max_new_tokens=2, prefix_cache=pc, sampler=pick, cache=own or "preallocated")
    next(run)
    seconds = time.perf_counter() - start
    return seen[0], seconds, run.output.usage.computed_tokens


def one_pass(model: CausalLM, ids: list[int], ready: PreallocatedCache) -> Asked:
    """One pass of the tokens that a cache, which is there, does not hold."""
    length = ready.length
    start = time.perf_counter()
    logits = prefill(model, ids[length:], ready)[0]
    int(logits.argmax())
    seconds = time.perf_counter() - start
    ready.truncate(length)
    return logits, seconds, len(ids) - length


class Deepcopy:
    """transformers' recipe for a shared prefix: a DynamicCache that is copied whole for every question."""

    name = "transformers, deepcopy"

    def __init__(self, folder: Path, prefix: list[int]) -> None:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.inference_mode():
            self.prefix = transformers.DynamicCache(config=self.model.config)
            self.model(torch.tensor([prefix]), cache=self.prefix, use_cache=True, logits_to_keep=1)

    def ask(self, ids: list[int]) -> Asked:
        start = time.perf_counter()
        with torch.inference_mode():
            cache = copy.deepcopy(self.prefix)
            rest = ids[cache.get_seq_length() :]
            logits = self.model(torch.tensor([rest]), cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        int(logits.argmax())
        return logits, time.perf_counter() - start, len(rest)


def reuse(shape: str, n_prefix: int, n_new: int, rounds: int) -> tuple[list[Reuse], dict[str, float]]:
    """A first question is answered and stored; then a second one, with the same start, in every way.

    Returns the ways, and how many bytes a stored token takes: as counted, and in tensors.
    """
    with tempfile.TemporaryDirectory() as place:
        chosen = subject(shape, n_prefix + 2 * n_new + 1, Path(place) / "model")
        model = load_model(chosen.folder)
        has_peer = importlib.util.find_spec("transformers") is not None
        peer = Deepcopy(chosen.folder, chosen.ids[:n_prefix]) if has_peer else None
    prefix, first = chosen.ids[:n_prefix], chosen.ids[n_prefix : n_prefix + n_new]
    second = [(first[0] + 1) % model.config.vocab_size, *chosen.ids[n_prefix + n_new + 1 : n_prefix + 2 * n_new]]
    ids, ways, held = [*prefix, *second], {}, {}

    def fill(tokens: list[int]) -> PreallocatedCache:
        cache = PreallocatedCache(capacity=len(ids) + 2)
        prefill(model, tokens, cache, chunk=512)
        return cache

    stored = fill([*prefix, *first])
    for kind, make in KINDS.items():
        pc = make(model, max_bytes=2**32)
        pc.insert([*prefix, *first], stored)
        in_memory = sum(rows.untyped_storage().nbytes() for rows in pc.store._rows.values())
        held |= {f"{kind} counted": pc.stats.bytes / pc.stats.tokens, f"{kind} in tensors": in_memory / pc.stats.tokens}
        known = pc.match(ids).length
        ready = fill(ids[:known])
        over = f"one pass of {len(ids) - known}"
        ways[over] = (None, lambda ready=ready: one_pass(model, ids, ready))
        ways[f"kvcourse, {kind}"] = (over, lambda pc=pc: ask(model, ids, pc))
        own = fill(ids)
        ways[f"kvcourse, {kind}, cache reused"] = (over, lambda pc=pc, own=own: ask(model, ids, pc, own))
    ways[ANEW] = (over, lambda: ask(model, ids, None))
    if peer is not None:
        ways[peer.name] = (f"one pass of {n_new}", lambda: peer.ask(ids))
    return _in_turn(ways, prefill(model, ids, GrowingCache(), chunk=64)[0], len(ids), rounds), held


def _in_turn(ways: dict[str, tuple[str | None, Callable[[], Asked]]], right: Tensor, n: int, rounds: int) -> list[Reuse]:
    made = []
    for name, (over, act) in ways.items():  # the first time warms up, and is looked at
        logits, _, computed = act()
        made.append(Reuse(name, n - computed, computed, (logits - right).abs().max().item(), over))
    for turn in range(rounds):
        first = turn % len(made)  # another one each time: whoever follows a large copy finds the memory disturbed
        for way in made[first:] + made[:first]:
            way.seconds.append(ways[way.name][1]()[1])
    return made


def ratio(ways: list[Reuse], way: Reuse, over: str | None = None) -> list[float]:
    """Round by round, this way's time over another's."""
    peer = _named(ways, over or way.over or way.name)
    return [mine / theirs for mine, theirs in zip(way.seconds, peer.seconds, strict=True)]


def _named(ways: list[Reuse], name: str) -> Reuse:
    return next(way for way in ways if way.name == name)


# Tables.

KEY_COLUMNS: dict[str, tuple[str, str]] = {
    "index": ("index", ""), "key_tokens": ("key, tokens", ","), "others": ("other texts", ","), "found_tokens": ("found", ","),
    "match_per_s": ("matches/s", ",.0f"), "insert_per_s": ("inserts/s", ",.1f"),
    "match_us_per_1000_tokens": ("fastest match, µs per 1,000", ",.0f"),
}  # fmt: skip
WAY_COLUMNS: dict[str, tuple[str, str]] = {
    "way": ("way", ""), "cached_tokens": ("cached", ","), "computed_tokens": ("computed", ","), "first_token_ms": ("ms", ".1f"),
    "over_one_pass": ("over one pass", ".2f"), "spread": ("spread", ""), "anew_over_this": ("anew over this", ".1f"),
    "largest_difference": ("logits off by", ".1g"),
}  # fmt: skip


def key_rows(keys: list[Key]) -> list[dict[str, Any]]:
    rows = []
    for key in keys:
        match_s, insert_s = statistics.median(key.match_s), statistics.median(key.insert_s)
        rows.append({"index": key.index, "key_tokens": key.tokens, "others": key.others, "found_tokens": key.found,
                     "match_per_s": 1 / match_s, "insert_per_s": 1 / insert_s,
                     "match_us_per_1000_tokens": min(key.match_s) * 1e9 / key.tokens})  # fmt: skip
    return rows


def way_rows(ways: list[Reuse]) -> list[dict[str, Any]]:
    rows = []
    for way in ways:
        ratios = ratio(ways, way)
        rows.append({"way": way.name, "cached_tokens": way.cached, "computed_tokens": way.computed,
                     "first_token_ms": statistics.median(way.seconds) * 1e3, "over_one_pass": statistics.median(ratios),
                     "spread": f"{min(ratios):.2f}-{max(ratios):.2f}", "largest_difference": way.off,
                     "anew_over_this": statistics.median(ratio(ways, _named(ways, ANEW), way.name))})  # fmt: skip
    return rows


def table(columns: dict[str, tuple[str, str]], rows: list[dict[str, Any]], title: str, caption: str) -> Table:
    made = Table(box=box.SIMPLE, title=title, caption=caption, title_justify="left", caption_justify="left")
    for name, (header, _) in columns.items():
        made.add_column(header, justify="left" if name in ("index", "way") else "right")
    for row in rows:
        made.add_row(*(format(row[name], spec) for name, (_, spec) in columns.items()))
    return made


def listed(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {figure:,.0f}" for name, figure in figures.items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    parser.add_argument("--keys", type=int, nargs="+", default=[1024, 8192, 65536], help="key lengths (tokens), 17 or more")
    parser.add_argument("--others", type=int, nargs="+", default=[10, 1000], help="other texts that are stored")
    parser.add_argument("--prefix", type=int, default=1000, help="tokens of the shared start")
    parser.add_argument("--new", type=int, default=20, help="tokens of a question")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one object per key and way")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keys = time_keys(options.keys, options.others, options.rounds)
    ways, held = reuse(options.shape, options.prefix, options.new, options.rounds)
    wrong = found_wrong(keys, ways)
    if wrong:
        print("Not right, so no times:", "; ".join(wrong), file=sys.stderr)
        return 1
    objects = bookkeeping(min(options.keys[-1], 8192))
    if options.json:
        memory = {"python_bytes_per_token": objects, "kv_bytes_per_token": held}
        print(json.dumps([*key_rows(keys), *way_rows(ways), memory], indent=2))
        return 0
    console = Console(width=128)
    console.print(table(KEY_COLUMNS, key_rows(keys), f"Finding and storing keys, {device_name()}",
                        f"Python's own bytes for each stored token: {listed(objects)}"))  # fmt: skip
    console.print(table(WAY_COLUMNS, way_rows(ways), f"{options.shape}, float32: first token of a second question",
                        f"K/V bytes for each stored token: {listed(held)}"))  # fmt: skip
    if not has_mlx():
        print("mlx-lm: not asked; it is not installed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
