"""What comes back from learners is read for its answers, whatever became of the rest; what is no notebook is refused."""

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvcourse.checks import cells as cells_module
from kvcourse.checks.cells import canonical_notebook, defines, without_magics
from kvcourse.checks.registry import find_exercise
from kvcourse.errors import SubmissionError
from kvcourse.grader import limits
from kvcourse.grader import submission as module
from kvcourse.grader.merge import EXTRA, merge
from kvcourse.grader.submission import END, read_submission

ROOT = Path(__file__).resolve().parents[2]
EXERCISE = find_exercise("06")
CANONICAL = canonical_notebook(EXERCISE)
STUBS = {cell["id"]: "".join(cell["source"]) for cell in CANONICAL["cells"]}
ANSWER = "def my_mask(past, T):\n    return None"


@pytest.fixture
def notebook() -> dict:
    built = copy.deepcopy(CANONICAL)
    built["metadata"]["kvcourse"] |= {"exercise": "06_kv_cache", "version": "0.1.0"}
    return built


@pytest.fixture
def read(tmp_path):
    def read(notebook, name="06_kv_cache.ipynb", **options):
        path = tmp_path / name
        path.write_text(notebook if isinstance(notebook, str) else json.dumps(notebook), encoding="utf-8")
        return read_submission(path, **options)

    return read


def cell(notebook: dict, cell_id: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell.get("id") == cell_id)


def code(source, **more) -> dict:
    return {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source, **more}


def insert(notebook: dict, before: str, *cells: dict) -> None:
    place = next(index for index, cell in enumerate(notebook["cells"]) if cell.get("id") == before)
    notebook["cells"][place:place] = cells


def strip_ids(notebook: dict) -> None:
    for one in notebook["cells"]:
        del one["id"]


def test_an_untouched_exercise_gives_its_stubs_and_nothing_else(notebook, read):
    got = read(notebook)
    assert got.exercise is EXERCISE and got.name == "06_kv_cache"
    assert got.answers == {task.name: STUBS[task.cell] for task in EXERCISE.tasks}
    assert (got.extra, got.before, got.notes) == ((), (), ())


@pytest.mark.parametrize("source", [ANSWER, ANSWER.splitlines(keepends=True), [ANSWER]])
def test_an_answer_is_read_as_text_or_as_a_list_of_lines(notebook, read, source):
    cell(notebook, "answer-mask")["source"] = source
    assert read(notebook).answers["6.2"] == ANSWER


def test_kernel_tags_outputs_and_checks_of_the_learner_are_of_no_interest(notebook, read):
    before = read(notebook)
    notebook["metadata"]["kernelspec"] = {"name": "julia-1.9", "language": "julia"}
    for task in EXERCISE.tasks:
        cell(notebook, task.cell)["metadata"]["tags"] = ["nbval-skip", "raises-exception"]
        cell(notebook, task.check_cell).update(source="print('6.2 mask: 4/4')", outputs=["?"])
    cell(notebook, "check-append")["cell_type"] = "markdown"
    notebook["cells"].remove(cell(notebook, "check-mask"))
    assert read(notebook).answers == before.answers
    assert merge(read(notebook), CANONICAL) == CANONICAL


def test_an_answer_is_found_by_its_name_when_every_id_was_lost(notebook, read):
    cell(notebook, "answer-mask")["source"] = ANSWER
    strip_ids(notebook)
    got = read(notebook)
    assert got.answers["6.2"] == ANSWER and got.answers["6.1"] == STUBS["answer-append"]
    assert got.extra == (), "the course's own cells are known by their text"
    assert "6.2: its cell's id was lost; my_mask was found by its name." in got.notes


def test_new_ids_are_lost_ids(notebook, read):
    for number, one in enumerate(notebook["cells"]):
        one["id"] = f"new{number}"
    assert read(notebook).answers == {task.name: STUBS[task.cell] for task in EXERCISE.tasks}


def test_of_two_cells_with_one_id_the_one_that_defines_the_answer_is_taken(notebook, read):
    cell(notebook, "answer-mask")["source"] = ANSWER
    insert(notebook, "check-mask", code("my_mask(2, 3)", id="answer-mask"))
    got = read(notebook)
    assert got.answers["6.2"] == ANSWER
    assert any("2 cells have its id" in note for note in got.notes)
    assert got.extra == ("my_mask(2, 3)",)


def test_an_answer_written_beside_its_untouched_cell_is_taken(notebook, read):
    insert(notebook, "check-mask", code(ANSWER, id="mine"))
    got = read(notebook)
    assert got.answers["6.2"] == ANSWER and got.extra == ()
    assert any("found by its name" in note for note in got.notes)


def test_the_answer_in_its_own_cell_wins_over_a_second_definition_and_says_so(notebook, read):
    cell(notebook, "answer-mask")["source"] = ANSWER
    insert(notebook, "task-decode", code("def my_mask(past, T):\n    return 'another'", id="mine"))
    got = read(notebook)
    assert got.answers["6.2"] == ANSWER
    assert got.before == ("answer-mask",), "it goes in before the answer, so it cannot replace it"
    assert any("does not count" in note for note in got.notes)


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_an_answer_turned_into_text_is_missing(notebook, read, kind):
    cell(notebook, "answer-mask")["cell_type"] = kind
    got = read(notebook)
    assert got.answers["6.2"] is None and got.answers["6.3"] is not None
    assert "6.2: its cell is no code cell any more, so there is no answer." in got.notes


def test_a_deleted_answer_is_missing(notebook, read):
    notebook["cells"].remove(cell(notebook, "answer-mask"))
    got = read(notebook)
    assert got.answers["6.2"] is None and got.notes == ()  # its result says so; once is enough


def test_an_answer_with_a_mistake_in_its_syntax_is_kept_for_its_error_to_be_shown(notebook, read):
    broken = "def my_mask(past, T):\n    return ("
    cell(notebook, "answer-mask")["source"] = broken
    assert read(notebook).answers["6.2"] == broken
    strip_ids(notebook)
    assert read(notebook).answers["6.2"] == broken


def test_own_cells_go_in_before_the_answer_or_check_that_followed_them(notebook, read):
    insert(notebook, "opening", code("import math"))
    insert(notebook, "check-mask", code(["def helper():\n", "    return 1"], id="h"), code("  \n"), {"cell_type": "raw"}, 7)
    notebook["cells"].append(code("print('the end')"))
    got = read(notebook)
    assert got.extra == ("import math", "def helper():\n    return 1", "print('the end')")
    assert got.before == ("answer-append", "check-mask", END)
    merged = merge(got, CANONICAL)["cells"]
    ids = [one["id"] for one in merged]
    assert ids[ids.index("check-mask") - 1] == f"{EXTRA}1" and ids[ids.index("answer-append") - 1] == f"{EXTRA}0"
    assert ids[ids.index("check-decode") - 1] == f"{EXTRA}2"
    assert [one for one in merged if not one["id"].startswith(EXTRA)] == CANONICAL["cells"]


def test_imports_and_functions_added_to_a_given_cell_are_kept_and_changes_to_it_are_not(notebook, read):
    given = cell(notebook, "imports")
    given["source"] = "import math\n" + "".join(given["source"]) + "\ntorch = None\ndef check():\n    ...\ndef mine():\n    ..."
    got = read(notebook)
    assert got.extra == ("import math\ndef mine():\n    ...",) and got.before == ("answer-append",)
    assert any('"imports" was changed' in note for note in got.notes)


def test_comments_that_speak_to_nbval_are_silenced_in_the_merged_copy(notebook, read):
    cell(notebook, "answer-mask")["source"] = "# NBVAL_SKIP\n" + ANSWER
    merged = merge(read(notebook), CANONICAL)
    assert "".join(cell(merged, "answer-mask")["source"]) == "#\n" + ANSWER


def test_nbformat_3_is_read(notebook, read):
    cell(notebook, "answer-mask")["source"] = ANSWER
    old = [{**one, "input": one["source"]} for one in notebook["cells"]]
    for one in old:
        del one["id"], one["source"]
    got = read({"nbformat": 3, "nbformat_minor": 0, "metadata": notebook["metadata"], "worksheets": [{"cells": old}]})
    assert got.answers["6.2"] == ANSWER and got.extra == ()
    assert "nbformat 3" in got.notes[0]


def test_a_notebook_without_the_course_s_metadata_is_graded_with_a_note(notebook, read):
    del notebook["metadata"]["kvcourse"]
    got = read(notebook)
    assert got.exercise is EXERCISE and len(got.notes) == 1


@pytest.mark.parametrize("metadata", [None, [], {"kvcourse": 3}, {"kvcourse": {"version": ["?"], "exercise": "06_kv_cache"}}])
def test_metadata_may_hold_anything(notebook, read, metadata):
    notebook["metadata"] = metadata
    assert read(notebook).exercise is EXERCISE


def test_a_renamed_notebook_is_known_by_its_cells_or_by_its_names(notebook, read):
    del notebook["metadata"]["kvcourse"]
    assert read(notebook, "homework (2).ipynb").exercise is EXERCISE
    strip_ids(notebook)
    assert read(notebook, "homework (2).ipynb").exercise is EXERCISE


def test_half_a_surrogate_pair_in_a_source_does_no_harm(notebook, read):
    cell(notebook, "answer-mask")["source"] = "x = '\ud83d'\n" + ANSWER
    assert read(notebook).answers["6.2"].encode("utf-8").startswith(b"x = '?'")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "line 1 is no JSON"),
        ("{", "is not a notebook"),
        ("[" * 100_000, "is not a notebook"),
        ("[]", "JSON of another kind"),
        ('{"cells": 3}', "JSON without cells"),
        ("\x00\x01", "is not a notebook"),
        ('{"cells": []}', "has no answer to any exercise"),
        ({"cells": [], "metadata": {"kvcourse": {"version": "99.0", "exercise": "31_later"}}}, "newer version of the course"),
        ({"cells": [], "metadata": {"kvcourse": {"exercise": "31_later"}}}, "belongs to no exercise"),
        ({"cells": [], "metadata": {"kvcourse": {"exercise": ["06_kv_cache"]}}}, "belongs to no exercise"),
        ({"cells": [], "metadata": {"kvcourse": {"source": "sources/lessons/06_kv_cache.py"}}}, "is a lesson"),
    ],
)
def test_what_cannot_be_graded_is_refused_in_one_line(read, content, fault):
    with pytest.raises(SubmissionError) as caught:
        read(content, "something.ipynb")
    assert fault in str(caught.value) and "\n" not in str(caught.value)


def test_another_exercise_s_notebook_is_refused(notebook, read, monkeypatch):
    from dataclasses import replace

    other = replace(EXERCISE, file="07_fast_cache")
    monkeypatch.setattr(module, "EXERCISES", (EXERCISE, other))
    with pytest.raises(SubmissionError, match=r"another exercise's notebook\. Expected 07_fast_cache; got 06_kv_cache"):
        read(notebook, "07_fast_cache.ipynb", expected=other)
    assert read(notebook, expected=EXERCISE).exercise is EXERCISE


def test_no_file_a_folder_a_link_bytes_and_a_huge_file_are_refused(tmp_path, monkeypatch):
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "link.ipynb").symlink_to(ROOT / "solutions" / "06_kv_cache.ipynb")
    (tmp_path / "bytes.ipynb").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(tmp_path / "pipe.ipynb")
    with open(tmp_path / "huge.ipynb", "wb") as file:
        file.truncate(101 * 2**20)
    faults = {"none": "no such file", "folder": "a folder", "link": "a link", "bytes": "no text", "huge": "at most 100 MB"}
    for name, fault in {**faults, "pipe": "no ordinary file"}.items():
        with pytest.raises(SubmissionError, match=fault):
            read_submission(tmp_path / f"{name}.ipynb")


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("def f(): ...", True),
        ("async def f(): ...", True),
        ("class f: ...", True),
        ("f = lambda: 1", True),
        ("f: int = 3", True),
        ("a, (b, f) = x", True),
        ("from m import g as f", True),
        ("try:\n    import g\nexcept ImportError:\n    def f(): ...", True),
        ("%%time\ndef f(): ...", True),
        ("!ls\ndef f(): ...\nf?", True),
        ("def f(:", True),
        ("f[0] = 1", False),
        ("f.x = 1", False),
        ("f()", False),
        ("def g():\n    def f(): ...", False),
        ("class C:\n    def f(self): ...", False),
        ("# def f(): ...", False),
        ("'''\ndef f(): ...\n'''", False),
        ("f = = 1", False),
        ("if x: ...\n" + "elif x: ...\n" * 3000 + "else:\n    f = 1", None),
    ],
)
def test_what_a_source_defines_is_read_and_never_run(source, answer):
    assert defines(source, "f") is answer or answer is None


def test_magics_do_nothing_and_python_is_left_alone():
    assert without_magics("def f():\n    %time x\n    !ls") == "def f():\n    pass  # %time x\n    pass  # !ls"
    assert without_magics("x = (7\n%3)") == "x = (7\n%3)"


LONG = " " * 300_000


@pytest.mark.parametrize("source", [f"{LONG}x\n!a", f"{LONG}?\n!a", f"f{LONG}\n!a", f"%{LONG}x"])
def test_white_space_without_end_takes_no_time(source):
    start = time.process_time()
    without_magics(source)
    assert not defines(source, "my_mask")
    assert time.process_time() - start < 1


def test_many_cells_are_read_in_no_time_and_too_many_are_refused(notebook, read):
    strip_ids(notebook)
    notebook["cells"] += [code(f"x{number} = {number}") for number in range(module.LIMIT_CELLS - len(notebook["cells"]))]
    start = time.process_time()
    assert len(read(notebook).extra) == module.LIMIT_CELLS - len(CANONICAL["cells"])
    assert time.process_time() - start < 3
    notebook["cells"].append(code("y = 1"))
    with pytest.raises(SubmissionError, match="is too long"):
        read(notebook)


def test_long_outputs_are_read_and_a_file_of_empty_lists_is_refused(notebook, read, monkeypatch):
    monkeypatch.setattr(cells_module, "FEW_BYTES", 1000)
    monkeypatch.setattr(cells_module, "LIMIT_VALUES", 5000)
    text = json.dumps(notebook)
    assert read(text.replace('"outputs": []', '"outputs": ["' + '[],\\\\\\"{' * 10_000 + '"]', 1)).answers
    with pytest.raises(SubmissionError, match="is too large"):
        read(text.replace('"outputs": []', '"outputs": [' + "[]," * 10_000 + "[]]", 1))


def test_a_huge_cell_is_left_out_with_a_note_and_costs_no_other(notebook, read):
    insert(notebook, "answer-mask", code(f"big = '{'x' * limits.CELL_BYTES}'"), code("def span(a):\n    return a"))
    got = read(notebook)
    assert got.extra == ("def span(a):\n    return a",) and len(got.before) == 1 and "1 of the other cells" in got.notes[0]
    insert(notebook, "answer-mask", *[code(f"big = '{'x' * 200_000}'") for _ in range(6)])
    assert read(notebook).extra == () and "left out" in read(notebook).notes[0]


def test_a_helper_that_is_defined_anew_has_its_first_meaning_in_the_tasks_before(notebook, read):
    first, second = "def span(a):\n    return 1", "def span(a):\n    return 2"
    insert(notebook, "answer-mask", code(first), code("def other():\n    return 0"))
    insert(notebook, "answer-decode", code(second))
    assert read(notebook).again() == {"6.2": (first,), "6.3": (first,)}


def test_reading_submissions_imports_neither_torch_nor_nbformat():
    heavy = ["torch", "nbformat", "numpy"]
    code = f"import sys, kvcourse.grader.submission, kvcourse.grader.nbval_run; print(set({heavy}) & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "set()"
