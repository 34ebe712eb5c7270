"""Maintainers only: copies of the notebooks that install the course by themselves. Knows nothing about what is in them.

    python -m tools.colab                        build/colab: lessons and exercises, and the wheel they install
    python -m tools.colab --source git+https://… the same, installing from there; no wheel is built

The committed notebooks stay as they are: where the course is installed, such a cell is noise.
"""

import argparse
import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvcourse import __version__

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("notebooks", "exercises")
WHEEL = f"kvcourse-{__version__}-py3-none-any.whl"
CELL = """\
# Where the course is not installed, such as on Colab: get the package and the model. Elsewhere this cell does nothing.
import importlib.util
import subprocess
import sys

SOURCE = "{source}"  # what pip installs: a wheel that you uploaded, or git+https://... of your copy
if importlib.util.find_spec("kvcourse") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", SOURCE], check=True)
    subprocess.run([sys.executable, "-m", "kvcourse", "fetch", "smollm2"], check=True)
"""


def first_cell(source: str = WHEEL) -> str:
    """The cell's text. source: what pip installs."""
    if not source.strip() or set('"\\') & set(source) or len(f"{source}.".splitlines()) > 1:
        raise ValueError(f"A source for pip is not empty, and has no quotes, backslashes or line breaks; got {source!r}.")
    return CELL.format(source=source).rstrip("\n")


def with_first_cell(notebook: dict[str, Any], source: str = WHEEL) -> dict[str, Any]:
    """A copy of a notebook, with the cell behind its title, where a reader meets it first."""
    made = copy.deepcopy(notebook)
    cell: dict[str, Any] = {"cell_type": "code", "execution_count": None, "id": "get-the-course", "metadata": {}, "outputs": []}
    made["cells"].insert(1, {**cell, "source": first_cell(source)})
    return made


def write_copies(root: Path, target: Path, source: str = WHEEL) -> list[Path]:
    """Copies of all lessons and exercises, in place of what is in `target`; returns what was written.

    Raises: ValueError for a source that cannot be, with nothing changed.
    """
    paths = sorted(path for folder in FOLDERS for path in (root / folder).glob("[0-9][0-9]_*.ipynb"))
    notebooks = [with_first_cell(json.loads(path.read_text(encoding="utf-8")), source) for path in paths]
    shutil.rmtree(target, ignore_errors=True)
    written = []
    for path, notebook in zip(paths, notebooks, strict=True):
        made = target / path.parent.name / path.name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        written.append(made)
    return written


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.colab", description="Writes notebooks that install the course.")
    parser.add_argument("--source", help=f"what they install; without it {WHEEL}, which is built here too")
    options = parser.parse_args(arguments)
    target = root / "build" / "colab"
    source = WHEEL if options.source is None else options.source
    try:
        first_cell(source)
    except ValueError as fault:
        parser.error(str(fault))
    written = write_copies(root, target, source)
    if options.source is None:
        wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(root)]
        if subprocess.run(wheel).returncode:
            print("pip could not build the wheel; its own message is above.", file=sys.stderr)
            return 1
    print(f"{len(written)} notebooks{f' and {WHEEL}' if options.source is None else ''} in {target.relative_to(root)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
