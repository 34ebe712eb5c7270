"""Every lesson: start JupyterLab on a notebook, and say where it is. Knows nothing about what is in the notebooks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from kvcourse.errors import SetupError


def has_display(environ: Mapping[str, str], system: str) -> bool:
    """Can a browser window open here? Not in CI, not over SSH (the browser would open on the far side), and on Linux
    only where there is a display."""
    if environ.get("CI") or environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return not system.startswith("linux") or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))


def lab_command(root: Path, notebook: str, *, browser: bool, as_root: bool, extra: list[str]) -> list[str]:
    """JupyterLab rooted at the course, so that links between notebooks/ and work/ lead somewhere."""
    command = [sys.executable, "-m", "jupyterlab", "--log-level=WARN"]
    command += [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/tree/{notebook}"]
    command.append("--ServerApp.contents_manager_class=kvcourse.lesson_files.LessonFiles")
    if not browser:
        command.append("--no-browser")
    if as_root:  # JupyterLab refuses to run as root unless told; in a container there is often nobody else
        command.append("--allow-root")
    return command + extra


def lab_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What JupyterLab and its kernels run in."""
    settings = Path(__file__).parent / "jupyter"  # no question about news between a learner and the first lesson
    known = environ.get("JUPYTER_CONFIG_PATH")
    return {
        # Threads that wait must sleep: next to a browser, spinning ones make PyTorch in the kernels several times slower.
        "OMP_WAIT_POLICY": "passive",
        **environ,
        "JUPYTER_CONFIG_PATH": f"{known}{os.pathsep}{settings}" if known else str(settings),
    }


def run_lab(root: Path, notebook: str, *, browser: bool, extra: list[str]) -> int:
    """Run JupyterLab until it ends; returns its exit status. Prints the address once the server answers."""
    if find_spec("jupyterlab") is None:
        raise SetupError(
            "JupyterLab is not installed in this environment.",
            expected="the extra kvcourse[lab]",
            got=sys.prefix,
            todo='Type: pip install -c constraints.txt -e ".[lab]"  (or `make lab`, which does it).',
        )
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    command = lab_command(root, notebook, browser=browser, as_root=as_root, extra=extra)
    process = subprocess.Popen(command, cwd=root, env=lab_environment(os.environ))

    def forward(number: int, frame: FrameType | None) -> None:
        process.terminate()

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches JupyterLab too, which asks whether to stop
    server = _wait_for_server(process)
    if server is not None:
        print(f"\nJupyterLab is ready:\n\n    {lab_url(server, notebook)}\n\nCtrl-C twice stops it.\n", flush=True)
    return process.wait()


def lab_url(server: Mapping[str, Any], notebook: str) -> str:
    token = f"?token={server['token']}" if server.get("token") else ""
    return f"{server['url']}lab/tree/{notebook}{token}"


def _wait_for_server(process: "subprocess.Popen[bytes]", patience_s: float = 120) -> dict[str, Any] | None:
    """The record that the server leaves in Jupyter's runtime folder when it listens: address and token."""
    from jupyter_server.serverapp import list_running_servers

    deadline = time.monotonic() + patience_s
    while process.poll() is None and time.monotonic() < deadline:
        for server in list_running_servers():
            if server["pid"] == process.pid:
                return dict(server)
        time.sleep(0.2)
    return None
