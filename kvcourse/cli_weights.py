"""Lesson 04: `kvcourse weights`. Knows nothing about how weights are read."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kvcourse.weights import Weight, inventory


def weights(
    source: Annotated[str, typer.Argument(help="smollm2, tiny, or the path of a .safetensors or .gguf file or a folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object per tensor.")] = False,
) -> None:
    """List every weight of a model: name, role, layer, shape. No numbers are loaded."""
    found = find(source)
    if as_json:
        print(json.dumps([weight.as_record() for weight in found], indent=1))
    else:
        print_weights(found, Console())


def find(source: str) -> list[Weight]:
    """The inventory of a model by name, or of a path.

    Raises: UnknownName, NotFetched, CheckpointError.
    """
    from kvcourse.errors import UnknownName
    from kvcourse.fetch import SOURCES, model_folder

    path = Path(source).expanduser()
    if source == "tiny":
        from kvcourse.checkpoints import load_model

        return inventory(load_model("tiny"))
    if source in SOURCES:
        return inventory(model_folder(source))
    if not path.exists():
        raise UnknownName(
            "There is no such model or file.",
            expected=f"tiny, {', '.join(SOURCES)}, or a path",
            got=repr(source),
            todo="Check the spelling.",
        )
    return inventory(path)


def print_weights(found: list[Weight], console: Console) -> None:
    """A table with one row a tensor, and the sums."""
    from rich import box
    from rich.table import Table

    from kvcourse.tables import print_whole

    table = Table(box=box.SIMPLE, show_footer=True)
    total, size = sum(weight.parameters for weight in found), sum(weight.bytes for weight in found)
    table.add_column("name", no_wrap=True, footer=f"{len(found)} tensors")
    table.add_column("role", no_wrap=True)
    table.add_column("layer", justify="right")
    table.add_column("shape", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    table.add_column("parameters", justify="right", footer=f"{total:,}", no_wrap=True)
    table.add_column("bytes", justify="right", footer=f"{size:,}", no_wrap=True)
    for weight in found:
        layer = "" if weight.layer is None else str(weight.layer)
        shape = " × ".join(map(str, weight.shape))
        table.add_row(weight.name, weight.role, layer, shape, weight.dtype, f"{weight.parameters:,}", f"{weight.bytes:,}")
    print_whole(table, console)
