"""Every lesson: what became of a submission, as plain data. Knows nothing about how it was found out, and imports no torch."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TaskResult:
    """One task of one submission."""

    name: str  # "6.2"
    title: str  # "mask"
    points: int
    max_points: int
    message: str  # one or two sentences, for the learner
    state: str  # "passed" | "failed" | "not started" | "missing"
    broken: str | None = None  # name of the first property that did not hold


@dataclass(frozen=True)
class SubmissionResult:
    """One submission: a notebook, or a learner's folder of notebooks."""

    submission: str  # name of its folder or file
    exercises: tuple[TaskResult, ...] = ()
    notes: tuple[str, ...] = ()  # what a learner or instructor should know: an id was lost, a cell was ignored
    look: tuple[str, ...] = ()  # those of the notes that an instructor should look into: which of two notebooks counted
    fault: str | None = None  # why it could not be graded at all, or in part
    protections: tuple[str, ...] = ()  # what each worker was held by
    seed: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def points(self) -> int:
        return sum(task.points for task in self.exercises)

    @property
    def max_points(self) -> int:
        return sum(task.max_points for task in self.exercises)
