"""The built wheel in an environment of its own, which sees the libraries of this one but not this clone."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="kvcourse-wheel-", ignore_cleanup_errors=True)  # gone when the tests end


@cache
def wheel() -> Path:
    """Built once, by the project's own build system, without a network."""
    folder = Path(_folder().name) / "wheel"
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", "--wheel-dir", folder, ROOT], check=True)
    (built,) = folder.glob("kvcourse-*.whl")
    return built


@cache
def environment() -> Path:
    """A virtual environment with the wheel in it. Its bin/ has python and kvcourse."""
    folder = Path(_folder().name) / "environment"
    make_environment(folder)
    return folder


def make_environment(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel()], check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    there = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    # A folder named in a .pth file is searched for modules; its own .pth files, such as an editable install's, are not read.
    Path(there, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")


def outside(**more: str) -> dict[str, str]:
    """Environment variables of somebody who has no clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KVCOURSE_COURSE", "PYTHON", "VIRTUAL"))}
    return {**kept, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **more}
