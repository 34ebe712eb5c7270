"""Maintainers only: writes docs/mutants.md, which wrong answer each check refuses, and with which words.

Knows nothing about any exercise: answers come from sources/exercises/, wrong ones from tests/mutants/exNN/mutants.py.

python -m tools.kill_table            write it
python -m tools.kill_table --check    exit 1 if it is out of date
"""

import argparse
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kvcourse.checks.base import Verdict, judge
from kvcourse.checks.exercise import Exercise, Task
from kvcourse.checks.local import LocalAnswer
from kvcourse.checks.registry import EXERCISES, find_task, properties_of
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[1]
PAGE = "docs/mutants.md"
INTRODUCTION = """\
# Mutants: is each check able to fail?

Every wrong answer that we know of is run under its check (seed 0). This page is the outcome: the first property that refused it
and what the learner is told. Written by `python -m tools.kill_table`; do not edit.
"""

Mutants = Mapping[str, tuple[str, str]]  # name: source, regular expression of the message


def solutions_of(root: Path, exercise: Exercise) -> dict[str, str]:
    """The reference answer to each task, as the source has it."""
    cells = {cell.id: cell.source for cell in Source(root, root / "sources" / "exercises" / f"{exercise.file}.py").cells}
    return {task.name: cells[task.cell] for task in exercise.tasks}


def mutants_of(root: Path, exercise: Exercise) -> Mapping[str, Mutants]:
    """The wrong answers to each task."""
    return _beside(root, exercise)["MUTANTS"]


def fair_variants_of(root: Path, exercise: Exercise) -> Mapping[str, Mapping[str, str]]:
    """Right answers to each task that are written otherwise, by name, where the exercise keeps some beside its mutants."""
    return _beside(root, exercise)["FAIR"]


def _beside(root: Path, exercise: Exercise) -> dict[str, Any]:
    return runpy.run_path(str(root / "tests" / "mutants" / f"ex{exercise.number:02d}" / "mutants.py"))


def defined(task: Task, source: str) -> Callable[..., Any]:
    """The function that an answer's source defines."""
    names: dict[str, Any] = {}
    exec(find_task(task.name)[0].preamble, names)
    exec(source, names)
    return names[task.answers]


def verdict_on(task: Task, source: str, seed: int = 0) -> Verdict:
    """What a check says about an answer."""
    return judge(task.name, task.title, properties_of(task), LocalAnswer(defined(task, source), task.answers), seed)


def page(root: Path, say: Callable[[Task, str], Verdict] = verdict_on) -> str:
    """docs/mutants.md. `say`: what a check says about an answer."""
    parts = [INTRODUCTION]
    for exercise in EXERCISES:
        mutants = mutants_of(root, exercise)
        for task in exercise.tasks:
            parts.append(f"## {task.name} {task.title}\n")
            parts.append("| wrong answer | property that refuses it | what the learner reads |\n|---|---|---|")
            parts += [_row(name, say(task, source)) for name, (source, _) in mutants[task.name].items()]
            parts.append("")
    return "\n".join(parts)


def _row(name: str, verdict: Verdict) -> str:
    message = verdict.message or "passes"
    message = re.sub(r"(stopped with \w+): .*", r"\1: ...", message)  # torch's own words change from version to version
    return f"| {name} | `{verdict.broken}` | {message} |".replace("\\", "\\\\")


def main() -> int:
    parser = argparse.ArgumentParser(description=f"Write {PAGE}.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it is out of date")
    check = parser.parse_args().check
    path, text = ROOT / PAGE, page(ROOT)
    current = path.is_file() and path.read_text(encoding="utf-8") == text
    if check and not current:
        print(f"{PAGE} is out of date: run python -m tools.kill_table", file=sys.stderr)
        return 1
    if not current:
        path.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
