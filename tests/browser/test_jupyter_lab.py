"""The tests' own JupyterLab: what a page has begun is over when it is closed, whatever the page was in the middle of."""

import json
import threading

from jupyter_lab import Lab


def test_kernels_are_stopped_while_they_are_starting(lab: Lab) -> None:
    for _ in range(3):
        starts = [threading.Thread(target=lab.ask, args=("POST", "kernels")) for _ in range(3)]
        for start in starts:
            start.start()
        while any(start.is_alive() for start in starts):
            lab.stop_kernels()
        lab.stop_kernels()
        assert json.loads(lab.ask("GET", "kernels")) == []
