"""A conversation that keeps its K/V says what one without a cache says, and survives being stopped anywhere."""

import io
import itertools
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pseudo_terminal import Terminal
from rich.console import Console

from kvcourse.chat_commands import AGAIN, COMMANDS, HELP, another, talk
from kvcourse.chat_sessions import KeptChat, open_chat
from kvcourse.checkpoints import load_model
from kvcourse.errors import CacheMisuse, ContextOverflow, SessionStoreError, TokenizerError
from kvcourse.sampling import Sampler, greedy
from kvcourse.sessions.session import PREFILL_CHUNK_TOKENS, Session
from kvcourse.sessions.turns import Watch
from kvcourse.terminal import answer_once

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


def kept_chat(model, folder: Path, **options) -> KeptChat:
    return KeptChat(Session(model, **options), folder, "tiny")


def typed_into(kept: KeptChat, *typed, max_new_tokens: int = 5) -> str:
    """What the chat shows when these lines are typed; an exception class is raised in place of a line."""
    lines = iter(typed)

    def read(prompt: str) -> str:
        line = next(lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    console = plain_console()
    talk(kept, console, max_new_tokens=max_new_tokens, streaming=True, read=read)
    return console.file.getvalue()


def talked(model, *typed) -> tuple[str, Session]:
    """The same in a chat that nobody names."""
    kept = kept_chat(model, Path("there", "is", "no", "such", "folder"))
    return typed_into(kept, *typed), kept.session


def usages(shown: str) -> list[tuple[int, int, int, int]]:
    """prompt, cached, computed and completion of every turn that is shown."""
    return [tuple(map(int, found)) for found in USAGE.findall(shown)]


def test_the_chat_keeps_its_cache_between_turns(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "", QUESTIONS[1])
    first, second = usages(shown)
    assert first[1] == 0 < second[1] == first[0] + first[3] - 1


def test_reset_starts_a_new_conversation(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "/reset", QUESTIONS[0])
    first, second = USAGE.findall(shown)
    assert first == second


def test_quit_and_the_end_of_input_leave(tiny):
    shown, chat = talked(tiny, "/quit", QUESTIONS[0])
    assert chat.tokens == []
    shown, chat = talked(tiny)
    assert shown.startswith(HELP)


def test_ctrl_c_at_the_prompt_says_where_the_help_is(tiny):
    shown, _ = talked(tiny, KeyboardInterrupt)
    assert shown.count(HELP) == 2


def test_help_lists_every_command_on_a_line_of_its_own(tiny):
    shown, _ = talked(tiny, "/help")
    listed = [line.split()[0] for line in shown.splitlines() if line.startswith("  /")]
    assert listed == [name.split()[0] for name in COMMANDS]


@pytest.mark.parametrize(
    ("typed", "said"),
    [("/loda x", "Did you mean /load?"), ("/nonsense", "There is no /nonsense. /help"), ("/reset now", "/reset stands alone")],
)
def test_a_mistyped_command_is_told_in_a_line_and_does_nothing(tiny, typed, said):
    shown, chat = talked(tiny, QUESTIONS[0], typed)
    assert said in shown.splitlines()[-1]
    assert len(chat.turns) == 1


def test_a_turn_that_fails_is_told_and_the_chat_goes_on(tiny):
    shown, _ = talked(tiny, QUESTIONS[0], "the " * 600, QUESTIONS[1])
    assert "no longer fits" in shown
    assert len(USAGE.findall(shown)) == 2


# A conversation that has a name.


def test_a_chat_that_nobody_names_leaves_no_trace(tiny, tmp_path):
    kept = kept_chat(tiny, tmp_path / "sessions")
    typed_into(kept, QUESTIONS[0], "/rewind", QUESTIONS[1], "/again", "/usage", "/reset", "/quit")
    kept.close()
    assert list(tmp_path.iterdir()) == []


def test_a_conversation_that_goes_on_says_what_one_that_never_stopped_says_and_computes_no_more(tiny, tmp_path):
    never_stopped = Session(tiny)
    for question in QUESTIONS:
        with kept_chat(tiny, tmp_path) as kept:
            (kept.resume if never_stopped.turns else kept.begin)("ada")
            before = len(kept.session.tokens)
            assert kept.session.cache.length == max(0, before - 1)
            resumed = kept.session.send(question, max_new_tokens=8)
            kept.keep()
        expected = never_stopped.send(question, max_new_tokens=8)
        assert (resumed.tokens, resumed.usage) == (expected.tokens, expected.usage)
        assert resumed.cost.tokens == resumed.usage.computed_tokens + resumed.usage.completion_tokens - 1
        assert resumed.usage.cached_tokens == max(0, before - 1)
        assert kept.session.tokens == never_stopped.tokens
    assert list(kept.session.ledger) == list(never_stopped.ledger)


def on_disk(folder: Path, name: str) -> dict:
    """What is kept under a name, read by another store."""
    with kept_store(folder) as store:
        content = store.read(name)
    assert content is not None, f"{name} is not kept"
    return content.about


def kept_store(folder: Path):
    from kvcourse.session_folder import open_store

    return open_store(folder)


def test_every_turn_is_on_disk_before_the_next_line_is_read(tiny, tmp_path):
    lines, kept, seen = iter(["/save ada", *QUESTIONS, "/rewind", "/again"]), kept_chat(tiny, tmp_path), []

    def read(prompt: str) -> str:
        if kept.session.turns:
            seen.append(len(kept.session.tokens))
            assert on_disk(tmp_path, "ada")["ids"] == kept.session.tokens
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    with kept:
        talk(kept, plain_console(), max_new_tokens=5, streaming=True, read=read)
    assert len(seen) == 5


def test_load_goes_on_says_what_is_kept_and_shows_the_last_turn(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        before = typed_into(kept, "/save ada", QUESTIONS[0], QUESTIONS[1])
        n = len(kept.session.tokens)
    with kept_chat(tiny, tmp_path) as kept:
        shown = typed_into(kept, "/load ada", QUESTIONS[2])
    assert f"ada goes on after 2 turns, {n} tokens: {n - 1} with keys and values, not computed again." in shown
    assert f"> {QUESTIONS[1]}\n{before.splitlines()[-2]}\n" in shown
    ((prompt, cached, computed, _),) = usages(shown)
    assert (cached, computed) == (n - 1, prompt - n + 1)


def test_save_names_the_conversation_once_and_refuses_a_name_that_is_taken(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0])
        before = on_disk(tmp_path, "ada")
        shown = typed_into(kept, "/reset", QUESTIONS[1], "/save", "/save ada", "/save ../ada", "/save " + "x" * 300)
        assert [said in shown for said in ("no name yet", "already a session ada", "not a path")] == [True] * 3
        assert kept.name is None and on_disk(tmp_path, "ada") == before
        assert "Kept as ben" in typed_into(kept, "/save ben", "/save")
        assert kept.name == "ben"


def damage(folder: Path, name: str) -> None:
    with kept_store(folder) as store:
        row = store._index.get(name)
    path = folder / "files" / row.file
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def test_what_cannot_be_loaded_is_told_in_one_line_and_the_chat_goes_on(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(
            kept, "/save broken", QUESTIONS[0], "/reset", QUESTIONS[0], "/save foreign", "/reset", QUESTIONS[0], "/save ada"
        )
    damage(tmp_path, "broken")
    with kept_chat(load_model("tiny"), tmp_path) as other:  # float32
        typed_into(other, "/save single", QUESTIONS[0])
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/load ada")
        ids = kept.session.tokens
        for typed, said in (
            ("/load nobody", "There is no session of that name. Expected ada"),
            ("/load broken", "broken cannot be used: "),
            ("/load single", "single belongs to another model"),
            ("/load", "Which one?"),
            ("/load ../x", "There is no session of that name"),
        ):
            shown = typed_into(kept, typed).splitlines()
            assert len(shown) == 2 and shown[1].startswith(said)
            assert (kept.name, kept.session.tokens) == ("ada", ids)
        assert "does not match its digest" in typed_into(kept, "/load broken")
        assert "It was kept by a chat with --model tiny." in typed_into(kept, "/load single")
        ((_, cached, _, _),) = usages(typed_into(kept, QUESTIONS[1]))
        assert cached == len(ids) - 1


def test_load_does_not_throw_away_a_conversation_without_a_name(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0], "/reset", QUESTIONS[1])
        ids = kept.session.tokens
        assert "has no name and would be lost" in typed_into(kept, "/load ada")
        assert kept.session.tokens == ids
        assert "ada goes on" in typed_into(kept, "/reset", "/load ada")


def test_reset_leaves_what_is_kept_as_it_is(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0])
        before = on_disk(tmp_path, "ada")
        assert "/load ada goes back" in typed_into(kept, "/reset", QUESTIONS[1])
        assert kept.name is None and on_disk(tmp_path, "ada") == before


@pytest.mark.parametrize(
    ("name", "command", "trunk", "branch"),
    [("ada", "/fork", "ada", "ada-2"), ("ada", "/fork other way", "ada", "other way"), (None, "/fork", "chat", "chat-2"),
     (None, "/fork b", "chat", "b")],
)  # fmt: skip
def test_a_fork_goes_on_by_itself_and_the_trunk_stays(tiny, tmp_path, name, command, trunk, branch):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, *([f"/save {name}"] if name else []), QUESTIONS[0])
        ids = kept.session.tokens
        shown = typed_into(kept, command, QUESTIONS[1])
        assert f"{trunk} stays as it is. You are in its copy, {branch}; /load {trunk} goes back." in shown
        ((_, cached, _, _),) = usages(shown)
        assert cached == len(ids) - 1
        assert on_disk(tmp_path, trunk)["ids"] == ids
        assert on_disk(tmp_path, branch)["ids"] == kept.session.tokens != ids
        typed_into(kept, f"/load {trunk}", QUESTIONS[2])
        assert on_disk(tmp_path, trunk)["ids"] == kept.session.tokens


def test_a_fork_under_a_name_that_is_taken_changes_nothing(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        assert "nothing to fork yet" in typed_into(kept, "/fork")
        typed_into(kept, "/save ada", QUESTIONS[0], "/reset", QUESTIONS[1])
        assert "already a session ada" in typed_into(kept, "/fork ada")
        assert kept.name is None and [one.name for one in kept.listed()] == ["ada"]


def test_rewind_takes_turns_back_here_and_on_disk(tiny, tmp_path):
    fresh = Session(tiny)
    for question in QUESTIONS:
        fresh.send(question, max_new_tokens=5)
    fresh.rewind(2)
    with kept_chat(tiny, tmp_path) as kept:
        shown = typed_into(kept, "/save ada", *QUESTIONS, "/rewind 2")
        assert f"2 turns taken back. 1 turn, {len(fresh.tokens)} tokens are left." in shown
        assert kept.session.tokens == fresh.tokens == on_disk(tmp_path, "ada")["ids"]
        assert [len(kept.session.ledger), len(kept.session.turns)] == [3, 1]
    with kept_chat(tiny, tmp_path) as kept:
        kept.resume("ada")
        again = fresh.send(QUESTIONS[1], max_new_tokens=5)
        assert usages(typed_into(kept, QUESTIONS[1])) == [(
            again.usage.prompt_tokens, again.usage.cached_tokens, again.usage.computed_tokens, again.usage.completion_tokens
        )]  # fmt: skip
        assert kept.session.tokens == fresh.tokens


@pytest.mark.parametrize("number", ["0", "-1", "3", "1.5", "one", "\u00b2"])
def test_a_number_of_turns_that_there_is_not_takes_nothing_back(tiny, number):
    shown, chat = talked(tiny, *QUESTIONS[:2], f"/rewind {number}")
    assert "Expected 1 to 2" in shown.splitlines()[-1]
    assert len(chat.turns) == 2
    assert "Expected a turn or more" in talked(tiny, f"/rewind {number}")[0]


def test_everything_may_be_taken_back_and_the_name_stays(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0], "/rewind")
    with kept_chat(tiny, tmp_path) as kept:
        shown = typed_into(kept, "/load ada", QUESTIONS[0])
        assert "ada begins" in shown
        assert usages(shown) == usages(talked(tiny, QUESTIONS[0])[0])


def test_again_draws_another_answer_to_the_same_question_and_computes_one_token_of_it(tiny, tmp_path):
    with kept_chat(tiny, tmp_path, sampler=Sampler(temperature=3.0, seed=40)) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0], QUESTIONS[1])
        replies = {kept.session.turns[-1].reply}
        for _ in range(3):
            shown = typed_into(kept, "/again")
            ((prompt, cached, computed, _),) = usages(shown)
            assert (cached, computed) == (prompt - 1, 1)
            replies.add(kept.session.turns[-1].reply)
        assert "seed 44" in shown  # the fifth answer of this conversation
        assert len(replies) > 2
        assert [turn.user for turn in kept.session.turns] == QUESTIONS[:2]
        assert on_disk(tmp_path, "ada")["ids"] == kept.session.tokens
    assert "no reply to give again" in talked(tiny, "/again")[0]


def test_no_seed_comes_twice_and_a_chat_that_draws_nothing_draws_then():
    assert {another(greedy, n) for n in (1, 2)} == {Sampler(AGAIN.temperature, top_p=AGAIN.top_p, seed=n) for n in (1, 2)}
    assert another(Sampler(0.0, seed=5), 1).temperature > 0
    assert another(Sampler(2.0, top_k=7, seed=5), 3) == Sampler(2.0, top_k=7, seed=8)


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_came(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        kept.begin("ada")
        written = kept.session.tokenizer.decode_stream

        def one_piece_then_ctrl_c(ids):
            for piece in written(ids):
                yield piece
                os.kill(os.getpid(), signal.SIGINT)

        kept.session.tokenizer = _Replaced(kept.session.tokenizer, decode_stream=one_piece_then_ctrl_c)
        assert "(stopped)" in typed_into(kept, QUESTIONS[0])
        assert on_disk(tmp_path, "ada")["turns"][0]["finish_reason"] == "interrupted"
        assert on_disk(tmp_path, "ada")["ids"] == kept.session.tokens


def test_one_session_is_open_in_one_chat_at_a_time(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as one, kept_chat(tiny, tmp_path) as two:
        typed_into(one, "/save ada", QUESTIONS[0])
        assert "ada is open in another chat" in typed_into(two, "/load ada")
        assert two.name is None
        typed_into(one, "/fork")  # lets go of ada
        assert "ada goes on" in typed_into(two, "/load ada", QUESTIONS[1])
        with pytest.raises(SessionStoreError, match="open in another chat"):
            one.resume("ada")
        assert one.name == "ada-2"
    with kept_chat(tiny, tmp_path) as three:
        three.resume("ada")


def test_a_turn_for_which_there_is_no_room_is_told_and_the_chat_goes_on(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("kvcourse.session_folder.MAX_DISK_BYTES", 1000)
    with kept_chat(tiny, tmp_path) as kept:
        shown = typed_into(kept, "/save ada", QUESTIONS[0], QUESTIONS[1])
        assert shown.count("Not kept: The disk budget is too small") == 2
        assert len(usages(shown)) == 2 and kept.name == "ada"


def test_a_name_under_which_nothing_could_be_kept_is_not_taken(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("kvcourse.session_folder.MAX_DISK_BYTES", 1000)
    with kept_chat(tiny, tmp_path) as kept, kept_chat(tiny, tmp_path) as other:
        assert "The disk budget is too small" in typed_into(kept, QUESTIONS[0], "/save ada")
        assert kept.name is None and len(kept.session.turns) == 1
        assert "Kept as ada" in typed_into(other, "/save ada")


def test_what_had_to_go_to_make_room_is_told(tiny, tmp_path, monkeypatch):
    with kept_chat(tiny, tmp_path) as kept:
        typed_into(kept, "/save old", QUESTIONS[0])
        (old,) = kept.listed()
    monkeypatch.setattr("kvcourse.session_folder.MAX_DISK_BYTES", int(1.5 * old.bytes))
    with kept_chat(tiny, tmp_path) as kept:
        assert "old was deleted to make room" in typed_into(kept, "/save new", QUESTIONS[0])
        assert [one.name for one in kept.listed()] == ["new"]


def test_a_chat_without_a_cache_keeps_nothing_and_says_so(tiny, tmp_path):
    kept = kept_chat(tiny, tmp_path / "x", cache=None)
    shown = typed_into(kept, QUESTIONS[0], "/save ada", "/fork", "/load ada", "/again", "/rewind", "/usage")
    assert shown.count("no K/V to keep") == 2 and "has no name" in shown
    assert not (tmp_path / "x").exists()
    with pytest.raises(CacheMisuse, match="no K/V to keep"):
        open_chat("tiny", tmp_path, name="ada", cache=None)


# Figures.

ROW = re.compile(r"^\s+(\d+|total)" + r"\s+([\d,]+)" * 6 + r" \(([\d.]+)%\)\s*$", re.MULTILINE)


def table(shown: str) -> dict[str, tuple[int, ...]]:
    return {row[0]: tuple(int(n.replace(",", "")) for n in row[1:7]) for row in ROW.findall(shown)}


def test_usage_shows_every_turn_and_sums_that_add_up(tiny):
    shown, chat = talked(tiny, *QUESTIONS, "/again", "/rewind 2", "/usage")
    rows = table(shown)
    total = rows.pop("total")
    assert len(rows) == len(chat.ledger) == 4
    so_far = 0
    for (prompt, cached, computed, generated, cumulative, occupancy), turn in zip(rows.values(), chat.ledger, strict=True):
        so_far += prompt
        assert (prompt, cached, generated) == (turn.prompt_tokens, turn.cached_tokens, turn.completion_tokens)
        assert (computed, cumulative, occupancy) == (prompt - cached, so_far, prompt + generated)
    sums = [sum(column) for column in zip(*rows.values(), strict=True)]
    assert total == (*sums[:4], sums[0], len(chat.tokens))
    assert "by /rewind or /again: 3." in shown
    assert f"{len(chat.tokens) / tiny.config.context_length:.1%}" in shown


def test_the_share_of_the_window_never_passes_100_percent(tiny):
    session = Session(tiny)
    session.tokenizer = _Replaced(session.tokenizer, stop_ids=())
    kept = KeptChat(session, Path("nowhere"))
    room = tiny.config.context_length - len(session.tokenizer.encode_chat([{"role": "user", "content": ""}]))
    shown = typed_into(kept, "the " * (room - 3), "/usage", max_new_tokens=50)
    assert len(session.tokens) == tiny.config.context_length + 1
    shares = [float(row[-1]) for row in ROW.findall(shown)]
    assert shares == [100.0, 100.0]


def test_usage_before_the_first_turn_is_a_line(tiny):
    assert talked(tiny, "/usage")[0].splitlines()[-1] == "Nothing has been asked yet."


def test_list_shows_what_is_kept_and_which_is_open_here(tiny, tmp_path):
    with kept_chat(tiny, tmp_path) as kept:
        assert "Nothing is kept yet" in typed_into(kept, "/list")
        shown = typed_into(kept, "/save [red]ada", QUESTIONS[0], "/fork ben", "/list")
        rows = [line.strip() for line in shown.splitlines()[-3:] if line.strip()]
        assert rows[0].startswith("ben") and rows[0].endswith("open here")
        assert rows[1].startswith("[red]ada") and f" {len(kept.session.tokens)} " in rows[1]


# As a command: into a pipe, and in a terminal.

CHAT = ["-m", "kvcourse", "chat", "--model", "tiny", "--max-new-tokens", "6"]


def piped(folder: Path, *arguments: str, typed: str = "") -> subprocess.CompletedProcess:
    environment = os.environ | {"KVCOURSE_SESSIONS": str(folder)}
    return subprocess.run([sys.executable, *CHAT, *arguments], input=typed, capture_output=True, text=True, env=environment)


def test_one_question_after_another_each_in_a_process_of_its_own_and_into_a_pipe(tmp_path):
    shown = [piped(tmp_path, question, "--session", "ada") for question in QUESTIONS]
    assert [run.returncode for run in shown] == [0, 0, 0] and not any(run.stderr for run in shown)
    turns = [usages(run.stdout)[0] for run in shown]
    assert turns[0][1] == 0
    for before, (prompt, cached, computed, _) in itertools.pairwise(turns):
        assert cached == before[0] + before[3] - 1 and computed == prompt - cached
    assert shown[0].stdout.splitlines()[0] == "ada begins; it is kept after every turn."
    kept = turns[1][0] + turns[1][3]
    assert shown[2].stdout.splitlines()[0].startswith(f"ada goes on after 2 turns, {kept} tokens: {kept - 1} with keys")
    assert not any("\x1b" in run.stdout for run in shown)


def test_a_piped_chat_obeys_commands_and_outlives_what_fails(tmp_path):
    typed = f"/load nobody\n{QUESTIONS[0]}\n/save ada\n/nonsense\n{QUESTIONS[1]}\n/usage\n/list\n"
    run = piped(tmp_path, typed=typed)
    assert run.returncode == 0 and run.stderr == ""
    assert len(usages(run.stdout)) == 2 and len(table(run.stdout)) == 3
    assert "There is no session nobody" in run.stdout and "open here" in run.stdout
    assert "\x1b" not in run.stdout and "…" not in run.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--session", "../x"], "not a path"),
        (["--session", ""], "not a path"),
        (["--session", "ada", "--no-cache"], "no K/V to keep"),
        (["--session", "ada", "--system", "you are helpful ."], "began with another system message"),
        (["--session", "ada", "--folder", __file__], "Sessions live in a folder"),
        (["--session", "ada", "--folder", str(Path(__file__).parent)], "holds other things than sessions"),
        (["--session", "broken"], "does not match its digest"),
        (["--session", "ada", "--model", "another"], "ada belongs to another model"),
    ],
)
def test_a_session_that_cannot_go_on_is_one_line_and_exit_status_2(tiny, tmp_path, capsys, monkeypatch, arguments, said):
    from kvcourse.cli import main

    monkeypatch.setenv("KVCOURSE_SESSIONS", str(tmp_path))
    single = load_model("tiny")
    with kept_chat(single, tmp_path) as kept:
        typed_into(kept, "/save ada", QUESTIONS[0], "/reset", "/save broken", QUESTIONS[0])
    damage(tmp_path, "broken")
    monkeypatch.setattr("kvcourse.checkpoints.load_model", lambda name, weights: tiny if name == "another" else single)
    with pytest.raises(SystemExit) as end:
        main(["chat", QUESTIONS[0], "--model", "tiny", *arguments])
    shown = capsys.readouterr()
    assert end.value.code == 2 and said in shown.err and len(shown.err.splitlines()) == 1
    assert "usage:" not in shown.out


def test_a_session_keeps_the_system_message_it_began_with(tmp_path):
    system = "you are helpful ."
    with open_chat("tiny", tmp_path, name="ada", system=system) as kept:
        typed_into(kept, QUESTIONS[0])
    for again in (None, system):
        with open_chat("tiny", tmp_path, name="ada", system=again) as kept:
            assert kept.session.system == system and len(kept.session.turns) == 1


needs_terminals = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals here")


@needs_terminals
def test_in_a_terminal_the_prompt_says_which_conversation_it_is(tmp_path):
    with Terminal(CHAT, tmp_path) as terminal:
        assert terminal.until("> ").endswith("\n> ")
        terminal.type(QUESTIONS[0])
        assert len(usages(terminal.until("> "))) == 1
        terminal.type("/save ada")
        assert terminal.until("ada> ").endswith("after every turn.\nada> ")
        terminal.type("/fork")
        assert terminal.until("ada-2> ").endswith("\nada-2> ")
        terminal.type("/usage")
        assert len(table(terminal.until("ada-2> "))) == 2
        terminal.type("/quit")
        assert terminal.ended() == 0


@needs_terminals
def test_in_a_terminal_a_killed_chat_goes_on_where_it_was(tmp_path):
    with Terminal([*CHAT, "--session", "ada"], tmp_path) as terminal:
        assert "ada begins" in terminal.until("ada> ")
        terminal.type(QUESTIONS[0])
        ((prompt, _, _, completion),) = usages(terminal.until("ada> "))
        terminal.kill()
    with Terminal([*CHAT, "--session", "ada"], tmp_path) as terminal:
        shown = terminal.until("ada> ")
        assert f"{prompt + completion} tokens: {prompt + completion - 1} with keys and values" in shown
        assert f"> {QUESTIONS[0]}" in shown
        terminal.type(QUESTIONS[1])
        ((_, cached, _, _),) = usages(terminal.until("ada> "))
        assert cached == prompt + completion - 1
        terminal.type("\x04")
        assert terminal.ended() == 0
