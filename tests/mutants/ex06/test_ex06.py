"""Exercise 06's checks: the reference passes, and each wrong answer that learners really gave gets a sentence that fits it."""

from pathlib import Path

import pytest

from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / "06_kv_cache.py").cells}
ANSWERS = ("answer-append", "answer-mask", "answer-positions", "answer-decode")

APPEND = "def my_append(rows, layer, k, v):\n"
MASK = "def my_mask(past, T):\n"
POSITIONS = "def my_positions(past, T):\n"
DECODE = "def my_decode(model, prompt_ids, n, cache):\n"
JOIN = "    if layer in rows:\n        k, v = torch.cat((rows[layer][0], k), {axis}), torch.cat((rows[layer][1], v), {axis})\n"
LOOP = (
    "    new, tokens = [], list(prompt_ids)\n"
    "    for _ in range({n}):\n"
    "        tokens = [int(model(torch.tensor([tokens]), cache=cache)[0, -1].argmax())]\n"
    "        new += tokens\n"
)

WRONG = {
    "append": [
        (APPEND + JOIN.format(axis=0) + "    rows[layer] = (k, v)\n    return k, v", "Which axis"),
        (APPEND + JOIN.format(axis=1) + "    rows[layer] = (k, v)\n    return k, v", "Which axis"),
        (APPEND + JOIN.format(axis=-1) + "    rows[layer] = (k, v)\n    return k, v", "Which axis"),
        (APPEND + "    return k, v", "Nothing was stored"),
        (APPEND + "    rows[layer] = (k, v)\n    return k, v", "three new tokens only"),
        (APPEND + JOIN.format(axis=2) + "    rows[layer] = (k, v)", r"pair of tensors.*NoneType"),
        (APPEND + JOIN.format(axis=2) + "    rows[layer] = [k, v]\n    return k, v", r"rows\[0\] should be a pair.*list"),
        (APPEND + "    old = rows.get(layer, (k[:, :, :0], v[:, :, :0]))\n    rows[layer] = (k, v)\n"
         "    return torch.cat((old[0], k), 2), torch.cat((old[1], v), 2)", "holds something else"),
        (APPEND + JOIN.format(axis=2).replace("(rows[layer][0], k)", "(k, rows[layer][0])")
         + "    rows[layer] = (k, v)\n    return k, v", "in another order"),
        (APPEND + JOIN.format(axis=2) + "    rows[layer] = (v, k)\n    return v, k", "or the values"),
        (APPEND + "    if layer in rows:\n        k = torch.cat((rows[layer][0], k), 2)\n"
         "    rows[layer] = (k, v)\n    return k, v", "the values are not"),
        (APPEND + JOIN.format(axis=2).replace("layer", "0") + "    rows[0] = (k, v)\n    return k, v", r"no rows\[1\]"),
        (APPEND + "    if rows:\n        k = torch.cat((rows[layer][0], k), 2)\n    rows[layer] = (k, v)\n    return k, v",
         "stopped with KeyError"),
        (APPEND + "    first = layer not in rows\n    old = rows.get(layer)\n" + JOIN.format(axis=2)
         + "    rows[layer] = (k, v)\n    if not first:\n        old[0].zero_()\n    return k, v", "handed out before"),
    ],
    "mask": [
        (MASK + "    return torch.ones(T, T).tril().bool()", r"shape \(3, 5\); got \(3, 3\)"),
        (MASK + "    return torch.ones(T, past + T).tril()", "bool tensor; got torch.float32"),
        (MASK + "    return torch.ones(T, past + T).tril().bool()", "does not see all of the past"),
        (MASK + "    return torch.ones(T, past + T).bool()", r"may look at 1, 2, 3 and 4 tokens; yours at \[4, 4, 4, 4\]"),
        (MASK + "    return torch.ones(T, past + T).tril(past - 1).bool()", r"yours at \[0, 1, 2, 3\]"),
        (MASK + "    return torch.ones(T, past + T).tril(past + (past > 0)).bool()", "sees one that comes after it"),
        (MASK + "    return torch.arange(past + T) <= torch.arange(T)[:, None] + min(past, 2)", "with 5 cached and 1 new"),
        (MASK + "    return None", "bool tensor; got NoneType"),
    ],
    "positions": [
        (POSITIONS + "    return torch.arange(T)", "positions restart at every call"),
        (POSITIONS + "    return torch.arange(1, T + 1)", r"stand at 0, 1, 2; yours at \[1, 2, 3\]"),
        (POSITIONS + "    return torch.arange(past + T)", "one position for each new token"),
        (POSITIONS + "    return torch.arange(past, T)", "stopped with RuntimeError"),
        (POSITIONS + "    return torch.arange(max(past - 1, 0), max(past - 1, 0) + T)", r"stands at 6.*yours at \[5\]"),
        (POSITIONS + "    return torch.arange(past, past + T, dtype=torch.int32)", "int64 tensor; got torch.int32"),
        (POSITIONS + "    return list(range(past, past + T))", "int64 tensor; got list"),
        (POSITIONS + "    return torch.full((T,), past) if past else torch.arange(T)", "three new ones stand at 4, 5, 6"),
    ],
    "decode": [
        (DECODE + LOOP.format(n="n").replace(", cache=cache", "") + "    return new", "left out cache=cache"),
        (DECODE + LOOP.format(n="n").replace("torch.tensor([tokens])", "torch.tensor([list(prompt_ids) + new])")
         + "    return new", "pass what is new"),
        (DECODE + LOOP.format(n="n").replace("new, tokens = [], list(prompt_ids)", "new, tokens = [], prompt_ids")
         + "        prompt_ids += tokens\n    return new", "prompt_ids was changed"),
        (DECODE + LOOP.format(n="n + 1") + "    return new[:n]", "one call too many"),
        (DECODE + LOOP.format(n="n - 1") + "    return new", "8 new ids, without the prompt; got 7"),
        (DECODE + LOOP.format(n="n") + "    return list(prompt_ids) + new", "without the prompt; got 18"),
        (DECODE + LOOP.format(n="n") + "    return torch.tensor(new)", "list of ints; got Tensor"),
        (DECODE + LOOP.format(n="n").replace("[0, -1]", "[0, 0]") + "    return new", "first new id is wrong"),
        (DECODE + LOOP.format(n="n").replace("list(prompt_ids)", "list(prompt_ids[:-1])") + "    return new",
         "10 tokens, at once; it took 9"),
        (DECODE + "    model(torch.tensor([list(prompt_ids)]), cache=cache)\n"
         + LOOP.format(n="n").replace("list(prompt_ids)", "list(prompt_ids)[-1:]") + "    return new",
         "last token went in twice"),
        (DECODE + "    new, tokens = [], list(prompt_ids)\n    for _ in range(n):\n"
         "        token = int(model(torch.tensor([tokens]), cache=cache)[0, -1].argmax())\n"
         "        new, tokens = [*new, token], [7]\n    return new", "after the prompt, the calls took"),
        (DECODE + LOOP.format(n="n") + "    return [0] * n", "first new id is wrong"),
        (DECODE + LOOP.format(n="n") + "    return new[:1] * n", "the ids returned are not"),
    ],
}  # fmt: skip
CASES = [(task, answer, says) for task, answers in WRONG.items() for answer, says in answers]


@pytest.fixture(scope="module")
def exercise():
    """Everything the checks need, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", "call", *ANSWERS, "your-cache", "plain-loop"):
        exec(CELLS[cell], names)
    return names


@pytest.mark.parametrize("task", WRONG)
def test_the_reference_passes(exercise, task, capsys):
    exec(CELLS[f"check-{task}"], dict(exercise))
    assert capsys.readouterr().out.count("\n") == 1  # a check prints once


@pytest.mark.parametrize(("task", "answer", "says"), CASES, ids=[f"{task}-{i}" for i, (task, _, _) in enumerate(CASES)])
def test_a_wrong_answer_gets_the_sentence_that_fits_it(exercise, task, answer, says, capsys):
    names = dict(exercise)
    exec(answer, names)
    with pytest.raises(AssertionError, match=says):
        exec(CELLS[f"check-{task}"], names)
    assert capsys.readouterr().out == ""  # no count without a pass


@pytest.mark.parametrize("task", WRONG)
def test_an_empty_stub_says_that_it_was_not_written(exercise, task):
    names = dict(exercise)
    exec(f"def my_{task}(*arguments):\n    raise NotImplementedError('Exercise 6.0: write this function')", names)
    with pytest.raises(NotImplementedError, match="write this function"):
        exec(CELLS[f"check-{task}"], names)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("append", APPEND + JOIN.format(axis=2) + "    return 1, 2"),
        ("mask", MASK + "    return torch.ones(T, past + T).tril().bool()"),
        ("positions", POSITIONS + "    return torch.arange(T)"),
    ],
)
def test_the_proof_in_the_model_fails_for_a_wrong_piece(exercise, task, answer):
    names = dict(exercise)
    exec(answer, names)
    exec(CELLS["your-cache"], names)  # again: a class looks names up where it was made
    with pytest.raises(AssertionError, match=r"Your cache stopped|differ by"):
        exec(CELLS["your-proof"], names)
