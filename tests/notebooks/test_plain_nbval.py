"""What the course promises of plain nbval, without `kvcourse check`: an untouched exercise fails in exactly its checks.

`make test` runs solutions/ strictly, every output compared, which is more than --nbval-lax asks; so the lax run is made for one
solution here, and for all of them under KVCOURSE_FULL=1.
"""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = sorted(path.name for path in (ROOT / "exercises").glob("*.ipynb"))
LAX = EXERCISES if os.environ.get("KVCOURSE_FULL") == "1" else EXERCISES[:1]


def failing_cells(option: str, notebooks: list[str], report: Path) -> dict[str, list[str]]:
    """Of each notebook, the ids of the code cells that fail, in one run of nbval. Every code cell must have run."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        option,
        "--nbval-current-env",
        f"--junitxml={report}",
    ]
    done = subprocess.run([*command, *notebooks], cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cases = iter(ET.parse(report).iter("testcase"))
    failing = {}
    for notebook in notebooks:
        ids = [cell["id"] for cell in json.loads((ROOT / notebook).read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        mine = [next(cases) for _ in ids]
        assert [case.get("name") for case in mine] == [f"Cell {number}" for number in range(len(ids))], notebook
        failing[notebook] = [cell for cell, case in zip(ids, mine, strict=True) if len(case)]
    assert not list(cases)
    return failing


def test_untouched_exercises_fail_in_exactly_their_check_cells(tmp_path):
    paths = [f"exercises/{name}" for name in EXERCISES]
    cells = {path: json.loads((ROOT / path).read_text("utf-8"))["cells"] for path in paths}
    checks = {path: [cell["id"] for cell in cells[path] if "check" in cell["metadata"].get("tags", [])] for path in paths}
    assert all(len(ids) >= 3 for ids in checks.values())
    assert failing_cells("--nbval", paths, tmp_path / "report.xml") == checks


def test_solutions_pass_nbval_lax(tmp_path):
    paths = [f"solutions/{name}" for name in LAX]
    assert failing_cells("--nbval-lax", paths, tmp_path / "report.xml") == {path: [] for path in paths}
