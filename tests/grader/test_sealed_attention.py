"""Exercise 02, sealed: torch's finished attention is out of reach wherever it has a name that can be taken away; right answers
written in other ways pass; and an answer may lean on the learner's own earlier ones."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest
import torch

from kvcourse.checks.base import judge
from kvcourse.checks.ex02 import EXERCISE, WITHHELD
from kvcourse.checks.ex02.checks import PROPERTIES
from kvcourse.checks.local import LocalAnswer
from tools.kill_table import defined, solutions_of

ROOT = Path(__file__).resolve().parents[2]
SOLUTIONS = solutions_of(ROOT, EXERCISE)
TASKS = {task.name: task for task in EXERCISE.tasks}
HEADS = "def my_heads(q, k, v, n_head):\n    T, C = q.shape\n"
SPLIT = "    q, k, v = (x.view(T, n_head, -1).transpose(0, 1)[None] for x in (q, k, v))\n"
JOIN = "    return z[0].transpose(0, 1).reshape(T, C)"
SUM = "def my_weighted_sum(scores, v):\n"


def heads_by(call: str, imports: str = "") -> str:
    return imports + HEADS + SPLIT + f"    z = {call}\n" + JOIN


# By each of these an answer is right in a notebook, where nothing is withheld.
FINISHED = {
    "torch.nn.functional": heads_by("torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    "imported by name": heads_by(
        "attention(q, k, v, is_causal=True)", "from torch.nn.functional import scaled_dot_product_attention as attention\n"
    ),
    "torch._C._nn": heads_by("torch._C._nn.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    "by its parts' name": heads_by("torch._scaled_dot_product_attention_math(q, k, v, is_causal=True)[0]"),
    "the processor's own": heads_by("torch._scaled_dot_product_flash_attention_for_cpu(q, k, v, is_causal=True)[0]"),
    "torch.ops": heads_by("torch.ops.aten.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    "torch.ops, an overload": heads_by("torch.ops.aten.scaled_dot_product_attention.default(q, k, v, is_causal=True)"),
    "torch.ops, by its parts": heads_by("torch.ops.aten._scaled_dot_product_attention_math(q, k, v, is_causal=True)[0]"),
    "the operator itself": heads_by(
        "torch._C._jit_get_operation('aten::scaled_dot_product_attention')[0](q, k, v, is_causal=True)"
    ),
    "a layer": (
        HEADS + "    layer = torch.nn.MultiheadAttention(C, n_head, bias=False, dtype=q.dtype)\n"
        "    eye = torch.eye(C, dtype=q.dtype)\n"
        "    layer.in_proj_weight.data, layer.out_proj.weight.data = torch.cat((eye, eye, eye)), eye\n"
        "    mask = torch.ones(T, T).triu(1).bool()\n"
        "    return layer(q, k, v, attn_mask=mask)[0]"
    ),
    "the layer's function": (
        HEADS + "    eye, none = torch.eye(C, dtype=q.dtype), torch.zeros(3 * C, dtype=q.dtype)\n"
        "    mask = torch.ones(T, T).triu(1).bool()\n"
        "    return torch.nn.functional.multi_head_attention_forward(q, k, v, C, n_head, torch.cat((eye, eye, eye)), none,\n"
        "        None, None, False, 0.0, eye, none[:C], attn_mask=mask)[0]"
    ),
}
WEIGHED = SUM + "    eye = torch.eye(len(v), dtype=v.dtype)\n    return {}(scores, eye, v, scale=1.0)"
SUMS = {
    "torch.nn.functional": WEIGHED.format("torch.nn.functional.scaled_dot_product_attention"),
    "torch._C._nn": WEIGHED.format("torch._C._nn.scaled_dot_product_attention"),
}

FAIR = {
    "2.1": {
        "einsum": "def my_scores(q, k):\n    return torch.einsum('td,sd->ts', q, k) / q.size(-1) ** 0.5",
        "loops": (
            "import math\ndef my_scores(q, k):\n"
            "    return torch.stack([torch.stack([(a * b).sum() for b in k]) for a in q]) / math.sqrt(q.shape[1])"
        ),
        "numpy": (
            "import numpy as np\ndef my_scores(q, k):\n"
            "    return torch.from_numpy(q.numpy() @ k.numpy().T / np.sqrt(q.shape[1]).astype(q.numpy().dtype))"
        ),
        "scaled first": "def my_scores(q, k):\n    return (q * q.shape[1] ** -0.5) @ k.mT",
    },
    "2.2": {
        "added": "def my_masked(scores):\n    return scores + torch.full_like(scores, -torch.inf).triu(1)",
        "loops": (
            "def my_masked(scores):\n    scores = scores.clone()\n    for i in range(len(scores)):\n"
            "        scores[i, i + 1:] = float('-inf')\n    return scores"
        ),
        "where": (
            "def my_masked(scores):\n    seen = torch.ones_like(scores).tril() == 1\n"
            "    return torch.where(seen, scores, -torch.inf)"
        ),
    },
    "2.3": {
        "by hand": (
            SUM + "    powers = (scores - scores.amax(dim=1, keepdim=True)).exp()\n"
            "    return powers @ v / powers.sum(dim=1, keepdim=True)"
        ),
        "functional": "import torch.nn.functional as F\n" + SUM + "    return torch.matmul(F.softmax(scores, dim=-1), v)",
        "row by row": SUM + "    return torch.stack([(row.softmax(0)[:, None] * v).sum(0) for row in scores])",
        "logarithms": SUM + "    return (scores - scores.logsumexp(dim=1, keepdim=True)).exp() @ v",
    },
    "2.4": {
        "loop over slices": (
            HEADS + "    D, parts = C // n_head, []\n    for h in range(n_head):\n        own = slice(h * D, h * D + D)\n"
            "        scores = q[:, own] @ k[:, own].T / D ** 0.5 + torch.full((T, T), -torch.inf, dtype=q.dtype).triu(1)\n"
            "        parts.append(scores.softmax(-1) @ v[:, own])\n    return torch.cat(parts, dim=1)"
        ),
        "einsum": (
            HEADS + "    q, k, v = (x.reshape(T, n_head, C // n_head) for x in (q, k, v))\n"
            "    scores = torch.einsum('thd,shd->hts', q, k) / (C // n_head) ** 0.5\n"
            "    scores = scores.masked_fill(~torch.ones(T, T).tril().bool(), -torch.inf)\n"
            "    return torch.einsum('hts,shd->thd', scores.softmax(-1), v).reshape(T, C)"
        ),
        "vmap": (
            "def one(q, k, v):\n    seen = torch.ones(len(q), len(q)).tril().bool()\n"
            "    return (q @ k.T / q.shape[1] ** 0.5).where(seen, -torch.inf).softmax(-1) @ v\n"
            + HEADS
            + "    parts = (x.view(T, n_head, -1) for x in (q, k, v))\n"
            "    return torch.vmap(one, in_dims=1, out_dims=1)(*parts).reshape(T, C)"
        ),
    },
}
FAIR_CASES = [(task, name) for task, answers in FAIR.items() for name in answers]


def here(task: str, source: str) -> str:
    one = TASKS[task]
    return judge(task, one.title, PROPERTIES[task], LocalAnswer(defined(one, source), one.answers), 0).state


@pytest.mark.parametrize("way", FINISHED)
def test_finished_heads_pass_in_a_notebook_and_are_refused_when_sealed(sealed, way):
    assert here("2.4", FINISHED[way]) == "passed"
    got = {one.name: one for one in sealed.grade("02", {"2.4": FINISHED[way]}, [])}["2.4"]
    assert (got.state, got.points) == ("failed", 0)
    assert re.search(r"has no attribute|ImportError|NameError", got.message), got.message


@pytest.mark.parametrize("way", SUMS)
def test_a_finished_weighted_sum_is_refused_when_sealed(sealed, way):
    """Scores for queries and a table of ones for keys make it one."""
    got = {one.name: one for one in sealed.grade("02", {"2.3": SUMS[way]}, [])}["2.3"]
    assert (got.state, got.points) == ("failed", 0) and "has no attribute" in got.message


def test_an_attention_that_has_to_be_imported_first_is_refused_when_sealed(sealed):
    flex = heads_by(
        "flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(j <= i, s, -torch.inf))",
        "from torch.nn.attention.flex_attention import flex_attention\n",
    )
    got = {one.name: one for one in sealed.grade("02", {"2.4": flex}, [])}["2.4"]
    assert (got.state, got.points) == ("failed", 0)
    assert re.search("ImportError|NameError|AttributeError", got.message), got.message


def test_the_reference_gets_full_points_sealed(sealed):
    results = sealed.grade("02", SOLUTIONS, [])
    assert [(one.state, one.points) for one in results] == [("passed", task.points) for task in EXERCISE.tasks]


@pytest.mark.parametrize(("task", "name"), FAIR_CASES, ids=[f"{task} {name}" for task, name in FAIR_CASES])
def test_a_right_answer_written_otherwise_passes_here_and_sealed(sealed, task, name):
    source = FAIR[task][name]
    assert here(task, source) == "passed"
    got = {one.name: one for one in sealed.grade("02", {task: source}, [])}[task]
    assert got.state == "passed", got.message


def test_heads_may_be_made_of_the_learner_s_own_earlier_answers(sealed):
    own = HEADS + (
        "    parts = zip(*(x.chunk(n_head, dim=1) for x in (q, k, v)))\n"
        "    return torch.cat([my_weighted_sum(my_masked(my_scores(q, k)), v) for q, k, v in parts], dim=1)"
    )
    got = {one.name: one for one in sealed.grade("02", {**SOLUTIONS, "2.4": own}, [])}["2.4"]
    assert got.state == "passed", got.message


def test_every_name_of_finished_attention_in_torch_is_withheld():
    """What this version of torch has under such a name, in the places where names can be taken out."""
    places = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.modules", "torch.nn.modules.activation")
    places += ("torch.nn.modules.transformer", "torch._C._nn")
    finished = re.compile(
        r"attention(_forward|_math\w*|_for_cpu|_no_dropout_inplace)?$|^Transformer|^_transformer_\w+_fwd$", re.I
    )
    found = {
        f"{place}.{name}"
        for place in places
        for name in dir(importlib.import_module(place) if place != "torch._C._nn" else torch._C._nn)
        if finished.search(name) and name not in ("attention", "transformer")  # modules of helpers
    }
    found = {name for name in found if callable(reduce(getattr, name.split(".")[1:], torch))}
    assert len(found) > 20
    assert found - set(WITHHELD) == set()
