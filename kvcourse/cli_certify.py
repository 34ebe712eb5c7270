"""Lesson 14: `kvcourse certify`. Knows nothing about how anything is proved."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Annotated

import typer
from rich.console import Console

from kvcourse.errors import InputError


def certify(
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Your own cache: package.module:name or file.py:name of a function of (model, capacity) that makes one.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Try caches on this model, too: smollm2, tiny, or a folder or file with weights.")
    ] = None,
    lesson: Annotated[list[int] | None, typer.Option(min=1, help="Only the proofs of this lesson; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Does every cache change nothing but the work? All proofs of the course, counted. Exit status 1 if one fails."""
    if cache is not None and ":" not in cache:
        raise InputError("Where is the function?", expected="package.module:name, or file.py:name", got=cache,
                         todo="Put its name behind a colon.")  # fmt: skip
    from kvcourse.certificate.running import certificate, find_factory
    from kvcourse.checkpoints import load_model

    console = Console(stderr=True)
    with _prints_on_stderr():
        factory = None if cache is None else find_factory(cache)
        tried_on = None if model is None else load_model(model)
        with console.status("Proving ...") as status:
            made = certificate(
                factory, model=tried_on, lessons=lesson, show=False, on_proof=lambda result: status.update(f"{result.name} ...")
            )
    print(json.dumps(made.as_record(), indent=1) if as_json else f"{made}\n{made.seconds:.1f} s")
    if not made.ok:
        raise typer.Exit(1)


@contextmanager
def _prints_on_stderr() -> Iterator[None]:
    """Whatever somebody's module prints, or C code, or a child process, goes to stderr: stdout is for the result."""
    stdout = sys.stdout
    if (
        stdout is None or sys.stderr is None
    ):  # closed before we started: then nobody reads it, and its number may be another file's
        with redirect_stdout(None):
            yield
        return
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stdout.flush()  # of whoever has kept it
        os.dup2(kept, 1)
        os.close(kept)
