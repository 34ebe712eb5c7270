"""Maintainers only: the committed notebooks are those of the sources. nbval compares their outputs, in the same pytest run."""

import json
from pathlib import Path

from tools.notebooks.build import check
from tools.notebooks.exercises import solution_lines
from tools.notebooks.source import find

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_committed_notebook_matches_its_source_and_every_source_has_its_notebooks() -> None:
    assert find(REPOSITORY), "there are no sources"
    assert check(REPOSITORY) == []


def test_no_text_of_a_solution_is_in_what_learners_get() -> None:
    for source in find(REPOSITORY):
        if not source.is_exercise:
            continue
        text = (REPOSITORY / "exercises" / f"{source.name}.ipynb").read_text(encoding="utf-8")
        assert "SOLUTION" not in text
        cells = json.loads(text)["cells"]
        shown = {line.strip() for cell in cells for line in "".join(cell["source"]).splitlines()}
        assert not solution_lines(source) & shown
