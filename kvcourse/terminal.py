"""Lesson 06: a conversation shown in a terminal. Knows nothing about models, tokens or caches.

Colours and bars appear in a terminal only; into a pipe or a file goes plain text.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvcourse.errors import KVCourseError
from kvcourse.sessions.session import Session
from kvcourse.sessions.turns import Reply, Watch

HELP = "/reset starts over, /quit leaves (so does Ctrl-D), Ctrl-C stops an answer."


class _Interrupt:
    """Ctrl-C as a flag: the answer stops between two tokens, where all is consistent. A second Ctrl-C is an exception."""

    def __init__(self) -> None:
        self.seen = False

    def __call__(self) -> bool:
        return self.seen

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    @contextmanager
    def listening(self) -> Iterator["_Interrupt"]:
        self.seen = False
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def answer_once(chat: Session, question: str, console: Console, *, max_new_tokens: int, streaming: bool) -> Reply:
    """Ask, show the answer as it comes (or at the end, after a progress bar), then the usage line."""
    with _Interrupt().listening() as interrupted, _progress(console) as bar:
        prompt_task = bar.add_task("reading", total=None, visible=False)
        answer_task = bar.add_task("writing", total=max_new_tokens, visible=False)

        def on_prefill(done: int, total: int) -> None:
            bar.update(prompt_task, completed=done, total=total, visible=True)

        def on_token() -> None:
            bar.update(prompt_task, visible=False)
            if streaming:
                bar.stop()  # the answer itself is the progress
            else:
                bar.update(answer_task, advance=1, visible=True)

        def on_text(text: str) -> None:
            if streaming:
                _write(console, text)

        watch = Watch(on_text, on_token, on_prefill, interrupted)
        answer = chat.send(question, max_new_tokens=max_new_tokens, watch=watch)
    if not streaming:
        _write(console, answer.text)
    _write(console, "\n")
    _say_why_it_ended(answer, console, max_new_tokens)
    console.print(answer.summary(), style="dim", markup=False, highlight=False, soft_wrap=True)
    return answer


def _write(console: Console, text: str) -> None:
    console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
    console.file.flush()


def _say_why_it_ended(answer: Reply, console: Console, max_new_tokens: int) -> None:
    said = {
        "length": f"(cut at {max_new_tokens} new tokens; --max-new-tokens allows more)",
        "context": "(the model's context is full: this conversation cannot go on; /reset starts over)",
        "interrupted": "(stopped)",
    }.get(answer.finish_reason)
    if said:
        console.print(said, style="yellow", markup=False, highlight=False)


def talk(chat: Session, console: Console, *, max_new_tokens: int, streaming: bool, read: Callable[[str], str] = input) -> None:
    """Questions from the terminal until /quit or the end of input. A turn that fails is told, and the chat goes on."""
    console.print(HELP, style="dim", markup=False, highlight=False)
    while True:
        try:
            question = read("> " if console.is_terminal else "").strip()
        except EOFError:
            _write(console, "\n" if console.is_terminal else "")
            return
        except KeyboardInterrupt:
            _write(console, "\n")
            console.print(HELP, style="dim", markup=False, highlight=False)
            continue
        if question == "/quit":
            return
        if question == "/reset":
            chat.reset()
            console.print("A new conversation.", style="dim")
        elif question.startswith("/"):
            console.print(HELP, style="dim", markup=False, highlight=False)
        elif question:
            try:
                answer_once(chat, question, console, max_new_tokens=max_new_tokens, streaming=streaming)
            except KVCourseError as error:
                console.print(f"{error} (/reset starts over)", style="red", markup=False, highlight=False)
            except KeyboardInterrupt:
                console.print("(stopped; the question is forgotten)", style="yellow")
