"""Lesson 07: from answers to one table. Knows nothing about engines.

Equal tokens before speed: all float32 engines must give the same tokens. The others round each in its own places, so theirs
are not compared with one another: the table says how many agree with float32's before the first that does not.
"""

import statistics
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.engines import Answer, Request


@dataclass(eq=False)
class Result:
    """All rounds of one engine on one request."""

    engine: str
    precision: str
    request: Request
    read_bytes: float  # weights, and K/V on average, that a decode step reads
    is_transformers: bool = False
    answers: list[Answer] = field(default_factory=list)
    peak_bytes: int = 0

    @property
    def is_ours(self) -> bool:
        return self.engine.startswith("kvcourse")

    @property
    def case(self) -> str:
        """64, or 1000+20 where the first thousand were kept."""
        kept, all_of_it = self.request.kept, len(self.request.prompt)
        return f"{kept}+{all_of_it - kept}" if kept else str(all_of_it)

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding, median; None where the request was for too few tokens to tell."""
        if self.request.kept:
            return None
        return statistics.median((self.request.new - 1) / answer.decode_s for answer in self.answers)

    @property
    def first_s(self) -> float:
        return statistics.median(answer.first_s for answer in self.answers)

    @property
    def prefill_tokens_per_s(self) -> float:
        return (len(self.request.prompt) - self.request.kept) / self.first_s

    def share(self, bandwidth: float) -> float | None:
        """Of the decode speed that reading `bandwidth` bytes a second allows at this engine's own precision."""
        speed = self.tokens_per_s
        return None if speed is None else speed * self.read_bytes / bandwidth

    def ratio(self, base: "Result", of: str) -> list[float]:
        """How many times the base's speed, round by round, sorted. of: "decode_s" or "first_s"."""
        return sorted(getattr(b, of) / getattr(a, of) for a, b in zip(self.answers, base.answers, strict=True))


def different_tokens(results: list[Result]) -> list[Result]:
    """float32 engines whose tokens are not the first one's: no time of theirs means anything."""
    exact = [r for r in results if r.precision == "float32"]
    return [r for r in exact if agreeing(results, r) < r.request.new]


def agreeing(results: list[Result], result: Result) -> int:
    """How many tokens, from the first on, are those of the first float32 engine in every round."""
    golden = next(r for r in results if r.case == result.case and r.precision == "float32").answers[0].tokens
    counts = [len(golden) for _ in result.answers]
    for i, answer in enumerate(result.answers):
        counts[i] = next((n for n, (a, b) in enumerate(zip(answer.tokens, golden, strict=True)) if a != b), len(golden))
    return min(counts)


def better_peer(results: list[Result], case: str, of: str) -> Result | None:
    """transformers' better cache for this case, float32; None where transformers was not asked."""
    peers = [r for r in results if r.case == case and r.is_transformers and r.precision == "float32"]
    return min(peers, key=lambda r: statistics.median(getattr(a, of) for a in r.answers), default=None)


def rows(results: list[Result], bandwidth: float) -> list[dict[str, Any]]:
    """One object an engine and request: what the table shows, and the spread of every ratio."""
    made = []
    for r in results:
        row: dict[str, Any] = {"engine": r.engine, "weights": r.precision, "prompt": r.case, "tokens_per_s": r.tokens_per_s,
                               "share_of_limit": r.share(bandwidth), "prefill_tokens_per_s": r.prefill_tokens_per_s,
                               "first_token_ms": r.first_s * 1e3, "peak_bytes": r.peak_bytes,
                               "new_tokens": r.request.new, "as_float32": agreeing(results, r)}  # fmt: skip
        for name, of in (("decode_ratio", "decode_s"), ("first_ratio", "first_s")):
            base = better_peer(results, r.case, of)
            known = base is not None and not (of == "decode_s" and r.request.kept)
            ratios = r.ratio(base, of) if known and base is not None else []
            row[name] = statistics.median(ratios) if ratios else None
            row[f"{name}_spread"] = [ratios[0], ratios[-1]] if ratios else None
        made.append(row)
    return made


def table(shape: str, device: str, results: list[Result], bandwidth: float) -> Table:
    """The same for people."""
    made = Table(
        box=box.SIMPLE,
        title=f"{shape}, {device}, batch 1. Memory is read at {bandwidth / 1e9:.1f} GB/s.",
        caption="limit: share of what that bandwidth allows with these weights. x: speed over transformers' better cache in "
        "float32,\nmedian and spread of the rounds. 1000+20: 20 tokens after 1000 whose K/V were kept. "
        "same: tokens, from the first on,\nthat are float32's.",
        caption_justify="left",
        title_justify="left",
    )
    made.add_column("engine", no_wrap=True)
    for name in ("prompt", "tok/s", "limit", "x", "spread", "prefill tok/s", "first ms", "x", "peak MiB", "same"):
        made.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in rows(results, bandwidth):
        if last not in (None, row["prompt"]):
            made.add_section()
        last = row["prompt"]
        spread = row["decode_ratio_spread"]
        made.add_row(
            row["engine"], row["prompt"], _show(row["tokens_per_s"], ".1f"), _show(row["share_of_limit"], ".0%"),
            _show(row["decode_ratio"], ".2f"), f"{spread[0]:.2f}-{spread[1]:.2f}" if spread else "",
            _show(row["prefill_tokens_per_s"], ".0f"), _show(row["first_token_ms"], ".0f"), _show(row["first_ratio"], ".2f"),
            f"{row['peak_bytes'] / 2**20:.0f}", f"{row['as_float32']}/{row['new_tokens']}",
        )  # fmt: skip
    return made


def _show(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
