"""Lesson 06: an answer shown in a terminal. Knows nothing about models, tokens or caches.

Colours and bars appear in a terminal only; into a pipe or a file goes plain text.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvcourse.sampling import Sampler
from kvcourse.sessions.session import Session
from kvcourse.sessions.turns import Reply, Watch


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
    return Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())


def answer_once(chat: Session, question: str, console: Console, *, max_new_tokens: int, streaming: bool) -> Reply:
    """Ask, show the answer as it comes (or at the end, after a progress bar), then the usage line."""

    def ask(watch: Watch) -> Reply:
        return chat.send(question, max_new_tokens=max_new_tokens, watch=watch)

    return _shown(ask, console, max_new_tokens, streaming)


def answer_again(chat: Session, sampler: Sampler, console: Console, *, max_new_tokens: int, streaming: bool) -> Reply:
    """The same for another answer to the last question."""

    def ask(watch: Watch) -> Reply:
        return chat.regenerate(max_new_tokens=max_new_tokens, sampler=sampler, watch=watch)

    return _shown(ask, console, max_new_tokens, streaming)


def say(console: Console, text: str, style: str = "dim") -> None:
    """A line about the conversation, which is not part of it."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def write(console: Console, text: str) -> None:
    """A piece of the conversation itself, at once."""
    console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
    console.file.flush()


def _shown(ask: Callable[[Watch], Reply], console: Console, max_new_tokens: int, streaming: bool) -> Reply:
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
                write(console, text)

        answer = ask(Watch(on_text, on_token, on_prefill, interrupted))
    if not streaming:
        write(console, answer.text)
    write(console, "\n")
    _say_why_it_ended(answer, console, max_new_tokens)
    say(console, answer.summary())
    return answer


def _say_why_it_ended(answer: Reply, console: Console, max_new_tokens: int) -> None:
    said = {
        "length": f"(cut at {max_new_tokens} new tokens; --max-new-tokens allows more)",
        "context": "(the model's context is full: no more can be said; /rewind takes turns back, /reset starts over)",
        "interrupted": "(stopped)",
    }.get(answer.finish_reason)
    if said:
        say(console, said, "yellow")
