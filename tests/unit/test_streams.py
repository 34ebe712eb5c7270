"""Standard input by the name of "-", and commands that cannot write: one line each, whatever the command."""

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvcourse.cli import main
from kvcourse.errors import InputError
from kvcourse.streams import called, faults_in_one_line, opened

FULL = Path("/dev/full")
NO_FULL_DISK = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
ASKED = {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is a cat, tell me please?"}]}
LINE = {"timestamp": 1, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}
WORKLOAD = [sys.executable, "-m", "kvcourse.prefix.workload"]
COMMAND = [sys.executable, "-m", "kvcourse"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a trace, a log and two requests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # as usual: what is printed waits, and fails when it is flushed
    monkeypatch.setenv("KVCOURSE_SESSIONS", str(tmp_path / "sessions"))
    Path("trace.jsonl").write_text(f"{json.dumps(LINE)}\n", encoding="utf-8")
    Path("log.jsonl").write_text(f"{json.dumps(ASKED)}\n" * 2, encoding="utf-8")
    other = ASKED["messages"][0], {"role": "user", "content": "And a dog?"}
    for name, messages in (("a.json", ASKED["messages"]), ("b.json", other)):
        Path(name).write_text(json.dumps({"messages": messages}), encoding="utf-8")
    return tmp_path


PRINTING = [
    ["--version"],
    ["--help"],
    ["doctor"],
    ["memory", "--help"],
    ["weights", "tiny"],
    ["sessions", "list"],
    ["replay", "trace.jsonl"],
    ["replay", "trace.jsonl", "--json"],
    ["explain", "a.json", "b.json", "--plain"],
    ["explain", "a.json", "b.json", "--plain", "--json"],
    ["lint", "log.jsonl"],
    ["chat", "where is the red cup ?", "--model", "tiny", "--max-new-tokens", "2"],
]


@NO_FULL_DISK
@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_command_whose_output_has_no_room_says_so_in_one_line_and_ends_with_2(here, arguments):
    with FULL.open("wb") as full:
        run = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert run.returncode == 2
    assert run.stderr.splitlines() == [f"kvcourse: The output cannot be written. Expected room for it; got "
                                       f"{os.strerror(errno.ENOSPC)}. Send it elsewhere."]  # fmt: skip


@NO_FULL_DISK
def test_debug_shows_where_an_output_failed(here):
    with FULL.open("wb") as full:
        run = subprocess.run([*COMMAND, "--debug", "replay", "trace.jsonl"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert "Traceback" in run.stderr and run.returncode


@pytest.mark.parametrize("arguments", [["replay", "trace.jsonl"], ["lint", "log.jsonl"]], ids=" ".join)
def test_nothing_is_said_where_nobody_reads_on(here, arguments):
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([*COMMAND, *arguments], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (run.returncode, run.stderr) == (1, "")


def test_the_workload_ends_in_silence_where_its_reader_leaves(here):
    with subprocess.Popen([*WORKLOAD, "--requests", "3000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert json.loads(run.stdout.readline())["timestamp"] == 0
        run.stdout.close()
        said = run.stderr.read()
    assert (run.wait(), said) == (1, "")


@NO_FULL_DISK
def test_the_workload_says_that_a_disk_is_full_in_one_line(here):
    with FULL.open("wb") as full:
        run = subprocess.run([*WORKLOAD, "--requests", "300"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert run.returncode == 2 and len(run.stderr.splitlines()) == 1 and os.strerror(errno.ENOSPC) in run.stderr


@pytest.mark.parametrize("arguments", [["--requests", "0"], ["--requests", "-3"], ["--seed", "-1"]], ids=" ".join)
def test_the_workload_refuses_numbers_that_make_no_log_in_one_line(arguments):
    run = subprocess.run([*WORKLOAD, *arguments], capture_output=True, text=True)
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (2, "", 1) and "Expected" in run.stderr


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/some/file"), "/some/file cannot be used."),
        (OSError(errno.EIO, "Input/output error"), "The output cannot be written."),
        (InputError("It is wrong.", todo="Mend it."), "It is wrong. Mend it."),
    ],
)
def test_what_the_system_refuses_is_one_line_and_exit_status_2(capsys, raised, said):
    with pytest.raises(SystemExit) as end, faults_in_one_line("program"):
        raise raised
    assert end.value.code == 2 and capsys.readouterr().err.startswith(f"program: {said}")
    with pytest.raises(type(raised)), faults_in_one_line("program", debug=True):
        raise raised


@pytest.mark.parametrize(
    "raised", [ValueError("a fault of this package"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")]
)
def test_a_fault_that_nobody_has_named_is_seen_whole(raised):
    with pytest.raises(type(raised)), faults_in_one_line("program"):
        raise raised


# Standard input.


@pytest.fixture
def typed(monkeypatch):
    def typed(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return typed


def ran(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    return int(end.value.code or 0), *capsys.readouterr()


def test_a_dash_is_standard_input_for_every_command_that_reads_a_log_or_a_request(here, typed, capsys):
    for arguments, place in (
        (["replay", "trace.jsonl", "--json"], 1),
        (["lint", "log.jsonl", "--json"], 1),
        (["explain", "a.json", "b.json", "--plain"], 1),
        (["explain", "a.json", "b.json", "--plain"], 2),
    ):
        expected = ran(capsys, *arguments)
        typed(Path(arguments[place]).read_bytes())
        assert expected[0] in (0, 1)
        shown = ran(capsys, *arguments[:place], "-", *arguments[place + 1 :])
        assert shown[0] == expected[0] and shown[1] == expected[1].replace(arguments[place], "standard input")


def test_standard_input_can_be_one_of_two_requests_only(here, typed, capsys):
    typed(b"{}")
    code, out, err = ran(capsys, "explain", "-", "-", "--plain")
    assert (code, out, len(err.splitlines())) == (2, "", 1) and "one request only" in err


@pytest.mark.parametrize("arguments", [["replay", "-"], ["lint", "-"], ["explain", "-", "b.json", "--plain"]], ids=" ".join)
def test_what_comes_in_and_is_wrong_is_called_standard_input(here, typed, capsys, monkeypatch, arguments):
    for content in (b"", b"{}\n"):
        typed(content)
        code, out, err = ran(capsys, *arguments)
        assert (code, out, len(err.splitlines())) == (2, "", 1) and "Expected" in err
    monkeypatch.setattr(sys, "stdin", None)  # as where it was closed: `<&-`
    code, out, err = ran(capsys, *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1) and err.startswith("kvcourse: standard input cannot be ")


def test_a_plot_of_what_came_in_is_drawn(here, typed, capsys):
    typed(Path("trace.jsonl").read_bytes())
    assert ran(capsys, "replay", "-", "--capacity=1", "2", "--plot", "a.svg")[0] == 0
    assert "standard input" in Path("a.svg").read_text(encoding="utf-8")


def test_any_other_name_is_a_file(here):
    Path("-x").write_text("a file", encoding="utf-8")
    with opened(Path("-x")) as file:
        assert file.read() == b"a file"
    assert (called(Path("-x")), called(Path("-"))) == ("-x", "standard input")
