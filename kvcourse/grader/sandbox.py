"""Every lesson: the sandbox's walls, as a command line of bubblewrap. Knows nothing about answers, nor about what runs inside.

Inside are Python, its library, the distributions that an exercise declares with all they need, system libraries, and the
worker's few files, all read-only; no network, no home, no submission, nothing of the course. Where bubblewrap is missing or
may not make namespaces the worker runs without walls, and `Walls.held` says so.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvcourse.errors import SetupError

HERE = Path(__file__).resolve().parent
INSIDE = ("limits.py", "wire.py", "syscalls.py", "confine.py", "cells.py", "serve.py", "worker.py")  # the worker's files
PACKAGES, PROGRAM = "/packages", "/program"  # where they are mounted
FIRST_USER = 61000  # root's workers run as one of these users, whom nobody else is; systemd keeps them free
USERS = 180
PROBE_S = 20.0
ENVIRONMENT = {
    "PATH": "/nowhere",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "MKL_NUM_THREADS": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "0",
}
BOOT = "import sys; sys.path[:0] = sys.argv[1:3]; from inside.worker import main; main(sys.argv[3:])"
SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache", "/sys/devices/system/cpu")


@dataclass
class Walls:
    """How to start a zygote: its command (the control socket's number goes where {control} stands), and what holds it."""

    command: list[str]
    held: tuple[str, ...]
    in_sandbox: bool
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    folder: tempfile.TemporaryDirectory[str] | None = None  # to be cleaned up after the zygote


def closure(names: Iterable[str]) -> dict[str, Any]:
    """The distributions that hold these modules, with all that they require on this machine and do not leave to an extra."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, Any] = {}  # distributions: importlib.metadata's, or its backport's where some library has loaded that
    waiting = list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except ModuleNotFoundError:  # what both raise
            continue  # required for another system, or not installed: then importing it fails inside as outside
        found[name] = distribution
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def top_level(distribution: Any) -> Iterator[tuple[str, Path]]:
    """(name, path) of what a distribution puts into site-packages: modules, packages, its metadata."""
    seen = set()
    for file in distribution.files or []:
        first = file.parts[0]
        if first in seen or first in ("..", "__pycache__", "/") or first.endswith(".pth") or file.is_absolute():
            continue
        seen.add(first)
        path = Path(str(distribution.locate_file(first)))
        if path.exists():
            yield first, path


def packages(may_import: Sequence[str]) -> dict[str, Path]:
    """What is in the sandbox's one folder of packages: a name there, a path here.

    A plain name ("torch") is a whole distribution with its requirements; a dotted one ("kvcourse.config") is one module and the
    __init__.py above it, nothing else: what that module imports has to be named too.
    """
    inside: dict[str, Path] = {}
    for distribution in closure(name for name in may_import if "." not in name).values():
        inside |= dict(top_level(distribution))
    for name in may_import:
        spec = importlib.util.find_spec(name.split(".")[0])
        if spec is None or spec.origin is None:
            raise SetupError(
                "An exercise's answers may import a module that is not installed.",
                expected=f"the module {name}",
                got="no such module",
                todo="Install it, then grade again.",
            )
        if "." not in name:
            place = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
            inside.setdefault(place.name, place)
            continue
        folder = Path(spec.origin).parent
        for depth, part in enumerate(name.split(".")[1:], 1):
            above = "/".join(name.split(".")[:depth])
            inside[f"{above}/__init__.py"] = folder / "__init__.py"
            folder = folder / part
        target = folder if folder.is_dir() else folder.with_suffix(".py")
        inside["/".join(name.split(".")[:-1]) + "/" + target.name] = target
    return inside


def _python() -> tuple[Path, list[Path]]:
    """The interpreter itself (not a virtual environment's link to it), and the folders it needs."""
    program = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    paths = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    needed = {Path(paths["stdlib"]), Path(paths["platstdlib"])}
    library = sysconfig.get_config_var("LIBDIR")
    if library and Path(library).is_relative_to(sys.base_prefix):
        needed.add(Path(library))  # libpython and what a distribution of Python brings along
    needed |= {Path(os.path.realpath(path)) for path in needed}
    return program, sorted(path for path in needed if path.is_dir())


def _site_folders(under: Iterable[Path]) -> Iterator[Path]:
    """Folders of installed packages within what is mounted. They are covered, or all of them could be imported."""
    for folder in under:
        for pattern in ("site-packages", "dist-packages", "python*/site-packages", "python*/dist-packages"):
            yield from (path for path in folder.glob(pattern) if path.is_dir() and not path.is_symlink())


def _binds() -> list[str]:
    program, folders = _python()
    arguments: list[str] = []
    system = [Path(name) for name in SYSTEM if Path(name).exists()]
    for path in system:
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        else:
            arguments += ["--ro-bind", str(path), str(path)]
    held = [path for path in system if not path.is_symlink()]
    for path in [*folders, program]:
        if not any(path.is_relative_to(one) for one in held):
            for parent in reversed(path.parents[:-1]):  # a home folder is often closed to the user that workers become
                arguments += ["--perms", "0755", "--dir", str(parent)]
            arguments += ["--ro-bind", str(path), str(path)]
            held.append(path)
    for path in sorted(set(_site_folders([*held, *folders]))):
        arguments += ["--tmpfs", str(path)]
    return arguments


def command_line(bwrap: str, may_import: Sequence[str], user: int) -> list[str]:
    """bubblewrap's arguments, and the Python that runs inside."""
    program, _ = _python()
    arguments = [bwrap, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    if os.geteuid() == 0:  # just enough to become another user, whom the limit on processes holds
        arguments += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        arguments += ["--unshare-user"]
    arguments += _binds()
    arguments += ["--proc", "/proc", "--dev", "/dev", "--dir", "/tmp", "--dir", PACKAGES, "--dir", f"{PROGRAM}/inside"]
    for name, path in sorted(packages(may_import).items()):
        arguments += ["--ro-bind", str(path), f"{PACKAGES}/{name}"]
    for name in INSIDE:
        arguments += ["--ro-bind", str(HERE / name), f"{PROGRAM}/inside/{name}"]
    arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return [*arguments, "--", *_run(program, PROGRAM, PACKAGES, True, user)]


def _run(program: Path, code: str, library: str, in_sandbox: bool, user: int) -> list[str]:
    return [str(program), "-I", "-S", "-B", "-c", BOOT, code, library, "{control}", str(int(in_sandbox)), str(user)]


def why_not(bwrap: str | None) -> str | None:
    """Why bubblewrap cannot be used on this machine; None where it can."""
    if bwrap is None:
        return "bubblewrap (bwrap) is not installed" if sys.platform == "linux" else "only Linux has bubblewrap"
    try:
        user = ["--unshare-user"] if os.geteuid() != 0 else []
        test = [
            bwrap,
            *user,
            "--unshare-pid",
            "--unshare-net",
            "--unshare-ipc",
            "--ro-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "true",
        ]
        run = subprocess.run(test, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap cannot be run ({type(error).__name__})"
    said = re.sub(r"\s+", " ", run.stderr)[:120].strip()
    return None if run.returncode == 0 else f"bubblewrap may not make namespaces here ({said})"


def build(may_import: Sequence[str], bwrap: str | None = None) -> Walls:
    """The strongest walls that this machine has. `bwrap`: where bubblewrap is, if not on the path."""
    bwrap = bwrap or shutil.which("bwrap")
    user = FIRST_USER + os.getpid() % USERS
    reason = why_not(bwrap)
    if reason is None and bwrap is not None:
        held = ("read-only files: Python, " + ", ".join(may_import) + ", nothing of the course", "no network", "no environment")
        return Walls(command_line(bwrap, may_import, user), held, True)
    folder = tempfile.TemporaryDirectory(prefix="kvcourse-grader-")
    os.chmod(folder.name, 0o755)
    _link(Path(folder.name), may_import)
    program, folders = _python()
    needed = [program, *folders, HERE, *packages(may_import).values()]
    missing = [f"NOT held: files ({reason})", "no environment"]
    if os.geteuid() == 0 and not all(_is_open(path) for path in needed):
        user = 0
        missing.insert(1, "NOT held: answers run as root, because only root can read this Python")
    command = _run(program, f"{folder.name}/program", f"{folder.name}/packages", False, user)
    return Walls(command, tuple(missing), False, folder=folder)


def _is_open(path: Path) -> bool:
    """Whether any user can reach it."""
    return all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)


def _link(folder: Path, may_import: Sequence[str]) -> None:
    """The same two folders made of links: what may not be imported is at least not on the path."""
    wanted = {f"packages/{name}": path for name, path in packages(may_import).items()}
    wanted |= {f"program/inside/{name}": HERE / name for name in INSIDE}
    for name, path in wanted.items():
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path, target_is_directory=path.is_dir())
