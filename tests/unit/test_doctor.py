"""The doctor finds what is wrong, and each wrong finding says what to type."""

import importlib
import io
import json
import sys
from collections import namedtuple

import pytest
from packaging.requirements import Requirement
from rich.console import Console

from kvcourse import doctor
from kvcourse.cli import main
from kvcourse.doctor import Finding
from kvcourse.errors import NotFetched
from kvcourse.tables import print_findings


def wrong(finding: Finding) -> bool:
    assert finding.ok == (not finding.fix), "a fix exactly where something is wrong"
    return not finding.ok


@pytest.mark.parametrize(("version", "is_wrong"), [((3, 10), True), ((3, 11), False), ((3, 14), False)])
def test_an_old_python_is_found(version, is_wrong):
    assert wrong(doctor.find_python(version)) is is_wrong


@pytest.mark.parametrize(
    ("requirement", "is_wrong"),
    [("numpy>=1.26", False), ("numpy>=99", True), ("numpy<1", True), ("no-such-package>=1", True)],
)
def test_a_package_outside_its_range_is_found(requirement, is_wrong):
    requirement = Requirement(requirement)
    assert wrong(doctor.find_package(requirement.name, requirement)) is is_wrong


def test_the_ranges_are_those_of_the_installed_package():
    requirements = doctor._requirements()
    assert {"torch", "numpy", "jupyterlab"} <= set(requirements)
    assert str(requirements["torch"].specifier) == ">=2.9"


@pytest.mark.parametrize(("available", "is_wrong"), [(2**30, True), (2**33, False)])
def test_too_little_memory_is_found(monkeypatch, available, is_wrong):
    memory = namedtuple("Memory", "available total")(available, 2**34)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: memory)
    assert wrong(next(doctor.find_machine())) is is_wrong


def test_a_full_disk_matters_only_before_the_model_is_here(monkeypatch, tmp_path):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "not" / "yet"))
    usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(100, 100, 0))
    assert wrong(doctor.find_disk())
    monkeypatch.setattr(doctor, "_model_is_intact", lambda: True)
    assert not wrong(doctor.find_disk())
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(2**40, 0, 2**40))
    monkeypatch.setattr(doctor, "_model_is_intact", lambda: False)
    assert not wrong(doctor.find_disk())


def test_a_missing_model_is_found_with_the_command_that_gets_it(monkeypatch, tmp_path):
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path))
    finding = doctor.find_model()
    assert wrong(finding) and "kvcourse fetch smollm2" in finding.fix


def test_a_damaged_model_is_found(monkeypatch, tmp_path):
    def damaged(name):
        raise NotFetched("The model is damaged.", expected="its files", got="other bytes", todo="Type: kvcourse fetch smollm2")

    module = importlib.import_module("kvcourse.fetch")
    monkeypatch.setattr(module, "model_folder", lambda name: tmp_path)
    monkeypatch.setattr(module, "verify", damaged)
    assert wrong(doctor.find_model())


def test_the_kernel_that_notebooks_ask_for_is_this_environment_s():
    finding = doctor.find_kernel()
    assert not wrong(finding), finding


@pytest.mark.parametrize("answer", [("/elsewhere", "2"), (sys.prefix, "3")])
def test_a_kernel_of_another_python_or_one_that_cannot_add_is_found(monkeypatch, answer):
    monkeypatch.setattr(doctor, "_ask_kernel", lambda code: answer)
    assert wrong(doctor.find_kernel())


def test_a_kernel_that_does_not_start_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "KERNEL_TIMEOUT_S", 1)
    monkeypatch.setattr("jupyter_client.manager.start_new_kernel", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("died")))
    finding = doctor.find_kernel()
    assert wrong(finding) and "died" in finding.found


GOOD, BAD = Finding("thing", True, "1", ">=1"), Finding("other", False, "none [1]", ">=2", 'pip install "x[lab]"')


@pytest.mark.parametrize(("findings", "status"), [([GOOD], 0), ([GOOD, BAD], 1)])
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_the_exit_status_says_whether_something_is_wrong(monkeypatch, capsys, findings, status, arguments):
    monkeypatch.setattr(doctor, "examine", lambda: iter(findings))
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    assert (end.value.code or 0) == status
    printed = capsys.readouterr().out
    if arguments:
        assert [one["what"] for one in json.loads(printed)] == [finding.what for finding in findings]
    else:
        assert "none [1]" in printed or status == 0
        assert ('Fix: pip install "x[lab]"' in printed) == (status == 1)


def test_a_narrow_terminal_wraps_what_it_cannot_show_and_cuts_nothing():
    long = "a" * 30 + "1.0+cpu"
    told = io.StringIO()
    print_findings([Finding("safetensors_and_more", True, long, ">=0.5,<1,!=0.7")], Console(file=told, width=40))
    rows = [line.split("\u2502")[1:-1] for line in told.getvalue().splitlines() if "\u2502" in line]
    cells = ["".join(row[place].strip() for row in rows) for place in range(4)]
    assert cells == ["ok", "safetensors_and_more", long, ">=0.5,<1,!=0.7"]
