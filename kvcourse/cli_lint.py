"""Lesson 13: `kvcourse lint`. Knows nothing about how a log is judged, and imports no torch: a tokenizer is enough."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcourse.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress

    from kvcourse.prompts.layout import Report
    from kvcourse.prompts.logs import BadLine

NAMED = 10  # bad lines that are told with their reason; of more, only the number


def lint(
    log: Annotated[Path, typer.Argument(metavar="LOG.jsonl", help="One request body a line; - reads standard input.")],
    provider: Annotated[
        str, typer.Option(help="Whose rules and prices: local, openai, anthropic, gemini, deepseek; variants as anthropic:1h.")
    ] = "local",
    model: Annotated[
        str | None,
        typer.Option(help="Count tokens as this model does: smollm2, tiny, or a folder. Left out: characters / 4, no model."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0.0, help="Base price of a million input tokens, in any currency, to count money.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="OUT", help="Write the report as a page, too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first line that cannot be read: exit status 2.")
    ] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit status 1 if there is something to mend.")] = False,
) -> None:
    """Why do the requests in this log miss the cache, what does it cost, and which layout would hit?

    A line is the body of a chat request, as OpenAI's or Anthropic's interfaces take it, or an object with the body in
    "request", "body" or "params" and, where known, "timestamp" and "usage" beside it.
    """
    from kvcourse.cli_explain import find
    from kvcourse.outputs import json_text, refuse_inputs
    from kvcourse.prompts.layout import Linter
    from kvcourse.prompts.logs import BadLine, read_log

    if html is not None and not html.absolute().parent.is_dir():
        raise InputError("There is no such folder.", expected="a folder that exists", got=html.parent, todo="Make it first.")
    if html is not None:
        refuse_inputs(html, [log])
    linter = Linter(find(model).tokenizer if model else None, provider, price, each=False)
    size = None if str(log) == "-" or not log.is_file() else log.stat().st_size
    with progress() as bar:
        task = bar.add_task("reading", total=size)
        for entry in read_log(log, lambda n: bar.advance(task, n)):
            try:
                linter.add(entry, strict)
            except BadLine as fault:
                todo = "Mend it, or leave --strict out to pass over such lines."
                raise InputError(fault.fault, expected=fault.expected, got=fault.got, todo=todo) from fault
    report = linter.report()
    name_skipped(report.skipped, report.skipped_lines)
    print(json_text(report.as_record()) if as_json else report)
    if html is not None:
        write_page(report, log, html)
    if exit_code and report.faults:
        raise typer.Exit(1)


def name_skipped(named: "list[BadLine]", total: int) -> None:
    """On stderr, so that it mixes with no result."""
    for line in named[:NAMED]:
        print(f"kvcourse: skipped. {line.reason}", file=sys.stderr)
    if total:
        print(f"kvcourse: {total:,} {'line' if total == 1 else 'lines'} skipped", file=sys.stderr)


def write_page(report: "Report", log: Path, html: Path) -> None:
    from kvcourse.outputs import write_whole
    from kvcourse.prompts.lint_page import as_page

    page = as_page(report, log.name).encode("utf-8", "backslashreplace")  # a file's name may be no text
    try:
        write_whole(html, page)
    except OSError as error:
        raise InputError(f"{html} cannot be written.", expected="a file", got=error.strerror, todo="Choose another.") from error


def progress() -> "Progress":
    """A bar for people, on stderr; silent elsewhere, also where colours are forced (a notebook's kernel does that)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
