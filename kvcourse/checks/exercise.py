"""Every lesson: what an exercise is made of, as plain data. Knows nothing about how answers are checked; imports no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """One thing that the learner writes: a function (or class) in one cell, and the check under it."""

    name: str  # "6.2"
    title: str  # "mask"
    answers: str  # name of the function or class that the answer defines: "my_mask"
    cell: str  # id of the answer's cell
    check_cell: str  # id of the cell that checks it
    points: int = 1


@dataclass(frozen=True)
class Exercise:
    """One exercise notebook, and what its answers may use where they are graded."""

    file: str  # "06_kv_cache": the notebook's name without .ipynb
    tasks: tuple[Task, ...]
    preamble: str = "import torch\n"  # what an answer finds imported, as in the notebook
    may_import: tuple[str, ...] = ("torch", "numpy")  # beside Python's own library; all else is not there when graded
    withheld: tuple[str, ...] = ()  # dotted names taken out before grading: finished implementations of the answer

    @property
    def number(self) -> int:
        return int(self.file[:2])

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)
