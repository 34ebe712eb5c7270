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

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = sorted(path.name for path in (ROOT / "exercises").glob("*.ipynb"))
LAX = EXERCISES if os.environ.get("KVCOURSE_FULL") == "1" else EXERCISES[:1]


def failing_cells(option: str, notebook: str, report: Path) -> list[str]:
    """Ids of the code cells that fail. Every code cell must have run."""
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
    done = subprocess.run([*command, notebook], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    ids = [cell["id"] for cell in json.loads((ROOT / notebook).read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    cases = list(ET.parse(report).iter("testcase"))
    assert [case.get("name") for case in cases] == [f"Cell {number}" for number in range(len(ids))]
    return [cell for cell, case in zip(ids, cases, strict=True) if len(case)]


@pytest.mark.parametrize("name", EXERCISES)
def test_an_untouched_exercise_fails_in_exactly_its_check_cells(name, tmp_path):
    cells = json.loads((ROOT / "exercises" / name).read_text("utf-8"))["cells"]
    checks = [cell["id"] for cell in cells if "check" in cell["metadata"].get("tags", [])]
    assert len(checks) >= 3
    assert failing_cells("--nbval", f"exercises/{name}", tmp_path / "report.xml") == checks


@pytest.mark.parametrize("name", LAX)
def test_a_solution_passes_nbval_lax(name, tmp_path):
    assert failing_cells("--nbval-lax", f"solutions/{name}", tmp_path / "report.xml") == []
