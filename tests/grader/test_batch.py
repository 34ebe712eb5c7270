"""Batches: who handed in what, and one bad submission never stops the others. Some tests use the sealed grader."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from cohort import FILE, make_cohort, notebook, solved
from fake import DeadlyGrader, FakeGrader

from kvcourse.checks.registry import find_exercise
from kvcourse.errors import InputError, SetupError
from kvcourse.grader.batch import grade_all
from kvcourse.grader.find import find_submissions
from kvcourse.grader.pool import in_threads
from kvcourse.grader.report import write_reports

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = find_exercise(FILE)
TASKS = [task.name for task in EXERCISE.tasks]


@pytest.fixture(autouse=True)
def fresh_graders():
    FakeGrader.made.clear()


def write(path: Path, text: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(solved() if text is None else text, encoding="utf-8")
    return path


def found(*paths: Path, **options) -> dict[str, list[str]]:
    """Each submission's notebooks, the one that counts first."""
    return {
        one.name: [file.relative_to(paths[0]).as_posix() for file in one.files] for one in find_submissions(paths, **options)[0]
    }


def fake(*paths: Path, **options):
    return {one.submission: one for one in grade_all(paths, seed=7, make_grader=FakeGrader, **options)}


# Who handed in what


def test_a_class_of_folders_and_notebooks_is_one_submission_each(tmp_path):
    write(tmp_path / "ada" / f"{FILE}.ipynb")
    write(tmp_path / "bob.ipynb")
    write(tmp_path / "cem" / "work" / f"{FILE}.ipynb")
    write(tmp_path / "dua" / "deep" / "er" / "mine.ipynb")
    assert list(found(tmp_path)) == ["ada", "bob", "cem", "dua"]


def test_a_learner_s_own_folder_and_a_single_notebook_are_one_submission(tmp_path):
    write(tmp_path / "ada" / f"{FILE}.ipynb")
    assert list(found(tmp_path / "ada")) == ["ada"]
    assert list(found(tmp_path / "ada", tmp_path / "ada" / f"{FILE}.ipynb")) == ["ada", FILE]


def test_nbgrader_s_and_classroom_s_layouts_are_understood(tmp_path):
    write(tmp_path / "course" / "submitted" / "ada" / "ps1" / f"{FILE}.ipynb")
    write(tmp_path / "course" / "submitted" / "ada" / "ps1" / "timestamp.txt", "2026-01-01")
    write(tmp_path / "course" / "source" / "ps1" / f"{FILE}.ipynb")
    write(tmp_path / "kv-submissions" / "kv-bob" / f"{FILE}.ipynb")
    write(tmp_path / "kv-submissions" / "kv-bob" / ".git" / "old.ipynb")
    write(tmp_path / "kv-submissions" / "kv-bob" / ".ipynb_checkpoints" / f"{FILE}-checkpoint.ipynb")
    assert found(tmp_path / "course") == {"ada": [f"submitted/ada/ps1/{FILE}.ipynb"]}
    assert found(tmp_path / "kv-submissions") == {"kv-bob": [f"kv-bob/{FILE}.ipynb"]}


def test_a_copy_of_the_exercise_left_in_the_class_folder_does_not_make_it_one_learner(tmp_path):
    for name in ("ada", "bob"):
        write(tmp_path / name / f"{FILE}.ipynb")
    write(tmp_path / f"{FILE}.ipynb")
    assert set(found(tmp_path)) == {FILE, "ada", "bob"}


def test_a_repository_is_one_learner_s_wherever_the_notebook_lies(tmp_path):
    write(tmp_path / "ada" / "homework" / f"{FILE}.ipynb")
    write(tmp_path / "ada" / "docs" / "index.md", "")
    (tmp_path / "ada" / ".git").mkdir()
    assert found(tmp_path / "ada") == {"ada": [f"homework/{FILE}.ipynb"]}


def test_notebooks_named_after_learners_are_never_taken_for_one_learner_s(tmp_path):
    for name in ("ada", "bob"):
        write(tmp_path / f"{FILE}_{name}.ipynb")
    assert list(found(tmp_path)) == [f"{FILE}_ada", f"{FILE}_bob"]


def test_equal_names_are_told_apart(tmp_path):
    for group in ("g1", "g2"):
        write(tmp_path / group / "ada.ipynb")
    names = [one.name for one in find_submissions([tmp_path / "g1", tmp_path / "g2"])[0]]
    assert names == ["g1/ada", "g2/ada"]


def test_a_folder_and_a_notebook_of_one_name_are_told_apart_by_what_they_are(tmp_path):
    write(tmp_path / "fay.ipynb")
    write(tmp_path / "fay" / f"{FILE}.ipynb")
    write(tmp_path / "gus.ipynb")
    assert list(found(tmp_path)) == ["fay (folder)", "fay (fay.ipynb)", "gus"]
    write(tmp_path / "other" / "gus.ipynb")
    names = [one.name for one in find_submissions([tmp_path / "gus.ipynb", tmp_path / "other" / "gus.ipynb"])[0]]
    assert names == [f"{tmp_path.name}/gus", "other/gus"]


def test_a_path_named_twice_is_graded_once(tmp_path):
    write(tmp_path / "ada" / f"{FILE}.ipynb")
    assert len(find_submissions([tmp_path / "ada", tmp_path / "ada" / ".", tmp_path])[0]) == 1


def test_the_report_s_folder_and_files_that_are_no_notebooks_are_no_submissions(tmp_path):
    write(tmp_path / "ada.ipynb")
    write(tmp_path / "roster.csv", "ada")
    write(tmp_path / "report" / "report.json", "[]")
    submissions, left_out = find_submissions([tmp_path], but=tmp_path / "report")
    assert [one.name for one in submissions] == ["ada"]
    assert [path.name for path in left_out] == ["roster.csv"]


NOTHING = {
    (): "no path was given",
    ("nowhere.ipynb",): r"nowhere\.ipynb is not there",
    ("empty",): "empty holds no notebook",
    ("nowhere", "empty"): "nowhere is not there, .*empty holds no notebook",
}


@pytest.mark.parametrize("paths", NOTHING)
def test_nothing_to_grade_is_one_error_that_tells_missing_from_empty(tmp_path, paths):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=f"nothing to grade: .*{NOTHING[paths]}"):
        find_submissions([tmp_path / path for path in paths])


@pytest.mark.parametrize("name", ["submitted", "work"])
def test_a_learner_s_folder_may_have_a_name_of_ours_and_nobody_is_dropped(tmp_path, name):
    for one in ("alice", "bob", name):
        write(tmp_path / one / "deeper" / "mine.ipynb" if one == "alice" else tmp_path / one / f"{FILE}.ipynb")
    assert sorted(found(tmp_path)) == sorted(["alice", "bob", name])


def test_what_lies_beside_nbgrader_s_submitted_is_told(tmp_path):
    write(tmp_path / "submitted" / "ada" / f"{FILE}.ipynb")
    write(tmp_path / "autograded" / "ada" / f"{FILE}.ipynb")
    write(tmp_path / "bob.ipynb")
    submissions, left_out = find_submissions([tmp_path])
    assert ([one.name for one in submissions], [path.name for path in left_out]) == (["ada"], ["bob.ipynb"])


def test_learners_files_beside_one_with_the_exercise_s_name_are_a_class_and_copies_are_not(tmp_path):
    for name in ("alice", "bob", FILE):
        write(tmp_path / "flat" / f"{name}.ipynb")
    assert list(found(tmp_path / "flat")) == [FILE, "alice", "bob"]
    assert list(found(tmp_path)) == ["flat"]
    for name in (FILE, f"{FILE}-Copy1", f"{FILE} (1)", f"{FILE} copy 2"):
        write(tmp_path / "one" / f"{name}.ipynb")
    assert list(found(tmp_path / "one")) == ["one"]


# Which of several files counts


def test_the_copy_under_the_exercise_s_name_counts_and_the_other_is_named(tmp_path):
    write(tmp_path / "class" / "ada" / f"{FILE}.ipynb", notebook({}))
    newer = write(tmp_path / "class" / "ada" / f"{FILE}-Copy1.ipynb")
    os.utime(newer, (4e9, 4e9))
    ada = fake(tmp_path / "class")["ada"]
    assert ada.points == 0 and ada.fault is None
    assert ada.look == (f"{FILE}-Copy1.ipynb: {FILE} once more, which does not count; {FILE}.ipynb does.",)
    assert set(ada.look) <= set(ada.notes)


LIKELIEST_FIRST = [f"{FILE}.ipynb", f"{FILE} (1).ipynb", "My KV-Cache.ipynb", "ex 6 final.ipynb", "a.ipynb", "b16.ipynb"]


@pytest.mark.parametrize("newest", LIKELIEST_FIRST)
def test_which_notebook_counts_is_told_by_names_and_never_by_time(tmp_path, newest):
    for name in reversed(LIKELIEST_FIRST):
        os.utime(write(tmp_path / "ada" / name), (1e9, 1e9))
    os.utime(tmp_path / "ada" / newest, (4e9, 4e9))
    assert found(tmp_path)["ada"] == [f"ada/{name}" for name in LIKELIEST_FIRST]
    (tmp_path / "ada" / LIKELIEST_FIRST[0]).unlink()
    look = fake(tmp_path)["ada"].look
    assert len(look) == 4 and all(f"; {LIKELIEST_FIRST[1]} does." in note for note in look)


@pytest.mark.parametrize("answered_in", ["work", ".", "exercises"])
def test_in_a_clone_of_the_course_the_learner_s_answers_count_and_never_the_solution(tmp_path, answered_in):
    clone = tmp_path / "class" / "ada"
    for folder in ("exercises", "solutions"):
        write(clone / folder / f"{FILE}.ipynb", (ROOT / folder / f"{FILE}.ipynb").read_text(encoding="utf-8"))
    write(clone / "notebooks" / f"{FILE}.ipynb", (ROOT / "notebooks" / f"{FILE}.ipynb").read_text(encoding="utf-8"))
    write(clone / answered_in / f"{FILE}.ipynb", notebook({}))
    os.utime(clone / "solutions" / f"{FILE}.ipynb", (4e9, 4e9))
    ada = fake(tmp_path / "class")["ada"]
    assert (ada.points, ada.max_points, ada.fault) == (0, EXERCISE.points, None)


def test_a_scratch_notebook_beside_the_exercise_is_a_note_and_no_fault(tmp_path):
    write(tmp_path / "ada" / f"{FILE}.ipynb")
    write(tmp_path / "ada" / "scratch.ipynb", '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    ada = fake(tmp_path / "ada")["ada"]
    assert ada.fault is None and ada.points == EXERCISE.points
    assert any("Not graded: scratch.ipynb" in note for note in ada.notes)


# One bad submission never stops the others

BAD = {
    "empty": "",
    "no json": "{",
    "a list": "[]",
    "a lesson": (ROOT / "notebooks" / f"{FILE}.ipynb").read_text(encoding="utf-8"),
    "newer": notebook({}, metadata={"version": "99.0.0"}),
    "another course's": notebook({}, metadata={"exercise": "99_nothing"}),
    "explodes": solved(mask="# explode"),
    "deep": "[" * 100_000,
}


def test_bad_submissions_are_told_and_the_rest_is_graded_in_the_same_order_every_time(tmp_path):
    for name, text in BAD.items():
        write(tmp_path / name / f"{FILE}.ipynb", text)
    (tmp_path / "bytes").mkdir()
    (tmp_path / "bytes" / "a.ipynb").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "a folder" / f"{FILE}.ipynb").mkdir(parents=True)
    write(tmp_path / "good one" / f"{FILE}.ipynb")
    write(tmp_path / "zoe.ipynb", solved(mask="# wrong"))
    results = fake(tmp_path, tmp_path / "missing.ipynb", jobs=3)
    good = {"good one": 10, "zoe": 7}
    assert {name: one.points for name, one in results.items() if one.fault is None} == good
    assert all(
        one.fault and "\n" not in one.fault and one.points == 0 for one in results.values() if one.submission not in good
    )
    assert set(results) == {*BAD, "bytes", "nothing", "a folder", *good, "missing"}
    assert list(results) == [*sorted(set(results) - {"missing"}), "missing"]


TOLD = {
    "empty": f"{FILE}.ipynb is empty. Ask for the notebook again.",
    "no json": f"{FILE}.ipynb is no readable notebook (line 1 is no JSON). Ask for the notebook as Jupyter saved it.",
    "a lesson": f"{FILE}.ipynb is a lesson, not the exercise {FILE}. Ask for the learner's copy, work/{FILE}.ipynb.",
}


@pytest.mark.parametrize("name", TOLD)
def test_an_instructor_is_told_what_was_handed_in_and_what_to_ask_for(tmp_path, name):
    write(tmp_path / "ada" / f"{FILE}.ipynb", BAD[name])
    assert fake(tmp_path)["ada"].fault == TOLD[name]


def test_no_fault_in_a_batch_speaks_to_the_learner(tmp_path):
    for name, text in BAD.items():
        write(tmp_path / name / f"{FILE}.ipynb", text)
    write(tmp_path / "blank" / f"{FILE}.ipynb", " \n")
    os.truncate(write(tmp_path / "huge" / f"{FILE}.ipynb", ""), 101 << 20)
    write(tmp_path / "other" / "notes.ipynb", '{"cells": [], "metadata": {}}')
    faults = {name: one.fault for name, one in fake(tmp_path).items()}
    assert all(faults.values())
    assert not [fault for fault in faults.values() if re.search(r"Save it|save it|[Yy]our |Name |Put ", fault)]
    assert faults["blank"] == TOLD["empty"] and "outputs cleared" in faults["huge"]
    assert faults["newer"].endswith("Update kvcourse, then grade it.")


def test_what_a_good_notebook_earned_is_kept_when_another_of_the_same_learner_is_broken(tmp_path):
    write(tmp_path / "ada" / "work" / f"{FILE}.ipynb")
    write(tmp_path / "ada" / f"{FILE}.ipynb", "{")
    ada = fake(tmp_path / "ada")["ada"]
    assert ada.points == 10 and "no readable notebook" in ada.fault


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_refused_wherever_they_lead(tmp_path):
    elsewhere = write(tmp_path / "elsewhere" / f"{FILE}.ipynb")
    (tmp_path / "class" / "ada").mkdir(parents=True)
    (tmp_path / "class" / "ada" / f"{FILE}.ipynb").symlink_to(elsewhere)
    (tmp_path / "class" / "bob").symlink_to(elsewhere.parent)
    (tmp_path / "class" / "cem.ipynb").symlink_to(elsewhere)
    (tmp_path / "class" / "dua").mkdir()
    (tmp_path / "class" / "dua" / "work").symlink_to(elsewhere.parent)
    results = fake(tmp_path / "class")
    assert {name: one.points for name, one in results.items()} == {"ada": 0, "bob": 0, "cem": 0, "dua": 0}
    assert all(one.fault for one in results.values())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path):
    (tmp_path / "ada").mkdir()
    os.mkfifo(tmp_path / "ada" / f"{FILE}.ipynb")
    assert fake(tmp_path / "ada")["ada"].fault


# The pool


def test_each_thread_makes_one_grader_when_it_needs_one_and_closes_it(tmp_path):
    for number in range(12):
        write(tmp_path / f"learner-{number}.ipynb", solved(mask="# slow"))
    seen = []
    fake(tmp_path, jobs=3, progress=lambda done, total, last: seen.append((done, total, last is None)))
    assert len(FakeGrader.made) == 3 and all(grader.closed and grader.seed == 7 for grader in FakeGrader.made)
    assert all(grader.asked for grader in FakeGrader.made)
    assert seen == [(0, 12, True), *[(done, 12, False) for done in range(1, 13)]]


def test_a_batch_with_nothing_to_run_makes_no_grader(tmp_path):
    write(tmp_path / "ada.ipynb", "{")
    assert fake(tmp_path / "ada.ipynb")["ada"].fault and not FakeGrader.made


def test_a_batch_that_is_interrupted_closes_what_is_at_work(tmp_path):
    class Stuck(FakeGrader):
        def __init__(self, seed):
            super().__init__(seed)
            self.gone = threading.Event()

        def grade(self, exercise_file, answers, extra):
            assert self.gone.wait(20), "nobody closed it"
            raise ValueError("closed")

        def close(self):
            super().close()
            self.gone.set()

    for number in range(4):
        write(tmp_path / f"learner-{number}.ipynb")
    before = threading.active_count()
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        grade_all([tmp_path], seed=1, jobs=2, make_grader=Stuck)
    timer.join()
    assert threading.active_count() == before
    assert FakeGrader.made and all(grader.closed for grader in FakeGrader.made)


def test_a_fault_of_the_machinery_ends_the_batch_and_is_raised():
    def one(number, grader):
        raise SystemError("broken")

    with pytest.raises(SystemError, match="broken"):
        list(in_threads(one, 5, FakeGrader, 2))


# The parent


def test_the_grader_s_parent_imports_neither_torch_nor_nbformat(tmp_path):
    write(tmp_path / "ada.ipynb")
    code = (
        "import sys; from pathlib import Path\n"
        "import kvcourse.cli_grade, kvcourse.grader.page, kvcourse.grader.sealed\n"
        "from fake import FakeGrader\n"
        "from kvcourse.grader.batch import grade_all\n"
        "from kvcourse.grader.report import write_reports\n"
        f"results = grade_all([Path({str(tmp_path)!r})], seed=1, make_grader=FakeGrader)\n"
        f"write_reports(results, Path({str(tmp_path / 'out')!r}))\n"
        "assert results[0].points == 10, results\n"
        "print([name for name in ('torch', 'nbformat', 'numpy', 'matplotlib', 'distributed') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert run.stdout.strip() == "[]", run.stderr


# The sealed grader


@pytest.fixture(scope="module")
def graded_cohort(tmp_path_factory):
    """The command itself, on a class; its report, and what each deserves."""
    folder = tmp_path_factory.mktemp("cohort")
    deserved = make_cohort(folder / "class", 60 if os.environ.get("KVCOURSE_FULL") == "1" else 12)
    command = [sys.executable, "-m", "kvcourse", "grade", folder / "class", "--out", folder / "report", "--seed", "5"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    report = json.loads((folder / "report" / "report.json").read_text(encoding="utf-8"))
    return folder, deserved, run, {one["submission"]: one for one in report}


def test_every_learner_of_a_class_gets_the_points_that_they_deserve(graded_cohort):
    _, deserved, _, report = graded_cohort
    assert {name: one["points"] for name, one in report.items()} == {name: points or 0 for name, points in deserved.items()}
    assert {name for name, one in report.items() if one["fault"]} == {
        name for name, points in deserved.items() if points is None
    }


def test_the_command_says_how_many_and_where_and_names_each_that_could_not_be_graded(graded_cohort):
    folder, deserved, run, _ = graded_cohort
    bad = [name for name, points in deserved.items() if points is None]
    graded = [points for points in deserved.values() if points is not None]
    assert run.returncode == 2
    assert run.stdout.splitlines()[0].startswith("Seed 5")
    mean = f"mean {sum(graded) / len(graded):.1f} of 10 points"
    assert run.stdout.splitlines()[-2:] == [
        f"{len(graded)} of {len(deserved)} submissions graded, {mean}.",
        f"Report: {folder / 'report' / 'report.html'}",
    ]
    lines = [line for line in run.stderr.splitlines() if line.startswith("kvcourse: ")]
    assert len(lines) == len(bad) and all(any(name in line for line in lines) for name in bad)


def test_the_same_seed_gives_the_same_report(graded_cohort):
    folder, _, _, report = graded_cohort
    again = grade_all([folder / "class" / "learner-000"], seed=5)[0]
    there = report["learner-000"]
    assert [task.message for task in again.exercises] == [task["message"] for task in there["exercises"]]
    assert there["seed"] == 5 and there["protections"] == list(again.protections)


def processes_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


STOPS = [signal.SIGINT, signal.SIGKILL, *([signal.SIGTERM] if os.environ.get("KVCOURSE_FULL") == "1" else [])]


@pytest.mark.skipif(sys.platform == "win32", reason="the sealed grader is for Linux and macOS")
@pytest.mark.parametrize("how", STOPS)
def test_a_grading_that_is_stopped_leaves_no_process_and_no_report(tmp_path, how):
    endless = "def my_mask(past, T):\n    while True:\n        pass"
    for number in range(4):
        write(tmp_path / "class" / f"learner-{number}.ipynb", solved(mask=endless, append=endless))
    command = [sys.executable, "-m", "kvcourse", "grade", tmp_path / "class", "--out", tmp_path / "report", "--jobs", "2"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while len(processes_of(run.pid)) < 6 and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        children = processes_of(run.pid)
        assert len(children) >= 6, "two judges, their sandboxes and a worker in each should be at work"
        run.send_signal(how)
        error = run.communicate(timeout=30)[1]
    finally:
        run.kill()
        run.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [process for process in alive if not is_ended(process)] == []
    assert not (tmp_path / "report" / "report.json").exists()
    if how != signal.SIGKILL:
        assert run.returncode == 130 and error.splitlines()[-1] == "kvcourse: stopped. Nothing was reported."


def is_ended(process: psutil.Process) -> bool:
    """Gone, or waiting to be collected by a first process that collects nobody, as in some containers."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Dask


@pytest.fixture(scope="module")
def cluster():
    try:
        import dask
        import distributed
    except ImportError:
        pytest.skip("the extra kvcourse[dask] is not installed")
    soon = {"distributed.comm.timeouts.connect": "3s"}  # for results that were on a worker that died
    with (
        dask.config.set(soon),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as it,
    ):
        yield it


def test_a_cluster_gives_the_report_of_the_local_pool(cluster, graded_cohort):
    folder, deserved, _, _ = graded_cohort
    seen = []
    options = {"scheduler": cluster.scheduler_address, "progress": lambda *event: seen.append(event[:2])}
    write_reports(grade_all([folder / "class"], seed=5, **options), folder / "there")
    for name in ("report.json", "report.csv", "report.xml", "report.html"):
        assert (folder / "there" / name).read_bytes() == (folder / "report" / name).read_bytes()
    assert seen[-1] == (len(deserved), len(deserved))


def test_a_cluster_s_workers_keep_no_grader_after_a_batch(cluster, tmp_path):
    import distributed

    write(tmp_path / "ada.ipynb")
    grade_all([tmp_path], seed=3, scheduler=cluster.scheduler_address)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        left = client.run(lambda: __import__("kvcourse.grader.cluster").grader.cluster._idle)
        assert list(left.values()) == [{}, {}]


def test_a_submission_that_kills_its_workers_costs_no_other_its_points(cluster, tmp_path):
    for number in range(8):
        write(tmp_path / f"learner-{number}.ipynb", solved(mask="# explode") if number == 1 else None)
    results = grade_all([tmp_path], seed=3, scheduler=cluster.scheduler_address, make_grader=DeadlyGrader)
    assert [one.points for one in results] == [10, 0, *[10] * 6]
    assert [one.submission for one in results if one.fault] == ["learner-1"]


def test_no_scheduler_at_the_address_is_one_error(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("kvcourse.grader.cluster.SCHEDULER_S", 1)
    write(tmp_path / "ada.ipynb")
    for address in ("tcp://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(InputError, match="No Dask scheduler answers"):
            grade_all([tmp_path / "ada.ipynb"], seed=1, scheduler=address, make_grader=FakeGrader)


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_server_that_is_no_scheduler_is_one_line_within_seconds(cluster, tmp_path, answer):
    write(tmp_path / "ada.ipynb")

    def serve():
        peer, _ = server.accept()
        with peer:
            if answer:
                peer.sendall(answer)
            peer.settimeout(30)
            with suppress(OSError):
                while peer.recv(4096):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "kvcourse", "grade", tmp_path / "ada.ipynb", "--out", tmp_path / "out"]
        started = time.monotonic()
        run = subprocess.run([*command, "--scheduler", address], capture_output=True, text=True, cwd=ROOT)
    assert time.monotonic() - started < 25
    told = [line for line in run.stderr.splitlines() if line.strip()]
    assert run.returncode == 2 and len(told) == 1 and "No Dask scheduler answers there." in told[0], run.stderr
    assert not (tmp_path / "out").exists()


def test_without_dask_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    write(tmp_path / "ada.ipynb")
    with pytest.raises(SetupError, match=r"kvcourse\[dask\]"):
        grade_all([tmp_path / "ada.ipynb"], seed=1, scheduler="tcp://127.0.0.1:9", make_grader=FakeGrader)
