"""An exercise's notebook run up to its proofs and through them, with the reference answers or with others in their place."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from tools.kill_table import fair_variants_of, mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[1]


class ExerciseRun:
    """before: cells that the proofs need, in order; "answers" stands for those of all tasks. proofs: the cells that prove."""

    def __init__(self, number: str, before: Iterable[str], proofs: Iterable[str]) -> None:
        exercise = find_exercise(number)
        self.tasks = {task.name: task for task in exercise.tasks}
        answers = [task.cell for task in exercise.tasks]
        self.before = [cell for name in before for cell in (answers if name == "answers" else [name])]
        self.proofs = list(proofs)
        source = Source(ROOT, ROOT / "sources" / "exercises" / f"{exercise.file}.py")
        self.cells = {cell.id: cell.source for cell in source.cells}
        self.mutants, self.fair = mutants_of(ROOT, exercise), fair_variants_of(ROOT, exercise)
        self.every_fair = [(task, name) for task, variants in self.fair.items() for name in variants]
        self.names: dict[str, Any] = {}

    def start(self) -> None:
        """Run what stands before the proofs, with the reference answers."""
        self.names.clear()
        for cell in self.before:
            exec(self.cells[cell], self.names)

    def prove(self, *answers: str) -> None:
        """Run the proofs, with these answers in place of the reference's, which are back afterwards."""
        right = {task.answers: self.names[task.answers] for task in self.tasks.values()}
        try:
            for source in answers:
                exec(source, self.names)
            for cell in self.proofs:
                exec(self.cells[cell], self.names)
        finally:
            self.names.update(right)

    def assert_passes(self, task: str, name: str) -> None:
        """A right answer that is written otherwise has all its properties."""
        for seed in range(3):
            verdict = verdict_on(self.tasks[task], self.fair[task][name], seed)
            assert (verdict.state, verdict.held) == ("passed", verdict.properties), str(verdict)

    def assert_proofs_fail(self, task: str, mutant: str) -> None:
        """A wrong answer makes a proof fail, in one line and as a check."""
        with fails_in_one_line():
            self.prove(self.mutants[task][mutant][0])

    def assert_proofs_print_the_same(self, task: str, capsys: Any) -> None:
        """Their outputs are compared with the reference's when a notebook is graded."""
        self.prove()
        reference = capsys.readouterr().out
        for source in self.fair[task].values():
            self.prove(source)
            assert capsys.readouterr().out == reference
