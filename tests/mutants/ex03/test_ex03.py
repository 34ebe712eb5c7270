"""Exercise 03: right answers written otherwise pass; the proof in the model fails when one of the pieces is wrong."""

from pathlib import Path

import pytest
import torch
from helpers import fails_in_one_line

from kvcourse.checks.registry import find_exercise
from kvcourse.config import GPTConfig
from kvcourse.models.gpt import GPT
from tools.kill_table import mutants_of, verdict_on
from tools.notebooks.source import Source

ROOT = Path(__file__).resolve().parents[3]
EXERCISE = find_exercise("03")
TASKS = {task.name: task for task in EXERCISE.tasks}
CELLS = {cell.id: cell.source for cell in Source(ROOT, ROOT / "sources" / "exercises" / "03_gpt.py").cells}
MUTANTS = mutants_of(ROOT, EXERCISE)

NORM = "def my_layer_norm(x, weight, bias, eps):\n"
MLP = "def my_mlp(x, c_fc_w, c_fc_b, c_proj_w, c_proj_b):\n"
BLOCK = "def my_block(x, ln_1, attn, ln_2, mlp):\n"
GPT_ = "def my_gpt(tokens, wte, wpe, blocks, ln_f):\n"
COUNT = "def my_parameter_count(vocab_size, context_length, n_layer, n_embd, n_inner):\n"
FAIR = [
    ("3.1", NORM + "    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)\n"
     "    return torch.addcmul(bias, (x - mean) * torch.rsqrt(var + eps), weight)"),
    ("3.1", NORM + "    out = torch.empty_like(x)\n    for b in range(len(x)):\n        for t in range(x.shape[1]):\n"
     "            row = x[b, t]\n            mean = sum(row) / len(row)\n            var = sum((row - mean) ** 2) / len(row)\n"
     "            out[b, t] = (row - mean) / (var + eps) ** 0.5 * weight + bias\n    return out"),
    ("3.1", NORM + "    mean = x.mean(-1)[..., None]\n    var = (x**2).mean(-1)[..., None] - mean**2\n"
     "    return weight * (x - mean) / torch.sqrt(var.clamp(min=0) + eps) + bias"),
    ("3.2", MLP + "    h = torch.nn.functional.linear(x, c_fc_w.T, c_fc_b)\n"
     "    h = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)))\n"
     "    return torch.nn.functional.linear(h, c_proj_w.T, c_proj_b)"),
    ("3.2", MLP + "    h = torch.einsum('btc,cf->btf', x, c_fc_w)\n    h += c_fc_b\n"
     "    h = torch.nn.GELU(approximate='tanh')(h)\n    return torch.matmul(h, c_proj_w).add(c_proj_b)"),
    ("3.3", BLOCK + "    a = attn(ln_1(x))\n    m = mlp(ln_2(x + a))\n    return x + a + m"),
    ("3.3", BLOCK + "    x = x.clone()\n    x += attn(ln_1(x))\n    x += mlp(ln_2(x))\n    return x"),
    ("3.3", BLOCK + "    for norm, part in ((ln_1, attn), (ln_2, mlp)):\n        x = part(norm(x)) + x\n    return x"),
    ("3.4", GPT_ + "    B, T = tokens.shape\n    x = torch.nn.functional.embedding(tokens, wte)\n    x += wpe[None, :T]\n"
     "    for n in range(len(blocks)):\n        x = blocks[n](x)\n    return torch.nn.functional.linear(ln_f(x), wte)"),
    ("3.4", GPT_ + "    import functools\n    places = torch.arange(tokens.shape[-1]).expand_as(tokens)\n"
     "    x = functools.reduce(lambda x, block: block(x), blocks, wte[tokens] + wpe[places])\n"
     "    return torch.einsum('btc,vc->btv', ln_f(x), wte)"),
    ("3.5", COUNT + "    C, F = n_embd, n_inner\n"
     "    shapes = [(C, 3 * C), (3 * C,), (C, C), (C,), (C, F), (F,), (F, C)] + [(C,)] * 5\n"
     "    def numel(shape):\n        return shape[0] * (shape[1] if len(shape) == 2 else 1)\n"
     "    return n_layer * sum(map(numel, shapes)) + C * (vocab_size + context_length + 2)"),
    ("3.5", COUNT + "    C, F = n_embd, n_inner\n"
     "    return (vocab_size + context_length + 2) * C + n_layer * (4 * C * (C + 1) + 2 * C * F + F + 5 * C)"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "answer"), FAIR, ids=[f"{task} {n}" for n, (task, _) in enumerate(FAIR)])
def test_a_right_answer_written_otherwise_passes(task, answer):
    for seed in range(4):
        verdict = verdict_on(TASKS[task], answer, seed)
        assert verdict.state == "passed", str(verdict)


@pytest.fixture(scope="module")
def exercise():
    """The notebook up to the model, with the reference answers in place."""
    names: dict = {}
    for cell in ("imports", *(task.cell for task in EXERCISE.tasks), "tiny"):
        exec(CELLS[cell], names)
    return names


def prove(names: dict) -> None:
    for cell in ("your-parts", "given-attention", "your-model", "your-proof"):  # after the answers: names are looked up late
        exec(CELLS[cell], names)


def test_the_proof_in_the_model_holds_for_the_reference(exercise, capsys):
    prove(dict(exercise))
    assert "the logits of your GPT are the model's" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "mutant"),
    [
        ("3.1", "nothing"),
        ("3.1", "torch's own variance"),
        ("3.1", "RMS norm"),
        ("3.2", "exact GELU"),
        ("3.2", "no bend"),
        ("3.3", "no residual"),
        ("3.3", "parallel"),
        ("3.3", "post-norm"),
        ("3.4", "off by one: from 1"),
        ("3.4", "backwards"),
    ],
)
def test_the_proof_in_the_model_fails_for_a_wrong_piece(exercise, task, mutant):
    names = dict(exercise)
    exec(MUTANTS[task][mutant][0], names)
    with fails_in_one_line():
        prove(names)


def test_the_last_cell_fails_for_a_wrong_count(exercise):
    names = dict(exercise)
    exec(MUTANTS["3.5"]["last norm left out"][0], names)
    with pytest.raises(Exception, match="disagree"):
        exec(CELLS["sizes"], names)


def test_the_published_number_is_the_number_of_the_packages_model():
    from kvcourse.checks.ex03.count import GPT2_SMALL

    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in GPT(GPTConfig()).parameters()) == GPT2_SMALL
