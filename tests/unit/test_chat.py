"""A conversation that keeps its K/V says what one without a cache says, and survives being stopped anywhere."""

import io
import os
import re
import signal

import pytest
import torch
from rich.console import Console

from kvcourse.checkpoints import load_model
from kvcourse.errors import ContextOverflow, TokenizerError
from kvcourse.sessions.session import PREFILL_CHUNK_TOKENS, Session
from kvcourse.sessions.turns import Watch
from kvcourse.terminal import HELP, answer_once, talk

QUESTIONS = ["where is the red cup ?", "who took it ?", "tell me now ."]


@pytest.fixture(scope="module")
def tiny():
    """float64, so that a tie between two tokens does not decide a test."""
    return load_model("tiny", dtype=torch.float64)


def plain_console() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_every_turn_says_what_a_conversation_without_a_cache_says(tiny):
    cached, plain = Session(tiny), Session(tiny, cache=None)
    for question in QUESTIONS:
        one, two = cached.send(question, max_new_tokens=12), plain.send(question, max_new_tokens=12)
        assert cached.tokens == plain.tokens
        assert one.text == two.text
        assert two.usage.cached_tokens == 0


def test_a_later_turn_computes_the_last_token_and_the_new_question_only(tiny):
    chat = Session(tiny)
    first = chat.send(QUESTIONS[0], max_new_tokens=8)
    assert (first.usage.cached_tokens, first.usage.computed_tokens) == (0, first.usage.prompt_tokens)
    kept = len(chat.tokens)
    second = chat.send(QUESTIONS[1], max_new_tokens=8)
    assert second.usage.cached_tokens == kept - 1
    assert second.usage.prompt_tokens == len(chat.tokens) - second.usage.completion_tokens
    assert second.usage.computed_tokens == second.usage.prompt_tokens - kept + 1
    assert chat.cache.length == len(chat.tokens) - 1


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_stopped_answer_is_kept_as_far_as_it_came_and_the_chat_goes_on(tiny, after):
    chats = [Session(tiny), Session(tiny, cache=None)]
    for chat in chats:
        chat.tokenizer = _Replaced(chat.tokenizer, stop_ids=())  # it would have answered before the fifth token
        seen = []
        watch = Watch(on_token=lambda seen=seen: seen.append(1), interrupted=lambda seen=seen: len(seen) == after)
        answer = chat.send(QUESTIONS[0], max_new_tokens=12, watch=watch)
        assert answer.finish_reason == "interrupted"
        assert answer.usage.completion_tokens == after
        assert chat.cache is None or chat.cache.length == len(chat.tokens) - 1
    assert chats[0].send(QUESTIONS[1], max_new_tokens=12).text == chats[1].send(QUESTIONS[1], max_new_tokens=12).text
    assert chats[0].tokens == chats[1].tokens


def test_stopping_while_a_long_prompt_is_read_forgets_the_question(tiny):
    chat, fresh = Session(tiny), Session(tiny)
    for one in (chat, fresh):
        one.send(QUESTIONS[0], max_new_tokens=4)
    long = " ".join(["the red cup is here ."] * 60)
    progress = []
    watch = Watch(on_prefill=lambda done, total: progress.append((done, total)), interrupted=lambda: True)
    answer = chat.send(long, max_new_tokens=4, watch=watch)
    assert (answer.finish_reason, answer.text, answer.usage.completion_tokens) == ("interrupted", "", 0)
    assert len(progress) == 1 and progress[0][0] == PREFILL_CHUNK_TOKENS < progress[0][1]
    assert (chat.tokens, chat.messages, chat.cache.length) == (fresh.tokens, fresh.messages, fresh.cache.length)
    assert chat.send(QUESTIONS[1], max_new_tokens=8).text == fresh.send(QUESTIONS[1], max_new_tokens=8).text


@pytest.mark.parametrize("at", [1, 3])
def test_an_exception_in_the_middle_of_an_answer_leaves_the_chat_as_it_was(tiny, at):
    chat, fresh = Session(tiny), Session(tiny)
    for one in (chat, fresh):
        one.send(QUESTIONS[0], max_new_tokens=4)
    seen = []

    def explode() -> None:
        seen.append(1)
        if len(seen) == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        chat.send(QUESTIONS[1], max_new_tokens=8, watch=Watch(on_token=explode))
    assert (chat.tokens, chat.messages, chat.cache.length) == (fresh.tokens, fresh.messages, fresh.cache.length)
    assert chat.send(QUESTIONS[1], max_new_tokens=8).text == fresh.send(QUESTIONS[1], max_new_tokens=8).text


def test_a_question_that_does_not_fit_is_refused_and_the_chat_goes_on(tiny):
    chat = Session(tiny)
    chat.send(QUESTIONS[0], max_new_tokens=4)
    before = (list(chat.tokens), chat.cache.length)
    with pytest.raises(ContextOverflow, match=f"at most {tiny.config.context_length} tokens"):
        chat.send("the " * tiny.config.context_length, max_new_tokens=4)
    assert (chat.tokens, chat.cache.length) == before
    assert chat.send(QUESTIONS[1], max_new_tokens=4).usage.cached_tokens == before[1]


def test_an_answer_that_fills_the_context_says_so(tiny):
    chat, console = Session(tiny), plain_console()
    chat.tokenizer = _Replaced(chat.tokenizer, stop_ids=())  # whatever the model says, it does not end by itself
    room = tiny.config.context_length - len(chat.tokenizer.encode_chat([{"role": "user", "content": ""}]))
    answer = answer_once(chat, "the " * (room - 3), console, max_new_tokens=50, streaming=True)
    assert (answer.finish_reason, answer.usage.completion_tokens) == ("context", 4)
    assert "context is full" in console.file.getvalue()


def test_reset_forgets_everything(tiny):
    chat, fresh = Session(tiny, system="you are helpful ."), Session(tiny, system="you are helpful .")
    chat.send(QUESTIONS[1], max_new_tokens=4)
    chat.reset()
    assert chat.send(QUESTIONS[0], max_new_tokens=6).usage == fresh.send(QUESTIONS[0], max_new_tokens=6).usage
    assert chat.tokens == fresh.tokens


def test_the_system_message_is_part_of_the_first_prompt(tiny):
    with_system, without = Session(tiny, system="you are helpful ."), Session(tiny)
    longer = with_system.send(QUESTIONS[0], max_new_tokens=2).usage.prompt_tokens
    assert longer > without.send(QUESTIONS[0], max_new_tokens=2).usage.prompt_tokens


def test_a_model_without_a_tokenizer_is_refused():
    model = load_model("tiny")
    model.tokenizer = None
    with pytest.raises(TokenizerError, match="no tokenizer"):
        Session(model)


USAGE = re.compile(
    r"usage: prompt (\d+) = cached (\d+) \+ computed (\d+) · completion (\d+) tokens · first token after [\d.]+ s"
)


@pytest.mark.parametrize("streaming", [True, False])
def test_the_terminal_shows_the_answer_and_ends_with_usage_that_adds_up(tiny, streaming):
    console = plain_console()
    answer = answer_once(Session(tiny), QUESTIONS[0], console, max_new_tokens=6, streaming=streaming)
    shown = console.file.getvalue()
    assert shown.startswith(answer.text)
    usage = USAGE.search(shown.splitlines()[-1])
    prompt, cached, computed, completion = map(int, usage.groups())
    assert (prompt, cached, completion) == (computed, 0, answer.usage.completion_tokens)
    assert "\x1b" not in shown, "colours and bars are for terminals"


@pytest.mark.skipif(not hasattr(signal, "raise_signal"), reason="signals cannot be raised here")
def test_ctrl_c_stops_the_answer_and_is_back_to_normal_afterwards(tiny):
    before = signal.getsignal(signal.SIGINT)
    chat, console = Session(tiny), plain_console()
    written = chat.tokenizer.decode_stream

    def one_piece_then_ctrl_c(ids):
        for piece in written(ids):
            yield piece
            os.kill(os.getpid(), signal.SIGINT)

    chat.tokenizer = _Replaced(chat.tokenizer, decode_stream=one_piece_then_ctrl_c)
    answer = answer_once(chat, QUESTIONS[0], console, max_new_tokens=12, streaming=True)
    assert answer.finish_reason == "interrupted"
    assert answer.usage.completion_tokens < 12
    assert "(stopped)" in console.file.getvalue()
    assert signal.getsignal(signal.SIGINT) is before


class _Replaced:
    """Everything of another object, but for what is replaced."""

    def __init__(self, original, **replaced):
        self._original = original
        self.__dict__.update(replaced)

    def __getattr__(self, name):
        return getattr(self._original, name)


def talked(model, *typed) -> tuple[str, Session]:
    """What the chat shows when these lines are typed; an exception class is raised in place of a line."""
    lines = iter(typed)

    def read(prompt: str) -> str:
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    chat, console = Session(model), plain_console()
    talk(chat, console, max_new_tokens=5, streaming=True, read=read)
    return console.file.getvalue(), chat


def test_the_chat_keeps_its_cache_between_turns(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "", QUESTIONS[1])
    turns = [tuple(map(int, found)) for found in USAGE.findall(shown)]
    assert len(turns) == 2
    assert turns[0][1] == 0 < turns[1][1] == turns[0][0] + turns[0][3] - 1


def test_reset_starts_a_new_conversation(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "/reset", QUESTIONS[0])
    first, second = USAGE.findall(shown)
    assert first == second


def test_quit_and_the_end_of_input_leave(tiny):
    shown, chat = talked(tiny, "/quit", QUESTIONS[0])
    assert chat.tokens == []
    shown, chat = talked(tiny)
    assert shown.startswith(HELP)


def test_ctrl_c_at_the_prompt_and_unknown_commands_show_the_help(tiny):
    shown, _ = talked(tiny, KeyboardInterrupt, "/help", "/nonsense")
    assert shown.count(HELP) == 4


def test_a_turn_that_fails_is_told_and_the_chat_goes_on(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "the " * 600, QUESTIONS[1])
    assert "no longer fits" in shown
    assert len(USAGE.findall(shown)) == 2
