"""Lesson 11: an interactive chat and its commands. Knows nothing about models, files, or how an answer is shown."""

import contextlib
import difflib
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console

from kvcourse.chat_sessions import KeptChat
from kvcourse.errors import InputError, KVCourseError
from kvcourse.sampling import Pick, Sampler
from kvcourse.session_tables import print_sessions, print_usage
from kvcourse.sessions.turns import Reply
from kvcourse.terminal import answer_again, answer_once, say

HELP = "/help lists what you can type besides questions. Ctrl-C stops an answer, /quit or Ctrl-D leaves."
COMMANDS = {
    "/save [NAME]": "keep this conversation under a name, from now on after every turn",
    "/load NAME": "go on with one that was kept; nothing of it is computed again",
    "/list": "the conversations that are kept",
    "/fork [NAME]": "go on in a copy; the conversation so far stays under its own name",
    "/rewind [N]": "take back the last turn, or the last N",
    "/again": "another answer to the last question, drawn with another seed",
    "/usage": "tokens in the window, and tokens read, cached, computed and written, turn by turn",
    "/reset": "start over, without a name; what is kept stays",
    "/help": "this list",
    "/quit": "leave",
}
AGAIN = Sampler(temperature=0.8, top_p=0.95)  # where answers are not drawn at all: the likeliest one would come again


def talk(
    kept: KeptChat, console: Console, *, max_new_tokens: int, streaming: bool, read: Callable[[str], str] = input
) -> None:  # fmt: skip
    """Questions and commands until /quit or the end of input. What fails is told in a line, and the chat goes on."""
    if console.is_terminal:
        with contextlib.suppress(ImportError):  # input() then edits, and remembers; Windows does so by itself
            import readline  # noqa: F401
    chat = Chat(kept, console, max_new_tokens=max_new_tokens, streaming=streaming)
    say(console, HELP)
    while chat.goes_on:
        try:
            typed = read(f"{kept.name or ''}> " if console.is_terminal else "").strip()
        except EOFError:
            if console.is_terminal:
                console.print()
            return
        except KeyboardInterrupt:
            console.print()
            say(console, HELP)
            continue
        if typed:
            chat.do(typed)


class Chat:
    """What every line that is typed does. goes_on: False after /quit."""

    def __init__(self, kept: KeptChat, console: Console, *, max_new_tokens: int, streaming: bool) -> None:
        self.kept, self.console = kept, console
        self.max_new_tokens, self.streaming = max_new_tokens, streaming
        self.goes_on = True

    def do(self, typed: str) -> None:
        """A question, or a command with what belongs to it."""
        if not typed.startswith("/"):
            self.ask(typed)
            return
        command, _, argument = typed.partition(" ")
        words = {name.split()[0]: name for name in COMMANDS}
        if command not in words:
            near = difflib.get_close_matches(command, words, n=1)
            say(
                self.console,
                f"There is no {command}. " + (f"Did you mean {near[0]}? " if near else "") + "/help lists all.",
                "red",
            )
            return
        if argument and words[command] == command:
            say(self.console, f"{command} stands alone. /help lists all.", "red")
            return
        try:
            getattr(self, command[1:])(*filter(None, [argument.strip()]))
        except KVCourseError as error:
            say(self.console, str(error), "red")
        except KeyboardInterrupt:
            say(self.console, "(stopped)", "yellow")

    def ask(self, question: str) -> None:
        self._answered(
            lambda: answer_once(
                self.kept.session, question, self.console, max_new_tokens=self.max_new_tokens, streaming=self.streaming
            ),
            "the question is forgotten",
        )

    # Commands, each under its own name.

    def save(self, name: str | None = None) -> None:
        name = name or self.kept.name
        if name is None:
            raise InputError("This conversation has no name yet.", expected="/save NAME", got="/save", todo="Give it one.")
        self.kept.begin(name)
        say(self.console, f"Kept as {name}, from now on after every turn.")

    def load(self, name: str | None = None) -> None:
        if name is None:
            raise InputError("Which one?", expected="/load NAME", got="/load", todo="/list shows what there is.")
        if self.kept.is_at_risk:
            raise InputError("This conversation has no name and would be lost.", expected="/save NAME, or /reset to forget it",
                             got="/load", todo="Then load the other one.")  # fmt: skip
        self.kept.resume(name)
        say_resumed(self.kept, self.console, last_turn=True)

    def list(self) -> None:
        listed = self.kept.listed()
        if not listed:
            say(self.console, "Nothing is kept yet. /save NAME keeps this conversation.")
            return
        print_sessions(listed, self.console, now=time.time(), current=self.kept.name)

    def fork(self, name: str | None = None) -> None:
        trunk = self.kept.fork(name)
        say(self.console, f"{trunk} stays as it is. You are in its copy, {self.kept.name}; /load {trunk} goes back.")

    def rewind(self, number: str = "1") -> None:
        session = self.kept.session
        n = int(number) if number.isascii() and number.isdigit() else 0
        if not 1 <= n <= len(session.turns):
            raise InputError("That many turns cannot be taken back.", expected=_range(len(session.turns)), got=number,
                             todo="/usage lists the turns.")  # fmt: skip
        session.rewind(n)
        turns, tokens = _counted(len(session.turns), "turn"), _counted(len(session.tokens), "token")
        left = f"{turns}, {tokens} are left." if session.turns else "Nothing is left."
        say(self.console, f"{_counted(n, 'turn')} taken back. {left}")
        self.keep()

    def again(self) -> None:
        session = self.kept.session
        sampler = another(session.sampler, len(session.ledger))
        if session.turns:
            say(self.console, f"(drawn with temperature {sampler.temperature:g} and seed {sampler.seed})")
        self._answered(
            lambda: answer_again(
                session, sampler, self.console, max_new_tokens=self.max_new_tokens, streaming=self.streaming
            ),
            "the last answer stays",
        )  # fmt: skip

    def usage(self) -> None:
        session = self.kept.session
        if not len(session.ledger):
            say(self.console, "Nothing has been asked yet.")
            return
        print_usage(session.ledger, self.console, occupancy=session.occupancy, turns=len(session.turns))

    def reset(self) -> None:
        before = self.kept.reset()
        stays = "" if before is None else f" {before} stays as it is; /load {before} goes back, /save NAME keeps the new one."
        say(self.console, f"A new conversation.{stays}")

    def help(self) -> None:
        width = max(map(len, COMMANDS))
        for name, meaning in COMMANDS.items():
            say(self.console, f"  {name:{width}}  {meaning}")

    def quit(self) -> None:
        self.goes_on = False

    # After every turn.

    def _answered(self, answer: Callable[[], Reply], if_stopped: str) -> None:
        try:
            reply = answer()
        except KVCourseError as error:
            say(self.console, f"{error} (/rewind takes turns back, /reset starts over)", "red")
        except KeyboardInterrupt:
            say(self.console, f"(stopped; {if_stopped})", "yellow")
        else:
            if reply.tokens:
                self.keep()

    def keep(self) -> None:
        """Put the session back, if it has a name. What goes wrong is told; the chat goes on, and the next turn tries again."""
        try:
            say_made_room(self.kept.keep(), self.console)
        except KVCourseError as error:
            say(self.console, f"Not kept: {error} The next turn tries again.", "red")
        except KeyboardInterrupt:
            say(self.console, "(not kept; /save tries again)", "yellow")


def say_resumed(kept: KeptChat, console: Console, *, last_turn: bool = False) -> None:
    """What goes on, and how much of it need not be computed again. last_turn: show that, too, so that one remembers."""
    session = kept.session
    held = 0 if session.cache is None else session.cache.length
    if not session.tokens:
        say(console, f"{kept.name} begins; it is kept after every turn.")
        return
    turns, tokens = _counted(len(session.turns), "turn"), _counted(len(session.tokens), "token")
    say(console, f"{kept.name} goes on after {turns}, {tokens}: {held:,} with keys and values, not computed again.")
    if last_turn:
        say(console, f"> {session.turns[-1].user}\n{session.turns[-1].reply}")


def say_made_room(gone: "list[str]", console: Console) -> None:
    for name in gone:
        say(console, f"{name} was deleted to make room: it was used longest ago.", "yellow")


def another(sampler: Sampler | Pick, number: int) -> Sampler:
    """A sampler that draws otherwise than the one before. number: how many answers there have been, resumed ones included."""
    drawn = sampler if isinstance(sampler, Sampler) and sampler.temperature else AGAIN
    return replace(drawn, seed=drawn.seed + number)


def _counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def _range(n: int) -> str:
    return "a turn or more" if n == 0 else "1" if n == 1 else f"1 to {n}"
