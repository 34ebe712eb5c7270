"""The grading benchmark: points first, and every process counted."""

import json
import sys

from benchmarks import grading, processor

BUSY = "import time; end = time.process_time() + {0}\nwhile time.process_time() < end: pass"


def test_processor_seconds_of_processes_that_nobody_waits_for_are_counted_where_a_group_can_be_made():
    orphan = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {BUSY.format(0.5)!r}]); time.sleep(1.5)"
    seconds, counted_by = processor.run([sys.executable, "-c", orphan])
    if counted_by == "control group":
        assert 0.5 < seconds < 1.5
    assert processor.run([sys.executable, "-c", BUSY.format(0.5)])[0] > 0.5


def run(n: int, cpu_s: float, wrong: tuple[str, ...] = ()) -> grading.Run:
    return grading.Run(n, wall_s=30.0, cpu_s=cpu_s, counted_by="control group", wrong=wrong)


def test_the_first_submission_s_cost_is_taken_off_the_others(monkeypatch, capsys):
    monkeypatch.setattr(grading, "grade", lambda n, jobs: run(n, 5.0 if n == 1 else 34.5))
    monkeypatch.setattr("sys.argv", ["grading", "--submissions", "60", "--jobs", "2", "--json"])
    assert grading.main() == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["cpu_s_per_further_submission"] == 0.5 and figures["first_cpu_s"] == 5.0
    assert figures["submissions_per_s_per_core"] == 1.0


def test_wrong_points_mean_no_times(monkeypatch, capsys):
    monkeypatch.setattr(grading, "grade", lambda n, jobs: run(n, 1.0, ("learner-003",)))
    monkeypatch.setattr("sys.argv", ["grading", "--jobs", "1"])
    assert grading.main() == 1
    out, err = capsys.readouterr()
    assert out == "" and "learner-003" in err


def test_one_real_submission_is_graded_and_its_processes_are_counted():
    one = grading.grade(1, 1)
    assert one.wrong == () and one.submissions == 1 and 1.0 < one.cpu_s and one.wall_s > 1.0
