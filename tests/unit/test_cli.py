"""The command line: one line for a known fault, exit statuses, and options that do what they say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kvcourse
from kvcourse import lab
from kvcourse.cli import main
from kvcourse.errors import KVCourseError, SetupError


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code or 0


def test_the_version_is_the_package_s(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"kvcourse {kvcourse.__version__}\n"


def test_a_known_fault_is_one_line_and_exit_status_2(capsys):
    assert run("fetch", "no-such-model") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.err.startswith("kvcourse: ") and "no-such-model" in shown.err


@pytest.mark.parametrize("arguments", [["--debug", "fetch", "no-such-model"], ["fetch", "no-such-model", "--debug"]])
def test_debug_shows_the_traceback_wherever_it_is_typed(arguments):
    with pytest.raises(KVCourseError):
        main(arguments)


def test_a_question_may_be_called_debug():
    from kvcourse.cli import _take_debug

    arguments = ["chat", "--", "--debug"]
    assert not _take_debug(arguments)
    assert arguments == ["chat", "--", "--debug"]


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["chat", "--nonsense"], ["chat", "x", "--max-new-tokens", "0"], ["chat", "x", "--top-p", "2"]],
)
def test_a_mistyped_command_is_exit_status_2(arguments, capsys):
    assert run(*arguments) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["chat", " "], "The question is empty"),
        (["chat", "hello", "--model", "no-such-model"], "no-such-model"),
        (["chat", "a cat ?", "--model", "tiny", "--seed", "3"], "--seed"),
        (["chat", "the " * 600, "--model", "tiny"], "no longer fits"),
        (["lab", "--lesson", "99"], "There is no such lesson"),
    ],
)
def test_bad_input_says_what_is_wrong(arguments, said, capsys):
    assert run(*arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown and len(shown.strip().splitlines()) == 1


ASK = ["chat", "where is the red cup ?", "--model", "tiny", "--max-new-tokens", "6"]


def asked(capsys, *options: str) -> list[str]:
    assert run(*ASK, *options) == 0
    return capsys.readouterr().out.splitlines()


def test_chat_answers_the_same_with_and_without_a_cache_streamed_or_not(capsys):
    shown = [asked(capsys, *options) for options in ([], ["--no-cache"], ["--no-stream"], ["--temperature", "0"])]
    assert len({tuple(lines[:-1]) for lines in shown}) == 1
    assert all(lines[-1].startswith("usage: prompt ") for lines in shown)


def test_chat_samples_the_same_for_the_same_seed_and_otherwise_for_another(capsys):
    options = ["--temperature", "3", "--top-k", "50", "--top-p", "0.99", "--seed"]
    one, again, other = (asked(capsys, *options, seed)[:-1] for seed in ("1", "1", "2"))
    assert one == again != other


def test_the_threads_option_sets_the_threads(capsys):
    import torch

    before = torch.get_num_threads()
    try:
        asked(capsys, "--threads", "1")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_chat_without_a_question_reads_questions_from_a_pipe():
    typed = "where is the red cup ?\nwho took it ?\n/quit\n"
    command = [sys.executable, "-m", "kvcourse", "chat", "--model", "tiny", "--max-new-tokens", "4"]
    shown = subprocess.run(command, input=typed, capture_output=True, text=True, check=True).stdout
    usage = [line for line in shown.splitlines() if line.startswith("usage:")]
    assert len(usage) == 2 and "cached 0 " in usage[0] and "cached 0 " not in usage[1]
    assert "\x1b" not in shown


def test_start_prepares_the_folder_and_names_the_next_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "exercises").mkdir()
    (tmp_path / "pyproject.toml").write_text('name = "kvcourse"', encoding="utf-8")
    exercise = tmp_path / "exercises" / "06_kv_cache.ipynb"
    exercise.write_text("1", encoding="utf-8")
    monkeypatch.setenv("KVCOURSE_COURSE", str(tmp_path))
    shown = []
    for version in ("1", "1", "2"):
        exercise.write_text(version, encoding="utf-8")
        assert run("start", "--folder", "mine") == 0
        shown.append(capsys.readouterr().out)
    assert "copied   mine/06_kv_cache.ipynb" in shown[0] and "Next: kvcourse lab" in shown[0]
    assert "kept     mine/06_kv_cache.ipynb\n" in shown[1]
    assert "newer version, which lies beside it: mine/06_kv_cache.new-" in shown[2]


@pytest.mark.parametrize(
    ("environ", "system", "display"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "a 1 b 22"}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_TTY": "/dev/ttys001"}, "darwin", False),
        ({}, "win32", True),
        ({"CI": "true"}, "win32", False),
    ],
)
def test_a_browser_is_opened_only_where_there_is_a_screen(environ, system, display):
    assert lab.has_display(environ, system) is display


def test_jupyterlab_gets_settings_of_ours_after_the_users_and_threads_that_sleep():
    mine = lab.lab_environment({"JUPYTER_CONFIG_PATH": "theirs", "HOME": "h"})
    first, settings = mine["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert (first, mine["HOME"], mine["OMP_WAIT_POLICY"]) == ("theirs", "h", "passive")
    overrides = json.loads((Path(settings) / "labconfig" / "default_setting_overrides.json").read_text())
    assert overrides["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert lab.lab_environment({"OMP_WAIT_POLICY": "active"})["OMP_WAIT_POLICY"] == "active"


def test_jupyterlab_is_rooted_at_the_course_and_told_about_root_only_if_needed(tmp_path):
    plain = lab.lab_command(tmp_path, "notebooks/01.ipynb", browser=True, as_root=False, extra=["--port", "9000"])
    assert f"--ServerApp.root_dir={tmp_path}" in plain and plain[-2:] == ["--port", "9000"]
    assert not {"--no-browser", "--allow-root"} & set(plain)
    headless = lab.lab_command(tmp_path, "notebooks/01.ipynb", browser=False, as_root=True, extra=[])
    assert {"--no-browser", "--allow-root"} <= set(headless)


def test_the_address_leads_to_the_lesson():
    server = {"url": "http://localhost:8888/", "token": "abc"}
    assert lab.lab_url(server, "notebooks/01.ipynb") == "http://localhost:8888/lab/tree/notebooks/01.ipynb?token=abc"
    assert lab.lab_url({**server, "token": ""}, "a.ipynb") == "http://localhost:8888/lab/tree/a.ipynb"


def test_a_missing_jupyterlab_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="JupyterLab is not installed"):
        lab.run_lab(tmp_path, "notebooks/01.ipynb", browser=False, extra=[])


def test_every_public_name_is_there():
    for name in kvcourse.__all__:
        assert getattr(kvcourse, name) is not None
    assert set(kvcourse.__all__) <= set(dir(kvcourse))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = kvcourse.nonsense


@pytest.mark.parametrize("name", ["generate", "trace", "fetch"])
@pytest.mark.parametrize("module_first", [False, True])
def test_a_function_named_like_its_module_is_the_function_whatever_was_imported_before(name, module_first):
    before = f"import kvcourse.{name}\n" if module_first else ""
    code = f"{before}from kvcourse import {name}\nassert callable({name})\nimport kvcourse\nassert kvcourse.{name} is {name}"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_other_public_name_hides_a_module():
    modules = {path.stem for path in Path(kvcourse.__file__).parent.glob("*") if not path.name.startswith("_")}
    assert modules & set(kvcourse.__all__) == {"generate", "trace", "fetch"}


def test_json_of_the_doctor_is_json_on_this_machine():
    shown = subprocess.run([sys.executable, "-m", "kvcourse", "doctor", "--json"], capture_output=True, text=True)
    findings = json.loads(shown.stdout)
    assert {"Python", "torch", "Jupyter kernel", "real model"} <= {one["what"] for one in findings}
    assert shown.returncode == (0 if all(one["ok"] for one in findings) else 1)
