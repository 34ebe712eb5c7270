"""Lesson 14: `kvcourse bench`. Knows nothing about how anything is timed."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from kvcourse.bench import Way


def bench(
    model: Annotated[str, typer.Argument(help="smollm2, tiny, or the folder of a checkpoint.")] = "smollm2",
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt.")] = 256,
    new: Annotated[int, typer.Option(help="Tokens to write.")] = 16,
    rounds: Annotated[int, typer.Option(help="How often each way is timed.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the prompt's tokens.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """What does each cache save on this machine? The same request in every way: equal tokens first, then counts, then times."""
    from kvcourse import load_model
    from kvcourse.bench import bench as run
    from kvcourse.meter import device_name

    ways = run(load_model(model), prompt, new, rounds, seed)
    if as_json:
        rows = [{"way": way.name, "tokens": way.tokens, "bytes_held": way.bytes_held, "seconds": way.seconds} for way in ways]
        print(json.dumps({"model": model, "device": device_name(), "prompt_tokens": prompt, "new_tokens": new, "ways": rows}))
        return
    often = "1 round" if rounds == 1 else f"{rounds} rounds"
    print_ways(ways, f"{model}, {device_name()}: {prompt} tokens are read and {new} written, by greedy choice, {often}.")


def print_ways(ways: "list[Way]", title: str) -> None:
    """A row for each way, and what its columns mean."""
    from rich import box
    from rich.table import Table

    from kvcourse.memory import format_bytes
    from kvcourse.tables import print_whole

    table = Table(box=box.SIMPLE)
    table.add_column("way", no_wrap=True)
    for name in ("through the model", "K and V held", "ms", "least to most", "faster"):
        table.add_column(name, justify="right", no_wrap=True)
    slowest = ways[0].median_seconds
    for way in ways:
        least, most = 1e3 * min(way.seconds), 1e3 * max(way.seconds)
        table.add_row(way.name, f"{way.tokens:,}", format_bytes(way.bytes_held), f"{1e3 * way.median_seconds:,.0f}",
                      f"{least:,.0f} to {most:,.0f}", f"{slowest / way.median_seconds:.1f}x")  # fmt: skip
    console = Console()
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    print_whole(table, console)
    note = "All of them chose the same tokens. Tokens through the model are exact; times are medians, here and now."
    console.print(note, highlight=False, soft_wrap=True)
