"""Every lesson: what the command line prints about the machine and the exercises. Knows nothing about how it was found out."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from kvcourse.course import Place, Prepared
from kvcourse.doctor import Finding


def print_findings(findings: Iterable[Finding], console: Console) -> list[Finding]:
    """A table of all findings, then what to type for each that is wrong. Returns them."""
    with console.status("Looking ..."):
        seen = list(findings)
    table = Table("")
    for title in ("what", "found", "needed"):
        table.add_column(title, overflow="fold")  # a narrow terminal wraps what it cannot show, and cuts nothing
    for finding in seen:
        mark = "[green]ok[/]" if finding.ok else "[bold red]wrong[/]"
        table.add_row(mark, finding.what, _plain(finding.found), _plain(finding.needed))
    console.print(table)
    wrong = [finding for finding in seen if not finding.ok]
    for finding in wrong:
        console.print(f"{finding.what}: {finding.found}. Fix: {finding.fix}", markup=False, highlight=False, soft_wrap=True)
    console.print("Something is wrong; see the fixes above." if wrong else "Everything the course needs is here.")
    return seen


def print_prepared(prepared: list[Prepared], place: Place, console: Console) -> None:
    """One line for each exercise, then the next command."""

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    if not prepared:
        say(f"There are no exercises in {place.exercises} yet.")
    for one in prepared:
        path = _short(one.path, place.root)
        if one.action == "copied":
            say(f"copied   {path}")
        elif one.action == "kept":
            say(f"kept     {path}")
        elif one.action == "newer" and one.offered is not None:
            say(f"kept     {path}; the course has a newer version, which lies beside it: {_short(one.offered, place.root)}")
        else:
            say(f"kept     {path}; to start it afresh, rename yours and run `kvcourse start` again")
    if place.is_clone:
        say("Next: kvcourse lab")
    else:  # installed without the lessons, and perhaps without JupyterLab
        say("Next: open one in JupyterLab, and type `kvcourse check 06` or another number when you have answered.")


def print_whole(table: Table, console: Console) -> None:
    """A table as wide as it is: a row is a line, in a pipe too, and a narrow terminal wraps it without losing a letter."""
    whole = console.options.update(max_width=10_000)
    width = max(console.width, Measurement.get(console, whole, table).maximum)
    Console(file=console.file, width=width).print(table)


def _short(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _plain(text: str) -> str:
    """Square brackets are markup to rich."""
    return text.replace("[", "\\[")
