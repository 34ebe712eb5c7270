"""Exercise 05: right answers that are written otherwise pass, and what follows the scored checks fails with a wrong piece."""

from pathlib import Path

import pytest
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise, find_task
from tools.kill_table import mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("05")
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / "05_wasted_work.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)

FAIR = {
    "5.1 formula": "def my_rows(prompt, new, layers, keep):\n"
    "    return layers * (prompt + new - 1 if keep else new * prompt + new * (new - 1) // 2)",
    "5.1 sum of a range": "def my_rows(prompt, new, layers, keep):\n"
    "    if keep:\n        return (prompt + new - 1) * layers\n    return sum(range(prompt, prompt + new)) * layers",
    "5.1 layer by layer": "def my_rows(prompt, new, layers, keep):\n    rows = 0\n    for layer in range(layers):\n"
    "        for i in range(new):\n            rows += prompt + i if not keep or i == 0 else 1\n    return rows",
    "5.2 two slices": "def my_reusable(first, second):\n"
    "    return [first[: i + 1] == second[: i + 1] for i in range(len(second))]",
    "5.2 counted first": "def my_reusable(first, second):\n    n = 0\n"
    "    while n < min(len(first), len(second)) and first[n] == second[n]:\n        n += 1\n"
    "    return n * [True] + (len(second) - n) * [False]",
    "5.2 of the library": "import os\n\ndef my_reusable(first, second):\n"
    "    n = len(os.path.commonprefix([first, second]))\n    return [i < n for i in range(len(second))]",
    "5.3 axis after axis": "def my_changed(one, two):\n    return (one != two).any(dim=-1).any(dim=1).any(dim=0)",
    "5.3 row by row": "def my_changed(one, two):\n"
    "    return torch.tensor([not torch.equal(one[:, :, t], two[:, :, t]) for t in range(one.shape[2])])",
    "5.3 turned twice": "def my_changed(one, two):\n    return ~(one == two).all(dim=3).all(dim=1).all(dim=0)",
    "5.3 differences": "def my_changed(one, two):\n    return (one - two).abs().amax(dim=(0, 1, 3)) > 0",
    "5.4 with the function of 5.3 inside": "def my_first_change(run, tokens, other):\n    a = run(tokens)\n"
    "    b = run(tokens[:-1] + [other])\n    for layer in range(len(a)):\n"
    "        if (a[layer] != b[layer]).any(dim=(0, 1, 3))[:-1].any():\n            return layer",
    "5.4 the other text first": "def my_first_change(run, tokens, other):\n    text = list(tokens)\n    text[-1] = other\n"
    "    b, a = run(text), run(tokens)\n"
    "    found = [i for i, (x, y) in enumerate(zip(a, b)) if (x != y)[..., :-1, :].any()]\n"
    "    return found[0] if found else None",
    "5.4 tuples": "def my_first_change(run, tokens, other):\n"
    "    a, b = run(tuple(tokens)), run((*tokens[:-1], other))\n"
    "    return next((i for i in range(len(a)) if not a[i][:, :, :-1].equal(b[i][:, :, :-1])), None)",
}


@pytest.mark.parametrize("name", FAIR)
def test_a_right_answer_passes_however_it_is_written(name):
    for seed in range(3):
        verdict = verdict_on(find_task(name.split()[0])[1], FAIR[name], seed)
        assert (verdict.state, verdict.held) == ("passed", verdict.properties), str(verdict)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to the small model, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "meter"):
        exec(CELLS[cell], names)
    return names


def test_the_reference_agrees_with_the_meter_and_the_model(exercise, capsys):
    names = dict(exercise)
    for cell in ("meter", "your-proof", "your-experiment"):
        exec(CELLS[cell], names)
    printed = capsys.readouterr().out
    assert printed.count("by the meter and by you\n") == 6 and printed.count("and the model agrees") == 3
    assert "with the causal mask: None · without: 1\n" in printed


@pytest.mark.parametrize(
    ("cell", "task", "mutant"),
    [
        ("meter", "5.1", "last token read, kept"),
        ("meter", "5.1", "keep always"),
        ("meter", "5.1", "tokens, not rows"),
        ("your-proof", "5.2", "place by place"),
        ("your-proof", "5.2", "known ids"),
        ("your-proof", "5.3", "never"),
        ("your-proof", "5.3", "turned round"),
        ("your-proof", "5.3", "axis of heads stays"),
        ("your-experiment", "5.4", "last row counted"),
        ("your-experiment", "5.4", "counted from 1"),
        ("your-experiment", "5.4", "learnt by heart"),
    ],
)
def test_what_follows_a_check_fails_in_one_line_for_a_wrong_answer(exercise, cell, task, mutant):
    names = dict(exercise)
    exec(MUTANTS[task][mutant][0], names)
    with fails_in_one_line():
        exec(CELLS[cell], names)
