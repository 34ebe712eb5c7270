"""Every lesson: a learner's answers in the course's copy of the notebook. Knows nothing about running it."""

import copy
import re
from typing import Any

from kvcourse.grader.submission import END, Submission

EXTRA = "learners-cell-"  # ids of the learner's own cells begin with this
# Comments that tell nbval to skip a cell or not to look at its output. Ours use tags; a learner's have no say.
_MARKER = re.compile(r"^(\s*#+)\s*(?:NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.MULTILINE)


def merge(submission: Submission, canonical: dict[str, Any]) -> dict[str, Any]:
    """A copy of the course's notebook with the learner's answers in it.

    From the learner comes the source of each answer's cell, and nothing else of the notebook: checks, reference outputs,
    metadata, tags and kernel are the course's. Where there is no answer, the stub stays. The learner's own cells, which may
    hold what an answer calls, go in as untested cells: each before the first answer or check that followed it in the learner's
    notebook, or before the last check if none did. Their output is never compared, and what they raise costs nothing.
    """
    merged = copy.deepcopy(canonical)
    answers = {task.cell: submission.answers.get(task.name) for task in submission.exercise.tasks}
    checks = {task.check_cell for task in submission.exercise.tasks}
    last = [cell["id"] for cell in merged["cells"] if cell.get("id") in checks][-1]
    merged["cells"] = []
    for cell in copy.deepcopy(canonical["cells"]):
        for number, (source, before) in enumerate(zip(submission.extra, submission.before, strict=True)):
            if cell["id"] == (last if before == END else before):
                merged["cells"].append(_untested(number, source))
        answer = answers.get(cell["id"])
        if answer is not None:
            cell["source"] = _lines(_MARKER.sub(r"\1", answer))
        merged["cells"].append(cell)
    return merged


def _untested(number: int, source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"{EXTRA}{number}",
        "metadata": {"tags": ["volatile", "nbval-ignore-output"]},
        "outputs": [],
        "source": _lines(_MARKER.sub(r"\1", source)),
    }


def _lines(source: str) -> list[str]:
    """A cell's text as notebooks store it."""
    return source.splitlines(keepends=True)
