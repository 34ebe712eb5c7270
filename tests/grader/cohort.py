"""A class of N learners for exercise 06: some right, some wrong, some hostile, some unlucky; each with the points it deserves.

make_cohort(folder, 60)      used by the tests of batches and by benchmarks/grading.py
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = "06_kv_cache"
FULL = 10

SQUARE_MASK = "def my_mask(past, T):\n    return torch.ones(T, T, dtype=torch.bool).tril()"
NO_PAST = "def my_append(rows, layer, k, v):\n    rows[layer] = (k, v)\n    return k, v"
RESTART = "def my_positions(past, T):\n    return torch.arange(T)"
RECOMPUTE = """\
def my_decode(model, prompt_ids, n, cache):
    tokens = list(prompt_ids)
    for _ in range(n):
        tokens.append(int(model(torch.tensor([tokens]), cache=cache)[0, -1].argmax()))
    return tokens[len(prompt_ids):]
"""
LEAVES = "def my_positions(past, T):\n    import os\n    os._exit(0)"
YES = """\
class Yes(torch.Tensor):
    def __eq__(self, other):
        return True

def my_mask(past, T):
    return torch.ones(T, past + T).as_subclass(Yes)
"""
ENDLESS = "def my_decode(model, prompt_ids, n, cache):\n    while True:\n        pass"

Cells = dict[str, str]
Make = Callable[[], tuple[str, int | None]]  # a notebook's text, and its points; None: it cannot be graded


def read(name: str) -> dict:
    return json.loads((ROOT / name / f"{FILE}.ipynb").read_text(encoding="utf-8"))


def solutions() -> Cells:
    cells = {cell["id"]: "".join(cell["source"]) for cell in read("solutions")["cells"]}
    return {name: source for name, source in cells.items() if name.startswith("answer-")}


def notebook(answers: Cells, *, drop: tuple[str, ...] = (), metadata: dict | None = None) -> str:
    """The exercise with these answers in it, as a learner saves it."""
    made = copy.deepcopy(read("exercises"))
    made["cells"] = [cell for cell in made["cells"] if cell["id"] not in drop]
    for cell in made["cells"]:
        if cell["id"] in answers:
            cell["source"] = answers[cell["id"]]
    made["metadata"].setdefault("kvcourse", {}).update(metadata or {})
    return json.dumps(made)


def solved(**wrong: str) -> str:
    return notebook(solutions() | {f"answer-{task}": source for task, source in wrong.items()})


KINDS: dict[str, Make] = {
    "full": lambda: (solved(), FULL),
    "square mask": lambda: (solved(mask=SQUARE_MASK), FULL - 3),
    "untouched": lambda: (notebook({}), 0),
    "restart": lambda: (solved(positions=RESTART), FULL - 1),
    "no checks": lambda: (notebook(solutions(), drop=("check-append", "check-mask")), FULL),
    "no JSON": lambda: (solved()[:-500], None),
    "no past": lambda: (solved(append=NO_PAST), FULL - 3),
    "leaves": lambda: (solved(positions=LEAVES), FULL - 1),
    "newer": lambda: (notebook(solutions(), metadata={"version": "99.0.0"}), None),
    "recompute": lambda: (solved(decode=RECOMPUTE), FULL - 3),
    "yes": lambda: (solved(mask=YES), FULL - 3),
    "half": lambda: (notebook({name: source for name, source in solutions().items() if "mask" in name}), 3),
    "endless": lambda: (solved(decode=ENDLESS), FULL - 3),
}
ORDER = [kind for kind in KINDS if kind != "endless"]
NAMES = {3: "=HYPERLINK(1)", 6: "<img src=x onerror=alert(1)>", 9: "Zoë Ünal", 10: "o'neil & sons"}
PLACES = ("{name}/06_kv_cache.ipynb", "{name}.ipynb", "{name}/handed in/06_kv_cache.ipynb", "{name}/ps1/my 06.ipynb")


def make_cohort(folder: Path, n: int) -> dict[str, int | None]:
    """Write n submissions below a folder. Returns each one's points by its name; None: it cannot be graded."""
    deserved = {}
    for number in range(n):
        kind = "endless" if number == 29 else ORDER[number % len(ORDER)]
        name = NAMES.get(number, f"learner-{number:03d}")
        text, points = KINDS[kind]()
        path = folder / PLACES[number % len(PLACES)].format(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        deserved[name] = points
    return deserved
