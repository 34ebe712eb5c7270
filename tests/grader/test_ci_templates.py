"""The CI templates of docs/ci: their own commands, run as the CI system runs them, on repositories of learners."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cohort import FILE, notebook, solved
from installed import environment, outside

import kvcourse

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the templates are for Linux runners")


def load(name: str) -> dict:
    return yaml.safe_load((ROOT / "docs" / "ci" / name).read_text(encoding="utf-8"))


GITHUB, GITLAB = load("github-actions.yml"), load("gitlab-ci.yml")
STEPS = GITHUB["jobs"]["grade"]["steps"]
INSTALL = {  # the lines that fetch things; every other command is run below
    "github": [step["run"] for step in STEPS if step.get("name", "").startswith("Install")],
    "gitlab": GITLAB["grade"]["before_script"],
}


class Runner:
    """A CI system's machine: the checkout, a folder beside it, and the grader where the install lines would have put it."""

    def __init__(self, folder: Path, system: str) -> None:
        self.system, self.checkout, self.beside = system, folder / "ada", folder / "beside"
        (self.checkout / ".git").mkdir(parents=True)
        self.beside.mkdir()
        (self.beside / "grader").symlink_to(environment())

    def write(self, name: str, text: str) -> None:
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self) -> tuple[int, str]:
        """What the job prints, and its exit status. As in CI, commands begin in the checkout."""
        return self._github() if self.system == "github" else self._gitlab()

    def _bash(self, script: str, **variables: str) -> subprocess.CompletedProcess:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=self.checkout, env=outside(**variables), stdout=-1, stderr=-2, text=True)

    def _github(self) -> tuple[int, str]:
        status, shown = 0, ""
        shutil.rmtree(self.beside / "report", ignore_errors=True)  # RUNNER_TEMP is emptied before each job
        for step in STEPS:
            if "run" not in step or step["name"].startswith("Install") or (status and "if" not in step):
                continue
            done = self._bash(step["run"], RUNNER_TEMP=str(self.beside), GITHUB_WORKSPACE=str(self.checkout))
            status, shown = status or done.returncode, shown + done.stdout
        return status, shown

    def _gitlab(self) -> tuple[int, str]:
        variables = {"HOME": str(self.beside), "CI_PROJECT_DIR": str(self.checkout)}
        done = self._bash("\n".join(GITLAB["grade"]["script"]), **variables)
        return done.returncode, done.stdout

    @property
    def report(self) -> dict:
        (one,) = json.loads((self.beside / "report" / "report.json").read_text(encoding="utf-8"))
        return one


@pytest.fixture(params=["github", "gitlab"])
def runner(request, tmp_path):
    return Runner(tmp_path, request.param)


def test_a_solved_repository_is_green_and_its_points_are_told(runner):
    runner.write(f"{FILE}.ipynb", solved())
    status, shown = runner.run()
    assert status == 0, shown
    assert (runner.report["submission"], runner.report["points"], runner.report["max_points"]) == ("ada", 10, 10)
    if runner.system == "github":
        assert "::notice title=Autograding complete::Points 10/10" in shown.splitlines()
        report = next(line for line in shown.splitlines() if line.startswith("::notice title=Autograding report::"))
        assert json.loads(report.split("::")[2]) == {"totalPoints": 10, "maxPoints": 10}
    else:
        for path in (GITLAB["grade"]["artifacts"]["reports"]["junit"], "kvcourse-report/report.html"):
            assert (runner.checkout / path).is_file()


SHADOWS = ("conftest.py", "sitecustomize.py", "usercustomize.py", "kvcourse.py", "torch.py", "json.py", "typer.py", "numpy.py",
           "kvcourse/__init__.py", "kvcourse/grader/judge.py", "work/torch.py", "work/kvcourse.py")  # fmt: skip


def test_nothing_beside_the_notebook_is_run_and_the_points_are_the_answers(runner, tmp_path):
    marker = tmp_path / "was-run"
    for name in SHADOWS:
        runner.write(name, f"open({str(marker)!r}, 'a').write({name!r})\n")
    runner.write("pytest.ini", "[pytest]\naddopts = -p nothing_like_it\n")
    runner.write("pyproject.toml", "[tool.pytest\n")
    runner.write("pyvenv.cfg", "home = nowhere\n")
    runner.write("libraries.pth", f"import os; open({str(marker)!r}, 'a')\n")
    (runner.checkout / "kvcourse-report").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    forged = 'raise ValueError("\\n::notice title=Autograding complete::Points 10/10\\n##[notice]Points 10/10")'
    wrong = f"def my_mask(past, T):\n    {forged}"
    runner.write(f"work/{FILE}.ipynb", solved(mask=wrong))
    status, shown = runner.run()
    assert status == 1, shown
    assert not marker.exists(), marker.read_text()
    assert runner.report["points"] == 7
    assert list((tmp_path / "elsewhere").iterdir()) == []
    points = [line for line in shown.splitlines() if line.lstrip().startswith("::notice") or "##[" in line]
    assert [line for line in points if "10/10" in line] == []


def test_a_repository_without_an_answer_is_red_and_one_without_a_notebook_says_so(runner, tmp_path):
    runner.write("README.md", "mine")
    status, shown = runner.run()
    assert status == 2 and "There is no notebook in ada." in shown
    runner.write(f"{FILE}.ipynb", notebook({}))
    status, shown = runner.run()
    assert status == 1 and "6.2 mask 0/3: Not started." in shown.splitlines()


def test_commands_are_stopped_while_learners_answers_are_shown():
    grade = next(step["run"] for step in STEPS if step.get("name") == "Grade")
    stop, command, resume = (grade.index(part) for part in ("::stop-commands::$token", " grade ", '"::$token::"'))
    assert stop < command < resume and "/dev/urandom" in grade


@pytest.mark.parametrize("system", INSTALL)
def test_the_grader_is_a_pinned_release_and_nothing_is_installed_from_the_repository(system):
    lines = [line.strip() for text in INSTALL[system] for line in text.splitlines()]
    installs = [line for line in lines if "pip install" in line]
    assert installs == [f"grader/bin/python -I -m pip install kvcourse=={kvcourse.__version__}"]
    assert any("apt-get install" in line and line.endswith("bubblewrap") for line in lines)


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_python_runs_isolated_and_outside_the_checkout(name):
    text = (ROOT / "docs" / "ci" / name).read_text(encoding="utf-8")
    calls = re.findall(r"^[ -]*(?:grader/bin/)?(python3? .*)$", text, re.MULTILINE)
    assert len(calls) >= 3 and all(call.startswith("python -I ") for call in calls)
    scripts = [step["run"] for step in STEPS if "python" in step.get("run", "")]
    assert all(script.startswith('cd "$RUNNER_TEMP"\n') for script in scripts)
    assert GITLAB["grade"]["script"][0] == 'cd "$HOME"'
