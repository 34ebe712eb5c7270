"""Lesson 11: `kvcourse sessions`: what is kept of conversations. Knows nothing about models, and imports no PyTorch."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from kvcourse.errors import InputError
from kvcourse.outputs import json_text, write_whole

if TYPE_CHECKING:
    from kvcourse.ledger import Ledger
    from kvcourse.sessions.file import SessionFile
    from kvcourse.sessions.store import Listed, SessionStore

app = typer.Typer(
    help="Look after kept conversations; `kvcourse chat --session NAME` begins one, or goes on with it.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The session's name.")]
Folder = Annotated[Path | None, typer.Option(help="Where they are kept; else KVCOURSE_SESSIONS, or your data folder.")]


@app.command("list")
def list_sessions(folder: Folder = None, as_json: Annotated[bool, typer.Option("--json", help="A JSON list.")] = False) -> None:
    """Show every session: tokens, size, last use."""
    from kvcourse.session_folder import sessions_folder
    from kvcourse.session_tables import print_sessions

    with _store(folder) as store:
        listed = [] if store is None else store.list()
    if as_json:
        print(json_text([_record(one) for one in listed]))
    elif not listed:
        _say(f"No sessions in {sessions_folder(folder)}. To begin one: kvcourse chat --session NAME")
    else:
        print_sessions(listed, Console(), now=time.time())


@app.command()
def show(
    name: Name, folder: Folder = None, as_json: Annotated[bool, typer.Option("--json", help="A JSON object.")] = False
) -> None:
    """Show what a session holds: turns, tokens, K/V, model, sizes, and what it has cost. Verifies the file."""
    from kvcourse.session_tables import print_usage

    content, listed = _read(name, folder)
    with _well_formed(name):
        facts = _facts(content, listed)
        ledger, said = _ledger(content), [turn["user"] for turn in content.about["turns"]]
    if as_json:
        print(json_text(facts))
        return
    console = Console()
    for line in _in_words(facts):
        _say(line)
    for number, text in enumerate(said, start=1):
        _say(f"  {number}. {_shortened(text, max(20, console.width - 8))}")
    if len(ledger):
        print_usage(ledger, console, occupancy=facts["tokens"], turns=facts["turns"])


@app.command()
def export(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write; - is the terminal, for --text and --json.")],
    text: Annotated[bool, typer.Option("--text", help="What was said, for people.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help='The usual {"messages": [...]}, for programs.')] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    folder: Folder = None,
) -> None:
    """Copy a session to a file of yours: with its K/V, as Session.load reads it, or only what was said."""
    from kvcourse.sessions import file as session_file

    if text and as_json:
        raise InputError("Two formats at once.", expected="--text or --json", got="both", todo="Leave one out.")
    to_terminal = str(file) == "-"
    if to_terminal and not (text or as_json):
        raise InputError("A session file is not for terminals.", expected="a file's name, or --text or --json", got="-",
                         todo="Name a file.")  # fmt: skip
    if not to_terminal and file.exists() and not (force and file.is_file()):
        raise InputError(f"{file} is there already.", expected="a new name", got="a folder" if file.is_dir() else "a file",
                         todo="Choose another name." if file.is_dir() else "Choose another, or add --force.")  # fmt: skip
    if not to_terminal:
        _refuse_kept(file, folder)
    content, _ = _read(name, folder)
    if not (text or as_json):
        n_bytes = session_file.write(file, content)
    else:
        with _well_formed(name):
            said = _as_text(content) if text else {"messages": _messages(content)}
        if to_terminal:
            print(said if text else json_text(said))
            return
        written = said if isinstance(said, str) else json.dumps(said, indent=1, ensure_ascii=False)
        n_bytes = _write(file, written + "\n")
    _say(f"Wrote {file}: {_size(n_bytes)}.")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Such as 12h, 30d or 8w, since it was last used.")] = "30d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    folder: Folder = None,
) -> None:
    """Delete sessions that were not used for a while. Pinned ones stay."""
    from kvcourse.session_folder import parse_age

    age = parse_age(older_than)
    with _store(folder) as store:
        before = {} if store is None else {one.name: one for one in store.list()}
    with _store(folder, ttl=age) as store:
        if store is None or dry_run:
            now = time.time()
            names = [one.name for one in before.values() if not one.pinned and one.used + age <= now]
        else:
            names = store.prune()
    if not names:
        _say(f"Nothing is older than {older_than}.")
        return
    freed = sum(before[name].bytes for name in names if name in before)
    _say(f"{'Would delete' if dry_run else 'Deleted'} {_counted(names)}, {_size(freed)}: {', '.join(sorted(names))}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="One or more; if one is unknown, none is deleted.")],
    folder: Folder = None,
) -> None:
    """Delete sessions for good."""
    from kvcourse.session_folder import claim, find, unknown

    with _store(folder) as store:
        if store is None:
            raise unknown(names[0], [])
        found = {name: find(store, name) for name in names}
        claims = [claim(store.folder, name) for name in found]  # what a chat has open would be back after its next turn
        for name in found:
            store.delete(name)
        for held in claims:
            held.release()
    _say(f"Deleted {_counted(list(found))}, {_size(sum(one.bytes for one in found.values()))}: {', '.join(found)}")


# Reading.


@contextmanager
def _store(folder: Path | None, ttl: float | None = None) -> "Iterator[SessionStore | None]":
    """The store; None if there has never been one: to look at what is not there makes no folder."""
    from kvcourse.session_folder import has_sessions, open_store, require_place, sessions_folder

    place = sessions_folder(folder)
    require_place(place)
    if not has_sessions(place):
        yield None
        return
    with open_store(place, ttl=ttl) as store:
        yield store


def _read(name: str, folder: Path | None) -> "tuple[SessionFile, Listed]":
    from kvcourse.session_folder import find, read, unknown

    with _store(folder) as store:
        if store is None:
            raise unknown(name, [])
        listed = find(store, name)
        return read(store, name), listed


@contextmanager
def _well_formed(name: str) -> Iterator[None]:
    """A file with the right digest whose content makes no sense was written by something else."""
    from kvcourse.errors import SessionFileError

    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise SessionFileError(f"The session {name} contradicts itself ({error}).", expected="ids, turns and counts",
                               got="others", todo="Use another copy.") from error  # fmt: skip


def _ledger(content: "SessionFile") -> "Ledger":
    """The counts. What a chat has kept says how large the window is; another file does not, and then there is no limit."""
    from kvcourse.ledger import Ledger, TurnCount

    return Ledger(content.about.get("window_tokens") or float("inf"), [TurnCount(*turn) for turn in content.about["ledger"]])


def _messages(content: "SessionFile") -> list[dict[str, str]]:
    system = content.about["system"]
    told = [{"role": "system", "content": system}] if system else []
    for turn in content.about["turns"]:
        told += [{"role": "user", "content": turn["user"]}, {"role": "assistant", "content": turn["reply"]}]
    return told


# Telling.


def _facts(content: "SessionFile", listed: "Listed") -> dict[str, Any]:
    about, rows = content.about, content.rows
    kv_bytes = rows.expected_bytes if rows else 0
    return _record(listed) | {
        "turns": len(about["turns"]),
        "tokens": len(about["ids"]),
        "tokens_with_kv": about["rows"],
        "kv_bytes": kv_bytes,
        "kv_shape": list(rows.shape) if rows else None,
        "dtype": about["dtype"],
        "layout": about["layout"],
        "model_name": about.get("model_name"),
        "model": about["model"],
        "tokenizer": about["tokenizer"],
        "weights": about["weights"],
        "system": about["system"],
        "totals": _totals(content),
    }


def _totals(content: "SessionFile") -> dict[str, int]:
    from dataclasses import asdict

    return asdict(_ledger(content).totals)


def _in_words(facts: dict[str, Any]) -> Iterator[str]:
    from kvcourse.session_folder import format_age

    named = f"{facts['model_name']}, " if facts["model_name"] else ""
    weights = f", weights in {facts['weights']}" if facts["weights"] else ""
    yield facts["name"] + (" (pinned)" if facts["pinned"] else "")
    yield f"  turns      {facts['turns']:,}"
    yield f"  tokens     {facts['tokens']:,} ids, {facts['tokens_with_kv']:,} of them with their keys and values"
    yield f"  model      {named}fingerprint {facts['model'][:12]}{weights}"
    yield f"  tokenizer  fingerprint {facts['tokenizer'][:12]}"
    dtype = facts["dtype"].removeprefix("torch.")
    yield f"  size       {_size(facts['bytes'])}, of which K/V {_size(facts['kv_bytes'])} in {dtype}"
    yield f"  last used  {format_age(max(0.0, time.time() - facts['used']))} ago"
    if facts["system"]:
        yield f"  system     {_shortened(facts['system'], 100)}"


def _record(listed: "Listed") -> dict[str, Any]:
    """What is on disk. used: seconds since 1970."""
    return {"name": listed.name, "tokens": listed.tokens, "bytes": listed.bytes, "pinned": listed.pinned, "used": listed.used}


def _as_text(content: "SessionFile") -> str:
    return "\n\n".join(f"{message['role']}: {message['content']}" for message in _messages(content))


def _refuse_kept(file: Path, folder: Path | None) -> None:
    """Nothing is written among what the store keeps, least of all over it."""
    from kvcourse.session_folder import sessions_folder

    if sessions_folder(folder).resolve() in file.resolve().parents:
        raise InputError(f"{file} is among the sessions themselves.", expected="a file elsewhere", got=sessions_folder(folder),
                         todo="Choose another place.")  # fmt: skip


def _write(file: Path, text: str) -> int:
    data = text.encode()
    try:
        write_whole(file, data)
    except OSError as error:
        raise InputError(f"{file} cannot be written.", expected="a file", got=error.strerror, todo="Choose another.") from error
    return len(data)


def _shortened(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _counted(names: list[str]) -> str:
    return f"{len(names)} session{'' if len(names) == 1 else 's'}"


def _size(n_bytes: int) -> str:
    from kvcourse.memory import format_bytes

    return format_bytes(n_bytes)


def _say(line: str) -> None:
    """As it is: neither wrapped nor read as markup."""
    Console().print(line, markup=False, highlight=False, soft_wrap=True)
