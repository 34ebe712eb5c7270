"""tools/setup.sh sees to Chromium for the tests of the pages: installs it where it may, else says what to install and stops."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL = "install -y -qq --no-install-recommends chromium fonts-dejavu-core"


@pytest.fixture
def set_up(tmp_path):
    """Run setup.sh on a machine of our making, without a Python, so that it goes no further: (calls of apt-get, what it said).

    apt-get is a stand-in that notes how it was called.
    """
    for name in ("sh", "env", "cat", "cksum", "rm"):
        (tmp_path / name).symlink_to(shutil.which(name))
    log = tmp_path / "log"

    def program(name: str, body: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)

    def run(extra: str, *, user: int = 0, apt: str | None = "exit 0", there: str = "", **environ: str):
        program("id", f"echo {user}")
        program("uname", "echo Linux")
        if apt is not None:
            program("apt-get", f'echo "$@" >>{log}\n{apt}')
        if there:
            program(there, "exit 0")
        command = ["sh", str(ROOT / "tools" / "setup.sh"), extra]
        environ = {"PATH": str(tmp_path), **environ}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else [], done.stderr

    return run


def test_root_installs_it_quietly(set_up):
    calls, said = set_up("browser")
    assert calls == [INSTALL] and "is missing" not in said and "needs Python" in said


def test_lists_that_are_old_are_updated_first(set_up):
    calls, said = set_up("browser", apt='case "$1" in update) : >updated ;; *) [ -e updated ] ;; esac')
    assert calls == [INSTALL, "update -qq", INSTALL] and "needs Python" in said


@pytest.mark.parametrize(
    "machine", [{"user": 1000}, {"apt": None}, {"apt": "exit 1"}], ids=["no root", "no apt", "apt without a network"]
)
def test_where_it_cannot_it_says_what_to_install_and_stops(set_up, machine):
    _, said = set_up("browser", **machine)
    assert "apt install chromium" in said and "CHROMIUM=" in said and "needs Python" not in said


@pytest.mark.parametrize(
    ("extra", "machine"),
    [("lab", {}), ("browser", {"there": "chromium"}), ("browser", {"there": "google-chrome"}), ("browser", {"CHROMIUM": "/x"})],
    ids=["lab", "there already", "another name", "named"],
)
def test_otherwise_there_is_nothing_to_do(set_up, extra, machine):
    calls, said = set_up(extra, **machine)
    assert calls == [] and "Chromium" not in said and "needs Python" in said
