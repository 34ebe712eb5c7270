"""Lesson 07: `kvcourse memory`. Knows nothing about how sizes are computed, and imports no torch."""

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from kvcourse.memory import Memory


def memory(
    model: Annotated[
        str | None, typer.Option(help="A name from the table, tiny, smollm2, or a Hugging Face folder or config.json.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help="Tokens of each text; left out: as many as the model is made for.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts at once.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, float16, bfloat16, int8 or int4, of K, V and weights.")] = "float16",
    window: Annotated[int | None, typer.Option(help="Tokens that are kept of each text; left out: the model's own.")] = None,
    budget: Annotated[str, typer.Option(help="Memory for weights and K/V, such as 24GiB.")] = "24GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, one object per model.")] = False,
) -> None:
    """How much memory does a KV cache take? Without --model: of every model in the table."""
    from kvcourse.memory import in_words, parse_bytes, price
    from kvcourse.model_shapes import SHAPES, find_shape

    shapes = list(SHAPES.values()) if model is None else [find_shape(model)]
    budget_bytes = parse_bytes(budget)
    found = [price(shape, context, batch, dtype, window_tokens=window, budget_bytes=budget_bytes) for shape in shapes]
    if as_json:
        records = [shape.as_record() | one.as_record() for shape, one in zip(shapes, found, strict=True)]
        print(json.dumps(records, indent=1))
    elif model is None:
        print_memory(found, Console())
    else:
        for line in in_words(shapes[0], found[0]):
            Console().print(line, markup=False, highlight=False, soft_wrap=True)


def print_memory(found: "list[Memory]", console: Console) -> None:
    """A table with one row a model, and what its columns mean."""
    from rich import box
    from rich.table import Table

    from kvcourse.memory import format_bytes
    from kvcourse.tables import print_whole

    first = found[0]
    budget = format_bytes(first.budget_bytes)
    table = Table(box=box.SIMPLE)
    table.add_column("model", no_wrap=True)
    for name in ("tokens", "kept", "K and V", "if multi-head", "weights", f"tokens that fit in {budget}"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        tokens = f"{one.context_tokens:,}{'*' if one.beyond_context else ''}"
        sizes = [format_bytes(n) for n in (one.kv_bytes, one.multi_head_kv_bytes, one.weight_bytes or 0)]
        fits = "any number" if one.fits_tokens is None else f"{one.fits_tokens:,}"
        table.add_row(one.model, tokens, f"{one.kept_tokens:,}", *sizes, fits)
    texts = "One text" if first.batch == 1 else f"{first.batch:,} texts"
    console.print(
        f"{texts}, {first.dtype}: K and V take 2 · layers · K/V heads · head size · tokens kept · texts · bytes.",
        highlight=False,
        soft_wrap=True,
    )
    print_whole(table, console)
    notes = [f"Tokens that fit: of each text, beside the weights in {first.dtype}."]
    if any(one.beyond_context for one in found):
        notes.append("* More tokens than the model was made for: arithmetic only.")
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
