"""What is installed from the wheel is enough for a learner and for an instructor; nothing in it gives an answer away."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cohort import FILE, solutions, solved
from installed import environment, outside, wheel

import kvcourse

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the environment's folders are those of macOS and Linux")


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    with zipfile.ZipFile(wheel()) as archive:
        return {name: archive.read(name).decode("utf-8", "replace") for name in archive.namelist()}


@pytest.fixture
def run(tmp_path):
    """run("check", "06"): the installed command, in an empty folder."""

    def run(*arguments, status=0) -> str:
        command = [environment() / "bin" / "kvcourse", *map(str, arguments)]
        shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside())
        assert shown.returncode == status, shown.stdout + shown.stderr
        return shown.stdout

    return run


def test_the_wheel_has_every_exercise_as_it_is_here(files):
    names = sorted(path.name for path in (ROOT / "exercises").glob("*.ipynb"))
    inside = {name.rsplit("/", 1)[1]: text for name, text in files.items() if name.startswith("kvcourse/content/exercises/")}
    assert sorted(inside) == names and names
    assert all(text == (ROOT / "exercises" / name).read_text(encoding="utf-8") for name, text in inside.items())


def test_the_wheel_has_the_package_and_nothing_else(files):
    assert {name.split("/")[0] for name in files} == {"kvcourse", f"kvcourse-{kvcourse.__version__}.dist-info"}
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kvcourse").rglob("*.py")} | {"kvcourse/tiny.safetensors"}
    assert package <= set(files)
    assert not [name for name in files if {"solutions", "sources", "tests", "mutants"} & set(name.split("/"))]


def test_no_solution_is_in_the_wheel(files):
    lines = [line.strip() for source in solutions().values() for line in source.split("### BEGIN SOLUTION")[1].splitlines()]
    telling = [line for line in lines if len(line) > 25 and not line.startswith("#")]
    assert len(telling) >= 4
    assert not [(name, line) for name, text in files.items() if "exercises" in name for line in telling if line in text]
    assert not [(name, line) for name, text in files.items() if "/checks/" in name for line in telling if line in text]


def test_the_installed_package_is_the_wheel_s(tmp_path):
    command = [environment() / "bin" / "python", "-c", "import kvcourse; print(kvcourse.__file__)"]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=outside(), check=True).stdout
    assert Path(shown.strip()).is_relative_to(environment())


def test_a_learner_without_a_clone_starts_checks_resets_and_is_graded(run, tmp_path):
    assert f"copied   work/{FILE}.ipynb" in run("start")
    assert f"kept     work/{FILE}.ipynb" in run("start")
    mine = tmp_path / "work" / f"{FILE}.ipynb"
    mine.write_text(solved(), encoding="utf-8")
    assert "10 of 10 points" in run("check", "06")
    run("reset", "6.2")
    assert "NotImplementedError" in next(
        "".join(cell["source"]) for cell in json.loads(mine.read_text(encoding="utf-8"))["cells"] if cell["id"] == "answer-mask"
    )
    assert "1 of 1 submissions graded, mean 7.0 of 10 points." in run("grade", mine, "--out", "report", "--seed", "1")
    (graded,) = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert [task["state"] for task in graded["exercises"]] == ["passed", "not started", "passed", "passed"]
    assert (tmp_path / "report" / "report.html").is_file()
