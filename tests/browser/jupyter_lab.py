"""JupyterLab as `kvcourse lab` starts it, on a copy of the course: the committed notebooks never change.

Nothing of the person whose machine it is takes part: settings, running servers and history have folders of their own.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"(http://\S+?)/lab/tree/(\S+?)\?token=(\S+)")


def free_port() -> int:
    """Servers that start at the same moment would choose the same one: Jupyter looks first, and takes it later."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Lab:
    """A running JupyterLab. `course`: the copy; `base`: its address; `token`: what it asks of a stranger."""

    def __init__(self, folder: Path) -> None:
        self.course, self.log = folder / "course", folder / "lab.log"
        self.course.mkdir()
        for name in ("notebooks", "exercises"):
            shutil.copytree(ROOT / name, self.course / name)
        shutil.copy(ROOT / "pyproject.toml", self.course)
        own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}
        self.environ = {**os.environ, **{name: str(folder / value) for name, value in own.items()}}
        self.environ |= {"KVCOURSE_COURSE": str(self.course), "CI": "true"}
        self.environ.pop("KVCOURSE_BROWSER", None)
        self._run("start").check_returncode()
        # The page hands its application out, as JupyterLab's own tests have it: conditions are asked there, not guessed.
        options = ["--LabApp.expose_app_in_browser=True", f"--ServerApp.port={free_port()}"]
        command = [sys.executable, "-m", "kvcourse", "lab", "--no-browser", "--", *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=self.course, env=self.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self.base, self.first, self.token = self._address()

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "kvcourse", *arguments]
        options: dict[str, Any] = {"cwd": self.course, "env": self.environ, "capture_output": True, "text": True}
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=300, **options)

    def _address(self) -> tuple[str, str, str]:
        """What `kvcourse lab` prints once the server answers. It gives up by itself after two minutes, and the pipe ends."""
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line.decode()
            if found := ADDRESS.search(said):
                return found[1], found[2], found[3]
        raise AssertionError(f"JupyterLab did not start. It said:\n{said}\n{self.log.read_text()[-3000:]}")

    def address(self, path: str, workspace: str) -> str:
        """Of a notebook, in a workspace of its own: nothing that was open before is opened again."""
        return f"{self.base}/lab/workspaces/{workspace}/tree/{path}?token={self.token}"

    def stop_kernels(self) -> None:
        """All of them; a session goes with its kernel. The server may refuse while one is starting or ending: even to list
        them, since it lists a kernel before it knows when that was last active.
        """
        refusal = ""
        for _ in range(60):
            try:
                kernels = json.loads(self.ask("GET", "kernels"))
                if not kernels:
                    return
                for kernel in kernels:
                    self.ask("DELETE", f"kernels/{kernel['id']}")
            except urllib.error.HTTPError as refused:
                refused.close()
                if refused.code not in (404, 500):
                    raise
                refusal = f"{refused.url}: {refused}"
                time.sleep(0.5)
        raise AssertionError(f"Kernels that do not end; last refusal: {refusal}\n{self.log.read_text()[-3000:]}")

    def ask(self, method: str, path: str) -> bytes:
        """What the server answers. `path`: in its interface for programs, "kernels"."""
        request = urllib.request.Request(f"{self.base}/api/{path}", method=method)
        request.add_header("Authorization", f"token {self.token}")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
