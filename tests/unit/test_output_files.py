"""What commands print and write: any text in any encoding, files whole or not at all, and never over what is read."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvcourse import outputs
from kvcourse.cli import main
from kvcourse.errors import InputError
from kvcourse.outputs import json_text, refuse_inputs, write_whole

ROOT = Path(__file__).resolve().parents[2]
CLOCK, SAID = "当前时间：2026年3月{}日 1{}:20。", "你是一个五金店的助手，请简短回答，并保持礼貌。🔨 café " * 8


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    systems = [CLOCK.format(n + 1, n) + SAID for n in range(4)]
    requests = [{"messages": [{"role": "system", "content": text}, {"role": "user", "content": "Frage"}]} for text in systems]
    path.write_text("\n".join(json.dumps(one, ensure_ascii=False) for one in requests), encoding="utf-8")
    return path


def run(arguments, encoding, folder):
    environ = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "kvcourse", *map(str, arguments)], capture_output=True, env=environ, cwd=folder
    )


def status(arguments):
    try:
        main([str(one) for one in arguments])
    except SystemExit as end:
        return end.code or 0
    return 0


# Any text.


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1", "utf-8"])
def test_what_an_output_has_no_code_for_is_printed_as_an_escape(encoding, log, tmp_path):
    done = run(["lint", log, "--json"], encoding, tmp_path)
    assert done.returncode == 0 and done.stderr == b""
    record = json.loads(done.stdout.decode(encoding))
    shown = record["groups"][0]["first_difference"]
    assert shown["ours"].startswith("2026年3月2日 11:20") and "五金店" in shown["ours"]
    assert ("五金店".encode() in done.stdout) == (encoding == "utf-8")
    text = run(["lint", log], encoding, tmp_path)
    assert text.returncode == 0 and (b"\\u4e94" in text.stdout) == (encoding != "utf-8")


def test_errors_are_told_in_any_encoding_too(tmp_path):
    for arguments in (["lint", "没有.jsonl"], ["explain", "没有.json", "b.json", "--plain"], ["lint", "x", "--provider", "深"]):
        done = run(arguments, "cp1252:strict", tmp_path)
        assert done.returncode == 2 and b"Traceback" not in done.stderr and done.stderr.count(b"\n") == 1
    (tmp_path / "a.json").write_text(json.dumps({"messages": [{"role": "user", "content": "你好 🔨"}]}), encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps({"messages": [{"role": "user", "content": "您好 🔨"}]}), encoding="utf-8")
    assert b"\\u60a8" in run(["explain", "a.json", "b.json", "--plain"], "cp1252:strict", tmp_path).stdout


@pytest.mark.parametrize(
    ("encoding", "escaped"), [("cp1252", True), ("ascii", True), ("UTF-8", False), ("utf8", False), (None, True)]
)
def test_json_is_escaped_by_json_where_the_output_is_no_utf_8(encoding, escaped, monkeypatch):
    out = None if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    text = json_text({"a": "é🔨"})
    assert json.loads(text) == {"a": "é🔨"} and text.isascii() == escaped


def test_an_output_that_is_no_file_is_left_as_it_is(monkeypatch):
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stdout", stream)
        outputs.allow_any_text()
        assert sys.stdout is stream


# Never over what is read.


@pytest.mark.parametrize("name", ["the same", "a link", "a hard link", "another way"])
def test_a_page_is_not_written_over_its_log(name, log, capsys):
    page = log
    if name in ("a link", "a hard link"):
        page = log.with_name("page.html")
        (page.symlink_to if name == "a link" else page.hardlink_to)(log)
    elif name == "another way":
        (log.parent / "folder").mkdir()
        page = log.parent / "folder" / ".." / log.name
    before = log.read_bytes()
    assert status(["lint", log, "--html", page]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "is what is read" in said.err and said.err.count("\n") == 1
    assert log.read_bytes() == before


def test_nor_where_it_is_read_from_standard_input(log, tmp_path):
    before = log.read_bytes()
    command = [sys.executable, "-m", "kvcourse", "lint", "-", "--html", str(log)]
    with log.open("rb") as file:
        done = subprocess.run(
            command, stdin=file, capture_output=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
    assert done.returncode == 2 and b"is what is read" in done.stderr and log.read_bytes() == before


def test_a_curve_is_not_drawn_over_its_trace(tmp_path, capsys):
    trace = tmp_path / "trace.png"
    trace.write_text(
        "\n".join(json.dumps({"timestamp": n, "input_length": 600, "output_length": 1, "hash_ids": [0, n]}) for n in range(4))
    )
    before = trace.read_bytes()
    assert status(["replay", trace, "--capacity", "1", "2", "--plot", trace]) == 2
    assert "is what is read" in capsys.readouterr().err and trace.read_bytes() == before


@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_results_are_not_written_over_the_answers_that_are_checked(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    name = next((ROOT / "exercises").glob("06_*.ipynb")).name
    answers = work / name
    answers.write_bytes((ROOT / "exercises" / name).read_bytes())
    for target in (answers, work, "06"):
        assert status(["check", target, option, answers]) == 2
        assert "is what is read" in capsys.readouterr().err
    assert answers.read_bytes() == (ROOT / "exercises" / name).read_bytes()


def test_what_is_no_ordinary_file_may_be_read_and_written(tmp_path):
    refuse_inputs(Path(os.devnull), [Path(os.devnull)])
    refuse_inputs(tmp_path / "new", [tmp_path / "old"])
    (tmp_path / "one").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"")
    refuse_inputs(tmp_path / "one", [tmp_path / "other"])
    with pytest.raises(InputError, match="is what is read"):
        refuse_inputs(tmp_path / "one", [tmp_path / "other", tmp_path / "one"])


# Whole or not at all.


def test_a_file_is_written_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "page.html"
    for data in (b"first", b"second, and longer", b""):
        write_whole(path, data)
        assert path.read_bytes() == data and list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_bytes(b"as it was")

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"a new page")
    monkeypatch.undo()
    assert path.read_bytes() == b"as it was" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="links and modes are POSIX's")
def test_a_link_and_a_mode_stay(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "page.html", tmp_path / "page.html"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new" and target.stat().st_mode & 0o777 == 0o640
    dangling = tmp_path / "later.html"
    dangling.symlink_to(tmp_path / "folder" / "not yet.html")
    write_whole(dangling, b"now")
    assert (tmp_path / "folder" / "not yet.html").read_bytes() == b"now" and dangling.is_symlink()
    write_whole(Path(os.devnull), b"gone")


def test_a_page_that_cannot_be_written_is_one_line(log, tmp_path, capsys):
    assert status(["lint", log, "--html", tmp_path]) == 2
    err = capsys.readouterr().err
    assert "cannot be written" in err and err.count("\n") == 1
