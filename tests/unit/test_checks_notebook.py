"""check, hint, reset and progress as a learner calls them, in this process and in a real IPython kernel."""

import json
import re
import sys

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from kvcourse.checks import CheckFailed, check, hint, in_short, progress, reset
from kvcourse.checks.notebook import LINES, REPORT, WIDTH, WrongUse
from kvcourse.checks.progress import RECORD
from kvcourse.checks.registry import EXERCISES, hints_of

TASKS = [task for exercise in EXERCISES for task in exercise.tasks]


def positions(past, T):
    return torch.arange(past, past + T)


def restarting(past, T):
    return torch.arange(T)


def stub(past, T):
    raise NotImplementedError("Exercise 6.3: write this function")


@pytest.fixture(autouse=True)
def learners_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(REPORT, raising=False)
    monkeypatch.setattr("kvcourse.checks.notebook._hints_given", {})
    return tmp_path


def failure(name, answer, **kwargs) -> str:
    with pytest.raises(CheckFailed) as failed:
        check(name, answer, **kwargs)
    return str(failed.value)


def test_a_check_that_passes_prints_one_line_the_same_each_time(capsys):
    for name in ("6.3", "6.3", 6.3):
        check(name, positions)
        assert capsys.readouterr().out == "6.3 positions: 5/5\n"


def test_a_check_that_fails_prints_nothing_and_names_what_broke(capsys):
    said = failure("6.3", restarting)
    assert said.startswith(
        "6.3 positions: 2 of 5 properties hold. With 6 cached, the next token was put at position\n0: positions restart"
    )
    assert said.endswith('\nStuck? hint("6.3")')
    assert capsys.readouterr().out == ""


def test_a_stub_is_not_started():
    assert failure("6.3", stub) == "6.3 not started"


def test_what_an_answer_prints_does_not_bury_the_check_and_the_learner_is_told(capsys):
    def loud(past, T):
        print("working", past)
        sys.stderr.write("warning\n")
        return positions(past, T)

    def loud_and_wrong(past, T):
        print("working", past)
        return restarting(past, T)

    check("6.3", loud)
    assert capsys.readouterr() == ("6.3 positions: 5/5\n", "")
    assert "Call it in a cell of its own" in failure("6.3", loud_and_wrong)
    assert "Call it in a cell of its own" not in failure("6.3", restarting)


@pytest.mark.parametrize("text", ["word " * 500, "x" * 5000, "\n".join("line" for _ in range(50)), ""])
def test_a_message_is_at_most_ten_short_lines(text):
    def stops(past, T):
        print("so that the longest message is made")
        raise ValueError(text)

    lines = failure("6.3", stops).split("\n")
    assert len(lines) <= LINES == 10 and max(map(len, lines)) <= WIDTH
    assert "my_positions stopped with ValueError" in lines[0]


def test_another_seed_draws_other_inputs():
    def hard_coded(past, T):
        seen.append((past, T))
        return positions(past, T)

    calls = []
    for seed in (0, 0, 1):
        seen = []
        check("6.3", hard_coded, seed=seed)
        calls.append(seen)
    assert calls[0] == calls[1] != calls[2]


def test_a_check_leaves_the_learners_random_numbers_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    check("6.3", positions)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "answer", "says"),
    [
        ("6.9", positions, r"no such task. Expected 6.1, .*; got '6.9'"),
        (97.5, positions, r"no such task. Expected one of 2.1 to .*got '97.5'"),
        ("6.3", torch.arange(3), r"needs the function itself. .*got an int64 tensor \(3,\)\.\sWrite\scheck\("),
        ("6.3", None, "needs the function itself"),
        ("6.3", 3, "got an int"),
    ],
)
def test_a_wrong_call_says_what_to_write(name, answer, says):
    with pytest.raises(WrongUse, match=says):
        check(name, answer)


def my_mask(past, T):
    return None


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: check("6.2"), r'^A check needs the task and your function. Write check\("6.2", my_mask\)\.$'),
        (lambda: check(my_mask), r'Write check\("6.2", my_mask\)\.$'),
        (lambda: check(positions), r'Write check\("2.1", my_scores\)\.$'),
        (lambda: check("6.9"), "no such task"),
        (lambda: hint(), r'^Name the task. Write hint\("2.1"\)\.$'),
        (lambda: hint(my_mask), r'^Name the task. Write hint\("6.2"\)\.$'),
        (lambda: hint(None), "Name the task"),
        (lambda: reset(), r'^Name the task. Write reset\("2.1"\)\.$'),
        (lambda: hint("06"), r"06 is a whole exercise\. .* Name one task, such as 6\.1"),
        (lambda: hint("6.2", level=7), "Take a lower one"),
        (lambda: hint("6.2", level="1"), r"got '1'\. Take one of these"),
    ],
)
def test_a_call_with_too_little_says_the_right_one(call, says):
    with pytest.raises(WrongUse, match=says):
        call()


def test_a_name_that_holds_no_function_is_told_so_and_no_longer_counts_as_passed(learners_folder, capsys):
    check("6.3", positions)
    names = {"check": check, "my_positions": 3}
    with pytest.raises(WrongUse, match=r"^my_positions is an int, not a function. Define it with def my_positions\(...\).$"):
        exec('check("6.3", my_positions)', names)
    capsys.readouterr()
    progress()
    assert re.search(r"6\.3 +positions +did not run", capsys.readouterr().out)


def test_a_stop_is_told_with_the_learners_line(learners_folder, monkeypatch):
    file = learners_folder / "learners.py"
    file.write_text("def my_positions(past, T):\n    x = past\n    return x + None\n", encoding="utf-8")
    names: dict = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    said = failure("6.3", names["my_positions"]).replace("\n", " ")
    assert "my_positions stopped with TypeError: " in said and "(line 3: return x + None)." in said


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (NotImplementedError("Exercise 6.2: write this function"), "6.2 not started"),
        (AssertionError("The tokens differ."), "The tokens differ."),
        (TypeError("no len\nmore"), "TypeError: no len"),
        (ValueError(), "ValueError."),
        (CheckFailed("as it is"), "as it is"),
    ],
)
def test_in_short_ends_in_one_line(error, says):
    with pytest.raises(CheckFailed) as failed, in_short():
        raise error
    assert str(failed.value) == says and failed.value._render_traceback_() == [says]


def test_in_short_lets_through_what_is_no_error(capsys):
    with in_short():
        print("seen")
    assert capsys.readouterr().out == "seen\n"
    with pytest.raises(KeyboardInterrupt), in_short():
        raise KeyboardInterrupt


def test_the_answer_to_another_task_is_refused_by_name():
    with pytest.raises(WrongUse, match=r"my_mask answers 6.2, not 6.3"):
        check("6.3", my_mask)


def test_hints_come_one_after_the_other_and_the_last_says_so(capsys):
    total = len(hints_of(next(task for task in TASKS if task.name == "6.2")))
    for level in [*range(1, total + 1), total]:
        hint("6.2")
        said = capsys.readouterr().out
        assert said.startswith(f"6.2 mask, hint {level} of {total}{', the last' if level == total else ''}: ")
        assert max(map(len, said.split("\n"))) <= WIDTH
    hint("6.2", 1)
    assert "hint 1 of" in capsys.readouterr().out
    hint("6.1")
    assert "6.1 append, hint 1 of" in capsys.readouterr().out


def test_hints_go_on_after_a_restart(monkeypatch, capsys):
    hint("6.2")
    monkeypatch.setattr("kvcourse.checks.notebook._hints_given", {})
    hint("06.2")
    assert "hint 1 of" in (said := capsys.readouterr().out) and "hint 2 of" in said


@pytest.mark.parametrize("level", [0, -1, 4])
def test_a_hint_that_does_not_exist_is_refused(level):
    with pytest.raises(WrongUse, match=r"no such hint. Expected 1 to 3"):
        hint("6.2", level)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_has_three_different_hints_of_a_few_lines(task):
    hints = hints_of(task)
    assert len(set(hints)) == len(hints) >= 3
    assert all(20 < len(text) < 400 and "return " not in text for text in hints)


def test_progress_shows_what_the_checks_said(capsys):
    progress()
    assert capsys.readouterr().out.count("not checked") == len(TASKS)
    failure("6.2", stub)
    failure("6.3", restarting)
    progress()
    said = capsys.readouterr().out
    assert re.search(r"6\.2 +mask +not started +0 of 3", said) and re.search(r"6\.3 +positions +2 of 5 hold", said)
    check("6.3", positions)
    progress()
    lines = capsys.readouterr().out.rstrip().split("\n")
    assert any(line.split() == "6.3 positions passed 1 of 1".split() for line in lines) and lines[-1].startswith("1 of ")


def test_every_check_adds_one_line_to_the_report_that_was_asked_for(learners_folder, monkeypatch):
    report = learners_folder / "report.jsonl"
    monkeypatch.setenv(REPORT, str(report))
    check("6.3", positions)
    failure("6.3", restarting)
    failure("6.3", stub)
    passed, failed, untouched = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert passed == {
        "task": "6.3", "title": "positions", "state": "passed", "held": 5, "properties": 5, "message": None, "broken": None,
    }  # fmt: skip
    assert failed["state"] == "failed" and failed["broken"] == "goes_on_where_the_past_ended" and "restart" in failed["message"]
    assert untouched["state"] == "not started"


def test_reset_is_handed_on_and_its_message_printed(monkeypatch, capsys):
    monkeypatch.setattr("kvcourse.checks.work.reset_task", lambda name: f"{name} is as it was.")
    reset("6.2")
    assert capsys.readouterr().out == "6.2 is as it was.\n"
    with pytest.raises(WrongUse, match="no such task"):
        reset("99")


def run_in_a_kernel(folder, *sources: str) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}})
    client.execute()
    return notebook


def test_in_ipython_a_failed_check_shows_its_message_and_no_traceback(learners_folder):
    notebook = run_in_a_kernel(
        learners_folder,
        "import torch\nfrom kvcourse.checks import check\n\n\ndef my_positions(past, T):\n    return torch.arange(T)",
        'check("6.3", my_positions)',
        'check("6.3", my_positions(0, 3))',
        'def my_positions(past, T):\n    raise NotImplementedError("Exercise 6.3: write this function")\n\n\n'
        'check("6.3", my_positions)',
        'check("6.3", lambda past, T: torch.arange(past, past + T))',
    )
    failed, misused, untouched, passed = (cell.outputs for cell in notebook.cells[1:])
    assert [output.output_type for output in failed] == ["error"] and failed[0].ename == "CheckFailed"
    assert failed[0].traceback == failed[0].evalue.split("\n") and failed[0].traceback[0].startswith(
        "6.3 positions: 2 of 5 properties"
    )
    assert misused[0].ename == "WrongUse" and misused[0].traceback == misused[0].evalue.split("\n")
    assert untouched[0].traceback == ["6.3 not started"]
    assert [(output.output_type, output.text) for output in passed] == [("stream", "6.3 positions: 5/5\n")]
    assert json.loads((learners_folder / RECORD).read_text())["tasks"]["6.3"]["state"] == "passed"


def test_nbclient_stops_at_a_failed_check_and_quotes_its_message(learners_folder):
    source = 'from kvcourse.checks import check\n\ncheck("6.3", lambda past, T: None)'
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    with pytest.raises(CellExecutionError, match=r"Expected an int64 tensor; got None") as stopped:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(learners_folder)}}).execute()
    assert "Traceback" not in str(stopped.value) and "notebook.py" not in str(stopped.value)
