"""Every lesson: the instructor's page, one file that needs no network and no JavaScript. Knows nothing about how it was graded.

It answers three questions in the order in which they come up: how did the class do, what should be taught again, and what
happened to this learner. All text is escaped by Jinja: names and messages come from learners.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kvcourse
from kvcourse.grader.results import SubmissionResult, TaskResult

# The roles of viz/style.py, which cannot be imported here: it brings matplotlib. A test keeps them equal.
INK, MUTED, GRID = "#1F2430", "#5F6673", "#E3E6EB"
GREEN, GREEN_TEXT, AMBER, AMBER_TEXT, BLUE_TEXT = "#66CC66", "#15803D", "#FFCC4D", "#8A6100", "#3B3BD6"

# Each state is told by a mark, a word and a colour.
MARKS = {"passed": "✓", "partly": "◐", "failed": "✗", "not started": "○", "missing": "∅", "none": "–"}
WORDS = {
    "passed": "passed",
    "partly": "part of the points",
    "failed": "a property does not hold",
    "not started": "still the stub",
    "missing": "no answer in the notebook",
    "none": "not handed in, or not graded",
}


@dataclass(frozen=True)
class Cell:
    """One field of the heat map."""

    state: str
    points: str
    tip: str

    @property
    def mark(self) -> str:
        return MARKS[self.state]

    @property
    def kind(self) -> str:
        """Its CSS class."""
        return self.state.replace(" ", "-")


@dataclass(frozen=True)
class Difficulty:
    """A property that some did not have: what to teach again."""

    name: str  # "sees all of the past"
    learners: tuple[str, ...]
    example: str


@dataclass(frozen=True)
class TaskSummary:
    name: str
    title: str
    max_points: int
    passed: int
    not_started: int
    of: int
    difficulties: tuple[Difficulty, ...]  # the most frequent first

    @property
    def share(self) -> int:
        return round(100 * self.passed / self.of) if self.of else 0


def html_page(results: Sequence[SubmissionResult]) -> str:
    """The whole page as text."""
    tasks = summaries(results)
    graded = [result for result in results if result.exercises]
    return _template().render(
        results=list(enumerate(results, 1)),
        tasks=tasks,
        rows={number: [heat(result, task) for task in tasks] for number, result in enumerate(results, 1)},
        graded=graded,
        look=[(number, result) for number, result in enumerate(results, 1) if result.fault or result.look],
        mean=mean_points(results),
        most=max((result.max_points for result in graded), default=0),
        full=sum(result.points == result.max_points for result in graded),
        seeds=sorted({result.seed for result in results}),
        protections=Counter(result.protections for result in graded).most_common(),
        marks=MARKS,
        words=WORDS,
        version=kvcourse.__version__,
        ink=INK,
        muted=MUTED,
        grid=GRID,
        green=GREEN,
        green_text=GREEN_TEXT,
        amber=AMBER,
        amber_text=AMBER_TEXT,
        blue_text=BLUE_TEXT,
    )


def mean_points(results: Sequence[SubmissionResult]) -> float:
    """Over the submissions of which something could be graded."""
    graded = [result.points for result in results if result.exercises]
    return sum(graded) / len(graded) if graded else 0.0


def heat(result: SubmissionResult, task: TaskSummary) -> Cell:
    """How one submission stands in one task."""
    found = [one for one in result.exercises if one.name == task.name]
    if not found:
        return Cell("none", "", WORDS["none"])
    state = "partly" if 0 < found[0].points < found[0].max_points else found[0].state
    state = state if state in MARKS else "failed"
    return Cell(state, str(found[0].points), found[0].message or WORDS[state])


def summaries(results: Sequence[SubmissionResult]) -> list[TaskSummary]:
    """One summary a task, in the order of the exercises."""
    by_task: dict[str, list[tuple[str, TaskResult]]] = defaultdict(list)
    for result in results:
        for task in result.exercises:
            by_task[task.name].append((result.submission, task))
    return [_summary(name, by_task[name]) for name in task_names(results)]


def _summary(name: str, seen: list[tuple[str, TaskResult]]) -> TaskSummary:
    broken: dict[str, list[tuple[str, TaskResult]]] = defaultdict(list)
    for learner, task in seen:
        if task.broken and task.points < task.max_points:
            broken[task.broken].append((learner, task))
    ordered = sorted(broken.items(), key=lambda item: (-len(item[1]), item[0]))
    return TaskSummary(
        name=name,
        title=seen[0][1].title,
        max_points=max(task.max_points for _, task in seen),
        passed=sum(task.state == "passed" for _, task in seen),
        not_started=sum(task.state in ("not started", "missing") for _, task in seen),
        of=len(seen),
        difficulties=tuple(
            Difficulty(prop.replace("_", " "), tuple(who for who, _ in those), those[0][1].message) for prop, those in ordered
        ),
    )


def task_names(results: Sequence[SubmissionResult]) -> list[str]:
    """All tasks that occur, 6.10 after 6.9."""
    names = {task.name for result in results for task in result.exercises}
    return sorted(names, key=lambda name: [(int(part), "") if part.isdecimal() else (0, part) for part in name.split(".")])


@cache
def _template() -> Any:
    import jinja2

    text = Path(__file__).with_name("page.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text)
