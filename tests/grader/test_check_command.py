"""`kvcourse check`: what a learner reads, what a script gets, and that only the answers of a notebook count.

Every run starts a kernel and PyTorch, so one notebook carries several cases wherever they cannot hide each other.
"""

import copy
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kvcourse.checks.progress import note, progress_table
from kvcourse.checks.registry import EXERCISES, find_exercise
from kvcourse.errors import SetupError
from kvcourse.fetch import home
from kvcourse.grader import nbval_run
from kvcourse.grader.nbval_run import check_submission
from kvcourse.grader.submission import read_submission
from tools.kill_table import mutants_of

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = find_exercise("06")
MODELS = home()
NAME = f"{EXERCISE.file}.ipynb"
UNTOUCHED, SOLVED = (json.loads((ROOT / folder / NAME).read_text("utf-8")) for folder in ("exercises", "solutions"))


# Wrong answers, one to each task in each round, so that one run of the notebook tries up to four.
MUTANTS = {task: list(wrong.items()) for task, wrong in mutants_of(ROOT, EXERCISE).items()}
MOST = max(map(len, MUTANTS.values()))
FULL = os.environ.get("KVCOURSE_FULL") == "1"
ROUNDS = range(MOST) if FULL else (0, MOST // 3, 2 * MOST // 3)


def cell(notebook: dict, cell_id: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell.get("id") == cell_id)


def code(source: str) -> dict:
    return {"cell_type": "code", "id": "mine", "metadata": {}, "execution_count": None, "outputs": [], "source": source}


@pytest.fixture(autouse=True)
def no_real_model(tmp_path, monkeypatch):
    """Its cell is not scored, and loading it costs seconds in every run."""
    monkeypatch.setenv("KVCOURSE_HOME", str(tmp_path / "nothing fetched"))
    monkeypatch.delenv("KVCOURSE_COURSE", raising=False)


@pytest.fixture
def handed_in(tmp_path):
    """handed_in(notebook, name): the notebook in a learner's folder."""

    def write(notebook: dict, name: str = NAME) -> Path:
        folder = tmp_path / "handed in"
        folder.mkdir(exist_ok=True)
        path = folder / name
        path.write_text(json.dumps(notebook), encoding="utf-8")
        return path

    return write


@pytest.fixture
def kvcourse(tmp_path):
    """Run the command in a process of its own."""

    def run(*arguments: object, folder: Path = tmp_path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "200"}
        command = [sys.executable, "-P", "-m", "kvcourse", *map(str, arguments)]  # -P: as the installed command
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)

    return run


def test_the_untouched_exercise_gets_no_points_and_friendly_words_and_bad_targets_do_not_stop_it(kvcourse, handed_in, tmp_path):
    path = handed_in(UNTOUCHED)
    (tmp_path / "broken.ipynb").write_text("{", encoding="utf-8")
    files = ["--json", tmp_path / "out.json", "--junit", tmp_path / "out.xml"]
    done = kvcourse("check", "missing.ipynb", path, "broken.ipynb", "77", *files)
    assert done.returncode == 2
    faults = [line for line in done.stderr.splitlines() if line.startswith("kvcourse: ")]
    assert len(faults) == 3 and "Traceback" not in done.stderr
    assert "no such file" in faults[0] and "broken.ipynb is not a notebook" in faults[1] and "no such exercise" in faults[2]
    lines = done.stdout.splitlines()
    assert [line.strip() for line in lines[1:5]] == [
        f"0/{task.points}  {task.name} {task.title}: not started" for task in EXERCISE.tasks
    ]
    assert "0 of 10 points. Nothing is filled in yet" in lines[5] and len(lines) == 6
    missing, untouched, broken, unknown = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert {"notebook", "fault"} == set(missing) == set(broken) == set(unknown)
    assert (untouched["exercise"], untouched["points"], untouched["max_points"]) == (EXERCISE.file, 0, 10)
    assert {task["state"] for task in untouched["tasks"]} == {"not started"}
    suites = ET.parse(tmp_path / "out.xml").getroot().findall("testsuite")
    assert [(suite.get("tests"), suite.get("failures"), suite.get("errors")) for suite in suites] == [
        ("1", "0", "1"), ("4", "4", "0"), ("1", "0", "1"), ("1", "0", "1"),
    ]  # fmt: skip


def test_the_solution_in_work_gets_all_points_with_the_real_model_and_progress_knows(kvcourse, tmp_path, monkeypatch):
    monkeypatch.setenv("KVCOURSE_HOME", str(MODELS))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / NAME).write_text(json.dumps(SOLVED), encoding="utf-8")
    (tmp_path / "work" / ".kvcourse.json").write_text("{}", encoding="utf-8")
    done = kvcourse("check", "06", "--json", tmp_path / "out.json", "--junit", tmp_path / "out.xml")
    assert (done.returncode, "note" in done.stdout) == (0, False), done.stdout + done.stderr
    assert "10 of 10 points. All done." in done.stdout and "3/3  6.2 mask: " in done.stdout
    got = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert set(got) == {"notebook", "exercise", "points", "max_points", "tasks", "notes"}
    assert (got["points"], got["max_points"], got["notes"]) == (10, 10, [])
    assert all(set(task) == {"name", "points", "max_points", "state", "message"} for task in got["tasks"])
    (suite,) = ET.parse(tmp_path / "out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "0", "0")
    assert kvcourse("progress").stdout.splitlines()[-1] == f"10 of {sum(exercise.points for exercise in EXERCISES)} points"
    before = (tmp_path / "work" / NAME).read_bytes()
    assert "6.3 is as it was in the beginning" in kvcourse("reset", "6.3").stdout
    assert (tmp_path / "work" / NAME).read_bytes() != before


def test_right_answers_in_odd_clothing_get_all_points(kvcourse, handed_in):
    notebook = copy.deepcopy(SOLVED)
    notebook["metadata"] |= {"kernelspec": {"name": "no-such-kernel", "display_name": "?", "language": "julia"}, "kvcourse": {}}
    positions = "".join(cell(notebook, "answer-positions")["source"])
    cell(notebook, "answer-positions")["source"] = positions.replace("torch.arange", "positions_from")
    cell(notebook, "answer-positions")["id"] = "lost"
    mask = cell(notebook, "answer-mask")
    mask["source"] = (
        "# NBVAL_SKIP\nprint('echo')\n"
        + "".join(mask["source"]).replace("rows =", "print('inside'); rows =")
        + "\nmy_mask(2, 3)"
    )
    mask["metadata"] = {"tags": ["nbval-skip", "raises-exception"], "collapsed": True}
    notebook["cells"].insert(0, code("from torch import arange as positions_from"))
    notebook["cells"].append(code("check('6.2', lambda past, T: None)"))  # an experiment after all checks, which fails
    for task in EXERCISE.tasks:
        notebook["cells"].remove(cell(notebook, task.check_cell))
    done = kvcourse("check", handed_in(notebook, "renamed by a platform.ipynb"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10 points" in done.stdout
    assert "note: 6.3: its cell's id was lost; my_positions was found by its name." in done.stdout
    assert "note: A cell you added stopped: check('6.2', lambda past, T: None)" in done.stdout
    assert 'note: Cell "real-model" needs the real model, which is not here (kvcourse fetch); it is not scored.' in done.stdout


def test_nothing_but_an_answer_earns_points(kvcourse, handed_in):
    """No answer is there. All else that could look like a success is: checks edited and deleted, outputs written by hand, tags
    that silence nbval, files beside the notebook that would take over pytest, Python or PyTorch."""
    notebook = copy.deepcopy(UNTOUCHED)
    for number, task in enumerate(EXERCISE.tasks):
        check = cell(notebook, task.check_cell)
        check["outputs"] = [{"name": "stdout", "output_type": "stream", "text": [f"{task.name} {task.title}: 9/9\n"]}]
        check["metadata"] = {"tags": ["nbval-skip", "nbval-ignore-output", "raises-exception"]}
        if number % 2:
            check["source"] = f"print('{task.name} {task.title}: 9/9')"
        else:
            notebook["cells"].remove(check)
    cell(notebook, "answer-mask")["source"] = "def my_mask(past, T):\n    print('6.2 mask: 7/7')\n    raise NotImplementedError"
    path = handed_in(notebook)
    traps = {
        "conftest.py": "import os; os._exit(0)",
        "pytest.ini": "[pytest]\naddopts = --nbval-lax --collect-only",
        "torch.py": "raise SystemExit(0)",
        "nbval.py": "raise SystemExit(0)",
        "kvcourse.py": "raise SystemExit(0)",
        "sitecustomize.py": "raise SystemExit(0)",
    }
    for name, text in traps.items():
        (path.parent / name).write_text(text, encoding="utf-8")
    done = kvcourse("check", NAME, "--quiet", folder=path.parent)
    assert (done.returncode, done.stdout.count("not started")) == (1, 4), done.stdout + done.stderr


WRONG = {
    "6.1": "def my_append(rows, layer, k, v):\n    return (",
    "6.2": "import torch\ndef my_mask(past, T):\n    return torch.ones(T, T, dtype=torch.bool).tril()",
    "6.3": "my_positions = 3",
    "6.4": None,
}


def test_a_wrong_answer_is_told_what_is_wrong(kvcourse, handed_in, tmp_path):
    notebook = copy.deepcopy(SOLVED)
    for task in EXERCISE.tasks:
        if WRONG[task.name] is None:
            notebook["cells"].remove(cell(notebook, task.cell))
        else:
            cell(notebook, task.cell)["source"] = WRONG[task.name]
    done = kvcourse("check", handed_in(notebook), "--json", tmp_path / "out.json")
    assert done.returncode == 1
    append, mask, positions, decode = json.loads((tmp_path / "out.json").read_text("utf-8"))["tasks"]
    assert append["message"].startswith("The cell stopped: SyntaxError") and "(line 2: return ()" in append["message"]
    assert mask["message"].startswith("1 of 7 properties hold.") and "shape" in mask["message"]
    assert positions["message"] == "my_positions is an int, not a function. Define it with def my_positions(...)."
    assert done.stdout.splitlines()[-1] == "A task's points need all of its properties."
    assert done.stdout.count("my_decode was not found") == 1 and "note: 6.4" not in done.stdout
    assert (decode["state"], decode["message"]) == ("missing", "There is no answer: my_decode was not found.")
    assert "Next: 6.1. A hint: kvcourse hint 6.1" in done.stdout


def test_what_progress_says_is_what_the_check_said_whatever_passed_before(kvcourse, tmp_path):
    """One folder named as the target; answers renamed, emptied, stopped by their own line; cells added that stop."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".kvcourse.json").write_text("{}", encoding="utf-8")
    for task in EXERCISE.tasks:
        note(work, task.name, "passed", 9, 9)
    notebook = copy.deepcopy(SOLVED)
    cell(notebook, "answer-append")["source"] = "x = 1\ny = x / 0\ndef my_append(rows, layer, k, v): pass"
    cell(notebook, "answer-mask")["source"] = ""
    cell(notebook, "answer-positions")["source"] = "def my_place(past, T):\n    return 3"
    line = "def my_decode(model, prompt_ids, n, cache):\n    return prompt_ids.nothing"
    cell(notebook, "answer-decode")["source"] = line
    notebook["cells"] += [code("\nint('x')"), code("1 / 0") | {"id": "more"}]
    (work / NAME).write_text(json.dumps(notebook), encoding="utf-8")
    done = kvcourse("check", "work", "--json", "out.json")
    append, mask, positions, decode = json.loads((tmp_path / "out.json").read_text("utf-8"))["tasks"]
    assert append["message"] == "The cell stopped: ZeroDivisionError: division by zero (line 2: y = x / 0)."
    assert mask["state"] == "missing"
    assert positions["message"] == "There is no my_positions. Keep the function's name."
    assert decode["message"].startswith("0 of 9 properties hold. my_decode stopped with AttributeError")
    assert decode["message"].endswith("(line 2: return prompt_ids.nothing).")
    assert "all of its properties" not in done.stdout
    assert [line for line in done.stdout.splitlines() if "note:" in line] == [
        "  note: 2 cells you added stopped; the first: int('x') (ValueError)."
    ]
    says = [row.says for row in progress_table(work) if row.task.startswith("6.")]
    assert says == ["did not run", "no answer", "did not run", "0 of 9 hold"]


@pytest.mark.parametrize("number", ROUNDS)
def test_every_mutant_is_told_apart_and_costs_its_own_task_alone(kvcourse, handed_in, tmp_path, number):
    notebook, expected = copy.deepcopy(SOLVED), {}
    for task in EXERCISE.tasks:
        if number < len(MUTANTS[task.name]):
            _, (source, message) = MUTANTS[task.name][number]
            cell(notebook, task.cell)["source"] = source
            expected[task.name] = message
    done = kvcourse("check", handed_in(notebook), "--json", tmp_path / "out.json")
    got = {task["name"]: task for task in json.loads((tmp_path / "out.json").read_text("utf-8"))["tasks"]}
    assert done.returncode == 1
    assert {name for name, task in got.items() if task["state"] != "passed"} == set(expected)
    for name, message in expected.items():
        assert (got[name]["points"], got[name]["state"]) == (0, "failed")
        assert re.search(message, got[name]["message"], re.DOTALL), got[name]["message"]
        assert got[name]["message"] in done.stdout


def test_a_check_that_was_replaced_or_never_ran_is_no_success(handed_in):
    notebook = copy.deepcopy(UNTOUCHED)
    forged = "def check(name, answer):\n    print({'6.1': '6.1 append: 8/8', '6.2': '6.2 mask: 7/7'}[name])"
    notebook["cells"].insert(0, code(forged))
    place = next(i for i, one in enumerate(notebook["cells"]) if one["id"] == "check-append")
    notebook["cells"].insert(place, code(forged) | {"id": "again"})
    checked = check_submission(read_submission(handed_in(notebook)))
    assert [result.points for result in checked.results] == [0, 0, 0, 0]
    assert "Is something named `check` in your cells?" in checked.results[0].message


@pytest.mark.parametrize("fault", ["import os; os._exit(0)", "while True: pass"][: 2 if FULL else 1])
def test_a_cell_that_never_ends_or_takes_the_kernel_with_it_costs_no_other_task(handed_in, fault):
    notebook = copy.deepcopy(SOLVED)
    cell(notebook, "answer-append")["source"] = f"def my_append(rows, layer, k, v):\n    {fault}"
    checked = check_submission(read_submission(handed_in(notebook)), cell_s=15)
    assert [result.state for result in checked.results] == ["failed", "passed", "passed", "passed"]
    assert "a loop that never ends" in checked.results[0].message
    assert checked.results[0].broken is None and checked.points == 7
    assert [checked.outcome(result) for result in checked.results[:2]] == ["took too long", "passed"]


def test_without_nbval_the_error_says_what_to_install(handed_in, monkeypatch, tmp_path):
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'No module named nbval' >&2\nexit 4\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(nbval_run.sys, "executable", str(fake))
    with pytest.raises(SetupError, match=r"got No module named nbval\. Install"):
        check_submission(read_submission(handed_in(UNTOUCHED)))


def test_another_exercise_under_a_number_is_refused(kvcourse, tmp_path):
    (tmp_path / "work").mkdir()
    lesson = json.loads((ROOT / "notebooks" / NAME).read_text("utf-8"))
    (tmp_path / "work" / NAME).write_text(json.dumps(lesson), encoding="utf-8")
    done = kvcourse("check", "06")
    assert (done.returncode, done.stdout) == (2, "") and "is a lesson" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["hint", "6.2"], 0, "hint 1 of"),
        (["hint", "6.2", "--level", "2"], 0, "hint 2 of"),
        (["hint", "6.2", "--level", "99"], 2, "a level from 1 to"),
        (["hint", "6.9"], 2, "no such task"),
        (["hint", "06.2"], 0, "One more: kvcourse hint 6.2 --level 2"),
        (["check", "6.2"], 2, "6.2 is a task of exercise 06. Type: kvcourse check 06"),
        (["reset", "06"], 2, "Name one task, such as 6.1"),
        (["check", "."], 2, "got a folder"),
        (["reset", "6.9"], 2, "no such task"),
        (["progress"], 2, "kvcourse start"),
        (["check"], 2, "TARGET"),
        (["check", "06"], 2, "kvcourse start"),
    ],
)
def test_the_small_commands_answer_in_a_line_or_two(kvcourse, tmp_path, monkeypatch, arguments, status, text):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    done = kvcourse(*arguments)
    assert (done.returncode, text in done.stdout + done.stderr, "Traceback" in done.stderr) == (status, True, False), done


def test_results_that_cannot_be_written_are_an_error(kvcourse, tmp_path):
    for file in (tmp_path / "no folder" / "out.json", tmp_path):
        done = kvcourse("check", "missing.ipynb", "--json", file)
        assert done.returncode == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
        assert "missing.ipynb" not in done.stderr  # it fails before anything is checked


def test_hints_step_where_there_are_copies(kvcourse, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / NAME).write_text(json.dumps(UNTOUCHED), encoding="utf-8")
    said = [kvcourse("hint", "6.2", *more).stdout for more in ((), (), (), (), ("--level", "1"), ())]
    assert [text.split("hint ")[1][0] for text in said] == ["1", "2", "3", "3", "1", "2"]
    assert said[0].endswith("One more: kvcourse hint 6.2\n")


def test_reports_of_any_shape_do_no_harm(tmp_path):
    path = tmp_path / "reports.jsonl"
    good = {"task": "6.1", "state": "passed", "held": 2, "properties": 2}
    lines = ["{", "[]", "3", '{"task": 6}', json.dumps(good | {"held": "2"}), json.dumps(good), "[" * 100_000, "\x00"]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert nbval_run._reports(path) == {"6.1": [good]}
