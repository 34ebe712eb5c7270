"""Lesson 10: `kvcourse replay`. Knows nothing about how a replay is made, and imports no torch."""

import json
import re
import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from kvcourse.errors import InputError
from kvcourse.outputs import refuse_inputs, write_whole
from kvcourse.streams import STDIN, called

if TYPE_CHECKING:
    from rich.progress import Progress

    from kvcourse.prefix.replay import Rates, Request
    from kvcourse.prefix.trace_files import BrokenLine

PICTURES = (".png", ".svg", ".pdf")
SCALE = ("opt", "lru")  # what a plot shows beside the policy that was asked for
NAMED = 10  # broken lines that are told with their reason; of more, only the number

HELP = re.sub(
    r"(?<!\n)\n(?!\n)",
    " ",  # a paragraph is as wide as the reader's terminal
    """What would a prefix cache of this size have saved on this log of requests?

Two kinds of line: the Mooncake traces', {"timestamp": 27482, "input_length": 700, "output_length": 52, "hash_ids": [46, 47]},
with an id for each block of the input; or our own, {"tokens": [1, 2, 3]}, the input's token ids, which are cut into blocks
that are named by chained digests ("timestamp" and "output_length" may be there, too).

Three hit rates: hit blocks / blocks; tokens in hit blocks / input tokens; the mean over requests of hit blocks / blocks. A
request hits from its first block on until the first that is missing.

--json prints one object. With one capacity, or none, its values are single ones; with several, "capacity_blocks" and the three
rates are lists, in the order in which the capacities were given.""",
)


class ManyCapacities(TyperCommand):
    """Takes `--capacity 1000 5859` and `--capacity=1000 5859`, as well as `--capacity 1000 --capacity 5859`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(arguments: Iterable[str], option: str = "--capacity") -> list[str]:
    """Repeat the option's name before each further number that follows one of its values. Behind a lone -- nothing is one."""
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    found: list[str] = []
    for one in words[:end]:
        if one.startswith(f"{option}="):
            found += [option, one.removeprefix(f"{option}=")]
            continue
        if one.isdecimal() and found[-1:] != [option] and found[-2:-1] == [option] and found[-1].isdecimal():
            found.append(option)
        found.append(one)
    return found + words[end:]


def register(app: typer.Typer) -> None:
    app.command(cls=ManyCapacities, help=HELP)(replay)


def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE.jsonl", help="One request a line; - reads standard input.")],
    capacity: Annotated[
        list[int] | None, typer.Option(metavar="N [N ...]", help="Blocks the cache holds; left out: no limit.")
    ] = None,
    policy: Annotated[str, typer.Option(help="lru, lfu, slru, ttl, turns, or opt: the farthest next use.")] = "lru",
    block_tokens: Annotated[int, typer.Option(help="Tokens in a block.")] = 512,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave broken lines out, and name them.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curve, lru and opt beside it: .png, .svg or .pdf.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """HELP says it all."""
    from kvcourse.prefix.replay import curve, require_known
    from kvcourse.prefix.trace_files import read_trace, require_whole

    for size in capacity or []:
        require_whole("--capacity", size, "Leave it out for a cache without a limit.")
    require_known(policy)
    if plot is not None:
        require_drawable(plot, capacity or [])
        refuse_inputs(plot, [trace])
    skipped: list[BrokenLine] = []
    try:
        requests = read_trace(trace, skip_bad, block_tokens=block_tokens, skipped=skipped)
    finally:  # also where none is left
        if skipped:
            name_skipped(skipped)
    sizes: list[int | None] = [*capacity] if capacity else [None]
    others = [name for name in SCALE if name != policy] if plot is not None else []
    with progress() as bar:
        task = bar.add_task("replaying", total=len(requests) * len(sizes) * (1 + len(others)))
        found = {
            name: curve(requests, sizes, name, block_tokens=block_tokens, tick=lambda: bar.advance(task))
            for name in [policy, *others]
        }
    if as_json:
        print(json.dumps(as_object(found[policy])))
    else:
        print_rates(found[policy], requests, block_tokens, Console())
    if plot is not None:
        draw([one for rates in found.values() for one in rates], plot, trace.name if str(trace) != STDIN else called(trace))


def as_object(rates: "list[Rates]") -> dict[str, Any]:
    """One object for one capacity or several: of several, what differs is a list."""
    records = [one.as_record() for one in rates]
    if len(records) == 1:
        return records[0]
    same = ("policy", "requests", "blocks")
    return {name: value if name in same else [record[name] for record in records] for name, value in records[0].items()}


def print_rates(rates: "list[Rates]", requests: "list[Request]", block_tokens: int, console: Console) -> None:
    """A table with one row a capacity, and what its columns mean."""
    from rich import box
    from rich.table import Table

    from kvcourse.tables import print_whole

    tokens = sum(request.input_length for request in requests)
    table = Table(box=box.SIMPLE)
    for name in ("capacity in blocks", "hit rate in blocks", "in tokens", "mean over requests"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in rates:
        size = "no limit" if one.capacity_blocks is None else f"{one.capacity_blocks:,}"
        table.add_row(size, f"{one.block_hit_rate:.4f}", f"{one.token_hit_rate:.4f}", f"{one.request_mean_hit_rate:.4f}")
    lines = (
        f"{counted(rates[0].requests, 'request')}, {counted(rates[0].blocks, 'block')} of {block_tokens} "
        f"{'token' if block_tokens == 1 else 'tokens'}, "
        f"{counted(tokens, 'input token')}; "
        f"policy {rates[0].policy}.",
        "In blocks: hit blocks / blocks. In tokens: tokens in hit blocks / input tokens, a last block counted as far as it is "
        "filled. Mean over requests: of each one's hit blocks / its blocks.",
    )
    console.print(lines[0], highlight=False, soft_wrap=True)
    print_whole(table, console)
    console.print(lines[1], highlight=False, soft_wrap=True)


def counted(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"


def name_skipped(skipped: "list[BrokenLine]") -> None:
    """On stderr, so that it mixes with no result."""
    for line in skipped[:NAMED]:
        print(f"kvcourse: skipped. {line.reason}", file=sys.stderr)
    numbers = ", ".join(str(line.number) for line in skipped)
    print(f"kvcourse: {len(skipped):,} broken {'line' if len(skipped) == 1 else 'lines'} skipped: {numbers}", file=sys.stderr)


def progress() -> "Progress":
    """A bar for people, on stderr; silent elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def require_drawable(plot: Path, capacities: list[int]) -> None:
    """Raise InputError, before any work, for a picture that could not be drawn or written."""
    if len(set(capacities)) < 2:
        raise InputError("One point is no curve.", expected="--plot with two capacities or more", got=capacities or "none",
                         todo="Add some, such as --capacity 1000 10000 50000.")  # fmt: skip
    if plot.suffix.lower() not in PICTURES:
        raise InputError("That kind of picture cannot be written.", expected=", ".join(PICTURES), got=plot.name,
                         todo="Name the file so.")  # fmt: skip
    if not plot.absolute().parent.is_dir():
        raise InputError("There is no such folder.", expected="a folder that exists", got=plot.parent, todo="Make it first.")


def draw(rates: "list[Rates]", plot: Path, title: str) -> None:
    from kvcourse.viz import style
    from kvcourse.viz.replay_plot import plot_hit_rates

    figure = plot_hit_rates(rates, title=title)
    drawn = BytesIO()
    with style.use():
        figure.savefig(drawn, format=plot.suffix[1:].lower(), dpi=2 * style.DPI)
    try:
        write_whole(plot, drawn.getvalue())
    except OSError as error:
        raise InputError(f"{plot} cannot be written.", expected="a file", got=error.strerror, todo="Choose another.") from error
