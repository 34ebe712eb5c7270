"""Maintainers only: `python -m tools.readme_figure` draws the README's figure, docs/overview.png from passes that really run.

A tiny model generates, asks twice with one start, and takes two turns, each without a cache and with it; every forward pass is
recorded. What is drawn, and counted, is what ran.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvcourse import PreallocatedCache, RadixPrefixCache, generate, load_model
from kvcourse.viz.overview_picture import Pass, Scene, plot_overview

HERE = Path(__file__).resolve().parents[1] / "docs" / "overview.png"
ASK, WRITE = 4, 4


@contextmanager
def recorded(model: Any) -> Iterator[list[tuple[int, int]]]:
    """Where each forward pass starts and stops, while this is open."""
    passes: list[tuple[int, int]] = []

    def note(_: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        cache = options.get("cache")
        start = 0 if cache is None else cache.length
        passes.append((start, start + args[0].shape[1]))

    hook = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield passes
    finally:
        hook.remove()


def scenes() -> list[Scene]:
    """Three reuses, each run twice."""
    model = load_model("tiny")
    ids = list(range(20, 29))

    def passes(text: str, first: str, kept: int = 0, **options: Any) -> list[Pass]:
        with recorded(model) as ran:
            written[:] = generate(model, options.pop("ids"), **options).tokens
        return [Pass(start, stop, min(kept, start), first if i == 0 else "", text) for i, (start, stop) in enumerate(ran)]

    written: list[int] = []
    text = "ABCDEFGH"
    one: dict[str, Any] = {"ids": ids[:ASK], "max_new_tokens": WRITE}
    within = Scene("KV cache: within one generation", "ABCD is continued with EFGH; H is never read",
                   passes(text, "", cache=None, **one), passes(text, "", **one))  # fmt: skip

    start, asked = ids[:5], [("ABCDExy", ids[5:7]), ("ABCDEpq", ids[7:9])]
    pc = RadixPrefixCache(model, max_bytes=2**24)
    between: dict[str, list[Pass]] = {"without": [], "with_it": []}
    for number, (shown, own) in enumerate(asked, start=1):
        for side, cache in (("without", None), ("with_it", pc)):
            options = {"ids": [*start, *own], "max_new_tokens": 1, "prefix_cache": cache}
            between[side] += passes(shown, f"request {number}", kept=len(start) if number == 2 else 0, **options)
    requests = Scene("Prefix cache: between requests", "two people ask; both begin with ABCDE", **between)

    turns: dict[str, list[Pass]] = {"without": [], "with_it": []}
    kept = PreallocatedCache(16)
    said: list[int] = []
    for number, new in enumerate((ids[:3], ids[3:5]), start=1):
        said += new
        here: dict[str, Any] = {"text": text, "first": f"turn {number}", "max_new_tokens": 2}
        turns["without"] += passes(ids=said, **here)
        turns["with_it"] += passes(ids=said[kept.length :], kept=kept.length, cache=kept, **here)
        said += written
    talk = Scene("Session cache: between turns", "you say ABC, it says DE; you say FG, it says HI", **turns)
    return [within, requests, talk]


def main() -> None:
    """Write the figure."""
    figure = plot_overview(scenes())
    figure.savefig(HERE, dpi=150, metadata={"Software": None})
    print(f"wrote {HERE.name}")


if __name__ == "__main__":
    main()
