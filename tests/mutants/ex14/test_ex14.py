"""Exercise 14: right answers that are written otherwise pass, and what is known by heart does not; and the proofs on the zoo,
after the scored checks, hold for the reference and fail with a wrong piece."""

import pytest
import torch
from exercise_runs import ROOT, ExerciseRun

from kvcourse.checks.base import Draw, Verdict, judge
from kvcourse.checks.ex14 import EXERCISE, diagnosis
from kvcourse.checks.ex14.admitted import everybody
from kvcourse.checks.ex14.trials import Trial, right_ones, text
from kvcourse.checks.local import LocalAnswer
from kvcourse.checks.registry import properties_of
from kvcourse.zoo import symptoms
from tools.kill_table import defined, solutions_of, verdict_on

RUN = ExerciseRun("14", before=("imports", "ward", "answers", "tests"), proofs=("rounds", "tests-proof"))


@pytest.mark.parametrize(("task", "name"), RUN.every_fair)
def test_a_right_answer_passes_however_it_is_written(task, name):
    RUN.assert_passes(task, name)


def reference(task: str) -> str:
    return solutions_of(ROOT, EXERCISE)[task]


def judged(task: str, answer, seed: int) -> Verdict:
    one = RUN.tasks[task]
    return judge(task, one.title, properties_of(one), LocalAnswer(answer, one.answers), seed)


def beginning(chart: dict) -> tuple:
    return tuple(chart.values())[:4]


@pytest.mark.parametrize(
    ("part", "draws"), [(dict.values, 8), (beginning, 2)], ids=["whole charts of eight draws", "first lines of two"]
)
def test_diagnoses_learned_by_heart_from_other_draws_are_refused(part, draws):
    """Charts are not reshuffled, they are others: who knows every one of these draws does not know the next."""
    right, table = defined(RUN.tasks["14.1"], reference("14.1")), {}

    def learn(charts):
        keys = right(charts)
        table.update((tuple(part(chart)), keys[room]) for room, chart in charts.items())
        return keys

    def recite(charts):
        return {room: table.get(tuple(part(chart))) for room, chart in charts.items()}

    for seed in range(draws):
        assert judged("14.1", learn, seed).state == "passed"
        assert judged("14.1", recite, seed).state == "passed"
    for seed in (draws, draws + 1):
        assert judged("14.1", recite, seed).state == "failed"


def test_whatever_can_be_drawn_shows_the_fault_that_it_is_drawn_for(full_counts):
    right = defined(RUN.tasks["14.1"], reference("14.1"))
    charts = {patient: symptoms(patient).readings for patient in everybody()[:: 1 if full_counts else 5]}
    assert right(charts) == {patient: patient.key for patient in charts}
    assert {patient.key for patient in charts} == set(diagnosis.KEYS)
    assert len({tuple(chart.values()) for chart in charts.values()}) > len(charts) // 3


def test_no_bound_between_rounding_and_what_is_not_equal_is_refused():
    for bound in ("1e-14", "1e-10"):
        for task in ("14.2", "14.3", "14.4"):
            assert verdict_on(RUN.tasks[task], reference(task).replace("1e-9", bound)).state == "passed", (task, bound)


def test_a_right_cache_is_off_by_what_the_text_says_and_never_by_nothing():
    off = []

    def measure(model, new, ids):
        tokens = torch.tensor([ids])
        for size in range(1, len(ids) + 1):
            cache = new()
            got = torch.cat([model(piece, cache=cache) for piece in tokens.split(size, dim=1)], dim=1)
            off.append(float((got - model(tokens)).abs().max()))
        return True

    for seed in range(5):
        for case in right_ones():
            Trial(LocalAnswer(measure, "my_equal"), case, text(Draw(seed, "14.2"), 8))
    assert 0 < min(off) and 5e-15 < max(off) < 1e-14
    assert "off by some 1e-14" in RUN.cells["task-equal-rounding"]


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to its proofs, with the reference answers in place."""
    RUN.start()
    return RUN


def test_the_proofs_hold_for_the_reference(exercise, capsys):
    exercise.prove()
    shown = capsys.readouterr().out
    assert "two rooms are right; in the others: dtype, layers, mask, positions, unused" in shown
    assert "three right kinds pass all three tests" in shown
    assert "logits: BCFGKQ found, 6 left\ncuts: J found, 5 left\nforks: N found, 4 left" in shown


@pytest.mark.parametrize("task", RUN.fair)
def test_the_proofs_print_the_same_for_right_answers_written_otherwise(exercise, task, capsys):
    exercise.assert_proofs_print_the_same(task, capsys)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("14.1", "everybody is ill"),
        ("14.1", "masks first"),
        ("14.1", "nearly is off"),
        ("14.1", "equal is well"),
        ("14.2", "equal to the last bit"),
        ("14.2", "one cache for all sizes"),
        ("14.2", "single steps only"),
        ("14.2", "one pass only"),
        ("14.3", "without the cache"),
        ("14.3", "from 1 on"),
        ("14.4", "a cache for the fork"),
        ("14.4", "one to its end, then the other"),
        ("14.4", "both the same way"),
    ],
)
def test_a_proof_fails_for_a_wrong_piece(exercise, task, name):
    exercise.assert_proofs_fail(task, name)
