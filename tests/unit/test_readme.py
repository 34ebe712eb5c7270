"""What the README shows is what happens: its Python blocks run, on the real model, and print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL)


def test_the_examples_print_what_the_readme_says():
    assert len(EXAMPLES) == 2
    names: dict = {}
    for code, printed in EXAMPLES:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(code, "README.md", "exec"), names)
        assert shown.getvalue() == printed


def test_the_chat_s_answer_is_the_one_the_readme_shows():
    """Greedy, so the words and the counts are the same everywhere; the times are not."""
    from kvcourse.checkpoints import load_model
    from kvcourse.sessions.session import Session

    question, answer, usage = re.search(r'\$ kvcourse chat "(.*?)"\n(.*?)\n(usage: .*? tokens) · first', README).groups()
    now = Session(load_model("smollm2")).send(question, max_new_tokens=256)
    assert now.text == answer
    assert now.summary().startswith(usage)


def test_the_check_shown_counts_the_properties_there_are():
    from kvcourse.checks.registry import find_task, properties_of

    shown = re.search(r"# (6\.2) mask: (\d+)/(\d+)", README)
    count = str(len(properties_of(find_task(shown[1])[1])))
    assert shown.groups()[1:] == (count, count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The README's two requests, as files: each alone, and together as a log."""
    place = tmp_path_factory.mktemp("requests")
    lines = re.search(r"```jsonl\n(.*?)```", README, re.DOTALL)[1].splitlines()
    for name, text in zip(("a.json", "b.json", "log.jsonl"), (*lines, "\n".join(lines)), strict=True):
        (place / name).write_text(text + "\n", encoding="utf-8")
    return place


@pytest.mark.parametrize("command", ["explain a.json b.json", "lint log.jsonl"])
def test_the_commands_on_the_two_requests_print_what_the_readme_shows(command, folder, monkeypatch, capsys):
    from kvcourse.cli import main

    shown = re.search(rf"\$ kvcourse {re.escape(command)}\n(.*?)```", README, re.DOTALL)[1]
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert ended.value.code in (0, 1)  # 1: they part
    assert capsys.readouterr().out.strip() == shown.strip()


def test_every_speed_in_the_readme_is_one_that_was_measured():
    """The notes are where a figure is written down first; the README repeats some of them."""
    notes = (ROOT / "benchmarks" / "NOTES.md").read_text(encoding="utf-8").replace(",", "")
    table = re.search(r"\| engine \| decode.*?\n\n", README, re.DOTALL)[0].replace(",", "")
    rows = [row.split("|")[2:-1] for row in table.splitlines()[2:] if row]
    assert len(rows) == 4
    for decode, ratio, prefill, peak in rows:
        assert re.search(
            rf"\| 64 \| {decode.strip()} \|[^|]*\| {ratio.strip()}\D.*\| {prefill.strip()} \|.*\| {peak.strip()} \|", notes
        )
