"""A grader that runs nothing, for tests of what is around it: an answer is right if its source says so."""

import os
import time

from kvcourse.checks.registry import find_exercise
from kvcourse.grader.results import TaskResult


class FakeGrader:
    """Remembers what it was asked. `closed` counts calls of close."""

    made: list = []  # noqa: RUF012 (shared by all on purpose; a test clears it)

    def __init__(self, seed: int) -> None:
        self.seed, self.closed, self.asked = seed, 0, []
        self.protections: tuple[str, ...] = ()
        self.process = os.getpid()
        FakeGrader.made.append(self)

    def grade(self, exercise_file, answers, extra):
        self.asked.append(exercise_file)
        self.protections = ("no network", "own processes")
        if any(source and "# explode" in source for source in answers.values()):
            raise ValueError("the judge is gone")
        if any(source and "# slow" in source for source in answers.values()):
            time.sleep(0.2)
        return [self._one(task, answers.get(task.name)) for task in find_exercise(exercise_file).tasks]

    def _one(self, task, source):
        if source is None:
            return TaskResult(task.name, task.title, 0, task.points, f"{task.name} has no answer.", "missing")
        if "NotImplementedError" in source:
            return TaskResult(task.name, task.title, 0, task.points, f"{task.name} not started", "not started")
        if "# wrong" in source:
            return TaskResult(task.name, task.title, 0, task.points, f"{task.name} is <wrong>.", "failed", "is_right")
        return TaskResult(task.name, task.title, task.points, task.points, f"{task.name} {task.title}: 4/4", "passed")

    def close(self):
        self.closed += 1


class DeadlyGrader(FakeGrader):
    """Takes its process down with an answer that says so, as a machine that runs out of memory does."""

    def grade(self, exercise_file, answers, extra):
        if any(source and "# explode" in source for source in answers.values()):
            os._exit(1)
        return super().grade(exercise_file, answers, extra)
