"""Lesson 11: sessions and what they cost, as tables. Knows nothing about models or stores, and imports no PyTorch."""

import math
from collections.abc import Sequence
from itertools import accumulate

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvcourse.ledger import Ledger
from kvcourse.memory import format_bytes
from kvcourse.session_folder import format_age
from kvcourse.sessions.store import Listed
from kvcourse.tables import print_whole


def print_sessions(listed: Sequence[Listed], console: Console, *, now: float, current: str | None = None) -> None:
    """One row a session, the one used last first. now: seconds since 1970. current: the one that is open here."""
    table = _table("name", **{"tokens": "right", "size": "right", "last used": "left", "": "left"})
    for one in listed:
        name = Text(one.name, style="bold" if one.name == current else "")
        used = format_age(max(0.0, now - one.used)) + " ago"
        notes = [note for note, is_so in (("open here", one.name == current), ("pinned", one.pinned)) if is_so]
        table.add_row(name, f"{one.tokens:,}", format_bytes(one.bytes), used, ", ".join(notes))
    print_whole(table, console)


def print_usage(ledger: Ledger, console: Console, *, occupancy: int, turns: int) -> None:
    """What every turn took, and all together. occupancy: tokens in the window now; turns: those that the conversation has."""
    table = _table(
        "turn", **dict.fromkeys(("input", "cached", "computed", "generated", "input so far", "in the window"), "right")
    )
    sums = accumulate(turn.prompt_tokens for turn in ledger)
    for number, (turn, so_far) in enumerate(zip(ledger, sums, strict=True), start=1):
        counts = (turn.prompt_tokens, turn.cached_tokens, turn.computed_tokens, turn.completion_tokens, so_far)
        table.add_row(str(number), *(f"{n:,}" for n in counts), _share(turn.occupancy, ledger.limit))
    table.add_section()
    all_of_it = ledger.totals
    counts = (all_of_it.prompt_tokens, all_of_it.cached_tokens, all_of_it.computed_tokens, all_of_it.completion_tokens,
              all_of_it.prompt_tokens)  # fmt: skip
    table.add_row("total", *(f"{n:,}" for n in counts), _share(occupancy, ledger.limit))
    print_whole(table, console)
    lines = ["Input = cached + computed; what was cached was not computed again."]
    if ledger.limit != math.inf:
        lines[0] = f"The window holds {ledger.limit:,} tokens. {lines[0]}"
    if taken_back := len(ledger) - turns:
        lines.append(f"Taken back, by /rewind or /again: {taken_back}. They are in the sums, since they were computed.")
    for line in lines:
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _share(tokens: int, limit: float) -> str:
    """ "45 (0.5%)"; without a limit there is no share.

    The last token of an answer that fills the window stands outside it, so the share ends at 100 %.
    """
    return f"{tokens:,}" + ("" if limit == math.inf else f" ({min(1.0, tokens / limit):.1%})")


def _table(first: str, **others: str) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column(first, no_wrap=True)
    for name, side in others.items():
        table.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    return table
