"""Lesson 12: an agent's task in words, as a chat template writes it. Knows nothing about policies or what reads it.

The agent looks for the service that was restarted most often, and reads one log file a step. Nothing is left to chance but the
seed, and logs in which two services come first are drawn again, so there is one right answer, and it is known. Parts end where
the next speaker begins: what a policy leaves out, or puts in, keeps the conversation well formed.
"""

from collections import Counter
from random import Random
from typing import Any

from kvcourse.context.agent import Script, Step
from kvcourse.errors import InputError, TokenizerError

SYSTEM = "You are an agent. Each turn, name one file to read. When you have read them all, give the answer."
TASK = "Which service was restarted most often? The logs are in day-1.txt to day-{n}.txt."
ONE_DAY = "Which service was restarted most often? The log is in day-1.txt."
SERVICES = ("auth", "billing", "mail", "search")

_BEGIN, _END = "<|im_start|>", "<|im_end|>"
AFTER_A_PART = f"{_END}\n{_BEGIN}assistant\n"  # what stands between a part that is not the model's and the model's next words


def text_script(tokenizer: Any, n_steps: int = 6, lines: int = 12, seed: int = 0) -> Script:
    """A task of `n_steps` steps for a tokenizer with ChatML's control tokens (SmolLM2's has them).

    lines: of each log file, so the length of a tool result. The last step names the service; the others read a file each.
    Raises: InputError for fewer than 2 steps or 1 line, or a tokenizer without these control tokens.
    """
    for name, value, least in (("n_steps", n_steps, 2), ("lines", lines, 1)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} is a number.", expected=f"{least} or more", got=value, todo="Correct it.")
    if not all(_is_one_token(tokenizer, mark) for mark in (_BEGIN, _END)):
        raise InputError("The task is written with ChatML's control tokens.", expected=f"a tokenizer with {_BEGIN} and {_END}",
                         got=type(tokenizer).__name__, todo="Use SmolLM2's.")  # fmt: skip

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(text, special=True))

    logs, answer = _logs(Random(seed), n_steps - 1, lines)
    said = [(f"day-{day}.txt", log) for day, log in enumerate(logs, start=1)] + [(f"It is {answer}.", "Thank you.")]
    steps = [Step(ids(words + _END), ids(f"\n{_BEGIN}tool\n{result}{AFTER_A_PART}")) for words, result in said]
    system = f"{_BEGIN}system\n{SYSTEM}{_END}\n"
    task = f"{_BEGIN}user\n{TASK.format(n=n_steps - 1) if n_steps > 2 else ONE_DAY}{AFTER_A_PART}"
    return Script(ids(system), ids(task), tuple(steps))


def _is_one_token(tokenizer: Any, mark: str) -> bool:
    try:
        return len(tokenizer.encode(mark, special=True)) == 1
    except TokenizerError:  # not a character of it is known
        return False


def handle_text(tokenizer: Any, handle: str) -> tuple[int, ...]:
    """What stands in the window for a result that was put outside: the reference that `Externalise` asks for."""
    said = f"\n{_BEGIN}tool\n[kept outside the window as {handle}; ask for it by this name]{AFTER_A_PART}"
    return tuple(tokenizer.encode(said, special=True))


def _logs(rng: Random, n_days: int, lines: int) -> tuple[list[str], str]:
    """A log for each day, and the one service that was restarted most often in all of them."""
    while True:
        restarts = Counter[str]()
        logs = [_log(rng, lines, restarts) for _ in range(n_days)]
        first = [service for service in SERVICES if restarts[service] == max(restarts.values())]
        if len(first) == 1:
            return logs, first[0]


def _log(rng: Random, lines: int, restarts: "Counter[str]") -> str:
    written = []
    for line in range(lines):
        minute = 8 * 60 + (15 * line if lines <= 64 else line * 16 * 60 // lines)  # from eight o'clock to midnight
        service = rng.choice(SERVICES)
        event = rng.choice(("restarted", "healthy", "slow"))
        restarts[service] += event == "restarted"
        written.append(f"{minute // 60:02}:{minute % 60:02} {service} {event}")
    return "\n".join(written)
