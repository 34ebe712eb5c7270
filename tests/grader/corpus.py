"""Hostile and unlucky submissions: the solved exercise with one small edit each, and which tasks that may cost.

An edit changes a notebook, as a dict, and may write files into the folder that it is handed in from. What it does not name in
`lost` has to keep its full points.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvcourse.checks.cells import canonical_notebook
from kvcourse.checks.registry import find_exercise

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = find_exercise("06")
TASKS = {task.name: task for task in EXERCISE.tasks}
ALL = tuple(TASKS)
Notebook = dict
Edit = Callable[[Notebook, Path], None]


@dataclass(frozen=True)
class Entry:
    name: str
    edit: Edit
    lost: tuple[str, ...] = ()  # tasks that earn nothing
    refused: bool = False  # no notebook at all: SubmissionError
    says: str = ""  # in the message of the first lost task


CORPUS: list[Entry] = []


def entry(name: str, *, lost: tuple[str, ...] | str = (), refused: bool = False, says: str = "") -> Callable[[Edit], Edit]:
    def add(edit: Edit) -> Edit:
        CORPUS.append(Entry(name, edit, (lost,) if isinstance(lost, str) else lost, refused, says))
        return edit

    return add


def solved() -> Notebook:
    """Our exercise with the reference answers filled in, as a learner's notebook."""
    notebook = copy.deepcopy(canonical_notebook(EXERCISE))
    solutions = json.loads((ROOT / "solutions" / f"{EXERCISE.file}.ipynb").read_text(encoding="utf-8"))
    text = {one["id"]: one["source"] for one in solutions["cells"]}
    for task in EXERCISE.tasks:
        cell(notebook, task.cell)["source"] = text[task.cell]
    return notebook


def cell(notebook: Notebook, cell_id: str) -> dict:
    return next(one for one in notebook["cells"] if one.get("id") == cell_id)


def answer(notebook: Notebook, task: str) -> dict:
    return cell(notebook, TASKS[task].cell)


def check(notebook: Notebook, task: str) -> dict:
    return cell(notebook, TASKS[task].check_cell)


def code(source: str, cell_id: str) -> dict:
    return {"cell_type": "code", "id": cell_id, "metadata": {}, "execution_count": None, "outputs": [], "source": source}


def extra(notebook: Notebook, source: str, cell_id: str = "my-own") -> None:
    """A cell of the learner's own, before all answers."""
    notebook["cells"].insert(1, code(source, cell_id))


def text(one: dict) -> str:
    return "".join(one["source"])


def stream(words: str) -> dict:
    return {"output_type": "stream", "name": "stdout", "text": words}


WRONG = "    return torch.ones(T, past + T, dtype=torch.bool)\n"


def mask(body: str, before: str = "") -> str:
    """A cell for 6.2 that does something first, and then is wrong."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").split("\n"))
    return f"{before}def my_mask(past, T):\n{lines}{WRONG}"


def hostile(name: str, body: str, *, before: str = "", says: str = "") -> None:
    """An answer to 6.2 that tries something instead of being right."""

    @entry(name, lost="6.2", says=says)
    def edit(notebook: Notebook, folder: Path) -> None:
        answer(notebook, "6.2")["source"] = mask(body, before)


def odd(name: str, edit_answer: Callable[[str], str]) -> None:
    """A right answer to 6.2 in odd clothing."""

    @entry(name)
    def edit(notebook: Notebook, folder: Path) -> None:
        one = answer(notebook, "6.2")
        one["source"] = edit_answer(text(one))


# Right answers in odd clothing.


@entry("the solution")
def _(notebook: Notebook, folder: Path) -> None:
    pass


@entry("wrong kernel name")
def _(notebook: Notebook, folder: Path) -> None:
    notebook["metadata"]["kernelspec"] = {"name": "julia-1.9", "display_name": "Julia", "language": "julia"}
    notebook["metadata"]["language_info"] = {"name": "julia"}


@entry("extra cells, with a helper that an answer calls")
def _(notebook: Notebook, folder: Path) -> None:
    extra(
        notebook, "import numpy as np\nOFFSET = int(np.int64(0))\ndef upto(past, T):\n    return past + T + OFFSET\nupto(2, 3)"
    )
    answer(notebook, "6.3")["source"] = "def my_positions(past, T):\n    return torch.arange(past, upto(past, T))"
    notebook["cells"].append({"cell_type": "markdown", "id": "notes", "metadata": {}, "source": "My notes"})


odd("echoed values and prints", lambda s: "print('hello')\n'a value'\n" + s + "\nprint(my_mask(2, 3))\nmy_mask(2, 3)\n")
odd("own prints in the function", lambda s: s.replace("    rows =", "    print('here', past, T)\n    rows ="))
odd("%%time first", lambda s: "%%time\n" + s)
odd(
    "unknown magics and shell lines",
    lambda s: "%frobnicate on\n!pip install torch\n" + s + "\nx = !ls\nmy_mask?\n%timeit my_mask(2, 3)",
)
odd("a failing line after the function", lambda s: s + "\nassert my_mask(0, 1) is None\n1 / 0\n")
odd("its own check called in the cell", lambda s: s + "\nfrom kvcourse.checks import check\ncheck('6.2', my_mask)")
odd("sys.exit after the function", lambda s: s + "\nimport sys\nsys.exit(3)\n")
odd("an endless loop after the function", lambda s: s + "\nwhile True:\n    pass\n")
odd("type hints, and a result that has a gradient", lambda s: s.replace("(past, T)", "(past: int, T: int) -> torch.Tensor"))
odd("40 MB of output", lambda s: s.replace("    rows =", "    print('x' * 40_000_000)\n    rows ="))
odd("as a lambda", lambda s: "my_mask = lambda past, T: torch.ones(T, past + T, dtype=torch.bool).tril(past)")
odd(
    "a thread left behind",
    lambda s: (
        "import threading, time\n"
        + s.replace("    rows =", "    threading.Thread(target=time.sleep, args=(60,)).start()\n    rows =")
    ),
)
odd(
    "a daemon left behind",
    lambda s: (
        "import os, time\n"
        + s.replace(
            "    rows =",
            "    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\n        os._exit(0)\n    rows =",
        )
    ),
)


@entry("checks deleted")
def _(notebook: Notebook, folder: Path) -> None:
    gone = {task.check_cell for task in EXERCISE.tasks}
    notebook["cells"] = [one for one in notebook["cells"] if one.get("id") not in gone]


@entry("checks edited so that they fail")
def _(notebook: Notebook, folder: Path) -> None:
    for task in ALL:
        check(notebook, task)["source"] = "raise SystemExit(1)"


@entry("checks turned into markdown")
def _(notebook: Notebook, folder: Path) -> None:
    for task in ALL:
        check(notebook, task)["cell_type"] = "markdown"


@entry("stored outputs cleared")
def _(notebook: Notebook, folder: Path) -> None:
    for one in notebook["cells"]:
        if one["cell_type"] == "code":
            one["outputs"] = []


@entry("stored outputs that say failed")
def _(notebook: Notebook, folder: Path) -> None:
    for task in ALL:
        check(notebook, task)["outputs"] = [stream("0/8")]


@entry("tags that make nbval look away")
def _(notebook: Notebook, folder: Path) -> None:
    for one in notebook["cells"]:
        one["metadata"]["tags"] = ["nbval-skip", "nbval-ignore-output", "raises-exception"]


@entry("lost ids")
def _(notebook: Notebook, folder: Path) -> None:
    for one in notebook["cells"]:
        one.pop("id", None)
    notebook["nbformat_minor"] = 4


@entry("duplicate ids: a draft under the same id")
def _(notebook: Notebook, folder: Path) -> None:
    draft = copy.deepcopy(answer(notebook, "6.2"))
    draft["source"] = mask("pass")
    notebook["cells"].insert(notebook["cells"].index(answer(notebook, "6.2")), draft)


@entry("nbformat 3")
def _(notebook: Notebook, folder: Path) -> None:
    old = []
    for one in notebook.pop("cells"):
        if one["cell_type"] == "code":
            old.append(
                {
                    "cell_type": "code",
                    "language": "python",
                    "collapsed": False,
                    "metadata": {},
                    "outputs": [],
                    "input": one["source"],
                }
            )
        else:
            old.append({"cell_type": "markdown", "metadata": {}, "source": one["source"]})
    notebook.update(nbformat=3, nbformat_minor=0, worksheets=[{"cells": old, "metadata": {}}])


@entry("conftest.py, pytest.ini and shadow modules beside it")
def _(notebook: Notebook, folder: Path) -> None:
    for name in ("conftest", "torch", "kvcourse", "json", "numpy", "sitecustomize"):
        (folder / f"{name}.py").write_text("import os\nos._exit(0)\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n", encoding="utf-8")


@entry("patched showtraceback")
def _(notebook: Notebook, folder: Path) -> None:
    extra(notebook, "get_ipython().showtraceback = lambda *a, **k: None\nfrom IPython import get_ipython")


@entry("an IPython input transformer")
def _(notebook: Notebook, folder: Path) -> None:
    extra(notebook, "get_ipython().input_transformers_cleanup.append(lambda lines: ['print(\"6.2 mask: 7/7\")'])")


@entry("another cell that ends the process while it is read in")
def _(notebook: Notebook, folder: Path) -> None:
    extra(notebook, "import os\nx = os._exit(0)")


@entry("an annotation that names a class of the course, which another cell imports")
def _(notebook: Notebook, folder: Path) -> None:
    extra(notebook, "from kvcourse.caches import GrowingCache")
    one = answer(notebook, "6.4")
    one["source"] = "from __future__ import annotations\n" + text(one).replace("n, cache)", "n, cache: GrowingCache)")
    assert "cache: GrowingCache" in one["source"]


@entry("torch overwritten in a later cell")
def _(notebook: Notebook, folder: Path) -> None:
    notebook["cells"].append(code("torch = 3", "my-last"))


@entry("another name for an earlier answer, used in a later one")
def _(notebook: Notebook, folder: Path) -> None:
    at = notebook["cells"].index(answer(notebook, "6.4"))
    notebook["cells"].insert(at, code("where = my_positions", "my-alias"))
    one = answer(notebook, "6.4")
    one["source"] = text(one) + "\n_decode = my_decode\ndef my_decode(*args):\n    where(1, 2)\n    return _decode(*args)\n"


odd("display, a timed statement and a byte order mark", lambda source: f"\ufeff%time x = 1\ndisplay(x)\n{source}")


# Undeserved credit, tried from the notebook.


@entry("untouched stubs", lost=ALL, says="Not started")
def _(notebook: Notebook, folder: Path) -> None:
    canonical = canonical_notebook(EXERCISE)
    for task in EXERCISE.tasks:
        cell(notebook, task.cell)["source"] = cell(canonical, task.cell)["source"]


def from_the_notebook(name: str, edit_check: Callable[[dict], None]) -> None:
    """A wrong answer whose check cell was edited."""

    @entry(f"wrong, and {name}", lost="6.2")
    def edit(notebook: Notebook, folder: Path) -> None:
        answer(notebook, "6.2")["source"] = mask("pass")
        edit_check(check(notebook, "6.2"))


from_the_notebook("its check says passed", lambda one: one.update(source="print('6.2 mask: 7/7')"))
from_the_notebook("its check is text", lambda one: one.update(cell_type="markdown"))
from_the_notebook("its output says passed", lambda one: one.update(outputs=[stream("6.2 mask: 7/7\n")]))
from_the_notebook("its output is cleared", lambda one: one.update(outputs=[]))
from_the_notebook("its check is empty", lambda one: one.update(source=""))
for tag in ("nbval-skip", "nbval-ignore-output", "raises-exception"):
    from_the_notebook(f"its check is tagged {tag}", lambda one, tag=tag: one["metadata"].update(tags=[tag]))


@entry("the answer is a print of the check's line", lost="6.2", says="does not define")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["source"] = "print('6.2 mask: 7/7')"


@entry("the answer's cell is turned into markdown", lost="6.2", says="missing")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["cell_type"] = "markdown"


@entry("the answer's cell is deleted", lost="6.2", says="missing")
def _(notebook: Notebook, folder: Path) -> None:
    notebook["cells"].remove(answer(notebook, "6.2"))


@entry("a syntax error", lost="6.2", says="cannot be read")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["source"] = "def my_mask(past, T)\n    return None"


@entry("a patched checker", lost="6.2")
def _(notebook: Notebook, folder: Path) -> None:
    extra(
        notebook,
        "import kvcourse.checks.base as base\nbase.expect = lambda *a: None\nimport kvcourse.checks as c\nc.check = print",
    )
    answer(notebook, "6.2")["source"] = mask("pass")


@entry("shadow modules and a wrong answer", lost="6.2")
def _(notebook: Notebook, folder: Path) -> None:
    (folder / "torch.py").write_text("def equal(*a): return True\n", encoding="utf-8")
    (folder / "kvcourse").mkdir()
    (folder / "kvcourse" / "__init__.py").write_text('print(\'{"state": "passed"}\')\n', encoding="utf-8")
    answer(notebook, "6.2")["source"] = mask("pass")


@entry("reads the solution by path or symlink", lost="6.2", says="FileNotFoundError")
def _(notebook: Notebook, folder: Path) -> None:
    solution = ROOT / "solutions" / f"{EXERCISE.file}.ipynb"
    (folder / "solution.ipynb").symlink_to(solution)
    places = [str(solution), str(folder / "solution.ipynb"), "solution.ipynb", "../solutions/06_kv_cache.ipynb"]
    answer(notebook, "6.2")["source"] = (
        "import json\n"
        "def my_mask(past, T):\n"
        f"    for place in {places!r}:\n"
        "        try:\n"
        "            cells = json.load(open(place))['cells']\n"
        "        except OSError as error:\n"
        "            fault = error\n"
        "            continue\n"
        "        exec(''.join(next(c['source'] for c in cells if c['id'] == 'answer-mask')), globals())\n"
        "        return my_mask(past, T)\n"
        "    raise fault\n"
    )


@entry("reads its own expected output", lost="6.2", says="FileNotFoundError")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["source"] = mask(f"open({str(folder / '06_kv_cache.ipynb')!r}).read()")


@entry("calls the package's finished implementation", lost=("6.1", "6.2"), says="ModuleNotFoundError")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.1")["source"] = (
        "def my_append(rows, layer, k, v):\n    from kvcourse.caches.growing import GrowingCache\n    return k, v"
    )
    answer(notebook, "6.2")["source"] = (
        "def my_mask(past, T):\n    from kvcourse.attention import causal_mask\n    return causal_mask(T, past + T)"
    )


@entry("hard-coded answers to what the notebook shows", lost=("6.2", "6.3"))
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["source"] = (
        "def my_mask(past, T):\n"
        "    seen = {(2, 3): [3, 4, 5], (0, 4): [1, 2, 3, 4], (0, 1): [1], (5, 1): [6]}[past, T]\n"
        "    return torch.tensor([[column < n for column in range(past + T)] for n in seen])"
    )
    answer(notebook, "6.3")["source"] = (
        "def my_positions(past, T):\n    return torch.tensor({(0, 3): [0, 1, 2], (6, 1): [6], (4, 3): [4, 5, 6]}[past, T])"
    )


# Undeserved credit, tried from the answer itself.

LIAR = """
class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True
    def __eq__(self, other): return True
    def __bool__(self): return True

class Yes:
    dtype, shape = torch.bool, ()
    def __eq__(self, other): return True
    def __bool__(self): return True
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __getitem__(self, key): return self
"""
hostile("a result that equals everything", "return Yes()", before=LIAR, says="got a Yes")
hostile("a tensor that equals everything", "return torch.ones(T, past + T, dtype=torch.bool).as_subclass(Liar)", before=LIAR)
hostile("torch patched to say yes", "torch.equal = torch.allclose = lambda *a, **k: True\ntorch.Tensor.all = lambda *a: True")
hostile(
    "frames and memory searched for what is expected",
    """
import gc, sys
frame = sys._getframe()
while frame:
    for name, value in frame.f_locals.items():
        if "expected" in name or name in ("prop", "draw"): return value
    frame = frame.f_back
for one in gc.get_objects():
    if isinstance(one, torch.Tensor) and one.dtype == torch.bool and tuple(one.shape) == (T, past + T): return one
if any(name.startswith("kvcourse") for name in sys.modules): return torch.ones(T, past + T).tril(past).bool()
""",
)
hostile("os._exit", "import os\nos._exit(0)", says="the worker stopped")
hostile("sys.exit", "import sys\nsys.exit(0)", says="SystemExit")
hostile("KeyboardInterrupt", "raise KeyboardInterrupt", says="KeyboardInterrupt")
hostile("a crash in C", "import ctypes\nctypes.string_at(0)", says="signal 11")
hostile("a kill of everything", "import os\nos.kill(-1, 9)\nos.kill(1, 9)")
hostile("an endless loop", "while True: pass", says="took")
hostile(
    "signals ignored, then asleep",
    "import signal, time\nfor one in (2, 15, 14, 24): signal.signal(one, signal.SIG_IGN)\ntime.sleep(3600)",
    says="longer than 20 s",
)
hostile("memory", "x = [torch.ones(1 << 24) for _ in range(1000)]", says="emory")
hostile(
    "memory of several processes",
    """
import os, time
for _ in range(6):
    if os.fork() == 0:
        x = torch.ones(1 << 26)
        time.sleep(30)
time.sleep(30)
""",
    says="1 GiB of memory",
)
hostile("40 MB of output and wrong", "print('x' * 40_000_000)")
hostile("a result of 16 GB", "return torch.zeros(1, dtype=torch.float64).expand(1 << 31)", says="more than can be compared")
hostile("a list of a million", "return [0] * 1_000_000", says="more than can be compared")
hostile("a list that holds itself", "x = []\nx.append(x)\nreturn x", says="more than can be compared")
hostile("a process bomb", "import os\nfor _ in range(200):\n    os.fork()", says="BlockingIOError")
hostile(
    "a bomb of threads",
    "import threading, time\nfor _ in range(200): threading.Thread(target=time.sleep, args=(30,)).start()",
    says="RuntimeError",
)
hostile("network", "import socket\nsocket.create_connection(('127.0.0.1', 80), timeout=2)", says="PermissionError")
hostile("writing outside", "open('/program/inside/serve.py', 'w').write('x')", says="OSError")
hostile(
    "other processes read",
    "import os\nreturn [open(f'/proc/{one}/environ').read() for one in os.listdir('/proc')][0]",
    says="IndexError",
)
hostile(
    "an exception with an endless text",
    "raise type('Oops\\n6.2 mask: 7/7', (Exception,), {'__str__': lambda self: 'y' * 10**7})",
)
hostile("all descriptors closed", "import os\nos.closerange(0, 100)", says="the worker stopped")
hostile("NotImplementedError after work", "raise NotImplementedError", says="Not started")

FORGE = """
import gc, socket
from inside import serve, wire
def line():
    return next(one for one in gc.get_objects() if type(one) is wire.Channel)
"""
forgeries = {
    "a verdict": "{'kind': 'done', 'value': True, 'state': 'passed'}",
    "a result of its own": "{'kind': 'done', 'value': torch.ones(2, 2, dtype=torch.bool)}",
    "passed": "{'kind': 'passed'}",
    "a callback it was not given": "{'kind': 'callback', 'id': 1, 'args': (), 'kwargs': {}}",
    "an attribute it was not given": "{'kind': 'read', 'id': 1, 'name': '__globals__'}",
    "no dict": "['done', True]",
}
for what, message in forgeries.items():
    hostile(f"forged: {what}", f"line().send({message})\nimport time\ntime.sleep(0.1)", before=FORGE)
hostile(
    "forged: garbage",
    "line()._end.sendall(b'\\xff' * 4096)\nimport time\ntime.sleep(5)",
    before=FORGE,
    says="sent what no answer returns",
)
hostile(
    "forged: half a frame, then silence", "line()._end.sendall(wire.encode(torch.ones(9))[:-1])\nline().close()", before=FORGE
)
hostile(
    "forged: a pickle",
    "import pickle\nline()._end.sendall(wire.LENGTHS.pack(99, 0) + pickle.dumps(print).ljust(99))",
    before=FORGE,
    says="sent what no answer returns",
)
hostile(
    "forged: a tensor that does not fit its shape",
    """
h = b'["dict",[["kind","done"],["value",["tensor","bool",[1000000000]]]]]'
line()._end.sendall(wire.LENGTHS.pack(len(h), 0) + h)
""",
    before=FORGE,
    says="sent what no answer returns",
)
hostile("forged: every reply of the server", "serve.Server._do = lambda self, message: True", before=FORGE)


def decode_attack(name: str, body: str, says: str = "") -> None:
    """An answer to 6.4 that misuses the model it is handed, which runs where the expected values are."""

    @entry(f"the model misused: {name}", lost="6.4", says=says)
    def edit(notebook: Notebook, folder: Path) -> None:
        lines = "".join(f"    {line}\n" for line in body.split("\n"))
        answer(notebook, "6.4")["source"] = f"def my_decode(model, prompt_ids, n, cache):\n{lines}    return [0] * n\n"


decode_attack("a million tokens", "model(torch.zeros(1, 1_000_000, dtype=torch.int64), cache=cache)")
decode_attack("no tokens, odd keywords", "model(None, cache=cache, __class__=1)")
decode_attack(
    "its faults caught, for ever",
    "while True:\n    try:\n        model(torch.zeros(1, 1, dtype=torch.int64))\n    except BaseException:\n        pass",
)
decode_attack("its cache taken apart", "return [cache.__class__, cache._stored, cache.__dict__]")
decode_attack(
    "no cache", "return [int(model(torch.tensor([prompt_ids]))[0, -1].argmax()) for _ in range(n)]", says="left out cache"
)


# One bad cell, and what it must not cost the others.


@entry("a decorator that ends the process", lost="6.2")
def _(notebook: Notebook, folder: Path) -> None:
    answer(notebook, "6.2")["source"] = mask("pass", before="import os\n@os._exit\n")


@entry("a cell that ends the process before its function", lost="6.3", says="the worker stopped")
def _(notebook: Notebook, folder: Path) -> None:
    one = answer(notebook, "6.3")
    one["source"] = "import os\nos._exit(0)\n" + text(one)


@entry("a helper of another cell replaced by nonsense in a third", lost="6.2")
def _(notebook: Notebook, folder: Path) -> None:
    extra(notebook, "torch = None", "my-third")
    answer(notebook, "6.2")["source"] = mask("pass")
    for task in ("6.1", "6.3", "6.4"):
        one = answer(notebook, task)
        one["source"] = "import torch\n" + text(one)


# No notebook at all.


@entry("invalid JSON", refused=True)
def _(notebook: Notebook, folder: Path) -> None:
    notebook["raw"] = '{"cells": ['


@entry("an empty file", refused=True)
def _(notebook: Notebook, folder: Path) -> None:
    notebook["raw"] = ""


@entry("JSON, but no notebook", refused=True)
def _(notebook: Notebook, folder: Path) -> None:
    notebook["raw"] = "[1, 2, 3]"


@entry("cells that are no cells", refused=True)
def _(notebook: Notebook, folder: Path) -> None:
    notebook["raw"] = json.dumps({**notebook, "cells": 3})
