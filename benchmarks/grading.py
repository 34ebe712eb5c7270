"""Every lesson: how much a submission costs to grade, sealed. Knows nothing about grading: it runs the command and counts.

    python -m benchmarks.grading                 60 submissions, and 1: the difference is what the other 59 cost
    python -m benchmarks.grading --jobs 1

Points first: every learner of the made-up class must get what they deserve before any time is shown. One of the class never
ends, and costs the 10 s that an answer may take; what a second judge costs to start is in the further submissions too.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processor
from kvcourse.grader.pool import cores
from kvcourse.meter import device_name

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "grader"))
from cohort import make_cohort  # the class that the tests grade


@dataclass(frozen=True)
class Run:
    """One `kvcourse grade`."""

    submissions: int
    wall_s: float
    cpu_s: float
    counted_by: str
    wrong: tuple[str, ...]  # learners whose points are not the ones that they deserve


def grade(n: int, jobs: int) -> Run:
    """Make a class of n and grade it."""
    with tempfile.TemporaryDirectory() as folder:
        deserved = make_cohort(Path(folder) / "class", n)
        command = [sys.executable, "-m", "kvcourse", "grade", f"{folder}/class", "--out", f"{folder}/report", "--seed", "0"]
        began = time.monotonic()
        cpu, counted_by = processor.run([*command, "--jobs", str(jobs)])
        wall = time.monotonic() - began
        report = json.loads((Path(folder) / "report" / "report.json").read_text(encoding="utf-8"))
    points = {one["submission"]: None if one["fault"] else one["points"] for one in report}
    wrong = tuple(name for name in deserved if points.get(name, "not there") != deserved[name])
    return Run(n, wall, cpu, counted_by, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--submissions", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    first, all_of_them = grade(1, 1), grade(options.submissions, options.jobs)
    wrong = [*first.wrong, *all_of_them.wrong]
    if wrong:
        print(f"Wrong points for {', '.join(wrong)}: no time means anything.", file=sys.stderr)
        return 1
    figures = {
        "device": device_name(),
        "submissions": all_of_them.submissions,
        "jobs": options.jobs,
        "wall_s": round(all_of_them.wall_s, 1),
        "first_cpu_s": round(first.cpu_s, 2),
        "cpu_s_per_further_submission": round((all_of_them.cpu_s - first.cpu_s) / max(1, options.submissions - 1), 3),
        "counted_by": all_of_them.counted_by,
        "submissions_per_s_per_core": round(all_of_them.submissions / all_of_them.wall_s / options.jobs, 3),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:30} {value}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
