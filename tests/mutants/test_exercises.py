"""Every exercise: its reference passes its checks, whatever the draws; each of its mutants is refused, with the sentence that
fits it."""

import importlib.util
import re
from functools import cache
from pathlib import Path

import pytest

from kvcourse.checks.base import Verdict, judge
from kvcourse.checks.local import LocalAnswer
from kvcourse.checks.registry import EXERCISES, properties_of
from tools import kill_table
from tools.kill_table import defined, mutants_of, solutions_of, verdict_on

ROOT = Path(__file__).resolve().parents[2]
TASKS = {task.name: task for exercise in EXERCISES for task in exercise.tasks}
SOLUTIONS = {name: text for exercise in EXERCISES for name, text in solutions_of(ROOT, exercise).items()}
MUTANTS = {name: mutants for exercise in EXERCISES for name, mutants in mutants_of(ROOT, exercise).items()}
CASES = [(task, name) for task, mutants in MUTANTS.items() for name in mutants]
EVERY_TASK = pytest.mark.parametrize("task", TASKS)


@cache
def on(task: str, source: str, seed: int = 0) -> Verdict:
    return verdict_on(TASKS[task], source, seed)


@EVERY_TASK
def test_the_reference_passes_whatever_is_drawn(task, full_counts):
    for seed in range(21 if full_counts else 6):
        verdict = on(task, SOLUTIONS[task], seed)
        assert (verdict.state, verdict.held) == ("passed", verdict.properties), f"seed {seed}: {verdict}"


@EVERY_TASK
def test_a_check_says_the_same_each_time(task):
    for source in (SOLUTIONS[task], *(source for source, _ in list(MUTANTS[task].values())[:3])):
        assert str(verdict_on(TASKS[task], source)) == str(verdict_on(TASKS[task], source))


@pytest.mark.parametrize(("task", "name"), CASES, ids=[f"{task} {name}" for task, name in CASES])
def test_a_mutant_is_refused_with_the_sentence_that_fits_it(task, name, full_counts):
    source, says = MUTANTS[task][name]
    verdict = on(task, source)
    assert verdict.state == "failed" and verdict.broken and verdict.message, str(verdict)
    assert re.search(says, verdict.message), verdict.message
    for seed in range(1, 6 if full_counts else 2):  # the draws decide about the numbers in a message, not about the verdict
        assert on(task, source, seed).state == "failed"


@EVERY_TASK
def test_there_are_at_least_four_mutants_and_different_ones_get_different_messages(task):
    messages = {name: on(task, source).message for name, (source, _) in MUTANTS[task].items()}
    assert len(messages) >= 4
    assert len(set(messages.values())) >= max(4, len(messages) // 2), messages


@EVERY_TASK
def test_every_property_of_a_task_is_the_first_to_refuse_some_mutant(task):
    """A property that no mutant needs is not known to work."""
    broken = {on(task, source).broken for source, _ in MUTANTS[task].values()}
    assert {prop.__name__ for prop in properties_of(TASKS[task])} - broken == set()


@EVERY_TASK
def test_an_empty_stub_is_not_started_and_one_that_fails_in_torch_is(task):
    header = SOLUTIONS[task].split("\n")[0]
    for raised in (
        f'NotImplementedError("Exercise {task}: write this function")',
        "NotImplementedError",
        "NotImplementedError()",
    ):
        assert on(task, f"{header}\n    raise {raised}").state == "not started"
    verdict = on(task, f"{header}\n    raise NotImplementedError('Could not run this on that device.')")
    assert verdict.state == "failed" and "stopped with NotImplementedError: Could not run" in str(verdict.message)


@EVERY_TASK
def test_a_recording_of_right_results_is_refused_with_another_seed(task):
    """An answer that knows every result of seed 0 by heart, and gives them in order."""
    one, results = TASKS[task], []
    right = defined(one, SOLUTIONS[task])

    def record(*args):
        results.append(right(*args))
        return results[-1]

    def replay(*args):
        return results.pop(0) if results else None

    properties = properties_of(one)
    assert judge(task, one.title, properties, LocalAnswer(record, one.answers), 0).state == "passed"
    assert len(results) > 4
    assert judge(task, one.title, properties, LocalAnswer(replay, one.answers), 1).state == "failed"


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.file)
def test_the_checks_import_no_solution(exercise):
    """What learners have installed knows the answers by their properties only."""
    found = importlib.util.find_spec(f"kvcourse.checks.ex{exercise.number:02d}")
    assert found and found.submodule_search_locations
    texts = [path.read_text(encoding="utf-8") for path in Path(found.submodule_search_locations[0]).glob("*.py")]
    for task in exercise.tasks:
        assert not any(f"def {task.answers}" in text for text in texts)


def test_the_kill_table_is_current():
    committed = (ROOT / kill_table.PAGE).read_text(encoding="utf-8")
    assert committed == kill_table.page(ROOT, lambda task, source: on(task.name, source)), "run: python -m tools.kill_table"
    assert "| passes |" not in committed
