"""tools/setup.sh installs once, notices what changed, and starts over after it was killed. The Python in it is a stand-in."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="make and sh are for macOS and Linux; the README has Windows lines"
)

STAND_IN = """#!/bin/sh
# answers what setup.sh asks a Python; settings lie in files in $STAND_IN
has() { [ -e "$STAND_IN/$1" ]; }
case "$1 $2" in
--version*) echo "Python $(cat "$STAND_IN/version")" ;;
*"sys.version_info <"*) ! has old ;;
*"import venv, ensurepip"*) ! has no-venv ;;
*base_prefix*) echo "$(cat "$STAND_IN/version") WHOSE" ;;
"-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo venv >>"$STAND_IN/log" ;;
"-m pip")
    [ "$3" = --version ] && exit 0
    echo "pip $*" >>"$STAND_IN/log"
    has slow && sleep 30
    ! has no-network ;;
*) echo "not expected: $*" >&2; exit 9 ;;
esac
"""


class Checkout:
    def __init__(self, folder: Path) -> None:
        self.root, self.bin, self.state = folder / "a clone", folder / "bin", folder / "state"
        for made in (self.root, self.bin, self.state):
            made.mkdir()
        for name in ("pyproject.toml", "constraints.txt"):
            (self.root / name).write_text("1", encoding="utf-8")
        self.set("version", "3.12.1")
        self.add_python("python3")
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "STAND_IN": str(self.state), "HOME": str(folder)}

    def add_python(self, name: str) -> None:
        (self.bin / name).write_text(STAND_IN.replace("WHOSE", name), encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def set(self, name: str, content: str = "") -> None:
        (self.state / name).write_text(content, encoding="utf-8")

    def unset(self, name: str) -> None:
        (self.state / name).unlink()

    def command(self, extra: str) -> list[str]:
        return ["sh", str(ROOT / "tools" / "setup.sh"), extra]

    def run(self, extra: str = "lab", **environ: str) -> subprocess.CompletedProcess:
        options = {"cwd": self.root, "env": self.environ | environ, "capture_output": True, "text": True}
        return subprocess.run(self.command(extra), stdin=subprocess.DEVNULL, timeout=60, **options)

    def did(self) -> list[str]:
        """What was made and installed since the last look."""
        log = self.state / "log"
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line.split(" ")[-1] for line in lines]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_the_first_run_installs_with_the_constraints_and_the_second_does_nothing(checkout):
    assert checkout.run().returncode == 0
    assert "-c constraints.txt -e .[lab]" in (checkout.state / "log").read_text(encoding="utf-8")
    assert checkout.did() == ["venv", ".[lab]"]
    again = checkout.run()
    assert (again.returncode, again.stdout, again.stderr, checkout.did()) == (0, "", "", [])


def test_an_extra_is_added_to_the_same_environment_and_test_contains_lab(checkout):
    checkout.run("lab")
    checkout.run("test")
    checkout.run("lab")
    assert checkout.did() == ["venv", ".[lab]", ".[test]"]


def test_lab_after_test_needs_nothing(checkout):
    checkout.run("test")
    checkout.run("lab")
    assert checkout.did() == ["venv", ".[test]"]


def test_after_browser_nothing_else_is_needed_and_before_it_test_is_not_enough(checkout):
    for extra in ("test", "browser", "test", "site", "lab"):
        checkout.run(extra, CHROMIUM="/a/browser")
    assert checkout.did() == ["venv", ".[test]", ".[browser]"]


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_file_installs_again_in_the_same_environment(checkout, name):
    checkout.run()
    checkout.did()
    (checkout.root / name).write_text("2", encoding="utf-8")
    checkout.run()
    assert checkout.did() == [".[lab]"]


def test_another_python_asked_for_by_name_starts_over(checkout):
    checkout.run()
    checkout.did()
    checkout.add_python("pypy3")
    for _ in range(2):
        assert checkout.run(PYTHON="pypy3").returncode == 0
    assert checkout.did() == ["venv", ".[lab]"]


def test_an_upgraded_python_installs_again(checkout):
    checkout.run()
    checkout.did()
    checkout.set("version", "3.13.0")
    checkout.run()
    assert ".[lab]" in checkout.did()


def test_a_moved_clone_installs_again(checkout, tmp_path):
    checkout.run()
    checkout.did()
    checkout.root = shutil.move(checkout.root, tmp_path / "moved")
    checkout.run()
    assert ".[lab]" in checkout.did()


def test_a_failed_install_is_tried_again_without_starting_over(checkout):
    checkout.set("no-network")
    failed = checkout.run()
    assert failed.returncode == 1 and "run the same command again" in failed.stderr
    checkout.unset("no-network")
    assert checkout.run().returncode == 0
    assert checkout.did() == ["venv", ".[lab]", ".[lab]"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_install_starts_over(checkout, number):
    checkout.set("slow")
    process = subprocess.Popen(checkout.command("lab"), cwd=checkout.root, env=checkout.environ, start_new_session=True)
    deadline = time.monotonic() + 30
    while "pip" not in ((checkout.state / "log").read_text() if (checkout.state / "log").exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, number)
    assert process.wait(30) != 0
    checkout.unset("slow")
    checkout.did()
    assert checkout.run().returncode == 0
    assert checkout.did() == ["venv", ".[lab]"]


def test_an_old_python_is_named_with_what_to_do(checkout):
    checkout.set("old")
    checkout.set("version", "3.9.2")
    refused = checkout.run(PATH=f"{checkout.bin}:{checkout.state}:{only_tools(checkout)}")
    assert refused.returncode == 1
    assert "needs Python 3.11 or newer" in refused.stderr and "3.9.2" in refused.stderr and "PYTHON=" in refused.stderr
    assert not (checkout.root / ".venv").exists()


def only_tools(checkout: Checkout) -> Path:
    """The few commands that the script uses, without the Pythons that lie beside them on this machine."""
    folder = checkout.root.parent / "tools"
    folder.mkdir(exist_ok=True)
    for name in ("sh", "cat", "rm", "mkdir", "cp", "cksum", "sleep"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def test_a_newer_python_beside_an_old_python3_is_found(checkout):
    checkout.set("old")
    young = STAND_IN.replace("! has old", "true")
    (checkout.bin / "python3.13").write_text(young, encoding="utf-8")
    (checkout.bin / "python3.13").chmod(0o755)
    assert checkout.run(PATH=f"{checkout.bin}:{only_tools(checkout)}").returncode == 0
    assert checkout.did() == ["venv", ".[lab]"]


def test_a_python_without_venv_is_named_with_what_to_install(checkout):
    checkout.set("no-venv")
    refused = checkout.run()
    assert refused.returncode == 1 and "python3-venv" in refused.stderr
    assert not (checkout.root / ".venv").exists()


def test_a_python_that_is_not_there_is_told(checkout):
    refused = checkout.run(PYTHON="python9")
    assert refused.returncode == 1 and "PYTHON=python9 is not a command" in refused.stderr
