"""Maintainers only: nbval compares what this course needs compared, and nothing else. The builder relies on it.

`python -m tools.notebooks` compares no outputs; nbval does, in the run that executes every notebook. So nbval itself is tested
here: real notebooks, their stored outputs changed one by one, and the very options that `make test` uses.
"""

import base64
import json
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
import zlib
from collections.abc import Callable
from pathlib import Path

from tools.notebooks.build import build

REPOSITORY = Path(__file__).resolve().parents[2]


def png(pixel: bytes) -> str:
    """A picture of one pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" + pixel)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


PIXEL, OTHER_PIXEL = png(b"\x4d\x4d\xff\xff"), png(b"\x66\xcc\x66\xff")
SETUP = "from IPython.display import HTML, display\n"
PICTURE = f'display({{"image/png": "{PIXEL}", "text/plain": "<Figure size 640x480 with 1 Axes>"}}, raw=True)'
SVG = 'display({"image/svg+xml": "<svg/>", "text/plain": "<SVG>"}, raw=True)'

# id: (cell, what is done to its stored outputs, whether nbval must fail). None: nothing is done.
Change = Callable[[list[dict]], object] | None
CELLS: dict[str, tuple[str, Change, bool]] = {
    "steady": (SETUP + "for n in range(3):\n    print(n, flush=True)", None, False),
    "value": ("[1, 2]", None, False),
    "stream": ("print(1)", lambda out: out[0].update(text=["2\n"]), True),
    "stderr": ("import sys\n\n_ = sys.stderr.write('a')", lambda out: out[0].update(text=["b"]), True),
    "plain": ("[1, 2]", lambda out: out[0]["data"].update({"text/plain": ["[1, 3]"]}), True),
    "html": ("HTML('<b>1</b>')", lambda out: out[0]["data"].update({"text/html": ["<b>2</b>"]}), True),
    "svg": (SVG, lambda out: out[0]["data"].update({"image/svg+xml": ["<svg></svg>"]}), True),
    "gone": ("print(1)", lambda out: out.clear(), True),
    "extra": ("print(1)", lambda out: out.append({**out[0], "name": "stderr"}), True),
    "error": ("1 / 0", lambda out: out[0].update(evalue="division by nothing"), True),
    "error-kind": ("1 / 0", lambda out: out[0].update(ename="ValueError"), True),
    "no-error": ("1 / 0", lambda out: out.clear(), True),
    "picture": (PICTURE, lambda out: out[0]["data"].update({"image/png": OTHER_PIXEL}), False),
    "picture-size": (PICTURE, lambda out: out[0]["data"].update({"text/plain": ["<Figure size 640x481 with 1 Axes>"]}), True),
    "picture-gone": (PICTURE, lambda out: out.clear(), True),
    "volatile": ("import time\n\nprint(time.time())", None, False),
    "volatile-changed": ("HTML('<b>1</b>')", lambda out: out.clear(), False),
}


def nbval(folder: Path, *targets: str) -> dict[str, list[bool]]:
    """Run nbval as `make test` does; for each notebook, whether each code cell passed."""
    report = folder / "report.xml"
    options = ["-c", REPOSITORY / "pyproject.toml", "--rootdir", folder, "-p", "no:cacheprovider", "-W", "error"]
    command = [sys.executable, "-m", "pytest", *options, "--nbval", "--nbval-current-env", f"--junitxml={report}", *targets]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "warning" not in done.stdout.splitlines()[-1], done.stdout
    outcomes: dict[str, list[bool]] = {}
    for case in ET.parse(report).iter("testcase"):
        assert case.find("skipped") is None
        notebook = case.attrib["classname"]
        outcomes.setdefault(notebook, []).append(case.find("failure") is None and case.find("error") is None)
    return outcomes


def test_nbval_fails_on_every_changed_output_but_pictures_and_volatile_cells(tmp_path: Path, write: Callable) -> None:
    def tags(cell_id: str) -> str:
        name = {"volatile": "volatile", "error": "raises-exception", "no": "raises-exception"}.get(cell_id.split("-")[0])
        return f' tags=["{name}"]' if name else ""

    write("lessons/01_a", "\n\n".join(f'# %% id="{key}"{tags(key)}\n{cell}' for key, (cell, _, _) in CELLS.items()) + "\n")
    (path,) = build(tmp_path, say=lambda _: None)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        change = CELLS[cell["id"]][1]
        if change:
            before = json.dumps(cell["outputs"])
            change(cell["outputs"])
            assert json.dumps(cell["outputs"]) != before
    path.write_text(json.dumps(notebook), encoding="utf-8")
    (outcomes,) = nbval(tmp_path, "notebooks").values()
    passed = dict(zip(CELLS, outcomes, strict=True))
    assert passed == {key: not fails for key, (_, _, fails) in CELLS.items()}


def test_solutions_pass_and_untouched_exercises_fail_in_exactly_the_check_cells(
    tmp_path: Path, write: Callable, exercise: str
) -> None:
    write("exercises/06_a", exercise)
    build(tmp_path, say=lambda _: None)
    outcomes = nbval(tmp_path, "solutions", "exercises")
    solutions, stubs = (
        next(cells for name, cells in outcomes.items() if folder in name) for folder in ("solutions", "exercises")
    )
    assert solutions == [True, True, True]
    assert stubs == [True, True, False]
