"""Every lesson: a pytest plugin for cells that never end or take the kernel with them. Knows nothing about exercises.

By itself nbval waits out the whole time limit for a kernel that is dead, and goes on after a cell that was interrupted as if it
had run. Here a death is seen within a second, and nothing runs after such a cell: it is the last one in the report.
"""

import time
from queue import Empty
from typing import Any

import pytest
from nbval.kernel import RunningKernel

POLL_S = 1.0


def pytest_configure() -> None:
    RunningKernel.await_reply = _await_reply


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: Any) -> None:
    kernel = getattr(item.parent, "kernel", None)
    if getattr(item.parent, "timed_out", False) or (kernel is not None and not kernel.is_alive()):
        item.session.shouldstop = "a cell did not come back"


def _await_reply(kernel: Any, msg_id: str, timeout: float) -> None:
    """Wait for a cell's end, as nbval does; give up when the kernel is no more.

    Raises: Empty.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            message = kernel.get_message(stream="shell", timeout=POLL_S)
        except Empty:
            if time.monotonic() >= deadline or not kernel.is_alive():
                raise
            continue
        if message["parent_header"].get("msg_id") == msg_id:
            return
