"""`kvcourse sessions`: what is kept of conversations, looked after without a model and without PyTorch."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from pseudo_terminal import Terminal

from kvcourse.chat_sessions import KeptChat
from kvcourse.checkpoints import load_model
from kvcourse.cli import main
from kvcourse.errors import InputError, UnknownName
from kvcourse.session_folder import claim, format_age, open_store, parse_age, sessions_folder
from kvcourse.sessions.file import SessionFile
from kvcourse.sessions.session import Session
from kvcourse.sessions.store import SessionStore

QUESTIONS = ["where is the red cup ?", "who took it ?", "tell me now ."]
DAY = 86400
README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny", dtype=torch.float64)


@pytest.fixture(scope="module")
def once(tiny, tmp_path_factory) -> Path:
    """Two conversations: ada of two turns and a third one that was taken back, ben of one."""
    folder = tmp_path_factory.mktemp("once") / "sessions"
    for name, system, questions in (("ben", None, QUESTIONS[:1]), ("ada", "you are helpful .", QUESTIONS)):
        with KeptChat(Session(tiny, system=system), folder, "tiny") as kept:
            kept.begin(name)
            for question in questions:
                kept.session.send(question, max_new_tokens=5)
            kept.session.rewind(1 if name == "ada" else 0)
            kept.keep()
    return folder


@pytest.fixture
def folder(once, tmp_path, monkeypatch) -> Path:
    """A copy of them, where the command looks."""
    copy = tmp_path / "sessions"
    shutil.copytree(once, copy)
    monkeypatch.setenv("KVCOURSE_SESSIONS", str(copy))
    return copy


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit status, output, errors."""
    with pytest.raises(SystemExit) as end:
        main(["sessions", *arguments])
    shown = capsys.readouterr()
    return end.value.code or 0, shown.out, shown.err


def names(folder: Path) -> set[str]:
    with open_store(folder) as store:
        return {one.name for one in store.list()}


def aged(folder: Path, name: str, days: float) -> None:
    """Keep a copy of ben that was used so long ago."""
    with open_store(folder) as store:
        content = store.read("ben")
    with SessionStore(folder, max_ram_bytes=0, clock=lambda: time.time() - days * DAY) as store:
        store.put(name, content)


def damage(folder: Path, name: str) -> None:
    with open_store(folder) as store:
        row = store._index.get(name)
    path = folder / "files" / row.file
    path.write_bytes(path.read_bytes()[:-1] + b"?")


# Where they are.


def test_sessions_live_where_one_says_else_where_the_environment_says_else_among_the_users_data(monkeypatch, tmp_path):
    import platformdirs

    monkeypatch.setenv("KVCOURSE_SESSIONS", str(tmp_path / "environment"))
    assert sessions_folder(tmp_path / "option") == tmp_path / "option"
    assert sessions_folder() == tmp_path / "environment"
    for nothing in ("", None):
        if nothing is None:
            monkeypatch.delenv("KVCOURSE_SESSIONS")
        else:
            monkeypatch.setenv("KVCOURSE_SESSIONS", nothing)
        assert sessions_folder() == platformdirs.user_data_path("kvcourse") / "sessions"


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "ada"], ["export", "ada", "x"], ["prune"], ["prune", "--dry-run"], ["delete", "ada"]]
)
def test_looking_where_nothing_is_makes_nothing(capsys, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    status, _, said = run(capsys, *arguments, "--folder", str(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []
    if arguments[0] in ("list", "prune"):
        assert status == 0
    else:
        assert status == 2 and "There is no session ada: none has been kept yet." in said


def test_a_folder_of_other_things_is_refused_and_not_touched(tmp_path):
    strangers = [
        tmp_path / "files" / "thesis.txt",
        tmp_path / "files" / f"{'a' * 32}.session",
        tmp_path / "locks" / "door.lock",
    ]
    for path in strangers:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="holds other things than sessions"):
        open_store(tmp_path)
    assert all(path.read_text(encoding="utf-8") == "mine" for path in strangers)
    shutil.rmtree(tmp_path / "files")
    (tmp_path / "files").mkdir()
    open_store(tmp_path).close()  # what a store that was killed while it was made leaves behind
    (tmp_path / "notes.txt").write_text("beside it", encoding="utf-8")
    open_store(tmp_path).close()  # a store is a store


# Looking.


def test_list_is_a_table_the_one_used_last_first(capsys, folder):
    aged(folder, "[b]old", 3)
    status, shown, said = run(capsys, "list")
    rows = [line.split("  ") for line in shown.splitlines() if " ago" in line]
    assert [row[1].strip() for row in rows] == ["ada", "ben", "[b]old"]
    assert "3 days ago" in shown and "\x1b" not in shown
    assert (status, said) == (0, "")


def test_list_as_json_is_a_list_of_objects(capsys, folder):
    _, shown, _ = run(capsys, "list", "--json")
    records = json.loads(shown)
    assert [record["name"] for record in records] == ["ada", "ben"]
    with open_store(folder) as store:
        assert [
            {key: getattr(one, key) for key in record} for one, record in zip(store.list(), records, strict=True)
        ] == records
    assert json.loads(run(capsys, "list", "--json", "--folder", str(folder / "none"))[1]) == []


def test_a_long_name_in_a_pipe_is_whole(capsys, folder):
    aged(folder, "n" * 200, 1)
    assert "n" * 200 in run(capsys, "list")[1]


def test_show_tells_turns_ids_model_and_sizes(capsys, folder, tiny):
    with open_store(folder) as store:
        content, (listed,) = store.read("ada"), [one for one in store.list() if one.name == "ada"]
    about = content.about
    status, shown, _ = run(capsys, "show", "ada")
    facts = dict(line.split(maxsplit=1) for line in shown.splitlines() if re.match(r"  [a-z]", line))
    assert status == 0
    assert facts["turns"] == "2"
    assert facts["tokens"] == f"{len(about['ids'])} ids, {about['rows']} of them with their keys and values"
    assert facts["model"] == f"tiny, fingerprint {tiny.fingerprint[:12]}"
    assert facts["tokenizer"] == f"fingerprint {tiny.tokenizer.fingerprint[:12]}"
    assert f"{listed.bytes / 1024:.1f} KiB" in facts["size"] and "float64" in facts["size"]
    assert facts["system"] == "you are helpful ."
    assert f"  1. {QUESTIONS[0]}\n  2. {QUESTIONS[1]}\n" in shown
    assert "The window holds 512 tokens" in shown and "by /rewind or /again: 1." in shown


def test_show_as_json_is_an_object_with_the_same_figures(capsys, folder, tiny):
    facts = json.loads(run(capsys, "show", "ada", "--json")[1])
    ledger = open_ledger(folder, "ada")
    assert (facts["turns"], facts["model"], facts["model_name"]) == (2, tiny.fingerprint, "tiny")
    assert facts["kv_shape"] == [4, 2, 4, facts["tokens_with_kv"], 32]
    assert facts["kv_bytes"] == 8 * 4 * 2 * 4 * 32 * facts["tokens_with_kv"] < facts["bytes"]
    assert facts["totals"]["turns"] == len(ledger) == 3
    assert facts["totals"]["prompt_tokens"] == sum(turn[0] for turn in ledger)
    assert facts["totals"]["computed_tokens"] == sum(turn[0] - turn[1] for turn in ledger)


def open_ledger(folder: Path, name: str) -> list:
    with open_store(folder) as store:
        return store.read(name).about["ledger"]


def test_a_session_that_was_put_by_other_means_is_shown_without_a_window(capsys, folder, tiny):
    session = Session(tiny)
    session.send(QUESTIONS[0], max_new_tokens=5)
    with open_store(folder) as store:
        store.put("plain", session)
    status, shown, _ = run(capsys, "show", "plain")
    assert status == 0 and "The window" not in shown and "%" not in shown
    assert f"model      fingerprint {tiny.fingerprint[:12]}" in shown


# Exporting.


def test_an_exported_session_file_goes_on_where_the_session_was(capsys, folder, tiny, tmp_path):
    path = tmp_path / "ada.session"
    status, shown, _ = run(capsys, "export", "ada", str(path))
    assert status == 0 and shown.startswith(f"Wrote {path}: ")
    session = Session.load(path, tiny)
    with KeptChat(Session(tiny), folder) as kept:
        kept.resume("ada")
        here, there = (one.send(QUESTIONS[2], max_new_tokens=5) for one in (kept.session, session))
    assert (here.tokens, here.usage) == (there.tokens, there.usage)
    assert here.usage.cached_tokens > 0


def test_messages_are_exported_for_programs_and_for_people(capsys, folder, tiny, tmp_path):
    session = KeptChat(Session(tiny), folder)
    session.resume("ada")
    messages = session.session.messages
    session.close()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    for_programs, for_people = tmp_path / "ada.json", tmp_path / "ada.txt"
    assert run(capsys, "export", "ada", str(for_programs), "--json")[0] == 0
    assert run(capsys, "export", "ada", str(for_people), "--text")[0] == 0
    assert json.loads(for_programs.read_text(encoding="utf-8")) == {"messages": messages}
    said = "\n\n".join(f"{message['role']}: {message['content']}" for message in messages) + "\n"
    assert for_people.read_text(encoding="utf-8") == said
    assert run(capsys, "export", "ada", "-", "--text")[1] == said
    assert json.loads(run(capsys, "export", "ada", "-", "--json")[1]) == {"messages": messages}


@pytest.mark.parametrize("options", [[], ["--text"], ["--json"]])
def test_what_is_there_is_written_over_only_with_force(capsys, folder, tmp_path, options):
    path = tmp_path / "mine"
    path.write_text("mine", encoding="utf-8")
    status, _, said = run(capsys, "export", "ada", str(path), *options)
    assert status == 2 and "add --force" in said and path.read_text(encoding="utf-8") == "mine"
    assert run(capsys, "export", "ada", str(path), *options, "--force")[0] == 0
    assert path.read_bytes() != b"mine"
    status, _, said = run(capsys, "export", "ada", str(tmp_path), *options, "--force")
    assert status == 2 and "got a folder" in said


@pytest.mark.parametrize("options", [[], ["--text"], ["--json"]])
def test_nothing_is_exported_over_what_the_store_keeps(capsys, folder, options):
    kept = {path: path.read_bytes() for path in (folder / "files").iterdir()}
    for path in (*kept, folder / "files" / "new"):
        status, _, said = run(capsys, "export", "ada", str(path), *options, "--force")
        assert status == 2 and "among the sessions themselves" in said and said.count("\n") == 1
    assert {path: path.read_bytes() for path in (folder / "files").iterdir()} == kept


# Deleting.


def test_prune_deletes_what_was_not_used_for_a_while_and_says_what(capsys, folder):
    for name, days in (("week", 7.5), ("month", 31), ("year", 365)):
        aged(folder, name, days)
    with open_store(folder) as store:
        store.pin("year")
        (size,) = {one.bytes for one in store.list() if one.name == "month"}
    status, shown, _ = run(capsys, "prune", "--dry-run", "--older-than", "1w")
    assert status == 0 and shown.startswith("Would delete 2 sessions") and shown.endswith(": month, week\n")
    assert names(folder) == {"ada", "ben", "week", "month", "year"}
    assert run(capsys, "prune")[1] == f"Deleted 1 session, {size / 1024:.1f} KiB: month\n"
    assert run(capsys, "prune", "--older-than", "7d")[1].endswith(": week\n")
    assert run(capsys, "prune", "--older-than", "7d")[1] == "Nothing is older than 7d.\n"
    assert names(folder) == {"ada", "ben", "year"}


@pytest.mark.parametrize(("text", "seconds"), [("30d", 30 * DAY), ("12h", DAY / 2), ("1.5m", 90), ("8 w", 56 * DAY), ("2s", 2)])
def test_an_age_is_a_number_and_a_unit(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1y", "1e3d", "30 days", "9" * 400 + "d"])
def test_what_is_no_age_deletes_nothing(capsys, folder, text):
    status, _, said = run(capsys, "prune", f"--older-than={text}")
    assert status == 2 and "That is no age" in said and names(folder) == {"ada", "ben"}


def test_an_age_is_told_in_its_largest_unit():
    told = [format_age(seconds) for seconds in (0, 59, 60, 7199, 7200, DAY, 400 * DAY)]
    expected = ["less than a minute", "less than a minute", "1 minute", "1 hour", "2 hours", "1 day", "400 days"]
    assert told == expected


def test_delete_deletes_what_is_named_or_nothing(capsys, folder):
    aged(folder, "old", 1)
    status, _, said = run(capsys, "delete", "ada", "nobody")
    assert status == 2 and "got nobody" in said and names(folder) == {"ada", "ben", "old"}
    assert run(capsys, "delete", "ada", "old", "ada")[1].endswith(": ada, old\n")
    assert names(folder) == {"ben"}
    assert len(list((folder / "files").iterdir())) == 1


def test_what_a_chat_has_open_is_not_deleted(capsys, folder):
    held = claim(folder, "ada")
    status, _, said = run(capsys, "delete", "ben", "ada")
    assert status == 2 and "ada is open in another chat" in said and names(folder) == {"ada", "ben"}
    held.release()
    assert run(capsys, "delete", "ben", "ada")[0] == 0


# Bad input.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "nobody"], "There is no session of that name. Expected ada, ben; got nobody."),
        (["export", "nobody", "x"], "got nobody"),
        (["delete", "../ada"], "got ../ada"),
        (["show", "broken"], "does not match its digest"),
        (["export", "broken", "-", "--json"], "broken cannot be used: "),
        (["show", "odd"], "odd contradicts itself"),
        (["export", "odd", "-", "--text"], "odd contradicts itself"),
        (["export", "ada", "-"], "not for terminals"),
        (["export", "ada", "x", "--json", "--text"], "Two formats at once"),
        (["export", "ada", "no/such/folder/x"], "cannot be written"),
        (["export", "ada", "no/such/folder/x", "--json"], "cannot be written"),
        (["list", "--folder", __file__], "a file"),
        (["list", "--folder", str(Path(__file__).parent)], "other things than sessions"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(capsys, folder, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    for name in ("broken", "odd") if set(arguments) & {"broken", "odd"} else ():
        aged(folder, name, 0)
    if "broken" in arguments:
        damage(folder, "broken")
    if "odd" in arguments:
        with open_store(folder) as store:
            store.put("odd", SessionFile({"ids": [1], "turns": [{"user": 1}], "ledger": [[1]]}, None))
    before = names(folder)
    status, shown, error = run(capsys, *arguments)
    assert (status, shown) == (2, "")
    assert said in error and len(error.strip().splitlines()) == 1
    assert names(folder) == before


def test_many_names_are_not_all_listed(tmp_path):
    from kvcourse.session_folder import find

    with open_store(tmp_path) as store:
        for n in range(12):
            store.put(f"s{n}", SessionFile({"ids": []}, None))
        with pytest.raises(UnknownName, match="and 4 more"):
            find(store, "nobody")


# As a command.


COMMANDS = [
    ["list"], ["list", "--json"], ["show", "ada"], ["show", "ada", "--json"], ["export", "ada", "{out}"],
    ["export", "ada", "-", "--text"], ["export", "ada", "-", "--json"], ["prune"], ["delete", "ada"], ["--help"],
    ["prune", "--help"], ["show", "nobody"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_command_imports_a_heavy_library(folder, tmp_path, arguments):
    arguments = ["sessions", *(word.format(out=tmp_path / "out") for word in arguments)]
    code = (
        "import sys; from kvcourse.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as end: status = end.code or 0\n"
        "print('HEAVY', sorted({'torch', 'nbformat', 'numpy', 'matplotlib', 'tokenizers'} & set(sys.modules)), status)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == f"HEAVY [] {2 if 'nobody' in arguments else 0}"


def test_without_a_command_the_help_names_them_all(capsys):
    _, shown, error = run(capsys)
    for command in ("list", "show", "export", "prune", "delete"):
        assert re.search(rf"^│ {command} ", shown + error, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals here")
def test_in_a_narrow_terminal_a_table_loses_no_letter(folder):
    name = "a conversation with quite a long name"
    aged(folder, name, 2)
    with Terminal(["-m", "kvcourse", "sessions", "list"], folder, columns=40) as terminal:
        shown = terminal.rest()
    assert name in shown and "2 days ago" in shown and "…" not in shown


def test_the_real_model_goes_on_as_the_readme_shows(tmp_path):
    """Two processes: the second computes the last token of the first's answer and the new question, no more."""
    block = re.search(r"```console\n(\$ kvcourse chat [^\n]* --session trip\n.*?)```", README, re.DOTALL)[1].splitlines()
    commands, expected = block[:2], block[2:]
    environment = os.environ | {"KVCOURSE_SESSIONS": str(tmp_path)}
    shown = []
    for command in commands:
        (question,) = re.findall(r'"(.*?)"', command)
        arguments = [sys.executable, "-m", "kvcourse", "chat", question, "--session", "trip"]
        shown.append(subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment).stdout.splitlines())
    assert shown[1][:-1] == expected[:-1]
    assert shown[1][-1].split(" · first")[0] == expected[-1].split(" · first")[0]
    (first, _, _, written), (prompt, cached, computed, _) = (
        map(int, re.match(r"usage: prompt (\d+) = cached (\d+) \+ computed (\d+) · completion (\d+)", one[-1]).groups())
        for one in shown
    )
    assert (cached, computed) == (first + written - 1, prompt - (first + written - 1))
